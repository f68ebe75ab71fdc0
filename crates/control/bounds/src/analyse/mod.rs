//! Upper bounds on what a module's calls cost, found without running them.
//!
//! A cost is a number of executed instructions, weighted as in [`crate`], of a call that returns: one that traps is the
//! module's last. It may grow with the captured length of a packet ([`Poly`]).
//!
//! **How.** Functions are walked from those that call nothing upwards. A walk goes once over the tree of frames that
//! Wasm's control flow is, with values as sums of symbols (`expr`): where ways meet, the greater cost counts, never their
//! sum, and of values what both know. A loop is walked twice: once to see what each turn adds to its locals, and what
//! must hold where it goes back (`trips`); then with locals as `start + step × turn`. Its cost is that of its worst turn,
//! as often as it can go back, and of the worst way out.
//!
//! **Why a bound is never too low.** A symbol stands for one value of one moment, so facts about it stay true. Whatever
//! is not understood is any value: of a load, a call's result, a local that a loop changes otherwise. Sums are exact only
//! where neither they nor any part can wrap. A loop whose end does not follow from what holds at every one of its ways
//! back has no bound; no bound is what follows from it.
//!
//! Time is bounded by a budget of instructions walked over; past it there is no bound. Nothing recurses deeper than
//! frames may nest here.

mod body;
mod expr;
mod module;
mod ops;
mod poly;
mod returns;
mod state;
mod trips;
mod walk;

pub use poly::Poly;

use crate::error::ModuleError;
use crate::rules::Rules;
use flame_abi::layout::{self, names};
use module::Module;
use ops::Batch;
use state::{State, Value};
use std::collections::{BTreeMap, BTreeSet};
use walk::{Summary, Walk};

pub use ops::MAX_LENGTH;

/// Instructions walked over for each one of the module, and besides.
const WALKED: u64 = 1;
const WALKED_LEAST: u64 = 1_500_000;

/// What a module's calls cost at most.
#[derive(Clone, Debug)]
pub struct Analysis {
    pub entries: Vec<Entry>,
    /// Every loop that an entry reaches, by its place.
    pub loops: Vec<LoopReport>,
    /// Functions that call each other in a circle, by name.
    pub cycles: Vec<Vec<String>>,
    /// Whether it can ask for more memory.
    pub grows: bool,
}

/// One exported function that the host calls.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    /// Of a call, but for what is counted by packet.
    pub call: Poly,
    /// Of one packet, in loops that say where each begins.
    pub packet: Poly,
    /// What there is no bound for.
    pub why: Option<String>,
}

#[derive(Clone, Debug)]
pub struct LoopReport {
    /// Name or number of the function.
    pub function: String,
    /// In the file.
    pub offset: usize,
    pub turns: Turns,
    /// Of one turn.
    pub cost: Poly,
}

/// How often a loop goes back in one go.
#[derive(Clone, Debug, PartialEq)]
pub enum Turns {
    AtMost(Poly),
    /// Once for each packet.
    Packets,
    /// Nothing that is known ends it: a counter does, that the rewriter puts in.
    Unknown,
}

/// Analyses a module that may be run: what the host calls.
pub fn analyse(wasm: &[u8], rules: &Rules) -> Result<Analysis, ModuleError> {
    crate::check(wasm, rules)?;
    entries(wasm, &|name| {
        [names::INIT, names::BATCH, names::TICK, names::END, names::MESSAGE].contains(&name)
    })
}

/// Analyses every exported function of any valid module, with any arguments.
pub fn analyse_exports(wasm: &[u8]) -> Result<Analysis, ModuleError> {
    let mut validator = wasmparser::Validator::new_with_features(crate::features::FEATURES);
    validator.validate_all(wasm).map_err(refused)?;
    entries(wasm, &|_| true)
}

fn refused(e: wasmparser::Error) -> ModuleError {
    let place = crate::Place { section: "module", function: None, offset: e.offset() };
    ModuleError::Malformed { reason: e.message().to_owned(), place }
}

fn entries(wasm: &[u8], wanted: &dyn Fn(&str) -> bool) -> Result<Analysis, ModuleError> {
    let module = Module::read(wasm).map_err(refused)?;
    let returning = returns::returning(&module);
    let (order, cycles) = order(&module, &returning);
    let mut budget = wasm.len() as u64 * WALKED + WALKED_LEAST;
    let mut summaries = BTreeMap::new();
    let mut loops: BTreeMap<usize, LoopReport> = BTreeMap::new();
    let mut reached = BTreeMap::new();
    for function in order {
        let arguments = any_arguments(&module, function);
        let mut walk = Walk::new(&module, &summaries, &returning, budget);
        let before = walk.before();
        let end = walk.function(function, arguments, before);
        budget = walk.budget;
        let summary = Summary {
            cost: cost(&walk, end.as_ref()),
            packet: end.as_ref().map_or(Poly::ZERO, |s| s.packet),
            returns: end.is_some(),
            marks: walk.marks,
            endless: walk.endless,
            why: walk.why.clone(),
        };
        let found = std::mem::take(&mut walk.loops);
        reached.insert(function, found);
        summaries.insert(function, summary);
    }
    let mut entries = Vec::new();
    let mut exports: Vec<_> = module.exports.iter().filter(|(name, _)| wanted(name)).collect();
    exports.sort_unstable();
    for (name, function) in exports {
        let mut walk = Walk::new(&module, &summaries, &returning, budget.max(WALKED_LEAST));
        let arguments = if name == names::BATCH {
            walk.batch = Some(Batch::new(&mut walk));
            vec![ops::constant(32, u64::from(layout::WINDOW + layout::BATCH_OFFSET))]
        } else {
            any_arguments(&module, *function)
        };
        let before = walk.before();
        let end = walk.function(*function, arguments, before);
        // It is known best where it is entered from.
        loops.extend(
            reaches(&module, *function)
                .into_iter()
                .filter_map(|f| reached.get(&f))
                .flatten()
                .map(|(k, v)| (*k, v.clone())),
        );
        loops.extend(std::mem::take(&mut walk.loops));
        let bounded =
            !walk.endless && end.as_ref().is_none_or(|s| s.cost.is_bounded() && s.packet.is_bounded());
        let late = (walk.budget == 0).then(|| "it takes longer to analyse than is allowed".to_owned());
        entries.push(Entry {
            name: name.clone(),
            call: cost(&walk, end.as_ref()),
            packet: end.as_ref().map_or(Poly::ZERO, |s| s.packet),
            why: walk.why.filter(|_| !bounded).or_else(|| late.filter(|_| !bounded)),
        });
    }
    Ok(Analysis { entries, loops: loops.into_values().collect(), cycles, grows: module.grows })
}

fn cost(walk: &Walk<'_, '_>, end: Option<&State>) -> Poly {
    if walk.endless { Poly::UNBOUNDED } else { end.map_or(Poly::ZERO, |s| s.cost) }
}

fn any_arguments(module: &Module<'_>, function: u32) -> Vec<Value> {
    let params = module.kind_of(function).map_or(&[][..], |t| t.params());
    params.iter().map(|kind| Value::Any(*kind)).collect()
}

/// Functions with those that they call before them; those on circles are left out, and named.
fn order(module: &Module<'_>, returning: &BTreeSet<u32>) -> (Vec<u32>, Vec<Vec<String>>) {
    let imported = module.imports.len() as u32;
    let calls_tables = |f: u32| module.own(f).is_some_and(|f| f.calls_tables);
    // A call through a table may reach whatever has an address: one more function stands for all of them.
    let tables = imported + module.functions.len() as u32;
    let callees = |f: u32| -> Vec<u32> {
        if f == tables {
            return module
                .addressed
                .iter()
                .copied()
                .filter(|a| *a >= imported && returning.contains(a))
                .collect();
        }
        let own = module.own(f).map_or(&[][..], |own| &own.calls);
        // What does not come back ends the call.
        let own = own.iter().copied().filter(|c| *c >= imported && returning.contains(c));
        own.chain(calls_tables(f).then_some(tables)).collect()
    };
    let (mut waiting, mut callers) = (BTreeMap::new(), BTreeMap::<u32, Vec<u32>>::new());
    for f in imported..=tables {
        let all: BTreeSet<u32> = callees(f).into_iter().collect();
        waiting.insert(f, all.len());
        for callee in all {
            callers.entry(callee).or_default().push(f);
        }
    }
    let mut ready: Vec<u32> = waiting.iter().filter(|(_, n)| **n == 0).map(|(f, _)| *f).collect();
    let mut order = Vec::new();
    while let Some(f) = ready.pop() {
        waiting.remove(&f);
        if f != tables {
            order.push(f);
        }
        for caller in callers.get(&f).into_iter().flatten() {
            if let Some(n) = waiting.get_mut(caller) {
                *n -= 1;
                if *n == 0 {
                    ready.push(*caller);
                }
            }
        }
    }
    // What is left is on a circle or calls one: follow calls until one comes again.
    let left: BTreeSet<u32> = waiting.keys().copied().collect();
    let mut cycles = Vec::new();
    let mut seen = BTreeSet::new();
    for start in &left {
        let (mut path, mut at) = (Vec::new(), *start);
        while seen.insert(at) {
            path.push(at);
            match callees(at).into_iter().find(|c| left.contains(c)) {
                Some(next) => at = next,
                None => break,
            }
        }
        if let Some(from) = path.iter().position(|f| *f == at) {
            let name =
                |f: &u32| if *f == tables { "a call through a table".to_owned() } else { module.name(*f) };
            cycles.push(path[from..].iter().map(name).collect());
        }
    }
    // What merely calls a circle is walked after all, with the circle unknown.
    let on_circle = |f: u32| module_on_circle(f, &callees, &left);
    order.extend(left.iter().copied().filter(|f| *f != tables && !on_circle(*f)));
    (order, cycles)
}

/// Whether a function comes back to itself by calls.
fn module_on_circle(f: u32, callees: &impl Fn(u32) -> Vec<u32>, left: &BTreeSet<u32>) -> bool {
    let (mut seen, mut todo) = (BTreeSet::new(), callees(f));
    while let Some(next) = todo.pop() {
        if next == f {
            return true;
        }
        if left.contains(&next) && seen.insert(next) {
            todo.extend(callees(next));
        }
    }
    false
}

fn reaches(module: &Module<'_>, from: u32) -> BTreeSet<u32> {
    let (mut seen, mut todo) = (BTreeSet::new(), vec![from]);
    while let Some(f) = todo.pop() {
        if let Some(own) = module.own(f)
            && seen.insert(f)
        {
            todo.extend(&own.calls);
            todo.extend(own.calls_tables.then_some(&module.addressed).into_iter().flatten());
        }
    }
    seen
}
