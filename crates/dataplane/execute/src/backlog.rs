//! The messages of workers that are ahead, which wait for the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of bytes of messages that wait for workers that are behind, by the worker that sent them.
#[derive(Debug)]
pub struct Backlog(Vec<AtomicUsize>);

impl Backlog {
    pub fn new(workers: usize) -> Arc<Self> {
        Arc::new(Self((0..workers).map(|_| AtomicUsize::new(0)).collect()))
    }

    /// Returns the number of bytes that `worker` has sent.
    pub fn bytes(&self, worker: usize) -> usize {
        self.0.get(worker).map_or(0, |bytes| bytes.load(Ordering::Relaxed))
    }
}

/// A message that waits, which counts until this value is dropped.
pub struct Counted {
    backlog: Arc<Backlog>,
    worker: usize,
    bytes: usize,
}

impl Counted {
    pub fn new(backlog: &Arc<Backlog>, worker: usize, bytes: usize) -> Self {
        if let Some(all) = backlog.0.get(worker) {
            all.fetch_add(bytes, Ordering::Relaxed);
        }
        Self { backlog: backlog.clone(), worker, bytes }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(all) = self.backlog.0.get(self.worker) {
            all.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}
