use crate::{RawBlock, RawPacket};
use flame_abi::{Descriptor, LinkType};
use std::ops::Range;

/// The descriptors of packets of one block, whose `addr` is the offset in [`RawBlock::data`]. Their memory
/// serves again for the next block.
#[derive(Debug, Default)]
pub struct Described {
    descriptors: Vec<Descriptor>,
    /// The link types of runs of packets, with the first packet of each.
    links: Vec<(LinkType, usize)>,
    totals: Totals,
}

/// The sum of the captured bytes of packets, and the latest of their times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub bytes: u64,
    pub latest_ns: u64,
}

impl Described {
    /// Returns an empty list with room for some packets.
    pub fn with_capacity(packets: usize) -> Self {
        Self { descriptors: Vec::with_capacity(packets), ..Self::default() }
    }

    pub fn clear(&mut self) {
        self.descriptors.clear();
        self.links.clear();
        self.totals = Totals::default();
    }

    /// Decodes a packet into the next descriptor, where it stays.
    #[inline]
    pub fn decode(&mut self, packet: RawPacket, bytes: &[u8], options: flame_decode::Options) {
        let RawPacket { ts_ns, offset, wire_len, link, .. } = packet;
        self.push(
            link,
            Descriptor { ts_ns, addr: offset, cap_len: bytes.len() as u32, ..Descriptor::default() },
        );
        if let Some(d) = self.descriptors.last_mut() {
            flame_decode::decode_into(link, bytes, wire_len, options, d);
        }
    }

    /// Adds a packet.
    #[inline]
    pub fn push(&mut self, link: LinkType, d: Descriptor) {
        if self.links.last().is_none_or(|(last, _)| *last != link) {
            self.links.push((link, self.descriptors.len()));
        }
        self.totals.bytes += u64::from(d.cap_len);
        self.totals.latest_ns = self.totals.latest_ns.max(d.ts_ns);
        self.descriptors.push(d);
    }

    pub fn descriptors(&self) -> &[Descriptor] {
        &self.descriptors
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Keeps the first `count` packets.
    pub fn truncate(&mut self, count: usize) {
        if count < self.descriptors.len() {
            self.descriptors.truncate(count);
            self.links.retain(|(_, start)| *start < count);
            let kept = self.descriptors.iter().map(|d| (u64::from(d.cap_len), d.ts_ns));
            let add = |sum: Totals, (bytes, ts_ns): (u64, u64)| Totals {
                bytes: sum.bytes + bytes,
                latest_ns: sum.latest_ns.max(ts_ns),
            };
            self.totals = kept.fold(Totals::default(), add);
        }
    }

    /// Returns the packets of a range in runs of one link type. Nearly every source has only one.
    pub fn runs(&self, range: Range<usize>) -> impl Iterator<Item = (LinkType, &[Descriptor])> {
        let ends = self.links.iter().skip(1).map(|(_, start)| *start).chain([self.descriptors.len()]);
        let runs = self.links.iter().zip(ends).map(move |((link, start), end)| {
            let of_both = range.start.max(*start)..range.end.min(end);
            (*link, self.descriptors.get(of_both).unwrap_or_default())
        });
        runs.filter(|(_, descriptors)| !descriptors.is_empty())
    }
}

impl RawBlock {
    /// Replaces `described` by the descriptors of the packets.
    pub fn describe(&self, options: flame_decode::Options, described: &mut Described) {
        described.clear();
        for packet in &self.packets {
            let bytes = &self.data[packet.offset as usize..(packet.offset + packet.cap_len) as usize];
            described.decode(*packet, bytes, options);
        }
    }

    /// Returns the totals of the packets.
    pub fn totals(&self) -> Totals {
        let bytes = self.packets.iter().map(|packet| u64::from(packet.cap_len)).sum();
        let latest_ns = self.packets.iter().map(|packet| packet.ts_ns).max().unwrap_or(0);
        Totals { bytes, latest_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// All packets are in the runs, in order and with their link types, whatever was there before.
        #[test]
        fn runs_have_all_packets(
            links in proptest::collection::vec(0..3_u16, 0..200),
            before in 0..100_usize,
            (start, end, kept) in (0..200_usize, 0..200_usize, 0..300_usize),
        ) {
            let mut described = Described::with_capacity(7);
            (0..before).for_each(|_| described.push(LinkType(9), Descriptor::default()));
            described.clear();
            let of = |n: usize| Descriptor { ts_ns: n as u64, cap_len: 3, ..Descriptor::default() };
            links.iter().enumerate().for_each(|(n, link)| described.push(LinkType(*link), of(n)));
            described.truncate(kept);
            let count = kept.min(links.len());
            prop_assert_eq!(described.descriptors().len(), count);
            let latest_ns = count.saturating_sub(1) as u64;
            prop_assert_eq!(described.totals(), Totals { bytes: 3 * count as u64, latest_ns });
            let (start, end) = (start.min(count), end.min(count));
            let runs: Vec<_> = described.runs(start..end).collect();
            prop_assert!(runs.windows(2).all(|two| two[0].0 != two[1].0));
            let found: Vec<_> =
                runs.into_iter().flat_map(|(link, run)| run.iter().map(move |d| (link.0, d.ts_ns))).collect();
            let range = start.min(end)..end;
            let expected: Vec<_> =
                if start < end { range.map(|n| (links[n], n as u64)).collect() } else { Vec::new() };
            prop_assert_eq!(found, expected);
        }
    }
}
