//! Tests of live capture on a veth pair: every sent frame is counted, or counted as dropped.

use crate::common;
use crate::network::{self, Capture, Net, ipv4};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::{Output, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const TAG: [u8; 4] = [0x81, 0, 0, 7];
const QINQ: [u8; 8] = [0x88, 0xa8, 0, 3, 0x81, 0, 0, 7];

fn net() -> Option<Net> {
    common::module("count")?;
    Net::new()
}

fn rows(out: &Output) -> Vec<Value> {
    String::from_utf8_lossy(&out.stdout).lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

/// Returns the account, which is one line of standard error.
fn account(out: &Output) -> Value {
    let text = String::from_utf8_lossy(&out.stderr);
    let line = text.lines().find(|line| line.starts_with('{'));
    serde_json::from_str(line.unwrap_or_else(|| panic!("no account in {text}"))).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn interrupted(capture: Capture) -> Output {
    let out = capture.interrupt();
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    out
}

/// Returns frames of every kind, and the expected row of `count`.
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
    net.send_then(&frames, &format!("kill -INT {}", capture.pid()));
    let out = capture.end();
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
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
                row.retain(|column, _| !["first_ns", "last_ns", "duration_ns"].contains(&column.as_str()));
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

/// A socket that is bound but has not joined its group yet would also receive the others' packets.
#[test]
fn no_packet_is_seen_twice_while_workers_start() {
    let Some(net) = net() else { return };
    // Each packet is its own flow. There are enough for a start that takes ten seconds.
    let frames: Vec<_> = (0..1_000_000u32)
        .map(|i| ipv4(&[], 17, ((i >> 14) as u16, 1 + (i & 0x3fff) as u16), (1000, 53), 60))
        .collect();
    let mut sender = net.bursts(&frames);
    let sent = "cat /sys/class/net/tx0/statistics/tx_packets";
    network::wait_for("the first burst", || net.said(sent) != "0");
    let capture = net.capture(&["flow", "--workers", "8", "--format", "json"], 8);
    std::thread::sleep(std::time::Duration::from_millis(100));
    std::fs::write(net.stop(), "").unwrap();
    assert!(sender.wait().unwrap().success());
    let out = interrupted(capture);
    let mut flows: BTreeMap<_, u64> = BTreeMap::new();
    for row in rows(&out).iter().filter(|row| row["table"] == "flow") {
        let key = (row["src"].to_string(), number(&row["sport"]));
        *flows.entry(key).or_default() += number(&row["packets_fwd"]) + number(&row["packets_rev"]);
    }
    assert!(!flows.is_empty(), "the sender ended before the capture began");
    let twice: Vec<_> = flows.iter().filter(|(_, packets)| **packets != 1).collect();
    assert!(twice.is_empty(), "{} of {} flows, {:?} …", twice.len(), flows.len(), twice[0]);
}

#[test]
fn the_interface_is_promiscuous_unless_told_not_to_be() {
    let Some(net) = net() else { return };
    let listening = || net.said("ip -d link show rx0 | grep -o 'promiscuity [0-9]*'");
    for (argument, expected) in [("--quiet", "promiscuity 1"), ("-p", "promiscuity 0")] {
        let capture = net.capture(&["count", "--format", "json", argument], 1);
        network::wait_for(expected, || listening() == expected);
        // The MAC address is not the interface's. A veth pair delivers the frame all the same.
        net.send(&mixed().0, 1);
        assert_eq!(rows(&interrupted(capture))[0]["packets"], 119, "{argument}");
        assert_eq!(listening(), "promiscuity 0", "afterwards");
    }
}

#[test]
fn times_are_those_of_arrival_in_order() {
    let Some(net) = net() else { return };
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let frames: Vec<_> = (1..=500).map(|port| ipv4(&[], 17, (1, port), (2, 53), 60)).collect();
    let capture = net.capture(&["flow", "--format", "json"], 1);
    let before = now();
    net.send(&frames, 1);
    let after = now();
    let mut rows = rows(&interrupted(capture));
    rows.retain(|row| row["table"] == "flow");
    rows.sort_by_key(|row| number(&row["sport"]));
    let times: Vec<u64> = rows.iter().map(|row| number(&row["first_ns"])).collect();
    assert_eq!(times.len(), 500);
    assert!(times.is_sorted(), "{times:?}");
    assert!(before < times[0] && times[499] < after, "{before} {} {} {after}", times[0], times[499]);
    // Nanoseconds, not multiples of microseconds.
    assert!(times.iter().any(|t| t % 1000 != 0), "{times:?}");
}

/// Loopback shows each packet twice, outgoing and incoming, and carries the longest packets.
#[test]
fn loopback_counts_once_and_the_longest_packet_is_whole() {
    let Some(net) = net() else { return };
    net.shell("ip link set lo up");
    let capture = net.capture_on("lo", &["count", "--expose", "all", "--format", "json"], 1);
    net.shell(
        "python3 -c \"import socket as s; r = s.socket(s.AF_INET, s.SOCK_DGRAM); r.bind(('127.0.0.1', 9)); \
         [r.sendto(bytes(65507), ('127.0.0.1', 9)) and r.recv(65535) for _ in range(40)]\"",
    );
    let row = &rows(&interrupted(capture))[0];
    assert_eq!((number(&row["packets"]), number(&row["udp"])), (40, 40));
    assert_eq!(number(&row["wire_bytes"]), 40 * (14 + 20 + 8 + 65507));
}

/// A file fetched over HTTP from another namespace. The interfaces' own counters give the true numbers.
#[test]
fn one_fetch_over_http_adds_up_in_all_modules() {
    let (Some(net), Some(client)) = (net(), Net::new()) else { return };
    client.shell("ip link del tx0");
    net.shell(&format!("ip link set tx0 netns {} && ip addr add 10.8.0.2/24 dev rx0", client.namespace));
    client.shell("ip link set tx0 up && ip addr add 10.8.0.1/24 dev tx0");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("bulk"), vec![0x5a; 300_000]).unwrap();
    let mut server = net.command("python3");
    server.args(["-m", "http.server", "80", "-d", folder.path().to_str().unwrap()]);
    let server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let _server = network::Ended(server);
    network::wait_for("the server", || net.said("ss -Hltn").contains(":80 "));
    let sent = |what: &str| -> u64 {
        let file = |interface| format!("cat /sys/class/net/{interface}/statistics/tx_{what}");
        let ends = [net.said(&file("rx0")), client.said(&file("tx0"))];
        ends.iter().map(|n| n.parse::<u64>().unwrap()).sum()
    };
    for expose in ["headers", "all"] {
        let modules = "count,port,flow,rtt,dns,tls,http,tcp,talkers,scan";
        let capture = net.capture(&[modules, "--expose", expose, "--format", "json"], 1);
        let before = (sent("packets"), sent("bytes"));
        let fetch = "import urllib.request as u; print(len(u.urlopen('http://10.8.0.2/bulk').read()))";
        assert_eq!(client.said(&format!("python3 -c \"{fetch}\"")), "300000");
        let out = interrupted(capture);
        let (packets, bytes) = (sent("packets") - before.0, sent("bytes") - before.1);
        let rows = rows(&out);
        let table = |name: &str| rows.iter().filter(|row| row["table"] == name).collect::<Vec<_>>();
        let (count, port, tcp) = (table("count")[0], table("port")[0], table("flow"));
        let [tcp] = tcp.into_iter().filter(|row| row["proto"] == 6).collect::<Vec<_>>()[..] else {
            panic!("not one connection: {rows:?}")
        };
        assert_eq!((number(&count["packets"]), number(&count["wire_bytes"])), (packets, bytes), "{expose}");
        assert_eq!(count["tcp_syn"], 1, "one SYN, and a SYN-ACK is not counted as one");
        assert_eq!(
            (&tcp["dport"], &tcp["src"], &tcp["dst"]),
            (&80.into(), &"10.8.0.1".into(), &"10.8.0.2".into())
        );
        assert_eq!(number(&tcp["packets_fwd"]) + number(&tcp["packets_rev"]), number(&count["tcp"]));
        assert_eq!((&port["packets"], &port["wire_bytes"]), (&tcp["packets_fwd"], &tcp["bytes_fwd"]));
        assert!(number(&tcp["bytes_rev"]) > 300_000, "{tcp}");
        let [handshake] = table("handshake")[..] else { panic!("not one handshake: {rows:?}") };
        assert_eq!((&handshake["sport"], &handshake["syn_retransmits"]), (&tcp["sport"], &0.into()));
        assert_eq!(handshake["syn_ns"], tcp["first_ns"]);
        let rtt = number(&handshake["rtt_ns"]);
        assert!(0 < rtt && rtt < number(&tcp["last_ns"]) - number(&tcp["first_ns"]), "{handshake} {tcp}");
        let requests = table("request");
        if expose == "all" {
            let [request] = requests[..] else { panic!("not one request: {rows:?}") };
            assert_eq!((&request["method"], &request["target"]), (&"GET".into(), &"/bulk".into()));
            let answer = (number(&request["status"]), number(&request["response_length"]));
            assert_eq!((answer, &request["host"]), ((200, 300_000), &"10.8.0.2".into()), "{request}");
            assert!(0 < number(&request["time_ns"]) && number(&request["time_ns"]) < 10_000_000_000);
        } else {
            assert!(requests.is_empty(), "{requests:?}");
        }
        let [connection] = table("connection")[..] else { panic!("not one connection: {rows:?}") };
        assert_eq!(
            (&connection["packets_fwd"], &connection["handshake"]),
            (&tcp["packets_fwd"], &"complete".into())
        );
        assert_eq!(connection["retransmissions_rev"], 0, "{connection}");
        let top = table("top");
        assert_eq!((&top[0]["key"], &top[0]["error"]), (&"10.8.0.2".into(), &0.into()));
        for name in modules.split(',') {
            let account = &account(&out)["modules"][name];
            assert_eq!(
                (&account["processed"], &account["adds_up"]),
                (&packets.into(), &true.into()),
                "{name}"
            );
        }
    }
}

#[test]
fn what_the_kernel_drops_is_counted() {
    let Some(net) = net() else { return };
    let capture = net.capture(&["count", "--format", "json"], 1);
    // The process is stopped while more packets arrive than the ring holds.
    capture.signal("STOP");
    let frames = vec![ipv4(&[], 17, (1, 1), (2, 53), 1500); 1000];
    net.send(&frames, 60);
    // Waits for packets in the queue of the network stack.
    std::thread::sleep(Duration::from_millis(200));
    capture.signal("CONT");
    let out = interrupted(capture);
    let (account, row) = (account(&out), &rows(&out)[0]);
    let (seen, dropped) = (number(&row["packets"]), number(&account["kernel_drops"]));
    assert!(dropped > 0 && seen > 1000, "{account}");
    assert_eq!(seen + dropped, 60_000, "{account}");
}

#[test]
fn an_interface_that_is_not_there_or_goes_away_is_named() {
    let Some(net) = net() else { return };
    let run = |interface: &str| {
        let mut flame = net.command(&network::flame());
        let out = flame.args(["run", "count", "-i", interface]).output().unwrap();
        assert_eq!(out.status.code(), Some(1));
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let said = run("nowhere0");
    assert!(said.contains("nowhere0") && said.contains("tx0"), "{said}");
    net.shell("ip link add down0 type veth peer name down1");
    let said = run("down0");
    assert!(said.contains("interface down0") && said.contains("ip link set down0 up"), "{said}");

    // Packets that were seen before the interface was removed are not lost, in a file either.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("records.json");
    let capture = net.capture(&["count", "--format", "json", "-o", file.to_str().unwrap()], 1);
    net.send_then(&mixed().0, "ip link del rx0");
    let out = capture.end();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("interface rx0"), "{said}");
    assert!(said.contains("\"adds_up\":true"), "{said}");
    let records = std::fs::read_to_string(file).unwrap();
    assert!(records.contains("\"packets\":119"), "{records}");
}

/// Needs all bytes. Records their sum or, if built so, tests whether the ring is mapped.
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
        [limits]\npacket_budget = 10000000\n[[tables]]\nname = \"sum\"\ncolumns = [{ name = \"bytes\", type = \"u64\" }]\n";
    let build = |name: &str, beyond: &str| {
        let wasm = wat::parse_str(READER.replace("BEYOND", beyond)).unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, common::with_manifest(wasm, manifest.as_bytes())).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // The address at which a mapped ring would begin: after the blocks of the view.
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
        // The ring holds packets that the filter excludes, so it must not be mapped.
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
