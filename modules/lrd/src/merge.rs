//! The slow path: puts the workers together, and says what comes of it.

use crate::message::{self, Message};
use crate::pyramid::{Energy, OCTAVES, Wavelet};
use crate::regress::{Line, diagram, line};
use crate::transform::{Energies, Transform};
use crate::{Counts, SERIES};
use flame_module::{Init, Out, Progress, Slow};
use std::collections::BTreeMap;

const ESTIMATE: u16 = 0;
const OCTAVE: u16 = 1;
const STATE: u16 = 2;

/// Intervals that some workers are ahead of others, at most; about 50 bytes each.
const PENDING: usize = 1 << 19;

/// Estimates at the end, and at ticks if intervals were asked for.
pub struct Estimator {
    wavelet: Wavelet,
    interval_ns: u64,
    lateness_ns: u64,
    per_tick: bool,
    late: u64,
    dropped: u64,
    series: Series,
}

/// What is known of the series: counts of several workers, or what the only one made of them.
enum Series {
    Counts { pending: BTreeMap<u64, Counts>, transform: Box<Transform> },
    Sums { before: Box<Sums>, now: Box<Sums> },
}

/// Of the instances that a fault ended, and of the one that runs.
struct Sums {
    intervals: u64,
    energies: Energies,
}

impl Sums {
    fn none() -> Box<Self> {
        Box::new(Self { intervals: 0, energies: [[Energy::default(); OCTAVES]; SERIES] })
    }

    fn add(&mut self, other: &Self) {
        self.intervals += other.intervals;
        for (sum, e) in self.energies.iter_mut().flatten().zip(other.energies.iter().flatten()) {
            sum.coefficients += e.coefficients;
            sum.squares += e.squares;
        }
    }
}

impl Slow for Estimator {
    fn new(init: &Init) -> Self {
        let moments = init.integer("moments") as usize;
        let series = if init.workers > 1 {
            Series::Counts { pending: BTreeMap::new(), transform: Box::new(Transform::new(moments)) }
        } else {
            Series::Sums { before: Sums::none(), now: Sums::none() }
        };
        Self {
            wavelet: Wavelet::daubechies(moments),
            interval_ns: init.duration_ns("interval").max(1),
            lateness_ns: init.duration_ns("lateness"),
            per_tick: init.interval_ns != 0,
            late: 0,
            dropped: 0,
            series,
        }
    }

    fn message(&mut self, bytes: &[u8], _: &mut Out) {
        match (message::read(bytes), &mut self.series) {
            (Some(Message::Counts { late, entries }), Series::Counts { pending, .. }) => {
                self.late += late;
                for (index, counts) in entries {
                    if pending.len() >= PENDING && !pending.contains_key(&index) {
                        self.dropped += counts[0];
                        continue;
                    }
                    let sums = pending.entry(index).or_default();
                    sums.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
                }
            }
            (Some(Message::Sums { late, first, intervals, energies }), Series::Sums { before, now }) => {
                self.late += late;
                if first {
                    before.add(now);
                }
                **now = Sums { intervals, energies: *energies };
            }
            // Ours are always one of these.
            _ => {}
        }
    }

    fn tick(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        self.close(now_ns.saturating_sub(self.lateness_ns) / self.interval_ns);
        if self.per_tick {
            self.tell(now_ns, out);
        }
        Progress::Done
    }

    fn end(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        self.close(now_ns / self.interval_ns);
        let intervals = self.tell(now_ns, out);
        out.row(STATE).u64(intervals).u64(self.late).u64(self.dropped).finish();
        Progress::Done
    }
}

impl Estimator {
    /// All workers have counted the intervals below `until`.
    fn close(&mut self, until: u64) {
        let Series::Counts { pending, transform } = &mut self.series else { return };
        while let Some(first) = pending.first_entry().filter(|e| *e.key() < until) {
            let (index, counts) = first.remove_entry();
            if !transform.push(index, &counts) {
                self.dropped += counts[0];
            }
        }
        transform.advance(until);
    }

    /// Rows of what is known; the number of intervals.
    fn tell(&self, now_ns: u64, out: &mut Out) -> u64 {
        let sums = match &self.series {
            Series::Counts { transform, .. } => {
                Sums { intervals: transform.intervals, energies: transform.energies() }
            }
            Series::Sums { before, now } => {
                let mut sums = Sums { intervals: now.intervals, energies: now.energies };
                sums.add(before);
                sums
            }
        };
        for (series, energies) in (0u8..).zip(&sums.energies) {
            let points = diagram(energies);
            let line = line(&points, self.wavelet.first_straight());
            if let Some(line) = &line {
                self.estimate(now_ns, series, line, sums.intervals, out);
            }
            for p in &points {
                let (low, high) = p.interval();
                let fit = line.filter(|l| (l.from..=l.to).contains(&p.octave));
                let row = out.row(OCTAVE).time(now_ns).u8(series).u8(p.octave).u64(p.coefficients);
                row.f64(p.energy).f64(low).f64(high).f64(fit.map_or(f64::NAN, |l| l.at(p.octave))).finish();
            }
        }
        sums.intervals
    }

    fn estimate(&self, now_ns: u64, series: u8, line: &Line, intervals: u64, out: &mut Out) {
        let (h, low, high) = line.hurst();
        let row = out.row(ESTIMATE).time(now_ns).u8(series).f64(h).f64(low).f64(high).f64(line.alpha);
        let row = row.f64(line.c_f(&self.wavelet)).u8(line.from).u8(line.to);
        row.u64(intervals).f64(line.goodness).finish();
    }
}
