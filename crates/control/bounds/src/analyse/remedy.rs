//! Reasons and remedies in the terms of an author's source.

use super::reason::{Cause, Reason};
use flame_verify::SECTION;
use std::fmt;

/// A change of the source after which there is a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remedy {
    pub rust: &'static str,
    pub c: &'static str,
}

impl Reason {
    /// Returns the change that would give the loop or call a bound. 256 stands for any constant.
    pub fn remedy(&self) -> Remedy {
        let (rust, c) = match self {
            Self::NoExit => (
                "`for _ in 0..256 { … }` in place of `loop { … }`",
                "`for (int i = 0; i < 256; i++)` in place of `for (;;)`",
            ),
            Self::NoCounter => (
                "count the iterations: `for _ in 0..256 { if done { break } … }`, or `.take(256)` on the iterator; \
                 for a table, `flame_module::Map` or `FlowTable`",
                "count the iterations: `for (int i = 0; i < 256 && !done; i++)`; for a table, `FLAME_MAP` of flame.h",
            ),
            Self::Step => (
                "step by at least 1 and at most a constant: `at += step.clamp(1, 256)` with `usize` positions below a \
                 known limit, or count the iterations: `for _ in 0..256`",
                "step by at least 1 and at most a constant: `if (step < 1 || step > 256) break;`, or count the \
                 iterations: `for (int i = 0; i < 256 && at < end; i++)`",
            ),
            Self::LimitChanges => (
                "compute the limit once, before the loop: `let n = items.len().min(256); for i in 0..n`",
                "compute the limit once, before the loop: `n = count < 256 ? count : 256`",
            ),
            Self::Limit { .. } => (
                "a constant number of iterations: `for i in 0..256 { if let Some(item) = items.get(i) { … } }`, or \
                 `.take(256)` on the iterator",
                "a constant number of iterations: `for (i = 0; i < 256; i++) if (i < n) …`, or a constant table size \
                 as the limit",
            ),
            Self::Equality => (
                "`i < n` in place of `i != n`; where the compiler unrolled or vectorised a `for` over a limited \
                 length, a constant number of iterations: `for i in 0..256 { if let Some(item) = items.get(i) { … } }`",
                "`i < n` in place of `i != n`; where the compiler unrolled or vectorised a loop with a limited length, \
                 a constant number of iterations: `for (i = 0; i < 256; i++) if (i < n) …`",
            ),
            Self::Allocator => (
                "the allocator of `flame-module` (feature `heap`), whose requests take constant time; or reserve \
                 with `Vec::with_capacity` in `new`, and use `Map` or arrays in `batch`",
                "static arrays of constant size in place of `malloc`",
            ),
            Self::Product => (
                "a smaller constant: `.take(256)` or `.min(256)`; or fewer nested loops",
                "a smaller constant limit, or fewer nested loops",
            ),
            Self::Recursion(_) => (
                "a loop with a stack of its own: `let mut stack = [0; 32]`, and `for _ in 0..256` around its steps; \
                 or pass the depth and end at a constant one in separate functions",
                "a loop with an array as its stack, and a constant number of steps",
            ),
            Self::Table(_) => (
                "an `enum` and `match` in place of `dyn Trait` or function pointers; or a bound for that function",
                "`switch` in place of function pointers; or a bound for that function",
            ),
            Self::Calls(_) => {
                ("fewer nested calls: `#[inline]` on small functions", "fewer nested calls: `static inline`")
            }
            Self::Nesting => ("split the function into smaller ones", "split the function into smaller ones"),
            Self::Work => (
                "`flame build`, which searches longer and stores what it finds; or split large functions",
                "`flame build`, which searches longer and stores what it finds; or split large functions",
            ),
            Self::Certificate(_) => (
                "`flame build`, which writes a certificate for the code as it is now; or remove the custom section \
                 `flame.bounds`, and the node searches itself",
                "`flame build`, which writes a certificate for the code as it is now; or remove the custom section \
                 `flame.bounds`, and the node searches itself",
            ),
            Self::Diverges => ("let the function return", "let the function return"),
            Self::Unsupported => (
                "compile without the proposal that this instruction belongs to",
                "compile without the proposal that this instruction belongs to",
            ),
            Self::Caller => (
                "remove the cause that is reported for the call",
                "remove the cause that is reported for the call",
            ),
        };
        Remedy { rust, c }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoExit => "no branch leaves the loop",
            Self::NoCounter => {
                "no counter limits the loop: it ends by values that are loaded or computed in each iteration"
            }
            Self::Step => "a variable of the loop steps by an amount that may be 0 or too large",
            Self::LimitChanges => "the limit of the loop changes in each iteration",
            Self::Limit { most } => {
                return write!(f, "the limit of the loop is unknown: it may be up to {most}");
            }
            Self::Equality => "the loop ends if its counter equals the limit, which the counter may skip",
            Self::Allocator => "an allocator searches lists in memory",
            Self::Product => "the loop may take more iterations and instructions than any budget",
            Self::Recursion(cycle) => return write!(f, "recursion: {}", cycle.join(" > ")),
            Self::Table(callee) => {
                return write!(f, "a call through a table may reach {callee}, which has no bound");
            }
            Self::Calls(callee) => return write!(f, "calls are nested too deep to follow {callee}"),
            Self::Nesting => "frames or loops are nested too deep, or there are too many locals",
            Self::Work => "the analysis takes more work than is allowed",
            Self::Certificate(claim) => {
                return write!(f, "the certificate in {SECTION} gives no bound: {claim}");
            }
            Self::Diverges => "the function never returns",
            Self::Unsupported => "an instruction has no rule",
            Self::Caller => "the loop itself has a bound; the call that executes it has none",
        })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (in {}", self.reason, self.function)?;
        if self.offset > 0 {
            write!(f, ", at byte {}", self.offset)?;
        }
        f.write_str(")")
    }
}
