//! Write a FLAME module in Rust.
//!
//! Implement [`Module`] for the fast path and, if results of several workers must be merged,
//! [`Slow`] for the slow path; name them in [`export!`]; describe parameters and tables in
//! `module.toml`. The same source builds natively, where [`testing`] runs it.
//!
//! ```ignore
//! impl Module for Count {
//!     fn new(_: &Init) -> Self { Self::default() }
//!     fn batch(&mut self, batch: &Batch, _: &mut Out) {
//!         for packet in batch.packets() { self.bytes += u64::from(packet.wire_len); }
//!     }
//!     fn end(&mut self, _: u64, out: &mut Out) -> Progress {
//!         out.row(0).u64(self.bytes).finish();
//!         Progress::Done
//!     }
//! }
//! flame_module::export!(Count);
//! ```

mod batch;
mod glue;
#[cfg(all(target_arch = "wasm32", feature = "heap"))]
mod heap;
#[cfg(all(test, not(target_arch = "wasm32")))]
#[path = "heap/class.rs"]
mod heap_class;
mod init;
mod out;
mod scan;
#[cfg(not(target_family = "wasm"))]
pub mod testing;

pub use batch::{Batch, Ip, Packet};
pub use flame_abi::{Descriptor, LinkType, MAX_BATCH, flags, tcp};
#[doc(hidden)]
pub use glue::Slot;
pub use glue::cold;
pub use init::Init;
pub use out::{Out, Row};
pub use scan::Scan;

/// Whether a call is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Done,
    /// The output area is full ([`Out::room`]): take what is there and call again.
    More,
}

/// The fast path: one instance a worker, which sees the packets.
pub trait Module: Sized {
    fn new(init: &Init) -> Self;
    /// Up to 256 packets. Output must fit the output area; rows beyond it are counted as lost.
    fn batch(&mut self, batch: &Batch, out: &mut Out);
    /// Once per interval of packet time (see [`Init::tick_ns`]).
    fn tick(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        let _ = (now_ns, out);
        Progress::Done
    }
    /// The last call.
    fn end(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        let _ = (now_ns, out);
        Progress::Done
    }
}

/// The slow path: one instance, which merges what the fast ones send with [`Out::message`].
pub trait Slow: Sized {
    fn new(init: &Init) -> Self;
    fn message(&mut self, bytes: &[u8], out: &mut Out);
    /// After every worker has passed this tick.
    fn tick(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        let _ = (now_ns, out);
        Progress::Done
    }
    fn end(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        let _ = (now_ns, out);
        Progress::Done
    }
}

/// A fast path where only a slow one is called, and the other way round: see [`export!`].
#[doc(hidden)]
pub enum NoSlow {}

impl Slow for NoSlow {
    fn new(_: &Init) -> Self {
        unreachable!("the host starts a slow instance only of modules that export one")
    }
    fn message(&mut self, _: &[u8], _: &mut Out) {}
}
