//! Tests of payload under a transform: ordinary payload is shown; packets in it are not, and are counted.

use crate::commands::{flame, text};
use crate::common;
use std::path::Path;

/// Returns a frame from 10.1.2.3 to 10.4.5.6 with this protocol and the rest of its datagram.
fn frame(proto: u8, rest: &[u8]) -> Vec<u8> {
    let mut p = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    p.extend(ipv4(proto, rest));
    p
}

fn ipv4(proto: u8, rest: &[u8]) -> Vec<u8> {
    let total = (20 + rest.len()) as u16;
    let mut p = vec![0x45, 0, (total >> 8) as u8, total as u8, 1, 2, 0x40, 0, 64, proto, 0, 0];
    p.extend([10, 1, 2, 3, 10, 4, 5, 6]);
    let sum: u32 = p.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    p[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    [&p, rest].concat()
}

fn request(number: u8, payload: &[u8]) -> Vec<u8> {
    let head = [0x90, number, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 1, 0, 0, 0, 0, 0];
    frame(6, &[&head[..], payload].concat())
}

fn datagram(payload: &[u8]) -> Vec<u8> {
    let head = [0x90, 1, 0x27, 0x0f, 0, (8 + payload.len()) as u8, 0, 0];
    frame(17, &[&head[..], payload].concat())
}

fn capture(path: &Path, packets: &[Vec<u8>]) {
    let packets = packets.iter().map(|packet| (1_700_000_000_000_000_000, packet));
    common::Pcap::default().with(packets).write(path);
}

/// A transform of MAC addresses takes no alert on a payload.
#[test]
fn no_alert_is_lost_under_a_transform() {
    if common::module("ids").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let own = (0..40).map(|n| request(n, b"GET / HTTP/1.1\r\n\r\n"));
    let longer = (40..80).map(|n| request(n, format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()));
    capture(&folder.path().join("in.pcap"), &own.chain(longer).collect::<Vec<_>>());
    let rule = "alert tcp any any -> any 80 (msg:\"request\"; content:\"GET \"; sid:9000001;)";
    std::fs::write(folder.path().join("some.rules"), rule).unwrap();
    let demo = common::root().join("demo/demo.pcap").canonicalize().unwrap().display().to_string();
    let mut captures = vec!["in.pcap".to_owned(), demo];
    if let Some(traces) = common::traces() {
        let files = std::fs::read_dir(traces.join("open/files")).unwrap().flatten().map(|e| e.path());
        let http = files.filter(|path| path.to_str().is_some_and(|path| path.contains("http")));
        captures.extend(http.take(12).map(|path| path.display().to_string()));
    }
    let mut alerts = 0;
    for file in &captures {
        let of = |more: &[&str]| {
            let run = ["run", "ids", "-r", file, "--expose", "all", "--set", "ids.rules=@some.rules"];
            let shape = ["--table", "alert", "--format", "json", "--stats", "json"];
            let out = flame(folder.path(), &[&run[..], &shape, more].concat());
            assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
            text(&out.stdout)
        };
        let plain = of(&[]);
        assert_eq!(plain, of(&["--transform", "mac=zero"]), "{file}");
        alerts += plain.lines().count();
        assert!(file != "in.pcap" || plain.lines().count() == 80, "{plain}");
    }
    assert!(alerts > 80, "{alerts}");
}

/// A tunnel on an unusual port is not shown, in a process neither, and the account states how many packets it
/// concerns.
#[test]
fn packets_in_payload_are_cut_and_counted() {
    if common::module("worm").is_none() {
        return;
    }
    common::runner();
    let folder = tempfile::tempdir().unwrap();
    let tunnel = datagram(&[&[9, 9, 9][..], &ipv4(17, &[7; 12])].concat());
    let text_only = datagram(b"Elephants, 45 of them, and GET / HTTP/1.1");
    let packets: Vec<_> = (0..60).map(|n| if n % 5 == 0 { &tunnel } else { &text_only }.clone()).collect();
    capture(&folder.path().join("in.pcap"), &packets);
    for place in [&[][..], &["--isolate"], &["--workers", "2"]] {
        for (transform, cut) in [("mac=zero", 12), ("port=keep", 0)] {
            let run = ["run", "worm", "-r", "in.pcap", "--expose", "all", "--transform", transform];
            let out = flame(folder.path(), &[&run[..], &["--stats", "json"], place].concat());
            assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
            let said = text(&out.stderr);
            let account: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
            let account = &account["modules"]["worm"];
            assert_eq!((&account["cut"], &account["processed"]), (&cut.into(), &60.into()), "{said}");
            let table = text(&flame(folder.path(), &[&run[..], place].concat()).stderr);
            let line = "worm: payload of 12 packets was not shown: it contains a packet";
            assert_eq!(table.contains(line), cut > 0, "{table}");
        }
    }
}
