//! Packets that a module holds: the frames of kind [`HOLD`], [`RELEASE`] and [`COPY`].

use flame_abi::output::{COPY, HELD, HOLD, RELEASE};

/// A frame about a packet that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// The packet of the batch is held in the slot, and one that was there is dropped.
    Hold { packet: u16, slot: u16 },
    /// The packet in the slot is sent from the output.
    Release { slot: u16, port: u16 },
    /// A copy of the packet in the slot is sent from the output.
    Copy { slot: u16, port: u16 },
}

/// Reads the payload of a frame of one of the three kinds.
pub(crate) fn held(kind: u16, payload: &[u8]) -> Option<Held> {
    let [a, b, c, d] = *<&[u8; HELD]>::try_from(payload).ok()?;
    let (first, second) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
    match kind {
        HOLD => Some(Held::Hold { packet: first, slot: second }),
        RELEASE => Some(Held::Release { slot: first, port: second }),
        COPY => Some(Held::Copy { slot: first, port: second }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Fault;
    use crate::{Frame, Schema, Sent, frames};
    use flame_abi::manifest::Manifest;
    use flame_plan::Forward;

    fn frame(kind: u16, first: u16, second: u16) -> Vec<u8> {
        let payload = [first.to_le_bytes(), second.to_le_bytes()].concat();
        [&4_u32.to_le_bytes()[..], &kind.to_le_bytes(), &[0, 0], &payload].concat()
    }

    fn schema(ports: &str, rights: Forward) -> Schema {
        let text = format!("abi = 1\nname = \"m\"\nversion = \"1\"\ndescription = \"d\"\n[ports]\n{ports}");
        Schema::new(&Manifest::parse(text.as_bytes()).unwrap()).forwarding(rights)
    }

    #[test]
    fn slots_outputs_and_packets_are_checked() {
        let all = schema("outputs = 2\ntransmit = true\nheld = 3", Forward::default());
        let fault = |schema: &Schema, output: &[u8]| {
            schema.check_sent(output, false, Some(&mut Sent::of(2))).err().map(|e| e.fault)
        };
        let cases: [(u16, u16, u16, Option<Fault>); 10] = [
            (HOLD, 1, 2, None),
            (HOLD, 2, 0, Some(Fault::Index { found: 2, count: 2 })),
            (HOLD, 0, 3, Some(Fault::Slot { found: 3, held: 3 })),
            (HOLD, 0xffff, 0, Some(Fault::Index { found: 0xffff, count: 2 })),
            (RELEASE, 2, 1, None),
            (RELEASE, 3, 1, Some(Fault::Slot { found: 3, held: 3 })),
            (RELEASE, 2, 2, Some(Fault::Port { found: 2, outputs: 2 })),
            (COPY, 0, 0, None),
            (COPY, 0, 2, Some(Fault::Port { found: 2, outputs: 2 })),
            (COPY, 0xffff, 0, Some(Fault::Slot { found: 0xffff, held: 3 })),
        ];
        for (kind, first, second, expected) in cases {
            let output = frame(kind, first, second);
            assert_eq!(fault(&all, &output), expected, "{kind:#x} {first} {second}");
            let read = frames(&output).next();
            assert_eq!(read, held(kind, &output[8..]).map(Frame::Held));
            // A payload of another length is refused.
            let long = [&5_u32.to_le_bytes()[..], &output[4..], &[0]].concat();
            assert_eq!(fault(&all, &long), Some(Fault::HeldLength { length: 5 }));
            // Only flame_push decides about packets.
            assert_eq!(all.check(&output, false).map_err(|e| e.fault), Err(Fault::Send));
        }
        let twice = [frame(HOLD, 0, 0), frame(HOLD, 0, 1)].concat();
        assert_eq!(fault(&all, &twice), Some(Fault::Twice { found: 0 }));
    }

    #[test]
    fn holding_takes_a_right_and_copies_another() {
        let fault = |ports: &str, rights: Forward, kind: u16| {
            let found = schema(ports, rights).check_sent(&frame(kind, 0, 0), false, Some(&mut Sent::of(1)));
            found.err().map(|e| e.fault)
        };
        let (all, none) = (Forward::default(), Forward { hold: false, ..Forward::default() });
        for kind in [HOLD, RELEASE, COPY] {
            assert_eq!(fault("transmit = true", all, kind), Some(Fault::Hold { declared: false }));
            assert_eq!(fault("transmit = true\nheld = 1", none, kind), Some(Fault::Hold { declared: true }));
        }
        assert_eq!(fault("held = 1", all, COPY), Some(Fault::Transmit { declared: false }));
        assert_eq!(fault("held = 1", all, RELEASE), None);
    }
}
