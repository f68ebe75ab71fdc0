//! Non-interference: for two captures that differ only in hidden data, the complete output of a view is
//! equal.
//!
//! `FLAME_PAIRS` is the number of pairs (5,000; ten million in the long run). `what_was_mended_is_found`
//! adds each former leak of views to the output, one by one, and the same search finds it.

use crate::maker::Numbers;
use crate::pair::{Capture, Case, Outside, capture, case, other, shown_by};
use flame_abi::{Descriptor, LinkType, flags};
use flame_filter::Filter;
use flame_plan::{Expose, Field, ViewKey};

/// The pairs of captures that are compared. Every leak that was mended is found with them.
const PAIRS: u64 = 5_000;

/// Searches `pairs` pairs for one whose outputs differ, and describes the first.
fn find(pairs: u64, seed: u64, outside: &dyn Fn(&Case, &Capture) -> Outside) -> Option<String> {
    let mut numbers = Numbers::new(seed);
    for pair in 0..pairs {
        let one = case(&mut numbers);
        let other = other(&one);
        let (shown, a, b) = (Numbers::new(numbers.next()), numbers.next(), numbers.next());
        let (first, second) = (capture(&one, &shown, a), capture(&other, &shown, b));
        if outside(&one, &first) != outside(&other, &second) {
            let of = |case: &Case, capture: &Capture, i: usize| {
                let alone = Capture {
                    packets: vec![capture.packets[i].clone()],
                    descriptors: vec![capture.descriptors[i]],
                    data: capture.data.clone(),
                };
                let (descriptors, bytes, _) = shown_by(case, &alone);
                format!("{:02x?}\n  {descriptors:?}\n  {bytes:02x?}", alone.packets[0])
            };
            // If a packet alone shows no difference, the sample or the end of a block differs.
            let sides = |i: usize| {
                let shows = |case: &Case, capture: &Capture| {
                    of(case, capture, i).split_once('\n').map(|s| s.1.to_owned())
                };
                let differ = shows(&one, &first) != shows(&other, &second);
                differ.then(|| {
                    format!("\npacket {i} {}\nother {}", of(&one, &first, i), of(&other, &second, i))
                })
            };
            let packets: String = (0..first.packets.len()).filter_map(sides).collect();
            return Some(format!("pair {pair}: {:?} {:?}{packets}", one.link, one.spec));
        }
    }
    None
}

#[test]
fn what_is_hidden_changes_nothing_outside() {
    let pairs = std::env::var("FLAME_PAIRS").ok().and_then(|n| n.parse().ok()).unwrap_or(PAIRS);
    let found = find(pairs, 1, &|case, capture| shown_by(case, capture).2);
    assert!(found.is_none(), "{}", found.unwrap());
}

/// Pseudonyms of flows, and samples, differ under another key: they cannot be computed without it.
#[test]
fn names_of_flows_and_samples_depend_on_a_key() {
    let mut numbers = Numbers::new(2);
    let mut compared = 0;
    for _ in 0..500 {
        let mut case = case(&mut numbers);
        let shown = Numbers::new(numbers.next());
        let capture = capture(&case, &shown, 1);
        case.spec.sample = 1;
        if case.spec.key.is_none() || case.spec.expose == Expose::Count {
            continue;
        }
        let (one, ..) = shown_by(&case, &capture);
        case.spec.key = Some(ViewKey([6; 32]));
        let (other, ..) = shown_by(&case, &capture);
        for (a, b) in one.iter().zip(&other).filter(|(a, _)| a.is_ip()) {
            assert_ne!(a.hash, b.hash, "{:?}", case.spec);
            compared += 1;
        }
    }
    assert!(compared > 500);
}

/// The data that one leak added to the output, from the case and the capture.
type Leak = fn(&Case, &Capture) -> Outside;

fn bytes_at(d: &Descriptor, capture: &Capture, at: usize, n: usize) -> Outside {
    let start = d.addr as usize + at;
    capture.data.get(start..(start + n).min((d.addr + d.cap_len) as usize)).unwrap_or(&[]).to_vec()
}

fn each(capture: &Capture, leak: impl Fn(&Descriptor) -> Outside) -> Outside {
    capture.descriptors.iter().flat_map(leak).collect()
}

fn true_filter(text: &str, capture: &Capture) -> Outside {
    let filter = Filter::compile(text, LinkType::ETHERNET).unwrap();
    let passes = |i: usize| filter.matches(&capture.packets[i], capture.descriptors[i].wire_len);
    (0..capture.packets.len()).map(|i| u8::from(passes(i))).collect()
}

fn hides(case: &Case, field: Field) -> bool {
    case.link == LinkType::ETHERNET && case.spec.transforms.contains_key(&field)
}

fn shows(case: &Case, field: Field) -> bool {
    case.spec.expose >= HEADERS && !case.spec.transforms.contains_key(&field)
}

fn is_tcp(d: &Descriptor) -> bool {
    d.proto == 6 && d.has(flags::TRANSPORT) && d.has(flags::IPV4)
}

const HEADERS: Expose = Expose::Headers;

const LEAKS: [(&str, Leak); 18] = [
    ("(a) a filter with a space before it is evaluated on the true packet", |case, capture| {
        if case.spec.expose < HEADERS { Vec::new() } else { true_filter(" ip[15] & 1 = 0", capture) }
    }),
    ("(b) a checksum moves by the difference of addresses", |_, capture| {
        each(capture, |d| {
            let word =
                |at: usize| u16::from_be_bytes(bytes_at(d, capture, at, 2).try_into().unwrap_or([0; 2]));
            let (l3, l4) = (usize::from(d.l3), usize::from(d.l4));
            let addresses = (0..4).map(|i| u64::from(word(l3 + 12 + 2 * i))).sum::<u64>();
            // The change of the sum when both addresses become zero.
            if is_tcp(d) {
                ((u64::from(word(l4 + 16)) + addresses) % 0xffff).to_le_bytes().to_vec()
            } else {
                Vec::new()
            }
        })
    }),
    ("(c) a checksum of hidden payload is shown", |case, capture| {
        let shows = case.spec.expose == HEADERS && case.spec.transforms.is_empty();
        each(capture, |d| if shows && is_tcp(d) { bytes_at(d, capture, d.l4.into(), 18) } else { Vec::new() })
    }),
    ("(d) samples are taken by the true flow", |case, capture| {
        each(
            capture,
            |d| if case.spec.sample > 1 { vec![u8::from(d.hash < u32::MAX / 3)] } else { Vec::new() },
        )
    }),
    ("(e) with a transform the flow's name is the true flow's hash", |case, capture| {
        let narrowed = case.spec.expose == Expose::None && !case.spec.transforms.is_empty();
        each(capture, |d| if narrowed { d.hash.to_le_bytes().to_vec() } else { Vec::new() })
    }),
    ("(f) unknown options of TCP pass", |case, capture| {
        let shows = case.spec.expose >= HEADERS && !case.spec.transforms.is_empty();
        let options =
            |d: &Descriptor| bytes_at(d, capture, usize::from(d.l4) + 20, usize::from(d.l4_len) - 20);
        each(capture, |d| if shows && is_tcp(d) { options(d) } else { Vec::new() })
    }),
    ("(f) options of IPv4 pass", |case, capture| {
        let shows = case.spec.transforms.contains_key(&Field::IpSrc);
        let options =
            |d: &Descriptor| bytes_at(d, capture, usize::from(d.l3) + 20, usize::from(d.l4 - d.l3) - 20);
        each(
            capture,
            |d| if shows && d.has(flags::IPV4) && d.l4 >= d.l3 + 20 { options(d) } else { Vec::new() },
        )
    }),
    ("(f) tunnels that are not decoded pass", |case, capture| {
        let shows = case.spec.expose == Expose::All && !case.spec.transforms.is_empty();
        each(capture, |d| {
            let port = bytes_at(d, capture, usize::from(d.l4) + 2, 2);
            let is_tunnel = [2152u16, 3544, 1701, 6080, 6635, 4790].iter().any(|p| port == p.to_be_bytes());
            if shows && d.proto == 17 && is_tunnel {
                bytes_at(d, capture, d.payload() as usize, 50)
            } else {
                Vec::new()
            }
        })
    }),
    ("(f) packets in payload on other ports pass", |case, capture| {
        let shows = case.spec.expose == Expose::All && case.spec.transforms.contains_key(&Field::IpSrc);
        each(capture, |d| {
            let inner = bytes_at(d, capture, d.payload() as usize + 8, 20);
            if shows && d.proto == 17 && inner.first() == Some(&0x45) { inner } else { Vec::new() }
        })
    }),
    ("(g) lengths are asked for at count", |case, capture| {
        if case.spec.expose == Expose::Count { true_filter("len & 1 = 1", capture) } else { Vec::new() }
    }),
    ("(h) batches end where milliseconds do", |_, capture| {
        let ends = capture.descriptors.chunk_by(|a, b| a.ts_ns / 1_000_000 == b.ts_ns / 1_000_000);
        ends.map(|batch| batch.len() as u8).collect()
    }),
    ("(h) the worker's number is that of the true flow", |case, capture| {
        let hidden = case.spec.transforms.contains_key(&Field::IpSrc);
        each(capture, |d| if hidden { vec![(d.hash >> 26) as u8] } else { Vec::new() })
    }),
    ("(h) padding is shown", |case, capture| {
        if case.spec.expose != Expose::Payload(13) {
            return Vec::new();
        }
        each(capture, |d| {
            let total = bytes_at(d, capture, usize::from(d.l3) + 2, 2);
            let end =
                usize::from(d.l3) + usize::from(u16::from_be_bytes(total.try_into().unwrap_or([0xff; 2])));
            if d.has(flags::IPV4) && end > 40 { bytes_at(d, capture, end, 20) } else { Vec::new() }
        })
    }),
    ("(i) MAC addresses of groups show addresses of IP", |case, capture| {
        let hides = hides(case, Field::IpDst) && shows(case, Field::MacDst);
        each(capture, |d| match bytes_at(d, capture, 0, 6)[..] {
            [1, 0, 0x5e, ..] | [0x33, 0x33, ..] if hides => bytes_at(d, capture, 0, 6),
            _ => Vec::new(),
        })
    }),
    ("(i) MAC addresses of containers show addresses of IP", |case, capture| {
        let hides = hides(case, Field::IpSrc) && shows(case, Field::MacSrc);
        each(capture, |d| match bytes_at(d, capture, 6, 6)[..] {
            [2, 0x42, ..] if hides => bytes_at(d, capture, 6, 6),
            _ => Vec::new(),
        })
    }),
    ("(i) interface identifiers show MAC addresses", |case, capture| {
        let hides = hides(case, Field::MacSrc) && shows(case, Field::IpSrc);
        each(capture, |d| match bytes_at(d, capture, usize::from(d.l3) + 16, 8)[..] {
            [.., 0xff, 0xfe, _, _, _] if hides && d.has(flags::IPV6) => {
                bytes_at(d, capture, usize::from(d.l3) + 16, 8)
            }
            _ => Vec::new(),
        })
    }),
    ("(i) groups of neighbours show addresses", |case, capture| {
        let hides = hides(case, Field::IpSrc) && shows(case, Field::IpDst);
        each(capture, |d| match bytes_at(d, capture, usize::from(d.l3) + 24, 16)[..] {
            [0xff, 2, .., 1, 0xff, a, b, c] if hides && d.has(flags::IPV6) => vec![a, b, c],
            _ => Vec::new(),
        })
    }),
    ("(j) timestamps of TCP show times below the resolution", |case, capture| {
        let hides = case.spec.resolution_ns > 1 && case.spec.expose >= HEADERS;
        each(capture, |d| match bytes_at(d, capture, usize::from(d.l4) + 20, 12)[..] {
            [1, 1, 8, 10, ..] if hides && is_tcp(d) => bytes_at(d, capture, usize::from(d.l4) + 24, 8),
            _ => Vec::new(),
        })
    }),
];

#[test]
fn what_was_mended_is_found() {
    for (name, leak) in LEAKS {
        let found = find(PAIRS, 1, &|case, capture| {
            let mut outside = shown_by(case, capture).2;
            outside.extend(leak(case, capture));
            outside
        });
        assert!(found.is_some(), "{name}: not found");
    }
}
