//! The flow table: a hash table with chaining over a pool of bounded size.
//!
//! Flows are referred to by index. The pool's memory is reserved at the start and first touched when a flow
//! needs it, so an idle instance costs only its buckets. A chain has at most [`MAX_CHAIN`] flows, which
//! bounds the work for a packet even if an attacker fills one bucket.
//!
//! It is not the SDK's [`FlowTable`], whose sets of eight have a lower bound. Over public captures a packet
//! took 6 % more instructions in one (335, rather than 316), 131,072 flows in the default table of 262,144
//! evicted 1,089 of them (here none, up to the last place), an idle instance touched 23 MiB more, and records
//! came in the order of hashes.
//!
//! [`FlowTable`]: flame_module::FlowTable

use crate::flow::{Aside, End, Flow, NONE, Numbers};
use crate::key::{Key, Long, is_reverse, reverse};
use crate::tables::Flow as Row;
use crate::tags::Tags;
use flame_module::{LinkType, Out, Packet, Record, Reserved, cold, tcp};

/// The largest number of flows in one chain; another flow evicts the least recently active one. There are as
/// many buckets as flows, so in a full table chains are almost never longer by chance.
pub const MAX_CHAIN: usize = 16;
/// The number of flows among which the least recently active one is evicted when the pool is full.
const CANDIDATES: usize = 8;
/// The number of slots that one call of [`Table::dump`] examines.
const DUMP_SLOTS: usize = 16_384;
/// The time, in nanoseconds, by which a packet may be before the first one of its flow. Late packets never
/// change the result of a flow's own packets.
pub const SLACK_NS: u64 = 10_000_000_000;

/// One packet, with what a table needs of it. The work of each packet keeps its fields in registers, so it is
/// made again where [`Table`] passes the packet on.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    pub packet: Packet<'a>,
    pub key: Key,
    /// The addresses of IPv6.
    pub long: Option<&'a Long>,
    /// The length that the IP header states, or 0.
    pub length: u32,
}

impl<'a> Seen<'a> {
    /// Reads a packet of IP. Returns `None` if its addresses were not captured.
    #[inline(always)]
    pub fn new(packet: Packet<'a>) -> Option<Self> {
        let (key, long, length) = Key::of(&packet, packet.bytes())?;
        Some(Self { packet, key, long, length })
    }
}

/// Returns whether a packet has SYN, without or with ACK.
#[inline]
fn has_syn(packet: Packet<'_>) -> bool {
    packet.tcp_flags & tcp::SYN != 0
}

/// Returns the numbers of the TCP header, if they are visible.
fn numbers(packet: Packet<'_>) -> Option<Numbers> {
    let at = usize::from(packet.l4) + 4;
    let [a, b, c, d, e, f, g, h] = *packet.bytes().get(at..at + 8)?.first_chunk()?;
    (packet.proto == 6).then_some(Numbers {
        sequence: u32::from_be_bytes([a, b, c, d]),
        acknowledged: u32::from_be_bytes([e, f, g, h]),
    })
}

/// Returns the numbers of networks, which only a longer header than Ethernet's can contain.
#[inline]
fn tags(link: LinkType, packet: Packet<'_>) -> Tags {
    if packet.l3 == 14 { Tags::default() } else { Tags::of(link, &packet, packet.bytes()) }
}

/// The TCP flags of the answer to a SYN.
const ANSWER: u8 = tcp::SYN | tcp::ACK;

/// The timeouts of flows, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    pub idle: u64,
    pub active: u64,
    pub linger: u64,
    /// The lateness up to which a packet still finds its flow although [`Table::scan`] might have ended it.
    pub late: u64,
}

pub struct Table {
    /// The first flow of each chain: index + 1, or [`NONE`].
    buckets: Box<[u32]>,
    shift: u32,
    flows: Vec<Flow>,
    /// The further fields of the flow with the same index.
    asides: Vec<Aside>,
    by_tags: bool,
    /// The time from which on [`Flow::is_far_from_start`].
    far: u64,
    max_flows: usize,
    /// The freed slots, chained by `next`.
    free: u32,
    timeouts: Timeouts,
    /// The link type of the packets.
    pub link: LinkType,
    used: u64,
    hand: usize,
    pub peak: u64,
    pub evicted: u64,
}

impl Table {
    pub fn new(max_flows: usize, timeouts: Timeouts, by_tags: bool) -> Self {
        let max_flows = max_flows.max(1);
        let buckets = max_flows.next_power_of_two().max(2);
        Self {
            buckets: vec![NONE; buckets].into_boxed_slice(),
            shift: 32 - buckets.trailing_zeros(),
            flows: Vec::with_capacity(max_flows),
            asides: Vec::with_capacity(max_flows),
            by_tags,
            far: timeouts.active.saturating_add(SLACK_NS),
            max_flows,
            free: NONE,
            timeouts,
            link: LinkType::ETHERNET,
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

    /// Counts one packet, and writes the record that it ends, if any. `TAGS` is [`Table::is_by_tags`]:
    /// without, a packet pays nothing for the numbers of networks.
    #[inline(always)]
    pub fn packet<const TAGS: bool>(&mut self, seen: Seen<'_>, out: &mut Reserved<'_>) {
        let Seen { packet: d, key, long, length } = seen;
        let reversed = key.reversed();
        let (mut hash, mut networks) = (d.hash, Tags::default());
        if TAGS {
            networks = tags(self.link, d);
            hash ^= networks.mixed();
        }
        let bucket = self.bucket(hash);
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
            let direction = if flow.is(key) && long.is_none_or(|l| *l == self.asides[index].long) {
                0
            } else if flow.is(reversed) && long.is_none_or(|l| is_reverse(l, &self.asides[index].long)) {
                1
            } else {
                at = flow.next;
                continue;
            };
            if TAGS && self.asides[index].tags() != networks {
                at = flow.next;
                continue;
            }
            let limit = if flow.is_closed() { self.timeouts.linger } else { self.timeouts.idle };
            if d.ts_ns.saturating_sub(flow.last) > limit
                || flow.is_far_from_start(d.ts_ns, self.far)
                || flow.packets[direction] == u32::MAX
            {
                self.restart(index, d, direction, None, out);
            } else if has_syn(d) && self.is_another(index, d, direction) {
                self.restart(index, d, direction, Some(End::Reused), out);
            } else if length == 0 {
                self.count_unstated(index, d, direction);
            } else {
                let carry = self.flows[index].count(&d, direction, length);
                if carry != 0 {
                    self.carry(index, direction, carry);
                }
            }
            return;
        }
        self.insert(hash, d, out);
    }

    /// Returns whether packets with other numbers of networks belong to other flows.
    pub fn is_by_tags(&self) -> bool {
        self.by_tags
    }

    /// Returns whether a packet with SYN begins another connection than that of its flow.
    #[cold]
    #[inline(never)]
    fn is_another(&mut self, index: usize, packet: Packet<'_>, direction: usize) -> bool {
        cold();
        self.flows[index].is_another(&mut self.asides[index], &packet, direction, numbers(packet))
    }

    /// Counts a packet whose IP header does not state its length: from there to the end of its frame.
    #[cold]
    #[inline(never)]
    fn count_unstated(&mut self, index: usize, packet: Packet<'_>, direction: usize) {
        cold();
        let length = packet.wire_len.saturating_sub(packet.l3.into());
        let carry = self.flows[index].count(&packet, direction, length);
        self.asides[index].carry(direction, carry);
        self.asides[index].count_unstated();
    }

    /// Counts what [`Flow::count`] had no room for.
    #[cold]
    #[inline(never)]
    fn carry(&mut self, index: usize, direction: usize, carry: i32) {
        cold();
        self.asides[index].carry(direction, carry);
    }

    /// Ends the flow of a packet, because of a timeout or for the reason `why`, and begins the next one with
    /// the packet.
    #[cold]
    #[inline(never)]
    fn restart(
        &mut self,
        index: usize,
        packet: Packet<'_>,
        direction: usize,
        why: Option<End>,
        out: &mut Reserved<'_>,
    ) {
        cold();
        let flow = self.flows[index];
        let silent = packet.ts_ns.saturating_sub(flow.last);
        if flow.is_resting() {
            self.use_one();
        } else {
            let timeout = if silent > self.timeouts.idle { End::Idle } else { End::Active };
            flow.write(&self.asides[index], flow.end(why.unwrap_or(timeout)), out);
        }
        // The same conversation continues and keeps its direction.
        let continues = !flow.is_closed() && silent <= self.timeouts.active && !has_syn(packet);
        let reversed = if continues { direction == 1 } else { packet.tcp_flags & ANSWER == ANSWER };
        let hash = self.asides[index].hash;
        self.begin(index, flow.next, hash, packet, reversed);
    }

    fn use_one(&mut self) {
        self.used += 1;
        self.peak = self.peak.max(self.used);
    }

    /// Puts a new flow with its first packet into a slot, whose direction is that of the packet or reversed.
    fn begin(&mut self, index: usize, next: u32, hash: u32, packet: Packet<'_>, reversed: bool) {
        // The addresses of a packet that came here were captured.
        let Some(Seen { key, long, length, .. }) = Seen::new(packet) else { return };
        let mut flow = Flow::new(if reversed { key.reversed() } else { key }, &packet);
        flow.next = next;
        let tags = tags(self.link, packet);
        let aside = &mut self.asides[index];
        aside.begin(hash, tags);
        if let Some(long) = long {
            aside.long = if reversed { reverse(long) } else { *long };
        }
        if let Some(numbers) = numbers(packet) {
            flow.note_first(aside, packet.tcp_flags, usize::from(reversed), numbers);
        }
        if length != 0 {
            let carry = flow.count(&packet, usize::from(reversed), length);
            aside.carry(usize::from(reversed), carry);
        }
        self.flows[index] = flow;
        if length == 0 {
            self.count_unstated(index, packet, usize::from(reversed));
        }
    }

    #[inline(never)]
    fn insert(&mut self, hash: u32, packet: Packet<'_>, out: &mut Reserved<'_>) {
        // Executed for the first packet of a flow.
        cold();
        let bucket = self.bucket(hash);
        let index = self.slot(bucket, out);
        // Read after an eviction, which may have changed the chain.
        let head = self.buckets[bucket];
        // The answer to a SYN that was not captured still identifies the client.
        self.begin(index, head, hash, packet, packet.tcp_flags & ANSWER == ANSWER);
        self.buckets[bucket] = index as u32 + 1;
        self.use_one();
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
        if index < self.flows.capacity() && index < self.asides.capacity() && index == self.asides.len() {
            self.flows.push(Flow::default());
            self.asides.push(Aside::default());
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
        if !self.flows[index].is_resting() {
            self.evicted += 1;
            self.used -= 1;
            self.flows[index].write(&self.asides[index], End::Evicted, out);
        }
        self.remove(index);
    }

    /// Removes a flow from its chain and frees its slot.
    fn remove(&mut self, index: usize) {
        let name = index as u32 + 1;
        let bucket = self.bucket(self.asides[index].hash);
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
        self.flows[index] = Flow::free(self.free);
        self.free = name;
    }

    /// Examines a sixteenth of the flows and ends those that have been silent for too long. They rest,
    /// because a later packet has their direction, and leave after [`Timeouts::active`], or at once
    /// if the table is nearly full.
    pub fn scan(&mut self, cursor: &mut usize, now_ns: u64, out: &mut Out) {
        for _ in 0..(self.flows.len() / 16 + 64).min(self.flows.len()) {
            if out.room() < Row::SPACE {
                return;
            }
            if *cursor >= self.flows.len() {
                *cursor = 0;
            }
            let (index, flow) = (*cursor, self.flows[*cursor]);
            if flow.is_used() && (flow.is_resting() || self.is_silent(&flow, now_ns)) {
                if !flow.is_resting() {
                    let out = &mut out.reserve(Row::SPACE);
                    flow.write(&self.asides[index], flow.end(End::Idle), out);
                    self.flows[index].rest();
                    self.used -= 1;
                }
                let is_nearly_full = self.flows.len() > self.max_flows / 4 * 3;
                let silent = now_ns.saturating_sub(flow.last);
                if flow.is_closed()
                    || is_nearly_full
                    || silent > self.timeouts.active.saturating_add(self.timeouts.late)
                {
                    self.remove(index);
                }
            }
            *cursor += 1;
        }
    }

    /// Returns whether a flow has been silent for so long that a scan ends it.
    fn is_silent(&self, flow: &Flow, now_ns: u64) -> bool {
        let limit = if flow.is_closed() { self.timeouts.linger } else { self.timeouts.idle };
        now_ns.saturating_sub(flow.last) > limit.saturating_add(self.timeouts.late)
    }

    /// Writes the flows from slot `cursor` on, as many as fit, and returns whether there may be more. A flow
    /// that no scan has reached yet ends as a scan would end it, so records do not depend on scans.
    pub fn dump(&mut self, cursor: &mut usize, now_ns: u64, out: &mut Out) -> bool {
        for _ in 0..DUMP_SLOTS {
            let Some(flow) = self.flows.get(*cursor) else { return false };
            if out.room() < Row::SPACE {
                return true;
            }
            if flow.is_used() && !flow.is_resting() {
                let end = if self.is_silent(flow, now_ns) { End::Idle } else { End::End };
                let out = &mut out.reserve(Row::SPACE);
                flow.write(&self.asides[*cursor], flow.end(end), out);
            }
            *cursor += 1;
        }
        true
    }
}
