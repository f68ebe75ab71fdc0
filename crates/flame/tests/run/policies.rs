//! Tests of mistakes in policies and at minting, which are found before they cost anyone a day.

use crate::commands::{done, flame, text};
use crate::common;
use std::path::Path;

const ROLE: &str = "[roles.researcher]\nselect = \"\"\nexpose = \"headers\"\ncalls = \"records, messages\"\ncode = \"any\"\n";

/// Creates a node with two roots and these roles.
fn node(roles: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let key = |name: &str| done(folder.path(), &["key", "new", name]);
    let (root, second) = (key("root.key"), key("second.key"));
    key("node.key");
    key("other.key");
    let policy = format!(
        "[node]\nname = \"tap1\"\nkey = \"node.key\"\nrevocations = \"revoked\"\naudit = \"audit.log\"\n\
         [roots]\noperator = \"{root}\"\nguest = \"{second}\"\n{roles}"
    );
    std::fs::write(folder.path().join("policy.toml"), policy).unwrap();
    std::fs::write(folder.path().join("revoked"), "").unwrap();
    folder
}

fn mint(folder: &Path, key: &str, role: &str, more: &[&str]) -> (Option<i32>, String) {
    let all =
        ["grant", "mint", "--key", key, "--to", "alice", "--role", role, "--code", "any", "-o", "alice.cred"];
    let out = flame(folder, &[&all[..], more].concat());
    (out.status.code(), text(&out.stderr))
}

#[test]
fn mistakes_at_minting_are_refused_with_the_remedy() {
    let node = node(&format!(
        "{ROLE}roots = [\"operator\"]\n[roles.old]\nselect = \"\"\nexpose = \"none\"\ncalls = \"\"\ncode = \"any\"\nexpires = \"2001-01-01T00:00:00Z\"\n"
    ));
    let policy = ["--policy", "policy.toml"];
    for (key, role, more, said) in [
        ("root.key", "reseacher", &[][..], "policy.toml has no such role; it has old, researcher"),
        ("other.key", "researcher", &[], "is no root of policy.toml; its roots are guest, operator"),
        (
            "second.key",
            "researcher",
            &[],
            "the root guest may not give the role researcher; these may: operator",
        ),
        ("root.key", "old", &[], "the policy ends it at 2001-01-01T00:00:00Z"),
        ("root.key", "researcher", &["--expires", "2001-01-01T00:00:00Z"], "that is past"),
        ("root.key", "researcher", &["--expires", "2999-01-01"], "expected 2999-01-01T00:00:00Z"),
        (
            "root.key",
            "researcher",
            &["--not-before", "2999-01-02T00:00:00Z", "--expires", "2999-01-01T00:00:00Z"],
            "never give anything",
        ),
    ] {
        let (status, error) = mint(node.path(), key, role, &[&policy[..], more].concat());
        assert!(status.is_some_and(|s| s != 0), "{role} {more:?}: {error}");
        assert!(error.contains(said), "{role} {more:?}: {error}");
        assert!(!node.path().join("alice.cred").exists(), "{role} {more:?}");
    }
    let (status, error) =
        mint(node.path(), "root.key", "researcher", &[&policy[..], &["--expires", "+30d"]].concat());
    assert_eq!((status, error.as_str()), (Some(0), ""));
    // Without a policy, only what the credential itself says is checked, and that is stated.
    std::fs::remove_file(node.path().join("alice.cred")).unwrap();
    let (status, error) = mint(node.path(), "root.key", "reseacher", &[]);
    assert!(status == Some(0) && error.contains("is not checked: --policy FILE does"), "{error}");
    let (status, error) = mint(node.path(), "root.key", "researcher", &["--expires", "2001-01-01T00:00:00Z"]);
    assert!(status == Some(1) && error.contains("that is past"), "{error}");
}

#[test]
fn a_policy_is_checked_without_a_run() {
    let node = node(ROLE);
    let check = |more: &[&str]| flame(node.path(), &[&["policy", "check", "policy.toml"][..], more].concat());
    let out = check(&["--strict"]);
    assert_eq!(out.status.code(), Some(0), "{}{}", text(&out.stdout), text(&out.stderr));
    let said = text(&out.stdout);
    for part in ["policy of tap1", "guest, operator", "researcher: ", "expose \"headers\"", "best-effort: "] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    let good = std::fs::read_to_string(node.path().join("policy.toml")).unwrap();
    let with = |text: &str| std::fs::write(node.path().join("policy.toml"), text).unwrap();
    for (from, to, said) in [
        ("expose = \"headers\"", "expose = \"heads\"", "line "),
        ("select = \"\"", "select = \"porrt 80\"", "porrt"),
        ("expose = \"headers\"\n", "", "state expose"),
        ("key = \"node.key\"", "key = \"nowhere.key\"", "nowhere.key"),
        ("revocations = \"revoked\"", "revocations = \"nowhere\"", "nowhere"),
        ("[roles.researcher]", "[roles.researcher]\nroots = [\"nobody\"]", "nobody"),
    ] {
        assert!(good.contains(from), "{from}");
        with(&good.replace(from, to));
        let out = check(&[]);
        assert_eq!(out.status.code(), Some(1), "{to}: {}", text(&out.stdout));
        assert!(text(&out.stderr).contains(said), "{to}: {}", text(&out.stderr));
    }
    for (from, to, said) in [
        ("revocations = \"revoked\"\n", "", "warning: no list of revocations"),
        ("audit = \"audit.log\"\n", "", "warning: no audit log"),
        ("code = \"any\"\n", "code = \"any\"\nexpires = \"2001-01-01T00:00:00Z\"\n", "it ended at 2001"),
        ("code = \"any\"\n", "code = \"any\"\nroots = [\"operator\"]\n", "root guest: it may give no role"),
        ("expose = \"headers\"", "expose = \"all\"", "any code sees every byte"),
        ("code = \"any\"\n", "code = \"any\"\ntransform = \"ip=prefix\"\n", "hides ip but shows mac"),
        ("code = \"any\"\n", "code = \"any\"\ntransform = \"mac.src=zero\"\n", "hides one side of a field"),
    ] {
        with(&good.replace(from, to));
        assert_eq!(check(&["--strict"]).status.code(), Some(1), "{to}");
        let out = check(&[]);
        assert_eq!(out.status.code(), Some(0), "{to}: {}", text(&out.stderr));
        assert!(text(&out.stdout).contains(said), "{to}: {}", text(&out.stdout));
    }
}

/// A policy states what no transform hides, without a warning: a role may be meant so.
#[test]
fn a_policy_states_what_stays_visible() {
    let node = node(&ROLE.replace("expose = \"headers\"", "expose = \"payload:64\""));
    let policy = std::fs::read_to_string(node.path().join("policy.toml")).unwrap();
    let fields = "code = \"any\"\ntransform = \"ip=prefix, mac=zero\"\nresolution = \"1s\"\n";
    std::fs::write(node.path().join("policy.toml"), policy.replace("code = \"any\"\n", fields)).unwrap();
    let out = flame(node.path(), &["policy", "check", "policy.toml", "--strict"]);
    let said = text(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{said}");
    for part in ["addresses in payload stay visible", "clocks in payload stay visible", "numbers that grow"] {
        assert_eq!(said.matches(part).count(), 1, "{part}\n{said}");
    }
}

#[test]
fn a_run_without_a_credential_that_gives_nothing_says_so() {
    if common::module("flow").is_none() {
        return;
    }
    let node = node(ROLE);
    let demo = common::root().join("demo/demo.pcap").canonicalize().unwrap();
    let run = ["run", "flow", "-r", demo.to_str().unwrap(), "--policy", "policy.toml", "--format", "json"];
    let out = flame(node.path(), &run);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("nothing was given: without a credential"), "{}", text(&out.stderr));
    let (status, error) = mint(node.path(), "root.key", "researcher", &["--policy", "policy.toml"]);
    assert_eq!(status, Some(0), "{error}");
    let out = flame(node.path(), &[&run[..], &["--credential", "alice.cred"]].concat());
    assert!(out.status.success() && !out.stdout.is_empty(), "{}", text(&out.stderr));
    assert!(!text(&out.stderr).contains("nothing was given"), "{}", text(&out.stderr));
}

#[test]
fn packets_that_sampling_leaves_out_are_counted_in_the_log_alone() {
    if common::module("count").is_none() {
        return;
    }
    let node = node(&format!("{ROLE}sample = 10\n"));
    let (status, error) = mint(node.path(), "root.key", "researcher", &["--policy", "policy.toml"]);
    assert_eq!(status, Some(0), "{error}");
    let demo = common::root().join("demo/demo.pcap").canonicalize().unwrap();
    let run = |module: &str, more: &[&str]| -> serde_json::Value {
        let all = ["run", module, "-r", demo.to_str().unwrap(), "--format", "json", "--stats", "json"];
        let out = flame(node.path(), &[&all[..], more].concat());
        assert!(out.status.success(), "{}", text(&out.stderr));
        let said = text(&out.stderr);
        serde_json::from_str(said.lines().find(|line| line.starts_with('{')).unwrap()).unwrap()
    };
    let all = run("count", &[])["packets"].as_u64().unwrap();
    for workers in ["1", "2"] {
        let under = ["--policy", "policy.toml", "--credential", "alice.cred", "--workers", workers];
        let shown = run("count", &under);
        let account = &shown["modules"]["count"];
        let n = |name: &str| account[name].as_u64().unwrap();
        assert_eq!((n("sampled"), &account["adds_up"]), (0, &true.into()), "{account}");
        assert_eq!(
            (n("processed") + n("filtered"), shown["packets"].as_u64()),
            (n("offered"), Some(n("offered")))
        );
        assert!(n("offered") > all / 20 && n("offered") < all / 5, "{account}");
        let log = done(node.path(), &["audit", "show", "--policy", "policy.toml"]);
        assert!(log.contains(&format!(" {} sampled out, ", all - n("offered"))), "{log}");
    }
}
