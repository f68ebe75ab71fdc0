//! The applications among the modules that forward packets, in graphs over the recorded capture.

use crate::built::pcap;
use crate::commands;
use crate::common;
use flame_module::testing::Traffic;
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

/// All of them run without counters: hybrid control is for them.
#[test]
fn each_application_has_a_bound() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    for (name, more) in
        [("ecn", &[][..]), ("activedoom", &[]), ("arm", &[]), ("des3", &["--snaplen", "1522"])]
    {
        let Some(wasm) = common::module(name) else { return };
        std::fs::write(folder.join(format!("{name}.wasm")), wasm).unwrap();
        let said = commands::done(folder, &[&["check", &format!("./{name}.wasm")], more].concat());
        assert!(said.contains("verdict        bounded: "), "{name}: {said}");
    }
    // The longest packets of all take too long to encrypt without interruption.
    let cost = |arguments: &str| {
        let graph = format!(
            "InfiniteSource -> m :: Module(./des3.wasm, EXPOSE all{arguments}) -> Discard;
            Idle -> [1] m; m [1] -> Discard"
        );
        let out = commands::flame(folder, &["click", "check", "-e", &graph]);
        commands::text(&out.stdout) + &commands::text(&out.stderr)
    };
    let (any, frames) = (cost(""), cost(", MAX_LENGTH 1522"));
    assert!(any.contains("the module is metered: "), "{any}");
    assert!(!frames.contains("metered") && frames.contains("m :: Module"), "{frames}");
}

#[test]
fn packets_that_are_too_long_do_not_pass_a_module_that_forwards() {
    let dir = tempfile::tempdir().unwrap();
    let graph = "s :: InfiniteSource(LENGTH 150, LIMIT 20, STOP true) -> m :: Module(./des3.wasm, EXPOSE all, MAX_LENGTH 150)
        -> c :: Counter -> Discard; InfiniteSource(LENGTH 151, LIMIT 30) -> [1] m; m [1] -> d :: Counter -> Discard";
    let Some(out) = ran(dir.path(), "des3", graph, &["-h", "c.count", "-h", "d.count", "-h", "m.account"])
    else {
        return;
    };
    let of = |name: &str| crate::forwards::handler(&out, name);
    assert_eq!((of("c.count").trim(), of("d.count").trim()), ("20", "0"));
    assert!(of("m.account").contains("too long"), "{out}");
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

/// Returns the row of the table `total` among the records.
fn total(out: &str) -> serde_json::Value {
    let row = out.lines().find(|line| line.starts_with('{') && line.contains("\"table\":\"total\""));
    serde_json::from_str(row.unwrap_or_else(|| panic!("{out}"))).unwrap()
}

#[test]
fn activedoom_sends_one_datagram_for_many() {
    let dir = tempfile::tempdir().unwrap();
    let mut traffic = Traffic::default();
    // Eight players, 30 updates a second, for two seconds.
    for (round, player) in (0..60_u64).flat_map(|round| (1..9_u8).map(move |player| (round, player))) {
        let update = [&[b'A', b'D', 1, 1, 0, player, 20][..], &[round as u8; 20]].concat();
        let from = format!("10.0.0.{player}:4000");
        let at = round * 33_333_333 + u64::from(player) * 1_000_000;
        traffic.udp(&from, "10.0.9.9:5029").payload(&update).at(at);
    }
    traffic.udp("10.0.0.1:4000", "10.0.9.9:80").payload(b"other").at(3_000_000_000);
    std::fs::write(dir.path().join("in.pcap"), pcap(&traffic)).unwrap();
    let graph = "FromDump(in.pcap, STOP true) -> m :: Module(./activedoom.wasm, EXPOSE all)
        -> Strip(14) -> CheckIPHeader -> CheckUDPHeader -> c :: Counter -> Discard; Idle -> [1] m";
    let Some(out) = ran(dir.path(), "activedoom", graph, &["-h", "c.count"]) else { return };
    let row = total(&out);
    let of = |name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{name}: {row}"));
    assert_eq!((of("received"), of("updates"), of("passed"), of("waiting")), (480, 480, 1, 0));
    assert!((59..=60).contains(&of("sent")) && of("replaced") <= 8, "{row}");
    assert!(of("sent_bytes") * 2 < of("received_bytes"), "{row}");
    // All of them have headers that are right.
    let count = out.lines().find_map(|line| line.parse().ok());
    assert_eq!(count, Some(of("sent") + 1), "{out}");
}

#[test]
fn arm_repairs_from_its_cache() {
    let dir = tempfile::tempdir().unwrap();
    let mut traffic = Traffic::default();
    let message = |kind: u8, number: u32| [&[b'A', b'R', 1, kind][..], &number.to_be_bytes()].concat();
    for number in 0..200_u32 {
        let at = u64::from(number) * 10_000_000;
        let data = [message(0, number), vec![7; 500]].concat();
        traffic.udp("10.0.0.1:5030", "239.1.1.1:5030").payload(&data).at(at);
        // Three receivers lose every second packet; every eighth was lost before it came here.
        if number % 2 == 1 {
            let number = if number % 8 == 1 { number + 100_000 } else { number };
            for receiver in 1..4 {
                let nack = [message(1, number), vec![239, 1, 1, 1]].concat();
                let from = format!("10.0.1.{receiver}:5030");
                traffic.udp(&from, "10.0.0.1:5030").payload(&nack).at(at + receiver * 1_000_000);
            }
        }
    }
    std::fs::write(dir.path().join("in.pcap"), pcap(&traffic)).unwrap();
    let graph = "FromDump(in.pcap, STOP true) -> c :: Classifier(30/ef010101, -);
        m :: Module(./arm.wasm, EXPOSE all); c [0] -> m; c [1] -> [1] m;
        m [0] -> down :: Counter -> Discard; m [1] -> up :: Counter -> Discard";
    let handlers = ["-h", "down.count", "-h", "up.count"];
    let Some(out) = ran(dir.path(), "arm", graph, &handlers) else { return };
    let row = total(&out);
    let of = |name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{name}: {row}"));
    assert_eq!((of("data"), of("nacks"), of("passed")), (200, 300, 0));
    assert_eq!((of("served"), of("asked"), of("suppressed")), (75, 25, 200));
    assert!(of("cache") > 0 && of("refused") == 0, "{row}");
    let count =
        |name: &str| out.split(&format!("{name}:\n")).nth(1).unwrap().lines().next().unwrap().to_owned();
    assert_eq!((count("down.count"), count("up.count")), ("275".to_owned(), "25".to_owned()));
}
