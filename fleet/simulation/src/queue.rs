//! Events in the order of their times, with a seed that decides among equal ones.

use fastrand::Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events that are due at a time in milliseconds.
pub struct Queue<E> {
    now: u64,
    heap: BinaryHeap<Reverse<Item<E>>>,
    pub rng: Rng,
}

struct Item<E> {
    at: u64,
    order: u64,
    event: E,
}

impl<E> PartialEq for Item<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<E> Eq for Item<E> {}

impl<E> PartialOrd for Item<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Item<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl<E> Queue<E> {
    /// Makes an empty queue at time 0.
    pub fn new(seed: u64) -> Self {
        Self { now: 0, heap: BinaryHeap::new(), rng: Rng::with_seed(seed) }
    }

    pub fn now(&self) -> u64 {
        self.now
    }

    /// Adds an event that is due after `delay` milliseconds.
    pub fn push(&mut self, delay: u64, event: E) {
        let order = self.rng.u64(..);
        self.heap.push(Reverse(Item { at: self.now + delay, order, event }));
    }

    /// Returns the next event, and makes its time the present.
    pub fn pop(&mut self) -> Option<E> {
        let Reverse(item) = self.heap.pop()?;
        self.now = item.at;
        Some(item.event)
    }

    /// Returns whether something happens that does so once in `times`.
    pub fn once_in(&mut self, times: u32) -> bool {
        self.rng.u32(..times) == 0
    }
}
