//! The benchmarks run, and every row is there. Nothing about speed: that is for people to read.

use std::process::Command;

#[test]
fn every_row_is_there() {
    if std::env::var_os("FLAME").is_none() || std::env::var_os("FLAME_MODULES").is_none() {
        eprintln!("skipped: set FLAME and FLAME_MODULES (make test does)");
        return;
    }
    let json = std::env::temp_dir().join(format!("flame-bench-{}.json", std::process::id()));
    let out =
        Command::new(env!("CARGO_BIN_EXE_flame-bench")).arg("--quick").arg("--json").arg(&json).output();
    let out = out.unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    std::fs::remove_file(&json).unwrap();
    let mut names: Vec<&str> = Vec::new();
    for row in &rows {
        let value = row["value"].as_f64().unwrap_or(f64::NAN);
        assert!(value.is_finite() && value > 0.0, "{row}");
        names.push(row["name"].as_str().unwrap());
    }
    let times = |name: &str| names.iter().filter(|n| **n == name).count();
    for module in ["count", "flow", "http", "rtt"] {
        for way in ["unchecked", "shipped"] {
            assert_eq!(times(&format!("{module}: {way} / native")), 2, "{module} {way}");
        }
    }
    for name in
        ["batches of 1", "batches of 256", "headers, addresses by prefix", "100 idle instances of flow"]
    {
        assert_eq!(times(name), 1, "{name}");
    }
    // tcpdump is among what the project installs; the other rivals, and namespaces, may be missing.
    assert_eq!(times("tcpdump -w /dev/null / count"), 1);
}
