//! Phrases that hide what is meant, in comments and documents. Each may occur as often as stated here, and a
//! change that removes some lowers the number.

use super::{files, root};

const PHRASES: [(&str, usize); 14] = [
    ("anew", 5),
    ("goes on", 17),
    ("hold up", 1),
    ("holds up", 3),
    ("is none", 15),
    ("let go", 1),
    ("nobody", 38),
    ("of before", 0),
    ("one that", 139),
    ("so many", 6),
    ("that of", 128),
    ("those of", 294),
    ("what it", 116),
    ("whoever", 12),
];

/// Returns the comments of a source file, or the text of a document, in lower case, as one line.
fn prose(path: &std::path::Path) -> Option<String> {
    let kind = path.extension()?.to_str()?;
    let text = matches!(kind, "rs" | "md").then(|| std::fs::read_to_string(path).unwrap())?;
    let is_prose = |line: &&str| kind == "md" || line.trim_start().starts_with("//");
    let words = text.lines().filter(is_prose).flat_map(|line| line.split_whitespace());
    let words: Vec<_> = words.filter(|word| !word.starts_with("//")).collect();
    Some(format!(" {} ", words.join(" ").to_lowercase()))
}

#[test]
fn phrases_become_fewer() {
    let mut all: Vec<_> = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
        .map(|file| root().join(file))
        .to_vec();
    ["crates", "sdk", "modules", "bench", "fuzz", "docs", "demo", "fleet"]
        .iter()
        .for_each(|folder| files(&root().join(folder), &mut all));
    let texts: Vec<_> = all.iter().filter_map(|path| Some((path, prose(path)?))).collect();
    let is_edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    let mut wrong = Vec::new();
    for (phrase, most) in PHRASES {
        let occurrences = |text: &str| {
            let whole = |at: &(usize, &str)| {
                is_edge(text[..at.0].chars().last()) && is_edge(text[at.0 + phrase.len()..].chars().next())
            };
            text.match_indices(phrase).filter(whole).count()
        };
        let found: Vec<_> =
            texts.iter().map(|(path, text)| (occurrences(text), path)).filter(|(n, _)| *n > 0).collect();
        let count: usize = found.iter().map(|(n, _)| n).sum();
        if count > most {
            let files: Vec<_> = found.iter().map(|(n, path)| format!("  {n} {}", path.display())).collect();
            wrong.push(format!("\"{phrase}\": {count}, at most {most}\n{}", files.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "use plainer words:\n{}", wrong.join("\n"));
}
