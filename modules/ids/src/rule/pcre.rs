//! `pcre:"[!]/REGEX/FLAGS"`, for a regex engine whose time is linear in the payload: no back references, no
//! look-around.

mod bytes;
mod classes;
mod syntax;
mod tree;

use super::fault::{Wrong, wrong};
use super::start::{BEYOND, Size, Start};
use super::text::Piece;
use regex_automata::nfa::thompson::{self, NFA};
use regex_syntax::hir::{Class, Hir, HirKind};
use syntax::Options;
use tree::Look;

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
    options: Options,
}

/// An expression as an NFA.
pub struct Compiled {
    pub nfa: NFA,
    /// Whether a match may also end before a newline that is the last byte (`$`).
    pub before_newline: bool,
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
        let tree = syntax::read(self.pattern.as_bytes(), self.options)?;
        let tree = tree::resolve(&tree).map_err(|name| format!("pcre with {name}"))?;
        let (before_newline, hir) = (tree.looks_for(Look::Dollar), tree.hir());
        let size = Size::of(&hir);
        start.pcre_read(self.pattern.len(), self.options.any_case, &size);
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
        nfa.map(|nfa| Compiled { nfa, before_newline }).map_err(|_| Compiled::too_large())
    }
}

/// Parses the value. [`Pcre::compile`] finds out whether the expression is supported.
///
/// # Errors
///
/// Returns an error with its offset if the value has no delimiters, or has an unknown flag.
/// The inner error is the reason why a known flag is not supported.
#[inline(never)]
pub fn read(piece: Piece<'_>) -> Result<Result<Pcre, String>, Wrong> {
    let piece = piece.trim();
    let (mut not, piece) = piece.strip("!").map_or((false, piece), |p| (true, p.trim()));
    // Suricata does without quotes, too.
    let mut inside = if piece.text.starts_with('"') { piece.quoted()? } else { piece };
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
    let (mut relative, mut anchored, mut options) = (false, false, Options::default());
    for (i, flag) in body.text[end + 1..].char_indices() {
        match flag {
            'i' => options.any_case = true,
            's' => options.dot_all = true,
            'm' => options.lines = true,
            'x' => options.extended = true,
            'A' => anchored = true,
            'E' => options.dollar_is_end = true,
            'G' => options.lazy = true,
            'R' => relative = true,
            // Nothing is decoded, so all bytes are raw (B); there are no limits to override (O).
            'B' | 'O' => {}
            'U' | 'I' | 'P' | 'H' | 'D' | 'M' | 'C' | 'K' | 'S' | 'Y' | 'V' | 'W' | 'Q' | 'Z' => {
                return Ok(Err(format!("pcre flag {flag} (needs HTTP buffers)")));
            }
            // Variables for captured groups, which no supported word reads.
            ',' => break,
            _ => return wrong(body.at + end + 1 + i, "flags of i s m x A E G R B O"),
        }
    }
    let pattern = body.text[..end].to_owned();
    Ok(Ok(Pcre { pattern, not, relative, anchored, options }))
}
