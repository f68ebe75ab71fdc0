use flame_plan::Shed;
use flame_record::OutputError;
use std::fmt;

/// What ended an instance. Its store is dropped; nothing else is touched.
#[derive(Debug)]
pub struct Fault {
    /// The export that was running.
    pub call: &'static str,
    pub kind: FaultKind,
    /// Index in the batch of the packet it was at, if the module marks its packets.
    pub packet: Option<u32>,
    /// Innermost first.
    pub backtrace: Vec<Frame>,
    /// What the module itself said, such as a Rust panic's message.
    pub said: Option<String>,
}

#[derive(Debug)]
pub enum FaultKind {
    /// A Wasm trap, in Wasmtime's words.
    Trap(String),
    /// The work of one packet or one call exceeded its budget.
    Budget {
        limit: u64,
        /// Where in the file the loop begins that used it up, if one did.
        place: Option<u32>,
    },
    /// The call ran past its deadline, in code that has no counters because its bound seemed proved.
    BoundViolated { deadline_ns: u64 },
    /// The output does not fit the manifest.
    Output(Box<OutputError>),
    /// The output lies outside the module's memory or is too large.
    OutputPlace { address: u32, bytes: u32, memory: usize, limit: u32 },
    /// It asked to be called again more often than it may.
    Continuations(u32),
    /// It could not be instantiated.
    Start(String),
}

/// One function of a backtrace.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    /// The name section's, demangled, or the function's number.
    pub function: String,
    /// Offset in the rewritten module's code.
    pub offset: Option<usize>,
}

impl Fault {
    /// Whether the module must not run without counters any more.
    pub fn violates_bound(&self) -> bool {
        matches!(self.kind, FaultKind::BoundViolated { .. })
    }

    /// What the packets it was given count as.
    pub fn cause(&self) -> Shed {
        match self.kind {
            FaultKind::Budget { .. } => Shed::Budget,
            FaultKind::BoundViolated { .. } => Shed::Bound,
            FaultKind::Trap(_) | FaultKind::Start(_) => Shed::Trap,
            FaultKind::Output(_) | FaultKind::OutputPlace { .. } | FaultKind::Continuations(_) => {
                Shed::Output
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.call)?;
        match &self.kind {
            FaultKind::Trap(text) => write!(f, "trap: {text}")?,
            FaultKind::Budget { limit, place } => write!(
                f,
                "cut off{}: used up its budget of {limit} (its manifest may ask for more: limits.packet_budget, limits.call_budget; `--packet-budget` is what it may get)",
                place.map_or_else(String::new, |at| format!(" in the loop at byte {at}"))
            )?,
            FaultKind::BoundViolated { deadline_ns } => write!(
                f,
                "bound violated: it ran for more than {} ms in code that no counter ends. Unless it runs unchecked, what was proved of it is \
                 wrong: please report the module. This run goes on without it; from the next one on it is metered (with `--metered` at once)",
                deadline_ns / 1_000_000
            )?,
            FaultKind::Output(error) => write!(f, "{error}")?,
            FaultKind::OutputPlace { address, bytes, memory, limit } => write!(
                f,
                "output of {bytes} bytes at {address:#x}: expected at most {limit} bytes inside its {memory} bytes of memory"
            )?,
            FaultKind::Continuations(limit) => write!(f, "asked for more than {limit} further calls")?,
            FaultKind::Start(text) => f.write_str(text)?,
        }
        if let Some(said) = &self.said {
            write!(f, "\n  it said: {said}")?;
        }
        for (i, frame) in self.backtrace.iter().enumerate() {
            write!(f, "\n  {i}: {}", frame.function)?;
            if let Some(offset) = frame.offset {
                write!(f, " +{offset:#x}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}
