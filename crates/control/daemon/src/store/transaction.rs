//! Transactions: each is written whole or not at all, and those that end something also on a full disk.

use super::{LOG_BYTES, Owner, Store, StoreError, VERSION, ends};
use flame_base::lock;
use rusqlite::Connection;
use std::time::{Duration, Instant};

/// The length of SQLite's log in pages at which it is moved to the database, which is SQLite's own.
const AUTOCHECKPOINT: u32 = 1000;

/// The longest wait for another program that has locked the database.
pub(super) const LOCKED: Duration = Duration::from_secs(2);
/// The same for ends of modules, which are written again until that succeeds, and for all changes once one
/// has waited in vain: others wait meanwhile.
const LOCKED_AGAIN: Duration = Duration::from_millis(250);
/// The time after which a change waits for the longest time again.
const FORGOTTEN: Duration = Duration::from_secs(10);

/// The time at which a transaction is on the disk.
#[derive(Clone, Copy)]
pub(super) enum Synced {
    AtOnce,
    /// Synced with the next one. Its space is taken nevertheless.
    Later,
}

impl Synced {
    /// Returns the value of SQLite's `synchronous`, with a write-ahead log.
    fn name(self) -> &'static str {
        match self {
            Self::AtOnce => "FULL",
            Self::Later => "NORMAL",
        }
    }
}

/// The space that a transaction may take.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    Free,
    /// Also that which is kept for the ends of modules. The transaction writes little: on a full disk it is
    /// repeated a few times, and others wait meanwhile.
    Kept,
}

impl Store {
    /// Runs one transaction, which is on the disk then.
    pub(crate) fn change<T>(
        &self,
        of: impl Fn(&rusqlite::Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.change_within(Synced::AtOnce, Space::Free, of)
    }

    pub(super) fn change_within<T>(
        &self,
        synced: Synced,
        space: Space,
        of: impl Fn(&rusqlite::Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let mut database = self.database();
        let was_locked = lock(&self.locked).is_some_and(|at| at.elapsed() < FORGOTTEN);
        if space == Space::Kept || was_locked {
            let _ = database.busy_timeout(LOCKED_AGAIN);
        }
        let done = self.attempt(&mut database, synced, &of);
        let _ = database.busy_timeout(LOCKED);
        let is_locked = done.as_ref().is_err_and(StoreError::is_locked);
        *lock(&self.locked) = is_locked.then(Instant::now);
        if space == Space::Free || !done.as_ref().is_err_and(StoreError::is_full) {
            return done;
        }
        // What the log has is moved to the database, where there is room for it: then the space that the log
        // has is written again.
        let move_log = |database: &Connection| {
            let _ = database.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        };
        move_log(&database);
        let done = self.attempt(&mut database, synced, &of);
        // A longer log would take all that is given up, also after a change that has succeeded, and still not
        // be moved.
        let is_short = self.log_bytes() <= u64::from(LOG_BYTES);
        if !is_short {
            let _ = database.pragma_update(None, "wal_autocheckpoint", 0);
        }
        let done = self.room.while_full(done, || {
            if is_short {
                move_log(&database);
            }
            self.attempt(&mut database, synced, &of)
        });
        self.room.refill();
        let _ = database.pragma_update(None, "wal_autocheckpoint", AUTOCHECKPOINT);
        done
    }

    /// Returns the size of SQLite's log in bytes.
    fn log_bytes(&self) -> u64 {
        let mut path = self.path.clone().into_os_string();
        path.push("-wal");
        std::fs::metadata(path).map_or(0, |file| file.len())
    }

    fn attempt<T>(
        &self,
        database: &mut Connection,
        synced: Synced,
        of: impl Fn(&rusqlite::Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let mut is_begun = false;
        let done = (|| {
            database.pragma_update(None, "synchronous", synced.name())?;
            let change = database.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
            is_begun = true;
            let result = of(&change)?;
            change.commit()?;
            Ok(result)
        })();
        // A transaction that did not begin, for want of the lock, say, has left nothing.
        if done.is_err() && is_begun {
            // A commit that could not be synced is in the log, where the next start would find it. The frames
            // of a change of nothing take its place there.
            let _ = database.pragma_update(None, "synchronous", "OFF");
            let _ = database.pragma_update(None, "user_version", VERSION);
        }
        done.map_err(|error| self.error(error))
    }

    /// Runs one transaction, if the present revision of the module is `before`, or none is stored.
    pub(super) fn conditional(
        &self,
        (synced, space): (Synced, Space),
        (owner, name): (&Owner, &str),
        before: Option<u64>,
        of: impl Fn(&rusqlite::Transaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), StoreError> {
        let done = self.change_within(synced, space, |change| {
            match ends::revision(change, (owner, name))? == before {
                true => of(change).map(|()| true),
                false => Ok(false),
            }
        })?;
        if done { Ok(()) } else { Err(StoreError::Raced { name: name.to_owned() }) }
    }
}
