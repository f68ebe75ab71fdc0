//! The packets that a module holds. They stay where they are; here are their lengths.

use crate::collect::Collector;
use crate::forward::Flight;
use flame_output::Held;
use flame_plan::{Decision, ModuleId};

/// The most bytes of packets that a module holds. Each packet has a buffer of at least [`BUFFER`] bytes.
const MAX_BYTES: usize = 16 << 20;
const BUFFER: usize = 2048;

/// The lengths of the packets that a module holds, by their slots.
#[derive(Default)]
pub(crate) struct HeldPackets {
    lengths: Vec<Option<u32>>,
    /// The number of packets, and the bytes of their buffers.
    count: usize,
    bytes: usize,
    /// Whether the instance that held packets has ended, and nobody was told yet.
    pub(crate) is_forgotten: bool,
}

fn buffer(length: u32) -> usize {
    (length as usize).max(BUFFER)
}

impl HeldPackets {
    /// Forgets all packets, since their instance has ended. Returns whether there were some of which the
    /// element was not told.
    pub(crate) fn forget(&mut self) -> bool {
        let is_forgotten = self.is_forgotten || self.count > 0;
        *self = Self { is_forgotten, ..Self::default() };
        is_forgotten
    }

    /// Empties a slot, and returns the length of the packet that was there.
    fn remove(&mut self, slot: usize) -> Option<u32> {
        let length = self.lengths.get_mut(slot)?.take()?;
        self.count -= 1;
        self.bytes -= buffer(length);
        Some(length)
    }

    /// Puts a packet into a slot, if there is room. One that was there is dropped in any case.
    fn insert(&mut self, slot: usize, length: u32) -> bool {
        self.remove(slot);
        if self.bytes + buffer(length) > MAX_BYTES {
            return false;
        }
        if self.lengths.len() <= slot {
            self.lengths.resize(slot + 1, None);
        }
        self.lengths[slot] = Some(length);
        self.count += 1;
        self.bytes += buffer(length);
        true
    }

    /// Returns the decision of a frame that passed the schema, or `None` if nothing follows from it: the slot
    /// is empty, or the packet is withheld.
    pub(crate) fn decide(
        &mut self,
        frame: Held,
        module: ModuleId,
        flight: &mut Flight,
        collector: &mut Collector<'_>,
    ) -> Option<Decision> {
        match frame {
            Held::Hold { packet, slot } => {
                let (packet, slot) = (flight.index(packet), usize::from(slot));
                if !self.insert(slot, flight.length(packet)) {
                    collector.withhold(module);
                    // The packet that was in the slot goes all the same.
                    return Some(Decision::Discard { slot });
                }
                Some(Decision::Hold { packet, slot })
            }
            Held::Release { slot, port } => {
                let slot = usize::from(slot);
                self.remove(slot)?;
                Some(Decision::Release { slot, port: port.into() })
            }
            Held::Copy { slot, port } => {
                let slot = usize::from(slot);
                let length = self.lengths.get(slot).copied().flatten()? as usize;
                if !flight.made.add(length) {
                    collector.withhold(module);
                    return None;
                }
                collector.lets_made(module, length).then_some(Decision::Copy { slot, port: port.into() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_counted_by_packets_and_bytes() {
        let mut held = HeldPackets::default();
        assert!(held.insert(3, 100) && held.insert(3, 5000) && held.insert(0, 60));
        assert_eq!((held.count, held.bytes), (2, 5000 + BUFFER));
        assert_eq!((held.remove(3), held.remove(3), held.remove(9)), (Some(5000), None, None));
        assert_eq!((held.count, held.bytes), (1, BUFFER));
        assert!(held.forget() && held.forget() && held.count == 0);
        assert_eq!((held.bytes, held.remove(0)), (0, None));
    }

    #[test]
    fn bytes_are_limited() {
        let mut held = HeldPackets::default();
        assert!((0..MAX_BYTES / BUFFER).all(|slot| held.insert(slot, 60)));
        assert!(!held.insert(MAX_BYTES / BUFFER, 60) && held.insert(5, 60));
        // A packet that finds no room takes the place of the earlier one all the same.
        assert!(!held.insert(7, 10_000));
        assert_eq!(held.remove(7), None);
    }
}
