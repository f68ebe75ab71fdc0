//! The house rules that a program can check: edges between crates, where `unsafe` may stand, and that the
//! documents name what exists.

mod common;

use common::root;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Which room a crate lives in, by its folder.
fn room(manifest: &Path) -> &'static str {
    // Where the checkout lies tells nothing.
    let root = root().canonicalize().unwrap();
    let path = format!("/{}", manifest.strip_prefix(root).unwrap_or(manifest).display());
    for room in ["contract", "dataplane", "control", "result", "sdk", "modules"] {
        if path.contains(&format!("/{room}/")) {
            return room;
        }
    }
    "other"
}

#[test]
fn edges_go_down() {
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(root()).no_deps().exec().unwrap();
    let rooms: BTreeMap<_, _> =
        metadata.packages.iter().map(|p| (p.name.to_string(), room(p.manifest_path.as_std_path()))).collect();
    for package in &metadata.packages {
        let here = rooms[package.name.as_str()];
        let normal = |d: &&cargo_metadata::Dependency| d.kind == cargo_metadata::DependencyKind::Normal;
        for dependency in package.dependencies.iter().filter(normal) {
            let name = dependency.name.as_str();
            let there = rooms.get(name).copied().unwrap_or("library");
            let allowed = match here {
                "contract" => matches!(there, "contract" | "library"),
                "dataplane" => matches!(there, "contract" | "dataplane" | "library"),
                "control" => matches!(there, "contract" | "control" | "library"),
                "sdk" => matches!(there, "contract" | "sdk"),
                "result" => matches!(there, "contract" | "result" | "library") || name == "flame-record",
                // What a field becomes has one meaning, inside the sandbox and outside.
                "modules" => matches!(there, "sdk" | "library") || name == "flame-transform",
                _ => true,
            };
            assert!(allowed, "{} ({here}) depends on {name} ({there})", package.name);
            let may_name_it =
                matches!(package.name.as_str(), "flame-run" | "flame-compile" | "flame-calibrate");
            assert!(name != "wasmtime" || may_name_it || here == "other", "{} names Wasmtime", package.name);
        }
    }
}

/// The licences of all that is built in, against the list that `cargo deny` reads too.
#[test]
fn every_licence_is_on_the_list() {
    let deny = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    let deny: toml::Table = toml::from_str(&deny).unwrap();
    let allowed: Vec<_> =
        deny["licenses"]["allow"].as_array().unwrap().iter().filter_map(|l| l.as_str()).collect();
    // Modules of foreign code are built apart, with packages of their own.
    let packages = ["", "tests/foreign"].map(|folder| {
        cargo_metadata::MetadataCommand::new().current_dir(root().join(folder)).exec().unwrap().packages
    });
    for package in packages.iter().flatten() {
        let licence = package.license.as_deref().unwrap_or("none named");
        let fits = spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX)
            .is_ok_and(|e| e.evaluate(|needed| allowed.contains(&needed.to_string().as_str())));
        assert!(fits, "{} {}: {licence}", package.name, package.version);
    }
}

fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            files(&path, into);
        } else if path.is_file() {
            into.push(path);
        }
    }
}

#[test]
fn unsafe_stands_only_where_a_file_allows_it_and_no_file_is_endless() {
    let mut all = Vec::new();
    for folder in ["crates", "sdk", "modules"] {
        files(&root().join(folder), &mut all);
    }
    for path in all.iter().filter(|p| p.extension().is_some_and(|e| e == "rs")) {
        let text = std::fs::read_to_string(path).unwrap();
        let code = |l: &&str| !l.trim_start().starts_with("//") && !l.contains("unsafe_code");
        let uses = text.lines().filter(code).any(|l| l.contains("unsafe {") || l.contains("unsafe impl"));
        assert!(!uses || text.contains("allow(unsafe_code)"), "{}: unsafe without leave", path.display());
        let lines = text.lines().count();
        assert!(lines <= 800, "{}: {lines} lines, split it by subject", path.display());
    }
}

/// Text from outside reaches a terminal through one door, which escapes it.
#[test]
fn the_command_speaks_through_one_door() {
    let mut all = Vec::new();
    files(&root().join("crates/flame/src"), &mut all);
    for path in all.iter().filter(|p| p.extension().is_some_and(|e| e == "rs") && !p.ends_with("say.rs")) {
        let text = std::fs::read_to_string(path).unwrap();
        for door in ["println!(", "print!(", "eprint!("] {
            assert!(!text.contains(door), "{}: {door} goes past say.rs", path.display());
        }
    }
}

#[test]
fn documents_name_what_exists() {
    for page in [
        "ARCHITECTURE.md",
        "README.md",
        "CONTRIBUTING.md",
        "docs/abi.md",
        "docs/manifest.md",
        "docs/modules.md",
        "SECURITY.md",
    ] {
        let text = std::fs::read_to_string(root().join(page)).unwrap();
        let linked = text.split("](").skip(1).filter_map(|s| s.split(')').next());
        for link in linked.filter(|l| !l.starts_with("http")) {
            let path = root().join(page).parent().unwrap().join(link);
            assert!(path.exists(), "{page} links to {link}");
        }
        for word in text.split('`').skip(1).step_by(2) {
            let first = word.split('/').next().unwrap_or("");
            let ours =
                ["crates", "docs", "demo", "bench", "fuzz", "tests", "modules", "sdk"].contains(&first);
            if ours && word.contains('/') && !word.contains([' ', '*']) {
                assert!(root().join(word).exists(), "{page} names {word}");
            }
        }
    }
}
