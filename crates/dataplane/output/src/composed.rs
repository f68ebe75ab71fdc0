//! The bytes of a packet that a module composed.

/// The bytes that are compared at once.
const PART: usize = 32;

/// Returns the number of bytes that a module composed in a packet that came as `before` and leaves as
/// `after`: those that differ, and those by which it is longer. If the length has changed, the bytes are
/// compared from both ends, and the smaller number counts: a header that is added or removed in front moves
/// all others, which it did not compose. Bytes that are removed count nothing.
pub fn composed(before: &[u8], after: &[u8]) -> usize {
    let common = before.len().min(after.len());
    let in_place = differing(&before[..common], &after[..common]);
    let differ = match before.len() == after.len() || in_place == 0 {
        true => in_place,
        false => {
            let moved = differing(&before[before.len() - common..], &after[after.len() - common..]);
            in_place.min(moved)
        }
    };
    differ + (after.len() - common)
}

/// Returns the number of bytes that differ in texts of one length.
fn differing(a: &[u8], b: &[u8]) -> usize {
    let parts = a.chunks(PART).zip(b.chunks(PART)).filter(|(a, b)| a != b);
    parts.map(|(a, b)| a.iter().zip(b).filter(|(a, b)| a != b).count()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_differ_or_are_added_are_composed() {
        let before: Vec<u8> = (0..100).collect();
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut after = before.clone();
            change(&mut after);
            composed(&before, &after)
        };
        assert_eq!(with(&|_| ()), 0);
        assert_eq!(with(&|p| (p[0], p[31], p[32], p[99]) = (9, 9, 9, 9)), 4);
        assert_eq!(with(&|p| p.fill(200)), 100);
        // At the end, in front, and behind the first bytes, which move then.
        assert_eq!(with(&|p| p.extend([7; 20])), 20);
        assert_eq!(with(&|p| drop(p.splice(0..0, [200; 50]))), 50);
        assert_eq!(with(&|p| drop(p.splice(12..12, [200; 4]))), 12 + 4);
        // Removed, at either end.
        assert_eq!((with(&|p| p.truncate(10)), with(&|p| drop(p.drain(..14)))), (0, 0));
        assert_eq!((composed(&[], &[1, 2]), composed(&[1, 2], &[]), composed(&[], &[])), (2, 0, 0));
    }
}
