//! The commands of active packets.

use crate::commands::{done, flame, text};
use crate::common::frame;
use crate::daemon::{Ended, Node, module, replay, wait_for};
use crate::network::Net;
use crate::run::services::{data, wasm};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

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

/// Returns the child of a node that waits for a capsule under a filter of system calls, if there is one.
fn waiting_child(parent: u32) -> Option<u32> {
    let all =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_it = |pid: &u32| {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let status = read("status");
        let has = |line: String| status.lines().any(|of_status| of_status == line);
        let is_filtered = has("Seccomp:\t2".to_owned()) && has(format!("PPid:\t{parent}"));
        is_filtered && read("cmdline").contains(flame_compile::CHILD)
    };
    all.filter_map(|name| name.parse().ok()).find(is_it)
}

/// Two active nodes, n1 and n2, and two hosts beside n2, with the tables of their services.
fn active_nodes(node: &Node, services: [&str; 2]) -> [Ended; 2] {
    for name in ["n1", "n2", "alice", "bob"] {
        let public = node.run(&["key", "new", &format!("{name}.key")]);
        let role = if name.starts_with('n') { "relay" } else { "all" };
        let mint = ["grant", "mint", "--key", "root.key", "--to", name, "--role", role, "--code", "any"];
        node.run(&[&mint[..], &["--holder", &public, "-o", &format!("{name}.cred")]].concat());
    }
    // Each test has addresses of its own.
    static NUMBER: AtomicU8 = AtomicU8::new(0);
    let number = 4 * NUMBER.fetch_add(1, Ordering::Relaxed);
    let [_, _, a, b] = std::process::id().to_be_bytes();
    let at = |n: u8| format!("127.{}.{b}.{}", a.max(1), 210 + number + n);
    let write = |name: &str, listen: String, tables: String| {
        let accounts = ["alice", "bob"].map(|name| {
            format!("[accounts.{name}]\ncalls = [\"send\", \"deliver\", \"leave\", \"service\"]\n")
        });
        let files =
            format!("policy = \"policy.toml\"\ncredential = \"{name}.cred\"\nidentity = \"{name}.key\"\n");
        let text = format!("listen = \"{listen}\"\n{files}{tables}{}", accounts.concat());
        std::fs::write(node.path(&format!("{name}.toml")), text).unwrap();
    };
    let installed = "[installed]\nnode = \"unix:node.sock\"\n";
    let neighbour = |name: &str, n: u8| format!("[neighbours]\n{name} = \"{}:4747\"\n", at(n));
    write("n1", format!("{}:4747", at(1)), neighbour("n2", 2) + installed + services[0]);
    write("n2", format!("{}:4747", at(2)), neighbour("n1", 1) + installed + services[1]);
    for name in ["alice", "bob"] {
        write(name, format!("{}:0", at(3)), neighbour("n2", 2) + "[ways]\nn1 = \"n2\"\n");
    }
    ["n1.toml", "n2.toml"].map(|config| {
        let mut command = Command::new(crate::daemon::flame());
        command.args(["active", "-c", config]).current_dir(node.folder.path());
        Ended(command.stdout(Stdio::null()).spawn().unwrap())
    })
}

/// Returns a node of modules whose policy has the role of active nodes, with changes to the other role.
fn node_of_modules(change: impl Fn(&str) -> String) -> Node {
    let node = Node::new(&replay());
    let policy = change(&std::fs::read_to_string(node.path("policy.toml")).unwrap());
    let relay = "[roles.relay]\nselect = \"\"\nexpose = \"count\"\ncalls = \"records\"\ncode = \"any\"\n";
    std::fs::write(node.path("policy.toml"), policy + relay).unwrap();
    node
}

/// Returns what the example that follows a flow upstream finds for a host, if it finds anything: the links
/// may not be there yet.
fn upstream(node: &Node, name: &str, flow: &str) -> Option<String> {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../active/language/programs");
    let program = programs.join("upstream.capsule").display().to_string();
    let out = node.output(&["capsule", "run", "-c", &format!("{name}.toml"), &program, "upstream", flow]);
    out.status.success().then(|| text(&out.stdout).trim().to_owned())
}

/// Alice installs `flow` at a node, and her capsules find it: they follow a flow to where it comes in.
/// Capsules of others do not, nor hers once it is removed.
#[test]
fn capsules_find_the_modules_of_their_principal() {
    let Some(flow) = module("flow") else { return };
    let mut node = node_of_modules(str::to_owned);
    let service = "modules = [\"flow\"]\ntable = \"flow\"\nkey = \"community_id\"\n\
                   sum = [\"packets_fwd\", \"packets_rev\"]\n";
    let packets = format!("[services.packets]\n{service}");
    let before = format!("{packets}[services.before]\n{service}neighbours = [\"n1\"]\n");
    node.start();
    let nodes = active_nodes(&node, [&packets, &before]);
    let path = flow.display().to_string();
    let often = ["--set", "active_timeout=100ms", "--set", "idle_timeout=100ms"];
    node.json_of("alice", &[&["install", &path][..], &often].concat());
    let as_alice = ["--credential", "alice.cred", "--identity", "alice.key", "--format", "json"];
    let id = wait_for("a flow", || {
        let rows = node.run(&[&["records", "flow"][..], &as_alice].concat());
        let row = rows.lines().map(|row| serde_json::from_str::<serde_json::Value>(row).unwrap());
        row.filter_map(|row| Some(row["community_id"].as_str()?.to_owned())).find(|id| id.starts_with("1:"))
    });
    // A child for the next capsule has given up all but its memory before there is one.
    let [before, _] =
        nodes.each_ref().map(|node| wait_for("a confined child", || waiting_child(node.0.id())));
    let asked = |name: &str| upstream(&node, name, &id);
    let found = wait_for("an answer of n1", || asked("alice").filter(|said| said.starts_with("@n1 ")));
    assert!(found["@n1 ".len()..].parse::<u64>().unwrap() > 0, "{found}");
    assert_eq!(wait_for("an answer to bob", || asked("bob")), "@n2 0");
    // It had one job, and another child waits for the next.
    wait_for("another child", || waiting_child(nodes[0].0.id()).is_some_and(|child| child != before));
    assert!(!Path::new(&format!("/proc/{before}")).exists());
    node.json_of("alice", &["remove", "flow"]);
    wait_for("that alice's module is gone", || asked("alice").is_some_and(|said| said == "@n2 0"));
}

/// A module of alice answers her capsules itself, from its count at that moment, and pays for it. It
/// knows one flow; they follow that to where it comes in. Others get nothing of it.
#[test]
fn a_module_serves_the_capsules_of_its_principal() {
    let calls = "calls = \"records, messages, serve\"\nserve = \"packets\"";
    let mut node = node_of_modules(|policy| policy.replace("calls = \"records, messages, state\"", calls));
    // Its fast instance sends a message for each batch; the slow one replies with their number to a request
    // of eight bytes that is 77.
    let reply = data(0, &frame(0xfff8, &[[0; 8], [0; 8]].concat()));
    let message = data(1024, &frame(0xffff, &[0; 8]));
    let fields = format!(
        r#"{reply} {message} (global $n (mut i64) (i64.const 0))
        (func (export "flame_batch") (param i32) (result i64) (i64.const {:#x}))
        (func (export "flame_message") (param i32 i32) (result i64)
            (global.set $n (i64.add (global.get $n) (i64.const 1))) (i64.const 0))
        (func (export "flame_serve") (param $at i32) (param $length i32) (result i64)
            (i64.store (i32.const 8) (i64.load (local.get $at)))
            (i64.store (i32.const 16) (i64.const 0))
            (if (i32.eq (local.get $length) (i32.const 24)) (then
                (if (i64.eq (i64.load offset=16 (local.get $at)) (i64.const 77)) (then
                    (i64.store (i32.const 16) (global.get $n))))))
            (i64.const 0x1800000000))"#,
        16_u64 << 32 | 1024
    );
    let manifest = "[[services]]\nname = \"packets\"\n".to_owned();
    std::fs::write(node.path("passed.wasm"), wasm(("passed", manifest, fields))).unwrap();
    node.start();
    let service = "modules = [\"passed\"]\nserve = \"packets\"\n";
    let packets = format!("[services.packets]\n{service}");
    let before = format!("{packets}[services.before]\n{service}neighbours = [\"n1\"]\n");
    let _nodes = active_nodes(&node, [&packets, &before]);
    node.json_of("alice", &["install", &node.path("passed.wasm").display().to_string()]);
    let found = wait_for("an answer of n1", || {
        upstream(&node, "alice", "77").filter(|said| said.starts_with("@n1 "))
    });
    let count = |found: &str| found["@n1 ".len()..].parse::<u64>().unwrap();
    let first = count(&found);
    // It is as old as the question, not as a table that is read each second.
    wait_for("a later answer", || upstream(&node, "alice", "77").filter(|said| count(said) > first));
    assert_eq!(upstream(&node, "alice", "78").unwrap(), "@n2 0");
    assert_eq!(upstream(&node, "bob", "77").unwrap(), "@n2 0");
    let account = node.json_of("alice", &["show", "passed"])["account"].clone();
    assert!(account["replies"].as_u64() >= Some(4) && account["replies_lost"] == 0, "{account}");
    // Its operator asks it, too, and learns why there is no reply.
    let ask = |module: &str, service: &str, request: &str| {
        let body = serde_json::json!({ "service": service, "request": request });
        node.request("POST", &format!("/v1/modules/{module}/ask?principal=alice"), Some(&body))
    };
    assert_eq!(ask("passed", "packets", "TQAAAAAAAAA=").0, 200);
    let (code, said) = ask("passed", "other", "");
    assert!(code == 404 && said.to_string().contains("offers no service other"), "{said}");
    assert_eq!(ask("other", "packets", "").0, 404);
    assert_eq!(ask("passed", "packets", &"A".repeat(5464)).0, 413);
    node.json_of("alice", &["remove", "passed"]);
    wait_for("that alice's module is gone", || upstream(&node, "alice", "77").filter(|said| said == "@n2 0"));
}
