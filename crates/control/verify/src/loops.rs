//! The rule for loops.
//!
//! A note claims facts about the state at the head of a loop, some of which refer to the number `t` of
//! completed iterations. The rule: they hold with `t = 0` for the state before the loop, and if they hold at
//! the head with `t`, they hold at every back edge with `t + 1`. By induction they hold whenever the head is
//! reached. An upper bound of `t` that follows from them bounds the number of back edges, whichever of
//! several branches they are; no other argument about termination is needed.
//!
//! Two more bounds of `t` need no fact about it: a measure that can only shrink a limited number of times,
//! and packets, which the rewritten module itself counts.

use crate::bound::{Head, LoopBound};
use crate::certificate::{Form, LoopNote, Measure, Reference, Template};
use crate::cost::Cost;
use crate::linear::{COUNT, LENGTH, Linear, Symbol};
use crate::observe::Event;
use crate::poly::Poly;
use crate::state::State;
use crate::value::{Sum, Value, bits_of, mask};
use crate::walk::{LoopBody, Traps, Walk, settle};
use crate::{Refused, Rule};
use std::collections::BTreeMap;
use std::rc::Rc;
use wasmparser::ValType;

/// The largest depth of nested loops, including those of inlined calls: a walk recurses as deep, and a finder
/// several times as deep.
const MAX_LOOPS: usize = 24;

/// The number of iterations from which on a bound exceeds any budget.
const MAX_TRIPS: i128 = 1 << 28;

/// A claim of a note that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The form of a local.
    Form(u32),
    /// The n-th fact, before the loop or at a back edge.
    Entry(usize),
    Back(usize),
    Measure,
    Packets,
}

/// The effect of one iteration.
pub struct Iteration {
    pub head: Head,
    pub end: Option<State>,
    /// The states at back edges, joined where possible.
    pub backs: Vec<State>,
    pub failures: Vec<Failure>,
}

impl<'a> Walk<'_, 'a> {
    pub(crate) fn enter_loop(
        &mut self,
        body: &LoopBody<'_, 'a>,
        entry: State,
    ) -> Result<Option<State>, Refused> {
        let number = body.about.number;
        if self.traps.len() > MAX_LOOPS {
            return Err(self.refused(Rule::TooDeep, body.about.offset));
        }
        let note = match self.guide.clone() {
            None => self.notes.loops.get(&number).cloned().unwrap_or_default(),
            Some(guide) => {
                let note = guide.note(self, body, &entry);
                self.notes.loops.insert(number, note.clone());
                note
            }
        };
        let layer = self.traps.len();
        let Iteration { head, end, backs, failures } = self.iterate(body, &entry, &note)?;
        if let Some(failure) = failures.first() {
            let rule = match failure {
                Failure::Form(local) => Rule::Form(*local),
                Failure::Entry(n) => Rule::FactBefore(*n as u32),
                Failure::Back(n) => Rule::FactBack(*n as u32),
                Failure::Measure => Rule::Measure,
                Failure::Packets => Rule::Packets,
            };
            return Err(self.refused(rule, body.about.offset));
        }
        let one = backs.iter().map(|back| back.cost).reduce(Cost::max);
        let bound = LoopBound {
            function: self.function,
            number,
            offset: body.about.offset,
            packets: note.packets && !backs.is_empty(),
            by_count: head.by_count,
            trips: if one.is_none() { Poly::ZERO } else { head.trips },
            iteration: one.unwrap_or(Cost::ZERO),
        };
        if !bound.packets && !bound.trips.times(bound.iteration.call).is_bounded() {
            let why = self.refused(Rule::NoBound, body.about.offset);
            self.why.get_or_insert(why);
        }
        if self.exploring == 0 {
            // The memory of kept loops is charged by its size: a loop takes two bytes of code, and a call of
            // its function just as few.
            self.spend(size_of::<LoopBound>() / 4, bound.offset)?;
            self.loops.push(bound);
            self.emit(Event::Loop(&bound));
        }
        let total = |cost: Cost, marked: bool| bound.total(entry.cost, cost, marked);
        let adjust = |state: &mut State| {
            state.cost = total(state.cost, state.marked);
            state.marked |= entry.marked;
        };
        // Traps within an iteration that would have taken a back edge, and those where a path ends.
        let inner = self.traps.pop().unwrap_or_default();
        let ended = [(inner.marked, true), (inner.unmarked, false)];
        let going = backs.iter().map(|back| (Some(back.cost), back.marked && note.packets));
        for (cost, marked) in ended.into_iter().chain(going) {
            if let Some(cost) = cost {
                self.trap(total(cost, marked), marked || entry.marked);
            }
        }
        for at in 0..self.frames.len() {
            let from = self.frames[at].arrived.partition_point(|(of, _)| *of <= layer);
            let left: Vec<State> = self.frames[at].arrived.drain(from..).map(|(_, state)| state).collect();
            for mut state in left {
                adjust(&mut state);
                let joined = match self.frames[at].arrived.pop() {
                    Some((of, other)) if of == layer => other.join(state, &mut self.values),
                    Some(other) => {
                        self.frames[at].arrived.push(other);
                        state
                    }
                    None => state,
                };
                self.frames[at].arrived.push((layer, joined));
            }
        }
        Ok(end.map(|mut end| {
            adjust(&mut end);
            end
        }))
    }

    /// Walks an iteration and restores the state, for a finder to examine.
    ///
    /// # Errors
    ///
    /// Returns the rule and the place at which the walk gives up. Claims of the note that do not hold are no
    /// error; they are the [`failures`](Iteration::failures) of the iteration.
    pub fn explore(
        &mut self,
        body: &LoopBody<'_, 'a>,
        entry: &State,
        note: &LoopNote,
    ) -> Result<Iteration, Refused> {
        let layer = self.traps.len();
        let before: Vec<Vec<(usize, State)>> = self.frames.iter().map(|f| f.arrived.clone()).collect();
        let (traps, why) = (self.traps.clone(), self.why);
        self.exploring += 1;
        let iteration = self.iterate(body, entry, note);
        self.exploring -= 1;
        for (frame, arrived) in self.frames.iter_mut().zip(before) {
            frame.arrived = arrived;
        }
        self.traps = traps;
        self.traps.truncate(layer);
        self.why = why;
        iteration
    }

    /// Walks one iteration under a note and checks the note. Leaves the layer of the loop's traps open.
    fn iterate(
        &mut self,
        body: &LoopBody<'_, 'a>,
        entry: &State,
        note: &LoopNote,
    ) -> Result<Iteration, Refused> {
        let (takes, gives) = self.arity(body.kind);
        let height = entry.stack.len().saturating_sub(takes);
        let mut failures = Vec::new();
        let (state, head) = self.head(body, (entry, height), note, &mut failures);
        self.traps.push(Traps::default());
        self.push_frame(takes, height);
        let depth = self.frames.len();
        let end = self.nodes(body.body, state);
        let backs = match self.frames.len() == depth {
            true => {
                self.frames.pop().map_or_else(Vec::new, |f| f.arrived.into_iter().map(|(_, s)| s).collect())
            }
            // The walk gave up within the iteration.
            false => Vec::new(),
        };
        let mut end = end?;
        if let Some(end) = &mut end {
            settle(end, gives, height);
        }
        for back in &backs {
            self.check_back(entry, back, note, &head, &mut failures);
        }
        Ok(Iteration { head, end, backs, failures })
    }

    /// Returns the state at the head: the claims of the note, and nothing else about the parts that the loop
    /// changes.
    fn head(
        &mut self,
        body: &LoopBody<'_, 'a>,
        (entry, height): (&State, usize),
        note: &LoopNote,
        failures: &mut Vec<Failure>,
    ) -> (State, Head) {
        let about = body.about;
        let mut state = entry.clone();
        (state.cost, state.marked) = (Cost::ZERO, false);
        let trip = self.values.symbols.add(0, 1 << 62);
        let mut symbols = BTreeMap::new();
        for local in &about.written {
            let Some(bits) = self.type_of(*local).and_then(bits_of) else {
                if let Some(value) = state.locals.get_mut(*local as usize) {
                    *value = Value::Any;
                }
                continue;
            };
            let value = match note.forms.get(local) {
                Some(Form::Step(by)) => self.stepped(entry, *local, bits, *by as u64, &Linear::symbol(trip)),
                Some(Form::Range(low, high)) => {
                    let inside = self.in_range(entry, *local, bits, (*low, *high));
                    if !inside {
                        failures.push(Failure::Form(*local));
                    }
                    Some(self.values.within(bits, *low, *high))
                }
                None => None,
            };
            let value = value.unwrap_or_else(|| self.values.any(bits));
            if !matches!(note.forms.get(local), Some(Form::Step(_)))
                && let [(symbol, 1)] = value.terms[..]
            {
                symbols.insert(*local, symbol);
            }
            if let Some(place) = state.locals.get_mut(*local as usize) {
                *place = Value::Sum(value);
            }
        }
        for value in &mut state.stack[height..] {
            *value = match value {
                Value::Sum(sum) => Value::Sum(self.values.any(sum.bits)),
                _ => Value::Any,
            };
        }
        if about.globals {
            self.forget_globals(&mut state);
        }
        if about.memory {
            state.memory.clear();
        }
        for (n, template) in note.facts.iter().enumerate() {
            let before = self.form(template, entry, Some(entry), Some(&Linear::constant(0)), &symbols);
            if !before.is_some_and(|form| self.values.symbols.proves(&form, &entry.facts)) {
                failures.push(Failure::Entry(n));
            }
            if let Some(fact) = self.form(template, entry, None, Some(&Linear::symbol(trip)), &symbols) {
                state.learn(Rc::new(fact));
            }
        }
        let trips = match (note.packets, note.measure) {
            (true, _) => {
                // Each completed iteration has begun a packet.
                self.values.symbols.limit(trip, flame_abi::MAX_BATCH as u64);
                let left = Linear { constant: 0, terms: vec![(COUNT, 1), (trip, -1)] };
                state.learn(Rc::new(left));
                Poly::constant(flame_abi::MAX_BATCH as u64)
            }
            (false, Some(Measure::Halved(_) | Measure::Cleared(_))) => {
                self.values.symbols.limit(trip, 64);
                Poly::constant(64)
            }
            (false, None) => {
                let it = Linear::symbol(trip);
                let upper = self.values.symbols.upper_by_length(&it, &state.facts);
                let most = self.values.symbols.most(&it, &state.facts);
                if let Some(most) = most.and_then(|n| u64::try_from(n).ok()) {
                    self.values.symbols.limit(trip, most);
                }
                let upper = upper.filter(|u| u.constant.div_euclid(u.divisor) < MAX_TRIPS);
                upper.map_or(Poly::UNBOUNDED, Poly::from_upper)
            }
        };
        let left = Linear { constant: 0, terms: vec![(COUNT, 1), (trip, -1)] };
        // Only for constant bounds from 32 to the largest batch: a smaller constant is as good.
        let by_count = !note.packets
            && self.host.batch
            && trips.as_constant().is_some_and(|n| (32..=flame_abi::MAX_BATCH as u64).contains(&n))
            && self.values.symbols.proves(&left, &state.facts);
        let head = Head { trip, symbols, trips, by_count };
        self.emit(Event::Head { entry, note, head: &head });
        (state, head)
    }

    fn type_of(&self, local: u32) -> Option<ValType> {
        let params = self.module.kind_of(self.function)?.params();
        let own = self.module.own(self.function)?;
        match (local as usize).checked_sub(params.len()) {
            None => params.get(local as usize).copied(),
            Some(at) => own.locals.get(at).copied(),
        }
    }

    /// Returns `value before the loop + by × trips`.
    fn stepped(&mut self, entry: &State, local: u32, bits: u8, by: u64, trips: &Linear) -> Option<Rc<Sum>> {
        match entry.locals.get(local as usize)? {
            Value::Sum(start) if start.bits == bits => {
                start.add(&Sum::from_linear(bits, trips), by & mask(bits)).map(Rc::new)
            }
            _ => None,
        }
    }

    fn in_range(&mut self, state: &State, local: u32, bits: u8, (low, high): (u64, u64)) -> bool {
        let Some(Value::Sum(sum)) = state.locals.get(local as usize) else { return false };
        if sum.bits != bits {
            return false;
        }
        let form = self.values.integer(sum, &state.facts);
        let above = form.shifted(-i128::from(low));
        let below = Linear::constant(high.into()).minus(&form);
        [above, below].iter().all(|f| f.as_ref().is_some_and(|f| self.values.symbols.proves(f, &state.facts)))
    }

    /// Returns the form of a template, over the head or another state's locals, with this many completed
    /// iterations.
    fn form(
        &mut self,
        template: &Template,
        entry: &State,
        of: Option<&State>,
        trips: Option<&Linear>,
        heads: &BTreeMap<u32, Symbol>,
    ) -> Option<Linear> {
        let mut form = Linear::constant(template.constant.into());
        for (coefficient, reference) in &template.terms {
            let part = match reference {
                Reference::Trip => trips?.clone(),
                Reference::Length => Linear::symbol(LENGTH),
                Reference::Count => Linear::symbol(COUNT),
                Reference::Term(slot, term) => match entry.slot(*slot as usize)? {
                    Value::Sum(sum) => Linear::symbol(sum.terms.get(*term as usize)?.0),
                    _ => return None,
                },
                Reference::Head(local) => match of {
                    None => Linear::symbol(*heads.get(local)?),
                    Some(state) => {
                        heads.get(local)?;
                        match state.locals.get(*local as usize)? {
                            Value::Sum(sum) => {
                                let sum = sum.clone();
                                self.values.integer(&sum, &state.facts)
                            }
                            _ => return None,
                        }
                    }
                },
            };
            form = form.combined(1, &part, (*coefficient).into())?;
        }
        Some(form)
    }

    fn check_back(
        &mut self,
        entry: &State,
        back: &State,
        note: &LoopNote,
        head: &Head,
        failures: &mut Vec<Failure>,
    ) {
        let next = Linear { constant: 1, terms: vec![(head.trip, 1)] };
        for (local, form) in &note.forms {
            let Some(bits) = self.type_of(*local).and_then(bits_of) else { continue };
            let holds = match form {
                Form::Step(by) => match self.stepped(entry, *local, bits, *by as u64, &next) {
                    // The head did not use the claim, so there is nothing to check.
                    None => true,
                    Some(expected) => {
                        matches!(back.locals.get(*local as usize), Some(Value::Sum(sum)) if **sum == *expected)
                    }
                },
                Form::Range(low, high) => self.in_range(back, *local, bits, (*low, *high)),
            };
            if !holds {
                failures.push(Failure::Form(*local));
            }
        }
        for (n, template) in note.facts.iter().enumerate() {
            let there = self.form(template, entry, Some(back), Some(&next), &head.symbols);
            if !there.is_some_and(|form| self.values.symbols.proves(&form, &back.facts)) {
                failures.push(Failure::Back(n));
            }
        }
        if note.packets && !back.marked {
            failures.push(Failure::Packets);
        }
        if let Some(measure) = note.measure
            && !note.packets
            && !self.shrinks(measure, back, head)
        {
            failures.push(Failure::Measure);
        }
    }

    /// Returns whether a measure has shrunk since the head, and was not 0 there. It has at most 64 bits, so
    /// this happens at most 64 times: `x / 2` has a bit less than an `x` above 0, and `x & (x - 1)` has a bit
    /// less set.
    fn shrinks(&mut self, measure: Measure, back: &State, head: &Head) -> bool {
        let (Measure::Halved(local) | Measure::Cleared(local)) = measure;
        let (Some(symbol), Some(Value::Sum(sum))) =
            (head.symbols.get(&local), back.locals.get(local as usize))
        else {
            return false;
        };
        let (before, sum) = (Linear::symbol(*symbol), sum.clone());
        let after = self.values.integer(&sum, &back.facts);
        let less = match measure {
            Measure::Halved(_) => {
                before.combined(1, &after, -2).is_some_and(|f| self.values.symbols.proves(&f, &back.facts))
            }
            Measure::Cleared(_) => match after.terms[..] {
                [(cleared, 1)] if after.constant == 0 => {
                    let of = self.values.cleared.get(&cleared);
                    of.is_some_and(|of| of.terms == [(*symbol, 1)] && of.constant == 0)
                }
                _ => false,
            },
        };
        let positive =
            |form: &Linear| form.shifted(-1).is_some_and(|f| self.values.symbols.proves(&f, &back.facts));
        less && (positive(&before) || positive(&after))
    }
}
