//! Programs by hand.

use crate::machine::Machine;
use crate::{Effect, Notes, numbers};
use flame_capsule::{Parts, Place, Target};
use flame_capsule_language::{Ended, MAX_COMPILED, Program};

const EXAMPLES: [(&str, &str); 5] = [
    ("ping", include_str!("../programs/ping.capsule")),
    ("trace", include_str!("../programs/trace.capsule")),
    ("multicast", include_str!("../programs/multicast.capsule")),
    ("probe", include_str!("../programs/probe.capsule")),
    ("upstream", include_str!("../programs/upstream.capsule")),
];

/// Runs a function both ways, compares them, and returns the effects.
pub fn both(
    program: &Program,
    function: usize,
    arguments: &[u8],
    neighbours: &[Place],
) -> Result<Vec<Effect>, ()> {
    let mut machine = Machine::new(program.code());
    let notes = || Notes { neighbours: neighbours.to_vec(), ..Notes::default() };
    let (mut compiled, mut interpreted) = (notes(), notes());
    let end = machine.call(function, arguments, &mut compiled);
    let other = program.interpret(function, arguments, &mut interpreted);
    assert_eq!(end.is_ok(), other.is_ok(), "{other:?}");
    assert_eq!(compiled.effects, interpreted.effects);
    let bound = program.bounds()[function];
    assert!(machine.count <= bound.instructions, "{} of {}", machine.count, bound.instructions);
    let memory = u64::try_from((machine.highest - 1024).max(0)).unwrap();
    assert!(memory <= bound.memory, "{memory} of {} bytes", bound.memory);
    end.map(|()| compiled.effects).map_err(|_| ())
}

#[test]
fn the_examples_compile() {
    for (name, text) in EXAMPLES {
        let program = Program::read(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(program.code().len() <= MAX_COMPILED);
        println!("{name}: {} bytes, {:?}", program.code().len(), program.bounds());
        wasmparser::Validator::new().validate_all(program.code()).unwrap();
    }
    let read = |n: usize| Program::read(EXAMPLES[n].1).unwrap();
    // Here is 5, the origin is 6, the next hop to a place is half of it.
    let pong = Effect::Send(1, numbers(&[1000]), Target::Remote(Place(40)), Parts::ALL);
    assert_eq!(both(&read(0), 0, &numbers(&[40]), &[]), Ok(vec![pong]));
    assert_eq!(both(&read(0), 2, &numbers(&[900]), &[]), Ok(vec![Effect::Deliver(numbers(&[100]))]));
    let found = Effect::Send(0, numbers(&[5, 9]), Target::Remote(Place(6)), Parts::thousandths(200));
    let trace = Effect::Send(1, numbers(&[8]), Target::Neighbour(Place(4)), Parts::ALL);
    assert_eq!(both(&read(1), 1, &numbers(&[8]), &[]), Ok(vec![found.clone(), trace]));
    assert_eq!(both(&read(1), 1, &numbers(&[5]), &[]), Ok(vec![found]));
    // To 8 and 9 over 4, to 12 over 6, and here.
    let arguments = numbers(&[4, 8, 9, 12, 5, 77]);
    let parts = Parts::thousandths(300);
    let expected = vec![
        Effect::Send(0, numbers(&[2, 8, 9, 77]), Target::Neighbour(Place(4)), parts),
        Effect::Send(0, numbers(&[1, 12, 77]), Target::Neighbour(Place(6)), parts),
        Effect::Deliver(numbers(&[77])),
    ];
    assert_eq!(both(&read(2), 0, &arguments, &[Place(4), Place(6), Place(7)]), Ok(expected));
    let queue = flame_capsule::name("queue").unwrap();
    let expected = vec![
        Effect::Service(queue, 4),
        Effect::Send(1, numbers(&[8, 2, 1, 12]), Target::Neighbour(Place(4)), Parts::ALL),
    ];
    assert_eq!(both(&read(3), 1, &numbers(&[8, 1, 1]), &[]), Ok(expected));
    let effects = both(&read(4), 1, &numbers(&[11]), &[]).unwrap();
    assert!(matches!(
        effects[..],
        [.., Effect::Leave(..), Effect::Send(1, _, Target::Neighbour(Place(33)), _)]
    ));
}

#[test]
fn errors_have_a_place_and_a_remedy() {
    let error = |text: &str| Program::read(text).map(|_| ()).unwrap_err().to_string();
    for (text, expected) in [
        ("", "line 1, column 1: found no function, expected one: begin with `fun name() = …`"),
        ("fun a() = 1 +", "line 1, column 14: found the end, expected a value: add one, or remove this"),
        (
            "fun a() =\n  b",
            "line 2, column 3: found `b`, expected a variable in sight: bind it with let, or correct it",
        ),
        ("fun a(p: place) = p + 1", "line 1, column 19: found place, expected int: write int(…)"),
        (
            "fun a() = if 1 then skip else skip",
            "line 1, column 14: found int, expected bool: compare it, as in `… != 0`",
        ),
        (
            "fun a() = a()",
            "line 1, column 11: found a call of `a`, expected a function above this one: move it up; a function calls itself only by OnRemote or OnNeighbor",
        ),
        (
            "fun a() = 99999999999999999999",
            "line 1, column 11: found the number 99999999999999999999, expected less than 2^63: make it smaller",
        ),
        ("fun a() = $", "line 1, column 11: found `$`, expected a word, a number or a sign: remove it"),
        (
            "fun a() = find(\"ninechars\")",
            "line 1, column 16: found `ninechars`, expected a name of one to eight bytes in quotes: write it as in \"queue\"",
        ),
        (
            "fun a(x: int) = skip fun a() = skip",
            "line 1, column 26: found a second `a`, expected a new name: rename it",
        ),
        (
            "fun a() = fold x in ints() at most 33 with s = 0 do s end",
            "line 1, column 36: found `33`, expected a number from 1 to 32: state how many elements are visited at most",
        ),
    ] {
        assert_eq!(error(text), expected);
    }
    assert!(error(&format!("fun a() = {}1", "(".repeat(10_000))).contains("nested"));
    assert!(error(&format!("fun a() = {}1", "- ".repeat(4000))).contains("nested"));
    assert!(error(&format!("fun a() = 1{}", "+1".repeat(4000))).contains("in a row"));
    assert!(error(&format!("fun a() = {}skip", "skip;".repeat(3000))).contains("nested"));
    assert!(error(&"#".repeat(20_000)).contains("shorter"));
    let long: String = (0..30).map(|n| format!("fun f{n}(a: int) = deliver(a, {n})\n")).collect();
    assert!(error(&long).contains("bytes compiled, expected at most 1024"), "{}", error(&long));
    let memory = "fun a(l: ints) = fold x in l at most 32 with s = l do fold y in l at most 32 with t = s do push(t, y) \
                  end end";
    assert!(error(memory).contains("bytes of lists"), "{}", error(memory));
}

#[test]
fn arguments_are_checked() {
    let program = Program::read("fun f(a: int, l: ints, b: int, m: places) = deliver(a, l, b, m)").unwrap();
    let good = numbers(&[1, 2, 10, 20, 3, 1, 30]);
    let deliver = |bytes: &[u8]| both(&program, 0, bytes, &[]);
    assert_eq!(deliver(&good), Ok(vec![Effect::Deliver(good.clone())]));
    for length in 0..good.len() {
        assert_eq!(deliver(&good[..length]), Err(()), "{length}");
    }
    assert_eq!(deliver(&[&good[..], &[0; 8]].concat()), Err(()));
    for count in [33, -1, i64::MAX, i64::MIN, 1 << 32, 1 << 61] {
        let mut arguments = numbers(&[1, count]);
        arguments.resize(1024, 0);
        assert_eq!(deliver(&arguments), Err(()), "{count}");
    }
    let mut notes = Notes::default();
    assert_eq!(program.interpret(9, &[], &mut notes), Err(Ended::NoFunction));
}

/// The bound of straight code is exact, and so is the bound of a fold over a full list.
#[test]
fn bounds_are_reached() {
    for (text, arguments) in [
        ("fun f(a: int) = a + 2 * a; skip", None),
        ("fun f(a: int) = deliver(a, hops() + 1)", Some(vec![5])),
        (
            "fun f(l: ints) = deliver(fold x in l at most 32 with s = 0 do s + x end)",
            Some([vec![32], vec![1; 32]].concat()),
        ),
        ("fun g(a: int) = a * a fun f(a: int) = deliver(g(g(a)))", Some(vec![5])),
    ] {
        let Some(arguments) = arguments else {
            assert!(Program::read(text).is_err());
            continue;
        };
        let program = Program::read(text).unwrap();
        let mut machine = Machine::new(program.code());
        let last = program.functions().len() - 1;
        assert!(machine.call(last, &numbers(&arguments), &mut Notes::default()).is_ok());
        assert_eq!(machine.count, program.bounds()[last].instructions, "{text}");
    }
}
