//! The discrete wavelet transform, one sample at a time (Mallat's pyramid; Roughan, Veitch and Abry 2000,
//! section III). Each octave keeps the last samples that its filters reach, and passes every second
//! approximation to the next octave. Only coefficients whose filters lie wholly inside the series exist.
//!
//! The transform requires the series sampled with its scaling function, whereas counts are the arrivals
//! sampled with a box of one interval. For D2 both are the same; for the other wavelets this distorts the
//! first octaves (Veitch, Taqqu and Abry, *Meaningful MRA initialization for discrete time series*, Signal
//! Processing 80, 2000): see [`Wavelet::first_straight`].

/// The number of octaves. The samples of the last one span 2^40 intervals, more than ever occur.
pub const OCTAVES: usize = 40;
const TAPS: usize = 8;

/// Daubechies' scaling filters with 1 to 4 vanishing moments (Daubechies, *Ten Lectures on Wavelets*, table
/// 6.1), scaled to norm 1.
const SCALING: [[f64; TAPS]; 4] = [
    [std::f64::consts::FRAC_1_SQRT_2, std::f64::consts::FRAC_1_SQRT_2, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    [
        0.482_962_913_144_534_1,
        0.836_516_303_737_807_7,
        0.224_143_868_042_013_4,
        -0.129_409_522_551_260_37,
        0.0,
        0.0,
        0.0,
        0.0,
    ],
    [
        0.332_670_552_950_082_6,
        0.806_891_509_311_092_5,
        0.459_877_502_118_491_5,
        -0.135_011_020_010_254_58,
        -0.085_441_273_882_026_66,
        0.035_226_291_885_709_53,
        0.0,
        0.0,
    ],
    [
        0.230_377_813_308_896_5,
        0.714_846_570_552_915_4,
        0.630_880_767_929_859,
        -0.027_983_769_416_859_85,
        -0.187_034_811_719_093_08,
        0.030_841_381_835_560_76,
        0.032_883_011_666_885_2,
        -0.010_597_401_785_069_03,
    ],
];

/// A pair of filters.
#[derive(Clone, Copy, Debug)]
pub struct Wavelet {
    low: [f64; TAPS],
    high: [f64; TAPS],
    taps: usize,
}

impl Wavelet {
    /// Returns the wavelet with `moments` vanishing moments, clamped to 1 to 4.
    pub fn daubechies(moments: usize) -> Self {
        let moments = moments.clamp(1, SCALING.len());
        let (low, taps) = (SCALING[moments - 1], 2 * moments);
        let mut high = [0.0; TAPS];
        for (i, tap) in high[..taps].iter_mut().enumerate() {
            *tap = if i % 2 == 0 { low[taps - 1 - i] } else { -low[taps - 1 - i] };
        }
        Self { low, high, taps }
    }

    /// Returns the first octave of counts whose energy has a bias below its error over 2^16 intervals.
    pub fn first_straight(&self) -> u8 {
        if self.taps == 2 { 1 } else { 4 }
    }

    /// Returns the squared modulus of the wavelet's Fourier transform at `nu`, in cycles per sample: the
    /// product of the filters' responses down to where they are 1.
    pub fn spectrum(&self, nu: f64) -> f64 {
        let power = |filter: &[f64; TAPS], nu: f64| {
            // The polynomial of the taps at a point of the unit circle, by Horner's rule: sines and cosines
            // would be most of the work of an estimate.
            let (sin, cos) = (std::f64::consts::TAU * nu).sin_cos();
            let (mut re, mut im) = (0.0, 0.0);
            for tap in filter.iter().rev() {
                (re, im) = (re * cos - im * sin + tap, re * sin + im * cos);
            }
            (re * re + im * im) / 2.0
        };
        (2..24).fold(power(&self.high, nu / 2.0), |product, k| {
            product * power(&self.low, nu / f64::from(1u32 << k))
        })
    }
}

/// The number and energy of an octave's coefficients.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Energy {
    pub coefficients: u64,
    /// The sum of their squares.
    pub squares: f64,
}

/// The samples of one octave, oldest first.
#[derive(Clone, Copy, Debug, Default)]
struct Octave {
    last: [f64; TAPS],
    /// The number of samples until the next coefficient.
    missing: usize,
}

/// The transform of one series; its state is about 3.5 KiB for any length.
#[derive(Clone, Debug)]
pub struct Pyramid {
    wavelet: Wavelet,
    octaves: [Octave; OCTAVES],
    energies: [Energy; OCTAVES],
}

impl Pyramid {
    pub fn new(wavelet: Wavelet) -> Self {
        let octave = Octave { last: [0.0; TAPS], missing: wavelet.taps };
        Self { wavelet, octaves: [octave; OCTAVES], energies: [Energy::default(); OCTAVES] }
    }

    /// Returns the energies, octave 1 first.
    pub fn energies(&self) -> &[Energy; OCTAVES] {
        &self.energies
    }

    pub fn push(&mut self, count: f64) {
        self.push_from(0, count);
    }

    /// Adds `count` counts of 0 at once, in time that grows only with the logarithm of `count`.
    pub fn push_zeros(&mut self, count: u64) {
        let mut count = count;
        for octave in 0..OCTAVES {
            // Zeros are added one by one through all octaves above until this octave contains only zeros.
            while count > 0 && (self.octaves[octave].last != [0.0; TAPS] || self.octaves[octave].missing > 2)
            {
                if let Some(next) = self.step(octave, 0.0) {
                    self.push_from(octave + 1, next);
                }
                count -= 1;
            }
            let state = &mut self.octaves[octave];
            let missing = state.missing as u64;
            if count < missing {
                state.missing -= count as usize;
                return;
            }
            let made = (count - missing) / 2 + 1;
            state.missing = 2 - ((count - missing) % 2) as usize;
            self.energies[octave].coefficients += made;
            count = made;
        }
    }

    fn push_from(&mut self, first: usize, sample: f64) {
        let mut sample = sample;
        for octave in first..OCTAVES {
            match self.step(octave, sample) {
                Some(next) => sample = next,
                None => return,
            }
        }
    }

    /// Adds one sample to one octave; every second time, returns a sample of the next octave.
    #[inline]
    fn step(&mut self, octave: usize, sample: f64) -> Option<f64> {
        let Wavelet { low, high, taps } = &self.wavelet;
        let state = &mut self.octaves[octave];
        state.last.copy_within(1..*taps, 0);
        state.last[taps - 1] = sample;
        state.missing -= 1;
        if state.missing > 0 {
            return None;
        }
        state.missing = 2;
        let (mut approximation, mut detail) = (0.0, 0.0);
        for i in 0..*taps {
            approximation += low[i] * state.last[i];
            detail += high[i] * state.last[i];
        }
        let energy = &mut self.energies[octave];
        energy.coefficients += 1;
        energy.squares += detail * detail;
        Some(approximation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn filters_are_orthonormal_with_their_vanishing_moments() {
        for moments in 1..=4 {
            let w = Wavelet::daubechies(moments);
            assert!((w.low.iter().sum::<f64>() - 2f64.sqrt()).abs() < 1e-12, "D{}", 2 * moments);
            for shift in (0..w.taps).step_by(2) {
                let dot = |a: &[f64; TAPS], b: &[f64; TAPS]| -> f64 {
                    (shift..w.taps).map(|i| a[i] * b[i - shift]).sum()
                };
                let expected = if shift == 0 { 1.0 } else { 0.0 };
                assert!((dot(&w.low, &w.low) - expected).abs() < 1e-12, "D{} {shift}", 2 * moments);
                assert!(dot(&w.high, &w.low).abs() < 1e-12, "D{} {shift}", 2 * moments);
            }
            for m in 0..moments {
                let moment: f64 = (0..w.taps).map(|i| (i as f64).powi(m as i32) * w.high[i]).sum();
                assert!(moment.abs() < 1e-9, "D{} moment {m}: {moment}", 2 * moments);
            }
        }
    }

    #[test]
    fn the_wavelet_has_norm_one() {
        for moments in 1..=4 {
            let w = Wavelet::daubechies(moments);
            let step = 1.0 / 256.0;
            let norm: f64 = (0..64 * 256).map(|i| 2.0 * step * w.spectrum((f64::from(i) + 0.5) * step)).sum();
            assert!((norm - 1.0).abs() < 0.01, "D{}: {norm}", 2 * moments);
        }
    }

    /// Computes the transform by its definition, over the whole series at once.
    fn whole(w: &Wavelet, counts: &[f64]) -> Vec<Energy> {
        let mut energies = Vec::new();
        let mut series = counts.to_vec();
        while series.len() >= w.taps {
            let at = (0..=series.len() - w.taps).step_by(2);
            let filter = |f: &[f64; TAPS]| -> Vec<f64> {
                at.clone().map(|k| (0..w.taps).map(|i| f[i] * series[k + i]).sum()).collect()
            };
            let (next, details) = (filter(&w.low), filter(&w.high));
            energies.push(Energy {
                coefficients: details.len() as u64,
                squares: details.iter().map(|d| d * d).sum(),
            });
            series = next;
        }
        energies
    }

    proptest! {
        #[test]
        fn one_by_one_is_all_at_once(
            moments in 1usize..=4,
            parts in prop::collection::vec((prop::collection::vec(0u32..1000, 0..40), 0u64..100), 0..6),
        ) {
            let w = Wavelet::daubechies(moments);
            let mut pyramid = Pyramid::new(w);
            let mut series = Vec::new();
            for (samples, zeros) in &parts {
                for sample in samples {
                    pyramid.push(f64::from(*sample));
                    series.push(f64::from(*sample));
                }
                pyramid.push_zeros(*zeros);
                series.extend(std::iter::repeat_n(0.0, *zeros as usize));
            }
            let expected = whole(&w, &series);
            for (octave, found) in pyramid.energies().iter().enumerate() {
                let expected = expected.get(octave).copied().unwrap_or_default();
                prop_assert_eq!(found.coefficients, expected.coefficients, "octave {}", octave + 1);
                prop_assert!((found.squares - expected.squares).abs() <= 1e-9 * (1.0 + expected.squares));
            }
        }
    }

    #[test]
    fn a_gap_of_centuries_is_no_work() {
        let mut pyramid = Pyramid::new(Wavelet::daubechies(3));
        (0..100).for_each(|i| pyramid.push(f64::from(i % 7)));
        pyramid.push_zeros(1 << 50);
        assert_eq!(pyramid.energies()[0].coefficients, (100 + (1 << 50) - 6) / 2 + 1);
        pyramid.push(1.0);
    }
}
