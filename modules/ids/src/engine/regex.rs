//! Regular expressions as automata whose states are built as payloads need them.
//!
//! Each expression is bounded by itself: by the size of its NFA when rules are loaded, and by the number of
//! states that one search may build. The states lie in a few caches that all expressions share, so memory
//! does not grow with the number of rules.

use crate::rule::pcre::Pcre;
use regex_automata::hybrid::dfa::{Cache, Config, DFA};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind};

/// The largest size of one expression's NFA in bytes.
const MOST_NFA: usize = 256 << 10;
/// The largest size of one cache in bytes.
const MOST_CACHE: usize = 1 << 20;
/// The number of caches.
const CACHES: usize = 16;
/// The largest number of steps that filling a cache once takes, about.
const FILLING: usize = 1 << 18;
/// The number of times that one search may clear its cache, unless each state serves many bytes.
const CLEARS: usize = 2;
const BYTES_PER_STATE: usize = 16;

pub struct Regex {
    dfa: DFA,
    /// The number of this expression among those of the rule set.
    number: u32,
}

/// The caches, with the numbers of the expressions that use them and the times of the last use.
#[derive(Default)]
pub struct Caches {
    all: Vec<(u32, u64, Cache)>,
    now: u64,
    /// The number of expressions so far.
    count: u32,
}

impl Regex {
    /// Prepares an expression. The error says why it is not supported.
    pub fn new(pcre: &Pcre, caches: &mut Caches) -> Result<Self, String> {
        let hir = match syntax::parse_with(&pcre.pattern, &pcre.syntax()) {
            Ok(hir) => hir,
            Err(e) => return Err(format!("pcre syntax: {}", last_line(&e.to_string()))),
        };
        let large = || format!("pcre too large: its automaton is beyond {} KiB", MOST_NFA >> 10);
        let config = thompson::Config::new()
            .utf8(false)
            .nfa_size_limit(Some(MOST_NFA))
            .which_captures(thompson::WhichCaptures::None);
        let nfa = thompson::Compiler::new().configure(config).build_from_hir(&hir).map_err(|_| large())?;
        // A state takes a transition for each class of bytes, and the NFA's states in it.
        let states = nfa.states().len();
        let config = Config::new()
            .match_kind(MatchKind::LeftmostFirst)
            .minimum_cache_clear_count(Some(CLEARS))
            .minimum_bytes_per_state(Some(BYTES_PER_STATE));
        let least = config.get_minimum_cache_capacity(&nfa).map_err(|_| large())?;
        let built = (FILLING / states.max(1)).clamp(64, 4096);
        let capacity = least + built * ((4 << nfa.byte_classes().stride2()) + states.min(64) * 4 + 64);
        if least > MOST_CACHE {
            return Err(large());
        }
        let config = config.cache_capacity(capacity.min(MOST_CACHE).max(least));
        let dfa = DFA::builder().configure(config).build_from_nfa(nfa).map_err(|_| large())?;
        let number = caches.count;
        caches.count += 1;
        Ok(Self { dfa, number })
    }

    /// Returns the end of the first match in `payload` from `start` on, at which it begins if `anchored`. The
    /// error is that the search would take too long.
    pub fn find(
        &self,
        payload: &[u8],
        start: usize,
        anchored: bool,
        caches: &mut Caches,
    ) -> Result<Option<usize>, ()> {
        let cache = caches.of(self);
        let anchored = if anchored { Anchored::Yes } else { Anchored::No };
        let input = Input::new(payload).span(start..payload.len()).anchored(anchored);
        match self.dfa.try_search_fwd(cache, &input) {
            Ok(found) => Ok(found.map(|m| m.offset())),
            // No bytes are configured at which it would quit, so it gave up.
            Err(_) => Err(()),
        }
    }
}

impl Caches {
    /// Returns the cache of an expression: its own, or the one that was not used for longest.
    fn of(&mut self, regex: &Regex) -> &mut Cache {
        self.now += 1;
        let own = self.all.iter().position(|(number, _, _)| *number == regex.number);
        let at = match own {
            Some(at) => at,
            None if self.all.len() < CACHES => {
                self.all.push((regex.number, 0, regex.dfa.create_cache()));
                self.all.len() - 1
            }
            None => {
                let oldest = self.all.iter().enumerate().min_by_key(|(_, (_, used, _))| *used);
                let at = oldest.map_or(0, |(at, _)| at);
                // A new cache, because the old one's memory fits another automaton.
                (self.all[at].0, self.all[at].2) = (regex.number, regex.dfa.create_cache());
                at
            }
        };
        self.all[at].1 = self.now;
        &mut self.all[at].2
    }
}

/// Returns the last line of the parser's message, which describes the error; the lines above draw the
/// pattern.
fn last_line(text: &str) -> String {
    text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}
