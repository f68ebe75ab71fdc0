//! The operands that are left on the stack where frames end.

use crate::seen::known;

/// A branch leaves the results of its frame, whatever else lies on the stack.
#[test]
fn frames_leave_their_results() {
    for (body, left) in [
        ("(i32.const 7) (block (i32.const 1) (br 0)) (local.set $r)", (7, 7)),
        ("(i32.const 7) (block (result i32) (i32.const 1) (br 0)) (local.set $r) drop", (1, 1)),
        ("(i32.const 7) (block (result i32) (i32.const 1) (i32.const 2) (br 0)) (local.set $r) drop", (2, 2)),
        ("(i32.const 7) (block (result i32) (i32.const 1) (i32.const 2) (br 0)) drop (local.set $r)", (7, 7)),
        (
            "(i32.const 7) (i32.const 5) (block (param i32) (result i32 i32) (i32.const 2)) drop (local.set $r) drop",
            (5, 5),
        ),
        (
            "(i32.const 7) (i32.const 5) (block (param i32) (result i32 i32) (i32.const 2) (br 0)) drop drop (local.set $r)",
            (7, 7),
        ),
        (
            "(i32.const 7) (i32.const 5) (if (param i32) (result i32) (local.get $d) (then drop (i32.const 1)) (else)) (local.set $r) drop",
            (1, 5),
        ),
        (
            "(i32.const 7) (if (local.get $d) (then (i32.const 1) (br 0)) (else (i32.const 2) (br 0))) (local.set $r)",
            (7, 7),
        ),
        ("(i32.const 7) (block (loop (i32.const 1) (br 1))) (local.set $r)", (7, 7)),
        ("(i32.const 7) (loop (result i32) (i32.const 1)) (local.set $r) drop", (1, 1)),
        ("(i32.const 7) (loop (result i32) (i32.const 1)) drop (local.set $r)", (7, 7)),
    ] {
        assert_eq!(known(body), Some(left), "{body}");
    }
}
