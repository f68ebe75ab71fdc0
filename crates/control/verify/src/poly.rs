//! Upper bounds that grow with the captured length.

use std::fmt;

/// The number of coefficients: powers of the length from 0 to one less.
const DEGREE: usize = 4;
/// Coefficients are multiples of 1 / 256, rounded up.
const ONE: u128 = 256;

/// `a + b L + c L² + d L³`, with L the captured length of a packet; or no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poly(Option<[u128; DEGREE]>);

impl Poly {
    pub const ZERO: Self = Self(Some([0; DEGREE]));
    pub const UNBOUNDED: Self = Self(None);
    /// The size of an encoded bound in bytes.
    pub const BYTES: usize = 1 + 16 * DEGREE;
    /// The length L itself.
    pub const LENGTH: Self = Self(Some([0, ONE, 0, 0]));

    pub fn constant(n: u64) -> Self {
        Self(Some([u128::from(n) * ONE, 0, 0, 0]))
    }

    /// Returns a bound of at least `(constant + slope × L) / divisor`; negative parts count as 0.
    pub fn from_upper(upper: crate::linear::Upper) -> Self {
        let part = |n: i128| {
            let n = u128::try_from(n.max(0)).ok()?.checked_mul(ONE)?;
            Some(n.div_ceil(u128::try_from(upper.divisor.max(1)).ok()?))
        };
        Self(part(upper.constant).zip(part(upper.slope)).map(|(a, b)| [a, b, 0, 0]))
    }

    /// Returns whether there is a bound at all.
    pub fn is_bounded(self) -> bool {
        self.0.is_some()
    }

    /// Returns the bound, if it does not grow.
    pub fn as_constant(self) -> Option<u64> {
        let [n, b, c, d] = self.0?;
        (b == 0 && c == 0 && d == 0).then(|| u64::try_from(n.div_ceil(ONE)).ok())?
    }

    /// Returns the sum; if it overflows, there is no bound.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.zip(other, |a, b| a.checked_add(b))
    }

    /// Returns the larger of each pair of coefficients: a bound of both.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| Some(a.max(b)))
    }

    /// Returns the product, rounded up; if it overflows or its degree is too high, there is no bound.
    #[must_use]
    pub fn times(self, other: Self) -> Self {
        let (Some(a), Some(b)) = (self.0, other.0) else {
            // Zero times anything is zero.
            return if self == Self::ZERO || other == Self::ZERO { Self::ZERO } else { Self::UNBOUNDED };
        };
        let mut all = [0u128; DEGREE];
        for (i, a) in a.into_iter().enumerate() {
            for (j, b) in b.into_iter().enumerate().filter(|(_, b)| a > 0 && *b > 0) {
                let product = a.checked_mul(b).map(|n| n.div_ceil(ONE));
                let sum = all.get(i + j).zip(product).and_then(|(n, p)| n.checked_add(p));
                match (all.get_mut(i + j), sum) {
                    (Some(place), Some(sum)) => *place = sum,
                    _ => return Self::UNBOUNDED,
                }
            }
        }
        Self(Some(all))
    }

    /// Divides by `n`, rounded up.
    #[must_use]
    pub fn over(self, n: u64) -> Self {
        Self(self.0.map(|all| all.map(|a| a.div_ceil(u128::from(n.max(1))))))
    }

    fn zip(self, other: Self, f: impl Fn(u128, u128) -> Option<u128>) -> Self {
        let (Some(a), Some(b)) = (self.0, other.0) else { return Self::UNBOUNDED };
        let mut all = [0; DEGREE];
        for ((place, a), b) in all.iter_mut().zip(a).zip(b) {
            match f(a, b) {
                Some(n) => *place = n,
                None => return Self::UNBOUNDED,
            }
        }
        Self(Some(all))
    }

    /// Encodes the bound for [`Poly::from_bytes`].
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        if let Some(all) = self.0 {
            out[0] = 1;
            out[1..].chunks_mut(16).zip(all).for_each(|(place, n)| place.copy_from_slice(&n.to_le_bytes()));
        }
        out
    }

    /// Returns the bound that [`Poly::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let mut all = [0; DEGREE];
        for (place, n) in all.iter_mut().zip(bytes[1..].chunks_exact(16)) {
            *place = u128::from_le_bytes(n.try_into().unwrap_or_default());
        }
        Self((bytes[0] == 1).then_some(all))
    }

    /// Returns the bound at a length; `None` if it is missing, or 256 times it exceeds 128 bits.
    pub fn at(self, length: u64) -> Option<u128> {
        let all = self.0?;
        let sum =
            all.iter().rev().try_fold(0u128, |sum, a| sum.checked_mul(length.into())?.checked_add(*a))?;
        Some(sum.div_ceil(ONE))
    }
}

impl fmt::Display for Poly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(all) = self.0 else { return f.write_str("unbounded") };
        let mut parts = Vec::new();
        for (power, n) in all.into_iter().enumerate().rev().filter(|(_, n)| *n > 0) {
            let whole = n.div_ceil(ONE);
            let number = if power > 0 && n < 16 * ONE {
                format!("{:.2}", n as f64 / ONE as f64)
            } else {
                whole.to_string()
            };
            let number = number.trim_end_matches('0').trim_end_matches('.').to_owned();
            let number = if power == 0 || n >= 16 * ONE { whole.to_string() } else { number };
            parts.push(match power {
                0 => number,
                1 => format!("{number} L"),
                2 => format!("{number} L²"),
                _ => format!("{number} L³"),
            });
        }
        f.write_str(&if parts.is_empty() { "0".to_owned() } else { parts.join(" + ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_products_and_what_they_show() {
        let n = Poly::constant;
        let p = Poly::LENGTH.times(n(3)).plus(n(7));
        assert_eq!((p.to_string().as_str(), p.at(100), p.as_constant()), ("3 L + 7", Some(307), None));
        assert_eq!(p.times(Poly::LENGTH).at(10), Some(370));
        assert_eq!(Poly::LENGTH.over(16).times(n(5)).at(1600), Some(500));
        assert_eq!(n(5).over(2).as_constant(), Some(3));
        assert_eq!(p.max(n(100)).at(0), Some(100));
        assert_eq!(Poly::UNBOUNDED.times(Poly::ZERO), Poly::ZERO);
        assert!(!Poly::UNBOUNDED.plus(n(1)).is_bounded());
        for p in [p, Poly::UNBOUNDED, Poly::ZERO, Poly::LENGTH.times(Poly::LENGTH)] {
            assert_eq!(Poly::from_bytes(&p.to_bytes()), p);
        }
        let cube = Poly::LENGTH.times(Poly::LENGTH).times(Poly::LENGTH);
        assert!(cube.is_bounded() && !cube.times(Poly::LENGTH).is_bounded());
        assert!(!n(u64::MAX).times(n(u64::MAX)).times(n(u64::MAX)).is_bounded(), "it does not wrap");
    }
}
