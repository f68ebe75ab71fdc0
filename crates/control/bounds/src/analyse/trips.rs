//! How often a loop goes back, from what must hold when it does.
//!
//! A local that each turn changes by the same amount is `start + step × turn`. If a comparison of it with something
//! that stays holds whenever the loop goes back, and counting can neither jump over the end nor wrap around before it,
//! then the number of turns follows.

use super::expr::{Depends, Expr, Fact, Origin, Sym, Symbols, mask};
use super::poly::Poly;
use std::rc::Rc;

/// A local at a loop's head: a symbol in the dry walk, and how each turn changes it.
#[derive(Clone, Debug)]
pub struct Counter {
    pub local: u32,
    /// Stands for the value at the head, in any turn.
    pub head: Sym,
    /// Before the first turn.
    pub start: Rc<Expr>,
    pub change: Change,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Adds the same, modulo 2^bits.
    By(u64),
    /// Adds at least the first and at most the second.
    Up(u64, u64),
    /// Takes away at least so much, and never more than there is.
    Down(u64),
    /// Is divided by at least 2.
    Halved,
    /// Loses a 1.
    Cleared,
    Otherwise,
}

/// What the local becomes at one place where the loop goes back.
pub fn change(head: Sym, bits: u8, after: &Expr, facts: &[Fact], symbols: &Symbols) -> Change {
    let before = Expr::symbol(bits, head);
    if after.bits != bits {
        return Change::Otherwise;
    }
    if let [(sym, 1)] = after.terms[..]
        && after.constant == 0
        && let Some(known) = symbols.get(sym)
    {
        match &known.origin {
            Some(Origin::Halved(of)) if **of == before => return Change::Halved,
            Some(Origin::Cleared(of)) if **of == before => return Change::Cleared,
            _ => {}
        }
    }
    let Some(difference) = after.minus(&before) else { return Change::Otherwise };
    if let Some(step) = difference.as_constant() {
        return Change::By(step);
    }
    if difference.of(head) != 0 {
        return Change::Otherwise;
    }
    let (low, high) = symbols.range(&difference, facts);
    if low >= 1 && high <= mask(bits) >> 1 {
        return Change::Up(low, high);
    }
    // Down by something that is known to be at most what is there.
    let taken = difference.scaled(u64::MAX);
    let (low, _) = symbols.range(&taken, facts);
    let fits = facts.iter().any(|f| match f {
        Fact::AtMost(a, b) | Fact::Less(a, b) => **a == taken && **b == before,
        _ => false,
    });
    if low >= 1 && fits { Change::Down(low) } else { Change::Otherwise }
}

/// The same for two places.
pub fn both(a: Change, b: Change) -> Change {
    use Change::{By, Otherwise, Up};
    match (a, b) {
        (a, b) if a == b => a,
        (By(n), Up(l, h)) | (Up(l, h), By(n)) if (1..1 << 31).contains(&n) => Up(l.min(n), h.max(n)),
        (By(n), By(m)) if (1..1 << 31).contains(&n) && (1..1 << 31).contains(&m) => Up(n.min(m), n.max(m)),
        (Up(l, h), Up(m, i)) => Up(l.min(m), h.max(i)),
        (Change::Down(n), Change::Down(m)) => Change::Down(n.min(m)),
        _ => Otherwise,
    }
}

/// How often a loop goes back, at most. `backs` has, for each place where it does, what holds there; `entry` what was
/// known before the loop; symbols below `first` are older than it.
///
/// And what says so. One counter must be held back at every such place: where it is not, it could run past the end and around.
pub fn trips(
    counters: &[Counter],
    backs: &[Vec<Fact>],
    entry: &[Fact],
    first: Sym,
    symbols: &Symbols,
) -> (Poly, Depends) {
    type Found = (Poly, Depends);
    let better = |a: Found, b: Found| match (a.0.at(1 << 18), b.0.at(1 << 18)) {
        (Some(x), Some(y)) if y < x => b,
        (None, _) => b,
        _ => a,
    };
    let common = |fact: &Fact| backs.iter().all(|facts| facts.contains(fact));
    let of = |counter: &Counter| {
        let start = symbols.depends(&counter.start);
        let depends = |fact: &Fact| {
            let (a, b) = fact.sides();
            let of = |e: &Expr| {
                // What changes with the turns does not say how many there are.
                let others = e.terms.iter().filter(|(sym, _)| *sym < first);
                others.filter_map(|(sym, _)| symbols.get(*sym)).map(|k| k.depends).max().unwrap_or_default()
            };
            of(a).max(of(b)).max(start)
        };
        backs.iter().fold((Poly::ZERO, Depends::Nothing), |most, facts| {
            let back = Back { facts, entry, first };
            // Two that differ at one place may be passed at another.
            let counts = facts.iter().filter(|f| !matches!(f, Fact::Different(..)) || common(f));
            let found =
                counts.filter_map(|f| Some((back.by(counter, f, symbols)?, depends(f)))).reduce(better);
            let (turns, by) = found
                .or_else(|| Some((back.without_facts(counter, symbols)?, start)))
                .unwrap_or((Poly::UNBOUNDED, Depends::Unknown));
            (most.0.max(turns), most.1.max(by))
        })
    };
    counters.iter().map(of).reduce(better).unwrap_or((Poly::UNBOUNDED, Depends::Unknown))
}

/// The number of times that a loop goes back, at most, as a sum that says what it depends on: the same at every place
/// where it does.
pub fn exactly(counters: &[Counter], backs: &[Vec<Fact>], first: Sym) -> Option<Expr> {
    let (one, others) = backs.split_first()?;
    let of = |counter: &Counter, fact: &Fact| -> Option<Expr> {
        let back = Back { facts: one, entry: &[], first };
        let Change::By(step) = counter.change else { return None };
        let bits = counter.start.bits;
        let up = step <= mask(bits) >> 1;
        let by = if up { step } else { step.wrapping_neg() & mask(bits) };
        let (Fact::Different(a, b) | Fact::Less(a, b)) = fact else { return None };
        let (with, other) = if a.bits == bits && a.of(counter.head) == 1 { (a, b) } else { (b, a) };
        let rest = back.rest(with, counter.head).filter(|_| other.bits == bits && back.stays(other))?;
        let begin = counter.start.add(&rest, 1)?;
        let distance = if up { other.minus(&begin)? } else { begin.minus(other)? };
        // Only for what counts in the direction of the comparison.
        let fits = matches!(fact, Fact::Different(..)) || (up == std::ptr::eq(with, a));
        (by > 0 && fits).then(|| distance.divided(by)).flatten()
    };
    let everywhere = |counter: &Counter, found: &Expr| {
        others.iter().all(|facts| facts.iter().any(|f| of(counter, f).as_ref() == Some(found)))
    };
    counters.iter().find_map(|counter| {
        one.iter().filter_map(|fact| of(counter, fact)).find(|found| everywhere(counter, found))
    })
}

/// One place where a loop goes back.
struct Back<'a> {
    facts: &'a [Fact],
    entry: &'a [Fact],
    first: Sym,
}

impl Back<'_> {
    /// Nothing newer than the loop is in it.
    fn stays(&self, e: &Expr) -> bool {
        e.terms.iter().all(|(sym, _)| *sym < self.first)
    }

    /// `head + k`: what is left without the head.
    fn rest(&self, e: &Expr, head: Sym) -> Option<Expr> {
        let rest = e.minus(&Expr::symbol(e.bits, head))?;
        (e.of(head) == 1 && self.stays(&rest)).then_some(rest)
    }

    fn by(&self, counter: &Counter, fact: &Fact, symbols: &Symbols) -> Option<Poly> {
        let bits = counter.start.bits;
        let (a, b) = match fact {
            Fact::Less(a, b) | Fact::AtMost(a, b) | Fact::Different(a, b) => (a, b),
            Fact::SignedLess(a, b) | Fact::SignedAtMost(a, b) => (a, b),
            Fact::Equal(..) => return None,
        };
        if a.bits != bits {
            return None;
        }
        let half = mask(bits) >> 1;
        match (&counter.change, fact) {
            (Change::By(step), Fact::Less(..) | Fact::AtMost(..)) => {
                let or_equal = u64::from(matches!(fact, Fact::AtMost(..)));
                self.ordered(counter, (*step, a, b), or_equal, mask(bits), symbols)
            }
            (Change::By(step), Fact::SignedLess(..) | Fact::SignedAtMost(..)) => {
                let or_equal = u64::from(matches!(fact, Fact::SignedAtMost(..)));
                // Where all are below half, signed and unsigned are the same.
                let small = |e: &Expr| symbols.range(e, self.entry).1 <= half;
                let (x, y) = (self.rest(a, counter.head), self.rest(b, counter.head));
                let start = |rest: &Expr| counter.start.add(rest, 1);
                let fits = match (&x, &y) {
                    (Some(rest), None) => small(b) && start(rest).is_some_and(|s| small(&s)),
                    _ => false,
                };
                if fits { self.ordered(counter, (*step, a, b), or_equal, half, symbols) } else { None }
            }
            (Change::By(step), Fact::Different(..)) => self.different(counter, *step, a, b, symbols),
            (Change::Up(least, most), Fact::Less(..) | Fact::AtMost(..)) => {
                // Either side of the change: the head itself, or what it becomes.
                let head = Expr::symbol(bits, counter.head);
                let above = a.minus(&head)?;
                let grown = symbols.range(&above, self.facts);
                let is_it = a.of(counter.head) == 1 && grown.1 <= half;
                let (_, end) = symbols.range(b, self.entry);
                let (_, start) = symbols.range(&counter.start, self.entry);
                let room = |n: u64| {
                    n.checked_add(*most)?.checked_add(grown.1)?.checked_add(1).filter(|n| *n <= mask(bits))
                };
                // What is compared is below `b` at every turn that goes back. Wherever it began, the head has come around once
                // it is not just below 2^bits, and then it grows.
                let before = if room(start).is_some() { 0 } else { grown.1 / least + 1 };
                (is_it && self.stays(b) && room(end).is_some())
                    .then(|| symbols.upper(b, self.entry).over(*least).plus(Poly::constant(1 + before)))
            }
            _ => None,
        }
    }

    /// Counting up to a greater one, or down to a smaller one.
    fn ordered(
        &self,
        counter: &Counter,
        (step, a, b): (u64, &Expr, &Expr),
        or_equal: u64,
        most: u64,
        symbols: &Symbols,
    ) -> Option<Poly> {
        let bits = counter.start.bits;
        let down = step.wrapping_neg() & mask(bits);
        if let Some(rest) =
            self.rest(a, counter.head).filter(|_| self.stays(b) && step >= 1 && step <= mask(bits) >> 1)
        {
            // What is compared begins at `first`, grows by `step`, and stays below `b`.
            let first = counter.start.add(&rest, 1)?;
            let (_, end) = symbols.range(b, self.entry);
            end.checked_add(or_equal)?.checked_add(step).filter(|n| n - 1 <= most)?;
            let whole = b
                .minus(&first)
                .filter(|d| symbols.exactly(d, self.entry).is_some() || self.in_order(&first, b));
            let distance = match whole {
                Some(d) => symbols.upper(&d, self.entry),
                None => symbols.upper(b, self.entry),
            };
            return Some(distance.plus(Poly::constant(or_equal + step - 1)).over(step));
        }
        let rest =
            self.rest(b, counter.head).filter(|_| self.stays(a) && down >= 1 && down <= mask(bits) >> 1)?;
        let first = counter.start.add(&rest, 1)?;
        let (low, _) = symbols.range(a, self.entry);
        // Before it would go below 0 it is at `a`.
        if low.saturating_add(1 - or_equal) < down {
            return None;
        }
        let distance = symbols.upper(&first, self.entry);
        Some(distance.plus(Poly::constant(or_equal + down - 1)).over(down))
    }

    fn in_order(&self, a: &Expr, b: &Expr) -> bool {
        self.entry.iter().any(|f| match f {
            Fact::Less(x, y) | Fact::AtMost(x, y) => **x == *a && **y == *b,
            _ => false,
        })
    }

    /// Counting until two are the same: the step must divide what is between them.
    fn different(&self, counter: &Counter, step: u64, a: &Expr, b: &Expr, symbols: &Symbols) -> Option<Poly> {
        let bits = counter.start.bits;
        let (with, other) = if a.of(counter.head) == 1 { (a, b) } else { (b, a) };
        let rest = self.rest(with, counter.head).filter(|_| self.stays(other))?;
        let first = counter.start.add(&rest, 1)?;
        let up = step <= mask(bits) >> 1;
        let by = if up { step } else { step.wrapping_neg() & mask(bits) };
        let distance = if up { other.minus(&first)? } else { first.minus(other)? };
        // Modulo 2^bits, only a power of two divides a number whatever is added to it for going around.
        let plain = distance.constant <= mask(bits) >> 1 || by.is_power_of_two();
        if by == 0 || !plain || !distance.divides(by) {
            return None;
        }
        let exact = symbols.exactly(&distance, self.entry).is_some();
        // Step by step it comes to any other number: after as many as there are between them, modulo 2^bits.
        let near = by == 1 && symbols.range(&distance, self.entry).1 <= mask(bits) >> 1;
        (exact || near).then(|| symbols.upper(&distance, self.entry).over(by))
    }

    /// What ends whatever is compared.
    fn without_facts(&self, counter: &Counter, symbols: &Symbols) -> Option<Poly> {
        let bits = counter.start.bits;
        let head = Expr::symbol(bits, counter.head);
        // It was not 0 yet when it went back, before or after the change.
        let is_next = |e: &Expr| match e.terms[..] {
            [(sym, 1)] if e.constant == 0 => match symbols.get(sym).and_then(|k| k.origin.as_ref()) {
                Some(Origin::Halved(of) | Origin::Cleared(of)) => **of == head,
                None => false,
            },
            _ => false,
        };
        let lives = symbols.range(&head, self.facts).0 >= 1
            || self.facts.iter().any(|f| match f {
                Fact::Different(a, b) => is_next(a) && b.as_constant() == Some(0),
                // More than anything.
                Fact::Less(_, a) => is_next(a),
                _ => false,
            });
        match counter.change {
            Change::Halved | Change::Cleared if lives => Some(Poly::constant(bits.into())),
            Change::Down(least) => Some(symbols.upper(&counter.start, self.entry).over(least)),
            _ => None,
        }
    }
}
