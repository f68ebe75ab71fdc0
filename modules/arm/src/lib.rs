//! Active Reliable Multicast: a node repairs losses from a cache of packets, and suppresses NACKs.

mod cache;

use cache::{Cache, LARGEST};
use flame_module::{Batch, Forward, Init, Map, Out, Packet, Progress, flags, limit, proto};

flame_module::manifest!();

const MAGIC: [u8; 3] = [b'A', b'R', 1];
/// The packets whose last NACK is remembered.
const ASKED: usize = 4096;

/// The number of a packet of a group.
type Name = u64;

enum Message {
    Data(Name),
    Nack(Name),
}

pub struct Arm {
    port: u16,
    suppress_ns: u64,
    cache: Cache,
    /// The time of the last NACK that was handed on.
    asked: Map<Name, u64>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    data: u64,
    nacks: u64,
    served: u64,
    suppressed: u64,
    asked: u64,
    passed: u64,
}

impl Arm {
    fn read(&self, packet: &Packet<'_>) -> Option<Message> {
        let is_whole = packet.flags & (flags::IPV4 | flags::TRANSPORT) == flags::IPV4 | flags::TRANSPORT
            && packet.flags & (flags::FRAGMENT | flags::MALFORMED | flags::TRUNCATED | flags::TUNNEL) == 0
            && packet.proto == proto::UDP
            && packet.dport() == Some(self.port);
        let (head, rest) = packet.payload().split_first_chunk::<8>().filter(|_| is_whole)?;
        let (magic, number) = (&head[..3], [head[4], head[5], head[6], head[7]]);
        if magic != MAGIC {
            return None;
        }
        let of = |group: &[u8]| Some(name(*group.first_chunk()?, number));
        match head[3] {
            0 => packet.ipv4().and_then(|_| of(&packet.l3()[16..])).map(Message::Data),
            1 if rest.len() == 4 => of(rest).map(Message::Nack),
            _ => None,
        }
    }

    fn nack(&mut self, index: usize, name: Name, now_ns: u64, out: &mut Out) {
        self.counts.nacks += 1;
        let is_recent = |then: u64| now_ns >= then && now_ns - then < self.suppress_ns;
        if let Some((bytes, repaired)) = self.cache.get(name) {
            if repaired.is_some_and(is_recent) {
                self.counts.suppressed += 1;
            } else {
                out.make(0, &bytes[..limit(bytes.len(), LARGEST)]);
                self.cache.mark_repaired(name, now_ns);
                self.counts.served += 1;
            }
            self.cache.record(true);
            return;
        }
        self.cache.record(false);
        if self.asked.get(name).copied().is_some_and(is_recent) {
            self.counts.suppressed += 1;
            return;
        }
        self.asked.insert(name, now_ns, now_ns);
        self.counts.asked += 1;
        out.send(index, 1);
    }
}

fn name(group: [u8; 4], number: [u8; 4]) -> Name {
    u64::from(u32::from_be_bytes(group)) << 32 | u64::from(u32::from_be_bytes(number))
}

impl Forward for Arm {
    fn new(init: &Init) -> Self {
        let Params { port, suppress, .. } = Params::from(init);
        let (cache, counts) = Default::default();
        Self { port, suppress_ns: suppress, cache, asked: Map::new(ASKED), counts }
    }

    fn push(&mut self, port: u32, batch: &Batch, out: &mut Out) {
        for (index, packet) in batch.packets().enumerate() {
            match (port, self.read(&packet)) {
                (0, Some(Message::Data(name))) => {
                    self.counts.data += 1;
                    self.cache.insert(name, packet.ts_ns, packet.bytes());
                    out.send(index, 0);
                }
                (1, Some(Message::Nack(name))) => self.nack(index, name, packet.ts_ns, out),
                _ => {
                    self.counts.passed += 1;
                    out.send(index, port);
                }
            }
        }
    }

    fn pressure(&mut self, free: u64, out: &mut Out) {
        self.cache.halve();
        out.write(&Shed { free, cache: self.cache.bytes() });
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        let Counts { data, nacks, served, suppressed, asked, passed } = self.counts;
        let (cache, refused) = (self.cache.bytes(), self.cache.refused);
        out.write(&Total { data, nacks, served, suppressed, asked, passed, cache, refused });
        Progress::Done
    }
}

flame_module::export!(forward = Arm, pressure);

#[cfg(test)]
mod tests;
