//! Reads a regular file in chunks, by several threads if they help.
//!
//! Chunks are claimed in order and read side by side, so that copying them from the kernel is divided among
//! processors. They are taken in order.

use super::spares::Spares;
use bytes::{Bytes, BytesMut};
use flame_base::{lock, unpoisoned};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// The number of bytes of a chunk. Chunk and blocks fit in the second-level cache.
pub const CHUNK: usize = 1 << 18;
/// The room before a chunk for the rest of the one before it, which is more than most packets need.
pub const HEADROOM: usize = 1 << 16;
/// The alignment of chunks in memory, as of their pages in the kernel. Elsewhere, loads of the copy would
/// seem to depend on its last stores, whose addresses end alike, and wait for them.
const ALIGNMENT: usize = 4096;
/// The number of bytes of a chunk's buffer.
const BUFFER: usize = HEADROOM + ALIGNMENT + CHUNK;
/// The maximum number of chunks that are read ahead.
const MOST: usize = 4;

/// A chunk of a file.
pub struct Chunk {
    /// The memory of the bytes.
    pub buffer: BytesMut,
    /// The offset of the first byte in it, at least [`HEADROOM`].
    pub start: usize,
    /// The number of bytes. Fewer than [`CHUNK`] are the last ones.
    pub len: usize,
    /// The reason why there are no more.
    pub broken: Option<io::Error>,
}

/// A file that is read ahead.
pub struct Ahead {
    file: Arc<File>,
    /// The buffers of all files of a source: of files that are read in turn, each would keep its own.
    spares: Arc<Spares>,
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
struct State {
    /// The offset of the next chunk to claim.
    next: u64,
    /// The chunks from the next one to take on. Those that are being read are `None`.
    chunks: VecDeque<Option<Chunk>>,
    /// The number of chunks that were taken.
    taken: u64,
    /// Whether a thread waits for a chunk. To wake one takes a system call.
    waits: bool,
    /// Whether the end of the file was found.
    ended: bool,
}

impl Ahead {
    pub fn new(file: Arc<File>, spares: Arc<Spares>) -> Self {
        Self { file, spares, state: Mutex::default(), filled: Condvar::new() }
    }

    /// Returns a buffer of a long packet as it is filled.
    pub fn freeze(&self, buffer: BytesMut) -> Bytes {
        self.spares.freeze(buffer)
    }

    /// Returns whether another thread is reading the next chunk to take.
    pub fn is_reading(&self) -> bool {
        matches!(lock(&self.state).chunks.front(), Some(None))
    }

    /// Reads a chunk before it is taken. Returns false if enough has been read, or everything.
    pub fn help(&self) -> bool {
        let state = lock(&self.state);
        // A file of which only the beginning was looked at may be read much later.
        let is_read = state.taken > 1 && !state.ended && state.chunks.len() < MOST;
        if is_read {
            drop(self.read(state));
        }
        is_read
    }

    /// Claims a chunk and reads it.
    fn read<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let at = state.next;
        state.next += CHUNK as u64;
        state.chunks.push_back(None);
        let number = state.taken + state.chunks.len() as u64;
        drop(state);
        let mut buffer = self.spares.take(BUFFER);
        let start = HEADROOM + buffer[HEADROOM..].as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        let (mut len, mut broken) = (0, None);
        while len < CHUNK {
            match self.file.read_at(&mut buffer[start + len..start + CHUNK], at + len as u64) {
                Ok(0) => break,
                Ok(n) => len += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    broken = Some(e);
                    break;
                }
            }
        }
        let mut state = lock(&self.state);
        state.ended |= len < CHUNK;
        // It cannot be taken before it is there.
        let place = (number - state.taken - 1) as usize;
        if let Some(chunk) = state.chunks.get_mut(place) {
            *chunk = Some(Chunk { buffer, start, len, broken });
        }
        if std::mem::take(&mut state.waits) {
            self.filled.notify_all();
        }
        state
    }

    /// Takes the next chunk, and the buffer of one that is no longer needed. A chunk shorter than [`CHUNK`]
    /// is the last.
    pub fn take(&self, used: Bytes) -> Chunk {
        // That of a long packet would stay, and more of them with each one.
        if used.len() == BUFFER {
            self.spares.give(used);
        }
        let mut state = lock(&self.state);
        loop {
            state = match state.chunks.pop_front() {
                Some(Some(chunk)) => {
                    state.taken += 1;
                    return chunk;
                }
                // A thread that helps does nothing else before it has read it.
                Some(None) => {
                    state.chunks.push_front(None);
                    state.waits = true;
                    unpoisoned(self.filled.wait(state))
                }
                None => self.read(state),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn file(bytes: &[u8]) -> Arc<File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.into()
    }

    fn bytes(chunks: usize, more: usize) -> Vec<u8> {
        (0..chunks * CHUNK + more).map(|n| (n / 1000 * 7 + n) as u8).collect()
    }

    /// However many threads help, the chunks come in order, and each once.
    #[test]
    fn chunks_come_in_order() {
        for (chunks, more) in [(0, 0), (0, 1), (1, 0), (5, 0), (40, 77)] {
            let expected = bytes(chunks, more);
            for helpers in [0, 1, 3] {
                let (ahead, done) = (Ahead::new(file(&expected), Arc::default()), AtomicBool::new(false));
                let found = std::thread::scope(|scope| {
                    for _ in 0..helpers {
                        scope.spawn(|| {
                            while !done.load(Ordering::Relaxed) {
                                if !ahead.help() {
                                    std::thread::yield_now();
                                }
                            }
                        });
                    }
                    let (mut found, mut used) = (Vec::new(), Bytes::new());
                    loop {
                        let Chunk { buffer, start, len, broken } = ahead.take(used);
                        assert!(broken.is_none());
                        used = buffer.freeze();
                        found.extend_from_slice(&used[start..start + len]);
                        if len < CHUNK {
                            break;
                        }
                    }
                    done.store(true, Ordering::Relaxed);
                    found
                });
                assert!(found == expected, "{chunks} chunks and {more} bytes, {helpers} helpers");
            }
        }
    }

    /// The kernel's own files have no size, and are read in short pieces. Some fail.
    #[test]
    fn short_reads_and_errors_are_passed_on() {
        let names = std::fs::read("/proc/kallsyms").unwrap_or_default();
        if names.len() > 4 * CHUNK {
            let ahead = Ahead::new(File::open("/proc/kallsyms").unwrap().into(), Arc::default());
            let (mut found, mut len) = (Vec::new(), CHUNK);
            while len == CHUNK {
                let chunk = ahead.take(Bytes::new());
                len = chunk.len;
                found.extend_from_slice(&chunk.buffer[chunk.start..chunk.start + len]);
                ahead.help();
            }
            assert!(found == names, "{} of {} bytes", found.len(), names.len());
        }
        // Nothing is mapped at 0.
        let memory = File::open("/proc/self/mem").unwrap().into();
        let chunk = Ahead::new(memory, Arc::default()).take(Bytes::new());
        assert_eq!((chunk.len, chunk.broken.map(|e| e.raw_os_error())), (0, Some(Some(libc::EIO))));
    }

    /// The end that was found stays the end: nothing after it is read once more.
    #[test]
    fn nothing_is_read_after_the_end() {
        let ahead = Ahead::new(file(&bytes(2, 7)), Arc::default());
        let used = (0..2).fold(Bytes::new(), |used, _| ahead.take(used).buffer.freeze());
        assert!(ahead.help() && !ahead.help());
        assert_eq!(ahead.take(used).len, 7);
    }

    /// Buffers of long packets do not stay, whatever their number and order.
    #[test]
    fn only_buffers_of_chunks_are_kept() {
        let ahead = Ahead::new(file(&bytes(9, 0)), Arc::default());
        let long = || Bytes::from(vec![1; 5 * BUFFER]);
        let first = ahead.take(long()).buffer;
        let place = first.as_ptr();
        let again = ahead.take(first.freeze()).buffer;
        assert_eq!((again.as_ptr(), again.len()), (place, BUFFER));
        assert!((0..3).all(|_| ahead.take(long()).buffer.len() == BUFFER));
    }

    #[test]
    fn no_more_is_read_ahead_than_needed() {
        let ahead = Ahead::new(file(&bytes(20, 0)), Arc::default());
        assert!(!ahead.help(), "it was not begun");
        let used = (0..2).fold(Bytes::new(), |used, _| ahead.take(used).buffer.freeze());
        assert_eq!((0..20).filter(|_| ahead.help()).count(), MOST);
        ahead.take(used);
        assert!(ahead.help() && !ahead.help());
    }
}
