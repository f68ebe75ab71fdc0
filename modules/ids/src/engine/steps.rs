//! Contents, regular expressions and numbers of one part of a rule, in order, with their distances.
//!
//! A step may be relative to the end of the one before. If a later step fails, the earlier ones try their
//! next position, until all match or the work for this packet is used up.

use super::grams;
use super::number::{Search, change, compare, jump, read};
use super::regex::{Caches, Regex};
use super::work::{COMPARE, COMPARE_BYTE, SCAN, STEP, Work};
use crate::rule::bytes::{self, Extract, Jump, Math, Test};
use crate::rule::content::Window;
use crate::rule::number::{MAX_VARS, Num};
use crate::rule::start::Start;
use crate::rule::{Dialect, Step};

/// The search for a content.
struct Find {
    /// The content, in lower case if case does not matter.
    bytes: Box<[u8]>,
    nocase: bool,
    /// The offset of a byte that is rare in payloads: its occurrences are compared.
    rare: usize,
}

enum Kind {
    Content { find: Find, window: Window },
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
    pub fn new(steps: &[Step], caches: &mut Caches, start: &mut Start) -> Result<Self, String> {
        let mut parts = Vec::with_capacity(steps.len());
        for (i, step) in steps.iter().enumerate() {
            let (kind, not) = match step {
                Step::Content(c) => {
                    let rare = (0..c.bytes.len()).min_by_key(|i| grams::frequency(c.bytes[*i])).unwrap_or(0);
                    let bytes = if c.nocase { c.bytes.to_ascii_lowercase() } else { c.bytes.clone() };
                    let find = Find { bytes: bytes.into(), nocase: c.nocase, rare };
                    (Kind::Content { find, window: c.window }, c.not)
                }
                Step::Pcre(p) => {
                    let regex = Box::new(Regex::new(p.compile(start)?, caches)?);
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
        work: &mut Work,
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
    let Some((part, rest)) = parts.split_first() else { return !search.work.is_used_up() };
    if !search.work.spend(STEP) {
        return false;
    }
    let payload = search.payload;
    match &part.kind {
        Kind::Data { at, relative } => {
            let at = search.value(*at);
            let end = if *relative { cursor as i64 + at } else { at };
            // Suricata allows a relative distance to end where the data do; Snort asks for a byte there.
            let least = i64::from(!*relative || search.dialect == Dialect::Snort);
            (end + least <= payload.len() as i64) != part.not && run(rest, cursor, search)
        }
        Kind::Content { find, window } => {
            let len = find.bytes.len();
            let Some((start, end)) = place(*window, cursor, len, search) else {
                return part.not && run(rest, cursor, search);
            };
            let mut from = start;
            while let Some(at) = next(find, payload, from, end, search.work) {
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
            part.not && run(rest, cursor, search)
        }
        Kind::Regex { regex, relative, anchored } => {
            let from = if *relative { cursor.min(payload.len()) } else { 0 };
            let Some(found) = regex.find(&payload[from..], 0, *anchored, search.caches, search.work) else {
                // Nothing matches once the work is used up.
                return part.not && run(rest, cursor, search);
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
            for start in 0..=payload.len() - from {
                let end = regex.find(&payload[from..], start, true, search.caches, search.work);
                if end.is_some_and(|end| run(rest, from + end, search)) {
                    return true;
                }
                if search.work.is_used_up() {
                    break;
                }
            }
            false
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

/// Returns the next position of a content at or after `from` that ends by `end`. There is none if the work is
/// used up.
fn next(find: &Find, payload: &[u8], from: usize, end: usize, work: &mut Work) -> Option<usize> {
    let within = payload.get(from..end)?;
    let places = within.len().checked_sub(find.bytes.len())?;
    let rare = *find.bytes.get(find.rare)?;
    let bytes = within.get(find.rare..=find.rare + places)?;
    let mut at = 0;
    loop {
        let rest = bytes.get(at..)?;
        let found = match find.nocase {
            true => memchr::memchr2(rare, rare.to_ascii_uppercase(), rest),
            false => memchr::memchr(rare, rest),
        };
        let searched = found.unwrap_or(rest.len());
        if !work.spend_each(searched / 16 + 2, SCAN) {
            return None;
        }
        at += found?;
        let same = common(&within[at..], find);
        if !work.spend(COMPARE + COMPARE_BYTE * same as u32) {
            return None;
        }
        if same == find.bytes.len() {
            return Some(from + at);
        }
        at += 1;
    }
}

/// Returns how many of a content's bytes are the first ones here.
#[inline]
fn common(here: &[u8], find: &Find) -> usize {
    let pairs = here.iter().zip(&find.bytes);
    match find.nocase {
        true => pairs.take_while(|(a, b)| a.to_ascii_lowercase() == **b).count(),
        false => pairs.take_while(|(a, b)| a == b).count(),
    }
}
