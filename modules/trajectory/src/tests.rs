use super::*;
use flame_module::testing::{Native, Parameters};
use flame_module::{Descriptor, flags};
use proptest::prelude::*;

fn with(hash: &str, sampling: f64, seed: i64, max_flows: i64) -> Native<Trajectory> {
    let parameters = Parameters::default().with("sampling", &sampling.to_le_bytes());
    let parameters = parameters.with("hash", hash.as_bytes()).integer("label_seed", 99);
    let parameters = parameters.integer("payload", 20).integer("seed", seed);
    Native::new(&parameters.integer("max_flows", max_flows), 0)
}

fn module(sampling: f64, seed: i64) -> Native<Trajectory> {
    with("bob", sampling, seed, 1024)
}

#[derive(Clone, Debug)]
struct Sent {
    six: bool,
    id: u16,
    src: u8,
    payload: Vec<u8>,
}

/// Returns a packet as a monitor sees it, with the changes made along the path.
fn seen(sent: &Sent, ttl: u8, tos: u8, sum: u16, padding: usize) -> (Descriptor, Vec<u8>) {
    let mut bytes = if sent.six {
        let [a, b] = (sent.payload.len() as u16).to_be_bytes();
        let mut head = vec![0x60 | tos >> 4, tos << 4, 0, 0, a, b, 17, ttl];
        head.extend([sent.src; 16]);
        head.extend([9; 16]);
        head
    } else {
        let [a, b] = (20 + sent.payload.len() as u16).to_be_bytes();
        let [i, j] = sent.id.to_be_bytes();
        let [s, t] = sum.to_be_bytes();
        vec![0x45, tos, a, b, i, j, 0x40, 0, ttl, 17, s, t, 10, 0, 0, sent.src, 10, 0, 0, 9]
    };
    let l4 = bytes.len() as u16;
    bytes.extend(&sent.payload);
    bytes.extend(vec![tos; padding]);
    let version = if sent.six { flags::IPV6 } else { flags::IPV4 };
    let cap_len = bytes.len() as u32;
    (Descriptor { cap_len, wire_len: cap_len, l4, proto: 17, flags: version, ..Descriptor::default() }, bytes)
}

fn labels(native: &mut Native<Trajectory>, packets: &[(Descriptor, Vec<u8>)]) -> Vec<(u64, u64)> {
    let mut memory = Vec::new();
    let mut descriptors = Vec::new();
    for (d, bytes) in packets {
        descriptors.push(Descriptor { addr: memory.len() as u32, ..*d });
        memory.extend(bytes);
    }
    native.packets(&descriptors, &memory);
    native.rows.iter().filter(|r| r.table == 1).map(|r| (r.integer(8, 8), r.integer(16, 4))).collect()
}

fn sent() -> impl Strategy<Value = Sent> {
    (any::<bool>(), any::<u16>(), 0u8..4, prop::collection::vec(any::<u8>(), 8..60))
        .prop_map(|(six, id, src, payload)| Sent { six, id, src, payload })
}

proptest! {
    /// Both ends of a path select the same packets under the same labels, for any changes by routers and
    /// links.
    #[test]
    fn two_monitors_agree(
        packets in prop::collection::vec(sent(), 1..80),
        changes in (any::<u8>(), any::<u8>(), any::<u16>(), 0usize..20),
        hash in prop::sample::select(vec!["bob", "ipsx"]),
    ) {
        let here: Vec<_> = packets.iter().map(|p| seen(p, 64, 0, 0, 0)).collect();
        let (ttl, tos, sum, padding) = changes;
        let there: Vec<_> = packets.iter().map(|p| seen(p, ttl, tos, sum, padding)).collect();
        let [mut a, mut b] = [(); 2].map(|()| with(hash, 0.5, if hash == "bob" { 3 } else { 0 }, 1024));
        prop_assert_eq!(labels(&mut a, &here), labels(&mut b, &there));
    }
}

#[test]
fn the_rate_is_what_was_asked_for() {
    let packets: Vec<_> = (0..40_000u32)
        .map(|i| {
            let payload = [&i.to_be_bytes()[..], &[0; 8]].concat();
            seen(&Sent { six: i % 2 == 0, id: i as u16, src: 1, payload }, 64, 0, 0, 0)
        })
        .collect();
    for sampling in [0.01, 0.1, 0.5, 1.0] {
        let mut module = module(sampling, 0);
        let selected = labels(&mut module, &packets).len() as f64;
        let expected = 40_000.0 * sampling;
        // Five standard deviations of a binomial.
        let slack = 5.0 * (expected * (1.0 - sampling)).sqrt();
        assert!((selected - expected).abs() <= slack, "{sampling}: {selected}");
    }
}

#[test]
fn another_seed_selects_others_and_flows_are_told_once() {
    let packets: Vec<_> = (0..2000u16)
        .map(|i| seen(&Sent { six: false, id: i, src: (i % 7) as u8, payload: vec![0; 12] }, 64, 0, 0, 0))
        .collect();
    let mut one = module(0.1, 1);
    let first = labels(&mut one, &packets);
    assert_ne!(first, labels(&mut module(0.1, 2), &packets));
    assert_eq!(one.rows.iter().filter(|r| r.table == 0).count(), 7);
    let distinct: std::collections::BTreeSet<_> = first.iter().collect();
    assert_eq!(distinct.len(), first.len(), "labels");
}

#[test]
#[should_panic(expected = "parameter sampling: 2 is not above 0 and at most 1")]
fn a_wrong_rate_is_named() {
    module(2.0, 0);
}

#[test]
#[should_panic(expected = "parameter hash: expected bob or ipsx, found \"md5\"")]
fn a_wrong_hash_is_named() {
    with("md5", 0.5, 0, 16);
}

#[test]
#[should_panic(expected = "parameter seed: ipsx has no initial value")]
fn a_seed_of_ipsx_is_refused() {
    with("ipsx", 0.5, 1, 16);
}

#[test]
fn ipsx_selects_by_its_own_range_and_labels_as_bob_does() {
    let packets: Vec<_> = (0..20_000u32)
        .map(|i| {
            let payload = [&[0, 1, 2, 3][..], &i.wrapping_mul(0x9e37_79b9).to_be_bytes(), &[0; 12]].concat();
            seen(&Sent { six: i % 2 == 0, id: (i / 7) as u16, src: (i % 5) as u8, payload }, 64, 0, 0, 0)
        })
        .collect();
    let all = labels(&mut with("bob", 1.0, 0, 1024), &packets);
    let some = labels(&mut with("ipsx", 0.25, 0, 1024), &packets);
    assert!((4000..6000).contains(&some.len()), "{}", some.len());
    let all: std::collections::BTreeSet<_> = all.into_iter().collect();
    assert!(some.iter().all(|label| all.contains(label)));
    // Exactly the packets whose hash, computed from the bytes, lies in the range.
    let expected = packets.iter().filter(|(_, b)| {
        let word = |at: usize| u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        let fold = |at: usize| word(at) ^ word(at + 4) ^ word(at + 8) ^ word(at + 12);
        let f = match b[0] >> 4 {
            4 => [word(4), word(12), word(16), word(24)],
            _ => [word(4) & !255, fold(8), fold(24), word(44)],
        };
        ipsx(f) < 16_384
    });
    assert_eq!(some.len(), expected.count());
}

/// State and setting are rows 3 and 2.
#[test]
fn what_could_not_be_hashed_in_full_or_remembered_is_counted() {
    let mut native = with("bob", 1.0, 0, 16);
    let whole = |i: u16| seen(&Sent { six: false, id: i, src: i as u8, payload: vec![1; 40] }, 64, 0, 0, 0);
    let mut packets: Vec<_> = (0..200).map(whole).collect();
    for (n, (d, bytes)) in packets.iter_mut().enumerate().take(30) {
        // Ten packets without the header, twenty without all of the payload.
        bytes.truncate(if n < 10 { 19 } else { 39 });
        d.cap_len = bytes.len() as u32;
    }
    labels(&mut native, &packets);
    native.end(0);
    let state = native.rows.iter().find(|r| r.table == 3).unwrap();
    let [hashed, selected, unreadable, cut, forgotten] = [12, 20, 28, 36, 44].map(|at| state.integer(at, 8));
    assert_eq!((hashed, selected, unreadable, cut), (190, 190, 10, 20));
    let told = native.rows.iter().filter(|r| r.table == 0).count() as u64;
    assert!(told >= 190 && forgotten == told - 16, "{told} {forgotten}");
    assert_eq!(native.rows.iter().filter(|r| r.table == 2).count(), 1);
    assert_eq!(native.fast.flows.iter().count(), 16);
}

proptest! {
    /// No bytes end the module, consistent with their descriptor or not.
    #[test]
    fn any_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..120),
        l3 in 0u16..60, l4 in 0u16..100, proto in any::<u8>(), six in any::<bool>(), ipsx in any::<bool>(),
    ) {
        let version = if six { flags::IPV6 } else { flags::IPV4 };
        let cap_len = bytes.len() as u32;
        let d = Descriptor { cap_len, wire_len: cap_len, l3: l3 as _, l4: l4 as _, proto, flags: version, ..Descriptor::default() };
        let mut native = with(if ipsx { "ipsx" } else { "bob" }, 1.0, 0, 16);
        labels(&mut native, &[(d, bytes)]);
        native.end(0);
        prop_assert_eq!(native.lost, 0);
    }
}
