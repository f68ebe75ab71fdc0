//! The output of one module, on its way to the sink.

use crate::error::RunError;
use crate::process::RemoteReference;
use crate::records::calls::Request;
use crate::records::channels::Channels;
use crate::records::charge;
use crate::records::faults::Faults;
use crate::records::loss::Losses;
use crate::records::outputs::Outputs;
use crate::records::report::{LossReason, Lost};
use crate::records::services::request_bytes;
use crate::records::undue::Undue;
use crossbeam_channel::Sender;
use flame_execute::{Charge, Quantum, SlowLoop};
use flame_output::{Frame, Gate, frames};
use flame_plan::limits::OUTPUT_PIECE;
use flame_plan::{Account, FaultReport, ModuleId, Unsent};
use flame_quota::{Meters, Usage};
use flame_record::Rows;
use flame_run::Output;
use std::sync::Arc;

/// A module whose output is collected.
pub(crate) struct Collected {
    pub(crate) id: ModuleId,
    pub(crate) name: String,
    pub(crate) rows: Rows,
    pub(crate) gate: Gate,
    pub(crate) channels: Channels,
    /// Its slow instance, if it is here. It is taken out for its calls, which is cheap only for a reference.
    pub(crate) slow: Option<Box<SlowLoop>>,
    /// The last tick that its fast instance on each worker has passed, if it runs in a process. That process
    /// has its slow instance.
    pub(crate) remote: Option<Vec<u64>>,
    /// The process in which it runs, if it does.
    pub(crate) process: Option<RemoteReference>,
    pub(crate) meters: Meters,
    pub(crate) granted: bool,
    pub(crate) usage: Option<Arc<Usage>>,
    pub(crate) account: Account,
    pub(crate) losses: Losses,
    /// The output that is not due yet, if its view shows whole intervals only.
    pub(crate) undue: Option<Undue>,
    /// The rest of its removal, once its fast instances have ended on all workers.
    pub(crate) last: Option<Last>,
}

/// The removal of a module whose fast instances have ended.
pub(crate) struct Last {
    /// The account of its fast instances.
    pub(crate) account: Account,
    pub(crate) now_ns: u64,
    pub(crate) reply: Sender<Account>,
    /// Whether its calls have ended.
    pub(crate) is_closed: bool,
    /// Whether the last call of the slow instance has begun.
    pub(crate) is_ending: bool,
}

impl Collected {
    /// Makes the last calls of the slow instance.
    pub(crate) fn end(
        &mut self,
        now_ns: u64,
        quantum: &Quantum<'_>,
        outputs: &mut Outputs<'_>,
        faults: &mut Faults<'_>,
    ) -> Result<(), RunError> {
        self.go(quantum, outputs, faults)?;
        if let Some(slow) = &mut self.slow {
            slow.start_end(now_ns);
            self.go(quantum, outputs, faults)?;
        }
        Ok(())
    }

    /// Returns whether it has no slow instance here.
    pub(crate) fn is_gone(&self) -> bool {
        self.slow.as_ref().is_none_or(|slow| slow.is_gone())
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.is_due() || self.slow.as_ref().is_some_and(|slow| slow.is_busy())
    }

    /// Returns whether output is due that has not left.
    pub(crate) fn is_due(&self) -> bool {
        self.undue.as_ref().is_some_and(Undue::is_due)
    }

    /// Lets output leave that is due, and makes waiting calls of the slow instance, until none is left or the
    /// quantum is over.
    pub(crate) fn go(
        &mut self,
        quantum: &Quantum<'_>,
        outputs: &mut Outputs<'_>,
        faults: &mut Faults<'_>,
    ) -> Result<(), RunError> {
        self.let_out(quantum, outputs)?;
        if self.is_due() {
            return Ok(());
        }
        self.call(quantum, outputs, faults)?;
        self.let_out(quantum, outputs)
    }

    /// Makes waiting calls of the slow instance until none is left or the quantum is over.
    fn call(
        &mut self,
        quantum: &Quantum<'_>,
        outputs: &mut Outputs<'_>,
        faults: &mut Faults<'_>,
    ) -> Result<(), RunError> {
        let Some(mut slow) = self.slow.take() else { return Ok(()) };
        let fault = loop {
            let payer = slow.payer().and_then(Meters::usage).cloned();
            let _charged = charge::enter(payer.as_ref().or(self.usage.as_ref()));
            let fault = slow.go(quantum, &mut |since_ns, output| self.rows_of(since_ns, output, outputs));
            if !slow.is_split() || !matches!(fault, Ok(None)) {
                break fault;
            }
        };
        for call in slow.take_refused() {
            outputs.services.refuse(self.id, call);
        }
        for (call, _) in slow.take_served() {
            outputs.services.made(self.id, call);
        }
        (0..slow.take_taken()).for_each(|_| outputs.services.taken(self.id));
        if slow.is_gone() {
            outputs.services.leave(self.id);
        }
        let lost = slow.take_lost();
        self.slow = Some(slow);
        self.lose_messages(lost);
        self.fault(fault?, faults);
        if let (Some(slow), Some(undue)) = (&self.slow, &mut self.undue) {
            undue.pass(undue.slow(), slow.passed_tick());
        }
        Ok(())
    }

    /// Records that an instance has passed the tick at `now_ns`, by the number of its worker.
    pub(crate) fn pass(&mut self, instance: usize, now_ns: u64) {
        if let Some(undue) = &mut self.undue {
            undue.pass(instance, now_ns);
        }
    }

    /// Lets output leave that is due, until the quantum is over, and then the outcomes of calls of its
    /// services. The module pays for that.
    fn let_out(&mut self, quantum: &Quantum<'_>, outputs: &mut Outputs<'_>) -> Result<(), RunError> {
        if !self.is_due() {
            return Ok(());
        }
        let _charged = charge::enter(self.usage.as_ref());
        let _charge = Charge::begin(&self.meters);
        let mut has_left = false;
        while let Some((due, mut at)) = self.undue.as_mut().and_then(Undue::take_due) {
            has_left = true;
            let mut piece = 0;
            for (frame, bytes) in frames(&due[at..]).with_bytes() {
                self.pass_on(frame, true, outputs)?;
                piece += bytes.len();
                if piece >= OUTPUT_PIECE && quantum.is_over() {
                    break;
                }
            }
            at += piece;
            if at < due.len() {
                if let Some(undue) = &mut self.undue {
                    undue.put_back(due, at);
                }
                return Ok(());
            }
        }
        outputs.services.end_interval(self.id);
        if !has_left {
            return Ok(());
        }
        // The next tick, at which rows become visible, may be far away.
        self.flush(outputs)?;
        Ok(outputs.sink.flush()?)
    }

    /// Lets the output leave of a module whose last interval has ended. What follows is due at once.
    pub(crate) fn complete(
        &mut self,
        quantum: &Quantum<'_>,
        outputs: &mut Outputs<'_>,
    ) -> Result<(), RunError> {
        match self.undue.as_mut().filter(|undue| undue.open_since().is_some()) {
            Some(undue) => undue.complete(),
            None => return Ok(()),
        }
        self.let_out(quantum, outputs)?;
        self.undue = None;
        Ok(())
    }

    /// Counts messages as lost.
    pub(crate) fn lose_messages(&mut self, lost: u64) {
        self.account.messages_lost += lost;
        self.losses.add(LossReason::Messages, None, lost);
    }

    /// Returns whether it takes outcomes of calls.
    pub(crate) fn takes_outcomes(&self) -> bool {
        let slow = || self.slow.as_ref().is_some_and(|slow| !slow.is_gone());
        self.process.as_ref().map_or_else(slow, RemoteReference::takes_calls)
    }

    /// Returns whether it takes calls of services.
    pub(crate) fn takes_calls(&self) -> bool {
        self.last.is_none() && self.takes_outcomes()
    }

    /// Passes a call of a service on. `payer` are the meters of its caller.
    pub(crate) fn serve(&mut self, request: &Request, payer: &Meters) {
        let bytes = request_bytes(request);
        if let Some(process) = &self.process {
            process.serve(request.call, bytes, payer);
        } else if let Some(slow) = &mut self.slow {
            slow.serve(request.call, bytes, payer.clone());
        }
    }

    /// Passes the outcome of a call on.
    pub(crate) fn done(&mut self, outcome: Vec<u8>) {
        if let Some(process) = &self.process {
            process.done(outcome);
        } else if let Some(slow) = &mut self.slow {
            slow.done(outcome);
        }
    }

    /// Records the fault with which the slow instance ended.
    pub(crate) fn fault(&mut self, fault: Option<FaultReport>, faults: &mut Faults<'_>) {
        self.account.faults += u64::from(fault.is_some());
        if let Some(fault) = fault {
            faults.add(fault);
        }
    }

    /// Handles a frame of an instance, by the number of its worker or that of the slow one.
    pub(crate) fn take(
        &mut self,
        instance: usize,
        (frame, bytes): (Frame<'_>, &[u8]),
        outputs: &mut Outputs<'_>,
    ) -> Result<(), RunError> {
        // Those who forward packets have decided on these.
        if matches!(frame, Frame::Send { .. } | Frame::Held(_)) {
            return Ok(());
        }
        let lets = self.gate.lets(&frame);
        match &mut self.undue {
            Some(undue) if lets && !matches!(frame, Frame::Lost { .. } | Frame::Message(_)) => {
                if undue.keep(instance, bytes) { Ok(()) } else { self.pass_on(frame, false, outputs) }
            }
            _ => self.pass_on(frame, lets, outputs),
        }
    }

    /// Passes a frame on, or counts it as withheld.
    fn pass_on(&mut self, frame: Frame<'_>, lets: bool, outputs: &mut Outputs<'_>) -> Result<(), RunError> {
        match frame {
            Frame::Lost { records, table } => {
                self.account.records_lost = self.account.records_lost.saturating_add(records);
                match table {
                    Some(table) => self.losses.add_rows(LossReason::Module, table, records),
                    None => self.losses.add(LossReason::Module, None, records),
                }
            }
            Frame::Packet(packet) if lets => {
                self.account.written += 1;
                outputs.sink.packet(packet)?;
            }
            Frame::Record { table, row } if lets => {
                self.account.records += 1;
                if let Some((table, batch)) = self.rows.push(table, row) {
                    let result = outputs.sink.write(&self.name, table, &batch);
                    self.losses.written(result, &table.name, batch.num_rows(), &mut self.account)?;
                }
            }
            Frame::Packet(_) => {
                self.account.withheld += 1;
                self.losses.add(LossReason::Packets, None, 1);
            }
            Frame::Record { table, .. } => {
                self.account.withheld += 1;
                self.losses.add_rows(LossReason::Limit, table, 1);
            }
            Frame::Log(text) if lets => {
                self.account.logged += 1;
                outputs.events.log(&self.name, text);
            }
            Frame::Log(_) => self.account.logs_dropped += 1,
            Frame::Channel { channel, bytes } if lets => {
                self.channels.send(channel, bytes, outputs.now_ns, &mut self.account);
            }
            Frame::Channel { .. } => self.account.unsent(Unsent::Rate, 1),
            Frame::Call { used, token, request } => {
                let call = (self.id, used, token);
                let is_out = lets && outputs.services.call(call, request, &self.meters);
                self.account.calls += u64::from(is_out);
                self.account.calls_lost += u64::from(!is_out);
            }
            Frame::Reply { call, reply } => {
                let is_taken = lets && outputs.services.reply(self.id, call, reply);
                self.account.replies += u64::from(is_taken);
                self.account.replies_lost += u64::from(!is_taken);
            }
            // Messages of a slow instance have no receiver.
            Frame::Message(_) | Frame::Send { .. } | Frame::Held(_) => {}
        }
        Ok(())
    }

    pub(crate) fn flush(&mut self, outputs: &mut Outputs<'_>) -> Result<(), RunError> {
        for (table, batch) in self.rows.drain() {
            let result = outputs.sink.write(&self.name, table, &batch);
            self.losses.written(result, &table.name, batch.num_rows(), &mut self.account)?;
        }
        Ok(())
    }

    /// Returns what the module lost. Nothing that a grant withholds is lost, and what a module under one
    /// states of its losses is not reported.
    pub(crate) fn take_losses(&mut self) -> Vec<Lost> {
        let losses = std::mem::take(&mut self.losses);
        if self.granted { Vec::new() } else { losses.report(&self.name, self.rows.tables()) }
    }

    /// Handles output that the slow instance here made after the tick at `since_ns`.
    fn rows_of(
        &mut self,
        since_ns: u64,
        output: Output<'_>,
        outputs: &mut Outputs<'_>,
    ) -> Result<(), RunError> {
        let slow = self.undue.as_ref().map_or(0, Undue::slow);
        self.pass(slow, since_ns);
        frames(output.bytes).with_bytes().try_for_each(|frame| self.take(slow, frame, outputs))
    }
}
