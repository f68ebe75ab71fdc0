//! Ctrl-C: the first ends a run in order, the second at once. Records already written are kept.

use crate::console::complain;
use flame_abi::manifest::Table;
use flame_record::{Packet, RecordBatch, Sink, SinkError};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

/// The exit status of a run that was interrupted twice, as in shells after SIGINT.
const INTERRUPTED: i32 = 130;

/// The time allowed for flushing output. After it the process ends all the same, because a reader that has
/// stopped reading would block it forever.
const FLUSH: Duration = Duration::from_secs(1);

/// The sink of the records, during a run. The thread that ends the process flushes it, even while modules are
/// running.
type Slot = Arc<Mutex<Option<Box<dyn Sink>>>>;

/// A listener for SIGINT and SIGTERM, for the life of the process.
pub struct Signals {
    stop: Arc<AtomicBool>,
    slot: Slot,
}

impl Signals {
    pub fn new() -> std::io::Result<Self> {
        let (stop, slot) = (Arc::new(AtomicBool::new(false)), Slot::default());
        for signal in [SIGINT, SIGTERM] {
            // The handler itself sets the flag, so that a wait interrupted by the signal finds it set.
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

    /// Returns the flag that the first signal sets.
    pub fn stop(&self) -> &Arc<AtomicBool> {
        &self.stop
    }

    /// Makes `sink` the one that is flushed, and returns a sink that writes to it.
    pub fn guard(&self, sink: Box<dyn Sink>) -> Box<dyn Sink> {
        *held(&self.slot) = Some(sink);
        Box::new(Guarded(self.slot.clone()))
    }
}

fn held(slot: &Slot) -> MutexGuard<'_, Option<Box<dyn Sink>>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the process without running destructors, so that unfinished files remain under their partial names.
fn end_at_once(slot: Slot) -> ! {
    let (done, flushed) = mpsc::channel();
    thread::spawn(move || {
        // The lock is held to the end: nothing more is written, and no partial file is removed.
        let mut sink = held(&slot);
        let kept = sink.as_mut().map(|sink| sink.abandon());
        complain!("flame: interrupted again, ended at once: {}", given_up(kept));
        let _ = done.send(());
        loop {
            thread::park();
        }
    });
    if flushed.recv_timeout(FLUSH).is_err() {
        // If nobody reads the output, the message cannot be written either.
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

/// The run's handle to the sink in a [`Slot`].
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
        // The lock is held, so that a second signal waits for the nearly finished output.
        let mut slot = held(&self.0);
        slot.take().map_or(Ok(()), |sink| sink.finish())
    }

    fn closed(&self) -> bool {
        held(&self.0).as_ref().is_some_and(|sink| sink.closed())
    }
}

/// Removes the partial files of a failed run.
impl Drop for Guarded {
    fn drop(&mut self) {
        drop(held(&self.0).take());
    }
}
