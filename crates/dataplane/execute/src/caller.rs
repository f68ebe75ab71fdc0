//! Makes all calls of one instance, fast or slow, under the same rules.
//!
//! | rule | checked | batch, init | tick and end with their continuations, messages of one fast call, export, import |
//! | --- | --- | --- | --- |
//! | eviction | before every call, continuation and slice | the instance is dropped | the same |
//! | share of time, live | the same | its time is charged; waits when the share is used up | the same; a call of a service is charged to its caller and does not wait |
//! | slice, live | inside metered calls, between calls and pieces of output | continues later, of a bounded module its output alone | the same; another thread makes that of a bounded module, if its bound is longer |
//! | budget | inside calls, between calls | each packet, each init; the rests of a batch as much as its packets, of a bounded module [`flame_plan::Rests`] | one common [`Allowance`] |
//! | pressure | after batches, ticks and messages, at most once for each tick, 256 packets or 4,096 messages | | one [`Allowance`] |
//! | stop | before every call, continuation and slice | [`STOP_GRACE`], then interrupted | ticks and messages begin until they have cost one [`Allowance`]; calls of services begin no more, outcomes for [`STOP_GRACE`] |

use crate::guard::{Guarded, Step};
use crate::limit::CpuMonitor;
use crate::module::{LoadedModule, Shape};
use crate::stop::{Phase, Quantum, Stop};
use flame_plan::limits::{OVERRUN_MAX, STOP_GRACE};
use flame_plan::{Discipline, Limits, ModuleClass, Reason};
use flame_quota::Meters;
use flame_run::{
    Allowance, Call, Eviction, Fault, FaultKind, Instance, Loaded, Mapping, Output, Pace, Pending, Role,
};
use std::time::Duration;

/// An instance and its current call.
pub struct Caller {
    loaded: Loaded,
    windows: Vec<Mapping>,
    init: Call,
    guarded: Guarded,
    current: Option<Current>,
    /// The units that all calls but batches and init have cost since the run was stopped.
    last: u64,
    eviction: Eviction,
    /// Whether the module refused the state of the import that ended last.
    has_refused: bool,
    pressure: Pressure,
}

/// The work since the last call that informed the module about its memory. Such a call may cost as much as a
/// full batch, so a module that provokes it must not have it with every small one.
struct Pressure {
    work: u32,
    /// Whether a call has ended after which the memory was not checked.
    is_unchecked: bool,
}

impl Pressure {
    /// The work after which the next such call may be made: the messages that one call sends at most.
    const ENOUGH: u32 = 4096;
    /// The work of a packet: that of a full batch is enough.
    const PACKET: u32 = Self::ENOUGH / flame_abi::MAX_BATCH as u32;

    fn after(&mut self, call: &Call) {
        let work = match call {
            Call::Batch { count, .. } | Call::Push { count, .. } => count.saturating_mul(Self::PACKET),
            Call::Message(_) | Call::Serve(_) | Call::Done(_) => 1,
            Call::Tick { .. } => Self::ENOUGH,
            _ => return,
        };
        self.work = self.work.saturating_add(work);
        self.is_unchecked = true;
    }
}

/// A call that has begun.
pub(crate) struct Current {
    pub(crate) call: Call,
    pub(crate) allowance: Allowance,
    /// The units that the output of a batch and of the calls for its rest may still cost. Other output
    /// is charged to the allowance.
    pub(crate) output: u64,
    continuations: u32,
    /// Whether the next call is for the rest of the output.
    is_rest: bool,
    /// Whether `call` is made again after that.
    again: bool,
}

/// The outcome of a call, including all its continuations.
pub enum Ended {
    /// The call continues in another quantum.
    Paused,
    Done(Call, Allowance),
    /// The instance is gone because of a fault.
    Faulted(Call, Fault),
    /// The instance is gone because the module was evicted.
    Evicted(Call, Reason),
}

impl Caller {
    /// Creates a caller without an instance.
    pub fn new(shape: Shape, module: &LoadedModule, role: Role, discipline: Discipline) -> Self {
        let Shape { workers, tick_ns, interval_ns } = shape;
        let time_limit = module.plan.terms.time_limit.filter(|_| discipline.limits_time());
        let limit = time_limit.map(|limit| (limit, module.others.clone()));
        Self {
            loaded: match discipline.limits_time() && (time_limit.is_some() || module.meters.timed()) {
                true => module.loaded.clone().due_in(OVERRUN_MAX),
                false => module.loaded.clone(),
            },
            windows: Vec::new(),
            init: Call::Init { role, workers, tick_ns: module.plan.tick_ns(tick_ns), interval_ns },
            guarded: Guarded::new(CpuMonitor::new(&module.meters, limit)),
            current: None,
            last: 0,
            eviction: module.eviction.clone(),
            has_refused: false,
            pressure: Pressure { work: Pressure::ENOUGH, is_unchecked: false },
        }
    }

    /// Returns the caller with the mappings of the blocks, which its instances map in their memory.
    pub fn with_windows(self, windows: Vec<Mapping>) -> Self {
        Self { windows, ..self }
    }

    /// Creates an instance and starts its first call.
    ///
    /// # Errors
    ///
    /// Returns the fault if the instance cannot be created. There is no instance then.
    pub fn launch(&mut self, restarted: bool) -> Result<(), Fault> {
        self.current = None;
        self.pressure.is_unchecked = false;
        self.guarded.clear();
        self.guarded.fill(Instance::new(&self.loaded, &self.windows, restarted)?);
        self.start(self.init.clone(), self.allowance());
        Ok(())
    }

    /// Returns the allowance of a call without packets.
    pub fn allowance(&self) -> Allowance {
        Allowance::new(self.loaded.limits().call_budget)
    }

    /// Returns the allowance of the calls for the rest of a batch's output: as much as its packets have.
    pub fn allowance_after(&self, packets: u32) -> Allowance {
        Allowance::new(self.loaded.limits().packet_budget.saturating_mul(packets.into()))
    }

    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// Returns whether the instance is gone.
    pub fn is_gone(&self) -> bool {
        self.guarded.is_gone()
    }

    /// Returns whether no further batch begins, because the run was stopped.
    pub fn is_overdue(&self) -> bool {
        self.guarded.is_overdue()
    }

    /// Returns whether ticks and messages that wait are left out, because the run was stopped: they have cost
    /// the instance one budget since then, or, of a tick, the worker was behind for too long.
    pub fn leaves_out(&self, is_tick: bool, phase: Phase) -> bool {
        let has_budget = self.last < self.loaded.limits().call_budget;
        match phase {
            Phase::Running | Phase::Draining => false,
            Phase::Flushing | Phase::LastCalls => !has_budget,
            Phase::Overdue => is_tick || !has_budget,
        }
    }

    /// Returns whether an eviction was requested; the instance is dropped before its next call.
    pub fn is_evicted(&self) -> bool {
        self.eviction.reason().is_some()
    }

    /// Returns whether a call has not ended.
    pub fn is_busy(&self) -> bool {
        self.current.is_some()
    }

    /// Returns whether the call that has not ended is a tick.
    pub fn is_in_tick(&self) -> bool {
        matches!(&self.current, Some(Current { call: Call::Tick { .. }, .. }))
    }

    /// Returns whether the call that has not ended is one of a service, or takes an outcome.
    pub fn is_in_service(&self) -> bool {
        matches!(&self.current, Some(Current { call: Call::Serve(_) | Call::Done(_), .. }))
    }

    /// Returns the number of packets of the call that has not ended.
    pub fn packets(&self) -> u32 {
        self.current.as_ref().and_then(|current| current.call.packets()).unwrap_or(0)
    }

    /// Returns whether the call that has not ended is an export, whose output is the state.
    pub fn is_in_export(&self) -> bool {
        matches!(&self.current, Some(Current { call: Call::Export, .. }))
    }

    /// Returns whether the module refused the state of the import that ended last.
    pub fn has_refused(&self) -> bool {
        self.has_refused
    }

    /// Returns whether the module's share of time is not used up, or an eviction waits for a call to take
    /// effect.
    pub fn may_begin(&mut self) -> bool {
        self.is_evicted() || self.guarded.has_time()
    }

    /// Returns whether a call that another module pays for may begin.
    pub fn may_serve(&self) -> bool {
        self.guarded.may_serve()
    }

    /// Returns the processor time of the call that ended last, as far as it was measured.
    pub fn spent(&self) -> Duration {
        self.guarded.times().spent
    }

    /// Sets the next call, which [`Caller::go`] makes. Does nothing if the instance is gone.
    pub fn start(&mut self, call: Call, allowance: Allowance) {
        self.start_for(call, allowance, None);
    }

    /// Sets the next call, whose processor time is charged to `payer`, if there is one.
    pub fn start_for(&mut self, call: Call, allowance: Allowance, payer: Option<&Meters>) {
        if !self.is_gone() {
            self.guarded.begin(payer);
            let output = call.packets().map_or(u64::MAX, |count| self.loaded.limits().batch_output(count));
            let (continuations, is_rest, again) = Default::default();
            self.current = Some(Current { call, allowance, output, continuations, is_rest, again });
        }
    }

    /// Starts the call that informs the module about its memory, if one is due. Returns whether it did.
    pub fn start_pressure(&mut self, stop: &Stop<'_>) -> bool {
        if !self.pressure.is_unchecked || self.pressure.work < Pressure::ENOUGH || stop.phase().is_last() {
            return false;
        }
        let Some(instance) = self.guarded.idle() else { return false };
        let Some(free) = instance.pressure() else {
            self.pressure.is_unchecked = false;
            return false;
        };
        // Packets are shed while a share is used up, and do not wait behind this call.
        if !self.guarded.has_own_time() {
            return false;
        }
        self.pressure = Pressure { work: 0, is_unchecked: false };
        self.start(Call::Pressure { free }, self.allowance());
        true
    }

    /// Continues the call that was started until it ends or a rule pauses it. `each` receives its output.
    ///
    /// # Errors
    ///
    /// Returns the error of `each`.
    pub fn go<E>(
        &mut self,
        quantum: &Quantum<'_>,
        each: &mut dyn FnMut(Output<'_>) -> Result<(), E>,
    ) -> Result<Ended, E> {
        loop {
            let Some(mut current) = self.current.take() else { return Ok(Ended::Paused) };
            if let Some(reason) = self.eviction.reason() {
                self.guarded.clear();
                return Ok(Ended::Evicted(current.call, reason.clone()));
            }
            if quantum.keeps_shares() && !self.guarded.has_time() {
                self.current = Some(current);
                return Ok(Ended::Paused);
            }
            let phase = quantum.stop.phase();
            if let Some(kind) = self.refuses(&mut current, phase) {
                self.guarded.clear();
                let fault = Fault::between(current.next().name(), kind);
                return Ok(Ended::Faulted(current.call, fault));
            }
            let pace = self.pace(&current, quantum);
            let step = self.guarded.open(&current, phase).advance(&current, pace, quantum, each)?;
            let (pending, mut allowance) = match step {
                Step::Ended(pending, allowance) => (pending, allowance),
                Step::Faulted(fault) => {
                    self.monitor(&current.call);
                    return Ok(Ended::Faulted(current.call, fault));
                }
                Step::Paused => {
                    self.current = Some(current);
                    if quantum.is_over_after_slice(self.guarded.time_apart()) || self.is_gone() {
                        return Ok(Ended::Paused);
                    }
                    continue;
                }
            };
            let is_of_batch = current.call.packets().is_some();
            if is_of_batch {
                current.output = current.output.saturating_sub(pending.batch_units());
            }
            if current.is_rest || !is_of_batch {
                allowance.spend(pending.call_units());
            }
            let Pending { more, rest, refused, .. } = pending;
            if allowance.is_last() {
                self.last = self.last.saturating_add(allowance.since(&current.allowance));
            }
            current.allowance = allowance;
            self.has_refused = refused;
            if !current.is_rest {
                current.again = more && matches!(current.call, Call::Tick { .. } | Call::End { .. });
            }
            current.is_rest = rest;
            if !rest && !current.again {
                self.monitor(&current.call);
                self.pressure.after(&current.call);
                return Ok(Ended::Done(current.call, allowance));
            }
            current.continuations = current.continuations.saturating_add(1);
            self.current = Some(current);
            if quantum.is_over() {
                return Ok(Ended::Paused);
            }
        }
    }

    /// Returns the reason why the call ends before its next step, or `None` if it continues.
    fn refuses(&mut self, current: &mut Current, phase: Phase) -> Option<FaultKind> {
        let times = self.guarded.times();
        if current.has_grace() && times.late >= STOP_GRACE {
            return Some(FaultKind::Interrupted(times.late));
        }
        // Another call begins only then.
        self.guarded.idle()?;
        // Calls of services and their outcomes, of which others decide how many there are, leave the module's
        // last calls what they need.
        let is_of_others = matches!(current.call, Call::Serve(_) | Call::Done(_));
        let is_last = !current.has_grace() && !is_of_others;
        if phase.is_last() && is_last && !current.allowance.is_last() {
            current.allowance = Allowance::last(self.loaded.limits().call_budget);
        }
        current.refused(self.loaded.limits())
    }

    /// Returns the way in which the call is made. The packets of a bounded module's batch may lie in memory
    /// that is lent, and its bound is part of the admission. Other calls may take longer than a slice, unless
    /// their bounds are shorter.
    fn pace(&self, current: &Current, quantum: &Quantum<'_>) -> Pace {
        let is_batch = current.call.packets().is_some();
        let is_short = is_batch || self.loaded.limits().short.contains(current.next().name());
        match quantum.is_whole() || (is_short && self.loaded.class() == ModuleClass::Bounded) {
            true => Pace::ToEnd,
            false => Pace::InSlices,
        }
    }

    /// Evicts the module, on all workers, if its calls exceeded their time limit too often.
    fn monitor(&mut self, call: &Call) {
        if let Some(reason) = self.guarded.finish(call.packets()) {
            self.eviction.evict(reason);
        }
    }
}

impl Current {
    /// Returns whether it has a time of its own after a stop, and no budget.
    pub(crate) fn has_grace(&self) -> bool {
        self.call.packets().is_some() || matches!(self.call, Call::Init { .. })
    }

    /// Returns whether batches cause it. Pressure is what they cause, and a module may cause it for each.
    pub(crate) fn is_of_batches(&self) -> bool {
        self.call.packets().is_some() || matches!(self.call, Call::Pressure { .. })
    }

    pub(crate) fn next(&self) -> &Call {
        if self.is_rest { &Call::Rest } else { &self.call }
    }

    /// Returns the reason why the next call may not begin, or `None` if it may.
    fn refused(&self, limits: &Limits) -> Option<FaultKind> {
        let packets = self.call.packets();
        let rests = limits.rests.zip(packets).map(|(rests, packets)| rests.after(packets));
        let continuations = rests.unwrap_or(limits.continuations);
        match self.call {
            Call::Batch { .. } | Call::Push { .. } if !self.is_rest => None,
            _ if self.continuations > continuations => Some(FaultKind::Continuations(continuations)),
            _ => self.allowance.refuses(),
        }
    }
}
