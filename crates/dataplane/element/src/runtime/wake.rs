//! Wakes elements from other threads: those that wait for sockets and devices.

use super::router::Router;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

/// Schedules one element from any thread.
#[derive(Clone)]
pub struct Waker {
    is_set: Arc<AtomicBool>,
    any: Arc<AtomicBool>,
    thread: Thread,
}

impl Waker {
    pub fn wake(&self) {
        self.is_set.store(true, Ordering::Release);
        self.any.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Router {
    /// Returns a waker of an element. The router runs on the present thread.
    pub fn waker(&self, me: usize) -> Waker {
        let is_set = Arc::new(AtomicBool::new(false));
        self.wakes.borrow_mut().push((me, is_set.clone()));
        Waker { is_set, any: self.any_wake.clone(), thread: std::thread::current() }
    }

    /// Schedules the elements that were woken.
    pub(super) fn collect_wakes(&self) {
        if !self.any_wake.load(Ordering::Relaxed) || !self.any_wake.swap(false, Ordering::AcqRel) {
            return;
        }
        let is_woken = |(_, is_set): &&(usize, Arc<AtomicBool>)| is_set.swap(false, Ordering::AcqRel);
        let woken: Vec<usize> = self.wakes.borrow().iter().filter(is_woken).map(|(me, _)| *me).collect();
        woken.into_iter().for_each(|me| self.reschedule(me));
    }
}
