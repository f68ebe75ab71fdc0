//! Worms by signature in payload: their sources and targets.
//!
//! The fast path searches the payload with one automaton for all signatures and collects hits per source and
//! target. Every tick it sends them to the slow path, which keeps the totals and reports. The README
//! describes the method and the memory bound.
#![forbid(unsafe_code)]

mod found;
pub mod merge;
mod search;
pub mod signature;

/// The rows and parameters of `module.toml`.
pub mod tables {
    flame_module::manifest!();
}

pub use search::{Place, Search};

use flame_module::{Batch, Init, Module, Out, Packet, Progress, cold, flags};
use found::Found;
use tables::Params;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// The largest number of worms that one packet counts for; more are counted as dropped.
const MOST_WORMS: usize = 8;

/// Returns the signatures of the parameters, or the shipped ones.
fn signatures(params: &Params<'_>) -> Vec<signature::Signature> {
    let text = match params.signatures {
        "" => include_str!("../worms.txt"),
        own => own,
    };
    signature::parse(text).unwrap_or_else(|e| panic!("parameter signatures: {e}"))
}

pub struct Worm {
    search: Search,
    found: Found,
    /// The last packet that had each worm: a packet with the same signature twice counts once.
    last: Box<[u64]>,
    searched: u64,
    without_payload: u64,
}

impl Module for Worm {
    fn new(init: &Init) -> Self {
        let params = Params::from(init);
        let search = Search::new(&signatures(&params), params.max_pending as usize);
        let found = Found::new(params.max_infections as usize);
        let last = vec![0; search.names.len()].into();
        Self { search, found, last, searched: 0, without_payload: 0 }
    }

    fn batch(&mut self, batch: &Batch, _: &mut Out) {
        for packet in batch.packets() {
            if packet.is_ip() && matches!(packet.proto, TCP | UDP) && packet.has(flags::TRANSPORT) {
                self.packet(&packet);
            }
        }
    }

    fn tick(&mut self, _: u64, out: &mut Out) -> Progress {
        self.found.send(out)
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        if self.found.send(out) == Progress::More {
            return Progress::More;
        }
        let lost = self.found.dropped + self.search.crowded;
        let counts = [self.searched, self.without_payload, lost, self.search.dropped()];
        merge::send_counts(&counts, out);
        Progress::Done
    }
}

impl Worm {
    fn packet(&mut self, packet: &Packet<'_>) {
        let (Some(src), Some(dst), Some(dport)) = (packet.src(), packet.dst(), packet.dport()) else {
            return;
        };
        let payload = packet.payload();
        if payload.is_empty() {
            // A bare ACK has no payload; if the length is hidden too, this cannot be known.
            let cut = packet.has(flags::TRUNCATED) || packet.cap_len < packet.wire_len;
            self.without_payload += u64::from(packet.payload_len().map_or(cut, |n| n > 0));
            return;
        }
        self.searched += 1;
        let place = Place { proto: packet.proto, dport };
        let (last, this) = (&mut self.last, self.searched);
        let (mut worms, mut hits, mut lost) = ([0; MOST_WORMS], 0, 0);
        let mut hit = |worm: u16| {
            if std::mem::replace(&mut last[usize::from(worm)], this) != this {
                match worms.get_mut(hits) {
                    Some(place) => (*place, hits) = (worm, hits + 1),
                    None => lost += 1,
                }
            }
        };
        if packet.proto == UDP {
            self.search.datagram(place, payload, &mut hit);
        } else {
            let l4 = packet.l4();
            let seq = u32::from_be_bytes([l4[4], l4[5], l4[6], l4[7]]);
            let flow = search::direction(&src, &dst, packet.sport().unwrap_or(0), dport);
            self.search.segment(place, flow, seq, payload, &mut hit);
        }
        self.found.dropped += lost;
        for worm in worms.iter().take(hits) {
            cold();
            self.found.add(*worm, src, dst, dport, packet.ts_ns);
        }
    }
}

flame_module::export!(Worm, slow = merge::Merge);

#[cfg(test)]
mod tests;
