//! Makes all calls of one instance, fast or slow, under the same rules.
//!
//! | rule | checked | batch, init | tick and end with their continuations, messages of one fast call, export, import |
//! | --- | --- | --- | --- |
//! | eviction | before every call, continuation and slice | the instance is dropped | the same |
//! | share of time, live | the same | its time is charged; waits when the share is used up | the same; a call of a service is charged to its caller and does not wait |
//! | slice, live | inside metered calls, between calls | continues later | the same |
//! | budget | inside calls, between calls | each packet, each init; the rests of a batch as much as its packets, of a bounded module [`flame_plan::Rests`] | one common [`Allowance`] |
//! | pressure | after batches, ticks and messages, at most once for each tick, 256 packets or 4,096 messages | | one [`Allowance`] |
//! | stop | before every call, continuation and slice | [`STOP_GRACE`], then interrupted | ticks and messages begin until they have cost one [`Allowance`]; calls of services begin no more, outcomes for [`STOP_GRACE`] |

use crate::limit::CpuMonitor;
use crate::module::{LoadedModule, Shape};
use crate::stop::{Phase, Quantum, Stop};
use flame_plan::limits::STOP_GRACE;
use flame_plan::{CallName, Discipline, Limits, Reason};
use flame_quota::Meters;
use flame_run::{
    Allowance, Call, Eviction, Fault, FaultKind, Instance, Loaded, Mapping, Output, Returned, Role,
};
use flame_run::{Slice, Suspended};
use std::time::{Duration, Instant};

/// An instance and its current call.
pub struct Caller {
    loaded: Loaded,
    windows: Vec<Mapping>,
    init: Call,
    state: RunState,
    current: Option<Current>,
    /// The units that all calls but batches and init have cost since the run was stopped.
    last: u64,
    /// The time of batches and init after a stop, once the time for what was read before is over.
    overtime: Duration,
    /// The part of the current call in it.
    late: Duration,
    cpu: CpuMonitor,
    /// The monitor of the module for which the call is made, if that is another one.
    payer: Option<CpuMonitor>,
    /// The processor time of the call so far, as far as it is measured.
    spent: Duration,
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

/// The state of the instance.
enum RunState {
    /// The instance is gone.
    Empty,
    /// The instance is between two calls.
    Idle(Box<Instance>),
    /// The instance is in a call that did not end within its slice.
    Busy(Suspended),
}

struct Current {
    call: Call,
    allowance: Allowance,
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
        Self {
            loaded: module.loaded.clone(),
            windows: Vec::new(),
            init: Call::Init { role, workers, tick_ns: module.plan.tick_ns(tick_ns), interval_ns },
            state: RunState::Empty,
            current: None,
            last: 0,
            overtime: Duration::ZERO,
            late: Duration::ZERO,
            cpu: CpuMonitor::new(&module.meters, time_limit),
            payer: None,
            spent: Duration::ZERO,
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
        self.state = RunState::Empty;
        self.state = RunState::Idle(Box::new(Instance::new(&self.loaded, &self.windows, restarted)?));
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
        matches!(self.state, RunState::Empty)
    }

    /// Returns whether no further batch begins, because the run was stopped.
    pub fn is_overdue(&self) -> bool {
        self.overtime >= STOP_GRACE
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
        self.is_evicted() || self.has_time()
    }

    /// Returns whether the call may continue. One that another module pays for began when that had time, and
    /// does not keep this one from its work by waiting for more.
    fn has_time(&mut self) -> bool {
        if self.payer.is_some() { self.may_serve() } else { self.cpu.may_begin() }
    }

    /// Returns whether a call that another module pays for may begin.
    pub fn may_serve(&self) -> bool {
        !self.cpu.is_held()
    }

    /// Returns the processor time of the call that ended last, as far as it was measured.
    pub fn spent(&self) -> Duration {
        self.spent
    }

    /// Sets the next call, which [`Caller::go`] makes. Does nothing if the instance is gone.
    pub fn start(&mut self, call: Call, allowance: Allowance) {
        self.start_for(call, allowance, None);
    }

    /// Sets the next call, whose processor time is charged to `payer`, if there is one.
    pub fn start_for(&mut self, call: Call, allowance: Allowance, payer: Option<&Meters>) {
        if !self.is_gone() {
            self.payer = payer.map(|payer| CpuMonitor::new(payer, None));
            (self.spent, self.late) = (Duration::ZERO, Duration::ZERO);
            self.current = Some(Current { call, allowance, continuations: 0, is_rest: false, again: false });
        }
    }

    /// Starts the call that informs the module about its memory, if one is due. Returns whether it did.
    pub fn start_pressure(&mut self, stop: &Stop<'_>) -> bool {
        if !self.pressure.is_unchecked || self.pressure.work < Pressure::ENOUGH || stop.phase().is_last() {
            return false;
        }
        let RunState::Idle(instance) = &mut self.state else { return false };
        let Some(free) = instance.pressure() else {
            self.pressure.is_unchecked = false;
            return false;
        };
        // Packets are shed while a share is used up, and do not wait behind this call.
        if !self.cpu.may_begin() {
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
                self.state = RunState::Empty;
                return Ok(Ended::Evicted(current.call, reason.clone()));
            }
            if quantum.keeps_shares() && !self.has_time() {
                self.current = Some(current);
                return Ok(Ended::Paused);
            }
            // Pressure is what batches cause, and a module may cause it for each.
            let is_of_batches =
                current.call.packets().is_some() || matches!(current.call, Call::Pressure { .. });
            let is_batch = current.call.packets().is_some();
            let has_grace = is_batch || matches!(current.call, Call::Init { .. });
            let phase = quantum.stop.phase();
            let overtime = (has_grace && phase.limits_batches()).then(Instant::now);
            let exceeded = Some(self.late).filter(|time| has_grace && *time >= STOP_GRACE);
            let started = self.payer.as_ref().unwrap_or(&self.cpu).start();
            let slice = match std::mem::replace(&mut self.state, RunState::Empty) {
                RunState::Busy(running) => match exceeded {
                    Some(time) => {
                        let fault = Fault::between(current.call.name(), FaultKind::Interrupted(time));
                        return Ok(Ended::Faulted(current.call, fault));
                    }
                    None => running.resume(),
                },
                RunState::Idle(instance) => {
                    if let Some(time) = exceeded.filter(|_| current.is_rest) {
                        let fault = Fault::between(CallName::Rest, FaultKind::Interrupted(time));
                        return Ok(Ended::Faulted(current.call, fault));
                    }
                    // Calls of services and their outcomes, of which others decide how many there are, leave
                    // the module's last calls what they need.
                    let is_of_others = matches!(current.call, Call::Serve(_) | Call::Done(_));
                    let is_last = !has_grace && !is_of_others;
                    if phase.is_last() && is_last && !current.allowance.is_last() {
                        current.allowance = Allowance::last(self.loaded.limits().call_budget);
                    }
                    if let Some(kind) = current.refused(self.loaded.limits()) {
                        let fault = Fault::between(current.next().name(), kind);
                        return Ok(Ended::Faulted(current.call, fault));
                    }
                    instance.begin(current.next(), current.allowance)
                }
                RunState::Empty => return Ok(Ended::Paused),
            };
            let cpu = self.payer.as_mut().unwrap_or(&mut self.cpu);
            self.spent += cpu.charge(started, is_of_batches);
            let over = overtime.map_or(Duration::ZERO, |began| began.elapsed());
            (self.overtime, self.late) = (self.overtime + over, self.late + over);
            let (mut instance, called) = match slice {
                Slice::Done(instance, called) => (instance, called),
                Slice::Yielded(running) => {
                    self.state = RunState::Busy(running);
                    self.current = Some(current);
                    if quantum.is_whole() {
                        continue;
                    }
                    return Ok(Ended::Paused);
                }
            };
            let Returned { output, more, rest, refused, allowance } = match instance.finish(called) {
                Ok(returned) => returned,
                Err(fault) => {
                    self.monitor(&current.call);
                    return Ok(Ended::Faulted(current.call, fault));
                }
            };
            if allowance.is_last() {
                self.last = self.last.saturating_add(allowance.since(&current.allowance));
            }
            current.allowance = allowance;
            self.has_refused = refused;
            if !output.bytes.is_empty() {
                let started = self.cpu.start();
                each(output)?;
                self.cpu.charge(started, false);
            }
            self.state = RunState::Idle(instance);
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

    /// Evicts the module, on all workers, if its batches exceeded their time limit too often.
    fn monitor(&mut self, call: &Call) {
        if let Some(count) = call.packets()
            && let Some(reason) = self.cpu.batch(count)
        {
            self.eviction.evict(reason);
        }
    }
}

impl Current {
    fn next(&self) -> &Call {
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
