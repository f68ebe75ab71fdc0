//! Random expressions and packets that resemble each other.

use super::language::Packet;

/// Random numbers (SplitMix64), the same in each run.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

const SIDES: [&str; 6] = ["", "", "src ", "dst ", "src or dst ", "dst and src "];

fn address(n: &mut Numbers) -> String {
    format!("10.{}.{}.{}", n.below(2), n.below(2), n.below(3))
}

/// Returns several values that share their qualifiers.
fn values(n: &mut Numbers, one: fn(&mut Numbers) -> String) -> String {
    match n.below(8) {
        0 => format!("{} or {}", one(n), one(n)),
        1 => format!("({} {} {})", one(n), n.of(&["or", "and"]), one(n)),
        2 => format!("{} and not {}", one(n), one(n)),
        _ => one(n),
    }
}

fn network(n: &mut Numbers) -> String {
    let (a, b) = (n.below(2), n.below(2));
    match n.below(6) {
        0 => "10".to_owned(),
        1 => format!("10.{a}"),
        2 => format!("10.{a}.{b}"),
        3 => format!("10.{a}.0.0/16"),
        4 => format!("10.{a}.{b}.0/31"),
        _ => format!("0.0.0.0/{}", n.of(&[0, 1])),
    }
}

fn port(n: &mut Numbers) -> String {
    (50 + n.below(6)).to_string()
}

fn range(n: &mut Numbers) -> String {
    format!("{}-{}", 48 + n.below(9), 48 + n.below(9))
}

fn number(n: &mut Numbers) -> String {
    n.of(&["1", "2", "6", "17", "44", "58", "132", "0x29"]).to_owned()
}

fn mac(n: &mut Numbers) -> String {
    format!("{:02x}:0:0:0:0:{:X}", n.below(3), n.below(3))
}

fn sum(n: &mut Numbers, depth: u32) -> String {
    let layer = ["ip", "ip6", "arp", "tcp", "udp", "sctp", "icmp", "icmp6", "ether", "link"];
    match n.below(if depth > 2 { 4 } else { 8 }) {
        0 | 1 => {
            let (layer, at, size) = (n.of(&layer), n.below(24), n.of(&[":1", ":2", ":4", "", ""]));
            format!("{layer}[{at}{size}]")
        }
        2 => n.of(&["len", "0", "1", "4", "0x0f", "255", "tcp-syn", "icmp-echo"]).to_owned(),
        3 => n.of(&["tcp[tcpflags]", "icmp[icmptype]", "ip[6:2]", "ip[ip[0] & 15]"]).to_owned(),
        4 => format!("({})", sum(n, depth + 1)),
        5 => format!("- {}", sum(n, depth + 3)),
        _ => {
            let operator = n.of(&["+", "-", "*", "/", "%", "&", "|", "^", "&", "<<", ">>"]);
            let right = match operator {
                "/" | "%" | "<<" | ">>" => n.of(&["1", "2", "3", "4"]).to_owned(),
                _ => sum(n, depth + 1),
            };
            format!("{} {operator} {right}", sum(n, depth + 1))
        }
    }
}

fn term(n: &mut Numbers) -> String {
    let transport = ["", "", "tcp ", "udp ", "sctp "];
    match n.below(21) {
        20 => n.of(&["inbound", "outbound", "ip", "tcp"]).to_owned(),
        0 | 1 => {
            let words = ["ip", "ip6", "arp", "rarp", "tcp", "udp", "icmp", "icmp6", "sctp", "ah", "igmp"];
            n.of(&words).to_owned()
        }
        2 | 3 => format!("{}host {}", n.of(&SIDES), values(n, address)),
        4 => format!("{}{}{}", n.of(&["ip ", "arp ", "rarp "]), n.of(&["src ", "host "]), values(n, address)),
        5 => format!("{}net {}", n.of(&SIDES), values(n, network)),
        6 => format!("{}{}port {}", n.of(&transport), n.of(&SIDES), values(n, port)),
        7 => format!("{}{}portrange {}", n.of(&transport), n.of(&SIDES), range(n)),
        8 => format!("{}proto {}", n.of(&["ip ", "ip6 ", ""]), values(n, number)),
        9 => format!("{} {}", n.of(&["greater", "less"]), 40 + n.below(60)),
        10 => format!("{}host {}", n.of(&SIDES), values(n, |n| format!("fe80::{:x}", n.below(3)))),
        11 => format!("ip6 {}net fe80::/{}", n.of(&SIDES), n.of(&[0, 16, 64])),
        12 => format!("ether {}{}", n.of(&["src ", "dst ", "host "]), values(n, mac)),
        13 => {
            let words = ["ip broadcast", "ip multicast", "ip6 multicast", "ether multicast", "broadcast"];
            n.of(&words).to_owned()
        }
        14 => format!("ether proto {}", n.of(&["0x800", "0x86dd", "0x806", "34887"])),
        15 => n.of(&["vlan", "vlan 1", "vlan 2", "mpls", "mpls 1"]).to_owned(),
        16 => format!("{} and {}", n.of(&["vlan", "vlan 1", "mpls"]), n.of(&["ip", "port 53", "ip6"])),
        _ => {
            let relation = n.of(&["=", "==", "!=", "<", ">", "<=", ">="]);
            format!("{} {relation} {}", sum(n, 0), sum(n, 2))
        }
    }
}

pub fn expression(n: &mut Numbers, depth: u32) -> String {
    match n.below(7) {
        0 | 1 if depth < 3 => {
            let (a, b) = (expression(n, depth + 1), expression(n, depth + 1));
            format!("({a}) {} ({b})", n.of(&["and", "or", "&&", "||"]))
        }
        2 if depth < 3 => {
            let (a, b) = (expression(n, depth + 1), expression(n, depth + 1));
            format!("{a} {} {b}", n.of(&["and", "or", "and not"]))
        }
        3 => format!("{}({})", n.of(&["not ", "!", "  not"]), expression(n, depth + 1)),
        _ => term(n),
    }
}

/// Returns a frame similar to those that the terms match, sometimes cut or changed.
pub fn packet(n: &mut Numbers) -> Packet {
    let mut p: Vec<u8> =
        (0..12).map(|i| if i % 6 == 0 || i % 6 == 5 { n.below(3) as u8 } else { 0 }).collect();
    if n.below(16) == 0 {
        p[..6].fill(0xff);
    }
    while n.below(4) == 0 {
        p.extend([n.of(&[0x81, 0x88, 0x91]), 0, 0, n.below(4) as u8]);
        let at = p.len() - 3;
        p[at] = if p[at - 1] == 0x88 { 0xa8 } else { 0 };
    }
    let proto = n.of(&[6u8, 17, 1, 58, 132, 2, 44]);
    let has_labels = n.below(6) == 0;
    let kind = n.of(&[4, 4, 4, 6, 0]);
    match kind {
        _ if has_labels => p.extend([0x88, 0x47]),
        4 => p.extend([8, 0]),
        6 => p.extend([0x86, 0xdd]),
        _ => p.extend([n.of(&[0x08, 0x80]), 0x06]),
    }
    if has_labels {
        while n.below(3) == 0 {
            p.extend([0, 0, n.below(2) as u8 * 16, 9]);
        }
        p.extend([0, 0, n.below(2) as u8 * 16 + 1, 9]);
    }
    match kind {
        6 => {
            p.extend([0x60, 0, 0, 0, 0, 24, proto, 64]);
            for _ in 0..2 {
                p.extend([
                    n.of(&[0xfe, 0xff]),
                    0x80,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    n.below(3) as u8,
                ]);
            }
            if proto == 44 {
                p.extend([n.of(&[6, 17, 58]), 0, 0, 0, 0, 0, 0, 1]);
            }
        }
        4 => {
            let (fragment, words) = (if n.below(6) == 0 { 9 } else { 0 }, n.of(&[5, 5, 6]));
            p.extend([0x40 + words, 0, 0, 60, 0, 1, 0, fragment, 64, proto, 0, 0]);
            for _ in 0..2 {
                let first = n.of(&[10, 10, 10, 10, 10, 10, 10, 10, 224, 240, 255]);
                let rest = [n.below(2) as u8, n.below(2) as u8, n.below(3) as u8];
                p.push(first);
                p.extend(if first == 255 { [255; 3] } else { rest });
            }
            p.extend(vec![1; 4 * usize::from(words - 5)]);
        }
        _ => {
            p.extend([0, 1, 8, 0, 6, 4, 0, 1, 0, 0, 0, 0, 0, 1, 10, 0, 0, n.below(3) as u8]);
            p.extend([0, 0, 0, 0, 0, 2, 10, 0, 0, n.below(3) as u8]);
        }
    }
    p.extend([0, 50 + n.below(8) as u8, 0, 50 + n.below(8) as u8]);
    p.extend((0..n.below(60)).map(|_| n.next() as u8));
    if n.below(4) == 0 {
        let at = n.below(p.len() as u64) as usize;
        p[at] = n.next() as u8;
    }
    let wire_len = p.len() as u32;
    if n.below(3) == 0 {
        p.truncate((10 + n.below(90)) as usize);
    }
    Packet { bytes: p, wire_len }
}
