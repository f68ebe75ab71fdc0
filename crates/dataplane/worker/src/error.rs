use flame_plan::ModuleId;

/// The reason why a run could not begin or continue. A fault of a module is never such an error.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Source(#[from] flame_source::SourceError),
    #[error(transparent)]
    View(#[from] flame_view::ViewError),
    #[error(transparent)]
    Block(#[from] flame_block::BlockError),
    #[error(transparent)]
    Sink(#[from] flame_record::SinkError),
    #[error(transparent)]
    Load(#[from] flame_execute::LoadError),
    #[error("more than {} modules share a view: run them in two commands", flame_block::MAX_READERS)]
    TooManyModules,
    #[error("a live source for each of {expected} workers, found {found}")]
    Sources { expected: usize, found: usize },
    #[error("module number {} was used in this run: give each module a number of its own", .0.0)]
    Duplicate(ModuleId),
    #[error("no module has number {}", .0.0)]
    Unknown(ModuleId),
    /// Ticks fall only on times that every view shows, and their period was fixed when the run began.
    #[error(
        "its view shows times in steps of {resolution_ns} ns, which do not divide the {tick_ns} ns between two ticks of this run: \
         choose a resolution that does, or start the run with this module"
    )]
    Resolution { resolution_ns: u64, tick_ns: u64 },
    #[error("{0}: {1} (the program in which modules of others run; it is installed beside `flame`)")]
    Process(String, std::io::Error),
    #[error("{0} needs a process of its own, and this run has none: set the program for processes")]
    NoProcess(String),
    #[error(
        "{0}: no memory of its credential is left for a process of its own: other modules have it (lower their [limits] memory, or run fewer)"
    )]
    Memory(String),
    #[error("the kernel does not reserve the processor time: {0}")]
    Time(std::io::Error),
    #[error("starting a thread: {0}")]
    Thread(String),
    #[error("{0} forwards packets: it is an element of a graph (`flame click`), where they go on")]
    Forwards(String),
    #[error(
        "{0} changes packets, and its view transforms fields: their true values could not be kept apart from what it changes; grant it a view without transforms, or no modify"
    )]
    Transformed(String),
    #[error("{module}, channel {channel}: filter: {reason}")]
    Channel { module: String, channel: String, reason: String },
    #[error("{module}, event queue {queue}: {reason}")]
    Queue { module: String, queue: String, reason: String },
    #[error("{module} has {reason}: give it more blocks (buffer of its grant, or its reservation)")]
    Queues { module: String, reason: String },
    #[error("{module} offers the service {service:?}, which {by} offers already")]
    Service { module: String, service: String, by: String },
    #[error(
        "{0} shares memory with other modules: those of one `flame run` without --isolate do, and those of one graph, but not those of processes and nodes"
    )]
    Shares(String),
    #[error("{module} shares memory with other modules, which needs one worker, and this run has {workers}")]
    SharesAmong { module: String, workers: usize },
    #[error(transparent)]
    Area(#[from] flame_run::AreaError),
    #[error(transparent)]
    Link(#[from] flame_transmit::LinkError),
    #[error("the run has ended")]
    Ended,
    /// A worker ended before its work did. If it has its own error, that is reported instead.
    #[error("a worker stopped early")]
    Broken,
}
