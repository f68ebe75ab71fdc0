//! The variables of a suricata.yaml (`vars` with `address-groups` and `port-groups`), as far as it is written
//! as Suricata ships it: a block mapping with a value on each line. Everything else in the file is skipped.

use super::text::Piece;

/// The kind of a definition.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    Addresses,
    Ports,
    /// Addresses or ports, or both.
    Either,
    /// The same, or a text that no rule can use, such as a path.
    Any,
}

/// A definition in the text, not yet evaluated.
pub struct Variable<'a> {
    pub sort: Sort,
    pub name: Piece<'a>,
    pub value: Piece<'a>,
    /// The line, from 1, and the offset at which it begins.
    pub line: u32,
    pub line_at: usize,
}

/// Returns the lines with their offsets.
fn pieces(text: &str) -> impl Iterator<Item = (u32, Piece<'_>)> {
    let mut at = 0;
    (1..).zip(text.split('\n')).map(move |(number, line)| {
        let piece = Piece::new(line, at);
        at += line.len() + 1;
        (number, piece)
    })
}

/// Returns whether the text is YAML rather than lines of definitions.
pub fn is_yaml(text: &str) -> bool {
    pieces(text).any(|(_, line)| line.text.trim_end() == "vars:" || line.text.starts_with("%YAML"))
}

/// Returns the definitions `NAME = VALUE`, `NAME: VALUE`, or `ipvar NAME VALUE` as in a rule file.
pub fn lines(text: &str) -> Vec<Variable<'_>> {
    let mut all = Vec::new();
    for (line, piece) in pieces(text) {
        let line_at = piece.at;
        let piece = piece.trim();
        if piece.is_empty() || piece.text.starts_with('#') {
            continue;
        }
        let (word, rest) = piece.word(&['=', ':']);
        let (sort, name, rest) = match word.text {
            "ipvar" | "portvar" | "var" => {
                let (name, rest) = rest.trim().word(&['=', ':']);
                let sort = match word.text {
                    "ipvar" => Sort::Addresses,
                    "portvar" => Sort::Ports,
                    _ => Sort::Either,
                };
                (sort, name, rest.trim())
            }
            _ => (Sort::Either, word, rest.trim()),
        };
        let value = rest.strip("=").or_else(|| rest.strip(":")).unwrap_or(rest).trim();
        all.push(Variable { sort, name, value: scalar(value), line, line_at });
    }
    all
}

/// Returns the definitions of a suricata.yaml, and the numbers of the lines among them that are none.
pub fn variables(text: &str) -> (Vec<Variable<'_>>, Vec<u32>) {
    let (mut all, mut unknown) = (Vec::new(), Vec::new());
    // The indentations of `vars`, and of the group and its kind, while inside them.
    let (mut vars, mut group) = (None, None);
    for (line, piece) in pieces(text) {
        let content = piece.trim();
        if content.is_empty() || content.text.starts_with('#') {
            continue;
        }
        let indent = content.at - piece.at;
        if group.is_some_and(|(depth, _)| indent <= depth) {
            group = None;
        }
        if vars.is_some_and(|depth| indent <= depth) {
            vars = None;
        }
        let Some(colon) = content.text.find(':') else {
            if group.is_some() {
                unknown.push(line);
            }
            continue;
        };
        let (name, value) = (content.to(colon).trim(), content.from(colon + 1).trim());
        match (vars, group, name.text) {
            (None, _, "vars") if indent == 0 => vars = Some(indent),
            (Some(_), None, "address-groups") => group = Some((indent, Sort::Addresses)),
            (Some(_), None, "port-groups") => group = Some((indent, Sort::Ports)),
            (Some(_), Some((_, sort)), _) => {
                let (name, value) = (scalar(name), scalar(value));
                all.push(Variable { sort, name, value, line, line_at: piece.at });
            }
            _ => {}
        }
    }
    (all, unknown)
}

/// Returns the text of a scalar: without quotes, or up to a comment.
fn scalar(piece: Piece<'_>) -> Piece<'_> {
    for quote in ['"', '\''] {
        if let Some(inside) = piece.strip(if quote == '"' { "\"" } else { "'" })
            && let Some(end) = inside.text.find(quote)
        {
            return inside.to(end).trim();
        }
    }
    match piece.text.find(" #") {
        Some(at) => piece.to(at).trim(),
        None => piece,
    }
}
