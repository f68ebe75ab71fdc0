//! The properties of a packet that rules refer to, computed once for all rules.

use super::fragments;
use crate::rule::Dialect;
use flame_module::{Ip, Packet, flags};

/// The set of rules that a packet can match: those for its transport, and those for `ip`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Tcp,
    Udp,
    Icmp,
    /// Any other packet over IP: truncated headers, other protocols, in Snort's dialect fragments.
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
    /// Whether this is a part of a datagram. In Suricata's dialect it has no transport header and no payload.
    pub is_part: bool,
    pub src: Ip,
    pub dst: Ip,
    /// Source and destination port; 0 if the transport has none.
    pub ports: (u16, u16),
    /// Whether rules compare the ports. In Suricata's dialect, a packet without ports matches rules about any
    /// ports alone.
    pub has_ports: bool,
    /// The IP header: at least 20 bytes, for IPv6 40.
    pub l3: &'a [u8],
    /// The whole transport header and the bytes after it; empty in group [`Group::Other`] and in a fragment.
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
        let (sport, dport) = (packet.sport(), packet.dport());
        let mut facts = Some(Self {
            group,
            v4,
            proto: packet.proto,
            tcp_flags: packet.tcp_flags,
            is_part: false,
            src,
            dst,
            ports: (sport.unwrap_or(0), dport.unwrap_or(0)),
            has_ports: !in_suricata || dport.is_some(),
            l3,
            l4: if group == Group::Other { &[] } else { packet.l4() },
            payload,
            payload_len: payload_len.unwrap_or(payload.len()) as u32,
            ts_ns: packet.ts_ns,
            wire_len: packet.wire_len,
            hash: packet.hash,
        });
        if packet.has(flags::FRAGMENT)
            && let Some(facts) = &mut facts
        {
            facts.limit_to_part(packet, in_suricata);
        }
        facts
    }

    /// Leaves a fragment the facts of its IP header alone, in Snort's dialect with its data.
    #[cold]
    fn limit_to_part(&mut self, packet: &Packet<'a>, in_suricata: bool) {
        if !fragments::is_part(packet) {
            return;
        }
        let group = match self.proto {
            6 if in_suricata => Group::Tcp,
            17 if in_suricata => Group::Udp,
            1 | 58 if in_suricata => Group::Icmp,
            _ => Group::Other,
        };
        let (payload, length) = if in_suricata { (&[][..], None) } else { carried(packet, self.l3, self.v4) };
        (self.is_part, self.group, self.tcp_flags) = (true, group, 0);
        (self.ports, self.has_ports, self.l4) = ((0, 0), !in_suricata, &[]);
        (self.payload, self.payload_len) = (payload, length.unwrap_or(payload.len()) as u32);
    }

    /// Returns whether the packet belongs to a connection in Suricata's dialect: one of TCP, UDP, ICMP, SCTP,
    /// ESP or of IP in IP that is not a fragment.
    #[inline]
    pub fn is_in_flow(&self) -> bool {
        !self.is_part
            && match self.proto {
                6 | 17 => self.group != Group::Other,
                1 => self.v4 && self.group != Group::Other,
                58 => !self.v4 && self.group != Group::Other,
                SCTP | ESP | 4 | 41 => true,
                _ => false,
            }
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
