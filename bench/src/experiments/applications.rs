//! The time of a packet in `activedoom` and `ecn`: the experiments of the Tables 5.6 and 5.7 of Patel's
//! thesis. Calls alone: native, without counters as their proved bounds permit, metered.
//!
//! - `activedoom`: all packets are updates of players, each 30 times a second. They are held for 33 ms and
//!   sent as one datagram.
//! - `ecn`: no packet is marked, or each.

use super::finding::Finding;
use super::{Figure, Setting, calls};
use crate::fixture::Error;
use crate::send::{datagram, frame};
use flame_plot::{Scale, Shape};

/// The players of one server.
const PLAYERS: [u64; 3] = [2, 8, 32];

/// Returns the updates of some players, 30 a second of each.
fn updates(players: u64, packets: u64) -> impl Iterator<Item = (u64, Vec<u8>)> {
    (0..packets).map(move |n| {
        let (player, at) = ((n % players) as u8, n * 1_000_000 / (30 * players));
        let update = [&[b'A', b'D', 1, 1, 0, player, 20][..], &[n as u8; 20]].concat();
        (at, datagram([10, 0, 0, player], [10, 0, 1, 1], [4000, 5029], &update))
    })
}

/// Returns packets of flows that support ECN, 100 microseconds apart.
fn capable(packets: u64) -> impl Iterator<Item = (u64, Vec<u8>)> {
    (0..packets).map(|n| {
        let mut frame = frame(n as u8 % 64, 100);
        // ECT(1), and the checksum with it.
        frame[15] = 1;
        let sum = u16::from_be_bytes([frame[24], frame[25]]).wrapping_sub(1);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        (n * 100, frame)
    })
}

/// Measures the applications.
pub fn run(setting: &Setting<'_>) -> Result<Vec<Finding>, Error> {
    let packets = if setting.quick { 256 } else { 16_384 };
    let mut rows = Vec::new();
    for players in PLAYERS {
        let frames = updates(players, packets);
        let times = calls::times::<flame_activedoom::ActiveDoom>(setting, "activedoom", &[], frames)?;
        rows.push((format!("activedoom, {players} players"), times));
    }
    for (name, rate) in [("unmarked", "1000000000000"), ("marked", "1000")] {
        let settings = [("rate", rate), ("threshold", "0")];
        let times = calls::times::<flame_ecn::Ecn>(setting, "ecn", &settings, capable(packets))?;
        rows.push((format!("ecn, {name}"), times));
    }
    println!("applications: nanoseconds for a packet (Patel, Tables 5.6 and 5.7)");
    println!("{:22}  hardwired  hybrid  dynamic  dynamic / hybrid", "application");
    for (name, calls::Times { hardwired, hybrid, dynamic }) in &rows {
        println!("{name:22}  {hardwired:9.1}  {hybrid:6.1}  {dynamic:7.1}  {:16.2}", dynamic / hybrid);
    }
    let way = |way: usize| {
        let points = rows.iter().enumerate().map(|(n, (_, times))| (times.named()[way].1, n as f64 + 0.5));
        (["hardwired", "hybrid", "dynamic"][way].to_owned(), Shape::Points(points.collect()))
    };
    Figure {
        name: "applications",
        title: "Time of a packet in two applications",
        notes: Vec::new(),
        x: ("ns for a packet", Scale::FromZero),
        y: ("", Scale::Rows(rows.iter().map(|(name, _)| name.clone()).collect())),
        series: [0, 1, 2].map(way).into(),
    }
    .write(setting.folder)?;
    let of = |name: &str| rows.iter().find(|(row, _)| row.starts_with(name)).map(|(_, times)| times);
    let ratio = |name: &str| of(name).map_or(f64::NAN, |times| times.dynamic / times.hybrid);
    // Theirs are whole packets, with two switches of threads around a dynamic one.
    Ok(vec![
        Finding::more(
            "Patel Table 5.6",
            "ActiveDoom: dynamic over hybrid",
            "",
            36273.0 / 32584.0,
            ratio("activedoom"),
        ),
        Finding::more(
            "Patel Table 5.7",
            "ECN: dynamic over hybrid, calls alone",
            "",
            31781.0 / 18802.0,
            ratio("ecn"),
        ),
    ])
}
