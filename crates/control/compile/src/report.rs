//! The analyser's findings, as they leave the child process.

use flame_abi::layout::names;
use flame_admit::BatchBounds;
use flame_bounds::{Analysis, Bound, Cause, Dominant, Entry, LoopReport, Poly, Reason, TripCount};
use flame_plan::CallName;
use flame_plan::limits::{SLICE, UNIT_MAX};
use serde::{Deserialize, Serialize};

/// Maximum number of loops that are listed.
const MAX_LOOPS: usize = 1 << 14;
/// Maximum length of a text in an answer (a name, a reason, a line), in bytes.
const MAX_TEXT: usize = 4096;

/// The maximum cost of a module's calls.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    pub entries: Vec<Entry>,
    /// The first 16,384 loops by their place.
    pub loops: Vec<LoopReport>,
    /// The number of loops with a bound.
    pub bounded_loops: u64,
    /// The number of loops that are ended by a counter.
    pub counted_loops: u64,
    /// Cycles of recursive functions, by name.
    pub cycles: Vec<Vec<String>>,
    /// Whether the module can ask for more memory.
    pub grows: bool,
    /// The part of the bound of batches that costs most.
    pub dominant: Option<Dominant>,
}

impl From<Analysis> for Report {
    fn from(analysis: Analysis) -> Self {
        let Analysis { entries, mut loops, cycles, grows, proved: _, dominant } = analysis;
        let counted = loops.iter().filter(|l| l.trips == TripCount::Counted).count();
        let bounded = loops.len() - counted;
        loops.truncate(MAX_LOOPS);
        let (bounded_loops, counted_loops) = (bounded as u64, counted as u64);
        Self { entries, loops, bounded_loops, counted_loops, cycles, grows, dominant }
    }
}

impl Report {
    /// Makes every text of the report safe to print.
    pub(crate) fn clean(&mut self) {
        for e in &mut self.entries {
            clean(&mut e.name);
            if let Some(Cause { reason, function, offset: _ }) = &mut e.why {
                clean(function);
                clean_reason(reason);
            }
            e.imports.iter_mut().for_each(clean);
            e.path.iter_mut().for_each(|step| clean(&mut step.function));
        }
        for l in &mut self.loops {
            clean(&mut l.function);
            l.why.iter_mut().for_each(clean_reason);
        }
        self.dominant.iter_mut().for_each(|d| clean(&mut d.function));
        self.cycles.iter_mut().flatten().for_each(clean);
    }
}

/// Returns the call of an entry.
fn called(entry: &Entry) -> Option<CallName> {
    CallName::ALL.into_iter().find(|call| call.as_str() == entry.name)
}

/// Returns whether a call that is no batch ends within a slice, on cold paths as well. Functions that diverge
/// are left out: the instance ends with them.
fn is_short(entry: &Entry) -> bool {
    let units = entry.bound.at(1, flame_abi::MAX_PACKET as u64);
    let units = units.map(|units| units.saturating_sub(entry.diverging.into()));
    units.is_some_and(|units| units.saturating_mul(UNIT_MAX.as_nanos()) <= SLICE.as_nanos())
}

fn clean_reason(reason: &mut Reason) {
    match reason {
        Reason::Recursion(names) => names.iter_mut().for_each(clean),
        Reason::Table(text) | Reason::Calls(text) | Reason::Certificate(text) => clean(text),
        _ => {}
    }
}

/// Makes a text from the child safe to print: short, and without control characters except line breaks.
pub(crate) fn clean(text: &mut String) {
    let control = |c: char| c.is_control() && c != '\n';
    if text.len() > MAX_TEXT || text.contains(control) {
        let safe = text.chars().map(|c| if control(c) { '?' } else { c });
        *text = safe.take(MAX_TEXT / 4).collect();
    }
}

impl Report {
    /// Returns the entry that is called with batches.
    pub fn batch(&self) -> Option<&Entry> {
        self.entries.iter().find(|e| names::is_batch(&e.name))
    }

    /// Returns the bounds of the batches, and of the calls that follow them.
    pub fn batches(&self) -> BatchBounds {
        let (batch, rest) = (self.batch(), self.entries.iter().find(|e| e.name == names::REST));
        let none = Bound { call: Poly::ZERO, packet: Poly::ZERO };
        BatchBounds {
            bound: batch.map_or(Bound::UNBOUNDED, |e| e.bound),
            time: batch.and_then(|e| e.time).unwrap_or(Bound::UNBOUNDED),
            rest: rest.map_or(none, |e| e.bound),
            rest_time: rest.map_or(none, |e| e.time.unwrap_or(Bound::UNBOUNDED)),
            short: self.entries.iter().filter(|entry| is_short(entry)).filter_map(called).collect(),
        }
    }
}
