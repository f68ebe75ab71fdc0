//! Results and errors of compiling expressions.

use flame_abi::LinkType;
use flame_filter::{Filter, FilterError, ProgramError};

fn error(expr: &str, link: LinkType) -> String {
    Filter::compile(expr, link).unwrap_err().to_string()
}

#[test]
fn an_empty_expression_matches_everything_on_any_link() {
    for expr in ["", "  \n"] {
        for link in [LinkType::ETHERNET, LinkType(60_000)] {
            let f = Filter::compile(expr, link).unwrap();
            assert!(f.accepts_all() && f.matches(&[], 0));
        }
    }
}

#[test]
fn every_decoded_link_type_has_filters() {
    for link in LinkType::DECODED {
        for expr in ["ip", "tcp port 80", "udp", "ip6 and icmp6", "host 10.0.0.1"] {
            // libpcap may refuse IPv6 on raw IPv4, and vice versa.
            let result = Filter::compile(expr, link);
            let contradicts = link == LinkType::IPV4 || link == LinkType::IPV6;
            // libpcap has no filters for packets after netfilter's attributes and switch tags.
            let without = [LinkType::NFLOG, LinkType::PKTAP, LinkType::PPI, LinkType::PPP_WITH_DIR]
                .contains(&link)
                || (281..=285).contains(&link.0);
            let contradicts = contradicts || without;
            assert!(result.is_ok() || contradicts, "{expr} on {link:?}: {result:?}");
        }
    }
}

#[test]
fn errors_name_expression_and_cause() {
    let e = error("tcp port port 80", LinkType::ETHERNET);
    assert!(e.contains("tcp port port 80") && e.contains("syntax error"), "{e}");
    let e = error("tcp prot 80", LinkType::ETHERNET);
    assert!(e.contains("tcp prot 80") && e.contains("\"prot\" is a name"), "{e}");
    let e = error("ether host 1:2:3:4:5:6", LinkType::RAW);
    assert!(e.contains("link type 101"), "{e}");
    assert!(error("ip", LinkType(60_000)).contains("link type 60000"));
    assert!(error("ip\0", LinkType::ETHERNET).contains("NUL"));
}

#[test]
fn long_expressions_end_in_a_filter_or_an_error_in_bounded_time() {
    let hosts = |n: usize| {
        let hosts: Vec<String> = (0..n).map(|i| format!("host 10.{}.{}.1", i / 250, i % 250)).collect();
        hosts.join(" or ")
    };
    for n in [100, 4000] {
        let f = Filter::compile(&hosts(n), LinkType::ETHERNET).unwrap();
        assert!(!f.matches(&[0; 60], 60));
    }
    let ports = |n: usize| (0..n).map(|port| format!("port {port}")).collect::<Vec<_>>().join(" or ");
    assert!(matches!(
        Filter::compile(&ports(250), LinkType::ETHERNET),
        Err(FilterError::Program { source: ProgramError::TooLong { .. }, .. })
    ));
    let many = format!("{} or {}", hosts(20), ports(4000));
    let e = Filter::compile(&many, LinkType::ETHERNET).unwrap_err();
    assert!(matches!(e, FilterError::TooLong { addresses: 20, .. }), "{e}");
    assert!(e.to_string().contains("besides 20 addresses in sets"), "{e}");
    let deep = format!("{}ip{}", "(".repeat(15_000), ")".repeat(15_000));
    assert!(error(&deep, LinkType::ETHERNET).len() < 400);
    let _ = Filter::compile(&format!("{}ip", "not ".repeat(8000)), LinkType::ETHERNET);
    let _ = Filter::compile(&format!("ip[0]{} = 1", "+1".repeat(10_000)), LinkType::ETHERNET);
}

/// libpcap compiles the costliest filters that strangers may state in bounded time.
#[test]
fn filters_of_strangers_are_compiled_in_bounded_time() {
    use flame_filter::PacketFilter;
    use flame_plan::{MAX_SHOWN_VALUES, MAX_SHOWN_WORDS, ShownFilter};
    let many = |term: &str| vec![term; MAX_SHOWN_VALUES / term.split(' ').count().min(2)].join(" or ");
    let different =
        |from: &str| (0..MAX_SHOWN_VALUES).map(|i| format!("{from}{i}")).collect::<Vec<_>>().join(" or ");
    let texts = [
        different("host 10.1.2."),
        different("host ::"),
        different("port "),
        many("not vlan and ip6 proto 6"),
        different("vlan or tcp port "),
        format!("{}ip", "not ".repeat(MAX_SHOWN_WORDS - 1)),
        format!("ip[0]{} = 1", "+1".repeat(MAX_SHOWN_VALUES - 2)),
        "vlan ".repeat(100),
        "mpls and ".repeat(200) + "ip",
    ];
    for text in texts {
        let Ok(Some(filter)) = ShownFilter::parse(&text) else { continue };
        let started = std::time::Instant::now();
        let result = PacketFilter::compile(&filter, LinkType::ETHERNET).map(|_| ());
        assert!(started.elapsed().as_millis() < 1000, "{:?} for {text}: {result:?}", started.elapsed());
    }
}

#[test]
fn vlan_and_lengths() {
    let mut vlan = [0u8; 64];
    vlan[12..18].copy_from_slice(&[0x81, 0, 0, 5, 8, 0]);
    vlan[18] = 0x45;
    vlan[27] = 17;
    let ok = |expr: &str, bytes: &[u8], wire: u32| {
        Filter::compile(expr, LinkType::ETHERNET).unwrap().matches(bytes, wire)
    };
    assert!(ok("vlan 5 and udp", &vlan, 64) && !ok("vlan 6", &vlan, 64) && !ok("udp", &vlan, 64));
    assert!(ok("greater 1500", &vlan, 1500) && !ok("greater 1500", &vlan, 64));
    assert!(!ok("ip", &vlan[..13], 64));
}

/// Packets of IPv6, whose family differs by system, are found, in either byte order.
#[test]
fn loopback_packets_of_any_system() {
    for link in [LinkType::NULL, LinkType::LOOP] {
        let f = |expr: &str| Filter::compile(expr, link).unwrap();
        let (tcp, ip6, both) = (f("tcp port 80"), f("ip6"), f("ip6 or udp or (ip and tcp dst port 80)"));
        let (hidden, word) = (f("not ip6 and not host fe80::1"), f("link[0:4] > 0"));
        for family in [2, 10, 23, 24, 28, 30, 7] {
            for family in [u32::to_le_bytes(family), u32::to_be_bytes(family)] {
                let value = u32::from_be_bytes(family).min(u32::from_le_bytes(family));
                let mut packet = [0u8; 84];
                packet[..4].copy_from_slice(&family);
                (packet[4], packet[13], packet[27]) = (0x45, 6, 80);
                let (is_ip4, is_ip6) = (value == 2, value != 2 && value != 7);
                let passes = |f: &Filter| f.matches(&packet, 84);
                assert_eq!(passes(&tcp), is_ip4, "{link:?} {family:?}");
                assert_eq!((passes(&ip6), passes(&hidden)), (is_ip6, !is_ip6), "{link:?} {family:?}");
                assert_eq!(passes(&both), is_ip4 || is_ip6, "{link:?} {family:?}");
                assert!(passes(&word));
            }
        }
    }
}

/// `inbound` and `outbound` are evaluated where the header states the direction, and refused elsewhere.
#[test]
fn directions_are_evaluated_or_refused() {
    for link in LinkType::DECODED {
        for (word, other) in [("inbound", "outbound"), ("outbound", "inbound")] {
            let result = Filter::compile(&format!("ip or not {word}"), link);
            // The place of the direction, and its values for packets that were received and sent.
            let stated = match link {
                LinkType::LINUX_SLL => Some((1, [0, 4])),
                LinkType::LINUX_SLL2 => Some((10, [0, 4])),
                LinkType::PFLOG => Some((60, [1, 2])),
                LinkType::PPP_PPPD => Some((0, [0, 1])),
                _ => None,
            };
            match stated {
                Some((place, values)) => {
                    let (f, other) =
                        (Filter::compile(word, link).unwrap(), Filter::compile(other, link).unwrap());
                    for sent in [true, false] {
                        let mut packet = [0u8; 64];
                        packet[place] = values[usize::from(sent)];
                        assert_eq!(f.matches(&packet, 64), sent == (word == "outbound"), "{link:?}");
                        assert_eq!(other.matches(&packet, 64), sent != (word == "outbound"), "{link:?}");
                    }
                }
                // Other words are not known there either.
                None if Filter::compile("ip", link).is_err() => assert!(result.is_err()),
                None => {
                    let e = result.unwrap_err();
                    assert!(matches!(e, FilterError::Link { .. }), "{e}");
                    let e = e.to_string();
                    let number = format!("link type {}", link.0);
                    assert!(e.contains(&format!("`{word}`")) && e.contains(&number), "{e}");
                }
            }
        }
    }
}

#[test]
fn errors_name_the_word_and_the_link_type() {
    for (expr, link, word) in [
        ("tcp or (vlan 5 and ip)", LinkType::RAW, "vlan"),
        ("host 10.0.0.1 and broadcast", LinkType::LINUX_SLL, "broadcast"),
        ("ip or ether src 1:2:3:4:5:6 or tcp", LinkType::RAW, "01:02:03:04:05:06"),
        ("tcp and mpls and arp", LinkType::ETHERNET, "arp"),
        ("ip and type mgt", LinkType::ETHERNET, "mgt"),
        ("udp or ip", LinkType::NFLOG, "udp"),
        ("ip or vlan 4096", LinkType::ETHERNET, "4096"),
        ("not ether[12:2] = 0x800", LinkType::LINUX_SLL2, "ether"),
    ] {
        let e = error(expr, link);
        assert!(e.contains(&format!("`{word}`")) && e.contains(&format!("link type {}", link.0)), "{e}");
    }
    for word in ["protochain 6", "byte 3 = 4", "gateway 10.0.0.1", "ifname eth0", "vxlan 5", "rnr 5"] {
        let e = error(&format!("tcp or ip6 and {word}"), LinkType::ETHERNET);
        let word = word.split(' ').next().unwrap();
        assert!(e.contains(&format!("`{word}` is refused: ")), "{e}");
    }
}

/// libpcap knows every word that it receives: it looks up no other.
#[test]
fn no_word_is_looked_up() {
    let dead = pcap::Capture::dead(pcap::Linktype(1)).unwrap();
    for word in flame_plan::filter_words() {
        // Names of numbers are hosts.
        if let Err(e) = dead.compile(&format!("host {word}"), false) {
            assert!(e.to_string().contains("syntax error"), "{word}: {e}");
        }
    }
    for text in
        ["host beacon", "port data", "net null", "proto auth", "ether host ack", "src mgt", "host vxlan"]
    {
        assert!(
            matches!(Filter::compile(text, LinkType::ETHERNET), Err(FilterError::Syntax { .. })),
            "{text}"
        );
    }
    assert!(Filter::compile("type mgt subtype beacon or dir tods", LinkType::IEEE802_11).is_ok());
}
