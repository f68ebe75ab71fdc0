//! What it comes from that a function has no bound, for people to read. Nothing rests on it.

use crate::certificate::Notes;
use crate::module::Module;
use crate::walk::{Summary, Walk};
use crate::{Refused, Rule};
use std::collections::{BTreeMap, BTreeSet};

/// Calls within calls that are followed.
const MAX_DEPTH: usize = 16;
/// Walks of all questions together, and instructions of each.
const MAX_WALKS: u32 = 128;
const WORK: u64 = 1 << 14;

/// Follows calls from functions that have no bound to a loop, or to recursion.
pub(crate) struct Causes<'m, 'a> {
    module: &'m Module<'a>,
    diverging: &'m BTreeSet<u32>,
    /// Functions that have a bound after all, though the certificate leaves them out.
    summaries: BTreeMap<u32, Summary>,
    known: BTreeMap<u32, Refused>,
    /// Functions whose calls are being followed.
    open: Vec<u32>,
    walks_left: u32,
}

impl<'m, 'a> Causes<'m, 'a> {
    pub fn new(
        module: &'m Module<'a>,
        diverging: &'m BTreeSet<u32>,
        summaries: BTreeMap<u32, Summary>,
        known: BTreeMap<u32, Refused>,
    ) -> Self {
        Self { module, diverging, summaries, known, open: Vec::new(), walks_left: MAX_WALKS }
    }

    /// Returns nothing if the function has a bound for any arguments, without a certificate.
    pub fn of(&mut self, function: u32) -> Option<Refused> {
        if let Some(known) = self.known.get(&function) {
            return Some(*known);
        }
        self.open.push(function);
        let why = self.follow(function);
        self.open.pop();
        self.known.extend(why.map(|why| (function, why)));
        why
    }

    fn follow(&mut self, function: u32) -> Option<Refused> {
        loop {
            let why = match self.walk(function) {
                Ok(summary) => {
                    self.summaries.insert(function, summary);
                    return None;
                }
                Err(why) => why,
            };
            let Rule::Unsummarised(callee) = why.rule else { return Some(why) };
            if self.open.contains(&callee) {
                return Some(Refused { rule: Rule::Recursion(callee), ..why });
            }
            if self.open.len() == MAX_DEPTH || self.walks_left == 0 {
                return Some(why);
            }
            if let Some(cause) = self.of(callee) {
                return Some(cause);
            }
        }
    }

    fn walk(&mut self, function: u32) -> Result<Summary, Refused> {
        self.walks_left = self.walks_left.saturating_sub(1);
        let mut walk = Walk::new(self.module, (&self.summaries, self.diverging), Notes::default(), WORK);
        let arguments = walk.any_arguments(function);
        let outcome = walk.entry(function, arguments)?;
        match outcome.cost.is_bounded() {
            true => Ok(Summary { cost: outcome.cost, returns: outcome.returns }),
            false => Err(walk.why.unwrap_or(Refused { rule: Rule::NoBound, function, offset: 0 })),
        }
    }
}
