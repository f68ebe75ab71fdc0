//! What the logs say together, as rows.

use crate::read::Flow;

/// What the packets of one flow did.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowRow {
    pub id: u64,
    /// If its row in the table `flow` came along.
    pub flow: Option<Flow>,
    /// The way of most of its packets, among those that went furthest; that of other flows between the same
    /// hosts, if those went further on it.
    pub path: String,
    /// Packets and bytes that went all of it.
    pub packets: u64,
    pub bytes: u64,
    /// Packets that began it and were not seen at its end.
    pub lost: u64,
    /// Of the delay from its first monitor to its last.
    pub mean_ns: f64,
    pub min_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

/// All packets that took one path, and those that were lost on it.
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

/// The traffic that came in at one monitor and went out at another.
#[derive(Clone, Debug, PartialEq)]
pub struct CellRow {
    pub from: String,
    /// The same monitor for packets that only it saw.
    pub to: String,
    pub packets: u64,
    pub bytes: u64,
    pub lost: u64,
    /// Divided by the sampling rate: of all packets, not of the selected ones.
    pub estimated_packets: u64,
    pub estimated_bytes: u64,
    pub mean_ns: f64,
}

/// Delay and loss on one path of the packets that began it in one interval.
#[derive(Clone, Debug, PartialEq)]
pub struct DelayRow {
    pub start_ns: u64,
    pub path: String,
    pub packets: u64,
    /// Packets that began the path in the interval and were not seen at its end, of flows of which others had
    /// gone all of it by then.
    pub lost: u64,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

/// What the logs say together.
#[derive(Clone, Debug, Default)]
pub struct Joined {
    pub flows: Vec<FlowRow>,
    pub paths: Vec<PathRow>,
    pub matrix: Vec<CellRow>,
    /// By time; empty from [`crate::join_with`], which gives them away as they are ready.
    pub delays: Vec<DelayRow>,
    /// Logs read.
    pub logs: u64,
    /// Labels that one monitor logged twice within a window: they tell nothing.
    pub ambiguous: u64,
    /// Packets seen at one monitor only, where no other packet between the same hosts was seen elsewhere.
    pub alone: u64,
    /// Packets that went missing while not all monitors watched.
    pub unwatched: u64,
    /// Packets of flows and paths for which there was no room.
    pub crowded: u64,
    /// Packets that could not be waited for as long as the window is.
    pub hurried: u64,
}
