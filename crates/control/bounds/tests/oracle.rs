//! Compares bounds and counters of generated modules with Wasmtime's own meter. `make soak` runs many more of
//! them: `FLAME_PROGRAMS` is their number, `FLAME_ARGUMENTS` that of calls of each, `FLAME_SEED` the seed of
//! the first, `FLAME_THREADS` the number of threads. Of the faults, `FLAME_SHOW` are printed, without those
//! of the kinds in `FLAME_HIDE`, each after `FLAME_SHRINK` attempts to make it smaller.

use crate::generate::Program;
use crate::generate::choices::Choices;
use crate::generate::hold::{Kind, Oracle, Tally, Violation};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The seed of choices for the calls of a program, separate from those of the program, so that it shrinks
/// with the same calls.
const CALLS: u64 = 0x5eed_0000_0000_0000;

/// Returns a setting of `make soak`, or the usual value.
fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

fn hold(
    oracle: &Oracle,
    choices: &mut Choices,
    seed: u64,
    calls: u64,
    tally: &mut Tally,
) -> (Program, Vec<Violation>) {
    let program = Program::new(choices);
    // Batches take longer than plain calls.
    let calls = if program.exports.len() > 1 || program.text.contains("flame_batch") {
        calls.div_ceil(4)
    } else {
        calls
    };
    let violations = oracle.hold(&program, calls, &mut Choices::seeded(seed ^ CALLS), tally);
    (program, violations)
}

/// Reduces the choices while the program still causes the violation.
fn shrink(oracle: &Oracle, mut drawn: Vec<u64>, seed: u64, calls: u64, kind: Kind) -> (Program, Violation) {
    let mut tries = setting("FLAME_SHRINK", 600);
    let attempt = |drawn: Vec<u64>| {
        let mut choices = Choices::given(drawn);
        let (program, violations) = hold(oracle, &mut choices, seed, calls, &mut Tally::default());
        violations.into_iter().find(|v| v.kind == kind).map(|v| (program, v))
    };
    let mut best = attempt(drawn.clone()).expect("the same choices give the same program");
    let mut size = drawn.len().div_ceil(2);
    while size > 0 && tries > 0 {
        let mut at = 0;
        while at < drawn.len() && tries > 0 {
            let to = (at + size).min(drawn.len());
            let mut cut = drawn.clone();
            cut.drain(at..to);
            let mut zero = drawn.clone();
            zero[at..to].fill(0);
            let mut better = false;
            for changed in [cut, zero] {
                tries = tries.saturating_sub(1);
                if changed != drawn
                    && let Some(smaller) = attempt(changed.clone())
                    && smaller.0.text.len() <= best.0.text.len()
                {
                    (best, drawn, better) = (smaller, changed, true);
                    break;
                }
            }
            if !better {
                at = to;
            }
        }
        size /= 2;
    }
    best
}

#[test]
fn no_bound_is_passed_and_counters_end_everything() {
    let (programs, calls) = (setting("FLAME_PROGRAMS", 800), setting("FLAME_ARGUMENTS", 24));
    let (first, threads) = (setting("FLAME_SEED", 1), setting("FLAME_THREADS", 2));
    let next = AtomicU64::new(0);
    let total = Mutex::new(Tally::default());
    let found = Mutex::new(Vec::new());
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let oracle = Oracle::new();
                let mut tally = Tally::default();
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= programs {
                        break;
                    }
                    let seed = first + n;
                    let mut choices = Choices::seeded(seed);
                    let (program, violations) = hold(&oracle, &mut choices, seed, calls, &mut tally);
                    if let Some(violation) = violations.into_iter().next() {
                        found.lock().unwrap().push((seed, program.kinds, choices.drawn, violation));
                    }
                    if n > 0 && n.is_multiple_of(10_000) {
                        println!("{n} programs, {:.0} s", began.elapsed().as_secs_f64());
                    }
                }
                total.lock().unwrap().add(&tally);
            });
        }
    });
    let t = total.into_inner().unwrap();
    let seconds = began.elapsed().as_secs_f64();
    let mut found = found.into_inner().unwrap();
    found.sort_by_key(|(seed, ..)| *seed);
    println!(
        "{} programs, {} with a bound; {} executions, {:.0} a second: {} returned, {} trapped, {} were given up, {} of these \
         calls had a bound; rewritten, {} did the same and {} were cut off; {} programs violate something",
        t.programs,
        t.programs_bounded,
        t.executions,
        t.executions as f64 / seconds,
        t.returned,
        t.trapped,
        t.given_up,
        t.bounded,
        t.same,
        t.cut_off,
        found.len()
    );
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    for (_, of, _, violation) in &found {
        *kinds.entry(format!("{:?}", violation.kind)).or_default() += 1;
        of.iter().for_each(|k| *kinds.entry(format!("  with {k}")).or_default() += 1);
    }
    kinds.iter().for_each(|(kind, n)| println!("{n:>6} {kind}"));

    let oracle = Oracle::new();
    let fails: Vec<_> = found.iter().collect();
    let hidden = std::env::var("FLAME_HIDE").unwrap_or_default();
    let hides = |kinds: &BTreeSet<&str>| hidden.split(',').any(|kind| kinds.contains(kind));
    let shown: Vec<_> = if fails.is_empty() { found.iter().collect() } else { fails.clone() };
    let shown = shown.into_iter().filter(|(_, kinds, ..)| !hides(kinds));
    for (seed, _, drawn, violation) in shown.take(setting("FLAME_SHOW", 2) as usize) {
        let (program, violation) = shrink(&oracle, drawn.clone(), *seed, calls, violation.kind);
        println!("seed {seed}: {:?}: {}\n{}", violation.kind, violation.what, program.text);
    }
    assert!(fails.is_empty(), "{} programs do what must not be; the first are above", fails.len());
    assert!(t.programs_bounded > t.programs / 4, "hardly anything has a bound");
    assert!(t.diverging > t.executions / 100, "hardly anything diverges");
    assert!(t.cut_off > 0 && t.trapped > 0 && t.same > t.executions / 4, "the generator is one-sided");
    // An oracle that never found a known fault proves nothing.
}
