//! Receiving on a veth pair: `flame run count -i` against a loop over a bare TPACKET_V3 ring that counts.
//!
//! Both sit on one core while the same sender loads the other; what is compared is processor time for a
//! received packet, which does not depend on how fast the sender is.

#![allow(unsafe_code)] // The bare loop talks to the kernel as the simplest program would.

use crate::row::{Row, median};
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const BLOCK: usize = 1 << 20;
const BLOCKS: usize = 64;

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
    let namespace = format!("flame-b{}", std::process::id());
    let made = run(&["ip", "netns", "add", &namespace]).and_then(|()| {
        inside(
            &namespace,
            "for c in all default; do echo 1 > /proc/sys/net/ipv6/conf/$c/disable_ipv6; done; \\
            ip link add tx0 type veth peer name rx0; ip link set tx0 up; ip link set rx0 up",
        )
    });
    let rows = made.and_then(|()| measure(&namespace, flame, rounds));
    let _ = run(&["ip", "netns", "del", &namespace]);
    rows.unwrap_or_else(|reason| {
        eprintln!("left out: live receive: {reason}");
        Vec::new()
    })
}

fn measure(namespace: &str, flame: &Path, rounds: usize) -> io::Result<Vec<Row>> {
    let flame = flame.to_string_lossy().into_owned();
    let me = std::env::current_exe()?.to_string_lossy().into_owned();
    let packets = if rounds > 3 { 400_000 } else { 20_000 };
    let bare = [me.as_str(), "--bare-ring", "rx0"];
    let ours = [flame.as_str(), "run", "count", "-i", "rx0", "-q", "--format", "json"];
    let (mut ratios, mut a, mut b) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds.min(5) {
        let (theirs, ours) = (receive(namespace, &bare, packets)?, receive(namespace, &ours, packets)?);
        ratios.push(ours / theirs);
        a.push(theirs);
        b.push(ours);
    }
    let detail = format!("{:.0} / {:.0} ns of processor time a packet", median(b), median(a));
    let name = "flame run count -i / bare ring";
    Ok(vec![Row::ratio("live receive: a veth pair, one core", name, median(ratios), detail)])
}

/// Nanoseconds of processor time per packet of a receiver on core 0, while the sender runs on core 1.
fn receive(namespace: &str, words: &[&str], packets: u64) -> io::Result<f64> {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, "taskset", "-c", "0"]).args(words);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let result = (|| {
        std::thread::sleep(Duration::from_millis(300));
        let before = cpu_ns(&child)?;
        run(&[
            "ip",
            "netns",
            "exec",
            namespace,
            "taskset",
            "-c",
            "1",
            "python3",
            "-c",
            SENDER,
            &packets.to_string(),
        ])?;
        std::thread::sleep(Duration::from_millis(100));
        Ok((cpu_ns(&child)? - before) / packets as f64)
    })();
    stop(&mut child);
    result
}

/// Time on a processor, by the scheduler's own account.
fn cpu_ns(child: &Child) -> io::Result<f64> {
    let mut sum = 0.0;
    for task in std::fs::read_dir(format!("/proc/{}/task", child.id()))? {
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        sum += text.split(' ').next().and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0);
    }
    Ok(sum)
}

fn stop(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn run(words: &[&str]) -> io::Result<()> {
    let status = Command::new(words[0]).args(&words[1..]).stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{}: {status}", words.join(" ")))) }
}

fn inside(namespace: &str, script: &str) -> io::Result<()> {
    run(&["ip", "netns", "exec", namespace, "sh", "-ec", script])
}

/// The bare loop: counts until it is killed.
pub fn bare(interface: &str) -> io::Result<()> {
    let name = std::ffi::CString::new(interface)?;
    let check = |result: i32| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) };
    // SAFETY: plain system calls with whole structures; the ring is mapped once and never unmapped; the
    // kernel hands blocks over by their status word, and only words inside the ring are read.
    unsafe {
        let fd = check(libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0))?;
        let set = |option, value: *const libc::c_void, size| {
            check(libc::setsockopt(fd, libc::SOL_PACKET, option, value, size as libc::socklen_t))
        };
        let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
        set(libc::PACKET_VERSION, (&raw const version).cast(), size_of_val(&version))?;
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK as u32,
            tp_block_nr: BLOCKS as u32,
            tp_frame_size: 2048,
            tp_frame_nr: (BLOCK / 2048 * BLOCKS) as u32,
            tp_retire_blk_tov: 20,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(libc::PACKET_RX_RING, (&raw const request).cast(), size_of_val(&request))?;
        let ring = libc::mmap(
            std::ptr::null_mut(),
            BLOCK * BLOCKS,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            fd,
            0,
        );
        if ring == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
        check(libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as libc::socklen_t))?;
        let (mut packets, mut bytes) = (0u64, 0u64);
        for block in (0..BLOCKS).cycle() {
            let start = ring.cast::<u8>().add(block * BLOCK);
            let status = &*start.add(8).cast::<std::sync::atomic::AtomicU32>();
            while status.load(std::sync::atomic::Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                libc::poll(&mut poll, 1, -1);
            }
            let word = |at: usize| start.add(at).cast::<u32>().read_unaligned();
            let (count, mut at) = (word(12), word(16) as usize);
            for _ in 0..count {
                packets += 1;
                bytes += u64::from(word(at + 16));
                at += word(at) as usize;
            }
            std::hint::black_box((packets, bytes));
            status.store(libc::TP_STATUS_KERNEL, std::sync::atomic::Ordering::Release);
        }
    }
    Ok(())
}
