//! Rows of the join's results.

use crate::read::Flow;

/// The results for one flow.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowRow {
    pub id: u64,
    /// The flow's addresses and ports, if its row in the table `flow` was read.
    pub flow: Option<Flow>,
    /// The longest path of the flow's packets, and of several the one with most packets. If other flows
    /// between the same hosts continued on that path, their longest path.
    pub path: String,
    /// Numbers of packets and bytes that took the whole path.
    pub packets: u64,
    pub bytes: u64,
    /// The number of packets that began the path and were not seen at its end.
    pub lost: u64,
    /// Delays from the first monitor of the path to its last.
    pub mean_ns: f64,
    pub min_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

/// The packets that took one path, and those that were lost on it.
#[derive(Clone, Debug, PartialEq)]
pub struct PathRow {
    pub path: String,
    pub packets: u64,
    pub bytes: u64,
    pub lost: u64,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

/// The traffic that entered at one monitor and left at another.
#[derive(Clone, Debug, PartialEq)]
pub struct CellRow {
    pub from: String,
    /// The last monitor. For packets that only one monitor saw, it equals `from`.
    pub to: String,
    pub packets: u64,
    pub bytes: u64,
    pub lost: u64,
    /// Estimates for all packets: the numbers of selected packets divided by the sampling rate.
    pub estimated_packets: u64,
    pub estimated_bytes: u64,
    pub mean_ns: f64,
}

/// Delay and loss on one path, for the packets that began it in one interval.
#[derive(Clone, Debug, PartialEq)]
pub struct DelayRow {
    pub start_ns: u64,
    pub path: String,
    pub packets: u64,
    /// The number of packets that began the path in the interval and were not seen at its end, of flows of
    /// which other packets had taken the whole path by then.
    pub lost: u64,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

/// The results of a join.
#[derive(Clone, Debug, Default)]
pub struct Joined {
    pub flows: Vec<FlowRow>,
    pub paths: Vec<PathRow>,
    pub matrix: Vec<CellRow>,
    /// Delays in order of time. Empty from [`crate::join_with`], which passes them on as they are ready.
    pub delays: Vec<DelayRow>,
    /// The number of logs read.
    pub logs: u64,
    /// The number of packets that one monitor logged twice within a window, which are not evaluated.
    pub ambiguous: u64,
    /// The number of packets seen at one monitor only and not counted as lost: the path of their flow, or of
    /// flows between the same hosts, does not begin there.
    pub alone: u64,
    /// The number of packets that were lost while not all monitors were active.
    pub unwatched: u64,
    /// The number of packets of flows and paths beyond the limits.
    pub crowded: u64,
    /// The number of packets that were given up before the end of the window.
    pub hurried: u64,
}
