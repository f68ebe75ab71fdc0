//! The causes of missing bounds, for reports. Nothing relies on them.

use super::graph::Graph;
use super::reason::{Cause, Reason};
use crate::find::{Bounded, Diagnosing, Effort, diagnosing};
use flame_verify::module::{Module, Node};
use flame_verify::walk::{Summary, Walk};
use flame_verify::{Notes, Refused, Rule, Verified, arguments};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use wasmparser::Operator;

/// The largest number of walks for all entries together.
const MAX_WALKS: usize = 64;
/// The limit of each walk: instructions, and steps of proofs.
const WORK: u64 = Effort::NODE.all;
/// The work of the first walks. Those after them have [`LEAST_WORK`] each, whatever came before.
const ALL_WORK: u64 = 2 * Effort::NODE.all;
const LEAST_WORK: u64 = Effort::NODE.all / 8;

/// Diagnoses entries without a bound.
pub struct Causes<'m, 'a> {
    module: &'m Module<'a>,
    graph: &'m Graph,
    verified: &'m Verified,
    /// The reason why the module's certificate cannot be read, if it has one.
    unreadable: Option<String>,
    diverging: &'m BTreeSet<u32>,
    recursive: Rc<BTreeSet<u32>>,
    /// Functions with a bound for any arguments: those of the certificate, and others that were found.
    summaries: BTreeMap<u32, Summary>,
    /// The same functions for the finder.
    bounded: Bounded,
    /// The reasons why loops have no trip count, by offset; none for those that have one.
    loops: BTreeMap<u32, Option<Reason>>,
    walks_left: usize,
    work_left: u64,
}

impl<'m, 'a> Causes<'m, 'a> {
    pub fn new(
        module: &'m Module<'a>,
        graph: &'m Graph,
        verified: &'m Verified,
        recursive: &BTreeSet<u32>,
        unreadable: Option<String>,
    ) -> Self {
        let bounded = verified.summaries.iter().filter(|(_, s)| s.cost.is_bounded());
        let summaries: BTreeMap<u32, Summary> = bounded.map(|(f, s)| (*f, s.clone())).collect();
        let bounded = Bounded::default();
        bounded.borrow_mut().extend(summaries.keys().map(|function| (*function, 0)));
        Self {
            module,
            graph,
            verified,
            unreadable,
            diverging: &verified.diverging,
            recursive: Rc::new(recursive.clone()),
            summaries,
            bounded,
            loops: BTreeMap::new(),
            walks_left: MAX_WALKS,
            work_left: ALL_WORK,
        }
    }

    /// Returns the cause why an entry has no bound: the first one on its way through its calls.
    pub fn of(&mut self, entry: &str, function: u32) -> Cause {
        if self.diverging.contains(&function) {
            return self.cause(Reason::Diverges, function, 0);
        }
        if let Some(false_claim) = self.certificate(entry, is_claim) {
            return false_claim;
        }
        let (mut at, mut name) = (function, Some(entry));
        loop {
            let Err(Refused { rule, function, offset }) = self.walk(name, at) else {
                // It has a bound that its certificate does not give, or the search for one was given up.
                let missing = self.certificate(entry, |_| true);
                return missing.unwrap_or_else(|| self.cause(Reason::Work, at, 0));
            };
            let Rule::Unsummarised(callee) = rule else { return self.refused(rule, function, offset) };
            if self.walks_left == 0 {
                return self.cause(Reason::Calls(self.graph.name(callee)), function, offset);
            }
            if self.recursive.contains(&callee) {
                let cycle = self.graph.cycle(self.module, callee);
                let names = cycle.into_iter().map(|f| self.graph.name(f)).collect();
                return self.cause(Reason::Recursion(names), function, offset);
            }
            // Functions that are called through tables are not followed with their arguments, and no others
            // below a depth: they must have a bound for any arguments.
            let kind = self.table_type(function, offset);
            let callees = kind.map_or(vec![callee], |kind| self.module.through_tables(kind).to_vec());
            for callee in callees {
                let is_known = self.summaries.contains_key(&callee) || self.diverging.contains(&callee);
                if is_known || self.module.own(callee).is_none() {
                    continue;
                }
                if self.walks_left == 0 {
                    return self.cause(Reason::Calls(self.graph.name(callee)), function, offset);
                }
                match self.walk(None, callee) {
                    Ok(summary) => {
                        self.summaries.insert(callee, summary);
                        self.bounded.borrow_mut().insert(callee, 0);
                    }
                    Err(_) if kind.is_some() => {
                        return self.cause(Reason::Table(self.graph.name(callee)), function, offset);
                    }
                    Err(_) => (at, name) = (callee, None),
                }
            }
        }
    }

    /// Returns the cause that lies in the module's own certificate, if `is_cause` holds for the rule by which
    /// it was refused for an entry.
    fn certificate(&self, entry: &str, is_cause: impl Fn(Rule) -> bool) -> Option<Cause> {
        self.module.certificate?;
        let of_entry = self.verified.entries.iter().find(|e| e.name == entry)?;
        let Refused { rule, function, offset } = of_entry.bound.err().filter(|why| is_cause(why.rule))?;
        let claim = match (rule, &self.unreadable) {
            (_, Some(reason)) => reason.clone(),
            (Rule::Unsummarised(callee), _) => format!(
                "it has no claims about {}, which is called here, for any arguments or for those of this call",
                self.graph.name(callee)
            ),
            (Rule::NoBound, _) => "it claims nothing that limits the trip count of a loop".to_owned(),
            (rule, _) => rule.to_string(),
        };
        Some(self.cause(Reason::Certificate(claim), function, offset))
    }

    /// Walks a function as the finder does. Returns its bound or the first obstacle.
    fn walk(&mut self, entry: Option<&str>, function: u32) -> Result<Summary, Refused> {
        self.walks_left = self.walks_left.saturating_sub(1);
        let guide: Rc<Diagnosing> = Rc::new(diagnosing(self.bounded.clone(), self.recursive.clone()));
        let known = (&self.summaries, self.diverging);
        let work = self.work_left.clamp(LEAST_WORK, WORK);
        let mut walk = Walk::new(self.module, known, Notes::default(), work).guided(guide.clone());
        let arguments = match entry {
            Some(name) => arguments(&mut walk, name, function),
            None => walk.any_arguments(function),
        };
        let outcome = walk.entry(function, arguments);
        let first = walk.why;
        let left = walk.work.min(walk.values.symbols.steps_left());
        drop(walk);
        self.work_left = self.work_left.saturating_sub(work - left.min(work));
        for (offset, reason) in guide.loops.take() {
            let known = self.loops.entry(offset).or_default();
            *known = known.take().or(reason);
        }
        // A loop that was found before the walk was given up is a cause of its own.
        match (first, outcome) {
            (Some(refused), _) | (None, Err(refused)) => Err(refused),
            (None, Ok(outcome)) if outcome.cost.is_bounded() => Ok(outcome.summary()),
            (None, Ok(_)) => Err(Refused { rule: Rule::NoBound, function, offset: 0 }),
        }
    }

    fn refused(&self, rule: Rule, function: u32, offset: u32) -> Cause {
        let reason = match rule {
            Rule::NoBound => self.obstacle(function, offset).unwrap_or(Reason::Product),
            Rule::TooDeep => Reason::Nesting,
            Rule::Work => Reason::Work,
            _ => Reason::Unsupported,
        };
        self.cause(reason, function, offset)
    }

    fn cause(&self, reason: Reason, function: u32, offset: u32) -> Cause {
        Cause { reason, function: self.graph.name(function), offset: offset as usize }
    }

    /// Returns why a loop is counted, if it was diagnosed.
    pub fn of_loop(&self, function: u32, offset: u32) -> Option<Reason> {
        self.loops.get(&offset)?;
        Some(self.obstacle(function, offset).unwrap_or(Reason::Caller))
    }

    fn obstacle(&self, function: u32, offset: u32) -> Option<Reason> {
        let reason = self.loops.get(&offset)?.clone()?;
        Some(if self.is_allocator(function) { Reason::Allocator } else { reason })
    }

    /// Returns whether a function asks for memory, or is one of the allocator that Rust uses by default.
    fn is_allocator(&self, function: u32) -> bool {
        self.graph.of(function).is_some_and(|calls| calls.grows)
            || self.graph.name(function).to_lowercase().contains("malloc")
    }

    /// Returns the type of the functions that the call at an offset reaches through a table.
    fn table_type(&self, function: u32, offset: u32) -> Option<u32> {
        table_type(self.module.own(function)?.body.as_deref()?, offset)
    }
}

/// Returns whether a rule is that a claim of a certificate holds.
fn is_claim(rule: Rule) -> bool {
    match rule {
        Rule::Form(_) | Rule::FactBefore(_) | Rule::FactBack(_) | Rule::Measure | Rule::Packets => true,
        Rule::NoBound | Rule::Unsummarised(_) | Rule::TooDeep | Rule::Work | Rule::Invalid => false,
    }
}

fn table_type(nodes: &[Node<'_>], offset: u32) -> Option<u32> {
    nodes.iter().find_map(|node| match node {
        Node::Op(Operator::CallIndirect { type_index, .. }, at) => (*at == offset).then_some(*type_index),
        Node::Op(..) | Node::Call(..) => None,
        Node::Block { body, .. } | Node::Loop { body, .. } => table_type(body, offset),
        Node::If { then, or, .. } => table_type(then, offset).or_else(|| table_type(or, offset)),
    })
}
