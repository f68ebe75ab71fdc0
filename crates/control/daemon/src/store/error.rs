//! The reasons why the storage cannot be read or written, with ways to proceed.

use super::VERSION;
use rusqlite::{ErrorCode, ffi};
use std::io::{self, ErrorKind};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{path}: {error}")]
    Folder { path: String, error: io::Error },
    #[error("{path}: {error}")]
    Database { path: String, error: rusqlite::Error },
    #[error(
        "{path}: format {found}; this program reads {VERSION}: use the program that wrote it, or move the folder away \
         and install the modules again, with credentials that are minted again"
    )]
    Version { path: String, found: i64 },
    #[error("{path}: the code of {hash} is missing or was changed")]
    Code { path: String, hash: String },
    #[error(
        "{path}: another program has locked it: end that program, or its transaction (`fuser -v` with the file \
         shows it), and start the node again"
    )]
    Locked { path: String },
    #[error(
        "{path}: the log of the database cannot be read where nothing can be written ({error}): make the folder \
         writable for one start, or use a copy of it that is"
    )]
    Log { path: String, error: String },
    #[error("the storage was opened for reading only, because it could not be written at the start")]
    ReadOnly,
    #[error("{path}: {place}: {error}")]
    Row { path: String, place: String, error: rusqlite::Error },
    #[error("another change of module {name} was stored first")]
    Raced { name: String },
}

/// Returns the error of a value that this program did not write.
pub(super) fn wrong(column: &str) -> rusqlite::Error {
    rusqlite::Error::InvalidColumnName(format!("{column}: not written by this program"))
}

/// Returns whether an error of a file states that there is no space: of the disk, or of a quota on it.
fn is_of_space(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Returns whether another program has locked the database.
fn is_of_lock(error: &rusqlite::Error) -> bool {
    use ErrorCode::{DatabaseBusy, DatabaseLocked, FileLockingProtocolFailed};
    let code = error.sqlite_error_code();
    code.is_some_and(|code| matches!(code, DatabaseBusy | DatabaseLocked | FileLockingProtocolFailed))
}

/// Returns whether SQLite could not write or extend a file of the database. A quota that is used up is
/// reported as this, and so are faults of the disk.
fn is_unwritten(error: &rusqlite::Error) -> bool {
    const CODES: [i32; 2] = [ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_SHMSIZE];
    error.sqlite_error().is_some_and(|error| CODES.contains(&error.extended_code))
}

impl StoreError {
    /// Returns whether there may be no space, on the disk or in a quota. Then it is tried again with space
    /// that was kept.
    pub(super) fn is_full(&self) -> bool {
        match self {
            Self::Folder { error, .. } => is_of_space(error),
            Self::Database { error, .. } => match error.sqlite_error_code() {
                // The files beside the database cannot be made.
                Some(ErrorCode::DiskFull | ErrorCode::CannotOpen) => true,
                _ => is_unwritten(error),
            },
            _ => false,
        }
    }

    /// Returns whether another program has locked the database.
    pub(crate) fn is_locked(&self) -> bool {
        matches!(self, Self::Database { error, .. } if is_of_lock(error))
    }

    /// Returns a way to proceed.
    pub fn remedy(&self) -> &'static str {
        const MAKE_ROOM: &str = "free space on the disk of the node's storage, or raise its quota there; the node \
                                 continues with what it has";
        const WRITABLE: &str = "make the node's storage writable; the node continues with what it has";
        const LOCKED: &str = "another program has locked the node's database: end it, or its transaction (`fuser -v` \
                              with the file shows it); nothing is damaged, and the node continues with what it has";
        match self {
            Self::Raced { .. } => "look at the module (flame show) and repeat the change",
            Self::ReadOnly => "make the storage writable and restart the node",
            Self::Folder { error, .. } if is_of_space(error) => MAKE_ROOM,
            Self::Folder { .. } => WRITABLE,
            Self::Database { error, .. } if is_of_lock(error) => LOCKED,
            Self::Database { error, .. } => match error.sqlite_error_code() {
                Some(ErrorCode::DiskFull) => MAKE_ROOM,
                Some(ErrorCode::ReadOnly) => {
                    "make the node's storage writable, and start the node again if it is"
                }
                Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => WRITABLE,
                Some(ErrorCode::SystemIoFailure) if is_unwritten(error) => {
                    "free space on the disk of the node's storage, or raise its quota there; with both, check the \
                     disk; the node continues with what it has"
                }
                Some(ErrorCode::SystemIoFailure) => "check disk and permissions of the node's storage",
                _ => "see the reason; `PRAGMA integrity_check` of the database shows whether it is damaged",
            },
            Self::Row { .. } => "restore the database, or remove the row",
            Self::Version { .. } | Self::Locked { .. } | Self::Log { .. } => "",
            Self::Code { .. } => "install the module again",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quota that is used up is a full disk to the one who has it.
    #[test]
    fn a_quota_that_is_used_up_is_a_full_disk() {
        let folder = |kind: ErrorKind| StoreError::Folder { path: String::new(), error: kind.into() };
        let database = |code| StoreError::Database {
            path: String::new(),
            error: rusqlite::Error::SqliteFailure(ffi::Error::new(code), None),
        };
        for full in [
            folder(ErrorKind::StorageFull),
            folder(ErrorKind::QuotaExceeded),
            database(ffi::SQLITE_FULL),
            database(ffi::SQLITE_IOERR_WRITE),
            database(ffi::SQLITE_IOERR_SHMSIZE),
        ] {
            assert!(full.is_full(), "{full:?}");
            assert!(full.remedy().contains("free space") && full.remedy().contains("quota"), "{full:?}");
        }
        for other in [
            folder(ErrorKind::PermissionDenied),
            database(ffi::SQLITE_READONLY),
            database(ffi::SQLITE_IOERR_READ),
            database(ffi::SQLITE_IOERR_FSYNC),
        ] {
            assert!(!other.is_full() && !other.remedy().contains("free space"), "{other:?}");
        }
    }
}
