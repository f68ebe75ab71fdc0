//! The thread that reads the reports of a process, all of which are untrusted.

use super::event::ModuleEvent;
use super::process_state::Life;
use super::state::{Ending, State};
use crossbeam_channel::{Sender as Outbox, TrySendError};
use flame_execute::{Origin, Place};
use flame_plan::{FaultClass, FaultReport, Reason};
use flame_remote::{ChannelError, MAX_HEAD, Receiver, Report, StallRecorder};
use std::borrow::Cow;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of characters of a fault that a process reports.
const MAX_TEXT: usize = 4096;

/// The thread that reads reports.
pub(super) struct Reader {
    pub(super) receiver: Receiver,
    pub(super) life: Arc<Life>,
    /// The process's own queue to the collector. A process that fills it waits alone.
    pub(super) events: Outbox<ModuleEvent>,
    /// The time for which reports are handled, and that for which they wait for room in the queue.
    pub(super) handling: StallRecorder,
    pub(super) blocked: StallRecorder,
}

impl Reader {
    pub(super) fn run(mut self) {
        self.life.set_reader();
        let error = match self.read() {
            Ok(never) => match never {},
            Err(e) => e,
        };
        let text = self.life.end(&error);
        for state in self.life.take_modules() {
            let report = state.eviction_report().unwrap_or_else(|| {
                state.count_fault();
                report(&state, text.clone())
            });
            let _ = self.events.send(ModuleEvent::Fault(report));
            // If there is no collector any more, there is nothing to wait for.
            if self.events.send(ModuleEvent::Ended(state.clone())).is_err() {
                state.end();
            }
        }
    }

    /// Passes reports on until the connection ends.
    fn read(&mut self) -> Result<Infallible, ChannelError> {
        loop {
            self.receiver.receive(true)?;
            let _handling = self.handling.begin();
            self.pass_on()?;
        }
    }

    /// Passes the reports on that have arrived.
    fn pass_on(&mut self) -> Result<(), ChannelError> {
        let Self { receiver, life, events, blocked, .. } = self;
        let pass = |event| match events.try_send(event) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(event)) => {
                let _blocked = blocked.begin();
                events.send(event).map_err(|_| ChannelError::Closed)
            }
            Err(TrySendError::Disconnected(_)) => Err(ChannelError::Closed),
        };
        while let Some((head, body)) = receiver.next(MAX_HEAD)? {
            let id = match &head {
                Report::Output { module, .. }
                | Report::Sent { module }
                | Report::Decided { module, .. }
                | Report::Passed { module, .. }
                | Report::SlowPassed { module, .. }
                | Report::Account { module, .. }
                | Report::State { module, .. }
                | Report::Served { module, .. }
                | Report::Taken { module }
                | Report::Drained { module }
                | Report::Ended { module, .. } => *module,
                Report::Fault(fault) => fault.id,
                Report::Alive(number) => {
                    if !life.answer(*number) {
                        return Err(invalid(format!("an answer to ping {number}, which was not sent")));
                    }
                    continue;
                }
            };
            let Some(state) = life.module(id) else {
                if !life.count_stray() {
                    return Err(invalid("too many reports of modules that are not there".to_owned()));
                }
                continue;
            };
            if !matches!(head, Report::Fault(_) | Report::Ended { .. }) {
                state.work();
            }
            match head {
                Report::Output { worker, processed, .. } => {
                    if let Some(event) = output(&state, worker, body)? {
                        pass(event)?;
                        // Whoever finds the packets processed finds what came of them in the queue.
                        if let Some(worker) = worker {
                            state.raise_processed(worker, processed);
                        }
                    }
                }
                Report::Sent { .. } | Report::Decided { .. } if !state.forwards => {
                    return Err(invalid(format!("{} does not forward packets", state.name)));
                }
                Report::Sent { .. } => {
                    if let Some(bytes) = sent(&state, body)? {
                        pass(ModuleEvent::Sent(bytes))?;
                    }
                }
                Report::Decided { count, lost, .. } => {
                    pass(ModuleEvent::Decided { count, lost })?;
                }
                Report::Passed { worker, now_ns, .. } => {
                    if let Some(now_ns) = state.next_passed(worker, now_ns) {
                        pass(ModuleEvent::Passed { module: id, worker, now_ns })?;
                        state.set_passed(worker, now_ns);
                    }
                }
                Report::SlowPassed { now_ns, .. } => {
                    let (worker, now_ns) = (state.workers(), state.all_passed().min(now_ns));
                    pass(ModuleEvent::Passed { module: id, worker, now_ns })?;
                }
                Report::Fault(fault) => {
                    if let Some(report) = checked(&state, fault)? {
                        pass(ModuleEvent::Fault(report))?;
                    }
                }
                // No output that followed would be passed on: of those packets nothing was seen.
                Report::Account { .. } if state.eviction.reason().is_some() => {}
                Report::Account { worker, account, .. } => state.set_account(worker, account),
                Report::Served { call, ns, .. } => {
                    state.end_call(call, Duration::from_nanos(ns));
                    pass(ModuleEvent::Served { module: id, call })?;
                }
                Report::Taken { .. } => pass(ModuleEvent::Taken(id))?,
                Report::Drained { .. } => {
                    if !state.is_requested() || !state.advance(|now| now == Ending::Running, Ending::Reported)
                    {
                        return Err(invalid(format!("{} is not at its end", state.name)));
                    }
                    pass(ModuleEvent::Drained(id))?;
                }
                Report::State { worker, kept, .. } => {
                    let name = &state.name;
                    let kept = state.kept(Place::of(worker), kept, &body);
                    kept.map_err(|e| invalid(format!("{name}: {e}")))?;
                }
                Report::Ended { messages_lost, .. } => {
                    if !state.may_end() {
                        return Err(invalid(format!("it ended {}, which nobody removed", state.name)));
                    }
                    state.set_messages_lost(messages_lost);
                    life.leave(id);
                    if let Some(report) = state.eviction_report() {
                        pass(ModuleEvent::Fault(report))?;
                    }
                    pass(ModuleEvent::Ended(state))?;
                }
                Report::Alive(_) => {}
            }
        }
        Ok(())
    }
}

fn invalid(text: String) -> ChannelError {
    io::Error::new(io::ErrorKind::InvalidData, text).into()
}

/// Checks a fault. Returns `None` for one that was reported before.
fn checked(state: &State, fault: FaultReport) -> Result<Option<FaultReport>, ChannelError> {
    if let Some(reason) = fault.evicted {
        // The process measures the times of calls, and a module that lies about them ends only itself.
        if state.is_timed && matches!(reason, Reason::Overrun(_) | Reason::Calls { .. }) {
            state.eviction.evict(reason);
        }
        // The worker knows the reason, and reports it once.
        return Ok(state.eviction_report());
    }
    if !state.count_fault() {
        return Err(invalid(format!("more faults of {} than it has instances", state.name)));
    }
    if let Some(worker) = fault.worker.filter(|_| !fault.restarted) {
        state.die(worker);
    }
    if let (Some((_, FaultClass::CutOff(cause))), Some((watchdog, hash))) = (&fault.class, &state.violation) {
        watchdog.reported(hash, *cause);
    }
    let text = match state.meters.granted() {
        // A process may be in the hands of its module: no text that it composes leaves.
        true => match fault.class {
            Some((call, class)) => format!("{call}: {class}"),
            None => "a fault that its process did not describe".to_owned(),
        },
        false => fault.text.chars().take(MAX_TEXT).collect(),
    };
    let worker = fault.worker.filter(|worker| *worker < state.workers());
    let (id, module) = (state.id, state.name.clone());
    Ok(Some(FaultReport { id, module, worker, text, process: false, ..fault }))
}

/// Returns output of a module that forwards packets. Who has the packets checks it. Returns `None` for output
/// of a module that has been evicted, whose packets are lost.
fn sent(state: &State, body: Cow<'_, [u8]>) -> Result<Option<Vec<u8>>, ChannelError> {
    if body.len() > state.output {
        return Err(ChannelError::Length { head: 0, body: body.len() });
    }
    Ok(state.eviction.reason().is_none().then(|| body.into_owned()))
}

/// Checks output. Returns `None` for output of a module that has been evicted, whose records are lost.
fn output(
    state: &State,
    worker: Option<usize>,
    body: Cow<'_, [u8]>,
) -> Result<Option<ModuleEvent>, ChannelError> {
    if body.len() > state.output {
        return Err(ChannelError::Length { head: 0, body: body.len() });
    }
    // Messages were passed on in the process; any that are here have no receiver.
    let checked = state.schema.check(&body, true);
    let counts = checked.map_err(|e| invalid(format!("output of {}: {e}", state.name)))?;
    if state.eviction.reason().is_some() {
        state.lose(counts.records);
        return Ok(None);
    }
    // The slow instance has the number after those of the workers.
    let worker = worker.unwrap_or(usize::MAX).min(state.workers());
    let from = Origin::of(state.id, worker);
    Ok(Some(ModuleEvent::Output { from, bytes: body.into_owned() }))
}

fn report(state: &State, text: String) -> FaultReport {
    FaultReport { process: true, ..FaultReport::new(state.id, state.name.clone(), text) }
}
