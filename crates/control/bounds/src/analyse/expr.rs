//! Values of a function as sums of symbols: what is known of them, and what follows.
//!
//! A symbol stands for one value that does not change: a parameter, what a load gave, a loop's turn. So what is known
//! of it stays known. Arithmetic is that of Wasm, modulo 2^bits.

use super::poly::Poly;
use std::rc::Rc;

pub type Sym = u32;

/// `constant + Σ coefficient × symbol`, modulo 2^bits. Sorted by symbol, no coefficient 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expr {
    pub bits: u8,
    pub constant: u64,
    pub terms: Vec<(Sym, u64)>,
}

/// Terms of a sum, at most; more become one symbol.
const MAX_TERMS: usize = 6;

/// How a symbol came about, where a loop may end by it.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// Of another value divided by at least 2.
    Halved(Rc<Expr>),
    /// Another value without its lowest 1.
    Cleared(Rc<Expr>),
}

/// What a number comes from, and with it the work that it counts: the classes of the RBClick study.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub enum Depends {
    /// E1.
    #[default]
    Nothing,
    /// E2: how long the packet is.
    Length,
    /// E3: how long its headers are.
    Headers,
    /// E4: what lies at a fixed place of the module's memory, as parameters and what was made of them at the start do.
    Configuration,
    /// E5: what lies elsewhere in its memory, such as in an entry of a table.
    Stored,
    /// E6: what the packet says.
    Field,
    /// E7.
    Unknown,
}

impl Depends {
    /// E1 to E7.
    pub fn class(self) -> &'static str {
        ["E1", "E2", "E3", "E4", "E5", "E6", "E7"][self as usize]
    }
}

/// What is known of a symbol: `low..=high`, and a bound that may grow with the captured length.
#[derive(Clone, Debug)]
pub struct Known {
    pub low: u64,
    pub high: u64,
    pub upper: Poly,
    pub origin: Option<Origin>,
    pub depends: Depends,
    /// Whether it is an address in a packet, as a rule.
    pub in_packet: bool,
}

/// A comparison that holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    Less(Rc<Expr>, Rc<Expr>),
    AtMost(Rc<Expr>, Rc<Expr>),
    Equal(Rc<Expr>, Rc<Expr>),
    Different(Rc<Expr>, Rc<Expr>),
    SignedLess(Rc<Expr>, Rc<Expr>),
    SignedAtMost(Rc<Expr>, Rc<Expr>),
}

impl Fact {
    /// The same of another value, if it is of this one.
    pub fn with(&self, old: &Rc<Expr>, new: &Rc<Expr>) -> Option<Self> {
        let of = |a: &Rc<Expr>, b: &Rc<Expr>| match (a == old, b == old) {
            (true, false) => Some((new.clone(), b.clone())),
            (false, true) => Some((a.clone(), new.clone())),
            _ => None,
        };
        Some(match self {
            Self::Less(a, b) => of(a, b).map(|(a, b)| Self::Less(a, b))?,
            Self::AtMost(a, b) => of(a, b).map(|(a, b)| Self::AtMost(a, b))?,
            Self::Different(a, b) => of(a, b).map(|(a, b)| Self::Different(a, b))?,
            _ => return None,
        })
    }

    pub fn sides(&self) -> (&Rc<Expr>, &Rc<Expr>) {
        match self {
            Self::Less(a, b) | Self::AtMost(a, b) | Self::Equal(a, b) | Self::Different(a, b) => (a, b),
            Self::SignedLess(a, b) | Self::SignedAtMost(a, b) => (a, b),
        }
    }

    pub fn not(&self) -> Self {
        match self.clone() {
            Self::Less(a, b) => Self::AtMost(b, a),
            Self::AtMost(a, b) => Self::Less(b, a),
            Self::Equal(a, b) => Self::Different(a, b),
            Self::Different(a, b) => Self::Equal(a, b),
            Self::SignedLess(a, b) => Self::SignedAtMost(b, a),
            Self::SignedAtMost(a, b) => Self::SignedLess(b, a),
        }
    }
}

pub fn mask(bits: u8) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

fn signed(n: u64, bits: u8) -> i128 {
    let n = i128::from(n);
    if n >= 1 << (bits - 1) { n - (1 << bits) } else { n }
}

impl Expr {
    pub fn constant(bits: u8, n: u64) -> Self {
        Self { bits, constant: n & mask(bits), terms: Vec::new() }
    }

    pub fn symbol(bits: u8, sym: Sym) -> Self {
        Self { bits, constant: 0, terms: vec![(sym, 1)] }
    }

    pub fn as_constant(&self) -> Option<u64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// `self + factor × other`; nothing if it has too many terms.
    pub fn add(&self, other: &Self, factor: u64) -> Option<Self> {
        let m = mask(self.bits);
        let mut terms = self.terms.clone();
        for (sym, n) in &other.terms {
            let n = n.wrapping_mul(factor) & m;
            match terms.binary_search_by_key(sym, |(s, _)| *s) {
                Ok(at) => terms[at].1 = terms[at].1.wrapping_add(n) & m,
                Err(at) => terms.insert(at, (*sym, n)),
            }
        }
        terms.retain(|(_, n)| *n != 0);
        let constant = self.constant.wrapping_add(other.constant.wrapping_mul(factor)) & m;
        (terms.len() <= MAX_TERMS).then_some(Self { bits: self.bits, constant, terms })
    }

    /// Terms that both have, and the lesser constant.
    pub fn common(&self, other: &Self) -> Option<Self> {
        let terms = self.terms.iter().filter(|t| other.terms.contains(t)).copied().collect();
        let (a, b) = (self.constant, other.constant);
        let constant = if signed(a, self.bits) <= signed(b, self.bits) { a } else { b };
        (self.bits == other.bits).then_some(Self { bits: self.bits, constant, terms })
    }

    pub fn minus(&self, other: &Self) -> Option<Self> {
        self.add(other, u64::MAX)
    }

    pub fn scaled(&self, factor: u64) -> Self {
        let zero = Self::constant(self.bits, 0);
        zero.add(self, factor).unwrap_or(zero)
    }

    /// The coefficient of a symbol.
    pub fn of(&self, sym: Sym) -> u64 {
        self.terms.iter().find(|(s, _)| *s == sym).map_or(0, |(_, n)| *n)
    }

    /// Whether `n` divides the sum as one of integers, whatever its symbols are.
    pub fn divides(&self, n: u64) -> bool {
        let by = |c: u64| signed(c, self.bits) % i128::from(n.max(1)) == 0;
        by(self.constant) && self.terms.iter().all(|(_, c)| by(*c))
    }
}

impl Expr {
    /// Whether it is a multiple of a power of two, modulo 2^bits as well.
    pub fn is_multiple_of(&self, power: Option<u64>) -> bool {
        power.is_some_and(|p| {
            p.is_power_of_two()
                && p <= 1 << (self.bits - 1)
                && self.constant.is_multiple_of(p)
                && self.terms.iter().all(|(_, c)| c.is_multiple_of(p))
        })
    }

    /// The sum divided by what divides each part of it.
    pub fn divided(&self, n: u64) -> Option<Self> {
        let by = |c: u64| (signed(c, self.bits) / i128::from(n.max(1))) as u64 & mask(self.bits);
        let terms = self.terms.iter().map(|(sym, c)| (*sym, by(*c))).collect();
        self.divides(n).then(|| Self { bits: self.bits, constant: by(self.constant), terms })
    }

    /// Whether each of its symbols is in `a` or `b`, as it is in their difference: cheaper to ask than to subtract.
    fn is_made_of(&self, a: &Self, b: &Self) -> bool {
        self.terms.iter().all(|(sym, _)| [a, b].iter().any(|e| e.terms.iter().any(|(s, _)| s == sym)))
    }

    /// The same sum with other bits: modulo fewer, or of a sum that is exact with more.
    pub fn with_bits(&self, bits: u8) -> Self {
        let of = |c: u64| signed(c, self.bits) as u64 & mask(bits);
        let terms = self.terms.iter().map(|(sym, c)| (*sym, of(*c))).filter(|(_, c)| *c != 0).collect();
        Self { bits, constant: of(self.constant), terms }
    }
}

/// All symbols of one function's walk.
#[derive(Default)]
pub struct Symbols {
    known: Vec<Known>,
    /// What a symbol depends on that is made now, of others.
    pub of: Depends,
}

impl Symbols {
    pub fn count(&self) -> Sym {
        self.known.len() as Sym
    }

    pub fn add(&mut self, known: Known) -> Sym {
        self.known.push(known);
        self.count() - 1
    }

    /// A value between two others.
    pub fn within(&mut self, bits: u8, low: u64, high: u64) -> Rc<Expr> {
        let upper = Poly::constant(high);
        Rc::new(Expr::symbol(
            bits,
            self.add(Known { low, high, upper, origin: None, depends: self.of, in_packet: false }),
        ))
    }

    pub fn any(&mut self, bits: u8) -> Rc<Expr> {
        self.within(bits, 0, mask(bits))
    }

    pub fn get(&self, sym: Sym) -> Option<&Known> {
        self.known.get(sym as usize)
    }

    pub fn get_mut(&mut self, sym: Sym) -> Option<&mut Known> {
        self.known.get_mut(sym as usize)
    }

    pub fn in_packet(&self, e: &Expr) -> bool {
        e.terms.iter().any(|(sym, _)| self.get(*sym).is_some_and(|k| k.in_packet))
    }

    /// Says of a symbol what is known of those it was made of.
    pub fn mark_in_packet(&mut self, e: &Expr) {
        if let [(sym, _)] = e.terms[..]
            && let Some(known) = self.get_mut(sym)
        {
            known.in_packet = true;
        }
    }

    /// What a sum depends on.
    pub fn depends(&self, e: &Expr) -> Depends {
        e.terms.iter().filter_map(|(sym, _)| self.get(*sym)).map(|k| k.depends).max().unwrap_or_default()
    }

    /// Whether a comparison follows from facts.
    pub fn holds(&self, fact: &Fact, facts: &[Fact]) -> bool {
        if facts.contains(fact) {
            return true;
        }
        let of = |e: &Expr| self.range(e, facts);
        match fact {
            Fact::Less(a, b) => of(a).1 < of(b).0,
            Fact::AtMost(a, b) => {
                of(a).1 <= of(b).0 || a == b || facts.contains(&Fact::Less(a.clone(), b.clone()))
            }
            Fact::Different(a, b) => of(a).1 < of(b).0 || of(b).1 < of(a).0,
            _ => false,
        }
    }

    /// Least and largest value of a symbol, given facts.
    fn of_symbol(&self, sym: Sym, facts: &[Fact]) -> (u64, u64) {
        let Some(known) = self.get(sym) else { return (0, u64::MAX) };
        let (mut low, mut high) = (known.low, known.high);
        // Facts about it, and about a multiple of it that does not wrap.
        let times = |e: &Expr| match e.terms[..] {
            [(s, n)] if s == sym && e.constant == 0 && known.high.checked_mul(n)? <= mask(e.bits) => Some(n),
            _ => None,
        };
        for fact in facts {
            let (a, b) = match fact {
                Fact::Less(a, b) | Fact::AtMost(a, b) | Fact::Equal(a, b) | Fact::Different(a, b) => (a, b),
                Fact::SignedLess(..) | Fact::SignedAtMost(..) => continue,
            };
            let strictly = u64::from(matches!(fact, Fact::Less(..)));
            match (fact, times(a), times(b)) {
                (Fact::Less(..) | Fact::AtMost(..), Some(n), _) => {
                    high = high.min(self.plainly(b).1.saturating_sub(strictly) / n);
                }
                (Fact::Less(..) | Fact::AtMost(..), _, Some(n)) => {
                    low = low.max(self.plainly(a).0.saturating_add(strictly).div_ceil(n));
                }
                (Fact::Equal(..), Some(1), _) => {
                    let (l, h) = self.plainly(b);
                    (low, high) = (low.max(l), high.min(h));
                }
                (Fact::Equal(..), _, Some(1)) => {
                    let (l, h) = self.plainly(a);
                    (low, high) = (low.max(l), high.min(h));
                }
                (Fact::Different(..), Some(n), _) if b.as_constant() == low.checked_mul(n) => {
                    low = low.saturating_add(1);
                }
                (Fact::Different(..), _, Some(n)) if a.as_constant() == low.checked_mul(n) => {
                    low = low.saturating_add(1);
                }
                _ => {}
            }
        }
        // Contradictions are on paths that are never taken.
        if low > high { (known.low, known.high) } else { (low, high) }
    }

    /// Least and largest value without facts.
    fn plainly(&self, e: &Expr) -> (u64, u64) {
        self.exactly(e, &[]).unwrap_or((0, mask(e.bits)))
    }

    /// Least and largest value, if the sum of integers neither wraps nor is negative.
    pub fn exactly(&self, e: &Expr, facts: &[Fact]) -> Option<(u64, u64)> {
        self.integers(e, facts).map(|(low, high, _)| (low, high))
    }

    /// The same, and what the constant is then: it may be a large one, or a negative one.
    fn integers(&self, e: &Expr, facts: &[Fact]) -> Option<(u64, u64, i128)> {
        if let Some(n) = e.as_constant() {
            return Some((n, n, n.into()));
        }
        let (mut low, mut high) = (0i128, 0i128);
        for (sym, n) in &e.terms {
            let (l, h) = self.of_symbol(*sym, facts);
            let n = signed(*n, e.bits);
            let (a, b) = (n.checked_mul(l.into())?, n.checked_mul(h.into())?);
            low = low.checked_add(a.min(b))?;
            high = high.checked_add(a.max(b))?;
        }
        let fits = |c: i128| {
            let (low, high) = (low.checked_add(c)?, high.checked_add(c)?);
            (low >= 0 && high <= i128::from(mask(e.bits))).then_some((low as u64, high as u64, c))
        };
        fits(signed(e.constant, e.bits)).or_else(|| fits(e.constant.into()))
    }

    /// Least and largest value, given facts about it, and about what it is so much less than.
    pub fn range(&self, e: &Expr, facts: &[Fact]) -> (u64, u64) {
        let exact = self.exactly(e, facts);
        let (mut low, mut high) = self.directly(e, facts, exact);
        if exact.is_some() {
            return (low, high);
        }
        for fact in facts {
            let (Fact::Less(a, b) | Fact::AtMost(a, b) | Fact::Different(a, b)) = fact else { continue };
            if a.bits != e.bits {
                continue;
            }
            // Of `a`, and of the difference of the two.
            let of_a = (a.terms == e.terms).then(|| (**a).clone());
            let of_difference = e.is_made_of(a, b).then(|| b.minus(a)).flatten();
            for whole in [of_a, of_difference].into_iter().flatten() {
                let Some(less) = whole.minus(e).and_then(|d| d.as_constant()).filter(|k| *k <= 1 << 20)
                else {
                    continue;
                };
                let (l, h) = self.directly(&whole, facts, self.exactly(&whole, facts));
                if less > 0 && l >= less {
                    (low, high) = (low.max(l - less), high.min(h - less));
                }
            }
        }
        if low > high { (0, mask(e.bits)) } else { (low, high) }
    }

    /// Least and largest value, given facts about it; `exact` is what it is as an integer, if it is one.
    fn directly(&self, e: &Expr, facts: &[Fact], exact: Option<(u64, u64)>) -> (u64, u64) {
        let (mut low, mut high) = exact.unwrap_or((0, mask(e.bits)));
        for fact in facts {
            let (a, b, least) = match fact {
                Fact::Less(a, b) => (a, b, 1),
                Fact::AtMost(a, b) => (a, b, 0),
                Fact::Equal(a, b) if **a == *e || **b == *e => {
                    let (l, h) = self.plainly(if **a == *e { b } else { a });
                    (low, high) = (low.max(l), high.min(h));
                    continue;
                }
                // Two that differ are not 0 apart.
                Fact::Different(a, b)
                    if low == 0
                        && a.bits == e.bits
                        && e.is_made_of(a, b)
                        && (a.minus(b).as_ref() == Some(e) || b.minus(a).as_ref() == Some(e)) =>
                {
                    low = 1;
                    continue;
                }
                Fact::Different(a, b) if **a == *e && b.as_constant() == Some(low) => {
                    low = low.saturating_add(1);
                    continue;
                }
                _ => continue,
            };
            if a.bits != e.bits {
                continue;
            }
            if **a == *e {
                high = high.min(self.plainly(b).1.saturating_sub(least));
            }
            if **b == *e {
                low = low.max(self.plainly(a).0.saturating_add(least));
            }
            // The difference of two that are in order.
            if exact.is_none() && e.is_made_of(a, b) && b.minus(a).as_ref() == Some(e) {
                low = low.max(least);
                high = high.min(self.plainly(b).1.saturating_sub(self.plainly(a).0));
            }
        }
        if low > high { exact.unwrap_or((0, mask(e.bits))) } else { (low, high) }
    }

    /// An upper bound that may grow with the length.
    pub fn upper(&self, e: &Expr, facts: &[Fact]) -> Poly {
        if let Some(sum) = self.sum(e, facts) {
            return sum;
        }
        // A difference of two in order is at most the first.
        for fact in facts {
            if let Fact::Less(a, b) | Fact::AtMost(a, b) = fact
                && a.bits == e.bits
                && e.is_made_of(a, b)
                && b.minus(a).as_ref() == Some(e)
                && let Some(sum) = self.sum(b, facts)
            {
                return sum;
            }
            if let Fact::Less(a, b) | Fact::AtMost(a, b) = fact
                && **a == *e
                && let Some(sum) = self.sum(b, facts)
            {
                return sum;
            }
        }
        Poly::constant(self.range(e, facts).1)
    }

    /// The sum of what its terms can be at most, if it is exact.
    fn sum(&self, e: &Expr, facts: &[Fact]) -> Option<Poly> {
        let (_, high, constant) = self.integers(e, facts)?;
        let mut all = Poly::ZERO;
        for (sym, n) in &e.terms {
            if let Ok(n) = u64::try_from(signed(*n, e.bits)) {
                all = all.plus(self.get(*sym)?.upper.times(Poly::constant(n)));
            }
        }
        // What does not grow is known better as a number.
        if all.as_constant().is_some() {
            return Some(Poly::constant(high));
        }
        // A negative constant is left out: what grows with the length may be 0.
        Some(all.plus(Poly::constant(u64::try_from(constant).unwrap_or(0))))
    }
}
