//! Reads the bytes of a file, in chunks.
//!
//! Files are read, not mapped: the kernel copies long runs, which suits the processor's prefetcher, and the
//! packets are then in its cache. Walking a mapping from packet to packet took nearly twice as long (1.1
//! million packets, 360 MB), and truncating a mapped file would end the process.

use crate::SourceError;
use bytes::{Bytes, BytesMut};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of bytes read at a time. Chunk and blocks fit in the second-level cache.
const CHUNK: usize = 1 << 18;

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
    /// The buffer of the last chunk returned, for reuse once nobody holds it.
    spare: Bytes,
    pub ended: bool,
    /// The error that ended the stream early, if any.
    pub broken: Option<String>,
    consumed: Arc<AtomicU64>,
    pub total: Option<u64>,
}

impl Input {
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        let fail = |error| SourceError::Io { place: path.display().to_string(), error };
        if path.as_os_str() == "-" {
            return stream(Box::new(io::stdin()), None).map_err(fail);
        }
        let file = File::open(path).map_err(fail)?;
        let meta = file.metadata().map_err(fail)?;
        if !meta.is_file() {
            return stream(Box::new(file), None).map_err(fail);
        }
        stream(Box::new(file), Some(meta.len())).map_err(fail)
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

fn stream(inner: Box<dyn Read + Send>, total: Option<u64>) -> io::Result<Input> {
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
    Ok(Input::Stream(Stream {
        reader,
        base: 0,
        chunk: Bytes::new(),
        whole: Bytes::new(),
        spare: Bytes::new(),
        ended: false,
        broken: None,
        consumed,
        total,
    }))
}

impl Stream {
    /// Drops the bytes before `from` and reads further bytes. `chunk` then begins at `from`.
    pub fn advance(&mut self, from: usize) {
        let rest = self.chunk.slice(from..);
        self.base += from as u64;
        let wanted = CHUNK.max(rest.len() * 2);
        let mut buffer = match std::mem::take(&mut self.spare).try_into_mut() {
            Ok(old) if old.len() >= wanted => old,
            _ => BytesMut::zeroed(wanted),
        };
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
        self.spare = std::mem::replace(&mut self.whole, buffer.freeze());
        self.chunk = self.whole.slice(..len);
    }
}
