//! Certificates that are false, empty or damaged: the report states the claim, the place and the remedy.

use flame_bounds::{Cause, Effort, Reason, analyse_exports, find};
use flame_verify::{Certificate, Form, SECTION};
use wasm_encoder::{CustomSection, Encode};

/// An entry that calls a function with a loop, too large to be inlined, and has a loop of its own.
fn module(end: &str) -> Vec<u8> {
    module_of(300, end)
}

fn module_of(size: usize, end: &str) -> Vec<u8> {
    let much = "(local.set $x (i32.mul (local.get $x) (i32.const 3)))".repeat(size);
    let text = format!(
        r#"(module (memory 1)
          (func $callee (param $x i32) (result i32) (local $i i32)
            {much}
            (loop $l
              (local.set $x (i32.add (local.get $x) (local.get $i)))
              (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 9))))
            (local.get $x))
          (func $entry (export "entry") (param $x i32) (local $i i32)
            (loop $l
              (drop (call $callee (local.get $i)))
              {end}
              (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 50))))))"#
    );
    wat::parse_str(text).unwrap()
}

/// Returns the cause why the entry has no bound with this certificate.
fn cause(wasm: &[u8], certificate: &[u8]) -> Option<Cause> {
    let mut wasm = wasm.to_vec();
    wasm.push(0);
    CustomSection { name: SECTION.into(), data: certificate.into() }.encode(&mut wasm);
    analyse_exports(&wasm).unwrap().entries.remove(0).why
}

/// A name, a change of a certificate, and the claim that is reported.
type Case<'a> = (&'static str, &'a dyn Fn(&mut Certificate), &'static str);

#[test]
fn a_refused_certificate_is_reported_by_its_claim_and_place() {
    let wasm = module("");
    let good = find(&wasm, Effort::NODE).unwrap();
    assert_eq!(cause(&wasm, &good.to_bytes()), None, "it has a bound");
    let changed = |change: &dyn Fn(&mut Certificate)| {
        let mut bad = good.clone();
        change(&mut bad);
        cause(&wasm, &bad.to_bytes()).expect("it is refused")
    };
    let cases: [Case<'_>; 6] = [
        ("empty", &|c| *c = Certificate::default(), "no claims about callee, which is called here"),
        ("no entry", &|c| c.entries.clear(), "it claims nothing that limits the trip count of a loop"),
        ("no summaries", &|c| c.summaries.clear(), "no claims about callee, which is called here"),
        (
            "a false fact",
            &|c| {
                let notes = c.entries.values_mut().next().unwrap();
                notes.loops.values_mut().next().unwrap().facts[0].constant -= 1_000_000;
            },
            "fact 0 of the certificate does not hold before the loop",
        ),
        (
            "a false form of a callee",
            &|c| {
                let (_, notes) = &mut c.summaries[0];
                notes.loops.values_mut().next().unwrap().forms.insert(1, Form::Range(3, 4));
            },
            "the certificate claims a form of local 1 that does not hold",
        ),
        (
            "a false fact of a callee",
            &|c| {
                let (_, notes) = &mut c.summaries[0];
                notes.loops.values_mut().next().unwrap().facts[0].constant -= 1_000_000;
            },
            "fact 0 of the certificate does not hold",
        ),
    ];
    for (name, change, claim) in cases {
        let Cause { reason, function, offset } = changed(change);
        let text = reason.to_string();
        assert!(matches!(reason, Reason::Certificate(_)), "{name}: {text}");
        assert!(text.starts_with("the certificate in flame.bounds gives no bound: "), "{name}: {text}");
        assert!(text.contains(claim), "{name}: {text}");
        assert_eq!(function, if name.ends_with("callee") { "callee" } else { "entry" }, "{name}");
        assert!(offset > 0, "{name}");
        assert!(reason.remedy().rust.contains("flame build"), "{name}");
    }
}

/// Where a bound cannot exist, that is the cause, whatever the certificate is.
#[test]
fn the_cause_in_the_code_comes_before_an_empty_certificate() {
    let empty = Certificate::default().to_bytes();
    let text = "(module (memory 1) (func (export \"entry\") (loop $l (br_if $l (i32.load (i32.const 8))))))";
    let why = cause(&wat::parse_str(text).unwrap(), &empty).unwrap();
    assert_eq!(why.reason, Reason::NoCounter, "{why}");
    let call = "(if (i32.load (i32.const 8)) (then (call $entry (i32.const 1))))";
    let why = cause(&module(call), &find(&module(""), Effort::NODE).unwrap().to_bytes()).unwrap();
    assert!(matches!(why.reason, Reason::Recursion(_)), "{why}");
    let why = cause(&module_of(10, "(local.set $i (i32.load (i32.const 8)))"), &empty).unwrap();
    assert_eq!(why.reason, Reason::NoCounter, "{why}");
}

/// Bytes that are no certificate: the node searches itself, and reports them if it finds nothing.
#[test]
fn a_damaged_certificate_is_replaced_by_a_search() {
    assert_eq!(cause(&module(""), &[9, 9]), None);
}
