//! The properties of active nodes over many seeds.
//!
//! FLAME_SEED runs the seed with this number alone, which a failure prints. FLAME_SEEDS multiplies the number
//! of seeds; 1 without it.

mod programs;
mod replies;

use flame_active_link::Cause as LinkCause;
use flame_active_node::Cause;
use flame_active_simulation::{Counts, Setup, Villain, run};
use std::ops::Range;

/// Returns the only seed to run, if one is stated.
fn seeds() -> Option<u64> {
    std::env::var("FLAME_SEED").ok().map(|seed| seed.parse().expect("FLAME_SEED is a number"))
}

/// Runs seeds until one fails, and returns what they met.
fn run_seeds(seeds: Range<u64>, setup: impl Fn(u64) -> Setup) -> Counts {
    let times: u64 = std::env::var("FLAME_SEEDS").map_or(1, |n| n.parse().expect("FLAME_SEEDS is a number"));
    let all = match self::seeds() {
        Some(seed) => seed..seed + 1,
        None => seeds.start..seeds.end * times,
    };
    let mut sum = Counts::default();
    for seed in all {
        let counts = run(seed, &setup(seed))
            .unwrap_or_else(|e| panic!("{e}\nplay it again: FLAME_SEED={seed} with the name of this test"));
        sum.evaluations += counts.evaluations;
        sum.deliveries += counts.deliveries;
        sum.crashes += counts.crashes;
        sum.set_back += counts.set_back;
        sum.spent += counts.spent;
        counts.causes.iter().for_each(|(cause, n)| *sum.causes.entry(*cause).or_default() += n);
        counts.links.iter().for_each(|(cause, n)| *sum.links.entry(*cause).or_default() += n);
    }
    sum
}

#[test]
fn honest_networks_stay_within_the_bound() {
    let sum = run_seeds(0..1500, |_| Setup { villain: None });
    let met = [sum.evaluations, sum.deliveries, sum.crashes, sum.set_back];
    assert!(seeds().is_some() || met.iter().all(|n| *n > 500), "{sum:?}");
}

#[test]
fn a_liar_spends_its_share_times_its_neighbours() {
    let sum = run_seeds(0..150, |_| Setup { villain: Some(Villain::Liar) });
    assert!(seeds().is_some() || sum.causes[&Cause::BeyondShare] > 500, "{sum:?}");
    run_seeds(0..250, |_| Setup { villain: Some(Villain::Repeater) });
}

#[test]
fn impostors_stay_outside() {
    let all = [Villain::Foreign, Villain::Expired, Villain::Expires, Villain::Revoked, Villain::Thief];
    let sum = run_seeds(0..250, |seed| Setup { villain: Some(all[seed as usize % all.len()]) });
    for cause in [LinkCause::Untrusted, LinkCause::Expired, LinkCause::Revoked, LinkCause::NotHolder] {
        assert!(seeds().is_some() || sum.links[&cause] > 20, "{cause:?}: {sum:?}");
    }
    assert!(seeds().is_some() || sum.links[&LinkCause::Ended] > 20, "{sum:?}");
}

/// Each cause for which a node drops something is met, so none is a word only.
#[test]
fn each_cause_is_met() {
    let honest = run_seeds(0..300, |_| Setup { villain: None });
    let liars = run_seeds(0..60, |_| Setup { villain: Some(Villain::Liar) });
    let hosts = run_seeds(0..60, |_| Setup { villain: Some(Villain::Expires) });
    // These need an error of this node, of the sandbox, a narrowed credential, or code that only a liar's own
    // sandbox would take.
    let elsewhere = [
        Cause::Overrun,
        Cause::NotCompiled,
        Cause::NoFunction,
        Cause::Long,
        Cause::ForeignPayer,
        Cause::Malformed,
        Cause::BeyondGrant,
        Cause::Elsewhere,
        Cause::Interface,
    ];
    let met = |cause: &Cause| [&honest, &liars, &hosts].iter().map(|sum| sum.causes[cause]).sum::<u64>();
    let missed: Vec<_> =
        Cause::ALL.iter().filter(|cause| !elsewhere.contains(cause) && met(cause) == 0).collect();
    assert!(seeds().is_some() || missed.is_empty(), "{missed:?}: {honest:?} {liars:?}");
    let of_links = |cause: LinkCause| honest.links[&cause];
    let common = [
        LinkCause::Forged,
        LinkCause::Replayed,
        LinkCause::NoSession,
        LinkCause::NoExchange,
        LinkCause::Repeated,
    ];
    assert!(seeds().is_some() || common.iter().all(|cause| of_links(*cause) > 20), "{:?}", honest.links);
}

#[test]
fn a_seed_is_played_again() {
    for seed in 0..20 {
        let setup = Setup { villain: (seed % 2 == 1).then_some(Villain::Liar) };
        assert_eq!(run(seed, &setup), run(seed, &setup));
    }
}
