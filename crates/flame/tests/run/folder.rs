//! Tests of folders with files that cannot be read: they are told apart, counted and listed, and the others
//! are read.

use crate::feed::{capture, each, header, record};
use std::path::Path;
use std::process::{Command, Output};

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let modules = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_flame"))
        .arg("run")
        .arg(each(modules.path()))
        .args(arguments)
        .args(["--format", "json"])
        .env("FLAME_CACHE", modules.path().join("cache"))
        .current_dir(folder)
        .output()
        .unwrap()
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// Returns the packets in the records on standard output.
fn packets(out: &Output) -> u64 {
    let row = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
    String::from_utf8_lossy(&out.stdout).lines().map(|line| row(line)["packets"].as_u64().unwrap()).sum()
}

/// Returns a pcapng file with one packet of a link type that is not decoded.
fn pcapng(link: u16) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let length = (12 + body.len() as u32).to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &length].concat()
    };
    let section = [&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    let interface = [&link.to_le_bytes()[..], &[0; 6]].concat();
    let packet = [&[0; 12][..], &[4, 0, 0, 0], &[4, 0, 0, 0], &[1, 2, 3, 4]].concat();
    [block(0x0a0d_0d0a, &section), block(1, &interface), block(6, &packet)].concat()
}

#[test]
fn each_kind_is_told_apart_and_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let write = |name: &str, bytes: &[u8]| std::fs::write(path.join(name), bytes).unwrap();
    capture(&path.join("a.pcap"), 100);
    capture(&path.join("z.pcap"), 100);
    let mut cut = header();
    (0..50).for_each(|n| cut.extend(record(n)));
    write("cut.pcap", &cut[..cut.len() - 10]);
    write("head.pcap", &header()[..10]);
    write("zero.pcap", b"");
    write("none.pcap", &header());
    write("notes.txt", b"no capture");
    std::fs::create_dir(path.join("older")).unwrap();
    let mut strange = header();
    strange[20] = 187;
    write("strange.pcap", &strange);
    write("strange.pcapng", &pcapng(187));
    write(
        "broken.pcap.gz",
        &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4, 5, 6, 7, 8],
    );
    for more in [&[][..], &["-q"]] {
        let out = run(path, &[&["-r", "."], more].concat());
        let said = said(&out);
        assert_eq!(out.status.code(), Some(3), "{said}");
        assert_eq!(packets(&out), 249, "all packets of three files: {said}");
        for line in [
            "./cut.pcap: damaged at byte",
            "./head.pcap: damaged: cut short",
            "./zero.pcap: empty: the file is empty",
            "./none.pcap: empty: the capture has no packets",
            "./notes.txt: unsupported: not a capture file",
            "./strange.pcap: unsupported: link type 187",
            "./strange.pcapng: unsupported: link type 187",
            "./broken.pcap.gz: damaged: decompressing: ",
            "8 files were not read in full: 3 damaged, 3 unsupported, 2 empty",
        ] {
            assert!(said.contains(&format!("flame: warning: {line}")), "{line}\n{said}");
        }
        // What was not read is a loss, and is named with -q as well; a note is not.
        let note = "flame: note: ./older: folders in folders are not read";
        assert_eq!(said.contains(note), more.is_empty(), "{said}");
    }
}

#[test]
fn a_sound_capture_without_packets_changes_no_status() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    capture(&path.join("a.pcap"), 10);
    std::fs::write(path.join("none.pcap"), header()).unwrap();
    let out = run(path, &["-r", "."]);
    assert_eq!((out.status.code(), packets(&out)), (Some(0), 10), "{}", said(&out));
    assert!(said(&out).contains("none.pcap: empty: the capture has no packets"), "{}", said(&out));
    std::fs::write(path.join("zero.pcap"), b"").unwrap();
    assert_eq!(run(path, &["-r", "."]).status.code(), Some(3));
}

#[test]
fn a_folder_without_captures_says_why() {
    let folder = tempfile::tempdir().unwrap();
    for n in 0..5 {
        std::fs::write(folder.path().join(format!("{n}.txt")), b"no capture").unwrap();
    }
    let out = run(folder.path(), &["-r", "."]);
    assert_eq!(out.status.code(), Some(1));
    for part in ["no capture files in this folder", "./0.txt: unsupported: not a capture", "and 2 more"] {
        assert!(said(&out).contains(part), "{}", said(&out));
    }
}

#[test]
fn a_file_named_by_itself_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    capture(&path.join("a.pcap"), 10);
    for (name, bytes, expected) in [
        ("x.txt", &b"no capture"[..], "not a capture file"),
        ("zero.pcap", b"", "the file is empty"),
        ("head.pcap", &header()[..10], "cut short"),
        ("strange.pcapng", &pcapng(187), "link type 187"),
    ] {
        std::fs::write(path.join(name), bytes).unwrap();
        let out = run(path, &["-r", "a.pcap", "-r", name]);
        assert_eq!(out.status.code(), Some(1), "{name}");
        assert!(said(&out).contains(expected) && said(&out).contains(name), "{}", said(&out));
    }
}
