//! One automaton (Aho and Corasick 1975) over all patterns, and its state between segments.
//!
//! A segment that ends inside a pattern leaves the state of the automaton, under its flow's direction and the
//! expected sequence number. Any other next segment begins anew.

use crate::signature::Signature;
use aho_corasick::Anchored;
use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::dfa::DFA;
use flame_module::{Hashed, Ip, Map, Scan, cold, mix};

/// The destination of a payload.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub proto: u8,
    pub dport: u16,
}

struct Rule {
    worm: u16,
    proto: u8,
    port: Option<u16>,
    offset: Option<u32>,
    len: u32,
}

/// A TCP direction in the middle of a pattern.
#[derive(Clone, Copy, Default)]
struct Pending {
    seq: u32,
    state: u32,
    /// The number of bytes of its last segment: a pattern may have begun there, but not before.
    before: u32,
}

/// The largest number of states with a pattern in one payload, and of patterns checked for them. More are
/// ignored, and counted.
pub const MOST_MATCHES: usize = 32;
const MOST_PATTERNS: usize = 64;

/// The matches of the automaton in a payload.
struct Matches {
    /// The state of each match, and the offset after it.
    found: [(StateID, u32); MOST_MATCHES],
    len: usize,
}

impl Matches {
    fn add(&mut self, state: StateID, end: usize) {
        if let Some(place) = self.found.get_mut(self.len) {
            *place = (state, end as u32);
        }
        self.len += 1;
    }
}

/// The number of bytes that are scanned together.
const BLOCK: usize = 16;

pub struct Search {
    /// The scan for positions where a pattern may begin, from which the automaton continues.
    scan: Scan,
    automaton: DFA,
    start: StateID,
    rules: Vec<Rule>,
    pending: Map<Hashed, Pending>,
    /// The number of states that were kept: the time in `pending`, so that the oldest one is evicted.
    kept: u64,
    /// The number of payloads with more matches than were checked.
    pub crowded: u64,
    /// Names by number, in the order of the list.
    pub names: Vec<String>,
}

impl Search {
    /// Builds the automaton of the patterns. `max_pending` is the number of directions of connections that
    /// may wait for their next segment, rounded up to a power of two.
    ///
    /// # Panics
    ///
    /// Panics if the patterns exceed the limits of [`parse`](crate::signature::parse) so far that the
    /// automaton does not fit into memory.
    pub fn new(signatures: &[Signature], max_pending: usize) -> Self {
        let (names, worms) = crate::signature::names(signatures);
        let rules = signatures
            .iter()
            .zip(worms)
            .map(|(s, worm)| {
                let len = s.pattern.len() as u32;
                Rule { worm, proto: s.proto, port: s.port, offset: s.offset, len }
            })
            .collect();
        let patterns = signatures.iter().map(|s| &s.pattern);
        let scan = Scan::new(patterns.clone().map(|p| (&p[..], false)));
        let automaton = DFA::new(patterns).expect("the list's limits keep the automaton small");
        let start = automaton.start_state(Anchored::No).expect("it searches anywhere");
        let pending = Map::new(max_pending);
        Self { scan, automaton, start, rules, pending, kept: 0, crowded: 0, names }
    }

    /// Returns the number of states that were evicted.
    pub fn dropped(&self) -> u64 {
        self.pending.evicted
    }

    pub fn datagram(&mut self, place: Place, payload: &[u8], hit: &mut impl FnMut(u16)) {
        self.run(place, self.start, 0, payload, hit);
    }

    /// Searches a segment of the direction `flow` that begins at `seq`.
    pub fn segment(&mut self, place: Place, flow: u64, seq: u32, payload: &[u8], hit: &mut impl FnMut(u16)) {
        let expected = self.pending.remove(Hashed(flow)).filter(|pending| pending.seq == seq);
        let (state, before) =
            expected.map_or((self.start, 0), |p| (StateID::new_unchecked(p.state as usize), p.before));
        let state = self.run(place, state, before, payload, hit);
        if state == self.start {
            return;
        }
        cold();
        self.kept += 1;
        let before = payload.len() as u32;
        let pending = Pending { seq: seq.wrapping_add(before), state: state.as_u32(), before };
        self.pending.insert(Hashed(flow), self.kept, pending);
    }

    /// Runs the automaton over `payload`, which `before` bytes preceded, and returns the final state.
    fn run(
        &mut self,
        place: Place,
        mut state: StateID,
        before: u32,
        payload: &[u8],
        hit: &mut impl FnMut(u16),
    ) -> StateID {
        let mut matches = Matches { found: [(state, 0); MOST_MATCHES], len: 0 };
        let mut i = 0;
        // Sixteen bytes per iteration, whatever their values: so the trip count is known.
        while let Some(places) = self.scan.places(payload, i) {
            // Within a pattern, every byte counts.
            if places != 0 || state != self.start {
                cold();
                state = self.block(state, places, (payload, i), &mut matches);
            }
            i += BLOCK;
        }
        // Fewer than eighteen bytes are left: those already scanned are known again not to be a beginning.
        // The last two may begin a pattern that ends in the next segment.
        if state == self.start
            && let Some(back) = payload.len().checked_sub(BLOCK + 2)
            && let Some(places) = self.scan.places(payload, back)
        {
            let ahead = places.checked_shr(i.saturating_sub(back) as u32).unwrap_or(0);
            let left = payload.len().saturating_sub(i + 2);
            i += if ahead == 0 { left } else { ahead.trailing_zeros() as usize };
        }
        for (place, byte) in payload.iter().enumerate().skip(i).take(BLOCK + 1) {
            state = self.automaton.next_state(Anchored::No, state, *byte);
            if self.automaton.is_match(state) {
                matches.add(state, place + 1);
            }
        }
        self.crowded += u64::from(matches.len > MOST_MATCHES);
        self.look_at(&matches, place, before, hit);
        state
    }

    /// Runs the automaton over sixteen bytes, at some `places` of which a pattern may begin.
    #[inline]
    fn block(
        &self,
        mut state: StateID,
        places: u32,
        (payload, from): (&[u8], usize),
        matches: &mut Matches,
    ) -> StateID {
        let Some(bytes) = payload.get(from..).and_then(|rest| rest.first_chunk::<BLOCK>()) else {
            return state;
        };
        let mut at = 0;
        while at < BLOCK {
            if state == self.start {
                // The next place, if there is one.
                at += (places >> at | 1 << BLOCK).trailing_zeros() as usize;
            }
            let Some(byte) = bytes.get(at) else { break };
            state = self.automaton.next_state(Anchored::No, state, *byte);
            at += 1;
            if self.automaton.is_match(state) {
                matches.add(state, from + at);
            }
        }
        state
    }

    /// Reports the rules that the matches fulfil.
    fn look_at(&mut self, matches: &Matches, place: Place, before: u32, hit: &mut impl FnMut(u16)) {
        let mut all = matches.found.iter().take(matches.len.min(MOST_MATCHES));
        let Some((mut state, mut end)) = all.next().copied() else { return };
        cold();
        let mut n = 0;
        for _ in 0..MOST_PATTERNS {
            if n == self.automaton.match_len(state) {
                let Some(next) = all.next() else { return };
                ((state, end), n) = (*next, 0);
            }
            let rule = &self.rules[self.automaton.match_pattern(state, n).as_usize()];
            n += 1;
            let fits = rule.proto == place.proto && rule.port.is_none_or(|p| p == place.dport);
            // The offset of a pattern that began in the segment before refers to that segment.
            let begin = if end >= rule.len { end - rule.len } else { (before + end).wrapping_sub(rule.len) };
            if fits && rule.offset.is_none_or(|o| o == begin) {
                hit(rule.worm);
            }
        }
        self.crowded += 1;
    }
}

/// Returns a key of one direction of a TCP connection. It has 64 bits: the probability that two directions
/// share it and a sequence number at the same time is negligible.
pub fn direction(src: &Ip, dst: &Ip, sport: u16, dport: u16) -> u64 {
    let mut hash = u64::from(sport) << 16 | u64::from(dport);
    for ip in [src, dst] {
        for half in ip.bytes.as_chunks::<8>().0 {
            hash = mix(hash ^ u64::from_le_bytes(*half)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        }
    }
    mix(hash)
}
