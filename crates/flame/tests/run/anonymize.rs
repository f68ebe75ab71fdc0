//! Tests that `anonymize` in the sandbox writes the same bytes as the trusted view's transform shows.

use crate::common;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn flame(arguments: &[&str], capture: &Path, out: &Path) -> Output {
    let mut flame = Command::new(env!("CARGO_BIN_EXE_flame"));
    flame.args(["run", "anonymize", "--expose", "all", "--format", "json", "-q", "-r"]).arg(capture);
    flame.arg("-w").arg(out).args(arguments).output().unwrap()
}

#[test]
fn inside_and_outside_the_sandbox_give_the_same_file() {
    if common::module("anonymize").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "a7".repeat(16) + &"2a".repeat(16)).unwrap();
    let mut captures = vec![common::root().join("demo/demo.pcap")];
    if let Some(traces) = common::traces() {
        let mut all: Vec<PathBuf> =
            std::fs::read_dir(traces.join("open/files")).unwrap().flatten().map(|e| e.path()).collect();
        all.sort();
        captures.extend(all.into_iter().step_by(9));
    }
    let (inside, outside) = (folder.path().join("inside.pcapng"), folder.path().join("outside.pcapng"));
    let of_key = format!("anonymize.key=@{}", key.display());
    let mut packets = 0;
    for capture in &captures {
        for transform in ["ip=prefix", "ip=hash,mac=zero,port=truncate:8"] {
            let set = format!("anonymize.transform={transform}");
            let a = flame(&["--set", &set, "--set", &of_key], capture, &inside);
            let mut arguments = vec!["--set", "anonymize.transform=", "--key", key.to_str().unwrap()];
            transform.split(',').for_each(|t| arguments.extend(["--transform", t]));
            let b = flame(&arguments, capture, &outside);
            assert_eq!(a.status.code(), b.status.code(), "{}", String::from_utf8_lossy(&a.stderr));
            // An unknown link type is refused in both cases.
            if a.status.code() == Some(1) {
                continue;
            }
            let (a, b) = (std::fs::read(&inside).unwrap(), std::fs::read(&outside).unwrap());
            assert!(a == b, "{}, {transform}: the files differ", capture.display());
            packets += a.len();
        }
    }
    assert!(packets > 100_000);
    // The output is a capture with hidden addresses, the same with the key as 32 bytes.
    let demo = common::root().join("demo/demo.pcap");
    let bytes = folder.path().join("bytes");
    std::fs::write(&bytes, [[0xa7; 16], [0x2a; 16]].concat()).unwrap();
    let files = [of_key, format!("anonymize.key=@{}", bytes.display())].map(|of_key| {
        let out = flame(&["--set", &of_key], &demo, &inside);
        assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
        std::fs::read(&inside).unwrap()
    });
    assert!(files[0] == files[1]);
    let again = |filter: &[&str]| {
        let mut flame = Command::new(env!("CARGO_BIN_EXE_flame"));
        let out =
            flame.args(["run", "count", "--format", "json", "-q", "-r"]).arg(&inside).args(filter).output();
        let row: serde_json::Value = serde_json::from_slice(&out.unwrap().stdout).unwrap();
        row["packets"].as_u64().unwrap()
    };
    assert_eq!(again(&[]), 1244);
    assert_eq!(again(&["net 10.9.0.0/16 or ip6 net fd00:9::/64 or arp net 10.9.0.0/16"]), 0);
}

#[test]
fn what_cannot_be_done_is_said() {
    if common::module("anonymize").is_none() {
        return;
    }
    let demo = common::root().join("demo/demo.pcap");
    let run = |arguments: &[&str]| {
        let mut flame = Command::new(env!("CARGO_BIN_EXE_flame"));
        let out = flame.arg("run").args(arguments).arg("-r").arg(&demo).output().unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let cases: [(&[&str], i32, &str); 5] = [
        (&["anonymize"], 1, "-w FILE"),
        (&["anonymize", "-w", "/dev/null", "--workers", "2"], 1, "--workers 1"),
        (&["anonymize,anonymize", "-w", "/dev/null"], 1, "two commands"),
        (&["anonymize", "-w", "/dev/null"], 4, "needs a key"),
        (&["anonymize", "-w", "/dev/null", "--set", "anonymize.key=12"], 4, "64 hexadecimal digits"),
    ];
    for (arguments, status, said) in cases {
        let (code, text) = run(arguments);
        assert_eq!(code, Some(status), "{arguments:?}: {text}");
        assert!(text.contains(said), "{arguments:?}: {text}");
    }
}

/// The pseudonyms equal those of libtrace's traceanon with the same key, if it is installed.
#[test]
fn pseudonyms_are_those_of_traceanon() {
    if common::module("anonymize").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (demo, key) = (common::root().join("demo/demo.pcap"), "0123456789abcdef0123456789abcdef");
    let theirs = folder.path().join("theirs.pcap");
    let uris = [&demo, &theirs].map(|path| format!("pcapfile:{}", path.display()));
    let traceanon = Command::new("traceanon").args(["-s", "-d", "-c", key]).args(&uris).output();
    if !traceanon.is_ok_and(|out| out.status.success()) {
        eprintln!("skipped: no traceanon (libtrace-tools)");
        return;
    }
    let ours = folder.path().join("ours.pcapng");
    let hex: String = key.bytes().map(|b| format!("{b:02x}")).collect();
    let set = format!("anonymize.key={hex}");
    let out = flame(&["-o", "/dev/null", "--set", &set], &demo, &ours);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    // Only IPv4 addresses are compared: traceanon does not change IPv6.
    let addresses = |path: &Path| -> Vec<[u8; 8]> {
        let mut source =
            flame_source::open(&[path.to_owned()], &flame_source::FileOptions::default()).unwrap();
        let (mut block, mut all) = (flame_source::RawBlock::default(), Vec::new());
        while source.next(&mut block).unwrap() == flame_source::Next::Packets {
            for p in &block.packets {
                let bytes = &block.data[p.offset as usize..(p.offset + p.cap_len) as usize];
                if bytes.get(12..15) == Some(&[8, 0, 0x45]) {
                    all.push(bytes[26..34].try_into().unwrap());
                }
            }
        }
        all
    };
    let (theirs, ours, before) = (addresses(&theirs), addresses(&ours), addresses(&demo));
    assert!(before.len() > 500 && before != ours);
    assert_eq!(theirs, ours);
}
