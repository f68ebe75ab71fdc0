//! The hash function BOB of RFC 5475 (section 6.2.4.1 and appendix A.2): Bob Jenkins' lookup2 of 1996.

/// Mixes three words reversibly; the shifts and their order are the function's definition.
#[inline]
fn mix([mut a, mut b, mut c]: [u32; 3]) -> [u32; 3] {
    let step = |x: u32, y: u32, z: u32| x.wrapping_sub(y).wrapping_sub(z);
    for [p, q, r] in [[13, 8, 13], [12, 16, 5], [3, 10, 15]] {
        a = step(a, b, c) ^ c >> p;
        b = step(b, c, a) ^ a << q;
        c = step(c, a, b) ^ b >> r;
    }
    [a, b, c]
}

/// `seed` is the initial value.
#[inline]
pub fn bob(key: &[u8], seed: u32) -> u32 {
    const GOLDEN: u32 = 0x9e37_79b9;
    let mut state = [GOLDEN, GOLDEN, seed];
    let (blocks, rest) = key.as_chunks::<12>();
    let words = |b: &[u8; 12]| [0, 4, 8].map(|i| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]));
    let add = |state: [u32; 3], w: [u32; 3]| [0, 1, 2].map(|i| state[i].wrapping_add(w[i]));
    for block in blocks {
        state = mix(add(state, words(block)));
    }
    // The last block's third word leaves its lowest byte to the length.
    let mut last = [0; 12];
    let (low, high) = rest.split_at(rest.len().min(8));
    last[..low.len()].copy_from_slice(low);
    last[9..9 + high.len()].copy_from_slice(high);
    let mut tail = words(&last);
    tail[2] = tail[2].wrapping_add(key.len() as u32);
    mix(add(state, tail))[2]
}

#[cfg(test)]
mod tests {
    use super::bob;

    /// Values on which other implementations agree.
    #[test]
    fn known_values() {
        assert_eq!(bob(b"foobar", 0), 0x9d3f_fa02);
        assert_eq!(bob(b"hello world", 0), 0x1aa9_19e6);
        assert_eq!(bob(b"           ", 0), 0xf559_76fa);
        assert_eq!(bob(b"1234567890abcdefghijklmnopqstuvwxyz", 0), 0x49ea_ee3e);
        assert_eq!(bob(b"", 0), 0xbd49_d10d);
    }
}
