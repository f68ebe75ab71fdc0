use flame_plan::limits::SLICE;
use flame_run::Engines;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

/// The number of slices without work after which the thread that ends them sleeps.
const IDLE: u32 = 20;

/// The slices of metered calls, which a thread ends. It sleeps while there is no such module or no work: its
/// time counts as that of the modules. Clones are the same slices.
#[derive(Clone, Default)]
pub struct Slices(Arc<Shared>);

struct Shared {
    length_ns: AtomicU64,
    is_needed: AtomicBool,
    is_working: AtomicBool,
    is_asleep: AtomicBool,
    is_over: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            length_ns: AtomicU64::new(SLICE.as_nanos() as u64),
            is_needed: AtomicBool::new(false),
            is_working: AtomicBool::new(false),
            is_asleep: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            thread: OnceLock::new(),
        }
    }
}

/// The thread that ends slices, until this value is dropped.
pub struct SliceThread {
    slices: Slices,
    thread: Option<JoinHandle<()>>,
}

impl Slices {
    /// Starts the thread, once. It keeps the value that `begin` returns there.
    ///
    /// # Errors
    ///
    /// Returns an error if the system has no thread left.
    pub fn start<T>(
        &self,
        engines: &Engines,
        begin: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<SliceThread> {
        let engines = engines.clone();
        self.start_with(move || {
            let begun = begin();
            move || {
                let _kept = &begun;
                engines.end_slice();
            }
        })
    }

    fn start_with<F: FnMut()>(
        &self,
        begin: impl FnOnce() -> F + Send + 'static,
    ) -> std::io::Result<SliceThread> {
        let of_thread = self.clone();
        let thread = std::thread::Builder::new().name("flame-slices".to_owned());
        let thread = thread.spawn(move || of_thread.0.run(begin()))?;
        Ok(SliceThread { slices: self.clone(), thread: Some(thread) })
    }

    /// Sets the length of slices.
    pub fn set_length(&self, length: Duration) {
        self.0.length_ns.store(length.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Sets whether there are metered modules. If so, they work from now on.
    pub fn need(&self, is_needed: bool) {
        self.0.is_needed.store(is_needed, Ordering::SeqCst);
        self.work(true);
    }

    /// Sets whether modules work, as far as slices are needed.
    pub fn work(&self, is_working: bool) {
        let is_working = is_working && self.0.is_needed.load(Ordering::SeqCst);
        self.0.is_working.store(is_working, Ordering::SeqCst);
        if is_working && self.0.is_asleep.load(Ordering::SeqCst) {
            self.0.thread.get().into_iter().for_each(Thread::unpark);
        }
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn run(&self, mut end_slice: impl FnMut()) {
        // Before it is asleep for the first time.
        let _ = self.thread.set(std::thread::current());
        let mut idle = IDLE;
        while !self.is_over() {
            idle = if self.is_working.load(Ordering::SeqCst) { 0 } else { idle + 1 };
            if idle > IDLE {
                self.is_asleep.store(true, Ordering::SeqCst);
                // Work that begins from now on sees that this thread is asleep.
                while !self.is_working.load(Ordering::SeqCst) && !self.is_over() {
                    std::thread::park();
                }
                self.is_asleep.store(false, Ordering::SeqCst);
                continue;
            }
            std::thread::park_timeout(Duration::from_nanos(self.length_ns.load(Ordering::Relaxed)));
            end_slice();
        }
    }
}

impl Drop for SliceThread {
    fn drop(&mut self) {
        self.slices.0.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn slices_end_while_metered_modules_work() {
        let (slices, ended) = (Slices::default(), Arc::new(AtomicU64::new(0)));
        let (begun, counted) = (AtomicBool::new(false), ended.clone());
        let thread = slices.start_with(move || {
            assert!(!begun.swap(true, Ordering::Relaxed));
            move || {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        let thread = thread.unwrap();
        let is_asleep = || slices.0.is_asleep.load(Ordering::SeqCst);
        let wait_for = |met: &dyn Fn() -> bool| {
            let begun = Instant::now();
            while !met() {
                assert!(begun.elapsed() < Duration::from_secs(60), "it is not met");
                std::thread::yield_now();
            }
        };
        slices.work(true);
        wait_for(&is_asleep);
        assert_eq!(ended.load(Ordering::Relaxed), 0, "no module is metered");
        slices.need(true);
        wait_for(&|| ended.load(Ordering::Relaxed) > 2 * u64::from(IDLE));
        assert!(!is_asleep(), "a module works");
        slices.work(false);
        wait_for(&is_asleep);
        let before = ended.load(Ordering::Relaxed);
        slices.work(true);
        wait_for(&|| ended.load(Ordering::Relaxed) > before);
        drop(thread);
        let after = ended.load(Ordering::Relaxed);
        slices.work(true);
        std::thread::sleep(2 * SLICE);
        assert_eq!((ended.load(Ordering::Relaxed), Arc::strong_count(&ended)), (after, 1));
    }
}
