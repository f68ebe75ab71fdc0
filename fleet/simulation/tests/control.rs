//! Intents on their way to nodes.

use crate::{run_seeds, seeds};
use flame_fleet_simulation::Broken;
use flame_fleet_simulation::control::{Counts, Setup, run};

fn setup(seed: u64) -> Setup {
    Setup { nodes: 3 + (seed % 18) as usize, until: 40_000, broken: None }
}

/// Leases end, nothing revoked, expired or forged runs, no node goes back, waves halt, and in the end all is
/// as the fleet wishes.
#[test]
fn small_fleets_run_what_is_wished_and_nothing_else() {
    let mut sum = Counts::default();
    run_seeds(0..1000, |seed| {
        let counts = run(seed, &setup(seed))?;
        sum.rollouts += counts.rollouts;
        sum.halted += counts.halted;
        sum.revoked += counts.revoked;
        sum.rotated += counts.rotated;
        sum.accepted += counts.accepted;
        sum.refused += counts.refused;
        sum.starts += counts.starts;
        sum.leases += counts.leases;
        Ok(())
    });
    // Each kind of trouble was met.
    let met = [sum.rollouts, sum.halted, sum.revoked, sum.rotated, sum.refused, sum.starts, sum.leases];
    assert!(seeds().is_some() || met.iter().all(|n| *n > 500) && sum.accepted > 100_000, "{sum:?}");
}

#[test]
fn a_thousand_nodes_run_what_is_wished() {
    run_seeds(0..5, |seed| run(seed, &Setup { nodes: 1000, until: 15_000, broken: None }).map(|_| ()));
}

/// The properties are worth something: each rule that is broken on purpose is found.
#[test]
fn each_broken_rule_of_control_is_found() {
    let missed: Vec<_> = Broken::OF_CONTROL
        .into_iter()
        .filter(|broken| {
            let breaks = |seed| run(seed, &Setup { broken: Some(*broken), ..setup(seed) }).is_err();
            !(0..3000).any(breaks)
        })
        .collect();
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn a_seed_of_control_is_played_again() {
    for seed in 0..20 {
        assert_eq!(run(seed, &setup(seed)), run(seed, &setup(seed)));
    }
}
