//! The commands of active packets.

use crate::commands::{done, flame, text};
use crate::network::Net;
use std::path::Path;
use std::process::Command;

/// The demo: three nodes in namespaces, each a process, and a host that pings and traces across them.
#[test]
fn the_demo_pings_and_traces_across_namespaces() {
    if Net::new().is_none() {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/active-demo.sh");
    let out = Command::new(script).arg(crate::network::flame()).output().unwrap();
    let (printed, errors) = (text(&out.stdout), text(&out.stderr));
    assert!(out.status.success(), "{printed}\n{errors}");
    let lines: Vec<&str> = printed.lines().collect();
    for (hop, name) in ["n1", "n2", "n3"].into_iter().enumerate() {
        let begins = |line: &&&str| line.starts_with(&format!("{:<4}{name}", hop + 1));
        let row = lines.iter().find(begins).unwrap_or_else(|| panic!("no {name}: {printed}"));
        // Capsules, and the time of each part.
        let numbers: Vec<f64> = row.split_whitespace().skip(2).map(|n| n.parse().unwrap()).collect();
        assert!(numbers.len() == 6 && numbers.iter().all(|number| *number > 0.0), "{row}");
    }
    assert!(printed.contains("5 of 5 came back"), "{printed}");
    for part in ["authentication", "loading", "marshalling", "running", "kernel and wire", "transmission"] {
        assert!(
            lines.iter().any(|line| line.trim().starts_with(part) && line.ends_with('%')),
            "{part}: {printed}"
        );
    }
    // The nodes state their accounts at their end, and have refused nothing.
    assert_eq!(lines.iter().filter(|line| line.starts_with("account ")).count(), 3, "{printed}");
    assert!(!printed.contains("refused"), "{printed}");
}

#[test]
fn capsules_are_built_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write(
        "good.capsule",
        "fun f() = deliver(1)\nfun g(l: ints) = fold x in l at most 32 with u = skip do fold y in l at most 32 with v = skip do deliver(y) end end",
    );
    let built = done(folder, &["capsule", "build", "good.capsule"]);
    assert!(built.contains("good.wasm: ") && built.contains("at most 8191"), "{built}");
    let of_text = done(folder, &["capsule", "check", "good.capsule"]);
    assert!(of_text.contains("0 f: at most ") && of_text.contains("1 g: counted"), "{of_text}");
    let of_wasm = done(folder, &["capsule", "check", "good.wasm"]);
    assert_eq!(of_text.lines().next(), of_wasm.lines().next());
    write("bad.capsule", "fun f() =\n  deliver(x)");
    std::fs::write(folder.join("bad.wasm"), wat::parse_str("(module)").unwrap()).unwrap();
    for (file, place) in
        [("bad.capsule", "bad.capsule, line 2, column 11: "), ("bad.wasm", "bad.wasm: export section")]
    {
        let out = flame(folder, &["capsule", "check", file]);
        assert_eq!(out.status.code(), Some(1));
        assert!(text(&out.stderr).contains(place), "{}", text(&out.stderr));
    }
}

#[test]
fn a_wrong_configuration_is_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (text_of, place) in [
        ("", "n.toml: "),
        ("listen = \"nowhere\"", "invalid socket address"),
        ("listen = \"127.0.0.1:0\"\npolicy = \"p\"\ncredential = \"c\"\nidentity = \"i\"", "p"),
        ("listen = \"127.0.0.1:0\"\nlisten = 3", "duplicate key"),
        ("port = 3", "unknown field `port`"),
    ] {
        std::fs::write(folder.join("n.toml"), text_of).unwrap();
        for command in [&["active"][..], &["ping", "--active", "x"], &["trace", "--active", "x"]] {
            let out = flame(folder, &[command, &["-c", "n.toml"]].concat());
            assert_eq!(out.status.code(), Some(1));
            assert!(text(&out.stderr).contains(place), "{text_of}: {}", text(&out.stderr));
        }
    }
}
