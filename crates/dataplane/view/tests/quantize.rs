//! Coarser times, samples, and pseudonymous flows.

use crate::common::*;
use flame_abi::{Descriptor, LinkType};
use flame_plan::{Action, Expose, Field, Seen, ShownFilter, Transforms, TrustedFilter, ViewKey, ViewSpec};
use flame_view::View;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const CANARY: u8 = 0xC7;

/// Returns packets of some flows, with times `step` apart, and their form in a view.
fn shown(spec: &ViewSpec, packets: usize, step: u64) -> (Vec<Descriptor>, Vec<Descriptor>, Vec<u8>) {
    let bytes: Vec<Vec<u8>> = (0..packets)
        .map(|n| ethernet(0x0800, &ipv4(17, &[], &udp(1000 + (n % 50) as u16, &[CANARY; 8]))))
        .collect();
    let (mut all, data) = block(LinkType::ETHERNET, &bytes);
    for (n, d) in all.iter_mut().enumerate() {
        d.ts_ns = 1_000_000_007 + n as u64 * step;
    }
    let (mut out, mut out_data) = (vec![Descriptor::default(); packets], vec![0; data.len()]);
    let mut view = View::new(spec, None).unwrap();
    let written = view.copy(&all, |_| LinkType::ETHERNET, &data, &mut out, &mut out_data, BASE).unwrap();
    out.truncate(written.packets as usize);
    (all, out, out_data)
}

fn keyed(key: u8, expose: Expose) -> ViewSpec {
    ViewSpec { expose, key: Some(ViewKey([key; 32])), ..ViewSpec::default() }
}

#[test]
fn count_tells_that_packets_came_and_when() {
    let (all, seen, data) = shown(&keyed(1, Expose::Count), 100, 10);
    assert_eq!(seen.len(), 100);
    for (d, s) in all.iter().zip(&seen) {
        assert_eq!(*s, Descriptor { ts_ns: d.ts_ns, addr: BASE, ..Descriptor::default() });
    }
    assert!(data.iter().all(|b| *b == 0));
}

#[test]
fn flows_keep_apart_without_their_names_where_no_header_is_shown() {
    let hashes = |key| shown(&keyed(key, Expose::None), 500, 10);
    let (all, seen, _) = hashes(1);
    let names: BTreeMap<u32, u32> = all.iter().zip(&seen).map(|(d, s)| (d.hash, s.hash)).collect();
    assert_eq!(names.len(), 50);
    assert_eq!(names.values().collect::<BTreeSet<_>>().len(), 50, "one name a flow");
    assert!(all.iter().zip(&seen).all(|(d, s)| names[&d.hash] == s.hash && d.hash != s.hash));
    let (_, other, _) = hashes(2);
    assert!(seen.iter().zip(&other).all(|(a, b)| a.hash != b.hash), "another principal has other names");
    // If headers are shown, the pseudonyms are the same: they depend on the shown packet.
    let (_, of_headers, _) = shown(&keyed(1, Expose::Headers), 500, 10);
    assert!(seen.iter().zip(&of_headers).all(|(a, b)| a.hash == b.hash));
    let (all, open, _) = shown(&keyed(1, Expose::All), 50, 10);
    assert!(all.iter().zip(&open).all(|(d, s)| d.hash == s.hash), "nothing is hidden");
    let (_, without, _) = shown(&ViewSpec { key: None, ..keyed(1, Expose::None) }, 50, 10);
    assert!(without.iter().all(|s| s.hash == 0), "no key, no names");
    // A transform makes a narrower view, so its pseudonyms reveal less: they depend on changed addresses.
    let zero: Transforms = Field::ALL.into_iter().map(|f| (f, Action::Zero)).collect();
    let (_, less, _) = shown(&ViewSpec { transforms: zero, ..keyed(1, Expose::None) }, 500, 10);
    assert_eq!(less.iter().map(|d| d.hash).collect::<BTreeSet<_>>().len(), 1);
    let prefix = [(Field::IpSrc, Action::Prefix), (Field::IpDst, Action::Prefix)].into();
    let (all, seen, _) = shown(&ViewSpec { transforms: prefix, ..keyed(1, Expose::None) }, 50, 10);
    assert!(all.iter().zip(&seen).all(|(d, s)| d.hash != s.hash));
}

#[test]
fn the_views_own_key_goes_before_the_runs() {
    let prefix = [(Field::IpSrc, Action::Prefix)].into();
    let spec = ViewSpec { transforms: prefix, ..keyed(1, Expose::Headers) };
    assert!(View::new(&ViewSpec { key: None, ..spec.clone() }, None).is_err(), "one of them is needed");
    let (_, _, one) = shown(&spec, 1, 1);
    let (_, _, two) = shown(&ViewSpec { key: Some(ViewKey([2; 32])), ..spec }, 1, 1);
    assert_ne!(one, two);
}

/// A filter cannot test bytes that are hidden.
#[test]
fn filters_over_what_is_shown_tell_nothing_that_is_hidden() {
    let seen = |filter: &str, spec: ViewSpec| {
        let select = TrustedFilter::parse(filter).unwrap().into_iter().collect();
        let select_shown = ShownFilter::parse(filter).unwrap().into_iter().collect();
        let truly = shown(&ViewSpec { select, ..spec.clone() }, 50, 1).1.len();
        (truly, shown(&ViewSpec { select_shown, ..spec }, 50, 1).1.len())
    };
    let headers = || keyed(1, Expose::Headers);
    let payload = "udp[8] == 0xc7";
    assert_eq!(seen(payload, headers()), (50, 0), "payload is hidden");
    assert_eq!(seen(payload, keyed(1, Expose::All)), (50, 50));
    let (_, all, data) = shown(&headers(), 1, 1);
    let source = &data[(all[0].addr - BASE) as usize + 26..][..4];
    let host = format!("src host {}.{}.{}.{}", source[0], source[1], source[2], source[3]);
    assert_eq!(seen(&host, headers()), (50, 50), "addresses are shown");
    let changed = ViewSpec { transforms: [(Field::IpSrc, Action::Prefix)].into(), ..headers() };
    assert_eq!(seen(&host, changed), (50, 0), "true addresses are not");
    assert_eq!(seen("udp", keyed(1, Expose::None)), (50, 0), "no header is");
    assert!(
        !View::new(
            &ViewSpec {
                select_shown: ShownFilter::parse("udp").unwrap().into_iter().collect(),
                expose: Expose::All,
                ..ViewSpec::default()
            },
            None
        )
        .unwrap()
        .selects_all()
    );
}

/// No narrowing of a credential shows a packet that is not in the wider sample, and without the key the
/// sample is unknown.
#[test]
fn narrowing_gives_no_other_sample() {
    let zero: Transforms = Field::ALL.into_iter().map(|f| (f, Action::Zero)).collect();
    let wide = ViewSpec {
        sample: 10,
        sample_seen: Some(Seen { resolution_ns: 1000, ..keyed(1, Expose::All).seen() }),
        sample_key: Some(ViewKey([9; 32])),
        ..keyed(1, Expose::All)
    };
    // The length of the payload identifies a packet, as times get coarser.
    let lengths = |spec: &ViewSpec| {
        let bytes: Vec<Vec<u8>> =
            (0..1000).map(|n| ethernet(0x0800, &ipv4(17, &[], &udp(1000, &vec![1; n])))).collect();
        let (mut all, data) = block(LinkType::ETHERNET, &bytes);
        all.iter_mut().enumerate().for_each(|(n, d)| d.ts_ns = n as u64 * 77);
        let (mut out, mut out_data) = (vec![Descriptor::default(); 1000], vec![0; data.len()]);
        let mut view = View::new(spec, None).unwrap();
        let written = view.copy(&all, |_| LinkType::ETHERNET, &data, &mut out, &mut out_data, BASE).unwrap();
        out[..written.packets as usize].iter().map(|d| d.wire_len).collect::<BTreeSet<u32>>()
    };
    let of_wide = lengths(&wide);
    assert!((50..200).contains(&of_wide.len()));
    for narrower in [
        ViewSpec { resolution_ns: 3000, ..wide.clone() },
        ViewSpec { resolution_ns: 1_000_000, sample: 30, ..wide.clone() },
        ViewSpec { transforms: zero, expose: Expose::None, key: Some(ViewKey([2; 32])), ..wide.clone() },
    ] {
        assert!(lengths(&narrower).is_subset(&of_wide), "{narrower:?}");
    }
    assert_ne!(lengths(&ViewSpec { sample_key: Some(ViewKey([8; 32])), ..wide }), of_wide);
}

proptest! {
    #[test]
    fn times_are_multiples_and_never_later(resolution in 0u64..1 << 40, step in 0u64..1 << 33) {
        let spec = ViewSpec { resolution_ns: resolution, ..keyed(1, Expose::All) };
        let (all, seen, _) = shown(&spec, 40, step);
        for (d, s) in all.iter().zip(&seen) {
            prop_assert_eq!(s.ts_ns % resolution.max(1), 0);
            prop_assert!(s.ts_ns <= d.ts_ns && d.ts_ns - s.ts_ns < resolution.max(1));
        }
    }

    /// About one packet in `n` is shown, and a smaller sample is a subset of a larger one.
    #[test]
    fn samples_are_of_their_size_and_nest(n in 1u32..20, m in 1u32..20) {
        let times = |sample: u32| {
            let (_, seen, _) = shown(&ViewSpec { sample, ..keyed(1, Expose::Headers) }, 4000, 7);
            seen.iter().map(|d| d.ts_ns).collect::<BTreeSet<u64>>()
        };
        let (few, many) = (times(n.max(m)), times(n.min(m)));
        prop_assert!(few.is_subset(&many));
        // Six standard deviations.
        let (expected, found) = (4000.0 / f64::from(n.max(m)), few.len() as f64);
        prop_assert!((found - expected).abs() <= 6.0 * expected.sqrt() , "{} of {}", found, expected);
    }

    /// Nothing is written of a packet that is not in the sample.
    #[test]
    fn what_is_not_shown_is_nowhere(sample in 2u32..50) {
        let (_, seen, data) = shown(&ViewSpec { sample, ..keyed(1, Expose::All) }, 200, 3);
        let canaries = data.iter().filter(|b| **b == CANARY).count();
        prop_assert!(canaries <= seen.len() * 8 + seen.len());
    }
}
