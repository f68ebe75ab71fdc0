#![allow(unsafe_code)] // A text of bytes that were checked here.

/// The largest text among the parameters without `max` in the manifest: they share 1 MiB.
const MAX_TEXT: usize = 1 << 20;

/// Returns a text of UTF-8, or `None`. `std::str::from_utf8` advances in nested loops, which have no bound.
pub fn from_utf8(bytes: &[u8]) -> Option<&str> {
    // SAFETY: it is UTF-8.
    is_utf8(bytes).then(|| unsafe { std::str::from_utf8_unchecked(bytes) })
}

/// Returns whether bytes are characters of UTF-8 (RFC 3629, section 4), in one loop over the bytes.
fn is_utf8(bytes: &[u8]) -> bool {
    const FURTHER: (u8, u8) = (0x80, 0xbf);
    // The number of bytes that the current character lacks, and the range of the next one.
    let (mut lacks, mut range) = (0, FURTHER);
    for &byte in bytes.iter().take(MAX_TEXT) {
        if lacks > 0 {
            if byte < range.0 || byte > range.1 {
                return false;
            }
            (lacks, range) = (lacks - 1, FURTHER);
            continue;
        }
        (lacks, range) = match byte {
            0..=0x7f => (0, FURTHER),
            0xc2..=0xdf => (1, FURTHER),
            0xe0 => (2, (0xa0, 0xbf)),
            0xed => (2, (0x80, 0x9f)),
            0xe1..=0xef => (2, FURTHER),
            0xf0 => (3, (0x90, 0xbf)),
            0xf1..=0xf3 => (3, FURTHER),
            0xf4 => (3, (0x80, 0x8f)),
            _ => return false,
        };
    }
    lacks == 0 && bytes.len() <= MAX_TEXT
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each byte at which the rules change, in every place of five.
    #[test]
    fn texts_are_those_of_the_standard_library() {
        let edges = [0, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec];
        let edges = [&edges[..], &[0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff]].concat();
        let number = edges.len();
        for n in 0..number.pow(5) {
            let place = |digit: u32| edges[n / number.pow(digit) % number];
            let bytes = [place(0), place(1), place(2), place(3), place(4)];
            assert_eq!(from_utf8(&bytes), std::str::from_utf8(&bytes).ok(), "{bytes:x?}");
        }
        for byte in 0..=255 {
            for bytes in [&[byte][..], &[byte, 0x80], &[b'a', byte]] {
                assert_eq!(from_utf8(bytes), std::str::from_utf8(bytes).ok(), "{bytes:x?}");
            }
        }
        assert!(from_utf8(&[]) == Some("") && from_utf8(&vec![0; MAX_TEXT + 1]).is_none());
    }
}
