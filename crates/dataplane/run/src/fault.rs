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

const EXPORT_PARTS: &str = "asked for further calls: a state is one blob, without bits 30 and 31";

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
            FaultKind::Diverged { .. } => {
                "cut off: used up its budget: code that does not return ran for too long".to_owned()
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
            FaultKind::ExportParts => EXPORT_PARTS.to_owned(),
            FaultKind::Import(_) => "returned a value that has no meaning".to_owned(),
        };
        let place = self.backtrace.first().map_or(String::new(), |f| format!(", in function {}", f.index));
        format!("{}: {what}{place}", self.call)
    }

    /// Returns why the module refused its parameters: the text of a panic in init that begins with the word
    /// `parameter`. It is a mistake of the user, to whom the calls of the module mean nothing.
    fn refusal(&self) -> Option<&str> {
        let text = self.panic_message.as_deref().filter(|_| self.call == "flame_init")?;
        // Before it is the place in the module's source.
        let (_, reason) = text.split_once(": ")?;
        reason.starts_with("parameter ").then(|| reason.trim_end())
    }

    /// Returns the cause under which the packets of the call are shed.
    pub fn cause(&self) -> Shed {
        match self.kind {
            FaultKind::Budget { .. } | FaultKind::StopBudget { .. } | FaultKind::Diverged { .. } => {
                Shed::Budget
            }
            FaultKind::Interrupted(_) => Shed::Stopped,
            FaultKind::BoundViolated { .. } => Shed::Bound,
            FaultKind::Trap(_) | FaultKind::Start(_) => Shed::Trap,
            FaultKind::Output(_)
            | FaultKind::OutputPlace { .. }
            | FaultKind::Messages { .. }
            | FaultKind::Continuations(_)
            | FaultKind::NoRest
            | FaultKind::ExportParts
            | FaultKind::Import(_) => Shed::Output,
        }
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
            FaultKind::ExportParts => f.write_str(EXPORT_PARTS)?,
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
            call: "flame_init",
            kind: FaultKind::Trap("unreachable".to_owned()),
            packet: None,
            backtrace: vec![Frame { index: 3, function: "new".to_owned(), offset: Some(1) }],
            panic_message: Some(
                "panicked at src/lib.rs:9:13: parameter port: 70000: at most 65535".to_owned(),
            ),
        };
        assert_eq!(fault.to_string(), "parameter port: 70000: at most 65535");
        fault.call = "flame_batch";
        assert!(fault.to_string().contains("panic message: ") && fault.to_string().contains("0: new"));
        fault.call = "flame_init";
        fault.panic_message = Some("panicked at src/lib.rs:9:13:\nindex out of bounds".to_owned());
        assert!(fault.to_string().starts_with("flame_init: trap: unreachable"), "{fault}");
        assert!(!fault.text(true).contains("index"), "nothing of it leaves under a grant");
    }
}
