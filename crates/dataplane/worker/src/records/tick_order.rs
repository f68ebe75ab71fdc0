//! The order in which the collector takes the events of several workers.
//!
//! From a capture, a worker may be far ahead of another one. Its events after a tick wait until all workers
//! have passed that tick, so that quotas and reports count everything in its own second of packet time. On a
//! live source all workers are at about the same time, and nothing waits.

use crate::process::ModuleEvent;
use crate::records::backpressure::Lead;
use crate::records::event::{Event, Sent};
use flame_plan::Discipline;
use std::collections::VecDeque;
use std::sync::Arc;

/// The number of bytes that a waiting event takes in addition to its output.
const ENTRY: usize = 64;

/// The events that wait.
pub(crate) struct Order {
    /// The last tick of each worker whose events were taken. One that has ended holds up no other.
    passed: Vec<u64>,
    waiting: Vec<VecDeque<Event>>,
    lead: Arc<Lead>,
    /// Whether everything is taken as it comes, because no order is asked for or no more comes.
    is_unordered: bool,
}

fn bytes(event: &Event) -> usize {
    match event {
        Event::Module(ModuleEvent::Output { bytes, .. }) => bytes.len() + ENTRY,
        _ => ENTRY,
    }
}

impl Order {
    pub(crate) fn new(workers: usize, lead: Arc<Lead>, discipline: Discipline) -> Self {
        let waiting = (0..workers).map(|_| VecDeque::new()).collect();
        Self { passed: vec![0; workers], waiting, lead, is_unordered: !discipline.orders_events_by_tick() }
    }

    /// Returns an event if it is next, and keeps it otherwise.
    pub(crate) fn take(&mut self, Sent { worker, event }: Sent) -> Option<Event> {
        let Some(worker) = worker.filter(|worker| *worker < self.passed.len()) else { return Some(event) };
        if matches!(event, Event::Failed(_)) {
            // The others go on without it.
            self.passed[worker] = u64::MAX;
            return Some(event);
        }
        if self.is_unordered || (self.waiting[worker].is_empty() && self.is_last(worker)) {
            return Some(self.taken(worker, event));
        }
        self.lead.add(worker, bytes(&event));
        self.waiting[worker].push_back(event);
        None
    }

    /// Returns an event that has waited and is next now.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let is_next = |worker: &usize| {
            !self.waiting[*worker].is_empty() && (self.is_unordered || self.is_last(*worker))
        };
        let worker = (0..self.waiting.len()).find(is_next)?;
        let event = self.waiting[worker].pop_front()?;
        self.lead.subtract(worker, bytes(&event));
        Some(self.taken(worker, event))
    }

    /// Lets all events that wait be next, because no more come.
    pub(crate) fn release(&mut self) {
        self.is_unordered = true;
    }

    /// Returns whether no other worker is behind this one.
    fn is_last(&self, worker: usize) -> bool {
        self.passed.iter().all(|other| self.passed[worker] <= *other)
    }

    fn taken(&mut self, worker: usize, event: Event) -> Event {
        match &event {
            Event::Tick { now_ns, .. } => self.passed[worker] = *now_ns,
            Event::End { .. } => self.passed[worker] = u64::MAX,
            _ => {}
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flame_execute::Origin;
    use flame_plan::ModuleId;

    fn tick(worker: usize, now_ns: u64) -> Sent {
        Sent { worker: Some(worker), event: Event::Tick { worker, now_ns, accounts: Vec::new() } }
    }

    fn output(worker: usize, byte: u8) -> Sent {
        let from = Origin::of(ModuleId::default(), worker);
        let event = Event::Module(ModuleEvent::Output { from, bytes: vec![byte] });
        Sent { worker: Some(worker), event }
    }

    fn end(worker: usize) -> Sent {
        Sent { worker: Some(worker), event: Event::End { accounts: Vec::new(), now_ns: 0 } }
    }

    /// Returns the events in the order in which they are taken, an output as its byte and a tick as its time
    /// times 100.
    fn taken(order: &mut Order, sent: Vec<Sent>) -> Vec<u64> {
        let number = |event: Event| match event {
            Event::Module(ModuleEvent::Output { bytes, .. }) => Some(bytes[0].into()),
            Event::Tick { now_ns, .. } => Some(now_ns * 100),
            _ => None,
        };
        let mut all = Vec::new();
        for sent in sent {
            all.extend(order.take(sent).and_then(number));
            while let Some(event) = order.next() {
                all.extend(number(event));
            }
        }
        all
    }

    #[test]
    fn what_follows_a_tick_waits_until_all_workers_have_passed_it() {
        let ahead = || {
            vec![output(0, 1), tick(0, 1), output(0, 2), tick(0, 2), output(0, 3), output(1, 4), tick(1, 1)]
        };
        let (lead, mut order) = (Lead::new(2), None);
        let order = order.insert(Order::new(2, lead.clone(), Discipline::File));
        assert_eq!(taken(order, ahead()), [1, 100, 4, 100, 2, 200]);
        assert!(lead.bytes(0) > 0, "the last output waits");
        // A worker that has ended, or has failed, is waited for no longer.
        assert_eq!(taken(order, vec![output(1, 5), end(1)]), [5, 3]);
        assert_eq!((lead.bytes(0), lead.bytes(1)), (0, 0));
        let mut live = Order::new(2, Lead::new(2), Discipline::Link);
        assert_eq!(taken(&mut live, ahead()), [1, 100, 2, 200, 3, 4, 100]);
        let mut order = Order::new(2, Lead::new(2), Discipline::File);
        assert_eq!(taken(&mut order, vec![tick(0, 1), output(0, 2)]), [100]);
        order.release();
        assert_eq!(taken(&mut order, vec![]), Vec::<u64>::new());
        assert!(order.next().is_some() && order.next().is_none());
    }
}
