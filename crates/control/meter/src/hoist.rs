//! Loops whose trip count is known before the first iteration: one charge before them covers all iterations.
//!
//! LLVM compiles a counted loop to an innermost one that ends with
//!
//! ```text
//! local.get i  i32.const step  i32.add  local.tee i  local.get end  i32.ne  br_if 0     (or `end` first)
//! local.get i  i32.const step  i32.add  local.tee i  br_if 0                            (end is 0)
//! ```
//!
//! [`Scan`] collects the properties of a loop that the rule ([`Scan::hoist`]) needs; `Writer::charge_all` in
//! `code.rs` writes the charge.

use wasmparser::Operator;

/// A loop that counts from local `counter` to local `end` (0 without one).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hoist {
    pub(crate) counter: u32,
    pub(crate) end: Option<u32>,
    /// The base-2 logarithm of the step.
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
    /// A `br_if` to the loop's head, outside inner frames. An unconditional `br` is not one, because it
    /// ignores the comparison.
    BackIf,
}

/// The properties of one loop found so far.
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

    /// Rejects the loop, because it does something that is charged separately or that another function might
    /// count.
    pub(crate) fn refuse(&mut self) {
        self.plain = false;
    }

    /// Processes the next instruction; `inside` frames are open within the loop.
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
                match operator {
                    Operator::BrIf { relative_depth: 0 } if inside == 0 => Step::BackIf,
                    _ => Step::Other,
                }
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

    /// Applies the rule at the loop's end. Returns how the loop counts, if one charge before it can cover all
    /// its iterations.
    ///
    /// It can if all of these conditions hold:
    ///
    /// 1. Exactly one branch in the whole loop targets its head: a `br_if` that is its last instruction.
    /// 2. No branch leaves the loop, and there is no `return`. So it ends when that `br_if` is not taken, or
    ///    in a trap.
    /// 3. It contains no loop and nothing that is charged separately ([`Scan::refuse`]).
    /// 4. The operand of the `br_if` is `i ± step` ≠ `end`, computed by the instructions directly before it,
    ///    between which no branch can arrive; these write the sum to `i`.
    /// 5. They are the only ones that write `i`, and none writes `end`, another local (or the constant 0).
    /// 6. `step` is a power of two.
    ///
    /// Every iteration that does not trap executes its last instructions (1, 2), so after n of them `i` has
    /// changed by exactly n × `step` modulo 2^32 (4, 5), and the loop ends after the first n ≥ 1 for which
    /// `i` equals `end`. With d the distance from `i` to `end` in the step's direction, modulo 2^32, n ×
    /// `step` ≡ d: n is d / `step` if `step` divides d, but 2^32 / `step` if d is 0; and there is no n if
    /// `step` does not divide d, since it divides 2^32 (6).
    pub(crate) fn hoist(&self) -> Option<Hoist> {
        use Step::{Add, BackIf, Const, Get, Ne, Sub, Tee};
        if !self.plain || self.backs != 1 {
            return None;
        }
        let (counter, tee, step, how, end) = match self.recent {
            [Get(i), Const(s), how, Tee(t), Get(end), Ne, BackIf] => (i, t, s, how, Some(end)),
            [Get(end), Get(i), Const(s), how, Tee(t), Ne, BackIf] => (i, t, s, how, Some(end)),
            [_, _, Get(i), Const(s), how, Tee(t), BackIf] => (i, t, s, how, None),
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

#[cfg(test)]
#[path = "hoist_tests.rs"]
mod tests;
