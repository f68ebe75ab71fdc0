//! Readers in separate processes: this binary again, with inherited descriptors.
#![allow(unsafe_code)] // Takes over inherited descriptors; maps memory that must not be mapped.

use crate::common::block;
use flame_block::{Block, Pool, Reader, ReaderFds, ReaderId, SLOT_BYTES, SLOT_DESCRIPTORS, Wake};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The environment variable that holds the numbers of a child's descriptors.
const FDS: &str = "FLAME_BLOCK_FDS";

/// Starts the test `name` of this binary as the process of a reader.
fn spawn(name: &str, fds: ReaderFds) -> Child {
    // No other child may inherit these: it would keep the event open.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let ends = [&fds.data, &fds.control, &fds.event];
    ends.iter().for_each(|fd| rustix::io::fcntl_setfd(fd, FdFlags::empty()).unwrap());
    let numbers = ends.map(|fd| fd.as_raw_fd().to_string()).join(" ");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([format!("process::{name}").as_str(), "--exact", "--nocapture"]).env(FDS, numbers);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Dropped while the lock is held, because the next child would inherit them.
    drop(fds);
    child
}

/// Returns the inherited descriptors, or `None` in the parent.
fn inherited() -> Option<[OwnedFd; 3]> {
    let numbers = std::env::var(FDS).ok()?;
    let fds: Vec<_> = numbers.split(' ').map(|n| n.parse().unwrap()).collect();
    // SAFETY: `spawn` left these open for this process, and nothing else here owns them.
    let fds: Vec<_> = fds.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect();
    Some(fds.try_into().unwrap())
}

fn ended(child: Child) -> Output {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

/// Publishes a block filled with its number.
fn write(pool: &mut Pool, number: u64) -> usize {
    let slot = pool.claim().expect("there are more slots than may be held");
    pool.slot(slot).1[..800].chunks_mut(8).for_each(|word| word.copy_from_slice(&number.to_ne_bytes()));
    pool.publish(block(slot, 1));
    slot
}

fn read(reader: &Reader, slot: usize) -> u64 {
    let mut bytes = [0; 800];
    assert!(reader.copy(slot, SLOT_DESCRIPTORS, &mut bytes));
    let number = u64::from_ne_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes.chunks(8).all(|word| word == number.to_ne_bytes()), "block changed under its reader");
    number
}

/// Waits until a reader has taken (or, with `released`, released) all published blocks.
fn caught_up(pool: &mut Pool, id: ReaderId, released: bool) -> bool {
    let limit = Instant::now() + Duration::from_secs(60);
    while Instant::now() < limit {
        let backlog = pool.backlog(id).expect("it is there");
        if backlog.waiting == 0 && (backlog.held == 0 || !released) {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

/// Reads all blocks and sleeps in between, then prints the numbers of blocks seen, packets lost, and sleeps.
fn read_all([data, control, event]: [OwnedFd; 3]) {
    let mut reader = Reader::from_fds(data, control, event).unwrap();
    let (mut seen, mut lost, mut slept, mut last) = (0u64, 0, 0u64, None);
    loop {
        while let Some(Block { slot, packets, .. }) = reader.take() {
            let number = read(&reader, slot);
            assert!(last < Some(number) && packets == 1);
            last = Some(number);
            reader.release(slot);
            seen += 1;
        }
        slept += 1;
        match reader.wait(None).unwrap() {
            Wake::Closed => break,
            Wake::Ready | Wake::Nothing => {}
        }
    }
    lost += reader.lost(0);
    println!("\nreader: {seen} {lost} {slept}");
}

fn printed(output: &Output) -> Vec<u64> {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("reader: ")).expect("the reader printed");
    line.split(' ').map(|n| n.parse().unwrap()).collect()
}

/// The child loses blocks when it is too slow, the reader in this process loses none: the writer waits for
/// neither.
#[test]
fn another_process_reads_while_blocks_are_written() {
    if let Some(fds) = inherited() {
        return read_all(fds);
    }
    const BLOCKS: u64 = 20_000;
    let mut pool = Pool::new(8).unwrap();
    let fds = pool.remote_reader(3).unwrap();
    let child = spawn("another_process_reads_while_blocks_are_written", fds);
    let mut local = pool.reader(3).unwrap();
    for number in 0..BLOCKS {
        write(&mut pool, number);
        let Block { slot, .. } = local.take().unwrap();
        local.release(slot);
        if number % 500 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(local.lost(0), 0);
    drop(pool);
    let numbers = printed(&ended(child));
    let [seen, lost, _] = numbers[..] else { panic!("{numbers:?}") };
    assert_eq!(seen + lost, BLOCKS);
    assert!(seen > 0);
}

/// The reader sleeps after each block. Blocks are published before, while and after it falls asleep.
#[test]
fn no_wake_up_is_lost() {
    if let Some(fds) = inherited() {
        return read_all(fds);
    }
    const BLOCKS: u64 = 20_000;
    let mut pool = Pool::new(2).unwrap();
    let fds = pool.remote_reader(1).unwrap();
    let id = fds.id;
    let child = spawn("no_wake_up_is_lost", fds);
    for number in 0..BLOCKS {
        write(&mut pool, number);
        assert!(caught_up(&mut pool, id, true), "block {number} woke nobody");
        for _ in 0..number % 1000 {
            std::hint::spin_loop();
        }
    }
    assert!(pool.remove(id), "which wakes it for the last time");
    let numbers = printed(&ended(child));
    let [seen, lost, slept] = numbers[..] else { panic!("{numbers:?}") };
    assert_eq!((seen, lost), (BLOCKS, 0));
    assert!(slept > BLOCKS / 10, "it slept {slept} times");
}

/// A reader is killed while it holds blocks.
#[test]
fn a_killed_reader_costs_the_others_nothing() {
    if let Some([data, control, event]) = inherited() {
        let mut reader = Reader::from_fds(data, control, event).unwrap();
        for _ in 0..2 {
            reader.wait(None).unwrap();
            reader.take().unwrap();
        }
        // Its flag does not mark it as asleep, so no wake-up reveals that it has ended.
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    let mut pool = Pool::new(4).unwrap();
    let mut local = pool.reader(1).unwrap();
    let mut number = 0;
    let mut next = |pool: &mut Pool| {
        let written = write(pool, number);
        number += 1;
        let Block { slot, .. } = local.take().expect("nothing is lost");
        assert_eq!(slot, written);
        local.release(slot);
        assert_eq!(local.lost(0), 0);
        slot
    };
    for _ in 0..3 {
        let fds = pool.remote_reader(2).unwrap();
        let id = fds.id;
        let mut child = spawn("a_killed_reader_costs_the_others_nothing", fds);
        let held = [next(&mut pool), next(&mut pool)];
        assert!(caught_up(&mut pool, id, false));
        assert_eq!(pool.reap(), [], "it lives");
        child.kill().unwrap();
        child.wait().unwrap();
        for _ in 0..100 {
            assert!(!held.contains(&next(&mut pool)), "nobody has found it dead yet");
        }
        assert_eq!(pool.backlog(id).unwrap().lost, 100);
        assert_eq!(pool.reap(), [id]);
        assert_eq!(next(&mut pool), held[0], "what it held is used again");
        assert_eq!(pool.readers().count(), 1);
    }
}

/// Maps a whole file, shared.
fn map(fd: impl AsFd, bytes: usize, protection: ProtFlags) -> Result<*mut std::ffi::c_void, Errno> {
    // SAFETY: a new mapping, of a file that others only write.
    unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, fd, 0) }
}

#[test]
fn another_process_cannot_map_the_data_writable() {
    let Some([data, control, _event]) = inherited() else {
        let mut pool = Pool::new(2).unwrap();
        write(&mut pool, 7);
        let fds = pool.remote_reader(1).unwrap();
        let output = ended(spawn("another_process_cannot_map_the_data_writable", fds));
        assert_eq!(printed(&output), [7]);
        return;
    };
    let (bytes, both) = (2 * SLOT_BYTES, ProtFlags::READ | ProtFlags::WRITE);
    let path = format!("/proc/self/fd/{}", data.as_raw_fd());
    let again = rustix::fs::open(path, OFlags::RDWR, rustix::fs::Mode::empty()).unwrap();
    for fd in [&data, &again] {
        assert_eq!(map(fd, bytes, both).err(), Some(Errno::PERM));
        assert_eq!(rustix::io::write(fd, &[1]), Err(Errno::PERM));
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert_eq!(rustix::fs::fallocate(fd, punch, 0, 4096), Err(Errno::PERM));
    }
    let mapped = map(&data, bytes, ProtFlags::READ).unwrap();
    // SAFETY: the mapping made above.
    let writable = unsafe { rustix::mm::mprotect(mapped, bytes, MprotectFlags::READ | MprotectFlags::WRITE) };
    assert_eq!(writable, Err(Errno::ACCESS));
    // The calls themselves are correct: this process may write the control page.
    assert!(map(&control, 4096, both).is_ok());
    // SAFETY: in the mapping made above; this slot is not written any more.
    println!("\nreader: {}", unsafe { mapped.byte_add(SLOT_DESCRIPTORS).cast::<u64>().read_volatile() });
}
