//! Space that is kept for the ends of modules: a file beside the database that is given up, part by part,
//! when the disk is full. Otherwise nothing could be stopped or removed there to make room.

use super::StoreError;
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The size of the file in bytes, while the disk has room for it: about as much as the database can grow by
/// what its log has.
const BYTES: u64 = 4 << 20;
/// The bytes that are given up first. A change takes a fraction of them, and others may take some, too.
const PART: u64 = 16 << 10;
const FILE: &str = "reserve";

/// The space that is kept.
pub(super) struct Room {
    path: PathBuf,
}

impl Room {
    /// Creates the description of the space that is kept in `folder`.
    pub fn of(folder: &Path) -> Self {
        Self { path: folder.join(FILE) }
    }

    fn open(&self) -> io::Result<(File, u64)> {
        let file = flame_files::append(&self.path, flame_files::Others::Nothing)?;
        let bytes = file.metadata()?.len();
        Ok((file, bytes))
    }

    /// Gives parts of the space up. Returns false if none is left.
    fn give(&self, parts: u64) -> bool {
        let Ok((file, bytes)) = self.open() else { return false };
        bytes > 0 && file.set_len(bytes.saturating_sub(PART.saturating_mul(parts))).is_ok()
    }

    /// Gives space up for `attempt`, which is repeated while the disk is full. `first` is the result of the
    /// attempt before. Each time twice as much is given up, so there are few attempts: others wait meanwhile.
    pub fn while_full<T>(
        &self,
        first: Result<T, StoreError>,
        mut attempt: impl FnMut() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let (mut done, mut parts) = (first, 1);
        while done.as_ref().is_err_and(StoreError::is_full) && self.give(parts) {
            done = attempt();
            parts *= 2;
        }
        done
    }

    /// Keeps as much space again as there is, up to the whole.
    pub fn refill(&self) {
        let Ok((mut file, mut bytes)) = self.open() else { return };
        while bytes < BYTES {
            if allocate(&mut file, bytes, PART.min(BYTES - bytes)).is_err() {
                // A part that is not whole would be counted as one.
                let _ = file.set_len(bytes);
                return;
            }
            bytes += PART.min(BYTES - bytes);
        }
    }
}

/// Allocates bytes at the end of a file.
fn allocate(file: &mut File, at: u64, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(&*file, FallocateFlags::empty(), at, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP) => file.write_all(&vec![0; usize::try_from(bytes).unwrap_or(0)]),
        allocated => Ok(allocated?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_given_up_and_kept_again() {
        let folder = tempfile::tempdir().unwrap();
        let room = Room::of(folder.path());
        assert!(!room.give(1), "there is none yet");
        room.refill();
        let bytes = || std::fs::metadata(folder.path().join(FILE)).unwrap().len();
        assert_eq!(bytes(), BYTES);
        let parts = (0..1000).take_while(|_| room.give(1)).count() as u64;
        assert_eq!((parts, bytes()), (BYTES / PART, 0));
        room.refill();
        assert_eq!(bytes(), BYTES);
        // A wait for the database lasts for a few attempts.
        let full = || {
            let error = io::ErrorKind::StorageFull.into();
            Err::<(), _>(StoreError::Folder { path: String::new(), error })
        };
        let mut attempts = 0;
        let done = room.while_full(full(), || {
            attempts += 1;
            full()
        });
        assert!(done.is_err());
        assert_eq!((attempts, bytes()), (9, 0));
    }
}
