use crate::limit::PacketTimeLimit;
use flame_bounds::{Bound, Poly};
use flame_plan::{Expose, LEAST_DEADLINE_NS, MOST_DEADLINE_NS, ModuleClass};
use std::fmt;
use std::path::PathBuf;

/// How a module is held to what it may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// By its bounds, if they are verified and within the time limit; else metered.
    Auto,
    /// Work is counted and stopped at its budget, and can be interrupted, even where a bound is verified.
    Metered,
    /// No counters: for measuring what they cost. Such a module ends at a deadline, or never by itself.
    Unchecked,
}

/// The circumstances that a verdict depends on, besides the module's bounds.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    pub protection: Protection,
    pub time_limit: Option<PacketTimeLimit>,
    /// Work units that a packet may cost if it is metered. A bound above it is no better than a counter.
    pub packet_budget: u64,
    /// Bytes of the longest packets, unless the time limit has its own.
    pub snaplen: u64,
}

/// Bounds of a module's batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchBounds {
    /// Instructions.
    pub bound: Bound,
    /// Estimated picoseconds, without cold paths; unbounded where the machine was not calibrated.
    pub time: Bound,
}

/// A module's class, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub class: ModuleClass,
    /// Estimated nanoseconds for each packet of a full batch, if the machine was calibrated and there is a
    /// bound.
    pub estimate_ns: Option<f64>,
    /// Nanoseconds of processor time after which a batch has violated its bound.
    pub deadline_ns: u64,
    pub why: Why,
}

/// The reason of a verdict.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    /// [`Protection::Metered`].
    AsRequested,
    /// [`Protection::Unchecked`].
    Unchecked,
    /// The bound was violated in an earlier run, as this file records.
    Violated(PathBuf),
    /// The analysis was stopped at a limit.
    NotAnalysed(String),
    /// The batches have no bound.
    Unbounded,
    /// A packet may take more instructions than its budget; none if they cannot be counted.
    OverBudget { most: Option<u128>, budget: u64 },
    /// The estimate exceeds the time limit.
    TooSlow { estimate_ns: f64, limit: PacketTimeLimit },
    /// There is a time limit, but no estimate.
    NoEstimate { limit: PacketTimeLimit },
    /// The bound is within the budget.
    WithinBudget { most: u128, budget: u64 },
    /// So it is, and the estimate within the time limit.
    WithinTime { estimate_ns: f64, limit: PacketTimeLimit },
}

/// Returns the estimated nanoseconds for each packet of a full batch.
pub fn packet_ns(time: Bound, length: u64) -> Option<f64> {
    let batch = flame_abi::MAX_BATCH as u64;
    time.at(batch, length).map(|ps| ps as f64 / 1000.0 / batch as f64)
}

/// Returns the bytes of a packet that a module may see, at most: views cut there.
pub fn visible(expose: Expose, snaplen: u64) -> u64 {
    u64::from(expose.longest(u32::try_from(snaplen).unwrap_or(u32::MAX).max(1)))
}

impl Verdict {
    /// A verdict that needs no bounds.
    pub fn metered(why: Why) -> Self {
        Self { class: ModuleClass::Metered, estimate_ns: None, deadline_ns: MOST_DEADLINE_NS, why }
    }
}

impl Admission {
    /// Returns the verdict where it does not depend on the module.
    pub fn fixed(&self) -> Option<Verdict> {
        match self.protection {
            Protection::Auto => None,
            Protection::Metered => Some(Verdict::metered(Why::AsRequested)),
            Protection::Unchecked => {
                Some(Verdict { class: ModuleClass::Bounded, ..Verdict::metered(Why::Unchecked) })
            }
        }
    }

    /// Returns the bytes of a packet that bounds and estimates are for.
    pub fn visible(&self, expose: Expose) -> u64 {
        visible(expose, self.time_limit.map_or(self.snaplen, |limit| limit.snaplen))
    }
}

/// Decides on a module whose batches have these bounds, and which sees `expose` of each packet.
pub fn admit(batches: BatchBounds, expose: Expose, admission: &Admission) -> Verdict {
    if let Some(fixed) = admission.fixed() {
        return fixed;
    }
    let BatchBounds { bound, time } = batches;
    if !bound.is_bounded() {
        return Verdict::metered(Why::Unbounded);
    }
    let visible = admission.visible(expose);
    let budget = admission.packet_budget;
    // A batch of one packet has one packet's budget.
    let most = match bound.at(1, visible) {
        Some(most) if most <= u128::from(budget) => most,
        most => return Verdict::metered(Why::OverBudget { most, budget }),
    };
    let estimate_ns = packet_ns(time, visible);
    let why = match (admission.time_limit, estimate_ns) {
        (None, _) => Why::WithinBudget { most, budget },
        (Some(limit), None) => return Verdict::metered(Why::NoEstimate { limit }),
        (Some(limit), Some(estimate_ns)) if estimate_ns > limit.most_ns() => {
            let verdict = Verdict::metered(Why::TooSlow { estimate_ns, limit });
            return Verdict { estimate_ns: Some(estimate_ns), ..verdict };
        }
        (Some(limit), Some(estimate_ns)) => Why::WithinTime { estimate_ns, limit },
    };
    let deadline_ns = deadline_ns(bound, estimate_ns, visible);
    Verdict { class: ModuleClass::Bounded, estimate_ns, deadline_ns, why }
}

/// Returns a processor time that no full batch within `bound` takes, by far: four times the estimate, or,
/// without an estimate, as if each instruction waited for memory.
fn deadline_ns(bound: Bound, estimate_ns: Option<f64>, visible: u64) -> u64 {
    let batch = flame_abi::MAX_BATCH as u64;
    let most = match estimate_ns {
        Some(ns) => Some((ns * batch as f64 * 4.0) as u64),
        None => bound.at(batch, visible).and_then(|n| u64::try_from(n).ok()?.checked_mul(100)),
    };
    most.unwrap_or(MOST_DEADLINE_NS).clamp(LEAST_DEADLINE_NS, MOST_DEADLINE_NS)
}

impl BatchBounds {
    /// Bytes of [`BatchBounds::to_bytes`].
    const BYTES: usize = 4 * Poly::BYTES;

    /// Returns the form that is cached.
    pub fn to_bytes(self) -> Vec<u8> {
        let Self { bound, time } = self;
        [bound.call, bound.packet, time.call, time.packet].iter().flat_map(|p| p.to_bytes()).collect()
    }

    /// Reads [`BatchBounds::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let all: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let mut polys = all.chunks_exact(Poly::BYTES).filter_map(|b| b.try_into().ok()).map(Poly::from_bytes);
        let mut bound = || Some(Bound { call: polys.next()?, packet: polys.next()? });
        Some(Self { bound: bound()?, time: bound()? })
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let acceptable = |limit: &PacketTimeLimit| {
            let PacketTimeLimit { packet_ns, factor, .. } = limit;
            format!("{} are acceptable ({} × {factor:.1})", Time(limit.most_ns()), Time(*packet_ns))
        };
        match self {
            Self::AsRequested => f.write_str("as requested"),
            Self::Unchecked => f.write_str("unchecked, as requested"),
            Self::Violated(file) => write!(
                f,
                "its bound was violated in an earlier run, so it is not trusted (remove {} once the analysis is mended)",
                file.display()
            ),
            Self::NotAnalysed(reason) => f.write_str(reason),
            Self::Unbounded => {
                f.write_str("its batches have no bound (`flame check --explain` names the causes)")
            }
            Self::OverBudget { most: Some(most), budget } => {
                write!(f, "a packet may take {most} instructions, more than its budget of {budget}")
            }
            Self::OverBudget { most: None, budget } => {
                write!(f, "a packet may take more than its budget of {budget} instructions")
            }
            Self::NoEstimate { limit } => write!(
                f,
                "the time of a packet is not known here; {}: run `flame calibrate`",
                acceptable(limit)
            ),
            Self::WithinBudget { most, budget } => {
                write!(f, "a packet takes at most {most} instructions, of {budget} that it may")
            }
            Self::TooSlow { estimate_ns, limit } | Self::WithinTime { estimate_ns, limit } => {
                write!(f, "a packet may take {}; {}", Time(*estimate_ns), acceptable(limit))
            }
        }
    }
}

/// Nanoseconds in the unit that people read.
struct Time(f64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns if ns < 9.95 => write!(f, "{ns:.1} ns"),
            ns if ns < 9_950.0 => write!(f, "{ns:.0} ns"),
            ns if ns < 9_950_000.0 => write!(f, "{:.0} µs", ns / 1e3),
            ns => write!(f, "{:.0} ms", ns / 1e6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batches(call_ps: u64, packet_ps: u64) -> BatchBounds {
        let bound = Bound { call: Poly::constant(call_ps), packet: Poly::constant(packet_ps) };
        BatchBounds { bound, time: bound }
    }

    fn admission(time_limit: Option<PacketTimeLimit>, packet_budget: u64) -> Admission {
        Admission { protection: Protection::Auto, time_limit, packet_budget, snaplen: 262_144 }
    }

    #[test]
    fn a_link_and_a_buffer_set_what_is_acceptable() {
        // 14.88 million packets a second.
        let limit = PacketTimeLimit::of_link(10e9, 0.5, 1024, 1514);
        assert!((limit.packet_ns - 33.6).abs() < 0.01 && limit.factor == 5.0, "{limit:?}");
        let admission = admission(Some(limit), u64::MAX);
        let class = |ps| admit(batches(0, ps), Expose::All, &admission).class;
        assert_eq!((class(167_000), class(169_000)), (ModuleClass::Bounded, ModuleClass::Metered));
        let unknown = BatchBounds { time: Bound::UNBOUNDED, ..batches(0, 1) };
        assert_eq!(admit(unknown, Expose::All, &admission).why, Why::NoEstimate { limit });
    }

    #[test]
    fn without_a_time_limit_a_bound_is_enough() {
        let admission = admission(None, 1000);
        let class = |call, packet| admit(batches(call, packet), Expose::All, &admission).class;
        assert_eq!(class(1, 999), ModuleClass::Bounded);
        assert_eq!(class(1, 1000), ModuleClass::Metered, "a counter is the better bound");
        let none = BatchBounds { bound: Bound::UNBOUNDED, time: Bound::UNBOUNDED };
        assert_eq!(admit(none, Expose::All, &admission).why, Why::Unbounded);
    }

    #[test]
    fn protection_overrides_bounds() {
        for (protection, class) in
            [(Protection::Metered, ModuleClass::Metered), (Protection::Unchecked, ModuleClass::Bounded)]
        {
            let admission = Admission { protection, ..admission(None, 1000) };
            assert_eq!(admit(batches(1, 1), Expose::All, &admission).class, class);
        }
    }

    #[test]
    fn bounds_come_back_from_the_cache() {
        let found = BatchBounds { time: Bound::UNBOUNDED, ..batches(5, 7) };
        assert_eq!(BatchBounds::from_bytes(&found.to_bytes()), Some(found));
        let bytes = found.to_bytes();
        assert!((0..bytes.len()).all(|n| BatchBounds::from_bytes(&bytes[..n]).is_none()));
    }
}
