//! The results of one worker since the last tick: sources and targets with counts, in a table of fixed size.

use flame_module::{Ip, Out, Progress};

/// A source, a target and a worm, with counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Infection {
    pub worm: u16,
    pub src: Ip,
    pub dst: Ip,
    pub dport: u16,
    pub packets: u64,
    pub first_ns: u64,
    pub last_ns: u64,
}

/// The size of an infection in a message, in bytes.
pub const SIZE: usize = 2 + 17 + 17 + 2 + 8 + 8 + 8;

/// The number of places that are probed for an infection.
const PROBES: usize = 16;

pub struct Found {
    table: Box<[Option<Infection>]>,
    used: Vec<u32>,
    limit: usize,
    /// The hits of sources and targets for which there was no room.
    pub dropped: u64,
}

impl Found {
    /// Creates a table for `limit` infections at once.
    pub fn new(limit: usize) -> Self {
        let limit = limit.max(1);
        let places = (limit * 2).next_power_of_two();
        Self { table: vec![None; places].into(), used: Vec::with_capacity(limit), limit, dropped: 0 }
    }

    pub fn add(&mut self, worm: u16, src: Ip, dst: Ip, dport: u16, ts_ns: u64) {
        let hash = crate::search::direction(&src, &dst, worm, dport) as usize;
        for probe in 0..PROBES {
            let i = (hash + probe) & (self.table.len() - 1);
            match &mut self.table[i] {
                Some(known) if (known.worm, known.src, known.dst, known.dport) == (worm, src, dst, dport) => {
                    known.packets += 1;
                    known.first_ns = known.first_ns.min(ts_ns);
                    known.last_ns = known.last_ns.max(ts_ns);
                    return;
                }
                Some(_) => {}
                place if self.used.len() < self.limit.min(self.used.capacity()) => {
                    let (packets, first_ns, last_ns) = (1, ts_ns, ts_ns);
                    *place = Some(Infection { worm, src, dst, dport, packets, first_ns, last_ns });
                    self.used.push(i as u32);
                    return;
                }
                None => break,
            }
        }
        self.dropped += 1;
    }

    /// Sends all infections to the slow path, as many as fit at a time.
    pub fn send(&mut self, out: &mut Out) -> Progress {
        while let Some(i) = self.used.last() {
            if out.room() < 2 * SIZE {
                return Progress::More;
            }
            if let Some(infection) = self.table[*i as usize].take() {
                out.message(&infection.to_bytes());
            }
            self.used.pop();
        }
        Progress::Done
    }
}

impl Infection {
    pub fn to_bytes(self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        put(&self.worm.to_le_bytes());
        for ip in [self.src, self.dst] {
            put(&[ip.family]);
            put(&ip.bytes);
        }
        put(&self.dport.to_le_bytes());
        for n in [self.packets, self.first_ns, self.last_ns] {
            put(&n.to_le_bytes());
        }
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; SIZE] = bytes.try_into().ok()?;
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let long = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
        let ip = |at: usize| {
            let mut ip = Ip { family: bytes[at], bytes: [0; 16] };
            ip.bytes.copy_from_slice(&bytes[at + 1..at + 17]);
            ip
        };
        Some(Self {
            worm: half(0),
            src: ip(2),
            dst: ip(19),
            dport: half(36),
            packets: long(38),
            first_ns: long(46),
            last_ns: long(54),
        })
    }
}
