//! Keys: addresses, ports, protocols and MAC addresses of packets.

use flame_module::{Batch, FixedText, Ip, LinkType, Packet, mix};

/// The kind of key that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Src,
    Dst,
    Host,
    Pair,
    Flow,
    Sport,
    Dport,
    Port,
    Proto,
    Smac,
    Dmac,
    Mac,
}

const KINDS: [(&str, Kind); 12] = [
    ("src", Kind::Src),
    ("dst", Kind::Dst),
    ("host", Kind::Host),
    ("pair", Kind::Pair),
    ("flow", Kind::Flow),
    ("sport", Kind::Sport),
    ("dport", Kind::Dport),
    ("port", Kind::Port),
    ("proto", Kind::Proto),
    ("smac", Kind::Smac),
    ("dmac", Kind::Dmac),
    ("mac", Kind::Mac),
];

impl Kind {
    /// Returns the kind of this name.
    ///
    /// # Errors
    ///
    /// Returns an error that names the parameter and its possible values.
    pub fn of(name: &str) -> Result<Self, String> {
        let kind = KINDS.iter().find(|(n, _)| *n == name).map(|(_, kind)| *kind);
        kind.ok_or_else(|| {
            let names = KINDS.map(|(name, _)| name).join(", ");
            format!("parameter key: expected one of {names}, found {name:?}")
        })
    }
}

/// A key: up to two addresses, and ports, protocol and family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub a: [u8; 16],
    pub b: [u8; 16],
    /// Source port, destination port << 16, protocol << 32, family << 40.
    pub rest: u64,
}

pub const SIZE: usize = 40;

impl Key {
    pub fn to_bytes(self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..16].copy_from_slice(&self.a);
        bytes[16..32].copy_from_slice(&self.b);
        bytes[32..].copy_from_slice(&self.rest.to_le_bytes());
        bytes
    }

    pub fn from_bytes(bytes: &[u8; SIZE]) -> Self {
        let mut key = Self::default();
        key.a.copy_from_slice(&bytes[..16]);
        key.b.copy_from_slice(&bytes[16..32]);
        let mut rest = [0; 8];
        rest.copy_from_slice(&bytes[32..]);
        key.rest = u64::from_le_bytes(rest);
        key
    }

    /// Returns a hash that is spread over all bits.
    #[inline]
    pub fn hash(&self) -> u64 {
        let word = |bytes: &[u8; 16]| {
            let all = u128::from_le_bytes(*bytes);
            (all as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (all >> 64) as u64
        };
        mix(word(&self.a) ^ word(&self.b).rotate_left(23) ^ self.rest.rotate_left(41))
    }

    fn family(&self) -> u8 {
        (self.rest >> 40) as u8
    }
}

/// Returns the key of a packet, and the second one of kinds that count both ends. `None` if the packet has
/// none, or it is hidden.
#[inline]
pub fn keys(kind: Kind, batch: &Batch, packet: &Packet<'_>) -> Option<(Key, Option<Key>)> {
    let one = |ip: Ip| Key { a: ip.bytes, rest: u64::from(ip.family) << 40, ..Key::default() };
    let port = |port: u16| Key { rest: u64::from(port) | u64::from(packet.proto) << 32, ..Key::default() };
    let mac = |at: usize| {
        let bytes = packet.bytes().get(at..at + 6).filter(|_| batch.link() == LinkType::ETHERNET)?;
        let mut key = Key::default();
        key.a[..6].copy_from_slice(bytes);
        Some(key)
    };
    let both = |a: Key, b: Key| (a, (a != b).then_some(b));
    Some(match kind {
        Kind::Src => (one(packet.src()?), None),
        Kind::Dst => (one(packet.dst()?), None),
        Kind::Host => both(one(packet.src()?), one(packet.dst()?)),
        Kind::Pair | Kind::Flow => {
            let (src, dst) = (packet.src()?, packet.dst()?);
            let mut key = Key { a: src.bytes, b: dst.bytes, rest: u64::from(src.family) << 40 };
            if kind == Kind::Flow {
                let ports = packet.sport().zip(packet.dport()).unwrap_or((0, 0));
                key.rest |= u64::from(ports.0) | u64::from(ports.1) << 16 | u64::from(packet.proto) << 32;
            }
            (key, None)
        }
        Kind::Sport => (port(packet.sport()?), None),
        Kind::Dport => (port(packet.dport()?), None),
        Kind::Port => both(port(packet.sport()?), port(packet.dport()?)),
        Kind::Proto => {
            if !packet.is_ip() {
                return None;
            }
            (Key { rest: u64::from(packet.proto) << 32, ..Key::default() }, None)
        }
        Kind::Smac => (mac(6)?, None),
        Kind::Dmac => (mac(0)?, None),
        Kind::Mac => both(mac(6)?, mac(0)?),
    })
}

/// The longest text: two IPv6 addresses with ports.
pub const TEXT: usize = 120;

/// Appends a key, as `10.0.0.1`, `10.0.0.1 > 10.0.0.2`, `tcp 443` or `02:00:00:00:00:01`.
pub fn push(kind: Kind, key: &Key, text: &mut FixedText<TEXT>) {
    let (a, b) = (Ip { family: key.family(), bytes: key.a }, Ip { family: key.family(), bytes: key.b });
    match kind {
        Kind::Src | Kind::Dst | Kind::Host => text.push_ip(a),
        Kind::Pair => {
            text.push_ip(a);
            text.push(" > ");
            text.push_ip(b);
        }
        Kind::Flow => {
            push_proto(key, text);
            text.push(" ");
            push_end(a, key.rest as u16, text);
            text.push(" > ");
            push_end(b, (key.rest >> 16) as u16, text);
        }
        Kind::Sport | Kind::Dport | Kind::Port => {
            push_proto(key, text);
            text.push(" ");
            text.push_number((key.rest as u16).into());
        }
        Kind::Proto => push_proto(key, text),
        Kind::Smac | Kind::Dmac | Kind::Mac => {
            for (n, byte) in key.a[..6].iter().enumerate() {
                if n > 0 {
                    text.push(":");
                }
                text.push_hex((*byte).into(), 2);
            }
        }
    }
}

fn push_end(ip: Ip, port: u16, text: &mut FixedText<TEXT>) {
    if ip.family == 6 {
        text.push("[");
    }
    text.push_ip(ip);
    text.push(if ip.family == 6 { "]:" } else { ":" });
    text.push_number(port.into());
}

fn push_proto(key: &Key, text: &mut FixedText<TEXT>) {
    match (key.rest >> 32) as u8 {
        1 => text.push("icmp"),
        2 => text.push("igmp"),
        6 => text.push("tcp"),
        17 => text.push("udp"),
        47 => text.push("gre"),
        50 => text.push("esp"),
        51 => text.push("ah"),
        58 => text.push("icmpv6"),
        89 => text.push("ospf"),
        132 => text.push("sctp"),
        number => text.push_number(number.into()),
    }
}
