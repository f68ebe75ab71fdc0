//! The printed rows: one figure each, with its target value if there is one.

use std::fmt;

/// A figure.
pub struct Row {
    pub group: &'static str,
    pub name: String,
    pub value: f64,
    /// The unit; `x` for a ratio.
    pub unit: &'static str,
    pub target: Option<Target>,
    /// The values that were divided.
    pub detail: String,
}

#[derive(Clone, Copy)]
pub enum Target {
    AtMost(f64),
    AtLeast(f64),
}

impl Target {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(n) => value <= n,
            Self::AtLeast(n) => value >= n,
        }
    }
}

impl Row {
    pub fn ratio(group: &'static str, name: impl Into<String>, value: f64, detail: String) -> Self {
        Self { group, name: name.into(), value, unit: "x", target: None, detail }
    }

    pub fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    pub fn target(self, target: Target) -> Self {
        Self { target: Some(target), ..self }
    }

    pub fn json(&self) -> serde_json::Value {
        let (target, met) = match self.target {
            Some(t) => (Some(t.to_string()), Some(t.is_met(self.value))),
            None => (None, None),
        };
        serde_json::json!({
            "group": self.group, "name": self.name, "value": self.value, "unit": self.unit,
            "target": target, "met": met, "detail": self.detail,
        })
    }
}

/// Returns the heading of the rows.
pub fn heading() -> String {
    format!("  {:38} {:>8} {:3} {:8} {:6} {}", "", "value", "", "target", "", "measured")
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(n) => write!(f, "<= {n}"),
            Self::AtLeast(n) => write!(f, ">= {n}"),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (target, verdict) = match self.target {
            Some(t) => (t.to_string(), if t.is_met(self.value) { "ok" } else { "below" }),
            None => (String::new(), ""),
        };
        write!(
            f,
            "  {:38} {:>8.2} {:3} {:8} {:6} {}",
            self.name, self.value, self.unit, target, verdict, self.detail
        )
    }
}

pub fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(f64::NAN)
}

pub fn geometric_mean(of: &[f64]) -> f64 {
    (of.iter().map(|r| r.ln()).sum::<f64>() / of.len() as f64).exp()
}

/// Times several variants of the same work alternately. Returns the median time of each in seconds, and the
/// median of its ratio to the first.
pub fn in_turn<E>(rounds: usize, ways: &mut [Way<'_, E>]) -> Result<(Vec<f64>, Vec<f64>), E> {
    let times = laps(rounds, ways)?;
    let ratios = times.iter().map(|of| paired(of, &times[0])).collect();
    Ok((times.into_iter().map(median).collect(), ratios))
}

/// Returns the seconds of each variant by round. A round before them warms up.
pub fn laps<E>(rounds: usize, ways: &mut [Way<'_, E>]) -> Result<Vec<Vec<f64>>, E> {
    let mut times = vec![Vec::new(); ways.len()];
    for round in 0..=rounds {
        for (way, times) in ways.iter_mut().zip(&mut times) {
            let start = std::time::Instant::now();
            way()?;
            if round > 0 {
                times.push(start.elapsed().as_secs_f64());
            }
        }
    }
    Ok(times)
}

/// Returns the median of the ratios within each round.
pub fn paired(of: &[f64], to: &[f64]) -> f64 {
    median(of.iter().zip(to).map(|(a, b)| a / b).collect())
}

pub type Way<'a, E> = Box<dyn FnMut() -> Result<(), E> + 'a>;
