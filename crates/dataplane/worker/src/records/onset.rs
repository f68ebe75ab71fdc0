//! The first packet of a module on a live source whose view shows times in steps.
//!
//! The person who starts a module chooses when, and a count from then on would time packets more exactly than
//! the view does. So the module is shown packets from a tick on, which is the same for all workers: they
//! execute commands, and pass ticks, at different times.

use crate::lock;
use std::sync::{Arc, Mutex};

/// The beginning of one module, shared by its parts on all workers.
pub(crate) struct Onset {
    tick_ns: u64,
    workers: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of workers that have reported a time.
    reported: usize,
    /// The first tick that follows the times that workers have reported. Packets before it are shown on none.
    since: u64,
    has_begun: bool,
}

impl Onset {
    pub(crate) fn new(tick_ns: u64, workers: usize) -> Arc<Self> {
        Arc::new(Self { tick_ns: tick_ns.max(1), workers, state: Mutex::default() })
    }

    /// Returns whether the module has been shown an interval, or a part of one, on any worker.
    pub(crate) fn has_begun(&self) -> bool {
        lock(&self.state).has_begun
    }

    /// Records that a worker has no part of the module.
    pub(crate) fn leave_out(&self) {
        lock(&self.state).reported += 1;
    }
}

/// The part of one worker, until it begins.
pub(crate) struct Awaited {
    onset: Arc<Onset>,
    has_reported: bool,
}

impl Awaited {
    pub(crate) fn new(onset: &Arc<Onset>) -> Self {
        Self { onset: onset.clone(), has_reported: false }
    }

    /// Reports a time of this worker, within an interval of which it has not shown everything. Does nothing
    /// if that is 0, which is no time yet.
    pub(crate) fn report(&mut self, now_ns: u64) {
        if now_ns > 0 && !std::mem::replace(&mut self.has_reported, true) {
            let (tick_ns, mut state) = (self.onset.tick_ns, lock(&self.onset.state));
            state.reported += 1;
            state.since = state.since.max((now_ns / tick_ns).saturating_add(1).saturating_mul(tick_ns));
        }
    }

    /// Records that this worker passes the tick at `now_ns`. Returns whether it shows what follows.
    pub(crate) fn pass(&mut self, now_ns: u64) -> bool {
        let mut state = lock(&self.onset.state);
        state.reported += usize::from(!std::mem::replace(&mut self.has_reported, true));
        if state.reported < self.onset.workers {
            // What follows is not shown here, so the others begin later, too.
            state.since = state.since.max(now_ns.saturating_add(self.onset.tick_ns));
        }
        let begins = state.reported >= self.onset.workers && now_ns >= state.since;
        state.has_begun |= begins;
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(workers: usize) -> (Arc<Onset>, Vec<Awaited>) {
        let onset = Onset::new(10, workers);
        let all = (0..workers).map(|_| Awaited::new(&onset)).collect();
        (onset, all)
    }

    #[test]
    fn a_module_begins_at_the_first_tick() {
        let (onset, mut all) = workers(1);
        all[0].report(0);
        all[0].report(13);
        assert!(!onset.has_begun() && !all[0].pass(10));
        assert!(all[0].pass(20) && onset.has_begun());
        // Without a packet before.
        assert!(workers(1).1[0].pass(50));
    }

    #[test]
    fn workers_begin_at_the_same_tick_whichever_is_behind() {
        // One executes the command before a tick, the other one after it.
        let (_, mut all) = workers(2);
        all[0].report(19);
        assert!(!all[0].pass(20));
        all[1].report(21);
        assert_eq!([all[1].pass(30), all[0].pass(30)], [true, true]);
        // The second one has no time yet when the first one passes a tick.
        let (_, mut all) = workers(2);
        all[0].report(19);
        assert!(!all[0].pass(20));
        assert!(!all[1].pass(20), "the first one has left out what follows");
        assert_eq!([all[0].pass(30), all[1].pass(30)], [true, true]);
        // Both have reported before, and no interval is lost. One has a gap.
        let (_, mut all) = workers(2);
        all.iter_mut().for_each(|awaited| awaited.report(19));
        assert_eq!([all[0].pass(20), all[1].pass(40)], [true, true]);
        // One has no part of the module.
        let (onset, mut all) = workers(2);
        onset.leave_out();
        assert!(all[0].pass(20));
    }
}
