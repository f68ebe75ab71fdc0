//! Waves.

use flame_fleet_protocol::rollout::{Outcome, Plan, Progress, Rollout, order};

const ID: u64 = 5;

/// Ten nodes in waves of 1, 3 and the rest, of which a third may fail.
fn rollout() -> (Rollout, Vec<String>) {
    let mut nodes: Vec<String> = (0..10).map(|n| format!("n{n}")).collect();
    let plan = Plan { waves: vec![1, 3], failures: 334, patience: 60 };
    let rollout = Rollout::new(ID, nodes.clone(), plan, 0);
    nodes.sort_by_key(|node| order(ID, node));
    (rollout, nodes)
}

fn report(rollout: &mut Rollout, nodes: &[String], outcome: &Outcome) {
    nodes.iter().for_each(|node| rollout.reported(ID, node, outcome.clone()));
}

fn reached(rollout: &Rollout, nodes: &[String]) -> usize {
    nodes.iter().filter(|node| order(ID, node) <= rollout.reach()).count()
}

#[test]
fn waves_follow_each_other_and_reach_all() {
    let (mut rollout, nodes) = rollout();
    for (wave, end) in [1, 4, 10].into_iter().enumerate() {
        assert_eq!((rollout.poll(1), reached(&rollout, &nodes)), (Progress::Wave(wave), end));
        // A refusal is data, and no failure.
        report(&mut rollout, &nodes[..end], &Outcome::Refused("policy".to_owned()));
    }
    assert_eq!((rollout.poll(1), rollout.reach()), (Progress::Done, u64::MAX));
}

#[test]
fn failures_and_silence_halt_it_where_it_is() {
    let failed = Outcome::Failed("trap".to_owned());
    let (mut rollout, nodes) = rollout();
    report(&mut rollout, &nodes[..1], &Outcome::Running);
    assert_eq!(rollout.poll(10), Progress::Wave(1));
    report(&mut rollout, &nodes[1..2], &failed);
    // One of three may fail. The patience of a wave begins with it.
    assert_eq!(rollout.poll(69), Progress::Wave(1));
    report(&mut rollout, &nodes[2..3], &Outcome::Running);
    let halted = Progress::Halted { wave: 1, failed: 1, silent: 1, of: 3 };
    assert_eq!((rollout.poll(70), reached(&rollout, &nodes)), (halted, 4));
    report(&mut rollout, &nodes, &Outcome::Running);
    assert_eq!(rollout.poll(71), halted);
}

/// A module that fails after its wave, for instance by its first traffic, halts the waves that follow.
#[test]
fn a_late_failure_of_an_earlier_wave_halts() {
    let (mut rollout, nodes) = rollout();
    report(&mut rollout, &nodes[..1], &Outcome::Running);
    assert_eq!(rollout.poll(1), Progress::Wave(1));
    report(&mut rollout, &nodes[..1], &Outcome::Failed("trap".to_owned()));
    assert_eq!(rollout.poll(2), Progress::Halted { wave: 1, failed: 1, silent: 0, of: 1 });
}

#[test]
fn reports_of_another_rollout_count_for_nothing() {
    let (mut rollout, nodes) = rollout();
    nodes.iter().for_each(|node| rollout.reported(ID - 1, node, Outcome::Running));
    assert_eq!(rollout.poll(1), Progress::Wave(0));
    assert!(rollout.outcomes().is_empty());
}
