//! The properties of a packet that rules refer to, computed once for all rules.

use crate::rule::Dialect;
use flame_module::{Ip, Packet, flags};

/// The set of rules that a packet can match: those for its transport, and those for `ip`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Tcp,
    Udp,
    Icmp,
    /// Any other packet over IP: later fragments, truncated headers, other protocols.
    Other,
}

impl Group {
    pub const COUNT: usize = 4;
}

const ESP: u8 = 50;
const ESP_HEADER: usize = 8;
const SCTP: u8 = 132;

pub struct Facts<'a> {
    pub group: Group,
    pub v4: bool,
    pub proto: u8,
    pub tcp_flags: u8,
    pub src: Ip,
    pub dst: Ip,
    /// Source and destination port; 0 if the transport has none.
    pub ports: (u16, u16),
    /// The IP header: at least 20 bytes, for IPv6 40.
    pub l3: &'a [u8],
    /// The whole transport header and the bytes after it; empty in group [`Group::Other`].
    pub l4: &'a [u8],
    /// The visible part of the payload. In Suricata's dialect only TCP, UDP, ICMP, SCTP and ESP have one.
    pub payload: &'a [u8],
    /// The length of the payload in bytes according to the headers.
    pub payload_len: u32,
    pub ts_ns: u64,
    pub wire_len: u32,
    pub hash: u32,
}

impl<'a> Facts<'a> {
    /// Returns the facts of a packet, or `None` if there is no whole IP header or its addresses are hidden.
    #[inline]
    pub fn of(packet: &Packet<'a>, dialect: Dialect) -> Option<Self> {
        let (src, dst) = (packet.src()?, packet.dst()?);
        let group = match packet.proto {
            _ if !packet.has(flags::TRANSPORT) => Group::Other,
            6 => Group::Tcp,
            17 => Group::Udp,
            1 | 58 => Group::Icmp,
            _ => Group::Other,
        };
        let v4 = packet.has(flags::IPV4);
        let l3 = packet.l3();
        if packet.l4 <= packet.l3 || v4 && usize::from(l3[0] & 15) * 4 > l3.len() {
            return None;
        }
        let in_suricata = dialect == Dialect::Suricata;
        let (payload, payload_len) = match packet.proto {
            _ if group != Group::Other => (packet.payload(), packet.payload_len()),
            SCTP if packet.has(flags::TRANSPORT) => (packet.payload(), packet.payload_len()),
            ESP if in_suricata && !packet.has(flags::LATER_FRAGMENT) => {
                let (bytes, length) = carried(packet, l3, v4);
                (bytes.get(ESP_HEADER..).unwrap_or(&[]), length.map(|n| n.saturating_sub(ESP_HEADER)))
            }
            _ if in_suricata => (&[][..], Some(0)),
            _ if packet.has(flags::TRANSPORT) => (packet.payload(), packet.payload_len()),
            _ => carried(packet, l3, v4),
        };
        Some(Self {
            group,
            v4,
            proto: packet.proto,
            tcp_flags: packet.tcp_flags,
            src,
            dst,
            ports: (packet.sport().unwrap_or(0), packet.dport().unwrap_or(0)),
            l3,
            l4: if group == Group::Other { &[] } else { packet.l4() },
            payload,
            payload_len: payload_len.unwrap_or(payload.len()) as u32,
            ts_ns: packet.ts_ns,
            wire_len: packet.wire_len,
            hash: packet.hash,
        })
    }

    /// Returns a big-endian number of the IP or transport header.
    #[inline]
    pub fn number<const N: usize>(header: &[u8], at: usize) -> Option<u32> {
        let bytes = header.get(at..at + N)?;
        Some(bytes.iter().fold(0, |n, b| n << 8 | u32::from(*b)))
    }
}

/// Returns the visible payload of an IP header without a transport header, without the link's padding, and
/// the payload's length in bytes according to the header.
fn carried<'a>(packet: &Packet<'a>, l3: &'a [u8], v4: bool) -> (&'a [u8], Option<usize>) {
    let start = usize::from(packet.l4.saturating_sub(packet.l3));
    let stated = Facts::number::<2>(l3, if v4 { 2 } else { 4 }).filter(|n| *n > 0).map(|n| n as usize);
    let length = stated.map(|n| (if v4 { n } else { n + 40 }).saturating_sub(start));
    let rest = l3.get(start..).unwrap_or(&[]);
    (&rest[..length.unwrap_or(rest.len()).min(rest.len())], length)
}
