//! The applications among the modules that forward packets, in graphs over the recorded capture.

mod commands;
mod common;

use std::path::Path;

/// Runs a graph over the recorded capture in a folder that holds the module. Returns standard output.
fn ran(folder: &Path, module: &str, graph: &str, more: &[&str]) -> Option<String> {
    std::fs::write(folder.join(format!("{module}.wasm")), common::module(module)?).unwrap();
    let demo = common::root().join("demo/demo.pcap").canonicalize().unwrap();
    let graph = graph.replace("DEMO", &demo.display().to_string());
    let (out, err) = commands::ran(folder, &graph, more);
    assert_eq!(err, "");
    Some(out)
}

#[test]
fn des3_is_its_own_inverse() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let graph = "FromDump(DEMO, STOP true) -> ToDump(in.pcap) -> m :: Module(./des3.wasm, EXPOSE all, iv 00112233445566aa);
        m [0] -> ToDump(secret.pcap) -> [1] m; m [1] -> ToDump(out.pcap)";
    if ran(folder, "des3", graph, &[]).is_none() {
        return;
    }
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let (before, secret, after) = (read("in.pcap"), read("secret.pcap"), read("out.pcap"));
    assert!(before.len() > 100_000 && before.len() == secret.len() && before != secret);
    assert!(before == after, "decrypted packets are those before");
    // Names that were asked for: four times over UDP, and twice over TCP, which passes as it is.
    let names = |bytes: &[u8]| bytes.windows(5).filter(|w| w == b"\x04demo").count();
    assert_eq!((names(&before), names(&secret)), (6, 2));
}

#[test]
fn ecn_marks_when_the_queue_is_long() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let graph = "FromDump(DEMO, STOP true) -> Classifier(12/0800) -> SetIPECN(ect1)
        -> m :: Module(./ecn.wasm, rate RATE, threshold 3000) -> CheckIPHeader(14) -> Strip(14)
        -> c :: IPClassifier(ip ce, -) -> marked :: Counter -> Discard; c [1] -> other :: Counter -> Discard";
    let counts = |rate: &str| {
        let graph = graph.replace("RATE", rate);
        let out = ran(folder, "ecn", &graph, &["-h", "marked.count", "-h", "other.count"])?;
        let of = |name: &str| -> u64 {
            let rest = out.split(&format!("{name}:\n")).nth(1).unwrap_or_else(|| panic!("{out}"));
            rest.lines().next().unwrap().parse().unwrap()
        };
        let row = out.lines().find(|l| l.starts_with('{')).unwrap();
        let row: serde_json::Value = serde_json::from_str(row).unwrap();
        let marked = row["marked"].as_u64().unwrap();
        assert_eq!(
            (marked, row["packets"].as_u64().unwrap()),
            (of("marked.count"), of("marked.count") + of("other.count"))
        );
        Some(marked)
    };
    // The slower the link, the more packets are marked, with checksums that are right.
    let Some(fast) = counts("1000000000000") else { return };
    let (middle, slow) = (counts("1000000").unwrap(), counts("10000").unwrap());
    assert!(fast == 0 && middle > 0 && slow > middle, "{fast} {middle} {slow}");
}
