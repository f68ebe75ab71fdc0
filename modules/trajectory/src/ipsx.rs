//! The hash function IPSX of RFC 5475 (appendix A.1): shifts and exclusive-or over four words, 16 bits of
//! result.

/// Returns the hash; `f` is identification, flags and fragment offset; source; destination; the second word
/// of the IP payload.
#[inline]
pub fn ipsx(f: [u32; 4]) -> u16 {
    let (v1, v2) = (f[0] ^ f[1], f[2] ^ f[3]);
    let h = v1 << 8 ^ v1 >> 4 ^ v1 >> 12 ^ v1 >> 16 ^ v2 << 6 ^ v2 << 10 ^ v2 << 14 ^ v2 >> 7;
    h as u16
}

#[cfg(test)]
mod tests {
    use super::ipsx;

    /// Sets one bit of `v1` or `v2` at a time, by hand from the RFC's list of shifts: the function is linear.
    #[test]
    fn each_shift_is_where_the_rfc_has_it() {
        assert_eq!(ipsx([0; 4]), 0);
        assert_eq!(ipsx([1, 0, 0, 0]), 1 << 8);
        assert_eq!(ipsx([0, 1 << 16, 0, 0]), 1 << 12 | 1 << 4 | 1);
        assert_eq!(ipsx([1 << 31, 0, 0, 0]), 1 << 15);
        assert_eq!(ipsx([0, 0, 1, 0]), 1 << 6 | 1 << 10 | 1 << 14);
        assert_eq!(ipsx([0, 0, 0, 1 << 7]), 1 << 13 | 1);
        assert_eq!(ipsx([0, 0, 1 << 22, 0]), 1 << 15);
        assert_eq!(ipsx([0, 0, 0, 1 << 23]), 0);
        // Sums of the above.
        assert_eq!(ipsx([1, 1 << 16, 1, 1 << 7]), 0x0100 ^ 0x1011 ^ 0x4440 ^ 0x2001);
        assert_eq!(ipsx([5, 5, 9, 9]), 0);
    }
}
