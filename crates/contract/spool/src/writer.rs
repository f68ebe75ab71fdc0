//! The side that appends batches.

use crate::frame::{Batch, Frame, FrameError, HEADER, MAX_BODY};
use crate::head::Head;
use crate::kept::{Epoch, Kept, Position, Range, Totals};
use crate::reader::{load, numbers, read_cut};
use crate::segment::{Segment, Segments, Unread, name_of};
use flame_files::{Folder, Others};
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The smallest bound of a spool in bytes: 16 of the largest batches.
pub const MIN_BOUND: u64 = 16 * (HEADER + MAX_BODY) as u64;
/// A spool has about as many segments as this, so that a part of that size is dropped at once.
const SEGMENTS: u64 = 8;

/// The reason why a spool cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    #[error("spool {}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("spool {}: {error}", path.display())]
    Form { path: PathBuf, error: FrameError },
    #[error("spool {}: another process writes it: end that one first", path.display())]
    Locked { path: PathBuf },
    #[error("spool {}: a bound of {found} bytes, expected at least {MIN_BOUND}", path.display())]
    Bound { path: PathBuf, found: u64 },
    /// The batch itself is at fault, and the spool is unchanged.
    #[error("a batch for spool {}: {reason}", path.display())]
    Batch { path: PathBuf, reason: &'static str },
}

impl SpoolError {
    pub(crate) fn of(path: PathBuf, unread: Unread) -> Self {
        match unread {
            Unread::Io(error) => Self::Io { path, error },
            Unread::Frame(error) => Self::Form { path, error },
        }
    }
}

/// What a writer removed to make room, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    pub batches: u64,
    pub rows: u64,
    pub bytes: u64,
}

/// Appends batches to a spool.
pub struct Writer {
    folder: Folder,
    path: PathBuf,
    bound: u64,
    fresh: Box<dyn FnMut() -> Epoch + Send>,
    segments: Segments,
    /// The newest segment, and whether it has batches that are not synced. `None` after a fault: what the
    /// kernel has of the segment is not known then, and the next batch begins another epoch.
    active: Option<(File, bool)>,
    /// The fork that the cut already named when the spool was opened, or that was acted on.
    known_fork: Option<Position>,
    dropped: Dropped,
    _lock: File,
}

impl Writer {
    /// Opens a spool of at most `bound` bytes in a folder, which is made if it is missing, and begins an
    /// epoch. `fresh` yields random epochs.
    ///
    /// # Errors
    ///
    /// Returns an error if another process writes the spool, if a file cannot be read or written, or is
    /// damaged other than by a torn tail, and if the bound is too small.
    pub fn open(
        path: &Path,
        bound: u64,
        fresh: impl FnMut() -> Epoch + Send + 'static,
    ) -> Result<Self, SpoolError> {
        let io = |error| SpoolError::Io { path: path.to_owned(), error };
        if bound < MIN_BOUND {
            return Err(SpoolError::Bound { path: path.to_owned(), found: bound });
        }
        let folder = Folder::private(path).map_err(io)?;
        let lock = flame_files::append(&path.join("lock"), Others::Nothing).map_err(io)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(SpoolError::Locked { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
        let mut segments = Segments::default();
        for number in numbers(&folder, path)? {
            let path = path.join(name_of(number));
            let file = flame_files::open(&path, Others::Nothing)
                .map_err(|error| SpoolError::Io { path: path.clone(), error })?;
            // A segment of this opening follows, so the end of each is final.
            load(&mut segments.list, number, &file, false).map_err(|e| SpoolError::of(path, e))?;
        }
        segments.cut = read_cut(&folder, path)?;
        segments.derive();
        let known_fork = segments.cut.and_then(|cut| cut.forked);
        let mut writer = Self {
            folder,
            path: path.to_owned(),
            bound,
            fresh: Box::new(fresh),
            segments,
            active: None,
            known_fork,
            dropped: Dropped::default(),
            _lock: lock,
        };
        writer.open_epoch()?;
        writer.fit(0)?;
        Ok(writer)
    }

    /// Appends a batch. It counts as taken when [`Writer::sync`] has returned.
    ///
    /// # Errors
    ///
    /// Returns an error if the batch is at fault, or if it cannot be written. It is not in the spool then,
    /// and can be appended again.
    pub fn append(&mut self, batch: &Batch<'_>) -> Result<Position, SpoolError> {
        let size = (HEADER + batch.body.len()) as u64;
        if self.active.is_none() {
            self.begin(Totals::default(), None)?;
        }
        let is_full =
            |segment: &Segment| !segment.entries.is_empty() && segment.length + size > self.bound / SEGMENTS;
        if self.segments.list.last().is_some_and(is_full) {
            self.sync()?;
            self.continue_epoch()?;
        }
        self.fit(size)?;
        let (path, io) = (self.path.clone(), |path, error| SpoolError::Io { path, error });
        let Some((segment, (file, is_unsynced))) = self.segments.list.last_mut().zip(self.active.as_mut())
        else {
            return Err(io(path, io::Error::other("no segment")));
        };
        let frame = Frame::new(segment.next(), segment.totals(), segment.hash(), batch)
            .map_err(|reason| SpoolError::Batch { path: path.clone(), reason })?;
        let mut bytes = Vec::with_capacity(HEADER + batch.body.len());
        frame.write(&mut bytes);
        if let Err(error) = file.write_all(&bytes) {
            // A part of the batch may stand there. It is behind the end of the segment for every reader.
            self.active = None;
            return Err(io(path, error));
        }
        *is_unsynced = true;
        segment.push(&frame);
        self.segments.derive();
        Ok(frame.header.position)
    }

    /// Waits until all appended batches are on the disk, and does what the reader stated.
    ///
    /// # Errors
    ///
    /// Returns an error if they cannot be synced. They stay in the spool and must not be appended again; a
    /// crash may lose them, which the totals of the next epoch then count.
    pub fn sync(&mut self) -> Result<(), SpoolError> {
        if let Some((file, is_unsynced @ true)) = self.active.as_mut() {
            *is_unsynced = false;
            if let Err(error) = file.sync_data() {
                // After a failed sync the kernel may have forgotten the bytes that it could not write.
                self.active = None;
                return Err(SpoolError::Io { path: self.path.clone(), error });
            }
        }
        self.follow_cut()
    }

    /// Returns what was dropped to make room since the spool was opened, archived or not.
    pub fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// Removes what is archived, and begins a new epoch if the present one was forked.
    fn follow_cut(&mut self) -> Result<(), SpoolError> {
        let Some(cut) = read_cut(&self.folder, &self.path)? else { return Ok(()) };
        let order = |of: Position| self.segments.order(of);
        let is_behind =
            self.segments.cut.is_some_and(|old| order(cut.archived.position) < order(old.archived.position));
        if !is_behind {
            self.segments.cut = Some(cut);
            self.segments.derive();
        }
        if let Some(common) = cut.forked.filter(|_| cut.forked != self.known_fork) {
            self.known_fork = Some(common);
            self.fork(common)?;
        }
        while let [oldest, _, ..] = &self.segments.list[..] {
            let last = Position { sequence: oldest.next().sequence - 1, ..oldest.head.first };
            // An epoch that is no longer among the ranges lies before the cut.
            let is_cut = match (self.segments.order(last), self.segments.cut) {
                (None, _) => true,
                (Some(last), Some(cut)) => Some(last) <= self.segments.order(cut.archived.position),
                (Some(_), None) => false,
            };
            if !is_cut {
                break;
            }
            self.remove_oldest()?;
        }
        Ok(())
    }

    /// Gives up the batches behind `common` and begins an epoch that counts them as lost.
    fn fork(&mut self, common: Position) -> Result<(), SpoolError> {
        let Some(range) = self.segments.ranges.iter().find(|range| range.epoch == common.epoch).copied()
        else {
            return Ok(());
        };
        let at = common.sequence.min(range.last);
        let position = Position { epoch: range.epoch, sequence: at };
        let totals = self.segments.totals(position).unwrap_or_default();
        let (rows, bytes) = range.totals.beyond(&totals);
        let lost = Totals { rows, bytes, until: range.totals.until };
        self.begin(lost, Some(Range { epoch: range.epoch, floor: at + 1, last: at, totals }))
    }

    /// Begins the epoch of this opening, and removes segments of earlier ones that got no batch.
    fn open_epoch(&mut self) -> Result<(), SpoolError> {
        let count = self.segments.list.len();
        let is_empty = |segment: &&Segment| segment.entries.is_empty();
        let empty = self.segments.list.iter().rev().take_while(is_empty).count();
        // What an epoch without a batch was to count as lost, the next one counts.
        let last = self.segments.list.last().filter(|last| is_empty(last) && last.head.first.sequence == 1);
        self.begin(last.map_or(Totals::default(), |last| last.head.before), None)?;
        for segment in self.segments.list.drain(count - empty..count) {
            let path = self.path.join(name_of(segment.number));
            let io = |error| SpoolError::Io { path, error };
            self.folder.remove(&name_of(segment.number)).map_err(io)?;
        }
        self.segments.derive();
        Ok(())
    }

    /// Begins an epoch in a segment of its own. `end` takes the place of the range of its epoch.
    fn begin(&mut self, before: Totals, end: Option<Range>) -> Result<(), SpoolError> {
        let first = Position { epoch: (self.fresh)(), sequence: 1 };
        let of = |range: &Range| match end.filter(|end| end.epoch == range.epoch) {
            Some(end) => end,
            None => Range { floor: range.last + 1, ..*range },
        };
        let ends = self.segments.ranges.iter().filter(|range| range.last > 0).map(of).collect();
        self.segment(Head { first, before, previous: Default::default(), ends })
    }

    /// Continues the epoch in another segment.
    fn continue_epoch(&mut self) -> Result<(), SpoolError> {
        let Some(last) = self.segments.list.last() else { return Ok(()) };
        let head = Head {
            first: last.next(),
            before: last.totals(),
            previous: last.hash(),
            ends: self
                .segments
                .ranges
                .iter()
                .filter(|range| range.epoch != last.head.first.epoch)
                .map(|range| Range { floor: range.last + 1, ..*range })
                .collect(),
        };
        self.segment(head)
    }

    /// Makes a segment. Its name is on the disk before its first batch.
    fn segment(&mut self, head: Head) -> Result<(), SpoolError> {
        self.active = None;
        let number = self.segments.list.last().map_or(1, |last| last.number + 1);
        let path = self.path.join(name_of(number));
        let io = |error| SpoolError::Io { path: path.clone(), error };
        self.folder.put_synced(&name_of(number), &head.to_bytes()).map_err(io)?;
        let file = flame_files::append(&path, Others::Nothing).map_err(io)?;
        let length = head.to_bytes().len() as u64;
        self.segments.list.push(Segment { number, head, entries: Vec::new(), length });
        self.active = Some((file, false));
        self.segments.derive();
        Ok(())
    }

    /// Drops the oldest segments until `size` more bytes fit the bound.
    fn fit(&mut self, size: u64) -> Result<(), SpoolError> {
        let length = |segments: &Segments| segments.list.iter().map(|segment| segment.length).sum::<u64>();
        while length(&self.segments) + size > self.bound && self.segments.list.len() > 1 {
            let oldest = &self.segments.list[0];
            let (rows, bytes) = oldest.totals().beyond(&oldest.head.before);
            self.dropped.batches += oldest.entries.len() as u64;
            self.dropped.rows += rows;
            self.dropped.bytes += bytes;
            self.remove_oldest()?;
        }
        Ok(())
    }

    fn remove_oldest(&mut self) -> Result<(), SpoolError> {
        let oldest = self.segments.list.remove(0);
        let path = self.path.join(name_of(oldest.number));
        self.folder.remove(&name_of(oldest.number)).map_err(|error| SpoolError::Io { path, error })?;
        self.segments.derive();
        Ok(())
    }
}

impl Kept for Writer {
    fn ranges(&self) -> &[Range] {
        self.segments.ranges()
    }

    fn hash(&self, position: Position) -> Option<crate::Hash> {
        self.segments.hash(position)
    }

    fn grows(&self, epoch: Epoch) -> bool {
        self.segments.grows(epoch)
    }
}
