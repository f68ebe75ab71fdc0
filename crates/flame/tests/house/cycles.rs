//! The folders of one crate use each other in one direction. Files of one folder are about one thing, and may
//! use each other as they like; so may a folder and the folders in it.

use super::{files, root};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Edges that close a cycle and are allowed: the crate, the two folders, and the reason.
const ALLOWED: [(&str, &str, &str, &str); 1] =
    [("crates/control/bounds", "analyse", "find", "the cause of a missing bound is what the finder lacks")];

/// The edges between folders, which are paths from the crate's source folder.
type Edges = BTreeMap<String, BTreeSet<String>>;

/// Returns the code of a file without comments and without the unit tests at its end.
pub fn code(text: &str) -> String {
    let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    product.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Returns the path at the start of `text`, or the paths of a list in braces.
pub fn paths(text: &str) -> Vec<Vec<&str>> {
    let Some(list) = text.strip_prefix('{') else {
        let end = text.find(|c: char| !(c.is_alphanumeric() || "_:".contains(c))).unwrap_or(text.len());
        let names: Vec<_> = text[..end].split("::").filter(|name| !name.is_empty()).collect();
        return match text[end..].starts_with('{') {
            true => paths(&text[end..]).into_iter().map(|rest| [&names[..], &rest[..]].concat()).collect(),
            false => vec![names],
        };
    };
    let (mut depth, mut begin, mut all) = (0, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                all.extend(paths(list[begin..at].trim()));
                begin = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    all
}

/// Returns the folders that the code of the module `module` names, by paths from the crate's root or from a
/// module above.
fn named(code: &str, module: &[&str], folders: &BTreeSet<String>) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (at, word) in code.match_indices("crate::").chain(code.match_indices("super::")) {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || "_:$".contains(c)) {
            continue;
        }
        let mut from = if word == "crate::" { 0 } else { module.len().saturating_sub(1) };
        let mut rest = &code[at + word.len()..];
        while let Some(next) = rest.strip_prefix("super::") {
            (from, rest) = (from.saturating_sub(1), next);
        }
        for path in paths(rest) {
            let names = [&module[..from], &path[..]].concat();
            let folder = (0..=names.len()).rev().map(|n| names[..n].join("/")).find(|f| folders.contains(f));
            all.extend(folder);
        }
    }
    all
}

/// Returns the edges between the folders of texts, which are given by their paths.
fn edges(texts: &BTreeMap<String, String>) -> Edges {
    let folder = |path: &str| path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
    let folders: BTreeSet<_> = texts.keys().map(|path| folder(path)).collect();
    let mut edges = Edges::new();
    for (path, text) in texts {
        let from = folder(path);
        let module = path.trim_end_matches(".rs").trim_end_matches("/mod");
        let module: Vec<_> =
            module.split('/').filter(|name| !["lib", "main", "mod"].contains(name)).collect();
        for to in named(&code(text), &module, &folders) {
            let is_within = |a: &str, b: &str| a.is_empty() || a == b || a.starts_with(&format!("{b}/"));
            if !is_within(&from, &to) && !is_within(&to, &from) {
                edges.entry(from.clone()).or_default().insert(to);
            }
        }
    }
    edges
}

/// Returns a cycle to which the last folder of `path` leads.
fn cycle(edges: &Edges, path: &mut Vec<String>) -> Option<String> {
    let at = path.last()?.clone();
    if let Some(first) = path[..path.len() - 1].iter().position(|folder| *folder == at) {
        return Some(path[first..].join(" -> "));
    }
    for next in edges.get(&at).into_iter().flatten() {
        path.push(next.clone());
        if let Some(found) = cycle(edges, path) {
            return Some(found);
        }
        path.pop();
    }
    None
}

/// Returns a cycle among the folders.
fn any_cycle(edges: &Edges) -> Option<String> {
    edges.keys().find_map(|from| cycle(edges, &mut vec![from.clone()]))
}

/// Returns the texts of a crate's sources, without files of unit tests.
fn sources(src: &Path) -> BTreeMap<String, String> {
    let mut all = Vec::new();
    files(src, &mut all);
    let inside = |path: &Path| path.strip_prefix(src).unwrap().to_string_lossy().into_owned();
    let is_product = |name: &str| name.ends_with(".rs") && !name.contains("tests");
    let named = all.iter().map(|path| (inside(path), path)).filter(|(name, _)| is_product(name));
    named.map(|(name, path)| (name, std::fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn folders_of_a_crate_use_each_other_in_one_direction() {
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(root()).no_deps().exec().unwrap();
    let (mut found, mut count, mut unused) = (Vec::new(), 0, ALLOWED.to_vec());
    for package in &metadata.packages {
        let folder = package.manifest_path.parent().unwrap();
        let mut edges = edges(&sources(folder.join("src").as_std_path()));
        count += edges.values().map(BTreeSet::len).sum::<usize>();
        unused.retain(|(of, from, to, _)| {
            !(folder.as_str().ends_with(of) && edges.get_mut(*from).is_some_and(|all| all.remove(*to)))
        });
        found.extend(any_cycle(&edges).map(|cycle| format!("{}: {cycle}", package.name)));
    }
    assert!(found.is_empty(), "move what both need to a folder below both:\n{}", found.join("\n"));
    assert!(count > 10, "only {count} edges were found");
    assert!(unused.is_empty(), "allowed, and not there: {unused:?}");
}

/// The reader sees edges in each of their forms, and none in comments and tests.
#[test]
fn edges_are_found() {
    let closes = |text: &str| {
        let texts = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a/mod.rs", "use crate::a::x::X;"),
            ("a/x.rs", text),
            ("b/y.rs", "use crate::c::Z;"),
            ("c/z.rs", "fn f() -> super::super::a::x::X { todo!() }"),
        ];
        any_cycle(&edges(&texts.into_iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect()))
    };
    for text in [
        "use crate::b::Y;",
        "use crate::{\n    c::Z,\n    b::{y::Y, Other},\n};",
        "fn f() -> crate::b::Y { todo!() }",
        "use super::super::b;",
    ] {
        assert_eq!(closes(text).as_deref(), Some("a -> b -> c -> a"), "{text}");
    }
    for text in
        ["// use crate::b;", "#[cfg(test)]\nmod tests { use crate::b; }", "use std::b;", "use super::Other;"]
    {
        assert_eq!(closes(text), None, "{text}");
    }
}
