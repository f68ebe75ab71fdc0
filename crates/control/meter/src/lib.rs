//! Rewrites a module so that every call ends. [`rewrite()`] adds counters; [`rewrite_polled`] adds polls to
//! functions with proven bounds, so that the host can still end a call.
//!
//! The rewriter is trusted: its output ends for any claims of the analyses in other crates. It takes any
//! bytes, and neither panics, recurses, nor needs more than a constant times the module's size in time and
//! memory. A module cannot observe the changes otherwise.
//!
//! | file | what it does |
//! | --- | --- |
//! | `rewrite` | sections: globals, exports, the order of functions |
//! | `code` | one function's body: counters, polls, calls of the host |
//! | `charge` | weights of instructions, and small functions, which are charged to their callers |
//! | `hoist` | loops that are charged in advance, because their trip count is known there |
//! | `unroll` | tight loops, charged four iterations at a time |
//! | `helpers` | the functions that are added |
//! | `copy` | the function that replaces `memory.copy` |
//! | `pieces` | bulk memory instructions in pieces |
//! | `poll` | loads from the polling page |
//! | `append` | sections that grow |
//! | `globals` | exports of globals, for instances that are wiped |
//! | `features` | the Wasm features that modules may use |
//! | `error` | the reasons why a module is rejected |
//!
//! # Counters
//!
//! The rewritten module has five more mutable globals, all exported and set by the host between calls:
//!
//! | export | type | meaning |
//! | --- | --- | --- |
//! | `flame:fuel` | i64 | instructions that the call may still execute; negative after a cut-off |
//! | `flame:packet_budget` | i64 | the value that `flame:fuel` is set to when a packet begins |
//! | `flame:packet` | i32 | index of the current packet, -1 before the first |
//! | `flame:count` | i32 | packets in the batch |
//! | `flame:loop` | i32 | after a cut-off, the file offset of the loop that was cut off; 0 if none was |
//!
//! # Charges
//!
//! An instruction weighs 1, as in Wasmtime's own fuel; `nop`, `drop`, `block`, `loop`, `else`, `end`,
//! `return` and `unreachable` weigh 0; entering a function weighs 1. At its entry, a function charges all its
//! instructions outside loops. At each iteration, a loop charges all its instructions outside inner loops (at
//! least 1). If that makes fuel negative, the module traps. So the charge of a run is at least the number of
//! executed instructions: branches not taken are charged too, in exchange for only one check per iteration.
//! Charging depends only on the executed instructions, so a replay is cut off at the same one.
//!
//! - A *small* function has no loop, no address, no export, calls only small ones, and weighs at most 128
//!   including them. It counts nothing: its callers charge its weight with the call.
//! - A small loop without calls or loops inside is written four times and charges four iterations at once: on
//!   tight byte loops a check per iteration would cost half as much again.
//! - A counted loop whose trip count is known before it charges all iterations there and has no check inside;
//!   the rule is `Scan::hoist` in `hoist.rs`. If its counter would never equal its end, it is cut off at
//!   once.
//! - A function with a loop keeps fuel in a local, which is written back before calls that count, and read
//!   again after them. Other functions count in the global.
//! - `memory.copy`, `memory.fill` and `memory.init` of n bytes charge n / 16 + 8 more. `memory.grow`
//!   charges 1024 more, about what the system call costs.
//!
//! # Why every call ends
//!
//! 1. Wasm's control flow is structured: a run that does not end either enters some loop's head infinitely
//!    often or calls infinitely deep, because all other control flow goes forward in finite code.
//! 2. Each entry to a loop's head charges at least 1, or the loop was charged in advance for all entries to
//!    its head, which are at most 2^32.
//! 3. An infinitely deep chain of calls contains infinitely many functions that are not small (small ones
//!    call only small ones that were classified before them, so their calls form no cycle), and each of those
//!    charges at least 1 at its entry. (The native stack often ends it earlier.) A function called through a
//!    table has an address, so it is not small.
//! 4. The instructions that take longer than a constant time, bulk memory ones, charge for their length
//!    before they begin, and proceed in pieces of 64 KiB (`pieces.rs`).
//! 5. Fuel is increased in one place only, where a packet begins. The packet's index must exceed the one
//!    before and be below `flame:count`, so this happens at most `count` times per call. The module cannot
//!    refer to the new globals: its own code was validated against fewer.
//!
//! A function that diverges, in a module with proven bounds, sets fuel to [`flame_verify::cost::DIVERGING`]
//! if it is more, and `flame:packet_budget` to -1. So its call ends within that, which its bound contains.
//!
//! The total work of a batch is therefore at most `fuel + count × packet_budget`, plus for each check the
//! code up to it, which is at most one function's length.
//!
//! # Polls
//!
//! Functions that do not count, because their bounds are proven, *poll* ([`rewrite_polled`]), and in a module
//! with proven bounds so do those that count, since nothing interrupts its calls: they load from
//! the polling page ([`flame_abi::layout::POLL`]) at their entry, at each iteration of each loop, and before
//! each instruction whose time depends on an operand. The host revokes access to the page when a call exceeds
//! its deadline; the next load traps. So a fault in the bounds analysis costs no more than the module that
//! exploits it.
//!
//! Between two polls, a call only runs forward through one function and its small callees: at most 128
//! instructions for each call in it, and one bulk memory instruction of at most 64 KiB. This does not rely on
//! the analysis: recursion that it overlooked polls too. Small functions do not poll.
//!
//! # The window
//!
//! View blocks lie beyond the memory that `memory.size` reports: loads reach them, but the engine's own
//! `memory.copy` would trap. The rewriter replaces `memory.copy` with a function that copies from the window
//! with loads and stores. Copies of zero bytes from there do nothing.
#![forbid(unsafe_code)]

mod append;
mod charge;
mod code;
mod copy;
pub mod error;
pub mod features;
mod globals;
mod helpers;
mod hoist;
mod pieces;
mod poll;
mod rewrite;
mod types;
mod unroll;

pub use error::{ModuleError, Place};
pub use flame_abi::layout::names::RESERVED;
pub use globals::export_globals;
pub use rewrite::{Metering, rewrite, rewrite_polled};
