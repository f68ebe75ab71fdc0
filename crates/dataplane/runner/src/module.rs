use crate::grants::Grants;
use flame_block::{Reader, Region};
use flame_execute::{
    Attachment, BatchLoop, Begun, Behind, Conditions, Keep, LoadedModule, Module, News, Origin, Outlet,
    Place as StatePlace, Quantum, Shape, SlowLoop, Stop,
};
use flame_output::{Frame, frames};
use flame_plan::limits::RUNNER_REPORT;
use flame_plan::{Account, Discipline, FaultReport, ModuleClass, ModuleId, Processed, Reason, Shed};
use flame_quota::Meters;
use flame_remote::{ChannelError, Install, Kept, Report, Sender};
use flame_run::{Engines, Eviction, Mapping, Output};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// A module: its fast instance for each worker, and its slow instance.
pub struct Installed {
    id: ModuleId,
    module: LoadedModule,
    shape: Shape,
    loops: Vec<Place>,
    loops_started: usize,
    /// The packet time of the end on each worker, once it was requested.
    ends: Vec<Option<u64>>,
    /// The workers, which have read different parts when the run is stopped.
    behind: Vec<Behind>,
    /// The slowest of them, for the slow instance.
    slowest: Behind,
    slow: Slow,
    /// The discipline of the run, as the last attached worker states it.
    discipline: Discipline,
    /// Whether its time is limited, so that calls pause when it is used up.
    is_limited: bool,
    eviction: Eviction,
    batch: u32,
    /// The accounts that were reported last.
    reported: Vec<Account>,
    /// The time of the last report of an account.
    at: Option<Instant>,
    is_ending: bool,
    end: SlowEnd,
    is_held: bool,
    kept: Option<Kepts>,
}

/// The conditions of the slow instance's end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SlowEnd {
    /// It ends when the fast instances have ended.
    Free,
    /// The worker requests it after that, when the module has the outcomes of its calls.
    Requested { is_drained: bool },
}

/// The states of the instances, which are the worker's.
struct Kepts {
    keep: Keep,
    /// The events that were not yet sent to the worker.
    news: Receiver<(StatePlace, News)>,
}

/// The fast instance for one worker.
enum Place {
    /// The worker has not attached a reader yet.
    Empty,
    Running(Box<BatchLoop>),
    Ended,
}

impl Place {
    fn running(&mut self) -> Option<&mut BatchLoop> {
        match self {
            Self::Running(batches) => Some(batches),
            Self::Empty | Self::Ended => None,
        }
    }
}

/// The ticks that the workers of a capture have passed: the least, by the worker `last`, and that of the next
/// one.
#[derive(Clone, Copy)]
struct Passed {
    last: usize,
    least: u64,
    second: u64,
}

impl Passed {
    /// Returns the last tick that all workers but this one have passed.
    fn of_others(self, worker: usize) -> u64 {
        if worker == self.last { self.second } else { self.least }
    }
}

/// The slow side of a module.
struct Slow {
    instance: Option<SlowLoop>,
    /// The last tick that the fast instance on each worker passed.
    passed: Vec<u64>,
    messages_lost: u64,
    /// The last tick that was reported as passed, if the view shows whole intervals.
    steps: Option<u64>,
    /// The calls of services that came before the instance.
    early: Vec<(u64, Vec<u8>)>,
}

/// Passes the output of fast instances on: messages to the slow instance, all else to the worker.
struct Out<'a> {
    id: ModuleId,
    /// Whether the module forwards packets.
    forwards: bool,
    slow: &'a mut Slow,
    sender: &'a mut Sender,
    /// The stop as the slow instance finds it.
    stop: &'a Stop<'a>,
}

impl Outlet<ChannelError> for Out<'_> {
    fn output(&mut self, from: Origin, output: Output<'_>) -> Result<(), ChannelError> {
        let messages = frames(output.bytes).filter_map(|frame| match frame {
            Frame::Message(message) => Some(message),
            _ => None,
        });
        for message in messages.take(output.counts.messages as usize) {
            let Some(slow) = &mut self.slow.instance else {
                self.slow.messages_lost += 1;
                continue;
            };
            slow.message(from.worker, from.call, message);
            if slow.discipline().processes_messages_at_once() {
                self.slow.go(self.id, &Quantum::whole(self.stop), self.sender)?;
            }
        }
        let counts = output.counts;
        if self.forwards {
            return self.sender.send(&Report::Sent { module: self.id }, output.bytes);
        }
        if counts.records > 0
            || counts.packets > 0
            || counts.logs > 0
            || counts.on_channels > 0
            || counts.calls > 0
            || counts.replies > 0
            || counts.lost > 0
        {
            let (worker, processed) = (Some(from.worker), from.processed);
            let head = Report::Output { module: self.id, worker, processed };
            self.sender.send(&head, output.bytes)?;
        }
        Ok(())
    }

    fn fault(&mut self, report: FaultReport) -> Result<(), ChannelError> {
        self.sender.send(&Report::Fault(report), &[])
    }

    fn decided(&mut self, count: u32, lost: Option<(Shed, u32)>) -> Result<(), ChannelError> {
        if !self.forwards {
            return Ok(());
        }
        self.sender.send(&Report::Decided { module: self.id, count, lost }, &[])?;
        // The owner of the packets waits for it.
        self.sender.flush()
    }

    fn passed(&mut self, _: ModuleId, worker: usize, now_ns: u64) -> Result<(), ChannelError> {
        self.slow.passed[worker] = now_ns;
        self.sender.send(&Report::Passed { module: self.id, worker, now_ns }, &[])?;
        let all = self.slow.passed.iter().copied().min().unwrap_or(0);
        if let Some(slow) = &mut self.slow.instance {
            slow.passed(worker, now_ns);
            slow.tick(all);
            if !slow.discipline().processes_messages_at_once() {
                return Ok(());
            }
        }
        self.slow.go(self.id, &Quantum::whole(self.stop), self.sender)
    }
}

impl Slow {
    fn serve(&mut self, call: u64, bytes: Vec<u8>) {
        let Some(slow) = &mut self.instance else { return self.early.push((call, bytes)) };
        // The worker knows who pays for it, so it counts as nobody's here.
        let payer = Meters::of_grant(Vec::new()).with(None, Some(Arc::default()));
        slow.serve(call, bytes, payer);
    }

    /// Returns whether it works for others only: it makes calls of services on a live source, and nothing
    /// else waits.
    fn serves_only(&self) -> bool {
        let serves = |slow: &SlowLoop| {
            slow.discipline().loses_late_packets() && slow.is_serving() && !slow.has_own_work()
        };
        self.instance.as_ref().is_some_and(serves)
    }

    fn go(&mut self, id: ModuleId, quantum: &Quantum<'_>, sender: &mut Sender) -> Result<(), ChannelError> {
        let Some(slow) = &mut self.instance else { return self.pass(id, sender) };
        let head = Report::Output { module: id, worker: None, processed: Processed::default() };
        let steps = &mut self.steps;
        let fault = loop {
            let fault = slow.go(quantum, &mut |since_ns, output| {
                pass(steps, since_ns, id, sender)?;
                sender.send(&head, output.bytes)
            })?;
            for (call, time) in slow.take_served() {
                let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                sender.send(&Report::Served { module: id, call, ns }, &[])?;
                // Until it knows who pays, the worker holds the time back.
                sender.flush()?;
            }
            (0..slow.take_taken()).try_for_each(|_| sender.send(&Report::Taken { module: id }, &[]))?;
            if fault.is_some() || !slow.is_split() {
                break fault;
            }
        };
        self.messages_lost += slow.take_lost();
        fault.map_or(Ok(()), |report| sender.send(&Report::Fault(report), &[]))?;
        self.pass(id, sender)
    }

    /// Reports a tick that it has passed. Without an instance, it follows the fast ones.
    fn pass(&mut self, id: ModuleId, sender: &mut Sender) -> Result<(), ChannelError> {
        let of_fast = || self.passed.iter().copied().min().unwrap_or(0);
        let now_ns = self.instance.as_ref().map_or_else(of_fast, SlowLoop::passed_tick);
        pass(&mut self.steps, now_ns, id, sender)
    }
}

/// Reports that a slow instance has passed the tick at `now_ns`, unless that was reported. Output that
/// follows belongs to the interval that begins then.
fn pass(
    reported: &mut Option<u64>,
    now_ns: u64,
    id: ModuleId,
    sender: &mut Sender,
) -> Result<(), ChannelError> {
    match reported {
        Some(before) if now_ns > *before => {
            *before = now_ns;
            sender.send(&Report::SlowPassed { module: id, now_ns }, &[])
        }
        _ => Ok(()),
    }
}

impl Installed {
    /// Loads a module whose shared memory is part of `region`. `stopped` is the time when the process finds
    /// the run stopped.
    pub fn new(
        engines: &Engines,
        grants: &mut Grants,
        install: Install,
        region: OwnedFd,
        stopped: &Arc<OnceLock<Instant>>,
    ) -> Result<Self, String> {
        let Install { plan, workers, tick_ns, interval_ns, batch, granted, keeps } = install;
        let kept = plan.manifest.state.zip(keeps).map(|(state, every_ns)| {
            let (sender, news) = mpsc::channel();
            // The receiver lives as long as the instances.
            let on_news = move |place, news: &News| drop(sender.send((place, news.clone())));
            Kepts { keep: Keep::awaiting((state.max, every_ns), workers, Box::new(on_news)), news }
        });
        let is_limited = granted.is_some();
        let meters = granted.map_or_else(Meters::default, |links| grants.meters(&links));
        let shape = Shape { workers, tick_ns, interval_ns };
        let id = plan.id;
        let end =
            if plan.manifest.has_calls() { SlowEnd::Requested { is_drained: false } } else { SlowEnd::Free };
        let module = Module {
            plan,
            meters,
            keep: kept.as_ref().map(|kept| kept.keep.clone()),
            areas: Vec::new(),
            time: None,
        };
        let region = Region::open(region).map_err(|e| e.to_string())?;
        let module = LoadedModule::within(engines, &module, region).map_err(|e| e.to_string())?;
        let passed = vec![0; workers];
        let (messages_lost, steps) = Default::default();
        let slow = Slow { instance: None, passed, messages_lost, steps, early: Vec::new() };
        Ok(Self {
            id,
            shape,
            loops: (0..workers).map(|_| Place::Empty).collect(),
            loops_started: 0,
            ends: vec![None; workers],
            behind: (0..workers).map(|_| Behind::since(stopped.clone())).collect(),
            slowest: Behind::since(stopped.clone()),
            slow,
            discipline: Discipline::default(),
            is_limited,
            eviction: module.eviction.clone(),
            module,
            batch,
            reported: vec![Account::default(); workers],
            at: None,
            is_ending: false,
            end,
            is_held: false,
            kept,
        })
    }

    pub fn id(&self) -> ModuleId {
        self.id
    }

    pub fn is_metered(&self) -> bool {
        self.module.plan.class == ModuleClass::Metered
    }

    /// Returns whether nobody waits while a call goes on, if no other module is here.
    pub fn keeps_nobody(&self) -> bool {
        !self.discipline.loses_late_packets() && !self.is_limited && !self.module.loaded.forwards()
    }

    /// Starts the fast instance for a worker.
    pub fn attach(
        &mut self,
        at: Attachment,
        reader: Reader,
        stop: &Stop<'_>,
        sender: &mut Sender,
    ) -> Result<(), ChannelError> {
        let (Some((fd, offset, bytes)), Some(place @ Place::Empty)) =
            (reader.window(), self.loops.get_mut(at.worker))
        else {
            return Ok(());
        };
        self.discipline = at.discipline;
        if self.module.plan.shows_whole_intervals(at.discipline) {
            self.slow.steps.get_or_insert(0);
        }
        let window = Mapping { fd, offset, bytes, at: flame_abi::layout::VIEW };
        if self.loops_started == 0 && self.module.loaded.has_slow_path() {
            let (instance, fault) = SlowLoop::new(self.shape, &self.module, at.discipline, 0);
            self.slow.instance = Some(instance);
            let early = std::mem::take(&mut self.slow.early);
            early.into_iter().for_each(|(call, bytes)| self.slow.serve(call, bytes));
            fault.map_or(Ok(()), |report| sender.send(&Report::Fault(report), &[]))?;
        }
        self.loops_started += 1;
        let forwards = self.module.loaded.forwards();
        let mut batches = BatchLoop::new(self.shape, &self.module, at, vec![window], reader);
        let stop = &Stop::after(stop, &self.slowest);
        let mut out = Out { id: self.id, forwards, slow: &mut self.slow, sender, stop };
        batches.launch(false, &mut out)?;
        *place = Place::Running(Box::new(batches));
        Ok(())
    }

    pub fn evict(&self, reason: Reason) {
        self.eviction.evict(reason);
    }

    /// Counts all further use in `meters`. Memory that they do not allow stays in the earlier ones.
    pub fn renew(&self, meters: &Meters) {
        let _ = self.module.meters.renew(meters);
    }

    /// Lets no call begin or continue until this is revoked.
    pub fn hold(&mut self, holds: bool) {
        self.is_held = holds;
        self.module.meters.hold(holds);
    }

    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Gives the fast instance for a worker, or the slow one, its state.
    pub fn import(&self, worker: Option<usize>, state: Option<&[u8]>) {
        if let Some(kept) = &self.kept {
            kept.keep.give(StatePlace::of(worker), state.map(Into::into));
        }
    }

    /// Calls a service of the module.
    pub fn serve(&mut self, call: u64, bytes: Vec<u8>) {
        self.slow.serve(call, bytes);
    }

    /// Gives the module the outcome of a call.
    pub fn done(&mut self, bytes: Vec<u8>) {
        if let Some(slow) = &mut self.slow.instance {
            slow.done(bytes);
        }
    }

    /// Reports what became of states.
    fn send_news(&self, sender: &mut Sender) -> Result<(), ChannelError> {
        let Some(kept) = &self.kept else { return Ok(()) };
        kept.news.try_iter().try_for_each(|(place, news)| {
            let none: &[u8] = &[];
            let (kept, body) = match &news {
                News::Begun(Begun::Empty) => (Kept::Empty, none),
                News::Begun(Begun::Taken) => (Kept::Taken, none),
                News::Begun(Begun::Refused) => (Kept::Refused, none),
                News::Stored(state) => (Kept::Stored, &**state),
                News::Dropped | News::Begun(Begun::Dropped) => (Kept::Dropped, none),
                News::CutOff => (Kept::CutOff, none),
            };
            sender.send(&Report::State { module: self.id, worker: place.worker(), kept }, body)
        })
    }

    /// Ends the module on one worker after the blocks that wait there. With `hands_over`, others go on with
    /// the states of its instances.
    pub fn end(&mut self, worker: usize, now_ns: u64, hands_over: bool) {
        if let Some(kept) = self.kept.as_ref().filter(|_| hands_over) {
            kept.keep.set_followed();
        }
        if let Some(end) = self.ends.get_mut(worker) {
            *end = Some(now_ns);
            self.behind[worker].end();
            if self.ends.iter().all(Option::is_some) {
                self.slowest.end();
            }
        }
    }

    /// Lets the slow instance end.
    pub fn end_slow(&mut self) {
        self.end = SlowEnd::Free;
    }

    /// Gives one quantum to each instance with work. Unless it `serves`, calls of services wait. Returns
    /// whether the module has ended.
    pub fn step(&mut self, serves: bool, stop: &Stop<'_>, sender: &mut Sender) -> Result<bool, ChannelError> {
        let forwards = self.module.loaded.forwards();
        let run = stop;
        let stop = &Stop::after(run, &self.slowest);
        for worker in 0..self.loops.len() {
            let others = self.passed().of_others(worker);
            let of_worker = &Stop::after(run, &self.behind[worker]);
            let conditions = Conditions { batch: self.batch, stop: of_worker, is_last: false, others };
            let ending = Conditions { is_last: true, ..conditions };
            let place = &mut self.loops[worker];
            let Some(batches) = place.running() else {
                if self.ends[worker].is_some() {
                    *place = Place::Ended;
                }
                continue;
            };
            batches.count_lost();
            let mut out = Out { id: self.id, forwards, slow: &mut self.slow, sender, stop };
            match self.ends[worker] {
                None if batches.is_busy() => batches.go(conditions, &mut out)?,
                None => {}
                Some(now_ns) if batches.leave(now_ns, ending, &mut out)? => {
                    batches.count_lost();
                    let account = batches.account().clone();
                    sender.send(&Report::Account { module: self.id, worker, account }, &[])?;
                    *place = Place::Ended;
                }
                Some(_) => {}
            }
        }
        let is_last = self.has_ended_fast();
        let quantum = Quantum::slice(stop);
        let quantum = if is_last { quantum.ending() } else { quantum };
        if serves || is_last || !self.slow.serves_only() {
            self.slow.go(self.id, &quantum, sender)?;
        }
        if is_last
            && let SlowEnd::Requested { is_drained: is_drained @ false } = &mut self.end
            && !self.slow.instance.as_ref().is_some_and(SlowLoop::has_own_work)
        {
            *is_drained = true;
            sender.send(&Report::Drained { module: self.id }, &[])?;
        }
        let may_end = is_last && self.end == SlowEnd::Free && !self.is_slow_busy();
        if may_end && !std::mem::replace(&mut self.is_ending, true) {
            let now_ns = self.ends.iter().flatten().copied().max().unwrap_or(0);
            if let Some(slow) = &mut self.slow.instance {
                slow.start_end(now_ns);
            }
            self.slow.go(self.id, &quantum, sender)?;
        }
        self.send_news(sender)?;
        let has_ended = self.is_ending && !self.is_slow_busy();
        if has_ended {
            let messages_lost = self.slow.messages_lost;
            sender.send(&Report::Ended { module: self.id, messages_lost }, &[])?;
        }
        Ok(has_ended)
    }

    fn has_ended_fast(&self) -> bool {
        self.loops.iter().all(|place| matches!(place, Place::Ended))
    }

    fn is_slow_busy(&self) -> bool {
        self.slow.instance.as_ref().is_some_and(SlowLoop::is_busy)
    }

    /// Reports the accounts that have changed, unless they were reported a moment ago. Returns whether all
    /// are reported.
    pub fn report(&mut self, sender: &mut Sender) -> Result<bool, ChannelError> {
        // The first packets, and those after a pause, are reported at once.
        // The owner of packets that are forwarded waits for decisions, and not for accounts.
        let steps = self.discipline.steps() && !self.module.loaded.forwards();
        let is_due = steps || self.at.is_none_or(|at| at.elapsed() >= RUNNER_REPORT);
        let (mut all, mut is_reported) = (true, false);
        for (worker, reported) in self.reported.iter_mut().enumerate() {
            let Some(batches) = self.loops[worker].running() else { continue };
            if batches.account() == reported {
                continue;
            }
            all = is_due;
            if is_due {
                *reported = batches.account().clone();
                let account = reported.clone();
                sender.send(&Report::Account { module: self.id, worker, account }, &[])?;
                is_reported = true;
            }
        }
        if is_reported {
            self.at = Some(Instant::now());
        }
        Ok(all)
    }

    /// Returns whether a block that could get lost waits for a fast instance, which has time for it.
    pub fn has_urgent_blocks(&mut self) -> bool {
        self.discipline.loses_late_packets() && self.present().any(BatchLoop::can_progress)
    }

    /// Returns the ticks that workers have passed, for which others wait.
    fn passed(&self) -> Passed {
        let mut passed = Passed { last: usize::MAX, least: u64::MAX, second: u64::MAX };
        let places = self.loops.iter().zip(&self.slow.passed).enumerate();
        for (worker, (place, tick)) in places.filter(|_| self.discipline.orders_events_by_tick()) {
            match place {
                Place::Ended => {}
                _ if *tick < passed.least => {
                    passed = Passed { last: worker, least: *tick, second: passed.least };
                }
                _ => passed.second = passed.second.min(*tick),
            }
        }
        passed
    }

    /// Returns the fast instances that wait for no other worker.
    pub fn present(&mut self) -> impl Iterator<Item = &mut BatchLoop> {
        let passed = self.passed();
        let running =
            self.loops.iter_mut().enumerate().filter_map(|(at, place)| Some((at, place.running()?)));
        let present = running.filter(move |(worker, batches)| !batches.is_ahead(passed.of_others(*worker)));
        present.map(|(_, batches)| batches)
    }

    /// Returns whether its blocks and reports may wait for a moment. Those of a capture may, unless somebody
    /// waits for them: another module for a call or its outcome, a worker for decisions, for another worker
    /// to pass a tick, or for the end.
    pub fn may_wait(&mut self) -> bool {
        let is_awaited = self.discipline.steps()
            || self.module.plan.manifest.has_calls()
            || self.module.loaded.forwards()
            || self.ends.iter().any(Option::is_some);
        !self.discipline.loses_late_packets() && !is_awaited && self.present().count() == self.loops.len()
    }

    /// Returns whether a fast instance is to end that does not wait for other workers.
    fn is_leaving(&self) -> bool {
        let passed = self.passed();
        let mut all = self.loops.iter().zip(&self.ends).enumerate();
        all.any(|(worker, (place, end))| match place {
            Place::Running(batches) => end.is_some() && !batches.is_ahead(passed.of_others(worker)),
            Place::Empty => end.is_some(),
            Place::Ended => false,
        })
    }

    /// Returns whether a quantum would advance it.
    pub fn can_progress(&mut self) -> bool {
        let is_waiting = self.end == SlowEnd::Requested { is_drained: true };
        let is_ending = self.has_ended_fast() && !self.is_ending && !is_waiting;
        is_ending
            || self.is_leaving()
            || self.present().any(BatchLoop::can_progress)
            || self.slow.instance.as_mut().is_some_and(SlowLoop::can_progress)
    }

    /// Returns whether work waits for a share of time, which comes without a command.
    pub fn is_waiting(&mut self) -> bool {
        !self.is_held && (self.is_slow_busy() || self.present().any(|batches| batches.is_busy()))
    }
}
