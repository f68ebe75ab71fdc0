//! The modules of `Module` elements. The program that runs the graph prepares them under its policy, which
//! this crate does not know; here they run.

mod charged;
mod records;
mod running;

pub use records::Records;
pub use running::{Kept, ModuleError, Notify, Running};

use flame_plan::Discipline;

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
    /// The discipline of the module's run, one of a graph.
    pub discipline: Discipline,
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
    fn continues(&self, running: &Running) -> bool;

    /// Starts the module, once. It does not run before its element needs it. What its grant requires, such as
    /// the audit log's entry and the watch that evicts it, exists as long as the returned value.
    ///
    /// # Errors
    ///
    /// Returns an error if its memory, its output or the audit log is not available.
    fn start(self: Box<Self>) -> Result<Running, ModuleError>;
}
