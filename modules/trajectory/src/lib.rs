//! Trajectory sampling: every monitor selects the same packets, by a hash of the bytes that do not change
//! along the path.
//!
//! The README describes the method. A selected packet gets a row in `log` under a label, a second hash; its
//! flow gets a row in `flow` at its first selected packet. `flame join` combines the logs of several
//! monitors.
#![forbid(unsafe_code)]

pub mod bob;
mod ipsx;
mod key;
mod lanes;

pub use ipsx::ipsx;
pub use key::MOST_PAYLOAD;

use bob::{Key, bob, bobs};
use flame_module::{Batch, Hashed, Init, Ip, MAX_BATCH, Map, Module, Out, Packet, Progress};
use flame_module::{Record, Reserved, cold};
use key::Datagram;
use lanes::LANES;
use tables::SettingHash as Hash;

mod tables {
    flame_module::manifest!();
}

pub struct Trajectory {
    hash: Hash,
    sampling: f64,
    /// The upper limit of hashes: a packet is selected if its hash is below it.
    below: u64,
    payload: usize,
    seed: u32,
    label_seed: u32,
    /// The reported flows. Their times are numbers of selected packets, so the one reported first is evicted.
    flows: Map<Hashed, ()>,
    worker: u32,
    /// Whether the row in `setting` was written.
    is_reported: bool,
    /// The time of the last packet, in nanoseconds.
    last_ns: u64,
    hashed: u64,
    selected: u64,
    unreadable: u64,
    cut: u64,
}

/// The selected packets of a batch.
struct Chosen<'a> {
    packets: [Option<Packet<'a>>; MAX_BATCH],
    len: usize,
}

impl<'a> Chosen<'a> {
    fn push(&mut self, packet: &Packet<'a>) {
        if let Some(place) = self.packets.get_mut(self.len) {
            *place = Some(*packet);
            self.len += 1;
        }
    }
}

impl Module for Trajectory {
    fn new(init: &Init) -> Self {
        let params = tables::Params::from(init);
        let sampling = params.sampling;
        assert!(
            sampling > 0.0 && sampling <= 1.0,
            "parameter sampling: {sampling} is not above 0 and at most 1"
        );
        let (hash, range) = match params.hash {
            "bob" => (Hash::Bob, 4_294_967_296.0),
            "ipsx" => (Hash::Ipsx, 65_536.0),
            other => panic!("parameter hash: expected bob or ipsx, found {other:?}"),
        };
        let seed = params.seed;
        assert!(
            hash == Hash::Bob || seed == 0,
            "parameter seed: ipsx has no initial value: leave it 0, or choose hash=bob"
        );
        let below = (sampling * range) as u64;
        assert!(below > 0, "parameter sampling: {sampling} selects none of {range} hash values");
        Self {
            hash,
            sampling,
            below,
            payload: usize::from(params.payload).min(MOST_PAYLOAD),
            seed,
            label_seed: params.label_seed,
            flows: Map::new(params.max_flows as usize),
            worker: init.worker,
            is_reported: false,
            last_ns: 0,
            hashed: 0,
            selected: 0,
            unreadable: 0,
            cut: 0,
        }
    }

    fn batch(&mut self, batch: &Batch, out: &mut Out) {
        if let Some(last) = batch.descriptors().last() {
            self.last_ns = last.ts_ns;
            if !self.is_reported {
                self.is_reported = true;
                self.report_settings(batch.descriptors()[0].ts_ns, out);
            }
        }
        let mut keys = [Key::default(); LANES];
        let mut lanes: [Option<Packet<'_>>; LANES] = [None; LANES];
        let mut filled = 0;
        let mut chosen = Chosen { packets: [None; MAX_BATCH], len: 0 };
        for packet in batch.packets() {
            if !packet.is_ip() {
                continue;
            }
            let Some(datagram) = Datagram::of(&packet) else {
                self.unreadable += 1;
                continue;
            };
            self.hashed += 1;
            self.cut += u64::from(datagram.is_cut(self.payload));
            if self.hash == Hash::Ipsx {
                if u64::from(ipsx(datagram.words())) < self.below {
                    chosen.push(&packet);
                }
                continue;
            }
            datagram.write(self.payload, &mut keys[filled]);
            lanes[filled] = Some(packet);
            filled += 1;
            if filled == LANES {
                self.select(&keys, &lanes, &mut chosen);
                filled = 0;
            }
        }
        for (lane, place) in lanes.iter_mut().enumerate() {
            if lane >= filled {
                *place = None;
            }
        }
        if filled > 0 {
            self.select(&keys, &lanes, &mut chosen);
        }
        // All selected packets are processed together, after the hashes of all groups of eight, so the bound
        // of a batch is close to its cost.
        let mut out = out.reserve(chosen.len * (tables::Flow::SPACE + tables::Log::SPACE));
        for packet in chosen.packets.iter().map_while(Option::as_ref) {
            cold();
            self.log(packet, &mut keys[0], &mut out);
        }
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        let &mut Self { last_ns: ts_ns, worker, hashed, selected, unreadable, cut, .. } = self;
        let forgotten = self.flows.evicted;
        out.write(&tables::State { ts_ns, worker, hashed, selected, unreadable, cut, forgotten });
        Progress::Done
    }
}

impl Trajectory {
    /// Writes the settings that must be equal on all monitors, and the time at which this one began.
    fn report_settings(&self, first_ns: u64, out: &mut Out) {
        // The seeds may be secret, so only a value that shows whether two monitors have the same is written.
        let [a, b] = [self.seed, self.label_seed].map(u32::to_le_bytes);
        let seeds = bob(&Key::new(&[a, b].concat()), 0);
        let &Self { worker, hash, sampling, .. } = self;
        let payload = self.payload as u32;
        out.write(&tables::Setting { ts_ns: first_ns, worker, hash, sampling, payload, seeds });
    }

    #[inline]
    fn select<'a>(&self, keys: &[Key; LANES], lanes: &[Option<Packet<'a>>; LANES], chosen: &mut Chosen<'a>) {
        let hashes = bobs(keys.each_ref(), [self.seed; LANES]);
        // Almost never is any of them selected.
        if hashes.iter().all(|hash| u64::from(*hash) >= self.below) {
            return;
        }
        for (lane, hash) in hashes.into_iter().enumerate() {
            if let Some(packet) = &lanes[lane]
                && u64::from(hash) < self.below
            {
                chosen.push(packet);
            }
        }
    }

    #[inline(never)]
    fn log(&mut self, packet: &Packet<'_>, key: &mut Key, out: &mut Reserved<'_>) {
        self.selected += 1;
        let Some(datagram) = Datagram::of(packet) else { return };
        datagram.write(self.payload, key);
        let key = &*key;
        let (Some(src), Some(dst)) = (packet.src(), packet.dst()) else { return };
        let (sport, dport) = (packet.sport().unwrap_or(0), packet.dport().unwrap_or(0));
        let named = flow_key(packet.proto, &src, sport, &dst, dport);
        let mut keys = [key; LANES];
        keys[..2].fill(&named);
        let mut seeds = [self.label_seed; LANES];
        seeds[..2].copy_from_slice(&[1, 2]);
        let [high, low, label, ..] = bobs(keys, seeds);
        let flow = u64::from(high) << 32 | u64::from(low);
        if self.flows.insert_new(Hashed(flow), self.selected, ()) {
            let proto = packet.proto;
            out.write(&tables::Flow { ts_ns: packet.ts_ns, flow, proto, src, sport, dst, dport });
        }
        out.write(&tables::Log { ts_ns: packet.ts_ns, flow, label, wire_len: packet.wire_len });
    }
}

/// Returns the key of a direction of a flow, the same at every monitor.
fn flow_key(proto: u8, src: &Ip, sport: u16, dst: &Ip, dport: u16) -> Key {
    let mut key = [0; 37];
    key[0] = proto;
    key[1..17].copy_from_slice(&src.bytes);
    key[17..33].copy_from_slice(&dst.bytes);
    key[33..35].copy_from_slice(&sport.to_be_bytes());
    key[35..37].copy_from_slice(&dport.to_be_bytes());
    Key::new(&key)
}

flame_module::export!(Trajectory);

#[cfg(test)]
mod tests;
