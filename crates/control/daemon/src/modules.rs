//! The node's modules while they are locked. Revocations wait for this lock, so nobody who has it may wait for
//! the disk: where assertions are compiled in, the storage checks that.

use crate::engine::{Entry, Key};
use crate::held;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard};

thread_local! {
    static IS_LOCKED: Cell<bool> = const { Cell::new(false) };
}

/// The modules, locked until this value is dropped.
pub(crate) struct Modules<'a>(MutexGuard<'a, BTreeMap<Key, Entry>>);

impl<'a> Modules<'a> {
    pub fn lock(all: &'a Mutex<BTreeMap<Key, Entry>>) -> Self {
        let guard = held(all);
        IS_LOCKED.set(true);
        Self(guard)
    }
}

impl Drop for Modules<'_> {
    fn drop(&mut self) {
        IS_LOCKED.set(false);
    }
}

impl Deref for Modules<'_> {
    type Target = BTreeMap<Key, Entry>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Modules<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// Checks that this thread has not locked the modules.
pub(crate) fn assert_unlocked() {
    if cfg!(any(test, debug_assertions)) {
        assert!(!IS_LOCKED.get(), "a thread waits for the disk while it has locked the modules");
    }
}
