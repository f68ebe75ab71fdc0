//! The needs of `Module` elements in the program that runs modules: its engine, its policy, its outputs. This
//! crate knows none of them.

use flame_abi::LinkType;
use flame_plan::{Account, Decision, Pace};
use flame_source::{Frame, RawBlock};

/// The arguments of a `Module` element.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleArgs {
    /// The name of the element.
    pub element: String,
    /// The module's file or name.
    pub file: String,
    /// The files of the credential and of its holder's key.
    pub credential: Option<String>,
    pub identity: Option<String>,
    /// Values of the module's parameters. `@FILE` stands for the text of a file.
    pub settings: Vec<(String, String)>,
    /// The bytes to expose, filters and transforms that narrow the view.
    pub expose: Option<String>,
    pub select: Vec<String>,
    pub transform: Vec<String>,
    /// The packet time between reports, such as `10s`.
    pub interval: Option<String>,
    /// The number of restarts after faults.
    pub restarts: u32,
    /// Calls of a live metered module are cut into slices, between which other elements work. The element
    /// waits after each of its batches for a stepwise module, wherever that runs.
    pub pace: Pace,
    /// The largest work per packet, for modules that request more than the default.
    pub packet_budget: Option<u64>,
    /// The time that a packet may take, such as `2us`.
    pub limit: Option<String>,
    /// The number of bytes of the longest packet that the module gets. The view cuts there; none of those
    /// that a module forwards is longer.
    pub max_length: Option<u32>,
    /// The number of packets that can wait for the module.
    pub capacity: usize,
    /// The numbers of inputs and outputs that the graph connects.
    pub inputs: usize,
    pub outputs: usize,
}

/// A program that runs modules, for elements of all threads.
pub trait Modules: Send + Sync {
    /// Begins the modules of a whole graph: one that replaces another has memory of its own that its modules
    /// share, but for areas that both name.
    fn configure(&self) {}

    /// Examines, admits and compiles a module.
    ///
    /// # Errors
    ///
    /// Returns the reason why the module cannot run with these arguments.
    fn prepare(&self, args: &ModuleArgs) -> Result<Box<dyn Prepared>, String>;

    /// Opens the output of records, before the first packet.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be created.
    fn begin(&self) -> Result<(), String>;

    /// Completes the files of records, after the last element has ended.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be written.
    fn finish(&self) -> Result<(), String>;
}

/// A module that may run.
pub trait Prepared: Send {
    /// Returns whether the module decides about packets, instead of measuring them.
    fn forwards(&self) -> bool;

    /// Returns the most nanoseconds that a packet costs on this machine, by the bound of the module's code.
    ///
    /// # Errors
    ///
    /// Returns the reason why there is no bound.
    fn cost_ns(&self) -> Result<f64, String>;

    /// Returns the class of this cost, E1 to E7: the quantity on which it depends. Only a check finds it.
    fn cost_class(&self) -> Option<&'static str>;

    /// Returns whether this module would do as one that runs: it has the same code, parameters, ports and
    /// rights.
    fn continues(&self, running: &dyn Running) -> bool;

    /// Starts the module, once. It does not run before its element needs it. What its grant requires, such as
    /// the audit log's entry and the watch that evicts it, exists as long as the returned value.
    ///
    /// # Errors
    ///
    /// Returns an error if its memory, its output or the audit log is not available.
    fn start(self: Box<Self>) -> Result<Box<dyn Running>, String>;
}

/// The fate of a packet that was pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The module's view does not show it.
    Unseen,
    /// It is among [`Decisions::decisions`].
    Sent,
    /// It is dropped for a cause that is the module's.
    Dropped(&'static str),
    /// The module is gone, or failed at this packet.
    Lost(&'static str),
}

/// The decisions of a module about the packets of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// The output to which all packets go as they came, if the module decided nothing else. The lists are
    /// empty then.
    pub all_to: Option<usize>,
    /// The fate of each packet.
    pub fates: Vec<Fate>,
    /// The packets to send and to hold, in the module's order.
    pub decisions: Vec<Decision>,
    pub bytes: Vec<u8>,
}

/// A module that runs for an element.
pub trait Running: std::any::Any + Send {
    /// Offers the packets of a block to a module that measures. Returns when it is done with them, or, if its
    /// calls are cut into slices, after the first one.
    ///
    /// # Errors
    ///
    /// Returns an error if its output failed. Faults of the module are none.
    fn packets(&mut self, block: &RawBlock) -> Result<(), String>;

    /// Offers packets from the input `port`, at most [`flame_abi::MAX_BATCH`] and at most
    /// [`flame_abi::MAX_BLOCK_BYTES`] without the last one, to a module that forwards, which is not busy.
    /// Returns the number of those that it takes. The others are to be offered later, since a tick falls
    /// before them.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Running::packets`].
    fn push(&mut self, port: usize, link: LinkType, packets: &[Frame<'_>]) -> Result<usize, String>;

    /// Returns the decisions about the packets that were pushed last, once it has made them all. `bytes`
    /// returns those of a packet, by its place among them: they are as they were.
    fn decided<'a>(&mut self, bytes: &'a dyn Fn(usize) -> &'a [u8]) -> Option<Decisions>;

    /// Continues a call that did not end within its slice. Returns whether one is left.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Running::packets`].
    fn resume(&mut self) -> Result<bool, String>;

    /// Returns whether a call has not ended, or packets or ticks wait.
    fn is_busy(&mut self) -> bool;

    /// Returns whether [`Running::resume`] would continue no call now, although one waits: the module has
    /// used up its share of time.
    fn is_waiting(&mut self) -> bool;

    /// Returns whether no instance of the module is left, because of a fault or because it lost its grant.
    fn is_gone(&mut self) -> bool;

    /// Waits for a while for a module that works elsewhere, unless it is live: what the functions below
    /// return includes the packets offered so far then.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Running::packets`].
    fn settle(&mut self) -> Result<(), String>;

    /// Handles what a module that works elsewhere has reported, although no packets come. Returns whether it
    /// has reported everything about the packets so far, or none if the module works here.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Running::packets`].
    fn look(&mut self) -> Result<Option<bool>, String>;

    /// Returns the account of the packets offered so far, as its reader may know it: under a grant in a live
    /// graph, as of the last tick.
    fn account(&mut self) -> Account;

    /// Returns the texts of the faults so far.
    fn faults(&self) -> Vec<String>;

    /// Makes the last calls and completes the records. `is_interrupted` leaves them little time.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Running::packets`].
    fn end(self: Box<Self>, is_interrupted: bool) -> Result<(), String>;
}
