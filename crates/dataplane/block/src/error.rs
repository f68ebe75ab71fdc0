use crate::MAX_READERS;
use std::io;

/// An error in creating shared memory or a reader's end.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    #[error("shared memory of {bytes} bytes: {step}: {error}")]
    Memory { bytes: usize, step: &'static str, error: io::Error },
    #[error("shared memory of {bytes} bytes: the region of this process has {free} bytes left")]
    Exhausted { bytes: usize, free: usize },
    #[error("wake-up socket of a reader: {0}")]
    Socket(io::Error),
    #[error("the pool has {MAX_READERS} readers, the most it can have: remove one first")]
    TooManyReaders,
    /// A system call failed on a descriptor that was passed to a reader.
    #[error("{name} descriptor of a reader: {step}: {error}")]
    Descriptor { name: &'static str, step: &'static str, error: io::Error },
    /// A descriptor that was passed to a reader was not created by the writer.
    #[error("{name} descriptor of a reader: expected {expected}, found {found}: pass what `ReaderFds` holds")]
    Unexpected { name: &'static str, expected: String, found: String },
}
