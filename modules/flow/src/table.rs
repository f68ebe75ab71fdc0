//! The flow table: a hash table with chaining over a pool of bounded size.
//!
//! Flows are referred to by index. The pool's memory is reserved at the start and first touched when a flow
//! needs it, so an idle instance costs only its buckets. A chain has at most [`MAX_CHAIN`] flows, which
//! bounds the work for a packet even if an attacker fills one bucket.
//!
//! It is not the SDK's [`FlowTable`], whose sets of eight have a lower bound (2,173 instructions for each
//! packet, rather than 3,938). Over public captures a packet took 6 % more instructions in one (335, rather
//! than 316), 131,072 flows in the default table of 262,144 evicted 1,089 of them (here none, up to the last
//! place), an idle instance touched 23 MiB more, and records came in the order of hashes.
//!
//! [`FlowTable`]: flame_module::FlowTable

use crate::flow::{End, Flow, NONE};
use crate::key::{Key, Long, is_reverse, reverse};
use crate::tables::Flow as Row;
use flame_module::{Descriptor, Out, Record, Reserved, cold, tcp};

/// The largest number of flows in one chain; another flow evicts the least recently active one. There are as
/// many buckets as flows, so in a full table chains are almost never longer by chance.
pub const MAX_CHAIN: usize = 16;
/// The number of flows among which the least recently active one is evicted when the pool is full.
const CANDIDATES: usize = 8;
/// The number of slots that one call of [`Table::dump`] examines.
const DUMP_SLOTS: usize = 16_384;
/// The lateness, in nanoseconds, up to which a packet still finds its flow although [`Table::scan`] might
/// have ended it. Late packets never change the result of a flow's own packets.
const SLACK_NS: u64 = 10_000_000_000;

/// The timeouts of flows, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    pub idle: u64,
    pub active: u64,
    pub linger: u64,
}

pub struct Table {
    /// The first flow of each chain: index + 1, or [`NONE`].
    buckets: Box<[u32]>,
    shift: u32,
    flows: Vec<Flow>,
    /// The IPv6 addresses of the flow with the same index; IPv4 flows do not change them.
    long: Vec<Long>,
    /// The sums of [`Flow::link_difference`] of the flow with the same index, by direction.
    links: Vec<[i64; 2]>,
    max_flows: usize,
    /// The freed slots, chained by `next`.
    free: u32,
    timeouts: Timeouts,
    used: u64,
    hand: usize,
    pub peak: u64,
    pub evicted: u64,
}

impl Table {
    pub fn new(max_flows: usize, timeouts: Timeouts) -> Self {
        let max_flows = max_flows.max(1);
        let buckets = max_flows.next_power_of_two().max(2);
        Self {
            buckets: vec![NONE; buckets].into_boxed_slice(),
            shift: 32 - buckets.trailing_zeros(),
            flows: Vec::with_capacity(max_flows),
            long: Vec::with_capacity(max_flows),
            links: Vec::with_capacity(max_flows),
            max_flows,
            free: NONE,
            timeouts,
            used: 0,
            hand: 0,
            peak: 0,
            evicted: 0,
        }
    }

    /// Returns the bucket of a hash, which is multiplied because the low bits may have chosen the worker.
    #[inline]
    fn bucket(&self, hash: u32) -> usize {
        (hash.wrapping_mul(0x9e37_79b1) >> self.shift) as usize
    }

    /// Counts one packet, and writes the record that it ends, if any.
    #[inline]
    pub fn packet(&mut self, d: &Descriptor, key: Key, long: Option<&Long>, out: &mut Reserved<'_>) {
        let reversed = key.reversed();
        let bucket = self.bucket(d.hash);
        let mut at = self.buckets[bucket];
        for step in 0..MAX_CHAIN {
            if at == NONE {
                break;
            }
            // There are as many buckets as flows, so chains are short unless an attacker fills one.
            if step >= 2 {
                cold();
            }
            let index = at as usize - 1;
            let flow = &mut self.flows[index];
            let direction = if flow.is(key) && long.is_none_or(|l| *l == self.long[index]) {
                0
            } else if flow.is(reversed) && long.is_none_or(|l| is_reverse(l, &self.long[index])) {
                1
            } else {
                at = flow.next;
                continue;
            };
            let limit = if flow.is_closed() { self.timeouts.linger } else { self.timeouts.idle };
            if d.ts_ns.saturating_sub(flow.last) > limit
                || d.ts_ns.saturating_sub(flow.first) > self.timeouts.active
                || (d.tcp_flags & (tcp::SYN | tcp::ACK) == tcp::SYN && flow.is_closed())
                || flow.packets[direction] == u32::MAX
            {
                self.restart(index, d, key, long, direction, out);
            } else {
                flow.count(d, direction);
                if flow.has_other_link(d) {
                    self.other_link(index, d, direction);
                }
            }
            return;
        }
        self.insert(bucket, d, key, long, out);
    }

    /// Counts a link header that is not as long as that of the flow's first packet.
    #[cold]
    #[inline(never)]
    fn other_link(&mut self, index: usize, d: &Descriptor, direction: usize) {
        cold();
        self.links[index][direction] += self.flows[index].link_difference(d);
    }

    /// Ends the flow of a packet and begins the next one with the packet.
    #[cold]
    fn restart(
        &mut self,
        index: usize,
        d: &Descriptor,
        key: Key,
        long: Option<&Long>,
        direction: usize,
        out: &mut Reserved<'_>,
    ) {
        cold();
        let flow = self.flows[index];
        let silent = d.ts_ns.saturating_sub(flow.last);
        let end = flow.end(if silent > self.timeouts.idle { End::Idle } else { End::Active });
        flow.write(&self.long[index], self.links[index], end, out);
        if end == End::Active {
            // The same conversation continues and keeps its direction.
            let same = if direction == 0 { key } else { key.reversed() };
            let mut next = Flow::new(same, d);
            next.next = flow.next;
            next.count(d, direction);
            self.links[index] = [0; 2];
            self.links[index][direction] = next.link_difference(d);
            self.flows[index] = next;
        } else {
            self.begin(index, flow.next, d, key, long);
        }
    }

    /// Puts a new flow with its first packet into a slot.
    fn begin(&mut self, index: usize, next: u32, d: &Descriptor, key: Key, long: Option<&Long>) {
        // The answer to a SYN that was not captured still identifies the client.
        let answer = d.tcp_flags & (tcp::SYN | tcp::ACK) == tcp::SYN | tcp::ACK;
        let mut flow = Flow::new(if answer { key.reversed() } else { key }, d);
        flow.next = next;
        flow.count(d, usize::from(answer));
        self.links[index] = [0; 2];
        self.links[index][usize::from(answer)] = flow.link_difference(d);
        self.flows[index] = flow;
        if let Some(long) = long {
            self.long[index] = if answer { reverse(long) } else { *long };
        }
    }

    #[inline(never)]
    fn insert(
        &mut self,
        bucket: usize,
        d: &Descriptor,
        key: Key,
        long: Option<&Long>,
        out: &mut Reserved<'_>,
    ) {
        // Executed for the first packet of a flow.
        cold();
        let index = self.slot(bucket, out);
        // Read after an eviction, which may have changed the chain.
        let head = self.buckets[bucket];
        self.begin(index, head, d, key, long);
        self.buckets[bucket] = index as u32 + 1;
        self.used += 1;
        self.peak = self.peak.max(self.used);
    }

    /// Returns a free slot, after an eviction if necessary.
    fn slot(&mut self, bucket: usize, out: &mut Reserved<'_>) -> usize {
        if let Some(oldest) = self.oldest_of_full_chain(bucket) {
            self.evict(oldest, out);
        } else if self.free == NONE && self.flows.len() == self.max_flows {
            let mut oldest = self.hand % self.flows.len();
            for step in 1..CANDIDATES {
                let candidate = (self.hand + step) % self.flows.len();
                if self.flows[candidate].last < self.flows[oldest].last {
                    oldest = candidate;
                }
            }
            self.hand = (self.hand + CANDIDATES) % self.flows.len();
            self.evict(oldest, out);
        }
        if self.free != NONE {
            let index = self.free as usize - 1;
            self.free = self.flows[index].next;
            return index;
        }
        let index = self.flows.len();
        // There is room for all flows: the reserved capacity is never exceeded, and growing would take as
        // long as copying the pool.
        if index < self.flows.capacity()
            && index < self.long.capacity()
            && index < self.links.capacity()
            && index == self.long.len()
            && index == self.links.len()
        {
            self.flows.push(Flow::default());
            self.long.push([0; 32]);
            self.links.push([0; 2]);
        }
        index
    }

    fn oldest_of_full_chain(&self, bucket: usize) -> Option<usize> {
        let mut at = self.buckets[bucket];
        let mut oldest: Option<usize> = None;
        for _ in 0..MAX_CHAIN {
            let index = (at as usize).checked_sub(1)?;
            if oldest.is_none_or(|o| self.flows[index].last < self.flows[o].last) {
                oldest = Some(index);
            }
            at = self.flows[index].next;
        }
        oldest
    }

    fn evict(&mut self, index: usize, out: &mut Reserved<'_>) {
        self.evicted += 1;
        self.flows[index].write(&self.long[index], self.links[index], End::Evicted, out);
        self.remove(index);
    }

    /// Removes a flow from its chain and frees its slot.
    fn remove(&mut self, index: usize) {
        let name = index as u32 + 1;
        let bucket = self.bucket(self.flows[index].hash);
        let next = self.flows[index].next;
        if self.buckets[bucket] == name {
            self.buckets[bucket] = next;
        } else {
            let mut at = self.buckets[bucket];
            for _ in 0..MAX_CHAIN {
                if at == NONE {
                    break;
                }
                let flow = &mut self.flows[at as usize - 1];
                if flow.next == name {
                    flow.next = next;
                    break;
                }
                at = flow.next;
            }
        }
        self.flows[index] = Flow { next: self.free, ..Flow::default() };
        self.free = name;
        self.used -= 1;
    }

    /// Examines a sixteenth of the flows and ends those that have been silent for too long.
    pub fn scan(&mut self, cursor: &mut usize, now_ns: u64, out: &mut Out) {
        for _ in 0..(self.flows.len() / 16 + 64).min(self.flows.len()) {
            if out.room() < Row::SPACE {
                return;
            }
            if *cursor >= self.flows.len() {
                *cursor = 0;
            }
            let flow = self.flows[*cursor];
            if flow.is_used() && self.is_silent(&flow, now_ns) {
                let out = &mut out.reserve(Row::SPACE);
                flow.write(&self.long[*cursor], self.links[*cursor], flow.end(End::Idle), out);
                self.remove(*cursor);
            }
            *cursor += 1;
        }
    }

    /// Returns whether a flow has been silent for so long that a scan ends it.
    fn is_silent(&self, flow: &Flow, now_ns: u64) -> bool {
        let limit = if flow.is_closed() { self.timeouts.linger } else { self.timeouts.idle };
        now_ns.saturating_sub(flow.last) > limit.saturating_add(SLACK_NS)
    }

    /// Writes the flows from slot `cursor` on, as many as fit, and returns whether there may be more. A flow
    /// that no scan has reached yet ends as a scan would end it, so records do not depend on scans.
    pub fn dump(&mut self, cursor: &mut usize, now_ns: u64, out: &mut Out) -> bool {
        for _ in 0..DUMP_SLOTS {
            let Some(flow) = self.flows.get(*cursor) else { return false };
            if out.room() < Row::SPACE {
                return true;
            }
            if flow.is_used() {
                let end = if self.is_silent(flow, now_ns) { End::Idle } else { End::End };
                let out = &mut out.reserve(Row::SPACE);
                flow.write(&self.long[*cursor], self.links[*cursor], flow.end(end), out);
            }
            *cursor += 1;
        }
        true
    }
}
