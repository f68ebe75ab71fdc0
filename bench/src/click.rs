//! Graphs: an IP router of native elements between two veth pairs, compared to a loop that hands frames from
//! a TPACKET_V3 ring to `sendmmsg` as they are; and the same router in memory.
//!
//! Forwarders run on one core, while the same sender loads the other. The measure is the number of packets
//! *forwarded* per second of processor time (user and system), start and end not counted.

use crate::graph::Graph;
use crate::net::{FRAME as LENGTH, Receiver, send, within_namespace};
use crate::ring::{self, Shape};
use crate::row::{Row, Target, median};
use crate::send::Burst;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The shape of the ring, as in `flame_source::live::Receiver`.
const RING: Shape = Shape { block: 128 << 10, blocks: 128, timeout_ms: 1 };
/// The router, between a source and a sink of Ethernet frames.
pub const ROUTER: &str = "c :: Classifier(12/0800, -) -> Paint(1) -> Strip(14) -> CheckIPHeader
  -> rt :: LookupIPRoute(10.0.0.0/30 0, 10.1.0.0/16 1, 0.0.0.0/0 1)
  -> DropBroadcasts -> pt :: PaintTee(2) -> o :: IPGWOptions(10.0.0.9) -> FixIPSrc(10.0.0.9) -> t :: DecIPTTL
  -> f :: IPFragmenter(1500) -> EtherEncap(0x0800, 2:0:0:0:0:3, 2:0:0:0:0:4) -> q :: Queue(4000);
  d :: Discard; c [1] -> d; rt [1] -> d; pt [1] -> d; o [1] -> d; t [1] -> d; f [1] -> d;";

/// A frame of the sender.
pub const FRAME: &str = "\\<02000000 00020200 00000001 0800 4500 0056 0000 0000 4011 6695 0a00 0001 \
    0a00 0002 0400 0035 0042 0000>";

pub fn rows(flame: &Path, rounds: usize) -> Vec<Row> {
    within_namespace("graphs", &PAIRS, |namespace| measure(namespace, flame, rounds))
}

/// Two pairs of interfaces: `tx0` to `rx0`, `out0` to `far0`.
pub const PAIRS: [&str; 2] = ["tx0 rx0", "out0 far0"];

fn measure(namespace: &str, flame: &Path, rounds: usize) -> io::Result<Vec<Row>> {
    let graph = Graph { flame, options: &[], data: FRAME, length: 100, burst: 64 };
    let flame = flame.to_string_lossy().into_owned();
    let me = std::env::current_exe()?.to_string_lossy().into_owned();
    let packets = if rounds > 3 { 1_000_000 } else { 20_032 };
    let in_memory_path = format!("{ROUTER} q -> Unqueue(64)");
    let bare = [me.as_str(), "--bare-bridge", "rx0", "out0"];
    let bridge = "FromDevice(rx0, PROMISC true) -> Queue(4000) -> ToDevice(out0)";
    let by_xdp = "FromDevice(rx0, PROMISC true, METHOD XDP) -> Queue(4000) -> ToDevice(out0, METHOD XDP)";
    let router = format!("FromDevice(rx0, PROMISC true) -> {ROUTER} q -> ToDevice(out0)");
    let (mut of_bridge, mut of_router, mut in_memory) = (Vec::new(), Vec::new(), Vec::new());
    let (mut of_xdp, mut share) = (Vec::new(), f64::INFINITY);
    let mut rates = [const { Vec::new() }; 5];
    for round in 0..=rounds.min(5) {
        let mut forwarded = |words: &[&str]| -> io::Result<f64> {
            let Forwarded { count, seconds, .. } = forward(namespace, words, packets, 0.0)?;
            if round > 0 {
                share = share.min(count / packets as f64);
            }
            Ok(count / seconds)
        };
        let bare = forwarded(&bare)?;
        let bridge = forwarded(&[&flame, "click", "-e", bridge])?;
        let taken = forwarded(&[&flame, "click", "-e", by_xdp])?;
        let routed = forwarded(&[&flame, "click", "-e", &router])?;
        let memory = 1e9 / graph.nanoseconds(&in_memory_path, packets * 4)?;
        if round > 0 {
            of_bridge.push(bridge / bare);
            of_router.push(routed / bare);
            of_xdp.push(taken / bridge);
            in_memory.push(memory / routed);
            let now = [bare, bridge, taken, routed, memory];
            rates.iter_mut().zip(now).for_each(|(all, rate)| all.push(rate / 1e6));
        }
    }
    let [bare, bridge, taken, routed, memory] = rates.map(median);
    let group = "graphs: packets forwarded per processor time";
    let detail = |ours: f64, theirs: f64| {
        format!("{ours:.2} / {theirs:.2} million packets for a second of processor time")
    };
    let shared = format!("; at least {:.1} % of those sent", share * 100.0);
    Ok(vec![
        Row::ratio(group, "devices alone / bare loop", median(of_bridge), detail(bridge, bare) + &shared),
        Row::ratio(group, "devices alone, AF_XDP / AF_PACKET", median(of_xdp), detail(taken, bridge)),
        Row::ratio(group, "IP router / bare loop", median(of_router), detail(routed, bare))
            .target(Target::AtLeast(0.6)),
        Row::ratio(group, "IP router in memory / on devices", median(in_memory), detail(memory, routed)),
    ])
}

/// The packets of a forwarder.
pub struct Forwarded {
    /// The packets a second that were sent to it.
    pub offered: f64,
    /// The packets a second that had arrived at `far0` when the sender ended.
    pub rate: f64,
    /// The packets that arrived.
    pub count: f64,
    /// The forwarder's processor time for them.
    pub seconds: f64,
}

/// Starts a forwarder on core 0, and sends from core 1 at a rate, 0 for the highest.
pub fn forward(namespace: &str, words: &[&str], packets: u64, rate: f64) -> io::Result<Forwarded> {
    let mut forwarder = Receiver::start(namespace, "0", words)?;
    let before = arrived(namespace)?;
    let sent = send(namespace, "1", LENGTH, packets, rate)?;
    let at_once = arrived(namespace)? - before;
    std::thread::sleep(Duration::from_millis(200));
    let (count, seconds) = (arrived(namespace)? - before, forwarder.seconds()?);
    forwarder.end()?;
    match count > 0.0 && seconds > 0.0 {
        true => {
            let [offered, rate] = [sent.packets, at_once].map(|packets| packets / sent.seconds);
            Ok(Forwarded { offered, rate, count, seconds })
        }
        false => Err(io::Error::other(format!("{} forwarded nothing", words[0]))),
    }
}

fn arrived(namespace: &str) -> io::Result<f64> {
    let file = "/sys/class/net/far0/statistics/rx_packets";
    let out = Command::new("ip").args(["netns", "exec", namespace, "cat", file]).output()?;
    let text = String::from_utf8_lossy(&out.stdout);
    text.trim().parse().map_err(|_| io::Error::other(format!("{file}: no number")))
}

/// Runs the bare loop: hands frames on until Ctrl-C.
pub fn bare(from: &str, to: &str) -> io::Result<()> {
    let output = ring::socket(to, 0, |_| Ok(()))?;
    let mut burst = Burst::new();
    ring::receive(from, RING, |block| {
        let mut frames = block.map(|frame| (frame.bytes, frame.len));
        while burst.send(output, &mut frames) > 0 {}
    })
}
