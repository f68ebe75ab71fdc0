use super::*;
use flame_module::testing::{Native, Parameters, Traffic};
use std::collections::BTreeMap;
use tables::{Top, Total};

fn parameters() -> Parameters {
    Parameters::of(Params::DEFAULTS)
}

fn native(parameters: &Parameters) -> Native<Talkers, Merge> {
    Native::with_slow(parameters, 0)
}

#[test]
fn each_kind_of_key_has_its_text() {
    let mut traffic = Traffic::default();
    traffic.tcp("10.0.0.1:1024", "192.0.2.7:443").payload(&[0; 100]);
    traffic.udp("[fd00::1]:5353", "[fd00::2]:53");
    for (kind, expected) in [
        ("src", "10.0.0.1 fd00::1"),
        ("dst", "192.0.2.7 fd00::2"),
        ("host", "10.0.0.1 192.0.2.7 fd00::1 fd00::2"),
        ("pair", "10.0.0.1 > 192.0.2.7 fd00::1 > fd00::2"),
        ("flow", "tcp 10.0.0.1:1024 > 192.0.2.7:443 udp [fd00::1]:5353 > [fd00::2]:53"),
        ("sport", "tcp 1024 udp 5353"),
        ("dport", "tcp 443 udp 53"),
        ("port", "tcp 443 tcp 1024 udp 53 udp 5353"),
        ("proto", "tcp udp"),
    ] {
        let mut native = native(&parameters().text("key", kind));
        native.run(&traffic);
        native.end(0);
        let rows: Vec<Top> = native.of();
        let texts: Vec<_> = rows.iter().map(|row| row.key).collect();
        assert_eq!(texts.join(" "), expected, "{kind}");
        assert!(rows.iter().all(|row| row.error == 0) && rows[0].bytes >= 154, "{rows:?}");
    }
}

#[test]
fn mac_addresses_are_those_of_ethernet() {
    let mut traffic = Traffic::default();
    let mut packet = traffic.udp("10.0.0.1:1", "10.0.0.2:2");
    packet.bytes()[..12].copy_from_slice(&[2, 0, 0, 0, 0, 0xa, 2, 0, 0, 0, 0, 0xb]);
    for (link, expected) in [(1, ["02:00:00:00:00:0b", "02:00:00:00:00:0a"]), (101, ["", ""])] {
        let header = flame_abi::BatchHeader { link, ..Default::default() };
        let batch = Batch::new(traffic.descriptors(), traffic.memory(), 0, &header);
        let packet = batch.packets().next().expect("there is a packet");
        let text = |kind| {
            let mut text = flame_module::FixedText::default();
            keys(kind, &batch, &packet).inspect(|(key, _)| key::push(kind, key, &mut text));
            text.as_str().to_owned()
        };
        assert_eq!([text(Kind::Smac), text(Kind::Dmac)], expected);
        let both = keys(Kind::Mac, &batch, &packet);
        assert_eq!(both.is_some_and(|(_, second)| second.is_some()), link == 1);
    }
}

#[test]
fn bytes_and_packets_rank_differently() {
    let mut traffic = Traffic::default();
    traffic.udp("10.0.0.1:1", "10.0.0.9:2").payload(&[0; 1000]);
    for _ in 0..3 {
        traffic.udp("10.0.0.2:1", "10.0.0.9:2");
    }
    for (by, expected) in [
        ("bytes", [("10.0.0.1", 1042, 1), ("10.0.0.2", 126, 3)]),
        ("packets", [("10.0.0.2", 126, 3), ("10.0.0.1", 1042, 1)]),
    ] {
        let mut native = native(&parameters().text("by", by));
        native.run(&traffic);
        native.end(7);
        let rows: Vec<Top> = native.of();
        let found: Vec<_> = rows.iter().map(|row| (row.key, row.bytes, row.packets)).collect();
        assert_eq!(found, expected, "{by}");
        let total = Total { end_ns: 7, keys: 2, bytes: 1168, packets: 4, unlisted: 0, without: 0 };
        assert_eq!(native.of::<Total>(), [total]);
    }
}

#[test]
fn a_wrong_parameter_is_named_with_what_was_expected() {
    for (name, expected) in [("key", "expected one of src, dst"), ("by", "expected bytes or packets")] {
        let p = parameters().text(name, "size");
        let panic = std::panic::catch_unwind(|| native(&p)).err().expect("refused");
        let text = panic.downcast_ref::<String>().expect("a text");
        assert!(text.contains(expected), "{text}");
    }
}

/// Two workers, to which batches come in turn.
struct Two([Talkers; 2], usize);

impl Module for Two {
    fn new(init: &Init) -> Self {
        Self([0, 1].map(|_| Talkers::new(init)), 0)
    }

    fn batch(&mut self, batch: &Batch, out: &mut Out) {
        self.1 = 1 - self.1;
        self.0[self.1].batch(batch, out);
    }

    fn end(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        self.0.iter_mut().for_each(|worker| assert_eq!(worker.end(now_ns, out), Progress::Done));
        Progress::Done
    }
}

#[test]
fn true_counts_lie_within_the_error() {
    let mut random = 7u64;
    let mut next = |below: u64| {
        random = flame_module::mix(random);
        random % below
    };
    let mut truth = BTreeMap::<String, u64>::new();
    let mut native =
        Native::<Two, Merge>::with_slow(&parameters().integer("counters", 64).integer("n", 20), 0);
    for round in 0..200 {
        let mut traffic = Traffic::default();
        for _ in 0..100 {
            // Few hosts send most bytes.
            let most = 1 + next(250);
            let (host, size) = (next(most), next(1000));
            let host = format!("10.0.{}.{host}", round % 3);
            traffic.udp(&format!("{host}:1"), "10.9.9.9:2").payload(&vec![0; size as usize]);
            *truth.entry(host).or_default() += size + 42;
        }
        native.run(&traffic);
    }
    native.end(0);
    let (tops, total) = (native.of::<Top>(), native.of::<Total>()[0]);
    assert!(tops.len() == 20 && total.unlisted > 0 && tops.iter().any(|row| row.error > 0), "{total:?}");
    assert_eq!(total.bytes, truth.values().sum::<u64>());
    for row in &tops {
        let exact = truth[row.key];
        assert!(exact <= row.bytes && row.bytes - row.error <= exact, "{exact} {row:?}");
    }
    for (key, exact) in &truth {
        let is_listed = tops.iter().any(|row| row.key == key);
        assert!(is_listed || *exact <= tops[19].bytes.max(total.unlisted), "{key} {exact}");
    }
    let largest = truth.values().max().expect("there are hosts");
    assert!(tops[0].bytes - tops[0].error <= *largest && *largest <= tops[0].bytes, "{tops:?}");
}
