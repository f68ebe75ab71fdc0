//! Runs fuzz targets without a fuzzer: on their seeds, and on changes of them that follow from a number.
//!
//! A fuzzer needs a nightly compiler and a build of everything with its instrumentation. This crate stands in
//! for `libfuzzer_sys` in a test program, so that every target is compiled and run by `cargo test` with the
//! build of the other tests. It knows nothing of the code that an input reaches; `make fuzz` does.
#![forbid(unsafe_code)]

use fastrand::Rng;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

/// Defines the function `run` of a target in place of a fuzzer's entry.
#[macro_export]
macro_rules! fuzz_target {
    (|$input:ident: &[u8]| $body:expr) => {
        /// Runs the target on one input.
        pub fn run($input: &[u8]) {
            let _ = $body;
        }
    };
}

/// The largest input in bytes.
const MAX: usize = 1 << 16;

/// Values at which comparisons of numbers and lengths turn.
const EDGES: [u64; 12] =
    [0, 1, 2, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 63, u64::MAX];

/// Runs a target on each of `seeds`, on no bytes, and on `count` changed seeds.
///
/// # Panics
///
/// Panics as the target does, after printing the input in hexadecimal.
pub fn replay(run: fn(&[u8]), seeds: &[Vec<u8>], count: usize) {
    attempt(run, &[]);
    seeds.iter().for_each(|seed| attempt(run, seed));
    let mut rng = Rng::with_seed(1);
    let none = [Vec::new()];
    let seeds = if seeds.is_empty() { &none[..] } else { seeds };
    let mut input = Vec::new();
    for _ in 0..count {
        input.clear();
        input.extend_from_slice(&seeds[rng.usize(..seeds.len())]);
        for _ in 0..rng.usize(1..=6) {
            change(&mut input, &seeds[rng.usize(..seeds.len())], &mut rng);
        }
        input.truncate(MAX);
        attempt(run, &input);
    }
}

/// Runs a target as [`replay`] does, on `FLAME_REPLAY` times as many changes. If `FLAME_CORPUS` names a
/// folder, the seeds are written below it for a fuzzer.
///
/// # Panics
///
/// Panics as the target does, and if a variable cannot be read or a seed cannot be written.
pub fn target(name: &str, run: fn(&[u8]), seeds: &[Vec<u8>], count: usize) {
    if let Some(corpus) = std::env::var_os("FLAME_CORPUS") {
        let folder = Path::new(&corpus).join(name);
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        for (n, seed) in seeds.iter().enumerate() {
            std::fs::write(folder.join(n.to_string()), seed).expect("a seed can be written");
        }
    }
    let times =
        std::env::var("FLAME_REPLAY").map_or(1, |times| times.parse().expect("FLAME_REPLAY is a number"));
    replay(run, seeds, count * times);
}

fn attempt(run: fn(&[u8]), input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(input))) {
        let hex = input.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        eprintln!("the input of {} bytes: {hex}", input.len());
        resume_unwind(panic);
    }
}

/// Makes one change of an input; `other` is another seed.
fn change(input: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let at = rng.usize(..=input.len());
    let length = rng.usize(..=(input.len() - at).min(64));
    match rng.u8(..8) {
        0 | 1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << rng.u8(..8);
            }
        }
        2 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = rng.u8(..);
            }
        }
        3 => {
            // A number of 1, 2, 4 or 8 bytes in either order.
            let value = EDGES[rng.usize(..EDGES.len())].wrapping_add(rng.u64(..3)).wrapping_sub(1);
            let width = (1 << rng.usize(..4)).min(input.len() - at);
            let (little, big) = (value.to_le_bytes(), value.to_be_bytes());
            let bytes = if rng.bool() { &little[..width] } else { &big[8 - width..] };
            input[at..at + width].copy_from_slice(bytes);
        }
        4 => drop(input.drain(at..at + length)),
        5 => {
            let copy = input[at..at + length].to_vec();
            input.splice(at..at, copy);
        }
        6 => {
            let mut new = vec![0; rng.usize(1..=16)];
            rng.fill(&mut new);
            input.splice(at..at, new);
        }
        _ => {
            let from = rng.usize(..=other.len());
            let length = rng.usize(..=(other.len() - from).min(256));
            input.splice(at..at, other[from..from + length].iter().copied());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether a target fails on a change of the seed, but not on the seed.
    fn finds(run: fn(&[u8])) -> bool {
        let seed = b"length: 1234, end".to_vec();
        run(&seed);
        catch_unwind(|| replay(run, &[seed, vec![0; 8]], 20_000)).is_err()
    }

    #[test]
    fn faults_of_one_change_are_found() {
        assert!(finds(|input| assert!(input.len() != 16, "one byte less")));
        assert!(finds(|input| assert!(!input.ends_with(b"length: 1234, end, end"), "a part twice")));
        assert!(finds(|input| assert!(input.get(8..12) != Some(&[0xff; 4]), "a field at its edge")));
        assert!(finds(|input| assert!(!input.starts_with(b"mength"), "a bit")));
        assert!(finds(|input| {
            let has_other = input.windows(4).any(|part| part == [0; 4]);
            assert!(!(has_other && input.starts_with(b"len")), "two seeds");
        }));
        assert!(!finds(|input| assert!(input.len() <= MAX)));
    }
}
