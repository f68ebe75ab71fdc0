//! What `make install` and `make deb` place, and modules that begin as copies of examples.

use crate::commands::{done, flame, text};
use crate::common::{root, runner};
use crate::daemon::{Node, module, replay};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Everything is in the tree of PREFIX, and the command finds its modules and SDK there.
#[test]
fn an_installed_command_finds_what_belongs_to_it() {
    let Some(count) = module("count") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (built, tree) = (folder.path().join("built"), folder.path().join("tree"));
    fs::create_dir_all(built.join("modules")).unwrap();
    symlink(env!("CARGO_BIN_EXE_flame"), built.join("flame")).unwrap();
    symlink(runner(), built.join("flame-runner")).unwrap();
    fs::copy(count, built.join("modules/count.wasm")).unwrap();
    let set = [("BUILT", &*built), ("DESTDIR", &*tree), ("PREFIX", Path::new("/usr"))];
    let set = set.map(|(name, path)| format!("{name}={}", path.display()));
    let out = Command::new("make").args(["-s", "place"]).args(set).current_dir(root()).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));

    let share = tree.join("usr/share");
    for file in [
        "man/man1/flame.1",
        "man/man1/flame-run.1",
        "bash-completion/completions/flame",
        "zsh/vendor-completions/_flame",
        "fish/vendor_completions.d/flame.fish",
        "flame/modules/count.wasm",
        "flame/sdk/Cargo.toml",
        "flame/sdk/abi/Cargo.toml",
        "flame/sdk/c/flame.h",
        "flame/sdk/rust/examples/hosts/Cargo.toml",
    ] {
        assert!(fs::metadata(share.join(file)).is_ok_and(|file| file.len() > 0), "{file}");
    }
    let unit = fs::read_to_string(tree.join("usr/lib/systemd/system/flame-node.service")).unwrap();
    let programs = unit.lines().filter(|line| line.starts_with("ExecStart"));
    let programs: Vec<_> = programs.filter_map(|line| line.split_once('=')?.1.split(' ').next()).collect();
    assert_eq!(programs, ["/usr/bin/flame"; 2], "{unit}");

    let installed = |arguments: &[&str]| {
        let mut command = Command::new(tree.join("usr/bin/flame"));
        command.args(arguments).current_dir(folder.path());
        for name in ["FLAME_MODULES", "FLAME_SDK", "FLAME_RUNNER"] {
            command.env_remove(name);
        }
        command.env("FLAME_CACHE", folder.path().join("cache")).output().unwrap()
    };
    let capture = root().join("demo/demo.pcap");
    let out = installed(&["run", "count", "-r", capture.to_str().unwrap(), "--isolate", "--format", "json"]);
    assert!(text(&out.stdout).contains("\"packets\":1244"), "{}{}", text(&out.stdout), text(&out.stderr));
    assert!(installed(&["new", "mine"]).status.success());
    let made = |file: &str| fs::read_to_string(folder.path().join("mine").join(file)).unwrap();
    assert!(made(".cargo/config.toml").contains("/tree/usr/share/flame/sdk/rust"), "{}", made("Cargo.toml"));
    assert!(!made("Cargo.toml").contains('/'), "{}", made("Cargo.toml"));
}

/// Each example of the SDK can be copied out, under a name of its own.
#[test]
fn a_module_begins_as_a_copy_of_an_example() {
    let folder = tempfile::tempdir().unwrap();
    done(folder.path(), &["new", "mine", "--from", "hosts"]);
    let read = |file: &str| fs::read_to_string(folder.path().join("mine").join(file)).unwrap();
    let cargo = read("Cargo.toml");
    assert!(cargo.contains("name = \"mine\"") && cargo.contains("\n[workspace]\n"), "{cargo}");
    // What is committed names no place on this machine, and what is left out of it is not needed to build.
    assert!(cargo.contains("flame-module = \"") && !cargo.contains("path ="), "{cargo}");
    assert!(read(".gitignore").contains("/.cargo/config.toml"));
    assert!(read("module.toml").contains("name = \"mine\""));
    let original = fs::read_to_string(root().join("sdk/rust/examples/hosts/src/lib.rs")).unwrap();
    assert_eq!(read("src/lib.rs"), original);
    // Cargo takes it as a package outside any workspace, and finds the SDK.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut metadata = Command::new(cargo);
    metadata.args(["metadata", "--offline", "--no-deps", "--format-version", "1"]);
    let out = metadata.current_dir(folder.path().join("mine")).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    fs::remove_dir_all(folder.path().join("mine/.cargo")).unwrap();
    done(folder.path(), &["build", "mine"]);
    assert!(folder.path().join("mine/mine.wasm").is_file());

    done(folder.path(), &["new", "in-c", "--from", "hosts-c"]);
    assert!(folder.path().join("in-c/hosts-c.c").is_file());
    done(folder.path(), &["build", "in-c"]);
    assert!(folder.path().join("in-c/in-c.wasm").is_file());

    let out = flame(folder.path(), &["new", "other", "--from", "host"]);
    assert!(text(&out.stderr).contains("no such example; here are dscp, "), "{}", text(&out.stderr));
    assert!(!folder.path().join("other").exists());
}

#[test]
fn the_version_states_its_commit_or_that_it_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let said = done(folder.path(), &["--version"]);
    let commit = said.strip_prefix(concat!("flame ", env!("CARGO_PKG_VERSION"), " (")).unwrap_or_default();
    let commit = commit.strip_suffix(')').unwrap_or_default().trim_end_matches("-dirty");
    let is_hash = commit.len() >= 7 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(is_hash || commit == "built to try, of no stated commit", "{said}");
}

/// A slip in the name of a module, a module in place of a command, and a capture in place of a filter.
#[test]
fn slips_name_the_command_that_was_meant() {
    if module("flow").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let capture = root().join("demo/demo.pcap").canonicalize().unwrap().display().to_string();
    for (given, status, meant) in [
        (&["run", "flwo", "-r", &capture][..], 1, "did you mean flow?".to_owned()),
        (&["flow", "-r", &capture], 2, format!("did you mean: flame run flow -r {capture}")),
        (&["run", "flow", &capture], 2, format!("did you mean: flame run flow -r {capture}")),
    ] {
        let out = flame(folder.path(), given);
        assert_eq!(out.status.code(), Some(status), "{given:?}");
        assert!(text(&out.stderr).contains(&meant), "{given:?}: {}", text(&out.stderr));
    }
    for given in [&["nothing", "-r", &capture][..], &["run", "flow", "tcp"]] {
        let out = flame(folder.path(), given);
        assert!(!text(&out.stderr).contains("did you mean:"), "{given:?}: {}", text(&out.stderr));
    }
}

/// The hint on how to read records can be copied: it has the options that named the node.
#[test]
fn a_hint_names_the_node_that_was_asked() {
    let Some(count) = module("count") else { return };
    let mut node = Node::new(&replay());
    node.start();
    let socket = node.socket();
    let out = node.output(&["install", &count.display().to_string(), "--node", &socket]);
    let said = text(&out.stderr);
    let hint = said.split("its records: flame ").nth(1).unwrap_or_else(|| panic!("{said}")).trim();
    assert_eq!(hint, format!("records count --follow --node {socket}"));
    let out = node.output(&["install", &count.display().to_string(), "--name", "other"]);
    assert!(text(&out.stderr).ends_with("flame records other --follow\n"), "{}", text(&out.stderr));
}
