//! Stream sockets of both families, and the threads that accept connections.

use flame_base::lock;
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The most connections of one element at a time. A further one ends that which has been idle for longest.
const MOST: usize = 64;
/// Longest time in which a client takes the bytes sent to it.
const WRITE_MAX: Duration = Duration::from_secs(10);
/// The time after which what failed, although poll reported it as ready, is tried again.
pub const PAUSE: Duration = Duration::from_millis(50);

/// The place of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

enum Connection {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection.
pub struct Stream {
    connection: Connection,
    /// The time at which it last received something. All handles of the connection share it.
    heard: Arc<Mutex<Instant>>,
}

impl Stream {
    /// Connects to a server; over TCP, it waits for at most 10 seconds.
    ///
    /// # Errors
    ///
    /// Returns an error if no server accepts the connection.
    pub fn connect(place: &Place) -> Result<Self> {
        Ok(Self::of(match place {
            Place::Tcp(address) => Connection::Tcp(TcpStream::connect_timeout(address, WRITE_MAX)?),
            Place::Unix(path) => Connection::Unix(UnixStream::connect(path)?),
        }))
    }

    fn of(connection: Connection) -> Self {
        Self { connection, heard: Arc::new(Mutex::new(Instant::now())) }
    }

    /// Returns a second handle of the connection, for a thread that reads while another one writes.
    ///
    /// # Errors
    ///
    /// Returns an error if the process may open no further file.
    pub fn try_clone(&self) -> Result<Self> {
        let connection = match &self.connection {
            Connection::Tcp(stream) => Connection::Tcp(stream.try_clone()?),
            Connection::Unix(stream) => Connection::Unix(stream.try_clone()?),
        };
        Ok(Self { connection, heard: self.heard.clone() })
    }

    /// Ends both directions: threads that read or write return.
    pub fn shut(&self) {
        // It may have ended by itself.
        let _ = match &self.connection {
            Connection::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Connection::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Prepares the stream for calls that wait. A read fails after `idle` without data.
    fn prepare(&self, idle: Option<Duration>) -> Result<()> {
        match &self.connection {
            Connection::Tcp(stream) => {
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(idle)?;
                stream.set_write_timeout(Some(WRITE_MAX))
            }
            Connection::Unix(stream) => {
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(idle)?;
                stream.set_write_timeout(Some(WRITE_MAX))
            }
        }
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        let count = match &mut self.connection {
            Connection::Tcp(stream) => stream.read(bytes),
            Connection::Unix(stream) => stream.read(bytes),
        }?;
        *lock(&self.heard) = Instant::now();
        Ok(count)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match &mut self.connection {
            Connection::Tcp(stream) => stream.write(bytes),
            Connection::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Waits until `fd` is readable. Returns false if the other end of `stop` is closed.
pub fn wait_readable(fd: BorrowedFd<'_>, stop: &UnixStream) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
    // An interrupted call is repeated by the caller.
    let _ = poll(&mut fds, None);
    !fds[1].revents().intersects(PollFlags::IN | PollFlags::HUP)
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    fn accept(&self, idle: Option<Duration>) -> Result<Stream> {
        let stream = Stream::of(match self {
            Self::Tcp(listener) => Connection::Tcp(listener.accept()?.0),
            Self::Unix(listener) => Connection::Unix(listener.accept()?.0),
        });
        stream.prepare(idle)?;
        Ok(stream)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

/// A socket that accepts connections as long as this value lives. Each has a thread.
pub struct Server {
    /// The other end is closed with this one, which ends the accepting thread.
    _stop: UnixStream,
    streams: Arc<Mutex<Vec<(u64, Stream)>>>,
    place: Place,
    /// The address in use, whose port the kernel has chosen if it was 0.
    pub address: Option<SocketAddr>,
}

impl Server {
    /// Listens at a place. Each connection is handed to `serve` on a thread of its own. Reading fails when
    /// nothing comes for `idle`, and a further connection ends the one that has been idle for longest.
    pub fn listen(
        place: &Place,
        idle: Option<Duration>,
        serve: impl Fn(Stream) + Send + Sync + 'static,
    ) -> Result<Self> {
        let listener = match place {
            Place::Tcp(address) => Listener::Tcp(TcpListener::bind(address)?),
            Place::Unix(path) => Listener::Unix(UnixListener::bind(path)?),
        };
        let address = match &listener {
            Listener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                listener.local_addr().ok()
            }
            Listener::Unix(listener) => {
                listener.set_nonblocking(true)?;
                None
            }
        };
        let (stop, stopped) = UnixStream::pair()?;
        let streams: Arc<Mutex<Vec<(u64, Stream)>>> = Arc::default();
        let (all, serve) = (streams.clone(), Arc::new(serve));
        let accept = move || {
            let mut count = 0_u64;
            loop {
                if !wait_readable(listener.fd(), &stopped) {
                    return;
                }
                let Ok(stream) = listener.accept(idle) else {
                    // The listener stays readable while no descriptor is left for the connection.
                    std::thread::sleep(PAUSE);
                    continue;
                };
                let Ok(kept) = stream.try_clone() else { continue };
                count += 1;
                let id = count;
                {
                    let mut streams = lock(&all);
                    if streams.len() >= MOST
                        && let Some(at) = (0..streams.len()).min_by_key(|at| *lock(&streams[*at].1.heard))
                    {
                        streams.swap_remove(at).1.shut();
                    }
                    streams.push((id, kept));
                }
                let (all, serve) = (all.clone(), serve.clone());
                let forget = move || {
                    let mut streams = lock(&all);
                    streams.retain(|(other, _)| *other != id);
                };
                let forget_too = forget.clone();
                let run = move || {
                    serve(stream);
                    forget();
                };
                if std::thread::Builder::new().name("flame-client".into()).spawn(run).is_err() {
                    forget_too();
                }
            }
        };
        std::thread::Builder::new().name("flame-accept".into()).spawn(accept)?;
        Ok(Self { _stop: stop, streams, place: place.clone(), address })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let streams = lock(&self.streams);
        streams.iter().for_each(|(_, stream)| stream.shut());
        if let Place::Unix(path) = &self.place {
            // Somebody else may have removed it.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_clients_end_and_never_keep_others_out() {
        let folder = std::env::temp_dir().join(format!("flame-stream-{}", std::process::id()));
        let place = Place::Unix(folder.clone());
        let serve = |mut stream: Stream| {
            let mut byte = [0];
            while stream.read(&mut byte).is_ok_and(|n| n > 0) && stream.write_all(&byte).is_ok() {}
            stream.shut();
        };
        let server = Server::listen(&place, None, serve).unwrap();
        let ask = |stream: &mut Stream| {
            let mut byte = [0];
            stream.write_all(b"x").is_ok() && stream.read(&mut byte).is_ok_and(|n| n == 1)
        };
        let mut all: Vec<Stream> = Vec::new();
        for _ in 0..MOST + 20 {
            let mut client = Stream::connect(&place).unwrap();
            assert!(ask(&mut client), "client {}", all.len());
            all.push(client);
        }
        let ended: Vec<bool> = all.iter_mut().map(|client| !ask(client)).collect();
        assert!(ended[..20].iter().all(|e| *e) && !ended[20..].iter().any(|e| *e), "{ended:?}");
        drop(server);
        let server = Server::listen(&place, Some(Duration::from_millis(50)), serve).unwrap();
        let mut client = Stream::connect(&place).unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "it ends when nothing is asked");
        drop(server);
        assert!(!folder.exists());
    }
}
