//! The parts of a walk that observers see, for estimates and reports. No verified result depends on them.

use crate::bound::{Head, LoopBound};
use crate::certificate::LoopNote;
use crate::poly::Poly;
use crate::state::State;
use crate::value::Sum;
use crate::walk::Walk;
use wasmparser::Operator;

/// A step of a walk.
pub enum Event<'e> {
    /// The walk of an entry, or of a function for any arguments, begins.
    Begin { function: u32, state: &'e State },
    /// The walk ends, and nothing was refused.
    End,
    /// A direct call, with its arguments on the stack.
    Call { callee: u32, offset: u32, state: &'e State },
    /// The callee is walked with the arguments of the call, which has this number in its function.
    Enter(u32),
    /// The callee has been walked.
    Leave,
    /// An iteration begins at the head of a loop that was entered with this state.
    Head { entry: &'e State, note: &'e LoopNote, head: &'e Head },
    /// A loop ends.
    Loop(&'e LoopBound),
    /// An instruction is about to be applied, other than those that begin or end frames and direct calls.
    Operator { operator: &'e Operator<'e>, offset: u32, state: &'e State },
    /// The instruction loads or stores here.
    Access(Option<&'e Sum>),
    /// The instruction moves this many bytes.
    Bulk(Poly),
}

/// Receives the events of a walk.
pub trait Observer {
    /// Receives the next event. The walk cannot be changed.
    fn see(&self, walk: &Walk<'_, '_>, event: Event<'_>);
}
