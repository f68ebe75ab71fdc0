//! The fuzz target of queries, on its seeds and on changes of them.
//!
//! FLAME_REPLAY multiplies the number of changed seeds; 1 without it.

// The target has `no_main` for a fuzzer.
#![allow(unused_attributes)]

#[path = "../../fuzz/fuzz_targets/queries.rs"]
mod queries;

use crate::sql_tests::statement;

#[test]
fn queries() {
    let random = (0..100).map(|seed| statement(&mut fastrand::Rng::with_seed(seed)).into_bytes());
    let seeds: Vec<Vec<u8>> = random.chain(queries::SEEDS.map(|sql| sql.as_bytes().to_vec())).collect();
    flame_replay::target("queries", queries::run, &seeds, 2000);
}
