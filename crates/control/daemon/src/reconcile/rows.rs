//! Writes the ends of modules, a moment after them, and again until that succeeds.

use crate::engine::{By, Engine};
use crate::life::{Key, label};
use flame_api::Problem;

/// The subject of faults of ends that cannot be written. Other writes that succeed do not clear it.
const ENDS: &str = "storage, ends of modules";

impl Engine {
    /// Writes the rows that are behind, unless a change of the module is in progress. Returns false if a row
    /// could not be written, which is a fault of the node until all are. The others do not wait for it.
    pub(crate) fn write_rows(&self) -> bool {
        let behind: Vec<Key> = {
            let modules = self.modules();
            modules.iter().filter(|(_, entry)| entry.is_behind()).map(|(key, _)| key.clone()).collect()
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
        let reason = unwritten.into_iter().next().map(|(key, problem)| {
            let (label, problem) = (label(key), problem.for_operator());
            format!("{count} not stored yet, so a restart finds the modules as before: {label}: {problem}")
        });
        // A module that is being changed may still be behind.
        if !is_left || !is_written {
            self.fault(ENDS, reason);
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
        let (stored, written) = match self.modules().get(key) {
            Some(entry) if entry.is_behind() => (entry.stored.clone(), entry.written),
            _ => return Ok(()),
        };
        // Without the lock, because the disk may take its time.
        self.stored(self.store.end(&stored, written, audited))?;
        if let Some(entry) = self.modules().get_mut(key) {
            entry.keep(stored);
        }
        Ok(())
    }
}
