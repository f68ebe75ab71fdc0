//! Makes untrusted Wasm safe to run to completion: [`check`] refuses what is not allowed, [`rewrite`]
//! adds counters so that every call ends.
//!
//! Both take any bytes. Neither panics, recurses, or needs more than a constant times the module's
//! size in time and memory.
//!
//! # Counters
//!
//! The rewritten module has five more mutable globals, all exported and set by the host between calls:
//!
//! | export | type | meaning |
//! | --- | --- | --- |
//! | `flame:fuel` | i64 | instructions the call may still spend; negative after a cut-off |
//! | `flame:packet_budget` | i64 | what `flame:fuel` becomes when a packet begins |
//! | `flame:packet` | i32 | index of the current packet, -1 before the first |
//! | `flame:count` | i32 | packets in the batch |
//! | `flame:loop` | i32 | after a cut-off, where in the file the loop begins that was cut off; 0 if none was |
//!
//! # Charges
//!
//! An instruction weighs 1, as in Wasmtime's own fuel; `nop`, `drop`, `block`, `loop`, `else`, `end`,
//! `return` and `unreachable` weigh 0; entering a function weighs 1. A function charges, when it is entered, all its instructions
//! that lie outside loops; a loop charges, at each iteration, all its instructions that lie outside
//! inner loops (at least 1). When that makes fuel negative the module traps. So the charge for a run
//! is at least the instructions executed: the branches not taken are charged too, as the price of one
//! check per iteration. Charging depends on nothing but the instructions run, so a replay is cut off
//! at the same one.
//!
//! - A *small* function has no loop, no address, no export, calls only small ones, and weighs at most
//!   128 with them. It counts nothing: its callers charge its weight with the call.
//! - A small loop without calls or loops inside is written four times over and charges four iterations
//!   at once: on tight byte loops a check per iteration would cost half as much again.
//! - A counted loop whose iterations can be told in front of it charges them all there and has no check inside; the rule is
//!   `Scan::hoist` in `hoist.rs`. If it would never meet its end it is cut off at once.
//! - A function with a loop keeps fuel in a local. It is written back before, and read again after,
//!   calls that count. Other functions count in the global.
//! - `memory.copy`, `memory.fill` and `memory.init` of n bytes charge n / 16 + 8 more. `memory.grow`
//!   charges 1024 more, about what the system call costs.
//!
//! # Why every call ends
//!
//! 1. Wasm's control flow is structured: a run that does not end either enters some loop's head
//!    infinitely often or calls infinitely deep, since everything else goes forward in finite code.
//! 2. Each entry to a loop's head charges at least 1, or the loop was charged in front for as often as its head is entered,
//!    which is at most 2^32 times.
//! 3. An infinitely deep chain of calls passes infinitely many functions that are not small (small
//!    ones call only small ones that were classified before them, so their calls form no cycle), and
//!    each of those charges at least 1 at its entry. (The native stack often ends it earlier.)
//!    A function called through a table has an address, so it is not small.
//! 4. The instructions that run for longer than a constant, bulk memory ones, charge for their length
//!    before they begin.
//! 5. Fuel is raised in one place only, where a packet begins. The packet's index must exceed the one
//!    before and be below `flame:count`, so this happens at most `count` times a call. The module
//!    cannot name the new globals: its own code was validated against fewer.
//!
//! All work of a batch is therefore at most `fuel + count × packet_budget`, plus for each check the
//! code up to it, which is at most one function's length.
//!
//! # Polls
//!
//! Functions that do not count, because their bounds are proved, *poll* ([`rewrite_polled`]): they load from the
//! polling page ([`flame_abi::layout::POLL`]) when they are entered, at each iteration of each loop, and before each
//! instruction whose time depends on an operand. The host revokes access to the page when a call runs past its
//! deadline; the next load traps. So a fault in the bounds analysis costs no more than the module that
//! exploits it.
//!
//! Between two polls a call runs only forward through one function and the small ones that it calls: at most 128
//! instructions for each call in it, and one bulk memory instruction. That needs nothing of the analysis:
//! recursion that it overlooked polls too. Small functions do not poll.
//!
//! Exported functions that poll are named by exports `flame:polled:NAME`.
//!
//! # The window
//!
//! View blocks lie beyond what `memory.size` reports: loads reach them, but the engine's own
//! `memory.copy` would trap. The rewriter replaces `memory.copy` by a function that copies from the
//! window with loads and stores. Copies of zero bytes from there do nothing.
#![forbid(unsafe_code)]

mod analyse;
mod append;
mod charge;
mod check;
mod class;
mod code;
mod copy;
mod error;
mod features;
pub use features::FEATURES;
mod find;
mod hoist;
mod rewrite;
mod rules;
mod unroll;
mod work;

pub use analyse::{
    Analysis, Bound, Costs, Depends, Entry, LoopReport, MAX_LENGTH, Poly, Proved, Stack, Step, TYPICAL,
    TripCount, analyse, analyse_exports, prove,
};
pub use check::check;
pub use check::{Checked, Exports};
pub use class::Class;
pub use error::{ModuleError, Place};
pub use find::{Effort, find};
pub use rewrite::{Count, rewrite, rewrite_polled};
pub use rules::Rules;
