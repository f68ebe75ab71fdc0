//! Escapes untrusted text for each format. Every format has one function, and writes no text without it.
//!
//! | destination | escaped characters | form |
//! | --- | --- | --- |
//! | terminal, log | controls (C0 with ESC, DEL, C1), marks of direction, line separators | `\u{1b}` |
//! | JSON | the same, in addition to those that JSON requires | `\u001b` |
//! | CSV | controls except tab and line ends; on a terminal all of them | `\u{1b}` |
//! | CSV, formulas guarded | a cell that a spreadsheet would compute | `\'` before it |
//!
//! Parquet and pcapng hold values as they are.

use std::borrow::Cow;

/// Returns whether a character could control a terminal or reorder a line.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn escaped(text: &str, odd: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&odd) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if odd(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// Escapes text for people in one line, including line ends.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, steers)
}

/// Escapes lines of text for people.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| steers(c) && c != '\n')
}

/// Escapes, in text that is JSON already, the characters that JSON permits and terminals obey. They occur
/// only in strings.
pub fn json(text: &str) -> Cow<'_, str> {
    // Between values, the only control character is the end of a line.
    let odd = |c: char| steers(c) && c != '\n';
    if !text.contains(odd) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if odd(c) {
            let mut units = [0; 2];
            c.encode_utf16(&mut units).iter().for_each(|unit| out += &format!("\\u{unit:04x}"));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Returns whether text consists of printable ASCII without `odd`, as nearly all text of records does.
fn is_plain(text: &str, odd: [u8; 2]) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !odd.contains(&byte))
}

/// Writes a string as JSON.
pub fn write_json(out: &mut Vec<u8>, text: &str) {
    if is_plain(text, *b"\"\\") {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
        return;
    }
    // Text is always JSON.
    let quoted = serde_json::to_string(text).unwrap_or_default();
    out.extend_from_slice(json(&quoted).as_bytes());
}

/// The destination of CSV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Csv {
    pub is_terminal: bool,
    pub guards_formulas: bool,
}

/// Writes a cell of CSV (RFC 4180).
pub fn write_csv(out: &mut Vec<u8>, text: &str, csv: Csv) {
    if !csv.guards_formulas && is_plain(text, *b",\"") {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    let keeps = |c: char| !csv.is_terminal && matches!(c, '\n' | '\r' | '\t');
    let shown = escaped(text, |c| steers(c) && !keeps(c));
    // Whether a spreadsheet would compute the cell, even after blanks.
    let computes = |text: &str| {
        let first = text.trim_start_matches(|c: char| c.is_whitespace()).chars().next();
        text.starts_with(['\t', '\r', '\n']) || first.is_some_and(|c| "=+-@|%＝＋－＠".contains(c))
    };
    let guard = if csv.guards_formulas && computes(&shown) { "'" } else { "" };
    if !shown.contains([',', '"', '\n', '\r']) {
        out.extend(guard.as_bytes());
        out.extend(shown.as_bytes());
        return;
    }
    out.push(b'"');
    out.extend(guard.as_bytes());
    out.extend(shown.replace('"', "\"\"").as_bytes());
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Characters that a terminal could obey, and similar ones that it does not.
    const HOSTILE: &str =
        "\u{1b}]0;owned\u{7}\u{9b}31m\u{85}\u{7f}\0\r\n\t\u{202e}\u{2028}\u{61c}\u{e0041}é\u{a0}ß\\\"";

    #[test]
    fn nothing_that_steers_is_left_in_any_format() {
        assert!(!line(HOSTILE).contains(steers));
        assert_eq!(lines("a\n\u{1b}b"), "a\n\\u{1b}b");
        let mut out = Vec::new();
        write_json(&mut out, HOSTILE);
        let text = String::from_utf8(out).unwrap();
        assert!(!text.contains(steers), "{text}");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), HOSTILE, "and nothing is lost");
        for (is_terminal, kept) in [(true, ""), (false, "\r\n\t")] {
            let mut out = Vec::new();
            write_csv(&mut out, HOSTILE, Csv { is_terminal, guards_formulas: false });
            let text = String::from_utf8(out).unwrap();
            assert_eq!(text.chars().filter(|c| steers(*c)).collect::<String>(), kept);
        }
        assert!(
            matches!(line("größe 5"), Cow::Borrowed(_)) && matches!(json("{\"a\": 1}\n"), Cow::Borrowed(_))
        );
    }

    #[test]
    fn cells_that_would_be_computed_are_guarded() {
        let cell = |text: &str, guards_formulas| {
            let mut out = Vec::new();
            write_csv(&mut out, text, Csv { is_terminal: false, guards_formulas });
            String::from_utf8(out).unwrap()
        };
        for text in
            ["=1+1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "  =1", "\t=1", "\r=1", "|x", "%0", "＝1"]
        {
            assert!(cell(text, true).trim_start_matches('"').starts_with('\''), "{text:?}");
            assert!(!cell(text, false).trim_start_matches('"').starts_with('\''), "{text:?}");
        }
        for text in ["", "a=1", "10.0.0.1", "GET /", "2-1"] {
            assert_eq!(cell(text, true), text);
        }
        assert_eq!(cell("=a,\"b\"", true), "\"'=a,\"\"b\"\"\"");
    }
}
