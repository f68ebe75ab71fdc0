//! The home router of the documentation, run for real: `demo/home.sh` makes namespaces for a house, a router
//! and an internet. It needs root, curl, python3 and the modules, and reports when it is skipped.
//! `FLAME` names the command under test.

use crate::common::{self, root};
use std::process::Command;

/// Returns the fields of lines `ELEMENT TAKEN MADE GIVEN HELD DROPPED CAUSES`.
fn accounts(said: &str) -> Vec<(String, [u64; 5])> {
    let lines = said.lines().skip_while(|l| !l.starts_with("element ")).skip(1);
    let line = |l: &str| {
        let words: Vec<&str> = l.split_whitespace().collect();
        let numbers: Vec<u64> = words.get(1..6)?.iter().map(|w| w.parse().ok()).collect::<Option<_>>()?;
        Some((words[0].to_owned(), numbers.try_into().ok()?))
    };
    lines.map_while(line).collect()
}

#[test]
fn a_page_is_fetched_through_untrusted_modules() {
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let probe = format!("flame-p{}", std::process::id());
    let netns = |what: &str| Command::new("ip").args(["netns", what, &probe]).output();
    if !has("curl") || !has("python3") || common::module("ids").is_none() || common::module("ecn").is_none() {
        return eprintln!("skipped: curl, python3 or the modules are missing (set FLAME_MODULES)");
    }
    if !netns("add").is_ok_and(|out| out.status.success()) {
        return eprintln!("skipped: no network namespace can be made here (needs root and iproute2)");
    }
    netns("del").unwrap();
    let flame = std::env::var("FLAME").unwrap_or_else(|_| env!("CARGO_BIN_EXE_flame").to_owned());
    let out = Command::new("bash").arg(root().join("demo/home.sh")).arg(flame).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let whole = format!("{said}\n{}", String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{whole}");
    println!("{said}");

    // The server sees the router, and the detector the host behind it.
    assert!(said.contains("the page is the same\n"), "{whole}");
    assert!(said.contains("203.0.113.2 asked: GET /page"), "{whole}");
    assert!(said.contains("ids: A page is fetched: 192.168.7.2 to 203.0.113.1, port 80\n"), "{whole}");
    assert!(said.contains("3 pings, 3 received\n"), "{whole}");
    assert!(said.contains("port 9: unreachable\n"), "{whole}");
    let speed =
        said.lines().find_map(|l| l.strip_suffix(" bytes a second")?.split(", ").nth(1)?.parse().ok());
    let speed: f64 = speed.unwrap();
    // 2500kBps, and what a shaper may save up for 10 ms.
    assert!(speed > 0.0 && speed < 2_600_000.0, "{speed}: {whole}");

    assert!(
        said.contains("wan/from.kernel_drops: 0") && said.contains(" 0 whose account does not"),
        "{whole}"
    );
    let all = accounts(&said);
    let of = |name: &str| all.iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("{name}: {whole}")).1;
    for (name, [taken, made, given, held, dropped]) in &all {
        assert_eq!(taken + made, given + held + dropped, "{name}: {whole}");
    }
    // Both modules saw packets, and each packet of a download passed the second one.
    let marked = said.lines().find(|l| l.starts_with("ecn: ")).unwrap();
    let numbers: Vec<u64> = marked.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    assert!(numbers[0] > 1000 && numbers[1] > 0, "{marked}");
    let [seen_in, seen_out, mark, watch] = ["seen_in", "seen_out", "mark", "watch"].map(of);
    assert_eq!(numbers[0], mark[0], "{whole}");
    assert_eq!((seen_in[0], seen_in[0] + seen_out[0]), (mark[0], watch[0]), "{whole}");
    // What the flows took from outside went into the house, together with pings and errors.
    assert_eq!(of("in")[0], mark[2], "{whole}");
    let errors = of("errors");
    assert!(errors[0] >= 1 && errors[0] == errors[2], "{whole}");
}
