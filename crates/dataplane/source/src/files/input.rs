//! Reads the bytes of a file, in chunks.
//!
//! Files are read, not mapped: the kernel copies long runs, which suits the processor's prefetcher, and the
//! packets are then in its cache. Walking a mapping from packet to packet took nearly twice as long (1.1
//! million packets, 360 MB), and truncating a mapped file would end the process.

use crate::SourceError;
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of bytes read at a time. Chunk and blocks fit in the second-level cache.
const CHUNK: usize = 1 << 18;
/// The maximum number of buffers that are kept for reuse: as many as several workers have in their queue.
const SPARES: usize = 24;

pub enum Input {
    Memory(Bytes),
    Stream(Stream),
}

/// A stream and the chunk of it that is in memory.
pub struct Stream {
    reader: Box<dyn Read + Send>,
    /// The offset in the stream of the first byte of `chunk`.
    pub base: u64,
    pub chunk: Bytes,
    /// The whole buffer of which `chunk` is the filled part. It is zeroed once, not for every chunk.
    whole: Bytes,
    /// The buffers of earlier chunks, for reuse once nobody holds them, the oldest first. New memory would be
    /// zeroed, and in no cache.
    spares: VecDeque<Bytes>,
    pub ended: bool,
    /// The error that ended the stream early, if any.
    pub broken: Option<String>,
    consumed: Arc<AtomicU64>,
    pub total: Option<u64>,
    /// The file, if it is a regular one, and whether it is compressed.
    file: Option<Arc<File>>,
    is_compressed: bool,
}

/// Reads the first `end` bytes of a file that others read at the same time.
struct Part {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Part {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let room = into.len().min(left);
        let n = self.file.read_at(&mut into[..room], self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

impl Input {
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        let fail = |error| SourceError::Io { place: path.display().to_string(), error };
        if path.as_os_str() == "-" {
            return stream(Box::new(io::stdin()), None).map(Self::Stream).map_err(fail);
        }
        let file = File::open(path).map_err(fail)?;
        let meta = file.metadata().map_err(fail)?;
        if !meta.is_file() {
            return stream(Box::new(file), None).map(Self::Stream).map_err(fail);
        }
        let file = Arc::new(file);
        let stream = stream(Box::new(file.clone()), Some(meta.len())).map_err(fail)?;
        Ok(Self::Stream(Stream { file: Some(file), ..stream }))
    }

    /// Returns an input of the bytes that the file had when it was opened, if it is a regular one that is not
    /// compressed.
    pub fn copy(&self) -> Option<Self> {
        let Self::Stream(Stream { file: Some(file), is_compressed: false, total: Some(end), .. }) = self
        else {
            return None;
        };
        stream(Box::new(Part { file: file.clone(), at: 0, end: *end }), Some(*end)).map(Self::Stream).ok()
    }

    /// Returns the number of bytes of the file read so far, and in total.
    pub fn consumed(&self, position: u64) -> (u64, Option<u64>) {
        match self {
            Self::Memory(map) => (position, Some(map.len() as u64)),
            Self::Stream(s) => (s.consumed.load(Ordering::Relaxed), s.total),
        }
    }
}

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

struct Counted<R> {
    inner: R,
    bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(into)?;
        self.bytes.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

fn stream(inner: Box<dyn Read + Send>, total: Option<u64>) -> io::Result<Stream> {
    let consumed = Arc::new(AtomicU64::new(0));
    let mut counted = Counted { inner, bytes: consumed.clone() };
    let mut head = Vec::new();
    (&mut counted).take(4).read_to_end(&mut head)?;
    let gzip = head.starts_with(&GZIP);
    let zstd = head.starts_with(&ZSTD);
    let whole = io::Cursor::new(head).chain(counted);
    let reader: Box<dyn Read + Send> = if gzip {
        Box::new(flate2::read::MultiGzDecoder::new(io::BufReader::with_capacity(1 << 16, whole)))
    } else if zstd {
        Box::new(zstd::stream::read::Decoder::new(whole)?)
    } else {
        Box::new(whole)
    };
    Ok(Stream {
        reader,
        base: 0,
        chunk: Bytes::new(),
        whole: Bytes::new(),
        spares: VecDeque::new(),
        ended: false,
        broken: None,
        consumed,
        total,
        file: None,
        is_compressed: gzip || zstd,
    })
}

impl Stream {
    /// Returns a buffer of at least `wanted` bytes.
    fn unused(&mut self, wanted: usize) -> BytesMut {
        match self.spares.pop_front().map(Bytes::try_into_mut) {
            Some(Ok(old)) if old.len() >= wanted => return old,
            Some(Err(held)) => self.spares.push_front(held),
            Some(Ok(_)) | None => {}
        }
        BytesMut::zeroed(wanted)
    }

    /// Drops the bytes before `from` and reads further bytes. `chunk` then begins at `from`.
    pub fn advance(&mut self, from: usize) {
        let rest = self.chunk.slice(from..);
        self.base += from as u64;
        let wanted = CHUNK.max(rest.len() * 2);
        let mut buffer = self.unused(wanted);
        let wanted = buffer.len();
        let mut len = rest.len();
        buffer[..len].copy_from_slice(&rest);
        while len < wanted && !self.ended {
            match self.reader.read(&mut buffer[len..]) {
                Ok(0) => self.ended = true,
                Ok(n) => {
                    len += n;
                    // A pipe returns the bytes it has: do not wait for more.
                    if self.total.is_none() || len > rest.len() + (CHUNK / 8) {
                        break;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    self.ended = true;
                    self.broken = Some(e.to_string());
                }
            }
        }
        let last = std::mem::replace(&mut self.whole, buffer.freeze());
        self.spares.extend((!last.is_empty()).then_some(last));
        if self.spares.len() > SPARES {
            self.spares.pop_front();
        }
        self.chunk = self.whole.slice(..len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Chunks that are held are not written to, and their buffers serve again afterwards.
    #[test]
    fn buffers_are_used_again_once_nobody_holds_them() {
        let bytes: Vec<u8> = (0..64 * CHUNK).map(|n| (n / CHUNK) as u8).collect();
        for held in [0, 1, 7, SPARES - 2, SPARES + 9] {
            let mut stream = stream(Box::new(io::Cursor::new(bytes.clone())), None).unwrap();
            let (mut chunks, mut places) = (VecDeque::new(), BTreeSet::new());
            let mut at = 0;
            while !stream.ended {
                stream.advance(stream.chunk.len());
                places.insert(stream.chunk.as_ptr());
                chunks.push_back((at, stream.chunk.clone()));
                at += stream.chunk.len();
                while chunks.len() > held {
                    let (at, chunk) = chunks.pop_front().unwrap();
                    assert_eq!(chunk, bytes[at..at + chunk.len()], "{held} held");
                }
            }
            assert_eq!(at, bytes.len());
            if held < SPARES {
                assert!(places.len() <= held + 3, "{held} held: {} buffers", places.len());
            }
        }
    }
}
