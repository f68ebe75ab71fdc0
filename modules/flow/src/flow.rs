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
    /// The bytes of frames without IP, modulo 65,536. [`Aside`] has the rest.
    frames: [u16; 2],
}

const _: () = assert!(size_of::<Flow>() == 64);

/// The fields of a flow that few packets need.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub struct Aside {
    /// The IPv6 addresses, forward. IPv4 flows do not change them.
    pub long: Long,
    /// The bytes of frames without IP that [`Flow::frames`] has no room for, in units of 65,536.
    frames: [i32; 2],
    /// The initial sequence numbers of TCP, as far as [`Flow::meta`] states that they are known.
    initial: [u32; 2],
    /// The numbers of networks: VNI, label of MPLS, and from [`VLAN_SHIFT`] the outer VLAN.
    networks: u64,
    /// The inner VLAN, and from [`UNSTATED_SHIFT`] the number of packets whose IP header does not state their
    /// length.
    inner: u32,
    pub hash: u32,
}

const _: () = assert!(size_of::<Aside>() == 64);

const MPLS_SHIFT: u32 = 24;
const VLAN_SHIFT: u32 = 44;
const UNSTATED_SHIFT: u32 = 12;
/// The largest number of packets without a length that a record states.
const MAX_UNSTATED: u32 = u32::MAX >> UNSTATED_SHIFT;

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

    /// Returns whether a time is more than `far` after the flow's first less [`SLACK_NS`]: after a timeout,
    /// or so much before it that the clock was set back.
    #[inline]
    pub fn is_far_from_start(&self, ts_ns: u64, far: u64) -> bool {
        // Before the start, the difference wraps around.
        ts_ns.wrapping_sub(self.first).wrapping_add(SLACK_NS) > far
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

    /// Counts a packet of `length` bytes of IP. Returns what the other bytes of its frame carry over to
    /// [`Aside::carry`], which is almost always 0.
    #[inline]
    pub fn count(&mut self, d: &Descriptor, reverse: usize, length: u32) -> i32 {
        self.packets[reverse] += 1;
        self.bytes[reverse] += u64::from(length);
        self.meta |= u64::from(d.tcp_flags) << (48 + 8 * reverse);
        if d.ts_ns >= self.last {
            self.last = d.ts_ns;
        } else if d.ts_ns < self.first {
            self.first = d.ts_ns;
        }
        let frames = i64::from(self.frames[reverse]) + i64::from(d.wire_len) - i64::from(length);
        self.frames[reverse] = frames as u16;
        (frames >> 16) as i32
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
            let more = i64::from(self.frames[reverse]) + (i64::from(aside.frames[reverse]) << 16);
            self.bytes[reverse].saturating_add_signed(more)
        };
        let (icmp_type, icmp_code) = key.icmp();
        let Tags { vlan, inner_vlan, vni, mpls } = aside.tags();
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
            unstated_lengths: aside.inner >> UNSTATED_SHIFT,
            vlan,
            inner_vlan,
            vni,
            mpls,
        });
    }
}

impl Aside {
    /// Counts what [`Flow::count`] returned.
    pub fn carry(&mut self, reverse: usize, carry: i32) {
        self.frames[reverse] = self.frames[reverse].saturating_add(carry);
    }

    /// Counts a packet whose IP header does not state its length.
    pub fn count_unstated(&mut self) {
        if self.inner >> UNSTATED_SHIFT < MAX_UNSTATED {
            self.inner += 1 << UNSTATED_SHIFT;
        }
    }

    /// Begins another flow in the place of this one, with the same IPv6 addresses.
    pub fn begin(&mut self, hash: u32, tags: Tags) {
        let Tags { vlan, inner_vlan, vni, mpls } = tags;
        let networks = u64::from(vni) | u64::from(mpls) << MPLS_SHIFT | u64::from(vlan) << VLAN_SHIFT;
        *self = Self { long: self.long, hash, networks, inner: inner_vlan.into(), ..Self::default() };
    }

    /// Returns the numbers of networks of the flow's first packet.
    pub fn tags(&self) -> Tags {
        Tags {
            vlan: (self.networks >> VLAN_SHIFT) as u16,
            inner_vlan: self.inner as u16 & 0xfff,
            vni: self.networks as u32 & 0x00ff_ffff,
            mpls: (self.networks >> MPLS_SHIFT) as u32 & 0x000f_ffff,
        }
    }
}
