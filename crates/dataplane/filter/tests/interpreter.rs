//! Compares filters with libpcap's own compiler and interpreter: random expressions over random packets.
//!
//! libpcap receives the text as written, and optimizes as it does for tcpdump, because that determines which
//! bytes of a truncated packet are read. The filter comes from the normalized text, as machine code.
//! `FLAME_FILTERS` is the number of expressions (2,000; 100,000 in the long run).

use flame_abi::LinkType;
use flame_filter::Filter;
use pcap::{Capture, Linktype};

struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len() as u64) as usize]
    }
}

fn address(n: &mut Numbers) -> String {
    format!("10.{}.{}.{}", n.below(3), n.below(2), n.below(4))
}

fn term(n: &mut Numbers) -> String {
    let side = ["", "src ", "dst ", "src or dst ", "src and dst "];
    match n.below(16) {
        0 => n
            .of(&["ip", "ip6", "tcp", "udp", "icmp", "icmp6", "arp", "sctp", "vlan", "mpls", "ah", "igmp"])
            .to_owned(),
        1 => format!("{}host {}", n.of(&side), address(n)),
        2 => format!("{}net 10.{}.0.0/{}", n.of(&side), n.below(3), 16),
        3 => format!("{}{}port {}", n.of(&["", "tcp ", "udp "]), n.of(&side), n.below(4) + 52),
        4 => format!("{}portrange {}-{}", n.of(&["", "tcp ", "udp "]), 50 + n.below(3), 53 + n.below(9)),
        5 => format!("ip proto {}", n.below(20)),
        6 => format!("{} {}", n.of(&["greater", "less"]), 40 + n.below(60)),
        7 => format!("tcp[tcpflags]&(tcp-syn|tcp-ack){}tcp-syn", n.of(&["==", "!="])),
        8 => format!(
            "{}[{}:{}]{}{}",
            n.of(&["ip", "tcp", "udp", "ether", "icmp"]),
            n.below(24),
            n.of(&["1", "2", "4"]),
            n.of(&["=", ">", "<=", "!=", "&3=", ">>2="]),
            n.below(300)
        ),
        9 => format!("ip6 {}host fe80::{:x}", n.of(&["src ", "dst ", ""]), n.below(4)),
        10 => {
            format!("ether {}{:02x}:0:0:0:0:{:02X}", n.of(&["src ", "dst ", "host "]), n.below(3), n.below(3))
        }
        11 => n
            .of(&["ip broadcast", "ether multicast", "ip multicast", "ether broadcast", "ip6 multicast"])
            .to_owned(),
        12 => format!("len{}0x{:x}", n.of(&[">", "<", "="]), 40 + n.below(60)),
        13 => format!("vlan {} and {}", n.below(4), n.of(&["ip", "tcp port 53", "udp"])),
        14 => format!("ether proto 0x{:04x}", [0x800, 0x86dd, 0x806][n.below(3) as usize]),
        _ => format!("icmp[icmptype]={}", n.of(&["icmp-echo", "icmp-unreach", "0"])),
    }
}

fn expression(n: &mut Numbers, depth: u32) -> String {
    match n.below(5) {
        0 | 1 if depth < 3 => {
            let (a, b) = (expression(n, depth + 1), expression(n, depth + 1));
            format!("({a}) {} ({b})", n.of(&["and", "or", "&&", "||"]))
        }
        2 => format!("{}({})", n.of(&["not ", "!", "  not"]), term(n)),
        _ => term(n),
    }
}

/// Returns a packet similar to those that the terms match, sometimes cut or changed.
fn packet(n: &mut Numbers) -> Vec<u8> {
    let mut p: Vec<u8> =
        (0..12).map(|i| if i % 6 == 0 || i % 6 == 5 { n.below(3) as u8 } else { 0 }).collect();
    if n.below(4) == 0 {
        p.extend([0x81, 0, 0, n.below(4) as u8]);
    }
    let proto = [6u8, 17, 1, 58, 132, 2][n.below(6) as usize];
    match n.below(5) {
        0 => {
            p.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, proto, 64]);
            for _ in 0..2 {
                p.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n.below(4) as u8]);
            }
        }
        1 => p.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 0, 0, 0, 0, 0, 1, 10, 0, 0, 1]),
        _ => {
            let fragment = if n.below(8) == 0 { 9 } else { 0 };
            p.extend([8, 0, 0x45 + n.below(2) as u8, 0, 0, 60, 0, 1, 0, fragment, 64, proto, 0, 0]);
            for _ in 0..2 {
                p.extend([10, n.below(3) as u8, n.below(2) as u8, n.below(4) as u8]);
            }
            if p[p.len() - 20] & 1 == 0 {
                p.extend([1; 4]);
            }
        }
    }
    p.extend([0, 50 + n.below(8) as u8, 0, 50 + n.below(8) as u8]);
    p.extend((0..n.below(60)).map(|_| n.next() as u8));
    if n.below(3) == 0 {
        let at = n.below(p.len() as u64) as usize;
        p[at] = n.next() as u8;
    }
    p.truncate((20 + n.below(100)) as usize);
    p
}

#[test]
fn libpcap_agrees() {
    let tries = std::env::var("FLAME_FILTERS").ok().and_then(|n| n.parse().ok()).unwrap_or(2000u32);
    let mut n = Numbers(7);
    let dead = Capture::dead(Linktype(1)).unwrap();
    let (mut compiled, mut matched, mut compared) = (0, 0u64, 0u64);
    for _ in 0..tries {
        let text = expression(&mut n, 0);
        let theirs = dead.compile(&text, true);
        let ours = Filter::compile(&text, LinkType::ETHERNET);
        let (theirs, ours) = match (theirs, ours) {
            (Ok(theirs), Ok(ours)) => (theirs, ours),
            // Both may find an error: the optimizer refuses expressions that match nothing.
            (_, Err(e)) => {
                assert!(dead.compile(&text, true).is_err(), "{e}");
                continue;
            }
            (Err(e), Ok(_)) => panic!("{text}: libpcap refuses it: {e}"),
        };
        compiled += 1;
        for _ in 0..20 {
            let packet = packet(&mut n);
            let expected = theirs.filter(&packet);
            assert_eq!(ours.matches(&packet, packet.len() as u32), expected, "{text} over {packet:02x?}");
            matched += u64::from(expected);
            compared += 1;
        }
    }
    println!("{compiled} expressions, {compared} comparisons, {matched} packets matched");
    assert!(compiled > tries * 3 / 4 && matched > compared / 20);
}
