//! No view shows more of a packet than its limit, on which bounds of modules rely.

use crate::common::*;
use flame_abi::{LinkType, flags};
use flame_plan::{Action, Expose, Field, MAX_HEADERS, ViewSpec};
use flame_view::View;
use proptest::prelude::*;

/// Generates chains of extension headers up to the longest, options, and frames as large as the kernel
/// coalesces.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    let chain = prop::collection::vec((prop::sample::select(&[0u8, 43, 60, 135][..]), any::<u8>()), 0..16);
    (chain, 0usize..66_000, any::<bool>(), any::<u8>()).prop_map(|(chain, payload, tags, fill)| {
        let mut rest = tcp(&[1; 40], &vec![fill; payload]);
        let mut next = 6;
        for (kind, units) in chain {
            rest = [vec![next, units], vec![fill; 6 + usize::from(units) * 8], rest].concat();
            next = kind;
        }
        // A coalesced frame may have no length.
        let mut packet = ipv6(next, &rest[..rest.len().min(65_000)]);
        packet.extend(&rest[rest.len().min(65_000)..]);
        if rest.len() > 65_000 {
            packet[4..6].fill(0);
        }
        let mut frame = ethernet(0x86dd, &packet);
        if tags {
            frame.splice(12..12, [0x81, 0, 0, 1].repeat(15));
        }
        frame
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_more_is_shown_than_the_longest(
        packets in prop::collection::vec(packet(), 1..4), n in 0u32..70_000, snaplen in 60u32..70_000, transform: bool
    ) {
        for expose in [Expose::Count, Expose::None, Expose::Headers, Expose::Payload(n), Expose::All] {
            for snaplen in [0, snaplen] {
                let mut spec = ViewSpec { expose, snaplen, ..ViewSpec::default() };
                if transform {
                    spec.transforms.insert(Field::IpSrc, Action::Zero);
                }
                let mut view = View::new(&spec, None).unwrap();
                let seen = see(&mut view, LinkType::ETHERNET, &packets);
                for (d, packet) in seen.descriptors.iter().zip(&packets) {
                    prop_assert!(d.cap_len <= spec.longest());
                    prop_assert!(d.payload() <= d.cap_len && u32::from(d.l3) <= d.cap_len);
                    let l = u32::from(d.l4_len);
                    prop_assert_eq!(d.has(flags::TRANSPORT), l > 0);
                    // The flags state that the packet was cut.
                    if expose == Expose::All && !transform && packet.len() > spec.longest() as usize {
                        prop_assert!(d.has(flags::TRUNCATED));
                    }
                }
                if view.hides_nothing() {
                    let (descriptors, data) = block(LinkType::ETHERNET, &packets);
                    let mut out = vec![Default::default(); packets.len()];
                    view.select(&descriptors, |_| LinkType::ETHERNET, &data, &mut out, BASE).unwrap();
                    prop_assert!(out.iter().all(|d: &flame_abi::Descriptor| d.cap_len <= spec.longest()));
                }
            }
        }
    }
}

/// Regression: a network peer could choose to have 30,782 bytes shown.
#[test]
fn headers_of_any_length_are_cut() {
    let mut rest = tcp(&[], &[]);
    let mut next = 6;
    for _ in 0..15 {
        rest = [vec![next, 255], vec![7; 6 + 255 * 8], rest].concat();
        next = 60;
    }
    let frame = ethernet(0x86dd, &ipv6(next, &rest));
    let seen = see(&mut view(Expose::Headers, &[]), LinkType::ETHERNET, &[frame]);
    let d = &seen.descriptors[0];
    assert_eq!(d.cap_len, MAX_HEADERS);
    assert!(d.has(flags::TRUNCATED) && !d.has(flags::TRANSPORT) && d.proto == 6);
}
