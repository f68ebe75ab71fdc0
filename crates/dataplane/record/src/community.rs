//! Community ID, version 1, with seed 0: a hash of a flow by which tools recognise it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};
use std::net::IpAddr;

/// Pairs of ICMP messages of which one answers the other.
const ICMP: [(u8, u8); 5] = [(8, 0), (13, 14), (15, 16), (17, 18), (10, 9)];
const ICMPV6: [(u8, u8); 6] = [(128, 129), (133, 134), (135, 136), (130, 131), (139, 140), (144, 145)];

/// The characters of an id: `1:` and 20 bytes in base64.
const LENGTH: usize = 30;

/// An id, as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id([u8; LENGTH]);

impl Id {
    /// Returns the text of the id.
    pub fn as_str(&self) -> &str {
        // Base64 is ASCII.
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// Returns the id of a flow. `ports` are type and code for ICMP, and do not matter for protocols without.
pub fn id(proto: u8, src: IpAddr, dst: IpAddr, ports: (u16, u16)) -> Id {
    let octets = (octets(&src), octets(&dst));
    let (mut from, mut to) = ((octets.0.as_ref(), ports.0), (octets.1.as_ref(), ports.1));
    let (mut one_way, mut with_ports) = (false, true);
    match proto {
        1 | 58 => {
            let pairs: &[(u8, u8)] = if proto == 1 { &ICMP } else { &ICMPV6 };
            let other = pairs.iter().find_map(|&(a, b)| match ports.0 {
                kind if kind == u16::from(a) => Some(b),
                kind if kind == u16::from(b) => Some(a),
                _ => None,
            });
            match other {
                Some(other) => to.1 = other.into(),
                None => one_way = true,
            }
        }
        6 | 17 | 132 => {}
        _ => {
            with_ports = false;
            (from.1, to.1) = (0, 0);
        }
    }
    if !one_way && from > to {
        std::mem::swap(&mut from, &mut to);
    }
    let mut hash = Sha1::new();
    hash.update([0, 0]);
    hash.update(from.0);
    hash.update(to.0);
    hash.update([proto, 0]);
    if with_ports {
        hash.update(from.1.to_be_bytes());
        hash.update(to.1.to_be_bytes());
    }
    let mut id = *b"1:                            ";
    // In base64, 20 bytes are 28 characters.
    let _ = STANDARD.encode_slice(hash.finalize(), &mut id[2..]);
    Id(id)
}

/// The bytes of an address.
enum Octets {
    V4([u8; 4]),
    V6([u8; 16]),
}

impl AsRef<[u8]> for Octets {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::V4(octets) => octets,
            Self::V6(octets) => octets,
        }
    }
}

fn octets(ip: &IpAddr) -> Octets {
    match ip {
        IpAddr::V4(ip) => Octets::V4(ip.octets()),
        IpAddr::V6(ip) => Octets::V6(ip.octets()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published examples of the specification.
    #[test]
    fn examples_of_the_specification() {
        for (proto, src, sport, dst, dport, expected) in [
            (6, "128.232.110.120", 34855, "66.35.250.204", 80, "1:LQU9qZlK+B5F3KDmev6m5PMibrg="),
            (17, "192.168.1.52", 54585, "8.8.8.8", 53, "1:d/FP5EW3wiY1vCndhwleRRKHowQ="),
            (1, "192.168.0.89", 8, "192.168.0.1", 0, "1:X0snYXpgwiv9TZtqg64sgzUn6Dk="),
        ] {
            let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
            assert_eq!(id(proto, src, dst, (sport, dport)).as_str(), expected);
            let back = if proto == 1 { (0, 0) } else { (dport, sport) };
            assert_eq!(id(proto, dst, src, back).as_str(), expected);
        }
    }
}
