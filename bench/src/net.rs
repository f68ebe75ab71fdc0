//! Namespaces with veth pairs, and the programs that send and receive in them.

#![allow(unsafe_code)] // It asks the kernel for times, and sends signals.

use crate::row::Row;
use std::ffi::OsStr;
use std::io;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The length of a frame in which the sender sends, if nothing else is stated.
pub const FRAME: usize = 100;

/// Returns the rows that `measure` yields in a new namespace with these pairs of interfaces, which the kernel
/// sends nothing to.
pub fn within_namespace(
    name: &str,
    pairs: &[&str],
    measure: impl FnOnce(&str) -> io::Result<Vec<Row>>,
) -> Vec<Row> {
    in_namespace(pairs, measure).unwrap_or_else(|reason| {
        eprintln!("left out: {name} (it needs root and two cores): {reason}");
        Vec::new()
    })
}

/// Returns the result of `measure` in such a namespace.
pub fn in_namespace<T>(pairs: &[&str], measure: impl FnOnce(&str) -> io::Result<T>) -> io::Result<T> {
    let namespace = format!("flame-b{}", std::process::id());
    let links = pairs.iter().filter_map(|pair| pair.split_once(' ')).map(|(a, b)| {
        format!("ip link add {a} type veth peer name {b}; ip link set {a} up; ip link set {b} up")
    });
    let quiet = "for c in all default; do echo 1 > /proc/sys/net/ipv6/conf/$c/disable_ipv6; done";
    let script: Vec<_> = std::iter::once(quiet.to_owned()).chain(links).collect();
    run(&["ip", "netns", "add", &namespace])?;
    let measured = inside(&namespace, &script.join("; ")).and_then(|()| measure(&namespace));
    let _ = run(&["ip", "netns", "del", &namespace]);
    measured
}

pub fn run(words: &[&str]) -> io::Result<()> {
    let status = Command::new(words[0]).args(&words[1..]).stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{}: {status}", words.join(" ")))) }
}

/// Runs a shell script in a namespace.
pub fn inside(namespace: &str, script: &str) -> io::Result<()> {
    run(&["ip", "netns", "exec", namespace, "sh", "-ec", script])
}

/// Returns a command in a namespace, on one core or on several (`0,1`).
pub fn command(namespace: &str, cores: &str, words: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, "taskset", "-c", cores]).args(words);
    command
}

/// The packets of a sender, and the seconds that it took.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub packets: f64,
    pub seconds: f64,
}

/// Sends packets from `tx0` on a core: `rate` a second or, for 0, as fast as possible.
pub fn send(namespace: &str, core: &str, length: usize, packets: u64, rate: f64) -> io::Result<Sent> {
    let me = std::env::current_exe()?.to_string_lossy().into_owned();
    let words = [length.to_string(), packets.to_string(), rate.to_string()];
    let words: Vec<&str> =
        [me.as_str(), "--send", "tx0"].into_iter().chain(words.iter().map(|w| &**w)).collect();
    let out = command(namespace, core, &words).output()?;
    let text = String::from_utf8_lossy(&out.stdout);
    let mut numbers = text.split_whitespace().filter_map(|word| word.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(packets), Some(seconds)) => Ok(Sent { packets, seconds }),
        _ => Err(io::Error::other(format!("the sender: {}", String::from_utf8_lossy(&out.stderr)))),
    }
}

/// A receiver on `rx0`, which is killed when it is dropped.
pub struct Receiver {
    child: Option<Child>,
    /// Its processor time when it began to wait for packets.
    settled: f64,
}

impl Receiver {
    /// Starts a command on cores of its own and waits until it has a socket.
    pub fn start(namespace: &str, cores: &str, words: &[impl AsRef<OsStr>]) -> io::Result<Self> {
        let child = command(namespace, cores, words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut receiver = Self { child: Some(child), settled: 0.0 };
        receiver.settled = await_socket(namespace, receiver.child_mut()?)?;
        Ok(receiver)
    }

    fn child_mut(&mut self) -> io::Result<&mut Child> {
        self.child.as_mut().ok_or_else(|| io::Error::other("the receiver has ended"))
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Returns its processor time since it began to wait for packets.
    pub fn seconds(&mut self) -> io::Result<f64> {
        let settled = self.settled;
        Ok(processor_seconds(self.child_mut()?)? - settled)
    }

    /// Ends it in order, and returns its output.
    pub fn end(mut self) -> io::Result<Output> {
        let child = self.child.take().ok_or_else(|| io::Error::other("the receiver has ended"))?;
        // SAFETY: sends a signal to a child that has not been waited for, so the id is still the child's.
        unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
        child.wait_with_output()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits until the namespace has a socket bound to all protocols, or an interface with a program before its
/// sockets, and returns the receiver's processor time so far.
pub fn await_socket(namespace: &str, child: &mut Child) -> io::Result<f64> {
    let since = Instant::now();
    let sockets = ["netns", "exec", namespace, "sh", "-c", "cat /proc/net/packet; ip link show"];
    loop {
        let there = Command::new("ip").args(sockets).output()?.stdout;
        let there = String::from_utf8_lossy(&there);
        if there.contains(" 0003 ") || there.contains("prog/xdp") {
            break;
        }
        if let Some(status) = child.try_wait()? {
            return Err(io::Error::other(format!("the receiver ended early: {status}")));
        }
        if since.elapsed() > Duration::from_secs(60) {
            return Err(io::Error::other("the receiver has no socket after a minute"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // Leaves time for the work between the socket and the first wait.
    std::thread::sleep(Duration::from_millis(100));
    processor_seconds(child)
}

/// Returns user and system time of a process in seconds, for all its threads, including ended ones.
pub fn processor_seconds(child: &Child) -> io::Result<f64> {
    seconds_of(child.id())
}

/// Returns the same for any process.
pub fn seconds_of(pid: u32) -> io::Result<f64> {
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: both calls write only to the places passed to them.
    let failed = unsafe {
        libc::clock_getcpuclockid(pid as libc::pid_t, &mut clock) != 0
            || libc::clock_gettime(clock, &mut time) != 0
    };
    if failed {
        return Err(io::Error::other("a process's time cannot be read"));
    }
    Ok(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

/// Returns user and system time of all children that have ended.
pub fn children_seconds() -> io::Result<f64> {
    // SAFETY: all-zero is a valid value, and the call writes only to the place passed to it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let of = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    Ok(of(usage.ru_utime) + of(usage.ru_stime))
}
