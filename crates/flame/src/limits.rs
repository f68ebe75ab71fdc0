//! The limits under which commands run modules.

use flame_plan::{Limits, longest_call};

/// The largest work of a packet that a module may ask for, unless an option states another one; a node has
/// the same.
pub const PACKET_BUDGET: u64 = 100_000_000;

/// Returns the usual limits with this largest work of a packet. Other calls may cost as much as a full batch.
pub fn with_budget(packet_budget: u64) -> Limits {
    Limits { packet_budget, call_budget: longest_call(packet_budget), ..Limits::default() }
}
