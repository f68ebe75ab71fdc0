#![allow(unsafe_code)] // Maps memory, changes its protection, and touches it.

//! Whether a module that may see and change whole packets should have the frames themselves in its memory:
//! the packets of a batch are copied in and out, or the pages that hold them are mapped and taken away again.
//! Only the frames of a batch may be there, so mapping is done for each batch.

use crate::row::{Row, laps, median};
use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

/// The packets of a batch, and the batches of the slab.
const BATCH: usize = 256;
const BATCHES: usize = 16;
/// The bytes of a frame, as those of packets in graphs and of AF_XDP.
const FRAME: usize = 2048;
const PAGE: usize = 4096;
/// The bytes that a batch takes: whole pages, of which no other packets are part.
const RANGE: usize = BATCH * FRAME;
const SLAB: usize = RANGE * BATCHES;
/// The bytes of a packet that a module reads and changes.
const TOUCHED: usize = 64;
const PACKETS: [usize; 3] = [64, 512, 1500];
const ACCESS: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// A mapping, until it is dropped.
struct Map(*mut u8, usize);

impl Map {
    /// Maps a file, or address space that nothing may touch.
    fn new(file: Option<libc::c_int>, bytes: usize) -> io::Result<Self> {
        let shared = libc::MAP_SHARED | libc::MAP_POPULATE;
        let (access, flags) = match file {
            Some(_) => (ACCESS, shared),
            None => (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE),
        };
        // SAFETY: a new mapping; the result is checked.
        let at = unsafe { libc::mmap(null_mut(), bytes, access, flags, file.unwrap_or(-1), 0) };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self(at.cast(), bytes)) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping of this value.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

/// The frames, and the address space of a module.
struct Bench {
    slab: libc::c_int,
    /// The frames as the host has them.
    frames: Map,
    /// The window into which batches are copied or mapped, and the one in which the whole slab is mapped.
    window: Map,
    whole: Map,
    length: usize,
}

/// The ways to give a batch to a module.
#[derive(Clone, Copy)]
enum Give {
    /// Copies packets in and out.
    Copy,
    /// Maps pages, each of which faults when it is touched.
    Fault,
    /// Maps pages with their table.
    Populate,
    /// Changes the protection of pages that are mapped always.
    Protect,
    /// Moves the table of pages in and out.
    Move,
    /// Changes the protection of the page of each packet, since packets lie in no order.
    Scattered,
}

const WAYS: [(Give, &str); 6] = [
    (Give::Copy, "copied"),
    (Give::Fault, "mmap with faults"),
    (Give::Populate, "mmap with MAP_POPULATE"),
    (Give::Protect, "mprotect"),
    (Give::Move, "mremap"),
    (Give::Scattered, "mprotect of each page of scattered packets"),
];

fn check(result: *mut libc::c_void) -> io::Result<()> {
    if result == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads and changes the beginning of each packet, as a module does.
fn work(at: *mut u8, stride: usize) {
    for packet in 0..BATCH {
        // SAFETY: inside the mapping of the batch, to which there is no other reference.
        let bytes = unsafe { std::slice::from_raw_parts_mut(at.add(packet * stride), TOUCHED) };
        bytes[TOUCHED - 1] = bytes[..TOUCHED - 1].iter().fold(1, |sum, byte| sum ^ byte);
    }
}

/// Returns the places of a batch of packets that lie in pages of their own, in no order.
fn scattered(offset: usize) -> impl Iterator<Item = usize> {
    let first = offset / FRAME;
    // The step has no factor in common with the number of pages.
    (first..first + BATCH).map(|packet| packet * 1021 % (SLAB / PAGE) * PAGE)
}

impl Bench {
    fn new(length: usize) -> io::Result<Self> {
        // SAFETY: a name that ends with zero; the result is checked.
        let slab = unsafe { libc::memfd_create(c"frames".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: a call without pointers.
        if slab < 0 || unsafe { libc::ftruncate(slab, SLAB as libc::off_t) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let whole = Map::new(Some(slab), SLAB)?;
        // SAFETY: the mapping of this function, which it only hides.
        if unsafe { libc::mprotect(whole.0.cast(), SLAB, libc::PROT_NONE) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let (frames, window) = (Map::new(Some(slab), SLAB)?, Map::new(None, RANGE)?);
        Ok(Self { slab, frames, window, whole, length })
    }

    /// Maps pages of the slab at the window, or hides it.
    fn map(&self, offset: Option<usize>, flags: libc::c_int) -> io::Result<()> {
        let (access, flags, file) = match offset {
            Some(_) => (ACCESS, libc::MAP_SHARED | libc::MAP_FIXED | flags, self.slab),
            None => {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
                (libc::PROT_NONE, flags, -1)
            }
        };
        let at = offset.unwrap_or(0) as libc::off_t;
        // SAFETY: replaces a mapping of this value by another one.
        check(unsafe { libc::mmap(self.window.0.cast(), RANGE, access, flags, file, at) })
    }

    fn protect(&self, offset: usize, bytes: usize, access: libc::c_int) -> io::Result<()> {
        // SAFETY: a part of the mapping of this value.
        match unsafe { libc::mprotect(self.whole.0.add(offset).cast(), bytes, access) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn copy(&self, offset: usize, is_back: bool) {
        for packet in 0..BATCH {
            // SAFETY: both are inside mappings of this value, which do not overlap.
            unsafe {
                let frame = self.frames.0.add(offset + packet * FRAME);
                let seen = self.window.0.add(packet * self.length);
                match is_back {
                    true => seen.copy_to_nonoverlapping(frame, self.length),
                    false => frame.copy_to_nonoverlapping(seen, self.length),
                }
            }
        }
    }

    /// Gives all batches to the module, and takes them back.
    fn give(&self, way: Give) -> io::Result<()> {
        if matches!(way, Give::Copy) {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_POPULATE;
            // SAFETY: replaces the window by memory of its own, once.
            check(unsafe { libc::mmap(self.window.0.cast(), RANGE, ACCESS, flags, -1, 0) })?;
        }
        for offset in (0..SLAB).step_by(RANGE) {
            match way {
                Give::Copy => {
                    self.copy(offset, false);
                    work(self.window.0, self.length);
                    self.copy(offset, true);
                }
                Give::Fault | Give::Populate => {
                    let flags = if matches!(way, Give::Populate) { libc::MAP_POPULATE } else { 0 };
                    self.map(Some(offset), flags)?;
                    work(self.window.0, FRAME);
                    self.map(None, 0)?;
                }
                Give::Protect => {
                    self.protect(offset, RANGE, ACCESS)?;
                    // SAFETY: a part of the mapping.
                    work(unsafe { self.whole.0.add(offset) }, FRAME);
                    self.protect(offset, RANGE, libc::PROT_NONE)?;
                }
                Give::Scattered => {
                    scattered(offset).try_for_each(|at| self.protect(at, PAGE, ACCESS))?;
                    for at in scattered(offset) {
                        // SAFETY: a page of the mapping, which may be touched now.
                        unsafe { *self.whole.0.add(at) ^= 1 };
                    }
                    scattered(offset).try_for_each(|at| self.protect(at, PAGE, libc::PROT_NONE))?;
                }
                Give::Move => {
                    // SAFETY: a part of the mapping.
                    let frames = unsafe { self.frames.0.add(offset) };
                    for (from, to) in [(frames, self.window.0), (self.window.0, frames)] {
                        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                        // SAFETY: both are mappings of this value. What was moved away is moved back here.
                        check(unsafe { libc::mremap(from.cast(), RANGE, RANGE, flags, to) })?;
                        if to == self.window.0 {
                            work(to, FRAME);
                        }
                    }
                }
            }
        }
        // Nothing else may be mapped where pages were moved away.
        if matches!(way, Give::Move) { self.map(None, 0) } else { Ok(()) }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // SAFETY: the file of this value, of which only mappings are left.
        unsafe { libc::close(self.slab) };
    }
}

/// Returns the seconds of each way by round.
fn measure(length: usize, rounds: usize) -> io::Result<Vec<Vec<f64>>> {
    let bench = Bench::new(length)?;
    let bench = &bench;
    let mut ways: Vec<crate::row::Way<'_, io::Error>> = Vec::new();
    for (way, _) in WAYS {
        ways.push(Box::new(move || bench.give(way)));
    }
    laps(rounds, &mut ways)
}

/// Returns a row for each size of packets.
pub fn rows(group: &'static str, rounds: usize) -> io::Result<Vec<Row>> {
    let packets = (BATCH * BATCHES) as f64;
    let nanoseconds = |times: &[Vec<f64>]| -> Vec<f64> {
        times.iter().map(|seconds| median(seconds.clone()) * 1e9 / packets).collect()
    };
    let mut rows = Vec::new();
    for length in PACKETS {
        let times = measure(length, rounds * 4)?;
        let alone = nanoseconds(&times);
        // Another thread of the process has the pages in its own tables, from which they must be taken.
        let is_over = AtomicBool::new(false);
        let busy = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let busy = measure(length, rounds * 4);
            is_over.store(true, Ordering::Relaxed);
            busy
        })?;
        let busy = nanoseconds(&busy);
        // The best case of mapping: all packets of a batch lie together.
        let best = (1..WAYS.len() - 1).min_by(|a, b| alone[*a].total_cmp(&alone[*b])).unwrap_or(1);
        let ways = WAYS.iter().zip(alone.iter().zip(&busy));
        let listed: Vec<String> =
            ways.map(|((_, name), (alone, busy))| format!("{name} {alone:.0}/{busy:.0}")).collect();
        rows.push(Row::ratio(
            group,
            format!("mapping {length} bytes / copying"),
            crate::row::paired(&times[best], &times[0]),
            format!("ns for each packet, alone/beside a busy thread: {}", listed.join(", ")),
        ));
    }
    Ok(rows)
}
