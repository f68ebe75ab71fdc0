//! Small captures on which programs have erred, with the right values.

use crate::commands::text;
use crate::common::{self, Pcap};
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

pub const SECOND: u64 = 1_000_000_000;

/// Runs the command in a folder, with the code cache of all tests.
pub fn flame(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flame")).args(arguments).current_dir(folder).output().unwrap()
}

/// Returns standard output, standard error and the status of a run of `module` over a file.
pub fn run(module: &str, name: &str, capture: &[u8], more: &[&str]) -> (String, String, Option<i32>) {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join(name), capture).unwrap();
    let out = flame(folder.path(), &[&["run", module, "-r", name, "--format", "csv"], more].concat());
    (text(&out.stdout), text(&out.stderr), out.status.code())
}

/// Returns columns of the flows of a capture, in order, without the head.
pub fn flows(capture: Pcap, columns: &str, more: &[&str]) -> Vec<String> {
    let more = [&["--table", "flow", "--columns", columns], more].concat();
    let (out, said, status) = run("flow", "in.pcap", &capture.bytes(), &more);
    assert_eq!(status, Some(0), "{said}");
    let mut rows: Vec<_> = out.lines().skip(1).map(str::to_owned).collect();
    rows.sort();
    rows
}

pub fn has_modules() -> bool {
    ["flow", "count", "rtt"].iter().all(|name| common::module(name).is_some())
}

/// Returns an IPv4 packet from 192.0.2.1 to 198.51.100.2, with its checksum.
pub fn ip(proto: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, proto, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2];
    packet[2..4].copy_from_slice(&((20 + payload.len()) as u16).to_be_bytes());
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    let sum: u32 = packet.chunks(2).map(|b| u32::from(b[0]) << 8 | u32::from(b[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    [&packet, payload].concat()
}

/// Returns a datagram of UDP.
pub fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len()) as u16;
    [&[from, to, length, 0].map(u16::to_be_bytes).concat()[..], payload].concat()
}

/// Returns a TCP header.
pub fn tcp(from: u16, to: u16, sequence: u32, acknowledged: u32, flags: u8) -> Vec<u8> {
    let ports = [from, to].map(u16::to_be_bytes).concat();
    let numbers = [sequence, acknowledged].map(u32::to_be_bytes).concat();
    [&ports[..], &numbers, &[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]].concat()
}

/// Returns a frame whose addresses begin as IPv4 does, with tags before the type.
pub fn frame(tags: &[u8], kind: u16, payload: &[u8]) -> Vec<u8> {
    let addresses = [0x48, 1, 2, 3, 4, 5, 0x45, 0, 0, 6, 7, 8];
    [&addresses[..], tags, &kind.to_be_bytes(), payload].concat()
}

pub fn ethernet(payload: &[u8]) -> Vec<u8> {
    frame(&[], 0x0800, payload)
}

/// Returns the packet inside all others here: DNS.
pub fn inner() -> Vec<u8> {
    ip(17, 0, &udp(4000, 53, b"asked"))
}

#[test]
fn fragments_and_cut_packets_have_their_protocol_and_no_ports() {
    if !has_modules() {
        return;
    }
    let whole = udp(5000, 53, &[7; 72]);
    let capture = || {
        let mut capture = Pcap::default().with([
            (SECOND, ethernet(&ip(17, 0x2000, &whole[..40]))),
            (SECOND, ethernet(&ip(17, 5, &whole[40..]))),
            (SECOND, ethernet(&ip(136, 0, &udp(1, 2, &[])))),
            (SECOND, ethernet(&ip(33, 0, &udp(3, 4, &[0; 8])))),
        ]);
        let cut = ethernet(&ip(6, 0, &tcp(1000, 80, 1, 0, 2)));
        capture.push_part(SECOND, &cut[..36], cut.len() as u32);
        capture
    };
    let found = flows(capture(), "proto,sport,dport,unknown_ports,ip_bytes_fwd", &[]);
    assert_eq!(
        found,
        ["136,1,2,false,28", "17,,,true,60", "17,5000,53,false,60", "33,3,4,false,36", "6,,,true,40"]
    );
    let columns = ["--table", "count", "--columns", "tcp,udp"];
    let (out, said, _) = run("count", "in.pcap", &capture().bytes(), &columns);
    assert_eq!(out.lines().last(), Some("1,2"), "{said}");
}

#[test]
fn networks_are_told_apart_on_request() {
    if !has_modules() {
        return;
    }
    let vlan = |number: u8| frame(&[0x81, 0, 0, number], 0x0800, &inner());
    let vxlan =
        |vni: u8| ethernet(&ip(17, 0, &udp(9, 4789, &[&[8, 0, 0, 0, 0, 0, vni, 0], &vlan(9)[..]].concat())));
    let label = |label: u8| frame(&[], 0x8847, &[&[0, 0, label << 4 | 1, 64], &inner()[..]].concat());
    let cases = [
        (vlan(1), vlan(2), [",1,,", ",2,,"]),
        (vxlan(5), vxlan(6), [",9,5,", ",9,6,"]),
        (label(3), label(4), [",,,3", ",,,4"]),
    ];
    for (one, other, tags) in cases {
        let capture = || Pcap::default().with([(SECOND, &one), (SECOND, &other), (SECOND, &one)]);
        let columns = "packets_fwd,vlan,vni,mpls";
        let together = flows(capture(), columns, &["--decapsulate"]);
        assert_eq!(together, [format!("3{}", tags[0])]);
        let apart = flows(capture(), columns, &["--decapsulate", "--set", "flow.tags=true"]);
        assert_eq!(apart, [format!("1{}", tags[1]), format!("2{}", tags[0])]);
    }
}

#[test]
fn the_forms_of_files_are_read_or_named() {
    if !has_modules() {
        return;
    }
    let packets = [ethernet(&inner()), ethernet(&ip(6, 0, &tcp(1, 2, 3, 4, 2)))];
    let capture = Pcap::default().with([(SECOND, &packets[0]), (SECOND, &packets[1])]).bytes();
    let count =
        |name: &str, bytes: &[u8]| run("count", name, bytes, &["--table", "count", "--columns", "packets"]);
    let works = |name: &str, bytes: &[u8]| {
        let (out, said, status) = count(name, bytes);
        assert_eq!((out.as_str(), status), ("packets\n2\n", Some(0)), "{name}: {said}");
        said
    };
    let skipped =
        [&[0x5a, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9], &zstd::encode_all(&capture[..], 1).unwrap()[..]];
    works("skippable.zst", &skipped.concat());
    works("padded.gz", &[&gzip(&capture)[..], &[0; 1000]].concat());
    // The lengths are exchanged in version 2.2, and one of them is shorter than the other.
    let mut old = capture.clone();
    old[6..8].copy_from_slice(&[2, 0]);
    let (place, length) = (24, packets[0].len() as u32);
    old[place + 8..place + 16].copy_from_slice(&[length + 100, length].map(u32::to_le_bytes).concat());
    works("old", &old);
    let mut short = capture.clone();
    short[place + 12..place + 16].copy_from_slice(&1u32.to_le_bytes());
    let said = works("short", &short);
    assert!(said.contains("note: short: packet 1 states 1 bytes on the wire and 47 captured ones"), "{said}");
    for (head, program) in [(&b"\xfd7zXZ\0"[..], "xz"), (b"BZh9", "bzip2"), (b"\x04\x22\x4d\x18", "lz4")] {
        let (_, said, status) = count("in", &[head, &[1; 100]].concat());
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains(&format!("`{program} -dc in | flame … -r -`")), "{said}");
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn intervals_follow_time() {
    if !has_modules() {
        return;
    }
    let tenths = |tenths: &[u64]| {
        let packet = ethernet(&inner());
        Pcap::default().with(tenths.iter().map(|at| (at * SECOND / 10, packet.clone()))).bytes()
    };
    let count = |capture: &[u8]| {
        let more = ["--table", "interval", "--columns", "start_ns,end_ns,packets", "--interval", "1s"];
        let (out, said, status) = run("count", "in.pcap", capture, &more);
        assert_eq!(status, Some(0), "{said}");
        (out.lines().skip(1).map(|line| line.replace("000000000", "")).collect::<Vec<_>>(), said)
    };
    let (rows, said) = count(&tenths(&[5, 6, 35, 41]));
    assert_eq!(rows, ["0,1,2", "1,2,0", "2,3,0", "3,4,1", "4,5,1"], "{said}");
    assert!(!said.contains("note"), "{said}");
    // A long gap is one row.
    let (rows, said) = count(&tenths(&[5, 20_005, 40_005]));
    assert_eq!(rows, ["0,1,1", "1,2000,0", "2000,2001,1", "2001,4000,0", "4000,4001,1"]);
    assert!(said.contains("no packets come for 1999 s after 1 s since 1970"), "{said}");
    assert_eq!(said.matches("note: ").count(), 1, "{said}");
    let (_, said) = count(&tenths(&[36_000, 36_001, 5, 4]));
    assert!(said.contains("the time of packet 3 is 3599.6 s before that of an earlier packet"), "{said}");
    assert_eq!(said.matches("note: ").count(), 1, "{said}");
}

/// Returns a block of pcapng.
pub fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    let length = (12 + body.len() as u32).to_le_bytes();
    [&kind.to_le_bytes()[..], &length, &body, &length].concat()
}

/// Returns a pcapng file with an interface of Ethernet and more blocks.
pub fn pcapng(blocks: &[Vec<u8>]) -> Vec<u8> {
    let section = [&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    [block(0x0a0d_0d0a, &section), block(1, &[1, 0, 0, 0, 0, 0, 0, 0]), blocks.concat()].concat()
}

/// Returns a packet of pcapng, with a time in microseconds.
pub fn enhanced(time: u64, packet: &[u8]) -> Vec<u8> {
    let length = packet.len() as u32;
    let head = [0, (time >> 32) as u32, time as u32, length, length].map(u32::to_le_bytes).concat();
    block(6, &[&head, packet].concat())
}

#[test]
fn what_is_unknown_is_no_value() {
    if !has_modules() {
        return;
    }
    let handshake = [tcp(1, 2, 10, 0, 2), tcp(1, 2, 11, 0, 16)].map(|tcp| ethernet(&ip(6, 0, &tcp)));
    let simple = |packet: &Vec<u8>| block(3, &[&(packet.len() as u32).to_le_bytes()[..], packet].concat());
    let without_times = pcapng(&[simple(&handshake[0]), simple(&handshake[1])]);
    let rtt =
        |capture: &[u8]| run("rtt", "in.pcapng", capture, &["--table", "handshake", "--columns", "rtt_ns"]);
    let (out, said, status) = rtt(&without_times);
    assert_eq!((out.lines().count(), status), (1, Some(0)), "{out}{said}");
    let (out, said, _) =
        rtt(&pcapng(&[enhanced(1_000_000, &handshake[0]), enhanced(1_000_005, &handshake[1])]));
    assert_eq!(out.lines().nth(1), Some("5000"), "{said}");
    // A file has no kernel; its statistics state the drops of the kernel that captured it.
    assert!(!said.contains("dropped"), "{said}");
    let drops = [(5u16, 500u64), (7, 33)]
        .map(|(code, n)| [&code.to_le_bytes()[..], &[8, 0], &n.to_le_bytes()].concat());
    let statistics = block(5, &[&[0; 12][..], &drops.concat(), &[0; 4]].concat());
    let (_, said, status) =
        run("count", "in.pcapng", &pcapng(&[enhanced(1, &handshake[0]), statistics]), &[]);
    assert!(said.contains("500 by the interface, 33 by the system") && status == Some(0), "{said}");
    // No pcap file can state a time after 2106.
    let late = pcapng(&[enhanced(4_300_000_000_000_000, &handshake[0])]);
    let written = |name: &str| {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("in.pcapng"), &late).unwrap();
        let out = flame(folder.path(), &["run", "-r", "in.pcapng", "-w", name]);
        (text(&out.stderr), out.status.success(), folder.path().join(name).exists())
    };
    let (said, is_done, is_there) = written("out.pcap");
    assert!(said.contains("up to 2106: give -w a name in .pcapng") && !is_done && !is_there, "{said}");
    assert!(written("out.pcapng").1);
}

/// Returns whether a capture of one packet of a link type shows the inner packet.
pub fn shows_inner(link: u32, packet: &[u8], more: &[&str]) -> Vec<String> {
    flows(Pcap::new(link).with([(SECOND, packet)]), "src,dst,sport,dport,proto", more)
}

pub const INNER: &str = "192.0.2.1,198.51.100.2,4000,53,17";

#[test]
fn link_types_are_decoded() {
    if !has_modules() {
        return;
    }
    let with = |head: &[u8]| [head, &inner()].concat();
    let framed = |head: &[u8]| [head, &ethernet(&inner())].concat();
    let mut pktap = vec![0; 108];
    (pktap[0], pktap[4], pktap[8]) = (108, 1, 1);
    let mut pflog = vec![0; 64];
    (pflog[0], pflog[1]) = (61, 2);
    let cases: [(u32, Vec<u8>); 13] = [
        (258, framed(&pktap)),
        (192, framed(&[0, 0, 12, 0, 1, 0, 0, 0, 7, 7, 7, 7])),
        (117, with(&pflog)),
        (109, with(&[2, 0, 0, 0, 9, 9, 9, 9, 0, 0, 0, 0])),
        (51, with(&[0x11, 0, 0, 1, 0, 35, 0, 0x21])),
        (166, with(&[1, 0xff, 3, 0, 0x21])),
        (204, with(&[0, 0, 0x21])),
        (107, with(&[0x18, 0x41, 3, 0xcc])),
        (107, with(&[0x18, 0x41, 3, 0, 0x80, 0, 0, 0, 8, 0])),
        (107, with(&[0x80, 0xea, 0x9d, 8, 0])),
        (100, with(&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0])),
        (100, framed(&[0xaa, 0xaa, 3, 0, 0x80, 0xc2, 0, 7, 0, 0])),
        (1, frame(&[], 0x8870, &with(&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0]))),
    ];
    for (link, packet) in cases {
        assert_eq!(shows_inner(link, &packet, &[]), [INNER], "link type {link}");
    }
    for (link, name) in [(197, "Endace ERF"), (201, "Bluetooth HCI UART with direction")] {
        let capture = Pcap::new(link).with([(SECOND, [0; 60])]).bytes();
        let (_, said, _) = run("count", "in.pcap", &capture, &[]);
        assert!(said.contains(&format!("link type {link} ({name}) is not decoded")), "{said}");
    }
}

#[test]
fn pseudowires_invent_no_addresses() {
    if !has_modules() {
        return;
    }
    let wire = |head: &[u8], tags: &[u8]| {
        frame(&[], 0x8847, &[&[0, 0x06, 0x41, 64], head, &frame(tags, 0x0800, &inner())].concat())
    };
    for head in [&[][..], &[0, 0, 0, 0], &[0, 0, 0, 9], &[0x08, 0, 0, 0]] {
        for tags in [&[][..], &[0x81, 0, 0, 5], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6], &[0x91, 0, 0, 5]] {
            assert_eq!(shows_inner(1, &wire(head, tags), &[]), [INNER], "{head:?} {tags:?}");
        }
    }
}

#[test]
fn tunnels_are_opened() {
    if !has_modules() {
        return;
    }
    let inside =
        |port: u16, head: &[u8], payload: &[u8]| ip(17, 0, &udp(700, port, &[head, payload].concat()));
    let (plain, whole) = (inner(), ethernet(&inner()));
    let label = [0, 0x06, 0x41, 64];
    let ppp = [&[0xff, 3, 0, 0x21], &plain[..]].concat();
    let wireless = [&[8, 2, 0, 0][..], &[2; 18], &[0x10, 0, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &plain].concat();
    let cases: [(&str, Vec<u8>); 20] = [
        ("GTP-U", inside(2152, &[0x30, 255, 0, 33, 0, 0, 0, 1], &plain)),
        ("GTP-U, numbered", inside(2152, &[0x32, 255, 0, 37, 0, 0, 0, 1, 0, 7, 0, 0], &plain)),
        (
            "GTP-U, extended",
            inside(2152, &[0x34, 255, 0, 41, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0x10, 9, 0], &plain),
        ),
        ("VXLAN-GPE", inside(4790, &[0x0c, 0, 0, 1, 0, 0, 9, 0], &plain)),
        ("VXLAN-GPE, frame", inside(4790, &[0x0c, 0, 0, 3, 0, 0, 9, 0], &whole)),
        ("VXLAN-GPE, MPLS", inside(4790, &[0x0c, 0, 0, 5, 0, 0, 9, 0], &[&label[..], &plain].concat())),
        (
            "VXLAN-GPE, NSH",
            inside(4790, &[0x0c, 0, 0, 4, 0, 0, 9, 0], &[&[0, 2, 2, 1, 0, 0, 1, 255][..], &plain].concat()),
        ),
        ("GRE, a VLAN", ip(47, 0, &[&[0, 0, 0x81, 0, 0, 5, 8, 0], &plain[..]].concat())),
        ("GRE with a key, NSH", {
            let head = [0x20, 0, 0x89, 0x4f, 0, 0, 0, 1, 0, 2, 2, 1, 0, 0, 1, 255];
            ip(47, 0, &[&head, &plain[..]].concat())
        }),
        ("GENEVE, MPLS", inside(6081, &[0, 0, 0x88, 0x47, 0, 0, 9, 0], &[&label[..], &plain].concat())),
        ("TZSP, 802.11", inside(37008, &[1, 0, 0, 0x12, 1], &wireless)),
        ("L2TP without lengths", inside(1701, &[0, 2, 0, 1, 0, 2], &ppp)),
        ("MPLS in UDP", inside(6635, &label, &plain)),
        ("MPLS in GRE", ip(47, 0, &[&[0, 0, 0x88, 0x47], &label[..], &plain].concat())),
        ("MPLS in IP", ip(137, 0, &[&label[..], &plain].concat())),
        ("EtherIP", ip(97, 0, &[&[0x30, 0], &whole[..]].concat())),
        ("L2TP", inside(1701, &[0x40, 2, 0, 41, 0, 1, 0, 2], &ppp)),
        ("PPTP", ip(47, 0, &[&[0x30, 1, 0x88, 0x0b, 0, 37, 0, 1, 0, 0, 0, 5], &ppp[..]].concat())),
        ("TZSP", inside(37008, &[1, 0, 0, 1, 10, 1, 7, 1], &whole)),
        ("LISP", inside(4341, &[0x80, 1, 2, 3, 0, 0, 0, 0], &plain)),
    ];
    for (name, packet) in cases {
        let outer = shows_inner(1, &ethernet(&packet), &[]);
        assert!(outer.len() == 1 && outer[0] != INNER, "{name}: {outer:?}");
        assert_eq!(shows_inner(1, &ethernet(&packet), &["--decapsulate"]), [INNER], "{name}");
    }
    // Teredo: authentication and origin before IPv6.
    let mut six = vec![0x60, 0, 0, 0, 0, 8, 17, 9];
    six.extend([[0x20, 1, 0xd, 0xb8], [0; 4], [0; 4], [0, 0, 0, 1]].concat());
    six.extend([[0x20, 1, 0xd, 0xb8], [0; 4], [0; 4], [0, 0, 0, 2]].concat());
    six.extend(udp(4000, 53, &[]));
    let origin = [0, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9, 9, 9, 9, 9, 9];
    for head in [&[][..], &origin[13..], &origin] {
        let packet = ethernet(&ip(17, 0, &udp(3544, 700, &[head, &six].concat())));
        assert_eq!(
            shows_inner(1, &packet, &["--decapsulate"]),
            ["2001:db8::1,2001:db8::2,4000,53,17"],
            "{head:?}"
        );
    }
}

#[test]
fn outputs_are_compressed_by_their_names() {
    if !has_modules() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    Pcap::default().with([(SECOND, ethernet(&inner()))]).write(&path("in.pcap"));
    let plain = |arguments: &[&str], name: &str| -> Vec<u8> {
        let out = flame(folder.path(), &[&["run"], arguments, &[name]].concat());
        assert!(out.status.success(), "{}", text(&out.stderr));
        read(&path(name))
    };
    let capture = plain(&["-r", "in.pcap", "-w"], "out.pcap");
    assert_eq!(plain(&["-r", "in.pcap", "-w"], "out.pcap.gz"), capture);
    assert_eq!(plain(&["-r", "in.pcap", "-w"], "out.pcap.zst"), capture);
    let json = plain(&["count", "-r", "in.pcap", "-o"], "out.json");
    assert_eq!(plain(&["count", "-r", "in.pcap", "-o"], "out.json.zst"), json);
    assert_eq!(plain(&["count", "-r", "in.pcap", "-o"], "out.json.gz"), json);
    assert_eq!(json.first(), Some(&b'{'));
}

/// Returns the bytes of a file, decompressed by its name.
fn read(path: &Path) -> Vec<u8> {
    use std::io::Read;
    let bytes = std::fs::read(path).unwrap();
    match path.extension().and_then(|e| e.to_str()) {
        Some("zst") => zstd::decode_all(&bytes[..]).unwrap(),
        Some("gz") => {
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
            plain
        }
        _ => bytes,
    }
}
