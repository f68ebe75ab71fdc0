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
