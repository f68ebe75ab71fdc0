//! Live capture on a veth pair: every frame that was sent is counted, or counted as dropped.

mod common;
#[path = "live/mod.rs"]
mod live;

use live::{Capture, Net, ipv4};
use serde_json::Value;
use std::process::Output;

const TAG: [u8; 4] = [0x81, 0, 0, 7];
const QINQ: [u8; 8] = [0x88, 0xa8, 0, 3, 0x81, 0, 0, 7];

fn net() -> Option<Net> {
    common::module("count")?;
    Net::new()
}

fn rows(out: &Output) -> Vec<Value> {
    String::from_utf8_lossy(&out.stdout).lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

/// The account, the last thing on standard error.
fn account(out: &Output) -> Value {
    let text = String::from_utf8_lossy(&out.stderr);
    let start = text.find('{').unwrap_or_else(|| panic!("no account in {text}"));
    serde_json::from_str(&text[start..]).unwrap()
}

fn interrupted(capture: Capture) -> Output {
    let out = capture.interrupt();
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    out
}

/// Frames of every kind, and what `count` must say of them.
fn mixed() -> (Vec<Vec<u8>>, Value) {
    let mut frames = Vec::new();
    let mut add = |n: usize, frame: Vec<u8>| frames.extend(std::iter::repeat_n(frame, n));
    add(50, ipv4(&[], 6, (1, 1024), (2, 80), 74));
    add(30, ipv4(&[], 17, (1, 1024), (2, 53), 300));
    add(20, ipv4(&[], 1, (1, 8 << 8), (2, 1), 98));
    add(7, ipv4(&TAG, 17, (3, 9), (4, 53), 122));
    add(5, ipv4(&QINQ, 6, (3, 9), (4, 80), 200));
    let mut arp = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 6][..], &[0; 46]].concat();
    add(3, arp.clone());
    arp[12..14].copy_from_slice(&[0x88, 0xb5]);
    add(4, arp);
    let bytes: usize = frames.iter().map(Vec::len).sum();
    let expected = serde_json::json!({
        "module": "count", "table": "count", "packets": 119, "wire_bytes": bytes, "ipv4": 112, "ipv6": 0,
        "tcp": 55, "udp": 37, "icmp": 20, "sctp": 0, "tcp_syn": 55, "other": 7,
    });
    (frames, expected)
}

#[test]
fn every_frame_is_counted_until_ctrl_c() {
    let Some(net) = net() else { return };
    let (frames, expected) = mixed();
    let capture = net.capture(&["count", "--format", "json"], 1);
    net.send(&frames, 1);
    let out = interrupted(capture);
    assert_eq!(rows(&out), [expected]);
    let account = account(&out);
    assert_eq!(account["modules"]["count"]["adds_up"], true, "{account}");
    assert_eq!(account["modules"]["count"]["offered"], 119);
}

#[test]
fn tags_are_put_back_and_filters_see_them() {
    let Some(net) = net() else { return };
    let (frames, _) = mixed();
    for (filter, packets) in [("vlan 7", 7), ("vlan 3 and vlan 7", 5), ("udp", 30)] {
        let capture = net.capture(&["count", "--format", "json", filter], 1);
        net.send(&frames, 1);
        let out = interrupted(capture);
        assert_eq!(rows(&out)[0]["packets"], packets, "{filter}");
        let count = &account(&out)["modules"]["count"];
        assert_eq!((&count["offered"], &count["filtered"]), (&119.into(), &(119 - packets).into()));
    }
}

#[test]
fn it_stops_after_so_many_packets_and_keeps_so_many_bytes() {
    let Some(net) = net() else { return };
    let frames = vec![ipv4(&[], 17, (1, 1), (2, 53), 1000); 100];
    let capture = net.capture(&["count", "-c", "42", "--snaplen", "60", "--format", "json"], 1);
    net.send(&frames, 1);
    let out = capture.end();
    assert_eq!(out.status.code(), Some(0));
    let row = &rows(&out)[0];
    assert_eq!((&row["packets"], &row["wire_bytes"], &row["udp"]), (&42.into(), &42_000.into(), &42.into()));
}

#[test]
fn two_workers_see_whole_flows() {
    let Some(net) = net() else { return };
    let mut frames = Vec::new();
    for flow in 0..200 {
        let (client, server) = ((flow, 2000 + flow), (1000, 80));
        for turn in 0..6 {
            let (from, to) = if turn % 2 == 0 { (client, server) } else { (server, client) };
            frames.push(ipv4(&[], 17, from, to, 80 + turn));
        }
    }
    let flows = |workers: &str, sockets| {
        let capture = net.capture(&["flow", "--workers", workers, "--format", "json"], sockets);
        net.send(&frames, 1);
        let out = interrupted(capture);
        let mut flows: Vec<String> = rows(&out)
            .into_iter()
            .filter(|row| row["table"] == "flow")
            .map(|mut row| {
                let row = row.as_object_mut().unwrap();
                row.retain(|column, _| !column.starts_with("first") && !column.starts_with("last"));
                serde_json::to_string(row).unwrap()
            })
            .collect();
        flows.sort();
        assert_eq!(account(&out)["modules"]["flow"]["processed"], 1200);
        flows
    };
    let (one, two) = (flows("1", 1), flows("2", 2));
    assert_eq!(one.len(), 200);
    assert!(one[0].contains("\"packets_fwd\":3") && one[0].contains("\"packets_rev\":3"), "{}", one[0]);
    assert_eq!(one, two);
}

#[test]
fn what_the_kernel_drops_is_counted() {
    let Some(net) = net() else { return };
    let capture = net.capture(&["count", "--format", "json"], 1);
    // Asleep while more arrives than the ring holds.
    capture.signal("STOP");
    let frames = vec![ipv4(&[], 17, (1, 1), (2, 53), 1500); 1000];
    net.send(&frames, 60);
    capture.signal("CONT");
    let out = interrupted(capture);
    let (account, row) = (account(&out), &rows(&out)[0]);
    let number = |v: &Value| v.as_u64().unwrap();
    let (seen, dropped) = (number(&row["packets"]), number(&account["kernel_drops"]));
    assert!(dropped > 0 && seen > 1000, "{account}");
    assert_eq!(seen + dropped, 60_000, "{account}");
}

#[test]
fn an_interface_that_is_not_there_or_goes_away_is_named() {
    let Some(net) = net() else { return };
    let run = |interface: &str| {
        let mut flame = net.command(env!("CARGO_BIN_EXE_flame"));
        let out = flame.args(["run", "count", "-i", interface]).output().unwrap();
        assert_eq!(out.status.code(), Some(1));
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let said = run("nowhere0");
    assert!(said.contains("nowhere0") && said.contains("tx0"), "{said}");
    net.shell("ip link add down0 type veth peer name down1");
    let said = run("down0");
    assert!(said.contains("interface down0") && said.contains("down"), "{said}");

    // What was seen before it went away is not lost, in a file either.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("records.json");
    let capture = net.capture(&["count", "--format", "json", "-o", file.to_str().unwrap()], 1);
    net.send(&mixed().0, 1);
    std::thread::sleep(std::time::Duration::from_millis(200));
    net.shell("ip link del rx0");
    let out = capture.end();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("interface rx0"), "{said}");
    assert!(said.contains("\"adds_up\":true"), "{said}");
    let records = std::fs::read_to_string(file).unwrap();
    assert!(records.contains("\"packets\":119"), "{records}");
}

/// Needs all bytes; records the sum of them, or, if told to look beyond, whether the ring is there.
const READER: &str = r#"
(module
  (memory (export "memory") 1)
  (global $sum (mut i64) (i64.const 0))
  (func (export "flame_batch") (param $batch i32) (result i64)
    (local $d i32) (local $left i32) (local $at i32) (local $end i32)
    (local.set $d (i32.load (local.get $batch)))
    (local.set $left (i32.load offset=4 (local.get $batch)))
    (block $done
      (loop $packets
        (br_if $done (i32.eqz (local.get $left)))
        (local.set $at (i32.load offset=8 (local.get $d)))
        (local.set $end (i32.add (local.get $at) (i32.load offset=20 (local.get $d))))
        (block $read
          (loop $bytes
            (br_if $read (i32.ge_u (local.get $at) (local.get $end)))
            (global.set $sum (i64.add (global.get $sum) (i64.load8_u (local.get $at))))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (br $bytes)))
        (local.set $d (i32.add (local.get $d) (i32.const 32)))
        (local.set $left (i32.sub (local.get $left) (i32.const 1)))
        (br $packets)))
    BEYOND
    (i64.const 0))
  (func (export "flame_end") (param i64) (result i64)
    (i32.store (i32.const 64) (i32.const 8))
    (i64.store (i32.const 72) (global.get $sum))
    (i64.const 0x1000000040)))
"#;

#[test]
fn the_ring_is_mapped_for_a_view_of_all_and_for_no_other() {
    let Some(net) = net() else { return };
    let folder = tempfile::tempdir().unwrap();
    let manifest = "abi = 1\nname = \"reader\"\nversion = \"1\"\ndescription = \"test\"\n[needs]\nexpose = \"all\"\n\
        [[tables]]\nname = \"sum\"\ncolumns = [{ name = \"bytes\", type = \"u64\" }]\n";
    let build = |name: &str, beyond: &str| {
        let wasm = wat::parse_str(READER.replace("BEYOND", beyond)).unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, common::with_manifest(wasm, manifest.as_bytes())).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // Where a mapped ring would begin: behind the blocks of the view.
    let pool = flame_block::Pool::new(4).unwrap();
    let ring = flame_abi::layout::VIEW + pool.window().2 as u32;
    let plain = build("plain.wasm", "");
    let peeks = build("peeks.wasm", &format!("(drop (i32.load (i32.const {})))", ring as i32));
    let (frames, _) = mixed();
    let sum: u64 = frames.iter().flatten().map(|b| u64::from(*b)).sum();
    let all = ["--expose", "all", "--format", "json"];
    for (module, filter, status) in [
        (&plain, "", 0),
        (&plain, "greater 0", 0),
        (&peeks, "", 0),
        // The ring holds what the filter leaves out, so it must not be there.
        (&peeks, "greater 0", 4),
    ] {
        let mut arguments = vec![module.as_str()];
        arguments.extend(all);
        arguments.extend((!filter.is_empty()).then_some(filter));
        let capture = net.capture(&arguments, 1);
        net.send(&frames, 1);
        let out = capture.interrupt();
        assert_eq!(out.status.code(), Some(status), "{filter:?}: {}", String::from_utf8_lossy(&out.stderr));
        if status == 0 {
            assert_eq!(rows(&out)[0]["bytes"], sum, "{filter:?}");
        }
    }
}
