//! A tenant and its evicted module, and the operator's list of credentials.

use crate::daemon::{Node, module, replay, wait_for};

/// Since the policy became stricter, no session covers what the module had. Its tenant sees that it was
/// evicted and why, removes it and installs it again; a session with less than the module would have now does
/// not.
#[test]
fn a_tenant_sees_and_removes_what_a_stricter_policy_evicted() {
    let Some(count) = module("count") else { return };
    let count = count.display().to_string();
    let mut node = Node::new(&replay());
    node.mint("alice", &[]);
    node.start();
    node.json_of("alice", &["install", &count]);
    let credentials = node.json(&["node", "credentials"]);
    let one = &credentials["credentials"][0];
    assert_eq!(
        (one["principal"].as_str(), one["role"].as_str()),
        (Some("alice"), Some("all")),
        "{credentials}"
    );
    assert_eq!((&one["modules"][0], &one["running"][0]), (&"count".into(), &"count".into()), "{credentials}");
    let table = node.run(&["node", "credentials"]);
    assert!(table.lines().nth(1).is_some_and(|line| line.starts_with("alice ")), "{table}");
    let (status, _) = node.request("GET", "/v1/credentials", None);
    assert_eq!(status, 200);
    let refused =
        node.refused(&["node", "credentials", "--credential", "alice.cred", "--identity", "alice.key"]);
    assert!(refused.contains("operator"), "{refused}");

    let policy = std::fs::read_to_string(node.path("policy.toml")).unwrap();
    std::fs::write(node.path("policy.toml"), policy.replace("select = \"\"", "select = \"udp\"")).unwrap();
    node.signal("HUP");
    let state = || node.json_of("alice", &["list"])["state"].clone();
    wait_for("the eviction", || state() == "evicted");
    let shown = node.json_of("alice", &["show", "count"]);
    assert!(shown["reason"].as_str().is_some_and(|reason| reason.contains("grants less")), "{shown}");
    assert_eq!(
        shown["account"]["offered"], 0,
        "its account is of packets that alice may not see now: {shown}"
    );
    assert!(shown["notes"].to_string().contains("flame remove"), "{shown}");
    node.run(&["logs", "count", "--credential", "alice.cred", "--identity", "alice.key"]);
    let records = ["records", "count", "--credential", "alice.cred", "--identity", "alice.key"];
    assert!(node.refused(&records).contains("covers"), "rows stay hidden");
    assert_eq!(node.json(&["node", "credentials"])["credentials"][0]["running"], serde_json::json!([]));

    // Another session of the principal, whose credential has less than the module would have now.
    let root_of_alice = node.run(&["key", "show", "alice.key"]);
    let mint = ["grant", "mint", "--key", "root.key", "--to", "alice", "--role", "all", "--code", "any"];
    let fields = ["--select", "udp and port 5999", "--holder", &root_of_alice, "-o", "few.cred"];
    node.run(&[&mint[..], &fields].concat());
    let few = ["--credential", "few.cred", "--identity", "alice.key"];
    assert_eq!(node.run(&[&["list", "--format", "json"][..], &few].concat()), "");
    let refused = node.refused(&[&["remove", "count"][..], &few].concat());
    assert!(refused.contains("covers"), "{refused}");

    assert!(
        node.refused(&["install", &count, "--credential", "alice.cred", "--identity", "alice.key"])
            .contains("flame remove")
    );
    node.json_of("alice", &["remove", "count"]);
    node.json_of("alice", &["install", &count]);
    wait_for("the module", || state() == "running");
}
