//! The wake-up of readers: its time, and the cases without a system call.

use crate::common::block;
use flame_block::{Block, Depths, Pool, Reader, ReaderId, Wake};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn remote(pool: &mut Pool, depth: usize) -> (ReaderId, Reader, OwnedFd) {
    let fds = pool.remote_reader(depth).unwrap();
    let event = fds.event.try_clone().unwrap();
    (fds.id, Reader::from_fds(fds.data, fds.control, fds.event).unwrap(), event)
}

fn is_readable(event: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&event, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}

fn publish(pool: &mut Pool) {
    let slot = pool.claim().unwrap();
    pool.publish(block(slot, 1));
}

fn take_all(reader: &mut Reader) -> usize {
    std::iter::from_fn(|| reader.take().map(|Block { slot, .. }| reader.release(slot))).count()
}

#[test]
fn only_a_reader_that_sleeps_is_woken_and_once() {
    let mut pool = Pool::new(4).unwrap();
    let (_, mut reader, event) = remote(&mut pool, 3);
    for _ in 0..3 {
        publish(&mut pool);
    }
    assert!(!is_readable(&event), "it never said that it sleeps");
    assert!(!reader.arm(), "blocks wait");
    reader.disarm();
    assert_eq!(take_all(&mut reader), 3);
    assert!(reader.arm());
    assert!(!is_readable(&event));
    for _ in 0..3 {
        publish(&mut pool);
        assert!(is_readable(&event));
    }
    assert_eq!(rustix::io::read(&event, &mut [0; 8]), Ok(1), "one byte for one sleep");
    publish(&mut pool);
    assert!(!is_readable(&event));
    assert_eq!(take_all(&mut reader), 3);
    // A byte of an earlier sleep does not end the next one.
    assert!(reader.arm());
    publish(&mut pool);
    assert_eq!(take_all(&mut reader), 1);
    assert!(is_readable(&event));
    let start = Instant::now();
    assert_eq!(reader.wait(Some(Duration::from_millis(50))).unwrap(), Wake::Nothing);
    assert!(start.elapsed() >= Duration::from_millis(50));
    publish(&mut pool);
    assert_eq!(reader.wait(None).unwrap(), Wake::Ready);
}

/// A reader that looks by itself soon is woken for half of the blocks that it may hold, not for fewer, nor
/// for a tick.
#[test]
fn a_reader_that_naps_is_woken_when_it_has_much_to_do() {
    let mut pool = Pool::new(6).unwrap();
    let (_, mut reader, event) = remote(&mut pool, 4);
    assert!(reader.arm_for_much());
    publish(&mut pool);
    pool.tick(1);
    assert!(!is_readable(&event));
    publish(&mut pool);
    assert!(is_readable(&event));
    reader.disarm();
    assert!(!reader.arm_for_much(), "blocks wait");
    reader.disarm();
    // A block that is held counts: the writer may wait for it.
    let held = reader.take().unwrap();
    assert!(reader.take().is_some() && reader.arm_for_much());
    reader.release(held.slot);
    publish(&mut pool);
    assert!(is_readable(&event));
}

/// The writer may wait for room in one queue while the others are empty.
#[test]
fn a_reader_that_naps_is_woken_for_a_full_queue() {
    let mut pool = Pool::new(6).unwrap();
    let fds = pool.remote_reader(Depths::new(&[1, 4])).unwrap();
    let event = fds.event.try_clone().unwrap();
    let mut reader = Reader::from_fds(fds.data, fds.control, fds.event).unwrap();
    let mut publish = |queue| {
        let slot = pool.claim().unwrap();
        pool.publish(Block { queue, ..block(slot, 1) });
    };
    assert!(reader.arm_for_much());
    publish(1);
    assert!(!is_readable(&event));
    publish(0);
    assert!(is_readable(&event));
}

/// A reader that is about to sleep and a writer that publishes at that moment: one of them must notice the
/// other. Without the fence in `publish`, rounds are lost when both threads run at once.
#[test]
fn a_block_published_while_the_reader_arms_is_noticed() {
    const ROUNDS: u64 = 20_000;
    let mut pool = Pool::new(2).unwrap();
    let (_, mut reader, event) = remote(&mut pool, 1);
    let [start, end] = [(); 2].map(|()| std::sync::Arc::new(AtomicU64::new(0)));
    let reached = |word: &AtomicU64, round: u64| {
        let mut spins = 0u32;
        while word.load(Ordering::Acquire) < round {
            spins += 1;
            // The other thread may need this processor.
            if spins > 2_000 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    };
    let sleeper = {
        let (start, end) = (start.clone(), end.clone());
        std::thread::spawn(move || {
            let mut unnoticed = 0;
            for round in 1..=ROUNDS {
                reached(&start, 2 * round - 1);
                (0..round % 64).for_each(|_| std::hint::spin_loop());
                let sleeps = reader.arm();
                end.store(2 * round - 1, Ordering::Release);
                reached(&start, 2 * round);
                unnoticed += u64::from(sleeps && !is_readable(&event));
                reader.disarm();
                assert_eq!(take_all(&mut reader), 1);
                end.store(2 * round, Ordering::Release);
            }
            unnoticed
        })
    };
    for round in 1..=ROUNDS {
        let slot = pool.claim().unwrap();
        start.store(2 * round - 1, Ordering::Release);
        (0..round % 61).for_each(|_| std::hint::spin_loop());
        pool.publish(block(slot, 1));
        start.store(2 * round, Ordering::Release);
        reached(&end, 2 * round);
    }
    assert_eq!(sleeper.join().unwrap(), 0, "of {ROUNDS} rounds");
}

/// Removal and the end of the writer wake a reader too.
#[test]
fn the_end_wakes_a_reader_that_sleeps() {
    let mut pool = Pool::new(4).unwrap();
    let (id, mut reader, _) = remote(&mut pool, 3);
    let (_, mut last, _) = remote(&mut pool, 3);
    publish(&mut pool);
    assert_eq!((take_all(&mut reader), reader.waiting()), (1, 0));
    let sleeps = std::thread::spawn(move || reader.wait(None).unwrap());
    std::thread::sleep(Duration::from_millis(20));
    assert!(!sleeps.is_finished());
    assert!(pool.remove(id));
    assert_eq!(sleeps.join().unwrap(), Wake::Closed);
    // Blocks published before the end are read first.
    drop(pool);
    assert_eq!(last.wait(None).unwrap(), Wake::Ready);
    assert_eq!(take_all(&mut last), 1);
    assert_eq!(last.wait(None).unwrap(), Wake::Closed);
}

/// A second end of the same descriptors receives the blocks that the first did not release.
#[test]
fn a_second_end_begins_with_what_was_not_released() {
    let mut pool = Pool::new(4).unwrap();
    let fds = pool.remote_reader(4).unwrap();
    let again = [&fds.data, &fds.control, &fds.event].map(|fd| fd.try_clone().unwrap());
    let mut first = Reader::from_fds(fds.data, fds.control, fds.event).unwrap();
    for _ in 0..3 {
        publish(&mut pool);
    }
    let slots: Vec<_> = std::iter::from_fn(|| first.take().map(|Block { slot, .. }| slot)).collect();
    first.release(slots[0]);
    // This is the state after a process was killed.
    std::mem::forget(first);
    let [data, control, event] = again;
    let mut second = Reader::from_fds(data, control, event).unwrap();
    let rest: Vec<_> = std::iter::from_fn(|| second.take().map(|Block { slot, .. }| slot)).collect();
    assert_eq!(rest, slots[1..]);
    rest.into_iter().for_each(|slot| second.release(slot));
    assert_eq!(pool.backlog(second.id()).unwrap().held, 0);
}
