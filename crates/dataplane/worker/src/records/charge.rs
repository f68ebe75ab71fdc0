//! Charges the processor time of a run's threads to those for whom they work.
//!
//! Each thread has one owner of its time at any moment: that of the thread ([`begin`]), or the module whose
//! calls are made ([`enter`]). A change of the owner reads the thread's clock once, so nothing is counted
//! twice and nothing is left out. Threads without an owner measure nothing.
//!
//! The time of a call that has not ended is charged when [`Charging::settle`] is called, from any thread.

use crate::lock;
use flame_quota::Usage;
use nix::time::{ClockId, clock_gettime};
use rustix::thread::{Pid, gettid};
use std::cell::RefCell;
use std::sync::{Arc, Mutex, Weak};

/// The threads of a run, or of several after each other, whose time is measured.
#[derive(Debug, Default)]
pub struct Charging {
    /// The owner of their time when they do not work for a module.
    pub system: Arc<Usage>,
    threads: Mutex<Vec<Weak<Mutex<Meter>>>>,
}

/// The meter of one thread.
#[derive(Debug)]
struct Meter {
    owner: Arc<Usage>,
    clock: ClockId,
    /// The thread's clock at the last charge, in nanoseconds.
    since: u64,
}

thread_local! {
    static METER: RefCell<Option<Arc<Mutex<Meter>>>> = const { RefCell::new(None) };
}

/// Returns the clock of a thread's processor time, which every thread of the process can read: its number is
/// the complement of the thread's, with the bits for one thread (4) and for scheduled time (2).
fn clock_of(thread: Pid) -> ClockId {
    ClockId::from_raw((!thread.as_raw_nonzero().get() << 3) | 6)
}

/// Returns the time of a clock in nanoseconds, or 0 if its thread has ended.
fn now_ns(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |now| now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

impl Meter {
    fn charge(&mut self) {
        let now = now_ns(self.clock).max(self.since);
        self.owner.add_cpu(now - self.since);
        self.since = now;
    }
}

impl Charging {
    /// Charges the time so far of all threads, within calls as well.
    pub fn settle(&self) {
        let mut threads = lock(&self.threads);
        threads.retain(|thread| {
            thread.upgrade().is_some_and(|meter| {
                lock(&meter).charge();
                true
            })
        });
    }
}

/// The time in which a thread has an owner, until this value is dropped.
pub(crate) struct Charged {
    /// The owner before, or `None` if the thread had none.
    before: Option<Arc<Usage>>,
    is_active: bool,
}

/// Measures this thread's time, if it is to be measured.
pub(crate) fn begin(charging: Option<&Charging>) -> Charged {
    if let Some(charging) = charging {
        let clock = clock_of(gettid());
        let meter = Meter { owner: charging.system.clone(), clock, since: now_ns(clock) };
        let meter = Arc::new(Mutex::new(meter));
        lock(&charging.threads).push(Arc::downgrade(&meter));
        METER.set(Some(meter));
    }
    Charged { before: None, is_active: charging.is_some() }
}

/// Gives this thread's time to `owner`, if there is one and the thread's time is measured. Does nothing if
/// `owner` has it already.
pub(crate) fn enter(owner: Option<&Arc<Usage>>) -> Charged {
    let before = owner.and_then(|owner| {
        METER.with_borrow(|meter| {
            let mut meter = lock(meter.as_ref()?);
            if Arc::ptr_eq(&meter.owner, owner) {
                return None;
            }
            meter.charge();
            Some(std::mem::replace(&mut meter.owner, owner.clone()))
        })
    });
    Charged { is_active: before.is_some(), before }
}

impl Drop for Charged {
    fn drop(&mut self) {
        if !self.is_active {
            return;
        }
        METER.with_borrow_mut(|meter| {
            let Some(running) = meter else { return };
            let mut running = lock(running);
            running.charge();
            if let Some(before) = self.before.take() {
                running.owner = before;
                return;
            }
            drop(running);
            *meter = None;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn own_ns() -> u64 {
        now_ns(ClockId::CLOCK_THREAD_CPUTIME_ID)
    }

    fn work() {
        let start = own_ns();
        while own_ns() < start + 2_000_000 {}
    }

    fn cpu(usage: &Usage) -> u64 {
        usage.used().cpu_ns
    }

    #[test]
    fn time_has_one_owner_and_all_of_it_is_charged() {
        let charging = Charging::default();
        let [a, b] = [0; 2].map(|_| Arc::<Usage>::default());
        {
            let _idle = enter(Some(&a));
            work();
        }
        assert_eq!(cpu(&a), 0, "a thread that is not measured");
        let start = own_ns();
        {
            let _system = begin(Some(&charging));
            work();
            charging.settle();
            assert!(cpu(&charging.system) >= 2_000_000);
            {
                let _a = enter(Some(&a));
                work();
                {
                    let _b = enter(Some(&b));
                    work();
                    work();
                }
                let _none = enter(None);
                let again = enter(Some(&a));
                assert!(!again.is_active, "the clock is read although the owner stays");
                drop(again);
                work();
            }
            work();
        }
        let all = own_ns() - start;
        let (system, a, b) = (cpu(&charging.system), cpu(&a), cpu(&b));
        assert!(a >= 4_000_000 && b >= 4_000_000 && system >= 4_000_000, "{system} {a} {b}");
        let sum = system + a + b;
        assert!(sum <= all && sum as f64 > 0.98 * all as f64, "{sum} of {all}");
        charging.settle();
        assert!(lock(&charging.threads).is_empty(), "threads that have ended are forgotten");
    }

    #[test]
    fn a_call_that_has_not_ended_is_charged_from_another_thread() {
        let (charging, module, over) = (Charging::default(), Arc::<Usage>::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _system = begin(Some(&charging));
                let _module = enter(Some(&module));
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            while cpu(&module) < 5_000_000 {
                charging.settle();
                std::thread::yield_now();
            }
            let before = cpu(&module);
            while cpu(&module) < before + 1_000_000 {
                charging.settle();
                std::thread::yield_now();
            }
            over.store(true, Ordering::Relaxed);
        });
        assert!(cpu(&charging.system) < cpu(&module));
    }
}
