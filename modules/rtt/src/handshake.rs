//! Handshakes: from a SYN to the first ACK in the same direction.
//!
//! The FLAME paper identifies a handshake by the SYN's sequence number plus one, which the first ACK carries.
//! So does this module, within the connection's endpoints. The time is the sum of two halves that meet at the
//! capture point: SYN to SYN-ACK, and SYN-ACK to ACK. Without retransmissions, that is the paper's
//! difference. With retransmissions, a half is only known if it is clear which of the copies was answered
//! (Karn's rule): by the order of packets, or because the answer echoes that copy's TCP timestamp. A
//! handshake with an unknown half has no value and is counted as ambiguous.

use crate::segment::{Segment, Timestamps, Tuple};
use crate::tables;
use flame_module::{Entry, FlowTable, Reserved, tcp};

/// The interval in nanoseconds below which two equal SYNs are copies made by the capture, not
/// retransmissions: the shortest retransmission timeout in use for SYNs is far above it (RFC 6298 requires
/// one second).
const COPY_NS: u64 = 10_000_000;

/// A packet of the handshake and its repetitions.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    /// The number of times it was sent; 0 if not yet.
    times: u32,
    first: u64,
    last: u64,
    first_clock: u32,
    last_clock: u32,
    has_clock: bool,
}

impl Sent {
    /// Records one more copy and returns whether it was retransmitted rather than captured twice.
    fn again(&mut self, s: &Segment) -> bool {
        if self.times > 0 && s.at.saturating_sub(self.last) < COPY_NS {
            return false;
        }
        let clock = s.timestamps.map(|t| t.value);
        if self.times == 0 {
            (self.first, self.first_clock, self.has_clock) = (s.at, clock.unwrap_or(0), clock.is_some());
        }
        self.has_clock &= clock.is_some();
        (self.last, self.last_clock) = (s.at, clock.unwrap_or(0));
        self.times = self.times.saturating_add(1);
        true
    }

    /// Returns the time of the copy that an answer with these timestamps answers, if that is certain.
    fn answered(&self, answer: Option<Timestamps>) -> Option<u64> {
        if self.times == 1 {
            return Some(self.first);
        }
        let echo = answer?.echo;
        if !self.has_clock || self.first_clock == self.last_clock {
            None
        } else if echo == self.last_clock {
            Some(self.last)
        } else if echo == self.first_clock {
            Some(self.first)
        } else {
            None
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    tuple: Tuple,
    /// The SYN's sequence number plus one.
    next: u32,
    /// The first ACK's sequence number: `next`, or after the data that the SYN-ACK acknowledges.
    expect: u32,
    /// The number of data bytes in the SYN (TCP Fast Open, RFC 7413).
    data: u32,
    syn: Sent,
    synack: Sent,
    /// Whether an RST answered the SYN: the next SYN is then a new attempt, even with the same sequence
    /// number.
    refused: bool,
    /// The time from SYN to SYN-ACK in nanoseconds; below 0 if the capture's clock was set back in between.
    half: Option<i64>,
}

impl Entry for Pending {
    fn used(&self) -> u64 {
        self.syn.last
    }
}

/// All handshakes in progress.
pub struct Handshakes {
    pending: FlowTable<Pending>,
    require_synack: bool,
    /// Handshakes without a value because of a retransmission in them.
    pub ambiguous: u64,
    /// SYNs and SYN-ACKs that were captured once more.
    pub copies: u64,
}

impl Handshakes {
    pub fn new(capacity: usize, timeout: u64, require_synack: bool) -> Self {
        Self { pending: FlowTable::new(capacity, timeout), require_synack, ambiguous: 0, copies: 0 }
    }

    pub fn evicted(&self) -> u64 {
        self.pending.evicted
    }

    /// Processes one segment and returns the round-trip time in nanoseconds of a handshake that it completes.
    #[inline]
    pub fn segment(&mut self, s: &Segment, out: &mut Reserved<'_>) -> Option<u64> {
        match s.flags & (tcp::SYN | tcp::ACK | tcp::RST) {
            tcp::ACK => self.ack(s, out),
            tcp::SYN => {
                self.syn(s);
                None
            }
            f if f == tcp::SYN | tcp::ACK => {
                self.synack(s);
                None
            }
            f if f == tcp::RST | tcp::ACK => {
                self.refusal(s);
                None
            }
            _ => None,
        }
    }

    fn syn(&mut self, s: &Segment) {
        let next = s.seq.wrapping_add(1);
        let mut new = Pending { tuple: s.tuple, next, expect: next, data: s.len, ..Pending::default() };
        match self.pending.find(s.hash, s.at, |p| p.next == next && p.tuple == s.tuple) {
            Some(index) if self.pending.get(index).refused => {
                new.syn.again(s);
                *self.pending.get(index) = new;
            }
            Some(index) => {
                let is_copy = !self.pending.get(index).syn.again(s);
                self.copies += u64::from(is_copy);
            }
            None => {
                new.syn.again(s);
                self.pending.insert(s.hash, s.at, new);
            }
        }
    }

    /// Records a refusal. The RST may be forged, so the handshake is not dropped.
    fn refusal(&mut self, s: &Segment) {
        let tuple = s.tuple.reversed();
        let is =
            |p: &Pending| s.ack.wrapping_sub(p.next) <= p.data && p.tuple == tuple && p.synack.times == 0;
        if let Some(index) = self.pending.find(s.hash, s.at, is) {
            self.pending.get(index).refused = true;
        }
    }

    fn synack(&mut self, s: &Segment) {
        let tuple = s.tuple.reversed();
        let is = |p: &Pending| s.ack.wrapping_sub(p.next) <= p.data && p.tuple == tuple;
        let Some(index) = self.pending.find(s.hash, s.at, is) else { return };
        let p = self.pending.get(index);
        if !p.synack.again(s) {
            self.copies += 1;
            return;
        }
        p.expect = s.ack;
        // A later SYN-ACK answers a SYN only if it echoes its timestamp: it may be a timer's retransmission.
        if p.half.is_none() && (p.synack.times == 1 || p.syn.times > 1) {
            p.half = p.syn.answered(s.timestamps).map(|syn| between(syn, s.at));
        }
    }

    #[inline]
    fn ack(&mut self, s: &Segment, out: &mut Reserved<'_>) -> Option<u64> {
        let required = self.require_synack;
        let is = |p: &Pending| p.expect == s.seq && p.tuple == s.tuple && (p.synack.times > 0 || !required);
        let index = self.pending.find(s.hash, s.at, is)?;
        let p = *self.pending.get(index);
        self.pending.remove(index);
        let rtt = if p.synack.times > 0 {
            p.half
                .zip(p.synack.answered(s.timestamps))
                .map(|(half, synack)| half.wrapping_add(between(synack, s.at)))
        } else {
            (p.syn.times == 1).then(|| between(p.syn.first, s.at))
        };
        // There is no value either if the clock was set back over the whole handshake.
        let Some(rtt) = rtt.and_then(|ns| u64::try_from(ns).ok()) else {
            self.ambiguous += 1;
            return None;
        };
        let t = &p.tuple;
        out.write(&tables::Handshake {
            src: t.src(),
            sport: t.sport,
            dst: t.dst(),
            dport: t.dport,
            syn_ns: p.syn.first,
            rtt_ns: rtt as i64,
            syn_retransmits: p.syn.times - 1,
        });
        Some(rtt)
    }
}

/// Returns the nanoseconds from `earlier` to `later`.
fn between(earlier: u64, later: u64) -> i64 {
    later.wrapping_sub(earlier) as i64
}
