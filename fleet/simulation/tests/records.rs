//! Records on their way to the archive.

use crate::{run_seeds, seeds};
use flame_fleet_simulation::Broken;
use flame_fleet_simulation::records::{Counts, Setup, run};

/// Every fourth seed restores nodes together with their memory.
fn setup(seed: u64) -> Setup {
    Setup { nodes: 3 + (seed % 18) as usize, until: 8000, pace: 400, memories: seed % 4 == 3, broken: None }
}

/// All that is taken is archived once, in order, or counted as lost; no spool is cut beyond the archive, and
/// no watermark falls.
#[test]
fn small_fleets_lose_nothing_and_archive_nothing_twice() {
    let mut sum = Counts::default();
    run_seeds(0..4000, |seed| {
        let counts = run(seed, &setup(seed))?;
        sum.archived += counts.archived;
        sum.lost_batches += counts.lost_batches;
        sum.early += counts.early;
        sum.forked += counts.forked;
        sum.conflicts += counts.conflicts;
        sum.merged += counts.merged;
        sum.restored += counts.restored;
        sum.wiped += counts.wiped;
        sum.refused += counts.refused;
        Ok(())
    });
    // Each kind of trouble was met.
    let met = [
        sum.lost_batches,
        sum.early,
        sum.forked,
        sum.conflicts,
        sum.restored,
        sum.wiped,
        sum.refused,
        sum.merged,
    ];
    assert!(seeds().is_some() || met.iter().all(|n| *n > 100) && sum.archived > 100_000, "{sum:?}");
}

#[test]
fn a_thousand_nodes_lose_nothing() {
    run_seeds(0..5, |seed| {
        let setup = Setup { nodes: 1000, until: 4000, pace: 800, memories: false, broken: None };
        let counts = run(seed, &setup)?;
        let is_large = counts.archived > 3000;
        if is_large { Ok(()) } else { Err(format!("seed {seed}: {counts:?}")) }
    });
}

/// The properties are worth something: each rule that is broken on purpose is found.
#[test]
fn each_broken_rule_of_records_is_found() {
    let missed: Vec<_> = Broken::OF_RECORDS
        .into_iter()
        .filter(|broken| {
            let breaks = |seed| run(seed, &Setup { broken: Some(*broken), ..setup(seed) }).is_err();
            !(0..20_000).any(breaks)
        })
        .collect();
    assert!(missed.is_empty(), "{missed:?}");
}

/// A seed is a run: it can be played again.
#[test]
fn a_seed_is_played_again() {
    for seed in 0..50 {
        assert_eq!(run(seed, &setup(seed)), run(seed, &setup(seed)));
    }
}
