//! Compares the machine code with the interpreter: random checked programs over random packets.

use flame_filter::{Filter, Instruction, Program, reference};
use proptest::prelude::*;

const LOADS: [u16; 10] = [0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x80, 0x00, 0x81, 0xb1];
const OTHERS: [u16; 6] = [0x01, 0x87, 0x07, 0x84, 0x16, 0x06];
const SCRATCH: [u16; 4] = [0x60, 0x61, 0x02, 0x03];
const ALU: [u16; 10] = [0x04, 0x14, 0x24, 0x34, 0x44, 0x54, 0x64, 0x74, 0x94, 0xa4];
const JUMPS: [u16; 4] = [0x15, 0x25, 0x35, 0x45];

/// Returns offsets near the packet's bounds and near overflow, or any others.
fn constant() -> impl Strategy<Value = u32> {
    prop_oneof![6 => 0u32..96, 2 => any::<u32>(), 1 => u32::MAX - 8..=u32::MAX, 1 => 30u32..36]
}

/// Offsets of the kernel's metadata are refused.
fn offset(i: Instruction) -> Instruction {
    let is_load = matches!(i.code, 0x20 | 0x28 | 0x30 | 0x40 | 0x48 | 0x50 | 0xb1);
    Instruction { k: if is_load { i.k & 0x7fff_ffff } else { i.k }, ..i }
}

fn instruction() -> impl Strategy<Value = Instruction> {
    let plain = |codes: &'static [u16]| {
        (prop::sample::select(codes), constant()).prop_map(|(code, k)| Instruction { code, jt: 0, jf: 0, k })
    };
    prop_oneof![
        6 => plain(&LOADS).prop_map(offset),
        // Few returns, because most programs would be short otherwise.
        1 => plain(&OTHERS),
        2 => plain(&SCRATCH).prop_map(|i| Instruction { k: i.k % 16, ..i }),
        4 => (prop::sample::select(&ALU[..]), any::<bool>(), constant())
            .prop_map(|(code, x, k)| Instruction { code: code | u16::from(x) << 3, jt: 0, jf: 0, k: k.max(1) }),
        4 => (prop::sample::select(&JUMPS[..]), any::<bool>(), 0u8..6, 0u8..6, constant())
            .prop_map(|(code, x, jt, jf, k)| Instruction { code: code | u16::from(x) << 3, jt, jf, k }),
        1 => (0u32..5).prop_map(|k| Instruction { code: 0x05, jt: 0, jf: 0, k }),
    ]
}

/// A test of one of few fields for one of few values, as in generated code.
fn tested() -> impl Strategy<Value = Vec<Instruction>> {
    let one = |code: u16, jt: u8, jf: u8, k: u32| Instruction { code, jt, jf, k };
    let load = (prop::sample::select(&[0x28u16, 0x30, 0x28][..]), 0u32..3);
    let mask = prop::option::weighted(0.3, prop::sample::select(&[1u32, 3, 0xff][..]));
    let jump = (prop::sample::select(&[0x15u16, 0x15, 0x45, 0x25, 0x35][..]), 0u32..4, 0u8..9, 0u8..9);
    (load, mask, jump).prop_map(move |((size, at), mask, (test, k, jt, jf))| {
        let mask = mask.map(|mask| one(0x54, 0, 0, mask));
        [one(size, 0, 0, at)].into_iter().chain(mask).chain([one(test, jt, jf, k)]).collect()
    })
}

/// Returns programs of tests that repeat, with some other instructions and long jumps between them.
fn repetitive() -> impl Strategy<Value = Program> {
    let other = instruction().prop_map(|i| vec![i]);
    let jump = (0u32..9).prop_map(|k| vec![Instruction { code: 0x05, jt: 0, jf: 0, k }]);
    let returns = (0u32..3).prop_map(|k| vec![Instruction { code: 0x06, jt: 0, jf: 0, k }]);
    let part = prop_oneof![12 => tested(), 2 => other, 1 => jump, 1 => returns];
    prop::collection::vec(part, 0..60).prop_map(|parts| {
        let mut code = parts.concat();
        // Jumps from near the end lead to these returns.
        code.extend((0..10).map(|k| Instruction {
            code: if k % 2 == 0 { 0x16 } else { 0x06 },
            jt: 0,
            jf: 0,
            k,
        }));
        Program::check(&code).expect("built to be valid")
    })
}

fn program() -> impl Strategy<Value = Program> {
    prop::collection::vec(instruction(), 0..60).prop_map(|mut code| {
        // Jumps from near the end lead to these returns.
        code.extend([Instruction { code: 0x16, jt: 0, jf: 0, k: 0 }; 8]);
        Program::check(&code).expect("built to be valid")
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn agree(program in program(), packets in prop::collection::vec(
        (prop::collection::vec(any::<u8>(), 0..96), any::<u32>()), 8)
    ) {
        let filter = Filter::from_program(&program).unwrap();
        for (bytes, wire_len) in packets {
            let expected = reference::run(&program, &bytes, wire_len);
            prop_assert_eq!(filter.run(&bytes, wire_len), expected, "{:?}", bytes);
            prop_assert_eq!(filter.matches(&bytes, wire_len), expected != 0);
        }
    }

    /// Most jumps of these programs are shortened.
    #[test]
    fn agree_on_repeated_tests(program in repetitive(), packets in prop::collection::vec(
        prop::collection::vec(0u8..4, 0..6), 40)
    ) {
        let filter = Filter::from_program(&program).unwrap();
        for bytes in packets {
            prop_assert_eq!(filter.run(&bytes, 6), reference::run(&program, &bytes, 6), "{:?}", bytes);
        }
    }
}

#[test]
fn filters_are_shared_between_threads_and_freed() {
    fn shared<T: Send + Sync>(_: &T) {}
    for _ in 0..50 {
        let f = Filter::compile("tcp port 80", flame_abi::LinkType::ETHERNET).unwrap();
        shared(&f);
        std::thread::scope(|s| {
            s.spawn(|| assert!(!f.matches(&[0; 60], 60)));
        });
    }
}
