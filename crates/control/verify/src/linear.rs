//! Linear forms over the integers, and the consequences of inequalities between them.
//!
//! A symbol stands for one integer that does not change while it is in scope: a parameter, a loaded value,
//! the number of completed iterations of a loop. A [`Linear`] is `constant + Σ coefficient × symbol` over the
//! integers, without wrap-around; any operation that would exceed 128 bits returns `None` instead.

use std::cell::Cell;
use std::rc::Rc;

pub type Symbol = u32;

/// The captured length of the longest packet of the batch.
pub const LENGTH: Symbol = 0;
/// The number of packets in the batch.
pub const COUNT: Symbol = 1;
/// The address of the batch's descriptors.
pub const DESCRIPTORS: Symbol = 2;

/// `constant + Σ coefficient × symbol`, sorted by symbol, no coefficient zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Linear {
    pub constant: i128,
    pub terms: Vec<(Symbol, i128)>,
}

/// The largest absolute value of a coefficient, so that products of two fit 128 bits.
const MAX_COEFFICIENT: i128 = 1 << 62;
/// The largest number of terms of a form.
const MAX_TERMS: usize = 8;

impl Linear {
    pub fn constant(n: i128) -> Self {
        Self { constant: n, terms: Vec::new() }
    }

    pub fn symbol(symbol: Symbol) -> Self {
        Self { constant: 0, terms: vec![(symbol, 1)] }
    }

    /// Returns the coefficient of a symbol, which is 0 if the form does not contain it.
    pub fn coefficient(&self, symbol: Symbol) -> i128 {
        self.terms.binary_search_by_key(&symbol, |t| t.0).map_or(0, |at| self.terms[at].1)
    }

    /// Returns `self + n`.
    pub fn shifted(&self, n: i128) -> Option<Self> {
        Some(Self { constant: self.constant.checked_add(n)?, terms: self.terms.clone() })
    }

    /// Returns `a × self + b × other`.
    pub fn combined(&self, a: i128, other: &Self, b: i128) -> Option<Self> {
        let mut out = Self::default();
        self.combine_into(a, other, b, &mut out).then_some(out)
    }

    /// Writes `a × self + b × other` to `out`, whose memory is used again. Returns false if it exceeds a
    /// limit.
    fn combine_into(&self, a: i128, other: &Self, b: i128, out: &mut Self) -> bool {
        out.terms.clear();
        self.combine(a, other, b, out).is_some()
    }

    fn combine(&self, a: i128, other: &Self, b: i128, out: &mut Self) -> Option<()> {
        out.constant = product(self.constant, a)?.checked_add(product(other.constant, b)?)?;
        let (mut left, mut right) = (&self.terms[..], &other.terms[..]);
        out.terms.reserve(left.len() + right.len());
        loop {
            let (symbol, n) = match (left, right) {
                ([l, rest @ ..], [r, others @ ..]) if l.0 == r.0 => {
                    (left, right) = (rest, others);
                    (l.0, product(l.1, a)?.checked_add(product(r.1, b)?)?)
                }
                ([l, rest @ ..], _) if right.first().is_none_or(|r| l.0 < r.0) => {
                    left = rest;
                    (l.0, product(l.1, a)?)
                }
                (_, [r, others @ ..]) => {
                    right = others;
                    (r.0, product(r.1, b)?)
                }
                (_, []) => break,
            };
            if n.abs() > MAX_COEFFICIENT {
                return None;
            }
            if n != 0 {
                out.terms.push((symbol, n));
            }
        }
        (out.terms.len() <= MAX_TERMS).then_some(())
    }

    /// Returns the difference, or `None` if it exceeds the limits of a form.
    pub fn minus(&self, other: &Self) -> Option<Self> {
        self.combined(1, other, -1)
    }

    /// Returns the greatest common divisor of the coefficients; 1 if there are none.
    fn divisor(&self) -> i128 {
        let mut all = 0;
        for (_, n) in &self.terms {
            all = gcd(all, *n);
            if all == 1 {
                break;
            }
        }
        all.max(1)
    }

    /// Returns whether a symbol occurs in both forms.
    pub fn shares_symbol(&self, other: &Self) -> bool {
        self.symbols() & other.symbols() != 0 && self.terms.iter().any(|term| other.coefficient(term.0) != 0)
    }

    /// Returns a number above 1 and the remainder that this form and `other` both have modulo it, for any
    /// values of their symbols, if there is one.
    pub fn common_remainder(&self, other: &Self) -> Option<(i128, i128)> {
        let terms = self.terms.iter().chain(&other.terms).map(|term| term.1);
        let by = terms.fold(self.constant.checked_sub(other.constant)?, gcd);
        (2..=MAX_COEFFICIENT).contains(&by).then(|| (by, self.constant.rem_euclid(by)))
    }

    /// Returns whether all coefficients have a common divisor above 1.
    pub fn divides(&self) -> bool {
        self.divisor() > 1
    }

    /// Returns the strongest form that is at least 0 if and only if this one is, over the integers:
    /// `g × x + c ≥ 0` is equivalent to `x + ⌊c / g⌋ ≥ 0`.
    #[must_use]
    pub fn tightened(self) -> Self {
        match self.divisor() {
            1 => self,
            g => Self {
                constant: self.constant.div_euclid(g),
                terms: self.terms.into_iter().map(|(s, n)| (s, n / g)).collect(),
            },
        }
    }

    /// Returns the weakest form with the same coefficients that is at least 0 if and only if this one is,
    /// over the integers: `g × x + c ≥ 0` follows from `g × x + (g × ⌊c / g⌋ + g - 1) ≥ 0`.
    #[must_use]
    pub fn relaxed(mut self) -> Self {
        self.relax();
        self
    }

    fn relax(&mut self) {
        let g = self.divisor();
        if g > 1 {
            let spare = g - 1 - self.constant.rem_euclid(g);
            self.constant = self.constant.saturating_add(spare);
        }
    }

    /// Returns a set that contains all symbols of the form, and perhaps others: the bits of [`bit`].
    fn symbols(&self) -> u64 {
        self.terms.iter().fold(0, |all, term| all | bit(term.0))
    }

    /// Returns the form with `symbol` replaced by `by`.
    pub fn substitute(&self, symbol: Symbol, by: &Self) -> Option<Self> {
        let n = self.coefficient(symbol);
        if n == 0 {
            return Some(self.clone());
        }
        let mut rest = self.clone();
        rest.terms.retain(|t| t.0 != symbol);
        rest.combined(1, by, n)
    }
}

fn bit(symbol: Symbol) -> u64 {
    1 << (symbol % 64)
}

/// Returns `|d| / g` and `|c| / g`, with `g` the greatest common divisor.
fn ratio(c: i128, d: i128) -> (i128, i128) {
    let (c, d) = (c.abs(), d.abs());
    if d == 1 {
        return (1, c);
    }
    match gcd(c, d) {
        1 => (d, c),
        g => (d / g, c / g),
    }
}

/// Returns a product unless it overflows. Most factors are short, and such products cannot.
fn product(a: i128, b: i128) -> Option<i128> {
    match (i64::try_from(a), i64::try_from(b)) {
        (Ok(a), Ok(b)) => Some(i128::from(a) * i128::from(b)),
        _ => a.checked_mul(b),
    }
}

/// Returns the greatest common divisor; 0 for two zeros.
pub fn gcd(mut a: i128, mut b: i128) -> i128 {
    // Division of short numbers is far faster.
    if let (Ok(short), Ok(other)) = (u64::try_from(a.unsigned_abs()), u64::try_from(b.unsigned_abs())) {
        let (mut short, mut other) = (short, other);
        while other != 0 {
            (short, other) = (other, short % other);
        }
        return short.into();
    }
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.abs()
}

/// A fact: this form is at least 0.
pub type Fact = Rc<Linear>;

/// An upper bound that may grow with the captured length: `(constant + slope × LENGTH) / divisor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upper {
    pub constant: i128,
    pub slope: i128,
    pub divisor: i128,
}

/// The length of a packet for which upper bounds are compared.
const TYPICAL: i128 = 1514;

impl Upper {
    fn is_below(self, other: Self) -> bool {
        let at = |u: Self| u.constant.saturating_add(u.slope.saturating_mul(TYPICAL));
        at(self).saturating_mul(other.divisor) < at(other).saturating_mul(self.divisor)
    }
}

/// All symbols of one walk, with their intervals.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    ranges: Vec<(u64, u64)>,
    /// The number of elimination steps that may still be taken; symbols cost some of them.
    steps: Cell<u64>,
}

/// The steps that a symbol costs: its memory and the memory of the value it names are as much work as those.
const SYMBOL_STEPS: u64 = 4;
/// The result where no symbol can be added. Nothing is known about it, nor does anything change that.
const NO_SYMBOL: Symbol = Symbol::MAX;

/// The largest number of elimination steps of one question.
const QUESTION_STEPS: u32 = 400;
/// The largest number of elimination steps of a question that is asked of many values.
const QUICK_STEPS: u32 = 24;
/// The largest number of elimination steps of a question about every condition.
const FEW_STEPS: u32 = 4;
/// The largest number of terms of a form that is rounded.
const MAX_ROUNDED: usize = 3;
/// The largest number of facts combined in one proof.
const DEPTH: u32 = 3;
/// A bound without the captured length for which a better one is sought with more facts.
const LARGE: i128 = 4096;

impl Symbols {
    /// Creates a table without symbols. Adding symbols and proofs may take `steps` steps in all.
    pub fn new(steps: u64) -> Self {
        Self { ranges: Vec::new(), steps: Cell::new(steps) }
    }

    pub fn steps_left(&self) -> u64 {
        self.steps.get()
    }

    /// Adds a symbol for an integer of this interval, for [`SYMBOL_STEPS`] steps.
    ///
    /// Without steps, or numbers for symbols, it adds none, and the result must not be relied upon: no steps
    /// are left then, and every walk ends with [`crate::Rule::Work`].
    pub fn add(&mut self, low: u64, high: u64) -> Symbol {
        let left = self.steps.get().checked_sub(SYMBOL_STEPS).filter(|left| *left > 0);
        let next = Symbol::try_from(self.ranges.len()).ok().filter(|next| *next < NO_SYMBOL);
        let (Some(left), Some(next)) = (left, next) else {
            self.steps.set(0);
            return NO_SYMBOL;
        };
        self.steps.set(left);
        self.ranges.push((low, high.max(low)));
        next
    }

    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the interval of a symbol, without facts.
    pub fn interval(&self, symbol: Symbol) -> (u64, u64) {
        self.ranges.get(symbol as usize).copied().unwrap_or((0, u64::MAX))
    }

    /// Narrows the interval of a symbol that was just added.
    pub fn limit(&mut self, symbol: Symbol, high: u64) {
        if let Some(range) = self.ranges.get_mut(symbol as usize) {
            range.1 = range.1.min(high).max(range.0);
        }
    }

    /// Returns the least value of a form by the intervals alone.
    pub fn least(&self, form: &Linear) -> Option<i128> {
        form.terms.iter().try_fold(form.constant, |sum, (symbol, n)| {
            let (low, high) = self.interval(*symbol);
            sum.checked_add(product(*n, if *n > 0 { low.into() } else { high.into() })?)
        })
    }

    /// Returns the greatest value of a form by the intervals alone.
    pub fn greatest(&self, form: &Linear) -> Option<i128> {
        form.terms.iter().try_fold(form.constant, |sum, (symbol, n)| {
            let (low, high) = self.interval(*symbol);
            sum.checked_add(product(*n, if *n > 0 { high.into() } else { low.into() })?)
        })
    }

    /// Returns whether `goal ≥ 0` follows from the intervals and `facts`.
    ///
    /// A fact `f ≥ 0` is used by elimination: for positive `p` and `q`, if `p × goal + (p − 1) − q × f ≥ 0`
    /// then `goal ≥ 0`, since `p × goal > −p` and `goal` is an integer.
    pub fn proves(&self, goal: &Linear, facts: &[Fact]) -> bool {
        self.follows(goal, facts, DEPTH, QUESTION_STEPS)
    }

    /// Returns whether `goal ≥ 0` follows, with more facts than [`Self::proves`]: for few questions.
    pub fn proves_deeply(&self, goal: &Linear, facts: &[Fact]) -> bool {
        self.follows(goal, facts, DEPTH + 1, 4 * QUICK_STEPS)
    }

    /// Returns whether `goal ≥ 0` follows with one fact at a time: for questions that are asked of many
    /// values.
    pub fn proves_directly(&self, goal: &Linear, facts: &[Fact]) -> bool {
        self.follows(goal, facts, 1, QUICK_STEPS)
    }

    /// Returns whether `goal ≥ 0` follows with two facts at a time, in as many steps as
    /// [`Self::proves_directly`].
    pub fn proves_quickly(&self, goal: &Linear, facts: &[Fact]) -> bool {
        self.follows(goal, facts, 2, QUICK_STEPS)
    }

    /// Returns whether `goal ≥ 0` follows with two facts at a time.
    pub fn proves_nearly(&self, goal: &Linear, facts: &[Fact]) -> bool {
        self.follows(goal, facts, 2, 2 * QUICK_STEPS)
    }

    fn follows(&self, goal: &Linear, facts: &[Fact], depth: u32, steps: u32) -> bool {
        let steps = Cell::new(steps);
        match goal.divides() {
            true => self.eliminates(&goal.clone().relaxed(), facts, depth, &steps),
            false => self.eliminates(goal, facts, depth, &steps),
        }
    }

    fn eliminates(&self, goal: &Linear, facts: &[Fact], depth: u32, steps: &Cell<u32>) -> bool {
        if self.least(goal).is_some_and(|n| n >= 0) {
            return true;
        }
        if depth == 0 || goal.terms.is_empty() {
            return false;
        }
        if self.rounds(goal, facts, depth, steps) {
            return true;
        }
        let (symbols, mut rest) = (goal.symbols(), Linear::default());
        facts.iter().rev().any(|fact| {
            fact.terms.iter().any(|(symbol, d)| {
                if symbols & bit(*symbol) == 0 {
                    return false;
                }
                let c = goal.coefficient(*symbol);
                if c == 0 || (c > 0) != (*d > 0) || !self.step(steps) {
                    return false;
                }
                let (p, q) = ratio(c, *d);
                if !goal.combine_into(p, fact, -q, &mut rest) {
                    return false;
                }
                let Some(constant) = rest.constant.checked_add(p - 1) else { return false };
                rest.constant = constant;
                rest.relax();
                self.eliminates(&rest, facts, depth - 1, steps)
            })
        })
    }

    /// Returns whether the goal follows with one symbol at the end of its interval, where the others have a
    /// common divisor: the rest can be rounded.
    fn rounds(&self, goal: &Linear, facts: &[Fact], depth: u32, steps: &Cell<u32>) -> bool {
        if !(2..=MAX_ROUNDED).contains(&goal.terms.len()) {
            return false;
        }
        goal.terms.iter().enumerate().any(|(at, (symbol, n))| {
            let others = || goal.terms.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, t)| *t);
            let divisor = others().fold(0, |g, (_, n)| gcd(g, n));
            if divisor < 2 || n % divisor == 0 || !self.step(steps) {
                return false;
            }
            let (low, high) = self.interval(*symbol);
            let end = i128::from(if *n > 0 { low } else { high });
            let Some(constant) = product(*n, end).and_then(|least| goal.constant.checked_add(least)) else {
                return false;
            };
            let rest = Linear { constant, terms: others().collect() };
            self.eliminates(&rest.relaxed(), facts, depth, steps)
        })
    }

    fn step(&self, steps: &Cell<u32>) -> bool {
        let (of_question, of_all) = (steps.get(), self.steps.get());
        steps.set(of_question.saturating_sub(1));
        self.steps.set(of_all.saturating_sub(1));
        of_question > 0 && of_all > 0
    }

    /// Returns whether `form ≥ 0` contradicts the intervals and `facts`.
    pub fn refutes(&self, form: &Linear, facts: &[Fact]) -> bool {
        let negative = Linear::constant(-1).combined(1, form, -1);
        negative.is_some_and(|n| self.proves_directly(&n, facts))
    }

    /// Returns whether `form ≥ 0` contradicts an interval or one of the newest facts: for questions about
    /// every condition.
    pub fn refutes_at_once(&self, form: &Linear, facts: &[Fact]) -> bool {
        let negative = Linear::constant(-1).combined(1, form, -1);
        negative.is_some_and(|n| self.follows(&n, facts, 1, FEW_STEPS))
    }

    /// Returns the best upper bound that elimination finds.
    pub fn upper(&self, form: &Linear, facts: &[Fact]) -> Option<Upper> {
        let steps = Cell::new(QUESTION_STEPS);
        let mut best = None;
        self.search(form, 1, facts, (DEPTH, &steps), true, &mut best);
        best
    }

    /// Returns an upper bound like [`Self::upper`]. If that is large and does not grow with the captured
    /// length, it is sought with one more fact: a length that a packet states is below the captured one,
    /// which is below the longest.
    pub fn upper_by_length(&self, form: &Linear, facts: &[Fact]) -> Option<Upper> {
        let mut best = self.upper(form, facts);
        if best.is_some_and(|best| best.slope == 0 && best.constant.div_euclid(best.divisor) >= LARGE) {
            let steps = Cell::new(4 * QUESTION_STEPS);
            self.search(form, 1, facts, (DEPTH + 1, &steps), true, &mut best);
        }
        best
    }

    /// Returns the greatest value that elimination finds, for any captured length.
    pub fn most(&self, form: &Linear, facts: &[Fact]) -> Option<i128> {
        self.most_by(form, facts, (1, QUICK_STEPS))
    }

    /// Returns the greatest value that elimination finds with two facts at a time, for any captured length.
    pub fn most_nearly(&self, form: &Linear, facts: &[Fact]) -> Option<i128> {
        self.most_by(form, facts, (2, 2 * QUICK_STEPS))
    }

    fn most_by(&self, form: &Linear, facts: &[Fact], (depth, steps): (u32, u32)) -> Option<i128> {
        if form.terms.is_empty() {
            return Some(form.constant);
        }
        let steps = Cell::new(steps);
        let mut best = None;
        self.search(form, 1, facts, (depth, &steps), false, &mut best);
        best.map(|u| u.constant.div_euclid(u.divisor))
    }

    /// Returns the least value that elimination finds.
    pub fn fewest(&self, form: &Linear, facts: &[Fact]) -> Option<i128> {
        self.most(&Linear::default().combined(1, form, -1)?, facts).and_then(i128::checked_neg)
    }

    fn search(
        &self,
        form: &Linear,
        divisor: i128,
        facts: &[Fact],
        (depth, steps): (u32, &Cell<u32>),
        by_length: bool,
        best: &mut Option<Upper>,
    ) {
        if let Some(found) = self.direct(form, divisor, by_length)
            && best.is_none_or(|best| found.is_below(best))
        {
            *best = Some(found);
        }
        if depth == 0 || form.terms.is_empty() {
            return;
        }
        let (symbols, mut next) = (form.symbols(), Linear::default());
        for fact in facts.iter().rev() {
            for (symbol, d) in &fact.terms {
                if symbols & bit(*symbol) == 0 {
                    continue;
                }
                let c = form.coefficient(*symbol);
                if c == 0 || (c > 0) == (*d > 0) || (by_length && *symbol == LENGTH) {
                    continue;
                }
                if !self.step(steps) {
                    return;
                }
                let (p, q) = ratio(c, *d);
                if form.combine_into(p, fact, q, &mut next)
                    && let Some(divisor) = divisor.checked_mul(p)
                {
                    self.search(&next, divisor, facts, (depth - 1, steps), by_length, best);
                }
            }
        }
    }

    /// Returns `form / divisor` with every symbol but the length at the end of its interval.
    fn direct(&self, form: &Linear, divisor: i128, by_length: bool) -> Option<Upper> {
        let slope = if by_length { form.coefficient(LENGTH).max(0) } else { 0 };
        if slope == 0 {
            return Some(Upper { constant: self.greatest(form)?, slope, divisor });
        }
        let rest = form.combined(1, &Linear { constant: 0, terms: vec![(LENGTH, 1)] }, -slope);
        Some(Upper { constant: self.greatest(&rest?)?, slope, divisor })
    }
}
