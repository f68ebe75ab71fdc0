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
            let without = link == LinkType::NFLOG || (281..=285).contains(&link.0);
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
    let f = Filter::compile(&hosts(100), LinkType::ETHERNET).unwrap();
    assert!(!f.matches(&[0; 60], 60));
    assert!(matches!(
        Filter::compile(&hosts(1200), LinkType::ETHERNET),
        Err(FilterError::Program { source: ProgramError::TooLong { .. }, .. })
    ));
    assert!(matches!(Filter::compile(&hosts(4000), LinkType::ETHERNET), Err(FilterError::TooLong { .. })));
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

#[test]
fn loopback_packets_of_either_byte_order() {
    let f = |expr: &str| Filter::compile(expr, LinkType::NULL).unwrap();
    let (tcp, ip6, both) = (f("tcp port 80"), f("ip6"), f("ip6 or udp or tcp dst port 80"));
    for family in [[2, 0, 0, 0], [0, 0, 0, 2]] {
        let mut packet = [0u8; 44];
        packet[..4].copy_from_slice(&family);
        (packet[4], packet[13], packet[27]) = (0x45, 6, 80);
        assert!(tcp.matches(&packet, 44) && both.matches(&packet, 44) && !ip6.matches(&packet, 44));
        packet[13] = 1;
        assert!(!tcp.matches(&packet, 44) && !both.matches(&packet, 44));
    }
}
