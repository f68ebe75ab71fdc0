//! A hint for filters that miss VLAN-tagged packets: in pcap syntax `tcp port 80` stands for untagged packets
//! only, which surprises on a trunk.

use crate::error::Error;
use flame_abi::LinkType;
use flame_filter::{PacketFilter, TruePacket};
use flame_plan::TrustedFilter;
use flame_source::{RawBlock, Source};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of tagged packets of a run that are examined in full; further ones only by each block's first.
const EXAMINED: u64 = 100_000;
const OF_BLOCK: usize = 16;
/// The number of tags of one packet that are followed.
const TAGS: usize = 4;

/// The filters of a run, and the numbers of tagged packets found so far by all its sources.
#[derive(Clone)]
pub struct Hint {
    filters: Vec<TrustedFilter>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    examined: AtomicU64,
    missed: AtomicU64,
}

impl Hint {
    /// Returns `None` without a filter, or if it mentions VLANs.
    pub fn new(filters: &[TrustedFilter]) -> Option<Self> {
        let knows = |filter: &TrustedFilter| {
            filter.as_str().split(|c: char| !c.is_alphanumeric()).any(|w| w == "vlan")
        };
        let is_needed = !filters.is_empty() && !filters.iter().any(knows);
        is_needed.then(|| Self { filters: filters.to_vec(), counts: Arc::default() })
    }

    /// Returns a source whose packets are examined.
    pub fn watch(&self, source: Box<dyn Source>) -> Result<Box<dyn Source>, Error> {
        let compile = |filter| PacketFilter::compile(filter, LinkType::ETHERNET);
        // A filter that Ethernet does not have is no matter of tags.
        let Ok(filters) = self.filters.iter().map(compile).collect::<Result<Vec<_>, _>>() else {
            return Ok(source);
        };
        let (counts, mut untagged) = (self.counts.clone(), Vec::new());
        Ok(flame_source::each(source, move |block| {
            let passes =
                |bytes: &[u8], wire_len| filters.iter().all(|f| f.matches(TruePacket { bytes, wire_len }));
            let (examined, missed) =
                examine(block, passes, &mut untagged, counts.examined.load(Ordering::Relaxed));
            counts.examined.fetch_add(examined, Ordering::Relaxed);
            counts.missed.fetch_add(missed, Ordering::Relaxed);
            Ok(true)
        }))
    }

    /// Returns the hint, if packets were missed.
    pub fn text(&self) -> Option<String> {
        let missed = self.counts.missed.load(Ordering::Relaxed);
        let filter: Vec<_> = self.filters.iter().map(|filter| format!("({})", filter.as_str())).collect();
        let filter = match &filter[..] {
            [one] => one[1..one.len() - 1].to_owned(),
            many => many.join(" and "),
        };
        (missed > 0).then(|| {
            format!(
                "{missed} VLAN-tagged packets would pass the filter without their tags; a filter sees them only \
                 after `vlan`: '{filter} or (vlan and ({filter}))'"
            )
        })
    }
}

/// Returns the number of tagged packets that were examined, and of those that pass only without tags.
fn examine(
    block: &RawBlock,
    passes: impl Fn(&[u8], u32) -> bool,
    untagged: &mut Vec<u8>,
    before: u64,
) -> (u64, u64) {
    let most = if before < EXAMINED { block.packets.len() } else { OF_BLOCK };
    let (mut examined, mut missed) = (0, 0);
    for packet in block.packets.iter().take(most).filter(|packet| packet.link == LinkType::ETHERNET) {
        let bytes = &block.data[packet.offset as usize..(packet.offset + packet.cap_len) as usize];
        let tags = tags(bytes);
        if tags == 0 {
            continue;
        }
        examined += 1;
        if passes(bytes, packet.wire_len) {
            continue;
        }
        untagged.clear();
        untagged.extend(&bytes[..12]);
        untagged.extend(&bytes[12 + 4 * tags..]);
        missed += u64::from(passes(untagged, packet.wire_len.saturating_sub(4 * tags as u32)));
    }
    (examined, missed)
}

/// Returns the number of whole tags of an Ethernet frame (802.1Q, 802.1ad, and the older 0x9100).
fn tags(bytes: &[u8]) -> usize {
    let is_tag = |n: &usize| {
        matches!(bytes.get(12 + 4 * n..18 + 4 * n), Some([0x81 | 0x91, 0, ..] | [0x88, 0xa8, ..]))
    };
    (0..TAGS).take_while(is_tag).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_counted_while_they_are_whole() {
        let frame = |types: &[[u8; 2]]| {
            let mut bytes = vec![0; 12];
            types.iter().for_each(|kind| bytes.extend([kind[0], kind[1], 0, 1]));
            bytes
        };
        assert_eq!(tags(&frame(&[[8, 0]])), 0);
        assert_eq!(tags(&frame(&[[0x81, 0], [8, 0]])), 1);
        assert_eq!(tags(&frame(&[[0x88, 0xa8], [0x81, 0], [8, 0]])), 2);
        assert_eq!(tags(&frame(&[[0x81, 0]])), 0, "the type after the tag is missing");
        assert_eq!(tags(&frame(&[[0x81, 0]; 9])), TAGS);
        assert_eq!(tags(&[0; 5]), 0);
    }

    #[test]
    fn filters_that_speak_of_vlans_need_no_hint() {
        let hint = |text: &str| Hint::new(&[TrustedFilter::parse(text).unwrap().unwrap()]).is_some();
        assert!(hint("tcp port 80") && !hint("vlan 5 and tcp") && !hint("tcp or (vlan)"));
        assert!(Hint::new(&[]).is_none());
    }
}
