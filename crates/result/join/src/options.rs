//! The limits of a join.

/// The times and limits of a join.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Time in nanoseconds to wait for a packet after the first monitor saw it.
    pub window_ns: u64,
    /// Length of the intervals of [`Joined::delays`](crate::Joined::delays) in nanoseconds; not 0.
    pub interval_ns: u64,
    /// Maximum number of flows with their own rows. Packets of other flows count in the paths only.
    pub max_flows: usize,
    /// Maximum number of packets waited for at a time. Beyond it, the oldest are given up.
    pub max_waiting: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            window_ns: 10_000_000_000,
            interval_ns: 1_000_000_000,
            max_flows: 1 << 20,
            max_waiting: 1 << 20,
        }
    }
}
