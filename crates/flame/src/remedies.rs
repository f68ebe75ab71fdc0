//! Causes of missing and of too large bounds in the author's terms: the source line, and the change that
//! gives a bound.

use crate::console::say;
use flame_admit::{Verdict, Why};
use flame_bounds::{Cause, Dominant, Entry, Kind, Remedy};
use flame_compile::Report;
use rustc_demangle::demangle;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// One cause, with the calls that it concerns.
pub struct Advice {
    /// The calls, or the part of a bound, that it is about, and the reason.
    about: String,
    place: String,
    rust: String,
    c: String,
}

/// Returns the offsets in the file that advice is about.
pub fn offsets(report: &Report) -> Vec<usize> {
    let causes = report.entries.iter().filter_map(|e| e.why.as_ref()).map(|why| why.offset);
    causes.chain(report.dominant.iter().map(|d| d.offset)).collect()
}

/// Returns advice on each cause, in the order of the calls, and on the dominant part of a bound that is too
/// large. `limit` is a limit of a batch of one packet besides the verdict's.
pub fn advice(
    report: &Report,
    verdict: &Verdict,
    lines: &BTreeMap<usize, String>,
    visible: u64,
    limit: Option<u64>,
) -> Vec<Advice> {
    let mut causes: Vec<(&Cause, Vec<&str>)> = Vec::new();
    for Entry { name, why, .. } in &report.entries {
        let Some(why) = why else { continue };
        match causes.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(name),
            None => causes.push((why, vec![name])),
        }
    }
    let of_cause = |(why, names): (&Cause, Vec<&str>)| {
        let Remedy { rust, c } = why.reason.remedy();
        Advice {
            about: format!("{} unbounded: {}", names.join(", "), readable(&why.reason.to_string())),
            place: place(&why.function, why.offset, lines),
            rust: rust.to_owned(),
            c: c.to_owned(),
        }
    };
    let mut all: Vec<Advice> = causes.into_iter().map(of_cause).collect();
    let budget = match verdict.why {
        Why::OverBudget { budget, .. } => Some(budget),
        _ => limit,
    };
    let batch = report.batch();
    if let (Some(budget), Some(batch), Some(dominant)) = (budget, batch, &report.dominant)
        && batch.bound.at(1, visible).is_some_and(|most| most > u128::from(budget))
    {
        all.push(of_dominant(dominant, batch, budget, visible, lines));
    }
    all
}

fn of_dominant(
    dominant: &Dominant,
    batch: &Entry,
    budget: u64,
    visible: u64,
    lines: &BTreeMap<usize, String>,
) -> Advice {
    let (share, trips) = (100.0 * dominant.share(batch.bound, visible), dominant.trips);
    let most = batch.bound.at(1, visible).unwrap_or_default();
    let times = most as f64 / budget.max(1) as f64;
    let part = match dominant.kind {
        Kind::Loop => format!("a loop with a trip count of {trips}"),
        Kind::Copy => format!("a copy of up to {trips} bytes"),
        Kind::Fill => format!("a fill of up to {trips} bytes"),
    };
    let fits = dominant.fits(batch.bound, visible, budget);
    let (rust, c) = match (fits, dominant.kind) {
        (Some(n), Kind::Loop) => (
            format!("at most {n} iterations fit: `for i in 0..n.min({n})`, or `.take({n})` on the iterator"),
            format!("at most {n} iterations fit: `if (n > {n}) n = {n};` before the loop"),
        ),
        (Some(n), _) => (
            format!(
                "at most {n} bytes fit: `&bytes[..bytes.len().min({n})]`; or reserve before a `Vec` grows"
            ),
            format!("at most {n} bytes fit: `if (n > {n}) n = {n};` before it"),
        ),
        (None, _) => {
            let rest = dominant.rest.at(1, visible).unwrap_or_default();
            let text = format!("no limit of it fits: without it a packet may take {rest}");
            (text.clone(), text)
        }
    };
    Advice {
        about: format!("bound {times:.1} times the limit of {budget}: {share:.0} % of it is {part}"),
        place: place(&dominant.function, dominant.offset, lines),
        rust,
        c,
    }
}

impl Advice {
    /// Prints it below the table of calls.
    pub fn say(&self) {
        say!("{}", self.about);
        say!("  in           {}", self.place);
        match (self.is_in(&[".rs:"]), self.is_in(&[".c:", ".h:"])) {
            (true, _) => say!("  change       {}", self.rust),
            (_, true) => say!("  change       {}", self.c),
            _ => {
                say!("  in Rust      {}", self.rust);
                say!("  in C         {}", self.c);
            }
        }
    }

    pub fn json(&self) -> Value {
        json!({"advice": self.about, "place": self.place, "rust": self.rust, "c": self.c})
    }

    /// Returns whether the place is a line of a file with one of these extensions.
    pub fn is_in(&self, extensions: &[&str]) -> bool {
        extensions.iter().any(|extension| self.place.contains(extension))
    }
}

fn place(function: &str, offset: usize, lines: &BTreeMap<usize, String>) -> String {
    let name = format!("{:#}", demangle(function));
    match (lines.get(&offset), offset) {
        (Some(line), _) => format!("{line}, {name} (byte {offset})"),
        (None, 0) => name,
        (None, _) => format!("{name} (byte {offset})"),
    }
}

/// Returns a text with names in the form of their source.
pub fn readable(text: &str) -> String {
    text.split(' ').map(|word| format!("{:#}", demangle(word))).collect::<Vec<_>>().join(" ")
}
