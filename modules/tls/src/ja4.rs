//! JA4, a fingerprint of a client (FoxIO, `technical_details/JA4.md` of github.com/FoxIO-LLC/ja4; BSD
//! 3-Clause).
//!
//! `t13d1516h2_8daaf6152771_e5627efa2ab1`: transport, version, whether a name is asked for, the numbers of
//! cipher suites and extensions, first and last character of the first protocol; a hash of the sorted cipher
//! suites; a hash of the sorted extensions and of the signature algorithms in their order.

use crate::hello::{ClientHello, Numbers, extension};
use flame_module::FixedText;
use sha2::{Digest, Sha256};

/// Returns the fingerprint.
pub fn ja4(hello: &ClientHello<'_>, is_quic: bool) -> FixedText<40> {
    let mut text = FixedText::default();
    text.push(if is_quic { "q" } else { "t" });
    text.push(match hello.version() {
        0x0304 => "13",
        0x0303 => "12",
        0x0302 => "11",
        0x0301 => "10",
        0x0300 => "s3",
        0x0002 => "s2",
        0xfeff => "d1",
        0xfefd => "d2",
        0xfefc => "d3",
        _ => "00",
    });
    let has_name = hello.extensions.kept().contains(&extension::SERVER_NAME);
    text.push(if has_name { "d" } else { "i" });
    for count in [hello.ciphers.count, hello.extensions.count] {
        let count = count.min(99) as u32;
        text.push_number(count / 10);
        text.push_number(count % 10);
    }
    let (first, last) = ends(hello.first_alpn);
    let ends = [first, last];
    text.push(std::str::from_utf8(&ends).unwrap_or("00"));

    let mut ciphers = hello.ciphers;
    ciphers.kept_mut().sort_unstable();
    let mut extensions = Numbers::default();
    for kind in hello.extensions.kept() {
        if ![extension::SERVER_NAME, extension::ALPN].contains(kind) {
            extensions.push(*kind);
        }
    }
    extensions.kept_mut().sort_unstable();
    for (list, further) in [(&ciphers, &Numbers::default()), (&extensions, &hello.signatures)] {
        text.push("_");
        if list.count == 0 {
            text.push("000000000000");
            continue;
        }
        let mut hash = Sha256::new();
        digest(&mut hash, "", list);
        digest(&mut hash, "_", further);
        for byte in &hash.finalize()[..6] {
            text.push_hex((*byte).into(), 2);
        }
    }
    text
}

/// Adds numbers of four digits with commas between, after `before` if there are some.
fn digest(hash: &mut Sha256, before: &str, numbers: &Numbers) {
    let mut before = before;
    for number in numbers.kept() {
        let mut digits = FixedText::<8>::default();
        digits.push(before);
        digits.push_hex((*number).into(), 4);
        hash.update(digits.as_str());
        before = ",";
    }
}

/// Returns the first and last character of a protocol, or of its hexadecimal form if one of them is neither
/// digit nor letter.
fn ends(protocol: &[u8]) -> (u8, u8) {
    let (Some(&first), Some(&last)) = (protocol.first(), protocol.last()) else { return (b'0', b'0') };
    if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        return (first, last);
    }
    let digit = |n: u8| b"0123456789abcdef"[usize::from(n & 15)];
    (digit(first >> 4), digit(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the hello with the values of a raw fingerprint (`JA4_ro`), in their order.
    fn hello(raw: &str, alpn: &'static [u8]) -> (ClientHello<'static>, bool) {
        let numbers = |list: &str| {
            let mut all = Numbers::default();
            for number in list.split(',').filter(|n| !n.is_empty()) {
                all.push(u16::from_str_radix(number, 16).expect("four digits"));
            }
            all
        };
        let parts: Vec<_> = raw.split('_').collect();
        let supported = match &parts[0][1..3] {
            "13" => 0x0304,
            "12" => 0x0303,
            "11" => 0x0302,
            "10" => 0x0301,
            other => panic!("version {other}"),
        };
        let hello = ClientHello {
            ciphers: numbers(parts[1]),
            extensions: numbers(parts.get(2).unwrap_or(&"")),
            signatures: numbers(parts.get(3).unwrap_or(&"")),
            supported,
            first_alpn: alpn,
            ..ClientHello::default()
        };
        (hello, raw.starts_with('q'))
    }

    /// The authors' own results: raw fingerprints in original order, and the fingerprints.
    #[test]
    fn the_published_vectors_agree() {
        let mut count = 0;
        for line in include_str!("../tests/ja4.tsv").lines().filter(|l| !l.starts_with('#')) {
            let [raw, expected] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let alpn: &[u8] = match &raw[8..10] {
                "00" => b"",
                "h2" => b"h2",
                "h1" => b"http/1.1",
                "h3" => b"h3",
                "ht" => b"hash-2.t",
                other => panic!("protocol {other}"),
            };
            let (hello, is_quic) = hello(raw, alpn);
            assert_eq!(ja4(&hello, is_quic).as_str(), expected, "{raw}");
            count += 1;
        }
        assert!(count > 10, "{count}");
    }

    #[test]
    fn protocols_of_other_characters_are_hexadecimal() {
        for (protocol, expected) in [
            (&b""[..], "00"),
            (b"h2", "h2"),
            (b"http/1.1", "h1"),
            (b"a", "aa"),
            (b"\xab", "ab"),
            (b"\x20", "20"),
            (b"\xab\xcd", "ad"),
            (b"\x20\x61", "21"),
            (b"\x30\xab", "3b"),
            (b"\x61\x20", "60"),
            (b"\x30\x31\xab\xcd", "3d"),
            (b"\x30\xab\xcd\x31", "01"),
        ] {
            let (first, last) = ends(protocol);
            assert_eq!([first, last], expected.as_bytes(), "{protocol:?}");
        }
    }

    #[test]
    fn empty_lists_have_zeros() {
        let hello = ClientHello { legacy_version: 0x0300, ..ClientHello::default() };
        assert_eq!(ja4(&hello, false).as_str(), "ts3i000000_000000000000_000000000000");
    }
}
