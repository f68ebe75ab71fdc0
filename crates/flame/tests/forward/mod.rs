//! Tests of `Module` elements that forward packets: whole commands, modules in text.

mod forward_composed;
mod forward_held;
mod forward_limit;
mod forward_process;
pub mod forward_random;
mod forward_replaced;

use crate::commands::{done, flame, node, policy, ran, text};
use crate::common::{self, frame, tcp_packet, with_manifest};
use crate::forwards::{
    self, capture, folder, forwarding, handler, manifest, manifest_with, module, packets, returning, send,
};

#[test]
fn each_packet_goes_where_the_module_sends_it() {
    let folder = folder();
    let folder = folder.path();
    // Port 443 to output 1; of the others, those of an even flow to output 0.
    let bytes = "(i32.load offset=8 (local.get $d))";
    let is_tls = format!("(i32.eq (i32.load16_u offset=36 {bytes}) (i32.const 0xbb01))");
    let is_even = format!("(i32.eqz (i32.and (i32.load8_u offset=29 {bytes}) (i32.const 1)))");
    let wat = forwarding(&format!("(i32.or {is_tls} {is_even})"), &is_tls, "");
    module(folder, "fwd", &wat, "outputs = 2");
    let graph = "FromDump(in.pcap, STOP true) -> m :: Module(./fwd.wasm);
        m [0] -> a :: Counter -> ToDump(a.pcap) -> Discard; m [1] -> b :: Counter -> ToDump(b.pcap) -> Discard";
    let (out, err) =
        ran(folder, graph, &["-h", "a.count", "-h", "b.count", "-h", "m.account", "-h", "m.stats"]);
    assert_eq!(
        (handler(&out, "a.count"), handler(&out, "b.count"), err.as_str()),
        ("333".into(), "334".into(), "")
    );
    let account = handler(&out, "m.account");
    assert!(account.contains("taken 1000") && account.contains("dropped 333 module"), "{account}");
    assert!(handler(&out, "m.stats").contains("offered 1000\nprocessed 1000"), "{out}");
    // In their order, and whole: the module sees only headers.
    let all = packets(&folder.join("in.pcap"));
    let tls: Vec<_> = all.iter().filter(|p| p[36..38] == [1, 0xbb]).cloned().collect();
    assert_eq!(packets(&folder.join("b.pcap")), tls);
    let even: Vec<_> = all.into_iter().filter(|p| p[36..38] == [0, 80] && p[29] % 2 == 0).collect();
    assert_eq!(packets(&folder.join("a.pcap")), even);
}

#[test]
fn packets_that_are_not_shown_pass_in_their_order() {
    let folder = folder();
    let folder = folder.path();
    module(folder, "all", &forwarding("(i32.const 1)", "(i32.const 0)", ""), "");
    module(folder, "none", &forwarding("(i32.const 0)", "(i32.const 0)", ""), "");
    for (name, filtered, expected) in [("all", 666, 1000), ("none", 666, 666)] {
        let graph = format!(
            "FromDump(in.pcap, STOP true) -> m :: Module(./{name}.wasm, SELECT \"port 443\") -> ToDump(out.pcap)"
        );
        let (out, _) = ran(folder, &graph, &["-h", "m.stats", "-h", "m.account"]);
        assert!(out.contains(&format!("filtered {filtered}")), "{out}");
        let found = packets(&folder.join("out.pcap"));
        let mut all = packets(&folder.join("in.pcap"));
        all.retain(|p| name == "all" || p[36..38] == [0, 80]);
        assert_eq!((found.len(), found == all), (expected, true), "{name}");
    }
}

#[test]
fn what_a_module_returns_is_contained_and_named() {
    let folder = folder();
    let folder = folder.path();
    let both = "modify = true\ntransmit = true";
    for (ports, frames, said) in [
        ("", vec![send(0, 1, &[])], "output 1, the module has 1"),
        ("", vec![send(999, 0, &[])], "packet 999 of a batch of"),
        ("", vec![send(0, 0, &[]), send(0, 0, &[])], "packet 0 is sent twice"),
        ("", vec![send(0, 0, b"changed")], "the manifest lacks `modify = true` in [ports]"),
        ("", vec![send(0xffff, 0, b"new")], "the manifest lacks `transmit = true` in [ports]"),
        (both, vec![send(0xffff, 0, b"")], "a new packet of no bytes"),
        (both, vec![frame(0xfffb, &[0, 0, 0])], "a packet that is sent begins with 4 bytes"),
        ("", vec![frame(0, &[])], "kind 0 is no table"),
    ] {
        module(folder, "bad", &returning(&frames), ports);
        for (policy, given) in [("drop", 0), ("pass", 1000)] {
            let graph = format!(
                "FromDump(in.pcap, STOP true) -> m :: Module(./bad.wasm, ON_EVICT {policy}) -> c :: Counter -> Discard"
            );
            let handlers = ["-h", "c.count", "-h", "m.account", "-h", "m.stats", "-h", "m.gone"];
            let (out, err) = ran(folder, &graph, &handlers);
            assert!(err.contains("flame_push: output frame") && err.contains(said), "{said}: {err}");
            assert_eq!(handler(&out, "c.count"), given.to_string(), "{said}");
            assert_eq!(handler(&out, "m.gone"), "true", "{said}");
            let shed = |stats: &str| -> u64 {
                let lines = stats.lines().filter(|l| l.starts_with("shed "));
                lines.map(|l| l.split(' ').nth(1).unwrap().parse::<u64>().unwrap()).sum()
            };
            assert_eq!(shed(&handler(&out, "m.stats")), 1000, "{out}");
            if policy == "drop" {
                let account = handler(&out, "m.account");
                assert!(account.contains(" output\n") && account.contains(" stopped"), "{account}");
            }
        }
    }
    // Another length than the module sees is no fault, but the packet ends.
    module(folder, "long", &returning(&[send(0, 0, &[7; 60])]), "modify = true");
    let graph = "FromDump(in.pcap, STOP true) -> m :: Module(./long.wasm) -> c :: Counter -> Discard";
    let (out, err) = ran(folder, graph, &["-h", "c.count", "-h", "m.account"]);
    assert!(
        handler(&out, "m.account").contains("length changed by the module") && err.is_empty(),
        "{out}{err}"
    );
}

#[test]
fn a_module_makes_packets() {
    let folder = folder();
    let folder = folder.path();
    let frames = [send(0, 0, &[]), send(0xffff, 1, b"first"), send(0xffff, 1, b"second")];
    module(folder, "makes", &returning(&frames), "outputs = 2\ntransmit = true");
    let graph = "FromDump(in.pcap, STOP true) -> m :: Module(./makes.wasm);
        m [0] -> a :: Counter -> Discard; m [1] -> b :: Counter -> ToDump(b.pcap) -> Discard";
    let (out, _) = ran(folder, graph, &["-h", "a.count", "-h", "b.count", "-h", "m.account"]);
    let (a, b): (u64, u64) =
        (handler(&out, "a.count").parse().unwrap(), handler(&out, "b.count").parse().unwrap());
    assert!(a > 0 && b == 2 * a, "{out}");
    let account = handler(&out, "m.account");
    assert!(account.contains(&format!("made {b}\ngiven {}", a + b)), "{account}");
    let made = packets(&folder.join("b.pcap"));
    assert_eq!(made[..2], [b"first".to_vec(), b"second".to_vec()]);
}

/// Each new packet is a buffer, however short it is.
#[test]
fn new_packets_are_limited_in_number() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let frames = vec![send(0xffff, 0, b"x"); 10_000];
    module(folder, "floods", &returning(&frames), "transmit = true");
    let graph = "InfiniteSource(LIMIT 2, BURST 1, STOP true) -> m :: Module(./floods.wasm) -> c :: Counter
        -> Discard";
    let (out, err) = ran(folder, graph, &["-h", "c.count", "-h", "m.account"]);
    assert_eq!(handler(&out, "c.count"), "2048", "{out}{err}");
    assert!(handler(&out, "m.account").contains("made 2048\ngiven 2048\nheld 0"), "{out}");
    assert!(err.contains("17952"), "{err}");
}

/// The headers determine which bytes are payload, so a module that may change them could show itself those
/// that its view hides, once the packet comes back.
#[test]
fn no_change_of_headers_shows_what_is_hidden() {
    let folder = folder();
    let folder = folder.path();
    let before = packets(&folder.join("in.pcap"))[0].clone();
    capture(&folder.join("in.pcap"), std::slice::from_ref(&before));
    let graph = "FromDump(in.pcap, STOP true) -> m :: Module(./writes.wasm) -> ToDump(out.pcap)";
    let changed = |changes: &[(usize, u8)]| {
        let mut seen = before[..54].to_vec();
        changes.iter().for_each(|(at, byte)| seen[*at] = *byte);
        module(folder, "writes", &returning(&[send(0, 0, &seen)]), "modify = true");
        let (account, err) = ran(folder, graph, &["-h", "m.account"]);
        let is_dropped = account.contains("dropped 1 form of headers changed by the module");
        assert_eq!(is_dropped, packets(&folder.join("out.pcap")).is_empty(), "{changes:?}: {account}{err}");
        is_dropped
    };
    // Type, length of the header, length, fragments, protocol (IP in IP, GRE, UDP), length of TCP's header.
    for changes in [
        &[(12, 0x81)][..],
        &[(12, 0x86), (13, 0xdd)],
        &[(14, 0x4f)],
        &[(16, 0), (17, 20)],
        &[(20, 0x20)],
        &[(20, before[20] ^ 0x40)],
        &[(21, 1)],
        &[(23, 4)],
        &[(23, 47)],
        &[(23, 17)],
        &[(46, 0xf0)],
        &[(46, 0x60)],
    ] {
        assert!(changed(changes), "{changes:?}");
    }
    // MAC and IP addresses, ports, ECN, the lifetime, flags and the window of TCP are the module's.
    for changes in [
        &[(0, 9), (6, 9)][..],
        &[(26, 9), (30, 9)],
        &[(34, 9), (36, 0x12), (37, 0xb5)],
        &[(15, 3)],
        &[(22, 1)],
        &[(47, 0xff)],
        &[(48, 0), (49, 0)],
    ] {
        assert!(!changed(changes), "{changes:?}");
    }
    // Nothing is hidden of a packet that has no payload.
    let mut alone = before[..54].to_vec();
    alone[17] = 40;
    capture(&folder.join("in.pcap"), std::slice::from_ref(&alone));
    alone[46] = 0xf0;
    module(folder, "writes", &returning(&[send(0, 0, &alone)]), "modify = true");
    ran(folder, graph, &[]);
    assert_eq!(packets(&folder.join("out.pcap")), [alone]);
}

/// The capture has a part of the packet, so the module does not see the whole packet, whatever its rights
/// are.
#[test]
fn the_length_of_a_packet_that_was_cut_off_stays() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let packet = common::tcp_packet(1, 80);
    let mut file = common::pcap([(5000, packet[..54].to_vec())]);
    // The length on the wire of the only packet.
    file[36..40].copy_from_slice(&(packet.len() as u32).to_le_bytes());
    std::fs::write(folder.join("in.pcap"), file).unwrap();
    let all = forwards::manifest("modify = true").replace("\"headers\"", "\"all\"");
    let graph =
        "FromDump(in.pcap, STOP true) -> m :: Module(./writes.wasm, EXPOSE all) -> c :: Counter -> Discard";
    for (length, sent) in [(40, "0"), (54, "1"), (60, "0")] {
        let wasm = wat::parse_str(returning(&[send(0, 0, &vec![7; length])])).unwrap();
        std::fs::write(folder.join("writes.wasm"), with_manifest(wasm, all.as_bytes())).unwrap();
        let (out, err) = ran(folder, graph, &["-h", "c.count", "-h", "m.account"]);
        assert_eq!(handler(&out, "c.count"), sent, "{length}: {out}{err}");
    }
}

#[test]
fn a_metered_module_decides_in_slices() {
    let folder = folder();
    let folder = folder.path();
    let spin = "(i32.store (i32.const 64) (i32.const 5000000))
        (loop (i32.store (i32.const 64) (i32.sub (i32.load (i32.const 64)) (i32.const 1)))
              (br_if 0 (i32.load (i32.const 64))))";
    let wat = forwarding("(i32.const 1)", "(i32.const 0)", spin);
    // The work is done before the first packet begins, in the budget of one packet.
    let manifest = manifest_with("limits = { packet_budget = 1000000000 }\n", "");
    let wasm = with_manifest(wat::parse_str(&wat).unwrap(), manifest.as_bytes());
    std::fs::write(folder.join("slow.wasm"), wasm).unwrap();
    let graph = "InfiniteSource(LIMIT 6, BURST 1) -> m :: Module(./slow.wasm, LIVE true, CAPACITY 4)
          -> c :: Counter -> Discard;
        t :: TimedSource(0.0001, LIMIT 10) -> n :: Counter -> Discard;
        DriverManager(wait 0.5s, read n.count, read c.count, stop)";
    let handlers = ["-h", "m.account", "-h", "m.stats", "-h", "m.length"];
    let all = [&["click", "--format", "json", "-e", graph][..], &handlers].concat();
    let out = flame(folder, &all);
    let (out, err) = (text(&out.stdout), text(&out.stderr));
    assert!(err.contains("n.count:\n10"), "{out}{err}");
    // What came while it was at work waited for it, as far as there was room.
    let account = handler(&out, "m.account");
    let number = |name: &str| {
        let line = account.lines().find(|l| l.starts_with(name)).unwrap_or(" 0");
        line.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(number("taken"), 6, "{account}");
    assert_eq!(number("given") + number("held") + number("dropped"), 6, "{account}");
    assert!(number("given") >= 1, "{account}{err}");
}

#[test]
fn the_bound_of_flame_push_is_proved_and_checked() {
    let folder = folder();
    let folder = folder.path();
    module(folder, "fwd", &forwarding("(i32.const 1)", "(i32.const 0)", ""), "");
    let out = done(folder, &["check", "./fwd.wasm"]);
    assert!(out.contains("flame_push") && out.contains("verdict        bounded"), "{out}");
    // An index of a port that the host does not pass does not count.
    let text_of = done(folder, &["check", "./fwd.wasm", "--format", "json"]);
    let push = text_of.lines().find(|l| l.contains("\"flame_push\"")).unwrap();
    assert!(push.contains("\"proved\":true"), "{push}");
    let endless = forwarding("(i32.const 1)", "(i32.const 0)", "(loop (br 0))");
    module(folder, "endless", &endless, "");
    let graph =
        "FromDump(in.pcap, STOP true) -> m :: Module(./endless.wasm, ON_EVICT drop, BUDGET 1000) -> Discard";
    let (out, err) = ran(folder, graph, &["-h", "m.account", "-h", "m.gone"]);
    assert!(err.contains("flame_push: ") && err.contains("budget"), "{err}");
    assert!(handler(&out, "m.account").contains(" budget\n"), "{out}");
}

#[test]
fn a_module_is_either_an_element_that_forwards_or_one_that_measures() {
    let folder = folder();
    let folder = folder.path();
    module(folder, "fwd", &forwarding("(i32.const 1)", "(i32.const 0)", ""), "outputs = 2");
    let run = flame(folder, &["run", "./fwd.wasm", "-r", "in.pcap"]);
    assert!(text(&run.stderr).contains("fwd forwards packets: it is an element of a graph"), "{run:?}");
    let push = "(func (export \"flame_push\") (param i32 i32) (result i64) (i64.const 0))";
    let batch = "(func (export \"flame_batch\") (param i32) (result i64) (i64.const 0))";
    let of = |functions: &str| format!("(module (memory (export \"memory\") 1) {functions})");
    let plain = manifest("").replace("[ports]\n", "");
    for (name, functions, manifest, said) in [
        ("no_push", batch.to_owned(), manifest(""), "flame_push is missing"),
        ("no_ports", push.to_owned(), plain.clone(), "add [ports] to the manifest"),
        ("both", format!("{push}{batch}"), manifest(""), "flame_batch and flame_push"),
        ("neither", String::new(), plain, "\"flame_batch\" is missing"),
        ("many", push.to_owned(), manifest("outputs = 65"), "ports.outputs: 65 is not in 1 to 64"),
        ("none", push.to_owned(), manifest("inputs = 0"), "ports.inputs: 0 is not in 1 to 64"),
        (
            "writes",
            push.to_owned(),
            "packets = true\n".to_owned() + &manifest(""),
            "sends packets from its outputs",
        ),
    ] {
        let wasm = with_manifest(wat::parse_str(of(&functions)).unwrap(), manifest.as_bytes());
        std::fs::write(folder.join(format!("{name}.wasm")), wasm).unwrap();
        let out = flame(folder, &["check", &format!("./{name}.wasm")]);
        assert!(!out.status.success() && text(&out.stderr).contains(said), "{name}: {}", text(&out.stderr));
    }
    for (graph, said) in [
        (
            "Idle -> m :: Module(./fwd.wasm) -> Discard",
            "fwd has 1 inputs and 2 outputs, but 1 and 1 are connected",
        ),
        (
            "Idle -> Queue -> m :: Module(./fwd.wasm); m [0] -> Unqueue -> Discard; m [1] -> Unqueue -> Discard",
            "put an Unqueue before it",
        ),
    ] {
        let out = flame(folder, &["click", "-e", graph]);
        assert!(!out.status.success() && text(&out.stderr).contains(said), "{said}: {}", text(&out.stderr));
    }
}

#[test]
fn forwarding_and_changing_are_rights_of_their_own() {
    let dir = folder();
    let folder = dir.path();
    node(folder, "expose = \"headers\"\ncalls = \"\"");
    // Changes the type of service, the second byte of the IPv4 header.
    let mut seen = tcp_packet(0, 443)[..54].to_vec();
    seen[15] = 0xb8;
    module(folder, "plain", &returning(&[send(0, 0, &[])]), "");
    module(folder, "edits", &returning(&[send(0, 0, &seen)]), "modify = true");
    let one = packets(&folder.join("in.pcap"))[..1].to_vec();
    capture(&folder.join("in.pcap"), &one);
    let graph = |module: &str| {
        format!(
            "FromDump(in.pcap, STOP true) -> m :: Module(./{module}.wasm, CREDENTIAL alice.cred) -> ToDump(out.pcap)"
        )
    };
    let refused = |module: &str, said: &str| {
        let all = ["click", "--simtime", "--policy", "policy.toml", "-e", &graph(module)];
        let out = flame(folder, &all);
        assert!(!out.status.success() && text(&out.stderr).contains(said), "{said}: {}", text(&out.stderr));
    };
    let granted = |module: &str| {
        ran(folder, &graph(module), &["--policy", "policy.toml"]);
        packets(&folder.join("out.pcap"))
    };
    refused("plain", "fwd uses forward, which is not granted");
    policy(folder, "expose = \"headers\"\ncalls = \"forward\"");
    assert_eq!(granted("plain"), one);
    refused("edits", "fwd uses modify, which is not granted");
    policy(folder, "expose = \"headers\"\ncalls = \"forward, modify\"");
    let mut expected = one.clone();
    expected[0][15] = 0xb8;
    assert_eq!(granted("edits"), expected, "the payload and the checksum that are hidden are as they were");
    policy(folder, "expose = \"headers\"\ncalls = \"forward, modify\"\ntransform = \"ip=hash\"");
    refused("edits", "its view transforms fields");
}

#[test]
fn a_check_of_a_graph_states_what_a_packet_costs_at_most() {
    let folder = folder();
    let folder = folder.path();
    module(folder, "fwd", &forwarding("(i32.const 1)", "(i32.const 0)", ""), "");
    let check = |graph: &str| flame(folder, &["click", "check", "-e", graph]);
    let out = check(
        "FromDump(in.pcap) -> c :: CheckIPHeader(14) -> m :: Module(./fwd.wasm) -> q :: Queue -> Discard",
    );
    let said = text(&out.stdout);
    assert!(out.status.success() && said.contains("a packet costs at most "), "{said}{}", text(&out.stderr));
    let cost = |name: &str| -> f64 {
        let line = said.lines().find(|l| l.contains(name)).unwrap_or_else(|| panic!("{name}: {said}"));
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let sum = ["c :: CheckIPHeader", "m :: Module", "q :: Queue"].map(cost).iter().sum::<f64>();
    let most = said.split("at most ").nth(1).unwrap().split(' ').next().unwrap().parse::<f64>().unwrap();
    assert!(cost("m :: Module") > 0.0 && most + 1.0 >= sum, "{said}");
    // A packet that passes a loop pays for each pass.
    let out = check(
        "InfiniteSource -> r :: RoundRobinSwitch; r [0] -> Discard; r [1] -> Null -> l :: Loop(7) -> r",
    );
    assert!(text(&out.stdout).contains("l :: Loop  (all of this 8 times)"), "{}", text(&out.stdout));
    let out = check("InfiniteSource -> r :: RoundRobinSwitch; r [0] -> Discard; r [1] -> n :: Null -> r");
    assert!(text(&out.stderr).contains("cycle without Loop: r -> n -> r"), "{}", text(&out.stderr));
    let endless = forwarding("(i32.const 1)", "(i32.const 0)", "(loop (br_if 0 (i32.load (i32.const 64))))");
    module(folder, "endless", &endless, "");
    let out = check(
        "InfiniteSource -> t :: Tee; t [1] -> c :: CheckIPHeader -> Queue -> u :: Unqueue -> Discard;
        t [0] -> m :: Module(./endless.wasm) -> Discard",
    );
    let said = text(&out.stderr);
    assert!(
        !out.status.success() && said.contains("m :: Module has no bound: the module is metered: "),
        "{said}"
    );
    // The costs of all others are known.
    let said = text(&out.stdout);
    let without = "without modules that have no bound and elements that are not measured:\n";
    assert!(said.contains(without) && said.contains("c :: CheckIPHeader"), "{said}");
    assert!(said.contains("u :: Unqueue: it is pulled, or pulls in a task"), "{said}");
    let out = flame(folder, &["click", "draw", "-e", "s :: InfiniteSource -> \"x\"; "]);
    assert!(!out.status.success());
    let out = flame(folder, &["click", "draw", "-e", "s :: InfiniteSource(DATA \"<a>\") -> d :: Discard"]);
    let svg = text(&out.stdout);
    assert!(
        svg.starts_with("<svg ") && svg.matches("<rect ").count() == 2 && svg.contains("&lt;a&gt;"),
        "{svg}"
    );
}

/// Returns the sum of the TCP segment of a frame with its pseudo-header, which is 0 if the checksum is right.
fn residue(frame: &[u8]) -> u64 {
    let words = |bytes: &[u8]| -> u64 {
        bytes.chunks(2).map(|w| u64::from(u16::from_be_bytes([w[0], *w.get(1).unwrap_or(&0)]))).sum()
    };
    (words(&frame[26..]) + 6 + (frame.len() - 34) as u64) % 0xffff
}

/// The checksum of TCP covers payload that is hidden, so the module sees 0 in its place.
#[test]
fn a_checksum_that_is_hidden_cannot_be_written_and_follows_the_changes() {
    let folder = folder();
    let folder = folder.path();
    let before = packets(&folder.join("in.pcap"))[0].clone();
    let mut seen = before[..54].to_vec();
    (seen[26..30]).copy_from_slice(&[192, 168, 7, 9]);
    (seen[36..38]).copy_from_slice(&[0x12, 0x34]);
    (seen[50..52]).copy_from_slice(&[0xde, 0xad]);
    module(folder, "writes", &returning(&[send(0, 0, &seen)]), "modify = true");
    capture(&folder.join("in.pcap"), std::slice::from_ref(&before));
    let graph = "FromDump(in.pcap, STOP true) -> m :: Module(./writes.wasm) -> ToDump(out.pcap)";
    ran(folder, graph, &[]);
    let after = packets(&folder.join("out.pcap")).remove(0);
    assert_eq!((&after[..50], &after[52..54], &after[54..]), (&seen[..50], &seen[52..54], &before[54..]));
    assert!(after[50..52] != seen[50..52] && after[50..52] != before[50..52], "{:x?}", &after[50..52]);
    assert_eq!(residue(&after), residue(&before));
    // All of the packet is shown: all of it is the module's.
    let whole = [&seen[..], &before[54..]].concat();
    let all = forwards::manifest("modify = true").replace("\"headers\"", "\"all\"");
    let wasm = wat::parse_str(returning(&[send(0, 0, &whole)])).unwrap();
    std::fs::write(folder.join("whole.wasm"), with_manifest(wasm, all.as_bytes())).unwrap();
    ran(folder, &graph.replace("./writes.wasm", "./whole.wasm, EXPOSE all"), &[]);
    assert_eq!(packets(&folder.join("out.pcap")), [whole]);
}

fn check(folder: &std::path::Path, graph: &str) -> String {
    let out = flame(folder, &["click", "check", "-e", graph]);
    assert!(out.status.success(), "{graph}: {}", text(&out.stderr));
    text(&out.stdout)
}

/// Returns the cost of the element `m` in what a check says.
fn cost_of_m(said: &str) -> f64 {
    let line = said.lines().find(|l| l.contains("  m :: Module")).unwrap_or_else(|| panic!("{said}"));
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// A module that asks 24 times for the rest of its output, of which each takes as long as 3,000 turns of a
/// loop, and one that takes as long for a batch, whose packets may come alone.
#[test]
fn the_cost_of_a_module_is_that_of_a_packet_alone_with_all_that_follows() {
    let folder = folder();
    let folder = folder.path();
    let spin = "(local.set $k (i32.const 3000))
        (loop $w (local.set $x (i32.add (local.get $x) (local.get $k)))
          (local.set $k (i32.sub (local.get $k) (i32.const 1)))
          (br_if $w (i32.gt_s (local.get $k) (i32.const 0))))
        (i32.store (i32.const 8) (local.get $x))";
    let rests = format!(
        r#"(module (memory (export "memory") 4) (global $c (mut i32) (i32.const 0))
          (func (export "flame_push") (param i32 i32) (result i64)
            (global.set $c (i32.const 24)) (i64.const 0x40000000))
          (func (export "flame_rest") (result i64) (local $k i32) (local $x i32) {spin}
            (global.set $c (i32.sub (global.get $c) (i32.const 1)))
            (if (result i64) (i32.gt_s (global.get $c) (i32.const 0))
              (then (i64.const 0x40000000)) (else (i64.const 0)))))"#
    );
    module(folder, "rests", &rests, "");
    let before = format!("(local $k i32) (local $x i32) {spin}");
    let slow = forwarding("(i32.const 1)", "(i32.const 0)", "SPIN");
    let slow = slow.replace("(local $d i32)", "(local $d i32) (local $k i32) (local $x i32)");
    module(folder, "slow", &slow.replace("SPIN", before.split_once("$x i32) ").unwrap().1), "");
    module(folder, "fast", &forwarding("(i32.const 1)", "(i32.const 0)", ""), "");
    let cost = |name: &str| {
        cost_of_m(&check(folder, &format!("InfiniteSource -> m :: Module(./{name}.wasm) -> Discard")))
    };
    let fast = cost("fast");
    assert!(cost("rests") > fast + 300.0 && cost("slow") > fast + 300.0, "{fast}");
    // More than are in the cost are not made: nothing counts the work of a module that is bounded.
    let graph = "InfiniteSource(LIMIT 1, STOP true) -> m :: Module(./rests.wasm) -> Discard";
    let (out, _) = ran(folder, graph, &["-h", "m.faults"]);
    assert!(out.contains("asked for more than 1 further calls"), "{out}");
}

/// A check gives packets only to elements that act inside of the graph.
#[test]
fn a_check_of_a_graph_runs_no_script() {
    let folder = folder();
    let folder = folder.path();
    let said = check(
        folder,
        "Idle -> s :: Script(TYPE PACKET, save version saved, return 0)
          -> Script(TYPE PACKET, label l, goto l) -> Script(TYPE PACKET, print $(cat /dev/zero))
          -> t :: ToDump(made.pcap) -> n :: Null -> Discard",
    );
    assert!(said.contains(", without elements that are not measured:\n"), "{said}");
    assert!(said.contains("not measured:\n  s :: Script: what it does is not known beforehand"), "{said}");
    assert!(said.contains("  t :: ToDump: what") && !said.contains("n :: Null: "), "{said}");
    assert!(!folder.join("saved").exists() && !folder.join("made.pcap").exists());
    // Names are collected once, and elements of the same arguments measured once.
    let names: String = (0..3000).map(|i| format!("AddressInfo(x{i} 1.0.0.{}); ", i % 250)).collect();
    let said = check(folder, &format!("{names} Idle {} -> Discard", "-> Null ".repeat(3000)));
    assert!(!said.contains("not measured"), "{}", said.lines().last().unwrap());
}
