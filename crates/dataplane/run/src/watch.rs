#![allow(unsafe_code)] // Changes the protection of polling pages; reads the clocks of threads.

//! A thread that ends calls of bounded modules that run past their deadline: nothing interrupts them, and a
//! proved bound may be wrong, or permit more time than a worker can stand still.
//!
//! Their code loads from a polling page in every loop (`flame_meter::rewrite_polled`). Each instance has such
//! a page of its own. A call marks its begin and its end by storing its number;
//! nothing else is done for it. The watchdog looks at the numbers every few milliseconds. A call that it
//! finds again, and whose thread has meanwhile used more processor time than the deadline, loses its page,
//! and traps at its next poll. Processor time, so that a call that does not run, because the machine is busy
//! or was suspended, is not taken for one that does not end. And of that, only what the thread has spent in
//! user mode: where a hypervisor has taken back unused memory, the first access to each page
//! costs the kernel 30 µs and more, and so a batch that fills tables would take longer than its deadline.
//! The kernel may count this part in whole ticks: too many of them for a thread that runs seldom, or none for
//! one that always runs between two ticks. So a call must have passed its deadline by both clocks, or have
//! used ten times as much by the exact one.
//!
//! # Calls that end at the same time
//!
//! The page must be accessible when the next call begins. The watchdog stores the number of the call that it
//! revokes, then makes all threads pass a memory barrier (membarrier(2)), then reads the call's number again.
//! The worker stores the number of a call, then reads the revocation. In any order, either the watchdog sees
//! that the call has ended and does nothing, or the next call sees the revocation and restores the page
//! before it runs. The worker needs no barrier instruction for that.

use crate::eviction::Eviction;
use flame_base::{lock, unpoisoned};
use flame_plan::limits::CALL_DEADLINE_MAX;
use flame_plan::{CutOff, Reason};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering, compiler_fence, fence};
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::time::Duration;

/// The number of checks within the shortest deadline.
const CHECKS: u64 = 5;
const MIN_PERIOD: Duration = Duration::from_micros(50);
const MAX_PERIOD: Duration = Duration::from_millis(20);
/// One part in this many of the processor time counts as time in user mode, whatever that clock shows.
const AT_LEAST_USER: u64 = 10;
/// The number of periods between two checks while no call is found running. A call that does not end is found
/// that much later.
const IDLE: u32 = 5;
const _: () = assert!(
    CALL_DEADLINE_MAX.as_millis() + MAX_PERIOD.as_millis() * (IDLE as u128) < 1000,
    "a worker waits for less than a second for a call whose bound is wrong"
);

/// A thread that watches the calls of all instances of one [`crate::Engines`]. It runs from the first
/// instance that needs it until the engines and all their instances are gone. All clones are the same
/// watchdog.
#[derive(Clone)]
pub struct Watchdog(Arc<Owner>);

/// Receives the hash of a module that was cut off, and the reason.
type Report = Box<dyn Fn(&[u8; 32], CutOff) + Send + Sync>;

/// The owner of the thread, which ends it when dropped.
struct Owner {
    shared: Arc<Shared>,
    barrier: Barrier,
    /// The modules that were cut off, by hash.
    cut_off: Mutex<BTreeMap<[u8; 32], CutOff>>,
    /// The evictions of running modules, by hash.
    modules: Mutex<Vec<([u8; 32], Eviction)>>,
    report: OnceLock<Report>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    watches: Vec<(Weak<Watch>, Seen)>,
    period: Option<Duration>,
    running: bool,
    over: bool,
}

/// The state of an instance at the last check of the watchdog.
#[derive(Clone, Copy, Default)]
struct Seen {
    call: u64,
    /// The clocks of its thread at the first check during this call.
    since: Times,
}

/// The processor time of a thread in nanoseconds, and the part of it that was spent in user mode.
#[derive(Clone, Copy, Default)]
struct Times {
    all: u64,
    user: u64,
}

impl Watchdog {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Owner {
            shared: Arc::default(),
            // Not when the first instance is made: the kernel registers a process of several threads only
            // after a grace period of 10 ms and more, and one of a single thread at once, as a runner still
            // is here.
            barrier: Barrier::register(),
            cut_off: Mutex::default(),
            modules: Mutex::default(),
            report: OnceLock::new(),
        }))
    }

    /// Registers `report`, which is called for each module that is cut off, with its hash: on the thread that
    /// runs the module, or that which reads the reports of its process. Only the first registration counts.
    pub fn on_cut_off(&self, report: impl Fn(&[u8; 32], CutOff) + Send + Sync + 'static) {
        let _ = self.0.report.set(Box::new(report));
    }

    /// Returns the reason why this module was cut off, if it was.
    pub fn why_cut_off(&self, hash: &[u8; 32]) -> Option<CutOff> {
        lock(&self.0.cut_off).get(hash).copied()
    }

    /// Registers a module without counters, whose instances are evicted on all workers when one of them is
    /// cut off, or at once if one was.
    pub(crate) fn enter(&self, hash: [u8; 32], eviction: Eviction) {
        let mut modules = lock(&self.0.modules);
        if let Some(cause) = self.why_cut_off(&hash) {
            eviction.evict(Reason::CutOff(cause));
        }
        // Removes those of modules that are gone.
        modules.retain(|(_, eviction)| eviction.is_shared());
        modules.push((hash, eviction));
    }

    /// Passes on that a process reports to have cut off a module. It may lie, so modules that run here are
    /// left alone.
    pub fn reported(&self, hash: &[u8; 32], cause: CutOff) {
        if let Some(report) = self.0.report.get() {
            report(hash, cause);
        }
    }

    pub(crate) fn cut_off(&self, hash: [u8; 32], cause: CutOff) {
        if lock(&self.0.cut_off).insert(hash, cause).is_some() {
            return;
        }
        for (_, eviction) in lock(&self.0.modules).iter().filter(|(of, _)| *of == hash) {
            eviction.evict(Reason::CutOff(cause));
        }
        self.reported(&hash, cause);
    }

    /// Watches the calls of an instance, which end at `deadline_ns`. `page` is its polling
    /// page, which must stay mapped until the watch is retired.
    pub(crate) fn watch(&self, page: *mut u8, deadline_ns: u64) -> io::Result<Arc<Watch>> {
        let watch = Arc::new(Watch {
            call: AtomicU64::new(0),
            revoked: AtomicU64::new(0),
            deadline_ns: AtomicU64::new(deadline_ns),
            clock: AtomicI32::new(libc::CLOCK_MONOTONIC),
            page: Mutex::new(Some(Page(page))),
            barrier: self.0.barrier,
        });
        let mut state = lock(&self.0.shared.state);
        let period = Duration::from_nanos(deadline_ns / CHECKS).clamp(MIN_PERIOD, MAX_PERIOD);
        state.period = Some(state.period.map_or(period, |p| p.min(period)));
        state.watches.push((Arc::downgrade(&watch), Seen::default()));
        self.run(&mut state)?;
        self.0.shared.wake.notify_one();
        Ok(watch)
    }

    /// Starts the watchdog's thread now. Otherwise the first instance that needs it does.
    ///
    /// # Errors
    ///
    /// Returns an error if no thread can be started.
    pub fn start(&self) -> io::Result<()> {
        self.run(&mut lock(&self.0.shared.state))
    }

    fn run(&self, state: &mut State) -> io::Result<()> {
        if !state.running {
            let shared = self.0.shared.clone();
            std::thread::Builder::new().name("flame-watchdog".to_owned()).spawn(move || shared.look())?;
            state.running = true;
        }
        Ok(())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        lock(&self.shared.state).over = true;
        self.shared.wake.notify_one();
    }
}

impl Shared {
    /// Runs the watchdog's thread.
    fn look(&self) {
        let mut state = lock(&self.state);
        while !state.over {
            let mut is_idle = true;
            state.watches.retain_mut(|(watch, seen)| {
                let Some(watch) = watch.upgrade() else { return false };
                is_idle &= !watch.look(seen);
                true
            });
            let period = state.period.unwrap_or(MAX_PERIOD) * if is_idle { IDLE } else { 1 };
            state = match state.watches.is_empty() {
                // The next instance wakes the thread.
                true => unpoisoned(self.wake.wait(state)),
                false => unpoisoned(self.wake.wait_timeout(state, period)).0,
            };
        }
    }
}

/// The consecutive calls of one instance.
pub(crate) struct Watch {
    /// The number of the call. It is odd while the call runs.
    call: AtomicU64,
    /// The call whose page was revoked and not yet restored, or 0.
    revoked: AtomicU64,
    /// The processor time of the call in nanoseconds.
    deadline_ns: AtomicU64,
    /// The clock of the processor time of the calling thread.
    clock: AtomicI32,
    page: Mutex<Option<Page>>,
    barrier: Barrier,
}

/// A mapped polling page.
struct Page(*mut u8);

// SAFETY: the address is only given to mprotect, under a lock that is taken before the page is unmapped.
unsafe impl Send for Page {}

impl Watch {
    /// Records that a call with this deadline begins on this thread.
    #[inline]
    pub(crate) fn begin(&self, deadline_ns: u64) {
        self.deadline_ns.store(deadline_ns, Ordering::Relaxed);
        let call = self.call.load(Ordering::Relaxed) + 1;
        self.clock.store(own_clock(), Ordering::Relaxed);
        self.call.store(call, Ordering::Release);
        self.barrier.light();
        if self.revoked.load(Ordering::Relaxed) != 0 {
            self.restore();
        }
    }

    /// Records that the call has ended.
    #[inline]
    pub(crate) fn end(&self) {
        self.call.store(self.call.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Returns whether the call that ended last had passed its deadline and lost its page.
    pub(crate) fn was_revoked(&self) -> bool {
        // The watchdog holds the lock while it revokes.
        let _page = lock(&self.page);
        self.revoked.load(Ordering::Relaxed) + 1 == self.call.load(Ordering::Relaxed)
    }

    /// Forgets the page, which is about to be unmapped.
    pub(crate) fn retire(&self) {
        *lock(&self.page) = None;
    }

    #[cold]
    fn restore(&self) {
        if let Some(page) = &*lock(&self.page) {
            // If this fails, the call that begins traps, which ends its instance.
            if page.protect(libc::PROT_READ) {
                self.revoked.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Checks one instance for the watchdog. Returns whether a call runs.
    fn look(&self, seen: &mut Seen) -> bool {
        let call = self.call.load(Ordering::Acquire);
        if call.is_multiple_of(2) {
            return false;
        }
        // If the clock is gone, so is the thread, and its call cannot continue.
        let Some(now) = Times::read(self.clock.load(Ordering::Relaxed)) else { return false };
        if seen.call != call {
            *seen = Seen { call, since: now };
        } else if now.since(seen.since) >= self.deadline_ns.load(Ordering::Relaxed) {
            self.revoke(call);
        }
        true
    }

    fn revoke(&self, call: u64) {
        let page = lock(&self.page);
        let Some(page) = &*page else { return };
        if self.revoked.load(Ordering::Relaxed) == call {
            return;
        }
        self.revoked.store(call, Ordering::Relaxed);
        self.barrier.heavy();
        // A change that the kernel refuses is tried again at the next check.
        if self.call.load(Ordering::Relaxed) != call || !page.protect(libc::PROT_NONE) {
            self.revoked.store(0, Ordering::Relaxed);
        }
    }
}

impl Page {
    fn protect(&self, protection: libc::c_int) -> bool {
        // SAFETY: a page of a reservation that is mapped until `Watch::retire` has taken the page away;
        // modules observe its protection only by the intended trap.
        unsafe { libc::mprotect(self.0.cast(), flame_abi::layout::POLL_BYTES as usize, protection) == 0 }
    }
}

/// A barrier between a thread that passes it often and one that passes it rarely.
#[derive(Clone, Copy)]
enum Barrier {
    /// The rare side makes the kernel issue a barrier on all threads.
    Kernel,
    /// Both sides issue a barrier.
    Both,
}

impl Barrier {
    /// Registers the process for barriers of the kernel, where it has them.
    fn register() -> Self {
        match membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) {
            true => Self::Kernel,
            false => Self::Both,
        }
    }

    #[inline]
    fn light(self) {
        match self {
            Self::Kernel => compiler_fence(Ordering::SeqCst),
            Self::Both => fence(Ordering::SeqCst),
        }
    }

    fn heavy(self) {
        fence(Ordering::SeqCst);
        if matches!(self, Self::Kernel) {
            // This cannot fail once the process is registered, unless a filter of system calls forbids it
            // later. That of the runner permits it.
            let is_done = membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
            debug_assert!(is_done);
        }
    }
}

/// Registers the process for the barriers of the watchdog, which [`crate::Engines::new`] does otherwise. As
/// long as the process has one thread, the kernel does that at once. Later, it first waits until all its
/// processors have passed a quiescent state, which takes about 20 ms.
pub fn register_barrier() {
    Barrier::register();
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: a call without pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Returns the clock of this thread's processor time, which other threads can read, or the clock of the
/// machine without such a clock.
#[inline]
fn own_clock() -> libc::clockid_t {
    thread_local!(static CLOCK: Cell<libc::clockid_t> = const { Cell::new(libc::CLOCK_MONOTONIC) });
    CLOCK.with(|clock| {
        if clock.get() == libc::CLOCK_MONOTONIC {
            let mut own = libc::CLOCK_MONOTONIC;
            // SAFETY: writes to a local; the thread is this one.
            if unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut own) } == 0
                && read_clock(own).is_some()
            {
                clock.set(own);
            }
        }
        clock.get()
    })
}

/// The processor time of a thread since a call began, which other threads can read.
pub(crate) struct CallClock {
    clock: libc::clockid_t,
    began: u64,
}

impl CallClock {
    /// Begins with this moment of this thread.
    pub(crate) fn begin() -> Self {
        let clock = own_clock();
        Self { clock, began: read_clock(clock).unwrap_or(0) }
    }

    /// Returns the processor time since then.
    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_nanos(read_clock(self.clock).unwrap_or(self.began).saturating_sub(self.began))
    }
}

impl Times {
    fn read(clock: libc::clockid_t) -> Option<Self> {
        let all = read_clock(clock)?;
        // A thread's clocks differ in their two lowest bits (linux/posix-timers.h, CPUCLOCK_VIRT).
        let user = (clock < 0).then(|| read_clock(clock & !0b11 | 0b01)).flatten();
        Some(Self { all, user: user.unwrap_or(all) })
    }

    /// Returns the time that counts since `earlier`: what the thread has certainly spent in user mode, and at
    /// least a part of all.
    fn since(self, earlier: Self) -> u64 {
        let all = self.all.saturating_sub(earlier.all);
        all.min(self.user.saturating_sub(earlier.user)).max(all / AT_LEAST_USER)
    }
}

fn read_clock(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to a local; a clock that does not exist is an error.
    let read = unsafe { libc::clock_gettime(clock, &mut time) };
    (read == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = flame_abi::layout::POLL_BYTES as usize;

    /// Creates a page. `readable` tests access through the kernel, without a fault.
    fn page() -> *mut u8 {
        // SAFETY: a new mapping; the result is checked.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(page, libc::MAP_FAILED);
        page.cast()
    }

    fn readable(page: *mut u8) -> bool {
        let mut byte = 0_u8;
        let to = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let from = libc::iovec { iov_base: page.cast(), iov_len: 1 };
        // SAFETY: writes one byte to a local; an address that cannot be read is an error.
        unsafe { libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0) == 1 }
    }

    fn watch(page: *mut u8) -> Watch {
        Watch {
            call: AtomicU64::new(0),
            revoked: AtomicU64::new(0),
            deadline_ns: AtomicU64::new(u64::MAX),
            clock: AtomicI32::new(libc::CLOCK_MONOTONIC),
            page: Mutex::new(Some(Page(page))),
            barrier: Barrier::register(),
        }
    }

    #[test]
    fn a_revoked_call_has_no_page_and_the_next_one_has() {
        let page = page();
        let watch = watch(page);
        watch.begin(u64::MAX);
        assert!(readable(page));
        watch.revoke(1);
        assert!(!readable(page));
        watch.end();
        assert!(watch.was_revoked());
        watch.begin(u64::MAX);
        assert!(readable(page));
        watch.end();
        assert!(!watch.was_revoked());
        // Neither a call that has ended nor one without a page is revoked.
        watch.revoke(3);
        assert!(readable(page) && !watch.was_revoked());
        watch.begin(u64::MAX);
        watch.retire();
        watch.revoke(5);
        assert!(readable(page));
    }

    /// The watchdog revokes every other call as soon as it sees it. The calls between them always have access
    /// to the page.
    #[test]
    fn no_call_loses_the_page_of_another() {
        let page = page();
        let watch = watch(page);
        let over = std::sync::atomic::AtomicBool::new(false);
        let (mut restored, mut innocent) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let call = watch.call.load(Ordering::Acquire);
                    if call % 4 == 1 {
                        watch.revoke(call);
                    }
                }
            });
            // On one processor the other thread seldom has its turn.
            let mut i = 0_u32;
            while i < 400_000 || restored <= 100 && i < 100_000_000 {
                i += 1;
                watch.begin(u64::MAX);
                (0..i % 64).for_each(|_| std::hint::spin_loop());
                watch.end();
                restored += u32::from(watch.revoked.load(Ordering::Relaxed) != 0);
                watch.begin(u64::MAX);
                innocent += u32::from(!readable(page));
                watch.end();
            }
            over.store(true, Ordering::Relaxed);
        });
        println!("{restored} calls were revoked");
        assert_eq!(innocent, 0);
        assert!(restored > 100, "{restored}");
    }

    #[test]
    fn a_call_that_begins_while_the_watchdog_is_idle_loses_its_page() {
        let page = page();
        let watchdog = Watchdog::new();
        let watch = watchdog.watch(page, 1_000_000).unwrap();
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(20));
            watch.begin(1_000_000);
            let begun = std::time::Instant::now();
            while readable(page) {
                assert!(begun.elapsed() < Duration::from_secs(60), "the call goes on");
            }
            watch.end();
            assert!(watch.was_revoked());
        }
    }

    /// The kernel's work for a call is not the module's, however much it is.
    #[test]
    fn only_time_in_user_mode_counts() {
        const DEADLINE_NS: u64 = 100_000_000;
        let watchdog = Watchdog::new();
        let page = page();
        let watch = watchdog.watch(page, DEADLINE_NS).unwrap();
        let mut zeros = std::fs::File::open("/dev/zero").unwrap();
        let mut bytes = vec![0; 1 << 20];
        watch.begin(DEADLINE_NS);
        let since = Times::read(own_clock()).unwrap();
        let spent = || Times::read(own_clock()).unwrap().since(since);
        while read_clock(own_clock()).unwrap() - since.all < 4 * DEADLINE_NS {
            std::io::Read::read_exact(&mut zeros, &mut bytes).unwrap();
        }
        assert!(spent() < DEADLINE_NS * 3 / 4, "{} in user mode", spent());
        assert!(readable(page));
        while readable(page) {
            (0..10_000_000).for_each(|_| std::hint::spin_loop());
            assert!(spent() < 50 * DEADLINE_NS, "the call goes on");
        }
        watch.end();
        assert!(watch.was_revoked());
    }

    #[test]
    fn a_call_ends_without_the_clock_of_user_mode() {
        let at = |all, user| Times { all, user };
        let counts = |now: Times| now.since(at(1_000, 500));
        assert_eq!([at(1_000, 500), at(1_400, 700), at(1_200, 900)].map(counts), [0, 200, 200]);
        assert_eq!([at(3_000, 500), at(3_000, 600), at(3_000, 800)].map(counts), [200, 200, 300]);
    }

    #[test]
    fn processor_time_is_that_of_the_thread() {
        let clock = std::thread::spawn(|| (own_clock(), read_clock(own_clock()))).join().unwrap();
        assert_ne!(clock.0, own_clock());
        let before = read_clock(own_clock()).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(read_clock(own_clock()).unwrap() - before < 20_000_000);
    }
}
