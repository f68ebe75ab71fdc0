//! The contents of `flame check`'s report: the verified bounds of a module's calls, and estimates, on which
//! nothing relies.
//!
//! | file | what it does |
//! | --- | --- |
//! | `observe` | keeps the checker's observations during its walk |
//! | `estimate` | adds up weights along the worst-case paths |
//! | `weights` | instructions, or their times |
//! | `path` | the worst-case path, for reports |
//! | `depends` | classes E1 to E7 |
//! | `graph`, `order`, `returns`, `stack` | calls: reachability, recursion, return and depth |
//! | `reason`, `cause`, `remedy` | the cause of a missing bound, and the change that would give one |
//! | `dominant` | the loop that costs most |

mod cause;
mod depends;
mod dominant;
mod estimate;
pub(crate) mod graph;
mod observe;
pub(crate) mod order;
mod path;
mod poly;
mod reason;
mod remedy;
pub(crate) mod returns;
mod stack;
mod weights;

pub use depends::Depends;
pub use dominant::{Dominant, Kind};
pub use flame_verify::Poly;
pub use flame_verify::value::MAX_LENGTH;
pub use path::{Step, TYPICAL};
pub use reason::{Cause, Reason};
pub use remedy::Remedy;
pub use stack::Stack;
pub use weights::Costs;

use crate::rules::Rules;
use estimate::{Ask, Estimate, LoopSum};
use flame_abi::layout::names;
use flame_meter::error::ModuleError;
use flame_verify::cost::DIVERGING;
use flame_verify::module::Module;
use flame_verify::{Cost, Verified, VerifyError};
use graph::Graph;
use observe::{Recorder, Records};
use order::Order;
use serde::{Deserialize, Serialize};
use stack::Stacks;
use std::collections::{BTreeMap, BTreeSet};
use weights::Weights;

/// The maximum costs of a module's calls.
#[derive(Clone, Debug)]
pub struct Analysis {
    pub entries: Vec<Entry>,
    /// Every loop that an entry reaches, by its offset.
    pub loops: Vec<LoopReport>,
    /// The functions that call each other recursively, by name.
    pub cycles: Vec<Vec<String>>,
    /// Whether the module can request more memory.
    pub grows: bool,
    pub proved: Proved,
    /// The part of the bound of batches that costs most.
    pub dominant: Option<Dominant>,
}

/// The functions that may run without counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proved {
    /// Functions that need no counters: they are reached only by calls that are proven to end, and do not
    /// diverge (as a panic does). Calls other than batches share a budget, so functions that may cost more
    /// than [`flame_abi::CALL_UNITS`], which each call is charged, are counted.
    pub uncounted: BTreeSet<u32>,
    /// Functions that the verified bounds assume to diverge: they must trap where they would return.
    pub diverging: BTreeSet<u32>,
}

/// The maximum cost of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// The cost of a call, without the cost of its packets.
    #[serde(with = "poly")]
    pub call: Poly,
    /// The cost of one packet, in loops that mark the begin of each.
    #[serde(with = "poly")]
    pub packet: Poly,
}

impl Bound {
    pub const UNBOUNDED: Self = Self { call: Poly::UNBOUNDED, packet: Poly::UNBOUNDED };

    /// Returns whether both the call and its packets have an upper limit.
    pub fn is_bounded(self) -> bool {
        self.call.is_bounded() && self.packet.is_bounded()
    }

    /// Returns the cost of a call with `packets` packets, of which the longest has `longest` bytes: see
    /// [`Cost::at`].
    pub fn at(self, packets: u64, longest: u64) -> Option<u128> {
        Cost { call: self.call, each: Poly::ZERO, packet: self.packet }.at(packets, longest)
    }
}

impl From<Cost> for Bound {
    fn from(cost: Cost) -> Self {
        Self { call: cost.call, packet: cost.of_packet() }
    }
}

/// One exported function that the host calls.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    pub name: String,
    /// The bound in executed instructions, on all paths, with those of functions that diverge.
    pub bound: Bound,
    /// The part of `bound` that is for functions that diverge, once for each call.
    pub diverging: u64,
    /// An estimate of `bound` over paths that return and that the author did not mark as cold (`flame.cold`).
    pub common: Bound,
    /// An estimate in picoseconds over the paths of `common`, if costs were given.
    pub time: Option<Bound>,
    /// The cause why there is no bound.
    pub why: Option<Cause>,
    /// The quantity on which its work depends, in the worst case: the class of the RBClick study.
    pub depends: Depends,
    pub stack: Stack,
    /// Whether it can request more memory.
    pub grows: bool,
    /// The imports that it may call, by name.
    pub imports: Vec<String>,
    /// The worst-case path, from its beginning.
    pub path: Vec<Step>,
}

/// The result for one loop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoopReport {
    /// The name or number of the function.
    pub function: String,
    /// The offset in the file.
    pub offset: usize,
    pub trips: TripCount,
    /// The cost of one iteration.
    #[serde(with = "poly")]
    pub cost: Poly,
    /// The quantity on which the trip count depends.
    pub depends: Depends,
    /// The reason why it is counted.
    pub why: Option<Reason>,
}

/// The number of back edges of a loop each time it is entered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TripCount {
    AtMost(#[serde(with = "poly")] Poly),
    /// Once for each packet.
    Packets,
    /// No known limit: the loop has a counter, which the rewriter inserts.
    Counted,
}

/// Analyses the functions of an accepted module that the host calls. With costs, also estimates times.
///
/// # Errors
///
/// Returns an error if the module is refused by [`check`](crate::check()).
pub fn analyse(wasm: &[u8], rules: &Rules, costs: Option<&Costs>) -> Result<Analysis, ModuleError> {
    crate::check(wasm, rules)?;
    let read = Read::new(wasm, is_entry).map_err(refused)?;
    Ok(read.report(costs))
}

/// Proves bounds of an accepted module, without a report.
///
/// # Errors
///
/// Returns an error if the module is refused by [`check`](crate::check()).
pub fn prove(wasm: &[u8], rules: &Rules) -> Result<Proved, ModuleError> {
    crate::check(wasm, rules)?;
    let read = Read::new(wasm, is_entry).map_err(refused)?;
    Ok(read.proved(|name| SHARED.contains(&name)))
}

/// Analyses every exported function of any valid module, with any arguments.
///
/// # Errors
///
/// Returns an error if the module is invalid, or uses a feature that no module may use.
pub fn analyse_exports(wasm: &[u8]) -> Result<Analysis, ModuleError> {
    let mut validator = wasmparser::Validator::new_with_features(flame_meter::features::FEATURES);
    validator.validate_all(wasm).map_err(refused)?;
    let read = Read::new(wasm, |_| true).map_err(refused)?;
    Ok(read.report(None))
}

/// The calls that share budgets, of which each is charged at least [`flame_abi::CALL_UNITS`].
const SHARED: [&str; 10] = [
    names::INIT,
    names::TICK,
    names::END,
    names::MESSAGE,
    names::REST,
    names::EXPORT,
    names::IMPORT,
    names::PRESSURE,
    names::SERVE,
    names::DONE,
];

fn is_entry(name: &str) -> bool {
    names::is_batch(name) || SHARED.contains(&name)
}

fn refused(e: wasmparser::Error) -> ModuleError {
    let place = crate::Place { section: "module", function: None, offset: e.offset() };
    ModuleError::Malformed { reason: e.message().to_owned(), place }
}

/// A module and its verified properties.
pub(crate) struct Read<'a> {
    module: Module<'a>,
    graph: Graph,
    /// The exported names and functions, in order.
    exports: Vec<(&'a str, u32)>,
    verified: Verified,
    records: Records,
    /// The reason why the module's own certificate cannot be read, if it has one. The node searched instead.
    unreadable: Option<String>,
}

impl<'a> Read<'a> {
    /// Reads a valid module, and verifies its certificate, or a certificate that is found here.
    pub(crate) fn new(wasm: &'a [u8], is_wanted: fn(&str) -> bool) -> Result<Self, wasmparser::Error> {
        let module = Module::read(wasm, flame_verify::SECTION)?;
        let graph = Graph::read(wasm, &module)?;
        let verify = |certificate: &[u8]| {
            let recorder = Recorder::default();
            let verified = flame_verify::verify_observed(&module, certificate, Some(&recorder))?;
            Ok((verified, recorder.into_records()))
        };
        let own = module.certificate.map(verify).transpose();
        let unreadable = own.as_ref().err().map(|e: &VerifyError| e.to_string());
        let (verified, records) = own.ok().flatten().unwrap_or_else(|| {
            // The finder's output is parsed like any other certificate.
            let found = crate::find::find_in(&module, &graph, crate::Effort::NODE);
            verify(&found.to_bytes()).unwrap_or_default()
        });
        let mut exports: Vec<_> =
            module.exports.iter().filter(|(name, _)| is_wanted(name)).copied().collect();
        exports.sort_unstable();
        Ok(Self { module, graph, exports, verified, records, unreadable })
    }

    /// Returns the bound of an entry, and the part of it that is for functions that diverge.
    pub(crate) fn bound(&self, name: &str) -> (Bound, u64) {
        let of = self.verified.entries.iter().find(|e| e.name == name);
        let lost = if of.is_some_and(|e| e.diverges && e.bound.is_ok()) { DIVERGING } else { 0 };
        (of.and_then(|e| e.bound.ok()).map_or(Bound::UNBOUNDED, Bound::from), lost)
    }

    /// Returns the functions that need no counters, if calls of shared exports are charged as little as they
    /// may be.
    pub(crate) fn proved(&self, is_shared: impl Fn(&str) -> bool) -> Proved {
        let diverging = &self.verified.diverging;
        let (mut uncounted, mut counted) = (BTreeSet::new(), BTreeSet::new());
        for (name, function) in &self.exports {
            let (bound, lost) = self.bound(name);
            let all = self.graph.reaches(&self.module, &[*function], None);
            // An instance that diverges makes no further call that would be charged too little.
            let charged = u128::from(flame_abi::CALL_UNITS + lost);
            let is_covered = !is_shared(name) || bound.at(1, MAX_LENGTH).is_some_and(|most| most <= charged);
            if bound.is_bounded() && is_covered {
                // A function that diverges has no bound: it ends by a trap, or by its counters.
                let ended: Vec<u32> = all.intersection(diverging).copied().collect();
                counted.extend(self.graph.reaches(&self.module, &ended, None));
                uncounted.extend(all);
            } else {
                counted.extend(all);
            }
        }
        uncounted.retain(|f| !counted.contains(f));
        Proved { uncounted, diverging: diverging.clone() }
    }

    fn report(&self, costs: Option<&Costs>) -> Analysis {
        let Self { module, graph, exports, verified, records, unreadable } = self;
        let returning = returns::returning(module, graph);
        let order = Order::of(module, graph, &returning);
        let stacks = Stacks::new(module, graph, &order, &returning);
        let mut causes = cause::Causes::new(module, graph, verified, &order.recursive, unreadable.clone());
        let estimate = |ask| Estimate::new(module, &returning, ask);
        let entered: Vec<u32> = exports.iter().map(|(_, function)| *function).collect();
        let reached = graph.reaches(module, &entered, None);
        let recursive = reached.intersection(&order.recursive);

        let mut hard =
            estimate(Ask { weights: Weights::Instructions, cold: true, traces: true, without: None });
        hard.functions(
            order.functions.iter().chain(recursive).copied().filter(|f| reached.contains(f)),
            records,
        );
        let has_bound = || order.functions.iter().copied().filter(|f| records.function(*f).is_some());
        let has_cold = (0..graph.own().start).any(|f| observe::is_import(module.import(f), names::COLD));
        let mut common = has_cold.then(|| {
            estimate(Ask { weights: Weights::Instructions, cold: false, traces: false, without: None })
        });
        let mut time = costs.map(|costs| {
            estimate(Ask { weights: Weights::Time(costs), cold: false, traces: false, without: None })
        });
        for estimate in [&mut common, &mut time].into_iter().flatten() {
            estimate.functions(has_bound(), records);
        }

        let (mut entries, mut dominant) = (Vec::new(), None);
        for (name, function) in exports {
            let returned = graph.reaches(module, &[*function], Some(&returning));
            let (bound, diverging) = self.bound(name);
            let why = (!bound.is_bounded()).then(|| causes.of(name, *function));
            let seen = records.entry(*function).filter(|_| bound.is_bounded());
            let (_, path) = hard.entry(*function, seen);
            if names::is_batch(name) && bound.is_bounded() {
                let called = graph.reaches(module, &[*function], None);
                let functions: Vec<u32> =
                    order.functions.iter().copied().filter(|f| called.contains(f)).collect();
                dominant = dominant::dominant((module, graph), records, &returning, &functions, *function);
            }
            let sum = |estimate: &mut Option<Estimate<'_, '_>>| {
                Some(Bound::from(estimate.as_mut()?.entry(*function, Some(seen?)).0))
            };
            entries.push(Entry {
                name: (*name).to_owned(),
                bound,
                diverging,
                common: sum(&mut common).filter(|b| b.is_bounded()).unwrap_or(bound),
                time: time.is_some().then(|| sum(&mut time).unwrap_or(Bound::UNBOUNDED)),
                why,
                depends: seen.map_or(Depends::Unknown, |_| records.depends(*function)),
                stack: stacks.of(*function),
                grows: returned.iter().any(|f| graph.of(*f).is_some_and(|calls| calls.grows)),
                imports: graph.imports(module, &returned),
                path: path.map_or_else(Vec::new, |p| p.steps(|f| graph.name(f))),
            });
        }
        let loops = self.loops(hard.loops, &causes);
        let (cycles, grows, proved) = (order.cycles, graph.grows, self.proved(|name| SHARED.contains(&name)));
        Analysis { entries, loops, cycles, grows, proved, dominant }
    }

    /// Returns loops with their verified trip counts. A loop that no verified call enters has a counter.
    fn loops(&self, sums: BTreeMap<u32, LoopSum>, causes: &cause::Causes<'_, '_>) -> Vec<LoopReport> {
        let mut known: BTreeMap<u32, (TripCount, Poly)> = BTreeMap::new();
        for found in &self.verified.loops {
            let trips = match (found.packets, found.trips.is_bounded()) {
                (true, _) => TripCount::Packets,
                (false, true) => TripCount::AtMost(found.trips),
                (false, false) => TripCount::Counted,
            };
            let one = found.iteration.call.plus(found.iteration.of_packet());
            let place = known.entry(found.offset).or_insert_with(|| (trips.clone(), one));
            place.1 = place.1.max(one);
            place.0 = match (&place.0, trips) {
                (TripCount::AtMost(a), TripCount::AtMost(b)) => TripCount::AtMost(a.max(b)),
                (TripCount::Packets, TripCount::Packets) => TripCount::Packets,
                _ => TripCount::Counted,
            };
        }
        let report = |(offset, sum): (u32, LoopSum)| {
            let (trips, cost) = known.remove(&offset).unwrap_or((TripCount::Counted, sum.cost));
            let is_counted = trips == TripCount::Counted;
            let depends = if is_counted { Depends::Unknown } else { sum.depends };
            LoopReport {
                function: self.graph.name(sum.function),
                offset: offset as usize,
                trips,
                cost,
                depends,
                why: causes.of_loop(sum.function, offset).filter(|_| is_counted),
            }
        };
        sums.into_iter().map(report).collect()
    }
}
