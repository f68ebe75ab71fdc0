//! The join of packets that monitors of a fleet have recorded: of two, delays in each direction, losses, and
//! the offset between the two clocks with its uncertainty ([`join`]); of any number, the paths of packets
//! ([`paths`]). A [`Window`] has the latest packets, as far as they came. Types without clock, socket or
//! thread.
//!
//! The difference of a packet's two times is its delay plus the offset of the second clock to the first one;
//! for packets that travel back it is the offset minus their delay. As no delay is negative, the offset lies
//! between the largest difference of those that travel back and the smallest of the others. The estimate is
//! the middle, which is right if the two fastest packets took the same time; half the distance is its
//! uncertainty, and that of each delay. Nothing is assumed about symmetry beyond that. If packets travel in
//! one direction only, the offset has one bound, and nothing is stated.
//!
//! The direction of a packet follows from its flow: of the two flows of a connection, the differences of the
//! one from the first monitor to the second are larger by the sum of both delays, whatever the clocks are. A
//! flow without the opposite one has a direction if its differences lie outside the offset's bounds.
#![forbid(unsafe_code)]

mod paths;
mod window;

pub use paths::{Hop, Path, Paths, paths};
pub use window::Window;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One direction of a connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    pub proto: u8,
    pub source: (String, u16),
    pub destination: (String, u16),
}

impl Flow {
    /// Returns the opposite direction.
    #[must_use]
    pub fn back(&self) -> Self {
        Self { proto: self.proto, source: self.destination.clone(), destination: self.source.clone() }
    }
}

/// A packet at a monitor: its flow, its label, and its time in nanoseconds by the monitor's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub flow: Arc<Flow>,
    pub label: u32,
    pub at: i64,
}

/// The bounds of the offset of the second monitor's clock to the first one's, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    pub lower: i64,
    pub upper: i64,
}

impl Offset {
    /// Returns the middle of the bounds.
    pub fn estimate(self) -> i64 {
        self.lower.saturating_add(self.upper.saturating_sub(self.lower) / 2)
    }

    /// Returns the most by which the offset differs from the estimate. The bounds cross if a clock moved
    /// meanwhile.
    pub fn uncertainty(self) -> i64 {
        let width = self.upper.saturating_sub(self.lower);
        (width / 2 + width % 2).saturating_abs()
    }
}

/// The packets of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// The delays of packets that both monitors saw, sorted.
    pub delays: Vec<i64>,
    /// The packets that only the monitor at the beginning saw, while the other one recorded packets.
    pub lost: u64,
}

impl Way {
    /// Returns the delay below which `part` of the packets are, from 0 to 1.
    pub fn quantile(&self, part: f64) -> Option<i64> {
        quantile(&self.delays, part)
    }
}

/// Returns the value below which `part` of sorted ones are.
fn quantile(sorted: &[i64], part: f64) -> Option<i64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last as f64 * part).round() as usize).copied()
}

/// The result for two monitors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    pub offset: Option<Offset>,
    /// From the first monitor to the second, and back.
    pub there: Way,
    pub back: Way,
    /// Packets of flows whose direction is not known, and packets that a monitor saw more than once.
    pub unknown: u64,
    pub ambiguous: u64,
}

/// The times of the packets with one label, at each of the two monitors.
type Times = [Vec<i64>; 2];

/// Joins the packets of two monitors. Packets are taken for lost only if they are older than `wait`
/// nanoseconds at the end of the other's records, and not before their beginning.
pub fn join(first: &[Seen], second: &[Seen], wait: i64) -> Pair {
    let mut packets: BTreeMap<(&Flow, u32), Times> = BTreeMap::new();
    for (monitor, all) in [first, second].into_iter().enumerate() {
        for seen in all {
            packets.entry((&*seen.flow, seen.label)).or_default()[monitor].push(seen.at);
        }
    }
    let mut pair = Pair::default();
    let mut differences: BTreeMap<&Flow, Vec<i64>> = BTreeMap::new();
    for ((flow, _), [a, b]) in &packets {
        match (&a[..], &b[..]) {
            ([a], [b]) => differences.entry(flow).or_default().push(b.saturating_sub(*a)),
            ([_], []) | ([], [_]) => {}
            (a, b) => pair.ambiguous += (a.len() + b.len()) as u64,
        }
    }
    let (there, back) = directions(&differences);
    let of = |flows: &BTreeSet<&Flow>| -> Vec<i64> {
        flows.iter().filter_map(|flow| differences.get(flow)).flatten().copied().collect()
    };
    let (forth, reverse) = (of(&there), of(&back));
    // Each direction has flows if the other one does.
    let Some((upper, lower)) = forth.iter().min().copied().zip(reverse.iter().max().copied()) else {
        pair.unknown = differences.values().map(|own| own.len() as u64).sum();
        return pair;
    };
    let offset = Offset { lower, upper };
    let estimate = offset.estimate();
    pair.offset = Some(offset);
    pair.there.delays = forth.iter().map(|ns| ns.saturating_sub(estimate)).collect();
    pair.back.delays = reverse.iter().map(|ns| estimate.saturating_sub(*ns)).collect();
    pair.there.delays.sort_unstable();
    pair.back.delays.sort_unstable();

    let end = |all: &[Seen]| all.iter().map(|seen| seen.at).max();
    let begin = |all: &[Seen]| all.iter().map(|seen| seen.at).min();
    let spans = [first, second].map(|all| begin(all).zip(end(all)));
    let shift = [estimate, estimate.saturating_neg()];
    for ((flow, _), times) in &packets {
        let known = [there.contains(flow), back.contains(flow)];
        let from = match times {
            [a, b] if a.len() == 1 && b.is_empty() => 0,
            [a, b] if b.len() == 1 && a.is_empty() => 1,
            [a, b] if a.len() == 1 && b.len() == 1 && known == [false, false] => {
                pair.unknown += 1;
                continue;
            }
            _ => continue,
        };
        let Some((since, until)) = spans[1 - from] else { continue };
        let at = times[from][0].saturating_add(shift[from]);
        if at < since || at > until.saturating_sub(wait) {
            continue;
        }
        match (from, known) {
            (0, [true, _]) => pair.there.lost += 1,
            (1, [_, true]) => pair.back.lost += 1,
            // Only the second half of its path was seen: the first one began later, or missed it.
            (_, [true, _] | [_, true]) => {}
            (_, [false, false]) => pair.unknown += 1,
        }
    }
    pair
}

/// Returns the flows from the first monitor to the second, and those back.
fn directions<'a>(differences: &BTreeMap<&'a Flow, Vec<i64>>) -> (BTreeSet<&'a Flow>, BTreeSet<&'a Flow>) {
    let (mut there, mut back) = (BTreeSet::new(), BTreeSet::new());
    let mut single = Vec::new();
    for (flow, own) in differences {
        let Some(opposite) = differences.get(&flow.back()) else {
            single.push((flow, own));
            continue;
        };
        let least = |all: &[i64]| all.iter().min().copied().unwrap_or(0);
        let most = |all: &[i64]| all.iter().max().copied().unwrap_or(0);
        // All of one direction lie above all of the other, unless the clocks moved meanwhile.
        if least(own) > most(opposite) {
            there.insert(*flow);
        } else if most(own) < least(opposite) {
            back.insert(*flow);
        }
    }
    let bound = |flows: &BTreeSet<&Flow>, of: fn(i64, i64) -> i64| {
        let all = flows.iter().filter_map(|flow| differences.get(flow)).flatten().copied();
        all.reduce(of)
    };
    let (upper, lower) = (bound(&there, i64::min), bound(&back, i64::max));
    for (flow, own) in single {
        if upper.is_some_and(|upper| own.iter().all(|ns| *ns >= upper)) {
            there.insert(*flow);
        } else if lower.is_some_and(|lower| own.iter().all(|ns| *ns <= lower)) {
            back.insert(*flow);
        }
    }
    (there, back)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn flow(source: u8, destination: u8, port: u16) -> Arc<Flow> {
        let address = |n: u8| format!("10.0.0.{n}");
        Arc::new(Flow { proto: 6, source: (address(source), port), destination: (address(destination), 80) })
    }

    /// Packets of a connection through two monitors: 5 ms there, 7 ms back and more for later ones, the
    /// second clock ahead by `offset`. `lost` of each direction are not seen at their end.
    fn monitors(offset: i64, lost: u32) -> (Vec<Seen>, Vec<Seen>) {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        let there = flow(1, 2, 4000);
        for label in 0..100 {
            let at = 1_000_000 * MS + i64::from(label) * 10 * MS;
            let more = i64::from(label % 10) * MS / 10;
            a.push(Seen { flow: there.clone(), label, at });
            b.push(Seen { flow: Arc::new(there.back()), label, at: at + MS + offset });
            if label < 50 || label >= 50 + lost {
                b.push(Seen { flow: there.clone(), label, at: at + 5 * MS + more + offset });
                a.push(Seen { flow: Arc::new(there.back()), label, at: at + 8 * MS + more });
            }
        }
        (a, b)
    }

    #[test]
    fn the_offset_lies_within_its_uncertainty() {
        for offset in [0, 3 * MS, -900 * MS, 86_400_000 * MS] {
            let (a, b) = monitors(offset, 0);
            let pair = join(&a, &b, 100 * MS);
            let offset_found = pair.offset.unwrap();
            let (estimate, uncertainty) = (offset_found.estimate(), offset_found.uncertainty());
            // The delays are 5 and 7 ms: the middle is wrong by half of what they differ.
            assert_eq!((estimate - offset, uncertainty), (-MS, 6 * MS), "{offset}");
            for (way, delay) in [(&pair.there, 5 * MS), (&pair.back, 7 * MS)] {
                assert_eq!(way.delays.len(), 100);
                assert!((way.quantile(0.0).unwrap() - delay).abs() <= uncertainty);
                assert_eq!(way.quantile(1.0).unwrap() - way.quantile(0.0).unwrap(), 9 * MS / 10);
            }
            assert_eq!((pair.there.lost, pair.back.lost, pair.unknown, pair.ambiguous), (0, 0, 0, 0));
        }
    }

    #[test]
    fn losses_are_counted_where_both_record() {
        let (a, mut b) = monitors(2 * MS, 4);
        let pair = join(&a, &b, 100 * MS);
        assert_eq!((pair.there.lost, pair.back.lost), (4, 4));
        // What the second monitor has not recorded yet is no loss.
        b.truncate(150);
        let pair = join(&a, &b, 100 * MS);
        assert_eq!((pair.there.lost, pair.back.lost), (4, 4));
        assert_eq!(join(&a, &[], 100 * MS), Pair::default());
    }

    #[test]
    fn one_direction_alone_is_unknown() {
        let (a, b) = monitors(2 * MS, 0);
        let only = |all: &[Seen]| -> Vec<Seen> {
            all.iter().filter(|seen| seen.flow == flow(1, 2, 4000)).cloned().collect()
        };
        let pair = join(&only(&a), &only(&b), 0);
        assert_eq!((pair.offset, pair.unknown), (None, 100));
    }

    #[test]
    fn flows_without_an_answer_take_their_direction_from_the_bounds() {
        let (mut a, mut b) = monitors(2 * MS, 0);
        let datagrams = flow(3, 4, 53);
        for label in 0..10 {
            let at = 1_000_100 * MS + i64::from(label) * MS;
            a.push(Seen { flow: datagrams.clone(), label, at });
            b.push(Seen { flow: datagrams.clone(), label, at: at + 15 * MS });
        }
        let pair = join(&a, &b, 100 * MS);
        assert_eq!((pair.there.delays.len(), pair.unknown), (110, 0));
        // A label twice at one monitor says nothing.
        a.push(Seen { flow: datagrams, label: 3, at: 1_000_110 * MS });
        assert_eq!(join(&a, &b, 100 * MS).ambiguous, 3);
    }
}
