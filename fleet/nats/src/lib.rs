//! The log of a fleet: the calls that FLAME needs of one, and NATS JetStream behind them.
//!
//! A log may lose its disk, refuse what does not fit, and be replaced: the protocols expect all of it
//! ([`flame_fleet_protocol`]). It keeps the order of a subject and syncs a message before it accepts it.
//!
//! | promise | test |
//! | --- | --- |
//! | a message that was accepted is there after the server was killed | `a_killed_server_has_what_it_accepted` |
//! | nothing that was archived is lost, or archived twice, if the server loses its disk | `a_server_without_its_disk_costs_nothing` |
//! | a full stream refuses, and removes nothing | `a_full_stream_refuses` |
//! | two publishers of a subject notice each other | `a_second_publisher_is_noticed` |
//! | servers with known holes are refused | `versions_with_holes_are_refused` |
#![forbid(unsafe_code)]

mod access;
mod bus;
mod memory;
mod nats;
mod version;

pub use access::{Access, User};
pub use bus::{Bus, Note};
pub use memory::Memory;
pub use nats::Nats;
pub use version::{RECOMMENDED, Version, VersionError};

use flame_fleet_protocol::Subject;

/// The log's answer to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// It is on the log's disk, with this sequence of its stream.
    Taken(u64),
    /// The stream is full.
    Full,
    /// The last message of the subject is another one than expected.
    Moved,
}

/// A message in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its number in the stream, from 1.
    pub sequence: u64,
    pub subject: Subject,
    pub bytes: Vec<u8>,
}

/// The reason why a call failed. Its outcome is not known: the connection begins again.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("the log, {what}: {reason}")]
    Failed { what: &'static str, reason: String },
    #[error(transparent)]
    Version(#[from] VersionError),
    #[error("the log has a message on {found:?}, expected a subject of records: {reason}")]
    Subject { found: String, reason: String },
}

/// A log with a stream for each principal, and a place for the mark of each subject.
pub trait Log {
    /// Makes the stream of a subject's principal with a bound in bytes, and the place of marks, if they are
    /// missing.
    ///
    /// # Errors
    ///
    /// Each call returns an error if the log does not answer, or cannot do it.
    fn open(&mut self, subject: &Subject, bound: u64) -> Result<(), LogError>;

    /// Returns the last message of a subject.
    ///
    /// # Errors
    ///
    /// See [`Log::open`].
    fn last(&mut self, subject: &Subject) -> Result<Option<Record>, LogError>;

    /// Publishes messages in their order, and returns the log's answer to each. They are on their way
    /// together: the log may take messages behind a refused one. `after` is the sequence of the
    /// subject's last message, or 0, if the publisher fences others: it does with the first message of a
    /// connection. If that one is not taken, the others are not sent, and have no answer.
    ///
    /// # Errors
    ///
    /// See [`Log::open`].
    fn publish_all(
        &mut self,
        subject: &Subject,
        messages: Vec<Vec<u8>>,
        after: Option<u64>,
    ) -> Result<Vec<Published>, LogError>;

    /// Publishes one message.
    ///
    /// # Errors
    ///
    /// See [`Log::open`].
    fn publish(
        &mut self,
        subject: &Subject,
        bytes: Vec<u8>,
        after: Option<u64>,
    ) -> Result<Published, LogError> {
        let answer = self.publish_all(subject, vec![bytes], after)?.pop();
        answer.ok_or_else(|| LogError::Failed { what: "a message", reason: "no answer".to_owned() })
    }

    /// Returns up to `most` messages of a subject's stream, of all its subjects, behind a sequence.
    ///
    /// # Errors
    ///
    /// See [`Log::open`].
    fn pull(&mut self, subject: &Subject, behind: u64, most: usize) -> Result<Vec<Record>, LogError>;

    /// Removes the messages of a subject's stream up to a sequence: they are archived.
    ///
    /// # Errors
    ///
    /// See [`Log::open`].
    fn remove(&mut self, subject: &Subject, until: u64) -> Result<(), LogError>;

    /// Puts the mark of a subject in the place of the one before.
    ///
    /// # Errors
    ///
    /// See [`Log::open`].
    fn put(&mut self, subject: &Subject, mark: Vec<u8>) -> Result<(), LogError>;

    /// Returns the mark of a subject.
    ///
    /// # Errors
    ///
    /// See [`Log::open`].
    fn mark(&mut self, subject: &Subject) -> Result<Option<Vec<u8>>, LogError>;
}
