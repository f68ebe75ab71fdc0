//! The reasons why loops and calls have no bound.

use serde::{Deserialize, Serialize};

/// The cause of a missing bound: a reason, and its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    pub reason: Reason,
    /// The name or number of the function.
    pub function: String,
    /// The offset in the file, of the loop or call; 0 if it concerns the function as a whole.
    pub offset: usize,
}

/// The reason why a loop has no trip count, or a call no bound. [`Reason::remedy`] names a change of the
/// source that gives it one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// No branch leaves the loop.
    NoExit,
    /// The loop ends by values that are loaded or computed in each iteration; none of them is a counter.
    NoCounter,
    /// A variable changes by an amount that may be 0, or that may make it wrap around.
    Step,
    /// A counter is compared with a value that changes in the loop.
    LimitChanges,
    /// A counter is compared with a value from before the loop, of which only this maximum is known.
    Limit { most: u64 },
    /// The loop ends if a counter equals its limit, which it may skip.
    Equality,
    /// A loop of an allocator, over lists in memory.
    Allocator,
    /// The loop has a trip count; times the cost of an iteration it exceeds any budget.
    Product,
    /// The functions that call each other, by name, from the first one back to it.
    Recursion(Vec<String>),
    /// A call through a table may reach this function, which has no bound.
    Table(String),
    /// A call of a function that has no bound: calls are nested too deep to follow.
    Calls(String),
    /// Frames or loops are nested too deep, or a function has exceptions or too many locals.
    Nesting,
    /// The analysis takes more work than is allowed.
    Work,
    /// The module's certificate has a claim that does not hold, lacks one, or cannot be read: this text
    /// states which. The loop or call could have a bound.
    Certificate(String),
    /// The function never returns.
    Diverges,
    /// An instruction without a rule.
    Unsupported,
    /// The loop has a trip count, but the call that executes it has no bound.
    Caller,
}
