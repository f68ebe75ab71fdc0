//! Trajectory sampling: every monitor selects the same packets, by a hash of what does not change on the way.
//!
//! The README has the method. A selected packet gives a row in `log` under a label, a second hash; its flow one
//! in `flow` at first sight. `flame join` puts the logs of several monitors together.
#![forbid(unsafe_code)]

mod bob;

pub use bob::bob;

use flame_module::{Batch, Init, Ip, Module, Out, Packet, Progress, flags};

/// Initial value of the label's hash: apart from any selection's.
const LABEL: u32 = 0x6c61_6265;

/// What is hashed: at most 40 bytes of IPv6's fields, and payload.
const MOST: usize = 40 + 96;

pub struct Trajectory {
    /// A packet is selected if its hash is below this.
    below: u64,
    payload: usize,
    seed: u32,
    /// Flows told of, in sets of four; 0 is none.
    flows: Box<[u64]>,
    worker: u32,
    hashed: u64,
    selected: u64,
    unreadable: u64,
}

const WAYS: usize = 4;

impl Module for Trajectory {
    fn new(init: &Init) -> Self {
        let sampling = init.number("sampling");
        assert!(
            sampling > 0.0 && sampling <= 1.0,
            "parameter sampling: {sampling} is not above 0 and at most 1"
        );
        let flows = (init.integer("max_flows") as usize).next_power_of_two();
        Self {
            below: (sampling * 4_294_967_296.0) as u64,
            payload: init.integer("payload") as usize,
            seed: init.integer("seed") as u32,
            flows: vec![0; flows].into(),
            worker: init.worker,
            hashed: 0,
            selected: 0,
            unreadable: 0,
        }
    }

    fn batch(&mut self, batch: &Batch, out: &mut Out) {
        let mut key = [0; MOST];
        for packet in batch.packets() {
            if !packet.is_ip() {
                continue;
            }
            let Some(len) = invariant(&packet, self.payload, &mut key) else {
                self.unreadable += 1;
                continue;
            };
            self.hashed += 1;
            if u64::from(bob(&key[..len], self.seed)) < self.below {
                self.selected += 1;
                self.log(&packet, bob(&key[..len], LABEL), out);
            }
        }
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        out.row(2).u32(self.worker).u64(self.hashed).u64(self.selected).u64(self.unreadable).finish();
        Progress::Done
    }
}

/// The fields that no router changes, then the first bytes of the IP payload (RFC 5475, section 6.2): of IPv4
/// identification, flags and fragment offset, addresses; of IPv6 payload length, next header, addresses. What they
/// take in `key`, or nothing if they were not captured.
#[inline]
fn invariant(packet: &Packet<'_>, payload: usize, key: &mut [u8; MOST]) -> Option<usize> {
    let l3 = packet.l3();
    let (fields, header) = if packet.has(flags::IPV4) {
        let header: &[u8; 20] = l3.first_chunk()?;
        key[..4].copy_from_slice(&header[4..8]);
        key[4..12].copy_from_slice(&header[12..20]);
        (12, usize::from(header[0] & 15) * 4)
    } else {
        let header: &[u8; 40] = l3.first_chunk()?;
        key[..3].copy_from_slice(&header[4..7]);
        key[3..35].copy_from_slice(&header[8..40]);
        (35, 40)
    };
    // Up to the datagram's end: the link's padding differs from link to link.
    let end = datagram(packet, l3).min(l3.len());
    let carried = l3.get(header..end).unwrap_or(&[]);
    let carried = &carried[..carried.len().min(payload)];
    key[fields..fields + carried.len()].copy_from_slice(carried);
    Some(fields + carried.len())
}

/// Bytes of the datagram by its own header; all there are where it does not say (segmentation offload).
#[inline]
fn datagram(packet: &Packet<'_>, l3: &[u8]) -> usize {
    let word = |at: usize| usize::from(l3[at]) << 8 | usize::from(l3[at + 1]);
    match if packet.has(flags::IPV4) { (word(2), 0) } else { (word(4), 40) } {
        (0, _) => usize::MAX,
        (length, header) => length + header,
    }
}

impl Trajectory {
    #[inline(never)]
    fn log(&mut self, packet: &Packet<'_>, label: u32, out: &mut Out) {
        let (Some(src), Some(dst)) = (packet.src(), packet.dst()) else { return };
        let (sport, dport) = (packet.sport().unwrap_or(0), packet.dport().unwrap_or(0));
        let flow = flow_id(packet.proto, &src, sport, &dst, dport);
        if self.is_new(flow) {
            let row = out.row(0).time(packet.ts_ns).u64(flow).u8(packet.proto);
            row.ip(src).u16(sport).ip(dst).u16(dport).finish();
        }
        out.row(1).time(packet.ts_ns).u64(flow).u32(label).u32(packet.wire_len).finish();
    }

    /// Whether a flow was not remembered; it then is, in place of the one in its set that came first.
    fn is_new(&mut self, flow: u64) -> bool {
        let set = (flow as usize * WAYS) & (self.flows.len() - 1) & !(WAYS - 1);
        let ways = &mut self.flows[set..set + WAYS];
        if ways.contains(&flow) {
            return false;
        }
        ways.rotate_right(1);
        ways[0] = flow;
        true
    }
}

/// Names a direction of a flow, the same at every monitor; never 0.
fn flow_id(proto: u8, src: &Ip, sport: u16, dst: &Ip, dport: u16) -> u64 {
    let mut key = [0; 37];
    key[0] = proto;
    key[1..17].copy_from_slice(&src.bytes);
    key[17..33].copy_from_slice(&dst.bytes);
    key[33..35].copy_from_slice(&sport.to_be_bytes());
    key[35..37].copy_from_slice(&dport.to_be_bytes());
    (u64::from(bob(&key, 1)) << 32 | u64::from(bob(&key, 2))).max(1)
}

flame_module::export!(Trajectory);

#[cfg(test)]
mod tests;
