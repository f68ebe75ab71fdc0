//! The one door to an instance: a [`Guard`] is alive from before a call is prepared until its output is
//! delivered, and every clock reads that interval.

use crate::caller::Current;
use crate::limit::{CpuMonitor, Started};
use crate::stop::{Phase, Quantum};
use flame_plan::Reason;
use flame_plan::limits::{OUTPUT_PIECE, STOP_GRACE};
use flame_quota::Meters;
use flame_run::{Allowance, Fault, Instance, Output, Pace, Pending, Slice, Suspended};
use std::time::{Duration, Instant};

/// An instance with the clocks of its calls.
pub(crate) struct Guarded {
    state: RunState,
    cpu: CpuMonitor,
    /// The monitor of the module for which the call is made, if that is another one.
    payer: Option<CpuMonitor>,
    times: CallTimes,
    /// The part in the use of the processor time that another thread has taken so far for a call.
    counted: Duration,
    /// The time of batches and init after a stop, once the time for what was read before is over.
    overtime: Duration,
}

/// The times of the current call.
#[derive(Clone, Copy, Default)]
pub(crate) struct CallTimes {
    /// The processor time so far, as far as it is measured.
    pub(crate) spent: Duration,
    /// The part in the overtime.
    pub(crate) late: Duration,
}

/// The state of the instance.
enum RunState {
    /// The instance is gone.
    Empty,
    /// The instance is between two calls.
    Idle(Box<Instance>),
    /// The instance is in a call that did not end within its slice.
    Busy(Suspended),
    /// A call has returned, which leaves this allowance, and its output is not yet delivered.
    Output(Box<Instance>, Pending, Allowance),
}

/// A step of a call: to its end or the end of its slice, or pieces of its output.
pub(crate) enum Step {
    /// The call continues.
    Paused,
    /// The call has ended, and its output is delivered. It left this allowance.
    Ended(Pending, Allowance),
    /// The instance is gone.
    Faulted(Fault),
}

/// An interval in which an instance works, or the host for it.
pub(crate) struct Guard<'a> {
    of: &'a mut Guarded,
    started: Option<Started>,
    /// The processor time of another thread for the call, once it has ended.
    apart: Duration,
    /// The beginning, if the time counts as overtime.
    since: Option<Instant>,
    is_of_batches: bool,
}

impl Guarded {
    pub(crate) fn new(cpu: CpuMonitor) -> Self {
        let (payer, times, counted, overtime) = Default::default();
        Self { state: RunState::Empty, cpu, payer, times, counted, overtime }
    }

    pub(crate) fn fill(&mut self, instance: Instance) {
        self.state = RunState::Idle(Box::new(instance));
    }

    pub(crate) fn clear(&mut self) {
        self.state = RunState::Empty;
    }

    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.state, RunState::Empty)
    }

    /// Returns the instance, if it is between two calls.
    pub(crate) fn idle(&mut self) -> Option<&mut Instance> {
        match &mut self.state {
            RunState::Idle(instance) => Some(instance),
            RunState::Empty | RunState::Busy(_) | RunState::Output(..) => None,
        }
    }

    /// Returns the processor time so far of a call in progress, if another thread makes it.
    pub(crate) fn time_apart(&self) -> Option<Duration> {
        match &self.state {
            RunState::Busy(running) => running.time_apart(),
            RunState::Empty | RunState::Idle(_) | RunState::Output(..) => None,
        }
    }

    /// Begins a call, whose processor time is charged to `payer`, if there is one.
    pub(crate) fn begin(&mut self, payer: Option<&Meters>) {
        self.payer = payer.map(|payer| CpuMonitor::new(payer, None));
        self.times = CallTimes::default();
    }

    /// Adds to the use what another thread took for a call, `so_far` in all: what waited for the end of the
    /// call would be nobody's until then.
    fn count_apart(&mut self, so_far: Duration) {
        let new = so_far.saturating_sub(self.counted);
        self.counted += new;
        self.payer.as_ref().unwrap_or(&self.cpu).count_apart(new);
    }

    pub(crate) fn times(&self) -> CallTimes {
        self.times
    }

    /// Returns whether no further batch begins, because the run was stopped.
    pub(crate) fn is_overdue(&self) -> bool {
        self.overtime >= STOP_GRACE
    }

    /// Returns whether the module's own share of time is not used up.
    pub(crate) fn has_own_time(&mut self) -> bool {
        self.cpu.may_begin()
    }

    /// Returns whether the call may continue. One that another module pays for began when that had time, and
    /// does not keep this one from its work by waiting for more.
    pub(crate) fn has_time(&mut self) -> bool {
        if self.payer.is_some() { self.may_serve() } else { self.has_own_time() }
    }

    /// Returns whether a call that another module pays for may begin.
    pub(crate) fn may_serve(&self) -> bool {
        !self.cpu.is_held()
    }

    /// Records a finished call, a batch of `packets` or another one; returns the reason for eviction if it
    /// exceeded the time limit.
    pub(crate) fn finish(&mut self, packets: Option<u32>) -> Option<Reason> {
        self.cpu.finish(packets)
    }

    /// Begins an interval of this call.
    pub(crate) fn open(&mut self, current: &Current, phase: Phase) -> Guard<'_> {
        let has_overtime = current.has_grace() && phase.limits_batches();
        Guard {
            started: self.payer.as_ref().unwrap_or(&self.cpu).start(),
            apart: Duration::ZERO,
            since: has_overtime.then(Instant::now),
            is_of_batches: current.is_of_batches(),
            of: self,
        }
    }
}

impl Guard<'_> {
    /// Advances the call, and delivers output to `each`, until the call ends or the quantum is over.
    ///
    /// # Errors
    ///
    /// Returns the error of `each`.
    pub(crate) fn advance<E>(
        &mut self,
        current: &Current,
        pace: Pace,
        quantum: &Quantum<'_>,
        each: &mut dyn FnMut(Output<'_>) -> Result<(), E>,
    ) -> Result<Step, E> {
        let slice = match std::mem::replace(&mut self.of.state, RunState::Empty) {
            RunState::Busy(running) => running.resume(),
            RunState::Idle(instance) => instance.begin(current.next(), current.allowance, pace),
            RunState::Output(instance, pending, left) => {
                return self.deliver(instance, pending, left, quantum, each);
            }
            RunState::Empty => return Ok(Step::Paused),
        };
        match slice {
            Slice::Yielded(running) => {
                self.of.count_apart(running.time_apart().unwrap_or_default());
                self.of.state = RunState::Busy(running);
                Ok(Step::Paused)
            }
            Slice::Done(mut instance, called) => {
                self.apart = called.time_apart();
                self.of.count_apart(self.apart);
                self.of.counted = Duration::ZERO;
                match instance.returned(called, current.output) {
                    Ok((pending, left)) => self.deliver(instance, pending, left, quantum, each),
                    Err(fault) => Ok(Step::Faulted(fault)),
                }
            }
        }
    }

    fn deliver<E>(
        &mut self,
        mut instance: Box<Instance>,
        mut pending: Pending,
        left: Allowance,
        quantum: &Quantum<'_>,
        each: &mut dyn FnMut(Output<'_>) -> Result<(), E>,
    ) -> Result<Step, E> {
        loop {
            match instance.check(&mut pending, OUTPUT_PIECE) {
                Err(fault) => return Ok(Step::Faulted(fault)),
                Ok(true) => break,
                Ok(false) if quantum.is_over() => {
                    self.of.state = RunState::Output(instance, pending, left);
                    return Ok(Step::Paused);
                }
                Ok(false) => {}
            }
        }
        while let Some(output) = instance.next_piece(&mut pending, OUTPUT_PIECE) {
            each(output)?;
            if !pending.is_delivered() && quantum.is_over() {
                self.of.state = RunState::Output(instance, pending, left);
                return Ok(Step::Paused);
            }
        }
        self.of.state = RunState::Idle(instance);
        Ok(Step::Ended(pending, left))
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let Guarded { cpu, payer, times, overtime, .. } = &mut *self.of;
        let cpu = payer.as_mut().unwrap_or(cpu);
        times.spent += cpu.charge(self.started, self.is_of_batches) + cpu.charge_apart(self.apart);
        let took = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        (times.late, *overtime) = (times.late + took, *overtime + took);
    }
}
