//! Finds certificates: facts about loops from which bounds follow.
//!
//! Nothing here has to be correct. The finder walks a module with the checker's own rules, guesses facts
//! about each loop, drops those that the rules do not confirm, and writes the remaining ones;
//! [`flame_verify::verify`] decides.

mod candidates;
mod diagnose;
mod loops;

pub use diagnose::Diagnosing;

use crate::analyse::graph::Graph;
use crate::analyse::order::Order;
use crate::analyse::returns::returning;
use flame_verify::module::Module;
use flame_verify::value::Value;
use flame_verify::walk::{Guide, LoopBody, Summary, Walk};
use flame_verify::{Certificate, Cost, LoopNote, Refused, Rule, SECTION, arguments};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Limits of a search: instructions walked, and steps of proofs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// The limit for each entry, and for all other functions together.
    pub all: u64,
    /// The limit for each function that is analysed for any arguments.
    pub each: u64,
}

impl Effort {
    /// The effort for a module that has no certificate: fractions of a second.
    pub const NODE: Self = Self { all: 2_000_000, each: 60_000 };
    /// The effort for an author who builds a module once: seconds. The bounds of the standard modules take a
    /// tenth of it.
    pub const AUTHOR: Self = Self { all: 3_000_000, each: 500_000 };
}

/// The functions that are analysed at each call, with its arguments, although they have a bound for any.
#[derive(Clone, Copy)]
struct Inlined {
    /// The size in instructions up to which they are.
    small: u32,
    /// The bound for any arguments above which they are: a function that gets packets has a better one where
    /// their lengths are known.
    costly: u128,
}

/// First more of them, which knows more, and fewer if a limit of work or depth was reached.
const INLINED: [Inlined; 2] =
    [Inlined { small: 400, costly: u128::MAX }, Inlined { small: 0, costly: u128::MAX }];
/// Those of a call with packets, of whose arguments something is known, if no bound up to [`GOOD`] was found,
/// and no limit was reached: this takes more.
const INLINED_COSTLY: Inlined = Inlined { small: 0, costly: 1 << 15 };
/// The bound for a packet with which the search ends.
const GOOD: u128 = INLINED_COSTLY.costly;

/// The bounds of functions for any arguments, so far.
pub(crate) type Bounded = Rc<RefCell<BTreeMap<u32, u128>>>;

/// The state of the finder while it walks one function.
struct Finder {
    bounded: Bounded,
    inlined: Inlined,
    /// The functions that call themselves, directly or not: recursion is not followed.
    recursive: Rc<BTreeSet<u32>>,
    /// The depth of nested explorations.
    depth: Cell<u32>,
}

impl Guide for Finder {
    fn note<'a>(
        &self,
        walk: &mut Walk<'_, 'a>,
        body: &LoopBody<'_, 'a>,
        entry: &flame_verify::state::State,
    ) -> LoopNote {
        self.find(walk, body, entry)
    }

    fn inlines(&self, walk: &Walk<'_, '_>, callee: u32, _: &[Value]) -> bool {
        if self.recursive.contains(&callee) {
            return false;
        }
        let size = walk.module.own(callee).map_or(u32::MAX, |f| f.size);
        let bounded = self.bounded.borrow();
        bounded.get(&callee).is_none_or(|cost| size <= self.inlined.small || *cost > self.inlined.costly)
    }
}

/// The result of a search.
enum Searched<T> {
    Found(T),
    /// A limit of work or depth was reached.
    Limited,
    None,
}

impl<T> Searched<T> {
    fn of(outcome: Result<T, Refused>, is_enough: impl Fn(&T) -> bool) -> Self {
        match outcome {
            Ok(found) if is_enough(&found) => Self::Found(found),
            Err(Refused { rule: Rule::Work | Rule::TooDeep, .. }) => Self::Limited,
            _ => Self::None,
        }
    }

    fn map<U>(self, f: impl FnOnce(T) -> U) -> Searched<U> {
        match self {
            Self::Found(found) => Searched::Found(f(found)),
            Self::Limited => Searched::Limited,
            Self::None => Searched::None,
        }
    }
}

/// Searches with each of [`INLINED`] as long as a limit is reached.
fn search<T>(mut with: impl FnMut(Inlined) -> Searched<T>) -> Searched<T> {
    let mut found = Searched::None;
    for inlined in INLINED {
        found = with(inlined);
        if !matches!(found, Searched::Limited) {
            break;
        }
    }
    found
}

/// Returns a certificate for a valid module. Entries for which nothing was found have no bound under it.
///
/// # Errors
///
/// Returns an error if the module is malformed. A module without any bound is no error.
pub fn find(wasm: &[u8], effort: Effort) -> Result<Certificate, wasmparser::Error> {
    let module = Module::read(wasm, SECTION)?;
    let graph = Graph::read(wasm, &module)?;
    Ok(find_in(&module, &graph, effort))
}

/// Returns a finder that keeps the obstacles it meets. Functions with a bound for any arguments are not
/// followed, nor are recursive ones.
pub(crate) fn diagnosing(bounded: Bounded, recursive: Rc<BTreeSet<u32>>) -> Diagnosing {
    Diagnosing::new(Finder { bounded, inlined: INLINED[1], recursive, depth: Cell::new(0) })
}

/// Returns a certificate for a parsed module.
pub(crate) fn find_in(module: &Module<'_>, graph: &Graph, effort: Effort) -> Certificate {
    let returns = returning(module, graph);
    let own = graph.own();
    let mut certificate =
        Certificate { diverging: own.filter(|f| !returns.contains(f)).collect(), ..Certificate::default() };
    let Order { functions: order, recursive, .. } = Order::of(module, graph, &returns);
    let recursive = Rc::new(recursive);
    let mut summaries: BTreeMap<u32, Summary> = BTreeMap::new();
    let mut work = effort.all;
    // Shared: a module may have very many functions.
    let bounded = Bounded::default();
    let finder = |inlined| {
        let (bounded, recursive, depth) = (bounded.clone(), recursive.clone(), Cell::new(0));
        Rc::new(Finder { bounded, inlined, recursive, depth })
    };
    for function in order {
        if certificate.diverging.contains(&function) || recursive.contains(&function) {
            continue;
        }
        let found = search(|inlined| {
            let guide = finder(inlined);
            let each = work.min(effort.each);
            let mut walk = Walk::new(module, (&summaries, &certificate.diverging), Default::default(), each)
                .guided(guide);
            let arguments = walk.any_arguments(function);
            let outcome = walk.entry(function, arguments);
            work = work.saturating_sub(each - walk.work.min(walk.values.symbols.steps_left()));
            let outcome = Searched::of(outcome, |o| is_useful(o.cost));
            outcome.map(|o| (o, std::mem::take(&mut walk.notes)))
        });
        if let Searched::Found((outcome, notes)) = found {
            bounded.borrow_mut().insert(function, typical(outcome.cost));
            summaries.insert(function, outcome.summary());
            certificate.summaries.push((function, notes));
        }
    }
    for (name, function) in &module.exports {
        if module.own(*function).is_none() || certificate.diverging.contains(function) {
            continue;
        }
        let search_with = |inlined| {
            let guide = finder(inlined);
            let mut walk =
                Walk::new(module, (&summaries, &certificate.diverging), Default::default(), effort.all)
                    .guided(guide);
            let arguments = arguments(&mut walk, name, *function);
            let outcome = Searched::of(walk.entry(*function, arguments), |o| o.cost.is_bounded());
            outcome.map(|o| (typical(o.cost), std::mem::take(&mut walk.notes)))
        };
        let mut found = search(search_with);
        let is_open = match &found {
            Searched::Found((cost, _)) => *cost > GOOD,
            Searched::Limited => false,
            Searched::None => true,
        };
        if flame_abi::layout::names::is_batch(name)
            && is_open
            && let Searched::Found(better) = search_with(INLINED_COSTLY)
            && !matches!(&found, Searched::Found((cost, _)) if *cost <= better.0)
        {
            found = Searched::Found(better);
        }
        if let Searched::Found((_, notes)) = found {
            certificate.entries.insert(*function, notes);
        }
    }
    // Others need no summary.
    let entries: Vec<u32> = certificate.entries.keys().copied().collect();
    let needed = graph.reaches(module, &entries, None);
    certificate.summaries.retain(|(function, _)| needed.contains(function));
    certificate
}

/// Returns whether a budget could allow this bound. A larger one may be due to unknown arguments.
fn is_useful(cost: Cost) -> bool {
    typical(cost) < 1 << 36
}

/// Returns the bound for one packet of a usual length.
fn typical(cost: Cost) -> u128 {
    cost.at(1, 1514).unwrap_or(u128::MAX)
}
