//! The memory that the host prepares for a call: the module's own memory, the control area, descriptors and
//! packets.

use super::choices::Choices;
use flame_abi::{BatchHeader, Descriptor, layout};
use std::fmt;

/// The address after the last prepared byte: whole pages.
pub const END: u64 = layout::VIEW as u64 + (2 << 20);
/// The size in bytes of the module's own memory that calls may change and that is prepared again for each.
pub const OWN: usize = super::STACK as usize + 256;

/// The size in bytes of junk around the descriptors, so that a descriptor outside this batch has any value.
const AROUND: u32 = 8192;
const DESCRIPTORS: u32 = layout::VIEW + AROUND;
const PACKETS: u32 = DESCRIPTORS + 256 * 32 + AROUND;

/// The arguments of one call and the memory contents.
#[derive(Clone)]
pub struct Call {
    pub a: u32,
    pub b: u32,
    pub q: u64,
    /// The contents of the first bytes of memory, and of junk.
    pub fill: u64,
    pub packets: Vec<Descriptor>,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { a, b, q, packets, .. } = self;
        write!(f, "({a:#x}, {b:#x}, {q:#x}), {} packets of at most {} bytes", packets.len(), self.length())
    }
}

impl Call {
    pub fn new(choices: &mut Choices, is_batch: bool) -> Self {
        let mut call = Self {
            a: choices.border(32) as u32,
            b: choices.border(32) as u32,
            q: choices.border(64),
            fill: choices.next(),
            packets: Vec::new(),
        };
        if is_batch {
            let count = match choices.weighted(&[30, 45, 20, 5]) {
                0 => 1,
                1 => 1 + choices.below(4),
                2 => 1 + choices.below(40),
                _ => 256,
            };
            let longest = choices.pick(&[0, 1, 20, 64, 150, 1514, 9000]);
            for i in 0..count {
                let cap_len = if choices.chance(50) { longest } else { choices.below(longest + 1) } as u32;
                let l3 = choices.below(u64::from(cap_len.min(60)) + 1) as u16;
                let l4 = u32::from(l3) + choices.below(u64::from(cap_len - u32::from(l3)).min(60) + 1) as u32;
                let l4_len = choices.below(u64::from(cap_len - l4).min(60) + 1) as u8;
                call.packets.push(Descriptor {
                    ts_ns: choices.next(),
                    addr: PACKETS + (i as u32 * 64) % 4096,
                    hash: choices.next() as u32,
                    wire_len: cap_len,
                    cap_len,
                    l3,
                    l4: l4 as u16,
                    l4_len,
                    ..Descriptor::default()
                });
            }
        }
        call
    }

    /// Returns the length of the longest packet.
    pub fn length(&self) -> u64 {
        self.packets.iter().map(|p| p.cap_len.into()).max().unwrap_or(0)
    }

    /// Returns the data for `flame_init`: at least the header, at most as much as fits.
    pub fn data(&self) -> (u32, u32) {
        (layout::WINDOW + layout::DATA_OFFSET, 32 + self.b % (layout::MAX_DATA - 31))
    }

    pub fn write(&self, memory: &mut [u8]) {
        let mut state = self.fill | 1;
        let mut junk = |bytes: &mut [u8]| {
            for word in bytes.chunks_exact_mut(8) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                // All ones, small values, any.
                let n = [u64::MAX, state & 0x0f0f_0f0f_0f0f_0f0f, state][(state >> 60) as usize % 3];
                word.copy_from_slice(&n.to_le_bytes());
            }
        };
        junk(&mut memory[..512]);
        memory[512..OWN].fill(0);
        if self.packets.is_empty() {
            return;
        }
        let at = |address: u32| address as usize;
        junk(&mut memory[at(layout::VIEW)..at(PACKETS) + 16_384]);
        let header = BatchHeader {
            descriptors: DESCRIPTORS,
            count: self.packets.len() as u32,
            ..BatchHeader::default()
        };
        let place = at(layout::WINDOW + layout::BATCH_OFFSET);
        memory[place..place + BatchHeader::SIZE].copy_from_slice(&header.to_bytes());
        for (i, packet) in self.packets.iter().enumerate() {
            let place = at(DESCRIPTORS) + i * Descriptor::SIZE;
            memory[place..place + Descriptor::SIZE].copy_from_slice(&packet.to_bytes());
        }
    }
}
