//! Charges of regions by the weights that the checker uses, and the functions that are small enough to be
//! charged by their callers.

use crate::hoist::{Hoist, Scan};
use crate::pieces::{self, Constant};
use crate::unroll::{self, Tight};
use flame_verify::cost::{ENTRY, weight};
use std::collections::BTreeSet;
use wasmparser::{FunctionBody, Operator};

/// The largest weight of a small function, including its callees. Larger ones count themselves, which then
/// costs less than 5 %; a call of a small one in a branch not taken is charged too.
pub(crate) const SMALL: u64 = 128;
/// The result of the first pass over a function.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    /// The weight of its own instructions.
    weight: u64,
    /// Whether it is small if its callees are.
    candidate: bool,
    /// Its callees, once for each call; only kept for candidates.
    callees: Vec<u32>,
}

/// Instructions anywhere in the module that need an added function.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uses {
    /// Functions that are called directly: a compiler may inline them.
    pub(crate) called: BTreeSet<u32>,
    pub(crate) copy: bool,
    /// Whether a `memory.fill` may be long.
    pub(crate) fill: bool,
    /// Whether another `memory.fill` or a `memory.init` is used.
    pub(crate) length: bool,
    /// The segments from which a `memory.init` may be long.
    pub(crate) inits: BTreeSet<u32>,
}

/// Summarizes one function. `imported` is the number of imported functions.
pub(crate) fn summarize(
    body: &FunctionBody<'_>,
    imported: u32,
    uses: &mut Uses,
) -> Result<Summary, wasmparser::Error> {
    let mut summary = Summary { weight: ENTRY, candidate: true, callees: Vec::new() };
    let mut constant = Constant::default();
    let mut reader = body.get_operators_reader()?;
    while !reader.eof() {
        let operator = reader.read()?;
        let length = constant.before(&operator);
        summary.weight += weight(&operator);
        if let Operator::Call { function_index } = operator {
            uses.called.insert(function_index);
        }
        match operator {
            Operator::Call { function_index } if function_index >= imported && summary.candidate => {
                summary.callees.push(function_index);
            }
            Operator::Call { .. }
            | Operator::CallIndirect { .. }
            | Operator::Loop { .. }
            | Operator::MemoryGrow { .. } => summary.candidate = false,
            Operator::MemoryCopy { .. } => (uses.copy, summary.candidate) = (true, false),
            Operator::MemoryFill { .. } if pieces::is_long(length) => {
                (uses.fill, summary.candidate) = (true, false);
            }
            Operator::MemoryFill { .. } => (uses.length, summary.candidate) = (true, false),
            Operator::MemoryInit { data_index, .. } => {
                (uses.length, summary.candidate) = (true, false);
                if pieces::is_long(length) {
                    uses.inits.insert(data_index);
                }
            }
            // Their time depends on their operands, so their function polls.
            Operator::TableCopy { .. }
            | Operator::TableFill { .. }
            | Operator::TableInit { .. }
            | Operator::TableGrow { .. } => summary.candidate = false,
            _ => {}
        }
        if summary.weight > SMALL {
            summary.candidate = false;
        }
    }
    if !summary.candidate {
        summary.callees = Vec::new();
    }
    Ok(summary)
}

/// Returns the weight of each small function, by its index after the imports, and `None` for the others.
///
/// Proceeds from leaf functions upwards, so functions on a cycle are never reached.
pub(crate) fn small(mut summaries: Vec<Summary>, imported: u32, taken: &[bool]) -> Vec<Option<u64>> {
    let at = |function: u32| function.checked_sub(imported).map(|i| i as usize);
    let mut calls: Vec<(u32, u32)> = Vec::new();
    let mut waiting = vec![0_u32; summaries.len()];
    for (i, summary) in summaries.iter_mut().enumerate() {
        summary.candidate &= !taken.get(i).copied().unwrap_or(false);
        if summary.candidate {
            waiting[i] = summary.callees.len() as u32;
            calls.extend(summary.callees.iter().filter_map(|c| Some((at(*c)? as u32, i as u32))));
        }
        summary.callees = Vec::new();
    }
    calls.sort_unstable();
    let mut small = vec![None; summaries.len()];
    let ready = |i: &usize| summaries[*i].candidate && waiting[*i] == 0;
    let mut queue: Vec<usize> = (0..summaries.len()).filter(ready).collect();
    let mut weights: Vec<u64> = summaries.iter().map(|s| s.weight).collect();
    while let Some(callee) = queue.pop() {
        if weights[callee] > SMALL {
            continue;
        }
        small[callee] = Some(weights[callee]);
        let from = calls.partition_point(|c| (c.0 as usize) < callee);
        for (_, caller) in calls[from..].iter().take_while(|c| c.0 as usize == callee) {
            let caller = *caller as usize;
            weights[caller] = weights[caller].saturating_add(weights[callee]);
            waiting[caller] -= 1;
            if waiting[caller] == 0 {
                queue.push(caller);
            }
        }
    }
    small
}

/// The result of the second pass over a function: all facts needed before the first byte is written.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    /// The charge at entry.
    pub(crate) entry: u64,
    /// The loops, in the order of their heads.
    pub(crate) loops: Vec<Loop>,
    /// Whether the function marks packets.
    pub(crate) marks: bool,
    /// Whether the function contains a `memory.fill` or `memory.init` that may be long.
    pub(crate) long: bool,
}

#[derive(Debug)]
pub(crate) struct Loop {
    /// The charge of one iteration.
    pub(crate) charge: u64,
    /// Set if the loop is to be unrolled.
    pub(crate) tight: Option<Tight>,
    /// Set if all iterations are charged before the loop.
    pub(crate) hoist: Option<Hoist>,
}

/// An open frame.
struct Frame {
    /// The loop that the code around it belongs to.
    outer: Option<usize>,
    /// If it is a loop that may be tight: its body so far, and whether it has a back edge.
    candidate: Option<(Tight, bool)>,
}

/// The charge of an iteration below which 2^32 of them do not overflow.
const MAX_HOISTED: u64 = 1 << 30;

fn refused(mut scan: Option<(Scan, usize)>) -> Option<(Scan, usize)> {
    if let Some((scan, _)) = &mut scan {
        scan.refuse();
    }
    scan
}

/// Sums the weights between checks. `small` returns the weight of a callee that does not count.
pub(crate) fn regions(
    body: &FunctionBody<'_>,
    small: impl Fn(u32) -> Option<u64>,
    marker: impl Fn(u32) -> bool,
) -> Result<Regions, wasmparser::Error> {
    let mut regions = Regions { entry: ENTRY, ..Regions::default() };
    let mut frames: Vec<Frame> = Vec::new();
    // The index in `frames` of the innermost loop that may be tight; a loop with an inner loop is not.
    let mut candidate: Option<usize> = None;
    // The innermost loop and its index in `frames`; `None` once an inner one has ended.
    let mut scan: Option<(Scan, usize)> = None;
    // The loop that instructions now belong to.
    let mut now: Option<usize> = None;
    let mut constant = Constant::default();
    let mut reader = body.get_operators_reader()?;
    while !reader.eof() {
        let (operator, offset) = reader.read_with_offset()?;
        let length = constant.before(&operator);
        let mut weight = weight(&operator);
        let back = |frames: &mut [Frame], label: u32| {
            let at = frames.len().checked_sub(1 + label as usize);
            if at.is_some()
                && at == candidate
                && let Some((_, back)) = at.and_then(|i| frames.get_mut(i)).and_then(|f| f.candidate.as_mut())
            {
                *back = true;
            }
        };
        if let Some((scan, at)) = &mut scan {
            let inside = frames.len() - 1 - *at;
            // The loop's own `end` follows the last instruction that the scan needs.
            if inside > 0 || !matches!(operator, Operator::End) {
                scan.see(&operator, inside as u32);
            }
        }
        match &operator {
            Operator::Block { .. } | Operator::If { .. } => {
                frames.push(Frame { outer: now, candidate: None })
            }
            Operator::Loop { blockty } => {
                let start = reader.original_position();
                let tight = unroll::simple(*blockty).map(|results| Tight { start, end: start, results });
                frames.push(Frame { outer: now, candidate: tight.map(|t| (t, false)) });
                candidate = tight.map(|_| frames.len() - 1);
                now = Some(regions.loops.len());
                scan = Some((Scan::new(), frames.len() - 1));
                regions.loops.push(Loop { charge: 1, tight: None, hoist: None });
                continue;
            }
            Operator::End => {
                let ended = frames.pop();
                if candidate == Some(frames.len()) {
                    candidate = None;
                    if let Some((mut tight, true)) = ended.as_ref().and_then(|f| f.candidate)
                        && offset - tight.start <= unroll::MAX_BYTES
                        && let Some(ended) = now.and_then(|n| regions.loops.get_mut(n))
                    {
                        tight.end = offset;
                        ended.tight = Some(tight);
                    }
                }
                if let Some((of_loop, _)) = scan.take_if(|(_, at)| *at == frames.len())
                    && let Some(ended) = now.and_then(|n| regions.loops.get_mut(n))
                {
                    ended.hoist = of_loop.hoist().filter(|_| ended.charge < MAX_HOISTED);
                }
                now = ended.and_then(|f| f.outer);
            }
            Operator::Br { relative_depth } | Operator::BrIf { relative_depth } => {
                back(&mut frames, *relative_depth)
            }
            Operator::BrTable { targets } => {
                for target in targets.targets() {
                    back(&mut frames, target?);
                }
                back(&mut frames, targets.default());
            }
            Operator::Call { function_index } => {
                weight += small(*function_index).unwrap_or(0);
                regions.marks |= marker(*function_index);
                candidate = None;
                if small(*function_index).is_none() {
                    scan = refused(scan);
                }
            }
            Operator::MemoryFill { .. } | Operator::MemoryInit { .. } => {
                regions.long |= pieces::is_long(length);
                candidate = None;
                scan = refused(scan);
            }
            Operator::CallIndirect { .. } | Operator::MemoryCopy { .. } | Operator::MemoryGrow { .. } => {
                candidate = None;
                scan = refused(scan);
            }
            _ => {}
        }
        match now.and_then(|n| regions.loops.get_mut(n)) {
            Some(now) => now.charge = now.charge.saturating_add(weight),
            None => regions.entry = regions.entry.saturating_add(weight),
        }
    }
    Ok(regions)
}
