//! `pcre:"[!]/REGEX/FLAGS"`, for a regex engine whose time is linear in the payload: no back references, no
//! look-around.

use super::fault::{Wrong, wrong};
use super::start::{BEYOND, Size, Start};
use super::text::Piece;
use regex_automata::nfa::thompson::{self, NFA};
use regex_automata::util::syntax;
use regex_syntax::hir::{Class, Hir, HirKind};

/// The largest size of one expression's NFA in bytes.
const MOST_NFA: usize = 256 << 10;
/// The largest number of states of an NFA, as the expression shows it. Each has 24 bytes or more.
const MOST_STATES: u64 = (MOST_NFA / 24) as u64;

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

/// An expression as an NFA.
pub struct Compiled {
    pub nfa: NFA,
}

impl Compiled {
    #[cold]
    pub fn too_large() -> String {
        format!("pcre too large: its automaton is beyond {} KiB", MOST_NFA >> 10)
    }
}

impl Size {
    fn of(hir: &Hir) -> Self {
        let mut size = Self::default();
        size.states = size.add(hir);
        size
    }

    /// Adds the parts of an expression and returns the number of its states.
    fn add(&mut self, hir: &Hir) -> u64 {
        self.nodes += 1;
        match hir.kind() {
            HirKind::Empty | HirKind::Look(_) => 1,
            HirKind::Class(Class::Bytes(class)) => {
                self.ranges += class.ranges().len() as u64;
                1
            }
            HirKind::Class(Class::Unicode(class)) => {
                self.ranges += class.ranges().len() as u64;
                1
            }
            HirKind::Literal(literal) => literal.0.len() as u64,
            HirKind::Capture(capture) => {
                self.groups += 1;
                self.add(&capture.sub)
            }
            HirKind::Repetition(r) => {
                let times = r.max.unwrap_or(r.min).max(1);
                self.add(&r.sub).saturating_mul(times.into()).saturating_add(1)
            }
            HirKind::Concat(all) | HirKind::Alternation(all) => {
                all.iter().map(|hir| self.add(hir)).fold(1, u64::saturating_add)
            }
        }
    }
}

impl Pcre {
    /// Compiles the expression.
    ///
    /// # Errors
    ///
    /// Returns the reason why it is not supported: its syntax, the size of its automaton, or too much work at
    /// the start.
    #[inline(never)]
    pub fn compile(&self, start: &mut Start) -> Result<Compiled, String> {
        if !start.pcre(self.pattern.len()) {
            return Err(BEYOND.to_owned());
        }
        let hir = match syntax::parse_with(&self.pattern, &self.syntax()) {
            Ok(hir) => hir,
            Err(e) => return Err(format!("pcre syntax: {}", last_line(&e.to_string()))),
        };
        let size = Size::of(&hir);
        start.pcre_read(self.pattern.len(), self.nocase, &size);
        if size.states > MOST_STATES {
            return Err(Compiled::too_large());
        }
        if !start.nfa(size.states) {
            return Err(BEYOND.to_owned());
        }
        let config = thompson::Config::new()
            .utf8(false)
            .nfa_size_limit(Some(MOST_NFA))
            .which_captures(thompson::WhichCaptures::None);
        let nfa = thompson::Compiler::new().configure(config).build_from_hir(&hir);
        nfa.map(|nfa| Compiled { nfa }).map_err(|_| Compiled::too_large())
    }

    fn syntax(&self) -> syntax::Config {
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

/// Parses the value. [`Pcre::compile`] finds out whether the expression is supported.
///
/// # Errors
///
/// Returns an error with its offset if the value is not quoted, has no delimiters, or has an unknown flag.
/// The inner error is the reason why a known flag is not supported.
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
    let mut rest = pattern;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        out.push_str(&rest[..at]);
        rest = escape(&rest[at + 1..], delimiter, &mut out);
    }
    out.push_str(rest);
    out
}

/// Translates the character after a backslash and returns the text after it.
#[inline(never)]
fn escape<'a>(text: &'a str, delimiter: char, out: &mut String) -> &'a str {
    let mut chars = text.chars();
    match chars.next() {
        Some('Z') => out.push_str("\\z"),
        Some('e') => out.push_str("\\x1b"),
        Some('h') => out.push_str("[ \\t]"),
        Some(c) if (c == delimiter || matches!(c, '"' | ';' | ':' | '<' | '>')) && !is_meta(c) => out.push(c),
        Some(c) => {
            out.push('\\');
            out.push(c);
        }
        None => out.push('\\'),
    }
    chars.as_str()
}

fn is_meta(c: char) -> bool {
    r"\.+*?()|[]{}^$#&-~".contains(c)
}

/// Returns the last line of the parser's message, which describes the error; the lines above draw the
/// pattern.
fn last_line(text: &str) -> String {
    text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}
