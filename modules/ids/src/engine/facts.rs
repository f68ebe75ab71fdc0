//! What rules ask of a packet, found once for all of them.

use flame_module::{Ip, Packet, flags};

/// Which rules a packet can match: those for its transport, and those for `ip`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Tcp,
    Udp,
    Icmp,
    /// Anything else over IP: later fragments, headers cut short, other protocols.
    Other,
}

impl Group {
    pub const COUNT: usize = 4;
}

pub struct Facts<'a> {
    pub group: Group,
    pub v4: bool,
    pub proto: u8,
    pub tcp_flags: u8,
    pub src: Ip,
    pub dst: Ip,
    /// Source and destination; 0 where the transport has none.
    pub ports: (u16, u16),
    /// At least 20 bytes, of IPv6 40.
    pub l3: &'a [u8],
    /// The whole transport header and what follows; empty in group [`Group::Other`].
    pub l4: &'a [u8],
    /// As much of it as is to be seen.
    pub payload: &'a [u8],
    /// As the headers have it.
    pub payload_len: u32,
    pub ts_ns: u64,
    pub wire_len: u32,
    pub hash: u32,
}

impl<'a> Facts<'a> {
    /// Nothing if there is no whole IP header, or its addresses are not to be seen.
    #[inline]
    pub fn of(packet: &Packet<'a>) -> Option<Self> {
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
        let (payload, payload_len) = if packet.has(flags::TRANSPORT) {
            (packet.payload(), packet.payload_len())
        } else {
            carried(packet, l3, v4)
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

    /// A big-endian number of the IP or transport header.
    #[inline]
    pub fn number<const N: usize>(header: &[u8], at: usize) -> Option<u32> {
        let bytes = header.get(at..at + N)?;
        Some(bytes.iter().fold(0, |n, b| n << 8 | u32::from(*b)))
    }
}

/// What an IP header carries that has no transport header behind it, without the link's padding; and how much
/// that is by the header.
fn carried<'a>(packet: &Packet<'a>, l3: &'a [u8], v4: bool) -> (&'a [u8], Option<usize>) {
    let start = usize::from(packet.l4.saturating_sub(packet.l3));
    let said = Facts::number::<2>(l3, if v4 { 2 } else { 4 }).filter(|n| *n > 0).map(|n| n as usize);
    let length = said.map(|n| (if v4 { n } else { n + 40 }).saturating_sub(start));
    let rest = l3.get(start..).unwrap_or(&[]);
    (&rest[..length.unwrap_or(rest.len()).min(rest.len())], length)
}
