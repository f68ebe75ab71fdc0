//! The form in which an element hands packets to its module.

use crate::runtime::packet::{ANNO_EXTRA_LENGTH, Packet};
use flame_abi::{LinkType, MAX_BATCH, MAX_BLOCK_BYTES, MAX_BLOCK_PACKETS, MAX_PACKET};
use flame_click::Nanos;
use flame_source::{Frame, RawBlock, RawPacket};

/// Returns the bytes of a packet that a module can see.
pub(super) fn visible(packet: &Packet) -> &[u8] {
    &packet.data()[..packet.len().min(MAX_PACKET)]
}

/// The time of packets that have none, which is read once one of them needs it.
struct Now<F> {
    read: F,
    now: Option<Nanos>,
}

impl<F: Fn() -> Nanos> Now<F> {
    fn new(read: F) -> Self {
        Self { read, now: None }
    }

    /// Returns the time of a packet in nanoseconds since 1970.
    fn of(&mut self, packet: &Packet) -> u64 {
        let time = match packet.anno.time {
            time if time.0 > 0 => time,
            _ => *self.now.get_or_insert_with(&self.read),
        };
        u64::try_from(time.0).unwrap_or(0)
    }
}

/// Returns the length of a packet on the wire.
fn wire_len(packet: &Packet) -> u32 {
    (packet.len() as u32).saturating_add(packet.anno.u32(ANNO_EXTRA_LENGTH))
}

/// Returns a list without its entries, for those of other packets in the same memory.
pub(super) fn emptied<'a>(mut frames: Vec<Frame<'_>>) -> Vec<Frame<'a>> {
    frames.clear();
    // Collecting into a list of the same layout takes the memory over.
    frames.into_iter().map(|_| unreachable!("the list is empty")).collect()
}

/// Lists as many of the packets as a block holds, at least 1.
// Apart from its caller, whose many values would leave no registers for the loop.
#[inline(never)]
pub(super) fn list_frames<'a>(packets: &'a [Packet], now: impl Fn() -> Nanos, list: &mut Vec<Frame<'a>>) {
    let (mut bytes, mut now) = (0, Now::new(now));
    list.extend(packets.iter().take(MAX_BATCH).map(|p| {
        let frame = Frame { ts_ns: now.of(p), wire_len: wire_len(p), bytes: visible(p) };
        bytes += frame.bytes.len();
        frame
    }));
    if bytes >= MAX_BLOCK_BYTES {
        let mut before = 0;
        let fits = |frame: &Frame<'_>| {
            let has_room = before < MAX_BLOCK_BYTES;
            before += frame.bytes.len();
            has_room
        };
        let count = list.iter().map(fits).take_while(|has_room| *has_room).count();
        list.truncate(count);
    }
}

/// Copies packets into a block. Returns their number, which is at least 1.
pub(super) fn fill<'a>(
    block: &mut RawBlock,
    packets: impl IntoIterator<Item = &'a Packet>,
    link: LinkType,
    now: impl Fn() -> Nanos,
) -> usize {
    let mut now = Now::new(now);
    // The memory of the last block is used again, unless somebody keeps it.
    let last = std::mem::take(&mut block.data);
    let mut data = last.try_into_mut().unwrap_or_default();
    data.clear();
    block.packets.clear();
    for p in packets.into_iter().take(MAX_BLOCK_PACKETS) {
        if data.len() >= MAX_BLOCK_BYTES {
            break;
        }
        let bytes = visible(p);
        block.packets.push(RawPacket {
            ts_ns: now.of(p),
            offset: data.len() as u32,
            cap_len: bytes.len() as u32,
            wire_len: wire_len(p),
            link,
        });
        data.extend_from_slice(bytes);
    }
    block.data = data.freeze();
    block.packets.len()
}
