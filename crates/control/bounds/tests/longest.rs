//! Batches in which each packet costs as much as the longest packet allows, with Wasmtime's own meter.

use crate::generate::Export;
use crate::generate::choices::Choices;
use crate::generate::hold::{Oracle, bounds_of};
use crate::generate::packets::{Call, END};
use flame_abi::Descriptor;

/// Loops over the captured length of the first packet, once for each packet of the batch.
const TEXT: &str = r#"(module (memory (export "memory") 1)
  (func (export "flame_batch") (param $b i32) (result i64) (local $n i32) (local $i i32) (local $cap i32) (local $j i32)
    (local.set $n (i32.load offset=4 (local.get $b)))
    (local.set $cap (i32.load offset=20 (i32.load (local.get $b))))
    (loop $packet
      (local.set $j (i32.const 0))
      (block $done (loop $byte
        (br_if $done (i32.ge_u (local.get $j) (local.get $cap)))
        (local.set $j (i32.add (local.get $j) (i32.const 1)))
        (br $byte)))
      (br_if $packet (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (local.get $n))))
    (i64.const 0)))"#;

#[test]
fn a_bound_is_for_batches_whose_packets_loop_over_the_longest() {
    let declared = wat::parse_str(TEXT).unwrap();
    let bound = bounds_of(&declared).bounds[0].1.unwrap();
    let pages = format!("(memory (export \"memory\") {})", END / 65_536);
    let wasm = wat::parse_str(TEXT.replace("(memory (export \"memory\") 1)", &pages)).unwrap();
    let (oracle, mut choices) = (Oracle::new(), Choices::seeded(46));
    for count in [1, 2, 17, 64, 256] {
        for longest in [0, 1, 64, 1514, 4096] {
            let mut call = Call::new(&mut choices, true);
            let length = |first, choices: &mut Choices| match first {
                true => longest,
                false => choices.below(longest.min(64) + 1),
            };
            call.packets = (0..count)
                .map(|n| length(n == 0, &mut choices) as u32)
                .map(|cap_len| Descriptor { cap_len, wire_len: cap_len, ..call.packets[0] })
                .collect();
            assert_eq!(call.length(), longest);
            let most = bound.at(count, longest).unwrap() as u64;
            assert_eq!(oracle.passes(&wasm, Export::Batch, &call, most), None, "{call:?}, {most}");
            // A bound for packets of a third of the length would be passed.
            if longest >= 1514 {
                let less = bound.at(count, longest / 3).unwrap() as u64;
                let kind = oracle.passes(&wasm, Export::Batch, &call, less);
                assert!(kind.is_some(), "{call:?}, {less}");
            }
        }
    }
}
