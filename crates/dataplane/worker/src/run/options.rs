use crate::process::Runner;
use flame_execute::Keep;
use flame_plan::{ModuleId, Placement};
use flame_run::Area;
use flame_transmit::Link;
use flame_view::Key;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The options of a run that are not part of its plan.
#[derive(Clone)]
pub struct Options {
    pub decapsulate: bool,
    /// The maximum number of packets to read over all workers, unless each has packets of its own.
    pub count: u64,
    /// The maximum number of packets in a batch, 1 to 256.
    pub batch: usize,
    /// The key of the transforms `prefix` and `hash`.
    pub key: Option<Key>,
    /// The key that, with the flow hash, determines the worker of a flow where there are grants. The flows
    /// that share a worker then reveal nothing about their addresses.
    pub dispatch_key: Option<Key>,
    /// The flag that ends the run when it is set. All packets that were read are still processed and
    /// reported.
    pub stop: Arc<AtomicBool>,
    /// The program for modules in processes of their own ([`flame_plan::ModulePlan::process`]), or `None` if
    /// there are no such modules.
    pub runner: Option<Runner>,
    /// The number of processes that may count in the same meters, if there are several. A module in a process
    /// takes its part of their memory at its start. Otherwise one process shares it among its modules.
    pub sharers: Option<usize>,
    /// The state of modules that keep one, by their numbers.
    pub keeps: BTreeMap<ModuleId, Keep>,
    /// Areas that exist already, which modules of the run share if they name them.
    pub areas: Vec<Area>,
    /// The link on which modules send frames, or `None`: then they are counted as not sent. If modules are
    /// added while packets flow, their owner reserves its bandwidth (`Link::for_owner`): a module whose
    /// channels cannot be opened ends the run.
    pub link: Option<Arc<Link>>,
}

impl Options {
    /// Returns the place where modules of the run may be.
    pub(crate) fn placement(&self) -> Placement {
        if self.runner.is_some() { Placement::Process } else { Placement::Inline }
    }
}

/// No limits, no keys, and no modules in processes of their own.
impl Default for Options {
    fn default() -> Self {
        Self {
            decapsulate: false,
            count: u64::MAX,
            batch: flame_abi::MAX_BATCH,
            key: None,
            dispatch_key: None,
            stop: Arc::default(),
            runner: None,
            sharers: None,
            keeps: BTreeMap::new(),
            areas: Vec::new(),
            link: None,
        }
    }
}
