//! What loads and stores do to what is known: the host's values, and what a function has just stored.

use super::expr::{Depends, Expr, Fact, Known, Sym, mask};
use super::ops::fresh;
use super::poly::Poly;
use super::state::{State, Value};
use super::walk::Walk;
use super::weights::Line;
use flame_abi::{Descriptor, MAX_BATCH, layout};
use std::rc::Rc;
use wasmparser::{MemArg, ValType};

/// Longest packet that a node takes.
pub const MAX_LENGTH: u64 = flame_abi::MAX_PACKET as u64;

/// No packet lies behind.
const VIEW_END: u64 = layout::VIEW as u64 + layout::VIEW_BYTES as u64;
const _: () = assert!(VIEW_END + MAX_LENGTH < 1 << 32);

/// What `flame_batch` is told, as symbols.
#[derive(Clone, Copy)]
pub struct Batch {
    /// Where the descriptors begin.
    pub descriptors: Sym,
    pub count: Sym,
}

impl Batch {
    pub fn new(walk: &mut Walk<'_, '_>) -> Self {
        let mut add = |low: u64, high: u64| {
            let upper = Poly::constant(high);
            walk.symbols.add(Known {
                low,
                high,
                upper,
                origin: None,
                depends: Depends::Nothing,
                in_packet: false,
            })
        };
        let view = u64::from(layout::VIEW);
        let descriptors = add(view, view + u64::from(layout::VIEW_BYTES));
        Self { descriptors, count: add(1, MAX_BATCH as u64) }
    }
}

/// A load; of what the host wrote more is known.
pub fn load(walk: &mut Walk<'_, '_>, s: &mut State, at: &MemArg, bytes: u8, bits: u8, _: bool) -> Option<()> {
    let address = s.stack.pop()?.sum(32, &mut walk.symbols);
    let high = mask(bytes * 8);
    let place = address.add(&Expr::constant(32, at.offset), 1)?;
    let near = reach(walk, s, &place);
    walk.symbols.of = match () {
        () if walk.symbols.in_packet(&place) => Depends::Field,
        () if place.as_constant().is_some() => Depends::Configuration,
        () => Depends::Stored,
    };
    let value = match host(walk, &place, bytes, &s.facts) {
        Some(known) => Value::Sum(Rc::new(known.with_bits(bits))),
        None => own(walk, s, &place, bytes)
            .filter(|v| matches!(v, Value::Sum(e) if e.bits == bits))
            .unwrap_or_else(|| Value::Sum(walk.symbols.within(bits, 0, high))),
    };
    // What a structure that is at hand points to is at hand as well; an entry of a table is not.
    if near
        && bytes == 4
        && let Value::Sum(e) = &value
        && let [(sym, 1)] = e.terms[..]
    {
        walk.pointers.insert(sym);
    }
    s.stack.push(value);
    Some(())
}

/// What the module itself stored at a place, or copied there.
fn own(walk: &mut Walk<'_, '_>, s: &State, place: &Expr, bytes: u8) -> Option<Value> {
    let (stored, from) = s.memory.iter().rev().find_map(|stored| {
        let from = place.minus(&stored.at)?.as_constant()?;
        let inside = from.checked_add(bytes.into())? <= u64::from(stored.bytes);
        inside.then_some((stored, from))
    })?;
    match &stored.value {
        Value::Copied(source, _) => {
            let source = source.add(&Expr::constant(32, from), 1)?;
            host(walk, &source, bytes, &s.facts).map(|known| Value::Sum(Rc::new(known)))
        }
        value if from == 0 && bytes == stored.bytes => Some(value.clone()),
        _ => None,
    }
}

/// Whether a load takes more than one of the host's values at once.
pub fn copies(walk: &Walk<'_, '_>, s: &State, at: &MemArg) -> bool {
    let Some(Value::Sum(address)) = s.stack.last() else { return false };
    let place = address.add(&Expr::constant(32, at.offset), 1);
    place.is_some_and(|p| is_hosts(walk, &p))
}

fn is_hosts(walk: &Walk<'_, '_>, place: &Expr) -> bool {
    let Some(batch) = walk.batch else { return false };
    place.as_constant().is_some_and(|n| n >= u64::from(layout::WINDOW)) || place.of(batch.descriptors) == 1
}

/// What it takes until the line of a load is there, in estimates of time; whether it is there for certain.
fn reach(walk: &mut Walk<'_, '_>, s: &mut State, place: &Expr) -> bool {
    if walk.weights.is_instructions() {
        return false;
    }
    // The same in each turn of a loop is there from the first one on.
    let stays = place.terms.iter().all(|(sym, _)| *sym < walk.in_loop);
    if stays || is_hosts(walk, place) || walk.stack_pointer.is_some_and(|sp| place.of(sp) == 1) {
        return true;
    }
    if matches!(place.terms[..], [(sym, 1)] if walk.pointers.contains(&sym)) {
        return true;
    }
    // Steps along memory are foreseen by the processor.
    if place.terms.iter().any(|(sym, by)| walk.turning.contains(sym) && *by <= 64) {
        return false;
    }
    let line = Expr { constant: place.constant / 64, ..place.clone() };
    if s.touch(line) {
        return false;
    }
    let line = match walk.symbols.in_packet(place) {
        true => Line::Packet,
        // A table is as large as what an index in it can reach.
        false => match walk.symbols.exactly(place, &s.facts) {
            Some((low, high)) => Line::Within(high - low),
            None => Line::Within(u64::MAX),
        },
    };
    s.cost = s.cost.plus(walk.weights.line(line));
    false
}

pub fn load_whole(walk: &mut Walk<'_, '_>, s: &mut State, at: &MemArg, kind: ValType) -> Option<()> {
    let address = s.stack.pop()?.sum(32, &mut walk.symbols);
    let place = address.add(&Expr::constant(32, at.offset), 1);
    if let Some(place) = &place {
        reach(walk, s, place);
    }
    let place = place.filter(|p| is_hosts(walk, p));
    s.stack.push(place.map_or(Value::Any(kind), |p| Value::Copied(Rc::new(p), kind)));
    Some(())
}

pub fn store(walk: &mut Walk<'_, '_>, s: &mut State, at: &MemArg, bytes: u8, whole: bool) -> Option<()> {
    let value = s.stack.pop()?;
    let address = s.stack.pop()?.sum(32, &mut walk.symbols);
    match address.add(&Expr::constant(32, at.offset), 1) {
        Some(place) => {
            let value = if whole { value } else { Value::Any(ValType::F64) };
            s.store(Rc::new(place), bytes, value);
        }
        None => s.memory.clear(),
    }
    Some(())
}

/// What lies at a place that only the host writes, and not during a call.
fn host(walk: &mut Walk<'_, '_>, place: &Expr, bytes: u8, facts: &[Fact]) -> Option<Expr> {
    let batch = walk.batch?;
    if let Some(address) = place.as_constant() {
        return match (address.checked_sub(u64::from(layout::WINDOW + layout::BATCH_OFFSET))?, bytes) {
            (0, 4) => Some(Expr::symbol(32, batch.descriptors)),
            (4, 4) => Some(Expr::symbol(32, batch.count)),
            _ => None,
        };
    }
    let offset =
        place.minus(&Expr::symbol(32, batch.descriptors)).filter(|_| place.of(batch.descriptors) == 1)?;
    let size = Descriptor::SIZE as u64;
    let field = offset.constant % size;
    let index = offset.minus(&Expr::constant(32, field))?.divided(size)?;
    if !is_below_count(walk, &index, batch, facts) {
        return None;
    }
    let (high, upper, depends) = match (field, bytes) {
        // Packets lie in the view: the longest ends before 2^32.
        (8, 4) => (VIEW_END, Poly::constant(VIEW_END), Depends::Nothing),
        (20, 4) => (MAX_LENGTH, Poly::LENGTH, Depends::Length),
        (24 | 26, 2) => (65_535, Poly::LENGTH, Depends::Headers),
        (28, 1) => (255, Poly::constant(255), Depends::Headers),
        _ => return None,
    };
    let key = Rc::new(place.clone());
    if let Some((_, _, known)) = walk.loaded.iter().find(|(p, b, _)| *p == key && *b == bytes) {
        return Some((**known).clone());
    }
    walk.symbols.of = depends;
    let value = fresh(walk, 32, (0, high), upper, None);
    if field == 8 {
        walk.symbols.mark_in_packet(&value);
    }
    walk.loaded.push((key, bytes, value.clone()));
    Some((*value).clone())
}

/// Whether descriptor `index` is one of this batch: behind the last lie other things.
fn is_below_count(walk: &Walk<'_, '_>, index: &Expr, batch: Batch, facts: &[Fact]) -> bool {
    let count = Expr::symbol(32, batch.count);
    if let Some(n) = index.as_constant() {
        return n == 0;
    }
    // Nor before the first.
    let [(turn, 1)] = index.terms[..] else { return false };
    if index.constant > mask(32) >> 1 {
        return false;
    }
    let Some(most) = walk.most.get(&turn) else { return false };
    // turn + constant <= most + constant < count?
    let left = count.minus(most).and_then(|d| d.minus(&Expr::constant(32, index.constant)));
    match left.and_then(|d| d.as_constant()) {
        Some(n) if n >= 1 && n <= mask(32) >> 1 => true,
        // It may be the count in the turn that ends the loop, and this is not that.
        Some(0) => {
            let descriptors = Expr::symbol(32, batch.descriptors);
            let of = |e: &Expr| descriptors.add(e, Descriptor::SIZE as u64);
            let rest = count.minus(index);
            let same = |a: &Expr, b: &Expr| {
                (*a == *index && *b == count)
                    || (Some(a) == rest.as_ref() && b.as_constant() == Some(0))
                    || (Some(a) == of(index).as_ref() && Some(b) == of(&count).as_ref())
            };
            facts.iter().any(|f| match f {
                Fact::Different(a, b) => same(a, b) || same(b, a),
                Fact::Less(a, b) => same(a, b),
                _ => false,
            })
        }
        _ => false,
    }
}
