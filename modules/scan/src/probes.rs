//! Probes of sources: what each touched in the current window.

use crate::distinct::Distinct;
use crate::tables::Params;
use flame_module::{Entry, FlowTable, Ip, Key, Map, Packet, mix, proto, tcp};

/// The silence in nanoseconds after which a UDP datagram is no answer any more.
const ANSWER_NS: u64 = 120_000_000_000;
/// The number of conversations of UDP that are known at once.
const TALKS: usize = 16_384;

/// The times and number of probes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    pub first: u64,
    pub last: u64,
    pub probes: u64,
}

impl Span {
    fn add(&mut self, at: u64) {
        if self.probes == 0 {
            self.first = at;
        }
        self.last = self.last.max(at);
        self.probes += 1;
    }
}

#[derive(Clone, Copy, Default)]
pub struct Source {
    pub span: Span,
    /// The last target.
    pub dst: Ip,
    pub hosts: Distinct,
    pub ports: Distinct,
}

#[derive(Clone, Copy, Default)]
pub struct Pair {
    pub span: Span,
    pub ports: Distinct,
}

/// A conversation of UDP: the endpoints of its first datagram.
#[derive(Clone, Copy, Default)]
struct Talk {
    src: Ip,
    dst: Ip,
    ports: (u16, u16),
    last: u64,
}

impl Entry for Talk {
    fn used(&self) -> u64 {
        self.last
    }
}

pub struct Probes {
    pub sources: Map<Ip, Source>,
    pub pairs: Map<(Ip, Ip), Pair>,
    talks: Option<FlowTable<Talk>>,
}

impl Probes {
    pub fn new(params: &Params) -> Self {
        Self {
            sources: Map::new(params.max_sources as usize),
            pairs: Map::new(params.max_pairs as usize),
            talks: params.udp.then(|| FlowTable::new(TALKS, ANSWER_NS)),
        }
    }

    /// Counts the packet if it is a probe.
    #[inline]
    pub fn packet(&mut self, packet: &Packet<'_>) {
        match packet.proto {
            // SYN, and what scanners send in place of it: FIN alone, no flag, all but ACK.
            proto::TCP if packet.tcp_flags & (tcp::ACK | tcp::RST) == 0 => self.probe(packet, packet.dport()),
            proto::UDP if self.talks.is_some() => self.datagram(packet),
            // Echo requests.
            proto::ICMP if packet.l4().first() == Some(&8) => self.probe(packet, Some(0)),
            proto::ICMPV6 if packet.l4().first() == Some(&128) => self.probe(packet, Some(0)),
            _ => {}
        }
    }

    fn datagram(&mut self, packet: &Packet<'_>) {
        let (Some(talks), Some(src), Some(dst)) = (&mut self.talks, packet.src(), packet.dst()) else {
            return;
        };
        let Some((sport, dport)) = packet.sport().zip(packet.dport()) else { return };
        let now = packet.ts_ns;
        let is = |talk: &Talk| {
            (talk.ports, talk.src, talk.dst) == ((sport, dport), src, dst)
                || (talk.ports, talk.src, talk.dst) == ((dport, sport), dst, src)
        };
        if let Some(index) = talks.find(packet.hash, now, is) {
            // What follows the first datagram, in either direction, touches nothing new.
            talks.get(index).last = now;
            return;
        }
        talks.insert(packet.hash, now, Talk { src, dst, ports: (sport, dport), last: now });
        self.probe(packet, Some(dport));
    }

    #[inline(never)]
    fn probe(&mut self, packet: &Packet<'_>, port: Option<u16>) {
        let (Some(src), Some(dst), Some(port)) = (packet.src(), packet.dst(), port) else { return };
        let now = packet.ts_ns;
        let of_port = mix(u64::from(port) | u64::from(packet.proto) << 16);
        let source = self.sources.or_insert(src, now);
        source.span.add(now);
        source.dst = dst;
        source.hosts.add(dst.hash());
        source.ports.add(of_port);
        if port != 0 {
            let pair = self.pairs.or_insert((src, dst), now);
            pair.span.add(now);
            pair.ports.add(of_port);
        }
    }
}
