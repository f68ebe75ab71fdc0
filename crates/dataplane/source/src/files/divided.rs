//! Divides aggregated frames of 802.11 (A-MSDU), so that each datagram is a packet of its own.

use crate::{RawBlock, RawPacket};
use bytes::Bytes;
use flame_abi::MAX_BLOCK_PACKETS;

/// The packets that the last block had no room for.
#[derive(Debug, Default)]
pub struct Divided {
    data: Bytes,
    packets: Vec<RawPacket>,
    /// The number of those that were taken.
    taken: usize,
}

impl Divided {
    /// Moves packets to an empty block. Returns whether there were any.
    pub fn next(&mut self, block: &mut RawBlock) -> bool {
        let left = self.packets.get(self.taken..).unwrap_or_default();
        let moved = &left[..left.len().min(MAX_BLOCK_PACKETS)];
        let is_any = !moved.is_empty();
        if is_any {
            block.packets.extend_from_slice(moved);
            block.data = self.data.clone();
            self.taken += moved.len();
        }
        if self.taken == self.packets.len() {
            *self = Self::default();
        }
        is_any
    }

    /// Replaces each aggregated frame of a block by packets of one of its frames each, after copies of the
    /// headers that belong to all. The last ones may wait for the next block.
    pub fn divide(&mut self, block: &mut RawBlock) {
        let bytes = |p: &RawPacket| &block.data[p.offset as usize..(p.offset + p.cap_len) as usize];
        let is_aggregated = |p: &RawPacket| flame_decode::subframes(p.link, bytes(p)).is_some();
        let Some(first) = block.packets.iter().position(is_aggregated) else { return };
        let mut data = Vec::with_capacity(2 * block.data.len());
        let mut packets = Vec::with_capacity(2 * block.packets.len());
        for (index, p) in block.packets.iter().enumerate() {
            let whole = bytes(p);
            let frames = if index < first { None } else { flame_decode::subframes(p.link, whole) };
            let Some(frames) = frames else {
                packets.push(RawPacket { offset: data.len() as u32, ..*p });
                data.extend_from_slice(whole);
                continue;
            };
            let head = frames.head;
            for frame in frames {
                let captured = &whole[frame.start..frame.end.min(whole.len())];
                let on_wire = frame.end.min(p.wire_len as usize) - frame.start;
                let (offset, cap_len) = (data.len() as u32, (head + captured.len()) as u32);
                packets.push(RawPacket { offset, cap_len, wire_len: (head + on_wire) as u32, ..*p });
                data.extend_from_slice(&whole[..head]);
                data.extend_from_slice(captured);
            }
        }
        *self = Self { data: data.into(), packets, taken: 0 };
        block.packets.clear();
        self.next(block);
    }
}
