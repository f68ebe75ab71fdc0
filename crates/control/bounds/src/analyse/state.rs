//! What is known at one point of a function, and how two ways to it meet.

use super::expr::{Expr, Fact, Symbols};
use super::path::{Path, TYPICAL};
use super::poly::Poly;
use std::rc::Rc;
use wasmparser::ValType;

/// Facts kept, the newest.
const MAX_FACTS: usize = 96;

#[derive(Clone, Debug)]
pub enum Value {
    Sum(Rc<Expr>),
    /// 0 or 1 by a comparison.
    Test(Rc<Test>),
    /// What lies at an address that only the host writes.
    Copied(Rc<Expr>, ValType),
    /// Anything of this type.
    Any(ValType),
}

/// What holds if a value is not 0, and if it is.
#[derive(Clone, Debug, Default)]
pub struct Test {
    pub yes: Vec<Fact>,
    pub no: Vec<Fact>,
}

impl Test {
    pub fn not(&self) -> Self {
        Self { yes: self.no.clone(), no: self.yes.clone() }
    }
}

pub fn bits(kind: ValType) -> Option<u8> {
    match kind {
        ValType::I32 => Some(32),
        ValType::I64 => Some(64),
        _ => None,
    }
}

impl Value {
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Sum(a), Self::Sum(b)) => a == b,
            (Self::Test(a), Self::Test(b)) => Rc::ptr_eq(a, b),
            (Self::Any(a), Self::Any(b)) => a == b,
            (Self::Copied(a, _), Self::Copied(b, _)) => a == b,
            _ => false,
        }
    }

    /// As a sum of so many bits.
    pub fn sum(&self, bits: u8, symbols: &mut Symbols) -> Rc<Expr> {
        match self {
            Self::Sum(e) if e.bits == bits => e.clone(),
            Self::Test(_) => symbols.within(bits, 0, 1),
            _ => symbols.any(bits),
        }
    }

    /// As a condition.
    pub fn test(&self) -> Test {
        match self {
            Self::Test(test) => (**test).clone(),
            Self::Sum(e) => {
                let zero = Rc::new(Expr::constant(e.bits, 0));
                let fact = Fact::Different(e.clone(), zero);
                Test { no: vec![fact.not()], yes: vec![fact] }
            }
            Self::Any(_) | Self::Copied(..) => Test::default(),
        }
    }
}

/// So many bytes at a place.
#[derive(Clone, Debug)]
pub struct Stored {
    pub at: Rc<Expr>,
    pub bytes: u8,
    pub value: Value,
}

/// Places of memory that are remembered, the newest.
const MAX_STORED: usize = 24;

#[derive(Clone, Debug)]
pub struct State {
    pub locals: Vec<Value>,
    pub globals: Vec<Value>,
    pub stack: Vec<Value>,
    pub facts: Vec<Fact>,
    /// What lies in the module's own memory.
    pub memory: Vec<Stored>,
    /// Instructions on the worst way here, those of loops over packets aside.
    pub cost: Poly,
    /// Of one packet, in loops over packets.
    pub packet: Poly,
    /// Whether a packet began on every way here, in the turn of the innermost loop.
    pub marked: bool,
    /// How it came here, if that is asked for.
    pub path: Option<Path>,
    /// Lines of memory that were touched on the costliest way here, by their addresses' sums. Only estimates ask.
    pub touched: Vec<Rc<Expr>>,
}

/// Lines that are remembered.
const MAX_TOUCHED: usize = 24;

/// A value that was one thing on one way and another on the other.
struct Merged {
    ways: [Rc<Expr>; 2],
    now: Rc<Expr>,
}

/// Such values whose facts are looked through, at a meeting.
const MAX_MERGED: usize = 12;

impl State {
    /// Writes to memory: what may lie there is known no more.
    pub fn store(&mut self, at: Rc<Expr>, bytes: u8, value: Value) {
        self.memory.retain(|old| {
            // Apart for certain: neither reaches the other, nor around the end of memory.
            let apart = at.minus(&old.at).and_then(|d| d.as_constant());
            apart.is_some_and(|d| d >= u64::from(old.bytes) && d <= (1 << 32) - u64::from(bytes))
        });
        if self.memory.len() == MAX_STORED {
            self.memory.remove(0);
        }
        self.memory.push(Stored { at, bytes, value });
    }

    /// Whether a line was touched before; it is from here on.
    pub fn touch(&mut self, line: Expr) -> bool {
        if self.touched.iter().any(|t| **t == line) {
            return true;
        }
        if self.touched.len() == MAX_TOUCHED {
            self.touched.remove(0);
        }
        self.touched.push(Rc::new(line));
        false
    }

    /// Spent so far, of a packet of typical length.
    pub fn spent(&self) -> u64 {
        let all = self.cost.plus(self.packet).at(TYPICAL);
        all.map_or(u64::MAX, |n| u64::try_from(n).unwrap_or(u64::MAX))
    }

    pub fn assume(&mut self, facts: &[Fact]) {
        for fact in facts {
            if !self.facts.contains(fact) {
                if self.facts.len() == MAX_FACTS {
                    self.facts.remove(0);
                }
                self.facts.push(fact.clone());
                // At most and not the same is less.
                let less = |a: &Rc<Expr>, b: &Rc<Expr>| {
                    let at_most = self.facts.contains(&Fact::AtMost(a.clone(), b.clone()));
                    at_most.then(|| Fact::Less(a.clone(), b.clone()))
                };
                if let Fact::Different(a, b) = fact
                    && let Some(less) = less(a, b).or_else(|| less(b, a))
                {
                    self.facts.push(less);
                }
            }
        }
    }

    /// Whether what is known rules itself out.
    pub fn is_impossible(&self, symbols: &Symbols) -> bool {
        self.facts.iter().any(|fact| {
            let of = |e: &Expr| symbols.exactly(e, &[]).unwrap_or((0, super::expr::mask(e.bits)));
            match fact {
                Fact::Less(a, b) => of(a).0 >= of(b).1,
                Fact::AtMost(a, b) => of(a).0 > of(b).1,
                Fact::Equal(a, b) => of(a).0 > of(b).1 || of(b).0 > of(a).1,
                Fact::Different(a, b) => a.as_constant().is_some() && a.as_constant() == b.as_constant(),
                Fact::SignedLess(..) | Fact::SignedAtMost(..) => false,
            }
        })
    }

    /// Either: what both know, at the greater cost.
    pub fn join(self, other: Self, symbols: &mut Symbols) -> Self {
        // Of what is only for estimates and for people, the costlier way's.
        let told = self.path.is_some() || !self.touched.is_empty() || !other.touched.is_empty();
        let costlier = if told && self.spent() < other.spent() { &other } else { &self };
        let (path, touched) = (costlier.path.clone(), costlier.touched.clone());
        let Self { locals, globals, stack, facts, memory, cost, packet, marked, .. } = self;
        let mut merged: Vec<Merged> = Vec::new();
        let mut meet = |a: Vec<Value>, b: Vec<Value>| -> Vec<Value> {
            let mut one = |(a, b): (Value, Value)| {
                let sums = match (&a, &b) {
                    (Value::Sum(x), Value::Sum(y)) if x != y && x.bits == y.bits => {
                        Some([x.clone(), y.clone()])
                    }
                    _ => None,
                };
                let both = either(a, b, (&facts, &other.facts), symbols);
                if let (Some(ways), Value::Sum(now)) = (sums, &both)
                    && merged.len() < MAX_MERGED
                {
                    merged.push(Merged { ways, now: now.clone() });
                }
                both
            };
            a.into_iter().zip(b).map(&mut one).collect()
        };
        let (locals, globals, stack) =
            (meet(locals, other.locals), meet(globals, other.globals), meet(stack, other.stack));
        let same = |m: &Stored| {
            other.memory.iter().any(|o| o.at == m.at && o.bytes == m.bytes && o.value.same(&m.value))
        };
        let memory = memory.into_iter().filter(same).collect();
        let mut both: Vec<Fact> = facts.iter().filter(|f| other.facts.contains(f)).cloned().collect();
        // What holds of a value on either way holds of what it is from here on.
        for (side, from, to) in [(0, &facts, &other.facts), (1, &other.facts, &facts)] {
            for (m, fact) in merged.iter().flat_map(|m| from.iter().map(move |f| (m, f))) {
                let there = fact.with(&m.ways[side], &m.ways[1 - side]);
                let now = fact.with(&m.ways[side], &m.now);
                if let (Some(there), Some(now)) = (there, now)
                    && both.len() < MAX_FACTS
                    && !both.contains(&now)
                    && symbols.holds(&there, to)
                {
                    both.push(now);
                }
            }
        }
        Self {
            locals,
            globals,
            stack,
            facts: both,
            memory,
            cost: cost.max(other.cost),
            packet: packet.max(other.packet),
            marked: marked && other.marked,
            path,
            touched,
        }
    }
}

/// Two sums with a part in common: that part, and something between what is left of the one and of the other.
fn beyond_common(x: &Expr, y: &Expr, facts: (&[Fact], &[Fact]), symbols: &mut Symbols) -> Option<Rc<Expr>> {
    let common = x.common(y).filter(|c| !c.terms.is_empty())?;
    let (a, b) = (x.minus(&common)?, y.minus(&common)?);
    let ((l, h), (m, i)) = (symbols.exactly(&a, facts.0)?, symbols.exactly(&b, facts.1)?);
    let upper = symbols.upper(&a, facts.0).max(symbols.upper(&b, facts.1));
    symbols.of = symbols.depends(&a).max(symbols.depends(&b));
    let rest = symbols.within(x.bits, l.min(m), h.max(i));
    if let [(sym, _)] = rest.terms[..]
        && let Some(known) = symbols.get_mut(sym)
    {
        known.upper = upper;
    }
    common.add(&rest, 1).map(Rc::new)
}

fn either(a: Value, b: Value, facts: (&[Fact], &[Fact]), symbols: &mut Symbols) -> Value {
    if a.same(&b) {
        return a;
    }
    match (&a, &b) {
        (Value::Sum(x), Value::Sum(y)) if x.bits == y.bits => {
            symbols.of = symbols.depends(x).max(symbols.depends(y));
            if let Some(e) = beyond_common(x, y, facts, symbols) {
                return Value::Sum(e);
            }
            let ((l, h), (m, i)) = (symbols.range(x, facts.0), symbols.range(y, facts.1));
            let upper = symbols.upper(x, facts.0).max(symbols.upper(y, facts.1));
            let e = symbols.within(x.bits, l.min(m), h.max(i));
            if symbols.in_packet(x) || symbols.in_packet(y) {
                symbols.mark_in_packet(&e);
            }
            if let [(sym, _)] = e.terms[..]
                && let Some(known) = symbols.get_mut(sym)
            {
                known.upper = upper;
            }
            Value::Sum(e)
        }
        (Value::Sum(x), Value::Test(_)) | (Value::Test(_), Value::Sum(x)) => {
            let bits = x.bits;
            let (_, h) = symbols.range(x, &[]);
            Value::Sum(symbols.within(bits, 0, h.max(1)))
        }
        (Value::Test(_), Value::Test(_)) => Value::Sum(symbols.within(32, 0, 1)),
        (Value::Any(kind) | Value::Copied(_, kind), _) | (_, Value::Any(kind) | Value::Copied(_, kind)) => {
            Value::Any(*kind)
        }
        (Value::Sum(x), Value::Sum(_)) => Value::Any(if x.bits == 32 { ValType::I32 } else { ValType::I64 }),
    }
}
