//! Every fuzz target holds on its seeds and on changes of them.
//!
//! `fuzz/seed.sh` makes the seeds, those of captures only where FLAME_TRACES or a folder beside the project
//! has some, and those of standard modules where they are built (FLAME_MODULES). FLAME_REPLAY multiplies the
//! number of changed seeds; 1 without it.

// Targets have `no_main` for a fuzzer.
#![allow(unused_attributes)]

extern crate flame_replay as libfuzzer_sys;

#[path = "../../fuzz_targets/analyser.rs"]
mod analyser;
#[path = "../../fuzz_targets/answer.rs"]
mod answer;
#[path = "../../fuzz_targets/capsule.rs"]
mod capsule;
#[path = "../../fuzz_targets/certificate.rs"]
mod certificate;
#[path = "../../fuzz_targets/click.rs"]
mod click;
#[path = "../../fuzz_targets/credential.rs"]
mod credential;
#[path = "../../fuzz_targets/decode.rs"]
mod decode;
#[path = "../../fuzz_targets/exchange.rs"]
mod exchange;
#[path = "../../fuzz_targets/filter.rs"]
mod filter;
#[path = "../../fuzz_targets/finish.rs"]
mod finish;
#[path = "../../fuzz_targets/joined.rs"]
mod joined;
#[path = "../../fuzz_targets/language.rs"]
mod language;
#[path = "../../fuzz_targets/manifest.rs"]
mod manifest;
#[path = "../../fuzz_targets/names.rs"]
mod names;
#[path = "../../fuzz_targets/pcap.rs"]
mod pcap;
#[path = "../../fuzz_targets/pcapng.rs"]
mod pcapng;
#[path = "../../fuzz_targets/policy.rs"]
mod policy;
#[path = "../../fuzz_targets/programs.rs"]
mod programs;
#[path = "../../fuzz_targets/records.rs"]
mod records;
#[path = "../../fuzz_targets/rewriter.rs"]
mod rewriter;
#[path = "../../fuzz_targets/rows.rs"]
mod rows;
#[path = "../../fuzz_targets/rules.rs"]
mod rules;
#[path = "../../fuzz_targets/signatures.rs"]
mod signatures;
#[path = "../../fuzz_targets/view.rs"]
mod view;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The most seeds of a target that are run. Captures have thousands.
const SEEDS: usize = 500;

static CORPUS: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../seed.sh");
    let made = Command::new("bash").arg(&script).env("FLAME_CORPUS", folder.path()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    folder
});

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = CORPUS.path().join(target);
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    // The same ones every time, from all parts of the list.
    paths.sort();
    let step = paths.len().div_ceil(SEEDS).max(1);
    paths.iter().step_by(step).map(|path| std::fs::read(path).unwrap()).collect()
}

fn times() -> usize {
    std::env::var("FLAME_REPLAY").map_or(1, |times| times.parse().expect("FLAME_REPLAY is a number"))
}

/// Declares a test of each target, with the number of changed seeds.
macro_rules! tests {
    ($($name:ident $count:literal)*) => {
        mod holds {
            $(
                #[test]
                fn $name() {
                    let seeds = super::seeds(stringify!($name));
                    flame_replay::replay(crate::$name::run, &seeds, $count * super::times());
                }
            )*
        }
    };
}

// Those that compile a module or make a key for each input take longer.
tests! {
    analyser 1500
    answer 100000
    capsule 100000
    certificate 15000
    click 10000
    credential 10000
    decode 250000
    exchange 3000
    filter 25000
    finish 100000
    joined 25000
    language 10000
    manifest 25000
    names 100000
    pcap 10000
    pcapng 10000
    policy 5000
    programs 1000
    records 25000
    rewriter 2500
    rows 10000
    rules 10000
    signatures 2500
    view 10000
}
