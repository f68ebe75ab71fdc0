//! Pairs of captures that differ only in data that a view hides, and the complete output of the view. The
//! fuzz target `view` uses them to search for pairs, too.

use super::common::*;
use super::maker::{Hidden, LINKS, Maker, Numbers};
use flame_abi::{Descriptor, LinkType};
use flame_plan::{
    Action, Expose, Field, ShownFilter, Transforms, TrustedFilter, ViewKey, ViewSpec, quantize,
};
use flame_transform::Prefix;
use flame_view::{Key, View};

/// A capture of packets as they are on the wire.
pub struct Capture {
    pub packets: Vec<Vec<u8>>,
    pub descriptors: Vec<Descriptor>,
    pub data: Vec<u8>,
}

/// A view, the link type, and the key of the run.
pub struct Case {
    pub spec: ViewSpec,
    pub link: LinkType,
    pub run_key: [u8; 32],
}

/// The complete output: the ends of blocks, descriptors, bytes, counts.
pub type Outside = Vec<u8>;

pub fn shown_by(case: &Case, capture: &Capture) -> (Vec<Descriptor>, Vec<u8>, Outside) {
    let mut view = View::new(&case.spec, Some(&Key::new(case.run_key))).unwrap();
    let (mut all, mut bytes, mut outside) = (Vec::new(), Vec::new(), Vec::new());
    let mut rest = &capture.descriptors[..];
    while !rest.is_empty() {
        // Blocks of three packets or a hundred bytes.
        let (mut out, mut data) = ([Descriptor::default(); 3], vec![0; 200_000]);
        let place = (&mut out[..], &mut data[..], 100);
        let written = view.copy_some(rest, |_| case.link, &capture.data, place, BASE).unwrap();
        rest = &rest[written.taken..];
        outside.extend(written.packets.to_le_bytes());
        outside.extend(written.eligible.to_le_bytes());
        outside.extend(written.cut.to_le_bytes());
        for d in &out[..written.packets as usize] {
            outside.extend(d.to_bytes());
            all.push(*d);
            let at = (d.addr - BASE) as usize;
            bytes.extend(&data[at..at + d.cap_len as usize]);
        }
        outside.extend(&data);
    }
    (all, bytes, outside)
}

fn action(numbers: &mut Numbers, field: Field) -> Action {
    let is_ip = matches!(field, Field::IpSrc | Field::IpDst);
    match numbers.below(8) {
        0..=2 => Action::Zero,
        3 => Action::Truncate(match field {
            Field::IpSrc | Field::IpDst => [17, 17, 80, 120][numbers.below(4) as usize],
            Field::MacSrc | Field::MacDst => [3, 40][numbers.below(2) as usize],
            Field::PortSrc | Field::PortDst => 3,
        }),
        4 => Action::Hash,
        5 if is_ip => Action::Prefix,
        _ => Action::Keep,
    }
}

const SHOWN_FILTERS: [&str; 8] = [
    " ip[15] & 1 = 0",
    "udp",
    "tcp[16] & 1 = 1 or udp[7] & 1 = 1",
    "ip[20:4] & 0x10 != 0",
    "not net 10.0.0.0/8",
    "ether[13] & 1 = 0",
    "greater 90",
    "udp[8] & 1 = 0 or icmp[2] & 1 = 0",
];

pub fn case(numbers: &mut Numbers) -> Case {
    let expose =
        [Expose::Count, Expose::None, Expose::Headers, Expose::Headers, Expose::Payload(13), Expose::All]
            [numbers.below(6) as usize];
    let link =
        if numbers.below(2) == 0 { LINKS[numbers.below(LINKS.len() as u64) as usize] } else { LINKS[0] };
    let mut transforms = Transforms::new();
    // A view that shows everything hides nothing.
    if expose == Expose::All || numbers.below(3) > 0 {
        for field in Field::ALL {
            transforms.insert(field, action(numbers, field));
        }
        if expose == Expose::All {
            transforms.insert(Field::IpDst, Action::Zero);
        }
        transforms.retain(|_, action| *action != Action::Keep);
    }
    // Pseudonyms by prefix are compared under two keys, pseudonyms of flows under one.
    let by_prefix = transforms.values().any(|a| *a == Action::Prefix);
    if by_prefix {
        transforms.values_mut().for_each(|a| *a = if *a == Action::Hash { Action::Zero } else { *a });
    }
    // Not every filter is valid for every link type; for NFLOG and tags of switches none is.
    let compiles = |text: &str| flame_filter::Filter::compile(text, link).is_ok();
    let filters = expose != Expose::Count && compiles("ip or ip6");
    let select_shown = match numbers.below(3) {
        0 if filters => {
            let text = SHOWN_FILTERS[numbers.below(8) as usize];
            let text = if compiles(text) { text } else { "udp" };
            ShownFilter::parse(text).unwrap().into_iter().collect()
        }
        _ => Vec::new(),
    };
    let select = if numbers.below(4) == 0 && filters { "ip or ip6" } else { "" };
    let own = !by_prefix || expose <= Expose::None;
    if !own {
        transforms.values_mut().for_each(|a| *a = if *a == Action::Hash { Action::Zero } else { *a });
    }
    if by_prefix && own {
        transforms.values_mut().for_each(|a| *a = if *a == Action::Prefix { Action::Zero } else { *a });
    }
    let spec = ViewSpec {
        select: TrustedFilter::parse(select).unwrap().into_iter().collect(),
        select_shown,
        expose,
        transforms,
        resolution_ns: [1, 1_000_000, 1_000_000_000][numbers.below(3) as usize],
        sample: [1, 1, 3][numbers.below(3) as usize],
        sample_key: Some(ViewKey([3; 32])),
        key: own.then_some(ViewKey([5; 32])),
        ..ViewSpec::default()
    };
    Case { spec, link, run_key: [7; 32] }
}

/// Generates one capture of a pair. Both share only `shown`.
pub fn capture(case: &Case, shown: &Numbers, secret: u64) -> Capture {
    let spec = &case.spec;
    let transformed = !spec.transforms.is_empty();
    let changes = |f: Field| spec.transforms.contains_key(&f);
    let hidden = Hidden {
        options: transformed,
        opaque: transformed || spec.expose <= Expose::Headers,
        addresses: changes(Field::IpSrc) || changes(Field::IpDst),
        payload: match spec.expose {
            Expose::All => None,
            Expose::Payload(n) => Some(n as usize),
            _ => Some(0),
        },
        padding: true,
        notes: transformed
            || spec.resolution_ns > 1
            || spec.sample > 1
            || (spec.key.is_some() && !spec.select.is_empty()),
        times: spec.resolution_ns > 1,
    };
    let count = spec.expose == Expose::Count;
    let mut maker = Maker {
        // If packets are only counted, everything is hidden.
        shown: if count { Numbers::new(secret) } else { shown.clone() },
        secret: Numbers::new(secret),
        hidden,
        transforms: &spec.transforms,
        prefix: Some(Prefix::new(&Key::new(case.run_key))),
        endless: false,
    };
    let (mut times, mut jitter) = (Numbers::new(shown.seed ^ 0x55), Numbers::new(secret ^ 0x77));
    let mut packets: Vec<Vec<u8>> = (0..8).map(|_| maker.packet(case.link)).collect();
    let (mut cuts, wire) =
        (Numbers::new(shown.seed ^ 0x99), packets.iter().map(|p| p.len() as u32).collect::<Vec<_>>());
    for packet in &mut packets {
        // The capture cuts some packets off, and for some of those nothing states it.
        if cuts.below(4) == 0 {
            packet.truncate(14 + cuts.below(110) as usize);
        }
    }
    let told = cuts.below(4) > 0;
    let (mut descriptors, data) =
        block_of(case.link, &packets, |i| if told { wire[i] } else { packets[i].len() as u32 });
    let mut at = 1_700_000_000_000_000_000u64;
    for d in &mut descriptors {
        at += times.below(3) * 400_000;
        d.ts_ns = quantize(at, spec.resolution_ns) + jitter.below(spec.resolution_ns);
    }
    Capture { packets, descriptors, data }
}

/// Returns the other case of a pair, whose run has another key if pseudonyms are by prefix.
pub fn other(one: &Case) -> Case {
    let run_key = if one.spec.key.is_none() { [9; 32] } else { one.run_key };
    Case { spec: one.spec.clone(), link: one.link, run_key }
}
