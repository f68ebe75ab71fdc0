//! Bytes of a file: mapped whole, or streamed in chunks when compressed or from a pipe.

use crate::SourceError;
use bytes::{Bytes, BytesMut};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes read from a stream at a time.
const CHUNK: usize = 1 << 20;

pub enum Input {
    Mapped(Bytes),
    Stream(Stream),
}

/// A stream and the part of it that is looked at.
pub struct Stream {
    reader: Box<dyn Read + Send>,
    /// Offset in the stream of the first byte of `chunk`.
    pub base: u64,
    pub chunk: Bytes,
    /// The last chunk given out, to be used again once nobody holds it.
    spare: Bytes,
    pub ended: bool,
    /// Why it ended, if not where it should.
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
        if meta.len() == 0 {
            return Ok(Self::Mapped(Bytes::new()));
        }
        let map = super::mmap::map(&file).map_err(fail)?;
        if is_compressed(&map) {
            stream(Box::new(file), Some(meta.len())).map_err(fail)
        } else {
            Ok(Self::Mapped(map))
        }
    }

    /// Bytes of the file read so far, and in all.
    pub fn consumed(&self, position: u64) -> (u64, Option<u64>) {
        match self {
            Self::Mapped(map) => (position, Some(map.len() as u64)),
            Self::Stream(s) => (s.consumed.load(Ordering::Relaxed), s.total),
        }
    }
}

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

fn is_compressed(bytes: &[u8]) -> bool {
    bytes.starts_with(&GZIP) || bytes.starts_with(&ZSTD)
}

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
        spare: Bytes::new(),
        ended: false,
        broken: None,
        consumed,
        total,
    }))
}

impl Stream {
    /// Drops the bytes before `from` and reads on; `chunk` then begins there.
    pub fn advance(&mut self, from: usize) {
        let rest = self.chunk.slice(from..);
        self.base += from as u64;
        let wanted = CHUNK.max(rest.len() * 2);
        let mut buffer = match std::mem::take(&mut self.spare).try_into_mut() {
            Ok(old) if old.capacity() >= wanted => old,
            _ => BytesMut::with_capacity(wanted),
        };
        buffer.clear();
        buffer.extend_from_slice(&rest);
        let mut len = buffer.len();
        buffer.resize(wanted, 0);
        while len < wanted && !self.ended {
            match self.reader.read(&mut buffer[len..]) {
                Ok(0) => self.ended = true,
                Ok(n) => {
                    len += n;
                    // A pipe gives what it has: do not wait for more than is needed to go on.
                    if len > rest.len() + (CHUNK / 8) {
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
        buffer.truncate(len);
        self.spare = std::mem::replace(&mut self.chunk, buffer.freeze());
    }
}
