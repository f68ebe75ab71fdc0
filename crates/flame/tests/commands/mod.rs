//! Runs of whole commands in a folder of the test.

use std::path::Path;
use std::process::{Command, Output};

/// Runs the command in a folder, with a code cache in it.
pub fn flame(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flame"));
    command.args(arguments).current_dir(folder).env("FLAME_CACHE", folder.join("cache"));
    command.output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must succeed, and returns its output.
pub fn done(folder: &Path, arguments: &[&str]) -> String {
    let out = flame(folder, arguments);
    assert!(out.status.success(), "{arguments:?}: {}", text(&out.stderr));
    text(&out.stdout).trim().to_owned()
}

/// Runs a graph in a folder, in simulated time, with records as JSON.
pub fn click(folder: &Path, graph: &str, more: &[&str]) -> Output {
    flame(folder, &[&["click", "--simtime", "--format", "json", "-e", graph][..], more].concat())
}

/// Runs a graph that must succeed, and returns standard output and standard error.
pub fn ran(folder: &Path, graph: &str, more: &[&str]) -> (String, String) {
    let out = click(folder, graph, more);
    assert!(out.status.success(), "{graph}: {}", text(&out.stderr));
    (text(&out.stdout), text(&out.stderr))
}

/// Writes the policy of a node in a folder, whose one role has these fields.
pub fn policy(folder: &Path, fields: &str) {
    let root = done(folder, &["key", "show", "root.key"]);
    let policy = format!(
        "[node]\nname = \"tap1\"\nkey = \"node.key\"\nrevocations = \"revoked\"\naudit = \"audit.log\"\n\
         [roots]\noperator = \"{root}\"\n[roles.all]\nselect = \"\"\ncode = \"any\"\n{fields}\n"
    );
    std::fs::write(folder.join("policy.toml"), policy).unwrap();
}

/// Creates a node in a folder, whose one role has these fields, and Alice's credential for it.
pub fn node(folder: &Path, fields: &str) {
    done(folder, &["key", "new", "root.key"]);
    done(folder, &["key", "new", "node.key"]);
    policy(folder, fields);
    std::fs::write(folder.join("revoked"), "").unwrap();
    let mint = ["grant", "mint", "--key", "root.key", "--to", "alice", "--role", "all", "--code", "any"];
    done(folder, &[&mint[..], &["-o", "alice.cred"]].concat());
}
