#![no_main]
//! Two captures that differ only in bytes that a view hides: everything that leaves the view is the same.

#[path = "../../crates/dataplane/view/tests/common/mod.rs"]
#[allow(dead_code)] // The tests use the rest.
mod common;
#[path = "../../crates/dataplane/view/tests/maker/mod.rs"]
#[allow(dead_code)] // The tests use the rest.
mod maker;
#[path = "../../crates/dataplane/view/tests/pair/mod.rs"]
#[allow(dead_code)] // The tests use the rest.
mod pair;

use libfuzzer_sys::fuzz_target;
use maker::Numbers;

/// Returns numbers that follow `choices` until they are used up.
fn chosen(choices: &[u8], seed: u64) -> Numbers {
    Numbers { seed, choices: choices.iter().copied().collect() }
}

fuzz_target!(|input: &[u8]| {
    // Two seeds of hidden bytes, choices of the view, choices of exposed bytes; after them numbers decide.
    let Some((seeds, choices)) = input.split_first_chunk::<4>() else { return };
    let [a, b] = [[seeds[0], seeds[1]], [seeds[2], seeds[3]]].map(|s| u64::from(u16::from_le_bytes(s)));
    let (of_view, of_packets) = choices.split_at(choices.len().min(24));
    let one = pair::case(&mut chosen(of_view, 1));
    let other = pair::other(&one);
    let shown = chosen(of_packets, a ^ b << 16);
    let (first, second) = (pair::capture(&one, &shown, a), pair::capture(&other, &shown, b | 1 << 16));
    let outside = |case: &pair::Case, capture: &pair::Capture| pair::shown_by(case, capture).2;
    assert!(
        outside(&one, &first) == outside(&other, &second),
        "{:?} {:?}\n{:02x?}\n{:02x?}",
        one.link,
        one.spec,
        first.packets,
        second.packets
    );
});
