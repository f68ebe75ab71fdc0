use crate::filter::ShownFilter;
use crate::least_common_multiple;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The terms of a grant besides view and limits. The default has no restrictions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    pub release: Release,
    /// The time limit on live sources. A module that exceeds it more often than allowed is evicted.
    pub time_limit: Option<TimeLimit>,
    /// The least packet time in nanoseconds between two ticks of the module; `u64::MAX` permits none.
    pub ticks_ns: u64,
    /// The number of blocks that may wait for the module; 0 means all that exist.
    pub buffer: u32,
    /// The rank when a worker is behind: of two modules, the one with the smaller number loses packets first.
    pub priority: u32,
    /// The rights of a module that forwards packets.
    pub forward: Forward,
    /// The right to send frames on channels.
    pub sending: Sending,
    /// The rights to call services and to offer them.
    pub services: Services,
    /// Whether the module runs under a grant. If so, data it makes leaves only in records.
    pub granted: bool,
}

impl Terms {
    /// Returns the packet time in nanoseconds between two ticks of the module, in a run with a tick each
    /// `tick_ns`: a multiple of both; `u64::MAX` if it has none.
    pub fn tick_ns(&self, tick_ns: u64) -> u64 {
        least_common_multiple(self.ticks_ns, tick_ns)
    }
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            release: Release::default(),
            time_limit: None,
            ticks_ns: 1,
            buffer: 0,
            priority: u32::MAX,
            forward: Forward::default(),
            sending: Sending::default(),
            services: Services::default(),
            granted: false,
        }
    }
}

/// The rights of a module that forwards packets, besides the choice of their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    /// Whether bytes that it changed come back.
    pub modify: bool,
    /// Whether it makes packets.
    pub transmit: bool,
    /// Whether it holds packets.
    pub hold: bool,
}

impl Default for Forward {
    fn default() -> Self {
        Self { modify: true, transmit: true, hold: true }
    }
}

/// The right of a module to send frames on the channels that its manifest lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sending {
    pub is_allowed: bool,
    /// The filters that a frame must pass besides that of its channel.
    pub filters: Vec<ShownFilter>,
}

impl Default for Sending {
    fn default() -> Self {
        Self { is_allowed: true, filters: Vec::new() }
    }
}

/// The rights of a module to call the services that its manifest lists, and to reply to calls of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Services {
    pub call: bool,
    pub serve: bool,
}

impl Default for Services {
    fn default() -> Self {
        Self { call: true, serve: true }
    }
}

/// The conditions under which records and packets of a module are released. Withheld ones are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// The number of packets that a record must represent: the largest of its columns of unit `packets`, or
    /// none if it has no such column.
    pub group: u64,
    /// The number of records per second of packet time. As with `bytes` and `transmit`, the remainder of a
    /// second is not saved.
    pub records: u64,
    /// The bytes of records per second, in the encoding of modules.
    pub bytes: u64,
    /// The bytes of written packets per second.
    pub transmit: u64,
    /// The texts for the operator per second.
    pub logs: u64,
}

/// The texts for the operator per second of packet time of a module that may log.
pub const LOGS_PER_SECOND: u64 = 32;

impl Default for Release {
    fn default() -> Self {
        let (records, bytes, transmit) = (u64::MAX, u64::MAX, u64::MAX);
        Self { group: 0, records, bytes, transmit, logs: LOGS_PER_SECOND }
    }
}

/// A limit of `slice_ns` of processor time in each `period_ns`, over all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Share {
    pub slice_ns: u64,
    pub period_ns: u64,
}

impl Share {
    /// Returns the part of one processor that this is.
    pub fn part(self) -> f64 {
        self.slice_ns as f64 / self.period_ns.max(1) as f64
    }
}

impl fmt::Display for Share {
    /// Writes `SLICE/PERIOD`, in the form of policies.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |ns: u64| match ns {
            n if n > 0 && n.is_multiple_of(3_600_000_000_000) => format!("{}h", n / 3_600_000_000_000),
            n if n > 0 && n.is_multiple_of(1_000_000_000) => format!("{}s", n / 1_000_000_000),
            n if n > 0 && n.is_multiple_of(1_000_000) => format!("{}ms", n / 1_000_000),
            n if n > 0 && n.is_multiple_of(1000) => format!("{}us", n / 1000),
            n => format!("{n}ns"),
        };
        write!(f, "{}/{}", shown(self.slice_ns), shown(self.period_ns))
    }
}

/// A limit on the measured time of a module's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeLimit {
    /// The nanoseconds for each packet of a batch.
    pub packet_ns: u64,
    /// The number of batches per 1000 that may take longer.
    pub over_per_mille: u32,
    /// The thousandths of a processor that all other calls of an instance may take together, besides
    /// [`CALL_DEADLINE_MAX`](crate::limits::CALL_DEADLINE_MAX).
    pub share_per_mille: u32,
}
