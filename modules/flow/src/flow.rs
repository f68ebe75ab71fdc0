//! One flow in one cache line.

use crate::key::{Key, Long, META};
use crate::tables;
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
    /// The second word of the key; from bit 43 the length of the first packet's link header, as in [`link`];
    /// then the TCP flags seen: forward from bit 48, reverse from bit 56.
    pub meta: u64,
    pub first: u64,
    pub last: u64,
    pub bytes: [u64; 2],
    pub packets: [u32; 2],
    pub hash: u32,
    /// The next flow of the chain: index + 1, or [`NONE`].
    pub next: u32,
}

const _: () = assert!(size_of::<Flow>() == 64);

/// The place of the link header's length in [`Flow::meta`], 5 bits.
const LINK_SHIFT: u32 = 43;
/// The number for lengths that the others do not express.
const OTHER: u64 = 31;

/// Returns the number for the length of a link header: half of it if it is even and at most 60.
#[inline]
fn link(l3: u16) -> u64 {
    if l3 & 1 == 0 && l3 <= 60 { u64::from(l3 / 2) } else { OTHER }
}

impl Flow {
    /// Returns a flow that begins with `d` and has not counted it yet.
    pub fn new(key: Key, d: &Descriptor) -> Self {
        Self {
            address: key.address,
            meta: key.meta | link(d.l3) << LINK_SHIFT,
            first: d.ts_ns,
            last: d.ts_ns,
            hash: d.hash,
            ..Self::default()
        }
    }

    #[inline]
    pub fn is(&self, key: Key) -> bool {
        self.address == key.address && self.meta & META == key.meta
    }

    /// Returns whether the slot contains a flow; a freed slot has no IP version.
    pub fn is_used(&self) -> bool {
        self.meta != 0
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

    #[inline]
    pub fn count(&mut self, d: &Descriptor, reverse: usize) {
        self.packets[reverse] += 1;
        self.bytes[reverse] += u64::from(d.wire_len);
        self.meta |= u64::from(d.tcp_flags) << (48 + 8 * reverse);
        if d.ts_ns >= self.last {
            self.last = d.ts_ns;
        } else if d.ts_ns < self.first {
            self.first = d.ts_ns;
        }
    }

    /// Returns the length of the link headers of this flow's packets, as far as it is the first packet's.
    fn link_header(&self) -> u64 {
        match self.meta >> LINK_SHIFT & OTHER {
            OTHER => 0,
            half => half * 2,
        }
    }

    /// Returns whether a packet has another link header than [`Flow::link_header`] states.
    #[inline]
    pub fn has_other_link(&self, d: &Descriptor) -> bool {
        let number = link(d.l3);
        number != self.meta >> LINK_SHIFT & OTHER || number == OTHER
    }

    /// Returns the difference of a packet's link header to [`Flow::link_header`].
    pub fn link_difference(&self, d: &Descriptor) -> i64 {
        i64::from(d.l3) - self.link_header() as i64
    }

    /// Writes the record. `links` are the sums of [`Flow::link_difference`].
    pub fn write(&self, long: &Long, links: [i64; 2], end: End, out: &mut Reserved<'_>) {
        let key = Key { address: self.address, meta: self.meta & META };
        let (src, dst) = key.addresses(long);
        let [packets_fwd, packets_rev] = self.packets.map(u64::from);
        let [bytes_fwd, bytes_rev] = self.bytes;
        let without = |bytes: u64, packets: u64, links: i64| {
            bytes.saturating_sub((packets * self.link_header()).wrapping_add_signed(links))
        };
        let (icmp_type, icmp_code) = key.icmp();
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
            bytes_fwd,
            bytes_rev,
            tcp_flags_fwd: self.tcp_flags(0),
            tcp_flags_rev: self.tcp_flags(1),
            end,
            icmp_type,
            icmp_code,
            ip_bytes_fwd: without(bytes_fwd, packets_fwd, links[0]),
            ip_bytes_rev: without(bytes_rev, packets_rev, links[1]),
        });
    }
}
