use flame_abi::LinkType;
use flame_block::{Block, Pool, SLOT_DESCRIPTORS};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The number of packets of every block.
pub const PACKETS: u32 = 7;
/// The bytes of a block that are written and checked.
pub const BYTES: usize = 64;

pub fn block(slot: usize, packets: u32) -> Block {
    Block { slot, packets, link: LinkType::ETHERNET, queue: 0, port: 0 }
}

/// Claims a slot and fills it with a value.
pub fn fill(pool: &mut Pool, value: u8) -> Option<usize> {
    let slot = pool.claim()?;
    pool.slot(slot).1[..BYTES].fill(value);
    Some(slot)
}

/// Reads slots through the pool's descriptor.
pub struct Window(File);

impl Window {
    pub fn new(pool: &Pool) -> Self {
        let (fd, offset, _) = pool.window();
        assert_eq!(offset, 0);
        Self(File::open(format!("/proc/self/fd/{fd}")).unwrap())
    }

    pub fn bytes(&self, slot: usize) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        self.0.read_exact_at(&mut bytes, (Pool::offset(slot) + SLOT_DESCRIPTORS) as u64).unwrap();
        bytes
    }
}
