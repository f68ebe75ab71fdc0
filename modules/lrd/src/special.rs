//! The special functions that the estimator needs.

/// Returns the logarithmic derivative of the gamma function, for x > 0: upwards by its recurrence, then the
/// asymptotic series (Abramowitz and Stegun, 6.3.5 and 6.3.18).
pub fn digamma(x: f64) -> f64 {
    let (mut x, mut sum) = (x, 0.0);
    while x < 10.0 {
        sum -= 1.0 / x;
        x += 1.0;
    }
    let f = 1.0 / (x * x);
    sum + x.ln() - 0.5 / x - f * (1.0 / 12.0 - f * (1.0 / 120.0 - f * (1.0 / 252.0 - f / 240.0)))
}

/// Returns the derivative of the digamma function, which is Hurwitz' zeta(2, x) (Abramowitz and Stegun, 6.4.6
/// and 6.4.12).
pub fn trigamma(x: f64) -> f64 {
    let (mut x, mut sum) = (x, 0.0);
    while x < 10.0 {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    let f = 1.0 / (x * x);
    sum + 1.0 / x + f / 2.0 + f / x * (1.0 / 6.0 - f * (1.0 / 30.0 - f * (1.0 / 42.0 - f / 30.0)))
}

/// Returns the probability that chi-square with `freedom` degrees of freedom is at least `value`: upwards by
/// two degrees (Abramowitz and Stegun, 26.4.8) from one or two.
pub fn chi_square(value: f64, freedom: u32) -> f64 {
    if freedom == 0 {
        return 1.0;
    }
    let x = value.max(0.0) / 2.0;
    let (mut q, mut a) =
        if freedom.is_multiple_of(2) { ((-x).exp(), 1.0) } else { (libm::erfc(x.sqrt()), 0.5) };
    // x^a e^-x / Γ(a+1)
    let mut term = if freedom.is_multiple_of(2) {
        x * (-x).exp()
    } else {
        (x.sqrt() * (-x).exp()) * std::f64::consts::FRAC_2_SQRT_PI
    };
    while 2.0 * a + 1.0 < f64::from(freedom) {
        q += term;
        a += 1.0;
        term *= x / a;
    }
    q.clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with values of Abramowitz and Stegun, and with identities.
    #[test]
    fn known_values() {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-10, "{a} {b}");
        near(digamma(1.0), -0.577_215_664_901_532_9);
        near(digamma(0.5), -0.577_215_664_901_532_9 - 2.0 * 2f64.ln());
        near(trigamma(1.0), std::f64::consts::PI.powi(2) / 6.0);
        near(trigamma(0.5), std::f64::consts::PI.powi(2) / 2.0);
        near(digamma(1e4), 1e4f64.ln() - 5e-5 - 1e-8 / 12.0);
    }

    /// Compares with the 5 % points of the usual table.
    #[test]
    fn chi_square_table() {
        for (freedom, value) in [(1, 3.841), (2, 5.991), (3, 7.815), (4, 9.488), (9, 16.919), (10, 18.307)] {
            let q = chi_square(value, freedom);
            assert!((q - 0.05).abs() < 2e-5, "{freedom}: {q}");
        }
        assert_eq!(chi_square(1e6, 3), 0.0);
        assert_eq!(chi_square(0.0, 3), 1.0);
    }
}
