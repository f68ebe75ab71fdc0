//! Waves: an intent reaches more and more nodes, until all have it or too many fail.
//!
//! A rollout that halted reaches as far as it came: its nodes keep the intent, and the others the one before,
//! until the next rollout of the target.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Returns the place of a node in the order of a rollout: a number that is random and the same everywhere, so
/// that a single one states which nodes a wave reaches.
pub fn order(rollout: u64, node: &str) -> u64 {
    let digest = Sha256::new_with_prefix(b"flame rollout 1\0").chain_update(rollout.to_le_bytes());
    let digest = digest.chain_update(node.as_bytes()).finalize();
    u64::from_le_bytes(std::array::from_fn(|n| digest[n]))
}

/// What a node reports about an intent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It follows: it runs the module, or nothing by this intent ([`crate::Agent::settled`]).
    Running,
    /// Its own policy forbids it, for this reason. This is no failure.
    Refused(String),
    Failed(String),
}

/// The waves of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The number of nodes in each wave but the last, which is the rest.
    pub waves: Vec<usize>,
    /// The share of a wave in thousandths that may fail, or not report in time.
    pub failures: u32,
    /// The seconds for which a wave waits for reports.
    pub patience: u64,
}

/// The state of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Progress {
    /// Waits for reports of the wave with this number, from 0.
    Wave(usize),
    /// Ended in this wave: too many nodes of it, or of an earlier one, failed or were silent.
    Halted {
        wave: usize,
        failed: usize,
        silent: usize,
        of: usize,
    },
    Done,
}

/// Decides which nodes an intent reaches.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rollout {
    id: u64,
    plan: Plan,
    /// The nodes in their order.
    nodes: Vec<(u64, String)>,
    outcomes: BTreeMap<String, Outcome>,
    /// The ends of the waves in the order, the last of which is the number of nodes.
    ends: Vec<usize>,
    began: u64,
    progress: Progress,
}

impl Rollout {
    /// Begins the first wave at `now`.
    pub fn new(id: u64, nodes: impl IntoIterator<Item = String>, plan: Plan, now: u64) -> Self {
        let mut nodes: Vec<_> = nodes.into_iter().map(|node| (order(id, &node), node)).collect();
        nodes.sort();
        nodes.dedup();
        let mut ends: Vec<usize> = Vec::new();
        for wave in &plan.waves {
            let end = ends.last().map_or(0, |end| *end).saturating_add((*wave).max(1));
            ends.extend((end < nodes.len()).then_some(end));
        }
        ends.push(nodes.len());
        let progress = if nodes.is_empty() { Progress::Done } else { Progress::Wave(0) };
        Self { id, plan, nodes, outcomes: BTreeMap::new(), ends, began: now, progress }
    }

    /// Returns the highest order of the nodes that may follow ([`crate::Intent::reach`]): of all in the end,
    /// also of nodes that enrol later.
    pub fn reach(&self) -> u64 {
        let end = match self.progress {
            Progress::Wave(wave) | Progress::Halted { wave, .. } => self.ends[wave],
            Progress::Done => return u64::MAX,
        };
        self.nodes[..end].last().map_or(0, |(order, _)| *order)
    }

    /// Takes the report of a node about the intent of a rollout. Other reports change nothing. The last
    /// one of each node counts.
    pub fn reported(&mut self, rollout: u64, node: &str, outcome: Outcome) {
        if rollout == self.id {
            self.outcomes.insert(node.to_owned(), outcome);
        }
    }

    /// Advances to the next wave, halts, or ends. After a change, the intent is signed with a new counter and
    /// the new reach. Too many nodes of an earlier wave that fail later halt it, too.
    pub fn poll(&mut self, now: u64) -> Progress {
        let Progress::Wave(wave) = self.progress else { return self.progress };
        let is_late = now >= self.began.saturating_add(self.plan.patience);
        for earlier in 0..=wave {
            let (failed, missing, of) = self.count(earlier);
            let silent = if is_late || earlier < wave { missing } else { 0 };
            if (failed + silent) as u64 * 1000 > of as u64 * u64::from(self.plan.failures) {
                self.progress = Progress::Halted { wave, failed, silent, of };
                return self.progress;
            }
        }
        if is_late || self.count(wave).1 == 0 {
            self.began = now;
            let is_last = wave + 1 == self.ends.len();
            self.progress = if is_last { Progress::Done } else { Progress::Wave(wave + 1) };
        }
        self.progress
    }

    /// Returns the number of nodes of a wave that failed, of those without a report, and of all.
    fn count(&self, wave: usize) -> (usize, usize, usize) {
        let start = if wave == 0 { 0 } else { self.ends[wave - 1] };
        let nodes = &self.nodes[start..self.ends[wave]];
        let reports = nodes.iter().filter_map(|(_, node)| self.outcomes.get(node));
        let failed = reports.clone().filter(|outcome| matches!(outcome, Outcome::Failed(_))).count();
        (failed, nodes.len() - reports.count(), nodes.len())
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the nodes in their order, and the numbers of nodes up to the end of each wave.
    pub fn waves(&self) -> (impl Iterator<Item = &str>, &[usize]) {
        (self.nodes.iter().map(|(_, node)| node.as_str()), &self.ends)
    }

    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Returns the reports by node.
    pub fn outcomes(&self) -> &BTreeMap<String, Outcome> {
        &self.outcomes
    }
}
