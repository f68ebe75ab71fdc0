use flame_output::OutputError;
use flame_plan::Shed;
use std::fmt;
use std::time::Duration;

/// The reason why an instance ended. Its store is dropped; nothing else is affected.
#[derive(Debug)]
pub struct Fault {
    /// The name of the export that was running.
    pub call: &'static str,
    pub kind: FaultKind,
    /// The index in the batch of the packet being processed, if the module marks its packets.
    pub packet: Option<u32>,
    /// The calls at the time of the fault, innermost first.
    pub backtrace: Vec<Frame>,
    /// The message of the module's own panic, if it exports one.
    pub panic_message: Option<String>,
}

#[derive(Debug)]
pub enum FaultKind {
    /// A Wasm trap, as Wasmtime describes it.
    Trap(String),
    /// The work of one packet, or of calls that share a budget, exceeded it.
    Budget {
        limit: u64,
        /// The offset in the file of the loop that used up the budget, if one did.
        place: Option<u32>,
        /// The number of calls that shared the budget.
        calls: u32,
    },
    /// Calls after the run was stopped exceeded the budget that they share.
    StopBudget { limit: u64, place: Option<u32>, calls: u32 },
    /// A batch or init was still running this long after the run was stopped.
    Interrupted(Duration),
    /// One call sent more messages than allowed.
    Messages { found: u64, limit: u32 },
    /// The call ran past its deadline in code that has no counters because its bound seemed proved.
    BoundViolated { deadline_ns: u64 },
    /// The output does not fit the manifest.
    Output(Box<OutputError>),
    /// The output lies outside the module's memory or is too large.
    OutputPlace { address: u32, bytes: u32, memory: usize, limit: u32 },
    /// The module requested further calls for output more often than allowed.
    Continuations(u32),
    /// The module requested `flame_rest`, which it does not export.
    NoRest,
    /// The instance could not be created, or a call could not be prepared.
    Start(String),
}

/// A function of a backtrace.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    /// The index of the function in the module.
    pub index: u32,
    /// The name in the name section, demangled and cut, or the index.
    pub function: String,
    /// The offset in the code of the rewritten module.
    pub offset: Option<usize>,
}

impl Fault {
    /// Creates a fault that the host found between two calls.
    pub fn between(call: &'static str, kind: FaultKind) -> Self {
        Self { call, kind, packet: None, backtrace: Vec::new(), panic_message: None }
    }

    /// Returns whether the module must no longer run without counters.
    pub fn violates_bound(&self) -> bool {
        matches!(self.kind, FaultKind::BoundViolated { .. })
    }

    /// Describes the fault. Under a grant the text has only the kind of fault, the call and the index of the
    /// function: no text and no other number that the module can choose.
    pub fn text(&self, granted: bool) -> String {
        if !granted {
            return self.to_string();
        }
        let what = match &self.kind {
            // One of the engine's few descriptions.
            FaultKind::Trap(text) => {
                format!("trap: {}", text.chars().take(flame_plan::MAX_NAME).collect::<String>())
            }
            FaultKind::Budget { limit, .. } => format!("cut off: used up its budget of {limit}"),
            FaultKind::StopBudget { limit, .. } => {
                format!("cut off: after the run was stopped it used up its budget of {limit}")
            }
            FaultKind::Interrupted(_) => "interrupted: it still ran after the run was stopped".to_owned(),
            FaultKind::Messages { limit, .. } => format!("sent more than {limit} messages in one call"),
            FaultKind::BoundViolated { .. } => {
                "bound violated: it ran past its deadline in code that no counter ends. \
                 This run goes on without it; from the next one on it is metered"
                    .to_owned()
            }
            FaultKind::Start(_) => "could not be started".to_owned(),
            FaultKind::Output(_) => "its output does not fit its manifest".to_owned(),
            FaultKind::OutputPlace { .. } => "its output lies outside its memory or is too large".to_owned(),
            FaultKind::Continuations(limit) => format!("asked for more than {limit} further calls"),
            FaultKind::NoRest => "asked for flame_rest, which it does not export".to_owned(),
        };
        let place = self.backtrace.first().map_or(String::new(), |f| format!(", in function {}", f.index));
        format!("{}: {what}{place}", self.call)
    }

    /// Returns the cause under which the packets of the call are shed.
    pub fn cause(&self) -> Shed {
        match self.kind {
            FaultKind::Budget { .. } | FaultKind::StopBudget { .. } => Shed::Budget,
            FaultKind::Interrupted(_) => Shed::Stopped,
            FaultKind::BoundViolated { .. } => Shed::Bound,
            FaultKind::Trap(_) | FaultKind::Start(_) => Shed::Trap,
            FaultKind::Output(_)
            | FaultKind::OutputPlace { .. }
            | FaultKind::Messages { .. }
            | FaultKind::Continuations(_)
            | FaultKind::NoRest => Shed::Output,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.call)?;
        match &self.kind {
            FaultKind::Trap(text) => write!(f, "trap: {text}")?,
            FaultKind::Budget { limit, place, calls } => write!(
                f,
                "cut off{}: used up its budget of {limit}{} (its manifest may ask for more: limits.packet_budget, limits.call_budget; `--packet-budget` is what it may get)",
                in_loop(*place),
                together(*calls)
            )?,
            FaultKind::StopBudget { limit, place, calls } => write!(
                f,
                "cut off{}: after the run was stopped it used up its budget of {limit}{} (limits.call_budget in its manifest)",
                in_loop(*place),
                together(*calls)
            )?,
            FaultKind::Interrupted(after) => {
                write!(f, "interrupted: it still ran {} ms after the run was stopped", after.as_millis())?
            }
            FaultKind::Messages { found, limit } => write!(
                f,
                "sent {found} messages in one call, at most {limit} are allowed (put more into each, or return from a tick for more)"
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
            FaultKind::NoRest => write!(
                f,
                "bit 30 of its result asks for {}, which it does not export",
                flame_abi::layout::names::REST
            )?,
            FaultKind::Start(text) => f.write_str(text)?,
        }
        if let Some(panic_message) = &self.panic_message {
            write!(f, "\n  panic message: {panic_message}")?;
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

fn in_loop(place: Option<u32>) -> String {
    place.map_or_else(String::new, |at| format!(" in the loop at byte {at}"))
}

fn together(calls: u32) -> String {
    if calls > 1 { format!(" in {calls} calls together") } else { String::new() }
}

impl std::error::Error for Fault {}
