use crate::caller::{Caller, Ended};
use crate::keep::Place;
use crate::keeping::{Keeping, Next};
use crate::module::{LoadedModule, Shape};
use crate::stop::{Quantum, Stop};
use crate::ticks::Ticks;
use flame_plan::limits::STOP_GRACE;
use flame_plan::{Discipline, FaultReport, ModuleId, quantize};
use flame_quota::Meters;
use flame_run::{Allowance, Call, Fault, Output, Role};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The maximum number of bytes of messages that wait for a slow instance, on live sources. Further ones are
/// lost, and counted.
const QUEUED: usize = 64 << 20;

/// The number of bytes that a waiting message takes in addition to its own.
const ENTRY: usize = 64;

/// The slow instance of a module: its waiting messages and ticks.
///
/// It ticks only when the fast instances have passed the tick on every worker, so that its reports do not
/// depend on the scheduling of workers.
pub struct SlowLoop {
    id: ModuleId,
    name: String,
    granted: bool,
    discipline: Discipline,
    resolution_ns: u64,
    ticks: Ticks,
    /// The last tick that the pipelines of all workers passed.
    due: u64,
    /// The last tick that was queued.
    done: u64,
    /// The tick whose call began last, and the last one of which no call is left.
    ticking: u64,
    ended: u64,
    /// The last tick that each worker's fast instance passed.
    passed: Vec<u64>,
    /// The number of the fast call of each worker whose message was processed last, and the rest of the
    /// allowance for all of its messages.
    allowances: Vec<Option<(u64, Allowance)>>,
    /// It is taken out for its calls, which is cheap only for a reference.
    caller: Option<Box<Caller>>,
    queue: VecDeque<Task>,
    /// Messages of workers that are ahead, each with the last tick that its worker had passed. They wait for
    /// that tick, whose report does not contain them.
    ahead: VecDeque<(u64, Task)>,
    /// The calls of services that wait. They are made when nothing else waits.
    calls: VecDeque<Waiting>,
    /// The number of bytes of the messages in `queue` and `ahead`.
    queued: usize,
    /// The worker whose message is processed, and the number of the fast call that sent it.
    sender: (usize, u64),
    /// The call of a service that has not ended, and the module that pays for it.
    serving: Option<(u64, Meters)>,
    /// The calls of services that were refused, because those who pay have no time left.
    refused: Vec<u64>,
    /// The calls of services that ended in the last quantum, however they did, and their processor time. It
    /// is zero for those that do not begin, because the run was stopped or the instance is gone.
    served: Vec<(u64, Duration)>,
    /// The number of outcomes that were taken.
    taken: usize,
    /// The time of the first outcome after the run was stopped.
    outcomes_since: Option<Instant>,
    /// Whether the last quantum ended because the next call has another payer.
    is_split: bool,
    lost: u64,
    keeping: Keeping,
}

/// A waiting call.
enum Task {
    Message {
        worker: usize,
        /// The number of the fast call that sent it.
        call: u64,
        bytes: Vec<u8>,
    },
    /// The outcome of a call of a service.
    Done(Vec<u8>),
    /// A tick: its call, if it has one, and the tick of the run.
    Tick { call: Option<u64>, passed: u64 },
    /// The last call, at this packet time.
    End(u64),
}

/// A call of a service, by its number, and the module that pays for it.
struct Waiting {
    call: u64,
    bytes: Vec<u8>,
    payer: Meters,
}

impl SlowLoop {
    /// Creates the slow instance of `module` after the tick at `ticked`, and starts it. Returns the report of
    /// the fault if that fails; all messages are lost then.
    pub fn new(
        shape: Shape,
        module: &LoadedModule,
        discipline: Discipline,
        ticked: u64,
    ) -> (Self, Option<FaultReport>) {
        let p = &module.plan;
        let mut slow = Self {
            id: p.id,
            name: p.name.clone(),
            granted: module.meters.granted(),
            discipline,
            resolution_ns: p.view.resolution_ns,
            ticks: Ticks::new(p, shape.tick_ns, discipline),
            due: ticked,
            done: ticked,
            ticking: ticked,
            ended: ticked,
            passed: vec![0; shape.workers],
            allowances: vec![None; shape.workers],
            caller: None,
            queue: VecDeque::new(),
            ahead: VecDeque::new(),
            calls: VecDeque::new(),
            queued: 0,
            sender: (0, 0),
            serving: None,
            refused: Vec::new(),
            served: Vec::new(),
            taken: 0,
            outcomes_since: None,
            is_split: false,
            lost: 0,
            keeping: Keeping::new(module.take_place(Place::Slow), p.shows_whole_intervals(discipline)),
        };
        let mut caller = Box::new(Caller::new(shape, module, Role::Slow, discipline));
        let fault = caller.launch(false).err().map(|fault| slow.report(&fault));
        slow.caller = fault.is_none().then_some(caller);
        if slow.caller.is_none() {
            slow.keeping.let_go();
        }
        (slow, fault)
    }

    /// Returns the discipline of its run.
    pub fn discipline(&self) -> Discipline {
        self.discipline
    }

    /// Returns the number of messages lost since the last call of this function.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// Queues a message of worker `worker`, which the fast call with the number `call` sent.
    pub fn message(&mut self, worker: usize, call: u64, message: &[u8]) {
        let is_limited = self.discipline.loses_late_packets();
        if self.caller.is_none() || (is_limited && self.queued + message.len() + ENTRY > QUEUED) {
            self.lost += 1;
            return;
        }
        self.queued += message.len() + ENTRY;
        let message = Task::Message { worker, call, bytes: message.to_vec() };
        match self.passed[worker] {
            passed if passed > self.done => self.ahead.push_back((passed, message)),
            _ => self.queue.push_back(message),
        }
    }

    /// Queues a call of a service, with its head. Its processor time is charged to `payer`. Without an
    /// instance it ends at once.
    pub fn serve(&mut self, call: u64, bytes: Vec<u8>, payer: Meters) {
        match self.caller {
            Some(_) => self.calls.push_back(Waiting { call, bytes, payer }),
            None => self.served.push((call, Duration::ZERO)),
        }
    }

    /// Queues the outcome of a call of a service, with its head.
    pub fn done(&mut self, bytes: Vec<u8>) {
        if self.caller.is_some() {
            self.queue.push_back(Task::Done(bytes));
        }
    }

    /// Returns whether a message, a tick or the state has not been processed. Calls of services and outcomes
    /// may come without an end, and do not count.
    pub fn has_own_work(&self) -> bool {
        let is_own = |task: &Task| !matches!(task, Task::Done(_));
        let is_in_own = |caller: &Caller| caller.is_busy() && !caller.is_in_service();
        let has_own = |caller: &Caller| is_in_own(caller) || self.queue.iter().any(is_own);
        self.caller.as_ref().is_some_and(|caller| has_own(caller) || self.keeping.is_pending())
    }

    /// Returns the module that pays for the call that is next, if that is another one.
    pub fn payer(&self) -> Option<&Meters> {
        if let Some((_, payer)) = &self.serving {
            return Some(payer);
        }
        self.calls.front().filter(|_| self.is_free()).map(|next| &next.payer)
    }

    /// Returns whether no other call waits than those of services.
    fn is_free(&self) -> bool {
        self.queue.is_empty() && !self.keeping.is_pending()
    }

    /// Returns whether a call of a service is next, or has not ended.
    pub fn is_serving(&self) -> bool {
        self.payer().is_some()
    }

    /// Returns the calls of services that were refused since the last call of this function, because those
    /// who pay have no processor time left. Only on live sources.
    pub fn take_refused(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.refused)
    }

    /// Returns the calls of services that ended since the last call of this function, and their processor
    /// time: those that were made, and those that will not be made because the run was stopped.
    pub fn take_served(&mut self) -> Vec<(u64, Duration)> {
        std::mem::take(&mut self.served)
    }

    /// Returns the number of outcomes that the instance has taken since the last call of this function.
    pub fn take_taken(&mut self) -> usize {
        std::mem::take(&mut self.taken)
    }

    /// Returns whether the last quantum ended early because the next call has another payer.
    pub fn is_split(&self) -> bool {
        self.is_split
    }

    /// Returns whether the instance is gone.
    pub fn is_gone(&self) -> bool {
        self.caller.is_none()
    }

    /// Records that the pipelines of all workers have passed the tick at `now_ns`.
    pub fn tick(&mut self, now_ns: u64) {
        self.due = now_ns;
        self.queue_tick();
    }

    /// Records that the fast instance of worker `worker` has passed the tick at `now_ns`.
    ///
    /// # Panics
    ///
    /// Panics if there is no such worker.
    pub fn passed(&mut self, worker: usize, now_ns: u64) {
        self.passed[worker] = now_ns;
        self.queue_tick();
    }

    fn queue_tick(&mut self) {
        if self.due <= self.done || self.passed.iter().any(|passed| *passed < self.due) {
            return;
        }
        self.done = self.due;
        let now = self.ticks.pass(self.due);
        if self.caller.is_some() {
            match self.queue.back_mut() {
                Some(Task::Tick { call, passed }) => (*call, *passed) = (now.or(*call), self.due),
                _ => self.queue.push_back(Task::Tick { call: now, passed: self.due }),
            }
        }
        if self.caller.as_ref().is_some_and(|caller| !caller.is_busy()) {
            self.skip_ticks();
        }
        self.release(self.done);
    }

    /// Records the ticks without a call that are next, between two calls.
    fn skip_ticks(&mut self) {
        while let Some(Task::Tick { call: None, passed }) = self.queue.front() {
            self.ended = *passed;
            self.queue.pop_front();
        }
    }

    /// Returns the last tick of which no call is left. Output that follows belongs to the time after it.
    pub fn passed_tick(&self) -> u64 {
        if self.caller.is_none() { self.done } else { self.ended }
    }

    /// Queues the messages that waited for ticks up to `tick`.
    fn release(&mut self, tick: u64) {
        for _ in 0..self.ahead.len() {
            match self.ahead.pop_front() {
                Some((passed, message)) if passed <= tick => self.queue.push_back(message),
                waits => self.ahead.extend(waits),
            }
        }
    }

    /// Returns whether a call has not ended or waits.
    pub fn is_busy(&self) -> bool {
        let is_pending = !self.is_free() || !self.calls.is_empty();
        self.caller.as_ref().is_some_and(|caller| caller.is_busy() || is_pending)
    }

    /// Returns whether a quantum would advance it.
    pub fn can_progress(&mut self) -> bool {
        let is_next = self.is_free() && !self.calls.is_empty();
        let Some(caller) = &mut self.caller else { return false };
        let is_served = is_next && !caller.is_busy();
        let has_time = caller.may_begin() || (is_served && caller.may_serve());
        let may_begin = has_time && (caller.is_busy() || !self.keeping.must_wait());
        may_begin && self.is_busy()
    }

    /// Starts the last calls, when no other waits: an instance with state exports it. Unless another one
    /// waits for that state, its end follows. Does nothing if the instance is gone.
    pub fn start_end(&mut self, now_ns: u64) {
        if self.caller.is_none() {
            return;
        }
        self.release(u64::MAX);
        self.keeping.export_last();
        if !self.keeping.is_awaited() {
            self.queue.push_back(Task::End(quantize(now_ns, self.resolution_ns)));
        }
    }

    /// Makes waiting calls until none is left or the quantum is over. `each` receives their output, with the
    /// tick after which it was made: [`SlowLoop::passed_tick`] at that time. Returns the report of the fault
    /// with which the instance ended, if it did.
    ///
    /// # Errors
    ///
    /// Returns the error of `each`.
    pub fn go<E>(
        &mut self,
        quantum: &Quantum<'_>,
        each: &mut dyn FnMut(u64, Output<'_>) -> Result<(), E>,
    ) -> Result<Option<FaultReport>, E> {
        let Some(mut caller) = self.caller.take() else { return Ok(None) };
        self.is_split = false;
        let mut made = false;
        while caller.is_busy() || self.starts(made, &mut caller, quantum) {
            made = true;
            let is_export = caller.is_in_export();
            let (keeping, since, mut state) = (&mut self.keeping, self.ended, false);
            let ended = caller.go(quantum, &mut |output| {
                if !is_export {
                    return each(since, output);
                }
                state = true;
                keeping.store(output.bytes);
                Ok(())
            })?;
            match ended {
                Ended::Paused => break,
                // Without output, the state is empty.
                Ended::Done(Call::Export, _) if !state => self.keeping.store(&[]),
                Ended::Done(Call::Import(_), _) => self.keeping.imported(caller.has_refused()),
                Ended::Done(Call::Message(_), allowance) => {
                    let (worker, call) = self.sender;
                    self.allowances[worker] = Some((call, allowance));
                }
                Ended::Done(Call::Serve(_), _) => {
                    self.end_service(caller.spent());
                    // The next call has another payer.
                    self.is_split = !quantum.is_over();
                    break;
                }
                Ended::Done(Call::Done(_), _) => self.taken += 1,
                Ended::Done(Call::Tick { now_ns }, _) => {
                    self.ended = self.ticking;
                    self.keeping.tick(now_ns);
                }
                Ended::Done(..) => {}
                Ended::Faulted(call, fault) => {
                    self.end_service(caller.spent());
                    self.lose(&call);
                    if !matches!(call, Call::Init { .. }) {
                        self.keeping.fault(quantum.stop.phase().is_last());
                    }
                    self.keeping.let_go();
                    return Ok(Some(self.report(&fault)));
                }
                // The fast instances report the reason.
                Ended::Evicted(call, _) => {
                    self.end_service(caller.spent());
                    self.lose(&call);
                    self.keeping.let_go();
                    return Ok(None);
                }
            }
            if quantum.is_over() {
                break;
            }
        }
        self.caller = Some(caller);
        Ok(None)
    }

    /// Starts the next call, unless it has another payer than one that was `made` in this quantum.
    fn starts(&mut self, made: bool, caller: &mut Caller, quantum: &Quantum<'_>) -> bool {
        self.skip_ticks();
        while let Some(Waiting { call, payer, .. }) = self.calls.front() {
            match () {
                () if !quantum.stop.phase().serves() => self.served.push((*call, Duration::ZERO)),
                () if self.discipline.limits_time() && !payer.may_begin() => self.refused.push(*call),
                () => break,
            }
            self.calls.pop_front();
        }
        self.is_split = made && self.is_free() && !self.calls.is_empty();
        !self.is_split && self.start_next(caller, quantum)
    }

    fn start_next(&mut self, caller: &mut Caller, quantum: &Quantum<'_>) -> bool {
        let next = if self.keeping.is_pending() { self.keeping.next() } else { Next::Free };
        match next {
            // A call lets an eviction take effect.
            Next::Wait if !caller.is_evicted() => return false,
            Next::Call(call) => {
                caller.start(call, caller.allowance());
                return true;
            }
            Next::Wait | Next::Free => {}
        }
        let is_served = self.is_free() && !self.calls.is_empty();
        if !is_served && caller.start_pressure(quantum.stop) {
            return true;
        }
        self.drop_outcomes(quantum.stop);
        self.leave_out(caller, quantum.stop);
        match self.queue.pop_front() {
            None => {
                let Some(Waiting { call, bytes, payer }) = self.calls.pop_front() else { return false };
                caller.start_for(Call::Serve(bytes), caller.allowance(), Some(&payer));
                self.serving = Some((call, payer));
            }
            Some(Task::End(now_ns)) => caller.start(Call::End { now_ns }, caller.allowance()),
            Some(Task::Tick { call, passed }) => {
                self.ticking = passed;
                let now_ns = call.unwrap_or(passed);
                caller.start(Call::Tick { now_ns }, caller.allowance());
            }
            Some(Task::Done(bytes)) => caller.start(Call::Done(bytes), caller.allowance()),
            Some(Task::Message { worker, call, bytes }) => {
                self.queued = self.queued.saturating_sub(bytes.len() + ENTRY);
                self.sender = (worker, call);
                // Messages may be lost, also the first of a call.
                let left = self.allowances[worker].filter(|(of, _)| *of == call);
                let allowance = left.map_or_else(|| caller.allowance(), |(_, left)| left);
                caller.start(Call::Message(bytes), allowance);
            }
        }
        true
    }

    /// Drops the outcomes that were not taken some time after the run was stopped. How many there are does
    /// not depend on this module alone.
    fn drop_outcomes(&mut self, stop: &Stop<'_>) {
        if !stop.phase().is_last() || !self.queue.iter().any(|task| matches!(task, Task::Done(_))) {
            return;
        }
        if self.outcomes_since.get_or_insert_with(Instant::now).elapsed() > STOP_GRACE {
            let before = self.queue.len();
            self.queue.retain(|task| !matches!(task, Task::Done(_)));
            let dropped = before - self.queue.len();
            self.taken += dropped;
            self.lost += dropped as u64;
        }
    }

    /// Drops what waits and is not processed any more, because the run was stopped. Messages are lost.
    fn leave_out(&mut self, caller: &Caller, stop: &Stop<'_>) {
        let phase = stop.phase();
        let (ticks, messages) = (caller.leaves_out(true, phase), caller.leaves_out(false, phase));
        if ticks || messages {
            self.queue.retain(|task| {
                let is_lost = messages && matches!(task, Task::Message { .. });
                self.lost += u64::from(is_lost);
                if let Task::Tick { passed, .. } = task
                    && ticks
                {
                    self.ended = *passed;
                    return false;
                }
                !is_lost
            });
        }
    }

    /// Records the end of the call of a service, however it ended: its caller pays for it.
    fn end_service(&mut self, spent: Duration) {
        self.served.extend(self.serving.take().map(|(call, _)| (call, spent)));
    }

    /// Counts the messages that are lost with the instance: the current one and those that wait. Calls of
    /// services that wait end.
    fn lose(&mut self, call: &Call) {
        let waiting = self.queue.drain(..).chain(self.ahead.drain(..).map(|(_, task)| task));
        let waiting = waiting.filter(|task| matches!(task, Task::Message { .. })).count() as u64;
        self.lost += waiting + u64::from(matches!(call, Call::Message(_)));
        self.queued = 0;
        self.served.extend(self.calls.drain(..).map(|waiting| (waiting.call, Duration::ZERO)));
    }

    fn report(&self, fault: &Fault) -> FaultReport {
        let report = FaultReport::new(self.id, self.name.clone(), fault.text(self.granted));
        FaultReport { class: Some((fault.call, fault.class())), ..report }
    }
}
