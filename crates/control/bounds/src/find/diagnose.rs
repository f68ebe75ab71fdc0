//! The obstacles that leave a loop without a bound, read off the states of one iteration. Nothing relies on
//! them.

use super::Finder;
use super::loops::is_useful;
use crate::analyse::Reason;
use flame_verify::linear::{Linear, Symbol};
use flame_verify::loops::Iteration;
use flame_verify::module::Node;
use flame_verify::state::State;
use flame_verify::value::{Sum, Value, Values, signed};
use flame_verify::walk::{Guide, LoopBody, Walk};
use flame_verify::{Form, LoopNote};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use wasmparser::Operator;

/// A finder that keeps the reason why each loop without a trip count has none.
pub struct Diagnosing {
    finder: Finder,
    /// The reasons by the offset of the loop, of the first entry into it without a trip count; none if there
    /// is a trip count.
    pub loops: RefCell<BTreeMap<u32, Option<Reason>>>,
}

impl Diagnosing {
    pub(super) fn new(finder: Finder) -> Self {
        Self { finder, loops: RefCell::default() }
    }
}

impl Guide for Diagnosing {
    fn note<'a>(&self, walk: &mut Walk<'_, 'a>, body: &LoopBody<'_, 'a>, entry: &State) -> LoopNote {
        let note = self.finder.find(walk, body, entry);
        let is_known = self.loops.borrow().get(&body.about.offset).is_some_and(Option::is_some);
        if self.finder.depth.get() == 0
            && !is_known
            && let Some(iteration) = self.finder.explore(walk, body, entry, &note)
        {
            let has_count = note.packets || iteration.backs.is_empty() || is_useful(iteration.head.trips);
            let reason = (!has_count).then(|| reason(&walk.values, body, &note, &iteration));
            self.loops.borrow_mut().insert(body.about.offset, reason);
        }
        note
    }

    fn inlines(&self, walk: &Walk<'_, '_>, callee: u32, arguments: &[Value]) -> bool {
        self.finder.inlines(walk, callee, arguments)
    }
}

/// The symbols of one iteration.
struct Iterated<'w> {
    values: &'w Values,
    trip: Symbol,
    /// Whether the number of completed iterations expresses a local that changes.
    steps: bool,
    /// The heads of locals that only increase or only decrease, by at least 1.
    counters: BTreeSet<Symbol>,
    /// The heads of locals that step by an amount that may be 0 or wrap around.
    varying: BTreeSet<Symbol>,
}

/// The origin of the values that a condition compares.
#[derive(Default)]
struct Compared {
    counter: bool,
    varying: bool,
    /// Values of this iteration: other locals that the loop writes, and what it loads or computes.
    changing: bool,
    /// The largest value from before the loop that takes part.
    most: u64,
}

/// The least limit for which a loop has no bound.
const MIN_UNKNOWN: u64 = 1 << 28;

fn reason(values: &Values, body: &LoopBody<'_, '_>, note: &LoopNote, iteration: &Iteration) -> Reason {
    if !leaves(body.body, 0) && iteration.end.is_none() {
        return Reason::NoExit;
    }
    let head = &iteration.head;
    let steps = note.forms.values().any(|form| matches!(form, Form::Step(by) if *by != 0));
    let mut it =
        Iterated { values, trip: head.trip, steps, counters: BTreeSet::new(), varying: BTreeSet::new() };
    for (local, symbol) in &head.symbols {
        let moves: Vec<_> = iteration.backs.iter().map(|back| it.movement(back, *local, *symbol)).collect();
        let all = |is: fn(&Movement) -> bool| moves.iter().all(is);
        if all(|m| *m == Movement::Up) || all(|m| *m == Movement::Down) {
            it.counters.insert(*symbol);
        }
        if moves.contains(&Movement::Varying) {
            it.varying.insert(*symbol);
        }
    }
    let (mut orders, mut equalities) = (Vec::new(), Vec::new());
    for back in &iteration.backs {
        let known = back.facts.iter().map(|fact| it.compared(fact));
        orders.extend(known.filter(|c| c.changing || c.most >= MIN_UNKNOWN));
        equalities.extend(back.nonzero.iter().map(|sum| it.compared(&plain(sum))));
    }
    let limits = |all: &[Compared]| {
        let counting = all.iter().filter(|c| c.counter);
        counting.filter(|c| !c.changing).map(|c| c.most).min()
    };
    if let Some(most) = limits(&orders).filter(|most| *most >= MIN_UNKNOWN) {
        return Reason::Limit { most };
    }
    if limits(&equalities).is_some() {
        return Reason::Equality;
    }
    if orders.iter().chain(&equalities).any(|c| c.counter) {
        return Reason::LimitChanges;
    }
    // A sum that decides nothing varies as well.
    let decides = orders.iter().chain(&equalities).any(|c| c.varying);
    if decides { Reason::Step } else { Reason::NoCounter }
}

/// The change of a local in one iteration.
#[derive(PartialEq)]
enum Movement {
    Up,
    Down,
    /// A change by an amount that may be 0, or so large that the sum wraps around.
    Varying,
    Other,
}

impl Iterated<'_> {
    fn movement(&self, back: &State, local: u32, head: Symbol) -> Movement {
        let Some(Value::Sum(after)) = back.locals.get(local as usize) else { return Movement::Other };
        let Some(by) = after.minus(&Sum::symbol(after.bits, head)) else { return Movement::Other };
        if by.coefficient(head) != 0 || by == Sum::constant(after.bits, 0) {
            // It is set again, or it stays as it was on this path.
            let stays = by.terms.is_empty();
            return if stays { Movement::Varying } else { Movement::Other };
        }
        let form = plain(&by);
        let before = Linear::symbol(head);
        // As integers, without wrapping: the sum lies on the same side of the value at the head.
        let Some(exact) = self.values.exact(after, &back.facts) else { return Movement::Varying };
        let symbols = &self.values.symbols;
        let above = exact.minus(&before).and_then(|d| d.shifted(-1));
        let below = before.minus(&exact).and_then(|d| d.shifted(-1));
        match (above, below) {
            (Some(above), _) if symbols.proves(&above, &back.facts) => Movement::Up,
            (_, Some(below)) if symbols.proves(&below, &back.facts) => Movement::Down,
            _ if form.terms.is_empty() => Movement::Other,
            _ => Movement::Varying,
        }
    }

    fn compared(&self, form: &Linear) -> Compared {
        let most = u64::try_from(form.constant.max(0)).unwrap_or(u64::MAX);
        let mut all = Compared { most, ..Compared::default() };
        for (symbol, _) in &form.terms {
            self.add(*symbol, &mut all, 0);
        }
        all
    }

    fn add(&self, symbol: Symbol, all: &mut Compared, depth: u32) {
        if let Some(sum) = self.values.named.get(&symbol).filter(|_| depth < 4) {
            return sum.terms.iter().for_each(|(symbol, _)| self.add(*symbol, all, depth + 1));
        }
        all.varying |= self.varying.contains(&symbol);
        if symbol == self.trip && self.steps || self.counters.contains(&symbol) {
            all.counter = true;
        } else if symbol > self.trip {
            all.changing = true;
        } else if symbol < self.trip {
            all.most = all.most.max(self.values.symbols.interval(symbol).1);
        }
    }
}

fn plain(sum: &Sum) -> Linear {
    let terms = sum.terms.iter().map(|(s, n)| (*s, signed(*n, sum.bits))).collect();
    Linear { constant: signed(sum.constant, sum.bits), terms }
}

/// Returns whether a branch leads out of the loop, which is `depth` frames further out.
fn leaves(nodes: &[Node<'_>], depth: u32) -> bool {
    nodes.iter().any(|node| match node {
        Node::Op(Operator::Br { relative_depth } | Operator::BrIf { relative_depth }, _) => {
            *relative_depth > depth
        }
        Node::Op(Operator::BrTable { targets }, _) => {
            targets.targets().flatten().chain([targets.default()]).any(|target| target > depth)
        }
        Node::Op(operator, _) => matches!(operator, Operator::Return),
        Node::Call(..) => false,
        Node::Block { body, .. } | Node::Loop { body, .. } => leaves(body, depth + 1),
        Node::If { then, or, .. } => leaves(then, depth + 1) || leaves(or, depth + 1),
    })
}
