//! Tests of the house rules: edges between crates and between files, places of `unsafe`, lengths of lines,
//! and that documents name existing files.

#[path = "house/cycles.rs"]
mod cycles;
#[path = "house/lines.rs"]
mod lines;
#[path = "house/packets.rs"]
mod packets;
#[path = "house/phrases.rs"]
mod phrases;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Returns the workspace's folder.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folders of the workspaces: node and command, and the fleet.
const WORKSPACES: [&str; 2] = ["", "fleet"];

/// Returns the room of a crate, by its folder.
fn room(manifest: &Path) -> &'static str {
    // Where the checkout lies tells nothing.
    let root = root().canonicalize().unwrap();
    let path = format!("/{}", manifest.strip_prefix(root).unwrap_or(manifest).display());
    for room in ["contract", "active", "dataplane", "control", "result", "sdk", "modules"] {
        if path.contains(&format!("/{room}/")) {
            return room;
        }
    }
    "other"
}

/// Returns the dependencies from registries with their features, for one kind of build.
fn features(arguments: &[&str]) -> BTreeSet<String> {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["tree", "--quiet", "--no-dedupe", "--prefix", "none", "--format", "{p} {f}"])
        .args(arguments)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let root = root().canonicalize().unwrap().display().to_string();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| !line.contains(&root)).map(str::to_owned).collect()
}

/// The command's dependencies have the same features as with the tests' own dependencies beside them.
#[test]
fn tests_build_no_dependency_again() {
    // Those of build scripts have features of their own, which the tests do not change.
    let command = features(&["-p", "flame", "-e", "normal"]);
    let all = features(&["--workspace", "-e", "normal,build,dev"]);
    let again: Vec<_> = command.difference(&all).collect();
    assert!(command.len() > 100 && again.is_empty(), "name their features in crates/flame: {again:#?}");
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
            let here_is_daemon = package.name.as_str() == "flame-daemon";
            let here_is_node = here_is_daemon || package.name.as_str() == "flame-node";
            let above_node = here == "other" || here_is_daemon;
            assert!(name != "flame-node" || above_node, "{} depends on the node", package.name);
            assert!(name != "flame-daemon" || here == "other", "{} depends on the daemon", package.name);
            // Requests are served on one side of the API and made on the other; nothing else knows networks.
            let networked = matches!(name, "axum" | "hyper" | "tokio" | "rustls" | "rusqlite");
            assert!(!networked || above_node, "{} depends on {name}", package.name);
            let allowed = match here {
                "contract" => matches!(there, "contract" | "library"),
                // Credentials and the compiler meet the active nodes here.
                "active" if package.name.as_str() == "flame-active-server" => {
                    matches!(there, "contract" | "active" | "control" | "library")
                }
                "active" => matches!(there, "contract" | "active" | "library"),
                "dataplane" => matches!(there, "contract" | "dataplane" | "library"),
                // Both sides meet in the node.
                "control" if here_is_node => there != "other",
                "control" => matches!(there, "contract" | "control" | "library"),
                // Modules get no library with it but their random numbers.
                "sdk" => matches!(there, "contract" | "sdk") || name == "fastrand",
                "result" => matches!(there, "contract" | "result" | "library") || name == "flame-record",
                // The transform of a field has one definition, inside the sandbox and outside, and so has the
                // decoding of a datagram that a module puts together.
                "modules" => {
                    matches!(there, "sdk" | "library") || matches!(name, "flame-transform" | "flame-decode")
                }
                _ => true,
            };
            assert!(allowed, "{} ({here}) depends on {name} ({there})", package.name);
            let may_name_it = matches!(
                package.name.as_str(),
                "flame-engine" | "flame-run" | "flame-compile" | "flame-calibrate" | "flame-active-sandbox"
            );
            assert!(name != "wasmtime" || may_name_it || here == "other", "{} names Wasmtime", package.name);
        }
    }
}

/// The licences of all dependencies are on the list that `cargo deny` reads, too.
#[test]
fn every_licence_is_on_the_list() {
    let deny = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    let deny: toml::Table = toml::from_str(&deny).unwrap();
    let allowed: Vec<_> =
        deny["licenses"]["allow"].as_array().unwrap().iter().filter_map(|l| l.as_str()).collect();
    // Modules of foreign code are built separately, with their own packages.
    let packages = ["", "fleet", "tests/foreign"].map(|folder| {
        cargo_metadata::MetadataCommand::new().current_dir(root().join(folder)).exec().unwrap().packages
    });
    for package in packages.iter().flatten() {
        let licence = package.license.as_deref().unwrap_or("none named");
        let fits = spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX)
            .is_ok_and(|e| e.evaluate(|needed| allowed.contains(&needed.to_string().as_str())));
        assert!(fits, "{} {}: {licence}", package.name, package.version);
    }
}

/// Each direct dependency, also of tests, has a line that states its use.
#[test]
fn every_dependency_has_its_line() {
    let page = std::fs::read_to_string(root().join("docs/dependencies.md")).unwrap();
    let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split('|').next());
    let named: BTreeSet<_> = cells
        .flat_map(|cell| cell.split(|c: char| !c.is_alphanumeric() && !matches!(c, '-' | '_')))
        .collect();
    let packages = WORKSPACES.map(|folder| {
        let folder = root().join(folder);
        cargo_metadata::MetadataCommand::new().current_dir(folder).no_deps().exec().unwrap().packages
    });
    let all = packages.iter().flatten().flat_map(|package| &package.dependencies);
    // Those without a source are of this repository.
    let direct: BTreeSet<_> = all.filter(|d| d.source.is_some()).map(|d| d.name.as_str()).collect();
    let missing: Vec<_> = direct.difference(&named).collect();
    assert!(direct.len() > 50 && missing.is_empty(), "docs/dependencies.md lacks {missing:?}");
}

/// Neither a package of ours nor a dependency needs a newer compiler than Cargo.toml promises.
#[test]
fn the_promised_rust_version_is_enough() {
    let all = WORKSPACES.map(|folder| {
        cargo_metadata::MetadataCommand::new().current_dir(root().join(folder)).exec().unwrap()
    });
    let own: Vec<_> = all.iter().flat_map(|metadata| metadata.workspace_packages()).collect();
    let promised = own.iter().find(|p| p.name.as_str() == "flame").unwrap().rust_version.clone().unwrap();
    for package in &own {
        assert!(package.rust_version.as_ref().is_none_or(|v| *v == promised), "{}", package.name);
    }
    for package in all.iter().flat_map(|metadata| &metadata.packages) {
        let needed = package.rust_version.as_ref();
        assert!(needed.is_none_or(|v| *v <= promised), "{} needs Rust {}", package.name, needed.unwrap());
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
    for folder in ["crates", "sdk", "modules", "fleet"] {
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

/// Text from outside reaches a terminal only through `console.rs`, which escapes it.
#[test]
fn the_command_speaks_through_one_door() {
    let mut all = Vec::new();
    files(&root().join("crates/flame/src"), &mut all);
    for path in all.iter().filter(|p| p.extension().is_some_and(|e| e == "rs") && !p.ends_with("console.rs"))
    {
        let text = std::fs::read_to_string(path).unwrap();
        for door in ["println!(", "print!(", "eprint!("] {
            assert!(!text.contains(door), "{}: {door} goes past console.rs", path.display());
        }
    }
}

#[test]
fn documents_name_what_exists() {
    let mut pages: Vec<String> =
        ["ARCHITECTURE.md", "README.md", "CONTRIBUTING.md", "SECURITY.md", "RELEASING.md", "fuzz/README.md"]
            .map(str::to_owned)
            .into();
    for entry in std::fs::read_dir(root().join("docs")).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".md") {
            pages.push(format!("docs/{name}"));
        }
    }
    for page in &pages {
        let text = std::fs::read_to_string(root().join(page)).unwrap();
        let linked = text.split("](").skip(1).filter_map(|s| s.split(')').next());
        for link in linked.filter(|l| !l.starts_with("http")) {
            let link = link.split('#').next().unwrap_or("");
            let path = root().join(page).parent().unwrap().join(link);
            assert!(path.exists(), "{page} links to {link}");
        }
        for word in text.split('`').skip(1).step_by(2) {
            let first = word.split('/').next().unwrap_or("");
            let ours = ["crates", "docs", "demo", "bench", "fuzz", "tests", "modules", "sdk", "fleet"]
                .contains(&first);
            if ours && word.contains('/') && !word.contains([' ', '*']) {
                assert!(root().join(word).exists(), "{page} names {word}");
            }
        }
    }
}

/// A test that a document names as the proof of a statement is there, under this name.
#[test]
fn documents_name_tests_that_exist() {
    let (mut all, mut functions) = (Vec::new(), BTreeSet::new());
    for folder in ["crates", "modules", "sdk", "fleet", "bench", "fuzz", "docs"] {
        files(&root().join(folder), &mut all);
    }
    let of_kind = |kind| all.iter().filter(move |path| path.extension().is_some_and(|e| e == kind));
    for path in of_kind("rs") {
        let text = std::fs::read_to_string(path).unwrap();
        let names = text.split("fn ").skip(1).map(|rest| rest.split(['(', '<']).next().unwrap_or(""));
        functions.extend(names.map(str::to_owned));
    }
    let mut named = 0;
    for page in of_kind("md") {
        let text = std::fs::read_to_string(page).unwrap();
        for word in text.split('`').skip(1).step_by(2) {
            // Names of metrics and settings of the kernel are shorter, or begin with the program's.
            let is_name = word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
            if is_name && word.matches('_').count() >= 4 && !word.starts_with("flame_") {
                assert!(functions.contains(word), "{} names the test {word}", page.display());
                named += 1;
            }
        }
    }
    assert!(named > 100, "{named} names were found");
}

/// The glossary has each term once, in the order of the alphabet within a section, and an entry for each term
/// that another entry refers to.
#[test]
fn the_glossary_is_in_order() {
    let text = std::fs::read_to_string(root().join("docs/glossary.md")).unwrap();
    let (mut terms, mut named) = (BTreeSet::new(), BTreeSet::new());
    for section in text.split("\n## ").skip(1) {
        let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
        let rows: Vec<_> = rows.filter(|(term, _)| !matches!(*term, "term" | "---")).collect();
        assert!(rows.is_sorted_by_key(|(term, _)| *term), "not in order: {section}");
        for (term, meaning) in rows {
            assert!(terms.insert(term.to_owned()), "{term} has two entries");
            named.extend(meaning.split('*').skip(1).step_by(2).map(str::to_lowercase));
        }
    }
    let is_there = |name: &str| terms.contains(name) || terms.contains(name.trim_end_matches('s'));
    let missing: Vec<_> = named.iter().filter(|name| !is_there(name)).collect();
    assert!(terms.len() > 80 && missing.is_empty(), "docs/glossary.md lacks {missing:?}");
}

/// A process that runs modules contains no compiler and no file format.
#[test]
fn the_runtime_has_no_compiler() {
    let tree = |package: &str| {
        let out = std::process::Command::new(env!("CARGO"))
            .args(["tree", "--offline", "-p", package, "-e", "normal", "--prefix", "none"])
            .current_dir(root())
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let (runtime, all) = (tree("flame-runner"), tree("flame"));
    for heavy in ["cranelift-codegen ", "wasmtime-internal-cranelift ", "arrow-array ", "parquet "] {
        assert!(all.contains(heavy), "the test knows nothing of {heavy}");
        assert!(!runtime.contains(heavy), "flame-runner depends on {heavy}");
    }
}

/// A test describes the variables that it reads and the command does not.
#[test]
fn tests_describe_their_variables() {
    let of_command = std::fs::read_to_string(root().join("crates/flame/src/environment.rs")).unwrap();
    let mut all = Vec::new();
    for folder in ["crates", "sdk", "modules", "bench", "fleet"] {
        files(&root().join(folder), &mut all);
    }
    let is_test = |path: &&PathBuf| path.components().any(|part| part.as_os_str() == "tests");
    for path in all.iter().filter(is_test).filter(|p| p.extension().is_some_and(|e| e == "rs")) {
        let text = std::fs::read_to_string(path).unwrap();
        let names = text.split("(\"FLAME_").skip(1).filter_map(|rest| rest.split('"').next());
        for name in names.filter(|name| name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')) {
            let is_described = text
                .lines()
                .any(|line| line.trim_start().starts_with("//") && line.contains(&format!("FLAME_{name}")));
            let is_known = is_described || of_command.contains(&format!("\"FLAME_{name}\""));
            assert!(is_known, "{} reads FLAME_{name} and does not describe it", path.display());
        }
    }
}

/// systemd removes the folder of a service that stops, and a socket in it that others still listen on.
#[test]
fn the_units_socket_outlives_the_service() {
    let read = |name: &str| std::fs::read_to_string(root().join("packaging").join(name)).unwrap();
    let (service, socket) = (read("flame-node.service"), read("flame-node.socket"));
    let value = |unit: &str, key: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.map(str::to_owned)
    };
    let listens = value(&socket, "ListenStream").unwrap();
    let folder = format!("/run/{}/", value(&service, "RuntimeDirectory").unwrap());
    let is_kept = value(&service, "RuntimeDirectoryPreserve").as_deref() == Some("yes");
    assert!(is_kept || !listens.starts_with(&folder), "{listens} is removed with {folder}");
}

/// The table of fuzz/README.md has a row for each target, and a target for each row.
#[test]
fn the_list_of_fuzz_targets_is_whole() {
    let readme = std::fs::read_to_string(root().join("fuzz/README.md")).unwrap();
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let listed: BTreeSet<String> = rows.map(|(name, _)| name.to_owned()).collect();
    let targets = std::fs::read_dir(root().join("fuzz/fuzz_targets")).unwrap().flatten();
    let sources = targets.map(|entry| entry.path()).filter(|p| p.extension().is_some_and(|e| e == "rs"));
    let there: BTreeSet<String> =
        sources.map(|p| p.file_stem().unwrap().to_string_lossy().into_owned()).collect();
    let manifest = std::fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
    let manifest: toml::Table = toml::from_str(&manifest).unwrap();
    let built = manifest["bin"].as_array().unwrap().iter().filter_map(|bin| bin["name"].as_str());
    let built: BTreeSet<String> = built.map(str::to_owned).collect();
    assert_eq!(listed, there, "fuzz/README.md lists other targets than there are");
    assert_eq!(built, there, "fuzz/Cargo.toml builds other targets than there are");
    let replay = std::fs::read_to_string(root().join("fuzz/replay/tests/replay.rs")).unwrap();
    let (_, run) = replay.split_once("\ntests! {\n").unwrap();
    let run = run.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(' '));
    let run: BTreeSet<String> = run.map(|(name, _)| name.to_owned()).collect();
    assert_eq!(run, there, "fuzz/replay/tests/replay.rs runs other targets than there are");
}

/// If a crate names the programs of its tests, one of them lists each file. A file that is not listed would
/// not run, and a file in two lists would run twice.
#[test]
fn programs_of_tests_list_their_files() {
    let mut all = Vec::new();
    ["crates", "fleet"].iter().for_each(|folder| files(&root().join(folder), &mut all));
    let mains: Vec<_> = all.iter().filter(|path| path.ends_with("tests/main.rs")).collect();
    assert!(mains.len() >= 8, "{mains:?}");
    for main in mains {
        let folder = main.parent().unwrap();
        let manifest = std::fs::read_to_string(folder.join("../Cargo.toml")).unwrap();
        let manifest: toml::Table = toml::from_str(&manifest).unwrap();
        let programs = manifest["test"].as_array().unwrap().iter().filter_map(|test| test["path"].as_str());
        let programs: BTreeSet<PathBuf> = programs.map(|path| folder.join("..").join(path)).collect();
        let texts: Vec<_> = programs.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
            let Some(name) = name.strip_suffix(".rs") else { continue };
            if programs.iter().any(|program| program.file_name() == path.file_name()) {
                continue;
            }
            let line = format!("mod {name};");
            let lists = texts.iter().filter(|text| text.lines().any(|l| l == line)).count();
            assert_eq!(lists, 1, "{}: so many programs list it", path.display());
        }
    }
}
