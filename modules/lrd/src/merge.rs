//! The slow path: combines the workers' counts and reports estimates.

use crate::message::{self, Message};
use crate::pyramid::{Energy, OCTAVES, Wavelet};
use crate::regress::{Line, diagram, line};
use crate::tables::{self, EstimateSeries, OctaveSeries};
use crate::transform::{Energies, Transform};
use crate::{Counts, SERIES};
use flame_module::{Init, Out, Progress, Slow};
use std::collections::BTreeMap;

/// The names of the series in the tables `estimate` and `octave`.
const SERIES_NAMES: [(EstimateSeries, OctaveSeries); SERIES] = [
    (EstimateSeries::Packets, OctaveSeries::Packets),
    (EstimateSeries::Bytes, OctaveSeries::Bytes),
    (EstimateSeries::Connections, OctaveSeries::Connections),
];

/// The largest number of intervals by which workers may be ahead of others; about 50 bytes each.
const PENDING: usize = 1 << 19;

/// The estimator. It reports at the end, and at ticks if intervals were requested.
pub struct Estimator {
    wavelet: Wavelet,
    interval_ns: u64,
    lateness_ns: u64,
    per_tick: bool,
    late: u64,
    dropped: u64,
    series: Series,
}

/// The data of the series: counts of several workers, of which those before `begin` are late, or the
/// transformed counts of the only one.
enum Series {
    Counts { pending: BTreeMap<u64, Counts>, begin: u64, transform: Box<Transform> },
    Sums { before: Box<Sums>, now: Box<Sums> },
}

/// The sums of the instances that a fault ended, and of the one that runs.
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
        let params = tables::Params::from(init);
        let moments = usize::from(params.moments);
        let series = if init.workers > 1 {
            Series::Counts {
                pending: BTreeMap::new(),
                begin: 0,
                transform: Box::new(Transform::new(moments)),
            }
        } else {
            Series::Sums { before: Sums::none(), now: Sums::none() }
        };
        Self {
            wavelet: Wavelet::daubechies(moments),
            interval_ns: params.interval.max(1),
            lateness_ns: params.lateness,
            per_tick: init.interval_ns != 0,
            late: 0,
            dropped: 0,
            series,
        }
    }

    fn message(&mut self, bytes: &[u8], _: &mut Out) {
        match (message::read(bytes), &mut self.series) {
            (Some(Message::Counts { late, begin, entries }), Series::Counts { pending, begin: last, .. }) => {
                self.late += late;
                *last = begin.max(*last);
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
            // The messages of this module are always one of these.
            _ => {}
        }
    }

    fn tick(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        self.close(now_ns.saturating_sub(self.lateness_ns) / self.interval_ns);
        if self.per_tick {
            self.report(now_ns, out);
        }
        Progress::Done
    }

    fn end(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        self.close(now_ns / self.interval_ns);
        let intervals = self.report(now_ns, out);
        out.write(&tables::State { intervals, late: self.late, dropped: self.dropped });
        Progress::Done
    }
}

impl Estimator {
    /// Closes the intervals below `until`, which all workers have counted.
    fn close(&mut self, until: u64) {
        let Series::Counts { pending, begin, transform } = &mut self.series else { return };
        while let Some(first) = pending.first_entry().filter(|e| *e.key() < until) {
            let (index, counts) = first.remove_entry();
            if index < *begin {
                self.late += counts[0];
            } else if !transform.push(index, &counts) {
                self.dropped += counts[0];
            }
        }
        transform.advance(until);
    }

    /// Writes rows of the current estimates and returns the number of intervals.
    fn report(&self, now_ns: u64, out: &mut Out) -> u64 {
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
        for (series, energies) in SERIES_NAMES.into_iter().zip(&sums.energies) {
            let points = diagram(energies);
            let line = line(&points, self.wavelet.first_straight());
            if let Some(line) = &line {
                self.estimate(now_ns, series.0, line, sums.intervals, out);
            }
            for p in &points {
                let (low, high) = p.interval();
                let fit = line.filter(|l| (l.from..=l.to).contains(&p.octave));
                out.write(&tables::Octave {
                    end_ns: now_ns,
                    series: series.1,
                    octave: p.octave,
                    coefficients: p.coefficients,
                    energy: p.energy,
                    low,
                    high,
                    fit: fit.map_or(f64::NAN, |l| l.at(p.octave)),
                });
            }
        }
        sums.intervals
    }

    fn estimate(&self, now_ns: u64, series: EstimateSeries, line: &Line, intervals: u64, out: &mut Out) {
        let (h, low, high) = line.hurst();
        out.write(&tables::Estimate {
            end_ns: now_ns,
            series,
            h,
            h_low: low,
            h_high: high,
            alpha: line.alpha,
            c_f: line.c_f(&self.wavelet),
            octave_from: line.from,
            octave_to: line.to,
            intervals,
            goodness: line.goodness,
        });
    }
}
