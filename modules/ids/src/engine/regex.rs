//! Regular expressions as automata whose states are built as payloads need them.
//!
//! Each expression is bounded by the size of its NFA when rules are loaded. Each state that a search builds
//! is work of the packet. The states lie in caches of limited size that all expressions share, so memory does
//! not grow with the number of rules.

use super::work::{BUILD, BUILD_BYTE, BUILD_EMPTY, BUILD_NFA, CACHE, REGEX_BYTE, SEARCH, Work};
use crate::rule::pcre::Compiled;
use regex_automata::hybrid::LazyStateID;
use regex_automata::hybrid::dfa::{Cache, Config, DFA};
use regex_automata::{Anchored, Input, MatchKind};

/// The largest size of one cache in bytes.
const MOST_CACHE: usize = 1 << 20;
/// The largest size of all caches in bytes, apart from the one in use, and their largest number.
const MOST_CACHES: usize = 16 << 20;
const CACHES: usize = 256;
/// The number of steps that filling a cache once takes, about.
const FILLING: usize = 1 << 20;
/// The number after those of all bytes, which stands for the end of a payload.
const END: usize = 256;
/// No cache.
const NONE: u32 = u32::MAX;

pub struct Regex {
    dfa: DFA,
    /// The number of this expression among those of the rule set.
    number: u32,
    /// The least work of building one state.
    build: u32,
    /// The size in bytes of a state without its description.
    row: usize,
    /// Whether a match may also end before a newline that is the last byte.
    before_newline: bool,
}

/// The states of an expression that were built.
struct Kept {
    number: u32,
    /// The time of the last use.
    used: u64,
    cache: Cache,
    /// The size of the cache in bytes after its last use.
    bytes: usize,
    /// About the size in bytes of the descriptions of the latest states.
    size: usize,
    /// The state whose transition was asked for last for each byte, and for the end, as long as the cache
    /// was cleared `clears` times. Of other transitions of a matching state it is unknown whether they were
    /// built.
    seen: Box<[LazyStateID; END + 1]>,
    clears: usize,
}

/// The caches of all expressions.
#[derive(Default)]
pub struct Caches {
    all: Vec<Kept>,
    /// The index of each expression's cache.
    slots: Vec<u32>,
    now: u64,
    /// The size of all caches in bytes.
    bytes: usize,
}

impl Regex {
    /// Prepares an expression. The error is the reason why it is not supported.
    pub fn new(compiled: Compiled, caches: &mut Caches) -> Result<Self, String> {
        let Compiled { nfa, before_newline } = compiled;
        // A state takes a transition for each class of bytes, and the NFA's states in it.
        let states = nfa.states().len();
        let config = Config::new().match_kind(MatchKind::LeftmostFirst);
        let least = config.get_minimum_cache_capacity(&nfa).unwrap_or(usize::MAX);
        let built = (FILLING / states.max(1)).clamp(64, 4096);
        // Its identifier is kept three times, and a header describes it.
        let row = (4 << nfa.byte_classes().stride2()) + 5 * size_of::<usize>() + 9;
        let capacity = built * ((4 << nfa.byte_classes().stride2()) + states.min(64) * 4 + 64);
        if least > MOST_CACHE {
            return Err(Compiled::too_large());
        }
        let config = config.cache_capacity((least + capacity).min(MOST_CACHE));
        let dfa = DFA::builder().configure(config).build_from_nfa(nfa).map_err(|_| Compiled::too_large())?;
        let number = caches.slots.len() as u32;
        caches.slots.push(NONE);
        let empty = dfa.get_nfa().states().iter().filter(|state| state.is_epsilon()).count();
        let build = BUILD + states as u32 * BUILD_NFA + empty as u32 * BUILD_EMPTY;
        Ok(Self { dfa, number, before_newline, build, row })
    }

    /// Returns the end of the first match in `payload` from `start` on, at which it begins if `anchored`.
    /// There is none if the work is used up.
    pub fn find(
        &self,
        payload: &[u8],
        start: usize,
        anchored: bool,
        caches: &mut Caches,
        work: &mut Work,
    ) -> Option<usize> {
        if !work.spend(SEARCH) {
            return None;
        }
        let at = caches.of(self, work)?;
        let kept = &mut caches.all[at];
        let found = self.search(payload, start, anchored, kept, work).or_else(|| {
            let before =
                payload.strip_suffix(b"\n").filter(|before| self.before_newline && start <= before.len());
            self.search(before?, start, anchored, kept, work)
        });
        let bytes = kept.cache.memory_usage();
        caches.bytes = caches.bytes - kept.bytes + bytes;
        kept.bytes = bytes;
        found
    }

    fn search(
        &self,
        payload: &[u8],
        start: usize,
        anchored: bool,
        kept: &mut Kept,
        work: &mut Work,
    ) -> Option<usize> {
        let anchored = if anchored { Anchored::Yes } else { Anchored::No };
        let input = Input::new(payload).span(start..payload.len()).anchored(anchored);
        let before = kept.cache.memory_usage();
        // No search gives up, because the cache may be cleared any number of times.
        let mut state = self.dfa.start_state_forward(&mut kept.cache, &input).ok()?;
        if kept.cache.memory_usage() != before && !(work.spend(self.build) && self.pay(kept, before, work)) {
            return None;
        }
        let (mut at, mut found) = (start, None);
        loop {
            if state.is_match() {
                // A state knows of a match one byte late.
                found = Some(at - 1);
            } else if state.is_dead() {
                return found;
            }
            if at == payload.len() {
                break;
            }
            let from = at;
            // The state whose transition may not be built yet.
            let previous = if state.is_match() {
                at += 1;
                Some(state)
            } else {
                let previous;
                (previous, state, at) = run(&self.dfa, &kept.cache, payload, at, state);
                state.is_unknown().then_some(previous)
            };
            if !work.spend_each(at - from, REGEX_BYTE) {
                return None;
            }
            if let Some(previous) = previous {
                state = self.step(kept, Some(payload[at - 1]), previous, work)?;
            }
        }
        let state = self.step(kept, None, state, work)?;
        if state.is_match() { Some(payload.len()) } else { found }
    }

    /// Returns the state after another one and a byte, or the end. Builds it if need be.
    #[inline(never)]
    fn step(
        &self,
        kept: &mut Kept,
        byte: Option<u8>,
        state: LazyStateID,
        work: &mut Work,
    ) -> Option<LazyStateID> {
        let by = byte.map_or(END, usize::from);
        if kept.cache.clear_count() != kept.clears {
            kept.clears = kept.cache.clear_count();
            kept.seen.fill(LazyStateID::default());
        }
        let is_known = std::mem::replace(&mut kept.seen[by], state) == state;
        if !work.spend(if is_known { SEARCH } else { self.build }) {
            return None;
        }
        let before = kept.cache.memory_usage();
        let next = match byte {
            Some(byte) => self.dfa.next_state(&mut kept.cache, state, byte).ok(),
            None => self.dfa.next_eoi_state(&mut kept.cache, state).ok(),
        };
        next.filter(|_| is_known || self.pay(kept, before, work))
    }

    /// Charges the description of a state that was built, after which the cache was larger than `before`, and
    /// returns whether there was work left. A state that was there already is taken to be as large as the
    /// latest ones.
    fn pay(&self, kept: &mut Kept, before: usize, work: &mut Work) -> bool {
        let grown = kept.cache.memory_usage().saturating_sub(before).saturating_sub(self.row);
        if grown == 0 {
            return work.spend_each(kept.size, BUILD_BYTE);
        }
        kept.size = grown.max(kept.size / 2);
        work.spend_each(grown, BUILD_BYTE)
    }
}

/// Follows the transitions that were built. Returns the state before the last byte, the state after it, and
/// the offset there. A loop of its own, because an iteration pays for all instructions in it.
#[inline(never)]
fn run(
    dfa: &DFA,
    cache: &Cache,
    payload: &[u8],
    mut at: usize,
    mut state: LazyStateID,
) -> (LazyStateID, LazyStateID, usize) {
    let mut previous = state;
    while let Some(byte) = payload.get(at) {
        previous = state;
        state = dfa.next_state_untagged(cache, state, *byte);
        at += 1;
        if state.is_tagged() {
            break;
        }
    }
    (previous, state, at)
}

impl Caches {
    /// Returns the index of the cache of an expression: its own, or a new one for which those that were not
    /// used for longest make room.
    fn of(&mut self, regex: &Regex, work: &mut Work) -> Option<usize> {
        self.now += 1;
        let slot = self.slots[regex.number as usize];
        if slot != NONE {
            self.all[slot as usize].used = self.now;
            return Some(slot as usize);
        }
        // What is thrown away was paid for when it was built.
        if !work.spend(CACHE.saturating_add(regex.build)) {
            return None;
        }
        while self.bytes > MOST_CACHES - MOST_CACHE || self.all.len() == CACHES {
            self.throw_oldest();
        }
        let cache = regex.dfa.create_cache();
        let (bytes, clears) = (cache.memory_usage(), cache.clear_count());
        let seen = Box::new([LazyStateID::default(); END + 1]);
        self.all.push(Kept { number: regex.number, used: self.now, cache, bytes, size: 0, seen, clears });
        self.bytes += bytes;
        let slot = self.all.len() - 1;
        self.slots[regex.number as usize] = slot as u32;
        Some(slot)
    }

    fn throw_oldest(&mut self) {
        let oldest = self.all.iter().enumerate().min_by_key(|(_, kept)| kept.used);
        let Some(slot) = oldest.map(|(slot, _)| slot) else { return };
        let gone = self.all.swap_remove(slot);
        self.bytes -= gone.bytes;
        self.slots[gone.number as usize] = NONE;
        if let Some(moved) = self.all.get(slot) {
            self.slots[moved.number as usize] = slot as u32;
        }
    }
}
