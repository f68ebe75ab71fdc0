//! The files of one crate use each other in one direction.
//!
//! An edge is a path in the code of a file (`crate::a::B`, `super::a::B`, imported or written out) that
//! leads, through the imports that it passes, to another file of the crate. A file and its submodules are one
//! unit: paths between `a` and `a::b` are no edges, in either direction. Tests are left out, and so are calls
//! of methods, which name no path.

use super::{files, root};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Edges that close a cycle and are allowed: the crate, the two files, and the reason.
const ALLOWED: [(&str, &str, &str, &str); 5] = [
    ("crates/control/verify", "observe", "walk", "an observer reads the walk that it observes"),
    ("crates/dataplane/element", "registry", "elements", "the list of classes names all elements"),
    (
        "crates/dataplane/element",
        "registry",
        "runtime::build",
        "a class makes an element of a router being built",
    ),
    ("crates/dataplane/element", "runtime::element", "runtime::router", "an element acts on its router"),
    ("crates/dataplane/run", "call", "instance", "a suspended call owns its instance"),
];

/// The number of imports through which a path is followed.
const IMPORTS: usize = 8;

/// The names of a module from the crate's root, or of an item in it.
type Names = Vec<String>;

/// The parts of a file that matter here.
#[derive(Default)]
struct File {
    /// The paths in its code, as they are written.
    paths: Vec<Names>,
    /// The paths of imported names.
    imports: BTreeMap<String, Names>,
    /// The files that it declares for tests only.
    tests: BTreeSet<String>,
}

/// Splits code into words and punctuation, without comments, texts and lifetimes.
pub fn tokens(code: &str) -> Vec<String> {
    let s: Vec<char> = code.chars().collect();
    let (mut all, mut i) = (Vec::new(), 0);
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    while i < s.len() {
        let next = s.get(i + 1).copied().unwrap_or_default();
        match s[i] {
            '/' if next == '/' => i += s[i..].iter().take_while(|c| **c != '\n').count(),
            '/' if next == '*' => {
                i += 2;
                while i < s.len() && !(s[i] == '*' && s.get(i + 1) == Some(&'/')) {
                    i += 1;
                }
                i += 1;
            }
            '"' => {
                let marks = s[..i].iter().rev().take_while(|c| **c == '#').count();
                let is_raw = i > marks && matches!(s[i - marks - 1], 'r');
                i += 1;
                while i < s.len() {
                    let end = s[i..].iter().skip(1).take(marks).filter(|c| **c == '#').count() == marks;
                    match s[i] {
                        '\\' if !is_raw => i += 1,
                        '"' if !is_raw || end => break,
                        _ => {}
                    }
                    i += 1;
                }
            }
            // A character; anything else that begins so is a lifetime.
            '\'' if next == '\\' => i += 3 + s[i + 3..].iter().take_while(|c| **c != '\'').count(),
            '\'' if s.get(i + 2) == Some(&'\'') => i += 2,
            ':' if next == ':' => {
                all.push("::".to_owned());
                i += 1;
            }
            c if is_word(c) => {
                let word: String = s[i..].iter().take_while(|c| is_word(**c)).collect();
                i += word.chars().count() - 1;
                all.push(word);
            }
            c if c.is_whitespace() => {}
            c => all.push(c.to_string()),
        }
        i += 1;
    }
    all
}

/// Returns the position after the item that begins at `at`: a `;` or a block ends it.
fn after_item(tokens: &[String], mut at: usize) -> usize {
    let mut depth = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token.as_str() {
            "{" => depth += 1,
            "}" if depth <= 1 => break,
            "}" => depth -= 1,
            ";" if depth == 0 => break,
            _ => {}
        }
    }
    at
}

/// Adds the paths of an import, which begins at `at` below `prefix`. Returns the position after it.
fn import(tokens: &[String], mut at: usize, prefix: &[String], file: &mut File) -> usize {
    let (begin, mut path, mut name) = (at, prefix.to_vec(), None);
    loop {
        let token = tokens.get(at).map_or(";", String::as_str);
        match token {
            "::" => {}
            "{" => loop {
                at = import(tokens, at + 1, &path, file);
                if tokens.get(at).is_none_or(|t| t != ",") {
                    return at + 1;
                }
            },
            "as" => {
                name = tokens.get(at + 1).cloned();
                at += 1;
            }
            "," | "}" | ";" => break,
            word => path.push(word.to_owned()),
        }
        at += 1;
    }
    // `a::{self}` imports `a`.
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    // A list may end with a comma.
    if at > begin {
        let name = name.or_else(|| path.last().cloned()).unwrap_or_default();
        file.imports.insert(name, path.clone());
        file.paths.push(path);
    }
    at
}

/// Reads the paths of a file.
fn read(code: &str) -> File {
    let tokens = tokens(code);
    let (mut file, mut at) = (File::default(), 0);
    let word = |at: usize| tokens.get(at).map_or("", String::as_str);
    while at < tokens.len() {
        match word(at) {
            "#" if word(at + 1) == "[" && word(at + 2) == "cfg" => {
                let end = at + tokens[at..].iter().take_while(|t| *t != "]").count();
                let condition = &tokens[at..end];
                let is_test = condition.iter().any(|t| t == "test") && !condition.iter().any(|t| t == "not");
                at = end + 1;
                if is_test {
                    let item = &tokens[at..after_item(&tokens, at)];
                    if let Some(n) =
                        item.iter().position(|t| t == "mod").filter(|_| item.last().is_some_and(|t| t == ";"))
                    {
                        file.tests.extend(item.get(n + 1).cloned());
                    }
                    at += item.len();
                }
            }
            "use" if word(at + 1) != "<" => at = import(&tokens, at + 1, &[], &mut file) + 1,
            "crate" | "super" | "self" if word(at + 1) == "::" => {
                let mut path = vec![tokens[at].clone()];
                while word(at + 1) == "::"
                    && word(at + 2).starts_with(|c: char| c.is_alphabetic() || c == '_')
                {
                    path.push(tokens[at + 2].clone());
                    at += 2;
                }
                file.paths.push(path);
                at += 1;
            }
            _ => at += 1,
        }
    }
    file
}

/// Returns the files of a crate by their modules.
fn crate_files(src: &Path) -> BTreeMap<Names, File> {
    let mut paths = Vec::new();
    files(src, &mut paths);
    let mut all = BTreeMap::new();
    for path in paths.iter().filter(|p| p.extension().is_some_and(|e| e == "rs")) {
        let inside = path.strip_prefix(src).unwrap().with_extension("");
        let mut names: Names = inside.iter().map(|n| n.to_string_lossy().into_owned()).collect();
        if names.last().is_some_and(|name| matches!(name.as_str(), "mod" | "lib" | "main")) {
            names.pop();
        }
        all.insert(names, read(&std::fs::read_to_string(path).unwrap()));
    }
    let of_tests: Vec<Names> = all
        .iter()
        .flat_map(|(names, file): (&Names, &File)| {
            file.tests.iter().map(|test| [names.clone(), vec![test.clone()]].concat())
        })
        .collect();
    all.retain(|names, _| !of_tests.iter().any(|test| names.starts_with(test)));
    all
}

/// Follows a path in a file through at most `imports` imports, as a name may stand for several items, and
/// returns the file in which it ends. `None` for paths to other crates.
fn target(all: &BTreeMap<Names, File>, from: &Names, path: &[String], imports: usize) -> Option<Names> {
    let (mut at, mut rest) = match path.first()?.as_str() {
        "crate" => (Names::new(), &path[1..]),
        "self" => (from.clone(), &path[1..]),
        "super" => {
            let count = path.iter().take_while(|name| *name == "super").count();
            (from[..from.len().checked_sub(count)?].to_vec(), &path[count..])
        }
        child => {
            let is_child = all.contains_key(&[from.clone(), vec![child.to_owned()]].concat());
            (is_child.then(|| from.clone())?, path)
        }
    };
    while let Some(name) = rest.first() {
        let child = [at.clone(), vec![name.clone()]].concat();
        if !all.contains_key(&child) {
            break;
        }
        (at, rest) = (child, &rest[1..]);
    }
    match rest.first() {
        // An item that the file has from elsewhere in the crate.
        Some(name) if at != *from && imports > 0 => {
            let imported = all.get(&at).and_then(|file| file.imports.get(name));
            let onward = imported.filter(|path| path.last() != Some(&"*".to_owned()));
            onward.and_then(|path| target(all, &at, path, imports - 1)).or(Some(at))
        }
        _ => Some(at),
    }
}

/// Returns the edges between the files of a crate.
fn edges(all: &BTreeMap<Names, File>) -> BTreeMap<Names, BTreeSet<Names>> {
    let mut edges: BTreeMap<Names, BTreeSet<Names>> = BTreeMap::new();
    for (from, file) in all {
        for to in file.paths.iter().filter_map(|path| target(all, from, path, IMPORTS)) {
            if !to.starts_with(from) && !from.starts_with(&to) {
                edges.entry(from.clone()).or_default().insert(to);
            }
        }
    }
    edges
}

/// Returns a cycle that `path` leads to.
fn cycle(
    edges: &BTreeMap<Names, BTreeSet<Names>>,
    path: &mut Vec<Names>,
    done: &mut BTreeSet<Names>,
) -> Option<Vec<Names>> {
    let at = path.last()?.clone();
    if let Some(first) = path[..path.len() - 1].iter().position(|names| *names == at) {
        return Some(path[first..].to_vec());
    }
    if !done.contains(&at) {
        for next in edges.get(&at).into_iter().flatten() {
            path.push(next.clone());
            if let Some(found) = cycle(edges, path, done) {
                return Some(found);
            }
            path.pop();
        }
        done.insert(at);
    }
    None
}

/// Returns a cycle among the files.
fn any_cycle(edges: &BTreeMap<Names, BTreeSet<Names>>) -> Option<String> {
    let mut done = BTreeSet::new();
    let found = edges.keys().find_map(|from| cycle(edges, &mut vec![from.clone()], &mut done))?;
    Some(found.iter().map(|names| names.join("::")).collect::<Vec<_>>().join(" -> "))
}

#[test]
fn files_of_a_crate_use_each_other_in_one_direction() {
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(root()).no_deps().exec().unwrap();
    let (mut found, mut count, mut unused) = (Vec::new(), 0, ALLOWED.to_vec());
    for package in &metadata.packages {
        let folder = package.manifest_path.parent().unwrap();
        let src = folder.join("src");
        if !src.is_dir() {
            continue;
        }
        let mut edges = edges(&crate_files(src.as_std_path()));
        count += edges.values().map(BTreeSet::len).sum::<usize>();
        unused.retain(|(of, from, to, _)| {
            let names = |text: &str| text.split("::").map(str::to_owned).collect::<Names>();
            let is_edge = folder.as_str().ends_with(of)
                && edges.get_mut(&names(from)).is_some_and(|all| all.remove(&names(to)));
            !is_edge
        });
        found.extend(any_cycle(&edges).map(|cycle| format!("{}: {cycle}", package.name)));
    }
    assert!(found.is_empty(), "move what both need to a file of its own:\n{}", found.join("\n"));
    assert!(count > 1000, "only {count} edges were found");
    assert!(unused.is_empty(), "allowed, and not there: {unused:?}");
}

/// The reader sees edges in each of their forms, and nothing in comments, texts and tests.
#[test]
fn edges_are_found() {
    let all = |texts: &[(&str, &str)]| -> BTreeMap<Names, File> {
        let names = |path: &str| path.split("::").filter(|n| !n.is_empty()).map(str::to_owned).collect();
        texts.iter().map(|(path, text)| (names(path), read(text))).collect()
    };
    let closes = |text: &str| {
        let root = "mod a;\nmod b;\nmod c;\npub use b::Thing as Shown;";
        any_cycle(&edges(&all(&[
            ("", root),
            ("a", text),
            ("b", "use crate::c::X;"),
            ("c", "use super::a::Y;"),
        ])))
    };
    for text in [
        "use crate::b::Thing;",
        "use crate::{c as d, b::{self, Thing}};",
        "fn f() -> crate::b::Thing { todo!() }",
        "fn f(x: &'static str) -> super::b::Thing { todo!() }",
        "use crate::Shown;",
        "const C: char = '\\''; use crate::b;",
        "const C: &str = r#\"a \" b\"#; use crate::b;",
    ] {
        let found = closes(text);
        assert!(found.is_some_and(|cycle| cycle.contains("b -> c -> a")), "{text}");
    }
    for text in [
        "// use crate::b;",
        "/* use crate::b; */",
        "const C: &str = \"use crate::b;\";",
        "const C: &str = r#\"\"; use crate::b; \"#;",
        "#[cfg(test)]\nmod tests { use crate::b; }",
        "#[cfg(test)]\nuse crate::b;",
        "use std::b;",
        "use super::Other;",
    ] {
        assert_eq!(closes(text), None, "{text}");
    }
}
