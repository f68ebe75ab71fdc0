use crate::bodies::{BodyReader, BodyWriter};
use crate::stall::{PausableClock, Stall};
use flame_plan::limits::PROCESS_CLOCK_STEP_MAX;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The maximum number of bytes of an encoded report.
pub const MAX_HEAD: usize = 1 << 20;
/// The maximum number of bytes of output in a report: the most that one call may return.
pub const MAX_BODY: usize = 32 << 20;
/// The maximum number of descriptors in one frame, below the kernel's limit of 253.
const MAX_FDS: usize = 192;
/// The number of bytes to collect before they are written.
const BUFFER: usize = 64 << 10;
/// The number of bytes of bodies in shared memory after which their frames are written. Each time the other
/// end is woken up.
const PLACED: usize = 4 * BUFFER;
/// The bit of a frame's first word that states that the body lies in shared memory: its place follows the
/// head.
const IS_PLACED: u32 = 1 << 31;

/// The reason why a connection cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    #[error("the connection: {0}")]
    Io(#[from] io::Error),
    #[error("the other process closed the connection")]
    Closed,
    #[error("a frame of {head} and {body} bytes, at most {MAX_HEAD} and {MAX_BODY} are possible")]
    Length { head: usize, body: usize },
    #[error("a frame that cannot be decoded (is flame-runner of the same build as flame?): {0}")]
    Frame(#[from] postcard::Error),
    #[error("a body of {bytes} bytes at {place}, which is no place in shared memory for it")]
    Place { place: usize, bytes: usize },
    #[error("descriptors, which come with commands only")]
    Control,
    #[error("{expected} descriptors, found {found}")]
    Descriptors { expected: usize, found: usize },
}

/// The head of a frame, and its body.
pub type Frame<'a, T> = (T, Cow<'a, [u8]>);

/// The writing end. Frames are buffered until [`Sender::flush`].
pub struct Sender {
    socket: OwnedFd,
    buffer: Vec<u8>,
    /// The time that the other end has to take all buffered frames.
    limit: Option<(PausableClock, Duration)>,
    /// The memory for long bodies.
    bodies: Option<BodyWriter>,
    /// The number of bytes there whose frames are buffered.
    placed: usize,
}

impl Sender {
    /// Creates the writing end over a connected stream socket.
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket, buffer: Vec::new(), limit: None, bodies: None, placed: 0 }
    }

    /// Creates an end that fails if the other end takes longer than `limit`, without the time of `stall`, for
    /// what is written at once, however many small parts it takes. The socket must have a write timeout of
    /// less than [`PROCESS_CLOCK_STEP_MAX`].
    pub fn with_limit(socket: OwnedFd, limit: Duration, stall: Arc<Stall>) -> Self {
        let clock = PausableClock::new(stall, PROCESS_CLOCK_STEP_MAX);
        Self { limit: Some((clock, limit)), ..Self::new(socket) }
    }

    /// Passes long bodies through shared memory from now on, as long as there is room.
    pub fn place_bodies(&mut self, bodies: BodyWriter) {
        self.bodies = Some(bodies);
    }

    /// Writes a frame: `head` as its description, `body` as it is.
    ///
    /// # Errors
    ///
    /// Returns an error if the other end is closed.
    pub fn send(&mut self, head: &impl Serialize, body: &[u8]) -> Result<(), ChannelError> {
        let place = self.bodies.as_mut().and_then(|bodies| bodies.place(body));
        let at = self.buffer.len();
        self.buffer.extend_from_slice(&[0; 8]);
        self.buffer = postcard::to_extend(head, std::mem::take(&mut self.buffer))?;
        let bytes = (self.buffer.len() - at - 8) as u32;
        let is_placed = place.map_or(0, |_| IS_PLACED);
        self.buffer[at..at + 4].copy_from_slice(&(bytes | is_placed).to_le_bytes());
        self.buffer[at + 4..at + 8].copy_from_slice(&(body.len() as u32).to_le_bytes());
        match place {
            Some(place) => {
                self.buffer.extend_from_slice(&(place as u32).to_le_bytes());
                self.placed += body.len();
            }
            None => self.buffer.extend_from_slice(body),
        }
        if self.buffer.len() >= BUFFER || self.placed >= PLACED { self.flush() } else { Ok(()) }
    }

    /// Writes a frame with descriptors, and all frames before it.
    ///
    /// # Errors
    ///
    /// Returns an error if the other end is closed, or there are too many descriptors for one frame.
    pub fn send_fds(&mut self, head: &impl Serialize, fds: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        if fds.len() > MAX_FDS {
            return Err(ChannelError::Descriptors { expected: MAX_FDS, found: fds.len() });
        }
        self.flush()?;
        self.buffer.extend_from_slice(&[0; 8]);
        self.buffer = postcard::to_extend(head, std::mem::take(&mut self.buffer))?;
        let bytes = (self.buffer.len() - 8) as u32;
        self.buffer[..4].copy_from_slice(&bytes.to_le_bytes());
        // The descriptors come with the first byte of the frame.
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        let sent = retry(|| {
            sendmsg(&self.socket, &[IoSlice::new(&self.buffer)], &mut control, SendFlags::NOSIGNAL)
        })?;
        self.buffer.drain(..sent);
        self.flush()
    }

    /// Writes all buffered frames. Blocks until the other end has room for them.
    ///
    /// # Errors
    ///
    /// Returns an error if the other end is closed.
    pub fn flush(&mut self) -> Result<(), ChannelError> {
        let mut at = 0;
        let mut begun = None;
        while at < self.buffer.len() {
            if let Some((clock, limit)) = &mut self.limit {
                let now = clock.read(Instant::now());
                if now - *begun.get_or_insert(now) > *limit {
                    return Err(io::Error::from(io::ErrorKind::TimedOut).into());
                }
            }
            match retry(|| rustix::net::send(&self.socket, &self.buffer[at..], SendFlags::NOSIGNAL)) {
                Ok(sent) => at += sent,
                // The socket's timeout is over, and the limit is not.
                Err(e) if self.limit.is_some() && e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.buffer.clear();
        self.placed = 0;
        Ok(())
    }
}

/// The reading end of the worker. It takes no descriptors: the kernel closes those that are sent to it, and
/// whoever sends some could make each read a short one.
pub struct Receiver {
    socket: OwnedFd,
    /// It is filled with zeros as it grows, and not for each read.
    buffer: Vec<u8>,
    /// The first byte of `buffer` that was not returned.
    at: usize,
    /// The end of what has arrived.
    end: usize,
    /// The memory for long bodies.
    bodies: Option<BodyReader>,
}

/// The reading end of a runner, which takes the descriptors that come with commands.
pub struct FdReceiver {
    frames: Receiver,
    fds: VecDeque<OwnedFd>,
}

impl Receiver {
    /// Creates the reading end over a connected stream socket.
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket, buffer: Vec::new(), at: 0, end: 0, bodies: None }
    }

    /// Takes long bodies from shared memory, too, from now on.
    pub fn take_bodies(&mut self, bodies: BodyReader) {
        self.bodies = Some(bodies);
    }

    /// Returns the number of bytes that have arrived and were not returned.
    pub fn waiting(&self) -> usize {
        self.end - self.at
    }

    /// Returns the next frame that has arrived as a whole, or `None`.
    ///
    /// # Errors
    ///
    /// Returns an error for a frame that is too long or cannot be decoded, and for a body that should lie in
    /// shared memory and does not.
    pub fn next<T: DeserializeOwned>(
        &mut self,
        max_head: usize,
    ) -> Result<Option<Frame<'_, T>>, ChannelError> {
        let arrived = &self.buffer[..self.end];
        let word = |at: usize| {
            let bytes = arrived.get(at..at + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        let (Some(first), Some(body)) = (word(self.at), word(self.at + 4)) else { return Ok(None) };
        let (head, is_placed) = ((first & !IS_PLACED) as usize, first & IS_PLACED != 0);
        let body = body as usize;
        if head > max_head || body > MAX_BODY {
            return Err(ChannelError::Length { head, body });
        }
        let start = self.at + 8;
        let rest = start + head;
        let end = rest + if is_placed { 4 } else { body };
        if arrived.len() < end {
            return Ok(None);
        }
        self.at = end;
        let decoded = postcard::from_bytes(&arrived[start..rest])?;
        let body = match word(rest).filter(|_| is_placed) {
            Some(place) => {
                let (place, bytes) = (place as usize, body);
                let taken = self.bodies.as_mut().map(|bodies| bodies.take(place, bytes)).transpose()?;
                Cow::Owned(taken.flatten().ok_or(ChannelError::Place { place, bytes })?)
            }
            None => Cow::Borrowed(&arrived[rest..end]),
        };
        Ok(Some((decoded, body)))
    }

    /// Reads what has arrived. With `wait`, blocks until there is something. Returns false if there is
    /// nothing.
    ///
    /// # Errors
    ///
    /// Returns [`ChannelError::Closed`] at the end of the connection, and [`ChannelError::Control`] if
    /// descriptors were sent.
    pub fn receive(&mut self, wait: bool) -> Result<bool, ChannelError> {
        if let Some(bodies) = &mut self.bodies {
            bodies.tell();
        }
        let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        let mut is_cut = false;
        let received = self.receive_by(|socket, bytes| {
            let mut none = RecvAncillaryBuffer::default();
            let received = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut none, flags)?;
            is_cut = received.flags.contains(ReturnFlags::CTRUNC);
            Ok(received.bytes)
        });
        if is_cut { Err(ChannelError::Control) } else { received }
    }

    fn receive_by(
        &mut self,
        mut receive: impl FnMut(&OwnedFd, &mut [u8]) -> rustix::io::Result<usize>,
    ) -> Result<bool, ChannelError> {
        self.buffer.copy_within(self.at..self.end, 0);
        (self.at, self.end) = (0, self.end - self.at);
        let most = self.end + BUFFER;
        if self.buffer.len() < most {
            self.buffer.resize(most, 0);
        }
        let received = retry(|| receive(&self.socket, &mut self.buffer[self.end..most]));
        self.end += received.as_ref().copied().unwrap_or(0);
        match received {
            Ok(0) => Err(ChannelError::Closed),
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
            // The other process ended before it had read everything.
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => Err(ChannelError::Closed),
            Err(e) => Err(e.into()),
        }
    }
}

impl FdReceiver {
    /// Creates the reading end over a connected stream socket.
    pub fn new(socket: OwnedFd) -> Self {
        Self { frames: Receiver::new(socket), fds: VecDeque::new() }
    }

    /// Returns the socket, to poll it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.frames.socket.as_fd()
    }

    /// Returns the next frame that has arrived as a whole, or `None`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Receiver::next`].
    pub fn next<T: DeserializeOwned>(
        &mut self,
        max_head: usize,
    ) -> Result<Option<Frame<'_, T>>, ChannelError> {
        self.frames.next(max_head)
    }

    /// Returns the next `count` descriptors that arrived.
    ///
    /// # Errors
    ///
    /// Returns an error if there are fewer.
    pub fn take_fds(&mut self, count: usize) -> Result<Vec<OwnedFd>, ChannelError> {
        let found = self.fds.len();
        if found < count {
            return Err(ChannelError::Descriptors { expected: count, found });
        }
        Ok(self.fds.drain(..count).collect())
    }

    /// Reads what has arrived, with its descriptors. With `wait`, blocks until there is something. Returns
    /// false if there is nothing.
    ///
    /// # Errors
    ///
    /// Returns [`ChannelError::Closed`] at the end of the connection.
    pub fn receive(&mut self, wait: bool) -> Result<bool, ChannelError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let flags =
            if wait { RecvFlags::CMSG_CLOEXEC } else { RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT };
        self.frames.receive_by(|socket, bytes| {
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let received = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(new) = message {
                    self.fds.extend(new);
                }
            }
            Ok(received.bytes)
        })
    }
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done.map_err(io::Error::from),
        }
    }
}
