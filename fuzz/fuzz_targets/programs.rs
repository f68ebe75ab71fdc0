//! Bytes as the choices of the generator that tests bounds and counters: the rewriter's counters end every
//! program, charge enough, and change nothing else; and no bound is exceeded.
#![no_main]

#[path = "../../crates/control/bounds/tests/generate/mod.rs"]
#[allow(dead_code)] // The tests use the rest.
mod generate;

use generate::Program;
use generate::choices::Choices;
use generate::hold::{Oracle, Tally};
use libfuzzer_sys::fuzz_target;
use std::cell::LazyCell;

thread_local! {
    static ORACLE: LazyCell<Oracle> = LazyCell::new(Oracle::new);
}

fuzz_target!(|bytes: &[u8]| {
    // The first bytes choose the calls, the others the program.
    let (calls, program) = bytes.split_at(bytes.len().min(2));
    let seed = calls.iter().fold(1, |seed, byte| seed << 8 | u64::from(*byte));
    let program = Program::new(&mut Choices::given(program.iter().map(|b| u64::from(*b)).collect()));
    let found = ORACLE.with(|o| o.hold(&program, 4, &mut Choices::seeded(seed), &mut Tally::default()));
    if let Some(violation) = found.first() {
        panic!("{:?}: {}\n{}", violation.kind, violation.what, program.text);
    }
});
