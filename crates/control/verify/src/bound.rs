//! The bound of a loop, and its head.

use crate::cost::Cost;
use crate::linear::Symbol;
use crate::poly::Poly;
use std::collections::BTreeMap;

/// The head of a loop under a note.
pub struct Head {
    /// The number of completed iterations.
    pub trip: Symbol,
    /// The symbols of written locals at the head whose form is not `Step`.
    pub symbols: BTreeMap<u32, Symbol>,
    /// The largest number of back edges.
    pub trips: Poly,
    /// Whether that is at most the number of packets of the batch.
    pub by_count: bool,
}

/// The verified properties of a loop.
#[derive(Clone, Copy, Debug)]
pub struct LoopBound {
    pub function: u32,
    /// The number of the loop in its function.
    pub number: u32,
    /// Its offset in the file.
    pub offset: u32,
    /// Whether it iterates once per packet.
    pub packets: bool,
    /// Whether its number of back edges is at most the number of packets of the batch.
    pub by_count: bool,
    /// The largest number of back edges each time it is entered.
    pub trips: Poly,
    /// The cost of one iteration.
    pub iteration: Cost,
}

impl LoopBound {
    /// Returns the cost of a path through the loop: `base` before it, and `cost` in the last iteration.
    ///
    /// Iterations that begin a packet each are charged to the packets, including the last one if it begins
    /// one too.
    pub fn total(&self, base: Cost, cost: Cost, marked: bool) -> Cost {
        let one = self.iteration;
        let each = base.each.plus(self.trips.times(one.each)).plus(cost.each);
        match (self.packets, marked) {
            (true, true) => {
                let whole = one.call.plus(one.packet).max(cost.call.plus(cost.packet));
                Cost { call: base.call, each, packet: base.packet.max(whole) }
            }
            (true, false) => {
                let packet = base.packet.max(one.call.plus(one.packet)).max(cost.packet);
                Cost { call: base.call.plus(cost.call), each, packet }
            }
            (false, _) if self.by_count => Cost {
                call: base.call.plus(cost.call),
                each: each.plus(one.call),
                packet: base.packet.max(one.packet).max(cost.packet),
            },
            (false, _) => Cost {
                call: base.call.plus(self.trips.times(one.call)).plus(cost.call),
                each,
                packet: base.packet.max(one.packet).max(cost.packet),
            },
        }
    }
}
