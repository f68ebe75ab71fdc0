use crate::limit::PacketTimeLimit;
use flame_abi::layout::names;
use flame_bounds::{Bound, Poly};
use flame_plan::{Calls, CutOff, Expose, ModuleClass, Rests, longest_call};
use std::fmt;
use std::path::PathBuf;

/// The method that limits the cost of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// The module's bounds, if they are verified and within the time limit; otherwise counters.
    Auto,
    /// Counters, which stop work at its budget and allow interruptions, even where a bound is verified.
    Metered,
    /// No counters, to measure their cost. Such a module ends at a deadline, or never by itself.
    Unchecked,
}

/// The circumstances that a verdict depends on, besides the module's bounds.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    pub protection: Protection,
    pub time_limit: Option<PacketTimeLimit>,
    /// The work units that a packet may cost if it is metered. A bound above it is no better than a counter.
    pub packet_budget: u64,
    /// The work units of a call other than a batch, if the module requests more or less than is usual.
    pub call_budget: Option<u64>,
    /// The length in bytes of the longest packets, unless the time limit has its own.
    pub snaplen: u64,
}

/// The bounds of a module's batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchBounds {
    /// The bound in instructions.
    pub bound: Bound,
    /// The estimate in picoseconds, without cold paths; unbounded where the machine was not calibrated.
    pub time: Bound,
    /// The bound in instructions of a call for the rest of a batch's output; 0 if there is no such call.
    pub rest: Bound,
    /// The estimate of such a call in picoseconds; 0 without one.
    pub rest_time: Bound,
    /// The other calls that end within a slice by their bounds.
    pub short: Calls,
}

/// A module's class, and the reason for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub class: ModuleClass,
    /// The number of packets that a batch may have. All of a bounded module's packets together, of which each
    /// may cost as much as the longest allows, cost no more than nothing may interrupt.
    pub batch: u32,
    /// The estimate in nanoseconds per packet of such a batch, if the machine was calibrated and there is a
    /// bound.
    pub estimate_ns: Option<f64>,
    /// The estimate for a packet that comes alone.
    pub alone_ns: Option<f64>,
    /// The calls for the rest of a batch's output that these estimates are for, if the module is bounded.
    pub rests: Option<Rests>,
    /// The calls besides batches that end within a slice, if the module is bounded.
    pub short: Calls,
    pub why: Why,
}

/// The reason of a verdict.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    /// [`Protection::Metered`] was requested.
    AsRequested,
    /// [`Protection::Unchecked`] was requested.
    Unchecked,
    /// A call was cut off in an earlier run for this reason, as this file records.
    CutOff(CutOff, PathBuf),
    /// The analysis was stopped at a limit.
    NotAnalysed(String),
    /// The batches have no bound.
    Unbounded,
    /// A packet may take more instructions than its budget; none if they cannot be counted.
    OverBudget { most: Option<u128>, budget: u64 },
    /// A call for the rest of a batch's output may take more instructions than a packet's budget; none if
    /// they cannot be counted.
    Rest { most: Option<u128>, budget: u64 },
    /// A batch may take more instructions than nothing may interrupt; none if they cannot be counted.
    LongBatches { most: Option<u128> },
    /// The module asks for calls that cost more than a full batch, and nothing interrupts those of a bounded
    /// module.
    LongCalls { wanted: u64, most: u64 },
    /// The estimate exceeds the time limit.
    TooSlow { estimate_ns: f64, limit: PacketTimeLimit },
    /// There is a time limit, but no estimate.
    NoEstimate { limit: PacketTimeLimit },
    /// The bound is within the budget.
    WithinBudget { most: u128, budget: u64 },
    /// The bound is within the budget, and the estimate within the time limit.
    WithinTime { estimate_ns: f64, limit: PacketTimeLimit },
}

/// The most instructions of a batch that nothing interrupts: about half of the
/// [`CALL_DEADLINE_MAX`](flame_plan::limits::CALL_DEADLINE_MAX) after which it is stopped.
const MOST_OF_BATCH: u128 = 1_000_000_000;
/// The most bytes of a packet of which a block holds a whole batch.
const USUAL_BYTES: u64 = (flame_abi::MAX_BLOCK_BYTES / flame_abi::MAX_BATCH) as u64;

/// Returns the maximum number of bytes of a packet that a module may see: views cut there.
pub fn visible(expose: Expose, snaplen: u64) -> u64 {
    u64::from(expose.longest(u32::try_from(snaplen).unwrap_or(u32::MAX).max(1)))
}

impl Verdict {
    /// Returns a verdict that needs no bounds.
    pub fn metered(why: Why) -> Self {
        let batch = flame_abi::MAX_BATCH as u32;
        let (estimate_ns, alone_ns, rests, short) = Default::default();
        Self { class: ModuleClass::Metered, batch, estimate_ns, alone_ns, rests, short, why }
    }
}

impl Admission {
    /// Returns the verdict where it does not depend on the module.
    fn fixed(&self) -> Option<Verdict> {
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

/// Returns the verdict on a module that sees `expose` of each packet. `flame check` prints it, and runs and
/// nodes obey it.
///
/// `cut_off` is the reason why a call was cut off in an earlier run, and the file that records that. `bounds`
/// is called only if the verdict depends on them; a text in their place is the reason why the analysis was
/// stopped.
///
/// # Errors
///
/// Returns the error of `bounds`.
pub fn decide<E>(
    cut_off: Option<(CutOff, PathBuf)>,
    bounds: impl FnOnce() -> Result<Result<BatchBounds, String>, E>,
    expose: Expose,
    admission: &Admission,
) -> Result<Verdict, E> {
    if let Some(fixed) = admission.fixed() {
        return Ok(fixed);
    }
    if let Some((cause, file)) = cut_off {
        return Ok(Verdict::metered(Why::CutOff(cause, file)));
    }
    Ok(match bounds()? {
        Ok(found) => admit(found, expose, admission),
        Err(reason) => Verdict::metered(Why::NotAnalysed(reason)),
    })
}

/// Decides on a module whose batches have these bounds, and which sees `expose` of each packet.
fn admit(batches: BatchBounds, expose: Expose, admission: &Admission) -> Verdict {
    let BatchBounds { bound, rest, .. } = batches;
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
    // Those calls follow a batch at once, and share its budget.
    match rest.at(1, visible) {
        Some(most) if most <= u128::from(budget) => {}
        most => return Verdict::metered(Why::Rest { most, budget }),
    }
    // A module for whose usual packets a whole batch takes too long is to be interrupted.
    let full = flame_abi::MAX_BATCH as u32;
    match bound.at(full.into(), visible.min(USUAL_BYTES)) {
        Some(most) if most <= MOST_OF_BATCH => {}
        most => return Verdict::metered(Why::LongBatches { most }),
    }
    // Each packet may cost as much as the longest of them allows.
    let fits = |packets: &u32| bound.at((*packets).into(), visible).is_some_and(|most| most <= MOST_OF_BATCH);
    let Some(batch) = (1..=full).rev().find(fits) else {
        return Verdict::metered(Why::LongBatches { most: Some(most) });
    };
    let longest = longest_call(budget);
    if let Some(wanted) = admission.call_budget.filter(|wanted| *wanted > longest) {
        return Verdict::metered(Why::LongCalls { wanted, most: longest });
    }
    let (estimate_ns, alone_ns) = (batches.packet_ns(batch, visible), batches.packet_ns(1, visible));
    let why = match (admission.time_limit, estimate_ns) {
        (None, _) => Why::WithinBudget { most, budget },
        (Some(limit), None) => return Verdict::metered(Why::NoEstimate { limit }),
        (Some(limit), Some(estimate_ns)) if estimate_ns > limit.most_ns() => {
            let verdict = Verdict::metered(Why::TooSlow { estimate_ns, limit });
            return Verdict { estimate_ns: Some(estimate_ns), ..verdict };
        }
        (Some(limit), Some(estimate_ns)) => Why::WithinTime { estimate_ns, limit },
    };
    let rests = Some(batches.rests(visible));
    Verdict { class: ModuleClass::Bounded, batch, estimate_ns, alone_ns, rests, short: batches.short, why }
}

impl BatchBounds {
    /// The size in bytes of [`BatchBounds::to_bytes`].
    const BYTES: usize = 8 * Poly::BYTES + 2;

    /// Returns the calls for the rest of output that may follow batches of packets up to `longest` bytes.
    fn rests(&self, longest: u64) -> Rests {
        let units = |bound: Bound, packets| {
            bound.at(packets, longest).and_then(|n| u64::try_from(n).ok()).unwrap_or(u64::MAX)
        };
        let call = units(self.bound, 0);
        let packet = units(self.bound, 1).saturating_sub(call);
        Rests { call, packet, each: units(self.rest, 1).max(flame_abi::CALL_UNITS) }
    }

    /// Returns the estimated nanoseconds for each of `packets` packets that come together, with all the calls
    /// for the rest of their output that the module may ask for. All that decides by the cost of a packet
    /// asks here.
    fn packet_ns(&self, packets: u32, longest: u64) -> Option<f64> {
        let batch = self.time.at(packets.into(), longest)?;
        let rests = u128::from(self.rests(longest).after(packets));
        let all = self.rest_time.at(1, longest)?.checked_mul(rests)?.checked_add(batch)?;
        Some(all as f64 / 1000.0 / f64::from(packets))
    }

    /// Returns the form that is cached.
    pub fn to_bytes(self) -> Vec<u8> {
        let all = [self.bound, self.time, self.rest, self.rest_time];
        let polys = all.iter().flat_map(|b| [b.call, b.packet]).flat_map(|p| p.to_bytes());
        polys.chain(self.short.to_bytes()).collect()
    }

    /// Reads [`BatchBounds::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let all: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let (all, short) = all.split_last_chunk()?;
        let mut polys = all.chunks_exact(Poly::BYTES).filter_map(|b| b.try_into().ok()).map(Poly::from_bytes);
        let mut bound = || Some(Bound { call: polys.next()?, packet: polys.next()? });
        Some(Self {
            bound: bound()?,
            time: bound()?,
            rest: bound()?,
            rest_time: bound()?,
            short: Calls::from_bytes(*short),
        })
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
            Self::CutOff(CutOff::Bound, file) => write!(
                f,
                "its bound was violated in an earlier run, so it is not trusted (remove {} once the analysis is corrected)",
                file.display()
            ),
            Self::CutOff(CutOff::Time, file) => write!(
                f,
                "a call of it took too long in an earlier run, so it is interrupted (remove {} to try again)",
                file.display()
            ),
            Self::NotAnalysed(reason) => f.write_str(reason),
            Self::Unbounded => f.write_str("its batches have no bound"),
            Self::OverBudget { most: Some(most), budget } => {
                write!(f, "a packet may take {most} instructions, more than its budget of {budget}")
            }
            Self::OverBudget { most: None, budget } => {
                write!(f, "a packet may take more than its budget of {budget} instructions")
            }
            Self::Rest { most, budget } => {
                let most = most.map_or("no known number of".to_owned(), |most| most.to_string());
                write!(
                    f,
                    "{} may take {most} instructions, more than a packet's budget of {budget}",
                    names::REST
                )
            }
            Self::LongBatches { most } => {
                let most = most.map_or("no known number of".to_owned(), |most| most.to_string());
                write!(
                    f,
                    "a batch may take {most} instructions, more than the {MOST_OF_BATCH} that are not interrupted"
                )
            }
            Self::LongCalls { wanted, most } => write!(
                f,
                "it asks for calls of {wanted} units (limits.call_budget), more than the {most} of a full batch"
            ),
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

/// A time in nanoseconds, displayed in a unit that fits it.
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
        let none = Bound { call: Poly::ZERO, packet: Poly::ZERO };
        BatchBounds { bound, time: bound, rest: none, rest_time: none, short: Calls::default() }
    }

    fn admission(time_limit: Option<PacketTimeLimit>, packet_budget: u64) -> Admission {
        Admission {
            protection: Protection::Auto,
            time_limit,
            packet_budget,
            call_budget: None,
            snaplen: 262_144,
        }
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
        let none = BatchBounds { bound: Bound::UNBOUNDED, ..batches(0, 1) };
        assert_eq!(admit(none, Expose::All, &admission).why, Why::Unbounded);
    }

    /// Each packet of a batch may cost as much as its longest packet allows, and one long packet fits into
    /// any batch. So a batch has only as many packets as may all cost that.
    #[test]
    fn a_batch_has_as_many_packets_as_its_bound_lets_pass_uninterrupted() {
        let found = |slope| {
            let bound = Bound { call: Poly::constant(9), packet: Poly::LENGTH.times(Poly::constant(slope)) };
            BatchBounds { bound, ..batches(0, 0) }
        };
        let verdict = |slope| admit(found(slope), Expose::All, &admission(None, u64::MAX));
        for (slope, batch) in [(1, 256), (14, 256), (15, 254), (100, 38), (953, 4)] {
            let verdict = verdict(slope);
            assert_eq!((verdict.class, verdict.batch), (ModuleClass::Bounded, batch), "{slope}");
            let most = |packets| found(slope).bound.at(packets, 262_144).unwrap();
            assert!(most(batch.into()) <= MOST_OF_BATCH, "{slope}");
            assert!(batch == 256 || most(u64::from(batch) + 1) > MOST_OF_BATCH, "{slope}");
        }
        // Of 4 KiB each, 256 packets take too long.
        assert_eq!(verdict(954).why, Why::LongBatches { most: Some(9 + 954 * (1 << 20)) });
        let short = |packet| admit(batches(0, packet), Expose::None, &admission(None, u64::MAX));
        assert_eq!(
            (short(3_906_250).class, short(3_906_251).class),
            (ModuleClass::Bounded, ModuleClass::Metered)
        );
        // Shorter packets: a link's.
        let limit = PacketTimeLimit { packet_ns: f64::MAX, factor: 1.0, snaplen: 1522 };
        let on_link = admit(found(100), Expose::All, &admission(Some(limit), u64::MAX));
        assert_eq!((on_link.class, on_link.batch), (ModuleClass::Bounded, 256));
    }

    #[test]
    fn no_call_of_a_bounded_module_costs_more_than_a_batch() {
        let rest = |call| BatchBounds { rest: Bound { call, packet: Poly::ZERO }, ..batches(1, 1) };
        let why = |found, call_budget| {
            admit(found, Expose::All, &Admission { call_budget, ..admission(None, 1000) }).why
        };
        let within = Why::WithinBudget { most: 2, budget: 1000 };
        assert_eq!(why(rest(Poly::constant(1000)), None), within);
        assert_eq!(why(rest(Poly::constant(1001)), None), Why::Rest { most: Some(1001), budget: 1000 });
        assert_eq!(why(rest(Poly::UNBOUNDED), None), Why::Rest { most: None, budget: 1000 });
        assert_eq!(why(batches(1, 1), Some(256_000)), within);
        let longer = Why::LongCalls { wanted: 256_001, most: 256_000 };
        assert_eq!(why(batches(1, 1), Some(256_001)), longer);
    }

    /// The cost of a packet contains the calls for the rest of its output, of which there are as many as cost
    /// no more than its batch.
    #[test]
    fn the_rest_of_the_output_is_in_the_cost_of_a_packet() {
        let rest = Bound { call: Poly::constant(5_000), packet: Poly::ZERO };
        let found = |call| BatchBounds { rest, rest_time: rest, ..batches(call, 0) };
        let admission = admission(None, 1_000_000);
        let verdict = |call| admit(found(call), Expose::All, &admission);
        // One is always allowed; 24,000 units are 4 more.
        for (call, rests) in [(10, 1), (9_999, 1), (10_000, 2), (24_000, 4)] {
            let verdict = verdict(call);
            assert_eq!(verdict.rests.unwrap().after(1), rests, "{call}");
            let most = (call + u64::from(rests) * 5_000) as f64 / 1000.0;
            assert_eq!((verdict.alone_ns, verdict.estimate_ns), (Some(most), Some(most / 256.0)));
        }
        let limit = PacketTimeLimit { packet_ns: 0.01, factor: 1.0, snaplen: 100 };
        let slow = admit(found(10), Expose::All, &Admission { time_limit: Some(limit), ..admission });
        assert_eq!(slow.class, ModuleClass::Metered, "{:?}", slow.why);
    }

    #[test]
    fn protection_overrides_bounds() {
        for (protection, class) in
            [(Protection::Metered, ModuleClass::Metered), (Protection::Unchecked, ModuleClass::Bounded)]
        {
            let admission = Admission { protection, ..admission(None, 1000) };
            let bounds = || -> Result<_, ()> { panic!("a fixed verdict needs no bounds") };
            assert_eq!(
                decide(Some((CutOff::Bound, "file".into())), bounds, Expose::All, &admission).unwrap().class,
                class
            );
        }
    }

    #[test]
    fn a_violation_precedes_bounds_and_a_stopped_analysis_is_metered() {
        let why = |cut_off: Option<(CutOff, PathBuf)>, found: Result<BatchBounds, String>| {
            decide(cut_off, || Ok::<_, ()>(found), Expose::All, &admission(None, 1000)).unwrap().why
        };
        let file = PathBuf::from("violated");
        let text = |cause| {
            let why = why(Some((cause, file.clone())), Ok(batches(1, 1)));
            assert_eq!(why, Why::CutOff(cause, file.clone()));
            why.to_string()
        };
        assert!(text(CutOff::Bound).contains("its bound was violated"), "{}", text(CutOff::Bound));
        assert!(text(CutOff::Time).contains("a call of it took too long"), "{}", text(CutOff::Time));
        assert_eq!(why(None, Err("time".into())), Why::NotAnalysed("time".into()));
        assert_eq!(why(None, Ok(batches(1, 1))), Why::WithinBudget { most: 2, budget: 1000 });
    }

    #[test]
    fn bounds_come_back_from_the_cache() {
        let short = [flame_plan::CallName::Tick, flame_plan::CallName::Pressure].into_iter().collect();
        let found = BatchBounds { time: Bound::UNBOUNDED, short, ..batches(5, 7) };
        assert_eq!(BatchBounds::from_bytes(&found.to_bytes()), Some(found));
        let bytes = found.to_bytes();
        assert!((0..bytes.len()).all(|n| BatchBounds::from_bytes(&bytes[..n]).is_none()));
    }
}
