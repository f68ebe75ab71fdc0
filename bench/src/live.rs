//! Receiving on a veth pair: `flame run count -i` compared to a loop over a bare TPACKET_V3 ring that counts,
//! and by AF_XDP compared to AF_PACKET.
//!
//! Both run on one core, while the same sender loads the other. The measure is the number of packets
//! *received* per second of processor time (user and system), which does not depend on the speed of the
//! sender. Start and end do not count; the kernel's work for the veth pair itself is on the sender's core.

#![allow(unsafe_code)] // It asks the kernel for times, and sends signals.

use crate::ring::{self, Shape};
use crate::row::{Row, median};
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The shape of the ring, equal to that of `flame_source::live::LiveOptions`.
const RING: Shape = Shape { block: flame_abi::MAX_BLOCK_BYTES, blocks: 64, timeout_ms: 20 };

const SENDER: &str = "
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(('tx0', 0))
head = bytes.fromhex('02000000000202000000000108004500005600000000401100000a0000010a000002')
frames = [head + bytes([4, i, 0, 53, 0, 66, 0, 0]) + bytes(58) for i in range(64)]
for _ in range(int(sys.argv[1]) // 64):
    for f in frames:
        try: s.send(f)
        except OSError: pass
";

pub fn rows(flame: &Path, rounds: usize) -> Vec<Row> {
    within_namespace("live receive", &["tx0 rx0"], |namespace| measure(namespace, flame, rounds))
}

/// Returns the rows that `measure` yields in a new namespace with these pairs of interfaces, which the kernel
/// sends nothing to.
pub fn within_namespace(
    name: &str,
    pairs: &[&str],
    measure: impl FnOnce(&str) -> io::Result<Vec<Row>>,
) -> Vec<Row> {
    let namespace = format!("flame-b{}", std::process::id());
    let links = pairs.iter().filter_map(|pair| pair.split_once(' ')).map(|(a, b)| {
        format!("ip link add {a} type veth peer name {b}; ip link set {a} up; ip link set {b} up")
    });
    let quiet = "for c in all default; do echo 1 > /proc/sys/net/ipv6/conf/$c/disable_ipv6; done";
    let script: Vec<_> = std::iter::once(quiet.to_owned()).chain(links).collect();
    let made = run(&["ip", "netns", "add", &namespace]).and_then(|()| inside(&namespace, &script.join("; ")));
    let rows = made.and_then(|()| measure(&namespace));
    let _ = run(&["ip", "netns", "del", &namespace]);
    rows.unwrap_or_else(|reason| {
        eprintln!("left out: {name} (it needs root and two cores): {reason}");
        Vec::new()
    })
}

fn measure(namespace: &str, flame: &Path, rounds: usize) -> io::Result<Vec<Row>> {
    let flame = flame.to_string_lossy().into_owned();
    let me = std::env::current_exe()?.to_string_lossy().into_owned();
    // The sender sends multiples of 64.
    let packets = if rounds > 3 { 1_000_000 } else { 20_032 };
    let bare = [me.as_str(), "--bare-ring", "rx0"];
    let ours = [flame.as_str(), "run", "count", "-i", "rx0", "-q", "--format", "json", "--capture", "packet"];
    let xdp = [&ours[..9], &["xdp"]].concat();
    let compared = |name: &str, over: &[&str], under: &[&str]| -> io::Result<Row> {
        let (mut ratios, mut a, mut b) = (Vec::new(), Vec::new(), Vec::new());
        let mut share = f64::INFINITY;
        for round in 0..=rounds.min(5) {
            let (under, over) = (receive(namespace, under, packets)?, receive(namespace, over, packets)?);
            // The first round compiles the module, and does not count.
            if round > 0 {
                ratios.push(over.per_second() / under.per_second());
                a.push(under.per_second() / 1e6);
                b.push(over.per_second() / 1e6);
                share = share.min(under.packets.min(over.packets) / packets as f64);
            }
        }
        let detail = format!(
            "{:.1} / {:.1} million packets for a second of processor time; at least {:.1} % of those sent",
            median(b),
            median(a),
            share * 100.0
        );
        Ok(Row::ratio("live receive: packets received per processor time", name, median(ratios), detail))
    };
    Ok(vec![
        compared("flame run count -i / bare ring", &ours, &bare)?,
        compared("flame run count -i, AF_XDP / AF_PACKET", &xdp, &ours)?,
    ])
}

/// The packets and the processor time of a receiver, while the sender ran.
struct Received {
    packets: f64,
    seconds: f64,
}

impl Received {
    fn per_second(&self) -> f64 {
        self.packets / self.seconds
    }
}

/// Starts a receiver on core 0, sends from core 1, ends the receiver and reads its count.
fn receive(namespace: &str, words: &[&str], packets: u64) -> io::Result<Received> {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, "taskset", "-c", "0"]).args(words);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let measured = (|| -> io::Result<f64> {
        let settled = await_socket(namespace, &mut child)?;
        let sender = packets.to_string();
        run(&["ip", "netns", "exec", namespace, "taskset", "-c", "1", "python3", "-c", SENDER, &sender])?;
        // This is longer than the kernel keeps a block that is not full.
        std::thread::sleep(Duration::from_millis(10 * u64::from(RING.timeout_ms)));
        Ok(processor_seconds(&child)? - settled)
    })();
    if measured.is_err() {
        let _ = child.kill();
    } else {
        // SAFETY: sends a signal to a child that has not been waited for, so the id is still the child's.
        unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    }
    let out = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&out.stdout);
    let counted = text
        .lines()
        .find_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()?.get("packets")?.as_u64());
    match (measured?, counted) {
        (seconds, Some(packets @ 1..)) if seconds > 0.0 => Ok(Received { packets: packets as f64, seconds }),
        _ => Err(io::Error::other(format!("{}: {}, and no count", words[0], out.status))),
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
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: both calls write only to the places passed to them.
    let failed = unsafe {
        libc::clock_getcpuclockid(child.id() as libc::pid_t, &mut clock) != 0
            || libc::clock_gettime(clock, &mut time) != 0
    };
    if failed {
        return Err(io::Error::other("a receiver's processor time cannot be read"));
    }
    Ok(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

pub fn run(words: &[&str]) -> io::Result<()> {
    let status = Command::new(words[0]).args(&words[1..]).stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{}: {status}", words.join(" ")))) }
}

fn inside(namespace: &str, script: &str) -> io::Result<()> {
    run(&["ip", "netns", "exec", namespace, "sh", "-ec", script])
}

/// Runs the bare loop: counts until Ctrl-C, then prints the number as `count` does.
pub fn bare(interface: &str) -> io::Result<()> {
    let (mut packets, mut bytes) = (0u64, 0u64);
    ring::receive(interface, RING, |block| {
        for frame in block {
            packets += 1;
            bytes += u64::from(frame.wire_len);
        }
    })?;
    println!("{{\"packets\":{packets},\"wire_bytes\":{bytes}}}");
    Ok(())
}
