//! Checks the output of a module and enforces its grant.
//!
//! ```text
//! bytes of one call → Schema::check → frames → Gate → rows, packets, messages
//! ```
//!
//! The bytes are untrusted, and [`Schema::check`] is the only entry point. Its error names the frame, the
//! byte, the table and the column. Code that reads a row after this check never fails on it. The crate does
//! not depend on Arrow or file formats, so that a process that only runs modules stays small.
#![forbid(unsafe_code)]

mod channel;
mod check;
mod composed;
mod error;
mod gate;
mod held;
mod send;
mod service;

pub use check::{CheckProgress, Frame, FrameCounts, Frames, Packet, Schema, first_frames, frames};
pub use composed::composed;
pub use error::{Fault, OutputError};
pub use gate::Gate;
pub use held::Held;
pub use send::{Sent, plain_send};
