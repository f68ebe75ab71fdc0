//! What Suricata's engine does where one could read the language otherwise. Each table states a rule, packets
//! and the alerts that Suricata gives.

use super::words::sids;
use super::*;
use flame_module::testing::Traffic;

const SECOND: u64 = 1_000_000_000;

/// Returns the number of alerts of each of these rules, whose options end before the sid.
fn counts(engine: &mut Engine, traffic: &Traffic) -> Vec<usize> {
    let found = sids(engine, traffic).concat();
    let total = engine.rules() as u32;
    (1..=total).map(|sid| found.iter().filter(|s| **s == sid).count()).collect()
}

#[test]
fn rules_about_the_payload_need_one() {
    let payloads: [&[u8]; 3] = [b"", b"x", b"GET / HTTP/1.1\r\n\r\n"];
    for (options, suricata, snort) in [
        (r#"content:!"GET"; depth:3;"#, [false, true, false], [true, true, false]),
        (r#"pcre:!"/GET/";"#, [false, true, false], [true, true, false]),
        (r#"isdataat:!4;"#, [false, true, false], [true, true, false]),
        (r#"dsize:!1;"#, [false, false, true], [true, false, true]),
        (r#"dsize:0;"#, [true, false, false], [true, false, false]),
        (r#"dsize:<2;"#, [true, true, false], [true, true, false]),
        (r#"flags:PA;"#, [true; 3], [true; 3]),
    ] {
        let rule = format!("alert tcp any any -> any any ({options} sid:1;)");
        let of = |mut engine: Engine| {
            let found = run(&mut engine, &payloads.map(|payload| to(80, payload)));
            [0, 1, 2].map(|i: usize| !found[i].is_empty())
        };
        assert_eq!((of(engine(&rule)), of(in_snort(&rule))), (suricata, snort), "{options}");
    }
}

#[test]
fn only_protocols_that_are_decoded_have_a_payload() {
    let rules = r#"alert ip any any -> any any (dsize:>0; sid:1;)
        alert ip any any -> any any (content:"hello"; sid:2;)
        alert ip any any -> any any (dsize:5; content:"hello"; startswith; sid:3;)"#;
    let mut traffic = Traffic::default();
    let esp = b"\0\0\0\x01\0\0\0\x01hello";
    for (proto, bytes) in [(89u8, &b"hello"[..]), (2, b"hello"), (47, b"hello"), (50, esp), (253, b"hello")] {
        traffic.ip("10.0.0.1", "10.0.0.2", proto).payload(bytes);
    }
    assert_eq!(counts(&mut engine(rules), &traffic), [1, 1, 1], "ESP alone");
    assert_eq!(counts(&mut in_snort(rules), &traffic), [5, 5, 4]);
}

#[test]
fn numbers_in_text_are_read_as_by_strtoull() {
    for (options, payload, expected) in [
        ("byte_test:3,=,12,0,string,dec;", "+12", true),
        ("byte_test:4,=,12,0,string,dec;", " +12", true),
        ("byte_test:4,=,12,0,string,dec;", "\u{b}\t12", true),
        ("byte_test:4,=,12,0,string,dec;", "+ 12", false),
        ("byte_test:4,=,12,0,string,dec;", "+-12", false),
        ("byte_test:2,>,2147483647,0,string,dec;", "-1", true),
        ("byte_test:2,<,10,0,string,dec;", "-1", false),
        ("byte_test:5,=,31,0,string,hex;", "+0x1F", true),
        ("byte_test:3,=,0,0,string,hex;", "0xg", true),
        ("byte_test:2,=,0,0,string,hex;", "x1", false),
        ("byte_test:1,=,0,0,string,dec;", "+", false),
        ("byte_test:3,=,15,0,string,oct;", "017", true),
        ("byte_test:20,>,1,0,string,dec;", "18446744073709551615", true),
        ("byte_test:20,>=,0,0,string,dec;", "18446744073709551616", false),
        ("byte_test:21,=,1,0,string,dec;", "-18446744073709551615", true),
    ] {
        assert_eq!(alerts(options, payload.as_bytes()), expected, "{options} on {payload:?}");
    }
}

#[test]
fn jumps_may_end_where_the_payload_does() {
    for (options, suricata, snort) in [
        ("byte_jump:1,0;", true, false),
        ("byte_jump:1,0; isdataat:!1,relative;", true, false),
        ("byte_jump:1,0,post_offset -1;", true, true),
        ("byte_jump:1,0,post_offset 1;", false, false),
        ("byte_jump:0,0,from_end;", true, false),
        (r#"byte_jump:1,0,post_offset -1; content:"c"; within:1;"#, true, true),
        (r#"byte_jump:1,0; content:!"c"; within:1;"#, true, false),
    ] {
        let rule = format!("alert tcp any any -> any any ({options} sid:1;)");
        let fits = |mut engine: Engine| !run(&mut engine, &[to(80, b"\x03abc")])[0].is_empty();
        assert_eq!((fits(engine(&rule)), fits(in_snort(&rule))), (suricata, snort), "{options}");
    }
}

#[test]
fn negated_bits_are_not_all_set() {
    let flags = [0x02, 0x12, 0x10, 0x03, 0x00, 0xc2];
    for (options, suricata, snort) in [
        ("flags:!SA;", "*.****", "....*."),
        ("flags:!S;", "..*.*.", "..*.*."),
        ("flags:!0;", "****.*", "******"),
        ("flags:S;", "*.....", "*....."),
        ("flags:S,12;", "*....*", "*....*"),
        ("flags:SA*;", "****.*", "****.*"),
    ] {
        let rule = format!("alert tcp any any -> any any ({options} sid:1;)");
        let of = |mut engine: Engine| {
            let segments = flags.map(|tcp_flags| Segment { tcp_flags, ..to(80, b"") });
            let found = run(&mut engine, &segments);
            found.iter().map(|sids| if sids.is_empty() { '.' } else { '*' }).collect::<String>()
        };
        assert_eq!(of(engine(&rule)), suricata, "{options}");
        assert_eq!(of(in_snort(&rule)), snort, "{options}");
    }
    // The test packets have DF alone.
    for (options, suricata, snort) in
        [("fragbits:!MD;", true, false), ("fragbits:!D;", false, false), ("fragbits:!M;", true, true)]
    {
        let rule = format!("alert tcp any any -> any any ({options} sid:1;)");
        let fits = |mut engine: Engine| !run(&mut engine, &[to(80, b"")])[0].is_empty();
        assert_eq!((fits(engine(&rule)), fits(in_snort(&rule))), (suricata, snort), "{options}");
    }
}

#[test]
fn tos_is_a_field_of_ipv4() {
    let mut traffic = Traffic::default();
    traffic.udp("10.0.0.1:1", "10.0.0.2:2").payload(b"x");
    traffic.udp("[2001:db8::1]:1", "[2001:db8::2]:2").payload(b"x");
    for (options, suricata, snort) in
        [("tos:0;", 1, 2), ("tos:!5;", 1, 2), ("tos:x0;", 1, 0), ("tos:!x0;", 0, 0), ("tos:! 0;", 0, 0)]
    {
        let rule = format!("alert udp any any -> any any ({options} sid:1;)");
        let of = |mut engine: Engine| sids(&mut engine, &traffic).concat().len();
        assert_eq!((of(engine(&rule)), of(in_snort(&rule))), (suricata, snort), "{options}");
    }
}

#[test]
fn periods_contain_their_end() {
    let of = |rate: &str, dialect: Dialect| {
        let rules = format!("alert tcp any any -> any any (flow:stateless; {rate} sid:1;)");
        let mut engine = super::of(Source { rules: &rules, dialect, ..Source::default() });
        let at = [0, 60 * SECOND, 60 * SECOND + 1, 120 * SECOND + 1];
        let found = run(&mut engine, &at.map(|ts_ns| Segment { ts_ns, ..to(80, b"") }));
        found.iter().map(|sids| if sids.is_empty() { '.' } else { '*' }).collect::<String>()
    };
    for (rate, suricata, snort) in [
        ("threshold:type limit,track by_src,count 1,seconds 60;", "*.*.", "**.*"),
        ("threshold:type threshold,track by_src,count 2,seconds 60;", ".*.*", "..*."),
        ("threshold:type both,track by_dst,count 2,seconds 60;", ".*.*", "..*."),
        ("detection_filter:track by_rule,count 1,seconds 60;", ".*.*", "..*."),
        ("threshold:type limit,track by_both,count 1,seconds 60;", "*.*.", "**.*"),
    ] {
        assert_eq!(of(rate, Dialect::Suricata), suricata, "{rate}");
        assert_eq!(of(rate, Dialect::Snort), snort, "{rate}");
    }
}

#[test]
fn connections_end_after_a_time_without_packets() {
    let rules = r#"alert ip any any -> any any (content:"set"; flowbits:set,a; flowbits:noalert; sid:1;)
        alert ip any any -> any any (content:"ask"; flowbits:isset,a; sid:2;)
        alert ip any any -> any any (content:"ask"; flow:established; sid:3;)
        alert ip any any -> any any (content:"ask"; threshold:type limit,track by_flow,count 1,seconds 9999; sid:4;)"#;
    let (a, b) = ("10.0.0.1:1000", "10.0.0.2:2000");
    // Whether both sides have sent, and the seconds until the same connection asks again.
    for (both, after, expected) in [
        (false, 29, [2, 0, 1]),
        (false, 30, [1, 0, 2]),
        (true, 299, [2, 2, 1]),
        (true, 300, [1, 1, 2]),
        (true, 7200, [1, 1, 2]),
    ] {
        let mut traffic = Traffic::default();
        traffic.udp(a, b).payload(b"set").at(0);
        if both {
            traffic.udp(b, a).payload(b"answer").at(0);
        }
        traffic.udp(a, b).payload(b"ask").at(1);
        traffic.udp(a, b).payload(b"ask").at(1 + after * SECOND);
        let found = counts(&mut engine(rules), &traffic);
        assert_eq!(found[1..], expected, "both {both}, after {after} s");
    }
    // TCP: 60 s before the handshake is complete, then 600 s.
    for (shaken, after, expected) in
        [(false, 59, [2, 0]), (false, 60, [1, 0]), (true, 599, [2, 2]), (true, 600, [1, 1])]
    {
        let mut traffic = Traffic::default();
        traffic.tcp(a, b).tcp_flags(0x02).at(0);
        if shaken {
            traffic.tcp(b, a).tcp_flags(0x12).at(0);
            traffic.tcp(a, b).tcp_flags(0x10).at(0);
        }
        traffic.tcp(a, b).payload(b"set").at(0);
        traffic.tcp(a, b).payload(b"ask").at(1);
        traffic.tcp(a, b).payload(b"ask").at(1 + after * SECOND);
        let found = counts(&mut engine(rules), &traffic);
        assert_eq!(found[1..3], expected, "shaken {shaken}, after {after} s");
    }
}

#[test]
fn connections_without_a_syn_have_sides_by_an_option() {
    let rules = "alert tcp any any -> any any (flow:established,to_server; sid:1;)
        alert tcp any any -> any any (flow:established,to_client; sid:2;)
        alert tcp any any -> any any (flow:to_client; sid:3;)";
    let (a, b) = ("10.0.0.1:1000", "10.0.0.2:80");
    let mut data = Traffic::default();
    data.tcp(a, b).payload(b"1");
    data.tcp(b, a).payload(b"2");
    data.tcp(a, b).payload(b"3");
    let mut answer = Traffic::default();
    answer.tcp(b, a).tcp_flags(0x12);
    answer.tcp(a, b).tcp_flags(0x10);
    answer.tcp(a, b).payload(b"1");
    answer.tcp(b, a).payload(b"2");
    let found = |midstream, traffic: &Traffic| {
        sids(&mut of(Source { rules, midstream, ..Source::default() }), traffic)
    };
    assert_eq!(found(false, &data), [vec![], vec![3], vec![]]);
    assert_eq!(found(true, &data), [vec![], vec![2, 3], vec![1]]);
    assert_eq!(found(false, &answer), [vec![], vec![3], vec![3], vec![]]);
    assert_eq!(found(true, &answer), [vec![3], vec![], vec![1], vec![2, 3]]);
}

#[test]
fn a_pass_is_about_a_packet_or_its_connection() {
    // Whether sid 1 alerts on each of four packets: of the client, of the server, of the client, and the
    // client's of another connection.
    for (pass, suricata, snort) in [
        ("tcp any any -> any 80 (ttl:64;", ".*..", ".*.."),
        ("tcp any any -> any 80 (dsize:2; content:\"b\";", "**.*", "**.*"),
        ("ip 10.0.0.1 any -> any 80 (", "....", ".*.."),
        ("ip !10.0.0.2 any -> any 80 (", "....", ".*.."),
        ("tcp any 80 -> any any (", "*..*", "*.**"),
        ("tcp any any -> any any (content:\"b\"; startswith; noalert;", "**..", "**.."),
        ("tcp any 80 -> any any (content:\"a2\";", "*..*", "*.**"),
        ("udp any any -> any any (", "****", "****"),
    ] {
        let rules = format!("alert tcp any any -> any any (content:\"2\"; sid:1;)\npass {pass} sid:2;)");
        let mut traffic = Traffic::default();
        traffic.tcp("10.0.0.1:5", "10.0.0.2:80").payload(b"a2");
        traffic.tcp("10.0.0.2:80", "10.0.0.1:5").payload(b"a2");
        traffic.tcp("10.0.0.1:5", "10.0.0.2:80").payload(b"b2");
        traffic.tcp("10.0.0.1:6", "10.0.0.2:80").payload(b"b22");
        let of = |mut engine: Engine| {
            let found = sids(&mut engine, &traffic);
            assert!(found.concat().iter().all(|sid| *sid == 1), "a pass is no alert: {found:?}");
            assert_eq!(engine.counts.passed + engine.counts.alerts, 4);
            found.iter().map(|sids| if sids.is_empty() { '.' } else { '*' }).collect::<String>()
        };
        assert_eq!((of(engine(&rules)).as_str(), of(in_snort(&rules)).as_str()), (suricata, snort), "{pass}");
    }
}

#[test]
fn an_ipv4_address_is_no_ipv6_address() {
    // The IPv6 addresses begin with the bytes of the IPv4 ones.
    let rules = r#"alert udp any any -> any any (content:"set"; xbits:set,s,track ip_src; xbits:set,p,track ip_pair; flowbits:set,f; noalert; sid:1;)
        alert udp any any -> any any (content:"ask"; xbits:isset,s,track ip_src; sid:2;)
        alert udp any any -> any any (content:"ask"; xbits:isset,p,track ip_pair; sid:3;)
        alert udp any any -> any any (content:"ask"; flowbits:isset,f; sid:4;)
        alert udp any any -> any any (content:"ask"; threshold:type limit,track by_src,count 1,seconds 60; sid:5;)
        alert udp any any -> any any (content:"ask"; threshold:type limit,track by_both,count 1,seconds 60; sid:6;)"#;
    let mut traffic = Traffic::default();
    traffic.udp("10.0.0.1:1", "10.0.0.2:2").payload(b"set").at(SECOND);
    traffic.udp("10.0.0.1:1", "10.0.0.2:2").payload(b"ask").at(SECOND);
    traffic.udp("[a00:1::]:1", "[a00:2::]:2").payload(b"ask").at(SECOND);
    let found = sids(&mut engine(rules), &traffic);
    assert_eq!(found, [vec![], vec![2, 3, 4, 5, 6], vec![5, 6]]);
}

#[test]
fn the_newest_revision_of_a_sid_is_in_use() {
    let rules = "alert tcp any any -> any 1 (sid:7; rev:2;)\nalert tcp any any -> any 2 (sid:7; rev:3;)
alert tcp any any -> any 3 (sid:7; rev:3;)\nalert tcp any any -> any 4 (sid:7;)\n#!file b
alert tcp any any -> any 5 (sid:7; rev:4;)\nalert tcp any any -> any 5 (gid:2; sid:7; rev:1;)";
    let mut engine = engine(rules);
    assert_eq!(run(&mut engine, &[1, 2, 3, 4, 5].map(|port| to(port, b"")))[..4], [[0u32; 0]; 4]);
    let rules: Vec<_> = engine.set.unsupported.iter().map(|u| (u.line, u.reason.as_str())).collect();
    let second = "second of one sid: line 2 has revision 3";
    let expected = [
        (1, second),
        (2, "second of one sid: line 1 has revision 4"),
        (3, "sid 7 has revision 3 at line 2"),
        (4, "sid 7 has revision 3 at line 2"),
    ];
    assert_eq!((engine.rules(), engine.set.total, rules), (2, 6, expected.to_vec()));
    assert_eq!(engine.set.kinds["second of one sid"], 4);
}

#[test]
fn words_of_other_versions_are_unsupported_and_not_malformed() {
    for options in [
        "igmp.type:17;",
        "ether.hdr; content:\"a\";",
        "sctp.chunk_type:1;",
        "llmnr.response.rrname; content:\"a\";",
        "mdns.queries.rrname; content:\"a\";",
        "ntp.version:3;",
        "pgsql.query; content:\"a\";",
        "dhcp.leasetime:>1;",
        "ldap.request.operation:search;",
        "tcp.session:established;",
        "app-layer-state:>1;",
        "l3_proto:ip4;",
        "ipv4-csum:valid;",
        "tls_cert_valid;",
        "flow.bytes_toserver:>1;",
        "vlan.id:1;",
        "ja4.hash; content:\"a\";",
        "dns.answers.rrname; content:\"a\";",
        "domain; content:\"a\";",
        "threshold:type backoff,track by_flow,count 1,multiplier 10;",
        "detection_filter:track by_src,count 2,seconds 60,unique_on dst_port;",
        "pcre:\"/a/Z\";",
    ] {
        let set = parse(&format!("alert tcp any any -> any any ({options} sid:1;)"));
        let kinds: Vec<_> = set.kinds.keys().map(String::as_str).collect();
        assert!(kinds.len() == 1 && kinds[0] != "malformed", "{options}: {:?}", set.unsupported);
    }
    for header in ["rejectboth tcp any any -> any any", "alert dns:request_started any any -> any any"] {
        let set = parse(&format!("{header} (sid:1;)"));
        assert!(!set.kinds.contains_key("malformed") && set.kinds.len() == 1, "{:?}", set.unsupported);
    }
}
