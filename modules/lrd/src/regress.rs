//! The Hurst parameter from energies by octave: the weighted regression of Abry and Veitch (*Wavelet
//! analysis of long-range-dependent traffic*, IEEE Trans. Information Theory 44(1), 1998; Veitch and Abry, *A
//! wavelet-based joint estimator of the parameters of long-range dependence*, ibid. 45(3), 1999).
//!
//! With n coefficients of mean square m, `log2 m` has the mean `log2 E + g(n)`, `g(n) = ψ(n/2)/ln 2 −
//! log2(n/2)`, and the variance `ζ(2, n/2)/ln² 2`; the energies E grow as 2^(αj) over the octaves j of the
//! scaling range.

use crate::pyramid::{Energy, Wavelet};
use crate::special::{chi_square, digamma, trigamma};
use std::f64::consts::LN_2;

/// The fewest coefficients of an octave to which a line is fitted. Octaves with fewer are still reported:
/// their logarithms are far from normal, and have hardly any weight.
const COEFFICIENTS: u64 = 16;
/// The fewest octaves of a line, so that its fit can be judged.
const FEWEST: usize = 3;
/// The number of the largest octaves that may be left out if they alone do not fit: an outlier with few
/// coefficients would otherwise exclude all the precise ones. It is not larger, because long-range dependence
/// is a property of the largest octaves.
const SPARED: usize = 2;
/// The two-sided 95 % quantile of the normal distribution.
const Z: f64 = 1.959_964;
/// The factor by which the interval of H is wider than the regression's own error, which assumes independent
/// coefficients and a given range: over 800 series of fractional Gaussian noise each, errors were up to 1.15
/// times as large (D2 at H = 0.9; 1.04 with D6).
const WIDER: f64 = 1.15;
/// A line fits from an octave on if a worse fit has at least this probability by chance alone. The value is
/// low, because every line that is discarded by mistake costs precision.
const FITS: f64 = 0.01;

/// A point of the logscale diagram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub octave: u8,
    pub coefficients: u64,
    /// The base-2 logarithm of the energy, without its bias.
    pub energy: f64,
    pub variance: f64,
}

impl Point {
    /// Returns the 95 % interval of `energy`.
    pub fn interval(&self) -> (f64, f64) {
        let half = Z * self.variance.sqrt();
        (self.energy - half, self.energy + half)
    }
}

/// Returns the diagram, octave 1 first, up to the last octave with energy.
pub fn diagram(energies: &[Energy]) -> Vec<Point> {
    let points = energies.iter().zip(1u8..).map_while(|(e, octave)| {
        if e.coefficients == 0 || e.squares <= 0.0 {
            return None;
        }
        let n = e.coefficients as f64;
        let bias = digamma(n / 2.0) / LN_2 - (n / 2.0).log2();
        let energy = (e.squares / n).log2() - bias;
        let variance = trigamma(n / 2.0) / (LN_2 * LN_2);
        Some(Point { octave, coefficients: e.coefficients, energy, variance })
    });
    points.collect()
}

/// A line through a range of octaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// The range of octaves, both ends included.
    pub from: u8,
    pub to: u8,
    /// The slope, and its variance.
    pub alpha: f64,
    pub variance: f64,
    pub at_zero: f64,
    /// The probability of a fit at least this bad if the octaves lie on a line.
    pub goodness: f64,
}

impl Line {
    /// Fits a line by least squares with the inverse variances as weights.
    pub fn through(points: &[Point]) -> Option<Self> {
        let (first, last) = (points.first()?, points.last()?);
        if points.len() < 2 {
            return None;
        }
        let (mut s, mut sx, mut sxx, mut sy, mut sxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for p in points {
            let (x, w) = (f64::from(p.octave), 1.0 / p.variance);
            s += w;
            sx += w * x;
            sxx += w * x * x;
            sy += w * p.energy;
            sxy += w * x * p.energy;
        }
        let determinant = s * sxx - sx * sx;
        let alpha = (s * sxy - sx * sy) / determinant;
        let at_zero = (sxx * sy - sx * sxy) / determinant;
        let squares = points
            .iter()
            .map(|p| (p.energy - at_zero - alpha * f64::from(p.octave)).powi(2) / p.variance)
            .sum();
        let goodness = chi_square(squares, points.len() as u32 - 2);
        Some(Self {
            from: first.octave,
            to: last.octave,
            alpha,
            variance: s / determinant,
            at_zero,
            goodness,
        })
    }

    /// Returns H of a stationary series whose spectrum is proportional to |ν|^−α, with its 95 % interval.
    pub fn hurst(&self) -> (f64, f64, f64) {
        let half = WIDER * Z * self.variance.sqrt();
        let h = |alpha: f64| (1.0 + alpha) / 2.0;
        (h(self.alpha), h(self.alpha - half), h(self.alpha + half))
    }

    pub fn at(&self, octave: u8) -> f64 {
        self.at_zero + self.alpha * f64::from(octave)
    }

    /// Returns c_f of the spectrum `c_f |ν|^−α`, ν in cycles per interval: the energy at octave 0 over the
    /// wavelet's integral `∫ |ν|^−α |Ψ(ν)|² dν`.
    pub fn c_f(&self, wavelet: &Wavelet) -> f64 {
        // Logarithmic steps, from where the vanishing moments make the integrand negligible to where its
        // decay does.
        let (steps, from, to) = (2000, -12.0, 6.0);
        let step = (to - from) / f64::from(steps);
        let integral: f64 = (0..steps)
            .map(|i| {
                let nu = (from + (f64::from(i) + 0.5) * step).exp2();
                2.0 * nu.powf(1.0 - self.alpha) * wavelet.spectrum(nu) * step * LN_2
            })
            .sum();
        self.at_zero.exp2() / integral
    }
}

/// Returns the line over the scaling range: up to the largest octave with enough coefficients or at most
/// [`SPARED`] less, from the smallest octave (not below `first`) where it fits (after Veitch, Abry and Taqqu,
/// *On the automatic selection of the onset of scaling*, Fractals 11(4), 2003). If it fits nowhere, returns
/// the best line; its goodness shows that.
pub fn line(points: &[Point], first: u8) -> Option<Line> {
    let usable = points.iter().take_while(|p| p.coefficients >= COEFFICIENTS).count();
    let points = points.get(usize::from(first).saturating_sub(1)..usable)?;
    let last = points.len().checked_sub(FEWEST)?;
    let ranges = (0..=last).flat_map(|from| (0..=SPARED.min(last - from)).map(move |spared| (from, spared)));
    let lines = ranges.filter_map(|(from, spared)| Line::through(&points[from..points.len() - spared]));
    let mut best: Option<Line> = None;
    for line in lines {
        if line.goodness >= FITS {
            return Some(line);
        }
        if best.is_none_or(|b| line.goodness > b.goodness) {
            best = Some(line);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn points(energy: impl Fn(u8) -> f64) -> Vec<Point> {
        let point = |octave: u8| Point {
            octave,
            coefficients: 1 << (20 - octave),
            energy: energy(octave),
            variance: trigamma(f64::from(1 << (20 - octave)) / 2.0) / (LN_2 * LN_2),
        };
        (1..=16).map(point).collect()
    }

    #[test]
    fn the_range_begins_where_the_line_does() {
        let bent = points(|j| if j < 6 { 3.0 } else { 3.0 + 0.8 * f64::from(j - 6) });
        let found = line(&bent, 1).unwrap();
        assert!((5..=7).contains(&found.from) && found.to == 16, "{found:?}");
        assert!((found.hurst().0 - 0.9).abs() < 0.01 && found.goodness > FITS, "{found:?}");
        assert_eq!(line(&points(f64::from), 4).unwrap().from, 4);
    }

    #[test]
    fn nothing_fits_a_zigzag_and_its_goodness_says_so() {
        let found = line(&points(|j| f64::from(j % 2) * 20.0), 1).unwrap();
        assert!(found.goodness < FITS, "{found:?}");
    }

    #[test]
    fn too_few_octaves_are_no_line() {
        assert_eq!(line(&points(f64::from)[..2], 1), None);
        assert_eq!(line(&[], 4), None);
        assert_eq!(diagram(&[Energy { coefficients: 9, squares: 0.0 }]), []);
    }

    /// Compares g(n) and the variance with the mean over many draws (n = 16, from a fixed generator).
    #[test]
    fn logarithms_of_means_are_unbiased() {
        let mut state = 1u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        };
        let (draws, mut sum, mut squares, mut variance) = (20_000, 0.0, 0.0, 0.0);
        for _ in 0..draws {
            // Two squared normals at a time (Box and Muller).
            let energy = (0..8).map(|_| -2.0 * uniform().ln()).sum();
            let point = diagram(&[Energy { coefficients: 16, squares: energy }])[0];
            sum += point.energy;
            squares += point.energy * point.energy;
            variance = point.variance;
        }
        let n = f64::from(draws);
        assert!((sum / n).abs() < 0.02, "{}", sum / n);
        assert!((squares / n - variance).abs() < 0.02, "{} {variance}", squares / n);
    }

    /// White noise has the spectrum 1 in cycles per interval.
    #[test]
    fn c_f_of_white_noise_is_its_variance() {
        for moments in 1..=4 {
            let flat = Line::through(&points(|_| 3.0)).unwrap();
            let found = flat.c_f(&Wavelet::daubechies(moments));
            assert!((found - 8.0).abs() < 0.1, "D{}: {found}", 2 * moments);
        }
    }

    proptest! {
        #[test]
        fn a_straight_line_is_found_again(alpha in -1.0f64..2.0, at_zero in -40.0f64..40.0, first in 1u8..8) {
            let found = line(&points(|j| at_zero + alpha * f64::from(j)), first).unwrap();
            prop_assert_eq!((found.from, found.to), (first, 16));
            prop_assert!((found.alpha - alpha).abs() < 1e-6 && (found.at(9) - at_zero - 9.0 * alpha).abs() < 1e-6);
            prop_assert!(found.goodness > 0.999);
            let (h, low, high) = found.hurst();
            prop_assert!(low < h && h < high && (h - (1.0 + alpha) / 2.0).abs() < 1e-6);
        }
    }
}
