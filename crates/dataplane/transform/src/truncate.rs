//! truncate: keeps the leading bits of a field and sets the others to 0.
//!
//! Usage:    --transform FIELD=truncate:BITS
//!           FIELD is mac, ip or port, or one side of it: mac.src, ip.dst, port.src
//!           BITS is at most 48 for mac, 128 for ip, 16 for port
//! Expects:  nothing; it needs no key.
//! Gives:    the first BITS true bits. An IPv4 address has 32 bits, so truncate:32 and more keep it whole.
//! Example:  flame run flow -r FILE --transform ip=truncate:16
//! Related:  zero, hash, prefix

pub(super) fn apply(value: &mut [u8], bits: u8) {
    let (whole, rest) = (usize::from(bits / 8), bits % 8);
    for (i, byte) in value.iter_mut().enumerate().skip(whole) {
        *byte &= if i == whole { !(0xff >> rest) } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn keeps_leading_bits() {
        for (bits, expected) in [(0, [0; 4]), (9, [255, 128, 0, 0]), (24, [255, 255, 255, 0]), (64, [255; 4])]
        {
            let mut v = [255; 4];
            super::apply(&mut v, bits);
            assert_eq!(v, expected, "{bits}");
        }
    }
}
