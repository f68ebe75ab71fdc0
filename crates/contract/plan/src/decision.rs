//! Decisions of a module that forwards packets.

use std::ops::Range;

/// One decision about packets that were offered together. Packets are named by their index among these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Neighbours leave as they came.
    Send { first: usize, count: usize, port: usize },
    /// A packet leaves with other bytes, whose place among those of all decisions is given.
    Change { packet: usize, port: usize, bytes: Range<usize> },
    /// A new packet leaves.
    Make { port: usize, bytes: Range<usize> },
    /// A packet is held in a slot, and one that was there is dropped.
    Hold { packet: usize, slot: usize },
    /// A packet that was held leaves.
    Release { slot: usize, port: usize },
    /// A copy of a packet that is held leaves.
    Copy { slot: usize, port: usize },
    /// A packet that was held is dropped.
    Discard { slot: usize },
    /// The instance that held packets has ended, and another one knows nothing of them.
    Forget,
}
