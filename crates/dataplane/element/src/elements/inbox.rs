//! The queue through which threads that wait for sockets and devices hand data to an element.

use crate::runtime::element::Cx;
use crate::runtime::packet::{Batch, Packet};
use crate::runtime::wake::Waker;
use flame_base::{lock, unpoisoned};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};

/// A queue from threads to an element, which it wakes. The element that replaces the first one takes it over.
pub struct Inbox<T> {
    state: Mutex<State<T>>,
    room: Condvar,
    capacity: usize,
}

struct State<T> {
    queue: VecDeque<T>,
    waker: Option<Waker>,
    is_closed: bool,
}

impl<T> Inbox<T> {
    pub fn new(capacity: usize) -> Self {
        let state = State { queue: VecDeque::new(), waker: None, is_closed: false };
        Self { state: Mutex::new(state), room: Condvar::new(), capacity: capacity.max(1) }
    }

    /// Wakes another element from now on, at once if something waits.
    pub fn adopt(&self, waker: Waker) {
        let mut state = lock(&self.state);
        if !state.queue.is_empty() {
            waker.wake();
        }
        state.waker = Some(waker);
    }

    /// Adds an item, when there is room. Returns false if items are not taken any more.
    pub fn put(&self, item: T) -> bool {
        let mut state = lock(&self.state);
        while state.queue.len() >= self.capacity && !state.is_closed {
            state = unpoisoned(self.room.wait(state));
        }
        if state.is_closed {
            return false;
        }
        state.queue.push_back(item);
        if let Some(waker) = &state.waker {
            waker.wake();
        }
        true
    }

    /// Takes at most `most` items. Returns whether more wait.
    pub fn take(&self, most: usize, out: &mut Vec<T>) -> bool {
        let mut state = lock(&self.state);
        let count = state.queue.len().min(most);
        out.extend(state.queue.drain(..count));
        self.room.notify_all();
        !state.queue.is_empty()
    }

    /// Lets threads end. What waits is dropped.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        state.queue.clear();
        drop(state);
        self.room.notify_all();
    }
}

impl Inbox<Vec<u8>> {
    /// Makes packets of at most `most` items, and schedules the element again if more wait.
    pub fn receive(&self, cx: &Cx<'_>, most: usize) -> Batch {
        let mut all = Vec::new();
        if self.take(most, &mut all) {
            cx.reschedule();
        }
        let mut batch = Batch::default();
        for bytes in &all {
            let mut packet = Packet::new(bytes);
            packet.anno.time = cx.now();
            batch.push(packet);
        }
        batch
    }
}
