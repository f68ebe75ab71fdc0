//! The class in which a module runs, and the analysis on which it depends.

use crate::answer::Answer;
use crate::job::{Job, Step};
use crate::{Artifact, CompileError, Compiler, ModuleInfo, Protection, Report, Stopped, cache};
use flame_bounds::{Bound, Costs, Poly};
use flame_plan::{Expose, LEAST_DEADLINE_NS, MOST_DEADLINE_NS, ModuleClass};
use sha2::{Digest, Sha256};
use std::path::Path;

/// A limit on the time per packet, and the factor by which a module's estimate may exceed it. Packets that
/// arrive during a short excess wait in a buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacketTimeLimit {
    /// The time limit per packet, in nanoseconds.
    pub packet_ns: f64,
    /// The inflation factor, at least 1.
    pub factor: f64,
    /// The length of the longest captured packet, in bytes.
    pub snaplen: u64,
}

/// Bits on the wire per packet at the highest packet rate of a link: a frame of 64 bytes, preamble and gap.
const WIRE_BITS: f64 = (64 + 20) as f64 * 8.0;

impl PacketTimeLimit {
    /// Returns the limit for a link, for a module that may use `share` of one processor and has a buffer for
    /// `buffer` packets. A burst of one batch of worst-case packets must fit into the buffer: 256 × (cost /
    /// limit − 1) ≤ buffer.
    pub fn of_link(bits_per_second: f64, share: f64, buffer: u64, snaplen: u64) -> Self {
        let packet_ns = share * WIRE_BITS / bits_per_second * 1e9;
        Self { packet_ns, factor: 1.0 + buffer as f64 / flame_abi::MAX_BATCH as f64, snaplen }
    }

    /// Returns the maximum acceptable estimate per packet, in nanoseconds.
    pub fn most_ns(&self) -> f64 {
        self.packet_ns * self.factor
    }
}

/// The conditions that determine a module's class.
#[derive(Clone, Copy, Debug)]
pub struct Admission<'a> {
    pub protection: Protection,
    /// The cost of instructions on this machine, for estimates.
    pub costs: Option<&'a Costs>,
    pub pace: Option<PacketTimeLimit>,
    /// The budget of a packet in a metered module. A bound above it is no better than a counter.
    pub packet_budget: u64,
}

/// A module's class, and the reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub class: ModuleClass,
    /// The estimated time per packet of a full batch in nanoseconds, if costs were given and there is a
    /// bound.
    pub estimate_ns: Option<f64>,
    /// The processor time in nanoseconds after which a batch has violated its bound.
    pub deadline_ns: u64,
    /// The reason, for people.
    pub why: String,
}

/// The outcome of an analysis.
#[derive(Clone, Debug)]
pub enum Analysed {
    Report(Box<Report>),
    /// The analysis was stopped at a limit, for this reason. The module can run metered.
    Exceeded(String),
}

/// The bounds of a module's batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BatchBounds {
    pub(crate) bound: Bound,
    pub(crate) time: Bound,
}

impl BatchBounds {
    const BYTES: usize = 4 * Poly::BYTES;

    fn to_bytes(self) -> Vec<u8> {
        let Self { bound, time } = self;
        [bound.call, bound.packet, time.call, time.packet].iter().flat_map(|p| p.to_bytes()).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let all: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let mut polys = all.chunks_exact(Poly::BYTES).filter_map(|b| b.try_into().ok()).map(Poly::from_bytes);
        let mut bound = || Some(Bound { call: polys.next()?, packet: polys.next()? });
        Some(Self { bound: bound()?, time: bound()? })
    }
}

/// Returns the time per packet of a full batch, in nanoseconds.
pub fn of_packet_ns(time: Bound, length: u64) -> Option<f64> {
    let batch = flame_abi::MAX_BATCH as u64;
    time.at(batch, length).map(|ps| ps as f64 / 1000.0 / batch as f64)
}

impl Compiler<'_> {
    /// Returns the class in which a module runs.
    pub(crate) fn verdict(
        &self,
        wasm: &[u8],
        examined: &ModuleInfo,
        expose: Expose,
        admission: &Admission<'_>,
    ) -> Result<Verdict, CompileError> {
        let fixed = |class, why: &str| {
            Ok(Verdict { class, estimate_ns: None, deadline_ns: MOST_DEADLINE_NS, why: why.to_owned() })
        };
        match admission.protection {
            Protection::Metered => return fixed(ModuleClass::Metered, "as asked for"),
            Protection::Unchecked => return fixed(ModuleClass::Bounded, "unchecked, as asked for"),
            Protection::Auto => {}
        }
        if let Some(file) = self.cache.as_ref().and_then(|c| c.violation(&examined.hash)) {
            return fixed(ModuleClass::Metered, &violated(&file));
        }
        match self.batches(wasm, examined, admission.costs)? {
            Ok(found) => Ok(judge(found, expose, admission)),
            Err(why) => fixed(ModuleClass::Metered, &why),
        }
    }

    fn batches(
        &self,
        wasm: &[u8],
        examined: &ModuleInfo,
        costs: Option<&Costs>,
    ) -> Result<Result<BatchBounds, String>, CompileError> {
        let name = cache::entry_name(&identity(examined, costs), Artifact::Verdict);
        if let Some(known) =
            self.cache.as_ref().and_then(|c| c.get(&name)).and_then(|b| BatchBounds::from_bytes(&b))
        {
            return Ok(Ok(known));
        }
        let report = match self.analyse(wasm, examined, costs)? {
            Analysed::Report(report) => report,
            Analysed::Exceeded(why) => return Ok(Err(why)),
        };
        let batch = report.entries.iter().find(|e| e.name == flame_abi::layout::names::BATCH);
        let found = BatchBounds {
            bound: batch.map_or(Bound::UNBOUNDED, |e| e.bound),
            time: batch.and_then(|e| e.time).unwrap_or(Bound::UNBOUNDED),
        };
        if let Some(cache) = &self.cache {
            cache.put(&name, &found.to_bytes())?;
        }
        Ok(Ok(found))
    }

    /// Computes bounds on the cost of a module's calls, and estimates of their time if `costs` are given.
    pub fn analyse(
        &self,
        wasm: &[u8],
        examined: &ModuleInfo,
        costs: Option<&Costs>,
    ) -> Result<Analysed, CompileError> {
        let of = identity(examined, costs);
        let cached = |artifact| self.cache.as_ref()?.get(&cache::entry_name(&of, artifact));
        if let Some(report) = cached(Artifact::Report).and_then(|b| postcard::from_bytes(&b).ok()) {
            return Ok(Analysed::Report(report));
        }
        if let Some(why) = cached(Artifact::Unanalysed).and_then(|b| String::from_utf8(b).ok()) {
            return Ok(Analysed::Exceeded(why));
        }
        let put = |artifact, bytes: &[u8]| match &self.cache {
            Some(cache) => cache.put(&cache::entry_name(&of, artifact), bytes),
            None => Ok(()),
        };
        match self.perform(&Job::Analyse { costs: costs.cloned() }, wasm, &examined.hash) {
            Ok((Answer::Report(report), _)) => {
                if let Ok(bytes) = postcard::to_stdvec(&report) {
                    put(Artifact::Report, &bytes)?;
                }
                Ok(Analysed::Report(report))
            }
            Ok(_) => Err(crate::unexpected(Step::Analyse)),
            // A failed analysis must not prevent the module from running metered.
            Err(CompileError::Stopped { stopped, .. }) if stopped.is_the_modules() => {
                let why = format!("its analysis was stopped: {stopped}");
                // Failures that depend on the load of the machine are not cached, so that the analysis is
                // repeated next time.
                if matches!(stopped, Stopped::Cpu { .. } | Stopped::Memory { .. }) {
                    put(Artifact::Unanalysed, why.as_bytes())?;
                }
                Ok(Analysed::Exceeded(why))
            }
            Err(error) => Err(error),
        }
    }
}

/// Returns the hash of the inputs of an analysis: the module, and the machine's costs if estimates are
/// requested.
fn identity(examined: &ModuleInfo, costs: Option<&Costs>) -> [u8; 32] {
    // Estimates depend on the calibration of this machine.
    Sha256::digest(format!("{:?} {costs:?}", examined.hash)).into()
}

/// Returns the maximum number of bytes of a packet that a module may see. Views cut packets there.
pub fn visible(expose: Expose, snaplen: u64) -> u64 {
    u64::from(expose.longest(u32::try_from(snaplen).unwrap_or(u32::MAX).max(1)))
}

fn judge(found: BatchBounds, expose: Expose, admission: &Admission<'_>) -> Verdict {
    let BatchBounds { bound, time } = found;
    let metered = |estimate_ns, why: String| Verdict {
        class: ModuleClass::Metered,
        estimate_ns,
        deadline_ns: MOST_DEADLINE_NS,
        why,
    };
    if !bound.is_bounded() {
        return metered(None, "its batches have no bound: `flame check` tells why".to_owned());
    }
    let visible = visible(expose, admission.pace.map_or(flame_bounds::MAX_LENGTH, |p| p.snaplen));
    // A batch of one packet has the budget of one packet.
    let most = bound.at(1, visible);
    if most.is_none_or(|most| most > u128::from(admission.packet_budget)) {
        let most = most.map_or_else(String::new, |n| format!("{n} instructions, "));
        return metered(
            None,
            format!("a packet may take {most}more than its budget of {}", admission.packet_budget),
        );
    }
    let estimate_ns = of_packet_ns(time, visible);
    match (admission.pace, estimate_ns) {
        (Some(pace), Some(ns)) if ns > pace.most_ns() => metered(
            estimate_ns,
            format!(
                "a packet may take {ns:.0} ns; {:.0} ns are acceptable ({:.0} ns × {:.1})",
                pace.most_ns(),
                pace.packet_ns,
                pace.factor
            ),
        ),
        (Some(pace), None) => metered(
            None,
            format!("nothing says that it keeps {:.0} ns a packet: `flame calibrate`", pace.packet_ns),
        ),
        _ => Verdict {
            class: ModuleClass::Bounded,
            estimate_ns,
            deadline_ns: deadline_ns(bound, estimate_ns, visible),
            why: "its batches are bounded".to_owned(),
        },
    }
}

/// Returns a processor time in nanoseconds far above that of any full batch within `bound`: four times the
/// estimate or, without one, 100 ns for each instruction, as if each waited for memory.
fn deadline_ns(bound: Bound, estimate_ns: Option<f64>, visible: u64) -> u64 {
    let batch = flame_abi::MAX_BATCH as u64;
    let most = match estimate_ns {
        Some(ns) => Some((ns * batch as f64 * 4.0) as u64),
        None => bound.at(batch, visible).and_then(|n| u64::try_from(n).ok()?.checked_mul(100)),
    };
    most.unwrap_or(MOST_DEADLINE_NS).clamp(LEAST_DEADLINE_NS, MOST_DEADLINE_NS)
}

/// Returns the reason why a module is metered after the violation of its bound that `file` records.
pub fn violated(file: &Path) -> String {
    format!(
        "its bound was violated in an earlier run, so it is not trusted (remove {} once the analysis is mended)",
        file.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batches(call_ps: u64, packet_ps: u64) -> BatchBounds {
        let bound = Bound { call: Poly::constant(call_ps), packet: Poly::constant(packet_ps) };
        BatchBounds { bound, time: bound }
    }

    #[test]
    fn a_link_and_a_buffer_say_what_is_acceptable() {
        // 14.88 million packets per second.
        let pace = PacketTimeLimit::of_link(10e9, 0.5, 1024, 1514);
        assert!((pace.packet_ns - 33.6).abs() < 0.01 && pace.factor == 5.0, "{pace:?}");
        let admission = Admission {
            protection: Protection::Auto,
            costs: None,
            pace: Some(pace),
            packet_budget: u64::MAX,
        };
        let class = |ps| judge(batches(0, ps), Expose::All, &admission).class;
        assert_eq!((class(167_000), class(169_000)), (ModuleClass::Bounded, ModuleClass::Metered));
        let unknown = BatchBounds { time: Bound::UNBOUNDED, ..batches(0, 1) };
        assert!(judge(unknown, Expose::All, &admission).why.contains("flame calibrate"));
    }

    #[test]
    fn without_a_pace_a_bound_is_enough() {
        let admission =
            Admission { protection: Protection::Auto, costs: None, pace: None, packet_budget: 1000 };
        let class = |call, packet| judge(batches(call, packet), Expose::All, &admission).class;
        assert_eq!(class(1, 999), ModuleClass::Bounded);
        assert_eq!(class(1, 1000), ModuleClass::Metered, "a counter is the better bound");
        let none = BatchBounds { bound: Bound::UNBOUNDED, time: Bound::UNBOUNDED };
        assert_eq!(judge(none, Expose::All, &admission).class, ModuleClass::Metered);
    }

    #[test]
    fn what_was_found_comes_back_from_the_cache() {
        let found = BatchBounds { time: Bound::UNBOUNDED, ..batches(5, 7) };
        assert_eq!(BatchBounds::from_bytes(&found.to_bytes()), Some(found));
        let bytes = found.to_bytes();
        assert!((0..bytes.len()).all(|n| BatchBounds::from_bytes(&bytes[..n]).is_none()));
    }
}
