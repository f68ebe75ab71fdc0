//! The work that a packet may cost.
//!
//! Each step of the evaluation is charged about what it costs, in the units of `limits.packet_budget` in
//! module.toml, whose excess over [`MOST`] covers what is not charged and what is charged too little. A step
//! that could cost much is charged in advance, or bit by bit. `crates/flame/tests/run/ids_budget.rs` has rule
//! sets that spend all of it on one kind of step each.

/// The work for one packet.
pub const MOST: u32 = 64_000_000;

/// The costs of each byte that the search for patterns reads, and of each step of its automaton.
pub const BYTE: u32 = 64;
/// The costs of each pattern or content compared, and of each byte of it.
pub const COMPARE: u32 = 300;
pub const COMPARE_BYTE: u32 = 20;
/// The cost of 16 bytes in which one byte is searched for.
pub const SCAN: u32 = 36;
/// The costs of each rule that a pattern, an address or a port leads to, and of each that is put in order.
pub const HIT: u32 = 120;
pub const SORT: u32 = 400;
/// The costs of each rule that is checked, and of each of its conditions on headers and marks.
pub const CANDIDATE: u32 = 800;
pub const CONDITION: u32 = 200;
/// The cost of each content or the like that is tried at a position.
pub const STEP: u32 = 1600;
/// The costs of each search for a regular expression, and of each byte that it reads.
pub const SEARCH: u32 = 4000;
pub const REGEX_BYTE: u32 = 36;
/// The costs of each state of a regular expression that is built, each state of its NFA and each that takes
/// no byte, and each byte that describes the built state.
pub const BUILD: u32 = 3000;
pub const BUILD_NFA: u32 = 10;
pub const BUILD_EMPTY: u32 = 250;
pub const BUILD_BYTE: u32 = 1300;
/// The cost of a new cache.
pub const CACHE: u32 = 30_000;
/// The cost of an event of a rule whose alerts are limited.
pub const RATE: u32 = 2000;
/// The cost of an alert, and of 16 bytes of its texts.
pub const ALERT: u32 = 2000;
pub const ALERT_BYTES: u32 = 16;

/// The work that is left for one packet.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    left: u32,
}

impl Default for Work {
    fn default() -> Self {
        Self { left: MOST }
    }
}

impl Work {
    /// Returns the work that is left for a packet for which this much was spent.
    pub fn after(spent: u32) -> Self {
        Self { left: MOST.saturating_sub(spent) }
    }

    /// Subtracts the cost and returns whether enough was left. If not, nothing is left.
    #[inline]
    pub fn spend(&mut self, cost: u32) -> bool {
        let left = self.left.checked_sub(cost);
        self.left = left.unwrap_or(0);
        left.is_some()
    }

    /// Subtracts the cost of `count` things.
    #[inline]
    pub fn spend_each(&mut self, count: usize, cost: u32) -> bool {
        self.spend(u32::try_from(count).unwrap_or(u32::MAX).saturating_mul(cost))
    }

    #[inline]
    pub fn left(self) -> u32 {
        self.left
    }

    #[inline]
    pub fn is_used_up(self) -> bool {
        self.left == 0
    }
}
