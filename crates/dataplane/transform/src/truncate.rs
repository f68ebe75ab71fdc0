//! `truncate:BITS`: the leading bits stay, the others become 0.
//!
//! An IPv4 address has 32 bits: with `truncate:32` or more it stays whole.

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
