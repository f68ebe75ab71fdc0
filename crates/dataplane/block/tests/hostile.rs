//! Readers in other processes that overwrite their pages and abuse their descriptors.

use crate::common::{PACKETS, Window, block, fill};
use flame_block::{Block, Pool, Reader, ReaderFds};
use proptest::prelude::*;
use rustix::fs::{FallocateFlags, OFlags};
use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4096;
const RELEASED: u64 = 128;
const STATE: u64 = 136;

/// Writes one word of a control page.
fn scribble(control: &OwnedFd, at: u64, word: u64) {
    let file = File::from(control.try_clone().unwrap());
    file.write_all_at(&word.to_ne_bytes(), at).unwrap();
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Publish,
    Take,
    Release,
    /// A hostile reader stores a word in its page.
    Scribble(usize, u64, u64),
    /// A hostile reader punches a hole: its page contains zeros again.
    Punch(usize),
}

fn step() -> impl Strategy<Value = Step> {
    // Small numbers are close to valid counts, so they test the clamping best.
    let word = prop_oneof![
        4 => 0u64..40,
        1 => any::<u64>(),
        1 => Just(u64::MAX),
        1 => (0u64..40).prop_map(|n| u64::MAX - n),
    ];
    let at = prop_oneof![3 => Just(RELEASED), 1 => Just(STATE), 2 => (0..PAGE / 8).prop_map(|n| n * 8)];
    prop_oneof![
        8 => Just(Step::Publish),
        6 => Just(Step::Take),
        6 => Just(Step::Release),
        8 => (0usize..3, at, word).prop_map(|(r, at, word)| Step::Scribble(r, at, word)),
        1 => (0usize..3).prop_map(Step::Punch),
    ]
}

proptest! {
    /// The honest reader receives exactly what it would receive without the hostile pages, whatever these
    /// contain. The pool has more slots than the sum of all depths, so one is always free.
    #[test]
    fn scribbled_pages_disturb_nobody(steps in prop::collection::vec(step(), 1..400)) {
        const DEPTH: usize = 3;
        let mut pool = Pool::new(10).unwrap();
        let window = Window::new(&pool);
        let mut hostile: Vec<ReaderFds> = (1..=3).map(|depth| pool.remote_reader(depth).unwrap()).collect();
        let mut honest = pool.reader(DEPTH).unwrap();
        let mut queued = VecDeque::new();
        let mut held: VecDeque<(usize, u8)> = VecDeque::new();
        let (mut lost, mut counted, mut value) = (0, 0, 0u8);
        for step in steps {
            match step {
                Step::Publish => {
                    value = value.wrapping_add(1);
                    let slot = fill(&mut pool, value).expect("a slot is free");
                    prop_assert!(held.iter().all(|(s, _)| *s != slot), "slot {slot} is recycled");
                    pool.publish(block(slot, PACKETS));
                    if queued.len() + held.len() < DEPTH {
                        queued.push_back(value);
                    } else {
                        lost += u64::from(PACKETS);
                    }
                }
                Step::Take => {
                    let taken = honest.take();
                    prop_assert_eq!(taken.is_some(), !queued.is_empty());
                    if let Some(Block { slot, packets, .. }) = taken {
                        prop_assert_eq!(packets, PACKETS);
                        held.push_back((slot, queued.pop_front().unwrap()));
                    }
                }
                Step::Release => if let Some((slot, _)) = held.pop_front() {
                    honest.release(slot);
                },
                Step::Scribble(r, at, word) => scribble(&hostile[r].control, at, word),
                Step::Punch(r) => {
                    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    rustix::fs::fallocate(&hostile[r].control, flags, 0, PAGE).unwrap();
                }
            }
            counted += honest.lost(0);
            for (slot, value) in &held {
                prop_assert!(window.bytes(*slot).iter().all(|b| b == value));
            }
            for (i, fds) in hostile.iter_mut().enumerate() {
                match pool.backlog(fds.id) {
                    Some(backlog) => {
                        prop_assert!(backlog.held <= i as u64 + 1 && backlog.waiting <= backlog.held);
                    }
                    // The reader overwrote its own state with "closed".
                    None => *fds = pool.remote_reader(i + 1).unwrap(),
                }
            }
        }
        prop_assert_eq!(counted, lost);
    }
}

/// A reader that always claims to sleep, never empties its event and makes its end blocking.
#[test]
fn the_wake_up_never_blocks() {
    let mut pool = Pool::new(4).unwrap();
    let fds = pool.remote_reader(1).unwrap();
    let flags = rustix::fs::fcntl_getfl(&fds.event).unwrap();
    rustix::fs::fcntl_setfl(&fds.event, flags - OFlags::NONBLOCK).unwrap();
    let mut other = pool.reader(1).unwrap();
    let (done, ended) = std::sync::mpsc::channel();
    let control = fds.control.try_clone().unwrap();
    std::thread::spawn(move || {
        for _ in 0..5000 {
            scribble(&control, STATE, 1);
            let slot = fill(&mut pool, 1).unwrap();
            pool.publish(block(slot, 1));
            let slot = other.take().unwrap().slot;
            other.release(slot);
        }
        done.send(pool.readers().count()).unwrap();
    });
    let readers = ended.recv_timeout(std::time::Duration::from_secs(60)).expect("the writer is blocked");
    assert_eq!(readers, 2);
}

/// Attacks on the files that a reader shares with the writer.
#[test]
fn descriptors_cannot_be_abused() {
    let mut pool = Pool::new(1).unwrap();
    let mut fds = pool.remote_reader(1).unwrap();
    let reopened = |fd: &OwnedFd| {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        File::options().read(true).write(true).open(path).unwrap()
    };
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for data in [File::from(fds.data.try_clone().unwrap()), reopened(&fds.data)] {
        let refused = [
            data.write_at(&[1], 0).map(drop),
            data.set_len(0),
            data.set_len(1 << 30),
            rustix::fs::fallocate(&data, punch, 0, PAGE).map_err(Into::into),
        ];
        for (i, result) in refused.into_iter().enumerate() {
            assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied, "{i}");
        }
    }
    for control in [File::from(fds.control.try_clone().unwrap()), reopened(&fds.control)] {
        for size in [0, 2 * PAGE] {
            assert_eq!(control.set_len(size).unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
        }
        let seal = rustix::fs::fcntl_add_seals(&control, rustix::fs::SealFlags::FUTURE_WRITE);
        assert_eq!(seal, Err(rustix::io::Errno::PERM));
    }
    // Nothing accumulates at the writer.
    let event = std::os::unix::net::UnixStream::from(fds.event);
    assert_eq!((&mut &event).write_kind(), std::io::ErrorKind::BrokenPipe);
    // A reader that closes its end is removed.
    fds.event = event.into();
    assert_eq!(pool.reap(), []);
    let id = fds.id;
    drop(fds);
    assert_eq!(pool.reap(), [id]);
}

trait WriteKind {
    fn write_kind(&mut self) -> std::io::ErrorKind;
}

impl<W: std::io::Write> WriteKind for W {
    fn write_kind(&mut self) -> std::io::ErrorKind {
        self.write(&[1]).unwrap_err().kind()
    }
}

/// A reader that ended while it was asleep is found by the next block, without `reap`.
#[test]
fn a_sleeper_that_has_gone_is_removed_by_its_wake_up() {
    let mut pool = Pool::new(2).unwrap();
    let fds = pool.remote_reader(1).unwrap();
    scribble(&fds.control, STATE, 1);
    drop(fds);
    assert_eq!(pool.readers().count(), 1);
    let slot = fill(&mut pool, 1).unwrap();
    pool.publish(block(slot, 1));
    assert_eq!(pool.readers().count(), 0);
    assert_eq!(pool.claim(), Some(slot), "what it held is free");
}

/// A reader is made only from the descriptors that a writer made.
#[test]
fn other_descriptors_are_refused_by_name() {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    let mut pool = Pool::new(2).unwrap();
    let memfd = |bytes: u64, seals: SealFlags| {
        let fd = memfd_create("other", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, bytes).unwrap();
        fcntl_add_seals(&fd, seals).unwrap();
        fd
    };
    let sized = SealFlags::SHRINK | SealFlags::GROW;
    let slot = flame_block::SLOT_BYTES as u64;
    let pipe = || OwnedFd::from(std::io::pipe().unwrap().0);
    let mut refuse = |change: &dyn Fn(&mut ReaderFds), expected: &[&str]| {
        let mut fds = pool.remote_reader(1).unwrap();
        change(&mut fds);
        let error = Reader::from_fds(fds.data, fds.control, fds.event).err().expect("is refused").to_string();
        assert!(expected.iter().all(|part| error.contains(part)), "{error}");
    };
    refuse(&|fds| fds.data = pipe(), &["data descriptor", "F_GET_SEALS"]);
    refuse(&|fds| fds.data = memfd(slot, sized), &["data descriptor", "FUTURE_WRITE", "found"]);
    let read_only = sized | SealFlags::FUTURE_WRITE;
    for bytes in [0, slot - PAGE, slot + PAGE, slot * 65] {
        let found = format!("found {bytes} bytes");
        refuse(&|fds| fds.data = memfd(bytes, read_only), &["data descriptor", "1 to 64 slots", &found]);
    }
    refuse(&|fds| fds.control = memfd(PAGE, SealFlags::SHRINK), &["control descriptor", "GROW"]);
    refuse(&|fds| fds.control = memfd(2 * PAGE, sized), &["control descriptor", "8192 bytes"]);
    refuse(&|fds| fds.control = memfd(PAGE, sized), &["control descriptor", "layout", "found 0x0"]);
    refuse(&|fds| fds.event = pipe(), &["event descriptor", "Fifo"]);
    refuse(&|fds| std::mem::swap(&mut fds.data, &mut fds.control), &["data descriptor"]);
    // The right descriptors are accepted.
    let fds = pool.remote_reader(1).unwrap();
    let id = fds.id;
    assert_eq!(Reader::from_fds(fds.data, fds.control, fds.event).unwrap().id(), id);
}
