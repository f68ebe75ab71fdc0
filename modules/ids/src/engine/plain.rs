//! Rules without a content to search for, by destination port: a packet is checked only against those that
//! allow its port.

use super::gate::{Gate, Head};
use crate::rule::Rule;

pub struct Plain {
    /// The first port of each part of the range, ascending from 0.
    starts: Vec<u16>,
    /// The rules and their gates, by part: contiguous, in the order in which they are checked.
    rules: Vec<Vec<(Gate, u16)>>,
}

impl Plain {
    /// Creates the index of rules, each given by its number, with its gate.
    pub fn new<'a>(rules: impl IntoIterator<Item = (u16, &'a Rule, Gate)>) -> Self {
        let rules: Vec<_> = rules.into_iter().collect();
        let mut starts = vec![0];
        for (_, rule, _) in &rules {
            for (first, last) in rule.header.dport.parts() {
                starts.push(*first);
                starts.extend(last.checked_add(1));
            }
        }
        starts.sort_unstable();
        starts.dedup();
        let of = |port: u16| {
            let fits = rules.iter().filter(|(_, r, _)| r.header.both || r.header.dport.contains(port));
            fits.map(|(number, _, gate)| (*gate, *number)).collect()
        };
        Self { rules: starts.iter().map(|port| of(*port)).collect(), starts }
    }

    /// Returns the rules that a packet to this port may match.
    #[inline]
    pub fn of(&self, dport: u16, head: &Head) -> impl Iterator<Item = u16> {
        let part = self.starts.partition_point(|start| *start <= dport) - 1;
        self.rules[part].iter().filter(|(gate, _)| gate.passes(head)).map(|(_, rule)| *rule)
    }
}
