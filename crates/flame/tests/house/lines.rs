//! Lines fit a window of two columns.

use super::{files, root};
use std::path::{Path, PathBuf};

const LONGEST: usize = 110;

/// The marks with which comments begin, for kinds of files in which only comments are held to the length:
/// rustfmt wraps all of Rust but texts, values of TOML stand on one line, and so do cases of tests.
const COMMENTS: [(&str, &str); 6] =
    [("rs", "//"), ("toml", "#"), ("wat", ";;"), ("txt", ";;"), ("py", "#"), ("yml", "#")];
/// The kinds of files that are held to it as a whole.
const WHOLE: [&str; 5] = ["c", "h", "sh", "run", "md"];

/// Returns the kind of a file: its extension, or the name of a file without one.
fn kind(path: &Path) -> &str {
    path.extension().or(path.file_name()).and_then(|e| e.to_str()).unwrap_or_default()
}

/// Returns whether a line may be long: tables, links and code in documents, and tables and links in comments.
fn may_be_long(kind: &str, line: &str, is_in_block: bool) -> bool {
    let words = line.trim_start();
    if kind == "md" {
        return is_in_block || line.starts_with("    ") || words.starts_with('|') || words.contains("](");
    }
    let comment = COMMENTS.iter().find(|(of, _)| *of == kind).map(|(_, mark)| words.strip_prefix(mark));
    match comment {
        None => false,
        Some(None) => true,
        Some(Some(text)) => {
            let text = text.trim_start_matches(['/', '!', ' ']);
            text.starts_with('|') || text.contains("://")
        }
    }
}

#[test]
fn lines_are_short() {
    let mut all: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "RELEASING.md"]
            .into_iter()
            .chain(["Cargo.toml", "deny.toml", "rustfmt.toml", "rust-toolchain.toml", ".ci/run"])
            .chain(["fuzz/README.md", "fuzz/Cargo.toml", "fuzz/run.sh", "fuzz/seed.sh"])
            .map(|file| root().join(file))
            .collect();
    for folder in [
        "crates",
        "sdk",
        "modules",
        "bench",
        "fuzz",
        "docs",
        "fleet",
        "tests",
        "demo",
        "scripts",
        "packaging",
        ".cargo",
        ".github",
    ] {
        files(&root().join(folder), &mut all);
    }
    let mut long = Vec::new();
    for path in &all {
        let kind = kind(path);
        if !WHOLE.contains(&kind) && !COMMENTS.iter().any(|(of, _)| *of == kind) {
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        let mut is_in_block = false;
        for (number, line) in text.lines().enumerate() {
            is_in_block ^= kind == "md" && line.starts_with("```");
            if line.chars().count() > LONGEST && !may_be_long(kind, line, is_in_block) {
                long.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    assert!(long.is_empty(), "{} lines are longer than {LONGEST}:\n{}", long.len(), long.join("\n"));
}
