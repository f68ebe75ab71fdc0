//! The rows of modules whose end is not written yet: written a moment later, and again until that succeeds.
//!
//! The end of a module that its owner did not stop does not depend on the storage. Until its row is written,
//! a restart finds the module as it was before; it is denied again then, or fails again.

use crate::engine::{By, Engine, Entry, Key};
use flame_api::Problem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

/// The interval at which rows are written.
const WRITE: Duration = Duration::from_millis(50);
/// The time until the next attempt after one that failed.
const AGAIN: Duration = Duration::from_secs(1);
/// The interval at which space that was given up is kept again.
const ROOM: Duration = Duration::from_secs(10);

fn is_behind(entry: &Entry) -> bool {
    entry.row != entry.stored.revision
}

impl Engine {
    /// Starts the thread that writes rows until the node stops. No other one waits for them.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread cannot be started.
    pub fn keep_rows(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        self.every("rows", WRITE, |engine| {
            if !engine.write_rows() {
                std::thread::park_timeout(AGAIN);
            }
        })
    }

    /// Starts the thread that keeps space for the ends of modules again, until the node stops.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread cannot be started.
    pub fn keep_room(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        self.every("room", ROOM, |engine| engine.store.keep_room())
    }

    /// Writes the rows that are behind, but for those of changes in progress. Returns false if one could not
    /// be written. On a full disk that may be a large one, while there is room for the others.
    pub(crate) fn write_rows(&self) -> bool {
        if !self.is_behind.swap(false, Ordering::SeqCst) {
            return true;
        }
        let behind: Vec<Key> = {
            let modules = self.modules();
            modules.iter().filter(|(_, entry)| is_behind(entry)).map(|(key, _)| key.clone()).collect()
        };
        let (mut is_left, mut is_written) = (false, true);
        for key in &behind {
            match self.begin_by(By::Node, key) {
                Ok(_changing) => is_written &= self.write_row(key).is_ok(),
                Err(_) => is_left = true,
            }
        }
        if is_left || !is_written {
            self.is_behind.store(true, Ordering::SeqCst);
        }
        is_written
    }

    /// Writes the row of a module, if it is behind. The caller has begun the change.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be written.
    pub(crate) fn write_row(&self, key: &Key) -> Result<(), Problem> {
        let (stored, row) = match self.modules().get(key) {
            Some(entry) if is_behind(entry) => (entry.stored.clone(), entry.row),
            _ => return Ok(()),
        };
        // Without the lock: the disk may take its time.
        self.stored(self.store.put(&stored, Some(row), None))?;
        if let Some(entry) = self.modules().get_mut(key) {
            entry.keep(stored);
        }
        Ok(())
    }
}
