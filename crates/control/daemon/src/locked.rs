//! The node's modules while they are locked. Revocations wait for this lock, so a thread that has it must
//! not wait for the disk: where assertions are compiled in, the storage checks that.

use flame_base::lock;
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard};

thread_local! {
    static IS_LOCKED: Cell<bool> = const { Cell::new(false) };
}

/// A value for which revocations wait, locked until this is dropped.
pub(crate) struct Locked<'a, T>(MutexGuard<'a, T>);

impl<'a, T> Locked<'a, T> {
    pub fn new(value: &'a Mutex<T>) -> Self {
        let guard = lock(value);
        IS_LOCKED.set(true);
        Self(guard)
    }
}

impl<T> Drop for Locked<'_, T> {
    fn drop(&mut self) {
        IS_LOCKED.set(false);
    }
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// Checks that this thread has locked no such value.
pub(crate) fn assert_unlocked() {
    if cfg!(any(test, debug_assertions)) {
        assert!(!IS_LOCKED.get(), "a thread waits for the disk while it has locked the modules");
    }
}
