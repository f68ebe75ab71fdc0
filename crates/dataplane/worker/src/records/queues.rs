//! The queues to the collector: that of the workers, and one of each process.

use crate::error::RunError;
use crate::process::ModuleEvent;
use crate::records::backpressure::Lead;
use crate::records::event::{self, Event, EventReceiver, EventSender, Sent};
use crossbeam_channel::{Receiver, Select, TryRecvError, never};
use std::sync::Arc;
use std::time::Duration;

/// The queues to the collector.
///
/// Each process has a queue of its own, so that its output cannot fill that of the workers. The queues are
/// served in turn.
pub(crate) struct Queues {
    workers: EventReceiver,
    /// The queues of new processes.
    started: Receiver<Receiver<ModuleEvent>>,
    processes: Vec<Receiver<ModuleEvent>>,
    /// The queue that is looked at next: 0 is that of the workers.
    next: usize,
}

impl Queues {
    /// Creates the queue of `workers` workers. Those of new processes come by `started`.
    pub(crate) fn new(
        workers: usize,
        started: Option<Receiver<Receiver<ModuleEvent>>>,
    ) -> (EventSender, Self) {
        let (sender, receiver) = event::queue(workers);
        let started = started.unwrap_or_else(never);
        (sender, Self { workers: receiver, started, processes: Vec::new(), next: 0 })
    }

    pub(crate) fn lead(&self) -> Arc<Lead> {
        self.workers.lead()
    }

    /// Returns an event that waits. An error states that all workers are gone.
    pub(crate) fn poll(&mut self) -> Result<Option<Sent>, RunError> {
        self.processes.extend(self.started.try_iter());
        let mut is_open = true;
        let mut looked = 0;
        while looked <= self.processes.len() {
            looked += 1;
            let at = std::mem::take(&mut self.next);
            let queue = at.checked_sub(1).and_then(|at| self.processes.get(at));
            let Some(queue) = queue else {
                self.next = 1;
                match self.workers.try_recv() {
                    Ok(sent) => return Ok(Some(sent)),
                    Err(TryRecvError::Empty) => continue,
                    Err(TryRecvError::Disconnected) => is_open = false,
                }
                continue;
            };
            match queue.try_recv() {
                Ok(event) => {
                    self.next = (at + 1) % (self.processes.len() + 1);
                    return Ok(Some(Sent { worker: None, event: Event::Module(event) }));
                }
                Err(TryRecvError::Empty) => self.next = (at + 1) % (self.processes.len() + 1),
                // The process is gone, and everything that it reported was taken.
                Err(TryRecvError::Disconnected) => {
                    self.processes.remove(at - 1);
                    self.next = at % (self.processes.len() + 1);
                }
            }
        }
        if is_open { Ok(None) } else { Err(RunError::Broken) }
    }

    /// Returns whether a queue is full, and somebody may wait for room.
    pub(crate) fn is_any_full(&self) -> bool {
        self.workers.is_full() || self.processes.iter().any(Receiver::is_full)
    }

    /// Waits until an event may be there, for `limit` at most.
    pub(crate) fn wait(&mut self, limit: Duration) {
        let mut select = Select::new();
        select.recv(self.workers.events());
        select.recv(&self.started);
        for queue in &self.processes {
            select.recv(queue);
        }
        if select.ready_timeout(limit) == Ok(1)
            && let Err(TryRecvError::Disconnected) = self.started.try_recv().map(|q| self.processes.push(q))
        {
            // Nobody is left to start a process.
            self.started = never();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::{bounded, unbounded};
    use flame_plan::ModuleId;

    fn tick(now_ns: u64) -> Event {
        Event::Tick { worker: 0, now_ns, accounts: Vec::new() }
    }

    fn passed(now_ns: u64) -> ModuleEvent {
        ModuleEvent::Passed { module: ModuleId::default(), worker: 0, now_ns }
    }

    fn number(sent: Option<Sent>) -> Option<u64> {
        match sent.map(|sent| sent.event) {
            Some(Event::Tick { now_ns, .. }) => Some(now_ns),
            Some(Event::Module(ModuleEvent::Passed { now_ns, .. })) => Some(now_ns),
            _ => None,
        }
    }

    #[test]
    fn a_full_queue_is_seen() {
        let (start, started) = unbounded();
        let (workers, mut queues) = Queues::new(1, Some(started));
        let (one, first) = bounded(2);
        start.send(first).unwrap();
        assert!(queues.poll().unwrap().is_none());
        one.send(passed(1)).unwrap();
        assert!(!queues.is_any_full());
        one.send(passed(2)).unwrap();
        assert!(queues.is_any_full());
        assert_eq!(number(queues.poll().unwrap()), Some(1));
        assert!(!queues.is_any_full());
        let from = flame_execute::Origin::of(ModuleId::default(), 0);
        let large = || Event::Module(ModuleEvent::Output { from, bytes: vec![0; 1 << 20] });
        (0..event::QUEUE).for_each(|_| workers.send(large()).unwrap());
        assert!(queues.is_any_full(), "of large outputs");
    }

    /// A process that always has a report delays the workers by one report only.
    #[test]
    fn queues_are_served_in_turn() {
        let (start, started) = unbounded();
        let (workers, mut queues) = Queues::new(1, Some(started));
        let (one, first) = bounded(8);
        let (two, second) = bounded(8);
        start.send(first).unwrap();
        start.send(second).unwrap();
        (0..4).for_each(|n| one.send(passed(100 + n)).unwrap());
        (0..2).for_each(|n| two.send(passed(200 + n)).unwrap());
        (0..3).for_each(|n| workers.send(tick(n)).unwrap());
        let mut order = Vec::new();
        while let Some(n) = number(queues.poll().unwrap()) {
            order.push(n);
        }
        assert_eq!(order, [0, 100, 200, 1, 101, 201, 2, 102, 103]);
        // The last report of a process that is gone is not lost.
        two.send(passed(202)).unwrap();
        drop(two);
        assert_eq!(number(queues.poll().unwrap()), Some(202));
        assert!(queues.poll().unwrap().is_none());
        assert_eq!(queues.processes.len(), 1);
        drop(workers);
        assert!(queues.poll().is_err());
    }
}
