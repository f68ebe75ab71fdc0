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
    /// The output does not fit the manifest.
    Output(Box<OutputError>),
    /// The output lies outside the module's memory or is too large.
    OutputPlace { address: u32, bytes: u32, memory: usize, limit: u32 },
    /// It asked to be called again more often than it may.
    Continuations(u32),
    /// It could not be instantiated.
    Start(String),
}

/// Characters of a function's name that are told.
pub const MAX_NAME: usize = 200;

/// One function of a backtrace.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its number in the module.
    pub index: u32,
    /// The name section's, demangled and cut, or its number.
    pub function: String,
    /// Offset in the rewritten module's code.
    pub offset: Option<usize>,
}

impl Fault {
    /// What is told of it. Under a grant that is what happened, in which call, and in which function by its number:
    /// no text and no other number of the module's making.
    pub fn text(&self, granted: bool) -> String {
        if !granted {
            return self.to_string();
        }
        let what = match &self.kind {
            // One of the engine's few words.
            FaultKind::Trap(text) => format!("trap: {}", text.chars().take(MAX_NAME).collect::<String>()),
            FaultKind::Budget { limit, .. } => format!("cut off: used up its budget of {limit}"),
            FaultKind::Start(_) => "could not be started".to_owned(),
            FaultKind::Output(_) => "its output does not fit its manifest".to_owned(),
            FaultKind::OutputPlace { .. } => "its output lies outside its memory or is too large".to_owned(),
            FaultKind::Continuations(limit) => format!("asked for more than {limit} further calls"),
        };
        let place = self.backtrace.first().map_or(String::new(), |f| format!(", in function {}", f.index));
        format!("{}: {what}{place}", self.call)
    }

    /// What the packets it was given count as.
    pub fn cause(&self) -> Shed {
        match self.kind {
            FaultKind::Budget { .. } => Shed::Budget,
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
