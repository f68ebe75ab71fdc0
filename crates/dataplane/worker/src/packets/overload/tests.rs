//! The control against a model of a worker: a buffer that fills with time, and blocks that take the time of
//! the modules that receive them.

use super::control::{Control, HOLD_NS, ROUND};
use crate::records::event::OverloadChange;
use flame_plan::ModuleId;
use proptest::prelude::*;
use std::collections::BTreeMap;

const SECOND: f64 = 1e9;

/// A module of the model: its priority, and the nanoseconds that a block takes.
#[derive(Clone, Copy, Debug)]
struct Load {
    priority: u32,
    block_ns: f64,
}

/// A worker with a buffer.
struct Worker {
    control: Control,
    modules: Vec<Load>,
    /// The time of a block without modules.
    base_ns: f64,
    capacity: f64,
    now_ns: f64,
    /// The blocks that wait.
    waiting: f64,
    lost: f64,
    arrived: f64,
    idle_ns: f64,
    received: Vec<u64>,
    changes: BTreeMap<ModuleId, u64>,
    is_out: BTreeMap<ModuleId, bool>,
}

fn id(at: usize) -> ModuleId {
    ModuleId(at as u32)
}

impl Worker {
    fn new(modules: &[Load], base_ns: f64, capacity: f64, high: u32) -> Self {
        let mut control = Control::new(high);
        for (at, load) in modules.iter().enumerate() {
            control.add(id(at), load.priority);
            control.measure(id(at), Some(load.block_ns as u64), false);
        }
        Self {
            control,
            modules: modules.to_vec(),
            base_ns,
            capacity,
            now_ns: 0.0,
            waiting: 0.0,
            lost: 0.0,
            arrived: 0.0,
            idle_ns: 0.0,
            received: vec![0; modules.len()],
            changes: BTreeMap::new(),
            is_out: BTreeMap::new(),
        }
    }

    /// The time that a block takes if all modules receive it.
    fn whole_ns(&self) -> f64 {
        self.base_ns + self.modules.iter().map(|m| m.block_ns).sum::<f64>()
    }

    fn pass(&mut self, ns: f64, gap_ns: f64) {
        self.now_ns += ns;
        let arrived = ns / gap_ns;
        self.arrived += arrived;
        self.waiting += arrived;
        let over = (self.waiting - self.capacity).max(0.0);
        self.waiting -= over;
        self.lost += over;
    }

    /// Runs for `seconds`, with one block arriving each `gap_ns`.
    fn run(&mut self, seconds: f64, gap_ns: f64) {
        let end = self.now_ns + seconds * SECOND;
        while self.now_ns < end {
            if self.waiting < 1.0 {
                let wait = ((1.0 - self.waiting) * gap_ns).clamp(1.0, 20e6);
                self.idle_ns += wait;
                self.pass(wait, gap_ns);
                if self.waiting < 1.0 {
                    self.control.idle(self.now_ns as u64);
                    self.check();
                }
                continue;
            }
            self.waiting -= 1.0;
            self.control.block(self.now_ns as u64, (self.waiting / self.capacity * 1000.0) as u32);
            self.check();
            let mut ns = self.base_ns;
            for (at, load) in self.modules.iter().enumerate() {
                if !self.control.leaves_out(id(at)) {
                    ns += load.block_ns;
                    self.received[at] += 1;
                }
            }
            self.pass(ns, gap_ns);
        }
    }

    /// Checks that no module loses a block that one of a lower priority receives, and that the highest
    /// receives all.
    fn check(&mut self) {
        while let Some(OverloadChange { module, begins }) = self.control.take_change() {
            assert_ne!(self.is_out.insert(module, begins).unwrap_or(false), begins, "a change is one");
            *self.changes.entry(module).or_default() += 1;
        }
        let highest = self.modules.iter().map(|m| m.priority).max().unwrap_or(0);
        for (at, load) in self.modules.iter().enumerate() {
            if self.control.leaves_out(id(at)) {
                assert_ne!(load.priority, highest);
                assert_eq!(self.is_out.get(&id(at)), Some(&true), "and is said");
                let mut all = self.modules.iter().enumerate();
                assert!(all.all(|(at, other)| {
                    other.priority >= load.priority || self.control.leaves_out(id(at))
                }));
            }
        }
    }

    /// Returns the part of the time since `since` in which the worker had work.
    fn busy_since(&self, (now_ns, idle_ns): (f64, f64)) -> f64 {
        1.0 - (self.idle_ns - idle_ns) / (self.now_ns - now_ns)
    }
}

fn load(priority: u32, block_ns: f64) -> Load {
    Load { priority, block_ns }
}

fn loads() -> impl Strategy<Value = Vec<Load>> {
    prop::collection::vec((0..5u32, 1e4..3e6), 1..8)
        .prop_map(|loads| loads.into_iter().map(|(priority, ns)| load(priority, ns)).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The order holds at each block of any sequence of loads (`Worker::check`), and all modules return.
    #[test]
    fn the_lowest_go_first_and_all_return(
        modules in loads(),
        base_ns in 1e4..1e6,
        capacity in 32.0..320.0,
        high in 100..=600u32,
        phases in prop::collection::vec((0.05..4.0, 0.2..12.0), 1..8),
    ) {
        let mut worker = Worker::new(&modules, base_ns, capacity, high);
        let whole_ns = worker.whole_ns();
        for (seconds, factor) in phases {
            worker.run(seconds, whole_ns / factor);
        }
        // Each may have to wait for its longest time.
        worker.run(34.0 * modules.len() as f64, whole_ns / 0.3);
        let before = worker.received.clone();
        worker.run(1.0, whole_ns / 0.3);
        let blocks: Vec<u64> = worker.received.iter().zip(before).map(|(now, before)| now - before).collect();
        prop_assert!(blocks.iter().all(|n| *n == blocks[0]), "{blocks:?}");
        prop_assert!(worker.is_out.values().all(|out| !out), "{:?}", worker.is_out);
    }

    /// Under a steady load that the highest can bear, nothing is lost, the worker always has work, and hardly
    /// anything changes.
    #[test]
    fn a_steady_load_loses_nothing_wastes_nothing_and_does_not_flap(
        low in prop::collection::vec((0..4u32, 5e4..2e6), 2..8),
        top_ns in 5e4..1e6,
        base_ns in 5e4..5e5,
        capacity in 48.0..320.0,
        high in 100..=600u32,
        factor in 1.3..3.0,
    ) {
        let mut modules: Vec<_> = low.into_iter().map(|(priority, ns)| load(priority, ns)).collect();
        modules.push(load(9, top_ns));
        let mut worker = Worker::new(&modules, base_ns, capacity, high);
        let gap_ns = worker.whole_ns() / factor;
        prop_assume!(base_ns + top_ns < 0.8 * gap_ns);
        worker.run(20.0, gap_ns);
        let since = (worker.now_ns, worker.idle_ns);
        worker.changes.clear();
        worker.run(120.0, gap_ns);
        prop_assert!(worker.lost == 0.0, "{} of {} lost", worker.lost, worker.arrived);
        let busy = worker.busy_since(since);
        // More than 0.94 for nearly all loads. Modules that take longer than the gap between two blocks, with
        // the smallest buffer, have made it 0.843.
        prop_assert!(busy > 0.8, "busy {busy}");
        let most = worker.changes.values().max().copied().unwrap_or(0);
        prop_assert!(most <= 16, "{:?} in two minutes", worker.changes);
    }
}

#[test]
fn of_one_priority_the_costliest_goes_first_and_the_highest_never() {
    let modules = [load(1, 1e6), load(1, 4e6), load(1, 2e6), load(7, 1e6)];
    let mut worker = Worker::new(&modules, 1e5, 128.0, 500);
    let gap_ns = worker.whole_ns() / 1.5;
    worker.run(10.0, gap_ns);
    let out: Vec<ModuleId> = worker.is_out.iter().filter(|(_, out)| **out).map(|(id, _)| *id).collect();
    assert_eq!(out, [id(1)], "{:?}", worker.received);
    let part = worker.received[1] as f64 / worker.received[3] as f64;
    // 5.4 ms for a block, of which this one can take 5.4 - 4.1.
    assert!((0.25..0.38).contains(&part), "{part}");
    // One that comes with a lower priority has to wait behind it.
    worker.control.add(ModuleId(99), 0);
    assert!(worker.control.leaves_out(ModuleId(99)));
    assert_eq!(worker.control.take_change(), Some(OverloadChange { module: ModuleId(99), begins: true }));
    worker.control.remove(ModuleId(99));

    // Without the highest, the others lose nothing here: the kernel drops for all.
    worker.control.remove(id(3));
    assert!(!worker.control.is_needed());
    assert!((0..3).all(|at| !worker.control.leaves_out(id(at))));
}

/// If blocks take so long that the buffer would be full before all but the highest are left out one by one,
/// that begins at once.
#[test]
fn a_steep_rise_begins_early() {
    for (fills, expected) in [
        (&[300, 520][..], 1),
        (&[400, 520], 0),
        (&[300, 520, 510], 1),
        (&[300, 520, 700, 710], 2),
        (&[600, 760, 800], 3),
        (&[740, 749], 1),
        (&[700, 1000, 1000, 1000, 1000], 3),
    ] {
        let mut control = Control::new(500);
        [1, 3, 5, 9].into_iter().enumerate().for_each(|(at, priority)| control.add(id(at), priority));
        fills.iter().for_each(|fill| control.block(1_000_000, *fill));
        let out = (0..4).filter(|at| control.leaves_out(id(*at))).count();
        assert_eq!((out, control.leaves_out(id(3))), (expected, false), "{fills:?}");
    }
}

#[test]
fn equal_priorities_and_guaranteed_time_are_left_alone() {
    let mut control = Control::new(500);
    [3, 3, 5].into_iter().enumerate().for_each(|(at, priority)| control.add(id(at), priority));
    for block in 0..100 * u64::from(ROUND) {
        control.block(block * 1_000_000, 1000);
    }
    assert_eq!([0, 1, 2].map(|at| control.leaves_out(id(at))), [true, true, false]);
    control.measure(id(0), None, true);
    control.block(200_000_000_000, 1000);
    assert_eq!([0, 1, 2].map(|at| control.leaves_out(id(at))), [false, true, false]);
    control.remove(id(2));
    assert!(!control.is_needed() && !control.leaves_out(id(1)));
}

#[test]
fn a_guarantee_that_ends_is_followed_by_the_loss_of_those_above() {
    let mut control = Control::new(500);
    [1, 5, 9].into_iter().enumerate().for_each(|(at, priority)| control.add(id(at), priority));
    control.measure(id(0), None, true);
    (0..100).for_each(|block| control.block(block * 1_000_000, 1000));
    assert_eq!([0, 1, 2].map(|at| control.leaves_out(id(at))), [false, true, false]);
    control.measure(id(0), None, false);
    let mut now_ns = 1_000_000_000;
    // From there on, the lower one never receives a block that the higher one loses.
    while control.leaves_out(id(1)) || control.leaves_out(id(0)) {
        control.block(now_ns, 100);
        assert!(control.leaves_out(id(0)) || !control.leaves_out(id(1)));
        now_ns += 10_000_000;
    }
}

#[test]
fn those_below_make_room_for_a_module_that_loses_blocks_of_its_own() {
    let mut control = Control::new(500);
    [1, 5, 9].into_iter().enumerate().for_each(|(at, priority)| control.add(id(at), priority));
    let mut now_ns = 1_000_000_000;
    for _ in 0..20 {
        control.press(now_ns, 5);
        now_ns += 100_000_000;
    }
    control.block(now_ns, 0);
    assert_eq!([0, 1, 2].map(|at| control.leaves_out(id(at))), [true, false, false], "only those below it");
    // It is given back slowly, and more slowly each time that it did not suffice.
    let mut waits = Vec::new();
    for _ in 0..3 {
        let since = now_ns;
        while control.leaves_out(id(0)) {
            now_ns += 10_000_000;
            control.idle(now_ns);
        }
        waits.push(now_ns - since);
        for _ in 0..4 {
            control.press(now_ns, 9);
        }
    }
    assert!(waits.is_sorted() && waits[2] >= 2 * HOLD_NS.0, "{waits:?}");
}
