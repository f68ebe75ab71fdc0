//! Opens files that another user could have placed or exchanged. All keys, caches, logs, state and staged
//! outputs are opened here.
//!
//! Three rules hold for every file:
//!
//! 1. The checks apply to the opened file: owner, mode and kind are read from its descriptor, and files of a
//!    [`Folder`] are opened relative to the folder's descriptor, so nothing can be exchanged in between.
//! 2. The last component is never followed if it is a symbolic link, and no open blocks.
//! 3. A new file is created exclusively, under an unpredictable name, and renamed when it is complete.
#![forbid(unsafe_code)]

mod folder;
mod settle;
mod staged;

pub use folder::Folder;
pub use settle::{allow_many_files, limit_data, settle};
pub use staged::Staged;

use rustix::fs::{FileType, Mode, OFlags, Stat};
use std::fs::File;
use std::io::{self, Error, ErrorKind, Read};
use std::path::Path;

/// The access that other users may have to a file that is read or appended to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// No access: for secrets and compiled code.
    Nothing,
    /// Read access: for logs and lists.
    Read,
}

impl Others {
    fn forbidden(self) -> u32 {
        match self {
            Self::Nothing => 0o077,
            Self::Read => 0o022,
        }
    }
}

/// The flags of every open.
const ALWAYS: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

fn denied(reason: String) -> Error {
    Error::new(ErrorKind::PermissionDenied, reason)
}

/// Explains `ELOOP`, the result of opening a symbolic link without following it.
fn explain(error: rustix::io::Errno) -> Error {
    match error {
        rustix::io::Errno::LOOP => {
            denied("it is a symbolic link, which is not followed: give the file itself".into())
        }
        other => other.into(),
    }
}

/// Refuses a file that does not belong to this user, or to which others have more access than `others`.
fn check(stat: &Stat, kind: FileType, others: Others) -> io::Result<()> {
    let (found, me) = (FileType::from_raw_mode(stat.st_mode), rustix::process::geteuid().as_raw());
    if found != kind {
        let expected = if kind == FileType::Directory { "a folder" } else { "a regular file" };
        return Err(denied(format!("it is no {}", &expected[2..])));
    }
    if stat.st_uid != me {
        return Err(denied(format!(
            "it belongs to user {}, expected {me}: use one of your own",
            stat.st_uid
        )));
    }
    let mode = stat.st_mode & 0o777;
    if mode & others.forbidden() != 0 {
        let (may, remedy) = match others {
            Others::Nothing if kind == FileType::Directory => ("enter or change", "chmod 700"),
            Others::Nothing => ("read or change", "chmod 600"),
            Others::Read => ("change", "chmod go-w"),
        };
        return Err(denied(format!("others may {may} it (mode {mode:o}): {remedy} it")));
    }
    Ok(())
}

fn checked(fd: rustix::fd::OwnedFd, others: Others) -> io::Result<File> {
    check(&rustix::fs::fstat(&fd)?, FileType::RegularFile, others)?;
    Ok(File::from(fd))
}

/// Opens a file that belongs to this user for reading.
///
/// # Errors
///
/// Returns an error if the file is a symbolic link or no regular file, belongs to another user, or gives
/// others more access than `others`, or if it cannot be opened.
pub fn open(path: &Path, others: Others) -> io::Result<File> {
    checked(rustix::fs::open(path, OFlags::RDONLY | ALWAYS, Mode::empty()).map_err(explain)?, others)
}

/// Opens a file that belongs to this user for reading and appending. Creates it if it does not exist, with
/// the access for others that `others` allows.
///
/// # Errors
///
/// Returns the errors of [`open`], and one if the file cannot be created.
pub fn append(path: &Path, others: Others) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | ALWAYS;
    let mode = Mode::from_raw_mode(0o666 & !others.forbidden());
    checked(rustix::fs::open(path, flags, mode).map_err(explain)?, others)
}

/// Creates a file with access for this user only.
///
/// # Errors
///
/// Returns an error if `path` exists, of whatever kind it is.
pub fn create_new(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | ALWAYS;
    Ok(File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(explain)?))
}

/// Reads a whole file.
///
/// # Errors
///
/// Returns [`ErrorKind::InvalidData`] if the file has more than `most` bytes.
pub fn read_at_most(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // So that large files are not copied as the vector grows. What a file states may be wrong or too much.
    let size = file.metadata().map_or(0, |of| of.len()).min(most);
    let _ = bytes.try_reserve_exact(usize::try_from(size).unwrap_or(0) + 1);
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(Error::new(ErrorKind::InvalidData, format!("more than {most} bytes")));
    }
    Ok(bytes)
}

/// The flag of an open that does not wait for the other end of a pipe.
pub const NONBLOCK: i32 = OFlags::NONBLOCK.bits() as i32;

/// Returns the user whose rights this process has.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the user that started this process.
pub fn real_user() -> u32 {
    rustix::process::getuid().as_raw()
}

/// Returns a name that no other user can predict.
fn random_name(before: &str, after: &str) -> io::Result<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|e| Error::other(e.to_string()))?;
    Ok(format!("{before}{:032x}{after}", u128::from_le_bytes(random)))
}

#[cfg(test)]
mod tests;
