use crate::{ModuleId, Reason, Shed};
use flame_abi::layout::names;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A call of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallName {
    /// The creation of the instance, before any call.
    Instantiation,
    Init,
    Batch,
    Push,
    Tick,
    End,
    Message,
    Rest,
    Export,
    Import,
    Pressure,
    Serve,
    Done,
}

/// A set of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls(u16);

impl Calls {
    pub fn contains(self, call: CallName) -> bool {
        self.0 >> call as u32 & 1 == 1
    }

    /// Returns the form that is cached.
    pub fn to_bytes(self) -> [u8; 2] {
        self.0.to_le_bytes()
    }

    /// Reads [`Calls::to_bytes`].
    pub fn from_bytes(bytes: [u8; 2]) -> Self {
        Self(u16::from_le_bytes(bytes))
    }
}

impl FromIterator<CallName> for Calls {
    fn from_iter<I: IntoIterator<Item = CallName>>(calls: I) -> Self {
        Self(calls.into_iter().fold(0, |all, call| all | 1 << call as u32))
    }
}

impl CallName {
    pub const ALL: [Self; 13] = [
        Self::Instantiation,
        Self::Init,
        Self::Batch,
        Self::Push,
        Self::Tick,
        Self::End,
        Self::Message,
        Self::Rest,
        Self::Export,
        Self::Import,
        Self::Pressure,
        Self::Serve,
        Self::Done,
    ];

    /// Returns whether the call is one with a batch.
    pub fn is_batch(self) -> bool {
        matches!(self, Self::Batch | Self::Push)
    }

    /// Returns the name of the export, which documents and texts of faults use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Instantiation => "instantiation",
            Self::Init => names::INIT,
            Self::Batch => names::BATCH,
            Self::Push => names::PUSH,
            Self::Tick => names::TICK,
            Self::End => names::END,
            Self::Message => names::MESSAGE,
            Self::Rest => names::REST,
            Self::Export => names::EXPORT,
            Self::Import => names::IMPORT,
            Self::Pressure => names::PRESSURE,
            Self::Serve => names::SERVE,
            Self::Done => names::DONE,
        }
    }
}

impl fmt::Display for CallName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The reason why a call that nothing interrupts was cut off at its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CutOff {
    /// No instruction takes as long as those would that are proved: it executed more.
    Bound,
    /// The instructions that are proved may take that long.
    Time,
}

/// The class of a fault, which contains nothing that a module chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultClass {
    Trap,
    Budget,
    Diverged,
    StopBudget,
    Interrupted,
    Messages,
    CutOff(CutOff),
    Output,
    OutputPlace,
    OutputBudget,
    Continuations,
    NoRest,
    ExportParts,
    Import,
    Start,
}

impl FaultClass {
    /// Returns the cause under which the packets of the call are shed.
    pub fn shed(self) -> Shed {
        match self {
            Self::Budget | Self::StopBudget | Self::Diverged => Shed::Budget,
            Self::Interrupted => Shed::Stopped,
            Self::CutOff(_) => Shed::Bound,
            Self::Trap | Self::Start => Shed::Trap,
            Self::Output
            | Self::OutputPlace
            | Self::OutputBudget
            | Self::Messages
            | Self::Continuations
            | Self::NoRest
            | Self::ExportParts
            | Self::Import => Shed::Output,
        }
    }
}

impl fmt::Display for FaultClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Trap => "trap",
            Self::Budget => "cut off: used up its budget",
            Self::Diverged => "cut off: used up its budget: code that does not return ran for too long",
            Self::StopBudget => "cut off: after the run was stopped it used up its budget",
            Self::Interrupted => "interrupted: it still ran after the run was stopped",
            Self::Messages => "sent more messages in one call than allowed",
            Self::CutOff(CutOff::Bound) => {
                "bound violated: it ran past its deadline in code that no counter ends. \
                 This run goes on without it; from the next one on it is metered"
            }
            Self::CutOff(CutOff::Time) => {
                "took too long: it ran past its deadline in code that nothing interrupts. \
                 This run goes on without it; from the next one on it is metered"
            }
            Self::Output => "its output does not fit its manifest",
            Self::OutputPlace => "its output lies outside its memory or is too large",
            Self::OutputBudget => "its output costs more than its packets allow",
            Self::Continuations => "asked for more further calls than allowed",
            Self::NoRest => "asked for flame_rest, which it does not export",
            Self::ExportParts => "asked for further calls: a state is one blob, without bits 30 and 31",
            Self::Import => "returned a value that has no meaning",
            Self::Start => "could not be started",
        })
    }
}

/// The end of an instance by a fault or an eviction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultReport {
    pub id: ModuleId,
    pub module: String,
    /// The worker of the instance, or `None` for the slow instance.
    pub worker: Option<usize>,
    /// The index of the packet among those that were shown to this module on this worker.
    pub packet: Option<u64>,
    /// A description of the fault.
    pub text: String,
    /// The fault without its details, unless it is the end of a process or an eviction.
    pub class: Option<(CallName, FaultClass)>,
    /// The reason for the eviction, if the module was evicted.
    pub evicted: Option<Reason>,
    pub restarted: bool,
    /// Whether the process of the module ended, and all its instances with it.
    pub process: bool,
}

impl FaultReport {
    /// Returns the report of a fault that belongs to no worker and to no packet.
    pub fn new(id: ModuleId, module: String, text: String) -> Self {
        Self {
            id,
            module,
            worker: None,
            packet: None,
            text,
            class: None,
            evicted: None,
            restarted: false,
            process: false,
        }
    }
}
