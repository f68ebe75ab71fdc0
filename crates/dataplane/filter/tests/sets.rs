//! Addresses that are joined by `or` are looked up in a set, which means what they mean.

use super::language::{Expression, Layers, Packet};
use super::random::{Numbers, packet};
use flame_abi::LinkType;
use flame_filter::{Filter, Program};

/// Returns a term, with qualifiers or as a value with the qualifiers of the term before.
fn term(n: &mut Numbers, side: &str, is_bare: bool) -> String {
    let (a, b, c) = (n.below(2), n.below(2), n.below(3));
    let (kind, value) = match n.below(if is_bare { 3 } else { 6 }) {
        0 | 1 => ("host", format!("10.{a}.{b}.{c}")),
        2 => ("host", format!("fe80::{c:x}")),
        3 => ("net", format!("10.{a}.{b}.0/31")),
        4 => ("net", format!("10.{a}")),
        _ => ("net", format!("fe80::{}/127", 2 * b)),
    };
    if is_bare { value } else { format!("{side}{kind} {value}") }
}

fn group(n: &mut Numbers, side: &str) -> String {
    let mut terms = vec![format!("{side}host 10.9.9.9")];

    let is_bare = n.below(2) == 0;
    terms.extend((0..15 + n.below(9)).map(|_| term(n, side, is_bare)));
    terms.join([" or ", " || "][n.below(2) as usize])
}

const CONTEXTS: [&str; 11] = [
    "GROUP",
    "not (GROUP)",
    "tcp and (GROUP) or udp",
    "GROUP and tcp",
    "ip6 or GROUP and not udp",
    "tcp and GROUP",
    "not GROUP",
    "vlan and (GROUP)",
    "mpls and (GROUP)",
    "arp or GROUP or SECOND",
    "(GROUP) and not (SECOND)",
];
const SIDES: [&str; 5] = ["", "src ", "dst ", "src or dst ", "src and dst "];

#[test]
fn sets_mean_what_their_addresses_mean() {
    let mut n = Numbers(5);
    let (mut matched, mut sets) = (0, 0);
    for _ in 0..600 {
        let (one, other) = (n.of(&SIDES), n.of(&SIDES));
        let context = n.of(&CONTEXTS);
        let text = context.replace("GROUP", &group(&mut n, one)).replace("SECOND", &group(&mut n, other));
        let filter = Filter::compile(&text, LinkType::ETHERNET).unwrap_or_else(|e| panic!("{text}: {e}"));
        let program = Program::compile(&text, LinkType::ETHERNET).unwrap();
        sets += u32::from(program.len() < 150);
        let expected = Expression::read(&text, Layers::ETHERNET).unwrap();
        for _ in 0..60 {
            let packet = packet(&mut n);
            // A packet that ends within an address does not pass, but may where addresses are read one by
            // one.
            if packet.bytes.len() < packet.wire_len as usize || packet.bytes.len() < 100 {
                continue;
            }
            let is_right = expected.matches(&packet);
            matched += u32::from(is_right);
            assert_eq!(filter.matches(&packet.bytes, packet.wire_len), is_right, "{text} {packet:02x?}");
            let result = flame_filter::reference::run(&program, &packet.bytes, packet.wire_len);
            assert_eq!(result != 0, is_right, "the interpreter: {text}");
        }
    }
    assert!(matched > 500 && sets > 300, "the comparison is idle: {matched} packets, {sets} sets");
}

fn frame(src: [u8; 4], dst: [u8; 4]) -> Packet {
    let mut bytes = vec![0; 12];
    bytes.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
    bytes.extend(src.into_iter().chain(dst));
    bytes.extend([0; 26]);
    Packet { wire_len: bytes.len() as u32, bytes }
}

/// Tens of thousands of addresses take few instructions, and neighbours of theirs do not pass.
#[test]
fn thousands_of_addresses_are_one_test() {
    let address = |i: u32| (0x0a00_0000 + i * 3).to_be_bytes();
    let text: Vec<String> = (0..40_000).map(|i| std::net::Ipv4Addr::from(address(i)).to_string()).collect();
    let text = format!("dst host ( {} )", text.join(" or "));
    let program = Program::compile(&text, LinkType::ETHERNET).unwrap();
    assert!(program.len() < 20, "{} instructions", program.len());
    let filter = Filter::compile(&text, LinkType::ETHERNET).unwrap();
    for i in [0u32, 1, 2, 777, 39_999, 40_000] {
        for (more, is_inside) in [(0, i < 40_000), (1, false), (2, false)] {
            let dst = (u32::from_be_bytes(address(i)) + more).to_be_bytes();
            let one = frame([10, 0, 0, 0], dst);
            assert_eq!(filter.matches(&one.bytes, one.wire_len), is_inside, "{dst:?}");
        }
    }
}

/// Values in the text that equal the addresses in place of sets are no addresses of sets.
#[test]
fn values_of_the_text_are_not_taken_for_sets() {
    let hosts: Vec<String> = (0..20).map(|i| format!("host 10.0.0.{i}")).collect();
    // 42.92.0.0 is the address that stands for the first set.
    let text = format!("{} or src host 42.92.0.0 or ip[12:4] = 0x3b6d0000", hosts.join(" or "));
    let filter = Filter::compile(&text, LinkType::ETHERNET).unwrap();
    for (src, passes) in
        [([10, 0, 0, 7], true), ([42, 92, 0, 0], true), ([0x3b, 0x6d, 0, 0], true), ([10, 0, 0, 20], false)]
    {
        let one = frame(src, [1, 1, 1, 1]);
        assert_eq!(filter.matches(&one.bytes, one.wire_len), passes, "{src:?}");
    }
}

/// An expression with sets has the faults of the expression.
#[test]
fn faults_are_named_with_the_addresses_of_the_text() {
    let hosts: Vec<String> = (0..20).map(|i| format!("host 10.0.0.{i}")).collect();
    let error = |text: String, link| Filter::compile(&text, link).unwrap_err().to_string();
    let e = error(format!("({}) and vlan and inbound", hosts.join(" or ")), LinkType::ETHERNET);
    assert!(e.contains("10.0.0.0") && e.contains("`inbound`") && !e.contains("42.92."), "{e}");
    let e = error(format!("({}) and tcp tcp", hosts.join(" or ")), LinkType::ETHERNET);
    assert!(e.contains("10.0.0.0") && e.contains("syntax error"), "{e}");
    // An address with bits behind its mask is left to libpcap, which names it.
    let nets: Vec<String> = (0..20).map(|i| format!("net 10.0.{i}.1/24")).collect();
    let e = error(nets.join(" or "), LinkType::ETHERNET);
    assert!(e.contains("non-network bits set"), "{e}");
}
