//! The connection between a worker and a runner, the process in which modules of one principal run.
//!
//! Packets do not pass through it: they lie in shared blocks (`flame_block`). It carries commands to the
//! runner and output back. A [`Sender`] and a [`Receiver`] are the ends of one Unix stream socket. Long
//! output passes through memory that the worker creates: a [`BodyWriter`] and a [`BodyReader`] are its ends.
//! Descriptors come with commands only: a runner has an [`FdReceiver`].
//!
//! # Trust
//!
//! A runner executes foreign code, so the worker treats all that it receives as untrusted: frames are limited
//! in size ([`MAX_HEAD`], [`MAX_BODY`]), decoding fails with an error, output is copied once, and the copy is
//! checked against the manifest again. The runner trusts the worker.
#![forbid(unsafe_code)]

mod bodies;
mod channel;
mod message;
mod stall;

pub use bodies::{BodyReader, BodyWriter};
pub use channel::{ChannelError, FdReceiver, Frame, MAX_BODY, MAX_HEAD, Receiver, Sender};
pub use message::{Command, Install, Kept, Report};
pub use stall::{PausableClock, Stall, StallGuard, StallRecorder};
