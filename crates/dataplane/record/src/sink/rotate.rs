use super::rotation::{Clock, Namer, Part, Rotation};
use super::{Sink, SinkError};
use arrow_array::RecordBatch;
use chrono::{DateTime, Utc};
use flame_abi::manifest::Table;
use flame_output::Packet;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The number of names that are tried for one file.
const ATTEMPTS: u32 = 10_000;

/// Returns a sink whose files are completed by `rotation`, or by [`Sink::rotate`], while the next ones are
/// written. `open` opens the files of one part of `path`.
///
/// Files are synced and renamed by a thread, so that a slow disk does not stop packets. At most one part is
/// being completed; a rotation waits for the one before.
///
/// # Errors
///
/// Returns an error if the first files cannot be opened. Errors of completion are returned by the next call.
pub fn rotating(
    path: &Path,
    rotation: Rotation,
    mut open: impl FnMut(&Part) -> Result<Box<dyn Sink>, SinkError> + Send + 'static,
) -> Result<Box<dyn Sink>, SinkError> {
    let namer = Namer::new(path, rotation.names)?;
    let (current, begun): (Box<dyn Sink>, _) = match (rotation.clock, rotation.every) {
        (Clock::Packets, Some(every)) => (Box::new(Nothing), Begun::At { every, packet: None }),
        (Clock::Ticks(first_ns), Some(every)) => {
            let every_ns = nanoseconds(every);
            let begun_ns = first_ns / every_ns * every_ns;
            let first = begin(&namer, 0, &[], date(begun_ns), &mut open)?;
            (first, Begun::Tick { every_ns, begun_ns, now_ns: begun_ns })
        }
        _ => (begin(&namer, 0, &[], Utc::now(), &mut open)?, Begun::Now(Instant::now())),
    };
    Ok(Box::new(Rotating {
        current,
        open,
        namer,
        rotation,
        begun,
        number: 0,
        completing: None,
        complete: VecDeque::new(),
        has_ended: false,
    }))
}

type Open<'a> = &'a mut dyn FnMut(&Part) -> Result<Box<dyn Sink>, SinkError>;

/// The begin of a part.
enum Begun {
    Now(Instant),
    /// By the times of packets in nanoseconds. The first part is opened with the first packet, which names
    /// it.
    At {
        every: Duration,
        packet: Option<u64>,
    },
    /// By the packet time up to which records were written, at a multiple of a time in nanoseconds.
    Tick {
        every_ns: u64,
        begun_ns: u64,
        now_ns: u64,
    },
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1)
}

fn date(ns: u64) -> DateTime<Utc> {
    DateTime::from_timestamp_nanos(ns.cast_signed())
}

/// Opens the files of part `number`, which begins at `now`, none of which is in `taken`.
fn begin(
    namer: &Namer,
    number: u64,
    taken: &[PathBuf],
    now: DateTime<Utc>,
    open: Open<'_>,
) -> Result<Box<dyn Sink>, SinkError> {
    let mut attempt = 0;
    loop {
        let part = namer.name(number, attempt, now);
        // Only a name made of times may have folders that do not exist.
        let folder = part.path.parent().filter(|_| namer.is_pattern()).filter(|f| !f.as_os_str().is_empty());
        if let Some(folder) = folder {
            std::fs::create_dir_all(folder).map_err(|e| SinkError::io(folder, e))?;
        }
        let sink = open(&part)?;
        let is_taken = |file: &PathBuf| taken.contains(file) || file.symlink_metadata().is_ok();
        if !namer.spares_existing(number) || !sink.files().iter().any(is_taken) {
            return Ok(sink);
        }
        attempt += 1;
        if attempt == ATTEMPTS {
            return Err(SinkError::io(&part.path, ErrorKind::AlreadyExists.into()));
        }
    }
}

struct Rotating<F> {
    current: Box<dyn Sink>,
    open: F,
    namer: Namer,
    rotation: Rotation,
    begun: Begun,
    /// The number of the current part, from 0.
    number: u64,
    completing: Option<JoinHandle<Result<(), SinkError>>>,
    /// The files of complete parts, and of the one that is being completed, if old ones are removed.
    complete: VecDeque<Vec<PathBuf>>,
    /// Whether the last part was due to be completed. It stays open for the rows with which the run ends.
    has_ended: bool,
}

impl<F> Rotating<F> {
    /// Waits until the part before is complete.
    fn settle(&mut self) -> Result<(), SinkError> {
        let lost = || SinkError::io(Path::new("completing a file"), ErrorKind::Other.into());
        self.completing.take().map_or(Ok(()), |thread| thread.join().unwrap_or_else(|_| Err(lost())))
    }

    /// Returns the error of a part that has been completed, without waiting.
    fn check(&mut self) -> Result<(), SinkError> {
        if self.completing.as_ref().is_some_and(JoinHandle::is_finished) { self.settle() } else { Ok(()) }
    }

    /// Adds the files of a part that is being completed, and returns those that are to be removed then.
    fn retire(&mut self, files: Vec<PathBuf>) -> Vec<PathBuf> {
        let Some(keep) = self.rotation.keep else { return Vec::new() };
        self.complete.push_back(files);
        let surplus = self.complete.len().saturating_sub(keep);
        let mut old: Vec<_> = self.complete.drain(..surplus).flatten().collect();
        // A name may have been used again.
        old.retain(|file| !self.complete.iter().flatten().any(|kept| kept == file));
        old
    }
}

fn remove(files: &[PathBuf]) -> Result<(), SinkError> {
    files.iter().try_for_each(|file| match std::fs::remove_file(file) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(SinkError::io(file, e)),
        _ => Ok(()),
    })
}

impl<F: FnMut(&Part) -> Result<Box<dyn Sink>, SinkError> + Send> Rotating<F> {
    fn next(&mut self) -> Result<(), SinkError> {
        if self.rotation.files.is_some_and(|most| self.number + 1 >= most) {
            self.has_ended = true;
            return Ok(());
        }
        self.settle()?;
        let files = self.current.files();
        let now = match &mut self.begun {
            Begun::At { packet: Some(at), .. } => date(*at),
            Begun::Tick { every_ns, begun_ns, now_ns } => {
                *begun_ns = (*now_ns / *every_ns * *every_ns).max(*begun_ns);
                date(*begun_ns)
            }
            _ => Utc::now(),
        };
        let next = begin(&self.namer, self.number + 1, &files, now, &mut self.open)?;
        let done = std::mem::replace(&mut self.current, next);
        self.number += 1;
        if let Begun::Now(begun) = &mut self.begun {
            *begun = Instant::now();
        }
        let old = self.retire(files);
        let complete = move || done.finish().and_then(|()| remove(&old));
        let thread = std::thread::Builder::new().name("flame-files".to_owned()).spawn(complete);
        self.completing = Some(thread.map_err(|e| SinkError::io(Path::new("completing a file"), e))?);
        Ok(())
    }

    /// Begins the part of a packet, if its time is not within this one.
    fn pass(&mut self, ts_ns: u64) -> Result<(), SinkError> {
        let Begun::At { every, packet } = &mut self.begun else { return Ok(()) };
        let every = nanoseconds(*every);
        let Some(begun) = *packet else {
            *packet = Some(ts_ns);
            return self.open_first(date(ts_ns));
        };
        // Packets that are older than the part stay in it.
        let passed = ts_ns.saturating_sub(begun) / every;
        if passed == 0 || self.has_ended {
            return Ok(());
        }
        *packet = Some(begun + passed * every);
        self.next()
    }

    /// Returns whether the time of the last part has passed. It takes no packet any more, and the run ends.
    fn has_passed(&self) -> bool {
        self.has_ended && matches!(self.begun, Begun::At { .. })
    }

    fn open_first(&mut self, now: DateTime<Utc>) -> Result<(), SinkError> {
        self.current = begin(&self.namer, 0, &[], now, &mut self.open)?;
        Ok(())
    }

    /// Begins the next part if this one has its size.
    fn limit(&mut self) -> Result<(), SinkError> {
        let Some(most) = self.rotation.bytes.filter(|_| !self.has_ended) else { return Ok(()) };
        if self.current.size() >= most { self.next() } else { Ok(()) }
    }
}

impl<F: FnMut(&Part) -> Result<Box<dyn Sink>, SinkError> + Send> Sink for Rotating<F> {
    fn write(&mut self, module: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
        self.check()?;
        self.limit()?;
        self.current.write(module, table, batch)
    }

    fn packet(&mut self, packet: Packet<'_>) -> Result<(), SinkError> {
        self.pass(packet.ts_ns)?;
        if self.has_passed() {
            return Ok(());
        }
        self.limit()?;
        self.current.packet(packet)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.check()?;
        self.current.flush()
    }

    fn passed(&mut self, passed_ns: u64) {
        if let Begun::Tick { now_ns, .. } = &mut self.begun {
            *now_ns = passed_ns.max(*now_ns);
        }
    }

    fn due(&self) -> bool {
        match self.begun {
            Begun::Now(begun) => !self.has_ended && self.rotation.every.is_some_and(|e| begun.elapsed() >= e),
            Begun::At { .. } => self.has_passed(),
            Begun::Tick { every_ns, begun_ns, now_ns } => !self.has_ended && now_ns - begun_ns >= every_ns,
        }
    }

    fn rotate(&mut self) -> Result<(), SinkError> {
        // A part that no packet has begun yet has no name.
        let is_unnamed = matches!(self.begun, Begun::At { packet: None, .. });
        if self.has_ended || is_unnamed { Ok(()) } else { self.next() }
    }

    fn size(&self) -> u64 {
        self.current.size()
    }

    fn files(&self) -> Vec<PathBuf> {
        self.current.files()
    }

    fn finish(mut self: Box<Self>) -> Result<(), SinkError> {
        self.settle()?;
        if let Begun::At { packet: None, .. } = self.begun {
            self.open_first(Utc::now())?;
        }
        let files = self.current.files();
        let old = self.retire(files);
        let current = std::mem::replace(&mut self.current, Box::new(Nothing));
        current.finish()?;
        remove(&old)
    }

    fn abandon(&mut self) -> Result<Vec<PathBuf>, SinkError> {
        self.settle()?;
        self.current.abandon()
    }

    fn closed(&self) -> bool {
        self.has_ended || self.current.closed()
    }
}

/// A part that was written in full is completed even if the run fails.
impl<F> Drop for Rotating<F> {
    fn drop(&mut self) {
        // The run's own error is the one to report.
        let _ = self.settle();
    }
}

/// A sink in place of one that has ended.
struct Nothing;

impl Sink for Nothing {
    fn write(&mut self, _: &str, _: &Table, _: &RecordBatch) -> Result<(), SinkError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        Ok(())
    }
}
