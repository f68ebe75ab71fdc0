//! Tests of the accounting: its sums are what the kernel counted for the node's threads.

use crate::daemon::{self, Node, module, replay, wait_for};
use crate::wasm::busy;
use serde_json::Value;

/// Writes a module that takes about a millisecond for each batch, and returns its path.
fn heavy(node: &Node) -> String {
    let path = node.path("heavy.wasm");
    std::fs::write(&path, busy("heavy", 300_000)).unwrap();
    path.display().to_string()
}

fn accounting(node: &Node) {
    let text = std::fs::read_to_string(node.path("node.toml")).unwrap();
    std::fs::write(node.path("node.toml"), text.replace("[node]\n", "[node]\naccounting = \"100ms\"\n"))
        .unwrap();
}

/// Returns the rows of the accounting, of both tables.
fn rows(node: &Node, more: &[&str]) -> Vec<Value> {
    let out = node.run(&[&["records", "--accounting", "--format", "json", "-q"][..], more].concat());
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn sum(rows: &[Value], column: &str, of: impl Fn(&Value) -> bool) -> u64 {
    rows.iter().filter(|row| of(row)).map(|row| row[column].as_u64().unwrap()).sum()
}

/// Returns the processor time of the threads of a process with one of these names, as the kernel counts it.
fn time_of(pid: u32, names: &[&str]) -> u64 {
    let mut all = 0;
    for entry in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let read = |name: &str| std::fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        if names.is_empty() || names.contains(&read("comm").trim()) {
            all += read("schedstat").split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    all
}

/// Returns the processor time of all that works for sources: threads of the node, and the processes of
/// principals.
fn threads_ns(node: &Node) -> u64 {
    let (_, security) = node.request("GET", "/v1/status/security", None);
    let all = security["processes"].as_array().unwrap().iter();
    let runners = all.filter(|p| p["name"] == "flame-runner").filter_map(|p| p["pid"].as_u64());
    let apart: u64 = runners.map(|pid| time_of(pid as u32, &[])).sum();
    apart + time_of(node.pid(), &["flame-worker", "flame-reports"])
}

#[test]
fn the_sums_are_what_the_kernel_counted() {
    for place in ["inline", "process"] {
        sums(place);
    }
}

/// Compares the sums of a node whose principals' modules run in this place.
fn sums(place: &str) {
    let Some(count) = module("count") else { return };
    let mut node = Node::new(&format!("{}[isolation]\nplace = \"{place}\"\n", replay()));
    accounting(&node);
    node.mint("alice", &[]);
    node.start();
    let as_alice = ["--credential", "alice.cred", "--identity", "alice.key"];
    node.json(&["install", &heavy(&node)]);
    node.json(&[&["install", &count.display().to_string()][..], &as_alice].concat());
    let is_source = |row: &Value| row["table"] == "module" && row["source"] == "trial";
    // The end of an interval lies between two looks at the threads. With time both become nearly the same.
    let mut looked = (0, 0, 0);
    wait_for("a close look", || {
        let before = threads_ns(&node);
        let ends = |all: &[Value]| all.iter().filter_map(|row| row["end_ns"].as_u64()).max();
        let last = ends(&rows(&node, &[]));
        let mut now = rows(&node, &[]);
        while ends(&now) == last {
            now = rows(&node, &[]);
        }
        let after = threads_ns(&node);
        looked = (before, sum(&now, "cpu_ns", is_source), after);
        after > 500_000_000 && (after - before) as f64 <= 0.02 * after as f64
    });
    let (before, accounted, after) = looked;
    println!("{place}: threads {before} to {after} ns, accounted {accounted} ns");
    assert!(
        accounted as f64 >= 0.98 * before as f64 && accounted as f64 <= 1.02 * after as f64,
        "{looked:?}"
    );

    let all = rows(&node, &[]);
    let of = |session: &str, module: &str| {
        sum(&all, "cpu_ns", |r| is_source(r) && r["session"] == session && r["module_name"] == module)
    };
    let (heavy, light, system) = (of("operator", "heavy"), of("alice", "count"), of("system", ""));
    assert!(heavy > light && light > 0 && system > 0, "{heavy} {light} {system}");
    // The sessions are the sums of their modules, and with the rest of the process all there is.
    for session in ["operator", "alice", "system"] {
        for column in
            ["cpu_ns", "packets", "block_ns", "records", "record_bytes", "sent_bytes", "transmitted_bytes"]
        {
            let table = |name: &str| sum(&all, column, |r| r["table"] == name && r["session"] == session);
            assert_eq!(table("module"), table("session"), "{session} {column}");
        }
    }
    let rest =
        sum(&all, "cpu_ns", |r| r["table"] == "module" && r["source"] == "" && r["session"] == "system");
    assert!(rest > 0);
    let shown = node.json(&["show", "heavy"]);
    assert!(shown["usage"]["cpu_ns"].as_u64() >= Some(heavy), "{shown}");
    assert!(shown["usage"]["memory"].as_u64() >= Some(65_536), "{shown}");

    // A principal sees its own session, in numbers that tell little of what the module chose.
    let own = rows(&node, &as_alice);
    assert!(!own.is_empty() && own.iter().all(|row| row["session"] == "alice"));
    let modules = || own.iter().filter(|row| row["table"] == "module");
    let cpu = |row: &Value| row["cpu_ns"].as_u64().unwrap();
    assert!(modules().all(|row| cpu(row) == 0 || cpu(row).is_power_of_two()), "{own:?}");
    let exact = |column: &str| sum(&own, column, |r| r["table"] == "module");
    let offered =
        node.json(&["show", "count", "--principal", "alice"])["account"]["processed"].as_u64().unwrap();
    assert!(exact("packets") <= offered && exact("memory_byte_seconds") > 0);

    // What is sent and kept is accounted for, and a removed module has a last row.
    node.run(&[&["records", "count", "-q", "--format", "json"][..], &as_alice].concat());
    wait_for("bytes sent", || {
        let all = rows(&node, &[]);
        let of = |column: &str| sum(&all, column, |r| r["module_name"] == "count");
        of("sent_bytes") > 0 && of("kept_bytes") > 0 && of("records") > 0 && of("record_bytes") > 0
    });
    node.json(&[&["remove", "count"][..], &as_alice].concat());
    let last = |node: &Node| {
        let all = rows(node, &[]);
        let of = |r: &&Value| r["module_name"] == "count";
        (all.iter().filter(of).count(), all.iter().filter_map(|r| r["end_ns"].as_u64()).max())
    };
    let mut seen = last(&node);
    wait_for("its last row", || {
        let before = std::mem::replace(&mut seen, last(&node));
        before.0 == seen.0 && before.1 < seen.1
    });
    // Rows are readable as Parquet, and from a cursor.
    node.run(&["records", "--accounting", "--format", "parquet", "-o", "bill", "-q"]);
    for table in ["module", "session"] {
        let bytes = std::fs::read(node.path(&format!("bill/accounting.{table}.parquet"))).unwrap();
        assert_eq!(&bytes[..4], b"PAR1");
    }
    let reply = daemon::raw(
        &node.path("node.sock"),
        b"GET /v1/accounting?cursor=nonsense HTTP/1.1\r\nhost: n\r\nconnection: close\r\n\r\n",
    );
    assert!(daemon::text(&reply.unwrap()).starts_with("HTTP/1.1 400"));
    node.end();
}

#[test]
fn an_interval_that_is_too_short_is_an_error_with_its_line() {
    let node = Node::new(&replay());
    let text = std::fs::read_to_string(node.path("node.toml")).unwrap();
    std::fs::write(node.path("node.toml"), text.replace("[node]\n", "[node]\naccounting = \"1ms\"\n"))
        .unwrap();
    let refused = node.refused(&["node", "check", "-c", "node.toml"]);
    assert!(refused.contains("line 2") && refused.contains("expected 100ms or more"), "{refused}");
}
