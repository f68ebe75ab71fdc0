//! Monotony: the output of a narrower view can be computed from the output of a wider one, by applying the
//! narrower view to it.

use crate::common::*;
use crate::maker::{Hidden, Maker, Numbers};
use flame_abi::{Descriptor, LinkType};
use flame_decode::{Options, decode};
use flame_plan::{Action, Expose, Field, Transforms, ViewSpec, least_common_multiple, quantize};
use flame_view::View;

type Shown = Vec<(u64, u32, Vec<u8>)>;

fn through(spec: &ViewSpec, descriptors: &[Descriptor], data: &[u8]) -> Shown {
    let (mut out, mut out_data) = (vec![Descriptor::default(); descriptors.len()], vec![0; data.len()]);
    let mut view = View::new(spec, None).unwrap();
    let written =
        view.copy(descriptors, |_| LinkType::ETHERNET, data, &mut out, &mut out_data, BASE).unwrap();
    let bytes = |d: &Descriptor| out_data[(d.addr - BASE) as usize..][..d.cap_len as usize].to_vec();
    out[..written.packets as usize].iter().map(|d| (d.ts_ns, d.wire_len, bytes(d))).collect()
}

/// Converts shown packets to packets of a capture.
fn again(shown: &Shown) -> (Vec<Descriptor>, Vec<u8>) {
    let (mut descriptors, mut data) = (Vec::new(), Vec::new());
    for (ts_ns, wire_len, bytes) in shown {
        let d = decode(LinkType::ETHERNET, bytes, *wire_len, Options::default());
        descriptors.push(Descriptor { ts_ns: *ts_ns, addr: data.len() as u32, ..d });
        data.extend(bytes);
    }
    (descriptors, data)
}

fn spec(n: &mut Numbers) -> ViewSpec {
    let expose = [Expose::None, Expose::Headers, Expose::Payload(9), Expose::Payload(30), Expose::All];
    let mut transforms = Transforms::new();
    for field in Field::ALL {
        let action = [Action::Keep, Action::Keep, Action::Zero, Action::Truncate(5)][n.below(4) as usize];
        transforms.insert(field, action);
    }
    transforms.retain(|_, a| *a != Action::Keep);
    ViewSpec {
        expose: expose[n.below(5) as usize],
        transforms,
        resolution_ns: [1, 1000, 3000, 50_000][n.below(4) as usize],
        ..ViewSpec::default()
    }
}

fn meet(a: &ViewSpec, b: &ViewSpec) -> ViewSpec {
    let mut transforms = a.transforms.clone();
    for (field, action) in &b.transforms {
        let mine = transforms.entry(*field).or_default();
        *mine = mine.meet(*action);
    }
    ViewSpec {
        expose: a.expose.meet(b.expose),
        transforms,
        resolution_ns: least_common_multiple(a.resolution_ns, b.resolution_ns),
        ..ViewSpec::default()
    }
}

#[test]
fn the_narrower_view_is_one_of_the_wider() {
    let mut n = Numbers::new(3);
    let (mut compared, mut exposed) = (0, 0);
    for _ in 0..2000 {
        let mut wider = spec(&mut n);
        // A tunnel on a changed port is not recognized again, although holders of the rest may recognize it.
        wider.transforms.retain(|field, _| !matches!(field, Field::PortSrc | Field::PortDst));
        let narrower = meet(&wider, &spec(&mut n));
        let none = Transforms::new();
        let mut maker = Maker {
            shown: Numbers::new(n.next()),
            secret: Numbers::new(1),
            hidden: Hidden::default(),
            transforms: &none,
            prefix: None,
            endless: false,
        };
        let packets: Vec<Vec<u8>> = (0..6).map(|_| maker.frame()).collect();
        let (mut descriptors, data) = block(LinkType::ETHERNET, &packets);
        for (i, d) in descriptors.iter_mut().enumerate() {
            d.ts_ns = 1_000_000 + i as u64 * 1234;
        }
        let of_wider = through(&wider, &descriptors, &data);
        let (known, known_data) = again(&of_wider);
        let (truly, computed) =
            (through(&narrower, &descriptors, &data), through(&narrower, &known, &known_data));
        for (i, (a, b)) in truly.iter().zip(&computed).enumerate() {
            assert_eq!((a.0, a.1), (b.0, b.1));
            assert_eq!(a.0, quantize(descriptors[i].ts_ns, narrower.resolution_ns));
            // After the wider view has cut a packet, less of it may be understood, but never more or anything
            // else.
            let shared = a.2.len().min(b.2.len());
            let (a, b) = (&a.2[..shared], &b.2[..shared]);
            let differ = a.iter().zip(b).filter(|(a, b)| a != b).count();
            assert_eq!(
                differ, 0,
                "{wider:?}\n{narrower:?}\n{:02x?}\n{:02x?}\n{a:02x?}\n{b:02x?}",
                packets[i], of_wider[i].2
            );
            compared += 1;
            exposed += shared;
        }
        assert_eq!(truly.len(), computed.len());
    }
    assert!(compared > 10_000 && exposed > 300_000, "{compared} packets, {exposed} bytes");
}
