//! Joins over an archive.

use crate::columns;
use crate::live::{Packets, archived, delays, ways};
use crate::query::{pool, session};
use crate::rtt::{Handshakes, side_by_side};
use crate::stream::{Ends, Latest, Next, take};
use crate::world::{Columns, HEADERS, NOW, World, body, numbers, text};
use crate::{Error, live::Nodes};
use datafusion::arrow::array::AsArray as _;
use datafusion::arrow::array::{
    ArrayRef, DurationNanosecondArray, Float64Array, RecordBatch, TimestampNanosecondArray,
};
use datafusion::arrow::datatypes::TimestampNanosecondType;
use datafusion::arrow::util::pretty::{pretty_format_batches, pretty_format_batches_with_schema};
use flame_fleet_join::{Flow, Window};
use flame_fleet_protocol::Subject;
use flame_spool::{Batch, Epoch, Frame, Hash, Position, Totals};
use flame_trust::Field;
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

/// Returns the cells of a result over the latest packets, row by row.
fn joined(world: &World, rows: fn(&Nodes<'_>, i64) -> Result<RecordBatch, Error>) -> Vec<Vec<String>> {
    let context = world.runtime.block_on(session(&world.store, &pool(None))).unwrap();
    let window = world.runtime.block_on(archived(&context, "trajectory", 60)).unwrap();
    let table = pretty_format_batches(&[rows(&window.seen(), 2000 * MS).unwrap()]).unwrap().to_string();
    let rows = table.lines().skip(3).filter(|line| line.starts_with('|'));
    rows.map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
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
    let rows = joined(&world, delays);
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
    let context = world.runtime.block_on(session(&world.store, &pool(None))).unwrap();
    let error = world.runtime.block_on(archived(&context, "trajectory", 60)).unwrap_err();
    assert!(error.to_string().contains("2 settings"), "{error}");
}

/// Three nodes: 4 ms there and 6 ms back between neighbours, with clocks that are ahead by 0, 250 and -70 ms.
#[test]
fn paths_go_through_any_number_of_nodes() {
    let mut world = World::new();
    let ahead = [0, 250 * MS, -70 * MS];
    let mut seen = [const { Vec::new() }; 3];
    for label in 0..500 {
        let at = TIME + i64::try_from(label).unwrap() * 10 * MS;
        for (n, packets) in seen.iter_mut().enumerate() {
            let hops = i64::try_from(n).unwrap();
            // One packet is lost behind the second node.
            if n < 2 || label != 200 {
                packets.push((1, label, at + 4 * MS * hops + ahead[n]));
            }
            packets.push((2, label, at + 6 * MS * (2 - hops) + ahead[n]));
        }
    }
    for (node, packets) in ["a", "b", "c"].into_iter().zip(&seen) {
        monitor(&mut world, node, packets, 20);
    }
    let rows = joined(&world, ways);
    let shown: Vec<_> = rows.iter().map(|row| row[..4].join(" ")).collect();
    let path = |name: &str| rows.iter().find(|row| row[0] == name).unwrap();
    assert_eq!(shown.len(), 7, "{shown:?}");
    assert_eq!(path("a > b")[1..4], ["1", "a", "b"], "{shown:?}");
    assert!(path("a > b > c")[1].parse::<u64>().unwrap() > 290, "{shown:?}");
    assert!(shown.contains(&format!("c > b > a {} c a", path("c > b > a")[1])), "{shown:?}");
    // The clocks' estimates are 1 ms beside the truth for each hop, as in the delays of two nodes.
    assert_eq!(path("a > b > c")[2..8], ["a", "b", "PT0.005S", "PT0.005S", "PT0.005S", "PT0.005S"]);
    assert!(rows.iter().all(|row| row[8..] == ["0", "0"]), "{rows:?}");
}

/// Batches of a stream are taken once and in order, and what is missing is noticed and no loss of packets.
#[test]
fn a_stream_notices_what_is_missing() {
    let subject = Subject::new("n", "", "trajectory", "log").unwrap();
    let mut ends = Ends::default();
    let mut take = |epoch: u64, sequence: u64, rows_before: u64| {
        let before = Totals { rows: rows_before, bytes: 0, until: 0 };
        let batch = Batch { rows: 10, first: 1, last: 2, body: b"" };
        let position = Position { epoch: Epoch(epoch), sequence };
        let header = Frame::new(position, before, Hash::default(), &batch).unwrap().header;
        ends.take(&subject, &header)
    };
    assert_eq!(take(1, 5, 40), Next::Follows);
    assert_eq!(take(1, 6, 50), Next::Follows);
    assert_eq!(take(1, 6, 50), Next::Repeated);
    assert_eq!(take(1, 9, 80), Next::Gap(20));
    assert_eq!(take(1, 8, 70), Next::Repeated);
    assert_eq!(take(2, 1, 0), Next::Follows);
    assert_eq!(take(1, 10, 90), Next::Follows);

    let times_of = times;
    let log = |times: &[i64]| {
        let columns: Columns = vec![
            ("ts_ns", "time", times_of(times)),
            ("flow", "u64", numbers(&vec![1; times.len()])),
            ("label", "u32", numbers(&vec![7; times.len()])),
        ];
        RecordBatch::try_from_iter(columns.into_iter().map(|(name, _, of)| (name, of))).unwrap()
    };
    let mut window = Window::new(1000);
    let side = |n: u8| (format!("10.0.0.{n}"), 1);
    window.flow(1, Flow { proto: 6, source: side(1), destination: side(2) });
    let mut packets = Packets::new("trajectory", window, 0, times_seen);
    let parts = |table: &str| Subject::new("n", "", "trajectory", table).unwrap().parts();
    let mut add =
        |table: &str, is_gap, batch: &RecordBatch| packets.take(&parts(table), is_gap, batch).map(drop);
    add("log", false, &log(&[1, 2])).unwrap();
    add("another", false, &log(&[9])).unwrap();
    let error = add("flow", false, &log(&[9])).unwrap_err();
    assert!(error.to_string().contains("no column src"), "{error}");
    assert_eq!(seen(&mut packets), [1, 2]);
    packets.take(&parts("log"), true, &log(&[8])).unwrap();
    assert_eq!(seen(&mut packets), [8]);
    assert!(columns::settings(&log(&[9])).is_err());
}

/// Returns the times of all packets in place of a join.
fn times_seen(nodes: &Nodes<'_>, _: i64) -> Result<RecordBatch, Error> {
    let all: Vec<i64> = nodes.iter().flat_map(|(_, seen)| seen.iter().map(|of| of.at)).collect();
    Ok(RecordBatch::try_from_iter([("at", times(&all))])?)
}

fn seen(packets: &mut Packets) -> Vec<i64> {
    let (_, batches) = packets.rows().unwrap();
    batches[0].column(0).as_primitive::<TimestampNanosecondType>().values().to_vec()
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
    let context = world.runtime.block_on(session(&world.store, &pool(None))).unwrap();
    let rows = world.rows(&context, &side_by_side("rtt"));
    assert_eq!(rows, ["10.5.0.1 forth 2 PT0.04S PT0.042S penn 2 PT0.01S PT0.011S -PT0.031S"]);
}

/// Returns a batch of handshakes as a node sends it.
fn handshakes(targets: &[(&str, i64, i64)]) -> Vec<u8> {
    let of = |part: fn(&(&str, i64, i64)) -> i64| targets.iter().map(part).collect::<Vec<_>>();
    body(vec![
        ("dst", "ip", text(&targets.iter().map(|target| target.0).collect::<Vec<_>>())),
        ("syn_ns", "time", times(&of(|target| target.1))),
        ("rtt_ns", "duration", Arc::new(DurationNanosecondArray::from(of(|target| target.2)))),
    ])
}

fn shown(latest: &mut impl Latest) -> Vec<String> {
    let (schema, rows) = latest.rows().unwrap();
    let table = pretty_format_batches_with_schema(schema, &rows).unwrap().to_string();
    let row = |line: &str| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>().join(" ");
    table.lines().skip(3).filter(|line| line.starts_with('|')).map(row).collect()
}

/// Round trips of a stream are stated as an archive's are, for the latest of each node.
#[test]
fn round_trips_follow_the_streams() {
    let mut latest = Handshakes::new("rtt", 1000).unwrap();
    let of = |node: &str, table: &str| Subject::new(node, "", "rtt", table).unwrap().parts();
    assert_eq!(shown(&mut latest), [""; 0]);
    let penn = handshakes(&[("10.5.0.1", 5000, 10 * MS), ("10.5.0.1", 5001, 12 * MS), ("10.5.0.2", 5002, 1)]);
    take(&penn, &of("penn", "handshake"), false, None, &mut latest).unwrap();
    // By the clock of its own, and older than the window.
    let forth = handshakes(&[("10.5.0.1", 10, 1), ("10.5.0.1", 2000, 40 * MS), ("10.5.0.1", 1999, 44 * MS)]);
    take(&forth, &of("forth", "handshake"), true, None, &mut latest).unwrap();
    take(&penn, &of("penn", "sample"), false, None, &mut latest).unwrap();
    let expected = ["10.5.0.1 forth 2 PT0.04S PT0.042S penn 2 PT0.01S PT0.011S -PT0.031S"];
    assert_eq!(shown(&mut latest), expected);
}

/// A holder follows its own rows on the nodes that it sees, and the columns that its credential exposes.
#[test]
fn a_holder_follows_what_it_may_see() {
    let world = World::new();
    let rows = handshakes(&[("10.5.0.1", 5000, 10 * MS)]);
    let holder = world.holder(HEADERS, "", &[]).unwrap();
    let of = |node: &str, principal: &str| Subject::new(node, principal, "rtt", "handshake").unwrap().parts();
    let mut latest = Handshakes::new("rtt", 1000).unwrap();
    take(&rows, &of("n1", &holder.name), false, Some(&holder), &mut latest).unwrap();
    for other in ["", "bob", "alice", &holder.name.replace("alice", "bob")] {
        take(&rows, &of("n2", other), false, Some(&holder), &mut latest).unwrap();
        assert_eq!(shown(&mut latest), [""; 0], "{other}");
    }
    take(&rows, &of("n2", &holder.name), false, Some(&holder), &mut latest).unwrap();
    assert_eq!(shown(&mut latest).len(), 1);
    // Without addresses there are no targets.
    let holder = world.holder(HEADERS, "", &[(Field::Expose, "count")]).unwrap();
    let mut latest = Handshakes::new("rtt", 1000).unwrap();
    let own = of("n1", &holder.name);
    let error = take(&rows, &own, false, Some(&holder), &mut latest).unwrap_err().to_string();
    assert!(error.contains("no column dst") && error.contains("headers"), "{error}");
    assert_eq!(shown(&mut latest), [""; 0]);
    let holder = world.holder(HEADERS, "", &[(Field::Node, "archive,n2")]).unwrap();
    let mut latest = Handshakes::new("rtt", 1000).unwrap();
    for node in ["n1", "n2"] {
        take(&rows, &of(node, &holder.name), false, Some(&holder), &mut latest).unwrap();
    }
    assert_eq!(shown(&mut latest), [""; 0]);
}

/// Each look at the policy decides again: a credential that was revoked, or whose role is gone, ends.
#[test]
fn a_holder_ends_with_its_policy() {
    let world = World::new();
    let holder = world.holder(HEADERS, "", &[(Field::Expires, "2026-06-01T00:00:00Z")]).unwrap();
    holder.again(NOW).unwrap();
    assert!(holder.again(NOW + 90 * 86_400).unwrap_err().to_string().contains("expired"));
    let policy = std::fs::read_to_string(world.path("policy.toml")).unwrap();
    std::fs::write(world.path("policy.toml"), policy.replace("roles.reader", "roles.writer")).unwrap();
    assert!(holder.again(NOW).unwrap_err().to_string().contains("role"));
    let revoked = policy.replace("audit =", "revocations = \"revoked\"\naudit =");
    std::fs::write(world.path("policy.toml"), revoked).unwrap();
    std::fs::write(world.path("revoked"), "").unwrap();
    holder.again(NOW).unwrap();
    std::fs::write(world.path("revoked"), format!("id {}\n", holder.id())).unwrap();
    assert!(holder.again(NOW).unwrap_err().to_string().contains("revoked"));
}
