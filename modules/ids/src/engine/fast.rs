//! A prefilter for rules with contents: one automaton over a fast pattern of each rule (Aho and Corasick
//! 1975), after the SDK's vector scan. Case does not matter here; the check of the rule itself is exact.

use super::gate::{self, Gate};
use crate::rule::{Rule, Step};
use aho_corasick::Anchored;
use aho_corasick::automaton::Automaton;
use aho_corasick::dfa::DFA;
use aho_corasick::nfa::contiguous::NFA;
use flame_module::Scan;
use std::collections::BTreeMap;

/// The number of bytes of a pattern that are searched for.
const MOST: usize = 16;
/// The total size of all patterns, in bytes, up to which the automaton is a table, of at most 1 KiB for each
/// byte.
const TABLE: usize = 16_384;

/// Returns the part of a rule's contents to search for, or `None` if its gate is more selective or all
/// contents are negated.
pub fn pattern(rule: &Rule, gate: &Gate) -> Option<Vec<u8>> {
    let contents = rule.steps.iter().filter_map(|s| match s {
        Step::Content(c) if !c.not => Some(c),
        _ => None,
    });
    let chosen = match contents.clone().find(|c| c.fast.is_some()) {
        Some(chosen) => chosen,
        // The longest one, and the first among equals.
        None => {
            let anywhere = contents.filter(|c| !gate::holds(c));
            anywhere.rev().max_by_key(|c| c.bytes.len()).filter(|c| c.bytes.len() > gate.bytes as usize)?
        }
    };
    let (from, len) = chosen.fast.unwrap_or((0, chosen.bytes.len()));
    let bytes = chosen.bytes.get(from..from + len)?;
    let start = if chosen.fast.is_some() { 0 } else { rarest(bytes) };
    Some(bytes[start..bytes.len().min(start + MOST)].to_ascii_lowercase())
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

enum Search {
    Table(DFA),
    Links(NFA),
}

/// The rules with contents of one group.
pub struct Fast {
    scan: Scan,
    search: Option<Search>,
    /// The numbers of the rules, by pattern.
    rules: Vec<Vec<u16>>,
}

impl Fast {
    /// Creates the prefilter of rules, each given by its number and pattern.
    pub fn new(rules: impl IntoIterator<Item = (u16, Vec<u8>)>) -> Self {
        let mut by_pattern: BTreeMap<Vec<u8>, Vec<u16>> = BTreeMap::new();
        for (rule, pattern) in rules {
            by_pattern.entry(pattern).or_default().push(rule);
        }
        let patterns = || by_pattern.keys().map(Vec::as_slice);
        let bytes: usize = patterns().map(<[u8]>::len).sum();
        let search = if by_pattern.is_empty() {
            None
        } else if bytes <= TABLE {
            DFA::builder().ascii_case_insensitive(true).build(patterns()).ok().map(Search::Table)
        } else {
            NFA::builder().ascii_case_insensitive(true).build(patterns()).ok().map(Search::Links)
        };
        let scan = Scan::new(patterns().map(|p| (p, true)));
        assert!(
            search.is_some() || by_pattern.is_empty(),
            "the limits of a rule file keep the automaton small"
        );
        Self { scan, search, rules: by_pattern.into_values().collect() }
    }

    /// Calls `hit` with the number of each rule whose pattern occurs, with some more than once.
    #[inline]
    pub fn find(&self, payload: &[u8], hit: impl FnMut(u16)) {
        match &self.search {
            Some(Search::Table(a)) => self.run(a, payload, hit),
            Some(Search::Links(a)) => self.run(a, payload, hit),
            None => {}
        }
    }

    fn run<A: Automaton>(&self, automaton: &A, payload: &[u8], mut hit: impl FnMut(u16)) {
        let Ok(start) = automaton.start_state(Anchored::No) else { return };
        let (mut state, mut i) = (start, 0);
        loop {
            if state == start {
                i = self.scan.next(payload, i);
            }
            let Some(byte) = payload.get(i) else { return };
            state = automaton.next_state(Anchored::No, state, *byte);
            i += 1;
            // Dead and matching states are the special ones; a search for all matches never reaches a dead
            // state.
            if automaton.is_special(state) && automaton.is_match(state) {
                for n in 0..automaton.match_len(state) {
                    let pattern = automaton.match_pattern(state, n).as_usize();
                    self.rules[pattern].iter().for_each(|rule| hit(*rule));
                }
            }
        }
    }
}
