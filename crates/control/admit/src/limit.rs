/// The time that a packet may take, and the factor by which a module's estimate may exceed it: the excess
/// waits in a buffer for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacketTimeLimit {
    /// The limit in nanoseconds per packet.
    pub packet_ns: f64,
    /// The inflation factor, at least 1.
    pub factor: f64,
    /// The length in bytes of the longest packets that are captured.
    pub snaplen: u64,
}

/// The bits of a frame of 64 bytes with preamble and gap, the shortest distance of frames on a link.
const WIRE_BITS: f64 = (64 + 20) as f64 * 8.0;

impl PacketTimeLimit {
    /// Returns the limit for a link of `bits_per_second`, for a module that may use `share` of one
    /// processor, with room for `buffer` packets. A burst of one batch in which every packet costs the most
    /// must fit into the buffer: 256 × (cost / limit − 1) ≤ buffer.
    pub fn of_link(bits_per_second: f64, share: f64, buffer: u64, snaplen: u64) -> Self {
        let packet_ns = share * WIRE_BITS / bits_per_second * 1e9;
        Self { packet_ns, factor: 1.0 + buffer as f64 / flame_abi::MAX_BATCH as f64, snaplen }
    }

    /// Returns the largest acceptable estimate in nanoseconds per packet.
    pub fn most_ns(&self) -> f64 {
        self.packet_ns * self.factor
    }
}
