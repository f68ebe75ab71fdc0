//! Words, dialects and lines that cannot be used.

use super::*;
use flame_module::testing::Traffic;

/// Returns the sids that alert on each packet of a traffic.
pub fn sids(engine: &mut Engine, traffic: &Traffic) -> Vec<Vec<u32>> {
    let batch = Batch::new(traffic.descriptors(), traffic.memory(), 0, &BatchHeader::default());
    let of = |packet| {
        let mut sids = Vec::new();
        engine.packet(&Facts::of(&packet, engine.set.dialect).unwrap(), |rule, _| sids.push(rule.sid));
        sids
    };
    batch.packets().map(of).collect()
}

#[test]
fn a_line_that_cannot_be_used_stops_no_other() {
    let mut rules = String::from("#!file a.rules\n");
    let lines = [
        ("alert tcp any any -> any any (sid:1)", 1, "malformed", "`;`"),
        ("alert tcp any any > any any (sid:2;)", 2, "malformed", "column 19: expected `->`"),
        ("alert tcp any 99999 -> any any (sid:3;)", 3, "malformed", "column 15: expected a port"),
        ("alert tcp any any -> any any (msg:\"x\";)", 0, "malformed", "an option sid"),
        ("alert tcp any any -> any any (content:\"|zz|\"; sid:5;)", 5, "malformed", "column 41"),
        ("alert tcp any any -> any any (nocase; sid:6;)", 6, "malformed", "a content just before"),
        (
            "alert tcp $NET any -> any any (sid:7;)",
            7,
            "undefined variable NET",
            "variable NET is not defined",
        ),
        ("alert udp any any -> any any (flags:S; sid:8;)", 8, "malformed", "tcp"),
        ("alert tcp any any -> any any (frobnicate; sid:9;)", 9, "malformed", "name of an option"),
        ("hello", 0, "malformed", "a rule"),
        ("drop tcp any any -> any any (sid:11;)", 11, "action drop", "action drop"),
        (
            "alert http any any -> any any (http.uri; content:\"a\"; sid:12;)",
            12,
            "protocol http (needs streams)",
            "option http.uri",
        ),
        (
            "alert tcp any any -> any any (pcre:\"/(a)\\1/\"; sid:13;)",
            13,
            "pcre with a back reference",
            "at byte 5",
        ),
        (
            "alert tcp any any -> any any (pcre:\"/([^\\n]{500}x){99}/i\"; sid:14;)",
            14,
            "pcre too large",
            "256 KiB",
        ),
        ("preprocessor stream5_global", 0, "line of kind preprocessor", "preprocessor"),
        ("alert tcp any any -> any any (sid:77;) trailing", 77, "malformed", "nothing after"),
        ("alert tcp any any -> any any (msg:\"second\"; sid:1000;)", 1000, "second of one sid", "line 1"),
    ];
    rules += "alert tcp any any -> any any (sid:1000;)\n";
    for (line, ..) in lines {
        rules += line;
        rules += "\n";
    }
    rules += "#!file b.rules\n\nalert tcp any any -> any any (sid:1001;)\nalert";
    let mut engine = engine(&rules);
    assert_eq!(engine.rules(), 2);
    assert_eq!(run(&mut engine, &[to(80, b"")]), [[1000, 1001]]);
    let found = &engine.set.unsupported;
    assert_eq!(found.len(), lines.len() + 1, "{found:#?}");
    for ((number, (line, sid, kind, reason)), found) in (2..).zip(lines).zip(found) {
        assert_eq!((found.line, found.sid, found.kind.as_str()), (number, sid, kind), "{line}: {found:?}");
        assert!(found.reason.contains(reason), "{line}: {found:?}");
        assert_eq!(engine.set.files[found.file as usize], "a.rules");
    }
    let last = found.last().unwrap();
    assert_eq!(engine.set.place(last), "b.rules, line 3");
    // All but `preprocessor` are rules.
    let summary = engine.summary();
    assert!(summary.starts_with("2 of 19 rules run; by reason: 11 malformed, 1 action drop, "), "{summary}");
}

#[test]
fn the_explosive_expression_of_a_rule_set_runs() {
    let mut engine = engine(
        r#"alert tcp any any -> any any (pcre:"/^SEARCH\s+[^\n]{160}/i"; sid:1;)
        alert tcp any any -> any any (pcre:"/[a-z]{100}.{100}x/"; sid:2;)"#,
    );
    assert_eq!(engine.rules(), 2, "{:?}", engine.set.unsupported);
    let long = [b"search ".as_slice(), &[b'a'; 160]].concat();
    let text = [&[b'a'; 200][..], b"x"].concat();
    let payloads = [to(80, &long), to(80, &long[..166]), to(80, &text), to(80, &text[..200])];
    assert_eq!(run(&mut engine, &payloads), [vec![1], vec![], vec![2], vec![]]);
    // A payload that needs a new state at every byte ends the search of this packet, not the module.
    let mut x = 1u64;
    let random: Vec<u8> = (0..60_000)
        .map(|_| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if x >> 60 == 0 { b'0' } else { b'a' }
        })
        .collect();
    let before = engine.counts.given_up;
    assert_eq!(run(&mut engine, &[to(80, &random), to(80, &long)])[1], [1]);
    assert!(engine.counts.given_up <= before + 1);
}

#[test]
fn words_about_bytes_and_ends() {
    for (options, payload, expected) in [
        (r#"content:"ab"; startswith;"#, "abc", true),
        (r#"content:"bc"; startswith;"#, "abc", false),
        (r#"content:"bc"; endswith;"#, "abc", true),
        (r#"content:"ab"; endswith;"#, "abcab", true),
        (r#"content:"ab"; endswith;"#, "abc", false),
        (r#"content:"a"; content:"c"; distance:0; within:2; endswith;"#, "abc", true),
        (r#"content:"a"; content:"c"; distance:0; within:1; endswith;"#, "abc", false),
        (r#"content:!"c"; endswith;"#, "abc", false),
        (r#"content:!"c"; endswith;"#, "cab", true),
        (r#"byte_test:2,=,0x6162,0;"#, "abc", true),
        (r#"byte_test:2,=,0x6261,0,little;"#, "abc", true),
        (r#"byte_test:2,!=,0x6162,0;"#, "abc", false),
        (r#"byte_test:1,>,0x61,0;"#, "abc", false),
        (r#"byte_test:1,>=,0x61,0;"#, "abc", true),
        (r#"byte_test:1,&,0x20,0;"#, "abc", true),
        (r#"byte_test:1,&,0x80,0;"#, "abc", false),
        (r#"byte_test:1,!&,0x80,0;"#, "abc", true),
        (r#"byte_test:1,=,1,0,bitmask 0x60;"#, "2bc", true),
        (r#"byte_test:4,=,1234,1,string,dec;"#, "x1234", true),
        (r#"byte_test:4,=,0x12ab,1,string,hex;"#, "x12ab", true),
        (r#"byte_test:4,=,12,1,string,dec;"#, "x12zz", true),
        (r#"byte_test:4,=,0,1,string,dec;"#, "xzzzz", false),
        (r#"content:"b"; byte_test:1,=,0x63,0,relative;"#, "abc", true),
        (r#"content:"b"; byte_test:1,=,0x63,1,relative;"#, "abc", false),
        (r#"content:"b"; byte_test:1,=,0x61,-2,relative;"#, "abc", true),
        (r#"byte_jump:1,0; content:"z"; distance:0; within:1;"#, "\u{2}..z", true),
        (r#"byte_jump:1,0; content:"z"; distance:0; within:1;"#, "\u{3}..z", false),
        (r#"byte_jump:1,0,multiplier 2; content:"z"; distance:0; within:1;"#, "\u{1}..z", true),
        (r#"byte_jump:1,0,align; content:"z"; distance:0; within:1;"#, "\u{2}....z", true),
        (r#"byte_jump:1,0,from_beginning; content:"z"; distance:0; within:1;"#, "\u{3}..z", true),
        (r#"byte_jump:1,0,from_end, post_offset -3; content:"z"; distance:0; within:1;"#, "\u{2}..z", true),
        (r#"byte_jump:1,0,post_offset -1; content:"z"; distance:0; within:1;"#, "\u{3}..z", true),
        (r#"content:"a"; byte_jump:1,0,relative; content:"z"; distance:0;"#, "a\u{9}a\u{1}.z", true),
        (r#"byte_extract:1,0,n; content:"z"; offset:n; depth:1;"#, "\u{3}..z", true),
        (r#"byte_extract:1,0,n; content:"z"; offset:n; depth:1;"#, "\u{2}..z", false),
        (r#"byte_extract:1,0,n; byte_test:1,=,n,1;"#, "zz", true),
        (r#"byte_extract:1,0,n; isdataat:!n,relative;"#, "\u{3}..z", false),
        (r#"byte_extract:1,0,n; isdataat:!n,relative;"#, "\u{4}..z", true),
        (r#"byte_extract:1,0,n,multiplier 3; content:"z"; offset:n; depth:1;"#, "\u{1}..z", true),
        (
            r#"byte_math:bytes 1, offset 0, oper +, rvalue 1, result n; content:"z"; offset:n; depth:1;"#,
            "\u{2}..z",
            true,
        ),
        (
            r#"byte_math:bytes 1, offset 0, oper /, rvalue 2, result n; content:"z"; offset:n; depth:1;"#,
            "\u{6}..z",
            true,
        ),
        (
            r#"byte_math:bytes 1, offset 0, oper <<, rvalue 1, result n, endian big; byte_test:1,=,n,1;"#,
            "\u{3}\u{6}",
            true,
        ),
        (
            r#"byte_extract:1,0,m; byte_math:bytes 1, offset 1, oper /, rvalue m, result n;"#,
            "\u{0}\u{6}",
            false,
        ),
        (r#"tcp.flags:PA; noalert;"#, "", false),
        (r#"prefilter; target:dest_ip; ip_proto:TCP;"#, "", true),
        (r#"ip_proto:!udp;"#, "", true),
        (r#"ip_proto:gre;"#, "", false),
    ] {
        assert_eq!(alerts(options, payload.as_bytes()), expected, "{options} on {payload:?}");
    }
    for (proto, expected) in [
        ("tcp-pkt", true),
        ("ipv4", true),
        ("ip4", true),
        ("ipv6", false),
        ("ip6", false),
        ("icmpv6", false),
        ("gre", false),
        ("dns", false),
        ("tls", false),
    ] {
        let mut engine = engine(&format!("alert {proto} any any -> any any (sid:1;)"));
        assert_eq!(engine.rules(), 1, "{proto}");
        assert_eq!(!run(&mut engine, &[to(80, b"x")])[0].is_empty(), expected, "{proto}");
    }
}

#[test]
fn snort_reads_some_words_otherwise() {
    for (options, payload, suricata, snort) in [
        (r#"content:"a"; isdataat:!1,relative;"#, "..ab", false, true),
        (r#"content:"a"; isdataat:2,relative;"#, "..abc", true, false),
        (r#"dsize:3<>5;"#, "abc", false, true),
        (r#"isdataat:2;"#, "abc", true, true),
        (r#"isdataat:3;"#, "abc", false, false),
    ] {
        let rule = format!("alert tcp any any -> any any ({options} sid:1;)");
        let fits = |mut engine: Engine| !run(&mut engine, &[to(80, payload.as_bytes())])[0].is_empty();
        assert_eq!((fits(engine(&rule)), fits(in_snort(&rule))), (suricata, snort), "{options}");
    }
    // A lone SYN-ACK: its sender has sent the first packet, which for Suricata makes it the client.
    let rules = "alert tcp any any -> any any (flow:to_server; sid:1;)
        alert tcp any any -> any any (flow:to_client; sid:2;)";
    let lone = [Segment { tcp_flags: 0x12, ..to(80, b"") }];
    assert_eq!(run(&mut engine(rules), &lone), [[1]]);
    assert_eq!(run(&mut in_snort(rules), &lone), [[2]]);
}

#[test]
fn marks_join_packets_of_a_connection_and_of_a_host() {
    let mut engine = engine(
        r#"alert tcp any any -> any any (content:"use"; flowbits:isset,a; sid:1;)
        alert tcp any any -> any any (content:"set"; flowbits:set,a; flowbits:noalert; sid:2;)
        alert tcp any any -> any any (content:"unset"; flowbits:unset,a; sid:3;)
        alert tcp any any -> any any (content:"none"; flowbits:isnotset,a; sid:4;)
        alert tcp any any -> any any (content:"either"; flowbits:isset,b|a; sid:5;)
        alert tcp any any -> any any (content:"flip"; flowbits:toggle,a; sid:6;)
        alert tcp any any -> any any (content:"host"; xbits:set,h,track ip_src,expire 10; sid:7;)
        alert tcp any any -> any any (content:"asks"; xbits:isset,h,track ip_src; sid:8;)"#,
    );
    assert_eq!(engine.rules(), 8, "{:?}", engine.set.unsupported);
    let mut say = |port: u16, second: u64, text: &str| {
        let segment =
            Segment { ends: (1, port, 1, 80), ts_ns: second * 1_000_000_000, ..to(80, text.as_bytes()) };
        run(&mut engine, &[segment]).remove(0)
    };
    assert_eq!(say(1, 0, "use none either"), [4]);
    // A rule that sets a mark comes before one that asks for it in the same packet.
    assert_eq!(say(1, 0, "set use"), [1]);
    assert_eq!(say(1, 1, "use none either"), [1, 5]);
    assert_eq!(say(2, 1, "use"), [0; 0], "another connection");
    assert_eq!(say(1, 2, "flip"), [6]);
    assert_eq!(say(1, 2, "use"), [0; 0]);
    assert_eq!(say(1, 2, "flip use"), [6, 1]);
    assert_eq!(say(1, 2, "asks"), [0; 0]);
    assert_eq!(say(1, 3, "host"), [7]);
    assert_eq!(say(2, 12, "asks"), [8], "another connection of the host");
    assert_eq!(say(2, 13, "asks"), [0; 0], "expired");
}

fn dns(name: &str) -> Vec<u8> {
    let mut message = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.').filter(|l| !l.is_empty()) {
        message.push(label.len() as u8);
        message.extend(label.bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    message
}

pub fn client_hello(name: &str) -> Vec<u8> {
    let with_length = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let entry = [&[0][..], &with_length(name.as_bytes())].concat();
    let extension = [&[0, 0][..], &with_length(&with_length(&entry))].concat();
    let other = [0, 23, 0, 0];
    let extensions = with_length(&[&other[..], &extension].concat());
    let body = [&[3, 3][..], &[7; 32], &[0], &with_length(&[0x13, 1]), &[1, 0], &extensions].concat();
    let hello = [&[1, 0][..], &with_length(&body)].concat();
    [&[22, 3, 1][..], &with_length(&hello)].concat()
}

#[test]
fn names_of_dns_and_tls_are_buffers() {
    let rules = r#"
        alert dns any any -> any any (dns.query; content:"evil.example"; nocase; endswith; sid:1;)
        alert udp any any -> any 53 (dns_query; content:".example"; bsize:12; sid:2;)
        alert dns any any -> any any (dns.query; dotprefix; content:".evil.example"; endswith; sid:3;)
        alert tls any any -> any any (tls.sni; content:"evil.example"; startswith; endswith; sid:4;)
        alert tcp any any -> any any (tls.sni; dotprefix; content:".evil.example"; endswith; sid:5;)
        alert tls any any -> any any (content:"|16 03|"; depth:2; sid:6;)
        alert dns any any -> any any (dns.query; bsize:>20; sid:7;)
        alert dns any any -> any any (dns.query; pcre:"/^ev[a-z]+\.example$/i"; sid:8;)"#;
    let mut traffic = Traffic::default();
    for name in ["evil.example", "www.Evil.example", "devil.example", "a-rather-long-name.example", "x"] {
        traffic.udp("10.0.0.1:1000", "10.0.0.2:53").payload(&dns(name));
    }
    traffic.udp("10.0.0.1:1000", "10.0.0.2:5300").payload(&dns("evil.example"));
    let answer = [&dns("evil.example")[..2], &[0x81], &dns("evil.example")[3..]].concat();
    traffic.udp("10.0.0.2:53", "10.0.0.1:1000").payload(&answer);
    let message = dns("evil.example");
    let over_tcp = [&(message.len() as u16).to_be_bytes()[..], &message].concat();
    traffic.tcp("10.0.0.1:1000", "10.0.0.2:53").payload(&over_tcp);
    for name in ["evil.example", "www.evil.example", "devil.example"] {
        traffic.tcp("10.0.0.1:1000", "10.0.0.2:443").payload(&client_hello(name));
    }
    let cut = client_hello("evil.example");
    traffic.tcp("10.0.0.1:1001", "10.0.0.2:443").payload(&cut[..cut.len() - 1]);
    let mut engine = engine(rules);
    assert_eq!(engine.rules(), 8, "{:?}", engine.set.unsupported);
    let expected: [&[u32]; 12] =
        [&[1, 2, 3, 8], &[1], &[1], &[7], &[], &[], &[], &[1, 3, 8], &[4, 5, 6], &[5, 6], &[6], &[6]];
    assert_eq!(sids(&mut engine, &traffic), expected);
}

#[test]
fn headers_alone_alert_once_for_each_direction_of_a_connection() {
    let rules = "alert ip [10.0.0.1,192.0.2.0/24] any -> any any (sid:1;)
        alert tcp any any -> 10.0.0.1 any (sid:2;)
        alert tcp 10.0.0.1 any -> any any (flags:+A; sid:3;)";
    let mut traffic = Traffic::default();
    for (from, to) in [
        ("10.0.0.1:5", "10.0.0.2:80"),
        ("10.0.0.1:5", "10.0.0.2:80"),
        ("10.0.0.2:80", "10.0.0.1:5"),
        ("10.0.0.2:80", "10.0.0.1:5"),
        ("10.0.0.1:6", "10.0.0.2:80"),
    ] {
        traffic.tcp(from, to).tcp_flags(0x10).payload(b"x");
    }
    let once: [&[u32]; 5] = [&[1, 3], &[3], &[2], &[], &[1, 3]];
    assert_eq!(sids(&mut engine(rules), &traffic), once);
    let each: [&[u32]; 5] = [&[1, 3], &[1, 3], &[2], &[2], &[1, 3]];
    assert_eq!(sids(&mut in_snort(rules), &traffic), each);
    // Neither addresses nor any ports are needed for that, but no other option may be there, and no range of
    // addresses and no `!` before some, also by a variable.
    for (rule, is_once) in [
        ("any any -> any any (", true),
        ("any any -> any 80 (", true),
        ("any any -> any !81 (flowbits:set,a;", true),
        ("$NET any -> any 80 (threshold:type limit,track by_src,count 9,seconds 60;", true),
        ("any any -> any 80 (flow:stateless;", false),
        ("any any -> any 80 (flowbits:unset,a;", false),
        ("any any -> any 80 (ttl:64;", false),
        ("10.0.0.1-10.0.0.3 any -> any 80 (", false),
        ("!10.0.0.3 any -> any 80 (", false),
        ("$REST any -> any 80 (", false),
        ("any any -> [10.0.0.0/8,![10.0.0.1]] 80 (", false),
    ] {
        let rules = format!("ipvar NET [10.0.0.0/8]\nipvar REST ![10.0.0.7]\nalert tcp {rule} sid:1;)");
        let found = sids(&mut engine(&rules), &traffic);
        let client: Vec<_> = [0, 1, 4].map(|i: usize| found[i].len()).into();
        assert_eq!(client, if is_once { [1, 0, 1] } else { [1, 1, 1] }, "{rule}");
    }
}

#[test]
fn variables_come_from_a_suricata_yaml_or_lines() {
    let yaml = "%YAML 1.1\n---\nvars:\n  # a comment\n  address-groups:\n    EXTERNAL_NET: \"!$HOME_NET\"\n    HOME_NET: \"[10.0.0.0/16]\"\n    #HOME_NET: \"any\"\n    AIM: '$EXTERNAL_NET' # why\n    BAD: \"[10.0.0.0/99]\"\n\n  port-groups:\n    HTTP_PORTS: \"80\"\n    MORE: \"[$HTTP_PORTS,8080]\"\ndefault-log-dir: /x\nother:\n  address-groups:\n    NOT: any\n";
    let rules = "alert tcp $HOME_NET any -> $HOME_NET $MORE (sid:1;)
        alert tcp $AIM any -> any any (sid:2;)
        alert tcp $NOT any -> any any (sid:3;)";
    let found = |vars| {
        let mut engine = of(Source { rules, vars, ..Source::default() });
        let lines: Vec<_> = engine.set.unsupported.iter().map(|u| (u.line, u.kind.clone())).collect();
        (run(&mut engine, &[to(8080, b""), to(81, b"")]), lines)
    };
    let undefined = (3, "undefined variable NOT".to_owned());
    let bad = (10, "variables".to_owned());
    assert_eq!(found(yaml), (vec![vec![1], vec![]], vec![undefined.clone(), bad]));
    let lines = "AIM = $FAR\nHOME_NET=10.0.0.0/16\nFAR: !$HOME_NET\nportvar MORE [80,8080]\n# none";
    assert_eq!(found(lines), (vec![vec![1], vec![]], vec![undefined]));
}

#[test]
fn thresholds_are_read_from_their_file() {
    let rules = "alert tcp any any -> any any (flow:stateless; sid:1;)
        alert tcp any any -> any any (flow:stateless; threshold:type limit, track by_src, count 1, seconds 60; sid:2;)
        alert tcp any any -> any any (flow:stateless; sid:3;)
        alert tcp any any -> any any (flow:stateless; sid:4;)";
    let thresholds = "# comment
suppress gen_id 1, sig_id 1
threshold gen_id 1, sig_id 2, type limit, track by_src, count 2, seconds 60
event_filter gen_id 1, sig_id 0, type limit, track by_rule, count 3, seconds 60
suppress gen_id 1, sig_id 4, track by_dst, ip [10.0.1.0/24,10.0.2.1]
rate_filter gen_id 1, sig_id 1, track by_src, count 1, seconds 1, new_action drop, timeout 1
suppress gen_id x
alert tcp any any -> any any (sid:5;)
garbage";
    let mut engine = of(Source { rules, thresholds, ..Source::default() });
    let segments = vec![to(80, b""); 4];
    assert_eq!(run(&mut engine, &segments), [vec![2, 3], vec![2, 3], vec![3], vec![]]);
    assert_eq!(engine.counts.held_back, 16 - 5);
    let places: Vec<_> = engine.set.unsupported.iter().map(|u| engine.set.place(u)).collect();
    assert_eq!(places, [6, 7, 8, 9].map(|line| format!("thresholds, line {line}")));
    assert_eq!(engine.summary(), "4 of 4 rules run");
}

#[test]
fn a_strict_run_names_the_first_line() {
    let rules = b"alert tcp any any -> any any (sid:1;)\nalert tcp any any -> any any (sid:2)";
    let parameters = Parameters::of(tables::Params::DEFAULTS).with("rules", rules).integer("strict", 1);
    let started = std::panic::catch_unwind(|| drop(Native::<Ids>::new(&parameters, 0)));
    let text = *started.unwrap_err().downcast::<String>().unwrap();
    assert!(text.starts_with("parameter strict: line 2: ") && text.contains("1 of 2 rules run; "), "{text}");
}

#[test]
fn rules_that_there_is_no_time_for_are_counted() {
    let long = format!("content:\"{}\";", "x".repeat(2000)).repeat(120);
    let rules: String = (1..=100)
        .map(|sid| format!("alert tcp any any -> any any ({long} sid:{sid};)\n# no rule\n\n"))
        .collect();
    let set = parse(&rules);
    let (used, beyond) = (set.rules.len() as u64, set.kinds[rule::start::BEYOND]);
    assert!(used > 30 && used < 90 && used + beyond == 100 && set.total == 100, "{used} {beyond}");
    let summary = set.summary(set.rules.len());
    assert!(
        summary.ends_with(&format!("{beyond} beyond what a start has time for ({})", rule::start::REMEDY))
    );
    assert_eq!((set.unsupported.len() as u64, set.unlisted), (1, beyond - 1));
    assert_eq!(u64::from(set.unsupported[0].line), used * 3 + 1, "the first rule that is not read");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn names_do_not_depend_on_what_follows_or_is_cut_off(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        is_dns in any::<bool>(),
    ) {
        let mut bytes = if is_dns { dns("www.example.org") } else { client_hello("www.example.org") };
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let cut = &bytes[..cut.index(bytes.len() + 1)];
        let names = |message: &[u8]| {
            let mut names = crate::engine::Names::default();
            names.message(message).map(|()| names.iter().map(<[u8]>::to_vec).collect::<Vec<_>>())
        };
        if let Some(found) = names(cut) {
            prop_assert!(found.iter().all(|name| name[0] == b'.' && name.len() <= 256));
            prop_assert_eq!(Some(found), names(&bytes));
        }
        if let Some(found) = crate::engine::server_name(cut) {
            prop_assert_eq!(Some(found), crate::engine::server_name(&bytes));
        }
    }
}
