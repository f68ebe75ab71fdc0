//! A node: one socket, one thread.

use crate::certificates::{Judge, own};
use crate::config::Config;
use flame_active_link::{Cause as LinkCause, Clock, Limit, Links, Time};
use flame_active_node::{Account, Cause, Node, Output, Services};
use flame_active_sandbox::{Compile, Sandbox};
use flame_capsule::{Key, MAX_MESSAGE, Payer, Place};
use flame_trust::Policy;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::{ErrorKind, PipeReader, Read};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time between ticks: keys are exchanged, and revocations are read.
const TICK: u64 = 500;
/// The ticks after which the latest time is stored.
const STORE: u64 = 60;
/// The most bytes of a datagram, with header and authenticator.
pub const MAX_DATAGRAM: usize = MAX_MESSAGE + flame_active_link::OVERHEAD;

/// The reason why a node cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{0}: {1}; name an address of this machine in `listen`, and a port that is free")]
    Bind(SocketAddr, std::io::Error),
    #[error("socket: {0}")]
    Socket(std::io::Error),
    #[error("{0}: {1}: it keeps the latest time over restarts, so that no certificate becomes valid again")]
    Time(PathBuf, String),
    #[error(
        "the credential has {0} bytes with its proof, and an answer of the exchange takes {1}: narrow it less"
    )]
    Identity(usize, usize),
    #[error("the sandbox: {0}")]
    Sandbox(String),
}

/// What a node has done.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Refusals, by cause.
    pub causes: Vec<(Cause, u64)>,
    pub links: Vec<(LinkCause, u64)>,
    pub accounts: BTreeMap<Payer, Account>,
    /// Deliveries for which no host waited.
    pub undelivered: u64,
}

/// The output of a node.
struct Wire<'a> {
    socket: &'a UdpSocket,
    started: Instant,
    undelivered: u64,
}

impl Output for Wire<'_> {
    fn send(&mut self, to: SocketAddr, datagram: &[u8], _: Option<Payer>) {
        // What a full queue loses is lost as on any link.
        let _ = self.socket.send_to(datagram, to);
    }

    fn deliver(&mut self, _: Payer, _: Key, _: Place, _: &[u8]) {
        self.undelivered += 1;
    }

    fn instant(&mut self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Returns the clocks of this machine; `started` is any moment.
#[must_use]
pub fn clock(started: Instant) -> Clock {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Clock { wall: ms(wall), steady: ms(started.elapsed()) }
}

/// Makes the links of a node or host.
pub fn links(config: &Config, clock: Clock) -> Result<Links<Judge>, ServeError> {
    let stored = config.time.as_deref().map_or(Ok(0), stored)?;
    let entropy = Box::new(|bytes: &mut [u8]| {
        // Without random bytes there are no keys. The kernel has them from its start on.
        getrandom::fill(bytes).expect("the kernel gives random bytes");
    });
    let identity = own(&config.credential, &config.secret);
    let time = Time::begin(stored, clock);
    Links::new(identity, config.judge(), Limit::default(), entropy, time)
        .map_err(|(found, most)| ServeError::Identity(found, most))
}

fn stored(path: &Path) -> Result<u64, ServeError> {
    let fail = |reason: String| ServeError::Time(path.to_owned(), reason);
    match std::fs::read_to_string(path) {
        Ok(text) => {
            text.trim().parse().map_err(|e| fail(format!("found {:?}, expected a number: {e}", text.trim())))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(error) => Err(fail(error.to_string())),
    }
}

/// Stores the latest time: all of it, or what was there before.
fn store(path: &Path, time: u64) -> std::io::Result<()> {
    let next = path.with_extension("new");
    std::fs::write(&next, time.to_string())?;
    std::fs::rename(&next, path)
}

/// Revocations, as the policy's file has them.
struct Revocations {
    policy: PathBuf,
    seen: Option<SystemTime>,
    file: Option<PathBuf>,
}

impl Revocations {
    fn new(config: &Config) -> Self {
        let mut new =
            Self { policy: config.policy_path.clone(), seen: None, file: config.policy.revocations.clone() };
        new.seen = new.changed();
        new
    }

    fn changed(&self) -> Option<SystemTime> {
        self.file.as_ref().and_then(|file| std::fs::metadata(file).ok()?.modified().ok())
    }

    /// Returns the policy as it is now, if its revocations have changed.
    fn read(&mut self) -> Option<Policy> {
        let now = self.changed();
        if now == self.seen {
            return None;
        }
        let policy = Policy::open(&self.policy);
        match policy {
            Ok(policy) => {
                self.seen = now;
                Some(policy)
            }
            Err(error) => {
                tracing::warn!("{}: {error}: the revocations before stay", self.policy.display());
                None
            }
        }
    }
}

/// Runs a node until `stop` is set, on a socket that `begun` learns the address of.
///
/// # Errors
///
/// Returns an error if the node cannot begin, or the socket fails.
pub fn serve(
    config: Config,
    mut compile: impl Compile,
    services: impl Services,
    mut clock: impl FnMut() -> Clock,
    stop: &AtomicBool,
    begun: impl FnOnce(SocketAddr),
) -> Result<Report, ServeError> {
    let socket = UdpSocket::bind(config.listen).map_err(|e| ServeError::Bind(config.listen, e))?;
    socket.set_read_timeout(Some(Duration::from_millis(TICK / 2))).map_err(ServeError::Socket)?;
    let links = links(&config, clock())?;
    let mut revocations = Revocations::new(&config);
    let signal = compile.signal();
    let sandbox = Sandbox::new(compile).map_err(|e| ServeError::Sandbox(e.to_string()))?;
    let mut node = Node::new(config.settings, links, sandbox, services);
    let mut signals = [signal, node.signal()];
    let mut wire = Wire { socket: &socket, started: Instant::now(), undelivered: 0 };
    begun(socket.local_addr().map_err(ServeError::Socket)?);
    let mut buffer = vec![0; MAX_DATAGRAM + 1];
    let (mut last, mut ticks) = (None, 0_u64);
    while !stop.load(Ordering::Relaxed) {
        let now = clock();
        if last.is_none_or(|last| now.steady.saturating_sub(last) >= TICK) {
            last = Some(now.steady);
            node.connect(now, &mut wire);
            if let Some(policy) = revocations.read() {
                node.links().certificates().set(policy);
                // All are judged again, by the exchange that follows.
                node.links().end(|_| true);
                node.connect(now, &mut wire);
            }
            if ticks.is_multiple_of(STORE) {
                keep(config.time.as_deref(), node.links().advance(now));
            }
            ticks += 1;
        }
        node.resume(now, &mut wire);
        if node.is_making() && signals.iter().any(Option::is_some) && !comes_first(&socket, &mut signals)? {
            continue;
        }
        match socket.recv_from(&mut buffer) {
            Ok((length, from)) => node.handle(from, &mut buffer[..length], clock(), &mut wire),
            // The kernel reports here that no process listened where a datagram went before.
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(ServeError::Socket(error)),
        }
    }
    keep(config.time.as_deref(), node.links().advance(clock()));
    let causes = Cause::ALL.iter().map(|cause| (*cause, node.counts().of(*cause))).filter(|(_, n)| *n > 0);
    let causes = causes.collect();
    let counts = node.links().counts().clone();
    let links =
        LinkCause::ALL.iter().map(|cause| (*cause, counts.of(*cause))).filter(|(_, n)| *n > 0).collect();
    Ok(Report { causes, links, accounts: node.accounts().clone(), undelivered: wire.undelivered })
}

/// Waits for a datagram or a signal of the compiler or of services, for at most half a tick. Returns whether
/// a datagram is there.
fn comes_first(socket: &UdpSocket, signals: &mut [Option<PipeReader>; 2]) -> Result<bool, ServeError> {
    let half = Timespec { tv_sec: 0, tv_nsec: i64::try_from(TICK).unwrap_or(0) * 500_000 };
    // The socket stands in for a signal that is not there.
    let of = |at: usize| {
        let fd = signals[at].as_ref().map_or(socket.as_fd(), AsFd::as_fd);
        PollFd::from_borrowed_fd(fd, PollFlags::IN)
    };
    let mut all = [PollFd::new(socket, PollFlags::IN), of(0), of(1)];
    match poll(&mut all, Some(&half)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(ServeError::Socket(error.into())),
    }
    let [datagram, ready @ ..] = all.map(|one| !one.revents().is_empty());
    for (signal, is_ready) in signals.iter_mut().zip(ready) {
        let Some(signal) = signal.as_mut().filter(|_| is_ready) else { continue };
        match signal.read(&mut [0; 4096]) {
            Ok(1..) => {}
            _ => return Err(ServeError::Sandbox("the compiler or the services have ended".to_owned())),
        }
    }
    Ok(datagram)
}

fn keep(path: Option<&Path>, time: u64) {
    if let Some(path) = path
        && let Err(error) = store(path, time)
    {
        tracing::warn!("{}: {error}: the latest time is not kept", path.display());
    }
}

/// Returns whether a socket's error leaves it as it was.
pub fn is_passing(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted | ErrorKind::ConnectionRefused
    )
}
