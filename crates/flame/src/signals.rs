//! Signals to a run. The first interrupt ends it in order, a further one at once; records already written are
//! kept. SIGHUP and SIGUSR1 complete the files of its output, and the run continues.

use crate::console::complain;
use crate::interrupts::{self, INTERRUPTED, Interrupts};
use flame_abi::manifest::Table;
use flame_base::lock;
use flame_plan::limits::FLUSH_MAX;
use flame_record::{Packet, RecordBatch, Sink, SinkError};
use signal_hook::consts::{SIGHUP, SIGUSR1};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Instant;

/// The message about an interrupt while the input is opened.
const INPUT: &str = "interrupted before the input began";

/// The sink of the records, during a run. The thread that ends the process flushes it, even while modules are
/// running.
type Slot = Arc<Mutex<Option<Box<dyn Sink>>>>;

/// A listener for SIGINT, SIGTERM, SIGHUP and SIGUSR1, for the life of the process.
pub struct Signals {
    stop: Arc<AtomicBool>,
    /// Whether files are to be completed now.
    rotate: Arc<AtomicBool>,
    /// Whether the input is being opened.
    opens: Arc<AtomicBool>,
    slot: Slot,
}

impl Signals {
    pub fn new() -> std::io::Result<Self> {
        let (stop, rotate, opens) = <[Arc<AtomicBool>; 3]>::default().into();
        let slot = Slot::default();
        for signal in interrupts::SIGNALS {
            // The handler itself sets the flag, so that a wait interrupted by the signal finds it set.
            signal_hook::flag::register(signal, stop.clone())?;
        }
        let mut wanted = [&interrupts::SIGNALS[..], &[SIGUSR1]].concat();
        // Under nohup, SIGHUP is ignored from the start and stays ignored.
        if !is_ignored(SIGHUP) {
            wanted.push(SIGHUP);
        }
        let mut signals = signal_hook::iterator::Signals::new(wanted)?;
        let (of_thread, stopping, rotating) = (slot.clone(), stop.clone(), rotate.clone());
        let opening = opens.clone();
        let had_terminal = has_terminal();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let mut interrupts = Interrupts::default();
            for signal in signals.forever() {
                match signal {
                    // The terminal was closed: no key can interrupt the run any more.
                    SIGHUP if had_terminal && !has_terminal() => stopping.store(true, Ordering::Relaxed),
                    SIGHUP | SIGUSR1 => rotating.store(true, Ordering::Relaxed),
                    _ if interrupts.is_further(Instant::now()) => end_at_once(of_thread),
                    _ => {}
                }
                if opening.load(Ordering::SeqCst) && stopping.load(Ordering::SeqCst) {
                    end_before_input(INPUT, INTERRUPTED);
                }
            }
        })?;
        Ok(Self { stop, rotate, opens, slot })
    }

    /// Opens the input, which may be a pipe into which nothing is written. No output has begun by then, so
    /// the first signal ends the process.
    pub fn while_opening<T>(&self, open: impl FnOnce() -> T) -> T {
        self.opens.store(true, Ordering::SeqCst);
        // The thread may have seen that signal before.
        self.or_end(INPUT);
        let opened = open();
        self.opens.store(false, Ordering::SeqCst);
        opened
    }

    /// Ends the process with `text` if the first signal came, since nothing has begun.
    pub fn or_end(&self, text: &str) {
        if self.stop.load(Ordering::SeqCst) {
            end_before_input(text, INTERRUPTED);
        }
    }

    /// Returns what ends the run in order when its time is over, or the process if its input has not begun.
    pub fn expiry(&self) -> impl FnOnce() + Send + use<> {
        let (stop, opens) = (self.stop.clone(), self.opens.clone());
        move || {
            stop.store(true, Ordering::SeqCst);
            if opens.load(Ordering::SeqCst) {
                end_before_input("--duration is over before the input began", 1);
            }
        }
    }

    /// Returns the flag that the first interrupt sets.
    pub fn stop(&self) -> &Arc<AtomicBool> {
        &self.stop
    }

    /// Lets signals flush `sink`, and returns a sink that writes to it.
    pub fn guard(&self, sink: Box<dyn Sink>) -> Box<dyn Sink> {
        *lock(&self.slot) = Some(sink);
        Box::new(Guarded { slot: self.slot.clone(), rotate: self.rotate.clone() })
    }

    /// Returns a writer of packets to the sink that is flushed.
    pub fn packets(&self) -> Packets {
        Packets(self.slot.clone())
    }
}

/// A writer of packets to the sink of a run, for another thread than the sink's.
pub struct Packets(Slot);

impl Packets {
    /// Writes a packet. After the end of the run, it does nothing.
    pub fn write(&self, packet: Packet<'_>) -> Result<(), SinkError> {
        lock(&self.0).as_mut().map_or(Ok(()), |sink| sink.packet(packet))
    }
}

/// Returns whether this process was started with `signal` ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|m| m >> (signal - 1) & 1 == 1)
}

/// Returns whether the process has a terminal that controls it, which can be opened until it is closed.
fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// Ends the process before it has read anything.
fn end_before_input(text: &str, status: i32) -> ! {
    complain!("flame: {text}");
    signal_hook::low_level::exit(status)
}

/// Ends the process without running destructors, so that unfinished files remain under their partial names.
fn end_at_once(slot: Slot) -> ! {
    let (done, flushed) = mpsc::channel();
    thread::spawn(move || {
        // The lock is held to the end: nothing more is written, and no partial file is removed.
        let mut sink = lock(&slot);
        let kept = sink.as_mut().map(|sink| sink.abandon());
        complain!("flame: interrupted again, ended at once: {}", given_up(kept));
        let _ = done.send(());
        loop {
            thread::park();
        }
    });
    if flushed.recv_timeout(FLUSH_MAX).is_err() {
        // If the output is closed, the message cannot be written either.
        thread::spawn(|| {
            complain!("flame: interrupted again, ended at once: what was written may be cut short")
        });
        thread::sleep(FLUSH_MAX / 10);
    }
    signal_hook::low_level::exit(INTERRUPTED)
}

fn given_up(kept: Option<Result<Vec<PathBuf>, SinkError>>) -> String {
    const LOST: &str = "calls that were running and records not written yet are given up";
    match kept {
        None => "no records were being written".to_owned(),
        Some(Err(e)) => format!("{LOST}; what was written may be cut short: {e}"),
        Some(Ok(files)) if files.is_empty() => format!("{LOST}; what was written before is whole"),
        Some(Ok(files)) => {
            let files: Vec<_> = files.iter().map(|path| path.display().to_string()).collect();
            format!("{LOST}; what was written before is in {}", files.join(", "))
        }
    }
}

/// The run's handle to the sink in a [`Slot`].
struct Guarded {
    slot: Slot,
    rotate: Arc<AtomicBool>,
}

impl Guarded {
    fn with(&self, act: impl FnOnce(&mut dyn Sink) -> Result<(), SinkError>) -> Result<(), SinkError> {
        lock(&self.slot).as_mut().map_or(Ok(()), |sink| act(&mut **sink))
    }
}

impl Sink for Guarded {
    fn write(&mut self, module: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
        self.with(|sink| sink.write(module, table, batch))
    }

    fn packet(&mut self, packet: Packet<'_>) -> Result<(), SinkError> {
        self.with(|sink| sink.packet(packet))
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.with(|sink| sink.flush())
    }

    fn passed(&mut self, now_ns: u64) {
        if let Some(sink) = lock(&self.slot).as_mut() {
            sink.passed(now_ns);
        }
    }

    fn due(&self) -> bool {
        self.rotate.load(Ordering::Relaxed) || lock(&self.slot).as_ref().is_some_and(|sink| sink.due())
    }

    fn rotate(&mut self) -> Result<(), SinkError> {
        self.rotate.store(false, Ordering::Relaxed);
        self.with(|sink| sink.rotate())
    }

    fn size(&self) -> u64 {
        lock(&self.slot).as_ref().map_or(0, |sink| sink.size())
    }

    fn files(&self) -> Vec<PathBuf> {
        lock(&self.slot).as_ref().map_or_else(Vec::new, |sink| sink.files())
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        // The lock is held, so that a further interrupt waits for the nearly finished output.
        let mut slot = lock(&self.slot);
        slot.take().map_or(Ok(()), |sink| sink.finish())
    }

    fn closed(&self) -> bool {
        lock(&self.slot).as_ref().is_some_and(|sink| sink.closed())
    }
}

/// Removes the partial files of a failed run.
impl Drop for Guarded {
    fn drop(&mut self) {
        drop(lock(&self.slot).take());
    }
}
