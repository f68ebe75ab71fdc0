//! Tests of `-w` without a module, and of the hint for VLAN-tagged packets.

use crate::commands::{done, flame, text};
use crate::common::{self, tcp_packet};
use std::path::Path;

fn demo() -> String {
    common::root().join("demo/demo.pcap").canonicalize().unwrap().display().to_string()
}

/// Returns the bytes of the packets of a pcap file with their times in nanoseconds.
fn read(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let bytes = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let unit = match word(0) {
        0xa1b2_c3d4 => 1000,
        0xa1b2_3c4d => 1,
        other => panic!("{other:x} is no magic of pcap"),
    };
    assert_eq!((word(4), word(20)), (4 << 16 | 2, 1), "version, link type");
    let (mut at, mut packets) = (24, Vec::new());
    while at < bytes.len() {
        let n = word(at + 8) as usize;
        let time = u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4)) * unit;
        packets.push((time, bytes[at + 16..at + 16 + n].to_vec()));
        at += 16 + n;
    }
    packets
}

fn magic(path: &Path) -> u32 {
    u32::from_le_bytes(std::fs::read(path).unwrap()[..4].try_into().unwrap())
}

/// Writes a pcap file with times in nanoseconds.
fn capture(path: &Path, packets: &[(u64, Vec<u8>)]) {
    let packets = packets.iter().map(|(ns, packet)| (*ns, packet));
    common::Pcap::nanoseconds().with(packets).write(path);
}

fn tagged(packet: &[u8]) -> Vec<u8> {
    [&packet[..12], &[0x81, 0, 0, 5], &packet[12..]].concat()
}

#[test]
fn packets_that_pass_a_filter_are_written_without_a_module() {
    let folder = tempfile::tempdir().unwrap();
    let given: Vec<_> = (0..3000u64)
        .map(|i| {
            (
                1_700_000_000_123_456_789 + i * 1_000_001,
                tcp_packet(i as u16, if i % 3 == 0 { 80 } else { 443 }),
            )
        })
        .collect();
    capture(&folder.path().join("in.pcap"), &given);
    let chosen: Vec<_> = given.iter().step_by(3).cloned().collect();
    let out =
        flame(folder.path(), &["run", "-r", "in.pcap", "-w", "out.pcap", "--nano", "tcp", "port", "80"]);
    assert!(out.status.success() && out.stdout.is_empty(), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("3,000 packets read"), "{}", text(&out.stderr));
    assert_eq!(read(&folder.path().join("out.pcap")), chosen);
    // A capture of microseconds stays one; the filter as one word.
    let cut: Vec<_> = chosen.iter().map(|(ns, bytes)| (ns - ns % 1000, bytes.clone())).collect();
    let packets = given.iter().map(|(ns, packet)| (*ns, packet));
    common::Pcap::default().with(packets).write(&folder.path().join("micro-in.pcap"));
    done(folder.path(), &["run", "tcp port 80", "-r", "micro-in.pcap", "-w", "micro.pcap", "-q"]);
    assert!(read(&folder.path().join("micro.pcap")) == cut);
    assert_eq!(magic(&folder.path().join("micro.pcap")), 0xa1b2_c3d4);
    // Nanoseconds are kept without --nano, of pcap, of several files, of pcapng and of a pipe.
    let kept = |args: &[&str]| {
        done(folder.path(), &[&["run", "tcp port 80", "-w", "nano.pcap", "-q"], args].concat());
        (magic(&folder.path().join("nano.pcap")), read(&folder.path().join("nano.pcap")).len())
    };
    assert_eq!(kept(&["-r", "in.pcap"]), (0xa1b2_3c4d, 1000));
    assert!(read(&folder.path().join("nano.pcap")) == chosen);
    assert_eq!(kept(&["-r", "micro-in.pcap", "-r", "in.pcap"]), (0xa1b2_3c4d, 2000));
    assert_eq!(kept(&["-r", "micro-in.pcap"]), (0xa1b2_c3d4, 1000));
    // Other names are pcapng, which keeps nanoseconds.
    done(folder.path(), &["run", "-r", "in.pcap", "-w", "out.pcapng", "-q", "tcp port 80"]);
    assert_eq!(&std::fs::read(folder.path().join("out.pcapng")).unwrap()[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    assert_eq!(kept(&["-r", "out.pcapng"]), (0xa1b2_3c4d, 1000));
    done(folder.path(), &["run", "-r", "out.pcapng", "-w", "back.pcap", "-q"]);
    assert_eq!(read(&folder.path().join("back.pcap")), chosen);
    // The account states how many were written and cut.
    for (expose, said) in [
        ("all", "flame: 1,000 packets written to w.pcap, none of them cut"),
        ("headers", "flame: 1,000 packets written to w.pcap, 1,000 of them cut, shorter than on the wire"),
    ] {
        let args = ["run", "-r", "in.pcap", "-w", "w.pcap", "--expose", expose, "tcp port 80"];
        let out = flame(folder.path(), &args);
        assert!(text(&out.stderr).lines().any(|line| line == said), "{}", text(&out.stderr));
    }
    // Standard output.
    let out = flame(folder.path(), &["run", "-r", "in.pcap", "-w", "-", "-q", "tcp port 80"]);
    assert_eq!(out.stdout, std::fs::read(folder.path().join("out.pcapng")).unwrap());
    // A capture without packets is still one.
    done(folder.path(), &["run", "-r", "in.pcap", "-w", "none.pcap", "-q", "udp"]);
    assert!(read(&folder.path().join("none.pcap")).is_empty());
}

#[test]
fn a_count_is_of_written_packets_without_a_module() {
    let folder = tempfile::tempdir().unwrap();
    let given: Vec<_> =
        (0..2500u64).map(|i| (i, tcp_packet(i as u16, if i % 2 == 0 { 80 } else { 443 }))).collect();
    capture(&folder.path().join("in.pcap"), &given);
    for count in [1, 5, 1024, 1250, 9999] {
        let n = count.to_string();
        done(folder.path(), &["run", "-r", "in.pcap", "-w", "out.pcap", "--nano", "-q", "-c", &n, "port 80"]);
        let expected: Vec<_> = given.iter().step_by(2).take(count).cloned().collect();
        assert_eq!(read(&folder.path().join("out.pcap")), expected, "{count}");
    }
    if common::module("count").is_none() {
        return;
    }
    // With a module it is of packets read, for both.
    let run = ["run", "count", "-r", "in.pcap", "-w", "both.pcap", "--nano", "-q", "--format", "json"];
    let row = done(folder.path(), &[&run[..], &["-c", "1500", "port 80"]].concat());
    assert!(row.contains("\"packets\":750"), "{row}");
    assert_eq!(read(&folder.path().join("both.pcap")).len(), 750);
}

#[test]
fn the_view_applies_to_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("key"), "07".repeat(16) + &"2a".repeat(16)).unwrap();
    let given: Vec<_> = (0..100u64).map(|i| (i, tcp_packet(i as u16, 80))).collect();
    capture(&folder.path().join("in.pcap"), &given);
    let run = ["run", "-r", "in.pcap", "-w", "out.pcap", "--nano", "-q"];
    let written = |more: &[&str]| {
        done(folder.path(), &[&run[..], more].concat());
        read(&folder.path().join("out.pcap"))
    };
    let hidden = written(&["--transform", "ip=prefix", "--key", "key"]);
    assert_eq!(hidden.len(), 100);
    for ((_, shown), (_, given)) in hidden.iter().zip(&given) {
        assert_ne!(shown[26..34], given[26..34], "addresses");
        assert_eq!((shown.len(), &shown[34..38]), (given.len(), &given[34..38]), "ports");
    }
    assert!(written(&["--expose", "headers"]).iter().all(|(_, bytes)| bytes.len() == 54));
    assert!(written(&["--workers", "2"]).len() == 100, "a capture has one source");
}

#[test]
fn a_first_word_that_is_nothing_is_an_error_of_the_filter() {
    let folder = tempfile::tempdir().unwrap();
    capture(&folder.path().join("in.pcap"), &[(1, tcp_packet(1, 80))]);
    for (args, status, said) in [
        (&["anonymise", "-r", "in.pcap", "-w", "out.pcap"][..], 1, "\"anonymise\" is no module"),
        (&["-r", "in.pcap"][..], 2, "MODULES"),
        (&["-r", "in.pcap", "-w", "out.pcap", "--transform", "ip=prefix"][..], 1, "--key FILE"),
        (&["-r", "in.pcap", "--nano", "count"][..], 2, "--write"),
        (
            &["-r", "in.pcap", "-w", "out.pcap", "tcp", "and", "inbound"][..],
            1,
            "`inbound`, for packets of link type 1",
        ),
        (&["-r", "in.pcap", "-w", "out.pcap", "protochain", "6"][..], 1, "`protochain` is refused"),
    ] {
        let out = flame(folder.path(), &[&["run"], args].concat());
        assert_eq!(out.status.code(), Some(status), "{args:?}: {}", text(&out.stderr));
        assert!(text(&out.stderr).contains(said), "{args:?}: {}", text(&out.stderr));
    }
    assert!(!folder.path().join("out.pcap").exists());
}

#[test]
fn packets_and_records_do_not_mix_on_standard_output() {
    if common::module("flow").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = flame(folder.path(), &["run", "flow", "-r", &demo(), "-w", "-"]);
    assert_eq!((out.status.code(), out.stdout.len()), (Some(1), 0));
    assert!(text(&out.stderr).contains("add -o FILE"), "{}", text(&out.stderr));
}

#[test]
fn a_policy_lets_only_modules_write() {
    let folder = tempfile::tempdir().unwrap();
    let root = done(folder.path(), &["key", "new", "root.key"]);
    done(folder.path(), &["key", "new", "node.key"]);
    let policy = format!("[node]\nname = \"tap1\"\nkey = \"node.key\"\n[roots]\noperator = \"{root}\"\n");
    std::fs::write(folder.path().join("policy.toml"), policy).unwrap();
    let out = flame(folder.path(), &["run", "-r", &demo(), "-w", "out.pcap", "--policy", "policy.toml"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("run anonymize -w FILE"), "{}", text(&out.stderr));
    assert!(!folder.path().join("out.pcap").exists());
}

#[test]
fn tagged_packets_that_a_filter_misses_get_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let given: Vec<_> = (0..50u64)
        .map(|i| (i, if i % 5 == 0 { tcp_packet(i as u16, 80) } else { tagged(&tcp_packet(i as u16, 80)) }))
        .collect();
    capture(&folder.path().join("in.pcap"), &given);
    let said = |more: &[&str]| {
        let out = flame(folder.path(), &[&["run", "-r", "in.pcap", "-w", "out.pcap"][..], more].concat());
        assert!(out.status.success(), "{}", text(&out.stderr));
        text(&out.stderr)
    };
    let hint = said(&["tcp", "port", "80"]);
    assert!(hint.contains("40 VLAN-tagged packets would pass the filter without their tags"), "{hint}");
    assert!(hint.contains("'tcp port 80 or (vlan and (tcp port 80))'"), "{hint}");
    // The filter of the hint finds all, and needs no hint.
    let whole = said(&["tcp port 80 or (vlan and (tcp port 80))"]);
    assert!(!whole.contains("VLAN"), "{whole}");
    assert_eq!(read(&folder.path().join("out.pcap")).len(), 50);
    for none in [&["udp"][..], &["tcp port 80", "-q"], &[]] {
        assert!(!said(none).contains("VLAN"), "{none:?}");
    }
}
