mod deliver;
mod reports;

use crate::error::RunError;
use crate::records::channels::Channels;
use crate::records::charge;
use crate::records::event::OverloadChange;
use crate::records::event::Removed;
use crate::records::faults::Faults;
use crate::records::loss::Losses;
use crate::records::module_output::{Collected, Last};
use crate::records::outputs::Outputs;
use crate::records::placed::{Placed, Site};
use crate::records::queues::Queues;
use crate::records::released::Released;
use crate::records::report::{LossReason, Lost, NotDue, Report};
use crate::records::undue::Undue;
use flame_base::Backoff;
use flame_execute::{Origin, Quantum, Shape, SlowLoop, Stop};
use flame_output::{Frame, Gate, frames};
use flame_plan::limits::LAST_FRAMES_MAX;
use flame_plan::{Account, Discipline, ModuleId};
use flame_record::Rows;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The waits for the frames that modules have sent.
const FRAMES_CHECK: Backoff = Backoff::every(Duration::from_millis(1));

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
    /// The modules that have left, whose accounts the observer did not take.
    ended: BTreeMap<ModuleId, (String, Account)>,
    /// The losses of the modules in `ended`.
    lost: Vec<Lost>,
    /// The names of the modules under a grant: those that run, and those of `ended`.
    granted: BTreeSet<String>,
    outputs: Outputs<'a>,
    pub(crate) stop: &'a Stop<'a>,
    pub(crate) discipline: Discipline,
    pub(crate) faults: Faults<'a>,
    /// The last tick that each worker passed.
    passed: Vec<u64>,
    ticked: u64,
    /// The accounts of the fast instances at ticks.
    released: Released,
    /// The time of `outputs` since which all workers have ended their fast instances.
    ending: Option<Duration>,
    /// The queues of processes, if the pipeline's thread also collects.
    reports: Option<Queues>,
    /// Whether the fast instances of that pipeline have ended, or are about to.
    is_ending: bool,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(
        shape: Shape,
        modules: &[Placed],
        outputs: Outputs<'a>,
        stop: &'a Stop<'a>,
        discipline: Discipline,
    ) -> Result<Self, RunError> {
        let faults = Faults::new(outputs.events);
        let mut collector = Self {
            shape,
            modules: Vec::new(),
            leaving: BTreeMap::new(),
            ended: BTreeMap::new(),
            lost: Vec::new(),
            granted: BTreeSet::new(),
            outputs,
            stop,
            discipline,
            faults,
            passed: vec![0; shape.workers],
            ticked: 0,
            released: Released::new(shape.workers),
            ending: None,
            reports: None,
            is_ending: false,
        };
        modules.iter().try_for_each(|module| collector.add(module))?;
        Ok(collector)
    }

    /// Returns whether somebody waits for what comes of an event: packets that would get lost meanwhile, or a
    /// module for the outcome of a call.
    pub(crate) fn is_awaited(&self) -> bool {
        self.discipline.loses_late_packets() || self.outputs.services.are_used()
    }

    /// Adds a module, before any pipeline sends output of it.
    pub(crate) fn add(&mut self, module: &Placed) -> Result<(), RunError> {
        let p = module.plan();
        let mut channels = Channels::new(p, module.filters.clone());
        if let Some(link) = &self.outputs.link {
            channels.open(link, module.meters().usage().map(|usage| &usage.transmitted))?;
        }
        let mut collected = Collected {
            id: p.id,
            name: p.name.clone(),
            rows: Rows::new(&p.catalog_entry()),
            gate: Gate::new(&p.manifest, &p.terms, module.meters()),
            channels,
            slow: None,
            remote: matches!(module.site, Site::Remote(_)).then(|| vec![self.ticked; self.shape.workers]),
            process: match &module.site {
                Site::Remote(module) => Some(module.reference()),
                Site::Local(_) => None,
            },
            meters: module.meters().clone(),
            granted: module.meters().granted(),
            usage: module.meters().usage().cloned(),
            account: Account::default(),
            losses: Losses::default(),
            undue: None,
            last: None,
        };
        self.faults.add_module(p.id, collected.granted);
        if collected.granted {
            self.granted.insert(p.name.clone());
        }
        collected.gate.tick(self.ticked);
        if let Site::Local(module) = &module.site
            && module.loaded.has_slow_path()
        {
            let (slow, fault) = SlowLoop::new(self.shape, module, self.discipline, self.ticked);
            collected.slow = Some(Box::new(slow));
            collected.fault(fault, &mut self.faults);
        }
        if let Some(onset) = module.onset.as_ref().filter(|_| self.discipline.releases_by_interval()) {
            let has_slow = collected.remote.is_some() || collected.slow.is_some();
            collected.undue = Some(Undue::new(onset, self.shape.workers + usize::from(has_slow)));
        }
        self.outputs.services.join(p, collected.undue.is_some());
        self.modules.push(collected);
        self.go(self.modules.len() - 1)
    }

    /// Reports to the operator that a module begins to lose packets on a worker, or receives all again.
    pub(crate) fn overload(&self, worker: usize, change: OverloadChange) {
        if let Some(module) = self.modules.iter().find(|module| module.id == change.module) {
            self.outputs.events.overload(&module.name, worker, change.begins);
        }
    }

    /// Completes the output's files if they are due, with all rows collected so far, and ends the run if the
    /// output takes no more.
    pub(crate) fn rotate(&mut self) -> Result<(), RunError> {
        if self.outputs.sink.due() {
            let _stalled = self.outputs.begin_stall();
            for m in &mut self.modules {
                m.flush(&mut self.outputs)?;
            }
            self.outputs.sink.rotate()?;
            if self.outputs.sink.closed() {
                self.stop.set();
            }
        }
        Ok(())
    }

    fn place(&self, id: ModuleId) -> Option<usize> {
        self.modules.iter().position(|m| m.id == id)
    }

    /// Returns the accounts of records and messages. Those of packets belong to the pipelines.
    pub(crate) fn accounts(&mut self) -> Vec<(ModuleId, Account)> {
        let account = |m: &mut Collected| {
            m.channels.count(&mut m.account);
            (m.id, m.account.clone())
        };
        self.modules.iter_mut().map(account).collect()
    }

    /// Advances the time of frames to the last tick that all workers and all processes have passed, so that
    /// it does not depend on how far a process is behind.
    fn advance_to_tick(&mut self) {
        let passed = self.modules.iter().filter_map(|m| m.remote.as_ref()).flatten().copied().min();
        self.outputs.advance(passed.unwrap_or(u64::MAX).min(self.ticked));
    }

    /// Removes a module that has ended on one worker. Its slow instance ends after the last.
    pub(crate) fn removed(&mut self, removed: Removed) -> Result<(), RunError> {
        let _stalled = self.outputs.begin_stall();
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
        // Calls that wait for an edge would not be made any more.
        if self.delivers_at_edges() {
            self.deliver()?;
        }
        match self.place(module) {
            Some(at) => {
                let (is_closed, is_ending) = (false, false);
                self.modules[at].last = Some(Last { account, now_ns, reply, is_closed, is_ending });
                self.drain(at, false).map(drop)
            }
            None => {
                let _ = reply.send(account);
                Ok(())
            }
        }
    }

    /// Gives a quantum to a module whose fast instances have ended, and returns whether it is gone. Other
    /// modules do not wait for it on live sources: a slow instance may have many messages left. Its share of
    /// time limits it, unless the source has ended.
    fn drain(&mut self, at: usize, is_last: bool) -> Result<bool, RunError> {
        let quantum = match self.discipline.processes_messages_at_once() {
            true => Quantum::whole(self.stop),
            false if is_last => Quantum::slice(self.stop).ending(),
            false => Quantum::slice(self.stop),
        };
        let m = &mut self.modules[at];
        // First of all: a module that calls again in each of its last calls would never end.
        if let Some(last) = &mut m.last
            && !std::mem::replace(&mut last.is_closed, true)
        {
            self.outputs.services.close(m.id);
        }
        m.go(&quantum, &mut self.outputs, &mut self.faults)?;
        if m.is_busy() {
            return Ok(false);
        }
        self.deliver()?;
        let m = &mut self.modules[at];
        if m.is_busy() || (!m.is_gone() && !self.outputs.services.is_settled(m.id)) {
            return Ok(false);
        }
        if let (Some(last), Some(slow)) = (&mut m.last, &mut m.slow)
            && !std::mem::replace(&mut last.is_ending, true)
        {
            slow.start_end(last.now_ns);
            m.go(&quantum, &mut self.outputs, &mut self.faults)?;
            if m.is_busy() {
                return Ok(false);
            }
        }
        let mut m = self.modules.remove(at);
        self.outputs.services.leave(m.id);
        m.flush(&mut self.outputs)?;
        let losses = m.take_losses();
        m.channels.close(&mut m.account);
        let Some(Last { account: mut total, reply, .. }) = m.last else { return Ok(true) };
        total.add(&m.account);
        self.faults.remove_module(m.id);
        if self.outputs.events.left(&m.name, &total) {
            self.granted.remove(&m.name);
        } else {
            self.lost.extend(losses);
            self.ended.insert(m.id, (m.name, total.clone()));
        }
        // This fails only if nobody waits for the reply any more.
        let _ = reply.send(total);
        Ok(true)
    }

    /// Processes checked output of a fast instance.
    pub(crate) fn output(&mut self, from: Origin, bytes: &[u8]) -> Result<(), RunError> {
        let Some(at) = self.place(from.module) else { return Ok(()) };
        let _charged = charge::enter(self.modules[at].usage.as_ref());
        for (frame, bytes) in frames(bytes).with_bytes() {
            let m = &mut self.modules[at];
            let Frame::Message(message) = frame else {
                m.take(from.worker, (frame, bytes), &mut self.outputs)?;
                continue;
            };
            // A process passes messages to its own slow instance.
            let Some(slow) = &mut m.slow else {
                if m.remote.is_some() {
                    continue;
                }
                m.account.messages_lost += 1;
                m.losses.add(LossReason::Messages, None, 1);
                continue;
            };
            slow.message(from.worker, from.call, message);
            if self.discipline.processes_messages_at_once() {
                self.go(at)?;
            }
        }
        self.deliver_after_output()
    }

    /// Returns whether a packet that a module sends is released. Those that are not are counted.
    pub(crate) fn lets(&mut self, module: ModuleId, frame: &Frame<'_>) -> bool {
        let Some(at) = self.place(module) else { return false };
        let lets = self.modules[at].gate.lets(frame);
        if !lets {
            self.withhold(module);
        }
        lets
    }

    /// Returns whether a copy of a packet of `bytes` bytes is released, as one that the module made. Those
    /// that are not are counted.
    pub(crate) fn lets_made(&mut self, module: ModuleId, bytes: usize) -> bool {
        self.lets_composed(module, |gate| gate.made(bytes as u64))
    }

    /// Returns whether a packet is released of which the module composed `bytes` bytes. Those that are not
    /// are counted.
    pub(crate) fn lets_changed(&mut self, module: ModuleId, bytes: usize) -> bool {
        self.lets_composed(module, |gate| gate.changed(bytes as u64))
    }

    fn lets_composed(&mut self, module: ModuleId, lets: impl FnOnce(&mut Gate) -> bool) -> bool {
        let Some(at) = self.place(module) else { return false };
        let lets = lets(&mut self.modules[at].gate);
        if !lets {
            self.withhold(module);
        }
        lets
    }

    /// Counts a packet that a module sends and that is not released.
    pub(crate) fn withhold(&mut self, module: ModuleId) {
        let Some(at) = self.place(module) else { return };
        let m = &mut self.modules[at];
        m.account.withheld += 1;
        m.losses.add(LossReason::Packets, None, 1);
    }

    /// Records that worker `worker` has passed the tick at `now_ns`, on a live source with these accounts.
    pub(crate) fn tick(
        &mut self,
        worker: usize,
        (now_ns, accounts): (u64, Vec<(ModuleId, Account)>),
    ) -> Result<(), RunError> {
        let _stalled = self.outputs.begin_stall();
        self.passed[worker] = now_ns;
        if self.discipline.releases_by_interval() {
            self.released.add(worker, (now_ns, accounts));
        }
        let all = self.passed.iter().copied().min().unwrap_or(0);
        if all > self.ticked {
            // Records from a process belong to the ticks that it reports.
            self.modules.iter_mut().filter(|m| m.remote.is_none()).for_each(|m| m.gate.tick(all));
            self.ticked = all;
            self.advance_to_tick();
            for module in 0..self.modules.len() {
                if let Some(slow) = &mut self.modules[module].slow {
                    slow.tick(all);
                }
                self.go(module)?;
            }
            self.deliver()?;
            self.show()?;
            self.outputs.sink.passed(all);
            self.rotate()?;
            self.release();
        }
        Ok(())
    }

    /// Passes on the accounts of the modules under a grant, as of the last tick, on a live source. That of a
    /// module that ends follows when it has ended.
    fn release(&mut self) {
        if !self.discipline.releases_by_interval() {
            return;
        }
        let mut fast = self.released.at(self.ticked);
        let mut all = Vec::new();
        for m in self.modules.iter_mut().filter(|m| m.granted && m.last.is_none()) {
            if self.leaving.contains_key(&m.id) {
                continue;
            }
            let mut account = fast.remove(&m.id).unwrap_or_default();
            m.channels.count(&mut m.account);
            account.add(&m.account);
            all.push((m.name.as_str(), account));
        }
        self.outputs.events.released(&all);
    }

    /// Makes all rows visible.
    pub(crate) fn show(&mut self) -> Result<(), RunError> {
        let _stalled = self.outputs.begin_stall();
        for m in &mut self.modules {
            m.flush(&mut self.outputs)?;
        }
        self.outputs.sink.flush()?;
        if self.outputs.sink.closed() {
            self.stop.set();
        }
        Ok(())
    }

    /// Records that a module's fast instance has passed the tick.
    pub(crate) fn passed(&mut self, module: ModuleId, worker: usize, now_ns: u64) -> Result<(), RunError> {
        let Some(at) = self.place(module) else { return Ok(()) };
        let _charged = charge::enter(self.modules[at].usage.as_ref());
        let m = &mut self.modules[at];
        if let Some(remote) = &mut m.remote {
            if let Some(passed) = remote.get_mut(worker) {
                *passed = now_ns.max(*passed);
            }
            m.gate.tick(remote.iter().copied().min().unwrap_or(0));
            self.advance_to_tick();
        }
        let m = &mut self.modules[at];
        m.pass(worker, now_ns);
        if let Some(slow) = &mut m.slow {
            slow.passed(worker, now_ns);
        }
        self.go(at)?;
        self.deliver_after_output()
    }

    /// Returns whether a quantum would advance a slow instance.
    pub(crate) fn can_progress(&mut self) -> bool {
        let can = |m: &mut Collected| match &mut m.slow {
            Some(slow) => slow.can_progress() || (m.last.is_some() && !slow.is_busy()),
            None => m.last.is_some(),
        } || m.is_due();
        self.modules.iter_mut().any(can) || (!self.delivers_at_edges() && self.can_deliver())
    }

    /// Gives one quantum to each slow instance with waiting calls.
    pub(crate) fn resume(&mut self) -> Result<(), RunError> {
        self.advance_all(false)
    }

    fn advance_all(&mut self, is_last: bool) -> Result<(), RunError> {
        let _stalled = self.outputs.begin_stall();
        if !self.delivers_at_edges() {
            self.deliver()?;
        }
        let mut at = 0;
        while at < self.modules.len() {
            if self.modules[at].last.is_none() {
                self.go(at)?;
            } else if self.drain(at, is_last)? {
                continue;
            }
            at += 1;
        }
        Ok(())
    }

    fn go(&mut self, module: usize) -> Result<(), RunError> {
        let is_slice = !self.discipline.processes_messages_at_once() && self.ending.is_none();
        let quantum = if is_slice { Quantum::slice(self.stop) } else { Quantum::whole(self.stop) };
        self.modules[module].go(&quantum, &mut self.outputs, &mut self.faults)
    }

    /// Releases what the modules have reported: all fast instances have ended with an interval.
    pub(crate) fn complete(&mut self) -> Result<(), RunError> {
        let _stalled = self.outputs.begin_stall();
        let quantum = Quantum::whole(self.stop);
        self.modules.iter_mut().try_for_each(|m| m.complete(&quantum, &mut self.outputs))
    }

    /// Ends the slow instances and returns the report of the modules. `accounts` are those of the pipelines.
    pub(crate) fn end(mut self, now_ns: u64, accounts: Vec<(ModuleId, Account)>) -> Result<Report, RunError> {
        self.stop.end_worker();
        while self.modules.iter().any(|m| m.last.is_some()) {
            self.advance_all(true)?;
        }
        self.deliver_last()?;
        let quantum = Quantum::whole(self.stop);
        for m in &mut self.modules {
            m.end(now_ns, &quantum, &mut self.outputs, &mut self.faults)?;
        }
        for m in &mut self.modules {
            m.flush(&mut self.outputs)?;
            self.lost.extend(m.take_losses());
        }
        self.finish_channels()?;
        let not_due =
            |m: &Collected| Some(NotDue { module: m.name.clone(), since_ns: m.undue.as_ref()?.open_since() });
        let undue = self.modules.iter().filter_map(not_due).collect();
        let mut all = self.ended;
        all.extend(self.modules.into_iter().map(|m| (m.id, (m.name, m.account))));
        // A module may have been removed on some workers while others had ended already.
        let leaving = self.leaving.into_iter().map(|(id, (account, ..))| (id, account));
        for (id, account) in accounts.into_iter().chain(leaving) {
            if let Some((_, total)) = all.get_mut(&id) {
                total.add(&account);
            }
        }
        let mut report = Report {
            accounts: all.into_values().collect(),
            faults: self.faults.into_kept(),
            lost: self.lost,
            undue,
            ..Report::default()
        };
        crate::records::granted::reduce(&self.granted, &mut report);
        Ok(report)
    }
}

impl Collector<'_> {
    /// Lets the frames that wait leave, for a while, and closes the channels.
    fn finish_channels(&mut self) -> Result<(), RunError> {
        if let Some(link) = &self.outputs.link {
            link.finish()?;
        }
        let begun = Instant::now();
        let is_waiting =
            || self.modules.iter().any(|m| m.channels.is_waiting()) && begun.elapsed() < LAST_FRAMES_MAX;
        FRAMES_CHECK.sleep_until(|| (!is_waiting()).then_some(()));
        for m in &mut self.modules {
            std::mem::take(&mut m.channels).close(&mut m.account);
        }
        Ok(())
    }
}
