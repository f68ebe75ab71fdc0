//! Flow hashes that no view shows need not be computed.

use crate::common::*;
use flame_abi::{Descriptor, LinkType};
use flame_plan::{Expose, ShownFilter, ViewKey, ViewSpec};
use flame_view::{Key, View};

/// Returns what a view shows of packets whose true hashes are changed by `change`.
fn shown(view: &mut View, packets: &[Vec<u8>], change: impl Fn(u32) -> u32) -> (Vec<Descriptor>, Vec<u8>) {
    let (mut descriptors, data) = block(LinkType::ETHERNET, packets);
    for (n, d) in descriptors.iter_mut().enumerate() {
        (d.hash, d.ts_ns) = (change(d.hash), 1000 * n as u64);
    }
    let mut out = vec![Descriptor::default(); packets.len()];
    let mut out_data = vec![0; data.len()];
    let ether = |_| LinkType::ETHERNET;
    let written = match view.hides_nothing() {
        true => view.select(&descriptors, ether, &data, &mut out, BASE),
        false => view.copy(&descriptors, ether, &data, &mut out, &mut out_data, BASE),
    };
    out.truncate(written.unwrap().packets as usize);
    (out, out_data)
}

fn packets() -> Vec<Vec<u8>> {
    let udp = (0..70).map(|n| ethernet(0x0800, &ipv4(17, &[], &udp(53 + n % 3, &vec![7; usize::from(n)]))));
    let tcp = (0..40).map(|n| ethernet(0x86dd, &ipv6(6, &tcp(&[1; 4], &vec![7; n]))));
    udp.chain(tcp).chain([ethernet(0x0806, &[1; 28])]).collect()
}

/// A view states that it reads hashes if and only if true ones change what it shows, and otherwise shows 0.
#[test]
fn views_that_do_not_read_hashes_show_none() {
    let mut reading = 0;
    let exposures = [Expose::Count, Expose::None, Expose::Headers, Expose::Payload(9), Expose::All];
    let keys = [None, Some(Key::new([4; 32]))];
    let many =
        exposures.into_iter().flat_map(|e| keys.iter().flat_map(move |k| [(e, k, 0), (e, k, 1), (e, k, 2)]));
    for (expose, key, form) in many {
        let mut spec = ViewSpec { expose, ..ViewSpec::default() };
        match form {
            1 => spec.key = Some(ViewKey([5; 32])),
            2 => (spec.resolution_ns, spec.sample) = (1000, 3),
            _ => {}
        }
        if expose > Expose::None {
            spec.select_shown = ShownFilter::parse("udp or ip6").unwrap().into_iter().collect();
        }
        let view = || View::new(&spec, key.as_ref()).unwrap();
        let (all, reads) = (packets(), view().reads_hash());
        let (seen, bytes) = shown(&mut view(), &all, |hash| hash);
        let changes = [0, 1, u32::MAX].map(|n| shown(&mut view(), &all, |hash| (hash ^ n).wrapping_mul(n)));
        assert!(!seen.is_empty());
        assert_eq!(changes.iter().any(|other| *other != (seen.clone(), bytes.clone())), reads, "{spec:?}");
        assert!(reads || seen.iter().all(|d| d.hash == 0), "{spec:?}");
        reading += usize::from(reads);
    }
    // Of 30, all but those of `count`, and of `none` without a key and a sample.
    assert_eq!(reading, 23);
}
