//! Tests of principals' modules in processes of their own: where they run, what happens when such a process
//! ends, and that changes work across the wall with exact accounts.

use crate::daemon::{self, Node, dense, module, replay, root, wait_for};
use crate::wasm::{MANIFEST, busy_with_each, with_manifest};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Starts a node with credentials of Alice and Bob. `more` is added to its configuration.
fn started(more: &str) -> Node {
    let mut node = Node::new(&format!("{}{more}", replay()));
    node.mint("alice", &[]);
    node.mint("bob", &[]);
    node.start();
    node
}

/// Returns a module of a principal as the operator sees it.
fn show(node: &Node, name: &str, principal: &str) -> Value {
    node.json(&["show", name, "--principal", principal])
}

/// Returns the number of the process in which a module of a principal runs.
fn process(node: &Node, name: &str, principal: &str) -> Option<u64> {
    show(node, name, principal)["process"].as_u64()
}

fn processed(node: &Node, name: &str, principal: &str) -> u64 {
    show(node, name, principal)["account"]["processed"].as_u64().unwrap()
}

fn log(node: &Node, name: &str, principal: &str) -> String {
    node.run(&["logs", name, "--principal", principal])
}

fn kill(pid: u64) {
    let status = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(status.unwrap().success());
}

#[test]
fn each_principal_has_a_process_and_the_operator_none() {
    let (Some(count), Some(flow)) = (module("count"), module("flow")) else { return };
    let (count, flow) = (count.display().to_string(), flow.display().to_string());
    let mut node = started("[isolation]\ninline = [\"carol\"]\n");
    node.mint("carol", &[]);
    node.json(&["install", &count]);
    for (name, file) in [("alice", &count), ("alice", &flow), ("bob", &count), ("carol", &count)] {
        node.json_of(name, &["install", file]);
    }
    assert_eq!(node.json(&["show", "count"])["place"], "inline");
    assert_eq!(show(&node, "count", "carol")["place"], "inline");
    let alice = process(&node, "count", "alice").expect("a process");
    assert_eq!(process(&node, "flow", "alice"), Some(alice));
    let bob = process(&node, "count", "bob").expect("a process");
    assert!(bob != alice && alice != u64::from(node.pid()));
    // Its owner sees where it runs, but no number of the node.
    let own = node.json_of("alice", &["show", "flow"]);
    assert_eq!((&own["place"], &own["process"]), (&json!("process"), &Value::Null));
    let listed = node.run(&["list"]);
    assert!(listed.contains("PLACE") && listed.contains("process") && listed.contains("inline"), "{listed}");
    // What they may do is read from the kernel.
    let security = node.json(&["node", "status", "--security"]);
    let all = security["processes"].as_array().unwrap();
    let runner = |pid: u64| all.iter().find(|p| p["pid"] == pid).unwrap_or_else(|| panic!("{security}"));
    for (pid, principal, modules) in [(alice, "alice", 2), (bob, "bob", 1)] {
        let process = runner(pid);
        let expected = json!({
            "principal": principal, "source": "trial", "modules": modules,
            "guaranteed_ppm": 0, "ended": 0
        });
        assert_eq!(process["runs"], expected, "{process}");
        for thread in process["threads"].as_array().unwrap() {
            assert_eq!(thread["seccomp"], "filter", "{process}");
            assert_eq!(thread["no_new_privileges"], true, "{process}");
            assert_eq!((&thread["effective"], &thread["permitted"]), (&json!([]), &json!([])), "{process}");
        }
    }
    let shown = node.run(&["node", "status", "--security"]);
    assert!(shown.contains("2 of alice on trial") && shown.contains("flame-runner"), "{shown}");
    // The accounts of all come to be, and a process ends with its last module.
    for name in ["alice", "bob", "carol"] {
        wait_for("packets", || processed(&node, "count", name) > 0);
    }
    node.json_of("bob", &["remove", "count"]);
    wait_for("the end of its process", || !std::path::Path::new(&format!("/proc/{bob}")).exists());
    assert_eq!(process(&node, "count", "alice"), Some(alice));
    node.end();
    assert!(!std::path::Path::new(&format!("/proc/{alice}")).exists());
}

#[test]
fn a_node_without_the_program_for_processes_says_so() {
    let node = Node::new(&replay());
    let check = |configured: &str| {
        node.configure(&format!("{}{configured}", replay()));
        let mut command = std::process::Command::new(daemon::flame());
        command.args(["node", "check", "-c"]).arg(node.path("node.toml"));
        let out = command.env("FLAME_RUNNER", "/nowhere/flame-runner").output().unwrap();
        (out.status.success(), daemon::text(&out.stderr))
    };
    let (valid, said) = check("");
    assert!(!valid && said.contains("/nowhere/flame-runner: No such file"), "{said}");
    assert!(said.contains("place = \"inline\""), "the remedy: {said}");
    assert!(check("[isolation]\nplace = \"inline\"\n").0);
    let (valid, said) = check("[isolation]\nplace = \"outside\"\n");
    assert!(!valid && said.contains("expected \"process\" or \"inline\""), "{said}");
}

#[test]
fn a_killed_process_disturbs_nobody_and_comes_back() {
    let (Some(count), Some(flow)) = (module("count"), module("flow")) else { return };
    let (count, flow) = (count.display().to_string(), flow.display().to_string());
    let mut node = started("[isolation]\nrestarts = 2\n");
    node.json_of("alice", &["install", &count]);
    node.json_of("alice", &["install", &flow]);
    node.json_of("bob", &["install", &count]);
    for (name, of) in [("count", "alice"), ("flow", "alice"), ("count", "bob")] {
        wait_for("packets", || processed(&node, name, of) > 0);
    }
    let of_bob = process(&node, "count", "bob");
    for n in 1..=2 {
        let before = process(&node, "count", "alice").expect("a process");
        kill(before);
        wait_for("another process", || {
            let now = process(&node, "count", "alice");
            now.is_some_and(|now| now != before) && process(&node, "flow", "alice") == now
        });
        for name in ["count", "flow"] {
            let earlier = processed(&node, name, "alice");
            wait_for("more packets", || processed(&node, name, "alice") > earlier);
            let module = show(&node, name, "alice");
            assert_eq!((&module["state"], &module["account"]["faults"]), (&json!("running"), &json!(n)));
            let log = log(&node, name, "alice");
            assert!(log.contains("its process ended: signal: 9"), "{log}");
            assert!(log.matches("another process was started").count() == n, "{log}");
        }
    }
    let security = node.json(&["node", "status", "--security"]);
    let all = security["processes"].as_array().unwrap();
    assert!(all.iter().any(|p| p["runs"]["ended"] == 2), "{security}");
    let metrics = daemon::raw(
        &node.path("node.sock"),
        b"GET /metrics HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n",
    );
    let metrics = daemon::text(&metrics.unwrap());
    for line in ["flame_process_ends_total{source=\"trial\"} 2", "flame_processes{source=\"trial\"} 2"] {
        assert!(metrics.contains(line), "{metrics}");
    }
    // The third end is one too many.
    kill(process(&node, "count", "alice").expect("a process"));
    for name in ["count", "flow"] {
        wait_for("the failure", || show(&node, name, "alice")["state"] == "failed");
        let module = show(&node, name, "alice");
        let reason = module["reason"].as_str().unwrap();
        assert!(reason.starts_with("its process ended 3 times in ten minutes"), "{reason}");
        assert_eq!(module["account"]["adds_up"], true, "{module}");
    }
    // Its owner can run it again.
    node.json_of("alice", &["update", "count"]);
    let earlier = processed(&node, "count", "alice");
    wait_for("more packets", || processed(&node, "count", "alice") > earlier);
    // No other module noticed.
    assert_eq!(process(&node, "count", "bob"), of_bob);
    let bob = node.json_of("bob", &["remove", "count"]);
    assert_eq!((&bob["account"]["faults"], &bob["account"]["shed"].get("stopped")), (&json!(0), &None));
    assert_eq!(bob["account"]["adds_up"], true, "{bob}");
    let alice = node.json_of("alice", &["remove", "count"]);
    assert_eq!(alice["account"]["adds_up"], true, "{alice}");
    assert!(alice["account"]["shed"]["stopped"].as_u64() > Some(0), "{alice}");
    node.end();
}

/// The end of one principal's module, whose process answers nothing, delays the end of no other principal's
/// module.
#[test]
fn a_process_that_hangs_delays_no_eviction() {
    let Some(count) = module("count") else { return };
    let count = count.display().to_string();
    let mut node = started("");
    for name in ["alice", "bob"] {
        node.json_of(name, &["install", &count]);
        wait_for("packets", || processed(&node, "count", name) > 0);
    }
    let hung = process(&node, "count", "alice").expect("a process").to_string();
    let signal = |name: &str| std::process::Command::new("kill").args([name, &hung]).status().unwrap();
    assert!(signal("-STOP").success());
    let policy = std::fs::read_to_string(node.path("policy.toml")).unwrap();
    std::fs::write(node.path("policy.toml"), policy.replace("[roles.all]", "[roles.other]")).unwrap();
    let seen = || {
        let (_, all) = node.request("GET", "/v1/modules", None);
        let of =
            |name: &str| all["modules"].as_array().unwrap().iter().find(|m| m["principal"] == name).cloned();
        ["alice", "bob"].map(|name| of(name).expect("a module"))
    };
    let ends = |module: &Value| module["state"] == "evicted";
    wait_for("an eviction", || seen().iter().any(ends));
    let [alice, bob] = seen();
    assert!(ends(&alice) && ends(&bob), "{alice} {bob}");
    let last = bob["account"]["processed"].as_u64();
    wait_for("the last account", || seen()[1]["account"]["adds_up"] == true);
    signal("-CONT");
    wait_for("both ends", || seen().iter().all(|m| m["account"]["adds_up"] == true));
    // At most the block that it was in.
    let after = seen()[1]["account"]["processed"].as_u64();
    assert!(after >= last && after <= last.map(|n| n + 4096), "{last:?} {after:?}");
    node.end();
}

/// Clients that look while an instance is replaced see its last account, once.
#[test]
fn counters_never_fall_while_an_instance_is_replaced() {
    let Some(count) = module("count") else { return };
    let mut node = started("[isolation]\nrestarts = 9\n");
    node.json_of("alice", &["install", &count.display().to_string()]);
    wait_for("packets", || processed(&node, "count", "alice") > 0);
    let is_over = AtomicBool::new(false);
    let (seen, last) = std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut seen = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let account = &show(&node, "count", "alice")["account"];
                seen.push(["offered", "processed", "records"].map(|n| account[n].as_u64().unwrap()));
            }
            seen
        });
        for change in 0..12 {
            match change % 3 {
                0 => kill(process(&node, "count", "alice").expect("a process")),
                _ => drop(node.json_of("alice", &["update", "count"])),
            }
            let earlier = processed(&node, "count", "alice");
            wait_for("more packets", || processed(&node, "count", "alice") > earlier);
        }
        let last = node.json_of("alice", &["stop", "count"]);
        is_over.store(true, Ordering::Relaxed);
        (looking.join().unwrap(), last)
    });
    for (n, pair) in seen.windows(2).enumerate() {
        assert!(pair[0].iter().zip(&pair[1]).all(|(a, b)| a <= b), "{n}: {pair:?}");
    }
    // None of them had an instance twice.
    let offered = last["account"]["offered"].as_u64().unwrap();
    assert!(seen.len() > 12 && seen.iter().all(|counts| counts[0] <= offered), "{offered}: {seen:?}");
    assert_eq!(last["account"]["adds_up"], true, "{last}");
    node.end();
}

/// The instance in another process is the one of the grant.
#[test]
fn a_module_that_was_started_again_is_evicted() {
    let Some(count) = module("count") else { return };
    let mut node = started("");
    node.json_of("alice", &["install", &count.display().to_string()]);
    for _ in 0..2 {
        wait_for("packets", || processed(&node, "count", "alice") > 0);
        let before = process(&node, "count", "alice").expect("a process");
        kill(before);
        wait_for("another process", || process(&node, "count", "alice").is_some_and(|now| now != before));
    }
    let earlier = processed(&node, "count", "alice");
    wait_for("more packets", || processed(&node, "count", "alice") > earlier);
    let credential = std::fs::read_to_string(node.path("alice.cred")).unwrap();
    let revoked = node.request("POST", "/v1/revocations", Some(&json!({ "credential": credential })));
    assert_eq!(revoked.0, 204);
    let last = processed(&node, "count", "alice");
    wait_for("the end", || show(&node, "count", "alice")["state"] == "evicted");
    assert_eq!(processed(&node, "count", "alice"), last);
    let log = node.run(&["audit", "show", "--policy", "policy.toml"]);
    assert_eq!((log.matches(" evict ").count(), log.matches(" end ").count()), (1, 1), "{log}");
    node.end();
}

/// A process that starts slowly delays no other one.
#[test]
fn others_do_not_wait_for_a_process_that_hangs() {
    let Some(count) = module("count") else { return };
    let count = count.display().to_string();
    let script = "mv hang hangs 2> /dev/null && exec sleep 1000\nreal \"$@\"";
    let mut node = Node::new(&replay()).with_runner(script);
    for name in ["alice", "bob"] {
        node.mint(name, &[]);
    }
    node.start();
    for name in ["alice", "bob"] {
        node.json_of(name, &["install", &count]);
    }
    let before = process(&node, "count", "alice").expect("a process");
    std::fs::write(node.path("hang"), "").unwrap();
    kill(process(&node, "count", "bob").expect("a process"));
    wait_for("a process that hangs", || node.path("hangs").exists());
    kill(before);
    wait_for("another process", || process(&node, "count", "alice").is_some_and(|now| now != before));
    let said = log(&node, "count", "bob");
    assert!(!said.contains("no other process could be started"), "the other one has waited: {said}");
    wait_for("bob's", || process(&node, "count", "bob").is_some());
    node.end();
}

/// A module whose batches take half a second and more has slices of its process's time, between which the
/// others have theirs.
#[test]
fn a_long_batch_holds_up_no_other_module_of_the_process() {
    let Some(count) = module("count") else { return };
    let mut node = Node::new("");
    dense(&node.path("dense.pcap"));
    node.configure("[sources.tap]\nfile = \"dense.pcap\"\nrepeat = true\n");
    node.mint("alice", &[]);
    node.start();
    let heavy = node.path("heavy.wasm");
    std::fs::write(&heavy, busy_with_each("heavy", 5_000_000)).unwrap();
    node.json_of("alice", &["install", &count.display().to_string()]);
    node.json_of("alice", &["install", heavy.to_str().unwrap()]);
    assert_eq!(process(&node, "heavy", "alice"), process(&node, "count", "alice"));
    wait_for("several batches", || processed(&node, "heavy", "alice") > 2_000);
    for name in ["count", "heavy"] {
        assert_eq!(show(&node, name, "alice")["account"]["faults"], 0, "{}", log(&node, name, "alice"));
    }
    let account = &show(&node, "count", "alice")["account"];
    let shed: u64 = account["shed"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert!(shed * 20 < account["offered"].as_u64().unwrap(), "{account}");
    node.end();
}

/// Changes work alike in the node's own process and across the wall: every packet is accounted for.
#[test]
fn hot_changes_have_exact_accounts_in_both_places() {
    let (Some(count), Some(flow)) = (module("count"), module("flow")) else { return };
    let (count, flow) = (count.display().to_string(), flow.display().to_string());
    for place in ["inline", "process"] {
        let mut node = started(&format!("[isolation]\nplace = \"{place}\"\n"));
        let alice = |arguments: &[&str]| node.json_of("alice", arguments);
        // A second module, so that views and the process are shared.
        alice(&["install", &count, "--name", "other"]);
        for round in 0..5 {
            let installed = alice(&["install", &count, "--reserve", "cpu=2%,memory=64MiB"]);
            assert_eq!(installed["place"], place);
            wait_for("packets", || processed(&node, "count", "alice") > 0);
            alice(&["update", "count", "--narrow", "expose=count"]);
            alice(&["update", "count", &flow, "--narrow", "expose=headers"]);
            let earlier = processed(&node, "count", "alice");
            wait_for("more packets", || processed(&node, "count", "alice") > earlier);
            node.mint("alice", &[]);
            alice(&["renew", "count", "--reserve", "cpu=1%,memory=64MiB"]);
            let earlier = processed(&node, "count", "alice");
            wait_for("packets after it was renewed", || processed(&node, "count", "alice") > earlier);
            if round == 2 {
                assert_eq!(alice(&["stop", "count"])["account"]["adds_up"], true);
            }
            let removed = alice(&["remove", "count"]);
            assert_eq!(removed["account"]["adds_up"], true, "{place}: {removed}");
            assert_eq!(removed["account"]["faults"], 0, "{place}: {removed}");
            assert!(removed["account"]["processed"].as_u64() > Some(0), "{place}: {removed}");
        }
        // A revocation ends what it concerns within a second, or so.
        let credential = std::fs::read_to_string(node.path("alice.cred")).unwrap();
        alice(&["install", &count]);
        node.json_of("bob", &["install", &count]);
        wait_for("packets", || processed(&node, "count", "alice") > 0);
        let (code, reply) =
            node.request("POST", "/v1/revocations", Some(&json!({ "credential": credential })));
        assert!(code < 300, "{reply}");
        wait_for("the eviction", || show(&node, "count", "alice")["state"] == "evicted");
        let evicted = show(&node, "count", "alice");
        assert_eq!(evicted["account"]["adds_up"], true, "{place}: {evicted}");
        let earlier = processed(&node, "count", "bob");
        wait_for("packets of others", || processed(&node, "count", "bob") > earlier);
        node.end();
    }
}

/// The number of hostile modules in one process.
const AT_ONCE: usize = 6;

/// Returns hostile modules that can be installed: their file names and contents.
fn hostile() -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(root().join("tests/hostile")).unwrap() {
        let path = entry.unwrap().path();
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        if path.extension().is_some_and(|e| e == "wat") && text.contains(";; stage: run") {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            all.push((name, with_manifest(wat::parse_str(&text).unwrap(), MANIFEST.as_bytes())));
        }
    }
    all.sort();
    all
}

/// Returns the rows of the table of intervals of `count`, by the end of the interval.
fn intervals(node: &Node, more: &[&str]) -> BTreeMap<String, Value> {
    let out = node.run(&[&["records", "count", "--format", "json", "-q"][..], more].concat());
    let rows = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let rows = rows.filter(|row| row["table"] == "interval");
    rows.map(|mut row| {
        row.as_object_mut().unwrap().remove("module");
        (row["end_ns"].to_string(), row)
    })
    .collect()
}

#[test]
fn a_hostile_module_in_one_process_leaves_the_rows_of_others_equal() {
    let Some(count) = module("count") else { return };
    let count = count.display().to_string();
    let mut node = started("[limits]\nmodules = 60\nmodules_per_principal = 50\n");
    node.json(&["install", &count]);
    node.json_of("bob", &["install", &count]);
    wait_for("packets", || processed(&node, "count", "bob") > 0);
    let of_bob = process(&node, "count", "bob");
    let all = hostile();
    assert!(all.len() > 20, "{}", all.len());
    for modules in all.chunks(AT_ONCE) {
        let mut installed = Vec::new();
        for (name, wasm) in modules {
            let path = node.path(&format!("{name}.wasm"));
            std::fs::write(&path, wasm).unwrap();
            let name: String = name.chars().take(32).collect();
            let install = ["install", path.to_str().unwrap(), "--name", name.trim_end_matches('-')];
            node.json_of("alice", &install);
            installed.push(name.trim_end_matches('-').to_owned());
        }
        let earlier = processed(&node, "count", "bob");
        wait_for("packets beside them", || processed(&node, "count", "bob") > earlier + 200);
        for name in installed {
            let removed = node.json_of("alice", &["remove", &name]);
            assert_eq!(removed["account"]["adds_up"], true, "{name}: {removed}");
        }
    }
    assert_eq!(process(&node, "count", "bob"), of_bob);
    let account = show(&node, "count", "bob")["account"].clone();
    assert_eq!(account["faults"], 0, "{account}");
    // The operator's rows are those of a module in the node's own process. The first and the last interval
    // of each begin and end when they are asked for; those with losses of a busy machine say so.
    let as_bob = ["--credential", "bob.cred", "--identity", "bob.key"];
    let (inline, mut apart) = (intervals(&node, &[]), intervals(&node, &as_bob));
    let (first, _) = apart.pop_first().expect("rows of bob");
    let of_inline = node.json(&["show", "count"])["account"].clone();
    let has_lost = [&account, &of_inline].map(|of| !of["shed"].as_object().unwrap().is_empty());
    let common: Vec<_> = apart.keys().filter(|end| **end > first && inline.contains_key(*end)).collect();
    assert!(common.len() > 20, "{} of {}", common.len(), inline.len());
    // A process that is late for two ticks at once sees the last of them: the packets of both intervals are
    // in one row then.
    let before = |rows: &BTreeMap<String, Value>, end: &String| {
        rows.range(..end.clone()).next_back().map(|(end, _)| end.clone())
    };
    let whole: Vec<_> = common.iter().filter(|end| before(&inline, end) == before(&apart, end)).collect();
    let unequal: Vec<_> = whole.iter().filter(|end| inline[***end] != apart[***end]).collect();
    assert!(!whole.is_empty(), "{common:?}");
    assert!(unequal.is_empty() || has_lost.contains(&true), "{unequal:?}, {account}, {of_inline}");
    let removed = node.json_of("bob", &["remove", "count"]);
    assert_eq!(removed["account"]["adds_up"], true, "{removed}");
    node.end();
}

/// While the node starts a process again, changes of its modules are refused for that reason, and one whose
/// credential is revoked then is not shown as running.
#[test]
fn a_module_whose_process_is_started_again_is_changed_by_the_node() {
    let Some(count) = module("count") else { return };
    let mut node =
        Node::new(&replay()).with_runner("if [ -e slow ]; then : >starts; sleep 8; fi\nreal \"$@\"");
    node.mint("alice", &[]);
    node.start();
    node.json_of("alice", &["install", &count.display().to_string()]);
    std::fs::write(node.path("slow"), "").unwrap();
    kill(process(&node, "count", "alice").expect("a process"));
    wait_for("a process that starts", || node.path("starts").exists());
    let (code, refused) = node.request("DELETE", "/v1/modules/count?principal=alice", None);
    assert_eq!(code, 409, "{refused}");
    assert!(refused["cause"].as_str().unwrap().contains("is being changed by the node"), "{refused}");
    let credential = std::fs::read_to_string(node.path("alice.cred")).unwrap();
    let revoked = node.request("POST", "/v1/revocations", Some(&json!({ "credential": credential })));
    assert_eq!(revoked.0, 204, "{}", revoked.1);
    let shown = show(&node, "count", "alice");
    assert_eq!((&shown["state"], &shown["revision"]), (&json!("evicted"), &json!(1)), "{shown}");
    wait_for("its end", || show(&node, "count", "alice")["revision"] == 2);
    assert!(show(&node, "count", "alice")["reason"].as_str().unwrap().contains("is revoked"));
    node.end();
}
