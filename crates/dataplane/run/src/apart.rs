//! Threads that make calls apart: calls of bounded modules that nothing interrupts, and that may take longer
//! than a slice. The caller waits for a slice at a time, and works on in between.

use flame_base::lock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// The threads that have no call at present. They end with the last clone, which has the same threads.
#[derive(Clone, Default)]
pub(crate) struct Apart(Arc<Mutex<Vec<SyncSender<Job>>>>);

/// A thread without a call.
pub(crate) struct Idle {
    all: Apart,
    thread: SyncSender<Job>,
}

/// A call that a thread makes. If this is dropped, the thread ends with the call.
pub(crate) struct Running<T> {
    idle: Idle,
    result: Receiver<T>,
}

impl Apart {
    /// Returns a thread, or `None` if the system has none left.
    pub(crate) fn take(&self) -> Option<Idle> {
        let idle = lock(&self.0).pop();
        let thread = match idle {
            Some(thread) => thread,
            None => {
                let (thread, jobs) = sync_channel::<Job>(1);
                let name = std::thread::Builder::new().name("flame-call".to_owned());
                name.spawn(move || jobs.into_iter().for_each(|job| job())).ok()?;
                thread
            }
        };
        Some(Idle { all: self.clone(), thread })
    }
}

impl Idle {
    pub(crate) fn run<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> Running<T> {
        let (done, result) = sync_channel(1);
        // Nobody may wait for the result any more. The thread ends only with its sender, which is here.
        let _ = self.thread.send(Box::new(move || drop(done.send(work()))));
        Running { idle: self, result }
    }
}

impl<T> Running<T> {
    /// Waits for the result, but not longer than `most`. Otherwise returns the call.
    ///
    /// # Panics
    ///
    /// Panics if the call did.
    pub(crate) fn wait(self, most: Duration) -> Result<T, Self> {
        match self.result.recv_timeout(most) {
            Ok(result) => {
                let Idle { all, thread } = self.idle;
                lock(&all.0).push(thread);
                Ok(result)
            }
            Err(RecvTimeoutError::Timeout) => Err(self),
            Err(RecvTimeoutError::Disconnected) => panic!("a call panicked in its thread"),
        }
    }
}
