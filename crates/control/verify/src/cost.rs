//! Costs: weighted instructions of a call, and of each packet that the call begins.

use crate::poly::Poly;
use wasmparser::Operator;

/// The cost of a path: `call + COUNT × each + begun × packet`, where `begun` is the number of packets that
/// the path begins, of the `COUNT` of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    pub call: Poly,
    /// The cost of loops with as many iterations as the batch has packets.
    pub each: Poly,
    /// The cost of iterations that begin a packet.
    pub packet: Poly,
}

impl Cost {
    pub const ZERO: Self = Self { call: Poly::ZERO, each: Poly::ZERO, packet: Poly::ZERO };

    /// Returns the cost of one path followed by the other. They begin different packets.
    #[must_use]
    pub fn then(self, other: Self) -> Self {
        Self {
            call: self.call.plus(other.call),
            each: self.each.plus(other.each),
            packet: self.packet.max(other.packet),
        }
    }

    /// Returns a cost of at least either path's.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            call: self.call.max(other.call),
            each: self.each.max(other.each),
            packet: self.packet.max(other.packet),
        }
    }

    /// Returns the cost with `call` more that no packet causes.
    #[must_use]
    pub fn and(self, call: Poly) -> Self {
        Self { call: self.call.plus(call), ..self }
    }

    pub fn is_bounded(self) -> bool {
        self.call.is_bounded() && self.of_packet().is_bounded()
    }

    /// Returns the largest cost that each packet of a batch adds.
    pub fn of_packet(self) -> Poly {
        self.each.plus(self.packet)
    }

    /// Returns the cost of a call with `packets` packets, of which the longest has `longest` bytes. All
    /// bounds are evaluated here.
    ///
    /// L is the length of the longest packet of the batch: code may loop over it for each of the packets,
    /// however short they are. So a sum over the packets' own lengths is no bound.
    pub fn at(self, packets: u64, longest: u64) -> Option<u128> {
        self.call.plus(self.of_packet().times(Poly::constant(packets))).at(longest)
    }
}

/// The weight of entering a function.
pub const ENTRY: u64 = 1;
/// The weight of `memory.grow` in addition to its 1: about a system call.
pub const GROW: u64 = 1024;
/// The weight of `memory.fill` and `memory.init` in addition to their length.
pub const BULK: u64 = 8;
/// The number of bytes that `memory.fill` and `memory.init` process for a weight of 1, as a power of two.
pub const BULK_SHIFT: u32 = 4;
/// The rewriter replaces `memory.copy` with a function of at most `120 + 31 × bytes / 64` instructions.
pub const COPY: (u64, u64, u64) = (120, 31, 64);

/// The instructions that a call may execute from the first function on that diverges (as a panic does), until
/// it traps. Nothing is proved about such functions: the rewriter gives them no more fuel, and the bound of
/// an entry that may reach one contains it once, because that function does not return.
pub const DIVERGING: u64 = 16_384;

/// Returns the weight of one instruction, without calls, loops and lengths of bulk instructions.
pub fn weight(operator: &Operator<'_>) -> u64 {
    match operator {
        Operator::Nop
        | Operator::Drop
        | Operator::Block { .. }
        | Operator::Loop { .. }
        | Operator::Else
        | Operator::End
        | Operator::Return
        | Operator::Unreachable => 0,
        _ => 1,
    }
}
