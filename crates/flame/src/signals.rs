//! Ctrl-C: once, a run ends in order; twice, at once, with what was written kept.

use crate::console::complain;
use flame_abi::manifest::Table;
use flame_record::{Packet, RecordBatch, Sink, SinkError};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

/// Exit status of a run that was interrupted twice, as shells have it for SIGINT.
const INTERRUPTED: i32 = 130;

/// Time for flushing what was written, after which the process ends all the same: a reader that has stopped
/// reading would hold it for ever.
const FLUSH: Duration = Duration::from_secs(1);

/// The records' way out, while a run has one. Whoever ends the process flushes it, whatever a module is
/// doing.
type Slot = Arc<Mutex<Option<Box<dyn Sink>>>>;

/// Listens for SIGINT and SIGTERM as long as the process lives.
pub struct Signals {
    stop: Arc<AtomicBool>,
    slot: Slot,
}

impl Signals {
    pub fn new() -> std::io::Result<Self> {
        let (stop, slot) = (Arc::new(AtomicBool::new(false)), Slot::default());
        for signal in [SIGINT, SIGTERM] {
            // Set by the handler itself, so that a wait which the signal ends finds it set.
            signal_hook::flag::register(signal, stop.clone())?;
        }
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
        let of_thread = slot.clone();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            if signals.forever().nth(1).is_some() {
                end_at_once(of_thread);
            }
        })?;
        Ok(Self { stop, slot })
    }

    /// Set by the first signal.
    pub fn stop(&self) -> &Arc<AtomicBool> {
        &self.stop
    }

    /// Makes `sink` the one that is flushed.
    pub fn guard(&self, sink: Box<dyn Sink>) -> Box<dyn Sink> {
        *held(&self.slot) = Some(sink);
        Box::new(Guarded(self.slot.clone()))
    }
}

fn held(slot: &Slot) -> MutexGuard<'_, Option<Box<dyn Sink>>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the process without destructors: files that are not finished stay under their partial names.
fn end_at_once(slot: Slot) -> ! {
    let (done, flushed) = mpsc::channel();
    thread::spawn(move || {
        // Held to the end: nothing is written any more, and no partial file is removed.
        let mut sink = held(&slot);
        let kept = sink.as_mut().map(|sink| sink.abandon());
        complain!("flame: interrupted again, ended at once: {}", given_up(kept));
        let _ = done.send(());
        loop {
            thread::park();
        }
    });
    if flushed.recv_timeout(FLUSH).is_err() {
        // Where nobody reads, nothing can be said either.
        thread::spawn(|| {
            complain!("flame: interrupted again, ended at once: what was written may be cut short")
        });
        thread::sleep(FLUSH / 10);
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

/// The sink of a [`Slot`], for the run.
struct Guarded(Slot);

impl Guarded {
    fn with(&self, act: impl FnOnce(&mut dyn Sink) -> Result<(), SinkError>) -> Result<(), SinkError> {
        held(&self.0).as_mut().map_or(Ok(()), |sink| act(&mut **sink))
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

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        // In the lock: a second signal meanwhile waits for what is nearly done.
        let mut slot = held(&self.0);
        slot.take().map_or(Ok(()), |sink| sink.finish())
    }

    fn closed(&self) -> bool {
        held(&self.0).as_ref().is_some_and(|sink| sink.closed())
    }
}

/// A run that failed removes its partial files.
impl Drop for Guarded {
    fn drop(&mut self) {
        drop(held(&self.0).take());
    }
}
