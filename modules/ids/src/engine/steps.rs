//! Contents, regular expressions and `isdataat` of one rule, in order, with their distances.
//!
//! A step may be relative to the end of the one before. If a later step fails, the earlier ones try their
//! next position, until all match or the work for this packet is used up.

use crate::rule::content::Window;
use crate::rule::{Rule, Step};
use memchr::memmem::Finder;
use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::{Anchored, Input};

/// The largest size, in bytes, of the automaton of one `pcre`.
const MOST_REGEX: usize = 512 << 10;
/// The work for one packet, in units of one position tried or 16 bytes searched.
pub const WORK: u32 = 1 << 18;

enum Find {
    Exact(Box<Finder<'static>>),
    /// A content in lower case.
    Nocase(Box<[u8]>),
}

enum Kind {
    Content { find: Find, len: usize, window: Window },
    Regex { dfa: Box<dense::DFA<Vec<u32>>>, relative: bool, anchored: bool },
    Data { at: usize, relative: bool },
}

struct Part {
    kind: Kind,
    not: bool,
    /// Whether a later part is relative to the end of this one.
    leads: bool,
}

/// The steps of a rule, ready to run.
#[derive(Default)]
pub struct Steps {
    parts: Vec<Part>,
}

impl Steps {
    /// Prepares the steps of a rule. The error states the part of the rule that is not supported.
    pub fn new(rule: &Rule) -> Result<Self, String> {
        let mut parts = Vec::new();
        for (i, step) in rule.steps.iter().enumerate() {
            let (kind, not) = match step {
                Step::Content(c) => {
                    let find = if c.nocase {
                        Find::Nocase(c.bytes.to_ascii_lowercase().into())
                    } else {
                        Find::Exact(Box::new(Finder::new(&c.bytes).into_owned()))
                    };
                    (Kind::Content { find, len: c.bytes.len(), window: c.window }, c.not)
                }
                Step::Pcre(p) => {
                    let start = match (p.anchored, leads(&rule.steps[i + 1..])) {
                        (true, _) => StartKind::Anchored,
                        (false, true) => StartKind::Both,
                        (false, false) => StartKind::Unanchored,
                    };
                    let config = dense::Config::new()
                        .start_kind(start)
                        .accelerate(false)
                        .dfa_size_limit(Some(MOST_REGEX))
                        .determinize_size_limit(Some(4 * MOST_REGEX));
                    let nfa = thompson::Config::new().utf8(false).nfa_size_limit(Some(MOST_REGEX));
                    let mut builder = dense::Builder::new();
                    let built = builder.configure(config).thompson(nfa).syntax(p.syntax()).build(&p.pattern);
                    let dfa = built
                        .map_err(|_| format!("pcre: its automaton is beyond {} KiB", MOST_REGEX >> 10))?;
                    (Kind::Regex { dfa: Box::new(dfa), relative: p.relative, anchored: p.anchored }, p.not)
                }
                Step::Data { at, relative, not } => {
                    (Kind::Data { at: *at as usize, relative: *relative }, *not)
                }
            };
            parts.push(Part { kind, not, leads: leads(&rule.steps[i + 1..]) });
        }
        Ok(Self { parts })
    }

    /// Returns whether all steps match; `work` is the remaining work for this packet.
    #[inline]
    pub fn fit(&self, payload: &[u8], work: &mut u32) -> bool {
        run(&self.parts, payload, 0, work)
    }
}

/// Returns whether the position of one of these steps depends on the steps before.
fn leads(later: &[Step]) -> bool {
    for step in later {
        match step {
            Step::Content(c) if c.window.relative => return true,
            Step::Pcre(p) if p.relative => return true,
            Step::Data { relative: true, .. } => return true,
            Step::Content(c) if !c.not => return false,
            Step::Pcre(p) if !p.not => return false,
            _ => {}
        }
    }
    false
}

/// Subtracts from the work and returns whether enough was left.
fn spend(work: &mut u32, bytes: usize) -> bool {
    let left = work.checked_sub(1 + (bytes / 16) as u32);
    *work = left.unwrap_or(0);
    left.is_some()
}

/// Returns whether these parts match, where `cursor` is the end of the part before.
fn run(parts: &[Part], payload: &[u8], cursor: usize, work: &mut u32) -> bool {
    let Some((part, rest)) = parts.split_first() else { return true };
    match &part.kind {
        Kind::Data { at, relative } => {
            let from = if *relative { cursor } else { 0 };
            (from + at < payload.len()) != part.not && run(rest, payload, cursor, work)
        }
        Kind::Content { find, len, window } => {
            let (start, end) = place(*window, cursor, payload.len());
            let mut from = start;
            while let Some(at) = next(find, *len, payload, from, end, work) {
                if part.not {
                    return false;
                }
                if run(rest, payload, at + len, work) {
                    return true;
                }
                if !part.leads {
                    return false;
                }
                from = at + 1;
            }
            part.not && *work > 0 && run(rest, payload, cursor, work)
        }
        Kind::Regex { dfa, relative, anchored } => {
            let from = if *relative { cursor.min(payload.len()) } else { 0 };
            let Some(found) = regex(dfa, &payload[from..], 0, *anchored, work) else {
                return part.not && *work > 0 && run(rest, payload, cursor, work);
            };
            if part.not {
                return false;
            }
            if run(rest, payload, from + found, work) {
                return true;
            }
            if !part.leads || *anchored {
                return false;
            }
            // Each start position may have another end.
            (0..=payload.len() - from).any(|start| {
                let end = regex(dfa, &payload[from..], start, true, work);
                end.is_some_and(|end| run(rest, payload, from + end, work))
            })
        }
    }
}

/// Returns the range of bytes in which the whole content must lie.
fn place(window: Window, cursor: usize, len: usize) -> (usize, usize) {
    let base = if window.relative { cursor as i64 } else { 0 };
    let from = base + i64::from(window.from);
    let end = window.len.map_or(len as i64, |n| (from + i64::from(n)).min(len as i64));
    (from.max(0) as usize, end.max(0) as usize)
}

/// Returns the next position of a content at or after `from` that ends by `end`.
fn next(find: &Find, len: usize, payload: &[u8], from: usize, end: usize, work: &mut u32) -> Option<usize> {
    let within = payload.get(from..end)?;
    if within.len() < len || !spend(work, within.len()) {
        return None;
    }
    match find {
        Find::Exact(finder) => finder.find(within).map(|i| from + i),
        Find::Nocase(lower) => {
            let first = *lower.first()?;
            let last = within.len() - len;
            let starts = memchr::memchr2_iter(first, first.to_ascii_uppercase(), &within[..=last]);
            let mut found = starts.filter(|&i| within[i..i + len].eq_ignore_ascii_case(lower));
            found.next().map(|i| from + i)
        }
    }
}

/// Returns the end of the first match from `start` on, in time linear in the payload.
fn regex(
    dfa: &dense::DFA<Vec<u32>>,
    payload: &[u8],
    start: usize,
    anchored: bool,
    work: &mut u32,
) -> Option<usize> {
    if !spend(work, payload.len() - start) {
        return None;
    }
    let anchored = if anchored { Anchored::Yes } else { Anchored::No };
    let input = Input::new(payload).span(start..payload.len()).anchored(anchored);
    // The search cannot fail, because no bytes are configured at which it would quit.
    dfa.try_search_fwd(&input).ok().flatten().map(|m| m.offset())
}
