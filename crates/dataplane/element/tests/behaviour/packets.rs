//! Bytes of packets and of their copies.

use crate::running::run;

/// The bytes that `Print` shows of packets that pass `element`.
fn printed(text: &str) -> Vec<String> {
    let run = run(text);
    run.adds_up();
    let text = run.text();
    text.lines().filter_map(|l| l.split_once("| ").map(|(_, b)| b.replace(' ', ""))).collect()
}

#[test]
fn copies_keep_the_bytes_that_were_stripped() {
    // Another packet of a single letter uses the buffers before.
    let noise = "InfiniteSource(LENGTH 200, LIMIT 8, BURST 8, DATA \\<ee>) -> Discard;";
    for (copier, port) in [("Tee", 0), ("Hub", 1), ("PaintTee(0)", 1), ("PaintSwitch", 1)] {
        let input = if copier == "Hub" { "[0] " } else { "" };
        let paint = if copier == "PaintSwitch" { "Paint(255) -> " } else { "" };
        let idle = if copier == "Hub" { "c [0] -> Discard;" } else { "c [0] -> d :: Discard;" };
        let other = if port == 0 { "c [1] -> Discard;" } else { idle };
        let text = format!(
            "{noise} TimedSource(0.1, \\<a1a2a3a4b1b2b3>, LIMIT 3) -> Strip(4) -> {paint}{input}c :: {copier};
             {other} c [{port}] -> Unstrip(6) -> Print(x, 50) -> Discard;"
        );
        assert_eq!(printed(&text), ["0000a1a2a3a4b1b2b3"; 3], "{copier}");
    }
    let text = format!(
        "{noise} TimedSource(0.1, \\<a1a2a3a4b1b2b3>, LIMIT 3) -> Strip(4) -> Queue -> t :: PullTee
            -> Unqueue -> Discard; t [1] -> Unstrip(6) -> Print(x, 50) -> Discard;"
    );
    assert_eq!(printed(&text), ["0000a1a2a3a4b1b2b3"; 3]);
}

#[test]
fn lengths_are_those_of_the_packet_and_of_its_header() {
    let shown = run("InfiniteSource(
            \\<4500002900000000400600000100000102000002 0001000200000005000000005002000900000000aa>, LIMIT 1)
            -> MarkIPHeader(0) -> IPPrint(a, TIMESTAMP false) -> EtherEncap(0x0800, 1:1:1:1:1:1, 2:2:2:2:2:2)
            -> IPPrint(b, TIMESTAMP false) -> ARPPrint(c, TIMESTAMP false, ETHER true)
            -> ARPPrint(d, ACTIVE false) -> Discard");
    let wanted = "a: 1.0.0.1.1 > 2.0.0.2.2: S 5:7(2,41,41) win 9
b: 1.0.0.1.1 > 2.0.0.2.2: S 5:7(2,55,41) win 9
c: 01-01-01-01-01-01 > 02-02-02-02-02-02: (not ARP)
";
    assert_eq!(shown.text(), wanted);
}

#[test]
fn packets_without_a_time_are_written_with_the_present_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let dump = |name: &str| format!("ToDump({})", file(name).display());
    let ended = run(&format!(
        "TimedSource(2.5, \\<a1a2a3a4>, LIMIT 1) -> t :: Tee -> SetTimestamp -> {};
         t [1] -> SetTimestamp(0) -> {}; t [2] -> SetTimestamp(7.5) -> {};",
        dump("now"),
        dump("none"),
        dump("stated"),
    ));
    ended.adds_up();
    drop(ended);
    let time = |name: &str| {
        let bytes = std::fs::read(file(name)).unwrap();
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(bytes.len(), 24 + 16 + 4, "{name}");
        (word(24), word(28))
    };
    assert_ne!(time("now"), (0, 0));
    assert_eq!(time("none"), time("now"));
    assert_eq!(time("stated"), (7, 500_000_000));
}
