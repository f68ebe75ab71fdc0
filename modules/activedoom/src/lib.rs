//! Combines the updates that players send to a game server, as active networks did for Doom.

mod datagram;

use datagram::{Datagram, MOST, updates};
use flame_module::{Batch, Forward, Init, Out, Packet, Progress, flags, proto};

flame_module::manifest!();

/// Servers to which updates wait at once.
const SERVERS: usize = 16;

/// Updates that wait for others to one server.
struct Waiting {
    /// The time of the first one, after which the others are counted.
    since_ns: u64,
    datagram: Datagram,
}

pub struct ActiveDoom {
    port: u16,
    hold_ns: u64,
    largest: usize,
    /// [`SERVERS`] places.
    servers: Vec<Option<Waiting>>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    received: u64,
    received_bytes: u64,
    updates: u64,
    replaced: u64,
    sent: u64,
    sent_bytes: u64,
    passed: u64,
}

impl ActiveDoom {
    /// Returns what waits at a place.
    fn waiting(&mut self, at: usize) -> Option<&mut Waiting> {
        self.servers.get_mut(at)?.as_mut()
    }

    /// Returns the first place of which this holds. Loops over places have a constant number of iterations,
    /// so that a packet has a bound.
    fn place(&self, holds: impl Fn(Option<&Waiting>) -> bool) -> Option<usize> {
        (0..SERVERS).find(|at| self.servers.get(*at).is_some_and(|waiting| holds(waiting.as_ref())))
    }

    /// Sends the updates that have waited for long enough.
    fn send_due(&mut self, now_ns: u64, out: &mut Out) {
        let hold_ns = self.hold_ns;
        for at in 0..SERVERS {
            // A time before the first update is that of a clock that was set back.
            let is_due = |w: &mut Waiting| now_ns < w.since_ns || now_ns - w.since_ns >= hold_ns;
            if self.waiting(at).is_some_and(is_due) {
                self.send(at, out);
            }
        }
    }

    #[inline(never)]
    fn send(&mut self, at: usize, out: &mut Out) {
        let Some(waiting) = self.servers.get_mut(at) else { return };
        if let Some(Waiting { datagram, .. }) = waiting {
            let bytes = datagram.finish();
            self.counts.sent += 1;
            self.counts.sent_bytes += bytes.len() as u64;
            out.make(0, bytes);
        }
        *waiting = None;
    }

    /// Keeps the updates of a packet. Returns whether it is one of updates, and all were kept.
    fn keep(&mut self, packet: &Packet<'_>, out: &mut Out) -> bool {
        let is_whole = packet.flags & (flags::IPV4 | flags::TRANSPORT) == flags::IPV4 | flags::TRANSPORT
            && packet.flags & (flags::FRAGMENT | flags::MALFORMED | flags::TRUNCATED | flags::TUNNEL) == 0
            && packet.proto == proto::UDP
            && packet.dport() == Some(self.port);
        let Some(all) = updates(packet.payload()).filter(|all| is_whole && all.len() <= self.largest) else {
            return false;
        };
        let (header, at) = (packet.bytes(), usize::from(packet.l3));
        let found = self.place(|waiting| waiting.is_some_and(|waiting| waiting.datagram.is_for(header, at)));
        let largest = self.largest;
        if let Some(server) = found
            && self.waiting(server).is_some_and(|waiting| waiting.datagram.len_with(all) > largest)
        {
            self.send(server, out);
        }
        let Some(server) = found.or_else(|| self.place(|waiting| waiting.is_none())) else { return false };
        let Some(waiting) = self.servers.get_mut(server) else { return false };
        if waiting.is_none() {
            let Some(datagram) = Datagram::new(header, at, usize::from(packet.l4)) else { return false };
            *waiting = Some(Waiting { since_ns: packet.ts_ns, datagram });
        }
        let Some(waiting) = waiting else { return false };
        let (added, replaced) = waiting.datagram.add(all);
        self.counts.updates += added;
        self.counts.replaced += replaced;
        true
    }
}

impl Forward for ActiveDoom {
    fn new(init: &Init) -> Self {
        let Params { port, hold, largest, .. } = Params::from(init);
        let largest = usize::from(largest).min(MOST);
        let servers = (0..SERVERS).map(|_| None).collect();
        Self { port, hold_ns: hold, largest, servers, counts: Counts::default() }
    }

    fn push(&mut self, port: u32, batch: &Batch, out: &mut Out) {
        for (index, packet) in batch.packets().enumerate() {
            self.send_due(packet.ts_ns, out);
            if port == 1 {
                continue;
            }
            if self.keep(&packet, out) {
                self.counts.received += 1;
                self.counts.received_bytes += u64::from(packet.wire_len);
            } else {
                self.counts.passed += 1;
                out.send(index, 0);
            }
        }
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        let Counts { received, received_bytes, updates, replaced, sent, sent_bytes, passed } = self.counts;
        let waiting = (0..SERVERS).filter_map(|at| Some(self.waiting(at)?.datagram.count())).sum();
        out.write(&Total { received, received_bytes, updates, replaced, sent, sent_bytes, passed, waiting });
        Progress::Done
    }
}

flame_module::export!(forward = ActiveDoom);

#[cfg(test)]
mod tests;
