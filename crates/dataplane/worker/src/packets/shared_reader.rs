//! A source that several workers read: whichever has too little to do reads the next block for all.
//!
//! So reading is divided as all other work is, and no worker waits for a thread that only reads. The source
//! must not wait for packets, because a worker that waits processes nothing.

use crate::error::RunError;
use crate::packets::dispatch::Dispatcher;
use crate::packets::read::{ReadStats, Reading};
use crate::records::report::Observer;
use flame_source::Help;
use std::sync::{Mutex, TryLockError};

pub(crate) struct Front<'a> {
    state: Mutex<State<'a>>,
    help: Help,
}

struct State<'a> {
    reading: Reading<'a>,
    dispatcher: Dispatcher,
    observer: &'a mut dyn Observer,
    /// The result, once everything was read.
    result: Option<Result<ReadStats, RunError>>,
}

impl<'a> Front<'a> {
    pub(crate) fn new(
        (reading, help): (Reading<'a>, Help),
        dispatcher: Dispatcher,
        observer: &'a mut dyn Observer,
    ) -> Self {
        Self { state: Mutex::new(State { reading, dispatcher, observer, result: None }), help }
    }

    /// Reads a block for all workers, which `worker` decodes, or while another worker does that, bytes for
    /// the next ones. Returns false if one of the workers has more than enough to do, or if nothing is left.
    pub(crate) fn read(&self, worker: usize) -> Result<bool, RunError> {
        if self.help.is_reading() {
            return Ok(self.help.read());
        }
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::WouldBlock) => return Ok(self.help.read()),
            Err(TryLockError::Poisoned(_)) => return Err(RunError::Broken),
        };
        let State { reading, dispatcher, observer, result } = &mut *state;
        if result.is_some() || !dispatcher.has_room(self.help.large()) {
            return Ok(false);
        }
        dispatcher.decoder = Some(worker);
        let ended = match reading.step(dispatcher, *observer) {
            Ok(true) => return Ok(true),
            Ok(false) => reading.end(dispatcher),
            Err(e) => Err(e),
        };
        *result = Some(ended);
        // No worker waits for more, even if the end did not reach it, because another one is gone.
        dispatcher.close();
        Ok(true)
    }

    /// Returns the result, after all workers have ended.
    pub(crate) fn into_result(self) -> Result<ReadStats, RunError> {
        self.state.into_inner().ok().and_then(|state| state.result).unwrap_or(Err(RunError::Broken))
    }
}
