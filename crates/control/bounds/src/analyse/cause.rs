//! The reason why a function has no bound, for reports. Nothing relies on it.

use super::graph::Graph;
use flame_verify::module::Module;
use flame_verify::walk::{Summary, Walk};
use flame_verify::{Notes, Refused, Rule, Verified};
use std::collections::{BTreeMap, BTreeSet};

/// The largest depth of calls that are followed.
const MAX_DEPTH: usize = 16;
/// The largest number of walks for all questions together, and of instructions of each.
const MAX_WALKS: u32 = 128;
const WORK: u64 = 1 << 14;

/// A rule that does not hold, or a function that is mutually recursive.
#[derive(Clone, Copy)]
pub struct Cause {
    pub refused: Refused,
    pub recursion: Option<u32>,
}

/// Follows calls from functions without a bound to a loop, or to recursion.
pub struct Causes<'m, 'a> {
    module: &'m Module<'a>,
    diverging: &'m BTreeSet<u32>,
    /// Functions that do have a bound, although the certificate leaves them out.
    summaries: BTreeMap<u32, Summary>,
    known: BTreeMap<u32, Cause>,
    /// The functions whose calls are being followed.
    open: Vec<u32>,
    walks_left: u32,
}

impl<'m, 'a> Causes<'m, 'a> {
    pub fn new(module: &'m Module<'a>, verified: &'m Verified) -> Self {
        let Verified { diverging, summaries, .. } = verified;
        let (known, open) = (BTreeMap::new(), Vec::new());
        Self { module, diverging, summaries: summaries.clone(), known, open, walks_left: MAX_WALKS }
    }

    /// Returns the reason why an entry has no bound, as text: the cause to which its calls lead.
    pub fn tell(&mut self, names: &Graph, function: u32, refused: Refused) -> String {
        let followed = match refused.rule {
            Rule::Unsummarised(_) => self.of(function),
            _ => None,
        };
        let Cause { refused, recursion } = followed.unwrap_or(Cause { refused, recursion: None });
        let rule = match (recursion, refused.rule) {
            (Some(callee), _) => format!("it is recursive, through {}", names.name(callee)),
            (None, Rule::Unsummarised(callee)) => {
                format!("it calls {}, which has no bound", names.name(callee))
            }
            (None, rule) => rule.to_string(),
        };
        let place = if refused.offset > 0 { format!(", at byte {}", refused.offset) } else { String::new() };
        format!("{rule} (in {}{place})", names.name(refused.function))
    }

    /// Returns `None` if the function has a bound for any arguments, without a certificate.
    pub fn of(&mut self, function: u32) -> Option<Cause> {
        if let Some(known) = self.known.get(&function) {
            return Some(*known);
        }
        self.open.push(function);
        let why = self.follow(function);
        self.open.pop();
        self.known.extend(why.map(|why| (function, why)));
        why
    }

    fn follow(&mut self, function: u32) -> Option<Cause> {
        loop {
            let why = match self.walk(function) {
                Ok(summary) => {
                    self.summaries.insert(function, summary);
                    return None;
                }
                Err(why) => why,
            };
            let Rule::Unsummarised(callee) = why.rule else {
                return Some(Cause { refused: why, recursion: None });
            };
            let is_open = self.open.contains(&callee);
            if is_open || self.open.len() == MAX_DEPTH || self.walks_left == 0 {
                return Some(Cause { refused: why, recursion: is_open.then_some(callee) });
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
