//! The records of one table of a module on their way out of a node: a bounded file, which one process writes
//! and another one follows.
//!
//! A spool holds *batches*: rows of one table, as the bytes of an Arrow IPC stream, which are opaque here.
//! Each batch has a [`Position`]: a random [`Epoch`] and a sequence within it. An epoch begins with the first
//! batch after the spool is opened, so that two copies of a file never continue the same epoch: a restored
//! backup cannot give other content to a position that others have read.
//!
//! A [`Writer`] appends. A batch counts as taken when [`Writer::sync`] has returned; a torn tail behind it is
//! ignored after a crash. The spool is bounded: the oldest batches are dropped for new ones. Nothing has to
//! be written down for that. Each batch states the [`Totals`] of its epoch before it, and each [`Range`] the
//! totals at its end, so a reader computes the exact loss from two batches that do not follow each other.
//!
//! A [`Reader`] follows from another process. It states up to which position the batches are archived
//! ([`Reader::cut`]); the writer removes these, and only these or the oldest.
//!
//! # On the disk
//!
//! A folder of segments, each of one epoch, and the file `cut`. All numbers are little-endian. A segment is a
//! head ([`Head`]) and frames ([`Header`] and a body). Each frame is covered by a hash, which includes the
//! hash of the frame before: equal hashes at a position mean that all batches of the epoch up to it are
//! equal.
//!
//! | promise | test |
//! | --- | --- |
//! | a batch that was synced is read after a crash, and none that was not written whole | `a_tail_torn_at_each_byte_costs_the_last_batch_only` |
//! | two copies of a spool continue in epochs of their own | `copies_continue_in_epochs_of_their_own` |
//! | the spool keeps within its bound, and the loss follows from the totals | `the_oldest_batches_make_room_and_are_counted` |
//! | only the archived are cut, and the cut never falls | `the_cut_removes_what_is_archived_and_never_falls` |
//! | damage is an error with place, found and expected | `damage_has_a_place` |
#![forbid(unsafe_code)]

mod frame;
mod head;
mod kept;
mod name;
mod reader;
mod segment;
mod writer;

pub use frame::{Batch, Bytes, Frame, FrameError, HEADER, Hash, Header, MAX_BODY};
pub use head::{Head, MAX_ENDS};
pub use kept::{Epoch, Kept, Place, Position, Range, Stamp, Totals};
pub use name::{escape, unescape};
pub use reader::{Cut, Reader};
pub use writer::{Dropped, MIN_BOUND, SpoolError, Writer};
