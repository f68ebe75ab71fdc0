//! Finds notes for one loop: guess, let the rules drop claims that do not hold, repeat.

use super::Finder;
use super::candidates::candidates;
use flame_verify::loops::{Failure, Iteration};
use flame_verify::state::State;
use flame_verify::value::{Sum, Value, mask, signed};
use flame_verify::walk::{LoopBody, Walk};
use flame_verify::{Form, LoopNote, Measure, Poly};

/// The nesting depth up to which inner loops are searched in each exploration of the outer ones; deeper ones
/// reuse earlier results.
const MAX_SEARCH: u32 = 3;
/// The number of rounds of guessing.
const ROUNDS: usize = 3;
/// The number of rounds of dropping claims that do not hold.
const DROPS: usize = 12;
/// The largest number of facts of one loop.
const MAX_FACTS: usize = 20;

impl Finder {
    pub(super) fn find<'a>(
        &self,
        walk: &mut Walk<'_, 'a>,
        body: &LoopBody<'_, 'a>,
        entry: &State,
    ) -> LoopNote {
        let before = walk.notes.loops.get(&body.about.number).cloned();
        if let Some(mut note) = before {
            // Earlier results usually hold again.
            if let Some(iteration) = self.reduce(walk, body, entry, &mut note)
                && (is_useful(iteration.head.trips) || iteration.backs.is_empty() || self.depth.get() > 0)
            {
                return note;
            }
        }
        if self.depth.get() >= MAX_SEARCH { LoopNote::default() } else { self.search(walk, body, entry) }
    }

    pub(super) fn explore<'a>(
        &self,
        walk: &mut Walk<'_, 'a>,
        body: &LoopBody<'_, 'a>,
        entry: &State,
        note: &LoopNote,
    ) -> Option<Iteration> {
        self.depth.set(self.depth.get() + 1);
        let iteration = walk.explore(body, entry, note);
        self.depth.set(self.depth.get() - 1);
        iteration.ok()
    }

    /// Drops claims until the rules confirm the remaining ones.
    fn reduce<'a>(
        &self,
        walk: &mut Walk<'_, 'a>,
        body: &LoopBody<'_, 'a>,
        entry: &State,
        note: &mut LoopNote,
    ) -> Option<Iteration> {
        for _ in 0..DROPS {
            let iteration = self.explore(walk, body, entry, note)?;
            if iteration.failures.is_empty() {
                return Some(iteration);
            }
            drop_failures(note, &iteration.failures);
        }
        *note = LoopNote { packets: note.packets, ..LoopNote::default() };
        let iteration = self.explore(walk, body, entry, note)?;
        if !iteration.failures.is_empty() {
            *note = LoopNote::default();
            return self.explore(walk, body, entry, note);
        }
        Some(iteration)
    }

    fn search<'a>(&self, walk: &mut Walk<'_, 'a>, body: &LoopBody<'_, 'a>, entry: &State) -> LoopNote {
        let mut note = LoopNote::default();
        let Some(first) = self.explore(walk, body, entry, &note) else { return note };
        if first.backs.is_empty() {
            return note;
        }
        note.packets = first.backs.iter().all(|back| back.marked);
        for (local, symbol) in &first.head.symbols {
            if let Some(step) = step(&first, *local, *symbol) {
                note.forms.insert(*local, Form::Step(step));
            }
        }
        let Some(mut iteration) = self.reduce(walk, body, entry, &mut note) else {
            return LoopNote::default();
        };
        for round in 0..ROUNDS {
            let mut found = false;
            for (local, symbol) in &iteration.head.symbols {
                if !note.forms.contains_key(local)
                    && let Some(range) = range(walk, entry, &iteration, *local, *symbol)
                {
                    note.forms.insert(*local, Form::Range(range.0, range.1));
                    found = true;
                }
            }
            let room = MAX_FACTS.saturating_sub(note.facts.len());
            for template in candidates(walk, entry, &iteration).into_iter().take(room + 8) {
                if !note.facts.contains(&template) {
                    note.facts.push(template);
                    found = true;
                }
            }
            if !found {
                break;
            }
            match self.reduce(walk, body, entry, &mut note) {
                Some(next) => iteration = next,
                None => return LoopNote::default(),
            }
            note.facts.truncate(MAX_FACTS);
            if round > 0 && is_useful(iteration.head.trips) {
                break;
            }
        }
        if !note.packets && !is_useful(iteration.head.trips) {
            for local in iteration.head.symbols.keys() {
                for measure in [Measure::Halved(*local), Measure::Cleared(*local)] {
                    let tried = LoopNote { measure: Some(measure), ..note.clone() };
                    if let Some(found) = self.explore(walk, body, entry, &tried)
                        && found.failures.is_empty()
                    {
                        return tried;
                    }
                }
            }
        }
        self.minimise(walk, body, entry, note, &iteration)
    }

    /// Removes facts without which the bound is the same.
    fn minimise<'a>(
        &self,
        walk: &mut Walk<'_, 'a>,
        body: &LoopBody<'_, 'a>,
        entry: &State,
        mut note: LoopNote,
        iteration: &Iteration,
    ) -> LoopNote {
        if self.depth.get() > 0 {
            return note;
        }
        let cost = |i: &Iteration| i.backs.iter().map(|b| b.cost).reduce(flame_verify::Cost::max);
        let mut at = note.facts.len();
        while at > 0 {
            at -= 1;
            let mut tried = note.clone();
            tried.facts.remove(at);
            if let Some(found) = self.explore(walk, body, entry, &tried)
                && found.failures.is_empty()
                && found.head.trips == iteration.head.trips
                && cost(&found) == cost(iteration)
                && found.end.as_ref().map(|s| s.cost) == iteration.end.as_ref().map(|s| s.cost)
            {
                note = tried;
            }
        }
        note
    }
}

/// Returns whether a budget could allow this number of iterations.
pub(super) fn is_useful(trips: Poly) -> bool {
    trips.at(1514).is_some_and(|n| n < 1 << 28)
}

fn drop_failures(note: &mut LoopNote, failures: &[Failure]) {
    let mut facts: Vec<usize> = Vec::new();
    for failure in failures {
        match failure {
            Failure::Form(local) => drop(note.forms.remove(local)),
            Failure::Entry(n) | Failure::Back(n) => facts.push(*n),
            Failure::Measure => note.measure = None,
            Failure::Packets => note.packets = false,
        }
    }
    facts.sort_unstable();
    facts.dedup();
    for n in facts.into_iter().rev() {
        note.facts.remove(n);
    }
}

/// Returns the summand that each iteration adds to a local, if it is always the same.
fn step(iteration: &Iteration, local: u32, symbol: u32) -> Option<i64> {
    let of = |back: &State| match back.locals.get(local as usize)? {
        Value::Sum(after) => {
            let n = after.minus(&Sum::symbol(after.bits, symbol))?.as_constant()?;
            i64::try_from(signed(n, after.bits)).ok()
        }
        _ => None,
    };
    let mut steps = iteration.backs.iter().map(of);
    let first = steps.next()??;
    steps.all(|s| s == Some(first)).then_some(first)
}

/// Returns the interval of a local before the loop and after iterations together, if it is smaller than that
/// of its type.
fn range(
    walk: &mut Walk<'_, '_>,
    entry: &State,
    iteration: &Iteration,
    local: u32,
    symbol: u32,
) -> Option<(u64, u64)> {
    let (mut low, mut high) = (u64::MAX, 0);
    let mut bits = 0;
    for state in iteration.backs.iter().chain([entry]) {
        let Some(Value::Sum(sum)) = state.locals.get(local as usize) else { return None };
        bits = sum.bits;
        // Unchanged on this path: the value at the head holds.
        if sum.terms == [(symbol, 1)] && sum.constant == 0 {
            continue;
        }
        let sum = sum.clone();
        let (l, h) = walk.values.range(&sum, &state.facts);
        (low, high) = (low.min(l), high.max(h));
    }
    (low <= high && (low > 0 || high < mask(bits))).then_some((low, high))
}
