//! The one value that control hands to the workers, and the accounts that come back.
//!
//! Pure data: a plan can be sent to another process ([`serde`]) and never changes under a worker. Commands to
//! a running worker, such as evicting a module, name it by its [`ModuleId`].
#![forbid(unsafe_code)]

mod account;
mod catalog;
mod filter;
mod name;
mod reason;
mod terms;
mod view;
mod wire;

pub use account::{Account, Shed};
pub use catalog::{Catalog, CatalogEntry};
pub use filter::{
    MAX_FILTER, MAX_SHOWN_FILTER, MAX_SHOWN_FILTERS, MAX_SHOWN_TOTAL, MAX_SHOWN_VALUES, MAX_SHOWN_WORDS,
    ShownFilter, TrustedFilter, normalize_filter,
};
pub use name::{MAX_NAME, readable_name};
pub use reason::{Overrun, Reason};
pub use terms::{Release, Share, Terms, TimeLimit};
pub use view::{Action, Expose, Field, MAX_HEADERS, Transforms, ViewKey, ViewSpec, quantize};

use flame_abi::manifest::Manifest;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The modules to run, and over how many workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub modules: Vec<ModulePlan>,
    pub workers: usize,
    /// `--interval` in nanoseconds of packet time; 0 when none was asked for.
    pub interval_ns: u64,
}

/// Time between ticks when no interval was asked for.
pub const DEFAULT_TICK_NS: u64 = 1_000_000_000;

impl Plan {
    /// Makes a plan, in which modules are numbered by their place.
    pub fn new(mut modules: Vec<ModulePlan>, workers: usize, interval_ns: u64) -> Self {
        for (id, module) in (0..).zip(&mut modules) {
            module.id = ModuleId(id);
        }
        Self { modules, workers, interval_ns }
    }

    /// Returns what an output has to know of the modules.
    pub fn catalog(&self) -> Catalog {
        Catalog { modules: self.modules.iter().map(ModulePlan::catalog_entry).collect() }
    }

    /// Nanoseconds of packet time between two ticks. Ticks fall on multiples of it since 1970, so
    /// that two monitors tick alike.
    ///
    /// A tick cuts the stream of packets, so it falls only where every view may see a time: on multiples of
    /// all resolutions, however short the interval that was asked for.
    pub fn tick_ns(&self) -> u64 {
        let asked = if self.interval_ns == 0 { DEFAULT_TICK_NS } else { self.interval_ns };
        let finest = self.modules.iter().fold(1, |all, m| least_common_multiple(all, m.view.resolution_ns));
        asked.div_ceil(finest).saturating_mul(finest)
    }
}

/// The least common multiple, 0 counting as 1; `u64::MAX`, which no time is a multiple of, where it does not
/// fit.
pub fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (a, b) = (a.max(1), b.max(1));
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    (a / x).saturating_mul(b)
}

/// A module within a plan, and in commands to a worker that runs it. Never used again for another module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ModuleId(pub u32);

/// One module, ready to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModulePlan {
    pub id: ModuleId,
    /// Unique within the plan; the manifest's name unless two modules share it.
    pub name: String,
    /// SHA-256 of the `.wasm` file.
    pub hash: [u8; 32],
    #[serde(with = "wire::manifest")]
    pub manifest: Arc<Manifest>,
    /// Machine code that this node's own compiler made. Never bytes from outside.
    #[serde(with = "wire::code")]
    pub code: Arc<[u8]>,
    pub view: ViewSpec,
    pub limits: Limits,
    /// Encoded parameters, see [`flame_abi::config`].
    pub parameters: Vec<u8>,
    pub on_fault: OnFault,
    pub terms: Terms,
    pub class: ModuleClass,
}

impl ModulePlan {
    pub fn catalog_entry(&self) -> CatalogEntry {
        CatalogEntry { name: self.name.clone(), hash: self.hash, manifest: self.manifest.clone() }
    }
}

/// How a module is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ModuleClass {
    /// Its batches are proved to end in time: compiled without checks, run to completion on the worker.
    Bounded,
    /// Compiled with counters and checks for interruption, run on a fiber that the worker takes back when a
    /// slice of time is over.
    #[default]
    Metered,
}

/// What happens after a trap, a budget overrun or a wild record. The faulty store is always dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnFault {
    /// The module gets no more packets on that worker; they are counted as shed.
    Stop,
    /// A new, empty instance takes over, at most this many times per worker.
    Restart(u32),
}

/// Per instance. Exceeding one ends the instance, named, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of linear memory the module may own.
    pub memory: u32,
    /// Elements of all its tables together.
    pub table_elements: u32,
    /// Units of work one packet may cost: executed loop iterations and calls, weighted by the
    /// instructions in them. Counted by the module's own rewritten code, so it replays exactly.
    pub packet_budget: u64,
    /// Units of work that these may cost together: a call of init; a tick, or the end, with all calls that
    /// follow it because there is more output; all messages that one call of a fast instance sent, for the
    /// slow one; and, once the run is stopped, everything but batches that an instance is still called for.
    /// Each call costs [`flame_abi::CALL_UNITS`] at least, and a unit for each byte of its output.
    pub call_budget: u64,
    /// Bytes one call may return as output.
    pub output_per_call: u32,
    /// Calls of tick or end that may follow because the module has more output.
    pub continuations: u32,
    /// Messages that one call of a fast instance may send.
    pub messages: u32,
    /// Nanoseconds of processor time after which a batch that is proved to end is taken for one that does
    /// not, [`LEAST_DEADLINE_NS`] to [`MOST_DEADLINE_NS`].
    pub batch_deadline_ns: u64,
    /// The same for init, tick, end and message.
    pub call_deadline_ns: u64,
}

/// Shortest deadline of a call: what a machine does of its own takes less.
pub const LEAST_DEADLINE_NS: u64 = 100_000_000;
/// Longest deadline of a call.
pub const MOST_DEADLINE_NS: u64 = 1_000_000_000;

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 256 << 20,
            table_elements: 65_536,
            packet_budget: 1_000_000,
            call_budget: 1_000_000_000,
            // A batch of the largest packets, written out again.
            output_per_call: 17 << 20,
            continuations: 65_536,
            messages: 4096,
            batch_deadline_ns: MOST_DEADLINE_NS,
            call_deadline_ns: MOST_DEADLINE_NS,
        }
    }
}
