//! Modules that take more than they were granted cost others nothing on a live link: the kernel drops none of
//! the packets that `count` beside them counts, the run ends soon after Ctrl-C, and each is ended or loses
//! packets with its cause.

use crate::network::{Net, ipv4, wait_for};
use crate::{common, wasm};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const TABLE: &str =
    "[[tables]]\nname = \"t\"\ndescription = \"d\"\ncolumns = [{ name = \"a\", type = \"u8\" }]\n";
const BUDGET: &str = "[limits]\npacket_budget = 100000000\n";
const BATCH: &str = "(func (export \"flame_batch\") (param i32) (result i64) (i64.const 0))";

/// Rows of one byte, 17 MiB after every batch and every rest.
fn flood() -> String {
    let init = "(func (export \"flame_init\") (param i32 i32) (result i64) (local $i i32)
        (loop $next
            (i32.store (local.get $i) (i32.const 1))
            (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 9)))
                (i32.const 17825790))))
        (i64.const 0))";
    format!(
        "{init} (func (export \"flame_batch\") (param i32) (result i64) (i64.const 0x10ffffb00000000))
        (func (export \"flame_rest\") (result i64) (i64.const 0x10ffffb00000000))"
    )
}

/// Dependent accesses all over 128 MiB, which take some half a second.
fn chase(before: &str) -> String {
    format!(
        "(local $i i32) (local $x i64) (local $a i32)
        {before}
        (local.set $x (i64.load (i32.const 0x8000000)))
        (loop $next
            (local.set $a (i32.and (i32.const 0x7fffff8)
                (i32.wrap_i64 (i64.shr_u (local.get $x) (i64.const 33)))))
            (local.set $x (i64.add (i64.load (local.get $a))
                (i64.mul (i64.add (local.get $x) (i64.const 0x1234567)) (i64.const 6364136223846793005))))
            (i64.store (local.get $a) (local.get $x))
            (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1)))
                (i32.const 3500000))))
        (i64.store (i32.const 0x8000000) (local.get $x))
        (i64.const 0)"
    )
}

fn file(folder: &Path, name: &str, functions: &str, more: &str) -> PathBuf {
    // The import comes first.
    let (import, functions) = match functions.contains("call $cold") {
        true => ("(import \"flame\" \"cold\" (func $cold))", functions),
        false => ("", functions),
    };
    let text = format!("(module {import} (memory (export \"memory\") 3840) {functions})");
    let manifest = format!("abi = 1\nname = \"{name}\"\nversion = \"1\"\ndescription = \"d\"\n{more}");
    let path = folder.join(format!("{name}.wasm"));
    std::fs::write(&path, wasm::with_manifest(wat::parse_str(text).unwrap(), manifest.as_bytes())).unwrap();
    path
}

#[test]
fn a_module_that_takes_too_much_costs_others_no_packet() {
    let Some(_) = common::module("count") else { return };
    let _turn = crate::turn();
    let Some(net) = Net::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let tick = format!("{BATCH} (func (export \"flame_tick\") (param i64) (result i64) {})", chase(""));
    let init = format!("{BATCH} (func (export \"flame_init\") (param i32 i32) (result i64) {})", chase(""));
    let cold = format!("(func (export \"flame_batch\") (param i32) (result i64) {})", chase("(call $cold)"));
    let limited = ["--cpu-share", "0.5", "--link-speed", "100M"];
    let frames = vec![ipv4(&[], 17, (1, 9), (2, 53), 114); 60_000];
    for (name, functions, more, options, cause) in [
        ("flood", &flood(), TABLE, &limited[..], "evicted: took more than"),
        ("floods", &flood(), TABLE, &[], ""),
        ("cold", &cold, BUDGET, &limited, "module cold stopped"),
        ("tick", &tick, BUDGET, &limited, ""),
        ("ticks", &tick, BUDGET, &["--metered"], ""),
        ("init", &init, BUDGET, &limited, ""),
    ] {
        let modules = format!("count,{}", file(folder.path(), name, functions, more).display());
        let arguments = [&[&modules[..], "--format", "json"], options].concat();
        let capture = net.capture(&arguments, 1);
        let mut sender = net.bursts(&frames);
        wait_for("the sender", || sender.try_wait().unwrap().is_some());
        let begun = Instant::now();
        let out = capture.interrupt();
        assert!(begun.elapsed() < Duration::from_secs(8), "{name}: {:?} after Ctrl-C", begun.elapsed());
        let said = String::from_utf8_lossy(&out.stderr);
        let account =
            said.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{name}: {said}"));
        let account: Value = serde_json::from_str(account).unwrap();
        assert_eq!(account["kernel_drops"], 0, "{name}: {said}");
        assert_eq!(account["modules"]["count"]["processed"], 60_000, "{name}: {said}");
        let rows = String::from_utf8_lossy(&out.stdout);
        assert!(
            rows.lines().any(|row| row.contains("\"packets\":60000")),
            "{name}: a row of count is missing"
        );
        let module = &account["modules"][name];
        assert_eq!(
            (&module["offered"], &module["adds_up"]),
            (&60_000.into(), &true.into()),
            "{name}: {said}"
        );
        assert!(said.contains(cause), "{name}: {said}");
    }
}
