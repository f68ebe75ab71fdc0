use crate::error::RunError;
use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use flame_execute::SLICE;
use flame_run::Engines;
use std::thread::JoinHandle;

/// A thread that ends the slices of metered modules, as long as this value lives.
pub struct Slices {
    done: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Slices {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// Returns an error if the system has no thread left.
    pub fn start(engines: &Engines) -> Result<Self, RunError> {
        let engines = engines.clone();
        let (done, over) = bounded::<()>(0);
        let run = move || {
            while over.recv_timeout(SLICE) == Err(RecvTimeoutError::Timeout) {
                engines.end_slice();
            }
        };
        let thread = std::thread::Builder::new().name("flame-slices".to_owned()).spawn(run);
        let thread = thread.map_err(|e| RunError::Thread(e.to_string()))?;
        Ok(Self { done: Some(done), thread: Some(thread) })
    }
}

impl Drop for Slices {
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
