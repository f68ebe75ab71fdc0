//! Ranges and ticks of axes.

use crate::picture::{Axis, Scale};
use flame_record::human;

/// The range of an axis, and its ticks with their texts.
#[derive(Clone, Debug, PartialEq)]
pub struct Ticks {
    pub low: f64,
    pub high: f64,
    pub at: Vec<(f64, String)>,
    /// The axis' label, with information that the ticks omit.
    pub label: String,
}

impl Ticks {
    /// Returns the ticks for values from `extent`, about `wanted` of them.
    pub fn of(axis: &Axis, extent: Option<(f64, f64)>, wanted: usize) -> Self {
        // Beyond this range, the sums below are not finite.
        let (low, high) =
            extent.map_or((0.0, 1.0), |(a, b)| (a.clamp(-1e300, 1e300), b.clamp(-1e300, 1e300)));
        let wanted = wanted.max(2);
        let label = axis.label.clone();
        match &axis.scale {
            Scale::Rows(words) => {
                let at = words.iter().zip(0u32..).map(|(w, i)| (f64::from(i) + 0.5, w.clone())).collect();
                // Rows are counted from the top.
                Self { low: words.len().max(1) as f64, high: 0.0, at, label }
            }
            Scale::LogTime => log_time(low, high, label),
            Scale::LogBytes => log_bytes(low, high, wanted, label),
            Scale::Time => time(low, high, wanted, label),
            Scale::Whole => {
                let step = nice((high - low) / wanted as f64).max(1.0).ceil();
                let (low, high) = (low - 0.5, high + 0.5);
                Self { low, high, at: linear(low, high, step), label }
            }
            Scale::Linear | Scale::FromZero => {
                let low = if axis.scale == Scale::FromZero { low.min(0.0) } else { low };
                // A single value needs room too, and so do values too close for any step.
                let wide = high - low > low.abs().max(1e-9) * 1e-9;
                let high = if wide { high } else { low + low.abs().max(1.0) };
                let step = nice((high - low) / wanted as f64);
                let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
                Self { low, high, at: linear(low, high, step), label }
            }
        }
    }

    /// Returns the position of `value` on the axis, from 0 to 1.
    pub fn place(&self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

/// Returns the least number of at least `step` that is 1, 2 or 5 times a power of ten.
fn nice(step: f64) -> f64 {
    if step <= 0.0 || !step.is_finite() {
        return 1.0;
    }
    let power = 10f64.powi(step.log10().floor() as i32);
    [1.0, 2.0, 5.0].into_iter().map(|m| m * power).find(|s| *s >= step * 0.999_999).unwrap_or(10.0 * power)
}

fn linear(low: f64, high: f64, step: f64) -> Vec<(f64, String)> {
    let digits = (-step.log10().floor()).clamp(0.0, 12.0) as usize;
    let first = (low / step).ceil();
    let count = ((high / step + 1e-6).floor() - first).clamp(0.0, 100.0) as u32;
    let tick = |i: u32| {
        let value = (first + f64::from(i)) * step;
        (value, number(value, digits))
    };
    (0..=count).map(tick).collect()
}

/// Formats a number with separated thousands, and a typographic minus sign.
pub fn number(value: f64, digits: usize) -> String {
    let text = format!("{:.digits$}", value.abs());
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), ""), |(w, f)| (w, f));
    let mut grouped = String::new();
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 && whole.len() > 4 {
            grouped.push(',');
        }
        grouped.push(c);
    }
    let zero = text.bytes().all(|b| b == b'0' || b == b'.');
    let sign = if value < 0.0 && !zero { "\u{2212}" } else { "" };
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{grouped}{point}{fraction}")
}

fn log_time(low: f64, high: f64, label: String) -> Ticks {
    let (first, last) = (low.floor() as i32, high.ceil() as i32);
    let last = last.max(first + 1).min(first + 20);
    let name = |decade: i32| {
        let (unit, power) = match decade {
            ..=2 => ("ns", 0),
            3..=5 => ("µs", 3),
            6..=8 => ("ms", 6),
            _ => ("s", 9),
        };
        format!("{} {unit}", number(10f64.powi(decade - power), 0))
    };
    let at = (first..=last).map(|d| (f64::from(d), name(d))).collect();
    // The range comes from the data, not from decades, but at least one decade is labelled.
    let pad = (high - low).max(0.1) * 0.02;
    let mut ticks = Ticks { low: low - pad, high: high + pad, at, label };
    ticks.at.retain(|(v, _)| (ticks.low..=ticks.high).contains(v));
    if ticks.at.len() < 2 {
        (ticks.low, ticks.high) = (f64::from(first), f64::from(last));
        ticks.at = (first..=last).map(|d| (f64::from(d), name(d))).collect();
    }
    ticks
}

fn log_bytes(low: f64, high: f64, wanted: usize, label: String) -> Ticks {
    let (low, high) = (low.clamp(0.0, 64.0), high.clamp(0.0, 64.0));
    // The step is a power of four or sixteen, depending on the room.
    let step =
        if high - low <= wanted as f64 { 1 } else { 2 * ((high - low) / 2.0 / wanted as f64).ceil() as u32 };
    let first = (low.ceil() as u32).div_ceil(step) * step;
    let name = |power: u32| {
        let unit = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][power as usize / 10 % 7];
        format!("{} {unit}", 1u32 << (power % 10))
    };
    let at = (first..=high as u32).step_by(step as usize).map(|p| (f64::from(p), name(p))).collect();
    let pad = (high - low).max(0.1) * 0.02;
    Ticks { low: low - pad, high: high + pad, at, label }
}

/// Steps of an axis of time, in seconds.
const CLOCK: [f64; 24] = [
    1e-6, 1e-5, 1e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
    300.0, 600.0, 1800.0, 3600.0, 10_800.0, 21_600.0,
];

fn time(low: f64, high: f64, wanted: usize, label: String) -> Ticks {
    let high = if high > low { high } else { low + 1.0 };
    let least = (high - low) / wanted as f64;
    let step =
        CLOCK.into_iter().find(|s| *s >= least).unwrap_or_else(|| (least / 86_400.0).ceil() * 86_400.0);
    let days = step >= 86_400.0;
    let digits = if step < 1.0 { (-step.log10() - 1e-9).ceil() as usize } else { 0 };
    let first = (low / step).ceil();
    let count = ((high / step).floor() - first).clamp(0.0, 100.0) as u32;
    let tick = |i: u32| {
        let value = (first + f64::from(i)) * step;
        let text = human::time((value.max(0.0) * 1e9).round() as u64 / 1000 * 1000);
        let (day, clock) = text.split_once(' ').unwrap_or((&text, ""));
        let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
        let shown = match (days, digits) {
            (true, _) => day.to_owned(),
            (_, 0) => clock.to_owned(),
            (_, n) => format!("{clock}.{}", &format!("{fraction:0<9}")[..n.min(9)]),
        };
        (value, shown)
    };
    let date = human::time((low.max(0.0) * 1e9) as u64);
    let date = date.split(' ').next().unwrap_or("");
    let label = if days { label } else { format!("{label} ({date} UTC)") };
    Ticks { low, high, at: (0..=count).map(tick).collect(), label }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ticks(scale: Scale, low: f64, high: f64) -> Vec<String> {
        let axis = Axis { label: "t".into(), scale };
        Ticks::of(&axis, Some((low, high)), 5).at.into_iter().map(|(_, t)| t).collect()
    }

    #[test]
    fn texts() {
        assert_eq!(ticks(Scale::FromZero, 3.0, 12_345.0), ["0", "5000", "10,000", "15,000"]);
        assert_eq!(ticks(Scale::Linear, -0.2, 0.1), ["\u{2212}0.2", "\u{2212}0.1", "0.0", "0.1"]);
        assert_eq!(ticks(Scale::Whole, 1.0, 4.0), ["1", "2", "3", "4"]);
        assert_eq!(ticks(Scale::LogTime, 4.9, 8.1), ["100 µs", "1 ms", "10 ms", "100 ms"]);
        assert_eq!(ticks(Scale::LogTime, 6.2, 6.3), ["1 ms", "10 ms"]);
        assert_eq!(ticks(Scale::LogBytes, 12.0, 28.0), ["4 KiB", "64 KiB", "1 MiB", "16 MiB", "256 MiB"]);
        assert_eq!(ticks(Scale::LogBytes, 9.0, 10.5), ["512 bytes", "1 KiB"]);
        assert_eq!(ticks(Scale::Time, 1_700_000_000.0, 1_700_000_004.0)[..2], ["22:13:20", "22:13:21"]);
        assert_eq!(ticks(Scale::Time, 1_700_000_000.0, 1_700_000_000.4)[1], "22:13:20.1");
        assert_eq!(ticks(Scale::Time, 1_700_000_000.0, 1_700_400_000.0)[0], "2023-11-15");
    }

    proptest! {
        #[test]
        fn ticks_lie_inside_and_are_few(low in -1e12f64..1e12, width in 0f64..1e12, which in 0usize..6) {
            let scale =
                [Scale::Linear, Scale::FromZero, Scale::Whole, Scale::Time, Scale::LogTime, Scale::LogBytes][which].clone();
            let (low, width) = if which >= 4 { (low / 1e11, width / 1e11) } else { (low, width) };
            let low = if which == 3 { low.abs() } else { low };
            let ticks = Ticks::of(&Axis { label: String::new(), scale }, Some((low, low + width)), 6);
            prop_assert!(ticks.high > ticks.low);
            prop_assert!(ticks.at.len() <= 30);
            prop_assert!(ticks.place(low) >= 0.0 && ticks.place(low + width) <= 1.0);
        }
    }
}
