//! The plan, which control hands to the workers, and the accounts that the workers return.
//!
//! A plan is pure data: it can be sent to another process ([`serde`]) and never changes while a worker runs
//! it. Commands to a running worker, such as evicting a module, name the module by its [`ModuleId`].
#![forbid(unsafe_code)]

mod account;
mod audience;
mod catalog;
mod decision;
mod discipline;
mod fault;
mod filter;
pub mod limits;
mod name;
mod names;
mod reads;
mod reason;
mod terms;
mod text;
mod view;
mod wire;
mod words;

pub use account::{Account, Processed, QueueAccount, Shed, Unsent, rounded};
pub use audience::{Audience, RunTotals, ShownTotals};
pub use catalog::{Catalog, CatalogEntry};
pub use decision::{Decided, Decision, Fate, GROWTH_MAX};
pub use discipline::{Discipline, Placement, ServiceTime, Turns};
pub use fault::{CallName, Calls, CutOff, FaultClass, FaultReport};
pub use filter::{
    MAX_FILTER, MAX_SHOWN_FILTER, MAX_SHOWN_FILTERS, MAX_SHOWN_TOTAL, MAX_SHOWN_VALUES, MAX_SHOWN_WORDS,
    ShownFilter, TrustedFilter, normalize_filter,
};
pub use name::{MAX_NAME, readable_name};
pub use reads::Reads;
pub use reason::{Overrun, Reason};
pub use terms::{Forward, LOGS_PER_SECOND, Release, Sending, Services, Share, Terms, TimeLimit};
pub use view::{Action, Expose, Field, MAX_HEADERS, Seen, Stage, Transforms, ViewKey, ViewSpec, quantize};
pub use words::{filter_metadata, filter_words};

use flame_abi::manifest::{Manifest, Queue};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The modules to run, and the number of workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub modules: Vec<ModulePlan>,
    pub workers: usize,
    /// The value of `--interval` in nanoseconds of packet time, or 0 if it was not given.
    pub interval_ns: u64,
}

/// The time between ticks in nanoseconds if no interval was given.
pub const DEFAULT_TICK_NS: u64 = 1_000_000_000;

impl Plan {
    /// Creates a plan and numbers the modules by their position.
    pub fn new(mut modules: Vec<ModulePlan>, workers: usize, interval_ns: u64) -> Self {
        for (id, module) in (0..).zip(&mut modules) {
            module.id = ModuleId(id);
        }
        Self { modules, workers, interval_ns }
    }

    /// Returns the names and tables of the modules, for an output.
    pub fn catalog(&self) -> Catalog {
        Catalog { modules: self.modules.iter().map(ModulePlan::catalog_entry).collect() }
    }

    /// Returns the nanoseconds of packet time between two ticks. Ticks fall on its multiples since 1970, so
    /// that all monitors tick at the same times.
    ///
    /// A tick divides the stream of packets, so it may only fall on times that every view shows: on multiples
    /// of all resolutions, even if the given interval is shorter.
    pub fn tick_ns(&self) -> u64 {
        let asked = if self.interval_ns == 0 { DEFAULT_TICK_NS } else { self.interval_ns };
        let finest = self.modules.iter().fold(1, |all, m| least_common_multiple(all, m.view.resolution_ns));
        asked.div_ceil(finest).saturating_mul(finest)
    }
}

/// Returns the least common multiple, with 0 counted as 1. On overflow returns `u64::MAX`, of which no time
/// is a multiple.
pub fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (a, b) = (a.max(1), b.max(1));
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    (a / x).saturating_mul(b)
}

/// The number of a module within a plan, and in commands to the workers that run it. It must not be reused
/// for another module of the same run, because accounts are kept by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ModuleId(pub u32);

/// One module, ready to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModulePlan {
    pub id: ModuleId,
    /// The name, unique within the plan: the manifest's name unless two modules share it.
    pub name: String,
    /// The SHA-256 of the `.wasm` file.
    pub hash: [u8; 32],
    #[serde(with = "wire::manifest")]
    pub manifest: Arc<Manifest>,
    /// Machine code made by this node's own compiler, never bytes from outside.
    #[serde(with = "wire::code")]
    pub code: Arc<[u8]>,
    pub view: ViewSpec,
    pub limits: Limits,
    /// The encoded parameters (see [`flame_abi::config`]).
    pub parameters: Vec<u8>,
    /// The large texts among the parameters, as they lie from [`flame_abi::layout::TEXTS`] on.
    pub texts: Vec<u8>,
    pub on_fault: OnFault,
    pub terms: Terms,
    pub class: ModuleClass,
    /// The name of the process in which the module runs with others of its principal, or `None` to run in the
    /// worker's own.
    pub process: Option<String>,
    /// The tenant to which the module belongs: modules of one share its turns at services. `None` for modules
    /// of the operator.
    pub tenant: Option<String>,
    /// The seed of its random numbers, if its manifest asks for one.
    pub seed: Option<u64>,
}

impl ModulePlan {
    /// Returns the place where its calls are made.
    pub fn placement(&self) -> Placement {
        if self.process.is_some() { Placement::Process } else { Placement::Inline }
    }

    /// Returns whether it is shown whole intervals only: its view shows times in steps, and its output is
    /// released while packets arrive.
    pub fn shows_whole_intervals(&self, discipline: Discipline) -> bool {
        discipline.releases_by_interval() && self.view.has_steps()
    }

    /// Returns the packet time in nanoseconds between two of its ticks, in a run with a tick each `tick_ns`:
    /// a multiple of all that its view and its grant ask for; `u64::MAX` if it has none.
    pub fn tick_ns(&self, tick_ns: u64) -> u64 {
        least_common_multiple(self.view.resolution_ns, self.terms.tick_ns(tick_ns))
    }

    /// Returns the number of blocks that may wait in each event queue on a worker: those that the manifest
    /// asks for, or fewer if the grant or the reservation have fewer. Empty for a module without queues.
    ///
    /// # Errors
    ///
    /// Returns an error if there are fewer blocks than queues.
    pub fn queue_blocks(&self) -> Result<Vec<usize>, String> {
        blocks_of(&self.manifest.queues, self.terms.buffer)
    }

    /// Returns the account of the module before its first packet.
    pub fn empty_account(&self) -> Account {
        Account::with_queues(self.manifest.queues.iter().map(|queue| queue.name.clone()))
    }

    /// Returns the module's entry in the catalogue of tables.
    pub fn catalog_entry(&self) -> CatalogEntry {
        CatalogEntry { name: self.name.clone(), hash: self.hash, manifest: self.manifest.clone() }
    }
}

/// Returns the number of blocks of each of these queues if at most `buffer` may wait, where 0 stands for no
/// limit. Blocks are taken from the longest queues, of equal ones from the later.
///
/// # Errors
///
/// Returns an error if there are fewer blocks than queues.
pub fn blocks_of(queues: &[Queue], buffer: u32) -> Result<Vec<usize>, String> {
    let mut blocks: Vec<usize> = queues.iter().map(|queue| queue.blocks as usize).collect();
    let most = if buffer == 0 { usize::MAX } else { buffer as usize };
    if blocks.len() > most {
        return Err(format!("{} event queues need a block each, and {most} may wait", blocks.len()));
    }
    while blocks.iter().sum::<usize>() > most {
        // The last of equal ones.
        let Some(longest) = blocks.iter_mut().max() else { break };
        *longest -= 1;
    }
    Ok(blocks)
}

/// The way in which a module is compiled and run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ModuleClass {
    /// Its batches are proved to end in time. It is compiled without counters and runs to completion on the
    /// worker.
    Bounded,
    /// It is compiled with counters and checks for interruption, and runs on a fiber that yields to the
    /// worker at the end of each slice.
    #[default]
    Metered,
}

impl ModuleClass {
    /// Returns the fuel with which a call begins that the class is decided by: a batch, for each of its
    /// packets, or a call for the rest of a batch's output. Such a call may cost `units`.
    ///
    /// A call of a bounded module is proved to cost no more. Some of its functions have counters, since calls
    /// without a proof reach them as well, or functions that diverge; and counters charge branches that are
    /// not taken. So it has more fuel than any call can use, even for each of 512 packets. Functions that
    /// diverge limit it.
    pub fn fuel(self, units: u64) -> i64 {
        const MOST: i64 = i64::MAX / 512;
        match self {
            Self::Bounded => MOST,
            Self::Metered => i64::try_from(units).map_or(MOST, |units| units.min(MOST)),
        }
    }
}

/// The consequence of a trap, a budget overrun or invalid output. The faulty store is always dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnFault {
    /// The module receives no more packets on that worker. They are counted as shed.
    Stop,
    /// A new, empty instance replaces the faulty one, at most this many times per worker.
    Restart(u32),
}

/// The limits of one instance. Exceeding one ends only that instance, with a report that names the limit. A
/// growth of memory or tables beyond its limit fails instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The bytes of linear memory that the module may own.
    pub memory: u32,
    /// The number of elements of all its Wasm tables together.
    pub table_elements: u32,
    /// The units of work that one packet may cost: executed loop iterations and calls, weighted by their
    /// instructions. The module's rewritten code counts them itself, so the count is reproducible.
    pub packet_budget: u64,
    /// The units of work that each of these may cost as a whole:
    ///
    /// - a call of init;
    /// - a tick, or the end, with the calls that follow it for more output;
    /// - a call because of memory pressure, with the calls for the rest of its output;
    /// - for the slow instance, all messages that one call of a fast instance sent;
    /// - once the run is stopped, all further calls of an instance other than batches and init.
    ///
    /// For a bounded module, whose calls cannot be interrupted, it is at most [`longest_call`].
    /// The calls for the rest of a batch's output may cost as much as the budgets of its packets instead.
    ///
    /// Each call costs at least [`flame_abi::CALL_UNITS`], plus one unit for each byte of its output.
    pub call_budget: u64,
    /// The bytes that one call may return as output.
    pub output_per_call: u32,
    /// The number of calls of tick or end that may follow for more output.
    pub continuations: u32,
    /// The number of packets that a batch may have, at most [`flame_abi::MAX_BATCH`].
    ///
    /// For a bounded module, as many as its bound lets pass without an interruption, if each of them costs as
    /// much as the longest packet that it may see allows.
    pub batch: u32,
    /// The number of calls for the rest of a batch's output, if the module is bounded: nothing counts them.
    pub rests: Option<Rests>,
    /// The calls besides batches that end within a slice by their bounds, if the module is bounded.
    pub short: Calls,
    /// The number of messages that one call of a fast instance may send.
    pub messages: u32,
    /// The nanoseconds of processor time after which a call of a bounded module is stopped, at most
    /// [`limits::CALL_DEADLINE_MAX`]: nothing interrupts it, whatever is proved of it.
    pub deadline_ns: u64,
}

/// The calls for the rest of a batch's output that a bounded module may ask for: as many as cost no more than
/// the batch itself, by its bound. One is always allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rests {
    /// The bound of a batch, in units: for the call, and for each packet.
    pub call: u64,
    pub packet: u64,
    /// The units that one call for the rest costs at most.
    pub each: u64,
}

impl Rests {
    /// Returns the bound of a batch of `packets`, in units.
    pub fn of_batch(self, packets: u32) -> u64 {
        self.packet.saturating_mul(packets.into()).saturating_add(self.call)
    }

    /// Returns the number of calls that may follow a batch of `packets`.
    pub fn after(self, packets: u32) -> u32 {
        u32::try_from(self.of_batch(packets) / self.each.max(1)).unwrap_or(u32::MAX).max(1)
    }
}

/// The units that each frame of a batch's output costs, besides one for each of its bytes: the host checks
/// and delivers each frame.
pub const FRAME_UNITS: u64 = 16;

/// The units that the output of a batch may cost whatever the number and the budgets of its packets.
const BATCH_OUTPUT: u64 = 1 << 20;

impl Limits {
    /// Returns the units that the output of a batch of `packets` and of the calls for its rest may cost: as
    /// many as the packets themselves, and some more.
    pub fn batch_output(&self, packets: u32) -> u64 {
        self.packet_budget.saturating_mul(packets.into()).saturating_add(BATCH_OUTPUT)
    }
}

/// Returns the units that a call of a bounded module may cost: those of a full batch. Nothing interrupts
/// either.
pub fn longest_call(packet_budget: u64) -> u64 {
    packet_budget.saturating_mul(flame_abi::MAX_BATCH as u64).max(flame_abi::CALL_UNITS)
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 256 << 20,
            table_elements: 65_536,
            packet_budget: 1_000_000,
            call_budget: 1_000_000_000,
            // Enough to write out a batch of the largest packets again.
            output_per_call: 17 << 20,
            continuations: 65_536,
            batch: flame_abi::MAX_BATCH as u32,
            rests: None,
            short: Calls::default(),
            messages: 4096,
            deadline_ns: limits::CALL_DEADLINE_MAX.as_nanos() as u64,
        }
    }
}
