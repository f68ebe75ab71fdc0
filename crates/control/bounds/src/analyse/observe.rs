//! The observations of the checker's walk that estimates use: the reached instructions, trip counts and their
//! dependences, and the lines of memory that loads touch. Everything is kept by context: an entry or
//! function, and the calls that were walked with their arguments.

use super::depends::Depends;
use super::weights::Line;
use crate::Class;
use flame_abi::{Descriptor, layout::names};
use flame_verify::abi::is_hosts;
use flame_verify::bound::{Head, LoopBound};
use flame_verify::linear::{DESCRIPTORS, Symbol};
use flame_verify::observe::{Event, Observer};
use flame_verify::state::State;
use flame_verify::value::{Sum, Value, signed};
use flame_verify::walk::Walk;
use flame_verify::{LoopNote, Measure, Poly, Reference};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use wasmparser::Operator;

/// The observations of one function in one context.
#[derive(Default)]
pub struct Seen {
    /// The offsets of instructions that the walk reached, in order.
    walked: Vec<u32>,
    /// Loads whose line may have to be fetched: the address of the line, as a sum divided by its length.
    pub lines: HashMap<u32, (Rc<Sum>, Line)>,
    /// The number of bytes that bulk instructions move.
    pub bulk: HashMap<u32, Poly>,
    /// The loops by number.
    pub loops: HashMap<u32, (LoopBound, Depends)>,
    /// The calls that were walked with their arguments, by number.
    pub calls: HashMap<u32, Seen>,
    /// The functions that are called with any arguments.
    called: Vec<u32>,
}

impl Seen {
    /// Returns whether an execution may reach an instruction.
    pub fn is_live(&self, offset: u32) -> bool {
        self.walked.binary_search(&offset).is_ok()
    }
}

/// The observations of walks in which nothing was refused.
#[derive(Default)]
pub struct Records {
    /// The observations by function, in the order of the walks: first for any arguments, if it was walked so,
    /// and last as an entry.
    of: HashMap<u32, Vec<Seen>>,
}

impl Records {
    /// Returns the observations of a function called by the host.
    pub fn entry(&self, function: u32) -> Option<&Seen> {
        self.of.get(&function)?.last()
    }

    /// Returns the observations of a function for any arguments.
    pub fn function(&self, function: u32) -> Option<&Seen> {
        self.of.get(&function)?.first()
    }

    /// Returns the quantity on which the work of an entry depends: the greatest class of its loops.
    pub fn depends(&self, function: u32) -> Depends {
        let all = self.reached(function).into_iter().flat_map(|seen| seen.loops.values());
        all.map(|(_, by)| *by).fold(Depends::Nothing, Depends::max)
    }

    /// Returns the observations of an entry and of all that it calls, once for each context.
    pub fn reached(&self, function: u32) -> Vec<&Seen> {
        let mut done = HashSet::new();
        let mut all: Vec<&Seen> = self.entry(function).into_iter().collect();
        let mut at = 0;
        while let Some(seen) = all.get(at).copied() {
            at += 1;
            all.extend(seen.calls.values());
            let new = seen.called.iter().filter(|callee| done.insert(**callee));
            all.extend(new.filter_map(|callee| self.function(*callee)));
        }
        all
    }
}

/// The origin of a symbol.
#[derive(Clone, Copy, Default)]
struct Origin {
    depends: Depends,
    /// Whether it is an address in a packet.
    in_packet: bool,
    /// Whether it was loaded from a line that is in the cache: its target is assumed to be there as well.
    near: bool,
}

impl Origin {
    const UNKNOWN: Self = Self { depends: Depends::Field, in_packet: false, near: false };

    fn of(depends: Depends) -> Self {
        Self { depends, ..Self::default() }
    }

    fn and(self, other: Self) -> Self {
        Self {
            depends: self.depends.max(other.depends),
            in_packet: self.in_packet || other.in_packet,
            near: self.near && other.near,
        }
    }
}

/// The observed walk.
#[derive(Default)]
struct Open {
    function: u32,
    /// The functions and calls that contain the current point of the walk, with the numbers of the calls.
    seen: Vec<(u32, Seen)>,
    origins: Vec<Origin>,
    /// The origin of symbols that the last instruction creates.
    pending: Option<Origin>,
    /// Whether the value that the last instruction loads is near.
    loads_near: bool,
    /// The last instruction: its offset, and if it loads, whether the value may be a pointer.
    at: (u32, Option<bool>),
    /// The enclosing loops: the first symbol of each, and its class.
    loops: Vec<(Symbol, Depends)>,
    /// The symbols of iteration numbers, and of numbers of begun packets, whose descriptors are read one
    /// after the other.
    trips: HashSet<Symbol>,
    packets: HashSet<Symbol>,
    /// The value of the stack pointer before the call: the first global, by LLVM's convention.
    stack_pointer: Option<Symbol>,
}

/// Records observations.
#[derive(Default)]
pub struct Recorder {
    open: RefCell<Open>,
    records: RefCell<Records>,
}

impl Recorder {
    pub fn into_records(self) -> Records {
        self.records.into_inner()
    }
}

impl Observer for Recorder {
    fn see(&self, walk: &Walk<'_, '_>, event: Event<'_>) {
        let open = &mut *self.open.borrow_mut();
        match event {
            Event::Begin { function, state } => {
                *open = Open { function, ..Open::default() };
                open.seen.push((0, Seen::default()));
                open.stack_pointer = state.globals.first().and_then(symbol);
                // The symbols of every walk: the length, the count, the address of the descriptors.
                open.origins = vec![Origin::of(Depends::Length), Origin::default(), Origin::default()];
                // The targets of arguments were near where the call was made.
                open.pending = Some(Origin { near: true, ..Origin::UNKNOWN });
            }
            Event::End => {
                if let Some((_, seen)) = open.seen.pop() {
                    let mut records = self.records.borrow_mut();
                    records.of.entry(open.function).or_default().push(closed(seen));
                }
            }
            Event::Enter(number) => {
                if let Some((_, outer)) = open.seen.last_mut() {
                    outer.called.pop();
                }
                open.seen.push((number, Seen::default()));
            }
            Event::Leave => {
                if let (Some((number, seen)), Some((_, outer))) = (open.seen.pop(), open.seen.last_mut()) {
                    outer.calls.insert(number, closed(seen));
                }
            }
            Event::Call { callee, offset, state } => {
                open.settle(walk, Some(state));
                if let Some((_, seen)) = open.seen.last_mut() {
                    seen.walked.push(offset);
                    seen.called.push(callee);
                }
            }
            Event::Head { entry, note, head } => open.head(walk, entry, note, head),
            Event::Loop(bound) => {
                let by = open.loops.pop().map_or(Depends::Field, |(_, by)| by);
                let by = if bound.trips == Poly::ZERO || bound.packets { Depends::Nothing } else { by };
                if let Some((_, seen)) = open.seen.last_mut() {
                    seen.loops.insert(bound.number, (*bound, by));
                }
            }
            Event::Operator { operator, offset, state } => open.operator(walk, operator, offset, state),
            Event::Access(place) => {
                if let (Some(place), (offset, Some(is_pointer))) = (place, open.at) {
                    open.load(walk, place, offset, is_pointer);
                }
            }
            Event::Bulk(bytes) => {
                let offset = open.at.0;
                if let Some((_, seen)) = open.seen.last_mut() {
                    seen.bulk.insert(offset, bytes);
                }
            }
        }
    }
}

fn closed(mut seen: Seen) -> Seen {
    seen.walked.sort_unstable();
    seen
}

fn symbol(value: &Value) -> Option<Symbol> {
    match value {
        Value::Sum(sum) => match sum.terms[..] {
            [(symbol, 1)] => Some(symbol),
            _ => None,
        },
        _ => None,
    }
}

impl Open {
    fn origin(&self, sum: &Sum) -> Origin {
        let all = sum.terms.iter().map(|(s, _)| self.origins.get(*s as usize).copied());
        all.fold(Origin::default(), |a, b| a.and(b.unwrap_or(Origin::UNKNOWN)))
    }

    /// Assigns origins to new symbols: the last instruction created them, or a join or call did.
    fn settle(&mut self, walk: &Walk<'_, '_>, state: Option<&State>) {
        let pending = self.pending.take();
        for symbol in self.origins.len()..walk.values.symbols.len() {
            let origin = pending.unwrap_or_else(|| self.chosen(walk, symbol as Symbol));
            self.origins.push(origin);
        }
        if std::mem::take(&mut self.loads_near)
            && let Some(symbol) = state.and_then(|s| s.stack.last()).and_then(symbol)
            && let Some(origin) = self.origins.get_mut(symbol as usize)
        {
            origin.near = true;
        }
    }

    /// Returns the origin of a value that a join created, from all its alternatives.
    fn chosen(&self, walk: &Walk<'_, '_>, symbol: Symbol) -> Origin {
        let chosen = &walk.values.chosen;
        let from = chosen.partition_point(|(made, _)| *made < symbol);
        let of = chosen[from..].iter().take_while(|(made, _)| *made == symbol);
        let known = of.map(|(_, of)| self.origins.get(*of as usize).copied().unwrap_or(Origin::UNKNOWN));
        known.reduce(Origin::and).unwrap_or(Origin::UNKNOWN)
    }

    fn operator(&mut self, walk: &Walk<'_, '_>, operator: &Operator<'_>, offset: u32, state: &State) {
        self.settle(walk, Some(state));
        self.at = (offset, None);
        match operator {
            Operator::LocalGet { .. }
            | Operator::LocalSet { .. }
            | Operator::LocalTee { .. }
            | Operator::I32Const { .. }
            | Operator::I64Const { .. }
            | Operator::Br { .. }
            | Operator::BrIf { .. } => {}
            Operator::CallIndirect { type_index, .. } => {
                let callees = walk.module.through_tables(*type_index);
                if let Some((_, seen)) = self.seen.last_mut() {
                    seen.called.extend(callees);
                }
            }
            // The walk reports the result.
            Operator::Select => {}
            operator => match Class::of(operator) {
                Class::Load => self.at.1 = Some(matches!(operator, Operator::I32Load { .. })),
                Class::Integer | Class::Multiply | Class::Divide => {
                    let operands = state.stack.iter().rev().take(2).filter_map(|value| match value {
                        Value::Sum(sum) => Some(self.origin(sum)),
                        _ => None,
                    });
                    let origin = operands.reduce(Origin::and).unwrap_or_default();
                    self.pending = Some(Origin { near: false, ..origin });
                }
                _ => {}
            },
        }
        if let Some((_, seen)) = self.seen.last_mut() {
            seen.walked.push(offset);
        }
    }

    fn load(&mut self, walk: &Walk<'_, '_>, place: &Sum, offset: u32, is_pointer: bool) {
        let size = Descriptor::SIZE as u64;
        let in_turn = |(s, by): &(Symbol, u64)| *by == size && self.packets.contains(s);
        let is_descriptor = place.coefficient(DESCRIPTORS) == 1 || place.terms.iter().any(in_turn);
        let field = is_descriptor.then(|| place.constant % size);
        let depends = match (field, place.as_constant()) {
            (Some(20), _) => Depends::Length,
            (Some(24 | 26 | 28), _) => Depends::Headers,
            (Some(_), _) => Depends::Nothing,
            (None, Some(_)) => Depends::Configuration,
            (None, None) if self.origin(place).in_packet => Depends::Field,
            (None, None) => Depends::Stored,
        };
        self.pending = Some(Origin { depends, in_packet: field == Some(8), near: false });
        match self.line(walk, place) {
            None => self.loads_near = is_pointer,
            Some(None) => {}
            Some(Some(line)) => {
                let key = Rc::new(Sum { constant: place.constant / 64, ..place.clone() });
                if let Some((_, seen)) = self.seen.last_mut() {
                    seen.lines.insert(offset, (key, line));
                }
            }
        }
    }

    /// Returns the location of a load's line: `None` if it is in the cache, `Some(None)` if the processor
    /// prefetches it.
    fn line(&self, walk: &Walk<'_, '_>, place: &Sum) -> Option<Option<Line>> {
        // A line that is the same in each iteration of a loop is in the cache after the first one.
        let first = self.loops.last().map_or(0, |(first, _)| *first);
        let stays = place.terms.iter().all(|(s, _)| *s < first);
        let is_near = |s: Symbol| self.origins.get(s as usize).is_some_and(|o| o.near);
        let on_stack = self.stack_pointer.is_some_and(|sp| place.coefficient(sp) == 1);
        if stays
            || on_stack
            || is_hosts(&walk.host, place)
            || matches!(place.terms[..], [(s, 1)] if is_near(s))
        {
            return None;
        }
        if place.terms.iter().any(|(s, by)| self.trips.contains(s) && *by <= 64) {
            return Some(None);
        }
        if self.origin(place).in_packet {
            return Some(Some(Line::Packet));
        }
        // The size of a table is taken to be the range of the indexes into it.
        let (mut low, mut high) = (0i128, 0i128);
        for (s, by) in &place.terms {
            let (least, most) = walk.values.symbols.interval(*s);
            let by = signed(*by, place.bits);
            let ends = [by.saturating_mul(least.into()), by.saturating_mul(most.into())];
            (low, high) = (low + ends[0].min(ends[1]), high + ends[0].max(ends[1]));
        }
        Some(Some(Line::Within(u64::try_from(high - low).unwrap_or(u64::MAX))))
    }

    fn head(&mut self, walk: &Walk<'_, '_>, entry: &State, note: &LoopNote, head: &Head) {
        self.settle(walk, Some(entry));
        let class = self.class(entry, note);
        for (local, symbol) in &head.symbols {
            let before = match entry.locals.get(*local as usize) {
                Some(Value::Sum(sum)) => self.origin(sum),
                _ => Origin::UNKNOWN,
            };
            if let Some(origin) = self.origins.get_mut(*symbol as usize) {
                *origin = Origin { depends: Depends::Field, near: false, ..before };
            }
        }
        if let Some(origin) = self.origins.get_mut(head.trip as usize) {
            *origin = Origin::of(class);
        }
        self.trips.insert(head.trip);
        if note.packets {
            self.packets.insert(head.trip);
        }
        self.loops.push((head.trip, class));
    }

    /// Returns the quantity on which the trip count depends: the one with which the bounding facts compare
    /// it.
    fn class(&self, entry: &State, note: &LoopNote) -> Depends {
        let of_slot = |slot: u32, term: Option<u32>| match entry.slot(slot as usize) {
            Some(Value::Sum(sum)) => match term {
                None => self.origin(sum).depends,
                Some(term) => sum.terms.get(term as usize).map_or(Depends::Field, |(s, _)| {
                    self.origins.get(*s as usize).map_or(Depends::Field, |o| o.depends)
                }),
            },
            _ => Depends::Field,
        };
        if let Some(Measure::Halved(local) | Measure::Cleared(local)) = note.measure {
            return of_slot(local, None);
        }
        let is = |f: &flame_verify::Template, r: Reference| f.terms.iter().any(|(_, of)| *of == r);
        let heads: HashSet<u32> = note
            .facts
            .iter()
            .filter(|fact| is(fact, Reference::Trip))
            .flat_map(|fact| &fact.terms)
            .filter_map(|(_, of)| if let Reference::Head(local) = of { Some(*local) } else { None })
            .collect();
        let bounding = note.facts.iter().filter(|fact| {
            is(fact, Reference::Trip) || heads.iter().any(|local| is(fact, Reference::Head(*local)))
        });
        let by = bounding.flat_map(|fact| &fact.terms).map(|(_, of)| match of {
            Reference::Length => Depends::Length,
            Reference::Term(slot, term) => of_slot(*slot, Some(*term)),
            Reference::Trip | Reference::Count | Reference::Head(_) => Depends::Nothing,
        });
        by.max().unwrap_or_default()
    }
}

/// Returns whether an import is the one called `name`, which begins packets or marks cold paths.
pub fn is_import(import: Option<(&str, &str)>, name: &str) -> bool {
    import == Some((names::IMPORTS, name))
}
