//! Accounts for packets that a module holds. The packets themselves stay with their owner.

use crate::forward::new_packet_limit::Made;
use crate::records::collect::Collector;
use flame_abi::MAX_PACKET;
use flame_output::Held;
use flame_plan::{Decision, ModuleId};

/// The most bytes of packets that a module holds. Each packet has a buffer of at least [`BUFFER`] bytes.
const MAX_BYTES: usize = 16 << 20;
const BUFFER: usize = 2048;
/// The bytes that a packet counts as if the module's view hides its length: those of the longest that is
/// kept. What the module may hold and copy would show the length otherwise.
const HIDDEN: u32 = MAX_PACKET as u32;

/// The packets that a module holds, by their slots, with the bytes that they count as.
pub(crate) struct HeldPackets {
    sizes: Vec<Option<u32>>,
    bytes: usize,
    hides_lengths: bool,
    /// The instance that may have held packets has ended, and the element was not told yet.
    pub(crate) is_forgotten: bool,
}

fn buffer(size: u32) -> usize {
    (size as usize).max(BUFFER)
}

impl HeldPackets {
    pub(crate) fn new(slots: usize, hides_lengths: bool) -> Self {
        Self { sizes: vec![None; slots], bytes: 0, hides_lengths, is_forgotten: false }
    }

    /// Forgets all packets, since their instance has ended. Returns whether the module may have held some:
    /// the last decisions of the instance may have had no effect, so what is held is not known here.
    pub(crate) fn forget(&mut self) -> bool {
        self.sizes.fill(None);
        self.bytes = 0;
        !self.sizes.is_empty()
    }

    /// Returns the bytes that a packet counts as. They follow from what the module is shown.
    fn size(&self, wire_len: u32) -> u32 {
        if self.hides_lengths { HIDDEN } else { wire_len.min(MAX_PACKET as u32) }
    }

    /// Empties a slot.
    fn remove(&mut self, slot: usize) -> Option<()> {
        let size = self.sizes.get_mut(slot)?.take()?;
        self.bytes -= buffer(size);
        Some(())
    }

    /// Puts a packet into a slot, if there is room. One that was there is dropped in any case.
    fn insert(&mut self, slot: usize, wire_len: u32) -> bool {
        self.remove(slot);
        let size = self.size(wire_len);
        let Some(place) = self.sizes.get_mut(slot) else { return false };
        let has_room = self.bytes + buffer(size) <= MAX_BYTES;
        if has_room {
            *place = Some(size);
            self.bytes += buffer(size);
        }
        has_room
    }

    /// Returns the decision of a frame that passed the schema, or `None` if nothing follows from it: the slot
    /// is empty, or the packet is withheld. `offered` returns the index of a packet of the batch among all
    /// that were offered, and its length on the wire.
    pub(crate) fn decide(
        &mut self,
        frame: Held,
        module: ModuleId,
        offered: impl Fn(u16) -> (usize, u32),
        (made, collector): (&mut Made, &mut Collector<'_>),
    ) -> Option<Decision> {
        match frame {
            Held::Hold { packet, slot } => {
                let ((packet, wire_len), slot) = (offered(packet), usize::from(slot));
                if !self.insert(slot, wire_len) {
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
                let size = self.sizes.get(slot).copied().flatten()? as usize;
                if !made.add(size) {
                    collector.withhold(module);
                    return None;
                }
                collector.lets_made(module, size).then_some(Decision::Copy { slot, port: port.into() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_counted_by_bytes() {
        let mut held = HeldPackets::new(4, false);
        assert!(held.insert(3, 100) && held.insert(3, 5000) && held.insert(0, 60));
        assert_eq!(held.bytes, 5000 + BUFFER);
        assert!(!held.insert(4, 60), "there is no such slot");
        assert_eq!((held.remove(3), held.remove(3), held.remove(9)), (Some(()), None, None));
        assert_eq!(held.bytes, BUFFER);
        assert!(held.forget() && held.forget());
        assert_eq!((held.bytes, held.remove(0)), (0, None));
        assert!(!HeldPackets::new(0, false).forget());
    }

    #[test]
    fn bytes_are_limited() {
        let most = MAX_BYTES / BUFFER;
        let mut held = HeldPackets::new(most + 1, false);
        assert!((0..most).all(|slot| held.insert(slot, 60)));
        assert!(!held.insert(most, 60) && held.insert(5, 60));
        // A packet that finds no room takes the place of the earlier one all the same.
        assert!(!held.insert(7, 10_000));
        assert_eq!(held.remove(7), None);
    }

    #[test]
    fn hidden_lengths_decide_nothing() {
        let counts = |wire_len: u32| {
            let mut held = HeldPackets::new(4096, true);
            (0..4096).take_while(|slot| held.insert(*slot, wire_len)).count()
        };
        assert!([0, 60, 1514, 1 << 30].iter().all(|wire_len| counts(*wire_len) == MAX_BYTES / MAX_PACKET));
    }
}
