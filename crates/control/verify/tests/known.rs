//! The exact ranges of values that the checker must find.

use crate::seen::{holds, known, of, operands, walk};
use flame_verify::value::mask;

const M32: u64 = 0xffff_ffff;
const ANY32: (u64, u64) = (0, M32);
const ANY64: (u64, u64) = (0, u64::MAX);

#[test]
fn arithmetic() {
    holds(&[
        ("(i32.add a b)", (5, 15)),
        ("(i32.add d 1)", ANY32),
        ("(i32.sub a 3)", (0, 7)),
        ("(i32.sub a 4)", ANY32),
        ("(i32.sub (i32.add a 10) b)", (8, 18)),
        ("(i32.sub (i32.add a b) b)", (3, 10)),
        ("(i32.mul a b)", (6, 50)),
        ("(i32.mul a 4)", (12, 40)),
        ("(i32.mul 4 a)", (12, 40)),
        ("(i32.mul a 0)", (0, 0)),
        ("(i32.mul c c)", (0, 65_025)),
        ("(i32.mul d a)", ANY32),
        ("(i32.shl a 2)", (12, 40)),
        ("(i32.shl a 34)", (12, 40)),
        ("(i32.shl a b)", ANY32),
        ("(i32.shr_u c 3)", (0, 31)),
        ("(i32.shr_u a 33)", (1, 5)),
        ("(i32.shr_u c b)", (0, 255)),
        ("(i32.shr_u c 0)", (0, 255)),
        ("(i32.shr_u (i32.shl c 4) 2)", (0, 1020)),
        ("(i32.div_u a 2)", (1, 5)),
        ("(i32.div_u a 1)", (3, 10)),
        ("(i32.div_u c b)", (0, 127)),
        ("(i32.div_u a b)", (0, 5)),
        ("(i32.div_u c d)", (0, 255)),
        ("(i32.div_u (i32.mul a 8) 4)", (6, 20)),
        ("(i32.div_u (i32.add (i32.mul a 8) 12) 4)", (9, 23)),
        ("(i32.div_u (i32.add (i32.mul a 8) 13) 4)", (9, 23)),
        ("(i32.rem_u c a)", (0, 9)),
        ("(i32.rem_u a 100)", (3, 10)),
        ("(i32.rem_u a 11)", (3, 10)),
        ("(i32.rem_u a 10)", (0, 9)),
        ("(i32.rem_u c 16)", (0, 15)),
        ("(i32.rem_u c d)", (0, 255)),
        ("(i32.and c a)", (0, 10)),
        ("(i32.and a c)", (0, 10)),
        ("(i32.and c 255)", (0, 255)),
        ("(i32.and c 254)", (0, 254)),
        ("(i32.and c 240)", (0, 240)),
        ("(i32.and a 15)", (3, 10)),
        ("(i32.and a 14)", (2, 10)),
        ("(i32.and a 12)", (0, 8)),
        ("(i32.and 12 a)", (0, 8)),
        ("(i32.and a 5)", (0, 5)),
        ("(i32.and (i32.add a 2147483648) 15)", (3, 10)),
        ("(i32.and (i32.add a 2147483648) 2147483640)", (0, 8)),
        ("(i32.and (i32.add a 2147483640) 2147483640)", (0, 0x7fff_fff8)),
        ("(i32.and (i32.add a 1024) 4)", (0, 4)),
        ("(i32.and d -4)", (0, M32 - 3)),
        ("(i32.and d -1)", ANY32),
        ("(i32.and d 255)", (0, 255)),
        ("(i32.and d 0)", (0, 0)),
        ("(i32.or a b)", (3, 15)),
        ("(i32.or (i32.shl a 3) b)", (26, 85)),
        ("(i32.or b (i32.shl a 3))", (26, 85)),
        ("(i32.or (i32.shl a 2) b)", (12, 63)),
        ("(i32.or (i32.shl d 8) c)", ANY32),
        ("(i32.xor a b)", (0, 15)),
        ("(i32.xor c 1)", (0, 255)),
        ("(i32.clz d)", (0, 32)),
        ("(i32.ctz d)", (0, 32)),
        ("(i32.popcnt d)", (0, 32)),
        ("(i32.div_s a b)", ANY64),
        ("(i32.rotl a b)", ANY64),
        ("(i32.extend8_s (i32.and c 127))", (0, 127)),
        ("(i32.extend8_s c)", ANY32),
        ("(i32.extend16_s c)", (0, 255)),
        ("(i32.extend16_s d)", ANY32),
        ("(i32.add (i32.eqz a) 0)", (0, 0)),
        ("(i32.add (i32.eqz d) 0)", (0, 1)),
        ("(i32.add (i32.lt_u a b) 1)", (1, 2)),
    ]);
}

#[test]
fn arithmetic_of_64_bits() {
    holds(&[
        ("(i64.add e f)", (3, 265)),
        ("(i64.sub e 3)", (0, 7)),
        ("(i64.sub e 4)", ANY64),
        ("(i64.mul e f)", (0, 2550)),
        ("(i64.mul f 3)", (0, 765)),
        ("(i64.shl e 33)", (3 << 33, 10 << 33)),
        ("(i64.shr_u e 1)", (1, 5)),
        ("(i64.shr_u f e)", (0, 255)),
        ("(i64.div_u e 2)", (1, 5)),
        ("(i64.rem_u f e)", (0, 9)),
        ("(i64.and g 255)", (0, 255)),
        ("(i64.and e 12)", (0, 8)),
        ("(i64.and g -8)", (0, u64::MAX - 7)),
        ("(i64.or e f)", (3, 255)),
        ("(i64.or (i64.shl e 8) f)", (768, 2815)),
        ("(i64.xor e f)", (0, 255)),
        ("(i64.clz g)", (0, 64)),
        ("(i64.ctz g)", (0, 64)),
        ("(i64.popcnt g)", (0, 64)),
        ("(i64.extend_i32_u a)", (3, 10)),
        ("(i64.extend_i32_u d)", ANY32),
        ("(i64.extend_i32_s a)", (3, 10)),
        ("(i64.extend_i32_s d)", ANY64),
        ("(i64.extend8_s (i64.and f 127))", (0, 127)),
        ("(i64.extend8_s f)", ANY64),
        ("(i64.extend16_s f)", (0, 255)),
        ("(i64.extend32_s f)", (0, 255)),
        ("(i64.extend32_s g)", ANY64),
        ("(i32.wrap_i64 e)", (3, 10)),
        ("(i32.wrap_i64 g)", ANY32),
        ("(i64.extend_i32_u (i32.sub a b))", ANY32),
    ]);
    // A sum that wraps in 32 bits does not in 64.
    assert_eq!(of("(i64.add (i64.extend_i32_u d) (i64.extend_i32_u c))"), (0, M32 + 255));
}

/// Checks the range of `d`, `c` or `g` where a condition is true, and where it is false.
#[test]
fn conditions() {
    let side = |condition: &str, of: &str, other: bool| {
        let bits = if condition.contains("i64") { 64 } else { 32 };
        let set = if of == "g" { "$s" } else { "$r" };
        let branches = if other { ("unreachable", "nop") } else { ("nop", "unreachable") };
        let test = operands(condition, bits);
        let forms = [
            format!(
                "(if {test} (then {}) (else {})) (local.set {set} (local.get ${of}))",
                branches.0, branches.1
            ),
            if other {
                format!("(block (br_if 0 (i32.eqz {test})) unreachable) (local.set {set} (local.get ${of}))")
            } else {
                format!("(block (br_if 0 {test}) unreachable) (local.set {set} (local.get ${of}))")
            },
        ];
        let [one, two] = forms.map(|f| known(&f));
        assert_eq!(one, two, "{condition}");
        one
    };
    let half = M32 / 2;
    let top = u64::MAX / 2;
    for (condition, of, yes, no) in [
        ("(i32.lt_u d 10)", "d", (0, 9), (10, M32)),
        ("(i32.le_u d 10)", "d", (0, 10), (11, M32)),
        ("(i32.gt_u d 10)", "d", (11, M32), (0, 10)),
        ("(i32.ge_u d 10)", "d", (10, M32), (0, 9)),
        ("(i32.lt_u 10 d)", "d", (11, M32), (0, 10)),
        ("(i32.eq d 10)", "d", (10, 10), (0, M32)),
        ("(i32.ne d 10)", "d", (0, M32), (10, 10)),
        ("(i32.eqz d)", "d", (0, 0), (1, M32)),
        ("(i32.eqz (i32.eqz d))", "d", (1, M32), (0, 0)),
        ("(i32.xor (i32.eqz d) 1)", "d", (1, M32), (0, 0)),
        ("(i32.xor 1 (i32.eqz d))", "d", (1, M32), (0, 0)),
        ("(i32.xor 2 (i32.eqz d))", "d", (0, M32), (0, M32)),
        ("d", "d", (1, M32), (0, 0)),
        ("(i32.lt_s c 10)", "c", (0, 9), (10, 255)),
        ("(i32.le_s c 10)", "c", (0, 10), (11, 255)),
        ("(i32.gt_s c 10)", "c", (11, 255), (0, 10)),
        ("(i32.ge_s c 10)", "c", (10, 255), (0, 9)),
        // Negative numbers are large ones.
        ("(i32.lt_s d 10)", "d", (0, M32), (10, half)),
        ("(i32.gt_s d 10)", "d", (11, half), (0, M32)),
        ("(i32.lt_s 10 d)", "d", (11, half), (0, M32)),
        ("(i32.lt_s d 0)", "d", (0, M32), (0, half)),
        ("(i32.lt_s d -5)", "d", (0, M32), (0, M32)),
        // Two at once.
        ("(i32.and (i32.gt_u d 5) (i32.lt_u d 10))", "d", (6, 9), (0, M32)),
        ("(i32.or (i32.le_u d 5) (i32.ge_u d 10))", "d", (0, M32), (6, 9)),
        ("(i64.lt_u g 10)", "g", (0, 9), (10, u64::MAX)),
        ("(i64.le_u g 10)", "g", (0, 10), (11, u64::MAX)),
        ("(i64.gt_u g 10)", "g", (11, u64::MAX), (0, 10)),
        ("(i64.ge_u g 10)", "g", (10, u64::MAX), (0, 9)),
        ("(i64.eq g 10)", "g", (10, 10), (0, u64::MAX)),
        ("(i64.ne g 10)", "g", (0, u64::MAX), (10, 10)),
        ("(i64.eqz g)", "g", (0, 0), (1, u64::MAX)),
        ("(i64.lt_s g 10)", "g", (0, u64::MAX), (10, top)),
        ("(i64.le_s g 10)", "g", (0, u64::MAX), (11, top)),
        ("(i64.gt_s g 10)", "g", (11, top), (0, u64::MAX)),
        ("(i64.ge_s g 10)", "g", (10, top), (0, u64::MAX)),
    ] {
        assert_eq!(side(condition, of, false), Some(yes), "{condition}");
        assert_eq!(side(condition, of, true), Some(no), "not {condition}");
    }
    // Conditions that are never true.
    for never in [
        "(i32.lt_u a 3)",
        "(i32.gt_u a 10)",
        "(i32.eq a 11)",
        "(i32.ne (i32.add a b) (i32.add b a))",
        "(i32.eqz a)",
        "(i32.gt_s c 255)",
        "(i32.and (i32.gt_u d 9) (i32.lt_u d 9))",
    ] {
        assert_eq!(side(never, "d", false), None, "{never}");
        assert_eq!(side(never, "d", true), Some((0, M32)), "{never}");
    }
}

#[test]
fn joins_and_selects() {
    let chosen = |a: &str, b: &str, c: &str| {
        let select = of(&format!("(select {a} {b} {c})"));
        let (x, y, z) = (operands(a, 32), operands(b, 32), operands(c, 32));
        let by_if = known(&format!("(if {z} (then (local.set $r {x})) (else (local.set $r {y})))"));
        let result = known(&format!("(local.set $r (if (result i32) {z} (then {x}) (else {y})))"));
        let branch = known(&format!("(local.set $r (block (result i32) {x} (br_if 0 {z}) drop {y}))"));
        assert_eq!((by_if, result, branch), (Some(select), Some(select), Some(select)), "{a} {b} {c}");
        select
    };
    assert_eq!(chosen("a", "b", "d"), (2, 10));
    assert_eq!(chosen("a", "b", "(i32.lt_u a b)"), (2, 5));
    assert_eq!(chosen("a", "b", "(i32.gt_u a b)"), (3, 10));
    assert_eq!(chosen("d", "7", "(i32.lt_u d 7)"), (0, 7));
    assert_eq!(chosen("d", "7", "(i32.gt_u d 7)"), (7, M32));
    assert_eq!(chosen("a", "a", "d"), (3, 10));
    assert_eq!(chosen("1", "100", "(i32.lt_u a 50)"), (1, 1));
    assert_eq!(chosen("1", "100", "(i32.gt_u a 50)"), (100, 100));
    assert_eq!(of("(select (i32.eqz a) 5 d)"), (0, 5));
    assert_eq!(of("(select 5 (i32.eqz a) d)"), (0, 5));
    assert_eq!(of("(i32.add (select (i32.eqz a) (i32.eqz b) d) 0)"), (0, 1));
    // The lesser of two is at most either, and the sum of common parts stays one.
    let least =
        "(local.set $r (select (local.get $c) (local.get $d) (i32.lt_u (local.get $c) (local.get $d))))";
    let after = |then: &str| known(&format!("{least} (local.set $r {})", operands(then, 32)));
    assert_eq!(after("(i32.sub d r)"), Some((0, M32)));
    assert_eq!(after("(i32.sub c r)"), Some((0, 255)));
    assert_eq!(after("(i32.sub (i32.add c 1) r)"), Some((1, 256)));
    let more = "(local.set $r (i32.add (local.get $c) (i32.const 4))) (if (local.get $d) (then (local.set $r (local.get $c))))";
    let after = |then: &str| known(&format!("{more} (local.set $r {})", operands(then, 32)));
    assert_eq!(after("(i32.sub r c)"), Some((0, 4)));
    assert_eq!(after("(i32.sub (i32.add r 1) c)"), Some((1, 5)));
    // Facts that hold on both sides still hold.
    let both = "(if (i32.ge_u (local.get $d) (i32.const 9)) (then unreachable)) (if (local.get $c) (then nop) (else nop)) (local.set $r (local.get $d))";
    assert_eq!(known(both), Some((0, 8)));
    let each = "(if (local.get $c) (then (br_if 0 (i32.ge_u (local.get $d) (i32.const 9))) (local.set $r (local.get $d))) (else (local.set $r (i32.const 8))))";
    assert_eq!(known(each), Some((0, 8)));
    // One side that diverges contributes nothing.
    assert_eq!(
        known("(if (local.get $d) (then (local.set $r (i32.const 7))) (else unreachable))"),
        Some((7, 7))
    );
    assert_eq!(
        known("(if (local.get $d) (then (return)) (else (local.set $r (i32.const 7))))"),
        Some((7, 7))
    );
    assert_eq!(known("(block (br 0)) (local.set $r (i32.const 7))"), Some((7, 7)));
    assert_eq!(known("(return)"), None);
    assert_eq!(known("unreachable"), None);
    assert_eq!(known("(loop (br 0))"), Some((0, 0)), "the loop itself is the last");
}

#[test]
fn tables() {
    let table = |index: &str| {
        known(&format!(
            "(block $z (block $y (block $x (br_table $x $y $z {})) (local.set $r (i32.const 10)) (br $z)) (local.set $r (i32.const 20)))",
            operands(index, 32)
        ))
    };
    assert_eq!(table("0"), Some((10, 10)));
    assert_eq!(table("1"), Some((20, 20)));
    assert_eq!(table("2"), Some((0, 0)));
    assert_eq!(table("(i32.and d 1)"), Some((10, 20)));
    assert_eq!(table("d"), Some((0, 20)));
    assert_eq!(table("b"), Some((0, 0)), "2 to 5 go by the default");
    assert_eq!(table("(i32.sub b 1)"), Some((0, 20)));
}

#[test]
fn memory_and_globals() {
    let load = |before: &str, load: &str| known(&format!("{before} (local.set $r ({load}))"));
    let store = "(i32.store (i32.const 8) (local.get $a))";
    let at8 = "i32.load (i32.const 8)";
    assert_eq!(load("", at8), Some(ANY32));
    assert_eq!(load(store, at8), Some((3, 10)));
    assert_eq!(load(store, "i32.load offset=8 (i32.const 0)"), Some((3, 10)));
    assert_eq!(load(store, "i32.load16_u (i32.const 8)"), Some((0, 65_535)));
    assert_eq!(load(store, "i32.load8_u (i32.const 8)"), Some((0, 255)));
    assert_eq!(load(store, "i32.load8_s (i32.const 8)"), Some(ANY32));
    assert_eq!(load(store, "i32.load16_s (i32.const 8)"), Some(ANY32));
    assert_eq!(load(store, "i32.load (i32.const 9)"), Some(ANY32));
    assert_eq!(load("", "i32.load16_u (i32.const 8)"), Some((0, 65_535)));
    // A store next to it leaves it unchanged; a store that overlaps, or may, does not.
    for (other, kept) in [
        ("(i32.store8 (i32.const 12) (i32.const 1))", true),
        ("(i32.store8 (i32.const 11) (i32.const 1))", false),
        ("(i32.store8 (i32.const 7) (i32.const 1))", true),
        ("(i32.store16 (i32.const 7) (i32.const 1))", false),
        ("(i32.store16 (i32.const 6) (i32.const 1))", true),
        ("(i32.store (i32.const 4) (i32.const 1))", true),
        ("(i32.store (i32.const 5) (i32.const 1))", false),
        ("(i64.store (i32.const 0) (i64.const 1))", true),
        ("(i64.store (i32.const 1) (i64.const 1))", false),
        ("(i64.store8 (i32.const 11) (i64.const 1))", false),
        ("(i64.store16 (i32.const 6) (i64.const 1))", true),
        ("(i64.store16 (i32.const 7) (i64.const 1))", false),
        ("(i64.store32 (i32.const 4) (i64.const 1))", true),
        ("(i64.store32 (i32.const 5) (i64.const 1))", false),
        ("(f32.store (i32.const 4) (local.get $u))", true),
        ("(f32.store (i32.const 5) (local.get $u))", false),
        ("(f64.store (i32.const 0) (f64.const 0))", true),
        ("(f64.store (i32.const 1) (f64.const 0))", false),
        ("(v128.store (i32.const 12) (v128.const i64x2 0 0))", true),
        ("(v128.store (i32.const 11) (v128.const i64x2 0 0))", false),
        ("(v128.store8_lane 0 (i32.const 100) (v128.const i64x2 0 0))", false),
        ("(drop (v128.load (i32.const 0)))", true),
        ("(drop (v128.load8_lane 0 (i32.const 0) (v128.const i64x2 0 0)))", true),
        ("(i32.store8 (local.get $d) (i32.const 1))", false),
        ("(memory.fill (i32.const 0) (i32.const 0) (i32.const 1))", false),
        ("(memory.copy (i32.const 0) (i32.const 0) (i32.const 1))", false),
        ("(drop (memory.grow (i32.const 1)))", true),
        ("(drop (memory.size))", true),
        ("(drop (call $any))", false),
        ("(drop (call $small (local.get $d)))", true),
        ("(call $packet (local.get $d))", true),
        ("(drop (f32.add (local.get $u) (local.get $u)))", true),
    ] {
        let found = load(&format!("{store} {other}"), at8);
        assert_eq!(found, Some(if kept { (3, 10) } else { ANY32 }), "{other}");
    }
    // Relative to an unknown address.
    let there = "(i32.store offset=4 (local.get $d) (local.get $a))";
    assert_eq!(load(there, "i32.load offset=4 (local.get $d)"), Some((3, 10)));
    assert_eq!(load(there, "i32.load (i32.add (local.get $d) (i32.const 4))"), Some((3, 10)));
    assert_eq!(load(there, "i32.load (local.get $d)"), Some(ANY32));
    let beside = format!("{there} (i32.store (local.get $d) (i32.const 50))");
    assert_eq!(load(&beside, "i32.load offset=4 (local.get $d)"), Some((3, 10)));
    let wide = known("(i64.store (i32.const 8) (local.get $e)) (local.set $s (i64.load (i32.const 8)))");
    assert_eq!(wide, Some((3, 10)));
    assert_eq!(known("(local.set $s (i64.load8_u (i32.const 8)))"), Some((0, 255)));
    assert_eq!(known("(local.set $s (i64.load16_u (i32.const 8)))"), Some((0, 65_535)));
    assert_eq!(known("(local.set $s (i64.load32_u (i32.const 8)))"), Some(ANY32));
    assert_eq!(known("(local.set $s (i64.load32_s (i32.const 8)))"), Some(ANY64));
    assert_eq!(
        known("(i32.store (i32.const 8) (i32.eqz (local.get $d))) (local.set $s (i64.load (i32.const 8)))"),
        Some(ANY64)
    );
    // Stored on one side only, or on both.
    let one = format!("(if (local.get $d) (then {store}))");
    assert_eq!(load(&one, at8), Some(ANY32));
    let both = format!("(if (local.get $d) (then {store}) (else {store}))");
    assert_eq!(load(&both, at8), Some((3, 10)));
    // Different values, at the same address or next to it, and equal ones that were computed twice.
    let sides = |one: &str, two: &str| load(&format!("(if (local.get $d) (then {one}) (else {two}))"), at8);
    assert_eq!(sides(store, "(i32.store (i32.const 8) (local.get $b))"), Some(ANY32));
    assert_eq!(sides(store, "(i32.store (i32.const 12) (local.get $a))"), Some(ANY32));
    assert_eq!(sides("(i32.store (i32.const 12) (local.get $b))", store), Some(ANY32));
    let sum = "(i32.store (i32.const 8) (i32.add (local.get $a) (i32.const 1)))";
    assert_eq!(sides(sum, sum), Some((4, 11)));
    let copied = |bytes: &str| format!("({bytes}.store (i32.const 8) ({bytes}.load (local.get $batch)))");
    let both = sides(&copied("i64"), &copied("i64"));
    assert_eq!(
        both,
        Some((
            flame_abi::layout::VIEW.into(),
            u64::from(flame_abi::layout::VIEW) + u64::from(flame_abi::layout::VIEW_BYTES)
        ))
    );
    assert_eq!(sides(&copied("i64"), &copied("v128")), Some(ANY32), "as many bytes on one side only");
    assert_eq!(of("(memory.size)"), (0, 65_536));
    assert_eq!(known("(local.set $r (memory.grow (i32.const 1)))"), Some((0, u64::MAX)));
    assert_eq!(of("(i32.and (memory.grow 1) 255)"), (0, 255));

    assert_eq!(known("(local.set $r (global.get $k))"), Some((44, 44)));
    assert_eq!(known("(local.set $s (global.get $l))"), Some((45, 45)));
    assert_eq!(known("(local.set $r (global.get $m))"), Some(ANY32));
    let set = "(global.set $m (local.get $a)) (global.set $w (local.get $e))";
    assert_eq!(known(&format!("{set} (local.set $r (global.get $m))")), Some((3, 10)));
    assert_eq!(known(&format!("{set} (drop (call $any)) (local.set $r (global.get $m))")), Some(ANY32));
    assert_eq!(known(&format!("{set} (drop (call $any)) (local.set $s (global.get $w))")), Some(ANY64));
    assert_eq!(known("(drop (call $any)) (local.set $r (global.get $k))"), Some((44, 44)));
    assert_eq!(of("(call $small d)"), (0, 3));
    assert_eq!(of("(call $any)"), ANY32);
    // Locals begin as 0, and keep their values.
    assert_eq!(known(""), Some((0, 0)));
    assert_eq!(known("(local.set $r (local.tee $d (local.get $a)))"), Some((3, 10)));
    assert_eq!(known("(drop (local.tee $r (local.get $a)))"), Some((3, 10)));
}

/// Loads from memory that the host wrote.
#[test]
fn the_batch() {
    let longest = flame_verify::value::MAX_LENGTH;
    let end = u64::from(flame_abi::layout::VIEW) + u64::from(flame_abi::layout::VIEW_BYTES);
    let count = "(i32.load offset=4 (local.get $batch))";
    assert_eq!(known(&format!("(local.set $r {count})")), Some((1, flame_abi::MAX_BATCH as u64)));
    let place = "(i32.load (local.get $batch))";
    assert_eq!(known(&format!("(local.set $r {place})")), Some((flame_abi::layout::VIEW.into(), end)));
    assert_eq!(known("(local.set $r (i32.load offset=8 (local.get $batch)))"), Some(ANY32));
    assert_eq!(known("(local.set $r (i32.load16_u offset=4 (local.get $batch)))"), Some((0, 65_535)));
    let field = |load: &str, index: &str, check: &str, scale: u32| {
        known(&format!(
            "(if (i32.{check} (local.get $d) {count}) (then (local.set $r ({load} (i32.add {place} (i32.mul {index} (i32.const {scale})))))) (else unreachable))"
        ))
    };
    let d = "(local.get $d)";
    let next = "(i32.add (local.get $d) (i32.const 1))";
    assert_eq!(field("i32.load offset=20", d, "lt_u", 32), Some((0, longest)));
    assert_eq!(field("i32.load offset=8", d, "lt_u", 32), Some((0, end)));
    assert_eq!(field("i32.load16_u offset=24", d, "lt_u", 32), Some((0, 65_535)));
    assert_eq!(field("i32.load offset=20", d, "le_u", 32), Some(ANY32), "one behind the last");
    assert_eq!(field("i32.load offset=20", next, "lt_u", 32), Some(ANY32), "one behind the last");
    assert_eq!(field("i32.load offset=52", d, "lt_u", 32), Some(ANY32), "of the one behind");
    assert_eq!(field("i32.load offset=20", d, "lt_u", 16), Some(ANY32), "halfway");
    assert_eq!(field("i32.load offset=20", d, "lt_u", 64), Some(ANY32), "each second");
    assert_eq!(
        field("i32.load offset=16", d, "lt_u", 32),
        Some(ANY32),
        "the length on the wire may be anything"
    );
    assert_eq!(field("i32.load offset=24", d, "lt_u", 32), Some(ANY32), "two fields at once");
    // A begun packet is one of the batch; the same field is the same value.
    let begun = format!(
        "(call $packet (local.get $d)) (local.set $r (i32.load offset=20 (i32.add {place} (i32.shl (local.get $d) (i32.const 5)))))"
    );
    assert_eq!(known(&begun), Some((0, longest)));
    let twice = format!(
        "{begun} (local.set $r (i32.sub (local.get $r) (i32.load offset=20 (i32.add {place} (i32.shl (local.get $d) (i32.const 5))))))"
    );
    assert_eq!(known(&twice), Some((0, 0)));
    // A copy of a descriptor, in parts of 8 and of 16 bytes.
    for (move_, width) in [("v128", 16), ("i64", 8)] {
        for (from, field, at, known_as) in
            [(16, 20, 4, (0, longest)), (8, 8, 0, (0, end)), (16, 16, 0, ANY32), (16, 24, 8, ANY32)]
        {
            let copied = format!(
                "(call $packet {d}) ({move_}.store (i32.const 64) ({move_}.load offset={from} (i32.add {place} (i32.shl {d} (i32.const 5))))) (local.set $r (i32.load offset=64 (i32.const {at})))"
            );
            let inside = at + 4 <= width;
            assert_eq!(known(&copied), Some(if inside { known_as } else { ANY32 }), "{move_} {from} {field}");
        }
    }
    let (_, begun) = walk("(loop) (call $packet (local.get $d))");
    assert_eq!(begun, [false, true]);
    // A packet without a mark may be the first: there are certainly two only after a packet that is not the
    // first.
    let (_, begun) = walk(
        "(loop) (if (i32.ge_u (local.get $d) (i32.const 1)) (then (if (i32.lt_u (local.get $d) (i32.load offset=4 (local.get $batch))) (then (loop) (return)))))",
    );
    assert_eq!(begun, [false, true, false]);
    assert_eq!(mask(32), M32);
}

/// A result relates to its operands: the difference of both.
#[test]
fn results_relate_to_operands() {
    holds(&[
        ("(i32.sub (i32.div_u (i32.add (i32.mul a 8) 12) 4) (i32.mul a 2))", (3, 3)),
        ("(i32.sub (i32.add (i32.mul a 2) 1) (i32.div_u (i32.sub (i32.mul a 8) 3) 4))", (2, 2)),
        ("(i32.sub c (i32.shl (i32.shr_u c 2) 2))", (0, 3)),
        ("(i32.sub c (i32.mul (i32.div_u c 10) 10))", (0, 9)),
        ("(i32.sub c (i32.and c 252))", (0, 3)),
        ("(i32.sub c (i32.and c d))", (0, 255)),
        ("(i32.sub c (i32.and d c))", (0, 255)),
        ("(i32.sub c (i32.rem_u c d))", (0, 255)),
        ("(i32.sub c (i32.div_u c d))", (0, 255)),
        ("(i32.sub c (i32.shr_u c d))", (0, 255)),
        ("(i32.sub c (i32.rem_u c 7))", (0, 255)),
        ("(i32.sub a (i32.add (i32.rem_u d a) 1))", (0, 9)),
        ("(i32.sub (i32.or (i32.shl a 3) b) (i32.shl a 3))", (2, 5)),
        ("(i32.sub (i32.extend16_s c) c)", (0, 0)),
        ("(i64.sub (i64.extend_i32_u a) (i64.extend_i32_s a))", (0, 0)),
        // Operands below two conditions are kept.
        ("(i32.add 7 (i32.and (i32.eqz d) (i32.eqz c)))", (7, 8)),
        ("(i32.add 7 (i32.or (i32.eqz d) (i32.eqz c)))", (7, 8)),
        ("(i32.add 7 (i32.xor (i32.eqz d) 1))", (7, 8)),
        ("(i32.add 7 (i32.add 8 (i32.add 9 (i32.and (i32.eqz d) (i32.eqz c)))))", (24, 25)),
        ("(i32.add 7 (i32.add 8 (i32.add 9 (i32.or (i32.eqz d) (i32.eqz c)))))", (24, 25)),
        ("(i32.add 7 (i32.add 8 (i32.add 9 (i32.xor (i32.eqz d) 1))))", (24, 25)),
        ("(i32.add 7 (i32.and d 3))", (7, 10)),
        ("(i32.add 7 (select a b d))", (9, 17)),
        ("(i32.add 7 (i32.popcnt d))", (7, 39)),
        ("(i32.add 7 (i32.load8_s d))", ANY32),
        ("(i32.add 7 (call $small d))", (7, 10)),
        ("(i32.add 7 (block $z (result i32) 1 (br_if $z d) drop 2))", (8, 9)),
        ("(i32.add 7 (if (result i32) d (then 1) (else 2)))", (8, 9)),
    ]);
    // A value that wraps is the same one when it is loaded.
    let loaded = "(i32.store (i32.const 8) (i32.sub (local.get $a) (local.get $b))) (local.set $r (i32.add (i32.load (i32.const 8)) (local.get $b)))";
    assert_eq!(known(loaded), Some((3, 10)));
    // A parameter of a loop is not its value before the loop.
    assert_eq!(known("(i32.const 5) (loop (param i32) (local.set $r))"), Some(ANY32));
    assert_eq!(known("(f32.const 5) (loop (param f32) drop)"), Some((0, 0)));
}
