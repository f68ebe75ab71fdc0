//! Guesses of facts about the head of a loop, from the states at its back edges.

use flame_verify::linear::{COUNT, Fact, LENGTH, Linear, Symbol, gcd};
use flame_verify::loops::Iteration;
use flame_verify::state::State;
use flame_verify::value::{Value, signed};
use flame_verify::walk::Walk;
use flame_verify::{Reference, Template};
use std::collections::{BTreeMap, BTreeSet};

/// Larger constants are useless in a bound.
const MAX_CONSTANT: i128 = 1 << 40;

/// The names in a template for the symbols of one exploration of a loop.
struct Names {
    references: BTreeMap<Symbol, Reference>,
    trip: Symbol,
    /// The symbols of written locals at the head, by local.
    heads: BTreeMap<u32, Symbol>,
}

impl Names {
    fn new(entry: &State, iteration: &Iteration) -> Self {
        let mut references = BTreeMap::from([(LENGTH, Reference::Length), (COUNT, Reference::Count)]);
        let mut slot = 0;
        while let Some(value) = entry.slot(slot) {
            if let Value::Sum(sum) = value {
                for (n, (symbol, _)) in sum.terms.iter().enumerate() {
                    references.entry(*symbol).or_insert(Reference::Term(slot as u32, n as u32));
                }
            }
            slot += 1;
        }
        let head = &iteration.head;
        references.insert(head.trip, Reference::Trip);
        for (local, symbol) in &head.symbols {
            references.insert(*symbol, Reference::Head(*local));
        }
        Self { references, trip: head.trip, heads: head.symbols.clone() }
    }

    /// Returns whether a symbol changes from iteration to iteration and has a name in a template.
    fn changes(&self, symbol: Symbol) -> bool {
        matches!(self.references.get(&symbol), Some(Reference::Head(_) | Reference::Trip))
    }

    fn template(&self, form: &Linear) -> Option<Template> {
        let g = form.terms.iter().fold(0, |g, t| gcd(g, t.1));
        if g == 0 || !form.terms.iter().any(|t| self.changes(t.0)) {
            return None;
        }
        // In integers, the constant may be rounded down.
        let constant = form.constant.div_euclid(g);
        if constant.abs() > MAX_CONSTANT {
            return None;
        }
        let term =
            |(symbol, n): &(Symbol, i128)| Some((i64::try_from(n / g).ok()?, *self.references.get(symbol)?));
        let terms = form.terms.iter().map(term).collect::<Option<Vec<_>>>()?;
        Some(Template { constant: i64::try_from(constant).ok()?, terms })
    }
}

pub fn candidates(walk: &mut Walk<'_, '_>, entry: &State, iteration: &Iteration) -> Vec<Template> {
    let names = Names::new(entry, iteration);
    let mut forms: Vec<Linear> = Vec::new();
    for back in &iteration.backs {
        let after = Moved::new(walk, &names, back);
        // A value that is only compared with 0 ends the loop when it reaches 0.
        for sum in &back.nonzero {
            let terms = sum.terms.iter().map(|(s, n)| (*s, signed(*n, sum.bits))).collect();
            let form = Linear { constant: signed(sum.constant, sum.bits), terms };
            let falls = |f: &Linear| f.terms.iter().any(|t| names.changes(t.0) && t.1 < 0);
            for form in [Some(form.clone()), Linear::default().combined(1, &form, -1)].into_iter().flatten() {
                if let Some(moved) = after.moved(walk, &form, false)
                    && (falls(&moved) || form.terms.len() == 1)
                {
                    let g = moved.terms.iter().fold(0, |g, t| gcd(g, t.1));
                    forms.extend(moved.shifted(-g.max(1)));
                    forms.push(moved);
                }
            }
        }
        for fact in back.facts.iter().rev() {
            forms.extend(after.moved(walk, fact, true));
            // Sums that would be integers if the sought fact were known.
            if let Some(plain) = unwrapped(walk, fact) {
                forms.extend(after.moved(walk, &plain, true));
            }
        }
    }
    // Locals that only increase or only decrease, by at least 1, since the loop began.
    for (local, symbol) in &names.heads {
        let Some(Value::Sum(start)) = entry.locals.get(*local as usize) else { continue };
        let start = start.clone();
        let start = walk.values.integer(&start, &entry.facts);
        let head = Linear::symbol(*symbol);
        let trip = Linear::symbol(names.trip);
        for difference in [head.minus(&start), start.minus(&head)].into_iter().flatten() {
            forms.extend(difference.minus(&trip));
            forms.push(difference);
        }
        for limit in [LENGTH, COUNT] {
            forms.extend(Linear::symbol(limit).minus(&head));
        }
    }
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for form in forms {
        for form in weaker(walk, entry, &names, &form) {
            // A fact that the intervals already imply is not needed.
            if walk.values.symbols.least(&form).is_some_and(|n| n >= 0) {
                continue;
            }
            if let Some(template) = names.template(&form)
                && seen.insert((template.constant, template.terms.clone()))
            {
                found.push(template);
            }
        }
    }
    // Facts that limit the number of iterations come first.
    found.sort_by_key(|t: &Template| !t.terms.iter().any(|(n, r)| *r == Reference::Trip && *n < 0));
    found
}

/// Returns a fact in which names of sums are replaced by those sums, as if they could not wrap; `None` if it
/// has no such names.
fn unwrapped(walk: &Walk<'_, '_>, fact: &Linear) -> Option<Linear> {
    let (symbol, sum) = fact.terms.iter().find_map(|t| Some((t.0, walk.values.named.get(&t.0)?)))?;
    let terms = sum.terms.iter().map(|(s, n)| (*s, signed(*n, sum.bits))).collect();
    let plain = fact.substitute(symbol, &Linear { constant: signed(sum.constant, sum.bits), terms })?;
    Some(unwrapped(walk, &plain).unwrap_or(plain))
}

/// The symbols at the head of the next iteration that express facts after an iteration.
struct Moved {
    /// Replacements, by symbol; symbols without one must be eliminated by bounds.
    replace: BTreeMap<Symbol, Linear>,
    known: BTreeSet<Symbol>,
    facts: Vec<Fact>,
}

impl Moved {
    fn new(walk: &mut Walk<'_, '_>, names: &Names, back: &State) -> Self {
        let mut replace = BTreeMap::new();
        // After the iteration, one more is completed.
        replace.insert(names.trip, Linear { constant: -1, terms: vec![(names.trip, 1)] });
        for (local, head) in &names.heads {
            let Some(Value::Sum(sum)) = back.locals.get(*local as usize) else { continue };
            let sum = sum.clone();
            let after = walk.values.integer(&sum, &back.facts);
            // after = ±symbol + rest, solved for a symbol that belongs to this iteration.
            let own = after.terms.iter().find(|(s, n)| {
                n.abs() == 1 && (*s == *head || !names.references.contains_key(s)) && !replace.contains_key(s)
            });
            if let Some((symbol, n)) = own.copied()
                && let Some(rest) = after.minus(&Linear { constant: 0, terms: vec![(symbol, n)] })
                && let Some(solved) =
                    Linear::symbol(*head).minus(&rest).and_then(|f| Linear::default().combined(1, &f, n))
            {
                replace.insert(symbol, solved);
            }
        }
        let known = names.references.keys().copied().collect();
        Self { replace, known, facts: back.facts.clone() }
    }

    /// Returns a form that is at least as large, over the symbols at the head of the next iteration.
    fn moved(&self, walk: &Walk<'_, '_>, form: &Linear, weaken: bool) -> Option<Linear> {
        let mut out = Linear::constant(form.constant);
        for (symbol, n) in &form.terms {
            let part = match self.replace.get(symbol) {
                Some(part) => part.clone(),
                None => Linear::symbol(*symbol),
            };
            out = out.combined(1, &part, *n)?;
        }
        let foreign: Vec<(Symbol, i128)> =
            out.terms.iter().filter(|t| !self.known.contains(&t.0)).copied().collect();
        if !weaken && !foreign.is_empty() {
            return None;
        }
        for (symbol, n) in foreign {
            let it = Linear::symbol(symbol);
            let end = if n > 0 {
                walk.values.symbols.most(&it, &self.facts)?
            } else {
                walk.values.symbols.fewest(&it, &self.facts)?
            };
            out = out.substitute(symbol, &Linear::constant(end))?;
        }
        Some(out)
    }
}

/// Returns a form, and weaker ones that hold before the loop.
fn weaker(walk: &mut Walk<'_, '_>, entry: &State, names: &Names, form: &Linear) -> Vec<Linear> {
    if !form.terms.iter().any(|t| names.changes(t.0)) {
        return Vec::new();
    }
    let mut all = vec![form.clone()];
    // A value is replaced by its upper bound.
    let mut loose = form.clone();
    for (symbol, n) in &form.terms {
        if *n <= 0 || names.changes(*symbol) || *symbol == LENGTH {
            continue;
        }
        let it = Linear::symbol(*symbol);
        let room = Linear::symbol(LENGTH).minus(&it);
        let by = match room.is_some_and(|r| walk.values.symbols.proves(&r, &entry.facts)) {
            true => Some(Linear::symbol(LENGTH)),
            false => walk.values.symbols.most(&it, &entry.facts).map(Linear::constant),
        };
        if let Some(next) = by.and_then(|by| loose.substitute(*symbol, &by)) {
            loose = next;
        }
    }
    if loose != *form {
        all.push(loose);
    }
    let before = |walk: &mut Walk<'_, '_>, form: &Linear| {
        let mut at = form.substitute(names.trip, &Linear::constant(0))?;
        for (local, head) in &names.heads {
            if at.coefficient(*head) != 0 {
                let Some(Value::Sum(sum)) = entry.locals.get(*local as usize) else { return None };
                let sum = sum.clone();
                let start = walk.values.integer(&sum, &entry.facts);
                at = at.substitute(*head, &start)?;
            }
        }
        let holds = walk.values.symbols.proves(&at, &entry.facts);
        walk.values.symbols.fewest(&at, &entry.facts).map(|n| if holds { n.max(0) } else { n })
    };
    let mut out = Vec::new();
    for form in all {
        // A fact that does not hold before the loop could contradict those that do, and hide it.
        match before(walk, &form) {
            Some(n) if n >= 0 => out.push(form),
            Some(n) if n > -(1 << 32) => out.extend(form.shifted(-n)),
            _ => {}
        }
    }
    out
}
