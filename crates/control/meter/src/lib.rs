//! Rewrites a module so that every call ends: [`rewrite`] adds counters, [`rewrite_polled`] adds polls where
//! bounds are proved, so that the host can end a call all the same.
//!
//! The rewriter is trusted: whatever the analyses of other crates claim, what it writes ends. It takes any
//! bytes, and neither panics, recurses, nor needs more than a constant times the module's size in time and
//! memory. What it changes is otherwise not to be seen by the module.
//!
//! | file | what it does |
//! | --- | --- |
//! | `rewrite` | sections: globals, exports, the order of functions |
//! | `code` | one function's body: counters, polls, calls of the host |
//! | `charge` | what instructions weigh, and which functions their callers pay for |
//! | `hoist` | loops that are charged in front, because their trip count can be told there |
//! | `unroll` | tight loops, charged four iterations at a time |
//! | `copy` | the function that takes the place of `memory.copy` |
//! | `append` | sections that grow |
//! | `features` | the Wasm that modules may consist of |
//! | `error` | why a module is refused |
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
//! `return` and `unreachable` weigh 0; entering a function weighs 1. A function charges, when it is entered,
//! all its instructions that lie outside loops; a loop charges, at each iteration, all its instructions that
//! lie outside inner loops (at least 1). When that makes fuel negative the module traps. So the charge for a
//! run is at least the instructions executed: the branches not taken are charged too, as the price of one
//! check per iteration. Charging depends on nothing but the instructions run, so a replay is cut off at the
//! same one.
//!
//! - A *small* function has no loop, no address, no export, calls only small ones, and weighs at most
//!   128 with them. It counts nothing: its callers charge its weight with the call.
//! - A small loop without calls or loops inside is written four times over and charges four iterations
//!   at once: on tight byte loops a check per iteration would cost half as much again.
//! - A counted loop whose iterations can be told in front of it charges them all there and has no check
//!   inside; the rule is `Scan::hoist` in `hoist.rs`. If it would never meet its end it is cut off at once.
//! - A function with a loop keeps fuel in a local. It is written back before, and read again after,
//!   calls that count. Other functions count in the global.
//! - `memory.copy`, `memory.fill` and `memory.init` of n bytes charge n / 16 + 8 more. `memory.grow`
//!   charges 1024 more, about what the system call costs.
//!
//! # Why every call ends
//!
//! 1. Wasm's control flow is structured: a run that does not end either enters some loop's head
//!    infinitely often or calls infinitely deep, since everything else goes forward in finite code.
//! 2. Each entry to a loop's head charges at least 1, or the loop was charged in front for as often as its
//!    head is entered, which is at most 2^32 times.
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
//! Functions that do not count, because their bounds are proved, *poll* ([`rewrite_polled`]): they load from
//! the polling page ([`flame_abi::layout::POLL`]) when they are entered, at each iteration of each loop, and
//! before each instruction whose time depends on an operand. The host revokes access to the page when a call
//! runs past its deadline; the next load traps. So a fault in the bounds analysis costs no more than the
//! module that exploits it.
//!
//! Between two polls a call runs only forward through one function and the small ones that it calls: at most
//! 128 instructions for each call in it, and one bulk memory instruction. That needs nothing of the analysis:
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

mod append;
mod charge;
mod code;
mod copy;
pub mod error;
pub mod features;
mod hoist;
mod rewrite;
mod unroll;

pub use error::{ModuleError, Place};
pub use rewrite::{Count, rewrite, rewrite_polled};

/// Prefix of the exports that [`rewrite`] adds.
pub const RESERVED: &str = "flame:";
