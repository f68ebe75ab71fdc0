//! Readers that are added and removed at random, compared with a model.

use crate::common::{PACKETS, Window, block, fill};
use flame_abi::LinkType;
use flame_block::{Backlog, Block, Item, Pool, Reader};
use proptest::prelude::*;
use std::collections::VecDeque;

/// The expected state of one reader.
struct Model {
    reader: Reader,
    depth: usize,
    queued: VecDeque<u8>,
    held: VecDeque<(usize, u8)>,
    lost: u64,
    /// The losses that the reader has returned so far.
    counted: u64,
}

impl Model {
    fn backlog(&self) -> Backlog {
        let (waiting, taken) = (self.queued.len() as u64, self.held.len() as u64);
        Backlog { held: waiting + taken, waiting, lost: self.lost }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Publish,
    Take(usize),
    Release(usize),
    Add(usize),
    Remove(usize),
    Drop(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Publish),
        6 => (0usize..8).prop_map(Step::Take),
        5 => (0usize..8).prop_map(Step::Release),
        2 => (1usize..6).prop_map(Step::Add),
        1 => (0usize..8).prop_map(Step::Remove),
        1 => (0usize..8).prop_map(Step::Drop),
    ]
}

proptest! {
    /// A block is never recycled while a reader holds it, each reader sees its blocks in order from when it
    /// was added, and blocks that it does not see are counted as lost. The slots of removed readers are free.
    #[test]
    fn blocks_are_safe_from_recycling(steps in prop::collection::vec(step(), 1..300)) {
        let mut pool = Pool::new(4).unwrap();
        let window = Window::new(&pool);
        let mut readers: Vec<Model> = Vec::new();
        let mut removed: Vec<Reader> = Vec::new();
        let mut value = 0u8;
        for step in steps {
            let count = readers.len().max(1);
            match step {
                Step::Publish => {
                    value = value.wrapping_add(1);
                    let slot = fill(&mut pool, value);
                    let in_use = |s: usize| readers.iter().any(|m| m.held.iter().any(|(h, _)| *h == s));
                    let Some(slot) = slot else {
                        let blocks: u64 = readers.iter().map(|m| m.backlog().held).sum();
                        prop_assert!(blocks >= 4, "no slot, but readers hold {blocks} at most");
                        continue;
                    };
                    prop_assert!(!in_use(slot), "slot {slot} is recycled under a reader");
                    let published = pool.publish(block(slot, PACKETS));
                    let mut taken = 0;
                    for model in &mut readers {
                        if model.queued.len() + model.held.len() < model.depth {
                            model.queued.push_back(value);
                            taken += 1;
                        } else {
                            model.lost += u64::from(PACKETS);
                        }
                    }
                    prop_assert_eq!((published.taken, published.lost), (taken, readers.len() as u32 - taken));
                }
                Step::Take(r) => if let Some(model) = readers.get_mut(r % count) {
                    prop_assert_eq!(model.reader.waiting(), model.queued.len() as u64);
                    let taken = model.reader.take();
                    prop_assert_eq!(taken.is_some(), !model.queued.is_empty());
                    if let Some(Block { slot, packets, .. }) = taken {
                        prop_assert_eq!(packets, PACKETS);
                        model.held.push_back((slot, model.queued.pop_front().unwrap()));
                    }
                },
                Step::Release(r) => if let Some(model) = readers.get_mut(r % count)
                    && let Some((slot, _)) = model.held.pop_front()
                {
                    model.reader.release(slot);
                },
                Step::Add(depth) => if let Some(reader) = pool.reader(depth) {
                    let (queued, held) = (VecDeque::new(), VecDeque::new());
                    readers.push(Model { reader, depth, queued, held, lost: 0, counted: 0 });
                },
                Step::Remove(r) | Step::Drop(r) => {
                    if readers.is_empty() {
                        continue;
                    }
                    let Model { mut reader, .. } = readers.swap_remove(r % count);
                    let id = reader.id();
                    if matches!(step, Step::Remove(_)) {
                        prop_assert!(pool.remove(id));
                        prop_assert!(reader.is_removed() && reader.waiting() == 0);
                        prop_assert_eq!(reader.take(), None);
                        removed.push(reader);
                    } else {
                        drop(reader);
                        prop_assert_eq!(pool.reap(), vec![id]);
                    }
                    prop_assert!(!pool.remove(id) && pool.backlog(id).is_none());
                }
            }
            for model in &mut readers {
                model.counted += model.reader.lost(0);
                prop_assert_eq!(pool.backlog(model.reader.id()), Some(model.backlog()));
                for (slot, value) in &model.held {
                    prop_assert!(window.bytes(*slot).iter().all(|b| b == value));
                }
            }
        }
        for model in &readers {
            prop_assert_eq!(model.counted, model.lost);
        }
        prop_assert!(removed.iter_mut().all(|reader| reader.take().is_none()));
        // No reader leaves anything behind.
        readers.iter().for_each(|model| assert!(pool.remove(model.reader.id())));
        pool.reader(4).unwrap();
        for _ in 0..4 {
            let slot = pool.claim().unwrap();
            pool.publish(block(slot, 1));
        }
    }
}

/// More readers are added in total than there can be at a time.
#[test]
fn numbers_are_used_again() {
    let mut pool = Pool::new(1).unwrap();
    let mut readers: Vec<_> = std::iter::from_fn(|| pool.reader(1)).collect();
    assert_eq!(readers.len(), flame_block::MAX_READERS);
    assert!(matches!(pool.remote_reader(1), Err(flame_block::BlockError::TooManyReaders)));
    for round in 0..200 {
        let slot = fill(&mut pool, 1).unwrap();
        assert_eq!(pool.publish(block(slot, 1)).taken, 64);
        // All but one reader are done; the last one ends while it holds its block.
        let leaves = round % readers.len();
        for (i, reader) in readers.iter_mut().enumerate() {
            let Block { slot, .. } = reader.take().unwrap();
            if i != leaves {
                reader.release(slot);
            }
        }
        assert_eq!(pool.claim(), None, "the last reader holds the only slot");
        let left = readers.swap_remove(leaves);
        if round % 2 == 0 {
            assert!(pool.remove(left.id()));
        } else {
            drop(left); // Found by the next claim.
        }
        assert_eq!(pool.claim(), Some(0));
        readers.push(pool.reader(1).expect("a number is free"));
    }
}

/// A release between claiming and publishing counts.
#[test]
fn room_made_after_the_claim_is_used() {
    let mut pool = Pool::new(2).unwrap();
    let mut reader = pool.reader(1).unwrap();
    let slot = fill(&mut pool, 1).unwrap();
    pool.publish(block(slot, 1));
    let next = fill(&mut pool, 2).unwrap();
    let Block { slot: taken, .. } = reader.take().unwrap();
    reader.release(taken);
    assert_eq!((pool.publish(block(next, 1)).taken, reader.lost(0)), (1, 0));
}

#[test]
#[should_panic = "in the order in which they were taken"]
fn releases_come_in_order() {
    let mut pool = Pool::new(2).unwrap();
    let mut reader = pool.reader(2).unwrap();
    for _ in 0..2 {
        let slot = pool.claim().unwrap();
        pool.publish(block(slot, 1));
    }
    reader.take();
    let second = reader.take().unwrap().slot;
    reader.release(second);
}

#[test]
fn readers_in_threads_see_whole_blocks() {
    let mut pool = Pool::new(8).unwrap();
    let mut threads = Vec::new();
    for _ in 0..3 {
        let (mut reader, window) = (pool.reader(3).unwrap(), Window::new(&pool));
        threads.push(std::thread::spawn(move || {
            let (mut seen, mut lost) = (0u64, 0u64);
            while seen + lost < 2000 {
                lost += reader.lost(0);
                let Some(Block { slot, packets, .. }) = reader.take() else {
                    std::thread::yield_now();
                    continue;
                };
                let bytes = window.bytes(slot);
                assert!(bytes.iter().all(|b| *b == bytes[0]), "block changed under its reader");
                reader.release(slot);
                seen += u64::from(packets);
            }
            seen + lost
        }));
    }
    for i in 0..2000u32 {
        // Other readers are added and removed meanwhile, some while they hold blocks.
        let mut passing = (i % 3 == 0).then(|| pool.reader(2).unwrap());
        let slot = loop {
            if let Some(slot) = fill(&mut pool, i as u8) {
                break slot;
            }
            std::thread::yield_now();
        };
        pool.publish(block(slot, 1));
        if let Some(reader) = &mut passing {
            assert!(reader.take().is_some());
        }
    }
    for thread in threads {
        assert_eq!(thread.join().unwrap(), 2000);
    }
}

/// Publishes blocks and ticks while another thread takes them: every block is there, in order, and between
/// two blocks the last tick that was published between them.
#[test]
fn ticks_keep_their_place_between_blocks() {
    let mut pool = Pool::new(8).unwrap();
    let mut reader = pool.reader(8).unwrap();
    const STEPS: u64 = 200_000;
    let taken = std::thread::spawn(move || {
        let mut taken = Vec::new();
        let mut ticked = 0;
        while ticked < STEPS {
            match reader.take_item() {
                None => std::hint::spin_loop(),
                Some(Item::Tick(at)) => {
                    ticked = at;
                    taken.push(Item::Tick(at));
                }
                Some(item @ Item::Block(block)) => {
                    taken.push(item);
                    reader.release(block.slot);
                }
            }
        }
        taken
    });
    let mut published = Vec::new();
    for step in 1..=STEPS {
        if step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62 == 0 || step == STEPS {
            pool.tick(step);
            published.push(Item::Tick(step));
            continue;
        }
        let slot = loop {
            if let Some(slot) = pool.claim() {
                break slot;
            }
        };
        // The packets number the blocks, so that a lost or repeated one shows.
        let next = Block {
            slot,
            packets: step as u32 % 1024,
            link: LinkType(step as u16),
            queue: 0,
            port: !(step as u16),
        };
        pool.publish(next);
        published.push(Item::Block(next));
    }
    let taken = taken.join().unwrap();
    let blocks =
        |items: &[Item]| items.iter().copied().filter(|i| matches!(i, Item::Block(_))).collect::<Vec<_>>();
    assert_eq!(blocks(&taken), blocks(&published));
    let last = |items: &[Item]| {
        items
            .chunk_by(|a, b| matches!((a, b), (Item::Tick(_), Item::Tick(_))))
            .map(|c| c[c.len() - 1])
            .collect::<Vec<_>>()
    };
    assert_eq!(last(&taken), last(&published));
}

proptest! {
    /// Each queue of a reader has a depth and losses of its own. Its blocks come in the order of publishing,
    /// whatever their queues, and a slot is free when its block is released.
    #[test]
    fn queues_overflow_alone(
        depths in prop::collection::vec(1usize..5, 1..5),
        steps in prop::collection::vec((0u8..4, 0usize..6), 1..300),
    ) {
        let sum: usize = depths.iter().sum();
        let mut pool = Pool::new(sum + 1).unwrap();
        let mut reader = pool.reader(flame_block::Depths::new(&depths)).unwrap();
        let id = reader.id();
        let (mut queued, mut held) = (VecDeque::new(), VecDeque::new());
        let (mut lost, mut counted) = ([0; flame_block::MAX_QUEUES], [0; flame_block::MAX_QUEUES]);
        for (what, queue) in steps {
            match what {
                0 | 1 => {
                    // A queue that does not exist loses all.
                    let busy = queued.iter().chain(&held).filter(|(of, _)| *of == queue).count();
                    let has_room = depths.get(queue).is_some_and(|depth| busy < *depth);
                    prop_assert_eq!(pool.has_room(id, queue), Some(has_room));
                    let has_much_room = depths.get(queue).is_some_and(|depth| 2 * busy < *depth);
                    prop_assert_eq!(pool.has_much_room(id, queue), Some(has_much_room));
                    let slot = pool.claim().expect("one more than all may hold");
                    let other = pool.claim_besides(1 << slot);
                    prop_assert!(other.is_none_or(|other| other != slot));
                    let published = pool.publish(Block { queue, ..block(slot, 3) });
                    prop_assert_eq!(published.taken, u32::from(has_room));
                    match has_room {
                        true => queued.push_back((queue, slot)),
                        false => lost[queue] += 3,
                    }
                }
                2 => {
                    let taken = reader.take().map(|block| (block.queue, block.slot));
                    prop_assert_eq!(taken, queued.pop_front());
                    held.extend(taken);
                }
                _ => if let Some((_, slot)) = held.pop_front() {
                    reader.release(slot);
                }
            }
            for (queue, counted) in counted.iter_mut().enumerate() {
                *counted += reader.lost(queue);
                prop_assert_eq!((*counted, pool.lost(id, queue)), (lost[queue], Some(lost[queue])));
            }
            let backlog = pool.backlog(id).unwrap();
            prop_assert_eq!(backlog.held, (queued.len() + held.len()) as u64);
            prop_assert_eq!(backlog.lost, lost.iter().sum::<u64>());
        }
    }
}
