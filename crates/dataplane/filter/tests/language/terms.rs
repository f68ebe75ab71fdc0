//! The terms of the language.

use super::{Layers, Test, and, field, or, test};

/// The sides of a packet for which a term looks.
#[derive(Clone, Copy, PartialEq)]
pub enum Side {
    Either,
    Source,
    Destination,
    Both,
}

/// Combines the tests of source and destination.
fn sides(side: Side, one: impl Fn(bool) -> Test) -> Test {
    match side {
        Side::Source => one(true),
        Side::Destination => one(false),
        Side::Either => or(one(true), one(false)),
        Side::Both => and(one(true), one(false)),
    }
}

pub const IPV4: u32 = 0x0800;
pub const IPV6: u32 = 0x86dd;
pub const ARP: u32 = 0x0806;
pub const RARP: u32 = 0x8035;

/// Returns the number of the EtherType or IP protocol that a word names.
pub fn ethertype(word: &str) -> Option<u32> {
    Some(match word {
        "ip" => IPV4,
        "ip6" => IPV6,
        "arp" => ARP,
        "rarp" => RARP,
        _ => return None,
    })
}

/// Returns the protocol number of a word, and whether it is one of IPv4 only.
pub fn protocol(word: &str) -> Option<(u32, bool)> {
    Some(match word {
        "icmp" => (1, true),
        "igmp" => (2, true),
        "tcp" => (6, false),
        "igrp" => (9, true),
        "udp" => (17, false),
        "esp" => (50, false),
        "ah" => (51, false),
        "pim" => (103, false),
        "vrrp" | "carp" => (112, true),
        "sctp" => (132, false),
        _ => return None,
    })
}

/// `ether proto KIND`.
pub fn link(layers: Layers, kind: u32) -> Test {
    let payload = layers.payload();
    let version = match kind {
        IPV4 => field(payload, 1, 0xf0, 0x40),
        IPV6 => field(payload, 1, 0xf0, 0x60),
        _ => test(|_| Some(false)),
    };
    match layers.kind {
        None => version,
        Some(_) if layers.labels > 0 => and(field(payload - 2, 1, 1, 1), version),
        Some(at) => field(at + 4 * layers.tags, 2, u32::MAX, kind),
    }
}

/// `ip proto NUMBER`.
pub fn ip_proto(layers: Layers, number: u32) -> Test {
    and(link(layers, IPV4), field(layers.payload() + 9, 1, u32::MAX, number))
}

/// `ip6 proto NUMBER`.
pub fn ip6_proto(layers: Layers, number: u32) -> Test {
    let next = |at, value| field(layers.payload() + at, 1, u32::MAX, value);
    and(link(layers, IPV6), or(next(6, number), and(next(6, 44), next(40, number))))
}

/// `proto NUMBER`.
pub fn proto(layers: Layers, number: u32) -> Test {
    or(ip_proto(layers, number), ip6_proto(layers, number))
}

/// `host`, or `net` with a mask, for a kind of packet or those that apply.
pub fn host(layers: Layers, kind: Option<u32>, side: Side, address: u32, mask: u32) -> Test {
    let of = |kind: u32| {
        let (source, destination) = if kind == IPV4 { (12, 16) } else { (14, 24) };
        sides(side, |is_source| {
            let at = layers.payload() + if is_source { source } else { destination };
            and(link(layers, kind), field(at, 4, mask, address))
        })
    };
    match kind {
        Some(kind) => of(kind),
        None if layers.labels > 0 => of(IPV4),
        None => or(or(of(IPV4), of(ARP)), of(RARP)),
    }
}

/// `host` or `net` of IPv6.
pub fn host6(layers: Layers, side: Side, address: u128, mask: u128) -> Test {
    sides(side, |is_source| {
        let at = layers.payload() + if is_source { 8 } else { 24 };
        let word = |n: u64| {
            let shift = 96 - 32 * n as u32;
            field(at + 4 * n, 4, (mask >> shift) as u32, (address >> shift) as u32)
        };
        (0..4).fold(link(layers, IPV6), |all, n| and(all, word(n)))
    })
}

/// `ether host`.
pub fn ether_host(side: Side, address: [u8; 6]) -> Test {
    sides(side, |is_source| {
        let at = if is_source { 6 } else { 0 };
        test(move |p| Some(p.bytes.get(at..at + 6)? == address))
    })
}

/// `port` or `portrange` of a transport protocol, or of all that have ports.
pub fn port(layers: Layers, number: Option<u32>, side: Side, from: u32, to: u32) -> Test {
    let numbers = number.map_or(vec![6, 17, 132], |number| vec![number]);
    let payload = layers.payload();
    let within = |at: Position| {
        sides(side, |is_source| {
            let behind = if is_source { 0 } else { 2 };
            test(move |p| {
                let (base, more) = position(p, payload, at)?;
                let port = p.number(base + u64::from(more) + behind, 2)?;
                Some((from..=to).contains(&port))
            })
        })
    };
    let any = |of: &dyn Fn(u32) -> Test| numbers.iter().map(|number| of(*number)).reduce(or).unwrap();
    let ip = |number| {
        let is_first = field(payload + 6, 2, 0x1fff, 0);
        and(and(field(payload + 9, 1, u32::MAX, number), is_first), within(Position::BehindIpv4))
    };
    let ip6 = |number| and(field(payload + 6, 1, u32::MAX, number), within(Position::BehindIpv6));
    or(and(link(layers, IPV4), any(&ip)), and(link(layers, IPV6), any(&ip6)))
}

/// The place from which bytes are counted.
#[derive(Clone, Copy)]
pub enum Position {
    Link,
    Network,
    BehindIpv4,
    BehindIpv6,
}

/// Returns a place, and the part of it that depends on the packet.
pub fn position(p: &super::Packet, payload: u64, position: Position) -> Option<(u64, u32)> {
    Some(match position {
        Position::Link => (0, 0),
        Position::Network => (payload, 0),
        Position::BehindIpv4 => (payload, 4 * (p.number(payload, 1)? & 15)),
        Position::BehindIpv6 => (payload + 40, 0),
    })
}

/// The test that an access to bytes of `word` includes, and the place from which they are counted.
pub fn access(layers: Layers, word: &str) -> Option<(Option<Test>, Position)> {
    let is_first = || field(layers.payload() + 6, 2, 0x1fff, 0);
    Some(match word {
        "link" | "ether" => (None, Position::Link),
        "icmp6" => {
            let is_icmp6 = field(layers.payload() + 6, 1, u32::MAX, 58);
            (Some(and(link(layers, IPV6), is_icmp6)), Position::BehindIpv6)
        }
        _ => match (ethertype(word), protocol(word)) {
            (Some(kind), _) => (Some(link(layers, kind)), Position::Network),
            (_, Some((number, _))) => (Some(and(ip_proto(layers, number), is_first())), Position::BehindIpv4),
            _ => return None,
        },
    })
}

/// `vlan`, with the number of a VLAN. The layers of all further terms are those behind the tag.
pub fn vlan(layers: &mut Layers, number: Option<u32>) -> Test {
    let mut tag = or(or(link(*layers, 0x8100), link(*layers, 0x88a8)), link(*layers, 0x9100));
    if let Some(number) = number {
        tag = and(tag, field(layers.payload(), 2, 0xfff, number));
    }
    layers.tags += 1;
    tag
}

/// `mpls`, with a label. The layers of all further terms are those behind it.
pub fn mpls(layers: &mut Layers, label: Option<u32>) -> Test {
    let mut entry = match layers.labels {
        0 => link(*layers, 0x8847),
        // There is a further entry.
        _ => field(layers.payload() - 2, 1, 1, 0),
    };
    if let Some(label) = label {
        entry = and(entry, field(layers.payload(), 4, 0xffff_f000, label << 12));
    }
    layers.labels += 1;
    entry
}

/// `outbound`, of a cooked packet.
pub fn outbound(layers: Layers) -> Option<Test> {
    let (at, size) = layers.direction?;
    Some(field(at, size, u32::MAX, 4))
}

/// `broadcast`, `ip broadcast`.
pub fn broadcast(layers: Layers, word: &str) -> Option<Test> {
    let is = |address| field(layers.payload() + 16, 4, u32::MAX, address);
    match word {
        "" | "ether" | "link" => Some(ether_host(Side::Destination, [0xff; 6])),
        "ip" => Some(and(link(layers, IPV4), or(is(0), is(u32::MAX)))),
        _ => None,
    }
}

/// `multicast`, `ip multicast`, `ip6 multicast`.
pub fn multicast(layers: Layers, word: &str) -> Option<Test> {
    let payload = layers.payload();
    match word {
        "" | "ether" | "link" => Some(field(0, 1, 1, 1)),
        "ip" => Some(and(link(layers, IPV4), field(payload + 16, 4, 0xf000_0000, 0xe000_0000))),
        "ip6" => Some(and(link(layers, IPV6), field(payload + 24, 1, 0xff, 0xff))),
        _ => None,
    }
}
