//! What single instructions do to what is known.

use super::expr::{Depends, Expr, Fact, Known, Origin, mask};
use super::memory::{copies, load, load_whole, store};
use super::module::Module;
use super::path::TYPICAL;
use super::poly::Poly;
use super::state::{State, Test, Value, bits};
use super::walk::Walk;
use flame_abi::layout;
use std::rc::Rc;
use wasmparser::{
    BlockType, ContType, FrameKind, FuncType, ModuleArity, Operator, RefType, SubType, ValType,
};

/// How many values an instruction takes and gives, where nothing else is known.
struct Arity;

impl ModuleArity for Arity {
    fn sub_type_at(&self, _: u32) -> Option<&SubType> {
        None
    }
    fn tag_type_arity(&self, _: u32) -> Option<(u32, u32)> {
        None
    }
    fn type_index_of_function(&self, _: u32) -> Option<u32> {
        None
    }
    fn func_type_of_cont_type(&self, _: &ContType) -> Option<&FuncType> {
        None
    }
    fn sub_type_of_ref_type(&self, _: &RefType) -> Option<&SubType> {
        None
    }
    fn control_stack_height(&self) -> u32 {
        0
    }
    fn label_block(&self, _: u32) -> Option<(BlockType, FrameKind)> {
        None
    }
}

type Pair = (Rc<Expr>, Rc<Expr>);

/// The state behind an instruction; nothing if it does not come back.
pub fn apply<'a>(walk: &mut Walk<'_, 'a>, operator: &Operator<'a>, mut s: State) -> Option<State> {
    use Operator as O;
    // What is made of others depends on what they do.
    let top = s.stack.iter().rev().take(3).map(|v| match v {
        Value::Sum(e) => walk.symbols.depends(e),
        _ => Depends::Nothing,
    });
    walk.symbols.of = top.max().unwrap_or_default();
    let test = |yes: Fact| Value::Test(Rc::new(Test { no: vec![yes.not()], yes: vec![yes] }));
    match operator {
        O::I32Const { value } => s.stack.push(constant(32, *value as u32 as u64)),
        O::I64Const { value } => s.stack.push(constant(64, *value as u64)),
        O::LocalGet { local_index } => s.stack.push(s.locals.get(*local_index as usize)?.clone()),
        O::LocalSet { local_index } => *s.locals.get_mut(*local_index as usize)? = s.stack.pop()?,
        O::LocalTee { local_index } => *s.locals.get_mut(*local_index as usize)? = s.stack.last()?.clone(),
        O::GlobalGet { global_index } => s.stack.push(s.globals.get(*global_index as usize)?.clone()),
        O::GlobalSet { global_index } => *s.globals.get_mut(*global_index as usize)? = s.stack.pop()?,
        O::Drop => drop(s.stack.pop()?),
        O::Nop => {}
        O::Select | O::TypedSelect { .. } => select(walk, &mut s)?,

        O::I32Add => linear(walk, &mut s, 32, 1)?,
        O::I64Add => linear(walk, &mut s, 64, 1)?,
        O::I32Sub => linear(walk, &mut s, 32, u64::MAX)?,
        O::I64Sub => linear(walk, &mut s, 64, u64::MAX)?,
        O::I32Mul => multiply(walk, &mut s, 32)?,
        O::I64Mul => multiply(walk, &mut s, 64)?,
        O::I32Shl => shift_left(walk, &mut s, 32)?,
        O::I64Shl => shift_left(walk, &mut s, 64)?,
        O::I32ShrU => shift_right(walk, &mut s, 32)?,
        O::I64ShrU => shift_right(walk, &mut s, 64)?,
        O::I32DivU => divide(walk, &mut s, 32)?,
        O::I64DivU => divide(walk, &mut s, 64)?,
        O::I32RemU => remainder(walk, &mut s, 32)?,
        O::I64RemU => remainder(walk, &mut s, 64)?,
        O::I32And => and(walk, &mut s, 32)?,
        O::I64And => and(walk, &mut s, 64)?,
        O::I32Or | O::I32Xor => or(walk, &mut s, 32, matches!(operator, O::I32Or))?,
        O::I64Or | O::I64Xor => or(walk, &mut s, 64, matches!(operator, O::I64Or))?,
        O::I32Clz | O::I32Ctz | O::I32Popcnt => count_bits(walk, &mut s, 32)?,
        O::I64Clz | O::I64Ctz | O::I64Popcnt => count_bits(walk, &mut s, 64)?,

        O::I32Eqz => {
            let not = s.stack.pop()?.test().not();
            s.stack.push(Value::Test(Rc::new(not)));
        }
        O::I64Eqz => {
            let e = s.stack.pop()?.sum(64, &mut walk.symbols);
            s.stack.push(test(Fact::Equal(e, Rc::new(Expr::constant(64, 0)))));
        }
        O::I32Eq => compare(walk, &mut s, 32, |(a, b)| Fact::Equal(a, b))?,
        O::I64Eq => compare(walk, &mut s, 64, |(a, b)| Fact::Equal(a, b))?,
        O::I32Ne => compare(walk, &mut s, 32, |(a, b)| Fact::Different(a, b))?,
        O::I64Ne => compare(walk, &mut s, 64, |(a, b)| Fact::Different(a, b))?,
        O::I32LtU => compare(walk, &mut s, 32, |(a, b)| Fact::Less(a, b))?,
        O::I64LtU => compare(walk, &mut s, 64, |(a, b)| Fact::Less(a, b))?,
        O::I32GtU => compare(walk, &mut s, 32, |(a, b)| Fact::Less(b, a))?,
        O::I64GtU => compare(walk, &mut s, 64, |(a, b)| Fact::Less(b, a))?,
        O::I32LeU => compare(walk, &mut s, 32, |(a, b)| Fact::AtMost(a, b))?,
        O::I64LeU => compare(walk, &mut s, 64, |(a, b)| Fact::AtMost(a, b))?,
        O::I32GeU => compare(walk, &mut s, 32, |(a, b)| Fact::AtMost(b, a))?,
        O::I64GeU => compare(walk, &mut s, 64, |(a, b)| Fact::AtMost(b, a))?,
        O::I32LtS => compare(walk, &mut s, 32, |(a, b)| Fact::SignedLess(a, b))?,
        O::I64LtS => compare(walk, &mut s, 64, |(a, b)| Fact::SignedLess(a, b))?,
        O::I32GtS => compare(walk, &mut s, 32, |(a, b)| Fact::SignedLess(b, a))?,
        O::I64GtS => compare(walk, &mut s, 64, |(a, b)| Fact::SignedLess(b, a))?,
        O::I32LeS => compare(walk, &mut s, 32, |(a, b)| Fact::SignedAtMost(a, b))?,
        O::I64LeS => compare(walk, &mut s, 64, |(a, b)| Fact::SignedAtMost(a, b))?,
        O::I32GeS => compare(walk, &mut s, 32, |(a, b)| Fact::SignedAtMost(b, a))?,
        O::I64GeS => compare(walk, &mut s, 64, |(a, b)| Fact::SignedAtMost(b, a))?,

        O::I32WrapI64 => {
            let e = s.stack.pop()?.sum(64, &mut walk.symbols);
            s.stack.push(Value::Sum(Rc::new(e.with_bits(32))));
        }
        O::I64ExtendI32U | O::I64ExtendI32S => {
            let e = s.stack.pop()?.sum(32, &mut walk.symbols);
            let (_, high) = walk.symbols.range(&e, &s.facts);
            let positive = matches!(operator, O::I64ExtendI32U) || high <= mask(32) >> 1;
            let wide = match walk.symbols.exactly(&e, &s.facts) {
                _ if !positive => walk.symbols.any(64),
                Some(_) if e.terms.is_empty() => Rc::new(Expr::constant(64, e.constant)),
                Some(_) => Rc::new(e.with_bits(64)),
                None => {
                    let upper = walk.symbols.upper(&e, &s.facts);
                    fresh(walk, 64, (0, high), upper, None)
                }
            };
            s.stack.push(Value::Sum(wide));
        }

        O::V128Load { memarg } => load_whole(walk, &mut s, memarg, ValType::V128)?,
        O::I64Load { memarg } if copies(walk, &s, memarg) => load_whole(walk, &mut s, memarg, ValType::I64)?,
        O::I32Store { memarg } | O::I64Store32 { memarg } => {
            store(walk, &mut s, memarg, 4, matches!(operator, O::I32Store { .. }))?
        }
        O::I64Store { memarg } => store(walk, &mut s, memarg, 8, true)?,
        O::V128Store { memarg } => store(walk, &mut s, memarg, 16, true)?,
        O::F32Store { memarg } => store(walk, &mut s, memarg, 4, false)?,
        O::F64Store { memarg } => store(walk, &mut s, memarg, 8, false)?,
        O::I32Store8 { memarg } | O::I64Store8 { memarg } => store(walk, &mut s, memarg, 1, false)?,
        O::I32Store16 { memarg } | O::I64Store16 { memarg } => store(walk, &mut s, memarg, 2, false)?,
        O::V128Store8Lane { .. }
        | O::V128Store16Lane { .. }
        | O::V128Store32Lane { .. }
        | O::V128Store64Lane { .. } => {
            let at = s.stack.len().checked_sub(2)?;
            s.stack.truncate(at);
            s.memory.clear();
        }
        O::I32Load { memarg } => load(walk, &mut s, memarg, 4, 32, false)?,
        O::I32Load8U { memarg } => load(walk, &mut s, memarg, 1, 32, false)?,
        O::I32Load16U { memarg } => load(walk, &mut s, memarg, 2, 32, false)?,
        O::I64Load { memarg } => load(walk, &mut s, memarg, 8, 64, false)?,
        O::I64Load8U { memarg } => load(walk, &mut s, memarg, 1, 64, false)?,
        O::I64Load16U { memarg } => load(walk, &mut s, memarg, 2, 64, false)?,
        O::I64Load32U { memarg } => load(walk, &mut s, memarg, 4, 64, false)?,
        O::MemorySize { .. } => s.stack.push(Value::Sum(walk.symbols.within(32, 0, 65_536))),
        O::MemoryGrow { .. } => {
            s.stack.pop()?;
            s.cost = s.cost.plus(walk.weights.grow());
            s.stack.push(Value::Any(ValType::I32));
        }
        O::MemoryCopy { .. } | O::MemoryFill { .. } | O::MemoryInit { .. } => {
            s.memory.clear();
            let length = s.stack.pop()?.sum(32, &mut walk.symbols);
            let at = s.stack.len().checked_sub(2)?;
            s.stack.truncate(at);
            // What does not fit in memory traps.
            let all = Poly::constant(layout::MAX_MEMORY.into());
            let bytes = walk.symbols.upper(&length, &s.facts);
            let (_, high) = walk.symbols.range(&length, &s.facts);
            let bytes = if high > u64::from(layout::MAX_MEMORY) { all } else { bytes };
            let is_copy = matches!(operator, O::MemoryCopy { .. });
            s.cost = s.cost.plus(walk.weights.bulk(bytes, is_copy));
        }
        operator => {
            let (takes, gives) = operator.operator_arity(&Arity)?;
            let at = s.stack.len().checked_sub(takes as usize)?;
            s.stack.truncate(at);
            // Of another type than is said here; whoever takes it for a number gets any.
            s.stack.extend((0..gives).map(|_| Value::Any(ValType::F64)));
        }
    }
    Some(s)
}

/// Globals as they are before a call: those that never change, by their value.
pub fn globals(module: &Module<'_>) -> Vec<Value> {
    let of = |(kind, mutable, value): &(ValType, bool, Option<u64>)| match (bits(*kind), mutable, value) {
        (Some(bits), false, Some(n)) => constant(bits, *n),
        _ => Value::Any(*kind),
    };
    module.globals.iter().map(of).collect()
}

pub fn constant(bits: u8, n: u64) -> Value {
    Value::Sum(Rc::new(Expr::constant(bits, n)))
}

pub fn fresh(
    walk: &mut Walk<'_, '_>,
    bits: u8,
    (low, high): (u64, u64),
    upper: Poly,
    origin: Option<Origin>,
) -> Rc<Expr> {
    let depends = walk.symbols.of;
    let sym = walk.symbols.add(Known { low, high, upper, origin, depends, in_packet: false });
    Rc::new(Expr::symbol(bits, sym))
}

fn pair(walk: &mut Walk<'_, '_>, s: &mut State, bits: u8) -> Option<Pair> {
    let (b, a) = (s.stack.pop()?, s.stack.pop()?);
    Some((a.sum(bits, &mut walk.symbols), b.sum(bits, &mut walk.symbols)))
}

fn compare(walk: &mut Walk<'_, '_>, s: &mut State, bits: u8, fact: impl Fn(Pair) -> Fact) -> Option<()> {
    let yes = fact(pair(walk, s, bits)?);
    s.stack.push(Value::Test(Rc::new(Test { no: vec![yes.not()], yes: vec![yes] })));
    Some(())
}

fn linear(walk: &mut Walk<'_, '_>, s: &mut State, bits: u8, factor: u64) -> Option<()> {
    let (a, b) = pair(walk, s, bits)?;
    let sum = a.add(&b, factor).map_or_else(|| walk.symbols.any(bits), Rc::new);
    s.stack.push(Value::Sum(sum));
    Some(())
}

fn multiply(walk: &mut Walk<'_, '_>, s: &mut State, bits: u8) -> Option<()> {
    let (a, b) = pair(walk, s, bits)?;
    let product = match (a.as_constant(), b.as_constant()) {
        (Some(n), _) => Rc::new(b.scaled(n)),
        (_, Some(n)) => Rc::new(a.scaled(n)),
        _ => walk.symbols.any(bits),
    };
    s.stack.push(Value::Sum(product));
    Some(())
}

fn shift_left(walk: &mut Walk<'_, '_>, s: &mut State, bits: u8) -> Option<()> {
    let (a, b) = pair(walk, s, bits)?;
    let shifted = match b.as_constant() {
        Some(n) => Rc::new(a.scaled(1 << (n % u64::from(bits)))),
        None => walk.symbols.any(bits),
    };
    s.stack.push(Value::Sum(shifted));
    Some(())
}

fn shift_right(walk: &mut Walk<'_, '_>, s: &mut State, bits: u8) -> Option<()> {
    let (a, b) = pair(walk, s, bits)?;
    let shifted = match b.as_constant().map(|n| n % u64::from(bits)) {
        Some(0) => a,
        Some(n) => quotient(walk, s, a, 1 << n),
        None => {
            let (_, high) = walk.symbols.range(&a, &s.facts);
            walk.symbols.within(bits, 0, high)
        }
    };
    s.stack.push(Value::Sum(shifted));
    Some(())
}

fn quotient(walk: &mut Walk<'_, '_>, s: &State, a: Rc<Expr>, by: u64) -> Rc<Expr> {
    let (low, high) = walk.symbols.range(&a, &s.facts);
    let upper = walk.symbols.upper(&a, &s.facts).over(by);
    let bits = a.bits;
    fresh(walk, bits, (low / by, high / by), upper, (by >= 2).then_some(Origin::Halved(a)))
}

fn divide(walk: &mut Walk<'_, '_>, s: &mut State, bits: u8) -> Option<()> {
    let (a, b) = pair(walk, s, bits)?;
    let divided = match b.as_constant() {
        Some(n) if n > 0 => quotient(walk, s, a, n),
        _ => {
            let (_, high) = walk.symbols.range(&a, &s.facts);
            walk.symbols.within(bits, 0, high)
        }
    };
    s.stack.push(Value::Sum(divided));
    Some(())
}

fn remainder(walk: &mut Walk<'_, '_>, s: &mut State, bits: u8) -> Option<()> {
    let (a, b) = pair(walk, s, bits)?;
    let (_, of) = walk.symbols.range(&b, &s.facts);
    let (_, high) = walk.symbols.range(&a, &s.facts);
    let most = high.min(of.saturating_sub(1));
    // What divides both divides what is left.
    let power = b.as_constant().filter(|n| *n > 0).map(|n| 1u64 << n.trailing_zeros());
    let power = power.and_then(|mut p| {
        while p > 1 && !a.is_multiple_of(Some(p)) {
            p /= 2;
        }
        (p > 1).then_some(p)
    });
    let left = match power {
        Some(p) => Rc::new(walk.symbols.within(bits, 0, most / p).scaled(p)),
        None => walk.symbols.within(bits, 0, most),
    };
    s.stack.push(Value::Sum(left));
    Some(())
}

fn and(walk: &mut Walk<'_, '_>, s: &mut State, bits: u8) -> Option<()> {
    if let [.., Value::Test(a), Value::Test(b)] = &s.stack[..]
        && bits == 32
    {
        let both = Test { yes: [&a.yes[..], &b.yes].concat(), no: Vec::new() };
        s.stack.truncate(s.stack.len() - 2);
        s.stack.push(Value::Test(Rc::new(both)));
        return Some(());
    }
    let (a, b) = pair(walk, s, bits)?;
    let without = |x: &Expr, y: &Expr| x.minus(y).and_then(|d| d.as_constant()) == Some(1);
    let ((_, high_a), (_, high_b)) = (walk.symbols.range(&a, &s.facts), walk.symbols.range(&b, &s.facts));
    let (less, other) = if high_a <= high_b { (&a, &b) } else { (&b, &a) };
    let high = high_a.min(high_b);
    // A mask of all bits that there may be changes nothing.
    if let Some(n) = other.as_constant()
        && n & (n.wrapping_add(1) & mask(bits)) == 0
        && high <= n
    {
        let same = less.clone();
        s.stack.push(Value::Sum(same));
        return Some(());
    }
    // What is left of it, where the rest is known as a multiple: as compilers split a loop in one by vectors and one of
    // what is over.
    for (x, y) in [(&a, &b), (&b, &a)] {
        if let Some(n) = y.as_constant()
            && let Some((_, _, multiple)) = walk.multiples.iter().find(|(of, by, _)| of == x && *by == n + 1)
            && let Some(rest) = x.minus(multiple)
        {
            let rest = Rc::new(rest);
            s.assume(&[Fact::AtMost(rest.clone(), Rc::new(Expr::constant(bits, n)))]);
            s.stack.push(Value::Sum(rest));
            return Some(());
        }
    }
    // Without its lowest bits it is so many times what is above them.
    for (x, y) in [(&a, &b), (&b, &a)] {
        if let Some(n) = y.as_constant()
            && let low = n.wrapping_neg() & mask(bits)
            && low.is_power_of_two()
            && low > 1
        {
            let multiple = quotient(walk, s, x.clone(), low).scaled(low);
            let multiple = Rc::new(multiple);
            walk.multiples.push((x.clone(), low, multiple.clone()));
            let rest = x
                .minus(&multiple)
                .map(|rest| Fact::AtMost(Rc::new(rest), Rc::new(Expr::constant(bits, low - 1))));
            s.assume(&[Fact::AtMost(multiple.clone(), x.clone())]);
            s.assume(rest.as_slice());
            s.stack.push(Value::Sum(multiple));
            return Some(());
        }
    }
    // What is below the mask's lowest bit is gone.
    if let Some(zeros) = [&a, &b].iter().find_map(|e| e.as_constant()).map(u64::trailing_zeros)
        && (1..u32::from(bits)).contains(&zeros)
        && let (x, mask) = if a.as_constant().is_some() { (b.clone(), high_a) } else { (a.clone(), high_b) }
        && mask > 0
    {
        let upper = walk.symbols.upper(&x, &s.facts).over(1 << zeros);
        let part = fresh(walk, bits, (0, high >> zeros), upper, None);
        let masked = Rc::new(part.scaled(1 << zeros));
        s.assume(&[Fact::AtMost(masked.clone(), x)]);
        s.stack.push(Value::Sum(masked));
        return Some(());
    }
    let origin = match () {
        () if without(&a, &b) => Some(Origin::Cleared(a.clone())),
        () if without(&b, &a) => Some(Origin::Cleared(b.clone())),
        () => None,
    };
    let upper = walk.symbols.upper(&a, &s.facts);
    let other_upper = walk.symbols.upper(&b, &s.facts);
    let upper = if high_a <= high_b { upper } else { other_upper };
    let masked = fresh(walk, bits, (0, high), upper, origin);
    // It is at most either.
    let facts = [Fact::AtMost(masked.clone(), a), Fact::AtMost(masked.clone(), b)];
    s.assume(&facts);
    s.stack.push(Value::Sum(masked));
    Some(())
}

fn or(walk: &mut Walk<'_, '_>, s: &mut State, bits: u8, is_or: bool) -> Option<()> {
    if let [.., Value::Test(a), Value::Test(b)] = &s.stack[..]
        && bits == 32
        && is_or
    {
        let either = Test { yes: Vec::new(), no: [&a.no[..], &b.no].concat() };
        s.stack.truncate(s.stack.len() - 2);
        s.stack.push(Value::Test(Rc::new(either)));
        return Some(());
    }
    let (a, b) = pair(walk, s, bits)?;
    // Bits that the other has not are added.
    for (x, y) in [(&a, &b), (&b, &a)] {
        if let Some(n) = y.as_constant()
            && x.is_multiple_of(
                n.checked_next_power_of_two()
                    .filter(|p| *p > n)
                    .or(n.checked_add(1).and_then(u64::checked_next_power_of_two)),
            )
        {
            let sum = x.add(y, 1).map_or_else(|| walk.symbols.any(bits), Rc::new);
            s.stack.push(Value::Sum(sum));
            return Some(());
        }
    }
    let high = walk.symbols.range(&a, &s.facts).1 | walk.symbols.range(&b, &s.facts).1;
    let all = if high == 0 { 0 } else { u64::MAX >> high.leading_zeros() };
    s.stack.push(Value::Sum(walk.symbols.within(bits, 0, all.min(mask(bits)))));
    Some(())
}

fn count_bits(walk: &mut Walk<'_, '_>, s: &mut State, bits: u8) -> Option<()> {
    s.stack.pop()?;
    s.stack.push(Value::Sum(walk.symbols.within(bits, 0, bits.into())));
    Some(())
}

/// One of two; if it is the lesser or greater of what was compared, so much is known of it.
fn select(walk: &mut Walk<'_, '_>, s: &mut State) -> Option<()> {
    let test = s.stack.pop()?.test();
    let (b, a) = (s.stack.pop()?, s.stack.pop()?);
    let (Value::Sum(x), Value::Sum(y)) = (&a, &b) else {
        let kept = match (a, b) {
            (Value::Any(kind), _) | (_, Value::Any(kind)) => Value::Any(kind),
            _ => Value::Any(ValType::I32),
        };
        s.stack.push(kept);
        return Some(());
    };
    if x.bits != y.bits {
        return None;
    }
    // A choice that is made already.
    let made = |facts: &[Fact]| !facts.is_empty() && facts.iter().all(|f| s.facts.contains(f));
    let chosen = if made(&test.yes) { Some(&a) } else { Some(&b).filter(|_| made(&test.no)) };
    if let Some(chosen) = chosen.cloned() {
        s.stack.push(chosen);
        return Some(());
    }
    let (mut yes, mut no) = (s.facts.clone(), s.facts.clone());
    yes.extend(test.yes.clone());
    no.extend(test.no.clone());
    let ((l, h), (m, i)) = (walk.symbols.range(x, &yes), walk.symbols.range(y, &no));
    let is_least =
        test.yes.iter().any(|f| matches!(f, Fact::Less(p, q) | Fact::AtMost(p, q) if p == x && q == y))
            || test.no.iter().any(|f| matches!(f, Fact::Less(p, q) | Fact::AtMost(p, q) if p == y && q == x));
    let (a, b) = (walk.symbols.upper(x, &yes), walk.symbols.upper(y, &no));
    // The lesser of two is at most either; of two that are not alike, the one that is less for a usual packet.
    let upper = match is_least {
        true if b.at(TYPICAL) < a.at(TYPICAL) => b,
        true => a,
        false => a.max(b),
    };
    let chosen = fresh(walk, x.bits, (l.min(m), h.max(i)), upper, None);
    if walk.symbols.in_packet(x) || walk.symbols.in_packet(y) {
        walk.symbols.mark_in_packet(&chosen);
    }
    if is_least {
        s.assume(&[Fact::AtMost(chosen.clone(), x.clone()), Fact::AtMost(chosen.clone(), y.clone())]);
    }
    s.stack.push(Value::Sum(chosen));
    Some(())
}
