use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that a frame takes in a queue besides its own.
pub(crate) const OVERHEAD: u64 = 64;

/// The numbers of frames of one channel.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent: AtomicU64,
    pub(crate) refused: AtomicU64,
    /// Bytes that wait, with the overhead of each frame.
    pub(crate) waiting: AtomicU64,
}

impl Counts {
    /// Records that a frame of `length` bytes left, or was refused.
    pub(crate) fn left(&self, length: usize, is_sent: bool) {
        let count = if is_sent { &self.sent } else { &self.refused };
        count.fetch_add(1, Ordering::Relaxed);
        self.waiting.fetch_sub(length as u64 + OVERHEAD, Ordering::Relaxed);
    }
}
