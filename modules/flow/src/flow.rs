//! One flow: a cache line for each packet, and what few packets need aside.

use crate::key::{Key, Long, META};
use crate::table::SLACK_NS;
use crate::tables;
use crate::tags::Tags;
use flame_module::{Descriptor, Reserved, tcp};

/// The reason why a record was written.
pub use crate::tables::FlowEnd as End;

/// Index 0 in the chains of [`crate::table::Table`]: no flow.
pub const NONE: u32 = 0;

/// One flow. Times are in nanoseconds; arrays are indexed by direction, forward then reverse.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub struct Flow {
    pub address: u64,
    /// The second word of the key; bits 43 and 44 state the directions whose initial sequence number is
    /// known; then the TCP flags seen: forward from bit 48, reverse from bit 56.
    pub meta: u64,
    pub first: u64,
    pub last: u64,
    /// The bytes of IP.
    pub bytes: [u64; 2],
    /// [`u32::MAX`] twice in a flow whose record was written already.
    pub packets: [u32; 2],
    /// The next flow of the chain: index + 1, or [`NONE`].
    pub next: u32,
    /// The bytes of frames without IP. What has no room is in [`Aside`].
    frames: [u16; 2],
}

const _: () = assert!(size_of::<Flow>() == 64);

/// The fields of a flow that few packets need.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aside {
    /// The IPv6 addresses, forward. IPv4 flows do not change them.
    pub long: Long,
    frames: [i64; 2],
    /// The initial sequence numbers of TCP, as far as [`Flow::meta`] states that they are known.
    initial: [u32; 2],
    pub hash: u32,
    /// The number of packets whose IP header does not state their length.
    unstated: u32,
    pub tags: Tags,
}

/// The numbers of a TCP header that belong to its SYN.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    pub sequence: u32,
    pub acknowledged: u32,
}

/// The largest number of bytes that a SYN carries.
const MAX_SYN_DATA: u32 = 0xffff;

/// The place of the bits for known initial sequence numbers in [`Flow::meta`].
const KNOWN_SHIFT: u32 = 43;

impl Flow {
    /// Returns a flow that begins with `d` and has not counted it yet.
    pub fn new(key: Key, d: &Descriptor) -> Self {
        Self { address: key.address, meta: key.meta, first: d.ts_ns, last: d.ts_ns, ..Self::default() }
    }

    /// Returns a free slot, with the next one.
    pub fn free(next: u32) -> Self {
        Self { next, ..Self::default() }
    }

    #[inline]
    pub fn is(&self, key: Key) -> bool {
        self.address == key.address && self.meta & META == key.meta
    }

    /// Returns whether the slot contains a flow; a freed slot has no IP version.
    pub fn is_used(&self) -> bool {
        self.meta != 0
    }

    /// Lets the flow rest: its record was written, and it keeps its key and direction.
    pub fn rest(&mut self) {
        self.packets = [u32::MAX; 2];
    }

    pub fn is_resting(&self) -> bool {
        self.packets == [u32::MAX; 2]
    }

    pub fn tcp_flags(&self, reverse: usize) -> u8 {
        (self.meta >> (48 + 8 * reverse)) as u8
    }

    /// Returns whether FIN was seen in both directions, or RST in one.
    #[inline]
    pub fn is_closed(&self) -> bool {
        let (forward, reverse) = (self.tcp_flags(0), self.tcp_flags(1));
        forward & reverse & tcp::FIN != 0 || (forward | reverse) & tcp::RST != 0
    }

    /// Returns whether a time is more than `active` after the flow's first, or so much before it that the
    /// clock was set back.
    #[inline]
    pub fn is_far_from_start(&self, ts_ns: u64, active: u64) -> bool {
        // Before the start, the difference wraps around.
        ts_ns.wrapping_sub(self.first).wrapping_add(SLACK_NS) > active.saturating_add(SLACK_NS)
    }

    /// Returns `reason`, unless the flow had closed before.
    pub fn end(&self, reason: End) -> End {
        if !self.is_closed() {
            reason
        } else if (self.tcp_flags(0) | self.tcp_flags(1)) & tcp::RST != 0 {
            End::Rst
        } else {
            End::Fin
        }
    }

    /// Counts a packet of `length` bytes of IP, and returns whether there was room for the other bytes of its
    /// frame. [`Flow::count_frame`] counts those otherwise.
    #[inline]
    pub fn count(&mut self, d: &Descriptor, reverse: usize, length: u32) -> bool {
        self.packets[reverse] += 1;
        self.bytes[reverse] += u64::from(length);
        self.meta |= u64::from(d.tcp_flags) << (48 + 8 * reverse);
        if d.ts_ns >= self.last {
            self.last = d.ts_ns;
        } else if d.ts_ns < self.first {
            self.first = d.ts_ns;
        }
        let more = d.wire_len.wrapping_sub(length);
        let sum = u32::from(self.frames[reverse]) + (more & 0xffff);
        let has_room = more <= 0xffff && sum <= 0xffff;
        if has_room {
            self.frames[reverse] = sum as u16;
        }
        has_room
    }

    /// Counts the bytes of a frame for which [`Flow::count`] had no room.
    pub fn count_frame(aside: &mut Aside, d: &Descriptor, reverse: usize, length: u32) {
        aside.frames[reverse] += i64::from(d.wire_len) - i64::from(length);
    }

    fn initial(&self, aside: &Aside, reverse: usize) -> Option<u32> {
        (self.meta >> (KNOWN_SHIFT as usize + reverse) & 1 == 1).then_some(aside.initial[reverse])
    }

    fn set_initial(&mut self, aside: &mut Aside, reverse: usize, number: u32) {
        self.meta |= 1 << (KNOWN_SHIFT as usize + reverse);
        aside.initial[reverse] = number;
    }

    /// Notes the initial sequence numbers that follow from the first packet of a TCP flow: a SYN's own, or
    /// else the number before the first byte of a direction.
    pub fn note_first(&mut self, aside: &mut Aside, flags: u8, reverse: usize, numbers: Numbers) {
        let is_syn = flags & tcp::SYN != 0;
        if is_syn || numbers.sequence != 0 {
            self.set_initial(aside, reverse, numbers.sequence.wrapping_sub(u32::from(!is_syn)));
        }
        if flags & tcp::ACK != 0 {
            self.set_initial(aside, 1 - reverse, numbers.acknowledged.wrapping_sub(1));
        }
    }

    /// Returns whether a packet with SYN belongs to another connection, and notes its number otherwise. A SYN
    /// that is older than all packets of the flow is its own, which came late.
    pub fn is_another(
        &mut self,
        aside: &mut Aside,
        d: &Descriptor,
        reverse: usize,
        numbers: Option<Numbers>,
    ) -> bool {
        let is_answer = d.tcp_flags & tcp::ACK != 0;
        let Some(numbers) = numbers else { return !is_answer && self.is_closed() };
        let (of, number) = match is_answer {
            true => (1 - reverse, numbers.acknowledged.wrapping_sub(1)),
            false => (reverse, numbers.sequence),
        };
        let is_late = d.ts_ns < self.first;
        let is_another = match self.initial(aside, of) {
            Some(known) if is_answer => number.wrapping_sub(known) > MAX_SYN_DATA && !is_late,
            // A capture that is repeated has the same numbers again.
            Some(known) => (number != known || self.is_closed()) && !is_late,
            None => !is_answer && self.is_closed(),
        };
        if !is_another {
            if !is_answer || self.initial(aside, of).is_none() {
                self.set_initial(aside, of, number);
            }
            if is_answer {
                self.set_initial(aside, reverse, numbers.sequence);
            }
        }
        is_another
    }

    /// Writes the record.
    pub fn write(&self, aside: &Aside, end: End, out: &mut Reserved<'_>) {
        let key = Key { address: self.address, meta: self.meta & META };
        let (src, dst) = key.addresses(&aside.long);
        let [packets_fwd, packets_rev] = self.packets.map(u64::from);
        let [ip_bytes_fwd, ip_bytes_rev] = self.bytes;
        let whole = |reverse: usize| {
            let more = i64::from(self.frames[reverse]).saturating_add(aside.frames[reverse]);
            self.bytes[reverse].saturating_add_signed(more)
        };
        let (icmp_type, icmp_code) = key.icmp();
        let Tags { vlan, inner_vlan, vni, mpls } = aside.tags;
        out.write(&tables::Flow {
            proto: key.proto(),
            src,
            sport: key.sport(),
            dst,
            dport: key.dport(),
            first_ns: self.first,
            last_ns: self.last,
            packets_fwd,
            packets_rev,
            bytes_fwd: whole(0),
            bytes_rev: whole(1),
            tcp_flags_fwd: self.tcp_flags(0),
            tcp_flags_rev: self.tcp_flags(1),
            end,
            icmp_type,
            icmp_code,
            ip_bytes_fwd,
            ip_bytes_rev,
            unknown_ports: key.is_portless(),
            unstated_lengths: aside.unstated,
            vlan,
            inner_vlan,
            vni,
            mpls,
        });
    }
}

impl Aside {
    /// Counts a packet whose IP header does not state its length.
    pub fn count_unstated(&mut self) {
        self.unstated = self.unstated.saturating_add(1);
    }

    /// Begins another flow in the place of this one, with the same IPv6 addresses.
    pub fn begin(&mut self, hash: u32, tags: Tags) {
        *self = Self { long: self.long, hash, tags, ..Self::default() };
    }
}
