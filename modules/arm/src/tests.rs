use super::*;
use flame_module::testing::{self, Parameters, Traffic};
use std::collections::BTreeSet;

fn arm() -> Arm {
    Arm::new(&Init::new(&Parameters::of(Params::DEFAULTS).init()))
}

const GROUP: &str = "239.1.1.1:5030";

fn payload(kind: u8, number: u32, rest: &[u8]) -> Vec<u8> {
    [&[b'A', b'R', 1, kind][..], &number.to_be_bytes(), rest].concat()
}

fn data(traffic: &mut Traffic, number: u32, ts_ns: u64) {
    traffic.udp("10.0.0.1:5030", GROUP).payload(&payload(0, number, &[number as u8; 100])).at(ts_ns);
}

fn nack(traffic: &mut Traffic, receiver: u8, number: u32, ts_ns: u64) {
    let from = format!("10.0.1.{receiver}:5030");
    traffic.udp(&from, "10.0.0.1:5030").payload(&payload(1, number, &[239, 1, 1, 1])).at(ts_ns);
}

/// Returns the outputs, and whether a packet is new.
fn ways(sent: &[testing::SentPacket]) -> Vec<(u32, bool)> {
    sent.iter().map(|packet| (packet.port, packet.index.is_none())).collect()
}

#[test]
fn a_loss_is_repaired_once_and_a_packet_that_is_not_there_is_asked_for_once() {
    let mut arm = arm();
    let mut traffic = Traffic::default();
    data(&mut traffic, 1, 0);
    assert_eq!(ways(&testing::push(&mut arm, 0, &traffic)), [(0, false)]);
    let original = traffic.memory()[traffic.descriptors()[0].addr as usize..].to_vec();
    let mut traffic = Traffic::default();
    for receiver in 0..3 {
        nack(&mut traffic, receiver, 1, 1000 + u64::from(receiver));
        nack(&mut traffic, receiver, 2, 1000 + u64::from(receiver));
    }
    let sent = testing::push(&mut arm, 1, &traffic);
    assert_eq!(ways(&sent), [(0, true), (1, false)]);
    assert_eq!(sent[0].bytes, original);
    assert_eq!((arm.counts.served, arm.counts.asked, arm.counts.suppressed), (1, 1, 4));
    // Those who miss it still ask again later.
    let mut traffic = Traffic::default();
    nack(&mut traffic, 0, 1, 60_000_000);
    nack(&mut traffic, 0, 2, 60_000_000);
    assert_eq!(ways(&testing::push(&mut arm, 1, &traffic)), [(0, true), (1, false)]);
}

/// A sender that begins anew has other packets of the same numbers.
#[test]
fn the_last_packet_of_a_number_is_the_one_that_repairs() {
    let mut arm = arm();
    for byte in [1, 2, 2] {
        let mut traffic = Traffic::default();
        traffic.udp("10.0.0.1:5030", GROUP).payload(&payload(0, 1, &[byte; 40]));
        testing::push(&mut arm, 0, &traffic);
    }
    let mut traffic = Traffic::default();
    nack(&mut traffic, 1, 1, 0);
    let sent = testing::push(&mut arm, 1, &traffic);
    assert_eq!((sent.len(), sent[0].bytes.last()), (1, Some(&2)));
}

#[test]
fn other_packets_pass_and_groups_do_not_mix() {
    let mut arm = arm();
    let mut traffic = Traffic::default();
    traffic.udp("10.0.0.1:5030", "239.1.1.2:5030").payload(&payload(0, 1, b"x"));
    traffic.udp("10.0.0.1:5030", "239.1.1.1:80").payload(&payload(0, 1, b"x"));
    traffic.udp("10.0.0.1:5030", GROUP).payload(b"AR");
    nack(&mut traffic, 1, 1, 0);
    assert_eq!(ways(&testing::push(&mut arm, 0, &traffic)), [(0, false); 4], "a NACK from above passes");
    let mut traffic = Traffic::default();
    nack(&mut traffic, 1, 1, 0);
    assert_eq!(ways(&testing::push(&mut arm, 1, &traffic)), [(1, false)], "that number is of another group");
    assert_eq!((arm.counts.data, arm.counts.passed, arm.counts.asked), (1, 3, 1));
}

/// Receivers lose a part of the packets, and ask for them again and again, until they have them. They notice
/// a loss the later the more they lose.
fn simulate(loss: u64, most: usize) -> (Arm, f64) {
    let mut arm = arm();
    let mut random = 7_u64;
    let mut missing: Vec<(u32, u32)> = Vec::new();
    let mut found = [0_u64; 2];
    for round in 0..2000_u32 {
        let mut traffic = Traffic::default();
        for n in 0..4 {
            data(&mut traffic, round * 4 + n, u64::from(round) * 10_000_000);
        }
        testing::push(&mut arm, 0, &traffic);
        for number in round * 4..round * 4 + 4 {
            random = flame_module::mix(random.wrapping_add(1));
            // A loss is noticed after some rounds; a repair is lost as often.
            let mut delay = 1;
            let mut dice = random;
            while dice % 100 < loss {
                missing.push((round + delay * 12, number));
                delay += 1;
                dice = flame_module::mix(dice);
            }
        }
        let due: Vec<_> = missing.extract_if(.., |(at, _)| *at <= round).collect();
        if !due.is_empty() {
            let mut traffic = Traffic::default();
            due.iter().for_each(|(_, number)| nack(&mut traffic, 1, *number, u64::from(round) * 10_000_000));
            let before = arm.counts.served;
            let late = usize::from(round >= 1000);
            testing::push(&mut arm, 1, &traffic);
            if late == 1 {
                found[0] += arm.counts.served - before;
                found[1] += due.len() as u64;
            }
        }
        if arm.cache.bytes() > most as u64 {
            arm.pressure(0, &mut Out::default());
        }
    }
    let share = found[0] as f64 / found[1] as f64;
    (arm, share)
}

/// The cache grows with the loss, until nine of ten NACKs are served, and not further.
#[test]
fn the_cache_is_as_large_as_the_loss_demands() {
    let sizes: Vec<u64> = [25, 35, 50]
        .map(|loss| {
            let (arm, share) = simulate(loss, usize::MAX);
            println!("{loss} % loss: {} KiB, {:.1} % served", arm.cache.bytes() >> 10, share * 100.0);
            assert!(share > 0.85, "{loss}: {share}");
            arm.cache.bytes()
        })
        .to_vec();
    assert!(sizes.is_sorted() && sizes[0] < sizes[2], "{sizes:?}");
    // Less memory serves fewer.
    let (arm, share) = simulate(50, sizes[0] as usize / 2);
    assert!(share < 0.85 && arm.counts.asked > 0, "{share}");
}

#[test]
fn pressure_drops_the_older_half() {
    let mut arm = arm();
    let mut numbers = 0..640_u32;
    for _ in 0..10 {
        (0..32).for_each(|_| arm.cache.record(false));
        let mut traffic = Traffic::default();
        numbers.by_ref().take(64).for_each(|number| data(&mut traffic, number, 0));
        testing::push(&mut arm, 0, &traffic);
    }
    let there = |arm: &mut Arm| -> BTreeSet<u32> {
        (0..640_u32).filter(|n| arm.cache.get(name([239, 1, 1, 1], n.to_be_bytes())).is_some()).collect()
    };
    let (before, bytes) = (there(&mut arm), arm.cache.bytes());
    assert!(before.len() > 320, "{}", before.len());
    arm.pressure(0, &mut Out::default());
    let after = there(&mut arm);
    assert!(arm.cache.bytes() <= bytes / 2 + 100_000 && after.len() < before.len());
    assert!(after.contains(&639) && !after.contains(before.first().unwrap()));
}
