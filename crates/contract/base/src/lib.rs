//! Functions that crates of all sides need, and that the standard library lacks.
//!
//! A thread that panics while it holds a lock poisons it. Here that is no reason for other threads to fail:
//! a panic ends one module or one request, and values behind locks are valid between any two statements.
#![forbid(unsafe_code)]

mod backoff;

pub use backoff::Backoff;

use std::sync::{LockResult, Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even if a thread panicked while it held it.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(mutex.lock())
}

/// Returns the value of a lock, or of a wait for a condition, even if a thread panicked with that lock.
pub fn unpoisoned<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_leaves_a_lock_usable() {
        let mut mutex = Mutex::new(1);
        let panicked = std::thread::scope(|scope| {
            let held = scope.spawn(|| {
                let _guard = mutex.lock();
                panic!("as planned");
            });
            held.join().is_err()
        });
        assert!(panicked && mutex.is_poisoned());
        *lock(&mutex) += 1;
        assert_eq!(*unpoisoned(mutex.get_mut()), 2);
    }
}
