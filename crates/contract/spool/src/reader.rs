//! The side that follows a spool and states what is archived.

use crate::frame::{Bytes, Frame, FrameError, Hash, hash_of};
use crate::kept::{Epoch, Kept, Position, Range, Stamp};
use crate::segment::{Segment, Segments, Unread, name_of, number_of};
use crate::writer::SpoolError;
use flame_files::{Folder, Others};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The name of the file that states what is archived.
pub(crate) const CUT: &str = "cut";
const MAGIC: [u8; 4] = *b"FLC1";
const LENGTH: usize = 4 + 8 + 8 + 16 + 8 + 8 + 16;
/// The most segments that are read.
const MAX_SEGMENTS: usize = 4096;

/// The statement of a reader to the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// All batches up to this one are archived. A sequence of 0 states that no batch is.
    pub archived: Stamp,
    /// An epoch of which others have other batches behind this sequence. The writer gives up its own, counts
    /// them as lost, and begins a new epoch.
    pub forked: Option<Position>,
}

impl Cut {
    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LENGTH);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&self.archived.position.epoch.0.to_le_bytes());
        bytes.extend_from_slice(&self.archived.position.sequence.to_le_bytes());
        bytes.extend_from_slice(&self.archived.hash.0);
        // No fork is stated as a sequence that none has.
        let forked = self.forked.unwrap_or(Position { epoch: Epoch(0), sequence: u64::MAX });
        bytes.extend_from_slice(&forked.epoch.0.to_le_bytes());
        bytes.extend_from_slice(&forked.sequence.to_le_bytes());
        let hash = hash_of(&[&bytes]);
        bytes.extend_from_slice(&hash.0);
        bytes
    }

    /// Reads the file `cut`.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are no cut.
    pub fn read(bytes: &[u8]) -> Result<Self, FrameError> {
        let mut at = Bytes::new(bytes, 0);
        let magic: [u8; 4] = at.array()?;
        if magic != MAGIC || bytes.len() != LENGTH {
            let found = format!("{magic:02x?} and {} bytes", bytes.len());
            return Err(at.damaged("the file cut", found, format!("the letters FLC1 and {LENGTH} bytes")));
        }
        let position = Position { epoch: Epoch(at.u64()?), sequence: at.u64()? };
        let archived = Stamp { position, hash: Hash(at.array()?) };
        let forked = Position { epoch: Epoch(at.u64()?), sequence: at.u64()? };
        let (found, expected) = (hash_of(&[&bytes[..LENGTH - 16]]), Hash(at.array()?));
        match found == expected {
            true => Ok(Self { archived, forked: (forked.sequence < u64::MAX).then_some(forked) }),
            false => Err(at.damaged("the hash of the file cut", found, expected)),
        }
    }
}

/// Reads the cut of a folder, if there is one.
pub(crate) fn read_cut(folder: &Folder, path: &Path) -> Result<Option<Cut>, SpoolError> {
    let io = |error| SpoolError::Io { path: path.join(CUT), error };
    let Some(bytes) = folder.read(CUT, 4096).map_err(io)? else { return Ok(None) };
    let form = |error| SpoolError::Form { path: path.join(CUT), error };
    Cut::read(&bytes).map(Some).map_err(form)
}

/// Returns the numbers of the segments of a folder in order.
pub(crate) fn numbers(folder: &Folder, path: &Path) -> Result<Vec<u64>, SpoolError> {
    let io = |error| SpoolError::Io { path: path.to_owned(), error };
    let mut numbers: Vec<_> = folder.names().map_err(io)?.iter().filter_map(|name| number_of(name)).collect();
    numbers.sort_unstable();
    if numbers.len() > MAX_SEGMENTS {
        let error = std::io::Error::other(format!(
            "{} segments, expected at most {MAX_SEGMENTS}: move the oldest away",
            numbers.len()
        ));
        return Err(io(error));
    }
    Ok(numbers)
}

/// Follows a spool that another process writes.
#[derive(Debug)]
pub struct Reader {
    folder: Folder,
    path: PathBuf,
    segments: Segments,
}

impl Reader {
    /// Opens the folder of a spool.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be read, is accessible to others, or is damaged.
    pub fn open(path: &Path) -> Result<Self, SpoolError> {
        let io = |error| SpoolError::Io { path: path.to_owned(), error };
        let folder = Folder::private(path).map_err(io)?;
        let mut reader = Self { folder, path: path.to_owned(), segments: Segments::default() };
        reader.refresh()?;
        Ok(reader)
    }

    /// Reads what was appended, and forgets what was removed.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read, or is damaged other than by a torn tail.
    pub fn refresh(&mut self) -> Result<(), SpoolError> {
        let numbers = numbers(&self.folder, &self.path)?;
        self.segments.list.retain(|segment| numbers.contains(&segment.number));
        // The last one known may have grown before another was begun.
        let known = self.segments.list.last().map_or(0, |segment| segment.number);
        for (at, &number) in numbers.iter().enumerate().filter(|(_, number)| **number >= known) {
            let path = self.path.join(name_of(number));
            let file = match flame_files::open(&path, Others::Nothing) {
                Ok(file) => file,
                // It was removed since.
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(SpoolError::Io { path, error }),
            };
            let is_newest = at + 1 == numbers.len();
            let known =
                self.segments.list.last().filter(|last| last.number == number).map(|last| last.length);
            load(&mut self.segments.list, number, &file, is_newest)
                .map_err(|e| SpoolError::of(path.clone(), e))?;
            // What is read is sent. A batch that the writer has not synced yet must not be elsewhere and be
            // lost here.
            if self.segments.list.last().map(|last| last.length) != known {
                file.sync_data().map_err(|error| SpoolError::Io { path, error })?;
            }
        }
        self.segments.cut = read_cut(&self.folder, &self.path)?;
        self.segments.derive();
        Ok(())
    }

    /// Reads the batch at a position into `into`. Returns `None` if it was removed.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or does not hold the batch any more.
    pub fn read<'a>(
        &self,
        position: Position,
        into: &'a mut Vec<u8>,
    ) -> Result<Option<Frame<'a>>, SpoolError> {
        let Some((segment, entry)) = self.segments.find(position) else { return Ok(None) };
        let path = self.path.join(name_of(segment.number));
        let file = match flame_files::open(&path, Others::Nothing) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(SpoolError::Io { path, error }),
        };
        segment.frame(&file, entry, into).map(Some).map_err(|e| SpoolError::of(path, e))
    }

    /// Returns the last statement to the writer.
    pub fn stated(&self) -> Option<Cut> {
        self.segments.cut
    }

    /// States what is archived. A statement that is behind an earlier one is ignored, so a late message cuts
    /// nothing twice.
    ///
    /// # Errors
    ///
    /// Returns an error if the statement cannot be written.
    pub fn cut(&mut self, cut: &Cut) -> Result<(), SpoolError> {
        let mut new = *cut;
        if let Some(old) = self.segments.cut {
            let order = |stamp: &Stamp| self.segments.order(stamp.position);
            if order(&new.archived) < order(&old.archived) {
                new.archived = old.archived;
            }
        }
        if self.segments.cut != Some(new) {
            let io = |error| SpoolError::Io { path: self.path.join(CUT), error };
            self.folder.put_synced(CUT, &new.to_bytes()).map_err(io)?;
            self.segments.cut = Some(new);
            self.segments.derive();
        }
        Ok(())
    }
}

/// Reads a segment, or the rest of one, into the list. Damage where another segment follows is a torn tail.
pub(crate) fn load(
    list: &mut Vec<Segment>,
    number: u64,
    file: &std::fs::File,
    is_newest: bool,
) -> Result<(), Unread> {
    if list.last().is_none_or(|last| last.number != number) {
        match Segment::read(number, file) {
            Ok(segment) => list.push(segment),
            // It is being made, or the writer ended while it made it.
            Err(Unread::Frame(FrameError::Short { .. })) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    let Some(segment) = list.last_mut() else { return Ok(()) };
    match segment.extend(file) {
        // The file system may have stored the length of the last write, and not all of its bytes.
        Err(Unread::Frame(_)) if !is_newest => Ok(()),
        result => result,
    }
}

impl Kept for Reader {
    fn ranges(&self) -> &[Range] {
        self.segments.ranges()
    }

    fn hash(&self, position: Position) -> Option<Hash> {
        self.segments.hash(position)
    }

    fn grows(&self, epoch: Epoch) -> bool {
        self.segments.grows(epoch)
    }
}
