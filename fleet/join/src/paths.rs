//! The paths of packets through any number of monitors.
//!
//! The clocks' bounds of all pairs are one set of constraints: the offset of a third clock to the first one
//! is at most the sum of the two upper bounds on the way. The least of these sums bounds each pair, also one
//! without packets in both directions. A packet goes from one monitor to another if the difference of its
//! times is at least the upper bound, so that no clocks within the bounds give it a negative delay. If
//! neither order is certain, the packet is *unordered*.

use crate::{Flow, Offset, Seen, join, quantile};
use std::collections::BTreeMap;

/// The packets that the same monitors saw in the same order. Of those that were lost, it is the beginning of
/// their path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The numbers of the monitors, in the order of the packets.
    pub monitors: Vec<usize>,
    pub packets: u64,
    /// From each monitor to the next one; then from the first to the last, if there are others between.
    pub hops: Vec<Hop>,
}

/// The delays between two monitors of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    pub from: usize,
    pub to: usize,
    /// Sorted, in nanoseconds. Each is right within `uncertainty`.
    pub delays: Vec<i64>,
    pub uncertainty: i64,
}

impl Hop {
    /// Returns the delay below which `part` of the packets are, from 0 to 1.
    pub fn quantile(&self, part: f64) -> Option<i64> {
        quantile(&self.delays, part)
    }
}

/// The paths, with most packets first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    pub paths: Vec<Path>,
    /// Packets whose order the clocks' bounds do not decide.
    pub unordered: u64,
    /// Packets that a monitor saw more than once.
    pub ambiguous: u64,
}

/// The upper bound of the offset of each monitor's clock to each other one's.
struct Clocks {
    upper: Vec<Vec<Option<i64>>>,
}

impl Clocks {
    fn new(monitors: &[&[Seen]]) -> Self {
        let mut upper = vec![vec![None; monitors.len()]; monitors.len()];
        for (i, first) in monitors.iter().enumerate() {
            upper[i][i] = Some(0);
            for (j, second) in monitors.iter().enumerate().skip(i + 1) {
                if let Some(offset) = join(first, second, 0).offset {
                    upper[i][j] = Some(offset.upper);
                    upper[j][i] = Some(offset.lower.saturating_neg());
                }
            }
        }
        for by in 0..monitors.len() {
            for i in 0..monitors.len() {
                for j in 0..monitors.len() {
                    let Some((a, b)) = upper[i][by].zip(upper[by][j]) else { continue };
                    let sum = i64::saturating_add(a, b);
                    upper[i][j] = Some(upper[i][j].map_or(sum, |least: i64| least.min(sum)));
                }
            }
        }
        Self { upper }
    }

    /// Returns the bounds of the second clock's offset to the first one.
    fn offset(&self, first: usize, second: usize) -> Option<Offset> {
        let (upper, lower) = self.upper[first][second].zip(self.upper[second][first])?;
        Some(Offset { lower: lower.saturating_neg(), upper })
    }

    /// Returns a time by the first clock as the second one states it, by the estimate.
    fn shifted(&self, first: usize, second: usize, at: i64) -> Option<i64> {
        Some(at.saturating_add(self.offset(first, second)?.estimate()))
    }

    /// Sorts the sights of a packet. Returns whether the order is certain.
    fn sort(&self, sights: &mut [(usize, i64)]) -> bool {
        let Some(&(base, _)) = sights.first() else { return true };
        sights.sort_by_key(|&(monitor, at)| self.shifted(monitor, base, at));
        sights.windows(2).all(|pair| {
            let [(a, from), (b, to)] = [pair[0], pair[1]];
            self.offset(a, b).is_some_and(|offset| to.saturating_sub(from) >= offset.upper)
        })
    }
}

/// Returns the paths of packets, each older than `wait` nanoseconds at the end of each monitor's records, and
/// not before the beginning of any.
pub fn paths(monitors: &[&[Seen]], wait: i64) -> Paths {
    let clocks = Clocks::new(monitors);
    let mut packets: BTreeMap<(&Flow, u32), Vec<(usize, i64)>> = BTreeMap::new();
    for (monitor, all) in monitors.iter().enumerate() {
        for seen in *all {
            packets.entry((&*seen.flow, seen.label)).or_default().push((monitor, seen.at));
        }
    }
    let span = |all: &&[Seen]| {
        let times = || all.iter().map(|seen| seen.at);
        times().min().zip(times().max())
    };
    let spans: Vec<_> = monitors.iter().map(span).collect();
    // A monitor whose clock is not known may have seen it at any time.
    let is_whole = |&(monitor, at): &(usize, i64)| {
        spans.iter().enumerate().all(|(n, span)| match (span, clocks.shifted(monitor, n, at)) {
            (Some((begin, end)), Some(at)) => (*begin..=end.saturating_sub(wait)).contains(&at),
            _ => true,
        })
    };
    let mut found = Paths::default();
    let mut all: BTreeMap<Vec<usize>, Vec<Vec<(usize, i64)>>> = BTreeMap::new();
    for mut sights in packets.into_values().filter(|sights| sights.first().is_some_and(is_whole)) {
        // They are in the order of monitors.
        if sights.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            found.ambiguous += 1;
        } else if !clocks.sort(&mut sights) {
            found.unordered += 1;
        } else {
            all.entry(sights.iter().map(|(monitor, _)| *monitor).collect()).or_default().push(sights);
        }
    }
    let path = |(monitors, packets): (Vec<usize>, Vec<Vec<(usize, i64)>>)| {
        let last = monitors.len() - 1;
        let whole = (last > 1).then_some((0, last));
        let hops = (0..last).map(|n| (n, n + 1)).chain(whole).filter_map(|(a, b)| {
            let (from, to) = (monitors[a], monitors[b]);
            let offset = clocks.offset(from, to)?;
            let delay = |sights: &Vec<(usize, i64)>| {
                sights[b].1.saturating_sub(sights[a].1).saturating_sub(offset.estimate())
            };
            let mut delays: Vec<_> = packets.iter().map(delay).collect();
            delays.sort_unstable();
            Some(Hop { from, to, delays, uncertainty: offset.uncertainty() })
        });
        Path { packets: packets.len() as u64, hops: hops.collect(), monitors }
    };
    found.paths = all.into_iter().map(path).collect();
    found.paths.sort_by(|a, b| b.packets.cmp(&a.packets).then_with(|| a.monitors.cmp(&b.monitors)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const MS: i64 = 1_000_000;

    fn flow(port: u16) -> Arc<Flow> {
        let side = |n: u8, port| (format!("10.0.0.{n}"), port);
        Arc::new(Flow { proto: 6, source: side(1, port), destination: side(2, 80) })
    }

    /// Packets of a connection through three monitors, 5 ms from each to the next and 7 ms back, with clocks
    /// that are ahead by these; the packets with labels in `lost` are not seen after the second monitor.
    fn monitors(ahead: [i64; 3], lost: std::ops::Range<u32>) -> [Vec<Seen>; 3] {
        let mut all = [const { Vec::new() }; 3];
        let (there, back) = (flow(4000), Arc::new(flow(4000).back()));
        for label in 0..100 {
            let at = 1_000_000 * MS + i64::from(label) * 10 * MS;
            for (n, seen) in all.iter_mut().enumerate() {
                let hops = i64::try_from(n).unwrap();
                if n < 2 || !lost.contains(&label) {
                    seen.push(Seen { flow: there.clone(), label, at: at + hops * 5 * MS + ahead[n] });
                }
                let at = at + (2 - hops) * 7 * MS + ahead[n];
                seen.push(Seen { flow: back.clone(), label, at });
            }
        }
        all
    }

    fn found(all: &[Vec<Seen>]) -> Paths {
        paths(&all.iter().map(Vec::as_slice).collect::<Vec<_>>(), 100 * MS)
    }

    #[test]
    fn packets_take_their_paths_whatever_the_clocks_are() {
        for ahead in [[0, 0, 0], [0, 900 * MS, -900 * MS], [5 * MS, -86_400_000 * MS, 0]] {
            let paths = found(&monitors(ahead, 10..14));
            assert_eq!((paths.unordered, paths.ambiguous), (0, 0), "{ahead:?}");
            let of = |path: &Path| (path.monitors.clone(), path.packets);
            let all: Vec<_> = paths.paths.iter().map(of).collect();
            // The last packets may not have arrived yet, and the first ones not all have been recorded.
            assert_eq!(
                all.iter().map(|path| &path.0[..]).collect::<Vec<_>>(),
                [&[2, 1, 0][..], &[0, 1, 2], &[0, 1]]
            );
            assert_eq!(all[2].1, 4);
            assert!(all[0].1 > 80 && all[1].1 > 76, "{all:?}");
            for path in &paths.paths {
                for hop in &path.hops {
                    let hops = i64::try_from(hop.from.abs_diff(hop.to)).unwrap();
                    let truth = hops * if hop.from < hop.to { 5 * MS } else { 7 * MS };
                    assert_eq!(hop.uncertainty, hops * 6 * MS);
                    assert!(hop.delays.iter().all(|ns| (ns - truth).abs() <= hop.uncertainty), "{hop:?}");
                }
            }
            assert_eq!(paths.paths[0].hops.len(), 3);
        }
    }

    /// The first and the last monitor share no connection: their bounds come from the one between.
    #[test]
    fn bounds_are_carried_over_other_monitors() {
        let ahead = [0, 300 * MS, -40 * MS];
        let mut all = monitors(ahead, 0..0);
        // Flows that only two neighbours see in both directions.
        let rename = |seen: &mut Seen, port: u16| {
            let is_there = *seen.flow == *flow(4000);
            seen.flow = if is_there { flow(port) } else { Arc::new(flow(port).back()) };
        };
        let middle = all[1].clone();
        all[0].iter_mut().for_each(|seen| rename(seen, 1));
        all[1].iter_mut().for_each(|seen| rename(seen, 1));
        all[1].extend(middle.into_iter().map(|mut seen| {
            rename(&mut seen, 2);
            seen
        }));
        all[2].iter_mut().for_each(|seen| rename(seen, 2));
        // A datagram without an answer, through the first and the last.
        let at = 1_000_500 * MS;
        all[0].push(Seen { flow: flow(53), label: 1, at });
        all[2].push(Seen { flow: flow(53), label: 1, at: at + 30 * MS + ahead[2] });
        // Another one, faster than the bounds can tell.
        all[0].push(Seen { flow: flow(53), label: 2, at });
        all[2].push(Seen { flow: flow(53), label: 2, at: at + MS + ahead[2] });
        let paths = found(&all);
        let single = paths.paths.iter().find(|path| path.monitors == [0, 2]).unwrap();
        assert_eq!((single.packets, paths.unordered), (1, 1));
        let hop = &single.hops[0];
        assert_eq!(hop.uncertainty, 12 * MS);
        assert!((hop.delays[0] - 30 * MS).abs() <= hop.uncertainty, "{hop:?}");
    }

    #[test]
    fn monitors_without_a_common_packet_have_paths_of_one() {
        let all = monitors([0; 3], 0..0);
        let paths = found(&[all[0].clone(), Vec::new()]);
        assert_eq!(paths.paths.iter().map(|path| path.monitors.clone()).collect::<Vec<_>>(), [[0]]);
        assert_eq!(found(&[]), Paths::default());
    }
}
