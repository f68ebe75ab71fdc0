//! Reads the bytes of a file, in chunks.
//!
//! Files are read, not mapped: the kernel copies long runs, which suits the processor's prefetcher, and the
//! packets are then in its cache. Walking a mapping from packet to packet took nearly twice as long (1.1
//! million packets, 360 MB), and truncating a mapped file would end the process.

use super::ahead::{Ahead, CHUNK, HEADROOM};
use super::spares::{LARGE, Spares};
use crate::SourceError;
use bytes::{Bytes, BytesMut};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, BufRead, Read, Seek};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const DECOMPRESSING: &str = "decompressing";

/// The number of bytes that are requested of a stream at once.
const PIECE: usize = 1 << 16;

pub enum Input {
    Memory(Bytes),
    Stream(Stream),
}

/// A stream and the chunk of it that is in memory.
pub struct Stream {
    feed: Feed,
    /// The offset in the stream of the first byte of `chunk`.
    pub base: u64,
    pub chunk: Bytes,
    /// The whole buffer of which `chunk` is the filled part. It is zeroed once, not for every chunk.
    whole: Bytes,
    pub ended: bool,
    /// The reason why the stream ended early, if it did.
    pub broken: Option<String>,
    /// The step that gets its bytes, for errors.
    step: &'static str,
    consumed: Arc<AtomicU64>,
    pub total: Option<u64>,
    /// The regular file of the stream, if it is one.
    file: Option<Arc<File>>,
    /// Whether a pipe tells that nothing comes.
    tells: Arc<AtomicBool>,
}

/// A pipe or a device. While it `tells`, a read fails with [`io::ErrorKind::WouldBlock`] once nothing came
/// for a while. A decoder passes that on, and continues where it was.
struct Pipe {
    file: File,
    tells: Arc<AtomicBool>,
}

impl Pipe {
    /// Waits for bytes and returns whether none came in time.
    fn is_quiet(&self, time: Option<&Timespec>) -> bool {
        let mut fds = [PollFd::new(&self.file, PollFlags::IN)];
        // After another error than a signal, the read states what is wrong.
        matches!(poll(&mut fds, time), Ok(0) | Err(Errno::INTR))
    }
}

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let tells = self.tells.load(Ordering::Relaxed);
            if tells && self.is_quiet(Some(&WAIT)) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            match self.file.read(into) {
                // The maker of the pipe decided that its reads do not wait.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && !tells => drop(self.is_quiet(None)),
                read => return read,
            }
        }
    }
}

fn is_late(tells: &AtomicBool, begun: &mut Option<Instant>) -> bool {
    tells.load(Ordering::Relaxed) && begun.get_or_insert_with(Instant::now).elapsed() >= QUIET
}

/// The time without a packet after which a pipe is quiet, and the same for a wait of bytes.
const QUIET: Duration = Duration::from_millis(200);
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: QUIET.subsec_nanos() as i64 };

/// The origin of the chunks of a stream.
enum Feed {
    /// A regular file that is not compressed.
    File(Arc<Ahead>),
    Other(Box<dyn Read + Send>, Arc<Spares>),
}

impl Input {
    /// Opens a file, whose buffers are from `spares`.
    pub fn open(path: &Path, spares: &Arc<Spares>) -> Result<Self, SourceError> {
        let open = || {
            if path.as_os_str() == "-" {
                // Without the buffer of the standard library, in which bytes would wait unseen.
                return piped(File::from(io::stdin().as_fd().try_clone_to_owned()?), spares);
            }
            let file = File::open(path)?;
            if file.metadata()?.is_file() {
                return Stream::of_file(Arc::new(file), spares);
            }
            piped(file, spares)
        };
        open().map(Self::Stream).map_err(|error| SourceError::Io { place: path.display().to_string(), error })
    }

    /// Opens a regular file from its beginning, once more, whose name is `name`.
    pub fn reopen(file: Arc<File>, name: &str, spares: &Arc<Spares>) -> Result<Self, SourceError> {
        let opened = Stream::of_file(file, spares);
        opened.map(Self::Stream).map_err(|error| SourceError::Io { place: name.to_owned(), error })
    }

    /// Returns the file, if it can be read once more from its beginning.
    pub fn file(&self) -> Option<&Arc<File>> {
        match self {
            Self::Stream(stream) => stream.file.as_ref(),
            Self::Memory(_) => None,
        }
    }

    /// Gives the buffer back of a stream that is read no further.
    pub fn give_back(self, spares: &Spares) {
        if let Self::Stream(Stream { chunk, whole, .. }) = self {
            drop(chunk);
            spares.give(whole);
        }
    }

    /// Returns the file of which other threads may read parts ahead, if it is one.
    pub fn ahead(&self) -> Option<&Arc<Ahead>> {
        match self {
            Self::Stream(Stream { feed: Feed::File(ahead), .. }) => Some(ahead),
            Self::Stream(_) | Self::Memory(_) => None,
        }
    }

    /// Returns whether it is no regular file, so that bytes may come that do not exist yet.
    pub fn waits(&self) -> bool {
        matches!(self, Self::Stream(Stream { total: None, .. }))
    }

    /// Returns the number of bytes of the file read so far, and in total.
    pub fn consumed(&self, position: u64) -> (u64, Option<u64>) {
        match self {
            Self::Memory(map) => (position, Some(map.len() as u64)),
            Self::Stream(s) => (s.consumed.load(Ordering::Relaxed), s.total),
        }
    }
}

/// A form of compression.
enum Compression {
    Gzip,
    Zstd,
}

/// Returns how a file is compressed, by its first bytes.
fn compression(head: &[u8]) -> Option<Compression> {
    match head {
        [0x1f, 0x8b, ..] => Some(Compression::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Compression::Zstd),
        // A skippable frame (RFC 8878, section 3.1.2).
        [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Compression::Zstd),
        _ => None,
    }
}

/// The members of a gzip file one after the other. Zeros after them are padding, as of tapes.
enum Members<R> {
    Inside(Box<flate2::bufread::GzDecoder<R>>),
    Between(R),
    /// Another state is being computed.
    Changing,
}

impl<R: BufRead> Members<R> {
    fn new(reader: R) -> Self {
        Self::Inside(Box::new(flate2::bufread::GzDecoder::new(reader)))
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self {
                Self::Inside(decoder) => match decoder.read(into) {
                    Ok(0) if !into.is_empty() => {}
                    read => return read,
                },
                Self::Between(reader) => {
                    let bytes = reader.fill_buf()?;
                    if bytes.is_empty() {
                        return Ok(0);
                    }
                    let padding = bytes.iter().take_while(|byte| **byte == 0).count();
                    if padding > 0 {
                        reader.consume(padding);
                        continue;
                    }
                }
                Self::Changing => return Ok(0),
            }
            *self = match std::mem::replace(self, Self::Changing) {
                Self::Inside(decoder) => Self::Between(decoder.into_inner()),
                Self::Between(reader) => Self::new(reader),
                Self::Changing => return Ok(0),
            };
        }
    }
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

/// Reads a pipe or a device.
fn piped(file: File, spares: &Arc<Spares>) -> io::Result<Stream> {
    let tells = Arc::<AtomicBool>::default();
    let pipe = Pipe { file, tells: tells.clone() };
    Ok(Stream { tells, ..stream(Box::new(pipe), None, spares)? })
}

fn stream(inner: Box<dyn Read + Send>, total: Option<u64>, spares: &Arc<Spares>) -> io::Result<Stream> {
    let consumed = Arc::new(AtomicU64::new(0));
    let mut counted = Counted { inner, bytes: consumed.clone() };
    let mut head = Vec::new();
    (&mut counted).take(4).read_to_end(&mut head)?;
    let found = compression(&head);
    let is_compressed = found.is_some();
    let whole = io::Cursor::new(head).chain(counted);
    let reader: Box<dyn Read + Send> = match found {
        Some(Compression::Gzip) => Box::new(Members::new(io::BufReader::with_capacity(1 << 16, whole))),
        Some(Compression::Zstd) => Box::new(zstd::stream::read::Decoder::new(whole)?),
        None => Box::new(whole),
    };
    let step = if is_compressed { DECOMPRESSING } else { "reading" };
    Ok(Stream { step, ..Stream::new(Feed::Other(reader, spares.clone()), consumed, total) })
}

impl Stream {
    fn new(feed: Feed, consumed: Arc<AtomicU64>, total: Option<u64>) -> Self {
        let (chunk, whole, tells) = Default::default();
        Self {
            feed,
            base: 0,
            chunk,
            whole,
            ended: false,
            broken: None,
            step: "reading",
            consumed,
            total,
            file: None,
            tells,
        }
    }

    /// Lets [`Stream::advance`] return false instead of waiting for long.
    pub fn tell_when_quiet(&mut self) {
        self.tells.store(true, Ordering::Relaxed);
    }

    /// Returns whether to tell that no packet came, if none did since `begun`: its bytes may come one by one.
    pub fn is_late(&self, begun: &mut Option<Instant>) -> bool {
        is_late(&self.tells, begun)
    }

    /// Reads a regular file from its beginning.
    fn of_file(file: Arc<File>, spares: &Arc<Spares>) -> io::Result<Self> {
        let total = Some(file.metadata()?.len());
        let mut head = [0; 4];
        let length = file.read_at(&mut head, 0)?;
        let stream = match compression(&head[..length]) {
            Some(_) => {
                (&*file).rewind()?;
                stream(Box::new(file.clone()), total, spares)?
            }
            None => {
                let ahead = Arc::new(Ahead::new(file.clone(), spares.clone()));
                Self::new(Feed::File(ahead), Arc::default(), total)
            }
        };
        Ok(Self { file: Some(file), ..stream })
    }

    /// Drops the bytes before `from` and reads further bytes, so that there are `needed` unless the stream
    /// ends or is quiet. `chunk` then begins at `from`. Returns false if nothing came.
    pub fn advance(&mut self, from: usize, needed: usize) -> bool {
        let rest = self.chunk.slice(from..);
        self.base += from as u64;
        let used = std::mem::take(&mut self.whole);
        let range = if let Feed::File(ahead) = &self.feed {
            let ahead = ahead.clone();
            self.take(&ahead, &rest, needed, used)
        } else {
            self.fill(&rest, needed, used)
        };
        let came = range.len() > rest.len() || self.ended;
        self.chunk = self.whole.slice(range);
        came
    }

    /// Copies the bytes from `from` on if they lie in a large buffer, in which they are few. Returns the size
    /// of that, if so: `chunk` then begins at `from`.
    pub fn let_go(&mut self, from: usize) -> Option<usize> {
        let large = self.whole.len();
        (large >= LARGE).then(|| {
            self.chunk = Bytes::copy_from_slice(&self.chunk[from..]);
            self.whole = Bytes::new();
            self.base += from as u64;
            large
        })
    }

    /// Puts `rest` and the next chunk of a file into one buffer, and returns their place.
    fn take(&mut self, ahead: &Ahead, rest: &[u8], needed: usize, used: Bytes) -> Range<usize> {
        let mut chunk = ahead.take(used);
        let mut added = chunk.len;
        let range = if rest.len() <= HEADROOM {
            let start = chunk.start - rest.len();
            chunk.buffer[start..chunk.start].copy_from_slice(rest);
            self.whole = chunk.buffer.freeze();
            start..chunk.start + chunk.len
        } else {
            // The bytes of a long item are copied once.
            let mut buffer = BytesMut::with_capacity(needed.max(rest.len()) + CHUNK);
            buffer.extend_from_slice(rest);
            loop {
                buffer.extend_from_slice(&chunk.buffer[chunk.start..chunk.start + chunk.len]);
                if chunk.len < CHUNK || buffer.len() >= needed {
                    break;
                }
                chunk = ahead.take(chunk.buffer.freeze());
                added += chunk.len;
            }
            self.whole = ahead.freeze(buffer);
            0..self.whole.len()
        };
        self.ended = chunk.len < CHUNK;
        self.broken = chunk.broken.map(|error| format!("{}: {error}", self.step));
        self.consumed.fetch_add(added as u64, Ordering::Relaxed);
        range
    }

    /// Puts `rest` and the bytes that follow into one buffer, and returns their place.
    fn fill(&mut self, rest: &[u8], needed: usize, used: Bytes) -> Range<usize> {
        let Feed::Other(reader, spares) = &mut self.feed else { return 0..0 };
        spares.give(used);
        let mut buffer = spares.take(if needed < CHUNK / 2 { CHUNK } else { needed + CHUNK });
        let (mut len, mut begun) = (rest.len(), None);
        buffer[..len].copy_from_slice(rest);
        // A decoder returns nothing of a damaged piece, whose length must not depend on the buffer.
        while len + PIECE <= buffer.len() && !self.ended {
            match reader.read(&mut buffer[len..len + PIECE]) {
                Ok(0) => self.ended = true,
                Ok(n) => {
                    len += n;
                    // A pipe returns the bytes it has: do not wait for more than the next item.
                    if len >= needed && (self.total.is_none() || len > rest.len() + PIECE) {
                        break;
                    }
                    if is_late(&self.tells, &mut begun) {
                        break;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // What has come of an item is kept until the rest does.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && self.total.is_none() => break,
                Err(e) => {
                    self.ended = true;
                    self.broken = Some(format!("{}: {e}", self.step));
                }
            }
        }
        self.whole = spares.freeze(buffer);
        0..len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Yields its bytes one by one, and twice none before each of them but the first four.
    struct Slow(Vec<u8>, usize, u8);

    impl Read for Slow {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.2 = (self.2 + 1) % 3;
            if self.1 >= 4 && self.2 != 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let byte = self.0.get(self.1);
            byte.iter().for_each(|byte| into[0] = **byte);
            self.1 += byte.iter().len();
            Ok(byte.iter().len())
        }
    }

    #[test]
    fn a_decoder_continues_where_nothing_came() {
        let plain: Vec<u8> = (0..3000u32).flat_map(|n| (n * n / 7).to_le_bytes()).collect();
        let gzip = |bytes: &[u8]| {
            // A header of several fields, and two members.
            let gzip = flate2::GzBuilder::new().filename("name").comment("comment").extra(vec![7; 20]);
            let mut encoder = gzip.write(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        };
        let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 3).unwrap();
        let (first, second) = plain.split_at(5000);
        let skipped = vec![0x5e, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
        let forms = [
            plain.clone(),
            [gzip(first), gzip(second)].concat(),
            [gzip(first), vec![0; 700], gzip(second), vec![0; 300_000]].concat(),
            [zstd(first), zstd(second)].concat(),
            [skipped.clone(), zstd(first), skipped, zstd(second)].concat(),
        ];
        for form in forms {
            let length = form.len();
            let spares = Arc::<Spares>::default();
            let mut stream = stream(Box::new(Slow(form, 0, 0)), None, &spares).unwrap();
            let (mut found, mut quiet) = (Vec::new(), 0);
            while !stream.ended {
                quiet += usize::from(!stream.advance(stream.chunk.len(), 100));
                found.extend_from_slice(&stream.chunk);
            }
            assert!(found == plain && stream.broken.is_none(), "{:?}", stream.broken);
            assert!(quiet > 0 && stream.consumed.load(Ordering::Relaxed) == length as u64, "{quiet}");
        }
    }
}
