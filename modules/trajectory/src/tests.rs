use super::*;
use flame_module::Descriptor;
use flame_module::testing::{Native, Parameters};
use proptest::prelude::*;

fn module(sampling: f64, seed: i64) -> Native<Trajectory> {
    let parameters = Parameters::default().with("sampling", &sampling.to_le_bytes());
    let parameters = parameters.integer("payload", 20).integer("seed", seed).integer("max_flows", 1024);
    Native::new(&parameters, 0)
}

#[derive(Clone, Debug)]
struct Sent {
    six: bool,
    id: u16,
    src: u8,
    payload: Vec<u8>,
}

/// What a monitor sees: the packet with whatever the way changed.
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
    /// Both ends of a path select the same packets under the same labels, whatever routers and links changed.
    #[test]
    fn two_monitors_agree(
        packets in prop::collection::vec(sent(), 1..80),
        changes in (any::<u8>(), any::<u8>(), any::<u16>(), 0usize..20),
    ) {
        let here: Vec<_> = packets.iter().map(|p| seen(p, 64, 0, 0, 0)).collect();
        let (ttl, tos, sum, padding) = changes;
        let there: Vec<_> = packets.iter().map(|p| seen(p, ttl, tos, sum, padding)).collect();
        prop_assert_eq!(labels(&mut module(0.5, 3), &here), labels(&mut module(0.5, 3), &there));
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
        let selected = labels(&mut module(sampling, 0), &packets).len() as f64;
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
