use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The maximum number of bytes of an encoded report.
pub const MAX_HEAD: usize = 1 << 20;
/// The maximum number of bytes of output in a report: the most that one call may return.
pub const MAX_BODY: usize = 32 << 20;
/// The maximum number of descriptors in one frame, below the kernel's limit of 253.
const MAX_FDS: usize = 192;
/// The number of bytes to collect before they are written.
const BUFFER: usize = 64 << 10;

/// The reason why a connection cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    #[error("the connection: {0}")]
    Io(#[from] io::Error),
    #[error("the other process closed the connection")]
    Closed,
    #[error("a frame of {head} and {body} bytes, at most {MAX_HEAD} and {MAX_BODY} are possible")]
    Length { head: usize, body: usize },
    #[error("a frame that cannot be decoded: {0}")]
    Frame(#[from] postcard::Error),
    #[error("{expected} descriptors, found {found}")]
    Descriptors { expected: usize, found: usize },
}

/// The writing end. Frames are buffered until [`Sender::flush`].
pub struct Sender {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Sender {
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket, buffer: Vec::new() }
    }

    /// Writes a frame: `head` as its description, `body` as it is.
    ///
    /// # Errors
    ///
    /// Returns an error if the other end is closed.
    pub fn send(&mut self, head: &impl Serialize, body: &[u8]) -> Result<(), ChannelError> {
        let at = self.buffer.len();
        self.buffer.extend_from_slice(&[0; 8]);
        self.buffer = postcard::to_extend(head, std::mem::take(&mut self.buffer))?;
        let bytes = (self.buffer.len() - at - 8) as u32;
        self.buffer[at..at + 4].copy_from_slice(&bytes.to_le_bytes());
        self.buffer[at + 4..at + 8].copy_from_slice(&(body.len() as u32).to_le_bytes());
        self.buffer.extend_from_slice(body);
        if self.buffer.len() >= BUFFER { self.flush() } else { Ok(()) }
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
        while at < self.buffer.len() {
            at += retry(|| rustix::net::send(&self.socket, &self.buffer[at..], SendFlags::NOSIGNAL))?;
        }
        self.buffer.clear();
        Ok(())
    }
}

/// The reading end.
pub struct Receiver {
    socket: OwnedFd,
    buffer: Vec<u8>,
    /// The first byte of `buffer` that was not returned.
    at: usize,
    fds: VecDeque<OwnedFd>,
}

impl Receiver {
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket, buffer: Vec::new(), at: 0, fds: VecDeque::new() }
    }

    /// Returns the socket, to poll it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the next frame that has arrived as a whole, or `None`.
    ///
    /// # Errors
    ///
    /// Returns an error for a frame that is too long or cannot be decoded.
    pub fn next<T: DeserializeOwned>(&mut self, max_head: usize) -> Result<Option<(T, &[u8])>, ChannelError> {
        let word = |at: usize| {
            let bytes = self.buffer.get(at..at + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
        };
        let (Some(head), Some(body)) = (word(self.at), word(self.at + 4)) else { return Ok(None) };
        if head > max_head || body > MAX_BODY {
            return Err(ChannelError::Length { head, body });
        }
        let start = self.at + 8;
        if self.buffer.len() < start + head + body {
            return Ok(None);
        }
        self.at = start + head + body;
        let decoded = postcard::from_bytes(&self.buffer[start..start + head])?;
        Ok(Some((decoded, &self.buffer[start + head..self.at])))
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

    /// Reads what has arrived. With `wait`, blocks until there is something. Returns false if there is
    /// nothing.
    ///
    /// # Errors
    ///
    /// Returns [`ChannelError::Closed`] at the end of the connection.
    pub fn receive(&mut self, wait: bool) -> Result<bool, ChannelError> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let length = self.buffer.len();
        self.buffer.resize(length + BUFFER, 0);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags =
            if wait { RecvFlags::CMSG_CLOEXEC } else { RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT };
        let received = retry(|| {
            recvmsg(&self.socket, &mut [IoSliceMut::new(&mut self.buffer[length..])], &mut control, flags)
        });
        let bytes = match received {
            Ok(received) => received.bytes,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.buffer.truncate(length);
                return Ok(false);
            }
            // The other process ended before it had read everything.
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Err(ChannelError::Closed),
            Err(e) => {
                self.buffer.truncate(length);
                return Err(e.into());
            }
        };
        self.buffer.truncate(length + bytes);
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds);
            }
        }
        if bytes == 0 { Err(ChannelError::Closed) } else { Ok(true) }
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
