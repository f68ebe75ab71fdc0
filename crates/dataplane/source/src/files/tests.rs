use super::*;
use crate::{Next, RawBlock};
use flame_abi::LinkType;
use flame_plan::Discipline;
use proptest::prelude::*;
use std::io::Write;

type Packet = (u64, Vec<u8>);

fn pcap(packets: &[Packet], big: bool, nano: bool) -> Vec<u8> {
    let w = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
    let h = |n: u16| if big { n.to_be_bytes() } else { n.to_le_bytes() };
    let magic = if nano { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
    let mut f = [&w(magic)[..], &h(2), &h(4), &w(0), &w(0), &w(65535), &w(1)].concat();
    for (ts, bytes) in packets {
        let fraction = ts % 1_000_000_000 / if nano { 1 } else { 1000 };
        f.extend(
            [
                w((ts / 1_000_000_000) as u32),
                w(fraction as u32),
                w(bytes.len() as u32),
                w(bytes.len() as u32),
            ]
            .concat(),
        );
        f.extend(bytes);
    }
    f
}

fn block(big: bool, kind: u32, body: &[u8]) -> Vec<u8> {
    let w = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    let length = w(body.len() as u32 + 12);
    [&w(kind)[..], &length, &body, &length].concat()
}

/// Builds a section with interfaces of link 1 (microseconds) and link 101 (nanoseconds, one second later).
fn pcapng(packets: &[Packet], big: bool) -> Vec<u8> {
    let w = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
    let h = |n: u16| if big { n.to_be_bytes() } else { n.to_le_bytes() };
    let offset = if big { 1i64.to_be_bytes() } else { 1i64.to_le_bytes() };
    let mut f = block(big, 0x0a0d_0d0a, &[&w(0x1a2b_3c4d)[..], &h(1), &h(0), &[0xff; 8]].concat());
    f.extend(block(big, 1, &[&h(1)[..], &h(0), &w(0)].concat()));
    let options = [&h(9)[..], &h(1), &[9, 0, 0, 0], &h(14), &h(8), &offset, &h(0), &h(0)].concat();
    f.extend(block(big, 1, &[&h(101)[..], &h(0), &w(0), &options].concat()));
    for (i, (ts, bytes)) in packets.iter().enumerate() {
        let interface = i as u32 % 2;
        let units = if interface == 0 { ts / 1000 } else { ts - 1_000_000_000 };
        let lengths = [w(bytes.len() as u32), w(bytes.len() as u32)].concat();
        let body = [&w(interface)[..], &w((units >> 32) as u32), &w(units as u32), &lengths, bytes].concat();
        f.extend(block(big, 6, &body));
        f.extend(block(big, 0xbad, b"unknown"));
    }
    f
}

fn read(mut source: Box<dyn Source>) -> (Vec<Packet>, Vec<Damage>) {
    let (mut all, mut block) = (Vec::new(), RawBlock::default());
    while source.next(&mut block).unwrap() == Next::Packets {
        for p in &block.packets {
            all.push((p.ts_ns, block.data[p.offset as usize..(p.offset + p.cap_len) as usize].to_vec()));
        }
    }
    (all, source.damage().to_vec())
}

/// Returns a source of one file.
fn only(reader: reader::Reader) -> Box<dyn Source> {
    let mut files = merge::Files::default();
    files.add_only(reader);
    Box::new(files)
}

fn read_bytes(bytes: &[u8]) -> (Vec<Packet>, Vec<Damage>) {
    let reader = reader::Reader::from_memory("m", Bytes::copy_from_slice(bytes), MAX_PACKET as u32).unwrap();
    read(only(reader))
}

fn some(n: u64) -> Vec<Packet> {
    (0..n).map(|i| (5_000_000_000 + i * 1_000_000, vec![i as u8; 20 + i as usize % 50])).collect()
}

#[test]
fn every_variant_reads_the_same() {
    let packets = some(3000);
    for big in [false, true] {
        for nano in [false, true] {
            assert_eq!(read_bytes(&pcap(&packets, big, nano)), (packets.clone(), vec![]));
        }
        assert_eq!(read_bytes(&pcapng(&packets, big)), (packets.clone(), vec![]));
    }
    // Two sections with different byte orders follow each other.
    let both = [pcapng(&packets, false), pcapng(&packets, true)].concat();
    assert_eq!(read_bytes(&both).0, [packets.clone(), packets].concat());
}

#[test]
fn compressed_files_read_like_plain_ones() {
    let packets = some(5000);
    let folder = tempfile::tempdir().unwrap();
    for (name, plain) in [("a", pcap(&packets, false, true)), ("b", pcapng(&packets, true))] {
        let half = plain.len() / 2;
        let gz = |part: &[u8]| {
            let mut w = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            w.write_all(part).unwrap();
            w.finish().unwrap()
        };
        let zst = |part: &[u8]| zstd::stream::encode_all(part, 1).unwrap();
        let cases = [
            ("gz", [gz(&plain[..half]), gz(&plain[half..])].concat()),
            ("zst", [zst(&plain[..half]), zst(&plain[half..])].concat()),
        ];
        for (kind, bytes) in cases {
            let path = folder.path().join(format!("{name}.{kind}"));
            std::fs::write(&path, &bytes).unwrap();
            let (read_back, damage) =
                read(open(std::slice::from_ref(&path), &FileOptions::default()).unwrap());
            assert!(
                read_back == packets && damage.is_empty(),
                "{name}.{kind}: {} {damage:?}",
                read_back.len()
            );
            // Cut in the middle: all packets before the cut, then one report of damage.
            std::fs::write(&path, &bytes[..bytes.len() * 3 / 4]).unwrap();
            let (part, damage) = read(open(&[path], &FileOptions::default()).unwrap());
            assert!(!part.is_empty() && packets.starts_with(&part) && damage.len() == 1, "{name}.{kind}");
        }
    }
}

/// Packets that lie across chunks, and some that are longer than one, are read as from memory, with any
/// helper.
#[test]
fn long_packets_are_read_like_short_ones() {
    let lengths = [1, 60, 1514, 9000, 65_000, 66_000, 70_000, 200_000, MAX_PACKET];
    let packet = |n: usize| {
        let length = lengths[n * n % 11 % lengths.len()];
        (5_000_000_000 + n as u64 * 1000, (0..length).map(|at| (at / 7 + n) as u8).collect::<Vec<_>>())
    };
    let packets: Vec<_> = (0..150).map(packet).collect();
    let mut long = pcapng(&packets[..20], false);
    long.extend(block(false, 0xbad, &vec![7; 5 << 20]));
    long.extend(&pcapng(&packets[20..], true));
    for capture in [pcap(&packets, false, true), pcapng(&packets, true), long] {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&capture).unwrap();
        let expected = read_bytes(&capture);
        assert_eq!(expected.0.len(), packets.len());
        for helpers in [0, 2] {
            let source = open(&[file.path().to_owned()], &FileOptions::default()).unwrap();
            assert_eq!(source.discipline(), Discipline::File);
            let (help, done) = (source.help(), std::sync::atomic::AtomicBool::new(false));
            let found = std::thread::scope(|scope| {
                for _ in 0..helpers {
                    scope.spawn(|| {
                        while !done.load(std::sync::atomic::Ordering::Relaxed) {
                            help.read();
                        }
                    });
                }
                let found = read(source);
                done.store(true, std::sync::atomic::Ordering::Relaxed);
                found
            });
            assert!(found == expected, "{helpers} helpers: {} of {}", found.0.len(), packets.len());
        }
    }
}

/// Returns files of which each has `count` packets of 65,000 bytes, and later another one.
fn bursts(files: u64, count: u64) -> Vec<tempfile::NamedTempFile> {
    let bursts = (0..files).map(|n| {
        let times = (0..count).map(|at| n * count + at).chain([files * count + n]);
        let packets: Vec<_> = times.map(|at| (5_000_000_000 + at * 1000, vec![at as u8; 65_000])).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&pcap(&packets, false, true)).unwrap();
        file
    });
    bursts.collect()
}

/// Files that are read in turn share their buffers, so that many files take no more memory than few.
#[test]
fn files_share_buffers() {
    let files = bursts(6, 100);
    let paths: Vec<_> = files.iter().map(|file| file.path().to_owned()).collect();
    let mut source = open(&paths, &FileOptions::default()).unwrap();
    let (mut held, mut places) = (std::collections::VecDeque::new(), std::collections::BTreeSet::new());
    let mut block = RawBlock::default();
    while source.next(&mut block).unwrap() == Next::Packets {
        assert!(block.packets.iter().all(|p| {
            let at = (p.ts_ns - 5_000_000_000) / 1000;
            block.data[p.offset as usize..][..p.cap_len as usize].iter().all(|byte| *byte == at as u8)
        }));
        places.insert(block.data.as_ptr() as usize >> 18);
        held.push_back(block.data.clone());
        // As many as wait for several workers.
        if held.len() > 20 {
            held.pop_front();
        }
    }
    assert!(places.len() < 90, "{} places", places.len());
}

/// Files that overlap in time hold their next packets, not the long blocks in which these lay.
#[test]
fn files_hold_no_long_blocks() {
    const FILES: u64 = 6;
    let capture = |n: u64| {
        let packets: Vec<_> =
            (0..5).map(|at| (5_000_000_000 + (at * FILES + n) * 1000, vec![7; 60])).collect();
        let mut capture = Vec::new();
        for packet in &packets {
            capture.extend(pcapng(std::slice::from_ref(packet), false));
            capture.extend(block(false, 0xbad, &vec![7; 3 << 20]));
        }
        capture
    };
    let plain = |n| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&capture(n)).unwrap();
        file
    };
    let compressed = |n| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&zstd::encode_all(&capture(n)[..], 1).unwrap()).unwrap();
        file
    };
    let sets: [Vec<_>; 2] = [(0..FILES).map(plain).collect(), (0..FILES).map(compressed).collect()];
    for files in sets {
        let paths: Vec<_> = files.iter().map(|file| file.path().to_owned()).collect();
        let mut source = open(&paths, &FileOptions::default()).unwrap();
        let (mut block, mut packets, mut last) = (RawBlock::default(), 0, 0);
        while source.next(&mut block).unwrap() == Next::Packets {
            assert_eq!(source.help().large(), 0, "after {packets} packets");
            packets += block.packets.len() as u64;
            for p in &block.packets {
                assert!(p.ts_ns > last && block.data[p.offset as usize..][..60] == [7; 60]);
                last = p.ts_ns;
            }
        }
        assert_eq!((packets, source.damage().len()), (5 * FILES, 0));
    }
}

/// Files of which each ends before the next one begins are read one at a time. Those that cannot be read in
/// the end are reported then.
#[test]
fn files_are_read_when_they_are_due() {
    let folder = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    for n in (0..40_u64).rev() {
        let packets: Vec<Packet> =
            (0..300).map(|at| (1_000_000_000 * (n + 1) + at, vec![n as u8; 1000])).collect();
        let capture = pcap(&packets, false, true);
        let compressed = zstd::encode_all(&capture[..], 1).unwrap();
        // By name, the files are in any order.
        let path = folder.path().join((n * 7 % 40).to_string());
        std::fs::write(&path, if n % 2 == 0 { &capture } else { &compressed }).unwrap();
        all.splice(0..0, packets);
    }
    let mut files = open_files(&[folder.path().to_owned()], &FileOptions::default()).unwrap();
    let (total, mut read) = (files.progress().total, 0);
    assert!(total.is_some_and(|total| total > 20 * 300_000), "{total:?}");
    let mut block = RawBlock::default();
    while files.next(&mut block).unwrap() == Next::Packets {
        assert!(files.opened() <= 2, "{} files", files.opened());
        assert_eq!(files.progress().total, total);
        for p in &block.packets {
            let bytes = &block.data[p.offset as usize..(p.offset + p.cap_len) as usize];
            assert_eq!((p.ts_ns, bytes), (all[read].0, &all[read].1[..]));
            read += 1;
            // A file that is read must not be cut short.
            if read == 3000 {
                let last = folder.path().join((39 * 7 % 40).to_string());
                std::fs::File::options().write(true).open(last).unwrap().set_len(3).unwrap();
            }
        }
    }
    assert_eq!((read, files.damage().len()), (39 * 300, 1), "{:?}", files.damage());
    // So are those that were named.
    let whole = folder.path().join("0");
    let last = folder.path().join((38 * 7 % 40).to_string());
    let mut files = open_files(&[whole, last.clone()], &FileOptions::default()).unwrap();
    std::fs::File::options().write(true).open(last).unwrap().set_len(3).unwrap();
    let mut read = 0;
    while files.next(&mut block).unwrap() == Next::Packets {
        read += block.packets.len();
    }
    assert_eq!((read, files.damage().len()), (300, 1), "{:?}", files.damage());
}

/// The packets before the damage of a compressed file are the same, whatever other files are read.
#[test]
fn damage_does_not_depend_on_other_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let packets: Vec<Packet> = (0..280).map(|n| (5_000_000_000 + n, vec![n as u8; 1000])).collect();
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(&pcap(&packets, false, true)).unwrap();
    let mut compressed = encoder.finish().unwrap();
    // The checksum, which is at the end.
    *compressed.last_mut().unwrap() ^= 1;
    std::fs::write(path("damaged"), compressed).unwrap();
    let earlier: Vec<Packet> = (0..3000).map(|n| (1_000_000_000 + n, vec![1; 90])).collect();
    std::fs::write(path("earlier"), pcap(&earlier, false, true)).unwrap();
    let alone = read(open(&[path("damaged")], &FileOptions::default()).unwrap());
    assert!(alone.0.len() > 150 && alone.1.len() == 1, "{} {:?}", alone.0.len(), alone.1);
    let beside = read(open(&[path("earlier"), path("damaged")], &FileOptions::default()).unwrap());
    assert_eq!((beside.0.len(), beside.1), (3000 + alone.0.len(), alone.1));
}

/// Files that have ended are closed, and their memory is free, although other threads may read files ahead.
#[test]
fn files_that_ended_are_closed() {
    let files = bursts(3, 9);
    let paths: Vec<_> = files.iter().map(|file| file.path().to_owned()).collect();
    let mut source = open(&paths, &FileOptions::default()).unwrap();
    let help = source.help();
    let opened = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        let all = all.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
        all.filter(|path| paths.contains(path)).count() - files.len()
    };
    assert_eq!(opened(), 3);
    let mut block = RawBlock::default();
    while source.next(&mut block).unwrap() == Next::Packets {
        help.read();
    }
    assert!(opened() <= 1, "{} of 3 files are open", opened());
    assert!(!help.is_reading());
}

/// Packets of a pipe do not wait for those after them, also beside other files.
#[test]
fn a_pipe_beside_files_is_read_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let packets = some(2);
    for (name, other) in [("none", some(0)), ("later", vec![(9_000_000_000, vec![1; 60])])] {
        let pipe = path(&format!("{name}.fifo"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        std::fs::write(path(name), pcap(&other, false, true)).unwrap();
        let (capture, writes) = (pcap(&packets, false, true), pipe.clone());
        let (sender, found) = std::sync::mpsc::channel();
        let (close, closes) = std::sync::mpsc::channel::<()>();
        let writer = std::thread::spawn(move || {
            let mut pipe = std::fs::File::options().write(true).open(writes).unwrap();
            pipe.write_all(&capture).unwrap();
            closes.recv().unwrap();
        });
        let paths = [pipe, path(name)];
        std::thread::spawn(move || {
            let mut source = open(&paths, &FileOptions::default()).unwrap();
            assert_eq!(source.discipline(), Discipline::Pipe);
            let mut block = RawBlock::default();
            while source.next(&mut block).unwrap() == Next::Packets {
                sender.send(block.packets.len()).unwrap();
            }
        });
        let first = found.recv_timeout(std::time::Duration::from_secs(20));
        assert_eq!(first, Ok(packets.len()), "{name}");
        close.send(()).unwrap();
        writer.join().unwrap();
        assert_eq!(found.iter().sum::<usize>(), other.len(), "{name}");
    }
}

/// Returns the parts of a stream that end at these offsets, each of which a decoder can decode when it comes.
fn parts(bytes: &[u8], ends: &[usize], form: &str) -> Vec<Vec<u8>> {
    use flate2::{Compression, write::GzEncoder};
    let mut at = 0;
    let plain = ends.iter().map(|end| &bytes[std::mem::replace(&mut at, *end)..*end]);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    let mut zstd = zstd::Encoder::new(Vec::new(), 3).unwrap();
    let mut parts = Vec::new();
    for part in plain {
        parts.push(match form {
            "gzip" => {
                gzip.write_all(part).and_then(|()| gzip.flush()).unwrap();
                std::mem::take(gzip.get_mut())
            }
            "zstd" => {
                zstd.write_all(part).and_then(|()| zstd.flush()).unwrap();
                std::mem::take(zstd.get_mut())
            }
            _ => part.to_vec(),
        });
    }
    let end = match form {
        "gzip" => gzip.finish().unwrap(),
        "zstd" => zstd.finish().unwrap(),
        _ => Vec::new(),
    };
    parts.last_mut().unwrap().extend(end);
    parts
}

/// No packet is lost while nothing comes from a pipe.
#[test]
fn a_quiet_pipe_is_told() {
    ["plain", "gzip", "zstd"].into_iter().for_each(quiet_pipe);
}

fn quiet_pipe(form: &str) {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let packets = some(5);
    let (capture, writes) = (pcap(&packets, false, true), pipe.clone());
    let (write, told) = std::sync::mpsc::channel::<Vec<u8>>();
    let writer = std::thread::spawn(move || {
        let mut pipe = std::fs::File::options().write(true).open(writes).unwrap();
        told.iter().for_each(|part| pipe.write_all(&part).unwrap());
    });
    // The header and three packets of 36 to 38 bytes, and the beginning of another one.
    let third = 24 + 36 + 37 + 38;
    let mut parts = parts(&capture, &[third + 20, third + 25, capture.len()], form).into_iter();
    let mut send = || write.send(parts.next().unwrap()).unwrap();
    send();
    let mut source = open(std::slice::from_ref(&pipe), &FileOptions::default()).unwrap();
    source.tell_when_quiet();
    let (mut block, mut found) = (RawBlock::default(), Vec::new());
    while found.iter().filter(|one| **one == (Next::Quiet, 0)).count() < 2 {
        let next = source.next(&mut block).unwrap();
        found.push((next, block.packets.len()));
    }
    let whole: usize = found.iter().map(|(_, count)| count).sum();
    assert_eq!(whole, 3, "{form}: {found:?}");
    // Another part of the packet, and again nothing.
    send();
    for _ in 0..3 {
        assert_eq!(source.next(&mut block).unwrap(), Next::Quiet);
    }
    send();
    drop(write);
    let mut rest = 0;
    loop {
        match source.next(&mut block).unwrap() {
            Next::Packets => rest += block.packets.len(),
            Next::Quiet => {}
            _ => break,
        }
    }
    writer.join().unwrap();
    assert!(rest == 2 && source.damage().is_empty(), "{form}: {rest} {:?}", source.damage());
}

#[test]
fn a_simple_packet_has_the_first_interface_and_no_time() {
    let mut f = pcapng(&[], false);
    f.extend(block(false, 3, &[&5u32.to_le_bytes()[..], b"hello"].concat()));
    assert_eq!(read_bytes(&f), (vec![(0, b"hello".to_vec())], vec![]));
}

#[test]
fn what_is_no_capture_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let mut wifi = pcap(&some(3), false, false);
    wifi[20] = 187;
    for (bytes, expected) in
        [(&b"GIF89a"[..], "47, 49, 46, 38"), (&[], "the file is empty"), (&wifi, "link type 187")]
    {
        std::fs::write(&path, bytes).unwrap();
        let error = open(std::slice::from_ref(&path), &FileOptions::default()).err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    }
    // In a folder the file is reported, and the others are read.
    std::fs::write(folder.path().join("y"), pcap(&some(3), true, true)).unwrap();
    let (packets, damage) = read(open(&[folder.path().to_owned()], &FileOptions::default()).unwrap());
    assert_eq!((packets, damage.len()), (some(3), 1));
    assert_eq!(crate::link_name(LinkType(105)), "802.11");
}

#[test]
fn any_cut_gives_the_packets_before_it() {
    let packets = some(5);
    for whole in [pcap(&packets, false, false), pcapng(&packets, true)] {
        for end in 24..whole.len() {
            let Ok(reader) = reader::Reader::from_memory("m", Bytes::copy_from_slice(&whole[..end]), 65535)
            else {
                continue;
            };
            let (part, damage) = read(only(reader));
            assert!(packets.starts_with(&part) && damage.len() <= 1);
        }
    }
}

proptest! {
    #[test]
    fn files_come_in_time_order(sizes in prop::collection::vec(0u64..300, 1..5), step in 1u64..5, seed in any::<u64>()) {
        let folder = tempfile::tempdir().unwrap();
        let mut all = Vec::new();
        for (i, n) in sizes.iter().enumerate() {
            let start = seed % 7 * i as u64 * 100;
            let packets: Vec<Packet> =
                (0..*n).map(|k| (1_000_000_000 + (start + k * step) * 1000 * (1 + i as u64 % 2), vec![i as u8, k as u8])).collect();
            std::fs::write(folder.path().join(i.to_string()), pcap(&packets, false, true)).unwrap();
            all.extend(packets);
        }
        let (read_back, _) = read(open(&[folder.path().to_owned()], &FileOptions::default()).unwrap());
        // Of packets of the same time, those of the file that was named first come first.
        all.sort();
        prop_assert_eq!(read_back, all);
    }

    #[test]
    fn any_bytes_are_read_or_refused(format in 0..3, bytes in prop::collection::vec(any::<u8>(), 0..600), at in 0usize..400) {
        let mut file = match format { 0 => vec![], 1 => pcap(&some(5), false, true), _ => pcapng(&some(5), false) };
        let at = at.min(file.len());
        file.splice(at..at, bytes);
        let _ = parse(&file);
    }
}
