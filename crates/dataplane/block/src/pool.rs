use crate::memfd::{BlockError, SharedMemory};
use crate::{SLOT_BYTES, SLOT_DATA, SLOT_DESCRIPTORS};
use flame_abi::Descriptor;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Readers of one pool, at most: one bit each in a slot's mask.
pub const MAX_READERS: usize = 64;

// The head, in 64-bit words: a mask of readers per slot, then per reader its queue. Each queue
// stands on its own cache lines, so that readers do not disturb each other.
const MAX_SLOTS: usize = 16;
const QUEUE: usize = 32;
const QUEUE_HEAD: usize = 0; // entries published to this reader; the writer advances it
const QUEUE_TAIL: usize = 8; // entries it has taken; the reader advances it
const QUEUE_HELD: usize = 9; // entries it has released
const QUEUE_LOST: usize = 1; // packets lost because it held `depth` slots
const QUEUE_ENTRIES: usize = 16;
const HEAD_WORDS: usize = MAX_SLOTS + MAX_READERS * QUEUE;
const _: () = assert!(SLOT_BYTES.is_multiple_of(4096));
const HEAD_BYTES: usize = (HEAD_WORDS * 8).next_multiple_of(4096);

/// The writer's end.
pub struct Pool {
    memory: Arc<Mapping>,
    slots: usize,
    depths: Vec<u64>,
}

struct Mapping {
    // The writer alone takes slices, and only of slots whose mask is empty; all else is atomic.
    memory: std::cell::UnsafeCell<SharedMemory>,
}

mod mapping {
    #![allow(unsafe_code)] // Shares the mapping between the writer's slices and the readers' atomics.
    use super::*;

    // SAFETY: readers use only atomics of the head; slices are taken by the one `Pool` (not `Clone`),
    // through `&mut`, and of slots, which do not overlap the head.
    unsafe impl Sync for Mapping {}
    // SAFETY: as `SharedMemory`.
    unsafe impl Send for Mapping {}

    impl Mapping {
        pub(super) fn word(&self, index: usize) -> &AtomicU64 {
            assert!(index < HEAD_WORDS, "word lies in the head");
            // SAFETY: `&SharedMemory` gives only atomics here, which may be shared.
            unsafe { &*self.memory.get() }.atomic(index)
        }

        pub(super) fn fd(&self) -> RawFd {
            // SAFETY: reads the descriptor, which never changes.
            unsafe { &*self.memory.get() }.fd()
        }
    }

    impl Pool {
        /// The descriptors and the packets' bytes of a claimed slot.
        pub fn slot(&mut self, slot: usize) -> (&mut [Descriptor], &mut [u8]) {
            assert!(
                slot < self.slots && self.memory.word(slot).load(Ordering::Acquire) == 0,
                "slot is claimed"
            );
            // SAFETY: `&mut self` is the one writer, no reader holds the slot, and the range lies
            // behind the head, so nothing else refers to these bytes.
            let memory = unsafe { &mut *self.memory.memory.get() };
            let bytes = memory.slice_mut(HEAD_BYTES + slot * SLOT_BYTES, SLOT_BYTES);
            let (descriptors, data) = bytes.split_at_mut(SLOT_DESCRIPTORS);
            // SAFETY: a descriptor is plain numbers, so any bytes are one; slots are page-aligned.
            let (before, descriptors, after) = unsafe { descriptors.align_to_mut::<Descriptor>() };
            debug_assert!(before.is_empty() && after.is_empty());
            (descriptors, data)
        }
    }
}

/// What became of a published block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Readers that got it.
    pub taken: u32,
    /// Readers that lost it.
    pub lost: u32,
}

impl Pool {
    /// `slots` blocks of [`SLOT_BYTES`], 1 to 16.
    pub fn new(slots: usize) -> Result<Self, BlockError> {
        assert!((1..=MAX_SLOTS).contains(&slots), "1 to {MAX_SLOTS} slots");
        let memory = SharedMemory::new(HEAD_BYTES + slots * SLOT_BYTES)?;
        Ok(Self { memory: Arc::new(Mapping { memory: memory.into() }), slots, depths: Vec::new() })
    }

    /// What a reader maps: descriptor, offset in it, and bytes.
    pub fn window(&self) -> (RawFd, usize, usize) {
        (self.memory.fd(), HEAD_BYTES, self.slots * SLOT_BYTES)
    }

    /// Offset of a slot in the window.
    pub fn offset(slot: usize) -> usize {
        slot * SLOT_BYTES
    }

    /// Bytes of packets a slot holds.
    pub const fn capacity() -> usize {
        SLOT_DATA
    }

    /// A further reader that may hold `depth` slots at a time; none if there are [`MAX_READERS`].
    pub fn reader(&mut self, depth: usize) -> Option<Reader> {
        let number = self.depths.len();
        if number == MAX_READERS {
            return None;
        }
        self.depths.push(depth.clamp(1, QUEUE_ENTRIES) as u64);
        Some(Reader { memory: self.memory.clone(), number })
    }

    /// Takes a reader out: it gets no more blocks, and what it holds is free.
    pub fn remove(&mut self, reader: &mut Reader) {
        while let Some((slot, _)) = reader.take() {
            reader.release(slot);
        }
        self.depths[reader.number] = 0;
    }

    /// A slot that no reader holds. The lowest, because its bytes are the likeliest to be cached.
    pub fn claim(&self) -> Option<usize> {
        (0..self.slots).find(|&s| self.memory.word(s).load(Ordering::Acquire) == 0)
    }

    /// Hands a claimed and filled slot with `packets` packets to every reader that has room.
    pub fn publish(&mut self, slot: usize, packets: u32) -> Published {
        let mut mask = 0u64;
        for (number, depth) in self.depths.iter().enumerate() {
            let queue = queue(number);
            let head = self.memory.word(queue + QUEUE_HEAD).load(Ordering::Relaxed);
            let released = self.memory.word(queue + QUEUE_HELD).load(Ordering::Acquire);
            if head.wrapping_sub(released) < *depth {
                mask |= 1 << number;
            } else {
                self.memory.word(queue + QUEUE_LOST).fetch_add(u64::from(packets), Ordering::Relaxed);
            }
        }
        // The mask first: a reader may release before the others have even been told.
        self.memory.word(slot).store(mask, Ordering::Release);
        let entry = (slot as u64) << 32 | u64::from(packets);
        for number in (0..self.depths.len()).filter(|n| mask & (1 << n) != 0) {
            let queue = queue(number);
            let head = self.memory.word(queue + QUEUE_HEAD).load(Ordering::Relaxed);
            let place = queue + QUEUE_ENTRIES + head as usize % QUEUE_ENTRIES;
            self.memory.word(place).store(entry, Ordering::Relaxed);
            self.memory.word(queue + QUEUE_HEAD).store(head + 1, Ordering::Release);
        }
        Published { taken: mask.count_ones(), lost: self.depths.len() as u32 - mask.count_ones() }
    }
}

/// One reader's end.
pub struct Reader {
    memory: Arc<Mapping>,
    number: usize,
}

impl Reader {
    /// The next block: its slot and packets. It stays as it is until [`Reader::release`].
    pub fn take(&mut self) -> Option<(usize, u32)> {
        let queue = queue(self.number);
        let tail = self.memory.word(queue + QUEUE_TAIL).load(Ordering::Relaxed);
        if tail == self.memory.word(queue + QUEUE_HEAD).load(Ordering::Acquire) {
            return None;
        }
        let entry =
            self.memory.word(queue + QUEUE_ENTRIES + tail as usize % QUEUE_ENTRIES).load(Ordering::Relaxed);
        self.memory.word(queue + QUEUE_TAIL).store(tail + 1, Ordering::Relaxed);
        Some(((entry >> 32) as usize, entry as u32))
    }

    /// Blocks that wait to be taken.
    pub fn waiting(&self) -> u64 {
        let queue = queue(self.number);
        let head = self.memory.word(queue + QUEUE_HEAD).load(Ordering::Acquire);
        head.wrapping_sub(self.memory.word(queue + QUEUE_TAIL).load(Ordering::Relaxed))
    }

    /// Gives a taken slot back.
    pub fn release(&mut self, slot: usize) {
        self.memory.word(slot).fetch_and(!(1 << self.number), Ordering::AcqRel);
        self.memory.word(queue(self.number) + QUEUE_HELD).fetch_add(1, Ordering::Release);
    }

    /// Packets lost since the last call.
    pub fn lost(&mut self) -> u64 {
        self.memory.word(queue(self.number) + QUEUE_LOST).swap(0, Ordering::Relaxed)
    }
}

fn queue(reader: usize) -> usize {
    MAX_SLOTS + reader * QUEUE
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn fill(pool: &mut Pool, value: u8) -> Option<usize> {
        let slot = pool.claim()?;
        pool.slot(slot).1[..64].fill(value);
        Some(slot)
    }

    proptest! {
        /// Against a model: a block is never recycled under a reader, each reader sees its blocks in
        /// order, and what it does not see is counted as lost.
        #[test]
        fn blocks_are_safe_from_recycling(steps in prop::collection::vec((0u8..3, 0usize..3), 1..300)) {
            let mut pool = Pool::new(4).unwrap();
            let depths = [1, 2, 4];
            let mut readers: Vec<_> = depths.iter().map(|&d| pool.reader(d).unwrap()).collect();
            let mut held: Vec<VecDeque<(usize, u8)>> = vec![VecDeque::new(); 3];
            let mut queued: Vec<VecDeque<u8>> = vec![VecDeque::new(); 3];
            let mut lost = [0u64; 3];
            let mut counted = [0u64; 3];
            let mut value = 0u8;
            for (step, r) in steps {
                match step {
                    0 => {
                        value = value.wrapping_add(1);
                        let Some(slot) = fill(&mut pool, value) else { continue };
                        prop_assert!(held.iter().flatten().all(|(s, _)| *s != slot));
                        pool.publish(slot, 7);
                        for i in 0..3 {
                            if queued[i].len() + held[i].len() < depths[i] {
                                queued[i].push_back(value);
                            } else {
                                lost[i] += 7;
                            }
                        }
                    }
                    1 => {
                        prop_assert_eq!(readers[r].waiting(), queued[r].len() as u64);
                        let taken = readers[r].take();
                        prop_assert_eq!(taken.is_some(), !queued[r].is_empty());
                        if let Some((slot, packets)) = taken {
                            prop_assert_eq!(packets, 7);
                            held[r].push_back((slot, queued[r].pop_front().unwrap()));
                        }
                    }
                    _ => {
                        if let Some((slot, _)) = held[r].pop_front() {
                            readers[r].release(slot);
                        }
                    }
                }
                for (i, reader) in readers.iter_mut().enumerate() {
                    counted[i] += reader.lost();
                }
                // Every held block still reads as it was published.
                let (fd, base, _) = pool.window();
                for (slot, value) in held.iter().flatten() {
                    let mut bytes = [0u8; 64];
                    let at = (base + Pool::offset(*slot) + SLOT_DESCRIPTORS) as i64;
                    prop_assert_eq!(read_at(fd, at, &mut bytes), 64);
                    prop_assert!(bytes.iter().all(|b| b == value));
                }
            }
            prop_assert_eq!(counted, lost);
        }
    }

    fn read_at(fd: RawFd, offset: i64, into: &mut [u8]) -> usize {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::open(format!("/proc/self/fd/{fd}")).unwrap();
        file.read_at(into, offset as u64).unwrap()
    }

    #[test]
    fn readers_in_threads_see_whole_blocks() {
        let mut pool = Pool::new(8).unwrap();
        let mut threads = Vec::new();
        let (fd, base, _) = pool.window();
        for _ in 0..3 {
            let mut reader = pool.reader(3).unwrap();
            threads.push(std::thread::spawn(move || {
                let (mut seen, mut lost) = (0u64, 0u64);
                while seen + lost < 2000 {
                    lost += reader.lost();
                    let Some((slot, packets)) = reader.take() else {
                        std::thread::yield_now();
                        continue;
                    };
                    let mut bytes = [0u8; 64];
                    read_at(fd, (base + Pool::offset(slot) + SLOT_DESCRIPTORS) as i64, &mut bytes);
                    assert!(bytes.iter().all(|b| *b == bytes[0]), "block changed under its reader");
                    reader.release(slot);
                    seen += u64::from(packets);
                }
                seen + lost
            }));
        }
        for i in 0..2000u32 {
            let slot = loop {
                if let Some(slot) = fill(&mut pool, i as u8) {
                    break slot;
                }
                std::thread::yield_now();
            };
            pool.publish(slot, 1);
        }
        for thread in threads {
            assert_eq!(thread.join().unwrap(), 2000);
        }
    }
}
