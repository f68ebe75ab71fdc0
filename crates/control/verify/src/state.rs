//! The facts known at one point of a function, and the join of two such states.

use crate::cost::Cost;
use crate::linear::{COUNT, Fact, LENGTH, Linear};
use crate::value::{Choice, Known, MAX_CHOICES, Sum, Value, Values};
use std::rc::Rc;

/// The largest number of facts, of which the newest are kept.
const MAX_FACTS: usize = 80;
/// The largest number of sums known not to be 0, of which the newest are kept.
const MAX_NONZERO: usize = 12;
/// The largest number of remembered places of memory, of which the newest are kept.
const MAX_STORED: usize = 24;
/// The largest number of values that differ at a join and get relations.
const MAX_RELATED: usize = 8;
/// The largest number of facts of one path that are kept if they follow from those of the other.
const MAX_IMPLIED: usize = 8;
/// The largest number of these, the newest, that are proved with effort.
const MAX_PROVED: usize = 4;
/// The largest number of facts about a value on one path that are tried for the fact of the other path.
const MAX_TRANSFERRED: usize = 4;

/// This many bytes at an address of the module's own memory.
#[derive(Clone, Debug)]
pub struct Stored {
    pub at: Rc<Sum>,
    pub bytes: u8,
    pub value: Value,
}

/// The knowledge at one point of a walk.
#[derive(Clone, Debug)]
pub struct State {
    pub locals: Vec<Value>,
    pub stack: Vec<Value>,
    pub globals: Vec<Value>,
    pub memory: Vec<Stored>,
    pub facts: Vec<Fact>,
    pub nonzero: Vec<Rc<Sum>>,
    /// The newest choices that every path to here has made.
    pub choices: Vec<Rc<Choice>>,
    pub cost: Cost,
    /// Whether every path to here, since the head of the innermost loop, has begun a packet.
    pub marked: bool,
}

impl State {
    /// Returns the n-th value of locals, stack, globals and memory together.
    pub fn slot(&self, n: usize) -> Option<&Value> {
        let lists = [&self.locals, &self.stack, &self.globals];
        let mut n = n;
        for list in lists {
            if n < list.len() {
                return list.get(n);
            }
            n -= list.len();
        }
        self.memory.get(n).map(|stored| &stored.value)
    }

    /// Returns the number of its values, without a limited number of places in memory: the cost of copying
    /// it.
    pub fn len(&self) -> usize {
        self.locals.len() + self.stack.len() + self.globals.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a state with the facts of this one and nothing else.
    pub fn facts_only(&self) -> Self {
        Self {
            locals: Vec::new(),
            stack: Vec::new(),
            globals: Vec::new(),
            memory: Vec::new(),
            facts: self.facts.clone(),
            nonzero: self.nonzero.clone(),
            choices: self.choices.clone(),
            cost: self.cost,
            marked: self.marked,
        }
    }

    /// Adds the facts that a branch implies. Returns false if they contradict known facts: no execution
    /// reaches this point.
    #[must_use]
    pub fn assume(&mut self, known: &Known, values: &Values) -> bool {
        for fact in &known.facts {
            self.learn(fact.clone());
        }
        let mut positive = Vec::new();
        for sum in &known.nonzero {
            if let Some(fact) = values.positive(sum, &self.facts) {
                positive.push(Rc::new(fact));
            }
            if !self.nonzero.contains(sum) {
                if self.nonzero.len() == MAX_NONZERO {
                    self.nonzero.remove(0);
                }
                self.nonzero.push(sum.clone());
            }
        }
        for fact in &positive {
            self.learn(fact.clone());
        }
        let new: Vec<Fact> = known.facts.iter().chain(&positive).cloned().collect();
        self.resolve(&new, values);
        let is_refuted = |fact: &Fact| values.symbols.refutes(fact, &self.facts);
        !(known.facts.iter().chain(&positive).any(is_refuted)
            || known.nonzero.iter().any(|sum| sum.as_constant() == Some(0)))
    }

    /// Learns from new facts about earlier choices: their values, if the facts decide them, and else the
    /// facts about one value that hold for the other one, too.
    fn resolve(&mut self, new: &[Fact], values: &Values) {
        let is_new = |choice: &&Choice| {
            let about = |form: &Linear| new.iter().any(|new| new.shares_symbol(form));
            choice.yes.iter().chain(&choice.no).any(|fact| about(fact))
                || about(&choice.first)
                || about(&choice.second)
        };
        let made = self.choices.clone();
        for choice in made.iter().rev().map(|c| &**c).filter(is_new) {
            let refuted = |side: &[Fact]| side.iter().any(|fact| values.symbols.refutes(fact, &self.facts));
            let (first, second) = (&choice.first, &choice.second);
            let value = match (refuted(&choice.no), refuted(&choice.yes)) {
                (true, false) => first,
                (false, true) => second,
                (true, true) => continue,
                (false, false) => {
                    let (mut facts, with) = (Vec::new(), |side: &[Fact]| [&self.facts, side].concat());
                    transfer(&choice.value, (first, new), (second, &with(&choice.no)), &mut facts, values);
                    transfer(&choice.value, (second, new), (first, &with(&choice.yes)), &mut facts, values);
                    facts.into_iter().for_each(|fact| self.learn(fact));
                    continue;
                }
            };
            for (a, b) in [(1, -1), (-1, 1)] {
                if let Some(fact) = choice.value.combined(a, value, b) {
                    self.learn(Rc::new(fact));
                }
            }
        }
    }

    /// Remembers a choice, for a limited number of later ones.
    pub fn add_choice(&mut self, choice: Choice) {
        if self.choices.len() == MAX_CHOICES {
            self.choices.remove(0);
        }
        self.choices.push(Rc::new(choice));
    }

    /// Adds a fact that holds here, in place of the oldest one if there are too many.
    pub fn learn(&mut self, fact: Fact) {
        let fact = if fact.divides() { Rc::new(Linear::clone(&fact).tightened()) } else { fact };
        if fact.terms.is_empty() && fact.constant >= 0 || self.facts.contains(&fact) {
            return;
        }
        if self.facts.len() == MAX_FACTS {
            self.facts.remove(0);
        }
        self.facts.push(fact);
    }

    /// Forgets the values that may lie at `at`, and remembers the one stored there now.
    pub fn store(&mut self, at: Rc<Sum>, bytes: u8, value: Value) {
        self.memory.retain(|old| {
            // Certainly disjoint: neither reaches the other, nor around the end of memory.
            let apart = at.minus(&old.at).and_then(|d| d.as_constant());
            apart.is_some_and(|d| d >= u64::from(old.bytes) && d <= (1 << 32) - u64::from(bytes))
        });
        if self.memory.len() == MAX_STORED {
            self.memory.remove(0);
        }
        self.memory.push(Stored { at, bytes, value });
    }

    /// Joins two states: the facts of both, at the greater cost.
    pub fn join(self, other: Self, values: &mut Values) -> Self {
        let shared = self.facts.iter().zip(&other.facts).take_while(|(a, b)| Rc::ptr_eq(a, b)).count();
        let mut facts: Vec<Fact> = self.facts[..shared].to_vec();
        let symbols = &values.symbols;
        let mut keep = |own: &[Fact], others: &[Fact]| {
            // A fact that follows from the shared ones is not new.
            let is_alone = others.len() == shared;
            let from = own.len().saturating_sub(MAX_IMPLIED);
            for (at, fact) in own.iter().enumerate() {
                let holds = others[shared..].contains(fact)
                    || !is_alone
                        && at >= from.max(shared)
                        && match at + MAX_PROVED >= own.len() {
                            true => symbols.proves_deeply(fact, others),
                            false => symbols.proves_directly(fact, others),
                        };
                if at >= shared && holds && !facts[shared..].contains(fact) {
                    facts.push(fact.clone());
                }
            }
        };
        keep(&self.facts, &other.facts);
        keep(&other.facts, &self.facts);
        let mut related = 0;
        let mut meet = |a: &Value, b: &Value, facts: &mut Vec<Fact>| {
            if a.is_same(b) {
                return a.clone();
            }
            match (a, b) {
                (Value::Sum(x), Value::Sum(y)) if x.bits == y.bits => {
                    // For values that may be anything, such as hashes, there is nothing to gain.
                    let all = crate::value::mask(x.bits);
                    let known = |s: &Sum| {
                        s.as_constant().is_some()
                            || s.terms.iter().any(|t| values.symbols.interval(t.0).1 < all)
                    };
                    let relate = related < MAX_RELATED && (known(x) || known(y));
                    related += usize::from(relate);
                    Value::Sum(either((x, &self.facts), (y, &other.facts), relate, facts, values))
                }
                (Value::Sum(_) | Value::Condition(_), Value::Sum(_) | Value::Condition(_)) => {
                    let bits = |v: &Value| if let Value::Sum(s) = v { s.bits } else { 32 };
                    let (mut high, facts_of) = (1, [&self.facts, &other.facts]);
                    for (v, facts) in [a, b].into_iter().zip(facts_of) {
                        if let Value::Sum(s) = v {
                            high = high.max(values.range(s, facts).1);
                        }
                    }
                    if bits(a) == bits(b) { Value::Sum(values.within(bits(a), 0, high)) } else { Value::Any }
                }
                _ => Value::Any,
            }
        };
        let mut all = |a: &[Value], b: &[Value], facts: &mut Vec<Fact>| -> Vec<Value> {
            a.iter().zip(b).map(|(a, b)| meet(a, b, facts)).collect()
        };
        let locals = all(&self.locals, &other.locals, &mut facts);
        let stack = all(&self.stack, &other.stack, &mut facts);
        let globals = all(&self.globals, &other.globals, &mut facts);
        let same = |m: &&Stored| {
            other.memory.iter().any(|o| o.at == m.at && o.bytes == m.bytes && o.value.is_same(&m.value))
        };
        let memory = self.memory.iter().filter(same).cloned().collect();
        let nonzero = self.nonzero.iter().filter(|s| other.nonzero.contains(s)).cloned().collect();
        let choices =
            self.choices.iter().filter(|c| other.choices.iter().any(|o| Rc::ptr_eq(c, o))).cloned().collect();
        let keep = facts.len().saturating_sub(MAX_FACTS);
        facts.drain(..keep);
        Self {
            locals,
            stack,
            globals,
            memory,
            facts,
            nonzero,
            choices,
            cost: self.cost.max(other.cost),
            marked: self.marked && other.marked,
        }
    }
}

/// Returns a sum that is `x` on one path and `y` on the other, and adds facts about it that hold on both.
///
/// Sums with symbols in common stay sums: the common part, plus a symbol for the rest.
fn either(
    (x, left): (&Rc<Sum>, &[Fact]),
    (y, right): (&Rc<Sum>, &[Fact]),
    relate: bool,
    facts: &mut Vec<Fact>,
    values: &mut Values,
) -> Rc<Sum> {
    let bits = x.bits;
    let terms: Vec<_> = x.terms.iter().filter(|t| y.terms.contains(t)).copied().collect();
    if !terms.is_empty() {
        let common = |constant| Sum { bits, constant, terms: terms.clone() };
        for constant in [x.constant, y.constant] {
            let common = common(constant);
            let (Some(a), Some(b)) = (x.minus(&common), y.minus(&common)) else { continue };
            if let (Some(a), Some(b)) = (values.exact(&a, left), values.exact(&b, right)) {
                let rest = choose(bits, (&a, left), (&b, right), relate, facts, values);
                if let Some(sum) = common.add(&rest, 1) {
                    return Rc::new(sum);
                }
            }
        }
    }
    let (a, b) = (values.integer(x, left), values.integer(y, right));
    choose(bits, (&a, left), (&b, right), relate, facts, values)
}

/// Returns a sum that is the integer `a` where `left` holds and `b` where `right` holds.
///
/// If both have the same remainder modulo a number, the sum is that remainder plus a multiple of the number.
pub fn choose(
    bits: u8,
    (a, left): (&Linear, &[Fact]),
    (b, right): (&Linear, &[Fact]),
    relate: bool,
    facts: &mut Vec<Fact>,
    values: &mut Values,
) -> Rc<Sum> {
    let top = i128::from(crate::value::mask(bits));
    let symbols = &values.symbols;
    let low = symbols.fewest(a, left).zip(symbols.fewest(b, right)).map_or(0, |(a, b)| a.min(b)).max(0);
    let high = symbols.most(a, left).zip(symbols.most(b, right)).map_or(top, |(a, b)| a.max(b)).min(top);
    let (by, rest) = a.common_remainder(b).unwrap_or((1, 0));
    // Both are at least 0, so the quotient is, too.
    let (low, high) = ((low - rest).max(0) / by, (high - rest).max(0) / by);
    let quotient = values.within(bits, low as u64, high.max(low) as u64);
    let (by_bits, rest_bits) = (by as u64, Sum::constant(bits, rest as u64));
    let Some(sum) = quotient.scaled(by_bits).add(&rest_bits, 1).map(Rc::new) else { return values.any(bits) };
    let [(symbol, 1)] = quotient.terms[..] else { return sum };
    values.chosen.extend(a.terms.iter().chain(&b.terms).map(|(of, _)| (symbol, *of)));
    if !relate {
        return sum;
    }
    let Some(it) = Linear::constant(rest).combined(1, &Linear::symbol(symbol), by) else { return sum };
    // Candidates for upper bounds: either of the two, the length, the count. For lower bounds: either of the
    // two.
    let (length, count) = (Linear::symbol(LENGTH), Linear::symbol(COUNT));
    let mut bounds = vec![(a, 1), (b, 1), (a, -1), (b, -1)];
    if high.saturating_mul(by) <= i128::from(crate::value::MAX_LENGTH) {
        bounds.push((&length, 1));
    }
    if high.saturating_mul(by) <= flame_abi::MAX_BATCH as i128 {
        bounds.push((&count, 1));
    }
    for (bound, sign) in bounds {
        if bound.terms.is_empty() {
            continue;
        }
        // The differences on both paths, and whether they are at least this much.
        let distance = |value: &Linear| bound.combined(sign, value, -sign);
        let mut distances = [(distance(a), left), (distance(b), right)];
        let mut holds = |least: i128| {
            distances.iter_mut().all(|(distance, facts)| {
                let Some(distance) = distance else { return false };
                let whole = distance.constant;
                let Some(constant) = whole.checked_sub(least) else { return false };
                distance.constant = constant;
                let proved = values.symbols.proves_nearly(distance, facts);
                distance.constant = whole;
                proved
            })
        };
        if holds(0)
            && let Some(distance) = bound.combined(sign, &it, -sign)
            && let Some(fact) = distance.shifted(if holds(1) { -1 } else { 0 })
        {
            add(facts, fact);
        }
    }
    transfer(&it, (b, right), (a, left), facts, values);
    transfer(&it, (a, left), (b, right), facts, values);
    sum
}

/// Adds a fact unless it is known.
fn add(facts: &mut Vec<Fact>, fact: Linear) {
    if !facts.iter().any(|known| **known == fact) {
        facts.push(Rc::new(fact));
    }
}

/// Adds the facts about the value that `it` has on one path which hold for the value of the other path, too.
fn transfer(
    it: &Linear,
    (value, known): (&Linear, &[Fact]),
    (other, facts_of_other): (&Linear, &[Fact]),
    facts: &mut Vec<Fact>,
    values: &Values,
) {
    // The value is `n × symbol + c`, so the symbol is `(it - c) / n`.
    let [(symbol, n)] = value.terms[..] else { return };
    let shared = known.iter().zip(facts_of_other).take_while(|(a, b)| Rc::ptr_eq(a, b)).count();
    // The other path knows nothing of symbols that are newer, such as those of loops.
    let is_old = |fact: &&Fact| fact.terms.last().is_some_and(|newest| newest.0 == symbol);
    let about = known[shared..].iter().rev().filter(is_old);
    for fact in about.take(MAX_TRANSFERRED) {
        // `n × fact`, with `n × symbol` replaced by the other value.
        let replaced = |by: &Linear| {
            let d = fact.coefficient(symbol);
            let mut rest = Linear::clone(fact);
            rest.terms.retain(|term| term.0 != symbol);
            let sign = n.signum();
            rest.combined(n.abs(), &by.shifted(value.constant.checked_neg()?)?, d.checked_mul(sign)?)
        };
        if let (Some(here), Some(there)) = (replaced(it), replaced(other))
            && values.symbols.proves_quickly(&there, facts_of_other)
        {
            add(facts, here.tightened());
        }
    }
}
