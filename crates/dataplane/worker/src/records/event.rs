//! The events of a run, and the queue from the workers to the collector.

use crate::error::RunError;
use crate::process::ModuleEvent;
use crate::records::backpressure::Lead;
use crate::records::calls::Question;
use crate::records::placed::Placed;
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use flame_plan::{Account, ModuleId};
use std::sync::Arc;

/// The maximum number of blocks that wait for one worker, and, per worker, of large outputs that wait for the
/// collector. A full queue blocks the sender: capture files are read more slowly, a live source counts kernel
/// drops.
pub(crate) const QUEUE: usize = 16;

/// The maximum number of events that wait for the collector, per worker. With fewer of them, a worker whose
/// modules report much at a time would often wait, and each time a thread would have to be woken up.
const EVENTS: usize = 512;
/// The maximum size in bytes of output that is not large. Of large ones, [`QUEUE`] wait at most per worker.
const LARGE: usize = 16 << 10;

/// Messages from pipelines, handles and processes to the collector.
pub(crate) enum Event {
    Module(ModuleEvent),
    /// A worker has passed a tick, on a live source with these accounts.
    Tick {
        worker: usize,
        now_ns: u64,
        accounts: Vec<(ModuleId, Account)>,
    },
    Add(Box<Placed>, Sender<()>),
    Removed(Removed),
    /// A module begins to lose packets to an overload of a worker, or receives all again.
    Overload(usize, OverloadChange),
    Accounts(Sender<Vec<(ModuleId, Account)>>),
    /// A question to a service of a module.
    Ask(ModuleId, Question),
    /// All fast instances of a worker in this process have ended, and those in others are requested to.
    Ending,
    End {
        accounts: Vec<(ModuleId, Account)>,
        now_ns: u64,
    },
    Failed(RunError),
}

/// A module begins to lose packets to an overload, or receives all of them again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OverloadChange {
    pub(crate) module: ModuleId,
    pub(crate) begins: bool,
}

/// A module that was removed from one pipeline.
pub(crate) struct Removed {
    pub(crate) module: ModuleId,
    pub(crate) account: Account,
    /// The packet time at which it ended.
    pub(crate) now_ns: u64,
    /// The channel for the account over all workers, once the module has ended on all of them.
    pub(crate) reply: Sender<Account>,
}

/// An event, and the worker that sent it. Those of handles and processes have none.
pub(crate) struct Sent {
    pub(crate) worker: Option<usize>,
    pub(crate) event: Event,
}

fn is_large(event: &Event) -> bool {
    matches!(event, Event::Module(ModuleEvent::Output { bytes, .. }) if bytes.len() > LARGE)
}

/// The workers' end of their queue to the collector.
#[derive(Clone)]
pub(crate) struct EventSender {
    /// The worker that sends, if it is one.
    worker: Option<usize>,
    events: Sender<Sent>,
    /// One element for each large event in the queue.
    large: Sender<()>,
    lead: Arc<Lead>,
}

impl EventSender {
    /// Returns the end of one worker.
    pub(crate) fn of(&self, worker: usize) -> Self {
        Self { worker: Some(worker), ..self.clone() }
    }

    pub(crate) fn lead(&self) -> &Lead {
        &self.lead
    }

    /// Sends an event, and waits while the queue is full. An error states that the collector is gone.
    pub(crate) fn send(&self, event: Event) -> Result<(), RunError> {
        if is_large(&event) {
            self.large.send(()).map_err(|_| RunError::Broken)?;
        }
        self.events.send(Sent { worker: self.worker, event }).map_err(|_| RunError::Broken)
    }
}

/// The collector's end of the workers' queue.
pub(crate) struct EventReceiver {
    events: Receiver<Sent>,
    large: Receiver<()>,
    lead: Arc<Lead>,
}

impl Drop for EventReceiver {
    fn drop(&mut self) {
        self.lead.end();
    }
}

impl EventReceiver {
    /// Returns the next event, if one waits.
    pub(crate) fn try_recv(&self) -> Result<Sent, TryRecvError> {
        let sent = self.events.try_recv()?;
        if is_large(&sent.event) {
            let _ = self.large.try_recv();
        }
        Ok(sent)
    }

    pub(crate) fn lead(&self) -> Arc<Lead> {
        self.lead.clone()
    }

    /// Returns whether somebody may wait for room.
    pub(crate) fn is_full(&self) -> bool {
        self.events.is_full() || self.large.is_full()
    }

    /// Returns the channel that is ready when an event waits.
    pub(crate) fn events(&self) -> &Receiver<Sent> {
        &self.events
    }
}

/// Creates the queue of `workers` workers.
pub(crate) fn queue(workers: usize) -> (EventSender, EventReceiver) {
    let (to_events, events) = bounded(EVENTS * workers);
    let (to_large, large) = bounded(QUEUE * workers);
    let lead = Lead::new(workers);
    let sender = EventSender { worker: None, events: to_events, large: to_large, lead: lead.clone() };
    (sender, EventReceiver { events, large, lead })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flame_execute::Origin;
    use std::time::Duration;

    /// Large outputs wait for room before small ones do, so that the queue cannot grow without limit.
    #[test]
    fn few_large_outputs_wait() {
        let output = |size| {
            let from = Origin::of(ModuleId::default(), 0);
            Event::Module(ModuleEvent::Output { from, bytes: vec![0; size] })
        };
        let (workers, events) = queue(1);
        (0..QUEUE).for_each(|_| workers.send(output(LARGE + 1)).unwrap());
        std::thread::scope(|scope| {
            let (sent, done) = bounded(EVENTS);
            scope.spawn(move || {
                workers.send(output(LARGE)).unwrap();
                sent.send(()).unwrap();
                workers.send(output(LARGE + 1)).unwrap();
                sent.send(()).unwrap();
            });
            done.recv().unwrap();
            assert!(done.recv_timeout(Duration::from_millis(50)).is_err());
            assert!(events.try_recv().is_ok());
            done.recv().unwrap();
            (0..=QUEUE).for_each(|_| assert!(events.try_recv().is_ok()));
            assert!(events.try_recv().is_err());
        });
    }
}
