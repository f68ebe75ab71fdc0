//! Size classes of blocks: 16 bytes, then four classes per doubling.

/// The base-2 logarithm of the smallest block's size.
pub const LEAST: usize = 4;
/// The number of classes, up to 1 GiB, the largest memory of a module.
pub const CLASSES: usize = (30 - LEAST) * 4 + 1;

/// Returns the class that holds `size` bytes and the size of its blocks, or `None` above the largest class.
#[inline]
pub fn class(size: usize) -> Option<(usize, usize)> {
    if size <= 1 << LEAST {
        return Some((0, 1 << LEAST));
    }
    // `size` lies above `1 << log` and up to twice that, in one of four quarters.
    let log = (usize::BITS - 1 - (size - 1).leading_zeros()) as usize;
    let quarter = 1 << (log - 2);
    let quarters = (size - (1 << log)).div_ceil(quarter);
    let class = (log - LEAST) * 4 + quarters;
    (class < CLASSES).then(|| (class, (1 << log) + quarters * quarter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_holds_what_is_asked_for_and_little_more() {
        let sizes =
            (0..100_000).chain((17..=30).flat_map(|log| [-1i64, 0, 1].map(|d| ((1i64 << log) + d) as usize)));
        let mut last = (0, 16);
        for size in sizes.filter(|size| *size <= 1 << 30) {
            let (class, bytes) = class(size).unwrap();
            assert!(class < CLASSES && bytes >= size && bytes % 4 == 0, "{size}: {class}, {bytes}");
            assert!(bytes <= 16 || bytes * 4 <= size * 5 + 4, "{size}: {bytes}");
            assert!((class, bytes) >= last, "{size}");
            // Each class has exactly one size.
            assert!((class == last.0) == (bytes == last.1), "{size}: {class}, {bytes}");
            last = (class, bytes);
        }
        assert_eq!(class(1 << 30), Some((CLASSES - 1, 1 << 30)));
        assert!([(1 << 30) + 1, usize::MAX].into_iter().all(|size| class(size).is_none()));
    }
}
