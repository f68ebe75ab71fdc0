use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Bytes that a frame takes in a queue besides its own.
pub(crate) const OVERHEAD: u64 = 64;
/// The number of empty buffers that are kept.
pub(crate) const SPARE: usize = 1024;

/// Returns a copy of a frame, in a buffer that was used before if that is not much longer: the memory of a
/// queue is at most twice what its frames count.
pub(crate) fn filled(spare: Option<Vec<u8>>, bytes: &[u8]) -> Vec<u8> {
    let most = 2 * (bytes.len() + OVERHEAD as usize);
    match spare.filter(|spare| (bytes.len()..=most).contains(&spare.capacity())) {
        Some(mut buffer) => {
            buffer.clear();
            buffer.extend_from_slice(bytes);
            buffer
        }
        None => bytes.to_vec(),
    }
}

/// The numbers of frames of one channel.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent: AtomicU64,
    pub(crate) refused: AtomicU64,
    /// Bytes that wait, with the overhead of each frame.
    pub(crate) waiting: AtomicU64,
    /// The place where the bytes of frames that left are added.
    pub(crate) bill: OnceLock<Arc<AtomicU64>>,
}

impl Counts {
    /// Records that a frame of `length` bytes left, or was refused.
    pub(crate) fn left(&self, length: usize, is_sent: bool) {
        let count = if is_sent { &self.sent } else { &self.refused };
        count.fetch_add(1, Ordering::Relaxed);
        if let Some(bill) = self.bill.get().filter(|_| is_sent) {
            bill.fetch_add(length as u64, Ordering::Relaxed);
        }
        self.waiting.fetch_sub(length as u64 + OVERHEAD, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_frame_does_not_hold_a_long_buffer() {
        for (capacity, length) in [(9216, 14), (9216, 4500), (14, 9216), (200, 100), (0, 14)] {
            let frame = vec![7; length];
            let copy = filled(Some(Vec::with_capacity(capacity)), &frame);
            assert_eq!(copy, frame);
            assert!(copy.capacity() <= 2 * (length + 64), "{capacity}, {length}: {}", copy.capacity());
        }
    }
}
