//! SCTP's CRC32c (RFC 9260, appendix A) after a change at the start of what it covers.
//!
//! The CRC is linear: that of the changed packet differs by the CRC, started at 0, of the difference.
//! So the bytes behind the change need not be known, only how many they are.

/// Castagnoli's polynomial, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut c = i as u32;
        let mut bit = 0;
        while bit < 8 {
            c = if c & 1 != 0 { c >> 1 ^ POLYNOMIAL } else { c >> 1 };
            bit += 1;
        }
        table[i] = c;
        i += 1;
    }
    table
};

/// What the CRC changes by when `difference` (old xor new) is followed by `rest` equal bytes.
pub(crate) fn change(difference: &[u8], rest: usize) -> u32 {
    let step = |c: u32, byte: u8| c >> 8 ^ TABLE[usize::from(c as u8 ^ byte)];
    let start = difference.iter().fold(0, |c, b| step(c, *b));
    (0..rest).fold(start, |c, _| step(c, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(u32::MAX, |c, b| c >> 8 ^ TABLE[usize::from(c as u8 ^ b)])
    }

    #[test]
    fn the_check_value_and_linearity() {
        assert_eq!(whole(b"123456789"), 0xe306_9283);
        let (mut a, b) = (*b"123456789", whole(b"123456789"));
        a[..4].copy_from_slice(b"abcd");
        let difference: Vec<u8> = b"1234".iter().zip(b"abcd").map(|(x, y)| x ^ y).collect();
        assert_eq!(whole(&a), b ^ change(&difference, 5));
    }
}
