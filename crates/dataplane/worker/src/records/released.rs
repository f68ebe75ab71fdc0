//! The accounts of fast instances as of the ticks of a live run, from which those are made that holders have.

use flame_plan::{Account, ModuleId};
use std::collections::{BTreeMap, VecDeque};

/// The accounts of one worker's fast instances as of a tick.
type AtTick = (u64, Vec<(ModuleId, Account)>);

/// The accounts that each worker had at the ticks that others have not passed yet, and at the last one.
pub(crate) struct Released(Vec<VecDeque<AtTick>>);

impl Released {
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| VecDeque::new()).collect())
    }

    /// Adds the accounts with which a worker passed a tick.
    pub(crate) fn add(&mut self, worker: usize, at: AtTick) {
        if let Some(ticks) = self.0.get_mut(worker) {
            ticks.push_back(at);
        }
    }

    /// Returns the accounts over all workers as of the tick `at_ns`, which all have passed, and forgets those
    /// before it. A worker that passed none at that time had no packet between it and its next one.
    pub(crate) fn at(&mut self, at_ns: u64) -> BTreeMap<ModuleId, Account> {
        let mut all: BTreeMap<ModuleId, Account> = BTreeMap::new();
        for ticks in &mut self.0 {
            while ticks.front().is_some_and(|(tick, _)| *tick < at_ns) {
                ticks.pop_front();
            }
            for (id, account) in ticks.front().iter().flat_map(|(_, accounts)| accounts) {
                all.entry(*id).or_default().add(account);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_of_one_tick_on_all_workers() {
        let mut released = Released::new(2);
        let of = |offered| {
            let mut account = Account::default();
            account.offered = offered;
            vec![(ModuleId(1), account)]
        };
        released.add(0, (10, of(1)));
        released.add(0, (20, of(5)));
        released.add(1, (10, of(100)));
        let offered = |all: BTreeMap<ModuleId, Account>| all[&ModuleId(1)].offered;
        assert_eq!(offered(released.at(10)), 101, "worker 0 is ahead");
        // The other one had no packet in between.
        released.add(0, (30, of(7)));
        released.add(1, (30, of(400)));
        assert_eq!(offered(released.at(30)), 407);
        assert_eq!(released.0.iter().map(VecDeque::len).sum::<usize>(), 2);
    }
}
