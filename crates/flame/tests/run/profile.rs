//! Tests of `flame profile`: counts are the same in each run, and no more than the bounds that `flame check`
//! proves.

use crate::common::{self, root};
use serde_json::Value;
use std::process::{Command, Output};

fn flame(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flame")).args(args).current_dir(root()).output().unwrap()
}

fn json(args: &[&str]) -> Vec<Value> {
    let out = flame(args);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn counts_are_exact_and_within_the_bound() {
    if common::module("flow").is_none() || common::module("count").is_none() {
        return;
    }
    let mut least = 0;
    for module in ["count", "flow"] {
        let profile = ["profile", module, "-r", "demo/demo.pcap", "--format", "json", "--functions", "1000"];
        let found = json(&profile).remove(0);
        assert_eq!(found, json(&profile)[0], "{module}: another run counts the same");
        let packets = found["packets"].as_u64().unwrap();
        assert!(packets > 1000, "{found}");
        // Each packet is in each distribution, and the sums are of all packets.
        for name in ["instructions", "packet_accesses", "own_accesses"] {
            let pairs = found["distributions"][name].as_array().unwrap();
            let of = |i: usize| pairs.iter().map(move |pair| pair[i].as_u64().unwrap());
            assert_eq!(of(1).sum::<u64>(), packets, "{module} {name}");
            if name == "instructions" {
                let total: u64 = of(0).zip(of(1)).map(|(value, packets)| value * packets).sum();
                assert_eq!(total, found["singles"]["instructions"].as_u64().unwrap(), "{module}");
                let total = found["batches"]["instructions"].as_u64().unwrap();
                let functions = found["functions"].as_array().unwrap();
                let all: u64 = functions.iter().map(|f| f["instructions"].as_u64().unwrap()).sum();
                assert_eq!(all, total + found["others"]["instructions"].as_u64().unwrap(), "{module}");
            }
        }
        let most =
            found["distributions"]["instructions"].as_array().unwrap().last().unwrap()[0].as_u64().unwrap();
        assert!(most > least, "{module} costs more than the module before it");
        least = most;
        let check = json(&["check", module, "--format", "json"]);
        let batch = check.iter().find(|entry| entry["entry"] == "flame_batch").unwrap();
        let bound = batch["call_most"].as_u64().unwrap() + batch["packet_most"].as_u64().unwrap();
        assert!(most <= bound, "{module}: {most} of {bound}");
    }
}

#[test]
fn what_has_no_profile_is_refused_by_its_cause() {
    if common::module("ecn").is_none() {
        return;
    }
    for (args, expected) in [
        (&["ecn", "-r", "demo/demo.pcap"][..], "it forwards packets, and only modules that measure"),
        (&["count", "-r", "nowhere.pcap"], "nowhere.pcap"),
        (&["count", "-r", "demo/demo.pcap", "--set", "x=1"], "x"),
        (&["README.md", "-r", "demo/demo.pcap"], "README.md"),
    ] {
        let out = flame(&[&["profile"], args].concat());
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && said.contains(expected), "{args:?}: {said}");
    }
}

#[test]
fn source_lines_have_their_shares() {
    let kept = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("profile-lines");
    std::fs::create_dir_all(&kept).unwrap();
    let out = flame(&["build", "modules/count-c", "--lines", "--output", kept.to_str().unwrap()]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let module = kept.join("count-c.wasm");
    let profile = ["-r", "demo/demo.pcap", "--format", "json", "--functions", "1000"];
    let found = json(&[&["profile", module.to_str().unwrap()], &profile[..]].concat()).remove(0);
    let sum = |list: &str| -> u64 {
        let all = found[list].as_array().unwrap().iter();
        all.map(|one| one["instructions"].as_u64().unwrap()).sum()
    };
    let (functions, lines) = (sum("functions"), sum("lines"));
    assert!(lines <= functions && 2 * lines > functions, "{lines} of {functions}");
    let first = found["lines"][0]["name"].as_str().unwrap();
    assert!(first.contains("count-c") && first.contains(".c:"), "{first}");
}
