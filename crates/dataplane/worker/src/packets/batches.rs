use crate::error::RunError;
use crate::packets::overload::Sample;
use crate::process::RemoteBatches;
use crate::records::charge;
use crate::records::onset::Awaited;
use crossbeam_channel::Sender;
use flame_base::Backoff;
use flame_block::{Pool, ReaderId};
use flame_execute::{BatchLoop, Conditions, Outlet, Stop};
use flame_plan::{Account, ModuleId, Shed};
use flame_quota::{Meters, Usage};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The waits of a pipeline with nothing else to do for a process that ends its work.
pub(crate) const PROCESS_CHECK: Backoff = Backoff::every(Duration::from_micros(100));

/// A module of a view on one worker.
pub(crate) struct Batches {
    place: Place,
    waiting: Waiting,
    /// Its beginning, before which no packet is offered to it.
    awaited: Option<Awaited>,
    /// Its account at the last tick, if it is shown whole intervals only: at its end no later packet counts.
    whole: Option<Box<Account>>,
    /// Whether it receives nothing of the present block, because the worker is behind.
    is_left_out: bool,
    /// Its removal while others share its view, if it runs here: the time of its end, and who waits for it.
    retired: Option<(u64, Sender<Account>)>,
    gauge: Option<Gauge>,
}

/// The measurement of a module for the control of overload: its sums, and those of the last sample.
#[derive(Default)]
struct Gauge {
    /// The time in its calls here.
    time: Duration,
    /// The packets that were offered to it while it was not left out.
    offered: u64,
    last: (Duration, u64),
    overruns: u64,
    /// The time for which its process has waited for a processor at the last loss.
    waited: Option<(Instant, Duration)>,
}

/// The blocks that wait for a module on this worker, counted in its use.
struct Waiting {
    usage: Option<Arc<Usage>>,
    blocks: u64,
}

/// The place where a module runs: this thread, or a process of its principal.
pub(crate) enum Place {
    Local(Box<BatchLoop>),
    Remote(Box<RemoteBatches>),
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl Waiting {
    fn set(&mut self, blocks: u64) {
        let before = std::mem::replace(&mut self.blocks, blocks);
        let Some(usage) = self.usage.as_ref().filter(|_| before != blocks) else { return };
        match blocks.checked_sub(before) {
            Some(more) => usage.blocks.add(more),
            None => usage.blocks.subtract(before - blocks),
        }
    }
}

impl Gauge {
    /// A process lacks a processor if it was runnable and did not run for 1/20 of the time.
    const LACKS_PART: u32 = 20;

    /// Returns whether the process has waited for a processor for long since the last loss. `waited` is the
    /// time for which it has waited in all.
    fn waits(&mut self, waited: Option<Duration>) -> bool {
        let Some(waited) = waited else { return false };
        let now = Instant::now();
        let last = self.waited.replace((now, waited));
        last.is_some_and(|(at, before)| waited.saturating_sub(before) * Self::LACKS_PART >= now - at)
    }
}

impl Batches {
    /// Creates the part of a module here. It is measured if `is_gauged`.
    pub(crate) fn new(place: Place, meters: &Meters, is_gauged: bool, awaited: Option<Awaited>) -> Self {
        Self {
            place,
            waiting: Waiting { usage: meters.usage().cloned(), blocks: 0 },
            awaited,
            whole: None,
            is_left_out: false,
            retired: None,
            gauge: is_gauged.then(Gauge::default),
        }
    }

    /// Decides whether the module receives packets. Returns whether that is new.
    pub(crate) fn leave_out(&mut self, is_left_out: bool) -> bool {
        std::mem::replace(&mut self.is_left_out, is_left_out) != is_left_out
    }

    /// Returns whether the module has not begun: packets are not offered to it.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.is_some()
    }

    /// Returns whether the next blocks are not for the module.
    pub(crate) fn is_passed_over(&self) -> bool {
        self.is_left_out || self.is_awaited()
    }

    /// Reports a time to the workers on which the module begins as well.
    pub(crate) fn report_time(&mut self, now_ns: u64) {
        self.awaited.iter_mut().for_each(|awaited| awaited.report(now_ns));
    }

    /// Passes a tick, at which the module may begin. Returns whether it does.
    pub(crate) fn begin(&mut self, now_ns: u64) -> bool {
        let begins = self.awaited.take_if(|awaited| awaited.pass(now_ns)).is_some();
        if begins {
            self.whole = Some(Box::new(self.account()));
        }
        begins
    }

    /// Records that an interval has ended with the packets so far.
    pub(crate) fn end_interval(&mut self) {
        if self.whole.is_some() && self.retired.is_none() {
            self.whole = Some(Box::new(self.account()));
        }
    }

    /// Returns the measurement since the last call.
    pub(crate) fn sample(&mut self) -> Sample {
        let Some(gauge) = &mut self.gauge else {
            return Sample { cost: None, is_pressed: false, is_guaranteed: false };
        };
        let (overruns, remote) = match &self.place {
            Place::Local(batches) => (batches.account().shed_by(Shed::Overrun), None),
            Place::Remote(batches) => (batches.overruns(), Some(batches)),
        };
        let time = remote.map_or(gauge.time, |remote| remote.processor_time().unwrap_or(gauge.last.0));
        let (before, packets) = std::mem::replace(&mut gauge.last, (time, gauge.offered));
        let has_lost = std::mem::replace(&mut gauge.overruns, overruns) != overruns;
        let is_pressed = has_lost && remote.is_none_or(|remote| gauge.waits(remote.waiting_time()));
        let picoseconds = time.saturating_sub(before).as_nanos() as u64 * 1000;
        Sample {
            cost: picoseconds.checked_div(gauge.offered - packets),
            is_pressed,
            is_guaranteed: remote.is_some_and(|remote| remote.is_guaranteed()),
        }
    }

    /// Counts the blocks that wait for the module now.
    pub(crate) fn count_blocks(&mut self, pool: &mut Pool) {
        if self.waiting.usage.is_some() {
            let backlog = pool.backlog(self.reader());
            self.waiting.set(backlog.map_or(0, |backlog| backlog.held));
        }
    }

    pub(crate) fn module(&self) -> ModuleId {
        match &self.place {
            Place::Local(batches) => batches.module(),
            Place::Remote(batches) => batches.id(),
        }
    }

    /// Returns the module's part here, if it runs in a process of its principal.
    pub(crate) fn remote(&self) -> Option<&RemoteBatches> {
        match &self.place {
            Place::Local(_) => None,
            Place::Remote(batches) => Some(batches),
        }
    }

    pub(crate) fn remote_mut(&mut self) -> Option<&mut RemoteBatches> {
        match &mut self.place {
            Place::Local(_) => None,
            Place::Remote(batches) => Some(batches),
        }
    }

    pub(crate) fn is_remote(&self) -> bool {
        self.remote().is_some()
    }

    /// Removes the module while others continue to share its view. It keeps the blocks that it has.
    pub(crate) fn retire(&mut self, pool: &mut Pool, now_ns: u64, reply: Sender<Account>) {
        match &mut self.place {
            Place::Local(batches) => {
                pool.retire(batches.reader());
                self.retired = Some((now_ns, reply));
            }
            Place::Remote(batches) => batches.retire(pool, now_ns, reply),
        }
    }

    /// Returns the removal of a module from a view that others share, if it has not ended.
    pub(crate) fn leaving(&self) -> Option<&(u64, Sender<Account>)> {
        self.remote().map_or(self.retired.as_ref(), RemoteBatches::leaving)
    }

    pub(crate) fn reader(&self) -> ReaderId {
        match &self.place {
            Place::Local(batches) => batches.reader(),
            Place::Remote(batches) => batches.reader(),
        }
    }

    /// Returns the account of the packets so far.
    pub(crate) fn account(&self) -> Account {
        match &self.place {
            Place::Local(batches) => batches.account().clone(),
            Place::Remote(batches) => batches.account(),
        }
    }

    /// Returns the final account.
    pub(crate) fn into_account(self) -> Account {
        let account = match self.place {
            Place::Local(batches) => batches.into_account(),
            Place::Remote(batches) => batches.into_account(),
        };
        match self.whole {
            Some(whole) => account.until(&whole),
            None => account,
        }
    }

    /// Records that a tick is about to be published.
    pub(crate) fn tick(&self, now_ns: u64) {
        if let Some(batches) = self.remote() {
            batches.tick(now_ns);
        }
    }

    pub(crate) fn offer(&mut self, offered: u64, filtered: u64) {
        if self.is_awaited() {
            return;
        }
        if let Some(gauge) = self.gauge.as_mut().filter(|_| !self.is_left_out) {
            gauge.offered += offered;
        }
        self.count(|account| account.offer(offered, filtered));
    }

    /// Counts packets that came into an event queue.
    pub(crate) fn queued(&mut self, queue: usize, packets: u64) {
        if !self.is_awaited() {
            self.count(|account| account.queued(queue, packets));
        }
    }

    pub(crate) fn sampled(&mut self, packets: u64) {
        if !self.is_awaited() {
            self.count(|account| account.sample(packets));
        }
    }

    /// Counts packets without their payload, which contains a packet.
    pub(crate) fn cut(&mut self, packets: u64) {
        self.count(|account| account.cut += packets);
    }

    /// Counts packets before they come in a block.
    fn count(&mut self, count: impl FnMut(&mut Account)) {
        let account = match &mut self.place {
            Place::Local(batches) => self.retired.is_none().then(|| batches.account_mut()),
            Place::Remote(batches) => batches.account_mut(),
        };
        account.into_iter().for_each(count);
    }

    pub(crate) fn shed(&mut self, cause: Shed, packets: u64) {
        match &mut self.place {
            _ if self.awaited.is_some() || self.retired.is_some() => {}
            Place::Local(batches) => batches.shed(cause, packets),
            Place::Remote(_) => self.count(|account| account.shed(cause, packets)),
        }
    }

    /// Counts packets for which there is no room.
    pub(crate) fn overrun(&mut self, packets: u64) {
        self.shed(if self.is_left_out { Shed::Overload } else { Shed::Overrun }, packets);
    }

    /// Returns why no block reaches the module, if it is known here.
    pub(crate) fn refuses(&self) -> Option<Shed> {
        let refuses = match &self.place {
            Place::Local(_) => self.retired.as_ref().map(|_| Shed::Stopped),
            Place::Remote(batches) => batches.refuses(),
        };
        refuses.or(self.is_passed_over().then_some(Shed::Overload))
    }

    /// Counts a block of `packets` that was published in an event queue.
    pub(crate) fn published(&mut self, pool: &mut Pool, queue: usize, packets: u64) {
        match &mut self.place {
            _ if self.awaited.is_some() => {}
            _ if self.is_left_out => {
                let cause = self.refuses().unwrap_or(Shed::Overload);
                self.shed(cause, packets);
            }
            Place::Local(batches) => batches.count_lost(),
            Place::Remote(batches) => {
                batches.published(pool, queue, packets);
            }
        }
        self.count_blocks(pool);
    }

    /// Returns whether a block of an event queue can be published that this module does not lose.
    pub(crate) fn has_room(&mut self, pool: &mut Pool, queue: (usize, bool), stop: &Stop<'_>) -> bool {
        match &mut self.place {
            Place::Local(_) => true,
            Place::Remote(batches) => batches.has_room(pool, queue, stop),
        }
    }

    /// Returns whether the module has no instance any more.
    pub(crate) fn is_gone(&self) -> bool {
        match &self.place {
            Place::Local(batches) => batches.is_gone(),
            Place::Remote(batches) => batches.has_died(),
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        match &self.place {
            Place::Local(batches) => self.retired.is_some() || batches.is_busy(),
            Place::Remote(_) => false,
        }
    }

    pub(crate) fn can_progress(&mut self) -> bool {
        match &mut self.place {
            Place::Local(_) if self.retired.is_some() => self.can_leave(),
            Place::Local(batches) => batches.can_progress(),
            Place::Remote(_) => false,
        }
    }

    /// Returns whether another quantum would bring a module nearer to its end that receives no more blocks.
    pub(crate) fn can_leave(&mut self) -> bool {
        match &mut self.place {
            Place::Local(batches) => !batches.is_busy() || batches.can_progress(),
            Place::Remote(_) => false,
        }
    }

    pub(crate) fn go(
        &mut self,
        conditions: Conditions<'_>,
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        let Place::Local(batches) = &mut self.place else { return Ok(()) };
        if self.retired.is_some() {
            return Ok(());
        }
        let _charged = charge::enter(self.waiting.usage.as_ref());
        let Some(gauge) = &mut self.gauge else { return batches.go(conditions, outlet) };
        let start = Instant::now();
        let gone = batches.go(conditions, outlet);
        gauge.time += start.elapsed();
        gone
    }

    /// Advances a module that receives no more blocks towards its end. Returns whether it has ended.
    pub(crate) fn leave(
        &mut self,
        now_ns: u64,
        conditions: Conditions<'_>,
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<bool, RunError> {
        let _charged = charge::enter(self.waiting.usage.as_ref());
        match &mut self.place {
            Place::Local(batches) => batches.leave(now_ns, conditions, outlet),
            Place::Remote(batches) => Ok(batches.leave(now_ns, conditions.stop)),
        }
    }

    /// Begins the end of a module in a process, which takes place while others end here.
    pub(crate) fn begin_end(&mut self, now_ns: u64, stop: &Stop<'_>) {
        if let Place::Remote(batches) = &mut self.place {
            batches.leave(now_ns, stop);
        }
    }

    /// Makes the last call, and returns when it has ended. No work waits any more.
    pub(crate) fn end(
        &mut self,
        now_ns: u64,
        stop: &Stop<'_>,
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        let _charged = charge::enter(self.waiting.usage.as_ref());
        match &mut self.place {
            Place::Local(batches) => batches.end(now_ns, stop, outlet),
            Place::Remote(batches) => {
                let left =
                    || if batches.leave(now_ns, stop) { Some(Ok(())) } else { outlet.wait().err().map(Err) };
                PROCESS_CHECK.sleep_until(left)
            }
        }
    }
}
