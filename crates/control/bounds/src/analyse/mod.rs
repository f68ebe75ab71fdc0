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
mod cause;
mod expr;
mod graph;
mod memory;
mod module;
mod ops;
mod pass;
mod path;
mod poly;
mod returns;
mod stack;
mod state;
mod trips;
mod turns;
mod walk;
mod weights;

pub use expr::Depends;
pub(crate) use graph::order;
pub use memory::MAX_LENGTH;
pub(crate) use module::Module;
pub use path::{Step, TYPICAL};
pub use poly::Poly;
pub(crate) use returns::returning;
pub use stack::Stack;
pub use weights::Costs;

use crate::error::ModuleError;
use crate::rules::Rules;
use flame_abi::layout::names;
use pass::{Ask, Pass};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use weights::Weights;

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
    /// Functions that need no counters: only calls that are proved to end reach them, and nothing that cannot come back
    /// (a panic, or what looks like one). Calls other than batches share a budget, so that those which may cost more than
    /// [`flame_abi::CALL_UNITS`], which each is charged, are counted.
    pub proved: BTreeSet<u32>,
    /// Functions that the verified bounds assume not to return: they have to trap where they would.
    pub diverging: BTreeSet<u32>,
}

/// What one call costs at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// Of a call, but for what is counted by packet.
    #[serde(with = "poly")]
    pub call: Poly,
    /// Of one packet, in loops that say where each begins.
    #[serde(with = "poly")]
    pub packet: Poly,
}

impl Bound {
    pub const UNBOUNDED: Self = Self { call: Poly::UNBOUNDED, packet: Poly::UNBOUNDED };

    pub fn is_bounded(self) -> bool {
        self.call.is_bounded() && self.packet.is_bounded()
    }

    /// Of a call with so many packets of this length, or shorter.
    pub fn at(self, packets: u64, length: u64) -> Option<u128> {
        self.call.plus(self.packet.times(Poly::constant(packets))).at(length)
    }
}

/// One exported function that the host calls.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    pub name: String,
    /// In executed instructions, whatever happens.
    pub bound: Bound,
    /// The same, of paths that its author did not mark as cold (`flame.cold`).
    pub common: Bound,
    /// An estimate in picoseconds, of paths that are not cold; if costs were given.
    pub time: Option<Bound>,
    /// What there is no bound for.
    pub why: Option<String>,
    /// What its work depends on, in the worst case: the class of the RBClick study.
    pub depends: Depends,
    pub stack: Stack,
    /// Whether it can ask for more memory.
    pub grows: bool,
    /// Imports that it may call, by name.
    pub imports: Vec<String>,
    /// The way that costs most, from its beginning on.
    pub path: Vec<Step>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoopReport {
    /// Name or number of the function.
    pub function: String,
    /// In the file.
    pub offset: usize,
    pub turns: Turns,
    /// Of one turn.
    #[serde(with = "poly")]
    pub cost: Poly,
    /// What says how often.
    pub depends: Depends,
}

/// How often a loop goes back in one go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Turns {
    AtMost(#[serde(with = "poly")] Poly),
    /// Once for each packet.
    Packets,
    /// Nothing that is known ends it: a counter does, that the rewriter puts in.
    Unknown,
}

/// Analyses a module that may be run: what the host calls. With costs, estimates times as well.
pub fn analyse(wasm: &[u8], rules: &Rules, costs: Option<&Costs>) -> Result<Analysis, ModuleError> {
    crate::check(wasm, rules)?;
    entries(wasm, costs, &|name| {
        [names::INIT, names::BATCH, names::TICK, names::END, names::MESSAGE].contains(&name)
    })
}

/// Analyses every exported function of any valid module, with any arguments.
pub fn analyse_exports(wasm: &[u8]) -> Result<Analysis, ModuleError> {
    let mut validator = wasmparser::Validator::new_with_features(crate::features::FEATURES);
    validator.validate_all(wasm).map_err(refused)?;
    entries(wasm, None, &|_| true)
}

fn refused(e: wasmparser::Error) -> ModuleError {
    let place = crate::Place { section: "module", function: None, offset: e.offset() };
    ModuleError::Malformed { reason: e.message().to_owned(), place }
}

fn entries(
    wasm: &[u8],
    costs: Option<&Costs>,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<Analysis, ModuleError> {
    let module = Module::read(wasm).map_err(refused)?;
    let returning = returns::returning(&module);
    let (order, cycles) = graph::order(&module, &returning);
    let mut exports: Vec<(String, u32)> =
        module.exports.iter().filter(|(name, _)| wanted(name)).map(|(n, f)| (n.clone(), *f)).collect();
    exports.sort_unstable();
    let pass = Pass { module: &module, returning: &returning, order: &order, size: wasm.len() };
    let hard = pass.run(&exports, Ask { weights: Weights::Instructions, rare: true });
    let has_rare = (0..module.imports.len() as u32).any(|f| module.imports(f, names::COLD));
    let common =
        has_rare.then(|| pass.run(&exports, Ask { weights: Weights::Instructions, rare: false }).entries);
    let times = costs.map(|c| pass.run(&exports, Ask { weights: Weights::Time(c), rare: false }).entries);
    let verified = verified(wasm).map_err(refused)?;
    let (mut proved, mut counted) = (BTreeSet::new(), BTreeSet::new());
    let checked = flame_verify::module::Module::read(wasm, flame_verify::SECTION).map_err(refused)?;
    let mut causes = cause::Causes::new(&checked, &verified);
    let stacks = stack::Stacks::new(&module, &order, &returning);
    let mut entries = Vec::new();
    for (i, (name, function)) in exports.iter().enumerate() {
        let all = graph::reaches(&module, &[*function], None);
        let comes_back = graph::reaches(&module, &[*function], Some(&returning));
        let found = &hard.entries[i];
        let cost = verified.entries.iter().find(|e| e.name == *name).map(|e| e.bound);
        let (bound, why) = match cost {
            Some(Ok(cost)) => (Bound { call: cost.call, packet: cost.of_packet() }, None),
            Some(Err(refused)) => (Bound::UNBOUNDED, Some(causes.tell(&module, *function, refused))),
            None => (Bound::UNBOUNDED, Some("it was not verified".to_owned())),
        };
        let stack = stacks.of(*function);
        entries.push(Entry {
            name: name.clone(),
            bound,
            common: common
                .as_ref()
                .and_then(|c| c.get(i))
                .map(|c| divided(c.bound, bound))
                .filter(|c| c.is_bounded())
                .unwrap_or(bound),
            time: times.as_ref().and_then(|t| t.get(i)).map(|t| divided(t.bound, bound)),
            why,
            depends: if bound.is_bounded() { found.depends } else { Depends::Unknown },
            stack,
            grows: comes_back.iter().any(|f| module.own(*f).is_some_and(|f| f.grows)),
            imports: graph::imports(&module, &comes_back),
            path: found.path.clone(),
        });
        let charged = u128::from(flame_abi::CALL_UNITS);
        let is_shared = [names::INIT, names::TICK, names::END, names::MESSAGE].contains(&name.as_str());
        let is_covered = !is_shared || bound.at(1, MAX_LENGTH).is_some_and(|most| most <= charged);
        if bound.is_bounded() && is_covered {
            // What diverges has no bound: it ends by a trap, or by its counters.
            let lost: Vec<u32> = all.iter().copied().filter(|f| verified.diverging.contains(f)).collect();
            counted.extend(graph::reaches(&module, &lost, None));
            proved.extend(all);
        } else {
            counted.extend(all);
        }
    }
    let proved = proved.difference(&counted).copied().collect();
    let loops = loops(hard.loops, &verified.loops);
    Ok(Analysis { entries, loops, cycles, grows: module.grows, proved, diverging: verified.diverging })
}

/// Divides an estimate for a full batch between call and packets as the verified bound is, if that knows more of packets
/// than the estimate does.
fn divided(estimate: Bound, verified: Bound) -> Bound {
    let parts = |b: Bound| Some((b.call.at(TYPICAL)?, b.packet.at(TYPICAL)?));
    let (Some((call, packet)), Some((_, 0))) = (parts(verified), parts(estimate)) else { return estimate };
    let batch = flame_abi::MAX_BATCH as u128;
    let (Ok(of_packets), Ok(all)) = (u64::try_from(packet * batch), u64::try_from(call + packet * batch))
    else {
        return estimate;
    };
    if of_packets == 0 {
        return estimate;
    }
    let share = |part: u64, of: u64| estimate.call.times(Poly::constant(part)).over(of);
    Bound { call: share(all - of_packets, all), packet: share(of_packets, all.saturating_mul(batch as u64)) }
}

/// Verifies the certificate that the module carries, or one that is found here.
fn verified(wasm: &[u8]) -> Result<flame_verify::Verified, wasmparser::Error> {
    if let Ok(Some(verified)) = flame_verify::verify_own(wasm) {
        return Ok(verified);
    }
    let certificate = crate::find(wasm, crate::Effort::NODE)?.to_bytes();
    // What the finder writes is read like any other.
    Ok(flame_verify::verify(wasm, &certificate).unwrap_or_default())
}

/// Replaces the number of iterations that the estimate goes by with what was verified. A loop that no verified call
/// enters has a counter.
fn loops(estimated: Vec<LoopReport>, verified: &[flame_verify::walk::LoopBound]) -> Vec<LoopReport> {
    let mut known: std::collections::BTreeMap<usize, Turns> = std::collections::BTreeMap::new();
    for found in verified {
        let turns = match (found.packets, found.trips.is_bounded()) {
            (true, _) => Turns::Packets,
            (false, true) => Turns::AtMost(found.trips),
            (false, false) => Turns::Unknown,
        };
        let place = known.entry(found.offset as usize).or_insert_with(|| turns.clone());
        *place = match (&*place, turns) {
            (Turns::AtMost(a), Turns::AtMost(b)) => Turns::AtMost(a.max(b)),
            (Turns::Packets, Turns::Packets) => Turns::Packets,
            _ => Turns::Unknown,
        };
    }
    let of = |mut report: LoopReport| {
        report.turns = known.get(&report.offset).cloned().unwrap_or(Turns::Unknown);
        if report.turns == Turns::Unknown {
            report.depends = Depends::Unknown;
        }
        report
    };
    estimated.into_iter().map(of).collect()
}
