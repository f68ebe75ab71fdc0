//! A prefilter for rules with contents: a search for one pattern of each rule. Case does not matter here; the
//! check of the rule itself is exact.
//!
//! A few patterns, and those of less than four bytes, form an automaton (Aho and Corasick 1975) after the
//! SDK's vector scan; many are searched by [`Grams`].

use super::gate::{self, Gate};
use super::grams::{GRAM, Grams};
use super::work::{BYTE, HIT, Work};
use crate::rule::Step;
use aho_corasick::Anchored;
use aho_corasick::automaton::Automaton;
use aho_corasick::dfa::DFA;
use flame_module::Scan;
use std::collections::BTreeMap;

/// The number of bytes of a pattern that are searched for.
const MOST: usize = 64;
/// The number of those that an automaton takes.
const MOST_TABLE: usize = 16;
/// The total size of patterns, in bytes, up to which they form an automaton, of at most 1 KiB for each byte.
const TABLE: usize = 4096;

/// Returns the part of contents to search for, or `None` if the gate of the rule is more selective, all
/// contents are negated, or a buffer of their own holds the contents (then there is no gate).
pub fn pattern<'a>(
    steps: impl DoubleEndedIterator<Item = &'a Step> + Clone,
    gate: Option<&Gate>,
) -> Option<Vec<u8>> {
    let contents = steps.filter_map(|s| match s {
        Step::Content(c) if !c.not => Some(c),
        _ => None,
    });
    let chosen = match contents.clone().find(|c| c.fast.is_some()) {
        Some(chosen) => chosen,
        // The longest one, and the first among equals.
        None => {
            let anywhere = contents.filter(|c| gate.is_none() || !gate::holds(c));
            let least = gate.map_or(0, |gate| gate.bytes as usize);
            anywhere.rev().max_by_key(|c| c.bytes.len()).filter(|c| c.bytes.len() > least)?
        }
    };
    let (from, len) = chosen.fast.unwrap_or((0, chosen.bytes.len()));
    let bytes = chosen.bytes.get(from..from + len)?;
    Some(bytes[..bytes.len().min(MOST)].to_ascii_lowercase())
}

/// Returns the offset in a content at which the scan should begin: its three bytes there should be rare, and
/// enough bytes must follow.
fn rarest(bytes: &[u8]) -> usize {
    let rank = |b: &u8| match b.to_ascii_lowercase() {
        0 => 0,
        b' ' | b'\r' | b'\n' | 0xff => 1,
        b'a' | b'c' | b'd' | b'e' | b'h' | b'i' | b'l' | b'm' | b'n' | b'o' | b'p' | b'r' | b's' | b't'
        | b'u' => 2,
        b'.' | b'/' | b':' | b'-' | b'=' | b'0'..=b'9' => 3,
        _ => 5,
    };
    let last = bytes.len().saturating_sub(5);
    let score = |at: usize| bytes[at..].iter().take(3).map(rank).sum::<u32>();
    // The first of the best offsets.
    (0..=last).rev().max_by_key(|at| score(*at)).unwrap_or(0)
}

/// The patterns that form an automaton.
struct Table {
    scan: Scan,
    automaton: DFA,
    /// The rules by pattern: a range of [`Fast::rules`].
    patterns: Vec<(u32, u32)>,
}

/// The patterns that [`Grams`] searches.
struct Many {
    grams: Grams,
    patterns: Vec<(u32, u32)>,
}

/// The rules with contents of one group or buffer.
#[derive(Default)]
pub struct Fast {
    table: Option<Table>,
    many: Option<Many>,
    rules: Vec<u32>,
}

impl Fast {
    /// Creates the prefilter of rules, each given by its number and pattern.
    pub fn new(rules: impl IntoIterator<Item = (u32, Vec<u8>)>) -> Self {
        let mut by_pattern: BTreeMap<Vec<u8>, Vec<u32>> = BTreeMap::new();
        for (rule, pattern) in rules {
            by_pattern.entry(pattern).or_default().push(rule);
        }
        let bytes: usize = by_pattern.keys().map(|p| p.len().min(MOST_TABLE)).sum();
        let mut fast = Self::default();
        let (mut few, mut few_rules) = (Vec::new(), Vec::new());
        let (mut many, mut many_rules) = (Vec::new(), Vec::new());
        for (pattern, rules) in by_pattern {
            let start = fast.rules.len() as u32;
            fast.rules.extend(rules);
            let range = (start, fast.rules.len() as u32);
            if bytes > TABLE && pattern.len() >= GRAM {
                many.push(pattern);
                many_rules.push(range);
            } else {
                let start = rarest(&pattern);
                few.push(pattern[start..pattern.len().min(start + MOST_TABLE)].to_vec());
                few_rules.push(range);
            }
        }
        if !few.is_empty() {
            // At most 16 KiB of patterns, or all patterns of up to three bytes: neither is beyond its limits.
            let automaton = DFA::builder().ascii_case_insensitive(true).build(&few);
            let scan = Scan::new(few.iter().map(|p| (p.as_slice(), true)));
            fast.table = automaton.ok().map(|automaton| Table { scan, automaton, patterns: few_rules });
            assert!(fast.table.is_some(), "the automaton of so few patterns is small");
        }
        if !many.is_empty() {
            let grams = Grams::new(many.iter().map(Vec::as_slice));
            fast.many = Some(Many { grams, patterns: many_rules });
        }
        fast
    }

    /// Calls `hit` with the number of each rule whose pattern occurs, with some more than once, as long as
    /// there is work left.
    #[inline]
    pub fn find(&self, payload: &[u8], work: &mut Work, mut hit: impl FnMut(u32)) {
        if let Some(table) = &self.table {
            table.run(payload, work, |pattern, work| self.rules_of(table.patterns[pattern], work, &mut hit));
        }
        if let Some(many) = &self.many {
            many.grams.find(payload, work, |number, work| {
                self.rules_of(many.patterns[number as usize], work, &mut hit)
            });
        }
    }

    #[inline]
    fn rules_of(&self, (start, end): (u32, u32), work: &mut Work, hit: &mut impl FnMut(u32)) -> bool {
        let rules = &self.rules[start as usize..end as usize];
        let is_left = work.spend_each(rules.len(), HIT);
        if is_left {
            rules.iter().for_each(|rule| hit(*rule));
        }
        is_left
    }
}

impl Table {
    /// Calls `hit` with each pattern that occurs until it returns false.
    #[inline]
    fn run(&self, payload: &[u8], work: &mut Work, mut hit: impl FnMut(usize, &mut Work) -> bool) {
        let automaton = &self.automaton;
        let Ok(start) = automaton.start_state(Anchored::No) else { return };
        if !work.spend_each(payload.len() / 16 + 1, BYTE) {
            return;
        }
        let (mut state, mut i, mut steps) = (start, 0, 0);
        loop {
            if state == start {
                i = self.scan.next(payload, i);
            }
            let Some(byte) = payload.get(i) else { break };
            state = automaton.next_state(Anchored::No, state, *byte);
            (i, steps) = (i + 1, steps + 1);
            // Dead and matching states are the special ones; a search for all matches never reaches a dead
            // state.
            if automaton.is_special(state) && automaton.is_match(state) {
                if !work.spend_each(steps, BYTE) {
                    return;
                }
                steps = 0;
                for n in 0..automaton.match_len(state) {
                    if !hit(automaton.match_pattern(state, n).as_usize(), work) {
                        return;
                    }
                }
            }
        }
        work.spend_each(steps, BYTE);
    }
}
