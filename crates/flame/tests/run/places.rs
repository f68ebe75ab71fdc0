//! A right for an interface is for that interface, whatever it is called, and options that act on the machine
//! are permitted by name.

use crate::commands::{done, flame, text};
use crate::common;
use crate::daemon::{self, Node};
use crate::network::{Net, ipv4};
use serde_json::Value;
use std::path::Path;

/// Creates a node of one role for all packets, with these lines of `[node]`, these fields and this check, and
/// Alice's credential for it.
fn node(of_node: &str, fields: &str, check: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = done(folder.path(), &["key", "new", "root.key"]);
    done(folder.path(), &["key", "new", "node.key"]);
    let checks = if check.is_empty() { String::new() } else { format!("[checks]\ndatalog = '{check}'\n") };
    let policy = format!(
        "[node]\nname = \"tap1\"\nkey = \"node.key\"\n{of_node}\n[roots]\noperator = \"{root}\"\n[roles.all]\n\
         select = \"\"\nexpose = \"headers\"\ncalls = \"records, messages\"\ncode = \"any\"\n{fields}\n{checks}"
    );
    std::fs::write(folder.path().join("policy.toml"), policy).unwrap();
    let mint = ["grant", "mint", "--key", "root.key", "--to", "alice", "--role", "all", "--code", "any"];
    done(folder.path(), &[&mint[..], &["-o", "alice.cred"]].concat());
    folder
}

/// Returns the options by which a command runs under the policy of a folder.
fn under(folder: &Path) -> [String; 4] {
    let path = |name: &str| folder.join(name).display().to_string();
    ["--policy".into(), path("policy.toml"), "--credential".into(), path("alice.cred")]
}

/// Returns a namespace whose interface `rx0` has another name, `visitor0`. Where the kernel cannot have it,
/// reports it and returns `None`.
fn net() -> Option<Net> {
    common::module("count")?;
    let net = Net::new()?;
    let mut named = net.command("ip");
    named.args(["link", "property", "add", "dev", "rx0", "altname", "visitor0"]);
    match named.stderr(std::process::Stdio::null()).status().is_ok_and(|status| status.success()) {
        true => Some(net),
        false => {
            eprintln!("skipped: interfaces have no alternative names here");
            None
        }
    }
}

fn frames() -> Vec<Vec<u8>> {
    vec![ipv4(&[], 17, (1, 1024), (2, 53), 122); 30]
}

/// Returns the number of packets that a run on an interface shows under a policy.
fn shown(net: &Net, folder: &Path, interface: &str) -> u64 {
    let under = under(folder);
    let options: Vec<&str> = under.iter().map(String::as_str).collect();
    let capture = net.capture_on(interface, &[&["count", "--format", "json"][..], &options].concat(), 1);
    net.send(&frames(), 1);
    let out = capture.interrupt();
    assert_eq!(out.status.code(), Some(0), "{interface}: {}", text(&out.stderr));
    let rows = text(&out.stdout);
    let row: Value =
        serde_json::from_str(rows.lines().last().unwrap_or_else(|| panic!("{interface}"))).unwrap();
    row["packets"].as_u64().unwrap()
}

/// Returns the error of a run on an interface under a policy.
fn refused(net: &Net, folder: &Path, interface: &str, more: &[&str]) -> String {
    // A command that is not refused would run on.
    let mut command = net.command("timeout");
    command.args(["30", &crate::network::flame(), "run", "count", "-i", interface]);
    command.args(under(folder)).args(more);
    let out = command.output().unwrap();
    assert_eq!(out.status.code(), Some(1), "{interface}: {}{}", text(&out.stdout), text(&out.stderr));
    text(&out.stderr)
}

#[test]
fn an_interface_is_excluded_by_all_its_names() {
    let Some(net) = net() else { return };
    for check in ["check if interface($i), $i != \"rx0\"", "reject if interface(\"rx0\")"] {
        let excludes = node("", "", check);
        // The other end has all packets, so the check is what keeps them back.
        assert_eq!(shown(&net, excludes.path(), "tx0"), 30, "{check}");
        for name in ["rx0", "visitor0", "rx0:1", "any"] {
            let error = refused(&net, excludes.path(), name, &[]);
            assert!(error.contains("a check fails: policy: "), "{check}, {name}: {error}");
        }
    }
    let includes = node("", "interface = \"rx0\"", "");
    for name in ["rx0", "visitor0", "rx0:1"] {
        assert_eq!(shown(&net, includes.path(), name), 30, "{name}");
    }
    for name in ["tx0", "any"] {
        let error = refused(&net, includes.path(), name, &[]);
        assert!(error.contains("not for this interface"), "{name}: {error}");
    }
    // Rights name the kernel's name alone.
    let by_other_name = node("", "interface = \"visitor0\"", "");
    for name in ["rx0", "visitor0"] {
        let error = refused(&net, by_other_name.path(), name, &[]);
        assert!(error.contains("here it is \"rx0\""), "{name}: {error}");
    }
    // An explanation is of the same place.
    for name in ["rx0", "visitor0"] {
        let mut explain = net.command(&crate::network::flame());
        let out =
            explain.args(["explain", "count", "-i", name]).args(under(includes.path())).output().unwrap();
        assert!(out.status.success(), "{name}: {}", text(&out.stderr));
    }
    let all = node("", "interface = \"any\"", "check if interface(\"any\")");
    assert!(shown(&net, all.path(), "any") >= 30);
    assert!(refused(&net, all.path(), "rx0", &[]).contains("not for this interface"));
}

#[test]
fn a_source_of_a_node_has_the_kernels_name() {
    let Some(net) = net() else { return };
    let mut node =
        Node::new("[sources.tap]\ninterface = \"visitor0\"\ninterval = \"100ms\"\n").within(&net.namespace);
    let policy = std::fs::read_to_string(node.path("policy.toml")).unwrap();
    node.mint("alice", &[]);
    node.mint("bob", &[]);
    let count = daemon::module("count").unwrap().display().to_string();
    let with = |check: &str| {
        std::fs::write(node.path("policy.toml"), format!("{policy}[checks]\ndatalog = '{check}'\n")).unwrap();
    };
    // The probe: a check that holds lets the module in.
    with("check if interface($i), $i != \"visitor0\"");
    node.start();
    assert_eq!(node.json(&["node", "status"])["sources"][0]["from"], "rx0");
    node.json_of("alice", &["install", &count]);
    node.end();
    std::fs::write(
        node.path("policy.toml"),
        format!("{policy}[checks]\ndatalog = 'check if interface($i), $i != \"rx0\"'\n"),
    )
    .unwrap();
    node.start();
    let error = node.refused(&["install", &count, "--credential", "bob.cred", "--identity", "bob.key"]);
    assert!(error.contains("a check fails"), "{error}");
    // Its check is the operator's.
    assert!(!error.contains("!= \"rx0\""), "{error}");
    let log = node.run(&["audit", "show", "--policy", "policy.toml"]);
    assert!(log.contains("policy: check if interface($i), $i != \"rx0\""), "{log}");
    node.end();
}

#[test]
fn options_that_act_on_the_machine_need_the_policys_leave() {
    let Some(net) = net() else { return };
    let strict = node("", "", "");
    for way in ["xdp", "xdp-generic", "auto"] {
        let error = refused(&net, strict.path(), "rx0", &["--capture", way]);
        let said = format!(
            "--capture {way} takes packets away from this machine's own stack, and the policy does not let it: \
             options = [\"xdp\"] in [node] does"
        );
        assert!(error.contains(&said), "{error}");
    }
    let error = refused(&net, strict.path(), "rx0", &["--send", "tx0"]);
    assert!(error.contains("--send tx0 sends frames") && error.contains("options = [\"send\"]"), "{error}");
    // A second clock would give a second sample, whatever the policy lets.
    let lets = node("options = [\"promiscuous\", \"xdp\", \"send\", \"click\"]", "", "");
    for folder in [&strict, &lets] {
        let error = refused(&net, folder.path(), "rx0", &["--hardware-timestamps"]);
        assert!(error.contains("--hardware-timestamps changes the times by which"), "{error}");
    }
    // The interface is not promiscuous meanwhile, unless the policy lets it be.
    let promiscuous = |folder: &Path| {
        let under = under(folder);
        let options: Vec<&str> = under.iter().map(String::as_str).collect();
        let capture = net.capture(&[&["count", "--format", "json"][..], &options].concat(), 1);
        let state = net.said("ip -d link show rx0 | grep -o 'promiscuity [0-9]*'");
        (state, text(&capture.interrupt().stderr).contains("the interface is not promiscuous: options = "))
    };
    assert_eq!(promiscuous(strict.path()), ("promiscuity 0".to_owned(), true));
    let lets = node("options = [\"promiscuous\", \"xdp\"]", "", "");
    assert_eq!(promiscuous(lets.path()), ("promiscuity 1".to_owned(), false));
    // With leave it goes as far as the kernel lets it.
    let under = under(lets.path());
    let options: Vec<&str> = under.iter().map(String::as_str).collect();
    let mut arguments = vec!["count", "--capture", "xdp-generic"];
    arguments.extend(options);
    let capture = net.capture_when("rx0", &arguments, |said| said.contains("is captured by AF_XDP"));
    assert_eq!(capture.interrupt().status.code(), Some(0));
    // For the operator, nothing changes.
    let capture = net.capture(&["count"], 1);
    assert_eq!(net.said("ip -d link show rx0 | grep -o 'promiscuity [0-9]*'"), "promiscuity 1");
    assert_eq!(capture.interrupt().status.code(), Some(0));
}

/// Captures have a name of their own in fields and checks.
#[test]
fn captures_are_a_place_of_their_own() {
    if common::module("count").is_none() {
        return;
    }
    let demo = common::root().join("demo/demo.pcap").canonicalize().unwrap().display().to_string();
    let run = |folder: &Path| {
        flame(
            folder,
            &["run", "count", "-r", &demo, "-q", "--policy", "policy.toml", "--credential", "alice.cred"],
        )
    };
    for (check, is_granted) in [
        ("check if interface(\"file\")", true),
        ("check if interface($i), $i != \"va\"", true),
        ("reject if interface(\"file\")", false),
        ("check if interface(\"any\")", false),
    ] {
        let node = node("", "", check);
        let out = run(node.path());
        assert_eq!(out.status.success(), is_granted, "{check}: {}", text(&out.stderr));
        assert_eq!(text(&out.stdout).is_empty(), !is_granted, "{check}");
    }
    // A check that an earlier program accepted is refused by its name.
    let node = node("", "", "");
    let policy = std::fs::read_to_string(node.path().join("policy.toml")).unwrap();
    let old = format!("{policy}[checks]\ndatalog = 'check if module(\"count\")'\n");
    std::fs::write(node.path().join("policy.toml"), old).unwrap();
    let out = run(node.path());
    let error = text(&out.stderr);
    assert!(error.contains("module(\"count\"): a module's name is its own claim"), "{error}");
}
