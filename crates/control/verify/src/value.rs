//! Values of locals and operands: sums of symbols modulo a power of two, and conditions.

use crate::linear::{Fact, Linear, Symbol, Symbols, gcd};
use std::collections::HashMap;
use std::rc::Rc;
use wasmparser::ValType;

/// The length in bytes of the longest packet that a view exposes.
pub const MAX_LENGTH: u64 = flame_abi::MAX_PACKET as u64;

/// `constant + Σ coefficient × symbol` modulo 2^bits, sorted by symbol, no coefficient zero.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sum {
    pub bits: u8,
    pub constant: u64,
    pub terms: Vec<(Symbol, u64)>,
}

/// The largest number of choices, the newest, that new facts may decide.
pub const MAX_CHOICES: usize = 8;
/// The largest number of facts of a condition.
const MAX_KNOWN: usize = 16;
/// The largest number of terms of a sum; a larger one becomes a new symbol.
const MAX_TERMS: usize = 6;

/// Returns a number whose lowest `bits` bits are set.
pub fn mask(bits: u8) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Returns the integer in `-2^(bits-1) .. 2^(bits-1)` that is congruent to `n`.
pub fn signed(n: u64, bits: u8) -> i128 {
    let n = i128::from(n & mask(bits));
    if n >= 1 << (bits - 1) { n - (1 << bits) } else { n }
}

impl Sum {
    pub fn constant(bits: u8, n: u64) -> Self {
        Self { bits, constant: n & mask(bits), terms: Vec::new() }
    }

    pub fn symbol(bits: u8, symbol: Symbol) -> Self {
        Self { bits, constant: 0, terms: vec![(symbol, 1)] }
    }

    /// Returns the value if it contains no symbols.
    pub fn as_constant(&self) -> Option<u64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// Returns `self + factor × other` modulo 2^bits, or `None` if it has too many terms.
    pub fn add(&self, other: &Self, factor: u64) -> Option<Self> {
        if self.bits != other.bits {
            return None;
        }
        let m = mask(self.bits);
        let mut terms = self.terms.clone();
        for (symbol, n) in &other.terms {
            let n = n.wrapping_mul(factor) & m;
            match terms.binary_search_by_key(symbol, |(s, _)| *s) {
                Ok(at) => terms[at].1 = terms[at].1.wrapping_add(n) & m,
                Err(at) => terms.insert(at, (*symbol, n)),
            }
        }
        terms.retain(|(_, n)| *n != 0);
        let constant = self.constant.wrapping_add(other.constant.wrapping_mul(factor)) & m;
        (terms.len() <= MAX_TERMS).then_some(Self { bits: self.bits, constant, terms })
    }

    /// Returns the difference modulo 2^bits, or `None` if it has too many terms.
    pub fn minus(&self, other: &Self) -> Option<Self> {
        self.add(other, u64::MAX)
    }

    /// Returns `factor × self` modulo 2^bits.
    pub fn scaled(&self, factor: u64) -> Self {
        let m = mask(self.bits);
        let times = |n: u64| n.wrapping_mul(factor) & m;
        let terms = self.terms.iter().map(|(s, n)| (*s, times(*n))).filter(|(_, n)| *n != 0).collect();
        Self { bits: self.bits, constant: times(self.constant), terms }
    }

    /// Returns the coefficient of a symbol, which is 0 if the sum does not contain it.
    pub fn coefficient(&self, symbol: Symbol) -> u64 {
        self.terms.iter().find(|(s, _)| *s == symbol).map_or(0, |(_, n)| *n)
    }

    /// Returns whether the value is a multiple of `power`, a power of two below 2^bits, for any values of its
    /// symbols.
    pub fn is_multiple_of(&self, power: u64) -> bool {
        power.is_power_of_two()
            && power <= mask(self.bits)
            && self.constant.is_multiple_of(power)
            && self.terms.iter().all(|(_, n)| n.is_multiple_of(power))
    }

    /// Returns the exponent of the greatest power of two below 2^bits that divides the value, for any values
    /// of its symbols.
    fn divisor(&self) -> u32 {
        let all = self.terms.iter().fold(self.constant, |all, (_, n)| all | n);
        all.trailing_zeros().min(u32::from(self.bits) - 1)
    }

    /// Returns the value divided by 2^`by`, which divides it, modulo 2^(bits - by).
    fn divided(&self, by: u32) -> Self {
        let terms = self.terms.iter().map(|(s, n)| (*s, n >> by)).collect();
        Self { bits: self.bits - by as u8, constant: self.constant >> by, terms }
    }

    /// Returns the value modulo 2^bits of fewer bits. Symbols are integers, so reducing coefficients is
    /// exact.
    pub fn wrapped(&self, bits: u8) -> Self {
        let m = mask(bits);
        let terms = self.terms.iter().map(|(s, n)| (*s, n & m)).filter(|(_, n)| *n != 0).collect();
        Self { bits, constant: self.constant & m, terms }
    }

    /// Returns the sum of the integer form's residues modulo 2^bits.
    pub fn from_linear(bits: u8, form: &Linear) -> Self {
        let of = |n: i128| n.rem_euclid(1 << bits) as u64;
        let terms = form.terms.iter().map(|(s, n)| (*s, of(*n))).filter(|(_, n)| *n != 0).collect();
        Self { bits, constant: of(form.constant), terms }
    }
}

/// The facts that hold if a condition is true, and those that hold if it is false.
#[derive(Clone, Debug, Default)]
pub struct Condition {
    pub yes: Known,
    pub no: Known,
}

/// Facts: forms that are at least 0, and sums that are not 0.
#[derive(Clone, Debug, Default)]
pub struct Known {
    pub facts: Vec<Fact>,
    pub nonzero: Vec<Rc<Sum>>,
}

impl Known {
    /// Returns the facts of both, up to a limit.
    pub fn and(&self, other: &Self) -> Self {
        let mut both = self.clone();
        for fact in &other.facts {
            if both.facts.len() < MAX_KNOWN && !both.facts.contains(fact) {
                both.facts.push(fact.clone());
            }
        }
        for sum in &other.nonzero {
            if both.nonzero.len() < MAX_KNOWN && !both.nonzero.contains(sum) {
                both.nonzero.push(sum.clone());
            }
        }
        both
    }
}

/// The abstract value of a local, a global, or a place on the stack or in memory.
#[derive(Clone, Debug)]
pub enum Value {
    /// An integer.
    Sum(Rc<Sum>),
    /// An `i32` that is 1 if the condition holds and 0 if it does not.
    Condition(Rc<Condition>),
    /// The bytes at an address that only the host writes, and not during a call.
    Copied(Rc<Sum>),
    /// Any value of its type.
    Any,
}

impl Value {
    pub fn constant(bits: u8, n: u64) -> Self {
        Self::Sum(Rc::new(Sum::constant(bits, n)))
    }

    /// Returns whether both are known to be equal. Two values of which nothing is known count as equal.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Sum(a), Self::Sum(b)) | (Self::Copied(a), Self::Copied(b)) => Rc::ptr_eq(a, b) || a == b,
            (Self::Condition(a), Self::Condition(b)) => Rc::ptr_eq(a, b),
            (Self::Any, Self::Any) => true,
            _ => false,
        }
    }
}

/// Returns the width of an integer type; `None` for other types.
pub fn bits_of(kind: ValType) -> Option<u8> {
    match kind {
        ValType::I32 => Some(32),
        ValType::I64 => Some(64),
        _ => None,
    }
}

/// A value that is `first` where the facts `yes` hold, and `second` where the facts `no` hold.
#[derive(Debug)]
pub struct Choice {
    pub value: Linear,
    pub first: Linear,
    pub second: Linear,
    pub yes: Vec<Fact>,
    pub no: Vec<Fact>,
}

/// The symbols, and the names of sums that may wrap.
#[derive(Debug, Default)]
pub struct Values {
    pub symbols: Symbols,
    /// The symbols for the values of sums. Symbols do not change, so neither does the value of a sum of them.
    names: HashMap<Rc<Sum>, Symbol>,
    /// The sums that have names, for finders.
    pub named: HashMap<Symbol, Rc<Sum>>,
    /// The symbols that a choice created, in order, with those of the values that it chose from, for
    /// observers.
    pub chosen: Vec<(Symbol, Symbol)>,
    /// Symbols that are another sum without its lowest set bit.
    pub cleared: HashMap<Symbol, Rc<Sum>>,
}

impl Values {
    /// Returns a new integer of which only the interval `low ..= high` is known.
    pub fn within(&mut self, bits: u8, low: u64, high: u64) -> Rc<Sum> {
        if low == high {
            return Rc::new(Sum::constant(bits, low));
        }
        Rc::new(Sum::symbol(bits, self.symbols.add(low, high.min(mask(bits)))))
    }

    /// Returns a new integer of which nothing is known.
    pub fn any(&mut self, bits: u8) -> Rc<Sum> {
        self.within(bits, 0, mask(bits))
    }

    /// Returns the integer in `0 .. 2^bits` that the sum is, as a form over its own symbols, if it cannot
    /// wrap.
    pub fn exact(&self, sum: &Sum, facts: &[Fact]) -> Option<Linear> {
        let terms: Vec<(Symbol, i128)> = sum.terms.iter().map(|(s, n)| (*s, signed(*n, sum.bits))).collect();
        let top = i128::from(mask(sum.bits));
        if terms.is_empty() {
            return Some(Linear::constant(sum.constant.into()));
        }
        let near = Linear { constant: signed(sum.constant, sum.bits), terms };
        let far = Linear { constant: sum.constant.into(), terms: near.terms.clone() };
        let inside = |form: &Linear, facts: Option<&[Fact]>| match facts {
            None => {
                self.symbols.least(form).is_some_and(|n| n >= 0)
                    && self.symbols.greatest(form).is_some_and(|n| n <= top)
            }
            Some(facts) => {
                let room = Linear::constant(top).minus(form);
                self.symbols.proves_directly(form, facts)
                    && room.is_some_and(|r| self.symbols.proves_directly(&r, facts))
            }
        };
        for form in [&near, &far] {
            if inside(form, None) {
                return Some(form.clone());
            }
        }
        let forms = if near == far { vec![near] } else { vec![near, far] };
        forms.into_iter().find(|form| inside(form, Some(facts)))
    }

    /// Returns the integer in `0 .. 2^bits` that the sum is; as a new symbol if it may wrap, times the
    /// greatest power of two that divides the sum.
    pub fn integer(&mut self, sum: &Rc<Sum>, facts: &[Fact]) -> Linear {
        if let Some(form) = self.exact(sum, facts) {
            return form;
        }
        // A multiple of a power of two remains one when it wraps.
        let by = sum.divisor();
        let quotient = if by == 0 { sum.clone() } else { Rc::new(sum.divided(by)) };
        let symbols = &mut self.symbols;
        let name = *self.names.entry(quotient.clone()).or_insert_with(|| symbols.add(0, mask(quotient.bits)));
        self.named.entry(name).or_insert_with(|| quotient.clone());
        Linear { constant: 0, terms: vec![(name, 1 << by)] }
    }

    /// Returns the least and the greatest value of a sum.
    pub fn range(&mut self, sum: &Rc<Sum>, facts: &[Fact]) -> (u64, u64) {
        if let Some(n) = sum.as_constant() {
            return (n, n);
        }
        let top = mask(sum.bits);
        let form = self.integer(sum, facts);
        let clamp = |n: i128| u64::try_from(n.max(0)).unwrap_or(u64::MAX).min(top);
        let low = self.symbols.fewest(&form, facts).map_or(0, clamp);
        let high = self.symbols.most(&form, facts).map_or(top, clamp);
        (low, high.max(low))
    }

    /// Returns the consequence of a sum that is not 0, as a form that is at least 1, if its sign is known.
    ///
    /// A form that is at least 0, is not 0, and whose parts are all divisible by g, is at least g.
    pub fn positive(&self, sum: &Sum, facts: &[Fact]) -> Option<Linear> {
        // It is not 0 modulo 2^bits, so it is not the integer 0 either, whichever representative is taken.
        let terms: Vec<(Symbol, i128)> = sum.terms.iter().map(|(s, n)| (*s, signed(*n, sum.bits))).collect();
        let form = Linear { constant: signed(sum.constant, sum.bits), terms };
        let negative = Linear::default().combined(1, &form, -1)?;
        for form in [form, negative] {
            if self.symbols.proves(&form, facts) {
                let g = form.terms.iter().fold(form.constant, |g, t| gcd(g, t.1));
                return form.shifted(-g.max(1));
            }
        }
        None
    }
}
