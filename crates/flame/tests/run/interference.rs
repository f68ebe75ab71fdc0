//! Tests of non-interference from the outside: two captures that differ only in bytes hidden by a grant give
//! the same records, account, faults and explanations, byte for byte. Views alone are tested with many more
//! packets in `crates/dataplane/view/tests/interference.rs`.

use crate::common::{self, Pcap};
use std::path::Path;
use std::process::{Command, Output};

fn flame(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flame")).args(arguments).current_dir(folder).output().unwrap()
}

fn done(folder: &Path, arguments: &[&str]) -> String {
    let out = flame(folder, arguments);
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

/// Returns pseudorandom bytes of a linear congruential generator (Knuth).
fn bytes(seed: &mut u64, n: usize) -> Vec<u8> {
    let mut next = || {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) as u8
    };
    (0..n).map(|_| next()).collect()
}

fn sum(parts: &[&[u8]]) -> u16 {
    let mut sum: u32 = parts
        .iter()
        .flat_map(|p| p.chunks(2))
        .map(|w| u32::from(w[0]) << 8 | w.get(1).map_or(0, |b| u32::from(*b)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Returns a capture of some hundred TCP packets over four seconds. Payload, addresses, unknown options, and
/// times within a second come from `secret`; a third of the checksums is left to the network card. Between
/// them is traffic that the policy does not select, of which `secret` decides how much. The packet `left_out`
/// is missing.
fn capture(secret: u64, left_out: Option<u32>) -> Vec<u8> {
    let (mut secret, mut shown) = (secret, 1);
    let mut file = Pcap::default();
    for i in 0..400u32 {
        let hidden_kind = i % 5 == 4;
        let mut ip = vec![0x45, 0, 0, 0, 1, 2, 0, 0, 64, if hidden_kind { 17 } else { 6 }, 0, 0];
        ip.extend(bytes(&mut secret, 8));
        let mut tcp =
            vec![4, i as u8 & 7, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x70, 0x18, 4, 0, 0, 0, 0, 0, 28, 4];
        tcp.extend(bytes(&mut secret, 2));
        tcp.extend([1; 4]);
        let n = usize::from(bytes(&mut shown, 1)[0])
            + 40 * usize::from(hidden_kind) * usize::from(bytes(&mut secret, 1)[0] & 1);
        tcp.extend(bytes(&mut secret, n));
        ip[2..4].copy_from_slice(&((20 + tcp.len()) as u16).to_be_bytes());
        let header = !sum(&[&ip]);
        ip[10..12].copy_from_slice(&header.to_be_bytes());
        let pseudo = [&ip[12..20], &[0, 6], &(tcp.len() as u16).to_be_bytes()].concat();
        let check = if i % 3 == 0 { sum(&[&pseudo]) } else { !sum(&[&pseudo, &tcp]) };
        tcp[16..18].copy_from_slice(&check.to_be_bytes());
        let frame = [&bytes(&mut secret, 12)[..], &[8, 0], &ip, &tcp].concat();
        let micros = u32::from(bytes(&mut secret, 1)[0]) * 3000 + i % 100;
        let copies = if hidden_kind { bytes(&mut secret, 1)[0] % 3 } else { 1 };
        for _ in 0..if left_out == Some(i) { 0 } else { copies } {
            let seconds = u64::from(1_700_000_000 + i / 100);
            file.push((seconds * 1_000_000 + u64::from(micros)) * 1000, &frame);
        }
    }
    file.bytes()
}

const GRANTS: [&str; 5] = [
    "expose = \"headers\"\ntransform = \"ip=zero,mac=zero\"\nresolution = \"1s\"",
    "expose = \"headers\"\ntransform = \"ip=zero,mac=zero\"\nresolution = \"1s\"\nsample = 3",
    "expose = \"none\"\ntransform = \"ip=zero\"\nresolution = \"1s\"",
    "expose = \"count\"\nresolution = \"1s\"",
    "expose = \"headers\"\ntransform = \"ip=zero,mac=zero,port.src=zero\"\nresolution = \"2s\"",
];

#[test]
fn what_a_grant_hides_changes_nothing_outside() {
    if common::module("flow").is_none() || common::module("count").is_none() {
        return;
    }
    for fields in GRANTS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let root = done(path, &["key", "new", "root.key"]);
        done(path, &["key", "new", "node.key"]);
        let policy = format!(
            "[node]\nname = \"tap1\"\nkey = \"node.key\"\n[roots]\noperator = \"{root}\"\n[roles.all]\n\
             select = \"tcp\"\ncalls = \"records, messages\"\ncode = \"any\"\n{fields}\n"
        );
        std::fs::write(path.join("policy.toml"), policy).unwrap();
        done(
            path,
            &[
                "grant", "mint", "--key", "root.key", "--to", "alice", "--role", "all", "--code", "any",
                "-o", "a.cred",
            ],
        );
        let outside = |secret: u64, left_out: Option<u32>, more: &[&str]| {
            std::fs::write(path.join("x.pcap"), capture(secret, left_out)).unwrap();
            let under = ["--policy", "policy.toml", "--credential", "a.cred"];
            let run = ["run", "flow,count", "-r", "x.pcap", "--format", "json", "--stats", "json"];
            let out = flame(path, &[&run[..], &under, more].concat());
            (
                out.status.code(),
                String::from_utf8(out.stdout).unwrap(),
                String::from_utf8(out.stderr).unwrap(),
            )
        };
        let runs: [&[&str]; 4] = [
            &[],
            &["--interval", "1ms"],
            &["--interval", "1001ms", "--batch", "7"],
            // The user's filter reads hidden bytes. Its leading space once mattered.
            &["--select", " ip[15] & 1 = 0"],
        ];
        for more in runs {
            // First that the probe works: records come, and it notices one packet of those that are shown. A
            // sample is another one with each key, and a third of the packets are in it.
            let first = outside(11, None, more);
            assert_eq!(first.0, Some(0), "{}", first.2);
            // A filter that reads bytes shows nothing where none is shown.
            let reads_nothing = more.contains(&"--select") && !fields.contains("headers");
            assert_eq!(first.1.contains("\"packets\":0,"), reads_nothing, "{fields} {more:?} {}", first.1);
            let planted = (0..200).any(|i| outside(11, Some(200 + i), more) != first);
            assert!(planted, "{fields} {more:?}: a packet less is not noticed");
            assert_eq!(first, outside(12, None, more), "{fields} {more:?}");
        }
    }
}
