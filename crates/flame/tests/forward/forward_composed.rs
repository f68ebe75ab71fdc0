//! The bytes that a module composes in packets that it changes.

use crate::commands::{node, ran};
use crate::common::{runner, with_manifest};
use crate::forwards::{self, capture, handler, packets, returning, send};
use std::path::Path;

/// The options for a module here, and in a process of its own.
const PLACES: [&[&str]; 2] = [&[], &["--isolate"]];

/// Writes a module that sees whole packets and sends the first one of each batch with these bytes.
fn changing(folder: &Path, bytes: &[u8], ports: &str) {
    let all = forwards::manifest(ports).replace("\"headers\"", "\"all\"");
    let wasm = wat::parse_str(returning(&[send(0, 0, bytes)])).unwrap();
    std::fs::write(folder.join("fwd.wasm"), with_manifest(wasm, all.as_bytes())).unwrap();
}

/// Offers `count` packets of these bytes one by one. Returns those that leave, and the element's account.
fn offer(folder: &Path, (count, packet): (usize, &[u8]), arguments: (&str, &[&str])) -> (usize, String) {
    capture(&folder.join("in.pcap"), &vec![packet.to_vec(); count]);
    let graph = format!(
        "FromDump(in.pcap) -> Queue -> Unqueue(BURST 1) -> m :: Module(./fwd.wasm, EXPOSE all{}) -> ToDump(out.pcap)",
        arguments.0
    );
    let (out, err) = ran(folder, &graph, &[arguments.1, &["-h", "m.account", "-h", "m.gone"]].concat());
    let given = packets(&folder.join("out.pcap"));
    assert!(err.lines().all(|line| !line.contains("fault")), "{err}");
    (given.iter().map(Vec::len).sum(), handler(&out, "m.account"))
}

/// Regression: 3,000 packets of 60 bytes became 196.6 MB of a module's own.
#[test]
fn a_module_that_may_not_transmit_adds_headers_and_no_more() {
    runner();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let packet = [5; 60];
    for (ports, length, given) in [
        ("modify = true", 60 + 128, 20 * (60 + 128)),
        ("modify = true", 60 + 129, 0),
        ("modify = true", 65_532, 0),
        ("modify = true\ntransmit = true", 65_532, 20 * 65_532),
    ] {
        changing(folder, &vec![7; length], ports);
        for place in PLACES {
            let (bytes, account) = offer(folder, (20, &packet), ("", place));
            assert_eq!(bytes, given, "{ports}, {length}, {place:?}: {account}");
            let is_named = account.contains("dropped 20 grown by the module, which may not transmit");
            assert_eq!(is_named, given == 0, "{place:?}: {account}");
        }
    }
}

#[test]
fn a_grant_counts_the_bytes_that_a_module_composes() {
    runner();
    let packet: Vec<u8> = (0..100).collect();
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = packet.clone();
        change(&mut bytes);
        bytes
    };
    for (transmit, bytes, left, each) in [
        (300, packet.clone(), 50, 100),
        // 10 bytes count as 12, and so do 10 that are added in front.
        (300, with(&|p| p[40..50].fill(200)), 25, 100),
        (300, with(&|p| drop(p.splice(0..0, [200; 10]))), 25, 110),
        (300, with(&|p| p.truncate(60)), 50, 60),
        (300, with(&|p| p.fill(200)), 3, 100),
        // No byte that it composes may leave; bytes that it does not change do.
        (0, with(&|p| p[99] = 0), 0, 100),
        (0, packet.clone(), 50, 100),
    ] {
        for place in PLACES {
            // A ledger gives out each second of packet time once.
            let folder = tempfile::tempdir().unwrap();
            let folder = folder.path();
            let terms = format!("expose = \"all\"\ncalls = \"forward, modify\"\ntransmit = \"{transmit}B\"");
            node(folder, &terms);
            changing(folder, &bytes, "modify = true");
            let arguments = [&["--policy", "policy.toml"][..], place].concat();
            let (given, account) = offer(folder, (50, &packet), (", CREDENTIAL alice.cred", &arguments));
            assert_eq!(given, left * each, "{place:?}: {account}");
            let withheld = format!("dropped {} change withheld", 50 - left);
            assert_eq!(account.contains(&withheld), left < 50, "{place:?}: {account}");
        }
    }
}
