//! Socket(TYPE, ADDRESS, PORT | FILENAME, SNAPLEN, CLIENT): a socket of TYPE UDP, TCP, UNIX (stream) or
//! UNIX_DGRAM. It waits for others at its address, or with CLIENT true connects to that of another. What it
//! receives are packets of at most SNAPLEN (2048) bytes: datagrams, or parts of a stream as they come.
//! Packets that are pushed are sent: by a server to the sender of the last datagram, or on the last
//! connection. 1024 packets wait in either direction; further ones are dropped, and streams wait.
//! Expects: anything, pushed.
//! Gives: the packets received.
//! Handlers: received, sent, port.
//! Example: `Socket(UDP, 127.0.0.1, 5000) -> q`

use super::inbox::Inbox;
use super::stream::{Place, Server, Stream, wait_readable};
use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::Batch;
use flame_base::lock;
use flame_click::Ip;
use std::cell::{Cell, RefCell};
use std::io::{Read, Result, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};

const SOURCE: &str = include_str!("socket.rs");

/// Packets that wait in each direction.
const WAITING: usize = 1024;
/// Packets that one task takes.
const BURST: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Udp(SocketAddr),
    Datagram(PathBuf),
    Stream(Place),
}

/// A datagram socket of either family, and the sender of the last datagram.
enum Datagrams {
    Udp(UdpSocket, Mutex<Option<SocketAddr>>),
    Unix(UnixDatagram, Mutex<Option<PathBuf>>),
}

impl Datagrams {
    fn open(kind: &Kind, is_client: bool) -> Result<Option<Self>> {
        Ok(Some(match kind {
            Kind::Udp(address) if is_client => {
                let any = SocketAddr::from(([0, 0, 0, 0], 0));
                let socket = UdpSocket::bind(any)?;
                socket.connect(address)?;
                Self::Udp(socket, Mutex::new(Some(*address)))
            }
            Kind::Udp(address) => Self::Udp(UdpSocket::bind(address)?, Mutex::default()),
            Kind::Datagram(path) if is_client => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                Self::Unix(socket, Mutex::new(Some(path.clone())))
            }
            Kind::Datagram(path) => Self::Unix(UnixDatagram::bind(path)?, Mutex::default()),
            Kind::Stream(_) => return Ok(None),
        }))
    }

    fn receive(&self, buffer: &mut [u8], is_client: bool) -> Result<usize> {
        match self {
            Self::Udp(socket, last) => {
                let (count, from) = socket.recv_from(buffer)?;
                if !is_client {
                    *lock(last) = Some(from);
                }
                Ok(count)
            }
            Self::Unix(socket, last) => {
                let (count, from) = socket.recv_from(buffer)?;
                if !is_client {
                    *lock(last) = from.as_pathname().map(PathBuf::from);
                }
                Ok(count)
            }
        }
    }

    fn send(&self, bytes: &[u8], is_client: bool) -> Result<usize> {
        let nobody = || std::io::Error::from(std::io::ErrorKind::NotConnected);
        match self {
            Self::Udp(socket, _) if is_client => socket.send(bytes),
            Self::Unix(socket, _) if is_client => socket.send(bytes),
            Self::Udp(socket, last) => {
                let to = lock(last).ok_or_else(nobody)?;
                socket.send_to(bytes, to)
            }
            Self::Unix(socket, last) => {
                let to = lock(last).clone().ok_or_else(nobody)?;
                socket.send_to(bytes, to)
            }
        }
    }

    fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Self::Udp(socket, _) => socket.as_fd(),
            Self::Unix(socket, _) => socket.as_fd(),
        }
    }
}

/// The socket with its threads, which end with this value.
struct Wire {
    inbox: Arc<Inbox<Vec<u8>>>,
    outgoing: SyncSender<Vec<u8>>,
    port: u16,
    _server: Option<Server>,
    _stop: Option<UnixStream>,
    /// The connection on which packets are sent.
    stream: Arc<Mutex<Option<Stream>>>,
    file: Option<PathBuf>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.inbox.close();
        if let Some(stream) = lock(&self.stream).take() {
            stream.shut();
        }
        if let Some(file) = &self.file {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Reads parts of a stream to its end.
fn receive(mut stream: Stream, inbox: &Inbox<Vec<u8>>, snaplen: usize) {
    let mut buffer = vec![0; snaplen];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        if !inbox.put(buffer[..count].to_vec()) {
            return;
        }
    }
}

impl Wire {
    fn open(kind: &Kind, is_client: bool, snaplen: usize) -> Result<Self> {
        let inbox: Arc<Inbox<Vec<u8>>> = Arc::new(Inbox::new(WAITING));
        let (outgoing, packets) = sync_channel::<Vec<u8>>(WAITING);
        let stream: Arc<Mutex<Option<Stream>>> = Arc::default();
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.into()).spawn(run).map(drop)
        };
        let mut new = Self {
            inbox: inbox.clone(),
            outgoing,
            port: 0,
            _server: None,
            _stop: None,
            stream: stream.clone(),
            file: None,
        };
        if let Some(socket) = Datagrams::open(kind, is_client)? {
            if let Datagrams::Udp(socket, _) = &socket {
                new.port = socket.local_addr()?.port();
            }
            if let (Kind::Datagram(path), false) = (kind, is_client) {
                new.file = Some(path.clone());
            }
            let (stop, stopped) = UnixStream::pair()?;
            new._stop = Some(stop);
            let socket = Arc::new(socket);
            let sender = socket.clone();
            spawn(
                "flame-receive",
                Box::new(move || {
                    let mut buffer = vec![0; snaplen];
                    while wait_readable(socket.fd(), &stopped) {
                        // An error is about one datagram, such as an undelivered one.
                        let Ok(count) = socket.receive(&mut buffer, is_client) else { continue };
                        if !inbox.put(buffer[..count].to_vec()) {
                            return;
                        }
                    }
                }),
            )?;
            spawn(
                "flame-send",
                Box::new(move || {
                    for packet in packets {
                        let _ = sender.send(&packet, is_client);
                    }
                }),
            )?;
            return Ok(new);
        }
        let Kind::Stream(place) = kind else { return Ok(new) };
        if is_client {
            let connected = Stream::connect(place)?;
            *lock(&stream) = Some(connected.try_clone()?);
            spawn("flame-receive", Box::new(move || receive(connected, &inbox, snaplen)))?;
        } else {
            let current = stream.clone();
            let server = Server::listen(place, None, move |connected| {
                if let Ok(copy) = connected.try_clone() {
                    *lock(&current) = Some(copy);
                }
                receive(connected, &inbox, snaplen);
            })?;
            new.port = server.address.map_or(0, |address| address.port());
            new._server = Some(server);
        }
        spawn("flame-send", Box::new(move || write_all(&packets, &stream)))?;
        Ok(new)
    }
}

fn write_all(packets: &Receiver<Vec<u8>>, stream: &Mutex<Option<Stream>>) {
    for packet in packets {
        let copy = lock(stream).as_ref().and_then(|stream| stream.try_clone().ok());
        let is_sent = copy.is_some_and(|mut stream| stream.write_all(&packet).is_ok());
        if !is_sent && let Some(stream) = lock(stream).take() {
            stream.shut();
        }
    }
}

struct Socket {
    kind: Kind,
    is_client: bool,
    snaplen: usize,
    wire: RefCell<Option<Wire>>,
    received: Cell<u64>,
    sent: Cell<u64>,
}

impl Socket {
    fn open(&self, cx: &Cx<'_>) -> Result<()> {
        let wire = Wire::open(&self.kind, self.is_client, self.snaplen)?;
        wire.inbox.adopt(cx.router.waker(cx.me));
        *self.wire.borrow_mut() = Some(wire);
        Ok(())
    }
}

impl Element for Socket {
    fn initialize(&self, cx: &Cx<'_>) -> std::result::Result<(), String> {
        match self.open(cx) {
            // The element that this one replaces may have it, and hands it over before tasks run.
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse && cx.router.parse.is_some() => {
                cx.reschedule();
                Ok(())
            }
            opened => opened.map_err(|e| e.to_string()),
        }
    }

    fn push(&self, cx: &Cx<'_>, _: usize, mut batch: Batch) {
        let wire = self.wire.borrow();
        for packet in batch.drain(..) {
            let sent = wire.as_ref().map(|wire| wire.outgoing.try_send(packet.data().to_vec()));
            match sent {
                Some(Ok(())) => {
                    add(&self.sent, 1);
                    cx.drop("sent", packet);
                }
                Some(Err(TrySendError::Full(_))) => cx.drop("overrun", packet),
                _ => cx.drop("closed", packet),
            }
        }
    }

    fn run_task(&self, cx: &Cx<'_>) -> bool {
        if self.wire.borrow().is_none()
            && let Err(e) = self.open(cx)
        {
            cx.error(&e.to_string());
            return false;
        }
        let Some(inbox) = self.wire.borrow().as_ref().map(|wire| wire.inbox.clone()) else { return false };
        let batch = inbox.receive(cx, BURST);
        let count = batch.len();
        add(&self.received, count);
        if cx.outputs() > 0 {
            cx.made(count);
            cx.push(0, batch);
        }
        count > 0
    }

    fn cleanup(&self, _: &Cx<'_>) {
        *self.wire.borrow_mut() = None;
    }

    fn counts(&self) -> Vec<&Cell<u64>> {
        vec![&self.received, &self.sent]
    }

    fn take_state(&self, cx: &Cx<'_>, old: &dyn Element) {
        let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() else { return };
        let is_same = (&old.kind, old.is_client, old.snaplen) == (&self.kind, self.is_client, self.snaplen);
        if !is_same {
            return;
        }
        if let Some(wire) = old.wire.borrow_mut().take() {
            wire.inbox.adopt(cx.router.waker(cx.me));
            *self.wire.borrow_mut() = Some(wire);
        }
    }

    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<std::result::Result<String, String>> {
        Some(Ok(match name {
            "received" => self.received.get().to_string(),
            "sent" => self.sent.get().to_string(),
            "port" => self.wire.borrow().as_ref().map_or(0, |wire| wire.port).to_string(),
            _ => return None,
        }))
    }

    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("received", "r"), ("sent", "r"), ("port", "r")]
    }
}

class!(
    SOCKET,
    "Socket",
    "0-1/0-1",
    "h/h",
    ["TYPE", "ADDR", "PORT", "FILENAME", "SNAPLEN", "CLIENT"],
    |args, _| {
        let name: String = args.req("TYPE");
        let name = name.to_uppercase();
        let kind = match name.as_str() {
            "UDP" | "TCP" => {
                let Ip(address) = args.req("ADDR");
                let address = SocketAddr::from((address.to_be_bytes(), args.req::<u16>("PORT")));
                if name == "UDP" { Kind::Udp(address) } else { Kind::Stream(Place::Tcp(address)) }
            }
            "UNIX" => Kind::Stream(Place::Unix(args.req::<String>("FILENAME").into())),
            "UNIX_DGRAM" => Kind::Datagram(args.req::<String>("FILENAME").into()),
            _ => {
                args.error(format!("TYPE: expected UDP, TCP, UNIX or UNIX_DGRAM, found '{name}'"));
                Kind::Datagram(PathBuf::new())
            }
        };
        let snaplen = args.key("SNAPLEN").unwrap_or(2048_usize);
        if !(1..=65_536).contains(&snaplen) {
            args.error(format!("SNAPLEN: expected 1 to 65536, found {snaplen}"));
        }
        Box::new(Socket {
            kind,
            is_client: args.key("CLIENT").unwrap_or(false),
            snaplen: snaplen.clamp(1, 65_536),
            wire: RefCell::default(),
            received: Cell::new(0),
            sent: Cell::new(0),
        })
    }
);
