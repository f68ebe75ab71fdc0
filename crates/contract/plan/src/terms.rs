use serde::{Deserialize, Serialize};

/// What a grant says beside view and limits. The default is no restriction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    pub release: Release,
    /// On live sources: a module that exceeds it more often than allowed is evicted.
    pub time_limit: Option<TimeLimit>,
    /// Blocks that may wait for the module; 0 stands for as many as there are.
    pub buffer: u32,
    /// Whether the module runs under a grant: nothing of its own making then leaves except in records.
    pub granted: bool,
}

/// Which records and packets of a module are released. Those withheld are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// Packets that a record must stand for: its largest column of unit `packets`. Records without one stand
    /// for none.
    pub group: u64,
    /// Records per second of packet time. What one second leaves over is not saved; the same holds for the
    /// others.
    pub records: u64,
    /// Bytes of records per second, as modules lay them out.
    pub bytes: u64,
    /// Bytes of written packets per second.
    pub transmit: u64,
}

impl Default for Release {
    fn default() -> Self {
        Self { group: 0, records: u64::MAX, bytes: u64::MAX, transmit: u64::MAX }
    }
}

/// At most `slice_ns` of processor time in each `period_ns`, of all workers together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Share {
    pub slice_ns: u64,
    pub period_ns: u64,
}

/// A limit on the measured time of a module's batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeLimit {
    /// Nanoseconds for each packet of a batch.
    pub packet_ns: u64,
    /// Batches per 1000 that may take longer.
    pub over_per_mille: u32,
}
