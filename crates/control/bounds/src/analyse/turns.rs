//! Loops: walked once dry, to see what each turn changes, and once with that known.

use super::body::{About, Node};
use super::expr::{Depends, Expr, Fact, Known, Sym, mask};
use super::path::{Path, Place};
use super::poly::Poly;
use super::state::{State, Value, bits};
use super::trips::{self, Change, Counter, both, change, trips};
use super::walk::{Frame, Walk, settle};
use super::{LoopReport, Turns};
use std::rc::Rc;
use wasmparser::{BlockType, ValType};

/// Dry walks in dry walks that look at how inner loops count: each doubles the work.
const MAX_DRY: u8 = 2;

/// Turns of a loop that are still called a bound.
const MAX_TURNS: u64 = 1 << 28;

impl<'a> Walk<'_, 'a> {
    /// A loop: a dry walk to see what each turn changes, then one with that known.
    pub(super) fn turns(
        &mut self,
        kind: BlockType,
        body: &[Node<'a>],
        about: &About,
        entry: State,
    ) -> Option<State> {
        let (takes, gives) = self.arity(kind);
        let height = entry.stack.len().saturating_sub(takes);
        let first = self.symbols.count();
        let mut head = entry.clone();
        (head.cost, head.packet, head.marked) = (Poly::ZERO, Poly::ZERO, false);
        head.memory.clear();
        self.symbols.of = Depends::Unknown;
        for value in &mut head.stack[height..] {
            *value = self.anything_like(value);
        }
        if about.globals {
            self.forget_globals(&mut head);
        }
        let mut counters = self.heads(&mut head, about, &entry);
        if self.quick >= MAX_DRY {
            return self.turn(takes, gives, height, body, head).0;
        }
        let marked = std::mem::take(&mut self.marks);

        // Dry: nothing of it is kept but what the loop's own branches bring back.
        let (outer, why, endless) = (self.lengths(), self.why.clone(), self.endless);
        self.quick += 1;
        let backs = self.turn(takes, gives, height, body, head.clone()).1;
        self.quick -= 1;
        self.truncate(&outer);
        (self.why, self.endless) = (why, endless);
        for counter in &mut counters {
            let bits = counter.start.bits;
            let changes = backs.iter().map(|back| match back.locals.get(counter.local as usize) {
                Some(Value::Sum(after)) => change(counter.head, bits, after, &back.facts, &self.symbols),
                _ => Change::Otherwise,
            });
            counter.change = changes.reduce(both).unwrap_or(Change::Otherwise);
        }
        let facts: Vec<Vec<Fact>> = backs.iter().map(|back| back.facts.clone()).collect();
        let (turns, depends) = match backs.is_empty() {
            true => (Poly::ZERO, Depends::Nothing),
            false => trips(&counters, &facts, &entry.facts, first, &self.symbols),
        };
        // A bound that is out of reach is none.
        let turns = if turns.as_constant().is_some_and(|n| n > MAX_TURNS) { Poly::UNBOUNDED } else { turns };

        // With counters as what they are in some turn.
        let exact = trips::exactly(&counters, &facts, first);
        self.count(&mut head, &counters, (turns, depends), exact);
        self.marks = false;
        let outer = self.lengths();
        let saved: Vec<usize> =
            self.frames.iter_mut().map(|f| std::mem::replace(&mut f.mark, f.ways.len())).collect();
        let outer_loop = std::mem::replace(&mut self.in_loop, first);
        let (end, backs) = self.turn(takes, gives, height, body, head);
        self.in_loop = outer_loop;
        for (frame, mark) in self.frames.iter_mut().zip(saved) {
            frame.mark = mark;
        }
        // Each turn begins a packet.
        let is_packets = self.marks && !backs.is_empty() && backs.iter().all(|back| back.marked);
        self.marks |= marked;
        let one = backs.iter().fold(Poly::ZERO, |most, back| most.max(back.cost));
        let inner = backs.iter().fold(Poly::ZERO, |most, back| most.max(back.packet));
        let (before, packet) = match is_packets {
            // Its turns are packets: their cost is a packet's, not the batch's.
            true => (entry.cost, entry.packet.plus(one.plus(inner))),
            false => (entry.cost.plus(turns.times(one)), entry.packet.plus(turns.times(inner))),
        };
        if !is_packets && !turns.is_bounded() && one != Poly::ZERO {
            let name = self.module.name(self.function);
            self.unbounded(format!(
                "a loop of {name} (at byte {}) ends by nothing that is known",
                about.offset
            ));
        }
        if self.quick == 0 {
            self.report(about, is_packets, (turns, depends), one);
        }
        let worst = backs.iter().max_by_key(|back| back.spent()).and_then(|back| back.path.clone());
        let (traces, function) = (self.traces && self.quick == 0, self.function);
        let adjust = |state: &mut State| {
            // A turn that leaves behind the packet that it began is that packet's as well.
            if is_packets && state.marked {
                state.packet = entry.packet.plus(one.plus(inner).max(state.cost.plus(state.packet)));
                state.cost = before;
            } else {
                state.cost = state.cost.plus(before);
                state.packet = state.packet.plus(packet);
            }
            state.marked |= entry.marked;
            if traces {
                let place =
                    Place { function, offset: about.offset as u32, cost: state.spent(), is_loop: true };
                state.path = Some(Path::then(worst.as_ref().or(state.path.as_ref()), place));
            }
        };
        let leads =
            end.is_some() || self.frames.iter().zip(&outer).any(|(frame, from)| frame.ways.len() > *from);
        self.endless |= !leads && !turns.times(one).is_bounded();
        for (frame, from) in self.frames.iter_mut().zip(outer) {
            frame.ways[from..].iter_mut().for_each(adjust);
        }
        let mut end = end?;
        adjust(&mut end);
        Some(end)
    }

    fn report(&mut self, about: &About, is_packets: bool, (turns, depends): (Poly, Depends), cost: Poly) {
        let function = self.function;
        let report = self.loops.entry(about.offset).or_insert_with(|| LoopReport {
            function: self.module.name(function),
            offset: about.offset,
            turns: Turns::AtMost(Poly::ZERO),
            cost: Poly::ZERO,
            depends: Depends::Nothing,
        });
        report.cost = report.cost.max(cost);
        let depends = match (is_packets, turns.is_bounded()) {
            (true, _) => Depends::Nothing,
            (_, true) => depends,
            (_, false) => Depends::Unknown,
        };
        report.depends = report.depends.max(depends);
        self.depends = self.depends.max(depends);
        report.turns = match (is_packets, turns.is_bounded(), &report.turns) {
            (true, ..) => Turns::Packets,
            (_, false, _) => Turns::Unknown,
            (_, true, Turns::AtMost(n)) => Turns::AtMost(n.max(turns)),
            (_, true, other) => other.clone(),
        };
    }

    /// One turn: the state that falls out of the loop, and those that go back.
    fn turn(
        &mut self,
        takes: usize,
        gives: usize,
        height: usize,
        body: &[Node<'a>],
        head: State,
    ) -> (Option<State>, Vec<State>) {
        self.frames.push(Frame { carried: takes, height, ways: Vec::new(), mark: 0 });
        let mut end = self.nodes(body, head);
        let backs = self.frames.pop().map_or_else(Vec::new, |frame| frame.ways);
        if let Some(end) = &mut end {
            settle(end, gives, height);
        }
        (end, backs)
    }

    /// A number of which nothing is known is still the same wherever it is used.
    pub(super) fn named(&mut self, value: Value) -> Value {
        match value {
            Value::Any(kind) if bits(kind).is_some() => {
                Value::Sum(self.symbols.any(bits(kind).unwrap_or(32)))
            }
            value => value,
        }
    }

    fn anything_like(&mut self, value: &Value) -> Value {
        match value {
            Value::Sum(e) => Value::Sum(self.symbols.any(e.bits)),
            Value::Test(_) => Value::Any(ValType::I32),
            Value::Any(kind) | Value::Copied(_, kind) => Value::Any(*kind),
        }
    }

    /// Locals that the loop writes become symbols of any value.
    fn heads(&mut self, head: &mut State, about: &About, entry: &State) -> Vec<Counter> {
        let mut counters = Vec::new();
        for local in &about.written {
            let Some(value) = head.locals.get_mut(*local as usize) else { continue };
            let bits = match &*value {
                Value::Sum(e) => Some(e.bits),
                Value::Test(_) => Some(32),
                Value::Any(kind) | Value::Copied(_, kind) => bits(*kind),
            };
            let Some(bits) = bits else {
                let kind = match &*value {
                    Value::Copied(_, kind) => *kind,
                    _ => continue,
                };
                *value = Value::Any(kind);
                continue;
            };
            let any = self.symbols.any(bits);
            let start = entry.locals[*local as usize].sum(bits, &mut self.symbols);
            if let [(sym, _)] = any.terms[..] {
                counters.push(Counter { local: *local, head: sym, start, change: Change::Otherwise });
            }
            *value = Value::Sum(any);
        }
        counters
    }

    /// In turn `n`, a local that each turn adds the same to is its start and `n` times that.
    fn count(
        &mut self,
        head: &mut State,
        counters: &[Counter],
        (turns, depends): (Poly, Depends),
        exact: Option<Expr>,
    ) {
        let mut turn: [Option<Sym>; 2] = [None, None];
        for counter in counters {
            let bits = counter.start.bits;
            // What is added varies: its sum is a number that is at most so much.
            if let Change::Up(_, most) = counter.change
                && let Some(place) = head.locals.get_mut(counter.local as usize)
                && let Some(sum) = turns.at(1 << 18).and_then(|n| n.checked_mul(most.into()))
                && let Some(high) = u64::try_from(sum).ok().filter(|n| *n <= mask(bits))
            {
                let upper = turns.times(Poly::constant(most));
                let known = Known { low: 0, high, upper, origin: None, depends, in_packet: false };
                let sum = Expr::symbol(bits, self.symbols.add(known));
                if let Some(value) = counter.start.add(&sum, 1) {
                    *place = Value::Sum(Rc::new(value));
                }
                continue;
            }
            let Change::By(step) = counter.change else { continue };
            let value = if step == 0 {
                Some((*counter.start).clone())
            } else {
                let most = turns
                    .at(1 << 18)
                    .map_or(mask(bits), |n| u64::try_from(n).unwrap_or(u64::MAX).min(mask(bits)));
                let upper = if turns.is_bounded() { turns } else { Poly::constant(mask(bits)) };
                let known = Known { low: 0, high: most, upper, origin: None, depends, in_packet: false };
                let symbols = &mut self.symbols;
                let sym = *turn[usize::from(bits == 64)].get_or_insert_with(|| symbols.add(known));
                self.turning.insert(sym);
                if let Some(exact) = exact.as_ref().filter(|e| e.bits == bits) {
                    self.most.insert(sym, exact.clone());
                }
                counter.start.add(&Expr::symbol(bits, sym), step)
            };
            if let (Some(value), Some(place)) = (value, head.locals.get_mut(counter.local as usize)) {
                *place = Value::Sum(Rc::new(value));
            }
        }
    }

    fn lengths(&self) -> Vec<usize> {
        self.frames.iter().map(|frame| frame.ways.len()).collect()
    }

    fn truncate(&mut self, to: &[usize]) {
        for (frame, n) in self.frames.iter_mut().zip(to) {
            frame.ways.truncate(*n);
        }
    }
}
