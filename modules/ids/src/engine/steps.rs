//! Contents, regular expressions and numbers of one part of a rule, in order, with their distances.
//!
//! A step may be relative to the end of the one before. If a later step fails, the earlier ones try their
//! next position, until all match or the work for this packet is used up.

use super::number::{Search, change, compare, jump, read};
use super::regex::{Caches, Regex};
use crate::rule::bytes::{self, Extract, Jump, Math, Test};
use crate::rule::content::Window;
use crate::rule::number::{MAX_VARS, Num};
use crate::rule::{Dialect, Step};
use memchr::memmem::Finder;

/// The work for one packet, in units of one position tried or 16 bytes searched.
pub const WORK: u32 = 1 << 18;

enum Find {
    Exact(Box<Finder<'static>>),
    /// A content in lower case.
    Nocase(Box<[u8]>),
}

enum Kind {
    Content { find: Find, len: usize, window: Window },
    Regex { regex: Box<Regex>, relative: bool, anchored: bool },
    Data { at: Num, relative: bool },
    Test(Test),
    Jump(Jump),
    Extract(Extract),
    Math(Math),
}

struct Part {
    kind: Kind,
    not: bool,
    /// Whether a later part is relative to the end of this one.
    leads: bool,
}

/// The steps of a part of a rule, ready to run.
#[derive(Default)]
pub struct Steps {
    parts: Box<[Part]>,
}

impl Steps {
    /// Prepares steps. The error states the one that is not supported.
    pub fn new(steps: &[Step], caches: &mut Caches) -> Result<Self, String> {
        let mut parts = Vec::with_capacity(steps.len());
        for (i, step) in steps.iter().enumerate() {
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
                    let regex = Box::new(Regex::new(p, caches)?);
                    (Kind::Regex { regex, relative: p.relative, anchored: p.anchored }, p.not)
                }
                Step::Data { at, relative, not } => (Kind::Data { at: *at, relative: *relative }, *not),
                Step::Test(test) => (Kind::Test(*test), false),
                Step::Jump(jump) => (Kind::Jump(*jump), false),
                Step::Extract(extract) => (Kind::Extract(*extract), false),
                Step::Math(math) => (Kind::Math(*math), false),
            };
            parts.push(Part { kind, not, leads: leads(&steps[i + 1..]) });
        }
        Ok(Self { parts: parts.into() })
    }

    /// Returns whether all steps match; `work` is the remaining work for this packet.
    #[inline]
    pub fn fit(
        &self,
        payload: &[u8],
        dialect: Dialect,
        vars: &mut [u64; MAX_VARS],
        caches: &mut Caches,
        work: &mut u32,
    ) -> bool {
        run(&self.parts, 0, &mut Search { payload, dialect, vars, caches, work })
    }
}

/// Returns whether the position of one of these steps depends on the steps before.
fn leads(later: &[Step]) -> bool {
    for step in later {
        match step {
            Step::Content(c) if c.window.relative => return true,
            Step::Pcre(p) if p.relative => return true,
            Step::Data { relative: true, .. } => return true,
            Step::Test(Test { field, .. }) if field.relative => return true,
            Step::Jump(Jump { field, .. })
            | Step::Extract(Extract { field, .. })
            | Step::Math(Math { field, .. }) => return field.relative,
            Step::Content(c) if !c.not => return false,
            Step::Pcre(p) if !p.not => return false,
            _ => {}
        }
    }
    false
}

/// Returns whether these parts match, where `cursor` is the end of the part before.
fn run(parts: &[Part], cursor: usize, search: &mut Search<'_>) -> bool {
    let Some((part, rest)) = parts.split_first() else { return true };
    let payload = search.payload;
    match &part.kind {
        Kind::Data { at, relative } => {
            let at = search.value(*at);
            let end = if *relative { cursor as i64 + at } else { at };
            // Suricata allows a relative distance to end where the data do; Snort asks for a byte there.
            let least = i64::from(!*relative || search.dialect == Dialect::Snort);
            (end + least <= payload.len() as i64) != part.not && run(rest, cursor, search)
        }
        Kind::Content { find, len, window } => {
            let Some((start, end)) = place(*window, cursor, *len, search) else {
                return part.not && run(rest, cursor, search);
            };
            let mut from = start;
            while let Some(at) = next(find, *len, payload, from, end, search.work) {
                if part.not {
                    return false;
                }
                if run(rest, at + len, search) {
                    return true;
                }
                if !part.leads {
                    return false;
                }
                from = at + 1;
            }
            part.not && *search.work > 0 && run(rest, cursor, search)
        }
        Kind::Regex { regex, relative, anchored } => {
            let from = if *relative { cursor.min(payload.len()) } else { 0 };
            let Some(found) = find_regex(regex, &payload[from..], 0, *anchored, search) else {
                return part.not && *search.work > 0 && run(rest, cursor, search);
            };
            if part.not {
                return false;
            }
            if run(rest, from + found, search) {
                return true;
            }
            if !part.leads || *anchored {
                return false;
            }
            // Each start position may have another end.
            (0..=payload.len() - from).any(|start| {
                let end = find_regex(regex, &payload[from..], start, true, search);
                end.is_some_and(|end| run(rest, from + end, search))
            })
        }
        Kind::Test(test) => {
            let Some((found, _)) = read(&test.field, cursor, search) else { return false };
            let value = search.unsigned(test.value);
            compare(test.compare, found, value) != test.not && run(rest, cursor, search)
        }
        Kind::Jump(to) => jump(to, cursor, search).is_some_and(|cursor| run(rest, cursor, search)),
        Kind::Extract(extract) => {
            let Some((found, end)) = read(&extract.field, cursor, search) else { return false };
            let found = found.wrapping_mul(extract.multiplier);
            search.vars[usize::from(extract.var)] =
                found.checked_next_multiple_of(extract.align).unwrap_or(found);
            run(rest, end, search)
        }
        Kind::Math(math) => {
            let field = bytes::Field { mask: None, ..math.field };
            let Some((found, end)) = read(&field, cursor, search) else { return false };
            let Some(value) = change(math, found, search.unsigned(math.right)) else { return false };
            search.vars[usize::from(math.var)] = value;
            run(rest, end, search)
        }
    }
}

/// Returns the range of bytes in which the whole content must lie, if there is one.
fn place(window: Window, cursor: usize, size: usize, search: &Search<'_>) -> Option<(usize, usize)> {
    let len = search.payload.len() as i64;
    let base = if window.relative { cursor as i64 } else { 0 };
    let from = base.saturating_add(search.value(window.from));
    let end = window.len.map_or(len, |n| from.saturating_add(search.value(n)).min(len));
    if !window.to_end {
        return Some((from.max(0) as usize, end.max(0) as usize));
    }
    (end == len).then(|| (from.max(len - size as i64).max(0) as usize, end as usize))
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

/// Subtracts from the work and returns whether enough was left.
pub fn spend(work: &mut u32, bytes: usize) -> bool {
    let left = work.checked_sub(1 + (bytes / 16) as u32);
    *work = left.unwrap_or(0);
    left.is_some()
}

/// Returns the end of the first match from `start` on.
fn find_regex(
    regex: &Regex,
    payload: &[u8],
    start: usize,
    anchored: bool,
    search: &mut Search<'_>,
) -> Option<usize> {
    if !spend(search.work, payload.len() - start) {
        return None;
    }
    match regex.find(payload, start, anchored, search.caches) {
        Ok(found) => found,
        Err(()) => {
            *search.work = 0;
            None
        }
    }
}
