use crate::Meters;
use std::sync::{Arc, OnceLock};

/// What a grant says beside view and limits. The default is no restriction.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    pub release: Release,
    /// On live sources: one that is slower more often than this allows is removed.
    pub time_limit: Option<TimeLimit>,
    /// Blocks that may wait for it; as many as there are if it is 0.
    pub buffer: u32,
    pub eviction: Eviction,
    /// Of the credential, or the run's own.
    pub meters: Meters,
}

/// Which records and packets of a module are let out. What is not is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Packets that a record must stand for: its largest column of unit `packets`. Records without one stand for
    /// none.
    pub group: u64,
    /// Per second of packet time, as are the others. What one second leaves over is not saved.
    pub records: u64,
    /// Of records, as modules lay them out.
    pub bytes: u64,
    /// Of packets written.
    pub transmit: u64,
}

impl Default for Release {
    fn default() -> Self {
        Self { group: 0, records: u64::MAX, bytes: u64::MAX, transmit: u64::MAX }
    }
}

/// At most `slice_ns` of processor time in each `period_ns`, of all workers together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    pub slice_ns: u64,
    pub period_ns: u64,
}

/// What a module's batches may take, measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimit {
    /// Nanoseconds for each packet of a batch.
    pub packet_ns: u64,
    /// Batches of a thousand that may take longer.
    pub over_per_mille: u32,
}

/// Tells the workers that a module has to go; all clones are one. Its instances are dropped with the next packets.
#[derive(Clone, Debug, Default)]
pub struct Eviction(Arc<OnceLock<String>>);

impl Eviction {
    /// The first reason counts.
    pub fn evict(&self, reason: String) {
        let _ = self.0.set(reason);
    }

    #[inline]
    pub fn reason(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}
