//! Rule sets that would take `ids` beyond its budgets, in WebAssembly: each packet that costs too much is
//! abandoned and counted, each rule that there is no time for is listed, and the module continues.

use crate::common::{self, root};
use std::process::Command;

const RULE: &str = "alert tcp any any -> any any";

fn rules(count: usize, options: impl Fn(usize) -> String) -> String {
    (1..=count).map(|sid| format!("{RULE} ({} sid:{sid};)\n", options(sid))).collect()
}

/// Runs `ids` with these rules on the recorded capture and returns its state and the rows of `costly`.
fn state(name: &str, rules: &str) -> (serde_json::Value, Vec<serde_json::Value>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hard.rules");
    std::fs::write(&path, rules).unwrap();
    let set = format!("ids.rules=@{}", path.display());
    let args = ["run", "ids", "-r", "demo/demo.pcap", "--expose", "all", "--format", "json", "--set", &set];
    let out = Command::new(env!("CARGO_BIN_EXE_flame")).args(args).current_dir(root()).output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{name}: {}", String::from_utf8_lossy(&out.stderr));
    let rows = String::from_utf8(out.stdout).unwrap();
    let rows = rows.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let (states, rest): (Vec<_>, Vec<_>) = rows.partition(|row| row["table"] == "state");
    let costly = rest.into_iter().filter(|row| row["table"] == "costly").collect();
    (states.into_iter().next().expect("a row of state"), costly)
}

#[test]
fn packets_that_cost_too_much_are_abandoned_and_the_module_goes_on() {
    if common::module("ids").is_none() {
        return;
    }
    let cases: [(&str, String); 8] = [
        ("states", rules(45, |i| format!("pcre:\"/(.{{0,100}}x){{20}}{i}/s\";"))),
        ("wide states", rules(64, |i| format!("pcre:\"/[\\x00-\\xff]{{1000}}{i}/\";"))),
        ("many states", rules(176, |i| format!("pcre:\"/[ab].{{60}}c{i}/\";"))),
        ("empty", rules(45, |i| format!("content:\"GET\"; pcre:\"/(a?){{200}}a{{200}}{i}/\";"))),
        ("start", rules(1536, |i| format!("pcre:\"/^SEARCH\\s+[^\\n]{{160}}{i}/s\";"))),
        ("caches", rules(3000, |i| format!("pcre:\"/abc{i}/\";"))),
        ("candidates", rules(24_000, |i| format!("content:\"GET\"; content:\"z{}\";", i % 10))),
        ("hits", rules(24_000, |i| format!("content:\"e\"; fast_pattern; content:\"z{i}\";"))),
    ];
    for (name, rules) in cases {
        let (state, costly) = state(name, &rules);
        let given_up = state["given_up"].as_u64().unwrap();
        assert!(given_up > 0 && state["packets"].as_u64() > Some(1000), "{name}: {state}");
        let named: u64 = costly.iter().map(|row| row["packets"].as_u64().unwrap()).sum();
        assert!(named <= given_up, "{name}: {costly:?}");
    }
}

#[test]
fn rules_that_there_is_no_time_for_are_counted_and_the_module_starts() {
    if common::module("ids").is_none() {
        return;
    }
    let alternatives = (0..2000).map(|i| format!("abc{i}")).collect::<Vec<_>>().join("|");
    let ports = |i: usize| (0..500).map(|j| (j * 2 + i % 2).to_string()).collect::<Vec<_>>().join(",");
    let lists: String = (1..=5500)
        .map(|i| format!("alert tcp any [{}] -> any any (flags:SFRPU; sid:{i};)\n", ports(i)))
        .collect();
    // Whether all of them run.
    let cases: [(&str, bool, String); 6] = [
        ("comments", true, format!("{}{RULE} (sid:1;)\n", "#\n".repeat(4_500_000))),
        ("alternatives", true, rules(60, |i| format!("pcre:\"/({alternatives}){i}/i\";"))),
        ("lists", true, lists),
        ("no text", false, format!("{}{RULE} (sid:1;)\n", "\u{fffd}\u{fffd}\n".repeat(4_300_000))),
        ("exploding", false, rules(3000, |i| format!("pcre:\"/(.{{0,1000}}x){{50}}{i}/s\";"))),
        ("large", false, rules(3000, |i| format!("pcre:\"/(.{{0,100}}x){{20}}{i}/s\";"))),
    ];
    for (name, all_run, rules) in cases {
        let (state, _) = state(name, &rules);
        assert_eq!(state["unsupported"] == 0, all_run, "{name}: {state}");
    }
}

#[test]
fn thirty_thousand_rules_of_which_two_in_five_have_expressions_load() {
    if common::module("ids").is_none() {
        return;
    }
    let all = rules(30_000, |i| {
        let pcre = match i % 5 {
            0 => format!("pcre:\"/w{i}=[a-f0-9]{{8,32}}(&|\\s|$)/Ri\";"),
            1 => format!("pcre:\"/^(GET|POST)\\s+\\/d{i}\\/[a-z0-9]{{4,12}}\\.(php|asp)\\?x=/i\";"),
            _ => String::new(),
        };
        format!(
            "msg:\"MADE UP {i} Activity\"; flow:established,to_server; content:\"GET\"; depth:4; \
             content:\"/{i}/made{i}.php?up=\"; nocase; fast_pattern; {pcre} reference:url,example.org/{i}; \
             classtype:trojan-activity; metadata:affected_product Any, created_at 2019_01_02, \
             updated_at 2024_05_06;"
        )
    });
    let (state, _) = state("all", &all);
    assert_eq!((state["rules"].as_u64(), state["given_up"].as_u64()), (Some(30_000), Some(0)), "{state}");
}
