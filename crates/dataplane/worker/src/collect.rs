use crate::caller::{Caller, Ended};
use crate::error::RunError;
use crate::module::{LoadedModule, Shape};
use crate::outlet::{Event, Origin, Outlet, Removed};
use crate::report::{FaultReport, Report};
use crate::stop::{Quantum, Stop};
use crate::wiring::{Ends, QUEUE};
use crossbeam_channel::{Receiver, Sender, TryRecvError};
use flame_output::{Frame, Gate, frames};
use flame_plan::{Account, ModuleId, quantize};
use flame_record::{Rows, Sink, SinkError};
use flame_run::{Allowance, Call, Fault, Output, Role};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The maximum number of bytes of messages that wait for a slow instance, on live sources. Further ones are
/// lost, and counted.
const QUEUED: usize = 64 << 20;

/// The number of bytes that a waiting message takes in addition to its own.
const ENTRY: usize = 64;

/// The last step of the pipeline: passes messages to the slow instances and rows to the sink.
///
/// Slow instances tick only when their fast ones have passed the tick on every worker, so that their reports
/// do not depend on the scheduling of workers.
pub struct Collector<'a> {
    shape: Shape,
    modules: Vec<Collected>,
    /// The modules being removed: their accounts, the number of workers on which they have not ended, and the
    /// latest packet time at which they ended.
    leaving: BTreeMap<ModuleId, (Account, usize, u64)>,
    ended: BTreeMap<ModuleId, (String, Account)>,
    /// The names of the modules that ran under a grant.
    granted: BTreeSet<String>,
    outputs: Outputs<'a>,
    stop: &'a Stop<'a>,
    /// Whether the source loses packets that are not taken in time. If so, messages wait for their quantum.
    is_live: bool,
    pub faults: Vec<FaultReport>,
    /// The last tick that each worker passed.
    passed: Vec<u64>,
    ticked: u64,
}

/// The destinations of output.
pub(crate) struct Outputs<'a> {
    pub(crate) sink: &'a mut dyn Sink,
    /// Receives the name of a module and its text for the operator.
    pub(crate) log: &'a dyn Fn(&str, &str),
}

struct Collected {
    id: ModuleId,
    name: String,
    rows: Rows,
    gate: Gate,
    resolution_ns: u64,
    /// The last tick, at the module's resolution.
    ticked: u64,
    /// The last tick that the pipelines of all workers passed.
    due: u64,
    /// The last tick that was passed on to the slow instance.
    done: u64,
    /// The last tick that each worker's fast instance passed.
    passed: Vec<u64>,
    /// The rest of the allowance for the messages of each fast instance's current call.
    allowances: Vec<Option<Allowance>>,
    slow: Option<Caller>,
    queue: VecDeque<Task>,
    /// The number of bytes of the messages in `queue`.
    queued: usize,
    /// The worker whose message the slow instance processes.
    worker: usize,
    granted: bool,
    account: Account,
    /// The rest of its removal, once its fast instances have ended on all workers.
    last: Option<Last>,
}

/// The removal of a module whose fast instances have ended.
struct Last {
    /// The account of its fast instances.
    account: Account,
    now_ns: u64,
    reply: Sender<Account>,
    /// Whether the last call of the slow instance has begun.
    is_ending: bool,
}

/// A waiting call of a slow instance.
enum Task {
    Message {
        worker: usize,
        /// Whether this is the first message of its fast call.
        is_first: bool,
        bytes: Vec<u8>,
    },
    Tick(u64),
}

impl<'a> Collector<'a> {
    pub(crate) fn new(
        shape: Shape,
        modules: &[LoadedModule],
        outputs: Outputs<'a>,
        stop: &'a Stop<'a>,
        is_live: bool,
    ) -> Result<Self, RunError> {
        let mut collector = Self {
            shape,
            modules: Vec::new(),
            leaving: BTreeMap::new(),
            ended: BTreeMap::new(),
            granted: BTreeSet::new(),
            outputs,
            stop,
            is_live,
            faults: Vec::new(),
            passed: vec![0; shape.workers],
            ticked: 0,
        };
        modules.iter().try_for_each(|module| collector.add(module))?;
        Ok(collector)
    }

    /// Adds a module, before any pipeline sends output of it.
    pub(crate) fn add(&mut self, module: &LoadedModule) -> Result<(), RunError> {
        let p = &module.plan;
        let mut collected = Collected {
            id: p.id,
            name: p.name.clone(),
            rows: Rows::new(&p.catalog_entry()),
            gate: Gate::new(&p.manifest, &p.terms, &module.meters),
            resolution_ns: p.view.resolution_ns,
            ticked: 0,
            due: self.ticked,
            done: self.ticked,
            passed: vec![0; self.shape.workers],
            allowances: vec![None; self.shape.workers],
            slow: None,
            queue: VecDeque::new(),
            queued: 0,
            worker: 0,
            granted: module.meters.granted(),
            account: Account::default(),
            last: None,
        };
        if collected.granted {
            self.granted.insert(p.name.clone());
        }
        collected.gate.tick(self.ticked);
        if module.loaded.has_slow_path() {
            let mut slow = Caller::new(self.shape, module, Role::Slow, self.is_live);
            match slow.launch(false) {
                Ok(()) => collected.slow = Some(slow),
                Err(fault) => self.faults.push(collected.ended(&fault)),
            }
        }
        self.modules.push(collected);
        self.go(self.modules.len() - 1)
    }

    fn place(&self, id: ModuleId) -> Option<usize> {
        self.modules.iter().position(|m| m.id == id)
    }

    /// Returns the accounts of records and messages. Those of packets belong to the pipelines.
    pub(crate) fn accounts(&self) -> Vec<(ModuleId, Account)> {
        self.modules.iter().map(|m| (m.id, m.account.clone())).collect()
    }

    /// Removes a module that has ended on one worker. Its slow instance ends after the last.
    pub(crate) fn removed(&mut self, removed: Removed) -> Result<(), RunError> {
        let Removed { module, account, now_ns, reply } = removed;
        let (total, left, latest) =
            self.leaving.entry(module).or_insert((Account::default(), self.shape.workers, 0));
        total.add(&account);
        // The workers end it in any order, which must not show in its last call.
        *latest = now_ns.max(*latest);
        *left = left.saturating_sub(1);
        if *left > 0 {
            return Ok(());
        }
        let (account, _, now_ns) = self.leaving.remove(&module).unwrap_or_default();
        match self.place(module) {
            Some(at) => {
                self.modules[at].last = Some(Last { account, now_ns, reply, is_ending: false });
                self.drain(at).map(drop)
            }
            None => {
                let _ = reply.send(account);
                Ok(())
            }
        }
    }

    /// Gives a quantum to a module whose fast instances have ended, and returns whether it is gone. Other
    /// modules do not wait for it on live sources: a slow instance may have many messages left.
    fn drain(&mut self, at: usize) -> Result<bool, RunError> {
        let quantum = match self.is_live {
            true => Quantum::slice(self.stop).ending(),
            false => Quantum::whole(self.stop),
        };
        let m = &mut self.modules[at];
        m.go(&quantum, &mut self.outputs, &mut self.faults)?;
        let now_ns = match &mut m.last {
            Some(last) if !m.slow.as_ref().is_some_and(|slow| slow.is_busy() || !m.queue.is_empty()) => {
                (!std::mem::replace(&mut last.is_ending, true)).then_some(last.now_ns)
            }
            _ => return Ok(false),
        };
        if let (Some(now_ns), Some(slow)) = (now_ns, &mut m.slow) {
            slow.start(Call::End { now_ns: quantize(now_ns, m.resolution_ns) }, slow.allowance());
            m.go(&quantum, &mut self.outputs, &mut self.faults)?;
            if m.slow.as_ref().is_some_and(Caller::is_busy) {
                return Ok(false);
            }
        }
        let mut m = self.modules.remove(at);
        m.flush(&mut self.outputs)?;
        let Some(Last { account: mut total, reply, .. }) = m.last else { return Ok(true) };
        total.add(&m.account);
        self.ended.insert(m.id, (m.name, total.clone()));
        // This fails only if nobody waits for the reply any more.
        let _ = reply.send(total);
        Ok(true)
    }

    /// Processes checked output of a fast instance.
    pub(crate) fn output(&mut self, from: Origin, bytes: &[u8]) -> Result<(), RunError> {
        let mut is_first = from.is_first;
        let Some(at) = self.place(from.module) else { return Ok(()) };
        for frame in frames(bytes) {
            let m = &mut self.modules[at];
            let Frame::Message(message) = frame else {
                m.take(frame, &mut self.outputs)?;
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
                self.go(at)?;
            }
        }
        Ok(())
    }

    /// Records that worker `worker` has passed the tick at `now_ns`.
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
                m.flush(&mut self.outputs)?;
            }
            self.outputs.sink.flush()?;
            if self.outputs.sink.closed() {
                self.stop.set();
            }
        }
        Ok(())
    }

    /// Records that a module's fast instance has passed the tick.
    pub(crate) fn passed(&mut self, module: ModuleId, worker: usize, now_ns: u64) -> Result<(), RunError> {
        let Some(at) = self.place(module) else { return Ok(()) };
        let m = &mut self.modules[at];
        m.passed[worker] = now_ns;
        m.tick();
        self.go(at)
    }

    /// Returns whether a quantum would advance a slow instance.
    pub(crate) fn can_progress(&mut self) -> bool {
        self.modules.iter_mut().any(|m| {
            if m.last.is_some() {
                return true;
            }
            let waits = !m.queue.is_empty();
            m.slow.as_mut().is_some_and(|slow| (waits || slow.is_busy()) && slow.may_begin())
        })
    }

    /// Gives one quantum to each slow instance with waiting calls.
    pub(crate) fn resume(&mut self) -> Result<(), RunError> {
        let mut at = 0;
        while at < self.modules.len() {
            if self.modules[at].last.is_none() {
                self.go(at)?;
            } else if self.drain(at)? {
                continue;
            }
            at += 1;
        }
        Ok(())
    }

    fn go(&mut self, module: usize) -> Result<(), RunError> {
        let quantum = if self.is_live { Quantum::slice(self.stop) } else { Quantum::whole(self.stop) };
        self.modules[module].go(&quantum, &mut self.outputs, &mut self.faults)
    }

    /// Ends the slow instances and returns the report of the modules. `accounts` are those of the pipelines.
    pub(crate) fn end(mut self, now_ns: u64, accounts: Vec<(ModuleId, Account)>) -> Result<Report, RunError> {
        while self.modules.iter().any(|m| m.last.is_some()) {
            self.resume()?;
        }
        let quantum = Quantum::whole(self.stop);
        for m in &mut self.modules {
            m.end(now_ns, &quantum, &mut self.outputs, &mut self.faults)?;
        }
        for m in &mut self.modules {
            m.flush(&mut self.outputs)?;
        }
        let mut all = self.ended;
        all.extend(self.modules.into_iter().map(|m| (m.id, (m.name, m.account))));
        // A module may have been removed on some workers while others had ended already.
        let leaving = self.leaving.into_iter().map(|(id, (account, ..))| (id, account));
        for (id, account) in accounts.into_iter().chain(leaving) {
            if let Some((_, total)) = all.get_mut(&id) {
                total.add(&account);
            }
        }
        let mut report =
            Report { accounts: all.into_values().collect(), faults: self.faults, ..Report::default() };
        crate::granted::reduce(&self.granted, &mut report);
        Ok(report)
    }
}

impl Collected {
    /// Makes the last calls of the slow instance.
    fn end(
        &mut self,
        now_ns: u64,
        quantum: &Quantum<'_>,
        outputs: &mut Outputs<'_>,
        faults: &mut Vec<FaultReport>,
    ) -> Result<(), RunError> {
        self.go(quantum, outputs, faults)?;
        let now_ns = quantize(now_ns, self.resolution_ns);
        if let Some(slow) = &mut self.slow {
            slow.start(Call::End { now_ns }, slow.allowance());
            self.go(quantum, outputs, faults)?;
        }
        Ok(())
    }

    /// Queues a tick of the slow instance if all workers have passed the tick that is due.
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

    /// Makes waiting calls until none is left or the quantum is over.
    fn go(
        &mut self,
        quantum: &Quantum<'_>,
        outputs: &mut Outputs<'_>,
        faults: &mut Vec<FaultReport>,
    ) -> Result<(), RunError> {
        let Some(mut slow) = self.slow.take() else { return Ok(()) };
        while slow.is_busy() || self.start_next(&mut slow) {
            match slow.go(quantum, &mut |output| self.rows_of(output, outputs))? {
                Ended::Paused => break,
                Ended::Done(Call::Message(_), allowance) => self.allowances[self.worker] = Some(allowance),
                Ended::Done(..) => {}
                Ended::Faulted(call, fault) => {
                    self.gone(&call);
                    faults.push(self.ended(&fault));
                    return Ok(());
                }
                // The fast instances report the reason.
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

    /// Counts the messages that are lost with the slow instance: the current one and those that wait.
    fn gone(&mut self, call: &Call) {
        let waiting = self.queue.drain(..).filter(|task| matches!(task, Task::Message { .. })).count() as u64;
        self.account.messages_lost += waiting + u64::from(matches!(call, Call::Message(_)));
        self.queued = 0;
    }

    fn take(&mut self, frame: Frame<'_>, outputs: &mut Outputs<'_>) -> Result<(), RunError> {
        match frame {
            Frame::Lost(records) => {
                self.account.records_lost = self.account.records_lost.saturating_add(records)
            }
            Frame::Packet(packet) if self.gate.lets_packet(packet.bytes.len() as u64) => {
                self.account.written += 1;
                outputs.sink.packet(packet)?;
            }
            Frame::Record { table, row } if self.gate.lets(table, row) => {
                self.account.records += 1;
                if let Some((table, batch)) = self.rows.push(table, row) {
                    written(
                        outputs.sink.write(&self.name, table, &batch),
                        batch.num_rows(),
                        &mut self.account,
                    )?;
                }
            }
            Frame::Packet(_) | Frame::Record { .. } => self.account.withheld += 1,
            Frame::Log(text) if self.gate.lets_log(text.len() as u64) => {
                self.account.logged += 1;
                (outputs.log)(&self.name, text);
            }
            Frame::Log(_) => self.account.logs_dropped += 1,
            // Messages of a slow instance have no receiver.
            Frame::Message(_) => {}
        }
        Ok(())
    }

    fn flush(&mut self, outputs: &mut Outputs<'_>) -> Result<(), RunError> {
        for (table, batch) in self.rows.drain() {
            written(outputs.sink.write(&self.name, table, &batch), batch.num_rows(), &mut self.account)?;
        }
        Ok(())
    }

    fn rows_of(&mut self, output: Output<'_>, outputs: &mut Outputs<'_>) -> Result<(), RunError> {
        frames(output.bytes).try_for_each(|frame| self.take(frame, outputs))
    }

    /// Records that the slow instance is gone. Later messages to it are lost.
    fn ended(&mut self, fault: &Fault) -> FaultReport {
        self.slow = None;
        self.account.faults += 1;
        let text = fault.text(self.granted);
        let (id, module) = (self.id, self.name.clone());
        FaultReport { id, module, worker: None, packet: None, text, evicted: None, restarted: false }
    }
}

/// Counts the records of a module that was added after the sink fixed its files as lost, which ends no run.
fn written(result: Result<(), SinkError>, rows: usize, account: &mut Account) -> Result<(), RunError> {
    match result {
        Err(SinkError::Unplanned { .. }) => {
            account.records = account.records.saturating_sub(rows as u64);
            account.records_lost = account.records_lost.saturating_add(rows as u64);
            Ok(())
        }
        result => Ok(result?),
    }
}

/// With one worker, the output of the pipeline needs no queue.
impl Outlet for Collector<'_> {
    fn output(&mut self, from: Origin, output: Output<'_>) -> Result<(), RunError> {
        Collector::output(self, from, output.bytes)
    }

    fn fault(&mut self, report: FaultReport) -> Result<(), RunError> {
        self.faults.push(report);
        Ok(())
    }

    fn passed(&mut self, module: ModuleId, worker: usize, now_ns: u64) -> Result<(), RunError> {
        Collector::passed(self, module, worker, now_ns)
    }

    fn removed(&mut self, removed: Removed) -> Result<(), RunError> {
        Collector::removed(self, removed)
    }
}

/// Collects until every worker has ended or one has failed.
pub(crate) fn collect(
    inbox: &Receiver<Event>,
    collector: &mut Collector<'_>,
    workers: usize,
) -> Result<Ends, RunError> {
    let mut all = Vec::new();
    let mut last = 0;
    let mut ended = 0;
    let mut broken = false;
    // The number of events since slow instances had a quantum. They receive one when no event waits, and
    // after every `QUEUE` events otherwise.
    let mut since = 0;
    while ended < workers {
        let can_progress = collector.can_progress();
        let event = match inbox.try_recv() {
            Ok(event) if !can_progress || since < QUEUE => event,
            Ok(event) => {
                (since, _) = (0, collector.resume()?);
                event
            }
            Err(TryRecvError::Empty) if can_progress => {
                (since, _) = (0, collector.resume()?);
                continue;
            }
            Err(TryRecvError::Empty) => match inbox.recv() {
                Ok(event) => event,
                Err(_) => break,
            },
            Err(TryRecvError::Disconnected) => break,
        };
        since += 1;
        match event {
            Event::Output { from, bytes } => collector.output(from, &bytes)?,
            Event::Passed { module, worker, now_ns } => collector.passed(module, worker, now_ns)?,
            Event::Fault(report) => collector.faults.push(report),
            Event::Tick { worker, now_ns } => collector.tick(worker, now_ns)?,
            Event::Add(module, done) => {
                collector.add(&module)?;
                let _ = done.send(());
            }
            Event::Removed(removed) => collector.removed(removed)?,
            Event::Accounts(reply) => drop(reply.send(collector.accounts())),
            Event::End { accounts, now_ns } => {
                all.extend(accounts);
                last = last.max(now_ns);
                ended += 1;
            }
            // The first specific error takes precedence over workers that only found the queue closed.
            Event::Failed(RunError::Broken) => {
                // Workers with sources of their own would otherwise continue as long as these do.
                collector.stop.set();
                broken = true;
                ended += 1;
            }
            Event::Failed(e) => return Err(e),
        }
    }
    if broken || ended < workers { Err(RunError::Broken) } else { Ok((all, last)) }
}
