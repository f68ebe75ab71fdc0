//! Puts the packets of an RTP stream (RFC 3550) back into their order: those that come too early are held
//! until the missing ones have come, or 32 more are ahead of these.

use flame_module::{Batch, Forward, Init, Out, Packet, Progress};

flame_module::manifest!();

/// The number of slots, a packet's being its sequence number modulo this.
const SLOTS: u16 = 32;

pub struct Resequence {
    port: u16,
    /// The sequence number that is next.
    next: Option<u16>,
    /// A bit for each slot.
    held: u32,
    total: Total,
}

impl Resequence {
    fn sequence(&self, packet: &Packet<'_>) -> Option<u16> {
        let payload = (packet.udp()?.dport() == self.port).then(|| packet.payload())?;
        // Version 2.
        (payload.first()? >> 6 == 2).then_some(u16::from_be_bytes([*payload.get(2)?, *payload.get(3)?]))
    }

    /// Sends the first `count` packets that are held from the sequence number `first` on.
    fn release(&mut self, first: u16, count: u32, out: &mut Out) {
        let mut waiting = self.held.rotate_right(u32::from(first));
        for ahead in 0..SLOTS {
            if waiting & 1 == 1 && u32::from(ahead) < count {
                out.release(first.wrapping_add(ahead) % SLOTS, 0);
            }
            waiting >>= 1;
        }
        let done = 1_u32.checked_shl(count).unwrap_or(0).wrapping_sub(1);
        self.held &= !done.rotate_left(u32::from(first));
    }

    /// Sends or holds a packet of the stream.
    fn take(&mut self, index: usize, sequence: u16, out: &mut Out) {
        self.total.packets += 1;
        let ahead = sequence.wrapping_sub(self.next.unwrap_or(sequence));
        if (1..SLOTS).contains(&ahead) {
            let slot = sequence % SLOTS;
            // A packet that is held already is a duplicate, which goes its way at once.
            if self.held >> slot & 1 == 0 {
                out.hold(index, slot);
                self.held |= 1 << slot;
                self.total.held += 1;
                return;
            }
        } else if ahead < 0x8000 {
            if ahead > 0 {
                // Those that are missing do not come any more.
                self.release(sequence.wrapping_sub(ahead), 32, out);
            }
            self.next = Some(sequence.wrapping_add(1));
        }
        out.send(index, 0);
        if let Some(next) = self.next {
            let ready = self.held.rotate_right(u32::from(next)).trailing_ones();
            self.release(next, ready, out);
            self.next = Some(next.wrapping_add(ready as u16));
        }
    }
}

impl Forward for Resequence {
    fn new(init: &Init) -> Self {
        let total = Total { packets: 0, held: 0 };
        Self { port: Params::from(init).port, next: None, held: 0, total }
    }

    fn push(&mut self, _input: u32, batch: &Batch, out: &mut Out) {
        for (index, packet) in batch.packets().enumerate() {
            match self.sequence(&packet) {
                Some(sequence) => self.take(index, sequence, out),
                None => _ = out.send(index, 0),
            }
        }
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        out.write(&self.total);
        Progress::Done
    }
}

flame_module::export!(forward = Resequence);

#[cfg(test)]
mod tests {
    use super::*;
    use flame_module::testing::{self, Decision, Parameters, Traffic};

    fn order(sequences: &[u16]) -> Vec<u16> {
        let mut module = Resequence::new(&Init::new(&Parameters::of(Params::DEFAULTS).init()));
        let (mut slots, mut all) = ([0; SLOTS as usize], Vec::new());
        for sequence in sequences {
            let mut traffic = Traffic::default();
            let payload = [&[0x80, 0][..], &sequence.to_be_bytes()].concat();
            traffic.udp("10.0.0.1:4000", "10.0.0.2:5004").payload(&payload);
            for decision in testing::decide(&mut module, 0, &traffic) {
                match decision {
                    Decision::Sent(_) => all.push(*sequence),
                    Decision::Held { slot, .. } => slots[usize::from(slot)] = *sequence,
                    Decision::Released { slot, .. } => all.push(slots[usize::from(slot)]),
                }
            }
        }
        all
    }

    #[test]
    fn packets_leave_in_their_order() {
        assert_eq!(order(&[65534, 0, 65535, 3, 2, 1, 4]), [65534, 65535, 0, 1, 2, 3, 4]);
        // Late ones, and duplicates, go their way.
        assert_eq!(order(&[5, 4, 7, 7, 6]), [5, 4, 7, 6, 7]);
        // 6 does not come any more.
        assert_eq!(order(&[5, 7, 9, 50, 51]), [5, 7, 9, 50, 51]);
    }
}
