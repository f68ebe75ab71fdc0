//! Rewriters: specs, and how flows end.

use crate::running::{refused, run, start};

/// Returns a packet of IP as hexadecimal digits: protocol, source, destination, ports, flags, fragment,
/// payload.
pub fn packet(
    protocol: u8,
    src: &str,
    dst: &str,
    ports: (u16, u16),
    flags: u8,
    offset: u8,
    payload: usize,
) -> String {
    let ip = |t: &str| t.split('.').map(|p| format!("{:02x}", p.parse::<u8>().unwrap())).collect::<String>();
    let header = if protocol == 6 { 20 } else { 8 };
    let total = 20 + header + payload;
    let mut text = format!("\\<4500{total:04x}000000{offset:02x}40{protocol:02x}0000{}{}", ip(src), ip(dst));
    text.push_str(&format!("{:04x}{:04x}", ports.0, ports.1));
    match protocol {
        6 => text.push_str(&format!("000000000000000050{flags:02x}000000000000")),
        _ => text.push_str("00080000"),
    }
    text.push_str(&"00".repeat(payload));
    text + ">"
}

pub fn udp(src: &str, dst: &str, ports: (u16, u16)) -> String {
    packet(17, src, dst, ports, 0, 0, 4)
}

/// Returns a source of one packet, at `time` in seconds.
pub fn at(time: f64, data: &str, to: &str) -> String {
    format!("TimedSource({time}, {data}, LIMIT 1) -> MarkIPHeader(0) -> {to};\n")
}

#[test]
fn pass_lets_other_packets_by_without_a_mapping() {
    for spec in ["pass 1", "nochange 1"] {
        let text = format!(
            "rw :: IPRewriter({spec}, drop); rw [0] -> Discard; rw [1] -> d :: Discard; Idle -> [1] rw;\n{}{}{}{}",
            at(0.1, &packet(1, "1.0.0.1", "2.0.0.2", (0, 0), 0, 0, 4), "rw"),
            at(0.2, &packet(6, "1.0.0.1", "2.0.0.2", (1, 2), 0, 1, 4), "rw"),
            at(0.3, &udp("1.0.0.1", "2.0.0.2", (1, 2)), "rw"),
            at(0.4, &udp("2.0.0.2", "1.0.0.1", (2, 1)), "[1] rw").replace("Idle -> [1] rw;", "")
        );
        let ended = run(&text);
        assert_eq!(ended.read("d.count"), "3", "{spec}");
        assert_eq!(ended.read("rw.nmappings"), "0", "{spec}");
        assert_eq!(ended.account("rw").dropped.get("no mapping"), Some(&1), "{spec}");
    }
    let text = format!(
        "rw :: IPRewriter(keep 0 0, REAP_INTERVAL 0) -> d :: Discard;\n{}{}",
        at(0.1, &packet(1, "1.0.0.1", "2.0.0.2", (0, 0), 0, 0, 4), "rw"),
        at(0.2, &udp("1.0.0.1", "2.0.0.2", (1, 2)), "rw"),
    );
    let ended = run(&text);
    assert_eq!((ended.read("d.count"), ended.read("rw.nmappings")), ("1".into(), "2".into()));
    assert_eq!(ended.account("rw").dropped.get("not a flow"), Some(&1));
}

#[test]
fn addresses_are_kept_both_ways() {
    let text = format!(
        "rw :: IPAddrRewriter(keep 0 1, drop, REAP_INTERVAL 0); rw [0] -> out :: Discard; rw [1] -> back :: Discard;\n{}{}{}",
        at(0.1, &udp("1.0.0.1", "2.0.0.2", (1, 2)), "rw"),
        at(0.2, &udp("9.0.0.9", "1.0.0.1", (5, 6)), "[1] rw"),
        at(0.3, &udp("1.0.0.1", "3.0.0.3", (1, 2)), "rw"),
    );
    let ended = run(&text);
    assert_eq!((ended.read("out.count"), ended.read("back.count")), ("2".into(), "1".into()));
    assert_eq!(
        ended.read("rw.table"),
        "(0.0.0.0, 0, 1.0.0.1, 0) => (0.0.0.0, 0, 1.0.0.1, 0) [0 *1] i0 exp300\n\
         (1.0.0.1, 0, 0.0.0.0, 0) => (1.0.0.1, 0, 0.0.0.0, 0) [*0 1] i0 exp300\n"
    );
}

#[test]
fn all_addresses_are_a_range() {
    let text = format!(
        "rw :: IPAddrRewriter(pattern 0.0.0.0-255.255.255.255 - 0 0) -> d :: Discard;\n{}",
        at(0.1, &udp("1.0.0.1", "2.0.0.2", (1, 2)), "rw")
    );
    assert_eq!(run(&text).read("d.count"), "1");
}

#[test]
fn each_kind_of_flow_has_its_timeout() {
    let keys = "TCP_TIMEOUT 100, TCP_NODATA_TIMEOUT 20, TCP_DONE_TIMEOUT 2, UDP_TIMEOUT 10,
        UDP_STREAMING_TIMEOUT 50, GUARANTEE 1, REAP_INTERVAL 0";
    let tcp = |from: bool, flags, payload| match from {
        true => packet(6, "1.0.0.1", "2.0.0.2", (1, 80), flags, 0, payload),
        false => packet(6, "2.0.0.2", "1.0.0.1", (80, 1), flags, 0, payload),
    };
    let (out, back) = (udp("1.0.0.1", "2.0.0.2", (1, 53)), udp("2.0.0.2", "1.0.0.1", (53, 1)));
    // Packets from inside at input 0; replies at input 1 pass only if their flow is known.
    for (packets, wanted) in [
        (vec![(1.0, 0, &out), (10.5, 1, &back)], 1),
        (vec![(1.0, 0, &out), (11.5, 1, &back)], 0),
        (vec![(1.0, 0, &out), (1.5, 0, &out), (2.0, 1, &back), (51.0, 1, &back)], 2),
        (vec![(1.0, 0, &out), (1.5, 0, &out), (2.0, 1, &back), (53.0, 1, &back)], 1),
        // It takes three packets, not all in one direction.
        (vec![(1.0, 0, &out), (2.0, 1, &back), (12.5, 1, &back)], 1),
        (vec![(1.0, 0, &out), (1.1, 0, &out), (1.2, 0, &out), (11.5, 1, &back)], 0),
        (vec![(1.0, 0, &tcp(true, 2, 0)), (20.5, 1, &tcp(false, 18, 0))], 1),
        (vec![(1.0, 0, &tcp(true, 2, 0)), (21.5, 1, &tcp(false, 18, 0))], 0),
        (vec![(1.0, 0, &tcp(true, 16, 9)), (2.0, 1, &tcp(false, 16, 9)), (101.0, 1, &tcp(false, 16, 9))], 2),
        (vec![(1.0, 0, &tcp(true, 16, 9)), (2.0, 1, &tcp(false, 16, 9)), (103.0, 1, &tcp(false, 16, 9))], 1),
        (vec![(1.0, 0, &tcp(true, 17, 0)), (2.0, 1, &tcp(false, 17, 0)), (3.5, 1, &tcp(false, 16, 0))], 2),
        (vec![(1.0, 0, &tcp(true, 17, 0)), (2.0, 1, &tcp(false, 17, 0)), (4.5, 1, &tcp(false, 16, 0))], 1),
        (vec![(1.0, 0, &tcp(true, 2, 0)), (2.0, 1, &tcp(false, 4, 0)), (4.5, 1, &tcp(false, 16, 0))], 1),
    ] {
        let sources: String =
            packets.iter().map(|(t, port, data)| at(*t, data, &format!("[{port}] rw"))).collect();
        let text = format!(
            "rw :: IPRewriter(keep 0 1, drop, {keys}); rw [0] -> Discard; rw [1] -> back :: Discard;\n{sources}"
        );
        let ended = run(&text);
        assert_eq!(ended.read("back.count"), wanted.to_string(), "{packets:?}");
        ended.adds_up();
    }
    // A day for TCP is the default, and five minutes for UDP.
    let text = format!(
        "rw :: IPRewriter(keep 0 1, drop); rw [0] -> Discard; rw [1] -> back :: Discard;\n{}{}{}{}{}",
        at(1.0, &tcp(true, 16, 9), "rw"),
        at(2.0, &tcp(false, 16, 9), "[1] rw"),
        at(80_000.0, &tcp(false, 16, 9), "[1] rw"),
        at(1.0, &out, "rw"),
        at(400.0, &back, "[1] rw"),
    );
    assert_eq!(run(&text).read("back.count"), "2");
}

#[test]
fn a_full_table_ends_the_flow_that_would_end_first() {
    let table = |guarantee: &str, times: [f64; 3]| {
        let sources: String =
            (0..3).map(|i| at(times[i], &udp("1.0.0.1", "2.0.0.2", (i as u16 + 1, 9)), "rw")).collect();
        let text = format!(
            "rw :: IPRewriter(keep 0 0, MAPPING_CAPACITY 2, REAP_INTERVAL 0{guarantee}) -> d :: Discard;\n{sources}"
        );
        let ended = run(&text);
        ended.adds_up();
        let ports: String = (1..4)
            .filter(|p| ended.read("rw.table").contains(&format!("(1.0.0.1, {p}, 2.0.0.2, 9) =>")))
            .map(|p| p.to_string())
            .collect();
        (ports, ended.read("rw.mapping_failures"), ended.read("d.count"))
    };
    let wanted = |ports: &str, failures: &str, count: &str| (ports.into(), failures.into(), count.into());
    assert_eq!(table("", [1.0, 2.0, 7.0]), wanted("23", "0", "3"));
    assert_eq!(table("", [1.0, 2.0, 5.0]), wanted("12", "1", "2"));
    assert_eq!(table(", UDP_GUARANTEE 0", [1.0, 2.0, 2.5]), wanted("23", "0", "3"));
    assert_eq!(table(", GUARANTEE 100", [1.0, 2.0, 50.0]), wanted("12", "1", "2"));
}

/// Returns an empty TCP packet of a connection, or an answer.
fn tcp(is_answer: bool) -> String {
    match is_answer {
        false => packet(6, "1.0.0.1", "2.0.0.2", (1, 80), 16, 0, 0),
        true => packet(6, "2.0.0.2", "1.0.0.1", (80, 1), 16, 0, 0),
    }
}

#[test]
fn udp_rewriter_knows_streams_of_any_packets() {
    for (key, wanted) in
        [("STREAMING_TIMEOUT 50", "2"), ("UDP_STREAMING_TIMEOUT 50", "2"), ("GUARANTEE 9", "1")]
    {
        let ended = run(&format!(
            "rw :: UDPRewriter(keep 0 1, drop, TIMEOUT 10, {key}, REAP_INTERVAL 0);
             rw [0] -> Discard; rw [1] -> back :: Discard;\n{}{}{}{}",
            at(1.0, &tcp(false), "rw"),
            at(1.5, &tcp(false), "rw"),
            at(2.0, &tcp(true), "[1] rw"),
            at(51.0, &tcp(true), "[1] rw"),
        ));
        assert_eq!(ended.read("back.count"), wanted, "{key}");
    }
}

#[test]
fn without_a_guarantee_a_new_flow_does_not_end_one_that_lasts_longer() {
    let data = |is_answer: bool| match is_answer {
        false => packet(6, "1.0.0.1", "2.0.0.2", (1, 80), 16, 0, 5),
        true => packet(6, "2.0.0.2", "1.0.0.1", (80, 1), 16, 0, 5),
    };
    let other = packet(6, "1.0.0.3", "2.0.0.2", (1, 80), 2, 0, 0);
    for (guarantee, wanted) in [(0, ("1", "1")), (1, ("2", "0"))] {
        let ended = run(&format!(
            "rw :: IPRewriter(keep 0 1, drop, MAPPING_CAPACITY 1, GUARANTEE {guarantee}, REAP_INTERVAL 0);
             rw [0] -> out :: Discard; rw [1] -> Discard;\n{}{}{}",
            at(1.0, &data(false), "rw"),
            at(2.0, &data(true), "[1] rw"),
            at(10.0, &other, "rw"),
        ));
        ended.adds_up();
        let (out, failures) = (ended.read("out.count"), ended.read("rw.mapping_failures"));
        assert_eq!((out.as_str(), failures.as_str()), wanted, "GUARANTEE {guarantee}");
    }
}

#[test]
fn a_flow_that_is_its_own_reverse_continues_as_a_reply() {
    let own = udp("1.0.0.1", "1.0.0.1", (5, 5));
    let ended = run(&format!(
        "rw :: IPRewriter(pattern - 5-9# - - 0 1, drop, REAP_INTERVAL 0);
         rw [0] -> out :: Discard; rw [1] -> back :: Discard; Idle -> [1] rw;\n{}{}{}",
        at(1.0, &own, "rw"),
        at(2.0, &own, "rw"),
        at(3.0, &own, "rw"),
    ));
    assert_eq!((ended.read("out.count"), ended.read("back.count")), ("1".into(), "2".into()));
    assert_eq!((ended.read("rw.nmappings"), ended.read("rw.size")), ("1".into(), "1".into()));
    assert!(ended.read("rw.table").contains(" [0 *1] i0 exp"), "{}", ended.read("rw.table"));
    ended.router.write(None, "rw.clear", "").unwrap();
    assert_eq!((ended.read("rw.nmappings"), ended.read("rw.size")), ("0".into(), "0".into()));
}

#[test]
fn a_capacity_that_is_written_ends_the_flows_that_would_end_first() {
    let sources: String =
        (0..4).map(|i| at(f64::from(i) + 1.0, &udp("1.0.0.1", "2.0.0.2", (i as u16, 9)), "rw")).collect();
    let ended =
        run(&format!("rw :: IPRewriter(keep 0 0, REAP_INTERVAL 0, GUARANTEE 2) -> Discard;\n{sources}"));
    assert_eq!((ended.read("rw.capacity"), ended.read("rw.size")), ("131072".into(), "4".into()));
    // At 4 s, the first two have no guarantee any more.
    for (capacity, ports) in [("3", "123"), ("1", "3")] {
        ended.router.write(None, "rw.capacity", capacity).unwrap();
        let table = ended.read("rw.table");
        let found: String = (0..4)
            .filter(|p| table.contains(&format!("(1.0.0.1, {p}, 2.0.0.2, 9) =>")))
            .map(|p| p.to_string())
            .collect();
        assert_eq!((found.as_str(), ended.read("rw.capacity")), (ports, capacity.to_owned()));
        assert_eq!(ended.read("rw.size"), capacity);
    }
    for wrong in ["0", "-1", "x", ""] {
        assert!(ended.router.write(None, "rw.capacity", wrong).is_err(), "{wrong}");
    }
    assert_eq!(ended.read("rw.capacity"), "1");
}

#[test]
fn rewriters_share_a_capacity() {
    let ended = run(&format!(
        "a :: IPRewriter(keep 0 0, MAPPING_CAPACITY b, REAP_INTERVAL 0) -> out :: Discard;
         b :: UDPRewriter(keep 0 0, MAPPING_CAPACITY 2, REAP_INTERVAL 0) -> Discard;\n{}{}{}{}",
        at(1.0, &udp("1.0.0.1", "2.0.0.2", (1, 9)), "a"),
        at(2.0, &udp("1.0.0.1", "2.0.0.2", (2, 9)), "b"),
        at(3.0, &udp("1.0.0.1", "2.0.0.2", (3, 9)), "a"),
        at(6.5, &udp("1.0.0.1", "2.0.0.2", (4, 9)), "b"),
    ));
    ended.adds_up();
    // All are guaranteed at 3 s. At 6.5 s, the first is not any more.
    for (handler, wanted) in [
        ("out.count", "1"),
        ("a.mapping_failures", "1"),
        ("b.mapping_failures", "0"),
        ("a.nmappings", "0"),
        ("b.nmappings", "4"),
        ("a.size", "2"),
        ("b.size", "2"),
        ("a.capacity", "2"),
    ] {
        assert_eq!(ended.read(handler), wanted, "{handler}");
    }
    ended.router.write(None, "a.capacity", "1").unwrap();
    assert_eq!((ended.read("b.capacity"), ended.read("b.size")), ("1".into(), "1".into()));
    // It still has its sharers after it was reconfigured.
    ended.router.write(None, "b.config", "keep 0 0, MAPPING_CAPACITY 7").unwrap();
    assert_eq!((ended.read("a.capacity"), ended.read("a.size")), ("7".into(), "1".into()));
    for (name, wanted) in [("c", "found 'c'"), ("a", "found 'a'"), ("i", "found 'i'"), ("s", "shares that")] {
        let text = format!(
            "i :: Idle -> a :: IPRewriter(keep 0 0, MAPPING_CAPACITY {name}) -> Discard;
             Idle -> b :: IPRewriter(keep 0 0) -> Discard;
             Idle -> s :: IPRewriter(keep 0 0, MAPPING_CAPACITY b) -> Discard;"
        );
        assert!(refused(&text).contains(wanted), "{name}: {}", refused(&text));
    }
}

#[test]
fn a_range_prefers_the_port_of_the_packet() {
    let ports = |range: &str, sport: u16| {
        let ended = run(&format!(
            "rw :: IPRewriter(pattern 9.0.0.9 {range} - - 0 1, drop, REAP_INTERVAL 0);
             rw [0] -> Discard; rw [1] -> Discard; Idle -> [1] rw;\n{}{}",
            at(1.0, &udp("1.0.0.1", "2.0.0.2", (sport, 53)), "rw"),
            at(2.0, &udp("1.0.0.3", "2.0.0.2", (sport, 53)), "rw"),
        ));
        let table = ended.read("rw.table");
        let port = |host: &str| -> u16 {
            let line = table.lines().find(|l| l.starts_with(&format!("({host}, "))).unwrap();
            line.split("=> (9.0.0.9, ").nth(1).unwrap().split(',').next().unwrap().parse().unwrap()
        };
        (port("1.0.0.1"), port("1.0.0.3"))
    };
    assert_eq!(ports("1024-65535#", 5000), (1024, 1025));
    let (first, second) = ports("1024-65535", 5000);
    assert!(first == 5000 && second >= 1024 && second != 5000, "{first} {second}");
    assert_eq!(ports("4999-5000", 5000), (5000, 4999));
    let (first, second) = ports("1024-65535?", 5000);
    assert!(first >= 1024 && second >= 1024 && first != 5000, "{first} {second}");
    let (first, second) = ports("1024-65535", 80);
    assert!(first >= 1024 && second >= 1024 && first != second, "{first} {second}");
    assert_eq!(ports("0-1#", 5000), (0, 1));
}

#[test]
fn patterns_of_addresses_are_ranges_or_prefixes() {
    let patterns = |specs: &[&str]| {
        let inputs: String = (0..specs.len()).map(|i| format!("i [{i}] -> [{i}] rw;")).collect();
        let text = format!("i :: Idle; rw :: IPAddrRewriter({}) -> Discard; {inputs}", specs.join(", "));
        start(&text).read("rw.patterns")
    };
    assert_eq!(
        patterns(&[
            "pattern 1.2.3.4/24 - 0 0",
            "pattern 1.2.3.4/31# - 0 0",
            "pattern 1.2.3.4/32 - 0 0",
            "pattern 1.2.3.4-9? - 0 0",
            "keep 0 0",
            "pattern 1.2.3.4/255.0.0.0 - 0 0",
        ]),
        "1.2.3.1-1.2.3.254 -\n1.2.3.4-1.2.3.5 -\n1.2.3.4 -\n1.2.3.4-1.2.3.9 -\n<keep>\n\
         1.0.0.1-1.255.255.254 -\n"
    );
    for wrong in ["1.2.3.x/24", "1.2.3.4/33", "1.2.3.4/255.0.255.0", "1.2.3.4-1.2.3.3", "1.2.3.4-"] {
        let error = refused(&format!("Idle -> IPAddrRewriter(pattern {wrong} - 0 0) -> Discard"));
        assert!(error.contains("input spec 0: bad source address"), "{wrong}: {error}");
    }
    // The address of the packet is taken if it is one of them.
    let ended = run(&format!(
        "rw :: IPAddrRewriter(pattern 1.0.0.0/24 - 0 0, REAP_INTERVAL 0) -> Discard;\n{}",
        at(0.1, &udp("1.0.0.77", "2.0.0.2", (1, 2)), "rw")
    ));
    assert!(ended.read("rw.table").contains("=> (1.0.0.77, 0, "), "{}", ended.read("rw.table"));
}

#[test]
fn patterns_of_pings_have_identifiers() {
    let text = |pattern: &str| format!("Idle -> p :: ICMPPingRewriter(pattern {pattern} 0 0) -> Discard");
    for (pattern, wanted) in [
        ("1.0.0.1 - 0-65535#", "1.0.0.1 0-65535 - -\n"),
        ("- 2.0.0.2 7", "- 7 2.0.0.2 -\n"),
        ("1.0.0.1 - -", "1.0.0.1 - - -\n"),
        ("1.0.0.1 5-9 - -", "1.0.0.1 5-9 - -\n"),
    ] {
        assert_eq!(start(&text(pattern)).read("p.patterns"), wanted, "{pattern}");
    }
    for (pattern, wanted) in [
        ("1.0.0.1 - 0", "bad source port"),
        ("1.0.0.1 - 9-5", "bad source port"),
        ("1.0.0.1 - 0-65536", "bad source port"),
        ("x - 5", "bad source address"),
        ("1.0.0.1 x 5", "bad destination address"),
    ] {
        assert!(refused(&text(pattern)).contains(wanted), "{pattern}: {}", refused(&text(pattern)));
    }
}

#[test]
fn replies_have_the_annotation_of_the_first_packet() {
    let (out, back) = (udp("1.0.0.1", "2.0.0.2", (1, 53)), udp("2.0.0.2", "1.0.0.1", (53, 1)));
    let counts = |rewriter: &str, errors: &str| {
        let ended = run(&format!(
            "rw :: IPRewriter(keep 0 1, drop{rewriter});
             rw [0] -> p :: CheckPaint(7) -> Paint(0) -> ICMPError(9.0.0.9, timeexceeded)
               -> ICMPRewriter(rw{errors}) -> CheckPaint(7) -> errors :: Counter -> Discard; p [1] -> Discard;
             rw [1] -> CheckPaint(7) -> back :: Counter -> Discard;\n{}{}{}",
            at(0.1, &out, "Paint(7) -> rw"),
            at(0.2, &out, "Paint(3) -> rw"),
            at(0.3, &back, "Paint(5) -> [1] rw"),
        ));
        ended.adds_up();
        (ended.read("errors.count"), ended.read("back.count"))
    };
    let wanted = |errors: &str, back: &str| (errors.to_owned(), back.to_owned());
    assert_eq!(counts("", ""), wanted("0", "0"));
    assert_eq!(counts(", REPLY_ANNO PAINT", ""), wanted("0", "1"));
    assert_eq!(counts(", REPLY_ANNO 16", ", REPLY_ANNO PAINT"), wanted("1", "1"));
    assert_eq!(counts(", REPLY_ANNO 17", ", REPLY_ANNO 17"), wanted("0", "0"));
    assert!(refused("Idle -> IPRewriter(keep 0 0, REPLY_ANNO 48) -> Discard").contains("REPLY_ANNO"));
}

#[test]
fn handlers_show_and_change_patterns_and_look_flows_up() {
    let ended = run(&format!(
        "rw :: IPRewriter(pattern 9.0.0.9 1024-1030# - - 0 1, keep 1 0, REAP_INTERVAL 0);
         rw [0] -> Discard; rw [1] -> Discard;\n{}{}{}",
        at(0.1, &tcp(false), "rw"),
        at(0.2, &udp("1.0.0.1", "2.0.0.2", (1, 53)), "rw"),
        at(0.3, &udp("3.0.0.3", "2.0.0.2", (1, 53)), "[1] rw"),
    ));
    let look_up = |flow: &str| ended.router.read(None, "rw.tcp_lookup", flow);
    assert_eq!(look_up("1.0.0.1 1 2.0.0.2 80"), Ok("9.0.0.9 1024 2.0.0.2 80".into()));
    assert_eq!(look_up("2.0.0.2 80 9.0.0.9 1024"), Ok("2.0.0.2 80 1.0.0.1 1".into()));
    assert_eq!(look_up("1.0.0.1 1 2.0.0.2 53"), Ok(String::new()));
    assert!(look_up("1.0.0.1 1 2.0.0.2").is_err() && look_up("1.0.0.1 x 2.0.0.2 80").is_err());
    assert_eq!(
        ended.read("rw.tcp_table"),
        "(1.0.0.1, 1, 2.0.0.2, 80) => (9.0.0.9, 1024, 2.0.0.2, 80) [*0 1] i0 exp300\n\
         (2.0.0.2, 80, 9.0.0.9, 1024) => (2.0.0.2, 80, 1.0.0.1, 1) [0 *1] i0 exp300\n"
    );
    assert_eq!(ended.read("rw.udp_table").lines().count(), 4);
    assert_eq!(ended.read("rw.patterns"), "9.0.0.9 1024-1030 - - [2]\n<keep> [1]\n");
    assert_eq!(ended.read("rw.pattern1"), "<keep> [1]\n");

    let write = |input: usize, spec: &str| ended.router.write(None, &format!("rw.pattern{input}"), spec);
    for wrong in ["pattern 8.0.0.8 - - - 0 2", "pattern x - - - 0 1", "else", ""] {
        assert!(write(0, wrong).unwrap_err().contains("input spec 0: "), "{wrong}");
    }
    assert!(write(2, "drop").unwrap_err().contains("no 'pattern2' handler"));
    write(0, "pattern 8.0.0.8 - - 7 0 1").unwrap();
    assert_eq!(ended.read("rw.patterns"), "8.0.0.8 - - 7\n<keep> [1]\n");
    assert_eq!((ended.read("rw.size"), ended.read("rw.tcp_table")), ("1".into(), String::new()));

    let handlers = ended.read("rw.handlers");
    assert!(handlers.contains("pattern1\trw") && !handlers.contains("pattern2"), "{handlers}");
    let addresses = start("Idle -> rw :: IPAddrRewriter(keep 0 0) -> Discard");
    let handlers = addresses.read("rw.handlers");
    assert!(handlers.contains("pattern0\trw") && !handlers.contains("tcp_table"), "{handlers}");
    assert!(addresses.router.read(None, "rw.tcp_table", "").is_err());
}

#[test]
fn flows_that_have_ended_are_reaped() {
    let run = start(&format!(
        "rw :: IPRewriter(keep 0 0, UDP_TIMEOUT 10, REAP_INTERVAL 7) -> Discard;\n{}",
        at(1.0, &udp("1.0.0.1", "2.0.0.2", (1, 2)), "rw")
    ));
    run.router.run();
    assert_eq!(run.read("rw.nmappings"), "0");
}

#[test]
fn an_ended_flow_gives_its_port_to_a_new_one() {
    // Both ports are used at 1 s, and their flows end at 2 s.
    let count = |second: f64| {
        let text = format!(
            "rw :: IPRewriter(pattern 9.0.0.9 1024-1025 - - 0 1, drop, UDP_TIMEOUT 1, GUARANTEE 0,
               REAP_INTERVAL 0);
             rw [0] -> d :: Discard; rw [1] -> Discard; Idle -> [1] rw;\n{}{}{}",
            at(1.0, &udp("1.0.0.1", "2.0.0.2", (1, 2)), "rw"),
            at(1.0, &udp("1.0.0.2", "2.0.0.2", (1, 2)), "rw"),
            at(second, &udp("1.0.0.3", "2.0.0.2", (1, 2)), "rw"),
        );
        let ended = run(&text);
        ended.adds_up();
        (ended.read("d.count"), ended.read("rw.nmappings"), ended.read("rw.mapping_failures"))
    };
    assert_eq!(count(1.5), ("2".into(), "4".into(), "1".into()));
    assert_eq!(count(4.0), ("3".into(), "4".into(), "0".into()));
}

#[test]
fn a_range_without_free_ports_costs_no_more_than_others() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flows");
    // A flow for each port, then others to the same server.
    let elapsed = |others: u32| {
        let mut lines = "!data ip_src sport ip_dst dport ip_proto\n".to_owned();
        (1024..=65_535).for_each(|p| lines.push_str(&format!("1.0.0.1 {p} 2.0.0.2 53 U\n")));
        (0..others).for_each(|p| lines.push_str(&format!("1.0.0.2 {} 2.0.0.2 53 U\n", p + 1)));
        std::fs::write(&file, lines).unwrap();
        let since = std::time::Instant::now();
        let ended = run(&format!(
            "FromIPSummaryDump({}, STOP true) -> rw :: IPRewriter(pattern 9.0.0.9 1024-65535# - - 0 1, drop);
             rw [0] -> d :: Discard; rw [1] -> Discard; Idle -> [1] rw;",
            file.display()
        ));
        assert_eq!(ended.read("rw.mapping_failures"), others.to_string());
        assert_eq!(ended.read("d.count"), "64512");
        since.elapsed()
    };
    let (without, with) = (elapsed(0), elapsed(2000));
    assert!(with < 10 * without, "{with:?} with packets that find no port, {without:?} without");
}

#[test]
fn ports_are_found_between_those_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flows");
    // The first half of the ports are in use, and the next one to try is among them.
    let mut lines = "!data ip_src sport ip_dst dport ip_proto\n".to_owned();
    (0..5000).for_each(|p| lines.push_str(&format!("1.0.0.1 {} 2.0.0.2 53 U\n", p + 1)));
    (0..5000).for_each(|p| lines.push_str(&format!("1.0.0.1 {} 3.0.0.3 53 U\n", p + 1)));
    (0..9).for_each(|p| lines.push_str(&format!("1.0.0.2 {} 2.0.0.2 53 U\n", p + 1)));
    std::fs::write(&file, lines).unwrap();
    let ended = run(&format!(
        "FromIPSummaryDump({}, STOP true) -> rw :: IPRewriter(pattern 9.0.0.9 10001-20000# - - 0 1, drop);
         rw [0] -> d :: Discard; rw [1] -> Discard; Idle -> [1] rw;",
        file.display()
    ));
    assert_eq!(ended.read("d.count"), "10009");
}

#[test]
fn keywords_without_effect_are_errors() {
    for (element, wanted) in [
        ("Idle -> TCPRewriter(keep 0 0, UDP_TIMEOUT 3) -> Discard", "found 'UDP_TIMEOUT 3'"),
        ("Idle -> IPRewriter(keep 0 0, MAPPING_CAPACITY 0) -> Discard", "expected a positive number"),
        ("Idle -> IPPrint(OUTFILE /tmp/x) -> Discard", "keyword argument OUTFILE is not available here"),
        ("Idle -> Queue -> Shaper(5, BURST_SIZE 3) -> Unqueue -> Discard", "BURST_SIZE"),
        ("Idle -> ToDump(/dev/null, USE_ENCAP_FROM x)", "USE_ENCAP_FROM"),
        ("FromIPSummaryDump(/dev/null, SAMPLE 2) -> Discard", "SAMPLE"),
    ] {
        assert!(refused(element).contains(wanted), "{element}: {}", refused(element));
    }
}

#[test]
fn no_error_answers_a_bad_address() {
    let count = |config: &str| {
        let text = format!(
            "e :: ICMPError(5.0.0.5, unreachable, host{config}) -> c :: Counter -> Print(x, CONTENTS NONE, PRINTANNO true) -> Discard;\n{}",
            at(0.1, &udp("1.0.0.1", "2.0.0.2", (1, 2)), "e")
        );
        let ended = run(&text);
        let fix = ended.text().split_once('|').map(|(_, a)| a.replace(' ', "").as_bytes()[37]);
        (ended.read("c.count"), fix)
    };
    assert_eq!(count(""), ("1".into(), Some(b'1')));
    assert_eq!(count(", SET_FIX_ANNO false"), ("1".into(), Some(b'0')));
    for bad in ["1.0.0.1", "9.9.9.9 1.0.0.1"] {
        assert_eq!(count(&format!(", BADADDRS {bad}")), ("0".into(), None));
        assert_eq!(count(&format!(", {bad}")), ("0".into(), None));
    }
    assert_eq!(count(", 9.9.9.9").0, "1");
}
