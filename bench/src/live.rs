//! Receiving on a veth pair: `flame run count -i` compared to a loop over a bare TPACKET_V3 ring that counts,
//! and by AF_XDP compared to AF_PACKET.
//!
//! Both run on one core, while the same sender loads the other. The measure is the number of packets
//! *received* per second of processor time (user and system), which does not depend on the speed of the
//! sender. Start and end do not count; the kernel's work for the veth pair itself is on the sender's core.

use crate::net::{FRAME, Receiver, send, within_namespace};
use crate::ring::{self, Shape};
use crate::row::{Row, Target, median};
use flame_abi::{Descriptor, LinkType, MAX_BATCH};
use std::io;
use std::path::Path;
use std::time::Duration;

/// The shape of the ring, as in `flame_source::live::LiveOptions`.
const RING: Shape = Shape { block: flame_abi::MAX_BLOCK_BYTES, blocks: 64, timeout_ms: 20 };

/// The time in which a block that is not full reaches its reader.
pub const SETTLING: Duration = Duration::from_millis(10 * RING.timeout_ms as u64);

pub fn rows(flame: &Path, rounds: usize) -> Vec<Row> {
    within_namespace("live receive", &["tx0 rx0"], |namespace| measure(namespace, flame, rounds))
}

/// Returns the words of the bare loop, as a command.
pub fn bare_words() -> io::Result<Vec<String>> {
    loop_words("--bare-ring")
}

fn loop_words(option: &str) -> io::Result<Vec<String>> {
    let me = std::env::current_exe()?.to_string_lossy().into_owned();
    Ok([me, option.to_owned(), "rx0".to_owned()].into())
}

/// Returns the words of a run on `rx0` by AF_PACKET, without a report.
pub fn run_words(flame: &Path, modules: &str) -> Vec<String> {
    let flame = flame.to_string_lossy();
    let words = ["run", modules, "-i", "rx0", "-q", "--format", "json", "--capture", "packet"];
    [&*flame].into_iter().chain(words).map(str::to_owned).collect()
}

fn measure(namespace: &str, flame: &Path, rounds: usize) -> io::Result<Vec<Row>> {
    let packets = if rounds > 3 { 1_000_000 } else { 20_032 };
    let (bare, ours) = (bare_words()?, run_words(flame, "count"));
    let (xdp, native) = ([&ours[..9], &["xdp".to_owned()]].concat(), loop_words("--decoding-ring")?);
    let compared = |name: &str, over: &[String], under: &[String]| -> io::Result<Row> {
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
        compared("flame run count -i / bare ring", &ours, &bare)?.target(Target::AtLeast(0.7)),
        compared("loop that decodes and counts / bare ring", &native, &bare)?,
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
fn receive(namespace: &str, words: &[String], packets: u64) -> io::Result<Received> {
    let mut receiver = Receiver::start(namespace, "0", words)?;
    send(namespace, "1", FRAME, packets, 0.0)?;
    std::thread::sleep(SETTLING);
    let seconds = receiver.seconds()?;
    let out = receiver.end()?;
    match counted(&String::from_utf8_lossy(&out.stdout)) {
        Some(packets @ 1..) if seconds > 0.0 => Ok(Received { packets: packets as f64, seconds }),
        _ => Err(io::Error::other(format!("{}: {}, and no count", words[0], out.status))),
    }
}

/// Returns the packets that a receiver's record states.
pub fn counted(text: &str) -> Option<u64> {
    let count = |line| serde_json::from_str::<serde_json::Value>(line).ok()?.get("packets")?.as_u64();
    text.lines().find_map(count)
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

/// Runs the loop with the work of `count` on each packet, natively, on its own and in one pass: decodes the
/// headers and counts. The bare loop reads one line of the cache for a packet, this one all three.
pub fn decoding(interface: &str) -> io::Result<()> {
    let mut sums = flame_count::Sums::default();
    let mut descriptors = [Descriptor::default(); MAX_BATCH];
    let mut packets = 0u64;
    ring::receive(interface, RING, |block| {
        let mut filled = 0;
        for frame in block {
            let options = flame_decode::Options { without_hash: true, ..Default::default() };
            let d = &mut descriptors[filled];
            flame_decode::decode_into(LinkType::ETHERNET, frame.read(), frame.wire_len, options, d);
            filled += 1;
            if filled == MAX_BATCH {
                sums.add(&descriptors);
                packets += std::mem::take(&mut filled) as u64;
            }
        }
        sums.add(&descriptors[..filled]);
        packets += filled as u64;
    })?;
    std::hint::black_box(sums);
    println!("{{\"packets\":{packets}}}");
    Ok(())
}
