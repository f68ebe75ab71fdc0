use flame_output::OutputError;
use flame_plan::{CallName, CutOff, FRAME_UNITS, FaultClass};
use std::fmt;
use std::time::Duration;

/// The reason why an instance ended. Its store is dropped; nothing else is affected.
#[derive(Debug)]
pub struct Fault {
    /// The call that was running.
    pub call: CallName,
    pub kind: FaultKind,
    /// The index in the batch of the packet being processed, if the module marks its packets.
    pub packet: Option<u32>,
    /// The calls at the time of the fault, innermost first.
    pub backtrace: Vec<Frame>,
    /// The message of the module's own panic, if it exports one.
    pub panic_message: Option<String>,
}

/// The cause of a fault of an instance.
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
    /// Code that does not return, such as a panic, used up its budget, a fixed one in a bounded module.
    Diverged { place: Option<u32> },
    /// Calls after the run was stopped exceeded the budget that they share.
    StopBudget { limit: u64, place: Option<u32>, calls: u32 },
    /// A batch or init was still running this long after the run was stopped.
    Interrupted(Duration),
    /// One call sent more messages than allowed.
    Messages { found: u64, limit: u32 },
    /// The call ran past its deadline in code that nothing interrupts.
    CutOff { deadline_ns: u64, cause: CutOff },
    /// The output does not fit the manifest.
    Output(Box<OutputError>),
    /// The output lies outside the module's memory or is too large.
    OutputPlace { address: u32, bytes: u32, memory: usize, limit: u32 },
    /// The output of a batch and of the calls for its rest costs more than its packets allow.
    OutputBudget { bytes: usize, frames: usize, units: u64, limit: u64 },
    /// The module requested further calls for output more often than allowed.
    Continuations(u32),
    /// The module requested `flame_rest`, which it does not export.
    NoRest,
    /// `flame_export` requested further calls.
    ExportParts,
    /// `flame_import` returned this value, which has no meaning.
    Import(u64),
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
    pub fn between(call: CallName, kind: FaultKind) -> Self {
        Self { call, kind, packet: None, backtrace: Vec::new(), panic_message: None }
    }

    /// Returns whether the module must no longer run without counters.
    pub fn is_cut_off(&self) -> bool {
        matches!(self.kind, FaultKind::CutOff { .. })
    }

    /// Describes the fault. Under a grant the text has only the class of fault, the call, limits and the
    /// index of the function: no text and no other number that the module can choose.
    pub fn text(&self, granted: bool) -> String {
        if !granted {
            return self.to_string();
        }
        let detail = match &self.kind {
            // One of the engine's few descriptions.
            FaultKind::Trap(text) => {
                format!(": {}", text.chars().take(flame_plan::MAX_NAME).collect::<String>())
            }
            FaultKind::Budget { limit, .. }
            | FaultKind::StopBudget { limit, .. }
            | FaultKind::OutputBudget { limit, .. } => format!(" of {limit}"),
            FaultKind::Messages { limit, .. } | FaultKind::Continuations(limit) => format!(" ({limit})"),
            _ => String::new(),
        };
        let place = self.backtrace.first().map_or(String::new(), |f| format!(", in function {}", f.index));
        format!("{}: {}{detail}{place}", self.call, self.class())
    }

    /// Returns the fault without its details.
    pub fn class(&self) -> FaultClass {
        match self.kind {
            FaultKind::Trap(_) => FaultClass::Trap,
            FaultKind::Budget { .. } => FaultClass::Budget,
            FaultKind::Diverged { .. } => FaultClass::Diverged,
            FaultKind::StopBudget { .. } => FaultClass::StopBudget,
            FaultKind::Interrupted(_) => FaultClass::Interrupted,
            FaultKind::Messages { .. } => FaultClass::Messages,
            FaultKind::CutOff { cause, .. } => FaultClass::CutOff(cause),
            FaultKind::Output(_) => FaultClass::Output,
            FaultKind::OutputPlace { .. } => FaultClass::OutputPlace,
            FaultKind::OutputBudget { .. } => FaultClass::OutputBudget,
            FaultKind::Continuations(_) => FaultClass::Continuations,
            FaultKind::NoRest => FaultClass::NoRest,
            FaultKind::ExportParts => FaultClass::ExportParts,
            FaultKind::Import(_) => FaultClass::Import,
            FaultKind::Start(_) => FaultClass::Start,
        }
    }

    /// Returns why the module refused its parameters: the text of a panic in init that begins with the word
    /// `parameter`. It is a mistake of the user, to whom the calls of the module mean nothing.
    fn refusal(&self) -> Option<&str> {
        let text = self.panic_message.as_deref().filter(|_| self.call == CallName::Init)?;
        // Before it is the place in the module's source.
        let (_, reason) = text.split_once(": ")?;
        reason.starts_with("parameter ").then(|| reason.trim_end())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reason) = self.refusal() {
            return f.write_str(reason);
        }
        write!(f, "{}: ", self.call)?;
        match &self.kind {
            FaultKind::Trap(text) => write!(f, "trap: {text}")?,
            FaultKind::Budget { limit, place, calls } => write!(
                f,
                "cut off{}: used up its budget of {limit}{} (its manifest can request more by limits.packet_budget and limits.call_budget, up to `--packet-budget`)",
                in_loop(*place),
                together(*calls)
            )?,
            FaultKind::StopBudget { limit, place, calls } => write!(
                f,
                "cut off{}: after the run was stopped it used up its budget of {limit}{} (limits.call_budget in its manifest)",
                in_loop(*place),
                together(*calls)
            )?,
            FaultKind::Diverged { place } => write!(
                f,
                "cut off{}: used up its budget: code that does not return ran for too long",
                in_loop(*place)
            )?,
            FaultKind::Interrupted(after) => {
                write!(f, "interrupted: it still ran {} ms after the run was stopped", after.as_millis())?
            }
            FaultKind::Messages { found, limit } => write!(
                f,
                "sent {found} messages in one call, at most {limit} are allowed (put more into each, or return from a tick for more)"
            )?,
            FaultKind::CutOff { deadline_ns, cause } => write!(
                f,
                "{}: it ran for more than {} ms in a call that nothing interrupts. {}. This run goes on without it; from the \
                 next one on it is metered (with `--metered` at once)",
                match cause {
                    CutOff::Bound => "bound violated",
                    CutOff::Time => "took too long",
                },
                deadline_ns / 1_000_000,
                match cause {
                    CutOff::Bound => "What was proved of it is wrong: please report the module",
                    CutOff::Time => "Its instructions wait for memory, or there are many",
                }
            )?,
            FaultKind::Output(error) => write!(f, "{error}")?,
            FaultKind::OutputPlace { address, bytes, memory, limit } => write!(
                f,
                "output of {bytes} bytes at {address:#x}: expected at most {limit} bytes inside its {memory} bytes of memory"
            )?,
            FaultKind::OutputBudget { bytes, frames, units, limit } => write!(
                f,
                "{bytes} bytes of output in {frames} rows and other frames cost {units} units ({FRAME_UNITS} for a frame, one for a byte): \
                 at most {limit} are allowed for what is left of this batch (write less, or in a tick; its manifest can request more by \
                 limits.packet_budget)"
            )?,
            FaultKind::Continuations(limit) => write!(f, "asked for more than {limit} further calls")?,
            FaultKind::NoRest => write!(
                f,
                "bit 30 of its result asks for {}, which it does not export",
                flame_abi::layout::names::REST
            )?,
            FaultKind::ExportParts => write!(f, "{}", self.class())?,
            FaultKind::Import(value) => write!(
                f,
                "returned {value}: expected 0 for a state that it takes, 1 for one that it refuses"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_parameter_is_no_panic_for_the_user() {
        let mut fault = Fault {
            call: CallName::Init,
            kind: FaultKind::Trap("unreachable".to_owned()),
            packet: None,
            backtrace: vec![Frame { index: 3, function: "new".to_owned(), offset: Some(1) }],
            panic_message: Some(
                "panicked at src/lib.rs:9:13: parameter port: 70000: at most 65535".to_owned(),
            ),
        };
        assert_eq!(fault.to_string(), "parameter port: 70000: at most 65535");
        fault.call = CallName::Batch;
        assert!(fault.to_string().contains("panic message: ") && fault.to_string().contains("0: new"));
        fault.call = CallName::Init;
        fault.panic_message = Some("panicked at src/lib.rs:9:13:\nindex out of bounds".to_owned());
        assert!(fault.to_string().starts_with("flame_init: trap: unreachable"), "{fault}");
        assert!(!fault.text(true).contains("index"), "nothing of it leaves under a grant");
    }
}
