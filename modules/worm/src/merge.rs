//! The slow path: merges the results of all workers, in order, and writes the records.

use crate::found::{Infection, SIZE};
use crate::tables;
use flame_module::{Init, Ip, Out, Progress, Slow};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// The bytes of room into which a row certainly fits.
const ROW: usize = 512;

type Target = (u16, Ip, Ip, u16);

pub struct Merge {
    names: Vec<String>,
    all: BTreeMap<Target, Infection>,
    /// The infections that are not yet in the table `first`.
    fresh: BTreeSet<Target>,
    limit: usize,
    counts: [u64; 4],
    /// The rows that [`Slow::end`] has still to write.
    left: Option<Left>,
}

struct Left {
    infections: Vec<Infection>,
    sources: Vec<(u16, Ip, Totals)>,
}

#[derive(Clone, Copy)]
struct Totals {
    targets: u64,
    packets: u64,
    first_ns: u64,
    last_ns: u64,
}

/// Sends the counts of one worker, in the order of the table `state`.
pub fn send_counts(counts: &[u64; 4], out: &mut Out) {
    let mut bytes = [0; 32];
    bytes.chunks_exact_mut(8).zip(counts).for_each(|(place, n)| place.copy_from_slice(&n.to_le_bytes()));
    out.message(&bytes);
}

impl Slow for Merge {
    fn new(init: &Init) -> Self {
        let params = tables::Params::from(init);
        let (names, _) = crate::signature::names(&crate::signatures(&params));
        let limit = params.max_infections as usize;
        Self { names, all: BTreeMap::new(), fresh: BTreeSet::new(), limit, counts: [0; 4], left: None }
    }

    fn message(&mut self, bytes: &[u8], _: &mut Out) {
        if bytes.len() != SIZE {
            for (sum, n) in self.counts.iter_mut().zip(bytes.chunks_exact(8)) {
                *sum += n.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
            }
            return;
        }
        let Some(new) = Infection::from_bytes(bytes) else { return };
        let target = (new.worm, new.src, new.dst, new.dport);
        if let Some(known) = self.all.get_mut(&target) {
            known.packets += new.packets;
            known.first_ns = known.first_ns.min(new.first_ns);
            known.last_ns = known.last_ns.max(new.last_ns);
        } else if self.all.len() < self.limit {
            self.all.insert(target, new);
            self.fresh.insert(target);
        } else {
            self.counts[2] += new.packets;
        }
    }

    fn tick(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        self.first(now_ns, out)
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        if self.first(u64::MAX, out) == Progress::More {
            return Progress::More;
        }
        let mut left = self.left.take().unwrap_or_else(|| self.sum_up());
        while let Some(i) = left.infections.last() {
            if out.room() < ROW {
                self.left = Some(left);
                return Progress::More;
            }
            let &Infection { src, dst, dport, packets, first_ns, last_ns, .. } = i;
            let worm = self.name(i.worm);
            out.write(&tables::Infection { worm, src, dst, dport, packets, first_ns, last_ns });
            left.infections.pop();
        }
        while let Some((worm, src, t)) = left.sources.last() {
            if out.room() < ROW {
                self.left = Some(left);
                return Progress::More;
            }
            let (worm, src) = (self.name(*worm), *src);
            let &Totals { targets, packets, first_ns, last_ns } = t;
            out.write(&tables::Source { worm, src, targets, packets, first_ns, last_ns });
            left.sources.pop();
        }
        let [searched, without_payload, dropped_infections, dropped_pending] = self.counts;
        out.write(&tables::State { searched, without_payload, dropped_infections, dropped_pending });
        Progress::Done
    }
}

impl Merge {
    fn name(&self, worm: u16) -> &str {
        self.names.get(usize::from(worm)).map_or("", String::as_str)
    }

    /// Writes rows of the infections first seen before `now_ns`. Every worker has reported up to that time,
    /// so the rows do not depend on the number of workers. Later infections wait.
    fn first(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        let mut after = None;
        loop {
            let from = after.map_or(Bound::Unbounded, Bound::Excluded);
            let Some(&target) = self.fresh.range((from, Bound::Unbounded)).next() else {
                return Progress::Done;
            };
            after = Some(target);
            let Some(i) = self.all.get(&target).filter(|i| i.first_ns < now_ns) else { continue };
            if out.room() < ROW {
                return Progress::More;
            }
            let &Infection { first_ns: ts_ns, src, dst, dport, .. } = i;
            out.write(&tables::First { ts_ns, worm: self.name(i.worm), src, dst, dport });
            self.fresh.remove(&target);
        }
    }

    /// Returns both lists in reverse order, to be taken from the end.
    fn sum_up(&mut self) -> Left {
        let mut sources: BTreeMap<(u16, Ip), Totals> = BTreeMap::new();
        for i in self.all.values() {
            let none = Totals { targets: 0, packets: 0, first_ns: u64::MAX, last_ns: 0 };
            let t = sources.entry((i.worm, i.src)).or_insert(none);
            t.targets += 1;
            t.packets += i.packets;
            t.first_ns = t.first_ns.min(i.first_ns);
            t.last_ns = t.last_ns.max(i.last_ns);
        }
        let infections = std::mem::take(&mut self.all).into_values().rev().collect();
        let sources = sources.into_iter().rev().map(|((worm, src), t)| (worm, src, t)).collect();
        Left { infections, sources }
    }
}
