//! Decisions of a module that forwards packets.

use crate::account::Shed;
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

/// The most bytes by which a module makes a packet longer that may change packets and make none: those of the
/// headers of a tunnel.
pub const GROWTH_MAX: usize = 128;

/// The fate of a packet that was offered to a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The module's view does not show the packet, so the module does not decide about it.
    Unseen,
    /// The module did not send the packet.
    Dropped,
    /// The packet is among [`Decided::decisions`].
    Sent,
    /// The module sent the packet with other bytes than it may: of another length, although it does not see
    /// the whole packet.
    Length,
    /// The module changed the form of headers, although it does not see the whole packet.
    Headers,
    /// The module, which may not make packets, made the packet longer than by [`GROWTH_MAX`].
    Growth,
    /// The bytes that the module composed in the packet are more than its grant releases.
    Withheld,
    /// The module lost the packet by a fault, or had no instance any more.
    Lost(Shed),
}

impl Fate {
    /// Returns the cause for which the packet is dropped, or `None` if it is passed on.
    pub fn cause(self) -> Option<&'static str> {
        match self {
            Self::Unseen | Self::Sent => None,
            Self::Dropped => Some("module"),
            Self::Length => Some("length changed by the module"),
            Self::Headers => Some("form of headers changed by the module"),
            Self::Growth => Some("grown by the module, which may not transmit"),
            Self::Withheld => Some("change withheld"),
            Self::Lost(cause) => Some(cause.name()),
        }
    }
}

/// The decisions about the packets that were offered together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// The output to which all packets go as they came, if the module decided nothing else. The lists are
    /// empty then.
    pub all_to: Option<usize>,
    /// The fate of each packet.
    pub fates: Vec<Fate>,
    /// The packets to send and to hold, in the module's order.
    pub decisions: Vec<Decision>,
    /// The bytes of packets that the module changed or made.
    pub bytes: Vec<u8>,
}
