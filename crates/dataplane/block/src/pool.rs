use crate::control::{Control, ControlPage};
use crate::memfd::SharedMemory;
use crate::queue::{AWAKE, Block, CLOSED, ENTRIES, MAGIC, NAPPING, Queue, SLEEPING};
use crate::reader::{Reader, ReaderId};
use crate::{BlockError, Depths, MAX_QUEUES, MAX_READERS, MAX_SLOTS, SLOT_BYTES, SLOT_DATA};
use flame_abi::Descriptor;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Write};
use std::net::Shutdown;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// The writer's end of a pool.
pub struct Pool {
    memory: SharedMemory,
    slots: usize,
    /// A mask of the readers that hold each slot. Only the writer sees it.
    holders: [u64; MAX_SLOTS],
    peers: Vec<Peer>,
    /// A mask of the bits in use by readers.
    numbers: u64,
    /// The number of readers in other processes.
    remote: usize,
    /// The number of readers added so far.
    count: u64,
}

/// The descriptors from which another process creates its end with [`Reader::from_fds`].
///
/// All are close-on-exec. Drop them here once they are passed on: a reader counts as dead when the
/// last copy of `event` is closed, so no other child process may inherit one either.
#[derive(Debug)]
pub struct ReaderFds {
    pub id: ReaderId,
    pub data: OwnedFd,
    pub control: OwnedFd,
    pub event: OwnedFd,
}

/// The outcome of publishing a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The number of readers that received the block.
    pub taken: u32,
    /// The number of readers that lost the block.
    pub lost: u32,
}

/// The amount of work that a reader has yet to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// The number of blocks published to the reader and not released.
    pub held: u64,
    /// The number of these blocks that it has not taken yet. A hostile reader can misreport it.
    pub waiting: u64,
    /// The number of packets lost so far because the reader held as many blocks as it may.
    pub lost: u64,
}

/// The writer's private state of one reader. Nothing in the control page is relied on.
struct Peer {
    id: ReaderId,
    /// The reader's bit in `Pool::holders`.
    bit: u64,
    depths: Depths,
    published: u64,
    /// The number of blocks freed so far. The reader holds those from here up to `published`.
    freed: u64,
    /// The number of blocks of each queue that the reader holds.
    held: [u8; MAX_QUEUES],
    /// The number of packets lost in each queue.
    lost: [u64; MAX_QUEUES],
    /// The last tick.
    tick: u64,
    /// The slot and the queue of block k, at index k modulo `ENTRIES`.
    slots: [(u8, u8); ENTRIES],
    control: Control,
    /// The other end of `event`, for a reader in another process.
    signal: Option<UnixStream>,
    /// Whether it receives nothing more.
    is_retired: bool,
    /// Whether it receives no blocks at present, only ticks.
    is_passed_over: bool,
}

impl Peer {
    fn queue(&self) -> &Queue {
        self.control.queue()
    }

    /// Frees the slots that the reader has released since the last call.
    ///
    /// Releases come in the order of publishing, so the reader only passes a count. Whatever the count
    /// is, it frees only slots that this reader holds. `Acquire` pairs with the reader's `Release`: its
    /// reads of a block happen before the writer writes the slot again.
    #[inline]
    fn collect(&mut self, holders: &mut [u64; MAX_SLOTS]) {
        let released = self.queue().reader.released.load(Ordering::Acquire);
        // A count below `freed` is ignored by the loop.
        let released = released.min(self.published);
        while self.freed < released {
            let (slot, queue) = self.slots[self.freed as usize % ENTRIES];
            holders[usize::from(slot) % MAX_SLOTS] &= !self.bit;
            self.held[usize::from(queue) % MAX_QUEUES] -= 1;
            self.freed += 1;
        }
    }

    /// Returns whether the reader holds as many blocks of a queue as it may.
    #[inline]
    fn is_full(&self, queue: usize) -> bool {
        self.held.get(queue).is_none_or(|held| usize::from(*held) >= self.depths.of(queue))
    }

    /// Returns whether the reader holds half of the blocks that it may, or all of a queue.
    fn holds_much(&self) -> bool {
        let held: usize = self.held.iter().map(|held| usize::from(*held)).sum();
        2 * held >= self.depths.sum() || (0..self.depths.queues()).any(|queue| self.is_full(queue))
    }

    fn is_closed(&self) -> bool {
        self.queue().reader.state.load(Ordering::Relaxed) == CLOSED
    }

    /// Wakes the reader if it is in the state `asleep`. Returns whether it is gone.
    ///
    /// Makes one system call each time the reader has announced that it will sleep. The socket does not
    /// block, and no other process can change that. If it is full, it still wakes the reader.
    #[cold]
    fn wake(&self, asleep: u64) -> bool {
        let state = &self.queue().reader.state;
        let Some(mut signal) = self.signal.as_ref() else { return false };
        // Cleared before the byte is sent: a flag set afterwards belongs to the next sleep and stays.
        if state.compare_exchange(asleep, AWAKE, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        match signal.write(&[1]) {
            Ok(_) => false,
            Err(e) if e.kind() == ErrorKind::WouldBlock => false,
            Err(e) if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => true,
            Err(_) => {
                // The kernel is short of memory: the next block tries again.
                let _ = state.compare_exchange(AWAKE, asleep, Ordering::AcqRel, Ordering::Relaxed);
                false
            }
        }
    }
}

impl Pool {
    /// Creates a pool of `slots` slots of [`SLOT_BYTES`].
    ///
    /// # Panics
    ///
    /// Panics if `slots` is not 1 to [`MAX_SLOTS`].
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses the memory.
    pub fn new(slots: usize) -> Result<Self, BlockError> {
        assert!((1..=MAX_SLOTS).contains(&slots), "1 to {MAX_SLOTS} slots");
        let memory = SharedMemory::new(slots * SLOT_BYTES)?;
        let holders = [0; MAX_SLOTS];
        Ok(Self { memory, slots, holders, peers: Vec::new(), numbers: 0, remote: 0, count: 0 })
    }

    /// Returns the memory that a reader maps: descriptor, offset in it, and bytes.
    pub fn window(&self) -> (RawFd, usize, usize) {
        (self.memory.fd(), 0, self.slots * SLOT_BYTES)
    }

    /// Returns the offset of a slot in the window.
    pub fn offset(slot: usize) -> usize {
        slot * SLOT_BYTES
    }

    /// Returns the capacity of a slot in bytes of packets.
    pub const fn capacity() -> usize {
        SLOT_DATA
    }

    /// Adds a reader in this process that may hold as many slots at a time as `depths` states: 1 to 16, or
    /// that number for each of its queues. It receives the blocks that are published from now on. Dropping it
    /// removes it. Returns `None` if there are [`MAX_READERS`].
    pub fn reader(&mut self, depths: impl Into<Depths>) -> Option<Reader> {
        let queue = Arc::new(Queue::default());
        self.add(depths.into(), Control::Local(queue.clone()), None)?;
        Some(Reader::local(queue))
    }

    /// Adds a reader in another process, otherwise as [`Pool::reader`]. Dropping it there removes it; after
    /// the end of its process, [`Pool::reap`] removes it.
    ///
    /// # Errors
    ///
    /// Returns an error if the pool has [`MAX_READERS`] readers, or if the kernel refuses a descriptor.
    pub fn remote_reader(&mut self, depths: impl Into<Depths>) -> Result<ReaderFds, BlockError> {
        let (page, control) = ControlPage::new()?;
        let (signal, event) = UnixStream::pair().map_err(BlockError::Socket)?;
        [&signal, &event].iter().try_for_each(|end| end.set_nonblocking(true)).map_err(BlockError::Socket)?;
        // The writer never reads from this socket, so a reader must not be able to queue anything in it.
        signal.shutdown(Shutdown::Read).map_err(BlockError::Socket)?;
        let data = self.memory.descriptor()?;
        let id = self.add(depths.into(), Control::Shared(page), Some(signal));
        let id = id.ok_or(BlockError::TooManyReaders)?;
        Ok(ReaderFds { id, data, control, event: event.into() })
    }

    fn add(&mut self, depths: Depths, control: Control, signal: Option<UnixStream>) -> Option<ReaderId> {
        self.remove_all(Peer::is_closed);
        let number = self.numbers.trailing_ones() as usize;
        if number == MAX_READERS {
            return None;
        }
        self.count += 1;
        let (id, bit) = (ReaderId(self.count), 1 << number);
        let words = &control.queue().writer;
        words.magic.store(MAGIC, Ordering::Relaxed);
        words.id.store(id.0, Ordering::Relaxed);
        self.numbers |= bit;
        self.remote += usize::from(signal.is_some());
        let (published, freed, tick, slots) = (0, 0, 0, [(0, 0); ENTRIES]);
        self.peers.push(Peer {
            id,
            bit,
            depths,
            published,
            freed,
            held: [0; MAX_QUEUES],
            lost: [0; MAX_QUEUES],
            tick,
            slots,
            control,
            signal,
            is_retired: false,
            is_passed_over: false,
        });
        Some(id)
    }

    /// Removes a reader. Returns false if it was removed before.
    ///
    /// The slots it held are free at once, and another reader can take its place. It receives no further
    /// blocks, and wakes up if it sleeps. If it continues to read, it may see slots change; no other reader
    /// is affected.
    pub fn remove(&mut self, id: ReaderId) -> bool {
        let before = self.peers.len();
        self.remove_all(|peer| peer.id == id);
        self.peers.len() < before
    }

    /// Gives a reader no further blocks and ticks. It keeps those that it has until it releases them.
    pub fn retire(&mut self, id: ReaderId) {
        self.peers.iter_mut().filter(|peer| peer.id == id).for_each(|peer| peer.is_retired = true);
    }

    /// Gives a reader no further blocks, or blocks again. It loses none meanwhile by its own count, and
    /// receives ticks.
    pub fn pass_over(&mut self, id: ReaderId, is_passed_over: bool) {
        self.peers
            .iter_mut()
            .filter(|peer| peer.id == id)
            .for_each(|peer| peer.is_passed_over = is_passed_over);
    }

    fn remove_all(&mut self, is_gone: impl Fn(&Peer) -> bool) {
        self.peers.retain(|peer| {
            if !is_gone(peer) {
                return true;
            }
            self.holders.iter_mut().for_each(|mask| *mask &= !peer.bit);
            self.numbers &= !peer.bit;
            self.remote -= usize::from(peer.signal.is_some());
            peer.queue().writer.removed.store(1, Ordering::Release);
            false
        });
    }

    /// Removes readers that were dropped or whose process has ended, and returns them.
    ///
    /// Makes one system call if there are readers in other processes, so call it at ticks or when such a
    /// process ends. Until then, a reader that was killed while awake keeps the slots it held.
    pub fn reap(&mut self) -> Vec<ReaderId> {
        let mut gone: Vec<_> = self.peers.iter().filter(|s| s.is_closed()).map(|s| s.id).collect();
        let remote = self.peers.iter().filter_map(|s| Some((s.id, s.signal.as_ref()?)));
        let (ids, mut fds): (Vec<_>, Vec<_>) =
            remote.map(|(id, signal)| (id, PollFd::new(signal, PollFlags::empty()))).unzip();
        // A hang-up is reported without being requested. If the call fails, the next one finds it.
        if !fds.is_empty() && poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok() {
            let ended = PollFlags::HUP | PollFlags::ERR;
            let hung_up = fds.iter().zip(&ids).filter(|(fd, _)| fd.revents().intersects(ended));
            gone.extend(hung_up.map(|(_, id)| *id));
        }
        gone.sort_unstable_by_key(|id| id.0);
        gone.dedup();
        self.remove_all(|peer| gone.contains(&peer.id));
        gone
    }

    /// Returns the current readers.
    pub fn readers(&self) -> impl Iterator<Item = ReaderId> {
        self.peers.iter().map(|peer| peer.id)
    }

    /// Returns the backlog of a reader, or `None` if it was removed.
    pub fn backlog(&mut self, id: ReaderId) -> Option<Backlog> {
        let peer = self.peers.iter_mut().find(|peer| peer.id == id)?;
        peer.collect(&mut self.holders);
        let taken = peer.queue().reader.taken.load(Ordering::Relaxed);
        let waiting = peer.published - taken.clamp(peer.freed, peer.published);
        Some(Backlog { held: peer.published - peer.freed, waiting, lost: peer.lost.iter().sum() })
    }

    /// Returns the number of blocks that a reader has released so far, or `None` if it was removed.
    pub fn released(&self, id: ReaderId) -> Option<u64> {
        self.peers.iter().find(|peer| peer.id == id).map(|peer| peer.freed)
    }

    /// Returns the number of packets that a reader has lost so far in one of its queues, or `None` if it was
    /// removed.
    pub fn lost(&self, id: ReaderId, queue: usize) -> Option<u64> {
        let peer = self.peers.iter().find(|peer| peer.id == id)?;
        Some(peer.lost.get(queue).copied().unwrap_or(0))
    }

    /// Returns whether a reader has room for another block of a queue, or `None` if it was removed.
    pub fn has_room(&mut self, id: ReaderId, queue: usize) -> Option<bool> {
        let peer = self.peers.iter_mut().find(|peer| peer.id == id)?;
        peer.collect(&mut self.holders);
        Some(!peer.is_full(queue))
    }

    /// Returns whether a reader holds less than half of the blocks of a queue that it may, or `None` if it
    /// was removed.
    pub fn has_much_room(&mut self, id: ReaderId, queue: usize) -> Option<bool> {
        let peer = self.peers.iter_mut().find(|peer| peer.id == id)?;
        peer.collect(&mut self.holders);
        Some(peer.held.get(queue).is_some_and(|held| 2 * usize::from(*held) < peer.depths.of(queue)))
    }

    /// Returns the lowest slot that no reader holds, as its bytes are the most likely to be cached. Returns
    /// `None` if readers hold all slots.
    pub fn claim(&mut self) -> Option<usize> {
        self.claim_besides(0)
    }

    /// Returns a slot as [`Pool::claim`], whose bit is clear in `taken`, the mask of slots that are being
    /// filled.
    pub fn claim_besides(&mut self, taken: u64) -> Option<usize> {
        let mut closed = false;
        for peer in &mut self.peers {
            peer.collect(&mut self.holders);
            closed |= peer.is_closed();
        }
        if closed {
            self.remove_all(Peer::is_closed);
        }
        let is_free = |(slot, mask): (usize, &u64)| *mask == 0 && taken & 1 << slot == 0;
        self.holders[..self.slots].iter().enumerate().position(is_free)
    }

    /// Returns the descriptors and the packets' bytes of a claimed slot.
    ///
    /// # Panics
    ///
    /// Panics if a reader holds the slot, or there is no such slot.
    pub fn slot(&mut self, slot: usize) -> (&mut [Descriptor], &mut [u8]) {
        assert!(self.is_free(slot), "a reader holds slot {slot}, or there is none of that number");
        self.memory.slot_mut(slot)
    }

    fn is_free(&self, slot: usize) -> bool {
        self.holders[..self.slots].get(slot) == Some(&0)
    }

    /// Publishes a claimed and filled slot to every reader that has room in the block's queue.
    ///
    /// # Panics
    ///
    /// Panics if a reader holds the slot, or there is no such slot.
    pub fn publish(&mut self, block: Block) -> Published {
        let Block { slot, packets, queue, .. } = block;
        assert!(self.is_free(slot), "a reader holds slot {slot}, or there is none of that number");
        let entry = block.entry();
        let (mut mask, mut lost) = (0u64, 0);
        for peer in self.peers.iter_mut().filter(|peer| !peer.is_retired && !peer.is_passed_over) {
            if peer.is_full(queue) {
                peer.collect(&mut self.holders);
            }
            let words = peer.control.queue();
            if peer.is_full(queue) {
                lost += 1;
                if let (Some(own), Some(shown)) = (peer.lost.get_mut(queue), words.writer.lost.get(queue)) {
                    *own += u64::from(packets);
                    shown.store(*own, Ordering::Relaxed);
                }
                continue;
            }
            mask |= peer.bit;
            let place = peer.published as usize % ENTRIES;
            peer.slots[place] = (slot as u8, queue as u8);
            peer.held[queue] += 1;
            peer.published += 1;
            // The previous entry belongs to a block that this reader has released.
            words.entries.blocks[place].store(entry, Ordering::Relaxed);
            words.entries.ticks[place].store(peer.tick, Ordering::Relaxed);
            // Pairs with the reader's `Acquire`: the entry and the block's bytes are visible to it.
            words.writer.published.store(peer.published, Ordering::Release);
        }
        self.holders[slot] = mask;
        let taken = mask.count_ones();
        let published = Published { taken, lost };
        if self.remote > 0 {
            self.wake();
        }
        published
    }

    /// Publishes a tick at packet time `now_ns`, after the blocks published so far. Ticks ascend.
    pub fn tick(&mut self, now_ns: u64) {
        for peer in self.peers.iter_mut().filter(|peer| !peer.is_retired) {
            peer.tick = now_ns;
            // Pairs with the reader's `Acquire`: it sees the blocks before the tick.
            peer.control.queue().writer.tick.store(now_ns, Ordering::Release);
        }
        if self.remote > 0 {
            self.wake();
        }
    }

    /// Wakes the readers that sleep, and those that nap and have much to do.
    ///
    /// A reader stores its flag and then loads `published`; the writer stores `published` and then loads
    /// the flag. With a `SeqCst` fence between store and load on both sides, at least one of them sees
    /// the other's store, so no reader falls asleep while a block waits for it.
    fn wake(&mut self) {
        fence(Ordering::SeqCst);
        let mut gone = 0;
        for peer in &mut self.peers {
            let state = peer.queue().reader.state.load(Ordering::Relaxed);
            let is_due = match state {
                SLEEPING => true,
                NAPPING => {
                    peer.collect(&mut self.holders);
                    peer.holds_much()
                }
                _ => false,
            };
            if is_due && peer.wake(state) {
                gone |= peer.bit;
            }
        }
        if gone != 0 {
            self.remove_all(|peer| gone & peer.bit != 0);
        }
    }
}
