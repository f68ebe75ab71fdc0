use crate::{RawBlock, RawPacket};
use flame_abi::{Descriptor, LinkType};
use std::ops::Range;

/// The descriptors of packets of one block, whose `addr` is the offset in [`RawBlock::data`]. Their memory
/// serves again for the next block.
#[derive(Debug, Default)]
pub struct Described {
    /// The descriptors of the packets, and after them those of earlier blocks.
    descriptors: Vec<Descriptor>,
    /// The number of packets.
    count: usize,
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

impl Totals {
    #[inline]
    fn add(&mut self, bytes: u64, latest_ns: u64) {
        self.bytes += bytes;
        self.latest_ns = self.latest_ns.max(latest_ns);
    }
}

/// Packets of one link type that are added to a block's. They belong to it when this value is dropped: until
/// then their number and totals are in registers.
pub struct Adding<'a> {
    link: LinkType,
    slots: &'a mut [Descriptor],
    added: usize,
    sums: Totals,
    links: &'a mut Vec<(LinkType, usize)>,
    count: &'a mut usize,
    totals: &'a mut Totals,
}

impl Adding<'_> {
    /// Adds a packet. There must be room for it.
    #[inline(always)] // The loop over packets is hot.
    pub fn add(&mut self, d: &Descriptor) {
        self.slots[self.added] = *d;
        self.note(d.cap_len.into(), d.ts_ns);
    }

    #[inline(always)]
    fn note(&mut self, bytes: u64, ts_ns: u64) {
        self.added += 1;
        self.sums.add(bytes, ts_ns);
    }
}

impl Drop for Adding<'_> {
    fn drop(&mut self) {
        if self.added > 0 && self.links.last().is_none_or(|(last, _)| *last != self.link) {
            self.links.push((self.link, *self.count));
        }
        *self.count += self.added;
        self.totals.add(self.sums.bytes, self.sums.latest_ns);
    }
}

/// Packets of one link type that are decoded and added to a block's.
pub struct Decoding<'a> {
    options: flame_decode::Options,
    to: Adding<'a>,
}

impl Decoding<'_> {
    /// Decodes a packet into the next descriptor, where it stays. There must be room for it.
    #[inline(always)] // The loop over packets is the hottest of a source.
    pub fn decode(&mut self, packet: RawPacket, bytes: &[u8]) {
        let d = &mut self.to.slots[self.to.added];
        (d.ts_ns, d.addr) = (packet.ts_ns, packet.offset);
        flame_decode::decode_into(self.to.link, bytes, packet.wire_len, self.options, d);
        self.to.note(bytes.len() as u64, packet.ts_ns);
    }
}

impl Described {
    /// Returns an empty list with room for some packets.
    pub fn with_capacity(packets: usize) -> Self {
        Self { descriptors: Vec::with_capacity(packets), ..Self::default() }
    }

    pub fn clear(&mut self) {
        self.count = 0;
        self.links.clear();
        self.totals = Totals::default();
    }

    /// Begins to decode and add up to `most` packets of one link type.
    pub fn decoding(&mut self, link: LinkType, most: usize, options: flame_decode::Options) -> Decoding<'_> {
        Decoding { options, to: self.adding(link, most) }
    }

    /// Begins to add up to `most` packets of one link type.
    pub fn adding(&mut self, link: LinkType, most: usize) -> Adding<'_> {
        let Self { descriptors, count, links, totals } = self;
        let end = *count + most;
        if descriptors.len() < end {
            descriptors.resize(end, Descriptor::default());
        }
        let slots = &mut descriptors[*count..end];
        Adding { link, slots, added: 0, sums: Totals::default(), links, count, totals }
    }

    pub fn descriptors(&self) -> &[Descriptor] {
        &self.descriptors[..self.count]
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Keeps the first `count` packets.
    pub fn truncate(&mut self, count: usize) {
        if count < self.count {
            self.count = count;
            self.links.retain(|(_, start)| *start < count);
            let mut totals = Totals::default();
            self.descriptors().iter().for_each(|d| totals.add(d.cap_len.into(), d.ts_ns));
            self.totals = totals;
        }
    }

    /// Returns the packets of a range in runs of one link type. Nearly every source has only one.
    pub fn runs(&self, range: Range<usize>) -> impl Iterator<Item = (LinkType, &[Descriptor])> {
        let ends = self.links.iter().skip(1).map(|(_, start)| *start).chain([self.count]);
        let runs = self.links.iter().zip(ends).map(move |((link, start), end)| {
            let of_both = range.start.max(*start)..range.end.min(end);
            (*link, self.descriptors().get(of_both).unwrap_or_default())
        });
        runs.filter(|(_, descriptors)| !descriptors.is_empty())
    }
}

impl RawBlock {
    /// Replaces `described` by the descriptors of the packets.
    pub fn describe(&self, options: flame_decode::Options, described: &mut Described) {
        described.clear();
        for run in self.packets.chunk_by(|one, next| one.link == next.link) {
            let mut decoding = described.decoding(run[0].link, run.len(), options);
            for packet in run {
                let bytes = &self.data[packet.offset as usize..(packet.offset + packet.cap_len) as usize];
                decoding.decode(*packet, bytes);
            }
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

    /// Returns a block of packets of some link types, whose bytes are a fast or a slow one's, or cut off.
    fn block(packets: &[(u16, usize)]) -> RawBlock {
        let tcp =
            [&[0; 12][..], &[8, 0, 0x45, 0, 0, 40], &[0; 5], &[6], &[7; 10], &[0; 12], &[0x50, 2], &[1; 6]];
        let whole = tcp.concat();
        let (mut data, mut listed) = (Vec::new(), Vec::new());
        for (n, (link, length)) in packets.iter().enumerate() {
            let (offset, cap_len) = (data.len() as u32, *length as u32);
            let (ts_ns, wire_len, link) = (1000 - n as u64, 60, LinkType(*link));
            listed.push(RawPacket { ts_ns, offset, cap_len, wire_len, link });
            data.extend_from_slice(&whole[..*length]);
        }
        RawBlock { data: data.into(), packets: listed, shared_offset: None }
    }

    proptest! {
        /// Descriptors of a block before change nothing.
        #[test]
        fn each_packet_is_decoded_by_itself(
            before in proptest::collection::vec((0..3_u16, 0..55_usize), 0..50),
            packets in proptest::collection::vec((0..3_u16, 0..55_usize), 0..50),
            without_hash: bool,
        ) {
            let options = flame_decode::Options { without_hash, ..Default::default() };
            let mut described = Described::default();
            block(&before).describe(options, &mut described);
            let block = block(&packets);
            block.describe(options, &mut described);
            let decoded = block.packets.iter().map(|packet| {
                let bytes = &block.data[packet.offset as usize..][..packet.cap_len as usize];
                let of_bytes = flame_decode::decode(packet.link, bytes, packet.wire_len, options);
                (packet.link, Descriptor { ts_ns: packet.ts_ns, addr: packet.offset, ..of_bytes })
            });
            let runs = described.runs(0..packets.len());
            let found = runs.flat_map(|(link, run)| run.iter().map(move |d| (link, *d)));
            prop_assert_eq!(found.collect::<Vec<_>>(), decoded.collect::<Vec<_>>());
            prop_assert_eq!(described.totals(), block.totals());
        }

        /// All packets are in the runs, in order and with their link types, whatever was there before.
        #[test]
        fn runs_have_all_packets(
            links in proptest::collection::vec(0..3_u16, 0..200),
            before in 0..100_usize,
            (start, end, kept) in (0..200_usize, 0..200_usize, 0..300_usize),
        ) {
            let mut described = Described::with_capacity(7);
            (0..before).for_each(|_| described.adding(LinkType(9), 1).add(&Descriptor::default()));
            described.clear();
            let of = |n: usize| Descriptor { ts_ns: n as u64, cap_len: 3, ..Descriptor::default() };
            links.iter().enumerate().for_each(|(n, link)| {
                drop(described.adding(LinkType(link + 1), 9));
                described.adding(LinkType(*link), 2).add(&of(n));
            });
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
