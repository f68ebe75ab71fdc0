//! Numbers, times and durations for people, and text that is safe on a terminal.

use arrow_array::temporal_conversions::timestamp_ns_to_datetime;
use comfy_table::{LineStyle, TableStyle};

/// The style of tables: one line, below the header.
pub(crate) const GRID: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Formats an integer with grouped digits: `1234567` → `1,234,567`.
pub fn grouped(n: u64) -> String {
    group_digits(&n.to_string())
}

/// Formats a signed integer like [`grouped`].
pub fn grouped_signed(n: i64) -> String {
    let sign = if n < 0 { "-" } else { "" };
    format!("{sign}{}", grouped(n.unsigned_abs()))
}

fn group_digits(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number with at most three digits after the point; very large and very small ones with an
/// exponent.
pub fn float(x: f64) -> String {
    let size = x.abs();
    if !x.is_finite() {
        return x.to_string();
    }
    if size != 0.0 && !(0.001..1e15).contains(&size) {
        return format!("{x:.3e}");
    }
    let text = format!("{size:.3}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    let sign = if x < 0.0 { "-" } else { "" };
    format!("{sign}{}{point}{fraction}", group_digits(whole))
}

/// Formats nanoseconds since 1970 as `2026-01-31 23:59:59.123456`, in UTC, cut to microseconds. A time after
/// 2262, which no capture has, stays a number.
pub fn time(ns: u64) -> String {
    match i64::try_from(ns).ok().and_then(timestamp_ns_to_datetime) {
        Some(t) => t.format("%Y-%m-%d %H:%M:%S%.6f").to_string(),
        None => format!("{} ns", grouped(ns)),
    }
}

/// Formats a duration as `999 ns`, `1.5 µs`, `12.345 ms`, `59.9 s`, `2 min 3.5 s` or `1 h 2 min 3.5 s`.
pub fn duration(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let n = ns.unsigned_abs();
    let scaled = |unit: u64| float((n as f64 / unit as f64 * 1e3).round() / 1e3);
    let text = match n {
        0 => "0".to_owned(),
        1..1_000 => format!("{n} ns"),
        1_000..1_000_000 => format!("{} µs", scaled(1_000)),
        1_000_000..1_000_000_000 => format!("{} ms", scaled(1_000_000)),
        1_000_000_000..60_000_000_000 => format!("{} s", scaled(1_000_000_000)),
        _ => {
            let (minutes, rest) = (n / 60_000_000_000, n % 60_000_000_000);
            // Cut, not rounded, so that seconds are never 60.
            let seconds = float((rest / 1_000_000) as f64 / 1e3);
            match minutes / 60 {
                0 => format!("{minutes} min {seconds} s"),
                hours => format!("{} h {} min {seconds} s", grouped(hours), minutes % 60),
            }
        }
    };
    format!("{sign}{text}")
}

/// Returns a module's text without characters that could control a terminal or reorder a line: control
/// characters and the marks of bidirectional text appear as `\u{1b}`.
pub fn plain(text: &str) -> String {
    crate::escape::line(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!([grouped(0), grouped(999), grouped(1000)], ["0", "999", "1,000"]);
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(
            [grouped_signed(-1234), grouped_signed(i64::MIN)],
            ["-1,234", "-9,223,372,036,854,775,808"]
        );
        let floats = [0.0, 1234.5, -0.25, 1e-9, 3e20, f64::NAN].map(float);
        assert_eq!(floats, ["0", "1,234.5", "-0.25", "1.000e-9", "3.000e20", "NaN"]);
    }

    #[test]
    fn times() {
        assert_eq!(time(0), "1970-01-01 00:00:00.000000");
        assert_eq!(time(951_782_400_123_456_789), "2000-02-29 00:00:00.123456");
        assert_eq!(time(u64::MAX), "18,446,744,073,709,551,615 ns");
        let cases = [
            (0, "0"),
            (999, "999 ns"),
            (-1_500, "-1.5 µs"),
            (12_345_678, "12.346 ms"),
            (999_999_999, "1,000 ms"),
            (59_900_000_000, "59.9 s"),
            (123_500_000_000, "2 min 3.5 s"),
            (119_999_999_999, "1 min 59.999 s"),
            (3_723_500_000_000, "1 h 2 min 3.5 s"),
            (i64::MIN, "-2,562,047 h 47 min 16.854 s"),
        ];
        for (ns, expected) in cases {
            assert_eq!(duration(ns), expected);
        }
    }

    #[test]
    fn text_cannot_steer_a_terminal() {
        assert_eq!(plain("größe 5"), "größe 5");
        assert_eq!(plain("\x1b[2Jx\n\u{202e}y"), "\\u{1b}[2Jx\\u{a}\\u{202e}y");
    }
}
