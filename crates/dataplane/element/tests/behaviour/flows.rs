//! Flows of rewriters: when they end, which they are, and which make way.

use crate::rewriter::{at, packet, udp};
use crate::running::{refused, run, start};

/// Returns a TCP packet of a connection, or an answer.
fn tcp(is_answer: bool, flags: u8, payload: usize) -> String {
    match is_answer {
        false => packet(6, "1.0.0.1", "2.0.0.2", (1, 80), flags, 0, payload),
        true => packet(6, "2.0.0.2", "1.0.0.1", (80, 1), flags, 0, payload),
    }
}

const ACK: u8 = 16;
const FIN: u8 = 17;
const SYN: u8 = 2;
const RST: u8 = 4;

#[test]
fn a_connection_that_goes_on_has_not_finished() {
    let data = |is_answer| tcp(is_answer, ACK, 5);
    let fin = |is_answer| tcp(is_answer, FIN, 0);
    // Data has gone both ways at 1 s. After the packets, an answer comes at 50 s.
    for (packets, is_known) in [
        (vec![(2.0, tcp(false, RST, 0))], false),
        (vec![(2.0, tcp(false, RST, 0)), (2.1, tcp(false, ACK, 0)), (2.2, tcp(true, ACK, 0))], false),
        (vec![(2.0, tcp(false, RST, 0)), (2.1, data(false))], true),
        (vec![(2.0, tcp(true, RST, 0)), (2.1, data(false))], true),
        (vec![(2.0, fin(false)), (2.1, fin(true))], false),
        (vec![(2.0, fin(false)), (2.1, fin(true)), (2.2, tcp(true, SYN, 0))], true),
        (vec![(2.0, fin(false)), (2.1, fin(true)), (2.2, data(true)), (2.3, fin(true))], false),
        // A last packet has data, too.
        (vec![(2.0, tcp(false, FIN, 5)), (2.1, tcp(true, FIN, 5))], false),
    ] {
        let is_answer = |data: &str| data.contains("0200000201000001");
        let port = |data: &str| if is_answer(data) { "[1] rw" } else { "rw" };
        let sources: String = packets.iter().map(|(time, data)| at(*time, data, port(data))).collect();
        let ended = run(&format!(
            "rw :: IPRewriter(keep 0 1, drop, TCP_DONE_TIMEOUT 10, REAP_INTERVAL 0, GUARANTEE 1);
             rw [0] -> Discard; rw [1] -> Discard;\n{}{}{sources}{}",
            at(1.0, &data(false), "rw"),
            at(1.1, &data(true), "[1] rw"),
            at(50.0, &data(true), "[1] rw"),
        ));
        ended.adds_up();
        let dropped = ended.account("rw").dropped.get("no mapping").copied();
        assert_eq!(dropped, (!is_known).then_some(1), "{packets:?}");
    }
}

#[test]
fn a_flow_lasts_as_long_as_it_is_guaranteed() {
    let count = |guarantee: u32, second: f64| {
        let ended = run(&format!(
            "rw :: IPRewriter(keep 0 1, drop, UDP_TIMEOUT 1, UDP_GUARANTEE {guarantee});
             rw [0] -> Discard; rw [1] -> back :: Discard;\n{}{}",
            at(1.0, &udp("1.0.0.1", "2.0.0.2", (1, 53)), "rw"),
            at(second, &udp("2.0.0.2", "1.0.0.1", (53, 1)), "[1] rw"),
        ));
        ended.adds_up();
        ended.read("back.count")
    };
    assert_eq!((count(0, 1.5), count(0, 3.0)), ("1".into(), "0".into()));
    assert_eq!((count(5, 3.0), count(5, 5.9), count(5, 6.1)), ("1".into(), "1".into(), "0".into()));
}

#[test]
fn tcp_rewriter_maps_tcp_alone() {
    for (spec, passed, dropped) in [("pattern 9.0.0.9 5000-6000# - - 0 0", 1, Some(1)), ("pass 0", 2, None)] {
        let ended = run(&format!(
            "rw :: TCPRewriter({spec}, REAP_INTERVAL 0) -> d :: Discard;\n{}{}",
            at(1.0, &udp("1.0.0.1", "2.0.0.2", (1, 53)), "rw"),
            at(2.0, &tcp(false, ACK, 5), "rw"),
        ));
        ended.adds_up();
        assert_eq!(ended.read("d.count"), passed.to_string(), "{spec}");
        assert_eq!(ended.account("rw").dropped.get("not a flow").copied(), dropped, "{spec}");
        assert_eq!(ended.read("rw.udp_table"), "", "{spec}");
        let found = ended.router.read(None, "rw.lookup", "1.0.0.1 1 2.0.0.2 80").unwrap();
        assert_eq!(found, if passed == 1 { "9.0.0.9 5000 2.0.0.2 80" } else { "" });
    }
    let others = run(
        "Idle -> rw :: IPRewriter(keep 0 0) -> Discard; Idle -> a :: IPAddrRewriter(keep 0 0) -> Discard",
    );
    let handlers = others.read("rw.handlers");
    assert!(!handlers.contains("\nlookup\t") && handlers.contains("tcp_lookup\tr"), "{handlers}");
    assert!(others.router.read(None, "rw.lookup", "1.0.0.1 1 2.0.0.2 80").is_err());
    let handlers = others.read("a.handlers");
    assert!(!handlers.contains("lookup") && handlers.contains("patterns\tr"), "{handlers}");
}

#[test]
fn patterns_of_addresses_have_no_destination() {
    for spec in ["1.0.0.1 2.0.0.2 0 0", "1.0.0.0 1-9 2.0.0.2 - 0 0", "named 0 0"] {
        let text = format!(
            "IPRewriterPatterns(named 1.0.0.1 2.0.0.2); Idle -> IPAddrRewriter(pattern {spec}) -> Discard"
        );
        let error = refused(&text);
        assert!(error.contains("input spec 0: pattern destination address must be '-'"), "{spec}: {error}");
    }
    let run = start("Idle -> rw :: IPAddrRewriter(pattern 1.0.0.1 - 0 0) -> Discard");
    let error = run.router.write(None, "rw.pattern0", "pattern 1.0.0.1 2.0.0.2 0 0").unwrap_err();
    assert!(error.contains("must be '-'"), "{error}");
    assert_eq!(run.read("rw.patterns"), "1.0.0.1 -\n");
}

#[test]
fn a_pattern_without_a_choice_ends_the_flow_before() {
    for pattern in ["9.0.0.9 5000 - -", "9.0.0.9 5000-5000# - -", "9.0.0.9 - - -"] {
        let ended = run(&format!(
            "rw :: IPRewriter(pattern {pattern} 0 1, drop, REAP_INTERVAL 0); rw [0] -> out :: Discard;
             rw [1] -> IPClassifier(dst host 1.0.0.3) -> back :: Discard;\n{}{}{}",
            at(1.0, &udp("1.0.0.1", "2.0.0.2", (5000, 53)), "rw"),
            at(7.0, &udp("1.0.0.3", "2.0.0.2", (5000, 53)), "rw"),
            at(8.0, &udp("2.0.0.2", "9.0.0.9", (53, 5000)), "[1] rw"),
        ));
        ended.adds_up();
        assert_eq!(
            (ended.read("out.count"), ended.read("back.count")),
            ("2".into(), "1".into()),
            "{pattern}"
        );
        assert_eq!(
            (ended.read("rw.size"), ended.read("rw.nmappings")),
            ("1".into(), "2".into()),
            "{pattern}"
        );
        assert_eq!(ended.read("rw.mapping_failures"), "0", "{pattern}");
        assert!(ended.account("rw").dropped.is_empty(), "{pattern}");
    }
    // The same holds for addresses.
    for address in ["9.0.0.9", "9.0.0.9/32", "9.0.0.9-9.0.0.9"] {
        let ended = run(&format!(
            "rw :: IPAddrRewriter(pattern {address} - 0 0, REAP_INTERVAL 0) -> d :: Discard;\n{}{}",
            at(1.0, &udp("1.0.0.1", "2.0.0.2", (1, 53)), "rw"),
            at(7.0, &udp("1.0.0.3", "2.0.0.2", (1, 53)), "rw"),
        ));
        assert_eq!((ended.read("d.count"), ended.read("rw.size")), ("2".into(), "1".into()), "{address}");
    }
}

/// Returns an ICMP echo packet of identifier 7 and number 1.
fn echo(kind: u8, src: &str, dst: &str) -> String {
    packet(1, src, dst, (u16::from(kind) << 8, 0), 0, 0, 0).replace("00080000>", "00070001>")
}

/// A flow that would be the reverse of another's packets or replies must not take them over.
#[test]
fn a_new_flow_ends_no_mapping_that_is_in_use() {
    let (a, b, own) = ("10.0.0.1", "8.0.0.8", "9.0.0.9");
    // A rewriter, the first packet, a forged one at input 1, and a reply; whether it is forged in vain.
    let cases = [
        // Of a port that the rewriter has given away.
        (
            "IPRewriter(pattern 9.0.0.9 1024-65535# - - 0 1, keep 2 3",
            [udp(a, b, (5, 53)), udp(own, b, (1024, 53)), udp(b, own, (53, 1024))],
        ),
        (
            "IPAddrRewriter(pattern 9.0.0.9 - 0 1, keep 2 3",
            [udp(a, b, (5, 53)), udp(own, a, (6, 7)), udp(b, own, (53, 5))],
        ),
        // Of what becomes the reverse of another's own packets.
        (
            "IPRewriter(pattern 9.0.0.9 1024-65535# - - 0 1, pattern - - 10.0.0.1 53 2 3",
            [udp(a, b, (53, 53)), udp(b, own, (53, 53)), udp(b, own, (53, 1024))],
        ),
        (
            "ICMPPingRewriter(pattern 9.0.0.9 - 1-65535 0 1, keep 2 3",
            [echo(8, a, b), echo(8, own, b), echo(0, b, own)],
        ),
    ];
    for (rewriter, [first, forged, reply]) in cases {
        // Long after the guarantee, too.
        for time in [2.0, 100.0] {
            let ended = run(&format!(
                "rw :: {rewriter}, REAP_INTERVAL 0);
                 rw [0] -> Discard; rw [1] -> back :: Discard;
                 rw [2] -> other :: Discard; rw [3] -> Discard;\n{}{}{}",
                at(1.0, &first, "rw"),
                at(time, &forged, "[1] rw"),
                at(time + 1.0, &reply, "[1] rw"),
            ));
            ended.adds_up();
            assert_eq!(
                (ended.read("back.count"), ended.read("other.count")),
                ("1".into(), "0".into()),
                "{rewriter}"
            );
            assert_eq!(ended.account("rw").dropped.get("no free mapping"), Some(&1), "{rewriter}");
            assert_eq!((ended.read("rw.mapping_failures"), ended.read("rw.size")), ("1".into(), "1".into()));
        }
    }
}

#[test]
fn a_pattern_without_choice_ends_a_flow_that_is_not_guaranteed() {
    for (rewriter, time, wanted) in [
        ("IPRewriter(pattern 9.0.0.9 7 - - 0 1", 5.9, "10.0.0.1"),
        ("IPRewriter(pattern 9.0.0.9 7 - - 0 1", 6.1, "10.0.0.2"),
        ("IPRewriter(pattern 9.0.0.9 - - - 0 1", 5.9, "10.0.0.1"),
        ("IPRewriter(pattern 9.0.0.9 - - - 0 1", 6.1, "10.0.0.2"),
        ("IPAddrRewriter(pattern 9.0.0.9 - 0 1", 5.9, "10.0.0.1"),
        ("IPAddrRewriter(pattern 9.0.0.9 - 0 1", 6.1, "10.0.0.2"),
        ("IPRewriter(pattern 9.0.0.9 7 - - 0 1, UDP_GUARANTEE 0", 1.1, "10.0.0.2"),
        ("IPRewriter(pattern 9.0.0.9 7 - - 0 1, UDP_GUARANTEE 9", 9.9, "10.0.0.1"),
    ] {
        let ended = run(&format!(
            "rw :: {rewriter}, drop, REAP_INTERVAL 0); rw [0] -> Discard;
             rw [1] -> IPPrint(x, TIMESTAMP false) -> Discard;\n{}{}{}",
            at(1.0, &udp("10.0.0.1", "8.0.0.8", (7, 53)), "rw"),
            at(time, &udp("10.0.0.2", "8.0.0.8", (7, 53)), "rw"),
            at(12.0, &udp("8.0.0.8", "9.0.0.9", (53, 7)), "[1] rw"),
        ));
        ended.adds_up();
        assert_eq!(ended.text(), format!("x: 8.0.0.8.53 > {wanted}.7: udp 8\n"), "{rewriter} {time}");
    }
}

#[test]
fn a_request_is_no_reply_to_one() {
    let (out, back) = (echo(8, "10.0.0.1", "8.0.0.8"), echo(0, "8.0.0.8", "9.0.0.9"));
    let other = echo(8, "8.0.0.8", "9.0.0.9");
    for (spec, no_mapping, counts) in [("drop", 1, ["1", "0", "0"]), ("keep 2 3", 0, ["1", "1", "1"])] {
        let ended = run(&format!(
            "p :: ICMPPingRewriter(pattern 9.0.0.9 - 0-65535 0 1, {spec}, REAP_INTERVAL 0); p [0] -> Discard;
             p [1] -> c1 :: Counter -> IPPrint(x, TIMESTAMP false) -> Discard;
             p [2] -> c2 :: Counter -> Discard; p [3] -> c3 :: Counter -> Discard;\n{}{}{}{}",
            at(1.0, &out, "p"),
            at(2.0, &other, "[1] p"),
            at(3.0, &back, "[1] p"),
            at(4.0, &echo(0, "9.0.0.9", "8.0.0.8"), "p"),
        ));
        ended.adds_up();
        assert_eq!(["c1.count", "c2.count", "c3.count"].map(|c| ended.read(c)), counts.map(str::to_owned));
        assert_eq!(ended.text(), "x: 8.0.0.8 > 10.0.0.1: icmp echo-reply (7, 1)\n", "{spec}");
        let dropped = ended.account("p").dropped;
        assert_eq!(dropped.get("no mapping").copied().unwrap_or(0), no_mapping + no_mapping, "{dropped:?}");
    }
}

/// Errors about packets whose ports are unknown are about no flow of ports 0.
#[test]
fn a_quote_without_ports_belongs_to_no_flow_with_ports() {
    let count = |rewriter: &str, first: &str, quoted: &str| {
        let total = 28 + quoted.len() / 2;
        let error = format!("\\<4500{total:04x}0000000040010000 0700000709000009 0b00000000000000{quoted}>");
        let ended = run(&format!(
            "rw :: {rewriter} 0 1, drop, REAP_INTERVAL 0); rw [0] -> Discard; rw [1] -> Discard;
             Idle -> [1] rw; e :: ICMPRewriter(rw) -> Strip(20) -> Print(x, 80) -> Discard;
             e [1] -> Discard;\n{}{}",
            at(1.0, first, "rw"),
            at(2.0, &error.replace(' ', ""), "e"),
        ));
        ended.adds_up();
        (ended.read("e.count"), ended.text().replace(' ', ""))
    };
    let ip =
        |protocol: u8, length: u8| format!("450000{length:02x}0000000040{protocol:02x}00000900000908000008");
    let ping = "ICMPPingRewriter(pattern 9.0.0.9 - 0-65535#";
    let out = echo(8, "10.0.0.1", "8.0.0.8");
    // An echo, a timestamp, and an echo of which too little is quoted.
    let quote = |rest: &str| ip(1, 40) + rest;
    assert_eq!(count(ping, &out, &quote("0800000000000001")).0, "1");
    assert_eq!(count(ping, &out, &quote("0d00000000000001")).0, "0");
    assert_eq!(count(ping, &out, &quote("080000000000")).0, "0");
    let ports = "IPRewriter(pattern 9.0.0.9 0-9# - -";
    let out = udp("10.0.0.1", "8.0.0.8", (5, 0));
    assert_eq!(count(ports, &out, &(ip(17, 28) + "0000000000080000")).0, "1");
    assert_eq!(count(ports, &out, &(ip(17, 28) + "000000000008")).0, "0");
    // Addresses are known of all of them, and an identifier stays that is not of an echo.
    let (seen, text) = count("IPAddrRewriter(pattern 9.0.0.9 -", &out, &quote("0d00000012340001"));
    assert!(seen == "1" && text.contains("12340001"), "{seen} {text}");
}

#[test]
fn the_address_0_0_0_0_is_an_address() {
    let ended = run(&format!(
        "rw :: IPAddrRewriter(pattern 9.0.0.9 - 0 1, drop, REAP_INTERVAL 0); rw [0] -> Discard;
         rw [1] -> IPPrint(x, TIMESTAMP false) -> Discard;\n{}{}{}",
        at(1.0, &udp("0.0.0.0", "255.255.255.255", (68, 67)), "rw"),
        at(2.0, &udp("7.0.0.7", "0.0.0.0", (68, 67)), "[1] rw"),
        at(3.0, &udp("8.0.0.8", "9.0.0.9", (67, 68)), "[1] rw"),
    ));
    ended.adds_up();
    assert_eq!(ended.text(), "x: 8.0.0.8.67 > 0.0.0.0.68: udp 8\n");
    assert_eq!(ended.account("rw").dropped.get("no mapping"), Some(&1));
    assert_eq!(
        ended.read("rw.table"),
        "(0.0.0.0, 0, 0.0.0.0, 0) => (9.0.0.9, 0, 0.0.0.0, 0) [*0 1] i0 exp300\n\
         (0.0.0.0, 0, 9.0.0.9, 0) => (0.0.0.0, 0, 0.0.0.0, 0) [0 *1] i0 exp300\n"
    );
}

#[test]
fn padding_of_a_link_is_part_of_no_flow() {
    let padded = |data: &str| data.replace("4500001c", "45000018");
    let udp = packet(17, "10.0.0.1", "8.0.0.8", (5, 6), 0, 0, 0);
    for (rewriter, packet) in [("IPRewriter", udp), ("ICMPPingRewriter", echo(8, "10.0.0.1", "8.0.0.8"))] {
        for (packet, wanted) in [(packet.clone(), "1"), (padded(&packet), "0")] {
            let ended = run(&format!(
                "rw :: {rewriter}(keep 0 0, REAP_INTERVAL 0) -> Discard;\n{}",
                at(1.0, &packet, "rw"),
            ));
            ended.adds_up();
            assert_eq!(ended.read("rw.size"), wanted, "{rewriter} {packet}");
        }
    }
}

/// A smaller table keeps those that came last of flows that end at the same time, in their order.
#[test]
fn flows_that_a_smaller_table_keeps_are_the_same_each_time() {
    let sources: String = (1..=40).map(|i| at(1.0, &udp("1.0.0.1", "2.0.0.2", (i, 9)), "rw")).collect();
    let kept = |table: &str| -> Vec<u16> {
        let lines = table.lines().filter_map(|l| l.strip_prefix("(1.0.0.1, ")?.split(',').next());
        let mut ports: Vec<u16> = lines.map(|port| port.parse().unwrap()).collect();
        ports.sort_unstable();
        ports
    };
    let ended = run(&format!("rw :: IPRewriter(keep 0 0, REAP_INTERVAL 0) -> Discard;\n{sources}"));
    let all = kept(&ended.read("rw.table"));
    assert_eq!(all.len(), 40);
    let write = |handler: &str, value: &str| ended.router.write(None, handler, value).unwrap();
    write("rw.config", "keep 0 0, REAP_INTERVAL 0, MAPPING_CAPACITY 20");
    assert_eq!(kept(&ended.read("rw.table")), all[20..]);
    write("rw.capacity", "5");
    assert_eq!(kept(&ended.read("rw.table")), all[35..]);
}

#[test]
fn named_patterns_are_read_once() {
    // Rewriters with one spec each, and one with all of them.
    let elapsed = |count: usize, is_one: bool, uses_names: bool| {
        let names: Vec<_> = (0..count).map(|n| format!("p{n} 1.0.0.1 {} - -", 1024 + n)).collect();
        let spec = |n| match uses_names {
            true => format!("pattern p{n} 0 0"),
            false => format!("pattern 1.0.0.1 {} - - 0 0", 1024 + n),
        };
        let all: Vec<_> = (0..count).map(spec).collect();
        let rewriters: String = match is_one {
            true => {
                let inputs: String = (0..count).map(|n| format!("Idle -> [{n}] rw;")).collect();
                format!("rw :: IPRewriter({}) -> Discard; {inputs}", all.join(", "))
            }
            false => all.iter().map(|spec| format!("Idle -> IPRewriter({spec}) -> Discard;")).collect(),
        };
        let text = format!("IPRewriterPatterns({}); {rewriters}", names.join(", "));
        let since = std::time::Instant::now();
        drop(start(&text));
        since.elapsed()
    };
    for is_one in [true, false] {
        let (without, with) = (elapsed(2000, is_one, false), elapsed(2000, is_one, true));
        assert!(with < 5 * without, "{with:?} with names, {without:?} without");
    }
}
