//! The ends of modules that are not written yet: written a moment later, and again until that succeeds.
//!
//! The end of a module does not depend on the storage. Until its row is written, a restart finds the module
//! as it was before; if its owner did not stop it, it is denied again then, or fails again.

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

/// The subject of faults of ends that cannot be written. Other writes that succeed do not clear it.
const ENDS: &str = "storage, ends of modules";

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
    /// be written, which is a fault of the node until all are. The others do not wait for it.
    pub(crate) fn write_rows(&self) -> bool {
        if !self.is_behind.swap(false, Ordering::SeqCst) {
            return true;
        }
        let behind: Vec<Key> = {
            let modules = self.modules();
            modules.iter().filter(|(_, entry)| is_behind(entry)).map(|(key, _)| key.clone()).collect()
        };
        let (mut is_left, mut unwritten) = (false, Vec::new());
        for key in &behind {
            match self.begin_by(By::Node, key) {
                Ok(_changing) => {
                    unwritten.extend(self.write_row(key, None).err().map(|problem| (key, problem)))
                }
                Err(_) => is_left = true,
            }
        }
        let (is_written, count) = (unwritten.is_empty(), unwritten.len());
        let reason = unwritten.into_iter().next().map(|((owner, name), problem)| {
            let whose = owner.shown().map_or(String::new(), |principal| format!(" of {principal}"));
            let problem = problem.for_operator();
            format!(
                "{count} not stored yet, so a restart finds the modules as before: {name}{whose}: {problem}"
            )
        });
        // One that is being changed may still be behind.
        if !is_left || !is_written {
            self.fault(ENDS, reason);
        }
        if is_left || !is_written {
            self.is_behind.store(true, Ordering::SeqCst);
        }
        is_written
    }

    /// Writes the row of a module, if it is behind, and the number of entries of the audit log, if that is
    /// given. The caller has begun the change.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be written.
    pub(crate) fn write_row(&self, key: &Key, audited: Option<u64>) -> Result<(), Problem> {
        let (stored, row) = match self.modules().get(key) {
            Some(entry) if is_behind(entry) => (entry.stored.clone(), entry.row),
            _ => return Ok(()),
        };
        // Without the lock: the disk may take its time.
        self.stored(self.store.end(&stored, row, audited))?;
        if let Some(entry) = self.modules().get_mut(key) {
            entry.keep(stored);
        }
        Ok(())
    }
}
