//! Tests of `flame top`: printed once, and in a real terminal (tmux).

use crate::daemon::{self, Node, module, replay, text, wait_for};
use serde_json::Value;
use std::process::Command;

#[test]
fn one_view_has_all_modules_with_their_rates() {
    let (Some(count), Some(flow)) = (module("count"), module("flow")) else { return };
    let (count, flow) = (count.display().to_string(), flow.display().to_string());
    let mut node = Node::new(&replay());
    node.mint("alice", &[]);
    node.start();
    let as_alice = ["--credential", "alice.cred", "--identity", "alice.key"];
    node.json(&["install", &flow, "--reserve", "cpu=10%,blocks=2"]);
    node.json(&[&["install", &count][..], &as_alice].concat());
    let processed = |name: &str| {
        let all = node.request("GET", "/v1/modules", None).1;
        let of = all["modules"].as_array().unwrap().iter().find(|m| m["name"] == name).cloned().unwrap();
        of["account"]["processed"].as_u64().unwrap()
    };
    wait_for("packets", || processed("flow") > 0 && processed("count") > 0);
    // The capture has quiet moments.
    let mut view = Value::Null;
    wait_for("a busy view", || {
        view = node.json(&["top", "--sort", "name", "--interval", "500ms"]);
        view["modules"].as_array().unwrap().iter().all(|m| m["packets_per_second"].as_f64().unwrap() > 0.0)
    });
    let of = |name: &str| {
        view["modules"].as_array().unwrap().iter().find(|m| m["module"] == name).unwrap().clone()
    };
    let (flow, count) = (of("flow"), of("count"));
    assert_eq!((&flow["session"], &count["session"]), (&"operator".into(), &"alice".into()));
    assert!(flow["packet_ns"].as_f64() > Some(0.0) && flow["of_reserved"].as_f64() > Some(0.0), "{flow}");
    assert_eq!((&flow["reserved_blocks"], &count["of_reserved"]), (&2.into(), &Value::Null));
    assert!(view["sources"][0]["packets_per_second"].as_f64() > Some(0.0), "{view}");
    let shown = node.run(&["top", "--once", "--interval", "100ms"]);
    for part in ["SOURCE", "trial", "SESSION", "alice", "OF RESERVED", "flow", "running"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let own = node.json(&[&["top", "--once"][..], &as_alice].concat());
    assert_eq!(own["modules"].as_array().unwrap().len(), 1, "{own}");
    assert!(node.refused(&["top", "--interval", "1ms"]).contains("expected 100ms or more"));
    node.end();
    assert!(node.refused(&["top", "--once"]).contains("does the node run"));
}

/// A tmux server of its own, which ends with the test.
struct Tmux(tempfile::TempDir);

impl Tmux {
    fn run(&self, arguments: &[&str]) -> String {
        let socket = self.0.path().join("tmux");
        let out = Command::new("tmux").arg("-S").arg(socket).args(arguments).output().unwrap();
        text(&out.stdout)
    }

    fn screen(&self) -> String {
        self.run(&["capture-pane", "-p", "-t", "top"])
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

#[test]
fn a_terminal_shows_the_view_until_a_key_ends_it() {
    if Command::new("tmux").arg("-V").output().is_err() {
        eprintln!("skipped: no tmux");
        return;
    }
    let Some(count) = module("count") else { return };
    let mut node = Node::new(&replay());
    node.start();
    node.json(&["install", &count.display().to_string()]);
    node.json(&["install", &count.display().to_string(), "--name", "another"]);
    let tmux = Tmux(tempfile::tempdir().unwrap());
    let top = format!(
        "{} top --interval 200ms --node {}; echo status $?; sleep 100",
        daemon::flame(),
        node.socket()
    );
    tmux.run(&["new-session", "-d", "-s", "top", "-x", "160", "-y", "30", &top]);
    wait_for("the view", || {
        let screen = tmux.screen();
        let has = |part: &str| screen.contains(part);
        has("flame top") && has("MODULE") && has("another") && has("by cpu") && has("q ends")
    });
    tmux.run(&["send-keys", "-t", "top", "n"]);
    wait_for("another order", || tmux.screen().contains("by name"));
    let screen = tmux.screen();
    let row = |name: &str| screen.lines().position(|l| l.starts_with(&format!("{name} "))).unwrap();
    assert!(row("another") < row("count"), "{screen}");
    // A module that comes is seen, and a small window is no fault.
    node.json(&["install", &count.display().to_string(), "--name", "later"]);
    wait_for("the new module", || tmux.screen().contains("later"));
    tmux.run(&["resize-window", "-t", "top", "-x", "30", "-y", "5"]);
    wait_for("the small window", || tmux.screen().lines().all(|l| l.chars().count() <= 30));
    tmux.run(&["resize-window", "-t", "top", "-x", "160", "-y", "30"]);
    // A node that is restarted is found again.
    node.kill();
    wait_for("the error", || {
        tmux.screen().contains("does the node run") || tmux.screen().contains("did the node")
    });
    node.start();
    wait_for("the node again", || {
        let screen = tmux.screen();
        !screen.contains("does the node run") && !screen.contains("did the node") && screen.contains("later")
    });
    tmux.run(&["send-keys", "-t", "top", "q"]);
    wait_for("the end", || tmux.screen().contains("status 0"));
    assert!(!tmux.screen().contains("MODULE"), "the screen is as it was before");
}
