//! Values in memory that other modules write: no bound rests on them.

use flame_abi::layout::{SHARED, WINDOW};
use flame_abi::manifest::Shared;
use flame_bounds::{TripCount, analyse_exports};

/// Returns the trip count of the only loop of a module that shares two areas with this access, or `None` if
/// it is not known.
fn trips(access: &str, body: &str) -> Option<String> {
    let area = |name: &str| format!("[[shared]]\nname = \"{name}\"\nbytes = 4096\naccess = \"{access}\"\n");
    let manifest = "abi = 1\nname = \"m\"\nversion = \"1\"\ndescription = \"d\"\n".to_owned();
    let manifest = if access.is_empty() { manifest } else { manifest + &area("a") + &area("b") };
    let text = format!(
        "(module (memory 1) (global $sp (mut i32) (i32.const 4096)) (@custom \"flame.manifest\" {manifest:?})
         (func (export \"f\") (param $a i32) (local $i i32) (local $n i32) {body}))"
    );
    let wasm = wat::parse_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    match &analyse_exports(&wasm).unwrap().loops.first().expect("a loop").trips {
        TripCount::AtMost(n) => Some(n.to_string()),
        _ => None,
    }
}

const NEXT: &str = "(local.set $i (i32.add (local.get $i) (i32.const 1)))";

/// A loop that stores its limit at a place, and loads it again in each iteration. `$n` is below the window.
fn reloads(place: &str) -> String {
    format!(
        "(local.set $n (i32.and (local.get $a) (i32.const {})))
         (i32.store {place} (i32.const 16))
         (loop {NEXT} (br_if 0 (i32.lt_u (local.get $i) (i32.load {place}))))",
        WINDOW / 2 - 1
    )
}

#[test]
fn a_stored_value_may_change_in_an_area_that_others_write() {
    let (area, own) = (format!("(i32.const {})", SHARED as i32), "(i32.const 64)".to_owned());
    let second = format!("(i32.const {})", Shared::address(1) as i32);
    let (any, stack) = ("(local.get $a)".to_owned(), "(global.get $sp)".to_owned());
    let below = "(local.get $n)".to_owned();
    for (access, place, bound) in [
        // A store to it traps, or the place is the module's own.
        ("", &area, Some("15")),
        ("read", &area, Some("15")),
        ("read", &any, Some("15")),
        ("read", &stack, Some("15")),
        ("write", &own, Some("15")),
        ("write", &below, Some("15")),
        ("write", &area, None),
        ("write", &second, None),
        ("write", &any, None),
        // The analysis does not know where the stack lies.
        ("write", &stack, None),
    ] {
        assert_eq!(trips(access, &reloads(place)).as_deref(), bound, "{access} {place}");
    }
}

#[test]
fn a_limit_that_is_loaded_twice_limits_nothing() {
    let load = format!("(i32.load (i32.const {}))", SHARED as i32);
    let test = |first: &str, second: &str| {
        format!(
            "(block (br_if 0 (i32.gt_u {first} (i32.const 16)))
               (loop (br_if 1 (i32.ge_u (local.get $i) {second})) {NEXT} (br 0)))"
        )
    };
    for access in ["read", "write"] {
        assert_eq!(trips(access, &test(&load, &load)), None, "{access}");
        // Loaded once, it is one value.
        let once = test(&format!("(local.tee $n {load})"), "(local.get $n)");
        assert_eq!(trips(access, &once).as_deref(), Some("16"), "{access}");
    }
}
