//! `pcre:"[!]/REGEX/FLAGS"`, for a regex engine whose time is linear in the payload: no back references, no
//! look-around.

use super::fault::{Wrong, wrong};
use super::text::Piece;
use regex_automata::util::syntax;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pcre {
    pub pattern: String,
    pub not: bool,
    /// Whether the search begins at the end of the last match (`R`).
    pub relative: bool,
    /// Whether a match must begin where the search begins (`A`).
    pub anchored: bool,
    pub nocase: bool,
    pub multi_line: bool,
    pub dot_all: bool,
    pub extended: bool,
    pub ungreedy: bool,
}

impl Pcre {
    pub fn syntax(&self) -> syntax::Config {
        syntax::Config::new()
            .unicode(false)
            .utf8(false)
            .case_insensitive(self.nocase)
            .multi_line(self.multi_line)
            .dot_matches_new_line(self.dot_all)
            .ignore_whitespace(self.extended)
            .swap_greed(self.ungreedy)
            .nest_limit(64)
    }
}

/// Parses the value. The inner result is an error with the reason if a flag is not supported; the engine
/// finds out whether the expression is.
#[inline(never)]
pub fn read(piece: Piece<'_>) -> Result<Result<Pcre, String>, Wrong> {
    let piece = piece.trim();
    let (mut not, piece) = piece.strip("!").map_or((false, piece), |p| (true, p.trim()));
    let mut inside = piece.quoted()?;
    if let Some(rest) = inside.strip("!") {
        (not, inside) = (true, rest);
    }
    // Either m and any delimiter, or slashes.
    let inside = inside.strip("m").unwrap_or(inside);
    let Some(delimiter) = inside.text.chars().next().filter(char::is_ascii_punctuation) else {
        return wrong(inside.at, "/REGEX/ and flags");
    };
    let body = inside.from(1);
    let Some(end) = body.text.rfind(delimiter) else {
        return wrong(piece.end(), "a `/` that ends the regex");
    };
    let mut pcre = Pcre {
        pattern: translate(&body.text[..end], delimiter),
        not,
        relative: false,
        anchored: false,
        nocase: false,
        multi_line: false,
        dot_all: false,
        extended: false,
        ungreedy: false,
    };
    for (i, flag) in body.text[end + 1..].char_indices() {
        match flag {
            'i' => pcre.nocase = true,
            's' => pcre.dot_all = true,
            'm' => pcre.multi_line = true,
            'x' => pcre.extended = true,
            'A' => pcre.anchored = true,
            'G' => pcre.ungreedy = true,
            'R' => pcre.relative = true,
            // `$` matches only at the very end here anyway (E); nothing is decoded, so all bytes are raw (B);
            // there are no limits to override (O).
            'E' | 'B' | 'O' => {}
            'U' | 'I' | 'P' | 'H' | 'D' | 'M' | 'C' | 'K' | 'S' | 'Y' | 'V' | 'W' | 'Q' => {
                return Ok(Err(format!("pcre flag {flag} (needs HTTP buffers)")));
            }
            _ => return wrong(body.at + end + 1 + i, "flags of i s m x A E G R B O"),
        }
    }
    Ok(Ok(pcre))
}

/// Translates to the syntax of our engine: an escaped delimiter or quote stands for itself, `\Z` for `\z`,
/// and `\e` for the escape character.
#[inline(never)]
fn translate(pattern: &str, delimiter: char) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('Z') => out.push_str("\\z"),
            Some('e') => out.push_str("\\x1b"),
            Some('h') => out.push_str("[ \\t]"),
            Some(c) if (c == delimiter || matches!(c, '"' | ';' | ':' | '<' | '>')) && !is_meta(c) => {
                out.push(c)
            }
            Some(c) => {
                out.push('\\');
                out.push(c);
            }
            None => out.push('\\'),
        }
    }
    out
}

fn is_meta(c: char) -> bool {
    r"\.+*?()|[]{}^$#&-~".contains(c)
}
