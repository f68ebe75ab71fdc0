//! What the papers state, and how a measurement compares with it.

/// A figure or table of a paper.
pub struct Item {
    /// The paper and the number, such as `FLAME Fig. 5`.
    pub id: &'static str,
    pub title: &'static str,
    pub from: From,
}

/// The origin of our figure.
pub enum From {
    /// The experiment of this name ([`super::ALL`]).
    Experiment(&'static str),
    /// The reason why there is no figure.
    Nothing(&'static str),
}

use From::{Experiment, Nothing};

const fn item(id: &'static str, title: &'static str, from: From) -> Item {
    Item { id, title, from }
}

/// The papers, by the first word of an item's id.
pub const PAPERS: [(&str, &str); 4] = [
    ("Bunga", "Bunga, Wolf: A Characterization of High-Performance Network Monitoring Systems and Workloads"),
    (
        "FLAME",
        "Anagnostakis, Greenwald, Ioannidis, Miltchev: Open Packet Monitoring on FLAME: Safety, Performance \
         and Applications (two versions)",
    ),
    (
        "SANE",
        "Alexander, Menage, Keromytis, Arbaugh, Anagnostakis, Smith: The Price of Safety in an Active \
         Network (ALIEN, SANE, RCANE)",
    ),
    ("Patel", "Patel: Hybrid Resource Control for Fast-Path Active Extensions (RBClick, CAT)"),
];

/// All figures and tables of the papers that have numbers, and the sections that state some.
pub const ITEMS: [Item; 37] = [
    item("Bunga Table I", "instructions and memory accesses for a packet", Experiment("instructions")),
    item("Bunga Fig. 1", "their distributions over packets", Experiment("instructions")),
    item("Bunga Fig. 3", "throughput and loss by offered load", Experiment("load")),
    item("Bunga Fig. 4", "division of the processor", Experiment("load")),
    item("Bunga Fig. 5", "throughput by the number of processors", Experiment("load")),
    item("Bunga Section V", "faster links, and sampling as the remedy", Experiment("links")),
    item("FLAME Fig. 3", "one-way delay between two networks", Experiment("sites")),
    item("FLAME Fig. 4", "round trips to the same targets from two networks", Experiment("sites")),
    item("FLAME Fig. 5", "work available for a packet without loss", Experiment("work")),
    item("FLAME Section 3.5", "the number of modules that a fit predicts", Experiment("work")),
    item("FLAME Fig. 6", "cost of modules, and the part of protection", Experiment("protection")),
    item("SANE Table 1", "time to hash 4 MB", Experiment("hashing")),
    item("SANE Fig. 5", "time to hash by size", Experiment("hashing")),
    item("SANE Fig. 6", "bandwidth of active packets by size", Experiment("active")),
    item("SANE Fig. 7", "1,000 active pings", Experiment("active")),
    item("SANE Fig. 8", "what a ping's time goes to", Experiment("active")),
    item("SANE Fig. 9", "the same without kernel, wire and authentication", Experiment("active")),
    item("SANE Section V", "key exchange", Experiment("active")),
    item("SANE Fig. 11", "shares of the processor", Experiment("shares")),
    item("SANE Fig. 12", "transmission rates of three sessions", Experiment("sending")),
    item("SANE Fig. 13", "reception by period and buffering", Experiment("buffering")),
    item("SANE Fig. 15", "memory and hits of a repair cache", Experiment("repairs")),
    item("SANE Fig. 16", "sessions that do not disturb each other's memory", Experiment("heaps")),
    item("Patel Table 2.1", "forwarding with and without checks at a boundary", Experiment("forwarding")),
    item("Patel Table 3.1", "latencies of memory", Experiment("latency")),
    item("Patel Fig. 3.2", "accesses by the size of a working set", Experiment("latency")),
    item("Patel Table 5.1", "the memory latencies of its analysis", Experiment("latency")),
    item(
        "Patel Table 5.2",
        "the parameters of its analysis",
        Nothing("our analysis has no inflation factor and no queue size"),
    ),
    item("Patel Table 5.3", "estimates of elements", Experiment("estimates")),
    item("Patel Table 5.4", "estimates of three applications", Experiment("estimates")),
    item("Patel Table 5.5", "estimates of configurations", Experiment("estimates")),
    item("Patel Fig. 5.3", "forwarding by offered rate", Experiment("forwarding")),
    item("Patel Fig. 5.4", "the cost of an untrusted element", Experiment("null")),
    item("Patel Fig. 5.5", "Triple DES by payload", Experiment("payload")),
    item("Patel Table 5.6", "ActiveDoom", Experiment("applications")),
    item("Patel Table 5.7", "ECN", Experiment("applications")),
    item("Patel Table A.1", "classes of cost of elements", Experiment("classes")),
];

/// How our figure compares with the paper's.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Reproduced,
    Better,
    Worse,
    Differs(String),
    Missing(String),
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Reproduced => f.write_str("reproduced"),
            Self::Better => f.write_str("better"),
            Self::Worse => f.write_str("worse"),
            Self::Differs(cause) => write!(f, "differs because {cause}"),
            Self::Missing(cause) => write!(f, "cannot be had here: {cause}"),
        }
    }
}

/// A figure of ours beside the paper's.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The id of its [`Item`].
    pub item: &'static str,
    pub what: String,
    pub theirs: String,
    pub ours: String,
    pub verdict: Verdict,
}

/// The factor within which two figures are the same.
const SAME: f64 = 1.25;

/// Returns a number with three significant digits.
pub fn short(value: f64) -> String {
    if value != 0.0 && (value.abs() >= 1000.0 || value.fract() == 0.0) {
        return format!("{value:.0}");
    }
    let digits = 2 - value.abs().max(1e-9).log10().floor() as i32;
    format!("{value:.*}", digits.clamp(0, 6) as usize)
}

impl Finding {
    /// Returns the finding for a figure of which less is better.
    pub fn less(item: &'static str, what: &str, unit: &str, theirs: f64, ours: f64) -> Self {
        Self::figure(item, what, unit, (theirs, ours), theirs / ours)
    }

    /// Returns the finding for a figure of which more is better.
    pub fn more(item: &'static str, what: &str, unit: &str, theirs: f64, ours: f64) -> Self {
        Self::figure(item, what, unit, (theirs, ours), ours / theirs)
    }

    fn figure(item: &'static str, what: &str, unit: &str, of: (f64, f64), better: f64) -> Self {
        let verdict = match better {
            // Neither a time of 0 nor a rate over one of 0 was measured.
            b if !b.is_finite() || b < 0.0 => Verdict::Missing("nothing was measured".to_owned()),
            b if b > SAME => Verdict::Better,
            b if b < 1.0 / SAME => Verdict::Worse,
            _ => Verdict::Reproduced,
        };
        let text = |value: f64| format!("{} {unit}", short(value)).trim_end().to_owned();
        Self { item, what: what.to_owned(), theirs: text(of.0), ours: text(of.1), verdict }
    }

    /// Returns the finding for an estimate over what was measured, of which less is better. Below 1 it is
    /// worse in any case: such an estimate promises what does not hold.
    pub fn estimate(item: &'static str, what: &str, theirs: f64, ours: f64) -> Self {
        let finding = Self::less(item, what, "", theirs, ours);
        let verdict = if ours > 0.0 && ours < 1.0 { Verdict::Worse } else { finding.verdict };
        Self { verdict, ..finding }
    }

    /// Returns the finding for figures that grow: by more than 5 % from the first to the last, and nowhere
    /// falling by as much.
    pub fn grows(item: &'static str, what: &str, theirs: &str, unit: &str, ours: &[f64]) -> Self {
        let text = ours.iter().map(|value| short(*value)).collect::<Vec<_>>().join(", ");
        match ours {
            [first, .., last] if ours.iter().all(|value| value.is_finite()) => {
                let falls = ours.windows(2).any(|pair| pair[1] < 0.95 * pair[0]);
                Self::shape(item, what, theirs, format!("{text} {unit}"), !falls && *last > 1.05 * first)
            }
            _ => Self::missing(item, what, theirs, format!("of two figures and more, only {text:?}")),
        }
    }

    /// Returns the finding for what both show or do not, such as an order or a direction.
    pub fn shape(item: &'static str, what: &str, theirs: &str, ours: String, holds: bool) -> Self {
        let verdict = match holds {
            true => Verdict::Reproduced,
            false => Verdict::Differs("ours has another shape in this run".to_owned()),
        };
        Self { item, what: what.to_owned(), theirs: theirs.to_owned(), ours, verdict }
    }

    /// Returns the finding for figures of different things.
    pub fn other(item: &'static str, what: &str, theirs: &str, ours: String, cause: &str) -> Self {
        let verdict = Verdict::Differs(cause.to_owned());
        Self { item, what: what.to_owned(), theirs: theirs.to_owned(), ours, verdict }
    }

    /// Returns the finding for a precondition of an experiment that did not hold.
    pub fn missing(item: &'static str, what: &str, theirs: &str, cause: String) -> Self {
        let (what, theirs) = (what.to_owned(), theirs.to_owned());
        Self { item, what, theirs, ours: String::new(), verdict: Verdict::Missing(cause) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_from_the_comparison() {
        let verdict = |finding: Finding| finding.verdict;
        assert_eq!(verdict(Finding::less("Bunga Table I", "", "", 100.0, 50.0)), Verdict::Better);
        assert_eq!(verdict(Finding::less("Bunga Table I", "", "", 100.0, 110.0)), Verdict::Reproduced);
        assert_eq!(verdict(Finding::less("Bunga Table I", "", "", 100.0, 200.0)), Verdict::Worse);
        assert_eq!(verdict(Finding::more("Bunga Table I", "", "", 100.0, 50.0)), Verdict::Worse);
        assert_eq!(verdict(Finding::more("Bunga Table I", "", "", 100.0, 300.0)), Verdict::Better);
        for nothing in [f64::NAN, f64::INFINITY, -1.0] {
            assert!(matches!(verdict(Finding::more("", "", "", 100.0, nothing)), Verdict::Missing(_)));
        }
        assert!(matches!(verdict(Finding::less("", "", "", 100.0, 0.0)), Verdict::Missing(_)));
        assert_eq!(verdict(Finding::more("", "", "", 100.0, 0.0)), Verdict::Worse);
        assert_eq!(verdict(Finding::estimate("", "", 20.0, 0.9)), Verdict::Worse);
        assert_eq!(verdict(Finding::estimate("", "", 20.0, 1.1)), Verdict::Better);
        let grows = |ours: &[f64]| verdict(Finding::grows("", "", "", "", ours));
        assert_eq!(grows(&[10.0, 9.6, 12.0]), Verdict::Reproduced);
        for not in [&[10.0, 10.0][..], &[10.0, 8.0, 12.0], &[0.0, 0.0]] {
            assert!(matches!(grows(not), Verdict::Differs(_)), "{not:?}");
        }
        for few in [&[][..], &[1.0], &[1.0, f64::NAN, 2.0]] {
            assert!(matches!(grows(few), Verdict::Missing(_)), "{few:?}");
        }
        assert!(matches!(verdict(Finding::shape("", "", "", String::new(), false)), Verdict::Differs(_)));
    }

    #[test]
    fn each_item_names_a_paper_and_an_experiment_that_exists() {
        let mut ids: Vec<_> = ITEMS.iter().map(|item| item.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), ITEMS.len());
        for item in &ITEMS {
            assert!(PAPERS.iter().any(|(first, _)| item.id.starts_with(first)), "{}", item.id);
            if let Experiment(name) = item.from {
                assert!(super::super::ALL.iter().any(|(other, _)| *other == name), "{}", item.id);
            }
        }
    }
}
