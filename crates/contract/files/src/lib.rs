//! Opens files that somebody else could have put there: the one door for keys, caches, logs, state and staged
//! outputs.
//!
//! Three rules, whatever the file:
//!
//! 1. What is checked is what is used: owner, mode and kind are read from the opened descriptor, and files of
//!    a [`Folder`] are opened relative to its descriptor, so nothing can be exchanged in between.
//! 2. The last component is never followed if it is a symbolic link, and nothing is opened that would block.
//! 3. A new file is created exclusively, under a name that cannot be guessed, and renamed when it is whole.
#![forbid(unsafe_code)]

mod folder;
mod settle;
mod staged;

pub use folder::Folder;
pub use settle::settle;
pub use staged::Staged;

use rustix::fs::{FileType, Mode, OFlags, Stat};
use std::fs::File;
use std::io::{self, Error, ErrorKind, Read};
use std::path::Path;

/// What others may do with a file that is read or appended to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// Nothing: secrets, compiled code.
    Nothing,
    /// Read: logs, lists.
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

/// Flags of every open.
const ALWAYS: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

fn denied(reason: String) -> Error {
    Error::new(ErrorKind::PermissionDenied, reason)
}

/// Explains `ELOOP`, which is what opening a symbolic link without following it gives.
fn explain(error: rustix::io::Errno) -> Error {
    match error {
        rustix::io::Errno::LOOP => {
            denied("it is a symbolic link, which is not followed: give the file itself".into())
        }
        other => other.into(),
    }
}

/// Refuses what does not belong to this user, or others may change.
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

/// Opens a file of this user's to read.
pub fn open(path: &Path, others: Others) -> io::Result<File> {
    checked(rustix::fs::open(path, OFlags::RDONLY | ALWAYS, Mode::empty()).map_err(explain)?, others)
}

/// Opens a file of this user's to read and append to; creates it if it is not there, so that others can do no
/// more than they may.
pub fn append(path: &Path, others: Others) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | ALWAYS;
    let mode = Mode::from_raw_mode(0o666 & !others.forbidden());
    checked(rustix::fs::open(path, flags, mode).map_err(explain)?, others)
}

/// Creates a file for this user alone; an error if anything has its name.
pub fn create_new(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | ALWAYS;
    Ok(File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(explain)?))
}

/// Reads all of a file, of at most so many bytes.
pub fn read_at_most(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(Error::new(ErrorKind::InvalidData, format!("more than {most} bytes")));
    }
    Ok(bytes)
}

/// Flag of an open that does not wait for the other end of a pipe.
pub const NONBLOCK: i32 = OFlags::NONBLOCK.bits() as i32;

/// Whose rights this process has.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Who started it.
pub fn real_user() -> u32 {
    rustix::process::getuid().as_raw()
}

/// A name that nobody can make before us.
fn random_name(before: &str, after: &str) -> io::Result<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|e| Error::other(e.to_string()))?;
    Ok(format!("{before}{:032x}{after}", u128::from_le_bytes(random)))
}

#[cfg(test)]
mod tests;
