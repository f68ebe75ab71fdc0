use crate::caller::{Caller, Ended};
use crate::pipeline::Outlet;
use crate::report::FaultReport;
use crate::run::RunError;
use crate::runner::From;
use crate::stop::{Quantum, Stop};
use flame_output::{Frame, Gate, frames};
use flame_plan::{Account, Plan, quantize};
use flame_record::{Rows, Sink};
use flame_run::{Allowance, Call, Fault, Loaded, Output, Role};
use std::collections::VecDeque;

/// Bytes of messages that may wait for a slow instance, on live sources; what is beyond is lost, and counted.
const QUEUED: usize = 64 << 20;

/// What a message that waits takes beside its bytes.
const ENTRY: usize = 64;

/// The end of the way: messages go to the slow instances, rows to the sink.
///
/// Slow instances tick only when their fast ones have passed the tick on every worker, so that what they report does
/// not depend on how workers are scheduled.
pub struct Collector<'a> {
    modules: Vec<Collected>,
    sink: &'a mut dyn Sink,
    stop: &'a Stop<'a>,
    /// The source loses what is not taken in time: messages wait for their quantum.
    is_live: bool,
    pub faults: Vec<FaultReport>,
    /// Per worker: the last tick it passed.
    passed: Vec<u64>,
    ticked: u64,
}

struct Collected {
    name: String,
    rows: Rows,
    gate: Gate,
    resolution_ns: u64,
    /// The last tick, at that resolution.
    ticked: u64,
    /// The last tick of all workers' pipelines, and the last that was passed on.
    due: u64,
    done: u64,
    /// Per worker: the last tick that the fast instance passed, and what is left for its call's messages.
    passed: Vec<u64>,
    allowances: Vec<Option<Allowance>>,
    slow: Option<Caller>,
    queue: VecDeque<Task>,
    /// Bytes of the messages in `queue`.
    queued: usize,
    /// The worker whose message the slow instance is at.
    worker: usize,
    granted: bool,
    account: Account,
}

/// A call of a slow instance that waits.
enum Task {
    Message {
        worker: usize,
        /// Whether it is the first of its fast call.
        is_first: bool,
        bytes: Vec<u8>,
    },
    Tick(u64),
}

impl<'a> Collector<'a> {
    pub(crate) fn new(
        plan: &Plan,
        loaded: &[Loaded],
        sink: &'a mut dyn Sink,
        stop: &'a Stop<'a>,
        is_live: bool,
    ) -> Result<Self, RunError> {
        let mut collector = Self {
            modules: Vec::new(),
            sink,
            stop,
            is_live,
            faults: Vec::new(),
            passed: vec![0; plan.workers],
            ticked: 0,
        };
        for (p, loaded) in plan.modules.iter().zip(loaded) {
            let mut module = Collected {
                name: p.name.clone(),
                rows: Rows::new(&p.catalog_entry()),
                gate: Gate::new(&p.manifest, &p.terms),
                resolution_ns: p.view.resolution_ns,
                ticked: 0,
                due: 0,
                done: 0,
                passed: vec![0; plan.workers],
                allowances: vec![None; plan.workers],
                slow: None,
                queue: VecDeque::new(),
                queued: 0,
                worker: 0,
                granted: p.terms.meters.granted(),
                account: Account::default(),
            };
            if loaded.has_slow_path() {
                let mut slow = Caller::new(plan, p, loaded, Role::Slow, is_live);
                match slow.launch(false) {
                    Ok(()) => module.slow = Some(slow),
                    Err(fault) => collector.faults.push(module.ended(&fault)),
                }
            }
            collector.modules.push(module);
            collector.go(collector.modules.len() - 1)?;
        }
        Ok(collector)
    }

    /// Takes checked output of a fast instance.
    pub(crate) fn output(&mut self, from: From, bytes: &[u8]) -> Result<(), RunError> {
        let mut is_first = from.is_first;
        for frame in frames(bytes) {
            let m = &mut self.modules[from.module];
            let Frame::Message(message) = frame else {
                m.take(frame, self.sink)?;
                continue;
            };
            if m.slow.is_none() || (self.is_live && m.queued + message.len() + ENTRY > QUEUED) {
                m.account.messages_lost += 1;
                continue;
            }
            let is_first = std::mem::take(&mut is_first);
            m.queued += message.len() + ENTRY;
            m.queue.push_back(Task::Message { worker: from.worker, is_first, bytes: message.to_vec() });
            if !self.is_live {
                self.go(from.module)?;
            }
        }
        Ok(())
    }

    /// Worker `worker` has passed the tick at `now_ns`.
    pub(crate) fn tick(&mut self, worker: usize, now_ns: u64) -> Result<(), RunError> {
        self.passed[worker] = now_ns;
        let all = self.passed.iter().copied().min().unwrap_or(0);
        if all > self.ticked {
            self.modules.iter_mut().for_each(|m| m.gate.tick(all));
            self.ticked = all;
            for module in 0..self.modules.len() {
                let m = &mut self.modules[module];
                m.due = all;
                m.tick();
                self.go(module)?;
            }
            for m in &mut self.modules {
                m.flush(self.sink)?;
            }
            self.sink.flush()?;
            if self.sink.closed() {
                self.stop.set();
            }
        }
        Ok(())
    }

    /// A module's fast instance has passed the tick.
    pub(crate) fn passed(&mut self, module: usize, worker: usize, now_ns: u64) -> Result<(), RunError> {
        let m = &mut self.modules[module];
        m.passed[worker] = now_ns;
        m.tick();
        self.go(module)
    }

    /// Whether a turn would bring a slow instance on.
    pub(crate) fn can_progress(&mut self) -> bool {
        self.modules.iter_mut().any(|m| {
            let waits = !m.queue.is_empty();
            m.slow.as_mut().is_some_and(|slow| (waits || slow.is_busy()) && slow.may_begin())
        })
    }

    /// Gives each slow instance for which something waits one quantum.
    pub(crate) fn resume(&mut self) -> Result<(), RunError> {
        (0..self.modules.len()).try_for_each(|module| self.go(module))
    }

    fn go(&mut self, module: usize) -> Result<(), RunError> {
        let quantum = if self.is_live { Quantum::slice(self.stop) } else { Quantum::whole(self.stop) };
        self.modules[module].go(&quantum, self.sink, &mut self.faults)
    }

    /// Ends the slow instances and gives out the records and losses of each module.
    pub(crate) fn end(mut self, now_ns: u64) -> Result<(Vec<Account>, Vec<FaultReport>), RunError> {
        let quantum = Quantum::whole(self.stop);
        for m in &mut self.modules {
            m.go(&quantum, self.sink, &mut self.faults)?;
            let now_ns = quantize(now_ns, m.resolution_ns);
            if let Some(slow) = &mut m.slow {
                slow.start(Call::End { now_ns }, slow.allowance());
                m.go(&quantum, self.sink, &mut self.faults)?;
            }
        }
        for m in &mut self.modules {
            m.flush(self.sink)?;
        }
        Ok((self.modules.into_iter().map(|m| m.account).collect(), self.faults))
    }
}

impl Collected {
    /// Lets the slow instance tick if all workers have passed the tick that is due.
    fn tick(&mut self) {
        if self.due <= self.done || self.passed.iter().any(|passed| *passed < self.due) {
            return;
        }
        self.done = self.due;
        let now_ns = quantize(self.due, self.resolution_ns);
        if now_ns <= std::mem::replace(&mut self.ticked, now_ns) || self.slow.is_none() {
            return;
        }
        match self.queue.back_mut() {
            Some(Task::Tick(due)) => *due = now_ns,
            _ => self.queue.push_back(Task::Tick(now_ns)),
        }
    }

    /// Makes the calls that wait, until none does, or others have waited long enough.
    fn go(
        &mut self,
        quantum: &Quantum<'_>,
        sink: &mut dyn Sink,
        faults: &mut Vec<FaultReport>,
    ) -> Result<(), RunError> {
        let Some(mut slow) = self.slow.take() else { return Ok(()) };
        while slow.is_busy() || self.start_next(&mut slow) {
            match slow.go(quantum, &mut |output| self.rows_of(output, sink))? {
                Ended::Paused => break,
                Ended::Done(Call::Message(_), allowance) => self.allowances[self.worker] = Some(allowance),
                Ended::Done(..) => {}
                Ended::Faulted(call, fault) => {
                    self.gone(&call);
                    faults.push(self.ended(&fault));
                    return Ok(());
                }
                // The fast instances say why.
                Ended::Evicted(call, _) => {
                    self.gone(&call);
                    return Ok(());
                }
            }
            if quantum.is_over() {
                break;
            }
        }
        self.slow = Some(slow);
        Ok(())
    }

    fn start_next(&mut self, slow: &mut Caller) -> bool {
        match self.queue.pop_front() {
            None => return false,
            Some(Task::Tick(now_ns)) => slow.start(Call::Tick { now_ns }, slow.allowance()),
            Some(Task::Message { worker, is_first, bytes }) => {
                self.queued = self.queued.saturating_sub(bytes.len() + ENTRY);
                self.worker = worker;
                let left = self.allowances[worker].filter(|_| !is_first);
                slow.start(Call::Message(bytes), left.unwrap_or_else(|| slow.allowance()));
            }
        }
        true
    }

    /// Counts what nobody takes any more: the message that the slow instance was at, and those that wait.
    fn gone(&mut self, call: &Call) {
        let waiting = self.queue.drain(..).filter(|task| matches!(task, Task::Message { .. })).count() as u64;
        self.account.messages_lost += waiting + u64::from(matches!(call, Call::Message(_)));
        self.queued = 0;
    }

    fn take(&mut self, frame: Frame<'_>, sink: &mut dyn Sink) -> Result<(), RunError> {
        match frame {
            Frame::Lost(records) => {
                self.account.records_lost = self.account.records_lost.saturating_add(records)
            }
            Frame::Packet(packet) if self.gate.lets_packet(packet.bytes.len() as u64) => {
                self.account.written += 1;
                sink.packet(packet)?;
            }
            Frame::Record { table, row } if self.gate.lets(table, row) => {
                self.account.records += 1;
                if let Some((table, batch)) = self.rows.push(table, row) {
                    sink.write(&self.name, table, &batch)?;
                }
            }
            Frame::Packet(_) | Frame::Record { .. } => self.account.withheld += 1,
            // The slow path has nobody to send messages to.
            Frame::Message(_) => {}
        }
        Ok(())
    }

    fn flush(&mut self, sink: &mut dyn Sink) -> Result<(), RunError> {
        for (table, batch) in self.rows.drain() {
            sink.write(&self.name, table, &batch)?;
        }
        Ok(())
    }

    fn rows_of(&mut self, output: Output<'_>, sink: &mut dyn Sink) -> Result<(), RunError> {
        frames(output.bytes).try_for_each(|frame| self.take(frame, sink))
    }

    /// The slow instance is gone; what the fast ones send it from now on is not merged.
    fn ended(&mut self, fault: &Fault) -> FaultReport {
        self.slow = None;
        self.account.faults += 1;
        let text = fault.text(self.granted);
        FaultReport { module: self.name.clone(), worker: None, packet: None, text, restarted: false }
    }
}

/// For one worker: the pipeline's output needs no queue.
impl Outlet for Collector<'_> {
    fn output(&mut self, from: From, output: Output<'_>) -> Result<(), RunError> {
        Collector::output(self, from, output.bytes)
    }

    fn fault(&mut self, _: usize, report: FaultReport) -> Result<(), RunError> {
        self.faults.push(report);
        Ok(())
    }

    fn passed(&mut self, module: usize, worker: usize, now_ns: u64) -> Result<(), RunError> {
        Collector::passed(self, module, worker, now_ns)
    }
}
