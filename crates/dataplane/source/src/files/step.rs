//! The result of one step of a parser.

use crate::RawPacket;

/// The result of parsing the next bytes.
pub enum Step {
    /// A packet. `offset` is relative to the given bytes.
    Packet(RawPacket),
    /// Something else, of the returned length.
    Skip,
    /// The bytes end before the next item does, of which at least the returned length is needed.
    More,
    /// The bytes from here on cannot be read.
    Damage(String),
}
