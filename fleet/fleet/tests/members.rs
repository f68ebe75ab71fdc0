//! Nodes that are members of a fleet, with real processes: installs, halts, leases and revocations.

use crate::world::{Processes, output, wait_for};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The role under which a node lets the fleet run modules.
const ROLE: &str =
    "[roles.fleet]\nselect = \"\"\nexpose = \"headers\"\ncalls = \"records, messages\"\ncode = \"any\"\n";

struct Fleet {
    processes: Processes,
}

impl Fleet {
    /// Starts a server, the control and members, each with the roles of its policy, or says why it cannot.
    fn start(nodes: &[(&str, &str)]) -> Option<Self> {
        let mut fleet = Self { processes: Processes::find()? };
        fleet.key("root.key");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (server, listen) = (format!("tls://127.0.0.1:{port}"), format!("127.0.0.1:{port}"));
        fleet
            .fleet(&[
                "init",
                "test",
                "--server",
                &server,
                "--listen",
                &listen,
                "--root",
                &fleet.at("root.key"),
            ])
            .unwrap();
        fleet.begin("server");
        fleet.begin("control");
        let archive = format!(
            "[archive]\nfolder = \"archive\"\nserver = {server:?}\nauthority = \"fleet/ca.pem\"\nkey = \
             \"fleet/archive.key\"\n"
        );
        std::fs::write(fleet.path("archive.toml"), archive).unwrap();
        fleet.begin("archive");
        for (name, roles) in nodes {
            fleet.configure(name, roles);
            fleet.begin(&format!("node-{name}"));
            fleet.enrol(name);
            fleet.begin(name);
        }
        wait_for("reports of all nodes", || {
            fleet.fleet(&["members"]).unwrap().matches("reported").count() == nodes.len()
        });
        Some(fleet)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.processes.path(name)
    }

    fn at(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Makes a key. Returns the public one.
    fn key(&self, name: &str) -> String {
        let key = output(Command::new(&self.processes.flame).args(["key", "new", &self.at(name)])).unwrap();
        key.trim().to_owned()
    }

    fn configure(&self, name: &str, roles: &str) {
        std::fs::create_dir(self.path(name)).unwrap();
        self.key(&format!("{name}/node.key"));
        let root =
            output(Command::new(&self.processes.flame).args(["key", "show", &self.at("root.key")])).unwrap();
        let policy = format!(
            "[node]\nname = {name:?}\nkey = \"node.key\"\nrevocations = \"revoked\"\naudit = \
             \"audit.log\"\n[roots]\noperator = {:?}\n{roles}",
            root.trim()
        );
        std::fs::write(self.path(name).join("policy.toml"), policy).unwrap();
        std::fs::write(self.path(name).join("revoked"), "").unwrap();
        let capture =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/demo.pcap").canonicalize().unwrap();
        let node = format!(
            "[node]\nstorage = \"state\"\npolicy = \"policy.toml\"\n[socket]\npath = \"node.sock\"\n\
             [sources.trial]\nfile = {capture:?}\nrepeat = true\ninterval = \"100ms\"\n\
             [fleet]\nname = {name:?}\nspool = \"spool\"\nmember = \"member\"\nprincipal = \"fleet\"\n\
             labels = {{ site = {name:?}, speed = \"10G\" }}\n"
        );
        std::fs::write(self.path(name).join("node.toml"), node).unwrap();
    }

    fn enrol(&self, name: &str) {
        let token = self.fleet(&["enrol", name]).unwrap();
        let config = self.at(&format!("{name}/node.toml"));
        let applied = self.fleet(&["enrol", "--token", token.trim(), "-c", &config]).unwrap();
        let key = applied.split([' ', ':']).find(|word| word.starts_with("ed25519/")).unwrap();
        self.fleet(&["approve", name, key, "--root", &self.at("root.key")]).unwrap();
    }

    fn begin(&mut self, name: &str) {
        self.processes.begin(name, "fleet/server.conf");
        if let Some(node) = name.strip_prefix("node-") {
            // The socket may be one of a node that was killed.
            wait_for("a node", || self.flame(node, &["list"]).is_ok());
        }
    }

    fn kill(&mut self, name: &str) {
        self.processes.kill(name);
    }

    /// Runs a command of the fleet's operator.
    fn fleet(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flame-fleet"));
        command.arg("fleet").args(arguments).env("FLAME_FLEET", self.path("fleet"));
        output(&mut command)
    }

    /// Runs a command of a node's operator.
    fn flame(&self, node: &str, arguments: &[&str]) -> Result<String, String> {
        let socket = format!("unix:{}", self.path(node).join("node.sock").display());
        output(Command::new(&self.processes.flame).args(arguments).args(["--node", &socket]))
    }

    fn module(&self, name: &str) -> String {
        self.processes.module(name)
    }

    /// Returns a module on a node.
    fn show(&self, node: &str, module: &str) -> Option<Value> {
        let lines = self.flame(node, &["list", "--format", "json"]).unwrap();
        let modules = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        modules.into_iter().find(|of| of["name"] == module)
    }

    fn is_running(&self, node: &str, module: &str) -> bool {
        self.show(node, module).is_some_and(|of| of["state"] == "running")
    }

    /// Returns what the nodes reported about a module.
    fn outcomes(&self, module: &str) -> BTreeMap<String, (String, String)> {
        let lines = self.fleet(&["list", "--json"]).unwrap();
        let all = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        all.filter(|of| of["module"] == module)
            .map(|of| (text(&of["node"]), (text(&of["outcome"]), text(&of["reason"]))))
            .collect()
    }
}

/// Each node decides by its own policy; rows of the others reach the archive; a revocation ends all of it,
/// also on a node that was away.
#[test]
fn a_fleet_installs_and_revokes() {
    let Some(mut fleet) = Fleet::start(&[("one", ROLE), ("two", ROLE), ("three", "")]) else { return };
    let said = fleet.fleet(&["install", &fleet.module("count.wasm"), "--where", "speed >= 10G"]).unwrap();
    assert!(said.contains("count: 2 of 3 nodes follow"), "{said}");
    let outcomes = fleet.outcomes("count");
    let (refused, reason) = &outcomes["three"];
    assert_eq!((refused.as_str(), reason.is_empty()), ("refused", false), "{outcomes:?}");
    assert!(fleet.is_running("one", "count") && fleet.is_running("two", "count"));
    assert_eq!(fleet.show("one", "count").unwrap()["principal"], "fleet");
    assert!(fleet.show("three", "count").is_none());
    let said = fleet.fleet(&["update", "count", "--where", "site = \"one\"", "--lease", "5m"]).unwrap();
    assert!(said.contains("count: 1 of 1 nodes follow"), "{said}");
    wait_for("two's module to end", || fleet.show("two", "count").is_none());
    fleet.fleet(&["update", "count", "--where", "speed >= 1G"]).unwrap();
    let archived = || {
        let sql = "SELECT count(DISTINCT node) AS nodes FROM count.interval";
        let mut command = Command::new(env!("CARGO_BIN_EXE_flame-fleet"));
        let command =
            command.args(["query", sql, "--format", "csv"]).env("FLAME_ARCHIVE", fleet.path("archive"));
        output(command).is_ok_and(|csv| csv.lines().last() == Some("2"))
    };
    wait_for("rows of two nodes in the archive", archived);

    // A node that is away: its agent and itself.
    fleet.kill("two");
    fleet.kill("node-two");
    let alice = fleet.key("alice.key");
    let credential = fleet.at("alice.cred");
    let mint = ["grant", "mint", "--to", "alice", "--role", "fleet", "--code", "any", "--holder", &alice];
    let root = fleet.at("root.key");
    output(Command::new(&fleet.processes.flame).args(mint).args(["--key", &root, "-o", &credential]))
        .unwrap();
    let (module, identity) = (fleet.module("count.wasm"), fleet.at("alice.key"));
    let session = ["--credential", &credential, "--identity", &identity];
    // What a function makes is in no account of the engine.
    let repeated = |bytes: u64| {
        let sql = format!("SELECT length(repeat('x', {bytes})) AS n");
        let mut command = Command::new(env!("CARGO_BIN_EXE_flame-fleet"));
        command.args(["query", &sql, "--format", "csv", "--policy", &fleet.at("one/policy.toml")]);
        output(command.args(session).env("FLAME_ARCHIVE", fleet.path("archive")))
    };
    assert!(repeated(1000).is_ok_and(|csv| csv.lines().last() == Some("1000")));
    assert!(repeated(1_500_000_000).is_err());
    let log = std::fs::read_to_string(fleet.path("one/audit.log")).unwrap();
    let queries = |outcome: &str| log.matches(&format!(": {outcome}: SELECT length(repeat(")).count();
    assert_eq!((queries("begins"), queries("1 rows")), (2, 1), "{log}");
    fleet.flame("one", &[&["install", &module, "--name", "hers"], &session[..]].concat()).unwrap();
    assert!(fleet.is_running("one", "hers"));
    let said = fleet.fleet(&["revoke", "--credential", &credential]).unwrap();
    println!("{said}");
    assert_eq!(fleet.show("one", "hers").unwrap()["state"], "evicted", "{said}");
    let said = fleet.fleet(&["revoke", "count"]).unwrap();
    println!("{said}");
    assert!(said.contains("in force on all"), "{said}");
    assert!(fleet.show("one", "count").is_none());
    assert!(fleet.fleet(&["install", &module, "--name", "again"]).unwrap_err().contains("is revoked"));

    // It had the module when it ended, and runs it no more.
    fleet.begin("node-two");
    let stopped = fleet.show("two", "count").unwrap();
    assert_eq!(stopped["state"], "stopped", "{stopped}");
    fleet.begin("two");
    wait_for("the end of the module", || fleet.show("two", "count").is_none());
    let revoked = std::fs::read_to_string(fleet.path("two").join("revoked")).unwrap();
    assert_eq!(revoked.lines().filter(|line| line.starts_with("id ")).count(), 1, "{revoked}");
    let refused = fleet.flame("two", &[&["install", &module, "--name", "hers"], &session[..]].concat());
    assert!(refused.unwrap_err().contains("revoked"));
}

/// A holder follows the round trips of its own module while they come, and until it is revoked. Another
/// holder under the same policy sees nothing of them.
#[test]
fn a_holder_follows_its_own_streams() {
    let Some(fleet) = Fleet::start(&[("one", ROLE), ("two", ROLE)]) else { return };
    for name in ["alice", "bob"] {
        let key = fleet.key(&format!("{name}.key"));
        let mint = ["grant", "mint", "--to", name, "--role", "fleet", "--code", "any", "--holder", &key];
        let (root, credential) = (fleet.at("root.key"), fleet.at(&format!("{name}.cred")));
        let mut command = Command::new(&fleet.processes.flame);
        output(command.args(mint).args(["--key", &root, "-o", &credential])).unwrap();
    }
    let (cred, key) = (fleet.at("alice.cred"), fleet.at("alice.key"));
    for node in ["one", "two"] {
        let module = fleet.module("rtt.wasm");
        fleet.flame(node, &["install", &module, "--credential", &cred, "--identity", &key]).unwrap();
    }
    let (config, policy) = (fleet.at("archive.toml"), fleet.at("one/policy.toml"));
    let follow = |name: &str, is_it: &mut dyn FnMut(&str) -> bool| {
        let (cred, key) = (fleet.at(&format!("{name}.cred")), fleet.at(&format!("{name}.key")));
        let under = ["--policy", &policy, "--credential", &cred, "--identity", &key];
        fleet.processes.until(&[&["fleet", "rtt", "--follow", &config], &under[..]].concat(), is_it);
    };
    follow("alice", &mut |line| line.contains("| one ") && line.contains("| two "));
    let mut results = 0;
    follow("bob", &mut |line| {
        assert!(!line.contains("| one "), "{line}");
        results += u32::from(line.contains("node_1"));
        results == 3
    });
    let under = ["--policy", &policy, "--credential", &cred, "--identity", &key];
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_flame-fleet"));
            let command = command.args(["fleet", "rtt", "--follow", &config]).args(under);
            output(command.env("FLAME_ARCHIVE", fleet.path("archive")))
        });
        let log = || std::fs::read_to_string(fleet.path("one/audit.log")).unwrap();
        wait_for("the entry that it follows", || log().matches(": follows: flame fleet rtt").count() == 3);
        println!("{}", fleet.fleet(&["revoke", "--credential", &cred]).unwrap());
        let error = ended.join().unwrap().unwrap_err();
        assert!(error.contains("revoked"), "{error}");
        assert!(log().contains(": ended: "), "{}", log());
    });
}

/// A rollout halts where it fails, and the other nodes keep what they had.
#[test]
fn a_rollout_that_fails_halts() {
    let Some(fleet) = Fleet::start(&[("one", ROLE), ("two", ROLE)]) else { return };
    let module = fleet.module("count.wasm");
    let said = fleet.fleet(&["install", &module, "--set", "no_such_parameter=1", "--wave", "1"]).unwrap_err();
    assert!(said.contains("halted in wave 1 of 2"), "{said}");
    let outcomes = fleet.outcomes("count");
    let failed = outcomes.values().filter(|(outcome, _)| outcome == "failed").count();
    let silent = outcomes.values().filter(|(outcome, _)| outcome == "silent").count();
    assert_eq!((failed, silent), (1, 1), "{outcomes:?}");
    assert!(outcomes.values().any(|(_, reason)| reason.contains("no_such_parameter")), "{outcomes:?}");
    fleet.fleet(&["remove", "count"]).unwrap();
    fleet.fleet(&["install", &module]).unwrap();
    assert!(fleet.is_running("one", "count") && fleet.is_running("two", "count"));
    let view = fleet.fleet(&["top", "--once", "--format", "json"]).unwrap();
    let rows: Vec<Value> = view.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.iter().map(|row| row["node"].as_str().unwrap()).collect::<Vec<_>>(), ["one", "two"]);
    for row in &rows {
        let count = &row["modules"][0];
        assert_eq!(
            (count["module"].as_str(), count["state"].as_str()),
            (Some("count"), Some("running")),
            "{row}"
        );
        assert!(count["packets"].as_u64() > Some(0) && count["packets_lost"].as_u64() == Some(0), "{row}");
        assert_eq!((&row["in_force"], &row["revocations"]), (&true.into(), &row["of_revocations"]), "{row}");
        assert!(row["seen"].as_u64() < Some(15) && row["fault"].is_null(), "{row}");
    }
    let table = fleet.fleet(&["top", "--once"]).unwrap();
    assert!(table.starts_with("NODE") && table.matches("running").count() == 2, "{table}");
    // A key that rotates changes nothing that runs.
    fleet.fleet(&["rotate", "--root", &fleet.at("root.key"), "--lost"]).unwrap();
    fleet.fleet(&["update", "count", "--lease", "10m"]).unwrap();
    assert!(fleet.is_running("one", "count") && fleet.is_running("two", "count"));
}

/// What the fleet installed is renewed while there is contact, and ends without: by the agent, and by the
/// node if the agent is gone.
#[test]
fn what_a_fleet_installed_ends_with_its_lease() {
    let Some(mut fleet) = Fleet::start(&[("one", ROLE)]) else { return };
    fleet.fleet(&["install", &fleet.module("count.wasm"), "--lease", "6s"]).unwrap();
    let expires = |fleet: &Fleet| fleet.show("one", "count").and_then(|of| of["expires"].as_u64());
    let first = expires(&fleet).unwrap();
    wait_for("a renewal", || expires(&fleet).is_some_and(|later| later > first));
    fleet.kill("control");
    wait_for("the end of the lease", || !fleet.is_running("one", "count"));
    fleet.begin("control");
    wait_for("contact", || fleet.is_running("one", "count"));
    fleet.kill("one");
    wait_for("the end of the lease without the agent", || !fleet.is_running("one", "count"));
    let state = fleet.show("one", "count").unwrap();
    assert_eq!(state["state"], "evicted", "{state}");
}

/// The figures of docs/fleet.md.
#[test]
#[ignore = "a measurement, which takes a machine for a minute"]
fn fifty_nodes_install_and_revoke() {
    let names: Vec<String> = (0..50).map(|n| format!("n{n}")).collect();
    let nodes: Vec<_> = names.iter().map(|name| (name.as_str(), ROLE)).collect();
    let Some(fleet) = Fleet::start(&nodes) else { return };
    println!("{}", fleet.fleet(&["install", &fleet.module("count.wasm")]).unwrap());
    println!("{}", fleet.fleet(&["revoke", "count"]).unwrap());
    println!("{}", fleet.fleet(&["revoke", &"00".repeat(64)]).unwrap());
}
