//! The block through which an element hands packets to its module.

use crate::runtime::packet::{ANNO_EXTRA_LENGTH, Packet};
use flame_abi::{LinkType, MAX_BLOCK_BYTES, MAX_BLOCK_PACKETS, MAX_PACKET};
use flame_source::{RawBlock, RawPacket};

/// Copies packets into a block. Returns their number, which is at least 1.
pub(super) fn fill<'a>(
    block: &mut RawBlock,
    packets: impl IntoIterator<Item = &'a Packet>,
    link: LinkType,
    now: flame_click::Nanos,
) -> usize {
    // The memory of the last block is used again, unless somebody keeps it.
    let last = std::mem::take(&mut block.data);
    let mut data = last.try_into_mut().unwrap_or_default();
    data.clear();
    block.packets.clear();
    for p in packets.into_iter().take(MAX_BLOCK_PACKETS) {
        if data.len() >= MAX_BLOCK_BYTES {
            break;
        }
        let bytes = &p.data()[..p.len().min(MAX_PACKET)];
        let time = if p.anno.time.0 > 0 { p.anno.time } else { now };
        block.packets.push(RawPacket {
            ts_ns: u64::try_from(time.0).unwrap_or(0),
            offset: data.len() as u32,
            cap_len: bytes.len() as u32,
            wire_len: (p.len() as u32).saturating_add(p.anno.u32(ANNO_EXTRA_LENGTH)),
            link,
        });
        data.extend_from_slice(bytes);
    }
    block.data = data.freeze();
    block.packets.len()
}
