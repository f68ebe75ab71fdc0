//! Joins over an archive.

use crate::holder_tests::{Columns, World, numbers, text};
use crate::live::{delays, side_by_side};
use crate::query::session;
use datafusion::arrow::array::{ArrayRef, DurationNanosecondArray, Float64Array, TimestampNanosecondArray};
use datafusion::arrow::util::pretty::pretty_format_batches;
use std::sync::Arc;

const MS: i64 = 1_000_000;
const TIME: i64 = 1_780_000_000_000 * MS;

fn times(values: &[i64]) -> ArrayRef {
    Arc::new(TimestampNanosecondArray::from_iter_values(values.iter().copied()).with_timezone("UTC"))
}

/// Adds the records of a monitor: packets with a label and a time of flow 1 and of flow 2, its opposite.
fn monitor(world: &mut World, node: &str, packets: &[(u64, u64, i64)], payload: u64) {
    let of = |part: fn(&(u64, u64, i64)) -> u64| numbers(&packets.iter().map(part).collect::<Vec<_>>());
    let flow: Columns = vec![
        ("flow", "u64", numbers(&[1, 2])),
        ("proto", "u8", numbers(&[6, 6])),
        ("src", "ip", text(&["10.0.0.1", "10.0.0.2"])),
        ("sport", "u16", numbers(&[4000, 80])),
        ("dst", "ip", text(&["10.0.0.2", "10.0.0.1"])),
        ("dport", "u16", numbers(&[80, 4000])),
    ];
    let log: Columns = vec![
        ("ts_ns", "time", times(&packets.iter().map(|packet| packet.2).collect::<Vec<_>>())),
        ("flow", "u64", of(|packet| packet.0)),
        ("label", "u32", of(|packet| packet.1)),
    ];
    let setting: Columns = vec![
        ("hash", "enum", text(&["bob"])),
        ("sampling", "f64", Arc::new(Float64Array::from(vec![1.0]))),
        ("payload", "u32", numbers(&[payload])),
        ("seeds", "u32", numbers(&[1])),
    ];
    for (table, columns) in [("flow", flow), ("log", log), ("setting", setting)] {
        world.add(node, "", "trajectory", table, columns);
    }
}

#[test]
fn delays_have_the_uncertainty_of_the_clocks() {
    let mut world = World::new();
    let ahead = 250 * MS;
    // 4 ms there, 6 ms back, one of five lost there. The second clock is 250 ms ahead.
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for label in 0..5 {
        let at = TIME + i64::try_from(label).unwrap() * 10 * MS;
        a.push((1, label, at));
        b.extend((label != 2).then_some((1, label, at + 4 * MS + ahead)));
        b.push((2, label, at + ahead));
        a.push((2, label, at + 6 * MS));
    }
    // Later packets, so that the loss is old enough.
    let late = TIME + 5000 * MS;
    a.push((1, 9, late));
    b.push((1, 9, late + 4 * MS + ahead));
    monitor(&mut world, "a", &a, 20);
    monitor(&mut world, "b", &b, 20);
    let context = world.runtime.block_on(session(&world.store)).unwrap();
    let rows = world.runtime.block_on(delays(&context, "trajectory", 60, 2000)).unwrap();
    let table = pretty_format_batches(&[rows]).unwrap().to_string();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .skip(3)
        .filter(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    // The estimate is 1 ms beside the truth, as the delays differ by 2 ms; the uncertainty covers it.
    assert_eq!(
        rows[0][..9],
        ["a", "b", "5", "1", "PT0.005S", "PT0.005S", "PT0.005S", "PT0.249S", "PT0.005S"]
    );
    assert_eq!(
        rows[1][..9],
        ["b", "a", "5", "0", "PT0.005S", "PT0.005S", "PT0.005S", "-PT0.249S", "PT0.005S"]
    );

    monitor(&mut world, "c", &a, 21);
    let context = world.runtime.block_on(session(&world.store)).unwrap();
    let error = world.runtime.block_on(delays(&context, "trajectory", 60, 2000)).unwrap_err();
    assert!(error.to_string().contains("2 settings"), "{error}");
}

#[test]
fn round_trips_of_two_sites_are_side_by_side() {
    let mut world = World::new();
    for (node, rtts, dsts) in [
        ("penn", [10, 12, 30], ["10.5.0.1", "10.5.0.1", "10.5.0.2"]),
        ("forth", [40, 44, 9], ["10.5.0.1", "10.5.0.1", "10.5.0.3"]),
    ] {
        let rtts = rtts.map(|ms| ms * MS).to_vec();
        let columns: Columns = vec![
            ("dst", "ip", text(&dsts)),
            ("rtt_ns", "duration", Arc::new(DurationNanosecondArray::from(rtts))),
        ];
        world.add(node, "", "rtt", "handshake", columns);
    }
    let context = world.runtime.block_on(session(&world.store)).unwrap();
    let rows = world.rows(&context, &side_by_side("rtt"));
    assert_eq!(rows, ["10.5.0.1 forth 2 PT0.04S PT0.042S penn 2 PT0.01S PT0.011S -PT0.031S"]);
}
