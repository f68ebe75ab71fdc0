//! Text of limited length, made without an allocator and with a bound for each step.

use crate::host::limit;
use crate::{Ip, text};

/// The longest piece of text that is appended at once, in bytes.
const PIECE: usize = 64;
/// The largest number of bytes that [`FixedText::push_bytes`] reads.
const BYTES: usize = 4096;

/// Text in a buffer of `N` bytes, for columns that a module composes. A piece that no longer fits is left
/// out, and so is all that follows it.
///
/// ```
/// use flame_module::{FixedText, Ip};
/// let mut text = FixedText::<40>::default();
/// text.push_ip(Ip::v4([192, 0, 2, 1]));
/// text.push(":");
/// text.push_number(53);
/// text.push_bytes(b" a\n\xff");
/// assert_eq!(text.as_str(), "192.0.2.1:53 a\\n\u{fffd}");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct FixedText<const N: usize> {
    bytes: [u8; N],
    len: usize,
    is_full: bool,
}

impl<const N: usize> Default for FixedText<N> {
    fn default() -> Self {
        Self { bytes: [0; N], len: 0, is_full: false }
    }
}

impl<const N: usize> FixedText<N> {
    pub fn as_str(&self) -> &str {
        text::from_utf8(&self.bytes[..self.len.min(N)]).unwrap_or("")
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether a piece was left out.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Appends at most 64 bytes of text, all of it or nothing.
    pub fn push(&mut self, text: &str) {
        self.piece(text.as_bytes());
    }

    #[inline(never)]
    fn piece(&mut self, piece: &[u8]) {
        let len = limit(piece.len(), PIECE);
        if piece.len() > PIECE || self.is_full || self.len + len > N {
            self.is_full = true;
            return;
        }
        self.bytes[self.len..self.len + len].copy_from_slice(&piece[..len]);
        self.len += len;
    }

    /// Appends bytes of unknown content, at most 4,096, as tshark prints them: control characters as `\n` or
    /// `\037`, those from 0x80 to 0x9f as `\u0085`, and what is not UTF-8 as U+FFFD.
    #[inline(never)]
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        let mut at = 0;
        for _ in 0..BYTES {
            let Some(&byte) = bytes.get(at).filter(|_| !self.is_full) else { break };
            at += 1;
            match byte {
                0x20..=0x7e => match self.bytes.get_mut(self.len) {
                    Some(place) => {
                        *place = byte;
                        self.len += 1;
                    }
                    None => self.is_full = true,
                },
                7..=13 => self.piece(&[b'\\', b"abtnvfr"[usize::from(byte - 7)]]),
                0..0x80 => {
                    self.piece(&[b'\\', b'0' + (byte >> 6), b'0' + (byte >> 3 & 7), b'0' + (byte & 7)])
                }
                _ => {
                    let (more, character) = decode(byte, bytes.get(at..).unwrap_or(&[]));
                    match character {
                        Some(c @ 0x80..=0x9f) => {
                            let digit = |n: u32| b"0123456789ABCDEF"[(n & 15) as usize];
                            self.piece(&[b'\\', b'u', b'0', b'0', digit(c >> 4), digit(c)]);
                        }
                        Some(_) => self.piece(bytes.get(at - 1..at + more).unwrap_or(&[])),
                        None => self.push("\u{fffd}"),
                    }
                    at += more;
                }
            }
        }
    }

    /// Appends a decimal number.
    #[inline(never)]
    pub fn push_number(&mut self, number: u32) {
        let mut digits = [0; 10];
        let (mut at, mut rest) = (10, number);
        for _ in 0..10 {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.piece(digits.get(at..).unwrap_or(&[]));
    }

    /// Appends hexadecimal digits of `number`, the last `digits` of them, at most eight.
    #[inline(never)]
    pub fn push_hex(&mut self, number: u32, digits: usize) {
        let all = [28, 24, 20, 16, 12, 8, 4, 0].map(|by| HEX[(number >> by & 15) as usize]);
        self.piece(&all[8 - digits.clamp(1, 8)..]);
    }

    /// Appends an address; IPv6 in the form of RFC 5952.
    #[inline(never)]
    pub fn push_ip(&mut self, ip: Ip) {
        if ip.family == 4 {
            return self.push_v4([ip.bytes[0], ip.bytes[1], ip.bytes[2], ip.bytes[3]]);
        }
        let words: [u16; 8] =
            std::array::from_fn(|n| u16::from_be_bytes([ip.bytes[2 * n], ip.bytes[2 * n + 1]]));
        if words[..6] == [0, 0, 0, 0, 0, 0xffff] {
            self.push("::ffff:");
            return self.push_v4([ip.bytes[12], ip.bytes[13], ip.bytes[14], ip.bytes[15]]);
        }
        // The longest run of zeros, of two or more.
        let (mut start, mut longest, mut run) = (8, 1, 0);
        for (n, word) in words.iter().enumerate() {
            run = if *word == 0 { run + 1 } else { 0 };
            if run > longest {
                (start, longest) = (n + 1 - run, run);
            }
        }
        let mut is_apart = true;
        for (n, word) in words.iter().enumerate() {
            if (start..start + longest).contains(&n) {
                if n == start {
                    self.push("::");
                }
                is_apart = true;
                continue;
            }
            if !is_apart {
                self.push(":");
            }
            is_apart = false;
            let digits = match word {
                0x1000.. => 4,
                0x100.. => 3,
                0x10.. => 2,
                _ => 1,
            };
            self.push_hex((*word).into(), digits);
        }
    }

    fn push_v4(&mut self, bytes: [u8; 4]) {
        for (n, byte) in bytes.into_iter().enumerate() {
            if n > 0 {
                self.push(".");
            }
            self.push_number(byte.into());
        }
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Returns the number of bytes after `first` that belong to its character (or to a damaged one), and the
/// character if it is UTF-8.
fn decode(first: u8, rest: &[u8]) -> (usize, Option<u32>) {
    let (more, least) = match first {
        0xc2..=0xdf => (1, 0x80),
        0xe0..=0xef => (2, 0x800),
        0xf0..=0xf4 => (3, 0x1_0000),
        _ => return (0, None),
    };
    let mut character = u32::from(first) & (0x3f >> more);
    for n in 0..more.min(3) {
        let next = rest.get(n).copied().unwrap_or(0);
        if next >> 6 != 2 {
            return (n, None);
        }
        character = character << 6 | u32::from(next & 0x3f);
    }
    let is_one = character >= least && char::from_u32(character).is_some();
    (more, is_one.then_some(character))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn text(push: impl FnOnce(&mut FixedText<256>)) -> String {
        let mut text = FixedText::default();
        push(&mut text);
        text.as_str().to_owned()
    }

    #[test]
    fn bytes_are_printed_as_tshark_does() {
        for (bytes, expected) in [
            (&b"www.example"[..], "www.example"),
            (b"\0\x06\x07\x08\t\n\x0b\x0c\r\x0e\x1f\x7f\\", r"\000\006\a\b\t\n\v\f\r\016\037\177\"),
            ("é€😀\u{85}".as_bytes(), r"é€😀\u0085"),
            (b"a\xc3", "a\u{fffd}"),
            (b"\xe2\x82z\xff\xc0\x80", "\u{fffd}z\u{fffd}\u{fffd}\u{fffd}"),
            (b"\xed\xa0\x80", "\u{fffd}"),
        ] {
            assert_eq!(text(|t| t.push_bytes(bytes)), expected, "{bytes:?}");
        }
    }

    #[test]
    fn addresses_and_numbers_are_those_of_the_standard_library() {
        for n in [0, 7, 10, 65_535, u32::MAX] {
            assert_eq!(text(|t| t.push_number(n)), n.to_string());
            assert_eq!(text(|t| t.push_hex(n, 8)), format!("{n:08x}"));
            let bytes = n.to_be_bytes();
            assert_eq!(text(|t| t.push_ip(Ip::v4(bytes))), Ipv4Addr::from(bytes).to_string());
        }
        let zeros = [0xffffu16, 0x0101, 0x8181, 0x8001, 0x7ffe, 0x1ff8, 0, 0x0f0f, 0x3c3c];
        for zeros in zeros {
            let words = std::array::from_fn(|n| if zeros >> n & 1 == 1 { 0 } else { 0x1234u16 >> (n * 2) });
            let address = Ipv6Addr::from(words);
            assert_eq!(text(|t| t.push_ip(Ip::v6(address.octets()))), address.to_string());
        }
        for special in ["::ffff:192.0.2.1", "::1", "::", "2001:db8::1:0:0:1", "fe80::"] {
            let address: Ipv6Addr = special.parse().expect("an address");
            assert_eq!(text(|t| t.push_ip(Ip::v6(address.octets()))), special);
        }
    }

    #[test]
    fn what_does_not_fit_is_left_out_with_all_behind_it() {
        let mut text = FixedText::<5>::default();
        text.push("abc");
        text.push("def");
        text.push("g");
        assert_eq!((text.as_str(), text.is_empty()), ("abc", false));
        assert!(text.is_full());
    }
}
