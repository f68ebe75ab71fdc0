//! Files of packets: what the gate charges is what the sink writes, and any number of link types is found at
//! once.

use flame_abi::LinkType;
use flame_abi::manifest::Manifest;
use flame_output::{Frame, Gate, Packet};
use flame_plan::{Catalog, Release, Terms};
use flame_quota::{Amounts, Meter, Meters, Quota, ThisRun};
use flame_record::{CaptureFormat, Clock, Format, Names, Rotation, capture, open};
use std::path::Path;
use std::sync::Arc;

/// The bytes of the section header, which does not depend on any packet.
const SECTION: u64 = 28;

fn packets(bytes: &[u8]) -> impl Iterator<Item = Packet<'_>> {
    let lengths = [0, 1, 3, 4, 60, 61, 1514, 65_000];
    let one = |(n, length): (usize, &usize)| {
        let link = LinkType([1, 101, 1, 113][n % 4]);
        Packet { ts_ns: n as u64, wire_len: 0, link, bytes: &bytes[..*length] }
    };
    (0..lengths.len()).map(move |n| one((n, &lengths[n])))
}

/// Writes packets and returns the size of the file.
fn written<'a>(folder: &Path, packets: impl Iterator<Item = Packet<'a>>) -> u64 {
    let path = folder.join("out.pcapng");
    let catalog = Catalog::default();
    let records = open(Format::Json, Some(&folder.join("records")), &catalog, &Default::default()).unwrap();
    let mut sink = capture(&path, CaptureFormat::Pcapng, records).unwrap();
    packets.for_each(|packet| sink.packet(packet).unwrap());
    sink.finish().unwrap();
    path.metadata().unwrap().len()
}

fn gate(transmit: u64) -> Gate {
    let all = Quota { per_second: Amounts::MAX, per_packet: Amounts::MAX, share: None, memory: 0 };
    let meters = Meters::of_grant(vec![Arc::new(Meter::new(all, Box::new(ThisRun::new(all))))]);
    let manifest = Manifest::parse(b"abi = 1\nname = \"m\"\nversion = \"1\"\ndescription = \"d\"").unwrap();
    let release = Release { transmit, ..Release::default() };
    Gate::new(&manifest, &Terms { release, ..Terms::default() }, &meters)
}

#[test]
fn the_gate_charges_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = [7; 65_000];
    let size = written(folder.path(), packets(&bytes)) - SECTION;
    let lets = |transmit| {
        let mut gate = gate(transmit);
        packets(&bytes).filter(|packet| gate.lets(&Frame::Packet(*packet))).count()
    };
    assert_eq!((lets(size), lets(size - 1)), (8, 7));
}

#[test]
fn each_link_type_has_one_interface() {
    let folder = tempfile::tempdir().unwrap();
    let all = (0..3).flat_map(|_| 0..=u16::MAX);
    let empty = |link| Packet { ts_ns: 0, wire_len: 0, link: LinkType(link), bytes: &[] };
    let size = written(folder.path(), all.map(empty));
    assert_eq!(size, SECTION + 32 * 65_536 + 3 * 32 * 65_536);
}

/// Parts by the time of packets: their number and names do not depend on how fast packets are written.
#[test]
fn files_follow_the_time_of_packets() {
    let folder = tempfile::tempdir().unwrap();
    let rotation = |files| Rotation {
        every: Some(std::time::Duration::from_secs(10)),
        clock: Clock::Packets,
        files,
        names: Names::Time,
        ..Rotation::default()
    };
    let written = |name: &str, files, seconds: &[u64]| -> Vec<(String, usize)> {
        let (path, second) = (folder.path().join(name), 1_000_000_000);
        std::fs::create_dir(&path).unwrap();
        let mut sink = flame_record::rotating(&path.join("o.pcap"), rotation(files), |part| {
            flame_record::packets(&part.before_extension(), CaptureFormat::Pcap)
        })
        .unwrap();
        for at in seconds {
            if sink.closed() {
                break;
            }
            assert!(!sink.due());
            let packet = Packet { ts_ns: at * second, wire_len: 4, link: LinkType(1), bytes: &[0; 4] };
            sink.packet(packet).unwrap();
        }
        sink.finish().unwrap();
        let mut found: Vec<(String, usize)> = std::fs::read_dir(&path)
            .unwrap()
            .flatten()
            .map(|file| {
                let packets = (file.metadata().unwrap().len() as usize - 24) / 20;
                (file.file_name().into_string().unwrap(), packets)
            })
            .collect();
        found.sort();
        found
    };
    let name = |minute: u32, second: u32| format!("o-20010909T01{minute:02}{second:02}Z.pcap");
    // 1,000,000,000 s are 2001-09-09 01:46:40. The packet of 9 s comes late; 25 s of silence have no file.
    let times = [0, 3, 9, 10, 9, 19, 45, 46].map(|at| 1_000_000_000 + at);
    let expected = vec![(name(46, 40), 3), (name(46, 50), 3), (name(47, 20), 2)];
    assert_eq!(written("all", None, &times), expected);
    assert_eq!(written("two", Some(2), &times), expected[..2]);
    assert_eq!(written("far", None, &[1, 4_000_000_000]).len(), 2);
    let empty = written("none", None, &[]);
    assert_eq!((empty.len(), empty[0].1), (1, 0));
}
