//! Records that are not due yet: those of a module on a live source whose view shows times in steps.
//!
//! What a module reports of the part of an interval would time the packets in it more exactly than its view
//! does, since the person who runs it chooses when it ends. So records leave once all instances of the module
//! have passed the tick at which their interval ends. Of an interval that does not end nothing leaves.

use crate::onset::Onset;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The records of one module that are not due yet.
pub(crate) struct Undue {
    onset: Arc<Onset>,
    /// The last tick that each instance has passed: the fast one of each worker, then the slow one.
    passed: Vec<u64>,
    /// The frames of the records, by the tick that their instance had passed before.
    records: BTreeMap<u64, Vec<u8>>,
}

impl Undue {
    /// Creates the records of a module that has this number of instances.
    pub(crate) fn new(onset: &Arc<Onset>, instances: usize) -> Self {
        Self { onset: onset.clone(), passed: vec![0; instances], records: BTreeMap::new() }
    }

    /// Returns the number of the slow instance, the last one.
    pub(crate) fn slow(&self) -> usize {
        self.passed.len() - 1
    }

    /// Keeps the frame of a record of an instance.
    pub(crate) fn keep(&mut self, instance: usize, frame: &[u8]) {
        let since = self.passed.get(instance).copied().unwrap_or(0);
        self.records.entry(since).or_default().extend_from_slice(frame);
    }

    /// Records that an instance has passed the tick at `now_ns`. Returns the records that are due then. Those
    /// from before the first tick are of no whole interval, and never are.
    pub(crate) fn pass(&mut self, instance: usize, now_ns: u64) -> Vec<u8> {
        let before = self.since();
        if let Some(passed) = self.passed.get_mut(instance) {
            *passed = now_ns.max(*passed);
        }
        let since = self.since();
        if since == before {
            return Vec::new();
        }
        self.records.remove(&0);
        self.take(|open| open < since)
    }

    /// Returns all records, at the end of the last interval.
    pub(crate) fn complete(&mut self) -> Vec<u8> {
        self.records.remove(&0);
        self.take(|_| true)
    }

    /// Drops all records. The module has ended within an interval.
    pub(crate) fn clear(&mut self) {
        self.records.clear();
    }

    /// Returns the beginning of the first interval that has not ended for all instances, or `None` if the
    /// module has been shown no packet.
    pub(crate) fn open_since(&self) -> Option<u64> {
        self.onset.has_begun().then(|| self.since())
    }

    fn since(&self) -> u64 {
        self.passed.iter().copied().min().unwrap_or(0)
    }

    fn take(&mut self, is_due: impl Fn(u64) -> bool) -> Vec<u8> {
        let mut due = Vec::new();
        while let Some(first) = self.records.first_entry().filter(|first| is_due(*first.key())) {
            let frames = first.remove();
            if due.is_empty() { due = frames } else { due.extend(frames) }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_due_once_all_instances_have_passed_the_end_of_their_interval() {
        let mut undue = Undue::new(&Onset::new(10, 2), 2);
        undue.keep(0, &[1]);
        assert!(undue.pass(0, 10).is_empty());
        undue.keep(0, &[2]);
        // The other worker is behind: its record is of the interval before the first tick.
        undue.keep(1, &[3]);
        assert!(undue.pass(1, 10).is_empty());
        undue.keep(1, &[4]);
        assert!(undue.pass(0, 20).is_empty());
        undue.keep(0, &[5]);
        assert_eq!(undue.pass(1, 20), [2, 4]);
        undue.keep(1, &[6]);
        assert_eq!(undue.complete(), [5, 6]);
        undue.keep(0, &[7]);
        undue.clear();
        assert!(undue.complete().is_empty());
    }

    /// Packet time may jump.
    #[test]
    fn intervals_without_ticks_are_due_together() {
        let mut undue = Undue::new(&Onset::new(10, 1), 1);
        assert!(undue.pass(0, 10).is_empty());
        undue.keep(0, &[1]);
        assert_eq!(undue.pass(0, 70), [1]);
        assert!(undue.pass(0, 70).is_empty() && undue.open_since().is_none());
    }
}
