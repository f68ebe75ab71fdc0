//! Addresses: IPv4, prefixes and Ethernet.

use std::fmt;

/// An IPv4 address as a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ip(pub u32);

/// An address and a mask. The address may have bits outside the mask, as in Click.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    pub ip: Ip,
    pub mask: Ip,
}

/// An Ethernet address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Ip {
    /// Reads four decimal numbers, `1.2.3.4`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let mut value = 0;
        for _ in 0..4 {
            let part = parts.next()?;
            if part.is_empty() || part.len() > 3 || !part.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            value = value << 8 | u32::from(part.parse::<u8>().ok()?);
        }
        parts.next().is_none().then_some(Self(value))
    }

    /// Returns the address in the first four bytes, in network order.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.iter().take(4).fold(0, |v, b| v << 8 | u32::from(*b)))
    }

    /// Returns the address in network order.
    pub fn bytes(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }

    /// Returns whether the address is in 224.0.0.0/4.
    pub fn is_multicast(self) -> bool {
        self.0 >> 28 == 14
    }
}

impl Prefix {
    /// Returns the prefix with a mask of `bits` leading ones.
    pub fn new(ip: Ip, bits: u32) -> Self {
        Self { ip, mask: Ip(mask(bits)) }
    }

    /// Reads `1.2.3.4/20`, `18.26/16` or `1.2.3.4/255.255.240.0`.
    pub fn parse(text: &str) -> Option<Self> {
        let (ip, mask_text) = text.split_once('/')?;
        let given = ip.split('.').count();
        let mut whole = ip.to_owned();
        for _ in given..4 {
            whole.push_str(".0");
        }
        let ip = Ip::parse(&whole)?;
        if let Some(mask) = Ip::parse(mask_text) {
            return Some(Self { ip, mask });
        }
        let bits = mask_text.parse::<u32>().ok().filter(|b| *b <= 32 && mask_text.len() < 3)?;
        (given == 4 || bits as usize <= given * 8).then(|| Self::new(ip, bits))
    }

    /// Returns whether an address agrees with the prefix in all bits of the mask.
    pub fn contains(self, ip: Ip) -> bool {
        (ip.0 ^ self.ip.0) & self.mask.0 == 0
    }

    /// Returns the same prefix without the bits outside its mask.
    pub fn network(self) -> Self {
        Self { ip: Ip(self.ip.0 & self.mask.0), mask: self.mask }
    }

    /// Returns the length of the mask, or none if its ones are not in front.
    pub fn bits(self) -> Option<u32> {
        let bits = self.mask.0.leading_ones();
        (mask(bits) == self.mask.0).then_some(bits)
    }
}

/// Returns the mask of `bits` leading ones.
pub fn mask(bits: u32) -> u32 {
    u32::MAX.checked_shl(32 - bits.min(32)).unwrap_or(0)
}

impl Mac {
    pub const BROADCAST: Self = Self([255; 6]);

    /// Reads six hexadecimal numbers, `0:1:2:3:4:5` or `0-1-2-3-4-5`.
    pub fn parse(text: &str) -> Option<Self> {
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut parts = text.split(separator);
        let mut bytes = [0; 6];
        for byte in &mut bytes {
            let part = parts.next()?;
            if part.is_empty() || part.len() > 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return None;
            }
            *byte = u8::from_str_radix(part, 16).ok()?;
        }
        parts.next().is_none().then_some(Self(bytes))
    }

    /// Returns whether the address is a multicast or broadcast address.
    pub fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.bytes();
        write!(f, "{a}.{b}.{c}.{d}")
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bits() {
            Some(bits) => write!(f, "{}/{bits}", self.ip),
            None => write!(f, "{}/{}", self.ip, self.mask),
        }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02X}-{b:02X}-{c:02X}-{d:02X}-{e:02X}-{g:02X}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        assert_eq!(Ip::parse("18.26.4.9").unwrap().0, 0x121a_0409);
        for bad in ["1.2.3", "1.2.3.256", "1.2.3.4.5", "", "1..2.3", "1.2.3.+4"] {
            assert_eq!(Ip::parse(bad), None, "{bad}");
        }
        assert_eq!(Prefix::parse("18.26/16").unwrap().to_string(), "18.26.0.0/16");
        assert_eq!(Prefix::parse("1.2.3.4/255.0.255.0").unwrap().to_string(), "1.2.3.4/255.0.255.0");
        assert_eq!(Prefix::parse("18.26/17"), None);
        assert_eq!(Prefix::parse("1.2.3.4/33"), None);
        assert_eq!(Prefix::parse("18.26.0/12").unwrap().network().to_string(), "18.16.0.0/12");
        assert_eq!(Mac::parse("0:1:2:A:b:ff").unwrap().to_string(), "00-01-02-0A-0B-FF");
        assert_eq!(Mac::parse("0:1:2:3:4"), None);
        assert_eq!(mask(0), 0);
    }
}
