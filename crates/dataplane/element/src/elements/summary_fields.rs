//! The fields of IP summary dumps: from text to packets and back.

use super::summary_options::{parse_ip_options, parse_tcp_options, unparse_ip_options, unparse_tcp_options};
use super::util::{be16, be32, ip_header, put16, put32, set_ip_checksum, set_transport_checksum};
use crate::runtime::packet::{ANNO_AGGREGATE, ANNO_EXTRA_LENGTH, ANNO_PAINT, Packet};
use flame_click::value::integer;
use flame_click::{Ip, Nanos, text};
use std::fmt::Write as _;

macro_rules! fields {
    ($($id:ident $name:literal $($alias:literal)*;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Field { $($id),* }
        impl Field {
            pub fn name(self) -> &'static str {
                match self { $(Self::$id => $name),* }
            }
            fn parse(name: &str) -> Option<Self> {
                match name { $($name $(| $alias)* => Some(Self::$id),)* _ => None }
            }
        }
    };
}

fields! {
    Time "timestamp" "ts";
    TimeSec "ts_sec";
    TimeUsec "ts_usec";
    NTime "ntimestamp" "nts";
    Src "ip_src" "src" "saddr";
    Dst "ip_dst" "dst" "daddr";
    Sport "sport";
    Dport "dport";
    Proto "ip_proto" "proto";
    IpLen "ip_len" "length";
    CaptureLen "ip_capture_len";
    IpHl "ip_hl";
    Tos "ip_tos" "tos";
    Dscp "ip_dscp";
    Ecn "ip_ecn" "ecn";
    Ttl "ip_ttl" "ttl";
    IpId "ip_id" "ipid";
    IpSum "ip_sum";
    Frag "ip_frag" "frag";
    FragOff "ip_fragoff" "fragoff";
    IpOpt "ip_opt";
    TcpFlags "tcp_flags" "flags";
    TcpOff "tcp_off";
    TcpSeq "tcp_seq";
    TcpAck "tcp_ack";
    TcpWin "tcp_window" "tcp_win" "window";
    TcpUrp "tcp_urp" "urp";
    TcpOpt "tcp_opt";
    TcpSum "tcp_sum";
    UdpLen "udp_len";
    UdpSum "udp_sum";
    IcmpType "icmp_type";
    IcmpTypeName "icmp_type_name";
    IcmpCode "icmp_code";
    IcmpId "icmp_flowid";
    IcmpSeq "icmp_seq";
    Payload "payload";
    PayloadLen "payload_len";
    Link "link" "paint";
    Direction "direction";
    Aggregate "aggregate";
    Count "count" "num_pkts";
}

pub fn parse_list<'a>(names: impl Iterator<Item = &'a str>) -> Result<Vec<Field>, String> {
    names
        .map(|n| Field::parse(n.trim_matches(['\'', '"'])).ok_or_else(|| format!("unknown field '{n}'")))
        .collect()
}

pub fn parse_protocol(text: &str) -> Option<u8> {
    match text {
        "T" | "tcp" => Some(6),
        "U" | "udp" => Some(17),
        "I" | "icmp" => Some(1),
        _ => text.parse().ok(),
    }
}

const FLAGS: &str = "FSRPAUEWN";

const ICMP_TYPES: &[(u8, &str)] = &[
    (0, "echo-reply"),
    (3, "unreachable"),
    (4, "sourcequench"),
    (5, "redirect"),
    (8, "echo"),
    (9, "routeradvert"),
    (10, "routersolicit"),
    (11, "timeexceeded"),
    (12, "parameterproblem"),
    (13, "timestamp"),
    (14, "timestamp-reply"),
    (15, "inforeq"),
    (16, "inforeq-reply"),
    (17, "maskreq"),
    (18, "maskreq-reply"),
];

/// Returns the type that a name or number of Click's stands for.
pub fn icmp_type(name: &str) -> Option<u8> {
    let known = ICMP_TYPES.iter().find(|(_, n)| *n == name).map(|(t, _)| *t);
    known.or_else(|| match name {
        "echo_reply" | "ping-reply" => Some(0),
        "ping" => Some(8),
        "parameterproblem" | "paramprob" => Some(12),
        _ => name.parse().ok(),
    })
}

pub fn icmp_name(kind: u8) -> Option<&'static str> {
    ICMP_TYPES.iter().find(|(t, _)| *t == kind).map(|(_, n)| *n)
}

/// Returns whether ICMP packets of a type have an identifier and a number: echoes, timestamps, information
/// and masks.
fn is_sequenced(kind: u8) -> bool {
    matches!(kind, 0 | 8 | 13..=18)
}

/// The values of a line.
#[derive(Default)]
pub struct Line {
    protocol: u8,
    time: Nanos,
    src: Ip,
    dst: Ip,
    ports: (u16, u16),
    ip_len: Option<u16>,
    ip_hl: Option<u8>,
    tos: u8,
    ttl: Option<u8>,
    id: u16,
    frag: u16,
    ip_options: Vec<u8>,
    flags: u16,
    off: Option<u8>,
    seq: u32,
    ack: u32,
    window: u16,
    urgent: u16,
    tcp_options: Vec<u8>,
    icmp: (Option<u8>, u8),
    /// The identifier and the number of an ICMP packet.
    sequenced: (u16, u16),
    udp_len: Option<u16>,
    payload: Vec<u8>,
    paint: u8,
    aggregate: u32,
}

fn number<T: TryFrom<i128>>(word: &str) -> Result<T, String> {
    integer(word)
        .and_then(|v| T::try_from(v).ok())
        .ok_or_else(|| format!("expected a number, found '{word}'"))
}

impl Line {
    pub fn new(protocol: u8) -> Self {
        Self { protocol, ..Self::default() }
    }

    pub fn parse(&mut self, layout: &[Field], line: &str) -> Result<(), String> {
        let words = text::words(line);
        for (field, word) in layout.iter().zip(&words).filter(|(_, w)| *w != "-") {
            self.set(*field, word).map_err(|e| format!("{}: {e}", field.name()))?;
        }
        Ok(())
    }

    fn set(&mut self, field: Field, word: &str) -> Result<(), String> {
        let bad = |what: &str| format!("expected {what}, found '{word}'");
        match field {
            Field::Time | Field::NTime => self.time = Nanos::parse(word).ok_or_else(|| bad("a time"))?,
            Field::TimeSec => self.time = Nanos(number::<i64>(word)?.saturating_mul(1_000_000_000)),
            Field::TimeUsec => self.time = self.time + Nanos(number::<i64>(word)?.saturating_mul(1000)),
            Field::Src => self.src = Ip::parse(word).ok_or_else(|| bad("an IP address"))?,
            Field::Dst => self.dst = Ip::parse(word).ok_or_else(|| bad("an IP address"))?,
            Field::Sport => self.ports.0 = number(word)?,
            Field::Dport => self.ports.1 = number(word)?,
            Field::Proto => self.protocol = parse_protocol(word).ok_or_else(|| bad("a protocol"))?,
            Field::IpLen => self.ip_len = Some(number(word)?),
            Field::IpHl => self.ip_hl = Some(number(word)?),
            Field::Tos => self.tos = number(word)?,
            Field::Dscp => self.tos = self.tos & 3 | number::<u8>(word)? << 2,
            Field::Ecn => {
                let ecn = match word {
                    "no" | "0" => 0,
                    "ect1" | "ect" | "1" => 1,
                    "ect2" | "ect0" | "2" => 2,
                    "ce" | "3" => 3,
                    _ => return Err(bad("no, ect1, ect2 or ce")),
                };
                self.tos = self.tos & !3 | ecn;
            }
            Field::Ttl => self.ttl = Some(number(word)?),
            Field::IpId => self.id = number(word)?,
            Field::Frag => match word {
                "." => {}
                "F" => self.frag |= 0x2000,
                "f" => self.frag = self.frag & 0xe000 | 100,
                _ => return Err(bad("F, f or .")),
            },
            Field::FragOff => {
                let (word, more) = word.strip_suffix('+').map_or((word, false), |w| (w, true));
                self.frag = self.frag & 0xc000 | (number::<u16>(word)? / 8) & 0x1fff | u16::from(more) << 13;
            }
            Field::IpOpt => self.ip_options = parse_ip_options(word)?,
            Field::TcpFlags => {
                if let Ok(n) = number::<u16>(word) {
                    self.flags = n & 0x1ff;
                } else if word != "." {
                    for c in word.chars() {
                        self.flags |= 1 << FLAGS.find(c).ok_or_else(|| bad("flags of FSRPAUEWN"))?;
                    }
                }
            }
            Field::TcpOff => self.off = Some(number(word)?),
            Field::TcpSeq => self.seq = number(word)?,
            Field::TcpAck => self.ack = number(word)?,
            Field::TcpWin => self.window = number(word)?,
            Field::TcpUrp => self.urgent = number(word)?,
            Field::TcpOpt => self.tcp_options = parse_tcp_options(word)?,
            Field::UdpLen => self.udp_len = Some(number(word)?),
            Field::IcmpType | Field::IcmpTypeName => {
                self.icmp.0 = Some(icmp_type(word).ok_or_else(|| bad("a type of ICMP"))?);
            }
            Field::IcmpCode => self.icmp.1 = number(word)?,
            Field::IcmpId => self.sequenced.0 = number(word)?,
            Field::IcmpSeq => self.sequenced.1 = number(word)?,
            Field::Payload => self.payload = text::encode(&text::unquote(word)),
            Field::Link | Field::Direction => {
                self.paint = match word {
                    "L" | ">" => 0,
                    "R" | "<" => 1,
                    _ => number(word)?,
                }
            }
            Field::Aggregate => self.aggregate = number(word)?,
            Field::CaptureLen
            | Field::IpSum
            | Field::TcpSum
            | Field::UdpSum
            | Field::PayloadLen
            | Field::Count => {}
        }
        Ok(())
    }

    /// Makes the packet.
    pub fn packet(&self, zero: bool, checksum: bool) -> Packet {
        let padded = |options: &[u8]| options.len().div_ceil(4) * 4;
        let ip_length =
            usize::from(self.ip_hl.unwrap_or(20)).clamp(20, 60).max(20 + padded(&self.ip_options)).min(60);
        let ip_length = ip_length / 4 * 4;
        let is_first = self.frag & 0x1fff == 0;
        let transport = match self.protocol {
            _ if !is_first => 0,
            6 => {
                usize::from(self.off.unwrap_or(20)).clamp(20, 60).max(20 + padded(&self.tcp_options)).min(60)
                    / 4
                    * 4
            }
            17 | 1 => 8,
            _ => 0,
        };
        let have = ip_length + transport + self.payload.len().min(60_000);
        let total = self.ip_len.map_or(have, usize::from);
        let size = if zero { have.max(total) } else { have };
        let mut p =
            Packet::with_room(crate::runtime::packet::HEADROOM, size, crate::runtime::packet::TAILROOM);
        let d = p.data_mut();
        d.fill(0);
        d[0] = 0x40 | (ip_length / 4) as u8;
        d[1] = self.tos;
        put16(d, 2, total as u16);
        put16(d, 4, self.id);
        put16(d, 6, self.frag);
        d[8] = self.ttl.unwrap_or(100);
        d[9] = self.protocol;
        put32(d, 12, self.src.0);
        put32(d, 16, self.dst.0);
        let options = &self.ip_options[..self.ip_options.len().min(ip_length - 20)];
        d[20..20 + options.len()].copy_from_slice(options);
        let t = &mut d[ip_length..];
        match (self.protocol, transport) {
            (_, 0) => {}
            (6, _) => {
                put16(t, 0, self.ports.0);
                put16(t, 2, self.ports.1);
                put32(t, 4, self.seq);
                put32(t, 8, self.ack);
                put16(t, 12, (transport as u16 / 4) << 12 | self.flags);
                put16(t, 14, self.window);
                put16(t, 18, self.urgent);
                let options = &self.tcp_options[..self.tcp_options.len().min(transport - 20)];
                t[20..20 + options.len()].copy_from_slice(options);
            }
            (17, _) => {
                put16(t, 0, self.ports.0);
                put16(t, 2, self.ports.1);
                put16(t, 4, self.udp_len.unwrap_or(total.saturating_sub(ip_length) as u16));
            }
            _ => {
                (t[0], t[1]) = (self.icmp.0.unwrap_or(0), self.icmp.1);
                put16(t, 4, self.sequenced.0);
                put16(t, 6, self.sequenced.1);
            }
        }
        d[ip_length + transport..have].copy_from_slice(&self.payload[..have - ip_length - transport]);
        p.set_network(0, ip_length);
        if total < p.len() {
            p.truncate(total.max(ip_length));
        }
        let extra = total.saturating_sub(p.len()) as u32;
        p.anno.set_u32(ANNO_EXTRA_LENGTH, extra);
        p.anno.time = self.time;
        p.anno.set_dst_ip(self.dst);
        p.anno.bytes[ANNO_PAINT] = self.paint;
        p.anno.set_u32(ANNO_AGGREGATE, self.aggregate);
        if checksum {
            set_ip_checksum(p.data_mut());
            set_transport_checksum(&mut p, self.protocol);
        }
        p
    }
}

impl Field {
    /// Returns the text of a field, if the packet has it.
    pub fn unparse(self, p: &Packet) -> Option<String> {
        let number = |v: u64| Some(v.to_string());
        match self {
            Self::Time => return Some(p.anno.time.to_string()),
            Self::NTime => {
                return Some(format!("{}{:03}", p.anno.time.micros(), p.anno.time.0.unsigned_abs() % 1000));
            }
            Self::TimeSec => return Some(p.anno.time.0.div_euclid(1_000_000_000).to_string()),
            Self::TimeUsec => return Some((p.anno.time.0.rem_euclid(1_000_000_000) / 1000).to_string()),
            Self::Link => return number(p.anno.bytes[ANNO_PAINT].into()),
            Self::Direction => {
                return Some(match p.anno.bytes[ANNO_PAINT] {
                    0 => ">".into(),
                    1 => "<".into(),
                    other => other.to_string(),
                });
            }
            Self::Aggregate => return number(p.anno.u32(ANNO_AGGREGATE).into()),
            Self::Count => return number(1),
            _ => {}
        }
        let at = p.network()?;
        let h = p.data().get(at..).filter(|h| h.len() >= 20 && h[0] >> 4 == 4)?;
        match self {
            Self::Src => return Some(Ip(be32(h, 12)).to_string()),
            Self::Dst => return Some(Ip(be32(h, 16)).to_string()),
            Self::Proto => {
                return Some(match h[9] {
                    6 => "T".into(),
                    17 => "U".into(),
                    1 => "I".into(),
                    other => other.to_string(),
                });
            }
            Self::IpLen => return number(be16(h, 2).into()),
            Self::CaptureLen => return number(h.len() as u64),
            Self::IpHl => return number(u64::from(h[0] & 15) * 4),
            Self::Tos => return number(h[1].into()),
            Self::Dscp => return number((h[1] >> 2).into()),
            Self::Ecn => return Some(["no", "ect1", "ect2", "ce"][usize::from(h[1] & 3)].into()),
            Self::Ttl => return number(h[8].into()),
            Self::IpId => return number(be16(h, 4).into()),
            Self::IpSum => return number(be16(h, 10).into()),
            Self::Frag => {
                let field = be16(h, 6);
                let kind = if field & 0x1fff != 0 {
                    "f"
                } else if field & 0x2000 != 0 {
                    "F"
                } else {
                    "."
                };
                return Some(kind.into());
            }
            Self::FragOff => {
                let field = be16(h, 6);
                let more = if field & 0x2000 != 0 { "+" } else { "" };
                return Some(format!("{}{more}", u64::from(field & 0x1fff) * 8));
            }
            _ => {}
        }
        let ip = ip_header(p)?;
        if self == Self::IpOpt {
            return Some(unparse_ip_options(&h[20..ip.length]));
        }
        // The length field ends the packet; a capture that cut it off does not.
        let t = &h[ip.length..];
        let header = match ip.protocol {
            6 if t.len() > 12 => usize::from(t[12] >> 4) * 4,
            17 => 8,
            _ => 0,
        };
        let has = |end: usize| ip.is_first_fragment() && t.len() >= end;
        let when = |ok: bool, v: u64| ok.then(|| v.to_string());
        let (tcp, udp, icmp) = (ip.protocol == 6, ip.protocol == 17, ip.protocol == 1);
        match self {
            Self::Sport => when((tcp || udp) && has(2), be16(t, 0).into()),
            Self::Dport => when((tcp || udp) && has(4), be16(t, 2).into()),
            Self::TcpSeq => when(tcp && has(8), be32(t, 4).into()),
            Self::TcpAck => when(tcp && has(12), be32(t, 8).into()),
            Self::TcpOff => when(tcp && has(13), header as u64),
            Self::TcpFlags => (tcp && has(14)).then(|| {
                let bits = be16(t, 12) & 0x1ff;
                let flags: String =
                    FLAGS.chars().enumerate().filter(|(i, _)| bits >> i & 1 != 0).map(|(_, c)| c).collect();
                if flags.is_empty() { ".".into() } else { flags }
            }),
            Self::TcpWin => when(tcp && has(16), be16(t, 14).into()),
            Self::TcpSum => when(tcp && has(18), be16(t, 16).into()),
            Self::TcpUrp => when(tcp && has(20), be16(t, 18).into()),
            Self::TcpOpt => (tcp && has(header.max(20))).then(|| unparse_tcp_options(&t[20..header.max(20)])),
            Self::UdpLen => when(udp && has(6), be16(t, 4).into()),
            Self::UdpSum => when(udp && has(8), be16(t, 6).into()),
            Self::IcmpType => when(icmp && has(1), t.first().copied().unwrap_or(0).into()),
            Self::IcmpTypeName => {
                (icmp && has(1)).then(|| icmp_name(t[0]).map_or(t[0].to_string(), str::to_owned))
            }
            Self::IcmpCode => when(icmp && has(2), t.get(1).copied().unwrap_or(0).into()),
            Self::IcmpId => when(icmp && has(8) && is_sequenced(t[0]), be16(t, 4).into()),
            Self::IcmpSeq => when(icmp && has(8) && is_sequenced(t[0]), be16(t, 6).into()),
            Self::PayloadLen => {
                let total = usize::from(be16(h, 2)).max(ip.length);
                number(
                    total.saturating_sub(ip.length + if ip.is_first_fragment() { header } else { 0 }) as u64
                )
            }
            Self::Payload => {
                let start = if ip.is_first_fragment() { header } else { 0 };
                let end = (ip.total - ip.length).max(start).min(t.len());
                Some(quote_payload(t.get(start..end).unwrap_or(&[])))
            }
            _ => None,
        }
    }
}

fn quote_payload(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for b in bytes {
        let _ = match b {
            b'"' | b'\\' => write!(out, "\\{}", char::from(*b)),
            b'\n' => write!(out, "\\n"),
            b'\r' => write!(out, "\\r"),
            b'\t' => write!(out, "\\t"),
            32..=126 => write!(out, "{}", char::from(*b)),
            _ => write!(out, "\\{b:03o}"),
        };
    }
    out.push('"');
    out
}
