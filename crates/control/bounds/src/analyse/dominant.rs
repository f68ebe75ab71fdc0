//! The part of a bound that costs most: the loop or bulk instruction without which it falls furthest.
//! Nothing relies on it.

use super::estimate::{Ask, Estimate};
use super::graph::Graph;
use super::observe::Records;
use super::path::TYPICAL;
use super::weights::Weights;
use super::{Bound, poly};
use flame_verify::Poly;
use flame_verify::cost::COPY;
use flame_verify::module::{Module, Node};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use wasmparser::Operator;

/// The largest number of loops and instructions that are compared.
const MAX_SITES: usize = 6;

/// The loop, or the instruction that moves memory, on which most of a bound depends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Dominant {
    /// The name or number of the function.
    pub function: String,
    /// The offset in the file.
    pub offset: usize,
    pub kind: Kind,
    /// The largest trip count of the loop, or the largest number of bytes moved.
    #[serde(with = "poly")]
    pub trips: Poly,
    /// The bound of the entry if the loop goes back no more, or no bytes are moved.
    pub rest: Bound,
}

/// The kind of a dominant part: a loop, or an instruction that copies or fills memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Loop,
    Copy,
    Fill,
}

impl Dominant {
    /// Returns the part of `bound` that depends on the site, for a batch of one packet: from 0 to 1.
    pub fn share(&self, bound: Bound, length: u64) -> f64 {
        match (bound.at(1, length), self.rest.at(1, length)) {
            (Some(all), Some(rest)) if all > 0 => all.saturating_sub(rest) as f64 / all as f64,
            _ => 0.0,
        }
    }

    /// Returns the largest trip count, or number of bytes, with which a batch of one packet costs at most
    /// `budget`; `None` if the rest alone costs more.
    ///
    /// As a function of the trip count the bound is convex, a maximum over paths, so it lies below the
    /// straight line from no iterations to all.
    pub fn fits(&self, bound: Bound, length: u64, budget: u64) -> Option<u64> {
        let (all, rest) = (bound.at(1, length)?, self.rest.at(1, length)?);
        let (trips, room) = (self.trips.at(length)?, u128::from(budget).checked_sub(rest)?);
        let over = all.checked_sub(rest).filter(|over| *over > 0)?;
        u64::try_from(room.checked_mul(trips)? / over).ok()
    }
}

/// A loop, or an instruction that moves memory, in all contexts in which an entry executes it.
struct Site {
    kind: Kind,
    /// The largest trip count, or number of bytes.
    trips: Poly,
    /// The largest cost of an iteration, or of a byte.
    one: Poly,
}

/// Returns the dominant site of an entry. `functions` are those that it may call, callees first.
pub fn dominant(
    (module, graph): (&Module<'_>, &Graph),
    records: &Records,
    returning: &BTreeSet<u32>,
    functions: &[u32],
    entry: u32,
) -> Option<Dominant> {
    let mut sites: BTreeMap<u32, Site> = BTreeMap::new();
    let mut add = |offset, kind, trips, one| {
        let known = sites.entry(offset).or_insert(Site { kind, trips, one });
        (known.trips, known.one) = (known.trips.max(trips), known.one.max(one));
    };
    for seen in records.reached(entry) {
        for (bound, _) in seen.loops.values().filter(|(bound, _)| !bound.packets && !bound.by_count) {
            let one = bound.iteration.call.plus(bound.iteration.of_packet());
            add(bound.offset, Kind::Loop, bound.trips, one);
        }
        for (offset, bytes) in &seen.bulk {
            add(*offset, Kind::Fill, *bytes, Poly::constant(COPY.1).over(COPY.2));
        }
    }
    let mut ranked: Vec<_> = sites
        .iter()
        .filter_map(|(offset, site)| Some((site.trips.times(site.one).at(TYPICAL)?, *offset, site)))
        .collect();
    ranked.sort_by_key(|(cost, ..)| Reverse(*cost));
    let mut found: Vec<(u128, u128, u32, Bound)> = Vec::new();
    for (_, offset, site) in ranked.into_iter().take(MAX_SITES) {
        let ask = Ask { weights: Weights::Instructions, cold: true, traces: false, without: Some(offset) };
        let mut estimate = Estimate::new(module, returning, ask);
        estimate.functions(functions.iter().copied(), records);
        let rest = Bound::from(estimate.entry(entry, records.entry(entry)).0);
        if let (Some(cost), Some(trips)) = (rest.at(1, TYPICAL), site.trips.at(TYPICAL)) {
            found.push((cost, trips, offset, rest));
        }
    }
    // Of nested loops, each of which almost all depends on, the one with the most iterations.
    let least = found.iter().map(|(cost, ..)| *cost).min()?;
    let near = found.into_iter().filter(|(cost, ..)| *cost <= least.saturating_add(least / 4));
    let (_, _, offset, rest) = near.max_by_key(|(_, trips, ..)| *trips)?;
    let Site { kind, trips, .. } = sites.remove(&offset)?;
    let (function, is_copy) = graph.own().find_map(|f| {
        let body = module.own(f)?.body.as_deref()?;
        Some((f, contains(body, offset)?))
    })?;
    let kind = if kind == Kind::Fill && is_copy { Kind::Copy } else { kind };
    Some(Dominant { function: graph.name(function), offset: offset as usize, kind, trips, rest })
}

/// Returns whether the instruction at an offset is `memory.copy`, if it is among these nodes.
fn contains(nodes: &[Node<'_>], offset: u32) -> Option<bool> {
    nodes.iter().find_map(|node| match node {
        Node::Op(operator, at) => (*at == offset).then_some(matches!(operator, Operator::MemoryCopy { .. })),
        Node::Call(..) => None,
        Node::Loop { about, .. } if about.offset == offset => Some(false),
        Node::Block { body, .. } | Node::Loop { body, .. } => contains(body, offset),
        Node::If { then, or, .. } => contains(then, offset).or_else(|| contains(or, offset)),
    })
}
