//! The limits of the nesting of calls and of the work in a step of the router.
//!
//! Packets are pushed and pulled, and handlers are called, by calls of functions, which need stack. One
//! counter of levels serves all of them, and elements can combine them as they like. The work of scripts and
//! handlers do draws on one supply, the fuel, which is full again at each task, timer and delivery of the
//! router.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Levels beyond which a push waits for the next round.
pub const PUSH: usize = 250;
/// Levels beyond which a handler is refused: 50 handlers that call each other.
pub(super) const HANDLER: usize = 400;
/// Levels of a call of a handler, which needs more stack than a push.
pub(super) const HANDLER_LEVELS: usize = 8;
/// Levels of a reference inside a reference, as in `$(a $(b))`.
pub(super) const REFERENCE_LEVELS: usize = 2;
/// The longest pull path that a router accepts.
pub const PULL_PATH: usize = 1000;
/// Levels beyond which a pull gives nothing: no path that was accepted is so long.
pub(super) const PULL: usize = HANDLER + PULL_PATH + HANDLER_LEVELS;

/// The fuel of a step: an instruction of a script needs one unit, a call of a handler 16,
/// and 16 bytes, or entries of a list that is searched, one.
pub(super) const FUEL: u64 = 4_000_000;
pub(super) const CALL: u64 = 16;
/// The fuel of a call of a handler in another thread, beside that of the handler: such a call takes as long.
pub(super) const ACROSS: u64 = 256;
/// The time that a step may wait for handlers in other threads.
pub(super) const WAIT: Duration = Duration::from_secs(10);
/// The time after which calls of other threads are served within a round.
pub(super) const LATE: Duration = Duration::from_millis(1);
/// The error of a handler without fuel.
pub(super) const TOO_MUCH: &str = "given up, since the scripts and handlers of this step do too much";
/// Units between two looks at the interrupt.
pub(super) const GLANCE: u64 = 1024;

/// The time after an interrupt in which packets that are on their way are delivered.
pub(super) const LAST_DELIVERIES: Duration = Duration::from_millis(100);

/// The maximum size of a handler's or a script's value, in bytes.
pub const LONGEST_VALUE: usize = 1 << 20;

#[derive(Default)]
pub struct Limits {
    pub(super) depth: Cell<usize>,
    /// The levels on the stack of this thread: also those of calls that wait for another thread.
    pub(super) stack: Cell<usize>,
    pub(super) fuel: Cell<u64>,
    pub(super) is_in_step: Cell<bool>,
    /// The time that the step has waited for other threads.
    pub(super) waited: Cell<Duration>,
    /// The time at which calls of other threads were last served within a round.
    pub(super) served: Cell<Option<Instant>>,
    /// The time at which the interrupt was noticed.
    pub(super) interrupted: Cell<Option<Instant>>,
}
