//! Programs in the sandbox, against the interpreter of the language, and code that is not of the language.

use flame_active_node::{Execute, Failure, Ran, Rights};
use flame_active_sandbox::{Compiled, Program, Sandbox};
use flame_capsule::{Host, Parts, Payer, Place, Refused, Target};
use flame_capsule_language::Program as Text;
use flame_compile::{Compiler, Engines};

/// A node that records the calls.
#[derive(Default, PartialEq, Debug)]
struct Node {
    asked: Vec<String>,
    calls: u64,
}

const REPLY: [u8; 5] = [9, 8, 7, 6, 5];
const NEIGHBOURS: [Place; 3] = [Place(2), Place(7), Place(9)];

impl Host for Node {
    fn here(&self) -> Place {
        Place(1)
    }
    fn origin(&self) -> Place {
        Place(5)
    }
    fn from(&self) -> Place {
        Place(2)
    }
    fn now(&self) -> u64 {
        77_000
    }
    fn hops(&self) -> u8 {
        9
    }
    fn next(&self, place: Place) -> Place {
        Place(place.0 + 1)
    }
    fn neighbours(&self) -> &[Place] {
        &NEIGHBOURS
    }
    fn send(&mut self, function: u8, arguments: &[u8], to: Target, parts: Parts) -> Result<(), Refused> {
        self.asked.push(format!("send {function} {arguments:?} {to:?} {parts:?}"));
        Ok(())
    }
    fn deliver(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        self.asked.push(format!("deliver {bytes:?}"));
        Ok(())
    }
    fn leave(&mut self, name: u64, value: i64, seconds: u64) -> Result<(), Refused> {
        self.asked.push(format!("leave {name} {value} {seconds}"));
        Ok(())
    }
    fn find(&self, name: u64) -> i64 {
        i64::from(name == 3)
    }
    fn service(&mut self, name: u64, argument: i64) -> Result<i64, Refused> {
        self.asked.push(format!("service {name} {argument}"));
        Ok(argument * 3)
    }
    fn ask(&mut self, name: u64, request: &[u8]) -> Result<&[u8], Refused> {
        self.asked.push(format!("ask {name} {request:?}"));
        if name == 1 { Err(Refused::Waits) } else { Ok(&REPLY) }
    }
}

type Made = Sandbox<fn(&[u8], Payer) -> Result<Compiled, Failure>>;

fn compile(code: &[u8], _: Payer) -> Result<Compiled, Failure> {
    let made = Compiler::in_process(Engines::new().unwrap(), None).capsule(code);
    let made = made.map_err(|_| Failure::NotCompiled)?;
    Ok(Compiled { code: made.code, bounds: made.bounds })
}

fn sandbox() -> Made {
    Sandbox::new(compile as fn(&[u8], Payer) -> Result<Compiled, Failure>).unwrap()
}

fn program(sandbox: &mut Made, code: &[u8]) -> Program {
    sandbox.compile(code, Payer::default(), Rights::ALL).unwrap().unwrap()
}

fn bytes(numbers: &[i64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// The examples, with a function and arguments that fit it.
const EXAMPLES: [(&str, u8, &[i64]); 7] = [
    (include_str!("../../language/programs/ping.capsule"), 0, &[4]),
    (include_str!("../../language/programs/ping.capsule"), 2, &[4]),
    (include_str!("../../language/programs/trace.capsule"), 1, &[4]),
    (include_str!("../../language/programs/multicast.capsule"), 0, &[3, 1, 6, 8, 77]),
    (include_str!("../../language/programs/probe.capsule"), 1, &[5, 2, 10, 20]),
    (include_str!("../../language/programs/upstream.capsule"), 1, &[9]),
    (include_str!("../../language/programs/times.capsule"), 1, &[9, 1]),
];

#[test]
fn programs_agree_with_the_interpreter() {
    let mut sandbox = sandbox();
    for (text, function, arguments) in EXAMPLES {
        let text = Text::read(text).unwrap();
        let (mut expected, mut found) = (Node::default(), Node::default());
        text.interpret(function.into(), &bytes(arguments), &mut expected).unwrap();
        let mut program = program(&mut sandbox, text.code());
        for _ in 0..2 {
            found.asked.clear();
            let ran = sandbox.run(&mut program, function, &bytes(arguments), 1_000_000, &mut found);
            assert_eq!((ran.end, &found.asked), (Ok(()), &expected.asked));
            assert!(ran.instructions > 0);
        }
        // Arguments that do not fit end the program.
        let ran = sandbox.run(&mut program, function, &[1, 2, 3], 1_000_000, &mut found);
        assert_eq!(ran.end, Err(Failure::Trapped));
    }
    let mut program = program(&mut sandbox, Text::read(EXAMPLES[0].0).unwrap().code());
    let ran = sandbox.run(&mut program, 3, &[], 1_000_000, &mut Node::default());
    assert_eq!(ran, Ran { instructions: 0, end: Err(Failure::NoFunction) });
}

#[test]
fn no_run_exceeds_its_limit() {
    let mut sandbox = sandbox();
    let endless = wat(r#"(func (export "f") (param i32) (loop (br 0)))"#);
    let straight = wat(r#"(import "flame" "deliver" (func $d (param i32 i32)))
           (func (export "f") (param i32) (call $d (i32.const 0) (i32.const 8)))"#);
    let fold =
        Text::read("fun f(l: ints) = deliver(fold x in l at most 32 with n = 0 do n + x end)").unwrap();
    let list = bytes(&[4, 1, 2, 3, 4]);
    for (code, arguments) in [(&endless[..], &[][..]), (&straight, &[]), (fold.code(), &list)] {
        let mut program = program(&mut sandbox, code);
        let whole = sandbox.run(&mut program, 0, arguments, 100_000, &mut Node::default());
        assert!(whole.instructions <= 100_000, "{whole:?}");
        let needed = whole.instructions;
        for limit in [0, 1, 10, needed / 2, needed - 1, needed, needed + 1] {
            let mut node = Node::default();
            let ran = sandbox.run(&mut program, 0, arguments, limit, &mut node);
            assert!(ran.instructions <= limit, "{limit}: {ran:?}");
            let is_enough = limit >= needed && whole.end.is_ok();
            assert_eq!(ran.end, if is_enough { Ok(()) } else { Err(Failure::Limit) }, "{limit} of {needed}");
            assert_eq!(node.asked.is_empty(), !is_enough);
        }
    }
    // Without a loop, there is a bound, and nothing is counted.
    assert!(compile(&straight, Payer::default()).unwrap().bounds[0].is_some());
    assert_eq!(compile(&endless, Payer::default()).unwrap().bounds, [None]);
}

fn wat(functions: &str) -> Vec<u8> {
    let (imports, rest): (Vec<&str>, Vec<&str>) =
        functions.lines().partition(|line| line.trim_start().starts_with("(import"));
    let (imports, rest) = (imports.join("\n"), rest.join("\n"));
    wat::parse_str(format!("(module {imports} (memory (export \"memory\") 1 1) {rest})")).unwrap()
}

#[test]
fn an_instance_is_wiped() {
    let mut sandbox = sandbox();
    // Delivers what the capsule before has left in a global, in data and far up, and leaves something.
    let code = wat(r#"(import "flame" "deliver" (func $d (param i32 i32)))
           (global $g (mut i64) (i64.const 5))
           (data (i32.const 2000) "abc")
           (func (export "f") (param i32)
             (i64.store (i32.const 3000) (global.get $g))
             (i64.store (i32.const 3008) (i64.load (i32.const 2000)))
             (i64.store (i32.const 3016) (i64.load (i32.const 60000)))
             (i64.store (i32.const 3024) (i64.load (i32.const 0)))
             (call $d (i32.const 3000) (i32.const 32))
             (global.set $g (i64.const 99))
             (i64.store (i32.const 2000) (i64.const -1))
             (i64.store (i32.const 60000) (i64.const -1)))"#);
    let mut program = program(&mut sandbox, &code);
    let mut first = Node::default();
    let ran = sandbox.run(&mut program, 0, &[], 10_000, &mut first);
    assert_eq!(ran.end, Ok(()));
    sandbox.run(&mut program, 0, &[255; 8], 10_000, &mut Node::default());
    let mut last = Node::default();
    sandbox.run(&mut program, 0, &[], 10_000, &mut last);
    assert_eq!(first, last);
    program.renew().unwrap();
    let mut fresh = Node::default();
    sandbox.run(&mut program, 0, &[], 10_000, &mut fresh);
    assert_eq!(first, fresh);
}

#[test]
fn rights_are_links() {
    let mut sandbox = sandbox();
    let all = Rights::ALL;
    for (rights, call) in [
        (Rights { send: false, ..all }, "OnRemote(f(), here(), all)"),
        (Rights { deliver: false, ..all }, "deliver(1)"),
        (Rights { leave: false, ..all }, "leave(\"a\", 1, 1)"),
        (Rights { service: false, ..all }, "deliver(service(\"a\", 1))"),
    ] {
        let text = Text::read(&format!("fun f() = {call}")).unwrap();
        let mut linked = |rights| sandbox.compile(text.code(), Payer::default(), rights).unwrap().err();
        assert_eq!((linked(rights), linked(all)), (Some(Failure::NotCompiled), None), "{call}");
    }
}

#[test]
fn other_code_is_refused() {
    let compiler = Compiler::in_process(Engines::new().unwrap(), None);
    let good = r#"(memory (export "memory") 1 1) (func (export "f") (param i32))"#;
    let refused = |text: &str| {
        let wasm = wat::parse_str(format!("(module {text})")).unwrap();
        compiler.capsule(&wasm).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(refused(good), "");
    for (text, found, remedy) in [
        ("(func (export \"f\") (param i32))", "no `memory`", "one page"),
        ("(memory (export \"memory\") 1) (func (export \"f\") (param i32))", "at most None", "--max-memory"),
        ("(memory (export \"memory\") 2 2) (func (export \"f\") (param i32))", "2 pages", "--max-memory"),
        ("(memory (export \"memory\") 1 1)", "0 functions", "export the functions"),
        (&format!("{good} (func $s) (start $s)"), "a start function", "leave it out"),
        (&format!("(import \"env\" \"f\" (func)) {good}"), "the import env f", "leave it out"),
        (&format!("(import \"flame\" \"here\" (func)) {good}"), "with another type", "docs/active.md"),
        (&format!("{good} (func (export \"flame_batch\") (param i32))"), "flame_batch", "rename it"),
        (&format!("{good} (func (export \"g\") (param i64))"), "the export g", "one parameter"),
        (
            &format!("{good} (table 4 funcref) (func (table.set (i32.const 0) (ref.null func)))"),
            "table.set",
            "leave it out",
        ),
        (&format!("{good} (data \"a\") (func (data.drop 0))"), "data.drop", "leave it out"),
        (&format!("{good} (table 2000 funcref)"), "2000 elements", "take fewer"),
        (&format!("{good} (func {})", "(local i64)".repeat(1001)), "1001 locals", "use fewer"),
        (&format!("{good} (data (i32.const 0) \"{}\")", "a".repeat(8191)), "bytes", "optimize for size"),
    ] {
        let error = refused(text);
        assert!(error.contains(found) && error.contains(remedy), "{text}: {error}");
    }
    for other in [&b"\x7fELF"[..], b"(module)", b"", &[0; 100]] {
        assert!(compiler.capsule(other).is_err());
    }
    let whole = wat::parse_str(format!("(module {good})")).unwrap();
    for end in 8..whole.len() {
        // A section may be left out; nothing panics.
        let _ = compiler.capsule(&whole[..end]);
    }
}

#[test]
fn addresses_are_checked() {
    let mut sandbox = sandbox();
    for (at, length) in [(65_530, 8), (-1, 1), (0, -1), (-4, -4), (65_536, 1)] {
        let code = wat(&format!(
            "(import \"flame\" \"deliver\" (func $d (param i32 i32)))
             (import \"flame\" \"send\" (func $s (param i32 i32 i32 i32 i64 i64)))
             (func (export \"f\") (param i32) (call $d (i32.const {at}) (i32.const {length})))
             (func (export \"g\") (param i32)
               (call $s (i32.const 0) (i32.const 0) (i32.const {at}) (i32.const {length}) (i64.const 1) (i64.const 1)))"
        ));
        let mut program = program(&mut sandbox, &code);
        for function in 0..2 {
            let mut node = Node::default();
            let ran = sandbox.run(&mut program, function, &[], 1 << 40, &mut node);
            assert_eq!((ran.end, node.asked.len()), (Err(Failure::Trapped), 0), "{at} {length}");
        }
    }
    let code = wat(r#"(import "flame" "neighbours" (func $n (param i32) (result i32)))
           (func (export "f") (param i32) (drop (call $n (i32.const 65510))))"#);
    let mut program = program(&mut sandbox, &code);
    let ran = sandbox.run(&mut program, 0, &[], 10_000, &mut Node::default());
    assert_eq!(ran.end, Err(Failure::Trapped));
}

#[test]
fn a_capsule_asks_with_bytes() {
    let mut sandbox = sandbox();
    let code = wat(r#"(import "flame" "ask" (func $a (param i64 i32 i32 i32 i32) (result i32)))
           (import "flame" "deliver" (func $d (param i32 i32)))
           (func (export "f") (param i32)
             (i32.store (i32.const 3000) (call $a (i64.load (i32.const 0)) (i32.const 8) (i32.const 3) (i32.const 3004) (i32.const 4)))
             (call $d (i32.const 3000) (i32.const 12)))
           (func (export "far") (param i32)
             (drop (call $a (i64.const 2) (i32.const 65535) (i32.const 2) (i32.const 0) (i32.const 0))))
           (func (export "full") (param i32)
             (drop (call $a (i64.const 2) (i32.const 0) (i32.const 2) (i32.const 65535) (i32.const 2))))"#);
    let mut program = program(&mut sandbox, &code);
    let mut run = |function, name: i64, limit| {
        let mut node = Node::default();
        let arguments = [&name.to_le_bytes()[..], &[1, 2, 3]].concat();
        let ran = sandbox.run(&mut program, function, &arguments, limit, &mut node);
        (ran.end, node.asked)
    };
    // The length of the whole reply, and as much of it as there is room for.
    let said = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let told = "deliver [5, 0, 0, 0, 9, 8, 7, 6, 0, 0, 0, 0]";
    assert_eq!(run(0, 2, 10_000), (Ok(()), said(&["ask 2 [1, 2, 3]", told])));
    // A reply that is not there ends the evaluation.
    assert_eq!(run(0, 1, 10_000), (Err(Failure::Trapped), said(&["ask 1 [1, 2, 3]"])));
    // Addresses are checked, the room before anything is written, and the call is paid for.
    assert_eq!(run(1, 2, 10_000).0, Err(Failure::Trapped));
    assert_eq!(run(2, 2, 10_000).0, Err(Failure::Trapped));
    assert_eq!(run(0, 2, 60).0, Err(Failure::Limit));
}
