//! A link that is a capture file: frames leave in packet time, in the order and at the times of a link.

use crate::counts::{Counts, SPARE, filled};
use crate::schedule::{Key, Next, Reservation, Scheduler};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The destination of frames that would have left.
pub trait Capture: Send {
    /// Takes a frame that leaves at `ts_ns`.
    ///
    /// # Errors
    ///
    /// Returns a description of the reason why it cannot be written.
    fn frame(&mut self, ts_ns: u64, bytes: &[u8]) -> Result<(), String>;

    /// Ends the capture.
    ///
    /// # Errors
    ///
    /// Returns a description of the reason why it cannot be completed.
    fn finish(self: Box<Self>) -> Result<(), String>;
}

/// The latest time of a frame, nearly three centuries after 1970: a damaged capture may state any time, and
/// what waits then still has to leave.
const LATEST_NS: u64 = 1 << 63;

pub(crate) struct Replay {
    scheduler: Scheduler<Vec<u8>>,
    channels: BTreeMap<Key, Arc<Counts>>,
    capture: Option<Box<dyn Capture>>,
    now_ns: u64,
    /// The first error, after which no frame is written.
    failed: Option<String>,
    spare: Vec<Vec<u8>>,
}

impl Replay {
    pub(crate) fn new(capture: Box<dyn Capture>, bandwidth: u64) -> Self {
        Self {
            scheduler: Scheduler::new(bandwidth),
            channels: BTreeMap::new(),
            capture: Some(capture),
            now_ns: 0,
            failed: None,
            spare: Vec::new(),
        }
    }

    pub(crate) fn open(&mut self, key: Key, reservation: Reservation, counts: Arc<Counts>) {
        self.scheduler.open(key, reservation);
        self.channels.insert(key, counts);
    }

    /// Writes the frames that leave before `now_ns`. Time does not go back.
    pub(crate) fn advance(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns.min(LATEST_NS));
        self.leave(self.now_ns);
    }

    fn leave(&mut self, now_ns: u64) {
        while let Next::Send { key, frame, at_ns } = self.scheduler.next(now_ns) {
            if let (Some(capture), None) = (&mut self.capture, &self.failed) {
                self.failed = capture.frame(at_ns, &frame).err();
            }
            if let Some(counts) = self.channels.get(&key) {
                counts.left(frame.len(), self.failed.is_none());
            }
            if self.spare.len() < SPARE {
                self.spare.push(frame);
            }
        }
    }

    pub(crate) fn push(&mut self, key: Key, bytes: &[u8], now_ns: u64) -> bool {
        self.advance(now_ns);
        let frame = filled(self.spare.pop(), bytes);
        self.scheduler.push(key, frame, self.now_ns).is_ok()
    }

    pub(crate) fn close(&mut self, key: Key) {
        let left = self.scheduler.close(key);
        if let Some(counts) = self.channels.remove(&key) {
            left.iter().for_each(|frame| counts.left(frame.len(), false));
        }
    }

    pub(crate) fn finish(&mut self) -> Result<(), String> {
        self.leave(u64::MAX);
        let ended = self.capture.take().map_or(Ok(()), Capture::finish);
        self.failed.take().map_or(ended, Err)
    }
}
