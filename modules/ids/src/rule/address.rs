//! Addresses: `any`, an address, a prefix, `a-b`, and lists of these; IPv4 and IPv6.

use super::fault::{Wrong, wrong};
use super::list::Kind;
use super::set::Set;
use super::text::Piece;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    pub v4: Set<u32>,
    pub v6: Set<u128>,
    /// Whether neither a range nor `!` is part of the text.
    pub is_plain: bool,
}

impl Addresses {
    pub fn is_all(&self) -> bool {
        self.v4.is_all() && self.v6.is_all()
    }

    #[inline]
    pub fn contains(&self, ip: &flame_module::Ip) -> bool {
        let all = u128::from_be_bytes(ip.bytes);
        match ip.family {
            4 => self.v4.is_all() || self.v4.contains((all >> 96) as u32),
            _ => self.v6.is_all() || self.v6.contains(all),
        }
    }

    #[inline(never)]
    fn range(first: IpAddr, last: IpAddr, is_plain: bool) -> Option<Self> {
        match (first, last) {
            (IpAddr::V4(a), IpAddr::V4(b)) if a <= b => {
                Some(Self { v4: Set::range(a.to_bits(), b.to_bits()), v6: Set::empty(), is_plain })
            }
            (IpAddr::V6(a), IpAddr::V6(b)) if a <= b => {
                Some(Self { v4: Set::empty(), v6: Set::range(a.to_bits(), b.to_bits()), is_plain })
            }
            _ => None,
        }
    }
}

impl Kind for Addresses {
    fn all() -> Self {
        Self { v4: Set::all(), v6: Set::all(), is_plain: true }
    }

    fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    fn ranges(&self) -> u64 {
        // An address costs several times as much to read as a port.
        4 + self.v4.parts().len() as u64 + 6 * self.v6.parts().len() as u64
    }

    fn union(sets: Vec<Self>) -> Self {
        let is_plain = sets.iter().all(|set| set.is_plain);
        let (v4, v6): (Vec<_>, Vec<_>) = sets.into_iter().map(|s| (s.v4, s.v6)).unzip();
        Self { v4: Set::union(v4), v6: Set::union(v6), is_plain }
    }

    fn minus(&self, other: &Self) -> Self {
        let is_plain = self.is_plain && other.is_empty();
        Self { v4: self.v4.minus(&other.v4), v6: self.v6.minus(&other.v6), is_plain }
    }

    #[inline(never)]
    fn single(piece: Piece<'_>) -> Result<Self, Wrong> {
        let expected =
            "an address, a prefix as 10.0.0.0/8, a range as 10.0.0.1-10.0.0.9, a list, a variable or any";
        let text = piece.text;
        if let Some((first, last)) = text.split_once('-') {
            let (Ok(first), Ok(last)) = (first.parse(), last.parse()) else {
                return wrong(piece.at, expected);
            };
            return Self::range(first, last, false)
                .map_or_else(|| wrong(piece.at, "a range whose first address is not above its last"), Ok);
        }
        let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
        let Ok(address) = address.parse::<IpAddr>() else { return wrong(piece.at, expected) };
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let Some(length) = length.map_or(Some(bits), |l| mask(l, bits)) else {
            return wrong(
                piece.at + text.len() - length.map_or(0, str::len),
                format!("a prefix length up to {bits}"),
            );
        };
        let (first, last) = match address {
            IpAddr::V4(a) => {
                let host = u32::MAX.checked_shr(length).unwrap_or(0);
                let first = a.to_bits() & !host;
                (IpAddr::V4(Ipv4Addr::from_bits(first)), IpAddr::V4(Ipv4Addr::from_bits(first | host)))
            }
            IpAddr::V6(a) => {
                let host = u128::MAX.checked_shr(length).unwrap_or(0);
                let first = a.to_bits() & !host;
                (IpAddr::V6(Ipv6Addr::from_bits(first)), IpAddr::V6(Ipv6Addr::from_bits(first | host)))
            }
        };
        Self::range(first, last, true).map_or_else(|| wrong(piece.at, expected), Ok)
    }
}

/// Returns a prefix length, written as a number or as a netmask.
#[inline(never)]
fn mask(text: &str, bits: u32) -> Option<u32> {
    if let Ok(mask) = text.parse::<Ipv4Addr>() {
        let mask = mask.to_bits();
        return (bits == 32 && mask.leading_ones() == mask.count_ones()).then(|| mask.count_ones());
    }
    text.parse().ok().filter(|n| *n <= bits)
}
