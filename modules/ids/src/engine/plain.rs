//! Rules without a content to look for, by destination port: a packet meets those only that its port allows.

use crate::rule::Rule;

pub struct Plain {
    /// First port of each part of the range, ascending from 0.
    starts: Vec<u16>,
    /// Rules, by part.
    rules: Vec<Vec<u16>>,
}

impl Plain {
    /// Of rules by number.
    pub fn new<'a>(rules: impl IntoIterator<Item = (u16, &'a Rule)>) -> Self {
        let rules: Vec<_> = rules.into_iter().collect();
        let mut starts = vec![0];
        for (_, rule) in &rules {
            for (first, last) in rule.header.dport.parts() {
                starts.push(*first);
                starts.extend(last.checked_add(1));
            }
        }
        starts.sort_unstable();
        starts.dedup();
        let of = |port: u16| {
            let fits = rules.iter().filter(|(_, r)| r.header.both || r.header.dport.contains(port));
            fits.map(|(number, _)| *number).collect()
        };
        Self { rules: starts.iter().map(|port| of(*port)).collect(), starts }
    }

    #[inline]
    pub fn of(&self, dport: u16) -> &[u16] {
        let part = self.starts.partition_point(|start| *start <= dport) - 1;
        &self.rules[part]
    }
}
