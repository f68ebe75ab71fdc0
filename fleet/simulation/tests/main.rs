//! The properties of the protocols over many seeds.
//!
//! FLAME_SEED runs the seed with this number alone, which a failure prints. FLAME_SEEDS multiplies the number
//! of seeds; 1 without it.

mod control;
mod records;

use std::ops::Range;

/// Returns the only seed to run, if one is stated.
fn seeds() -> Option<u64> {
    std::env::var("FLAME_SEED").ok().map(|seed| seed.parse().expect("FLAME_SEED is a number"))
}

/// Runs seeds until one fails.
fn run_seeds(seeds: Range<u64>, mut run: impl FnMut(u64) -> Result<(), String>) {
    let times: u64 = std::env::var("FLAME_SEEDS").map_or(1, |n| n.parse().expect("FLAME_SEEDS is a number"));
    let all = match self::seeds() {
        Some(seed) => seed..seed + 1,
        None => seeds.start..seeds.end * times,
    };
    for seed in all {
        run(seed)
            .unwrap_or_else(|e| panic!("{e}\nplay it again: FLAME_SEED={seed} with the name of this test"));
    }
}
