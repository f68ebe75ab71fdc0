//! The verified parts of a module: which entry points, with what arguments, under which limits of work.

use flame_verify::module::Module;
use flame_verify::walk::Walk;
use flame_verify::{Certificate, Cost, Entry, Notes, Rule, SECTION, VerifyError, verify, verify_own};
use std::collections::{BTreeMap, BTreeSet};

fn entries(text: &str, certificate: &Certificate) -> Vec<Entry> {
    let wasm = wat::parse_str(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    verify(&wasm, &certificate.to_bytes()).unwrap().entries
}

fn calls(of: impl IntoIterator<Item = u32>) -> Notes {
    Notes { calls: of.into_iter().map(|n| (n, Notes::default())).collect(), ..Notes::default() }
}

fn of_entry(function: u32, notes: Notes) -> Certificate {
    Certificate { entries: BTreeMap::from([(function, notes)]), ..Certificate::default() }
}

#[test]
fn a_certificate_that_the_module_carries() {
    let text = r#"(module (memory (export "memory") 1) (func (export "flame_tick") (param i64) (result i64) (call 1) (i64.const 0)) (func))"#;
    let certificate = Certificate { summaries: vec![(1, Notes::default())], ..Certificate::default() };
    let wasm = wat::parse_str(text).unwrap();
    let with = |name: &str, content: &[u8]| {
        let mut section = vec![name.len() as u8];
        section.extend_from_slice(name.as_bytes());
        section.extend_from_slice(content);
        [&wasm[..], &[0, section.len() as u8], &section].concat()
    };
    let own = verify_own(&with(SECTION, &certificate.to_bytes())).unwrap().unwrap();
    let apart = verify(&wasm, &certificate.to_bytes()).unwrap();
    for verified in [own, apart] {
        let [Entry { name, function: 0, bound: Ok(cost), .. }] = &verified.entries[..] else {
            panic!("{verified:?}")
        };
        assert_eq!((name.as_str(), cost.at(0, 0)), ("flame_tick", Some(4)));
    }
    assert!(verify_own(&wasm).unwrap().is_none());
    assert!(verify_own(&with("another", &certificate.to_bytes())).unwrap().is_none());
    assert!(matches!(verify_own(&with(SECTION, &[2])), Err(VerifyError::Certificate(_))));
    assert!(matches!(verify_own(&wasm[..20]), Err(VerifyError::Module(_))));
    assert!(matches!(verify(&[1, 2, 3], &certificate.to_bytes()), Err(VerifyError::Module(_))));
}

#[test]
fn arguments_are_what_the_host_passes() {
    // More if the address or the length is not the required one.
    let checked = |name: &str, kinds: &str, tests: &[&str]| {
        let tests: String =
            tests.iter().map(|t| format!("(if {t} (then (drop (memory.grow (i32.const 0)))))")).collect();
        let text = format!(
            r#"(module (memory 1) (func (export "{name}") (param {kinds}) (result i64) {tests} (i64.const 0)))"#
        );
        entries(&text, &Certificate::default())[0].bound.unwrap().at(0, 0).unwrap()
    };
    let most = flame_abi::layout::MAX_DATA;
    let (address, long) = (
        "(i32.ne (local.get 0) (i32.const 0x80001000))",
        format!("(i32.gt_u (local.get 1) (i32.const {most}))"),
    );
    let longest = format!("(i32.ge_u (local.get 1) (i32.const {most}))");
    for name in ["flame_init", "flame_message", "flame_import"] {
        assert_eq!(checked(name, "i32 i32", &[address, &long]), 10, "{name}");
        assert_eq!(checked(name, "i32 i32", &[&longest]), 6 + 1026, "{name}");
        assert_eq!(checked(name, "i32", &[address]), 6 + 1026, "another type");
    }
    assert_eq!(checked("flame_end", "i32 i32", &[address, &long]), 10 + 2 * 1026);
    let batch = "(i32.ne (local.get 0) (i32.const 0x80000000))";
    assert_eq!(checked("flame_batch", "i32", &[batch]), 6);
    assert_eq!(checked("flame_batch", "i32 i32", &[batch]), 6 + 1026, "another type");
    let count = "(i32.gt_u (i32.load offset=4 (i32.const 0x80000000)) (i32.const 256))";
    assert_eq!(checked("flame_batch", "i32", &[count]), 7);
    assert_eq!(checked("flame_tick", "i64", &[count]), 7 + 1026, "there is no batch");
}

#[test]
fn a_function_of_several_names() {
    let text = r#"(module (import "flame" "packet" (func $p (param i32))) (memory 1)
      (func $f (export "x") (export "flame_batch") (export "y") (param i32) (result i64)
        (if (i32.ne (local.get 0) (i32.const 0x80000000)) (then (drop (memory.grow (i32.const 0))))) (i64.const 0))
      (export "z" (func $p)) (export "flame_end" (func $g)) (func $g (param i32)))"#;
    let certificate = Certificate { diverging: BTreeSet::from([2]), ..Certificate::default() };
    let all = entries(text, &certificate);
    let bounds: Vec<_> =
        all.iter().map(|e| (&*e.name, e.function, e.bound.map(|c| c.at(0, 0).unwrap()))).collect();
    let none = flame_verify::Refused { rule: Rule::NoBound, function: 2, offset: 0 };
    assert_eq!(
        bounds,
        [
            ("x", 1, Ok(1032)),
            ("flame_batch", 1, Ok(6)),
            ("y", 1, Ok(1032)),
            ("z", 0, Ok(0)),
            ("flame_end", 2, Err(none)),
        ]
    );
    assert_eq!(all[3].bound, Ok(Cost::ZERO));
    // Claims about functions that do not exist.
    let wasm = wat::parse_str(text).unwrap();
    for function in [0, 3, 99] {
        let of = Certificate { summaries: vec![(function, Notes::default())], ..Certificate::default() };
        assert!(matches!(verify(&wasm, &of.to_bytes()), Err(VerifyError::NoFunction(f)) if f == function));
        let of = Certificate { diverging: BTreeSet::from([function]), ..Certificate::default() };
        assert!(matches!(verify(&wasm, &of.to_bytes()), Err(VerifyError::NoFunction(f)) if f == function));
    }
}

/// The costliest entry leaves some work to the others, the sum of which is limited for any number of them.
#[test]
fn each_entry_has_some_work() {
    let tried = |exports: usize, nops: usize| {
        let (all, body) = ("(call $g)".repeat(3_000), "nop ".repeat(1_000));
        let more: String = (3..=exports).map(|n| format!("(export \"{n}\" (func $f))")).collect();
        let text = format!(
            r#"(module (func $f (export "first") {all}) (func $g {body}) (func (export "second") {}) {more})"#,
            "nop ".repeat(nops)
        );
        let all = entries(&text, &of_entry(0, calls(0..3_000)));
        assert_eq!(all[0].bound.unwrap_err().rule, Rule::Work);
        assert_eq!(all.len(), exports);
        all[1].bound.is_ok()
    };
    let least = 1 << 20;
    assert!(tried(2, least / 64) && !tried(2, least / 64 + 1));
    assert!(tried(128, least / 128) && !tried(128, least / 128 + 1));
}

/// A byte of certificate allows as much work as a byte of code.
#[test]
fn work_is_allowed_for_code_and_certificate() {
    let text = |padding: usize| {
        format!(
            r#"(module (func $f (export "first") {}) (func $g {}) (func {}))"#,
            "(call $g)".repeat(1_500),
            "nop ".repeat(1_000),
            "nop ".repeat(padding)
        )
    };
    // Calls that do not exist: three bytes each.
    let bound = |code: usize, notes: u32, own: bool| {
        let certificate = of_entry(0, calls((0..1_500).chain(2_000..2_000 + notes))).to_bytes();
        let wasm = wat::parse_str(text(code)).unwrap();
        let verified = match own {
            false => verify(&wasm, &certificate).unwrap(),
            true => {
                let mut section = vec![SECTION.len() as u8];
                section.extend_from_slice(SECTION.as_bytes());
                section.extend_from_slice(&certificate);
                let mut wasm = wasm;
                wasm.push(0);
                let mut n = section.len();
                while n > 127 {
                    wasm.push(n as u8 | 128);
                    n >>= 7;
                }
                wasm.push(n as u8);
                wasm.extend(section);
                verify_own(&wasm).unwrap().unwrap()
            }
        };
        verified.entries[0].bound.is_ok()
    };
    // The least work that suffices, by bisection; for any other claim it is the same.
    let (mut enough, mut high) = (2_000, 8_000);
    while enough + 16 < high {
        let middle = (enough + high) / 2;
        match bound(middle, 0, false) {
            true => high = middle,
            false => enough = middle,
        }
    }
    let around = [(enough - 64, false), (enough + 64, true)];
    for (n, works) in around {
        assert_eq!(bound(n, 0, true), works, "{n} bytes of code");
        assert_eq!(bound(0, n as u32 / 4, false), works, "{n} bytes of certificate");
        assert_eq!(bound(0, n as u32 / 4, true), works, "{n} bytes of the module's own certificate");
    }
}

/// Checks the work that each construct takes, with 40 locals and two parameters.
#[test]
fn what_is_copied_is_paid_for() {
    let spent = |body: &str, notes: Notes| {
        let text = format!(
            r#"(module (type $v (func)) (table 3 3 funcref) (elem (i32.const 0) func $a $b $c) (global (mut i32) (i32.const 0)) (global i32 (i32.const 0))
              (func $a) (func $b) (func $c (local {})) (func (export "f") (param i64 i64) (local {}) {body}))"#,
            "i32 ".repeat(16),
            "i32 ".repeat(40)
        );
        let wasm = wat::parse_str(&text).unwrap_or_else(|e| panic!("{e}"));
        let module = Module::read(&wasm, SECTION).unwrap();
        let cost = Cost::ZERO;
        let summaries = (0..3)
            .map(|f| (f, flame_verify::walk::Summary { cost, returns: true, diverges: false }))
            .collect();
        let none = BTreeSet::new();
        let mut walk = Walk::new(&module, (&summaries, &none), notes, 10_000);
        let arguments = walk.any_arguments(3);
        walk.entry(3, arguments).unwrap_or_else(|why| panic!("{why}"));
        10_000 - walk.work
    };
    let plain = |body: &str| spent(body, Notes::default());
    // 42 locals and two globals.
    let (entry, copy) = (44 / 4, 44 / 4);
    assert_eq!(plain(""), entry);
    assert_eq!(plain("nop nop nop"), entry + 3);
    assert_eq!(plain("(block nop)"), entry + 1);
    assert_eq!(plain("(if (i32.load (i32.const 0)) (then nop))").min(1), 1);
    let load = "(local.get 2)";
    assert_eq!(
        plain(&format!("(if {load} (then nop) (else nop))")),
        entry + 1 + (1 + 45 / 4) + 1,
        "one side is impossible"
    );
    let load = "(i32.wrap_i64 (local.get 0))";
    assert_eq!(plain(&format!("(if {load} (then nop) (else nop))")), entry + 2 + (1 + 45 / 4) + 2);
    assert_eq!(plain("(block (br 0))"), entry + 1 + copy);
    assert_eq!(plain(&format!("(block (br_if 0 {load}))")), entry + 3 + 45 / 4);
    // What is kept of a loop is paid for by its size.
    let kept = size_of::<flame_verify::bound::LoopBound>() as u64 / 4;
    assert_eq!(plain("(loop)"), entry + 1 + 44 + kept);
    assert_eq!(
        plain(&format!("(block (block (br_table 0 1 0 1 0 1 0 1 {load})))")),
        entry + 2 + 1 + 7 / 4 + 2 * (1 + copy)
    );
    assert_eq!(plain("(call $a)"), entry + 1);
    assert_eq!(plain(&format!("(call_indirect (type $v) {load})")), entry + 3 + 3);
    assert_eq!(spent("(call $c)", calls([0])), entry + 1 + 18 / 4);
    assert_eq!(
        plain("(i32.const 1) (i32.const 1) (i32.const 1) (block (br 0)) drop drop drop"),
        entry + 3 + 1 + 47 / 4 + 3
    );
}

/// A list in a certificate is read back as it was written.
#[test]
fn certificates_are_read_as_they_are_written() {
    use flame_verify::{Form, LoopNote, Measure, Reference, Template};
    let numbers = [0, 1, 63, 64, 127, 128, 8_191, 8_192, 1 << 20, u32::MAX];
    let wide =
        [0, 1, -1, 63, 64, -64, -65, 127, 128, -128, -129, 8_191, 8_192, -8_192, -8_193, i64::MAX, i64::MIN];
    let references = |n: u32| {
        [Reference::Head(n), Reference::Trip, Reference::Length, Reference::Count, Reference::Term(n, n)]
    };
    let mut notes = Notes::default();
    for (at, n) in numbers.into_iter().enumerate() {
        let by = wide[at];
        let note = LoopNote {
            packets: at % 2 == 0,
            forms: BTreeMap::from([(n, Form::Step(by)), (n ^ 1, Form::Range(by as u64, u64::from(n)))]),
            facts: vec![
                Template {
                    constant: by,
                    terms: references(n).into_iter().zip(wide).map(|(r, n)| (n, r)).collect()
                };
                at % 3
            ],
            measure: [None, Some(Measure::Halved(n)), Some(Measure::Cleared(n))][at % 3],
        };
        notes.loops.insert(n, note);
    }
    notes.loops.insert(
        77,
        LoopNote {
            facts: wide
                .iter()
                .map(|n| Template { constant: *n, terms: vec![(*n, Reference::Trip)] })
                .collect(),
            ..LoopNote::default()
        },
    );
    let nested = |depth: usize| {
        (0..depth).fold(notes.clone(), |inner, n| Notes {
            calls: BTreeMap::from([(n as u32, inner)]),
            ..Notes::default()
        })
    };
    let certificate = Certificate {
        summaries: numbers.map(|n| (n, nested(1))).into(),
        diverging: numbers.into(),
        entries: BTreeMap::from([(4, nested(10)), (u32::MAX, Notes::default())]),
    };
    let bytes = certificate.to_bytes();
    assert_eq!(Certificate::from_bytes(&bytes).unwrap(), certificate);
    assert!(Notes::default().is_empty() && !notes.is_empty() && !nested(1).is_empty());
    let deeper = Certificate { entries: BTreeMap::from([(4, nested(11))]), ..Certificate::default() };
    let error = Certificate::from_bytes(&deeper.to_bytes()).unwrap_err().to_string();
    assert!(error.starts_with("calls nested too deep (at byte "), "{error}");
    // A list may be as long as what is left, and no longer.
    assert!(Certificate::from_bytes(&[1, 0, 1, 0, 0]).is_ok());
    let error = Certificate::from_bytes(&[1, 0, 3, 0, 0]).unwrap_err().to_string();
    assert_eq!(error, "a list longer than the certificate (at byte 2 of the certificate)");
    let error = Certificate::from_bytes(&[1, 0, 0, 0, 9]).unwrap_err().to_string();
    assert_eq!(error, "bytes after the end (at byte 4 of the certificate)");
    // Kinds that do not exist.
    for (bytes, at) in [
        (&[1, 0, 0, 1, 0, 1, 0, 6][..], 7),
        (&[1, 0, 0, 1, 0, 1, 0, 0, 1, 0, 2], 7),
        (&[1, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 5], 7),
    ] {
        let bytes = [bytes, &[0; 8]].concat();
        let error = Certificate::from_bytes(&bytes).unwrap_err().to_string();
        assert_eq!(error, format!("an unknown kind of note (at byte {at} of the certificate)"));
    }
}

/// No code is walked without steps of proofs: both are limited.
#[test]
fn steps_of_proofs_are_limited() {
    let wasm = wat::parse_str(r#"(module (func (export "f") nop))"#).unwrap();
    let module = Module::read(&wasm, SECTION).unwrap();
    assert_eq!((module.functions[0].size, module.functions[0].depth), (2, 1));
    let (summaries, none) = (BTreeMap::new(), BTreeSet::new());
    // The three symbols of the host cost some.
    for (steps, refused) in [(0, true), (12, true), (13, false)] {
        let mut walk = Walk::new(&module, (&summaries, &none), Notes::default(), 100);
        walk.values.symbols = flame_verify::linear::Symbols::new(steps);
        flame_verify::abi::symbols(&mut walk.values);
        let outcome = walk.entry(0, Vec::new());
        assert_eq!(outcome.err().map(|why| why.rule), refused.then_some(Rule::Work));
    }
}

/// Globals are counted from the imported ones; an imported global may have any value.
#[test]
fn imported_globals_come_first() {
    let cost = |global: u32| {
        let text = format!(
            r#"(module (import "flame" "a" (global i32)) (import "flame" "b" (global i64)) (memory 1)
              (global i32 (i32.const 44)) (func (export "f")
              (if (i32.ne (i32.const 44) (global.get {global})) (then (drop (memory.grow (i32.const 0)))))))"#
        );
        entries(&text, &Certificate::default())[0].bound.unwrap().at(0, 0).unwrap()
    };
    assert_eq!((cost(2), cost(0)), (5, 5 + 1026));
}
