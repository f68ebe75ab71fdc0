//! Loops whose iterations can be told before the first: one charge in front of them pays for all.
//!
//! What LLVM leaves of a counted loop is an innermost one that ends with
//!
//! ```text
//! local.get i  i32.const step  i32.add  local.tee i  local.get end  i32.ne  br_if 0     (or `end` first)
//! local.get i  i32.const step  i32.add  local.tee i  br_if 0                            (end is 0)
//! ```
//!
//! If nothing else writes `i` or `end`, branches back, or leaves, and the step is a power of two, up or down,
//! then with d = end - i (mod 2^32, in the step's direction) it runs d / step times; 2^32 / step times if d is
//! 0; and for ever if the step does not divide d.

use wasmparser::Operator;

/// A loop that counts from local `counter` to local `end` (0 if there is none).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hoist {
    pub(crate) counter: u32,
    pub(crate) end: Option<u32>,
    /// The step is 2 to this.
    pub(crate) log_step: u32,
    pub(crate) down: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Other,
    Get(u32),
    Const(i32),
    Add,
    Sub,
    Tee(u32),
    Ne,
    Back,
}

/// What is seen of one loop on the way to its end.
pub(crate) struct Scan {
    recent: [Step; 7],
    written: Vec<u32>,
    backs: u32,
    plain: bool,
}

impl Scan {
    pub(crate) fn new() -> Self {
        Self { recent: [Step::Other; 7], written: Vec::new(), backs: 0, plain: true }
    }

    /// The loop does something that is charged by itself, or that another might count.
    pub(crate) fn refuse(&mut self) {
        self.plain = false;
    }

    /// The next instruction; `inside` frames are open within the loop.
    pub(crate) fn see(&mut self, operator: &Operator<'_>, inside: u32) {
        let step = match operator {
            Operator::LocalGet { local_index } => Step::Get(*local_index),
            Operator::I32Const { value } => Step::Const(*value),
            Operator::I32Add => Step::Add,
            Operator::I32Sub => Step::Sub,
            Operator::I32Ne => Step::Ne,
            Operator::LocalTee { local_index } => {
                self.written.push(*local_index);
                Step::Tee(*local_index)
            }
            Operator::LocalSet { local_index } => {
                self.written.push(*local_index);
                Step::Other
            }
            Operator::Br { relative_depth } | Operator::BrIf { relative_depth } => {
                self.plain &= *relative_depth <= inside;
                self.backs += u32::from(*relative_depth == inside);
                if inside == 0 { Step::Back } else { Step::Other }
            }
            Operator::BrTable { targets } => {
                let within = targets.targets().all(|t| t.is_ok_and(|t| t < inside));
                self.plain &= within && targets.default() < inside;
                Step::Other
            }
            Operator::Return => {
                self.plain = false;
                Step::Other
            }
            _ => Step::Other,
        };
        self.recent.rotate_left(1);
        self.recent[6] = step;
    }

    /// At the loop's end: how it counts, if it does.
    pub(crate) fn hoist(&self) -> Option<Hoist> {
        use Step::{Add, Back, Const, Get, Ne, Sub, Tee};
        if !self.plain || self.backs != 1 {
            return None;
        }
        let (counter, tee, step, how, end) = match self.recent {
            [Get(i), Const(s), how, Tee(t), Get(end), Ne, Back] => (i, t, s, how, Some(end)),
            [Get(end), Get(i), Const(s), how, Tee(t), Ne, Back] => (i, t, s, how, Some(end)),
            [_, _, Get(i), Const(s), how, Tee(t), Back] => (i, t, s, how, None),
            _ => return None,
        };
        let down = match how {
            Add => step < 0,
            Sub => step > 0,
            _ => return None,
        };
        let writes = |local: u32| self.written.iter().filter(|w| **w == local).count();
        let counts = counter == tee && writes(counter) == 1;
        let stays = end.is_none_or(|end| end != counter && writes(end) == 0);
        let size = step.unsigned_abs();
        (counts && stays && size.is_power_of_two() && size <= 1 << 16).then(|| Hoist {
            counter,
            end,
            log_step: size.trailing_zeros(),
            down,
        })
    }
}
