//! Packets within others, and times that captures can hardly hold.

use super::cases::{
    INNER, SECOND, block, enhanced, ethernet, flame, flows, frame, has_modules, inner, ip, run,
};
use super::cases::{shows_inner, udp};
use crate::commands::text;
use crate::common::{self, Pcap};
use tempfile::TempDir;

/// Returns a frame of 802.11 that holds frames with these packets, each padded but the last.
fn aggregated(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut frame = [&[0x88, 0x02, 0, 0][..], &[2; 6], &[4; 6], &[6; 6], &[0x10, 0, 0x80, 0]].concat();
    for packet in packets {
        frame.resize(26 + (frame.len() - 26).next_multiple_of(4), 0);
        let data = [&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0][..], packet].concat();
        frame.extend([&[8; 6][..], &[10; 6], &(data.len() as u16).to_be_bytes(), &data].concat());
    }
    frame
}

fn datagram(number: u16, bytes: usize) -> Vec<u8> {
    ip(17, 0, &udp(4000 + number, 53, &vec![7; bytes]))
}

/// Every datagram is a packet: of each link type, whatever the lengths, in blocks of any size.
#[test]
fn every_datagram_of_an_aggregated_frame_is_seen() {
    if !has_modules() {
        return;
    }
    let packets: Vec<_> = (0..5).map(|n| datagram(n, usize::from(n) * 3)).collect();
    let expected: Vec<String> =
        (0..5).map(|n| format!("192.0.2.1,198.51.100.2,{},53,17,2,{}", 4000 + n, 2 * (28 + 3 * n))).collect();
    let whole = aggregated(&packets);
    let radiotap = [0, 0, 16, 0, 1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let ppi = [0, 0, 12, 0, 105, 0, 0, 0, 9, 9, 9, 9];
    // The second has a check sequence behind it.
    let cases: [(u32, &[u8], &[u8]); 4] =
        [(105, &[], &[]), (105, &[], &[1, 2, 3, 4]), (127, &radiotap, &[]), (192, &ppi, &[])];
    for (link, before, after) in cases {
        let frame = [before, &whole, after].concat();
        let capture = Pcap::new(link).with([(SECOND, &frame), (2 * SECOND, &frame)]);
        let columns = "src,dst,sport,dport,proto,packets_fwd,ip_bytes_fwd";
        assert_eq!(flows(capture, columns, &[]), expected, "{link}");
        // Of a cut frame, those whose headers were captured.
        let capture = Pcap::new(link).with([(SECOND, &frame)]);
        let snaplen = (before.len() + 26 + 52 + 46).to_string();
        let more = ["-s", &snaplen, "--columns", "packets,udp"];
        let (out, said, _) = run("count", "in.pcap", &capture.bytes(), &more);
        assert_eq!(out.lines().nth(1), Some("2,2"), "{link} {said}");
    }
    // More packets than a block holds.
    let many: Vec<_> = (0..40).map(|n| datagram(n, 1)).collect();
    let frames = (0..100).map(|n| (n * SECOND, aggregated(&many)));
    let capture = Pcap::new(105).with(frames).bytes();
    let (out, said, status) = run("count", "in.pcap", &capture, &["--columns", "packets,udp"]);
    assert_eq!((out.lines().nth(1), status), (Some("4000,4000"), Some(0)), "{said}");
}

#[test]
fn packets_of_controllers_and_rings_are_seen() {
    if !has_modules() {
        return;
    }
    let controller =
        |header: &[u8], packet: &[u8]| ethernet(&ip(17, 0, &udp(5247, 9000, &[header, packet].concat())));
    let data = [&[0x08, 0x02, 0, 0][..], &[2; 6], &[4; 6], &[6; 6], &[0x10, 0]].concat();
    let wireless = [&data[..], &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &inner()].concat();
    let radio = [0, 0x20, 0x43, 0x10, 0, 0, 0, 0, 6, 2, 2, 2, 2, 2, 2, 0];
    for (name, packet) in [
        ("802.11", controller(&[0, 0x10, 0x43, 0, 0, 0, 0, 0], &wireless)),
        ("802.11 and the radio's address", controller(&radio, &wireless)),
        ("802.3", controller(&[0, 0x10, 0x42, 0, 0, 0, 0, 0], &ethernet(&inner()))),
    ] {
        let outer = shows_inner(1, &packet, &[]);
        assert!(outer.len() == 1 && outer[0] != INNER, "{name}: {outer:?}");
        assert_eq!(shows_inner(1, &packet, &["--decapsulate"]), [INNER], "{name}");
    }
    assert_eq!(shows_inner(1, &frame(&[0x89, 0x2f, 0, 60, 0, 1], 0x0800, &inner()), &[]), [INNER]);
    // The trailer of a parallel network is no part of the packet.
    let trailed = [&ethernet(&inner())[..], &[0, 9, 0xa0, 41, 0x88, 0xfb]].concat();
    let bytes = flows(Pcap::new(1).with([(SECOND, trailed)]), "ip_bytes_fwd,proto", &[]);
    assert_eq!(bytes, [format!("{},17", inner().len())]);
}

/// Returns a capture whose times are seconds in relation to `offset_s` since 1970.
fn offset(offset_s: i64, packets: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let section = [&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    let options = [&[14, 0, 8, 0][..], &offset_s.to_le_bytes(), &[0; 4]].concat();
    let interface = block(1, &[&[1, 0, 0, 0, 0, 0, 0, 0][..], &options].concat());
    let packets: Vec<_> = packets.iter().map(|(at, packet)| enhanced(at * 1_000_000, packet)).collect();
    [block(0x0a0d_0d0a, &section), interface, packets.concat()].concat()
}

#[test]
fn times_before_1970_keep_their_differences() {
    if !has_modules() {
        return;
    }
    let packet = || ethernet(&inner());
    let later = 36_525 * 86_400;
    for (offset_s, at) in [(-10, [0, 4, 9]), (-3, [0, 2, 7]), (-1_000_000_000, [0, 4, 9])] {
        let capture = offset(offset_s, &at.map(|at| (at, packet())));
        let more = ["--table", "flow", "--columns", "first_ns,duration_ns,packets_fwd"];
        let (out, said, status) = run("flow", "in.pcapng", &capture, &more);
        let first = (later + offset_s) as u64 * SECOND;
        let row = format!("{first},{},3", at[2] * SECOND);
        assert_eq!((out.lines().nth(1), status), (Some(&*row), Some(0)), "{said}");
        assert!(said.contains("the time of packet 1 is before 1970"), "{said}");
        assert_eq!(said.matches("note: ").count(), 1, "{said}");
        let intervals = ["--table", "interval", "--columns", "start_ns,end_ns,packets", "--interval", "1s"];
        let (out, said, _) = run("count", "in.pcapng", &capture, &intervals);
        let rows: Vec<_> = out.lines().skip(1).map(|row| row.replace("000000000", "")).collect();
        let expected: Vec<_> = (0..=at[2])
            .map(|n| (first / SECOND + n, at.contains(&n)))
            .map(|(second, is_there)| format!("{second},{},{}", second + 1, u8::from(is_there)))
            .collect();
        assert_eq!(rows, expected, "{said}");
        // What is written has the same times.
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("in.pcapng"), &capture).unwrap();
        let out = flame(folder.path(), &["run", "-r", "in.pcapng", "-w", "out.pcap"]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        let out =
            flame(folder.path(), &["run", "flow", "-r", "out.pcap", "--format", "csv", "--columns", more[3]]);
        assert!(text(&out.stdout).contains(&row), "{}", text(&out.stdout));
    }
    // A time that cannot be moved far enough is unknown, and nothing wraps.
    let (_, said, status) = run("flow", "in.pcapng", &offset(i64::MIN, &[(0, packet()), (1, packet())]), &[]);
    assert_eq!(status, Some(0), "{said}");
    let (_, said, status) = run("flow", "in.pcapng", &offset(i64::MAX, &[(0, packet()), (1, packet())]), &[]);
    assert_eq!(status, Some(0), "{said}");
}

/// Files of records have the rows of their time, however fast packets are read and by how many workers.
#[test]
fn files_of_records_follow_the_time_of_packets() {
    if common::module("count").is_none() {
        return;
    }
    let day = 1_767_225_600; // 2026-01-01
    let at = [3, 4, 12, 35, 36, 59];
    let packets = at.map(|at| ((day + at) * SECOND, ethernet(&inner())));
    let capture = Pcap::default().with(packets).bytes();
    for workers in ["1", "2"] {
        for rotation in [&["--rotate", "10s"][..], &["-G", "10"]] {
            let folder = TempDir::new().unwrap();
            std::fs::write(folder.path().join("in.pcap"), &capture).unwrap();
            let more = ["--table", "interval", "--columns", "end_ns,packets", "--interval", "5s"];
            let base = ["run", "count", "-r", "in.pcap", "-o", "o-%H%M%S.csv", "--workers", workers];
            let out = flame(folder.path(), &[&base[..], &more, rotation].concat());
            assert!(out.status.success(), "{}", text(&out.stderr));
            let files = ["000000", "000010", "000020", "000030", "000040", "000050"];
            let mut found: Vec<_> = std::fs::read_dir(folder.path())
                .unwrap()
                .map(|file| file.unwrap().file_name().into_string().unwrap())
                .filter(|name| name.starts_with('o'))
                .collect();
            found.sort();
            assert_eq!(found, files.map(|name| format!("o-{name}.csv")));
            let counts: Vec<Vec<(u64, u64)>> = found
                .iter()
                .map(|name| {
                    let rows = std::fs::read_to_string(folder.path().join(name)).unwrap();
                    let row = |row: &str| {
                        let (end, packets) = row.split_once(',').unwrap();
                        (end.parse::<u64>().unwrap() / SECOND - day, packets.parse().unwrap())
                    };
                    rows.lines().skip(1).map(row).collect()
                })
                .collect();
            let expected = [
                vec![(5, 2), (10, 0)],
                vec![(15, 1), (20, 0)],
                vec![(25, 0), (30, 0)],
                vec![(35, 0), (40, 2)],
                vec![(45, 0), (50, 0)],
                vec![(55, 0), (60, 1)],
            ];
            assert_eq!(counts, expected, "{workers} {rotation:?}");
        }
    }
}
