//! Output that is not due yet: that of a module on a live source whose view shows times in steps.
//!
//! When something leaves, a reader learns the time of the packet that caused it, more exactly than the view
//! shows it; and what a module reports of the part of an interval times the packets in it, since the person
//! who runs it chooses when it ends. So everything that a module makes waits here: records, packets, texts,
//! frames for channels, calls of services and replies. It leaves once all instances of the module have passed
//! the tick at which their interval ends. Of an interval that does not end nothing leaves.

use crate::records::onset::Onset;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The maximum number of bytes that wait, of one module: as many as a grant lets out in 16 seconds, unless it
/// states other rates. Calls of services cost a grant nothing, and an interval may last for hours.
const MOST: usize = 64 << 20;

/// The output of one module that is not due yet.
pub(crate) struct Undue {
    onset: Arc<Onset>,
    /// The last tick that each instance has passed: the fast one of each worker, then the slow one.
    passed: Vec<u64>,
    /// The frames, by the tick that their instance had passed before.
    frames: BTreeMap<u64, Vec<u8>>,
    /// The frames that are due and have not left, with the place of the first of them in each part.
    due: VecDeque<(Vec<u8>, usize)>,
    /// The bytes of all these.
    bytes: usize,
    /// Whether an interval has ended since its output has left.
    has_ended: bool,
}

impl Undue {
    /// Creates the output of a module that has this number of instances.
    pub(crate) fn new(onset: &Arc<Onset>, instances: usize) -> Self {
        let (frames, due, bytes, has_ended) = Default::default();
        Self { onset: onset.clone(), passed: vec![0; instances], frames, due, bytes, has_ended }
    }

    /// Returns the number of the slow instance, the last one.
    pub(crate) fn slow(&self) -> usize {
        self.passed.len() - 1
    }

    /// Keeps a frame of an instance. Returns whether there was room for it.
    pub(crate) fn keep(&mut self, instance: usize, frame: &[u8]) -> bool {
        let since = self.passed.get(instance).copied().unwrap_or(0);
        let has_room = self.bytes + frame.len() <= MOST;
        if has_room {
            self.bytes += frame.len();
            self.frames.entry(since).or_default().extend_from_slice(frame);
        }
        has_room
    }

    /// Records that an instance has passed the tick at `now_ns`: frames may be due then. Those from before
    /// the first tick are of no whole interval, and never are.
    pub(crate) fn pass(&mut self, instance: usize, now_ns: u64) {
        let before = self.since();
        if let Some(passed) = self.passed.get_mut(instance) {
            *passed = now_ns.max(*passed);
        }
        let since = self.since();
        if since != before {
            self.has_ended = true;
            self.end(|open| open < since);
        }
    }

    /// Records that the last interval has ended: all frames are due.
    pub(crate) fn complete(&mut self) {
        self.end(|_| true);
    }

    /// Drops the frames that are not due. The module has ended within an interval.
    pub(crate) fn clear(&mut self) {
        self.frames.clear();
        self.bytes = self.due.iter().map(|(frames, _)| frames.len()).sum();
    }

    /// Returns whether output is due that has not left.
    pub(crate) fn is_due(&self) -> bool {
        self.has_ended || !self.due.is_empty()
    }

    /// Returns frames that are due, and the place of the first that has not left. Without any, records that
    /// all output of the intervals so far has left.
    pub(crate) fn take_due(&mut self) -> Option<(Vec<u8>, usize)> {
        let due = self.due.pop_front();
        match &due {
            Some((frames, _)) => self.bytes -= frames.len(),
            None => self.has_ended = false,
        }
        due
    }

    /// Takes frames back of which those from `at` on have not left.
    pub(crate) fn put_back(&mut self, frames: Vec<u8>, at: usize) {
        self.bytes += frames.len();
        self.due.push_front((frames, at));
    }

    /// Returns the beginning of the first interval that has not ended for all instances, or `None` if the
    /// module has been shown no packet.
    pub(crate) fn open_since(&self) -> Option<u64> {
        self.onset.has_begun().then(|| self.since())
    }

    /// Returns the last tick that all instances have passed.
    pub(crate) fn since(&self) -> u64 {
        self.passed.iter().copied().min().unwrap_or(0)
    }

    fn end(&mut self, is_due: impl Fn(u64) -> bool) {
        let early = self.frames.remove(&0).unwrap_or_default();
        self.bytes -= early.len();
        while let Some(first) = self.frames.first_entry().filter(|first| is_due(*first.key())) {
            self.due.push_back((first.remove(), 0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(undue: &mut Undue, instance: usize, now_ns: u64) -> Vec<u8> {
        undue.pass(instance, now_ns);
        due(undue)
    }

    fn due(undue: &mut Undue) -> Vec<u8> {
        let parts = std::iter::from_fn(|| undue.take_due());
        parts.flat_map(|(frames, at)| frames[at..].to_vec()).collect()
    }

    #[test]
    fn output_is_due_once_all_instances_have_passed_the_end_of_their_interval() {
        let mut undue = Undue::new(&Onset::new(10, 2), 2);
        undue.keep(0, &[1]);
        assert!(pass(&mut undue, 0, 10).is_empty());
        undue.keep(0, &[2]);
        // The other worker is behind: its record is of the interval before the first tick.
        undue.keep(1, &[3]);
        assert!(pass(&mut undue, 1, 10).is_empty());
        undue.keep(1, &[4]);
        assert!(pass(&mut undue, 0, 20).is_empty());
        undue.keep(0, &[5]);
        assert_eq!(pass(&mut undue, 1, 20), [2, 4]);
        undue.keep(1, &[6]);
        undue.complete();
        assert_eq!(due(&mut undue), [5, 6]);
        undue.keep(0, &[7]);
        undue.clear();
        undue.complete();
        assert!(due(&mut undue).is_empty());
    }

    /// More than fits is refused, and does not leave before.
    #[test]
    fn little_waits() {
        let mut undue = Undue::new(&Onset::new(10, 1), 1);
        assert!(pass(&mut undue, 0, 10).is_empty());
        let half = vec![0; MOST / 2];
        assert_eq!([(); 3].map(|()| undue.keep(0, &half)), [true, true, false]);
        assert_eq!(pass(&mut undue, 0, 20).len(), MOST);
        assert!(undue.keep(0, &half));
        undue.clear();
        assert_eq!([(); 3].map(|()| undue.keep(0, &half)), [true, true, false]);
        // What is due and waits takes room, also when the module is evicted.
        undue.pass(0, 30);
        let (frames, at) = undue.take_due().unwrap();
        undue.put_back(frames, at + 1);
        undue.clear();
        assert!(!undue.keep(0, &half) && undue.is_due());
        assert_eq!(due(&mut undue).len(), MOST - 1);
        assert!(undue.keep(0, &half) && !undue.is_due());
    }

    /// Packet time may jump.
    #[test]
    fn intervals_without_ticks_are_due_together() {
        let mut undue = Undue::new(&Onset::new(10, 1), 1);
        assert!(pass(&mut undue, 0, 10).is_empty());
        undue.keep(0, &[1]);
        assert_eq!(pass(&mut undue, 0, 70), [1]);
        assert!(pass(&mut undue, 0, 70).is_empty() && undue.open_since().is_none());
    }
}
