//! IPPrint(LABEL, CONTENTS, PAYLOAD, MAXLENGTH, TIMESTAMP, TOS, TTL, ID, LEN, PAINT, ACTIVE),
//! ARPPrint(LABEL, TIMESTAMP, ETHER, ACTIVE): print packets on standard error as tcpdump does. With ETHER
//! there are the Ethernet addresses, too. `(1,41,41)` of TCP is the length in sequence numbers, that of the
//! packet, and that in the IP header.
//! Expects: packets with marked IP headers; ARPPrint takes Ethernet packets.
//! Gives: the same packets.
//! Handlers: none.
//! Example: `IPPrint(out, PAYLOAD ascii)`

use super::arp::mac_at;
use super::print::Contents;
use super::summary_fields::icmp_name;
use super::util::{be16, be32, ip_header};
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::{ANNO_EXTRA_LENGTH, ANNO_PAINT, Packet};
use flame_click::Ip;
use std::fmt::Write as _;

const SOURCE: &str = include_str!("ipprint.rs");

struct IpPrint {
    label: String,
    contents: Contents,
    payload: Contents,
    max: usize,
    timestamp: bool,
    tos: bool,
    ttl: bool,
    id: bool,
    length: bool,
    paint: bool,
    is_active: bool,
}

impl IpPrint {
    fn line(&self, p: &Packet) -> String {
        let mut s = String::new();
        if !self.label.is_empty() {
            let _ = write!(s, "{}: ", self.label);
        }
        if self.timestamp {
            let _ = write!(s, "{}: ", p.anno.time);
        }
        if self.paint {
            let _ = write!(s, "paint {}: ", p.anno.bytes[ANNO_PAINT]);
        }
        let Some(h) = ip_header(p) else { return s + "(not IP)" };
        let d = &p.data()[h.at..];
        let total = usize::from(be16(d, 2));
        for (wanted, name, value) in [
            (self.tos, "tos", usize::from(d[1])),
            (self.ttl, "ttl", usize::from(d[8])),
            (self.id, "id", usize::from(be16(d, 4))),
            (self.length, "length", total),
        ] {
            if wanted {
                let _ = write!(s, "{name} {value} ");
            }
        }
        let t = &d[h.length..];
        let ports = h.is_first_fragment() && matches!(h.protocol, 6 | 17) && t.len() >= 8;
        let _ = match ports {
            true => write!(s, "{}.{} > {}.{}: ", h.source, be16(t, 0), h.destination, be16(t, 2)),
            false => write!(s, "{} > {}: ", h.source, h.destination),
        };
        let _ = match (h.protocol, ports) {
            (6, true) if t.len() >= 20 => {
                self.tcp(&mut s, t, p.len(), total.max(h.length), h.length);
                Ok(())
            }
            (17, true) => write!(s, "udp {}", be16(t, 4)),
            (6, _) => write!(s, "tcp"),
            (17, _) => write!(s, "udp"),
            (1, _) if h.is_first_fragment() && t.len() >= 2 => {
                let name = icmp_name(t[0]).map_or_else(|| format!("type {}", t[0]), str::to_owned);
                match (t[0], super::icmp::code_name(t[0], t[1])) {
                    (0 | 8, _) if t.len() >= 8 => write!(s, "icmp {name} ({}, {})", be16(t, 4), be16(t, 6)),
                    // The destination of the packet that it quotes.
                    (3, Some(code)) if t.len() >= 28 => {
                        write!(s, "icmp {} {name} {code}", Ip::from_bytes(&t[24..]))
                    }
                    (_, Some(code)) => write!(s, "icmp {name} {code}"),
                    (_, None) => write!(s, "icmp {name}"),
                }
            }
            (1, _) => write!(s, "icmp"),
            (n, _) => write!(s, "ip-proto-{n}"),
        };
        if h.offset > 0 || h.has_more {
            let more = if h.has_more { "+" } else { "" };
            let _ = write!(s, " (frag {}:{}@{}{more})", be16(d, 4), total.saturating_sub(h.length), h.offset);
        }
        if self.contents != Contents::None {
            self.dump(&mut s, self.contents, &p.data()[h.at..h.end()]);
        }
        if self.payload != Contents::None {
            let skip = match (h.protocol, ports) {
                (6, true) => usize::from(t.get(12).map_or(5, |b| b >> 4)) * 4,
                (17, true) => 8,
                _ => 0,
            };
            self.dump(&mut s, self.payload, t.get(skip..h.total - h.length).unwrap_or(&[]));
        }
        s
    }

    /// Writes what TCP says of a packet of `whole` bytes, of which IP has `total`.
    fn tcp(&self, s: &mut String, t: &[u8], whole: usize, total: usize, ip_length: usize) {
        let flags = t[13];
        let letters: String = [(2, 'S'), (1, 'F'), (4, 'R'), (8, 'P')]
            .iter()
            .filter(|(b, _)| flags & b != 0)
            .map(|(_, c)| *c)
            .collect();
        let headers = ip_length + usize::from(t[12] >> 4) * 4;
        let length = total.saturating_sub(headers) + usize::from(flags & 1) + usize::from(flags >> 1 & 1);
        let seq = be32(t, 4);
        let letters = if letters.is_empty() { ".".into() } else { letters };
        let end = seq.wrapping_add(length as u32);
        let _ = write!(s, "{letters} {seq}:{end}({length},{whole},{total})");
        if flags & 16 != 0 {
            let _ = write!(s, " ack {}", be32(t, 8));
        }
        let _ = write!(s, " win {}", be16(t, 14));
    }

    /// Writes bytes on lines of their own.
    fn dump(&self, s: &mut String, how: Contents, bytes: &[u8]) {
        let per_line = if how == Contents::Hex { 16 } else { 48 };
        for line in bytes[..bytes.len().min(self.max)].chunks(per_line) {
            s.push_str("\n ");
            how.write(s, line);
        }
    }
}

impl Element for IpPrint {
    fn action(&self, cx: &Cx<'_>, p: Packet) -> Option<Packet> {
        if self.is_active {
            cx.message(&self.line(&p));
        }
        Some(p)
    }
}

class!(
    IP_PRINT,
    "IPPrint",
    "1/1",
    "a/a",
    [
        "LABEL",
        "CONTENTS",
        "PAYLOAD",
        "MAXLENGTH",
        "NBYTES",
        "LENGTH",
        "TIMESTAMP",
        "TOS",
        "TTL",
        "ID",
        "LEN",
        "PAINT",
        "ACTIVE",
        "AGGREGATE",
        "SWAP",
        "OUTFILE"
    ],
    |args, _| {
        let label = args.opt("LABEL").unwrap_or_default();
        let contents = |args: &mut flame_click::Args<'_>, key: &str| {
            let text: Option<String> = args.key(key);
            text.map_or(Some(Contents::None), |t| Contents::parse(&t)).unwrap_or_else(|| {
                args.error(format!("{key}: expected NONE, HEX or ASCII"));
                Contents::None
            })
        };
        let max: i64 = args.key("MAXLENGTH").or_else(|| args.key("NBYTES")).unwrap_or(1500);
        Box::new(IpPrint {
            label,
            contents: contents(args, "CONTENTS"),
            payload: contents(args, "PAYLOAD"),
            max: usize::try_from(max).unwrap_or(usize::MAX),
            timestamp: args.key("TIMESTAMP").unwrap_or(true),
            tos: args.key("TOS").unwrap_or(false),
            ttl: args.key("TTL").unwrap_or(false),
            id: args.key("ID").unwrap_or(false),
            length: args.key("LEN").or_else(|| args.key("LENGTH")).unwrap_or(false),
            paint: args.key("PAINT").unwrap_or(false),
            is_active: args.key("ACTIVE").unwrap_or(true),
        })
    }
);

struct ArpPrint {
    label: String,
    timestamp: bool,
    ether: bool,
    is_active: bool,
}

impl ArpPrint {
    fn line(&self, p: &Packet) -> String {
        let f = p.data();
        let mut s = if self.label.is_empty() { String::new() } else { format!("{}: ", self.label) };
        if self.timestamp {
            let _ = write!(s, "{}: ", p.anno.time);
        }
        if self.ether && f.len() >= 14 {
            let _ = write!(s, "{} > {}: ", mac_at(f, 6), mac_at(f, 0));
        }
        let ip = |at: usize| Ip::from_bytes(&f[at..]);
        let _ = match (f.len() >= 42 && be16(f, 12) == 0x0806, be16(f, 20)) {
            (true, 1) => write!(s, "arp who-has {} tell {}", ip(38), ip(28)),
            (true, 2) => write!(s, "arp reply {} is-at {}", ip(28), mac_at(f, 22)),
            (true, op) => write!(s, "arp operation {op}"),
            _ => write!(s, "(not ARP)"),
        };
        s
    }
}

impl Element for ArpPrint {
    fn action(&self, cx: &Cx<'_>, p: Packet) -> Option<Packet> {
        if self.is_active {
            cx.message(&self.line(&p));
        }
        Some(p)
    }
}

class!(ARP_PRINT, "ARPPrint", "1/1", "a/a", ["LABEL", "TIMESTAMP", "ACTIVE", "ETHER"], |args, _| {
    Box::new(ArpPrint {
        label: args.opt("LABEL").unwrap_or_default(),
        timestamp: args.key("TIMESTAMP").unwrap_or(true),
        ether: args.key("ETHER").unwrap_or(false),
        is_active: args.key("ACTIVE").unwrap_or(true),
    })
});

/// Returns the length on the wire, with the extra length, which is not printed.
pub fn wire_length(p: &Packet) -> usize {
    p.len() + p.anno.u32(ANNO_EXTRA_LENGTH) as usize
}
