use crate::control::{Control, ControlPage};
use crate::memfd::Slots;
use crate::queue::{AWAKE, Block, CLOSED, ENTRIES, MAGIC, NAPPING, Queue, SLEEPING};
use crate::{BlockError, MAX_QUEUES};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

/// Identifies one reader of a pool; no later reader gets the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReaderId(pub(crate) u64);

/// The end of one reader. When it is dropped, the writer removes the reader.
pub struct Reader {
    control: Control,
    taken: u64,
    released: u64,
    /// The packets of each queue whose loss was returned.
    lost: [u64; MAX_QUEUES],
    /// The last tick that was returned.
    ticked: u64,
    remote: Option<Remote>,
}

/// A step of the writer, in the order of publishing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A tick at this packet time in nanoseconds.
    Tick(u64),
    /// A block, which does not change until [`Reader::release`], unless the reader is removed.
    Block(Block),
}

/// The part of a reader that exists only outside the writer's process.
struct Remote {
    slots: Slots,
    event: OwnedFd,
}

/// The reason why [`Reader::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A block or a tick waits.
    Ready,
    /// The time has passed, or a signal arrived.
    Nothing,
    /// The reader was removed or the writer is gone, so no further block will arrive.
    Closed,
}

impl Reader {
    pub(crate) fn local(queue: Arc<Queue>) -> Self {
        let lost = [0; MAX_QUEUES];
        Self { control: Control::Local(queue), taken: 0, released: 0, lost, ticked: 0, remote: None }
    }

    /// Creates the reader's end from the descriptors in [`ReaderFds`](crate::ReaderFds) alone. The slots are
    /// mapped read-only. The reader trusts the writer.
    ///
    /// System calls: `fcntl`, `fstat` and `mmap` here, `ppoll` and `read` to wait, `munmap` and `close`
    /// at the end; none to take and release.
    ///
    /// # Errors
    ///
    /// Returns an error if a descriptor is not of the kind, size or layout that the writer creates, or if
    /// it cannot be mapped.
    pub fn from_fds(data: OwnedFd, control: OwnedFd, event: OwnedFd) -> Result<Self, BlockError> {
        let slots = Slots::open(data)?;
        let page = ControlPage::open(&control)?;
        let words = &page.queue().writer;
        let magic = words.magic.load(Ordering::Acquire);
        if magic != MAGIC {
            let (expected, found) = (format!("layout {MAGIC:#x}"), format!("{magic:#x}"));
            return Err(BlockError::Unexpected { name: "control", expected, found });
        }
        check_event(&event)?;
        // Blocks that an earlier end on this page took but did not release are delivered again.
        let released = page.queue().reader.released.load(Ordering::Relaxed);
        let (remote, lost) = (Some(Remote { slots, event }), [0; MAX_QUEUES]);
        Ok(Self { control: Control::Shared(page), taken: released, released, lost, ticked: 0, remote })
    }

    fn queue(&self) -> &Queue {
        self.control.queue()
    }

    /// Returns the reader's id in its pool.
    pub fn id(&self) -> ReaderId {
        ReaderId(self.queue().writer.id.load(Ordering::Relaxed))
    }

    /// Returns whether the writer has removed this reader. Slots it holds may then change at any time.
    pub fn is_removed(&self) -> bool {
        self.queue().writer.removed.load(Ordering::Acquire) != 0
    }

    /// Takes the next tick or block. Each tick is returned once.
    pub fn take_item(&mut self) -> Option<Item> {
        let queue = self.control.queue();
        if self.is_removed() {
            return None;
        }
        // Pairs with the writer's `Release`: the entry and the block's bytes are visible.
        while queue.writer.published.load(Ordering::Acquire) == self.taken {
            // Blocks that were published before the tick are visible after this load.
            let tick = queue.writer.tick.load(Ordering::Acquire);
            if tick <= self.ticked {
                return None;
            }
            if queue.writer.published.load(Ordering::Acquire) == self.taken {
                self.ticked = tick;
                return Some(Item::Tick(tick));
            }
        }
        let place = self.taken as usize % ENTRIES;
        let tick = queue.entries.ticks[place].load(Ordering::Relaxed);
        if tick > self.ticked {
            self.ticked = tick;
            return Some(Item::Tick(tick));
        }
        let entry = queue.entries.blocks[place].load(Ordering::Relaxed);
        self.taken += 1;
        queue.reader.taken.store(self.taken, Ordering::Relaxed);
        Some(Item::Block(Block::from_entry(entry)))
    }

    /// Takes the next block, and passes over the ticks before it.
    pub fn take(&mut self) -> Option<Block> {
        loop {
            if let Item::Block(block) = self.take_item()? {
                return Some(block);
            }
        }
    }

    /// Returns whether a block or a tick is ready to be taken.
    pub fn is_ready(&self) -> bool {
        self.waiting() > 0
            || self.queue().writer.tick.load(Ordering::Acquire) > self.ticked && !self.is_removed()
    }

    /// Returns the number of blocks that are ready to be taken.
    pub fn waiting(&self) -> u64 {
        let published = self.queue().writer.published.load(Ordering::Acquire);
        if self.is_removed() { 0 } else { published.wrapping_sub(self.taken) }
    }

    /// Releases the oldest block that was taken, which must be in `slot`.
    ///
    /// # Panics
    ///
    /// Panics if it is in another slot: the writer counts releases and frees slots in the order of
    /// publishing.
    pub fn release(&mut self, slot: usize) {
        let queue = self.control.queue();
        let oldest = queue.entries.blocks[self.released as usize % ENTRIES].load(Ordering::Relaxed);
        assert!(
            self.released < self.taken && Block::from_entry(oldest).slot == slot,
            "slots are released in the order in which they were taken"
        );
        self.released += 1;
        // Pairs with the writer's `Acquire`: all reads of the block come before.
        queue.reader.released.store(self.released, Ordering::Release);
    }

    /// Returns the number of packets of a queue that were lost since the last call for it.
    pub fn lost(&mut self, queue: usize) -> u64 {
        let Some(lost) = self.queue().writer.lost.get(queue) else { return 0 };
        let lost = lost.load(Ordering::Relaxed);
        lost.wrapping_sub(std::mem::replace(&mut self.lost[queue], lost))
    }

    /// Returns the memory to map for the slots: descriptor, offset in it, and bytes. Returns `None` in the
    /// writer's process; use [`Pool::window`](crate::Pool::window) there.
    pub fn window(&self) -> Option<(RawFd, usize, usize)> {
        self.remote.as_ref().map(|remote| remote.slots.window())
    }

    /// Copies bytes of a slot, starting at `offset` in it. Returns false if they do not lie in it, or in the
    /// writer's process. Bytes of different blocks may be mixed if the reader was removed.
    pub fn copy(&self, slot: usize, offset: usize, into: &mut [u8]) -> bool {
        self.remote.as_ref().is_some_and(|remote| remote.slots.copy(slot, offset, into))
    }

    /// Returns the descriptor that becomes readable when the writer wakes an armed reader, and hangs up when
    /// there will be no more blocks. Returns `None` in the writer's process.
    pub fn event(&self) -> Option<BorrowedFd<'_>> {
        self.remote.as_ref().map(|remote| remote.event.as_fd())
    }

    /// Requests that the writer wake this reader at the next block or tick, before the caller polls
    /// [`Reader::event`]. If it returns false, the caller must not sleep: something is ready already, or this
    /// is the writer's process. Call [`Reader::disarm`] afterwards in either case.
    pub fn arm(&mut self) -> bool {
        self.announce(SLEEPING)
    }

    /// Requests a wake-up as [`Reader::arm`], but only once the reader holds half of the blocks that it may:
    /// the caller looks by itself soon. A tick does not wake it.
    pub fn arm_for_much(&mut self) -> bool {
        self.announce(NAPPING)
    }

    /// Announces a sleep. Returns whether the caller may sleep.
    fn announce(&mut self, asleep: u64) -> bool {
        if self.remote.is_none() {
            return false;
        }
        self.queue().reader.state.store(asleep, Ordering::Relaxed);
        // See `Pool::wake`.
        fence(Ordering::SeqCst);
        !self.is_ready()
    }

    /// Withdraws the request of [`Reader::arm`] or [`Reader::arm_for_much`] and drains the event.
    pub fn disarm(&mut self) {
        if let Some(remote) = &self.remote {
            self.queue().reader.state.store(AWAKE, Ordering::Relaxed);
            // There is at most one byte per sleep. A later byte only ends the next sleep early.
            let _ = rustix::io::read(&remote.event, &mut [0; 64]);
        }
    }

    /// Sleeps until a block or a tick is ready, or for `timeout`. In the writer's process it returns at once.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses to wait. If a block is ready then, it is no error.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Wake, BlockError> {
        if self.is_ready() {
            return Ok(Wake::Ready);
        }
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        loop {
            let polled = if self.arm() { self.poll(deadline) } else { Ok(Wake::Nothing) };
            self.disarm();
            let polled = polled.map_err(|e| descriptor("event", "poll", e));
            if self.is_ready() {
                return Ok(Wake::Ready);
            }
            // Otherwise the byte belongs to an earlier sleep.
            if !matches!(polled, Ok(Wake::Ready)) {
                return polled;
            }
        }
    }

    fn poll(&self, deadline: Option<Instant>) -> Result<Wake, Errno> {
        let Some(event) = self.event() else { return Ok(Wake::Nothing) };
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        // A time that the kernel cannot represent is treated as no limit.
        let left = left.and_then(|d| Timespec::try_from(d).ok());
        let mut fds = [PollFd::from_borrowed_fd(event, PollFlags::IN)];
        match poll(&mut fds, left.as_ref()) {
            Ok(0) | Err(Errno::INTR) => Ok(Wake::Nothing),
            Ok(_) if fds[0].revents().contains(PollFlags::HUP) => Ok(Wake::Closed),
            Ok(_) => Ok(Wake::Ready),
            Err(e) => Err(e),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.queue().reader.state.store(CLOSED, Ordering::Release);
    }
}

fn descriptor(name: &'static str, step: &'static str, error: Errno) -> BlockError {
    BlockError::Descriptor { name, step, error: error.into() }
}

fn check_event(event: &OwnedFd) -> Result<(), BlockError> {
    const NAME: &str = "event";
    let stat = rustix::fs::fstat(event).map_err(|e| descriptor(NAME, "fstat", e))?;
    let flags = rustix::fs::fcntl_getfl(event).map_err(|e| descriptor(NAME, "fcntl(F_GETFL)", e))?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind == FileType::Socket && flags.contains(OFlags::NONBLOCK) {
        return Ok(());
    }
    let found = format!("{kind:?}, {flags:?}");
    Err(BlockError::Unexpected { name: NAME, expected: "a socket that does not block".into(), found })
}
