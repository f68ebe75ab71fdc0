//! A library for FLAME modules in Rust.
//!
//! Implement [`Module`] for the fast path and, if results of several workers must be merged,
//! [`Slow`] for the slow path; name them in [`export!`]; describe parameters and tables in
//! `module.toml`. The same source builds natively, where [`testing`] runs it.
//!
//! ```ignore
//! flame_module::manifest!();
//!
//! impl Module for Count {
//!     fn new(_: &Init) -> Self { Self::default() }
//!     fn batch(&mut self, batch: &Batch, _: &mut Out) {
//!         for packet in batch.packets() { self.bytes += u64::from(packet.wire_len); }
//!     }
//!     fn end(&mut self, _: u64, out: &mut Out) -> Progress {
//!         out.write(&Total { bytes: self.bytes });
//!         Progress::Done
//!     }
//! }
//! flame_module::export!(Count);
//! ```

#[cfg(test)]
extern crate self as flame_module;

mod area;
mod batch;
mod fixed_text;
mod gather;
mod glue;
#[cfg(all(target_arch = "wasm32", feature = "heap"))]
mod heap;
#[cfg(all(test, not(target_arch = "wasm32")))]
#[path = "heap/class.rs"]
mod heap_class;
mod host;
mod init;
#[doc(hidden)]
pub mod log;
pub mod memory;
mod out;
mod random;
#[doc(hidden)]
pub mod record;
mod scan;
mod service;
mod shared;
mod table;
#[cfg(not(target_family = "wasm"))]
pub mod testing;
mod text;
mod timer;
mod view;

pub use batch::{Batch, Ip, Packet};
/// Generates, at compile time, a struct for each table of the crate's `module.toml` and a struct `Params` for
/// its parameters. A column that is unknown, missing or of another type does not compile.
///
/// Names follow Rust's conventions: a table `tcp_flow` becomes `TcpFlow`, and its enum `end` becomes
/// `TcpFlowEnd`. Columns and parameters keep their names (`type` becomes `r#type`, and `-` becomes `_`). An
/// integer parameter with `min` and `max` has the smallest unsigned type that holds them, otherwise `i64`.
/// Durations are in nanoseconds. `manifest!("FILE")` reads another file in the crate's folder.
///
/// ```
/// # use flame_module::*;
/// mod tables {
///     flame_module::manifest!("src/example.toml");
/// }
/// fn end(init: &Init, out: &mut Out) {
///     let params = tables::Params::from(init);
///     let port: u16 = params.port;
///     out.write(&tables::Total { port, packets: 7, end: tables::TotalEnd::Idle, name: params.name });
/// }
/// ```
///
/// A column that the table does not have does not compile:
///
/// ```compile_fail
/// # use flame_module::*;
/// mod tables {
///     flame_module::manifest!("src/example.toml");
/// }
/// fn end(init: &Init, out: &mut Out) {
///     let params = tables::Params::from(init);
///     let port: u16 = params.port;
///     out.write(&tables::Total { port, bytes: 7, end: tables::TotalEnd::Idle, name: params.name });
/// }
/// ```
///
/// Nor does a row without one of the table's columns:
///
/// ```compile_fail
/// # use flame_module::*;
/// mod tables {
///     flame_module::manifest!("src/example.toml");
/// }
/// fn end(init: &Init, out: &mut Out) {
///     let params = tables::Params::from(init);
///     let port: u16 = params.port;
///     out.write(&tables::Total { port, end: tables::TotalEnd::Idle, name: params.name });
/// }
/// ```
///
/// Nor does a column of another type, a word that its enum does not have, or a parameter that the manifest
/// does not have:
///
/// ```compile_fail
/// # use flame_module::*;
/// mod tables {
///     flame_module::manifest!("src/example.toml");
/// }
/// fn end(init: &Init, out: &mut Out) {
///     let params = tables::Params::from(init);
///     let port: u32 = params.port.into();
///     out.write(&tables::Total { port, packets: 7, end: tables::TotalEnd::Idle, name: params.name });
/// }
/// ```
///
/// ```compile_fail
/// # use flame_module::*;
/// mod tables {
///     flame_module::manifest!("src/example.toml");
/// }
/// let end = tables::TotalEnd::Busy;
/// ```
///
/// ```compile_fail
/// # use flame_module::*;
/// mod tables {
///     flame_module::manifest!("src/example.toml");
/// }
/// fn new(init: &Init) {
///     let ports = tables::Params::from(init).ports;
/// }
/// ```
pub use flame_module_macros::manifest;
pub use service::{Outcome, Reply, Request};
pub use shared::{Read, SharedArea, Write};

pub use fixed_text::FixedText;
pub use flame_abi::{Descriptor, LinkType, MAX_BATCH, flags, has_ports, tcp};
pub use gather::{Gather, Partial, Partials};
#[doc(hidden)]
pub use glue::{Forwards, Slot};
pub use host::{cold, limit};
pub use init::Init;
pub use out::{Out, Reserved, Row};
pub use random::Random;
pub use record::Record;
pub use scan::Scan;
pub use table::{Entry, FlowTable, HashMap, Hashed, Key, Map, mix};
pub use timer::{Due, Timer};
pub use view::{Ipv4, Ipv6, Tcp, Udp, proto};

/// The state of a call when it returns: finished, or with more output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Done,
    /// Take the output so far and call again: for output that need not all be in memory at once
    /// ([`Out::write_all`]).
    More,
}

/// The fast path: one instance per worker, which processes the packets.
pub trait Module: Sized {
    /// Creates an instance from the host's values. Parameters are read here.
    fn new(init: &Init) -> Self;
    /// Processes up to 256 packets. It may write any number of rows, see [`Out`].
    fn batch(&mut self, batch: &Batch, out: &mut Out);
    /// Handles a tick, once per interval of packet time (see [`Init::tick_ns`]).
    fn tick(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        let _ = (now_ns, out);
        Progress::Done
    }
    /// Makes do with less memory: the instance was refused more, or less than an eighth of its limit is left.
    /// `free` is the number of bytes by which its memory may still grow. Later allocations use again what it
    /// drops here. Only of a module that is exported with `pressure`.
    fn pressure(&mut self, free: u64, out: &mut Out) {
        let _ = (free, out);
    }
    /// Appends the state of the instance to `state`, at most as many bytes as `[state]` of the manifest
    /// allows. A later instance gets them by [`Module::import`]. It is called at the end, and on a
    /// node after some ticks, and changes nothing. Only of a module that is exported with `state`.
    fn export(&mut self, state: &mut Vec<u8>) {
        let _ = state;
    }
    /// Takes a state that [`Module::export`] of an earlier instance made, of the same version, right after
    /// `new`. Returns whether it was taken; if not, nothing must have changed, and the instance begins empty.
    /// The bytes may have been damaged, or be from other code of this version.
    fn import(&mut self, state: &[u8]) -> bool {
        let _ = state;
        false
    }
    /// Ends the instance: its last call, unless another one continues with its state.
    fn end(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        let _ = (now_ns, out);
        Progress::Done
    }
}

/// The fast path of a module that forwards packets, as an element of a graph (`[ports]` in its manifest,
/// [`export!`]`(forward = …)`). It decides about each packet.
pub trait Forward: Sized {
    /// Creates the instance, like [`Module::new`].
    fn new(init: &Init) -> Self;
    /// Decides about up to 256 packets that came to the input `port`: those that it sends ([`Out::send`],
    /// [`Out::send_changed`]) go on, the others are dropped.
    fn push(&mut self, port: u32, batch: &Batch, out: &mut Out);
    /// Handles a tick, like [`Module::tick`].
    fn tick(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        let _ = (now_ns, out);
        Progress::Done
    }
    /// Frees memory, like [`Module::pressure`].
    fn pressure(&mut self, free: u64, out: &mut Out) {
        let _ = (free, out);
    }
    /// Ends the instance, like [`Module::end`].
    fn end(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        let _ = (now_ns, out);
        Progress::Done
    }
}

/// The slow path: one instance, which merges the messages that the fast ones send with [`Out::message`].
pub trait Slow: Sized {
    /// Creates the instance, like [`Module::new`].
    fn new(init: &Init) -> Self;
    /// Receives one message of a fast instance. On live sources, messages are lost if too many wait.
    fn message(&mut self, bytes: &[u8], out: &mut Out);
    /// Serves a call of one of the module's services (`[[services]]` in its manifest). [`Out::reply`]
    /// replies, now or later. Only of a module that is exported with `serve`.
    fn serve(&mut self, request: &Request<'_>, out: &mut Out) {
        let _ = (request, out);
    }
    /// Receives the outcome of a call of a service ([`Out::call`]), of the fast or the slow instance. Only of
    /// a module that is exported with `done`.
    fn done(&mut self, reply: &Reply<'_>, out: &mut Out) {
        let _ = (reply, out);
    }
    /// Exports the state, like [`Module::export`]; the slow instance has a state of its own.
    fn export(&mut self, state: &mut Vec<u8>) {
        let _ = state;
    }
    /// Imports a state, like [`Module::import`].
    fn import(&mut self, state: &[u8]) -> bool {
        let _ = state;
        false
    }
    /// Handles a tick, after every worker has passed it.
    fn tick(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        let _ = (now_ns, out);
        Progress::Done
    }
    /// Frees memory, like [`Module::pressure`].
    fn pressure(&mut self, free: u64, out: &mut Out) {
        let _ = (free, out);
    }
    /// Ends the instance: its last call.
    fn end(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        let _ = (now_ns, out);
        Progress::Done
    }
}

/// A placeholder for the slow path of a module that has none, see [`export!`].
#[doc(hidden)]
pub enum NoSlow {}

impl Slow for NoSlow {
    fn new(_: &Init) -> Self {
        unreachable!("the host starts a slow instance only of modules that export one")
    }
    fn message(&mut self, _: &[u8], _: &mut Out) {}
}
