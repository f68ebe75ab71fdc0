//! What a publisher keeps of addresses that are changed.

use flame_abi::LinkType;
use flame_transform::{Kept, Key, Rewriter};
use std::net::{Ipv4Addr, Ipv6Addr};

fn rewriter(transforms: &str, kept: Kept) -> Rewriter {
    let transforms = flame_transform::parse(transforms).unwrap();
    Rewriter::new(&transforms, Some(&Key::new([9; 32]))).unwrap().unwrap().keeping(kept)
}

const ALL: Kept = Kept { groups: true, special: true };

/// Returns an Ethernet frame of UDP.
fn frame(dst: [u8; 6], src: [u8; 6], addresses: &[u8]) -> Vec<u8> {
    let mut frame = [dst, src].concat();
    match addresses.len() {
        8 => frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]),
        _ => frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 64]),
    }
    frame.extend(addresses);
    frame.extend([0, 53, 0, 53, 0, 8, 0, 0]);
    frame
}

fn v4(rewriter: &mut Rewriter, address: Ipv4Addr) -> Ipv4Addr {
    let mut frame = frame([2; 6], [4; 6], &[address.octets(), [10, 0, 0, 1]].concat());
    rewriter.rewrite(LinkType::ETHERNET, &mut frame);
    Ipv4Addr::from(<[u8; 4]>::try_from(&frame[26..30]).unwrap())
}

fn v6(rewriter: &mut Rewriter, address: Ipv6Addr) -> Ipv6Addr {
    let mut frame = frame([2; 6], [4; 6], &[address.octets(), [7; 16]].concat());
    rewriter.rewrite(LinkType::ETHERNET, &mut frame);
    Ipv6Addr::from(<[u8; 16]>::try_from(&frame[22..38]).unwrap())
}

const SPECIAL: [&str; 16] = [
    "0.0.0.0",
    "127.0.0.1",
    "127.255.3.4",
    "169.254.7.8",
    "192.0.2.1",
    "198.51.100.255",
    "203.0.113.9",
    "224.0.0.251",
    "239.255.255.250",
    "255.255.255.255",
    "::",
    "::1",
    "2001:db8:1::2",
    "3fff:123::4",
    "fe80::1:2:3:4",
    "ff02::fb",
];
const OTHERS: [&str; 11] = [
    "10.0.0.1",
    "128.0.0.1",
    "192.168.1.1",
    "192.0.3.1",
    "198.51.101.0",
    "223.255.255.255",
    "240.0.0.1",
    "2001:db9::1",
    "fec0::1",
    // Groups that contain a network's prefix.
    "ff3e:40:2001:db8:aaaa:bbbb:4321:1",
    "::ffff:8.8.8.8",
];

#[test]
fn special_ranges_are_kept_on_request() {
    for transform in ["ip=prefix", "ip=hash", "ip=zero", "ip=truncate:3"] {
        let (mut keeps, mut changes) = (rewriter(transform, ALL), rewriter(transform, Kept::default()));
        for (text, is_special) in SPECIAL.map(|a| (a, true)).into_iter().chain(OTHERS.map(|a| (a, false))) {
            let address: std::net::IpAddr = text.parse().unwrap();
            let map = |rewriter: &mut Rewriter| match address {
                std::net::IpAddr::V4(v) => std::net::IpAddr::V4(v4(rewriter, v)),
                std::net::IpAddr::V6(v) => std::net::IpAddr::V6(v6(rewriter, v)),
            };
            assert_eq!(map(&mut keeps) == address, is_special, "{transform} {text}");
            // By default nothing is kept but what has no bits to change.
            if !matches!(text, "0.0.0.0" | "::" | "224.0.0.251") {
                assert_ne!(map(&mut changes), address, "{transform} {text}");
            }
        }
    }
}

/// Where special ranges are kept, pseudonyms still share as many bits as addresses, with those ranges too.
#[test]
fn prefixes_are_preserved_beside_special_ranges() {
    let mut rewriter = rewriter("ip=prefix", ALL);
    let mut n = 7u64;
    let mut next = || {
        n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (n >> 32) as u32
    };
    let near = [0xc000_0200u32, 0x7f00_0000, 0xe000_0000, 0xa9fe_0000, 0, u32::MAX];
    let pairs: Vec<(u32, u32)> = (0..400)
        .map(|i| match i % 3 {
            0 => next(),
            _ => near[i % near.len()] ^ (1 << (next() % 32)),
        })
        .map(|address| (address, u32::from(v4(&mut rewriter, address.into()))))
        .collect();
    for (a, new_a) in &pairs {
        for (b, new_b) in &pairs {
            assert_eq!((a ^ b).leading_zeros(), (new_a ^ new_b).leading_zeros(), "{a:08x} {b:08x}");
        }
    }
}

#[test]
fn groups_of_macs_are_kept() {
    let change = |transforms: &str, kept, dst, ip: &[u8]| {
        let mut frame = frame(dst, [2, 0, 0, 0, 0, 1], ip);
        rewriter(transforms, kept).rewrite(LinkType::ETHERNET, &mut frame);
        <[u8; 6]>::try_from(&frame[..6]).unwrap()
    };
    let groups = Kept { groups: true, special: false };
    let host = [10, 0, 0, 1, 10, 0, 0, 2];
    for n in 0..20 {
        let (group, single) = ([1, 0x80, 0xc2, 0, 0, n], [0, 0x1b, 0x21, 0, 0, n]);
        assert_eq!(change("ip=prefix,mac=hash", groups, group, &host)[0] & 1, 1);
        assert_eq!(change("ip=prefix,mac=hash", groups, single, &host)[0] & 1, 0);
        assert_ne!(change("ip=prefix,mac=hash", groups, group, &host), group);
        assert_ne!(change("ip=prefix,mac=hash", groups, single, &host), single);
    }
    assert_eq!(change("mac=hash", groups, [0xff; 6], &host), [0xff; 6]);
    // Nothing shows that it was zeroed otherwise.
    assert_eq!(change("mac=zero", groups, [0xff; 6], &host), [0; 6]);
    // The address of a kept group stays. A group of neighbours contains a part of an address.
    let mdns = [1, 0, 0x5e, 0, 0, 251];
    assert_eq!(change("ip=prefix,mac=hash", ALL, mdns, &[10, 0, 0, 1, 224, 0, 0, 251]), mdns);
    let neighbour = [0x33, 0x33, 0xff, 1, 2, 3];
    let new = change("ip=prefix,mac=hash", ALL, neighbour, &host);
    assert!(new[2..] != neighbour[2..] && new[0] & 1 == 1);
}

/// Kept addresses do not reveal others: the group of a neighbour, and a MAC address in an interface
/// identifier.
#[test]
fn kept_addresses_lose_what_they_contain() {
    let mut rewriter = rewriter("ip=prefix,mac=hash", ALL);
    let group = v6(&mut rewriter, "ff02::1:ff12:3456".parse().unwrap());
    assert_eq!(group, "ff02::1:ff00:0".parse::<Ipv6Addr>().unwrap());
    let host = v6(&mut rewriter, "fe80::21b:21ff:fe12:3456".parse().unwrap());
    assert!(host.to_string().starts_with("fe80::") && host.octets()[11..13] == [0xff, 0xfe]);
    assert_ne!(host.octets()[13..], [0x12, 0x34, 0x56]);
}
