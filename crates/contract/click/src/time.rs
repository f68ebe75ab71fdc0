//! Times and durations, in nanoseconds.

use std::fmt;

/// A time since the epoch, or a duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub i64);

pub const SECOND: i64 = 1_000_000_000;

impl Nanos {
    pub const ZERO: Self = Self(0);

    /// Returns a time of `secs` seconds, rounded to nanoseconds.
    pub fn from_secs(secs: f64) -> Self {
        // A cast from a float saturates.
        Self((secs * SECOND as f64).round() as i64)
    }

    /// Returns the number of seconds, with a fraction.
    pub fn secs(self) -> f64 {
        self.0 as f64 / SECOND as f64
    }

    /// Reads seconds, with a fraction and a unit if given.
    pub fn parse(text: &str) -> Option<Self> {
        let end =
            text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '-' | '+')).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let unit = match unit.trim() {
            "" | "s" | "sec" | "second" | "seconds" => SECOND,
            "ms" | "msec" => 1_000_000,
            "us" | "usec" => 1_000,
            "ns" | "nsec" => 1,
            "m" | "min" => 60 * SECOND,
            "h" | "hr" | "hour" => 3600 * SECOND,
            "day" => 86400 * SECOND,
            _ => return None,
        };
        let (negative, digits) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number.strip_prefix('+').unwrap_or(number)),
        };
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
        if whole.len() + part.len() == 0 || !all_digits(whole) || !all_digits(part) {
            return None;
        }
        let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let mut value = whole.checked_mul(unit)?;
        let mut step = unit;
        for digit in part.bytes() {
            step /= 10;
            value = value.checked_add(step * i64::from(digit - b'0'))?;
        }
        Some(Self(if negative { -value } else { value }))
    }

    /// Writes it with six digits after the point.
    pub fn micros(self) -> String {
        let (sign, value) = if self.0 < 0 { ("-", self.0.unsigned_abs()) } else { ("", self.0 as u64) };
        format!("{sign}{}.{:06}", value / SECOND as u64, value % SECOND as u64 / 1000)
    }
}

impl fmt::Display for Nanos {
    /// Writes six digits after the point, or nine if the last three are not zero.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.micros())?;
        match self.0.unsigned_abs() % 1000 {
            0 => Ok(()),
            rest => write!(f, "{rest:03}"),
        }
    }
}

impl std::ops::Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl std::ops::Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        for (text, nanos) in [
            ("1.5", 1_500_000_000),
            (".1s", 100_000_000),
            ("20ms", 20_000_000),
            ("2 min", 120 * SECOND),
            ("-0.25", -250_000_000),
            ("1.0000000019", 1_000_000_001),
        ] {
            assert_eq!(Nanos::parse(text), Some(Nanos(nanos)), "{text}");
        }
        for bad in ["", ".", "x", "1.2.3", "1parsec", "--1", "9999999999999999999", "9999999999999"] {
            assert_eq!(Nanos::parse(bad), None, "{bad}");
        }
        assert_eq!(Nanos(1_000_020_000).to_string(), "1.000020");
        assert_eq!(Nanos(-1_500_000_001).to_string(), "-1.500000001");
    }
}
