//! The limits of new packets.

/// The most new packets that a module makes of those that were offered together, and their most bytes. Each
/// is a buffer of its own, however short it is.
const MAX_MADE: Made = Made { packets: 1024, bytes: 4 << 20 };

/// New packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Made {
    packets: usize,
    bytes: usize,
}

impl Made {
    /// Adds a packet, if there is room for it.
    pub(crate) fn add(&mut self, bytes: usize) -> bool {
        let Self { packets, bytes } = Self { packets: self.packets + 1, bytes: self.bytes + bytes };
        let has_room = packets <= MAX_MADE.packets && bytes <= MAX_MADE.bytes;
        if has_room {
            *self = Self { packets, bytes };
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_packets_are_limited_in_number_and_bytes() {
        let mut made = Made::default();
        assert_eq!((0..5000).filter(|_| made.add(1)).count(), MAX_MADE.packets);
        let mut made = Made::default();
        assert_eq!((0..1000).filter(|_| made.add(65_535)).count(), MAX_MADE.bytes / 65_535);
        // A shorter one fits still.
        assert!(made.add(4));
    }
}
