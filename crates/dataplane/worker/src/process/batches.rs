use super::deadline::{Wait, WorkDeadline};
use super::module::RemoteModule;
use super::state::Ending;
use crate::error::RunError;
use crossbeam_channel::Sender;
use flame_block::{Depths, MAX_QUEUES, Pool, ReaderFds, ReaderId};
use flame_execute::{Attachment, Stop};
use flame_output::{FrameCounts, OutputError, Sent};
use flame_plan::limits::PROCESS_CLOSED_MAX;
use flame_plan::{Account, ModuleId, Shed};
use flame_remote::Command;
use std::time::{Duration, Instant};

/// A module in a process, on one worker: its reader, and the account of the packets for it.
pub(crate) struct RemoteBatches {
    module: RemoteModule,
    worker: usize,
    reader: ReaderId,
    depths: Depths,
    /// The packets that were offered, filtered, and lost before they were delivered.
    own: Account,
    /// The packets that were delivered, by event queue.
    delivered: [u64; MAX_QUEUES],
    /// The number of packets that the reader lost, by event queue.
    lost: [u64; MAX_QUEUES],
    is_ending: bool,
    /// Whether it is being removed while the run continues.
    is_removal: bool,
    /// The time since which the process has its buffer closed.
    closed: Option<Instant>,
    deadline: WorkDeadline,
    /// The rest of its removal, if it leaves a view that others share.
    leaving: Option<(u64, Sender<Account>)>,
}

impl RemoteBatches {
    fn new(module: RemoteModule, worker: usize, reader: ReaderId, depths: Depths) -> Self {
        let (own, deadline) = (module.plan.empty_account(), WorkDeadline::of(&module));
        Self {
            module,
            worker,
            reader,
            depths,
            own,
            delivered: [0; MAX_QUEUES],
            lost: [0; MAX_QUEUES],
            is_ending: false,
            is_removal: false,
            closed: None,
            deadline,
            leaving: None,
        }
    }

    /// Starts a module on one worker, with a reader of `pool` that holds at most `depths` blocks.
    pub(crate) fn attach(
        module: &RemoteModule,
        Attachment { worker, discipline }: Attachment,
        (pool, depths): (&mut Pool, impl Into<Depths>),
    ) -> Result<Self, RunError> {
        let depths = depths.into();
        let ReaderFds { id, data, control, event } = pool.remote_reader(depths)?;
        let command = Command::Attach { module: module.plan.id, worker, discipline };
        module.process.send(command, vec![data, control, event]);
        Ok(Self::new(module.clone(), worker, id, depths))
    }

    /// Returns the name of the module.
    pub(crate) fn name(&self) -> &str {
        &self.module.plan.name
    }

    pub(crate) fn id(&self) -> ModuleId {
        self.module.plan.id
    }

    pub(crate) fn reader(&self) -> ReaderId {
        self.reader
    }

    /// Returns the number of blocks that may wait for the module.
    pub(crate) fn depth(&self) -> usize {
        self.depths.sum()
    }

    /// Returns the number of packets that were lost because it held its blocks.
    pub(crate) fn overruns(&self) -> u64 {
        self.own.shed_by(Shed::Overrun)
    }

    /// Returns the processor time of its process, unless that is gone.
    pub(crate) fn processor_time(&self) -> Option<Duration> {
        self.module.process.processor_time()
    }

    /// Returns the time for which its process has waited for a processor, unless it is gone.
    pub(crate) fn waiting_time(&self) -> Option<Duration> {
        self.module.process.waiting_time()
    }

    /// Returns whether the kernel guarantees its processor time.
    pub(crate) fn is_guaranteed(&self) -> bool {
        self.module.process.is_guaranteed(self.module.plan.id)
    }

    /// Records that a tick is about to be published.
    pub(crate) fn tick(&self, now_ns: u64) {
        self.module.state.tick(self.worker, now_ns);
    }

    /// Returns whether no block will reach the module any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.leaving.is_some() || self.is_evicted() || self.is_gone()
    }

    /// Returns whether the module has no instance any more on this worker.
    pub(crate) fn has_died(&self) -> bool {
        self.has_ended() || self.module.state.is_dead(self.worker)
    }

    /// Returns why no block reaches the module, if so.
    pub(crate) fn refuses(&self) -> Option<Shed> {
        match () {
            () if self.leaving.is_some() => Some(Shed::Stopped),
            () if self.is_evicted() => Some(Shed::Evicted),
            () if self.is_gone() => Some(Shed::Stopped),
            () if self.module.state.is_held() => Some(Shed::Share),
            () => None,
        }
    }

    /// Returns the account in which packets are counted before they are delivered, unless the module leaves a
    /// view that others share.
    pub(crate) fn account_mut(&mut self) -> Option<&mut Account> {
        self.leaving.is_none().then_some(&mut self.own)
    }

    /// Removes the module while others continue to share its view. It keeps the blocks that it has.
    pub(crate) fn retire(&mut self, pool: &mut Pool, now_ns: u64, reply: Sender<Account>) {
        pool.retire(self.reader);
        self.remove();
        self.leaving = Some((now_ns, reply));
    }

    /// Records that the module is being removed while the run continues: it has little time for its end.
    pub(crate) fn remove(&mut self) {
        self.is_removal = true;
        self.module.state.remove();
    }

    pub(crate) fn leaving(&self) -> Option<&(u64, Sender<Account>)> {
        self.leaving.as_ref()
    }

    /// Counts a block that was published in an event queue. Returns whether the module has received it.
    pub(crate) fn published(&mut self, pool: &mut Pool, queue: usize, packets: u64) -> bool {
        if self.leaving.is_some() {
            return false;
        }
        if self.is_evicted() || self.is_gone() {
            pool.remove(self.reader);
        }
        let Some(lost) = pool.lost(self.reader, queue) else {
            if !self.is_ending && !self.is_evicted() && !self.is_gone() {
                // Blocks would reach it no more, and it would stay.
                let closed = *self.closed.get_or_insert_with(Instant::now);
                if closed.elapsed() > PROCESS_CLOSED_MAX {
                    self.module.process.kill("it closed the buffer of a module that nobody removed");
                }
            }
            self.own.shed(self.loss(), packets);
            return false;
        };
        let behind = lost - std::mem::replace(&mut self.lost[queue % MAX_QUEUES], lost);
        self.own.overrun(queue, behind);
        self.delivered[queue % MAX_QUEUES] += packets - behind.min(packets);
        self.module.meters.packets((packets - behind.min(packets)) as u32);
        behind == 0
    }

    /// Counts packets about which a module that forwards has decided, or that it lost for a cause. Of those
    /// no report of the process counts.
    pub(crate) fn decided(&mut self, packets: u32, lost: Option<(Shed, u32)>) {
        let shed = lost.map_or(0, |(cause, shed)| {
            self.own.shed(cause, shed.into());
            shed
        });
        self.own.process(0, packets.saturating_sub(shed).into());
    }

    /// Returns whether the process has room for another block of an event queue, or for half of its blocks if
    /// `much` is asked for, or is gone.
    pub(crate) fn has_room(
        &mut self,
        pool: &mut Pool,
        (queue, much): (usize, bool),
        stop: &Stop<'_>,
    ) -> bool {
        let has_room = if much { Pool::has_much_room } else { Pool::has_room };
        let has_room = self.leaving.is_some()
            || self.module.state.is_held()
            || self.is_gone()
            || self.is_evicted()
            || has_room(pool, self.reader, queue).unwrap_or(true);
        let released = pool.released(self.reader).unwrap_or(0);
        match has_room {
            true => self.deadline.rest(),
            false => {
                // The blocks of one that is being removed belong to its end.
                let is_removal = self.is_removal;
                let wait = if is_removal { Wait::End { is_removal } } else { Wait::Blocks { released } };
                self.deadline.check(&self.module, wait, stop);
            }
        }
        has_room
    }

    /// Kills the process if it takes too long for its decision about a block, or has slept for too long in
    /// all decisions together.
    pub(crate) fn await_decision(&mut self, pool: &mut Pool, stop: &Stop<'_>) {
        if self.module.state.is_held() {
            return self.rest();
        }
        pool.has_room(self.reader, 0);
        let released = pool.released(self.reader).unwrap_or(0);
        self.deadline.check(&self.module, Wait::Blocks { released }, stop);
    }

    /// Records that nobody waits for the process.
    pub(crate) fn rest(&mut self) {
        self.deadline.rest();
    }

    /// Returns whether the process has reported what became of all packets that it got and has passed all
    /// ticks, or is gone.
    pub(crate) fn is_settled(&self) -> bool {
        let reported = self.module.state.account(self.worker);
        let shed =
            Shed::ALL.into_iter().filter(|cause| *cause != Shed::Overrun).map(|by| reported.shed_by(by));
        let known = shed.fold(reported.processed, u64::saturating_add);
        self.has_ended() || (known >= self.delivered.iter().sum() && self.has_passed_ticks())
    }

    /// Returns whether the process has passed the last tick.
    pub(crate) fn has_passed_ticks(&self) -> bool {
        self.module.state.has_passed_ticks(self.worker)
    }

    /// Returns whether the module decides about no packet any more: it was evicted, or everything that its
    /// process reported was handled.
    pub(crate) fn is_over(&self) -> bool {
        self.is_evicted() || self.module.state.has_ended()
    }

    /// Returns why the packets are lost that the module does not decide about.
    pub(crate) fn loss(&self) -> Shed {
        if self.is_evicted() { Shed::Evicted } else { Shed::Stopped }
    }

    /// Checks output of one call of a module that forwards. `sent` are the packets that it has sent of those
    /// about which it decides.
    pub(crate) fn check(&self, output: &[u8], sent: &mut Sent) -> Result<FrameCounts, OutputError> {
        self.module.state.schema.check_sent(output, true, Some(sent))
    }

    /// Kills the process, whose reports are wrong.
    pub(crate) fn kill(&self, reason: &str) {
        self.module.process.kill(reason);
    }

    fn is_gone(&self) -> bool {
        self.module.state.has_ended() || self.module.process.is_gone()
    }

    fn is_evicted(&self) -> bool {
        self.module.state.eviction.reason().is_some()
    }

    /// Returns the account so far. Packets of which a module that has ended reported nothing are lost.
    pub(crate) fn account(&self) -> Account {
        // First: all that was reported is in the account then.
        let is_over = self.is_evicted() || self.is_gone();
        let mut account = self.reported();
        // Whoever has the packets of a module that forwards counts them.
        if is_over && self.module.plan.manifest.ports.is_none() {
            self.lose_rest(&mut account);
        }
        account
    }

    /// Counts packets that are in no counter as lost.
    fn lose_rest(&self, account: &mut Account) {
        let missing = account.offered.saturating_sub(account.accounted() + account.sampled);
        account.shed(self.loss(), missing);
    }

    /// Returns the account that the process reports, which counts within the number of packets that it got.
    fn reported(&self) -> Account {
        let reported = self.module.state.account(self.worker);
        let mut account = self.own.clone();
        account.faults = reported.faults;
        account.messages_lost = reported.messages_lost;
        account.records_lost = reported.records_lost;
        if self.module.plan.manifest.ports.is_some() {
            return account;
        }
        let mut left = self.delivered.iter().sum::<u64>();
        let mut take = |packets: u64| {
            let taken = packets.min(left);
            left -= taken;
            taken
        };
        account.processed = match account.queues.is_empty() {
            true => take(reported.processed),
            false => {
                let delivered = self.delivered.iter().zip(&reported.queues);
                for (queue, (delivered, reported)) in account.queues.iter_mut().zip(delivered) {
                    queue.processed = take(reported.processed.min(*delivered));
                }
                account.queues.iter().map(|queue| queue.processed).sum()
            }
        };
        for cause in Shed::ALL.into_iter().filter(|cause| !matches!(cause, Shed::Overrun | Shed::Overload)) {
            account.shed(cause, take(reported.shed_by(cause)));
        }
        account
    }

    /// Returns the final account: packets of which nothing was reported count as stopped.
    pub(crate) fn into_account(self) -> Account {
        let mut account = self.reported();
        self.lose_rest(&mut account);
        account
    }

    /// Requests the module's end on this worker, once. Returns whether the module has ended on all workers.
    pub(crate) fn leave(&mut self, now_ns: u64, stop: &Stop<'_>) -> bool {
        if !std::mem::replace(&mut self.is_ending, true) {
            let hands_over = self.module.state.is_followed();
            self.module.end(self.worker, now_ns, hands_over);
        }
        let has_ended = self.module.state.has_ended();
        if !has_ended {
            let wait = match self.module.state.ending() {
                Ending::Reported | Ending::Drained => Wait::Others,
                _ => Wait::End { is_removal: self.is_removal },
            };
            self.deadline.check(&self.module, wait, stop);
        }
        has_ended
    }
}

impl Drop for RemoteBatches {
    /// Releases the process, which must not wait for a worker that has failed.
    fn drop(&mut self) {
        if !self.is_ending {
            self.module.end(self.worker, 0, false);
        }
    }
}
