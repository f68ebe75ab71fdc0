use crate::remote::RemoteModule;
use crate::remote::process::Patience;
use flame_block::{Pool, ReaderId};
use flame_execute::Stop;
use flame_plan::{Account, ModuleId, Shed};
use flame_remote::Command;

/// A module in a process, on one worker: its reader, and the account of the packets for it.
pub(crate) struct RemoteBatches {
    module: RemoteModule,
    worker: usize,
    reader: ReaderId,
    depth: usize,
    /// The packets that were offered, filtered, and lost before they were delivered.
    own: Account,
    delivered: u64,
    /// The number of packets that the reader lost.
    lost: u64,
    is_ending: bool,
    patience: Patience,
}

impl RemoteBatches {
    pub(crate) fn new(module: RemoteModule, worker: usize, reader: ReaderId, depth: usize) -> Self {
        let own = Account::default();
        Self {
            module,
            worker,
            reader,
            depth,
            own,
            delivered: 0,
            lost: 0,
            is_ending: false,
            patience: Patience::default(),
        }
    }

    pub(crate) fn id(&self) -> ModuleId {
        self.module.plan.id
    }

    pub(crate) fn reader(&self) -> ReaderId {
        self.reader
    }

    pub(crate) fn offer(&mut self, offered: u64, filtered: u64) {
        self.own.offered += offered;
        self.own.filtered += filtered;
    }

    pub(crate) fn shed(&mut self, cause: Shed, packets: u64) {
        self.own.shed(cause, packets);
    }

    /// Counts a block that was published.
    pub(crate) fn published(&mut self, pool: &mut Pool, packets: u64) {
        if self.is_evicted() || self.is_gone() {
            pool.remove(self.reader);
        }
        let Some(lost) = pool.lost(self.reader) else {
            let cause = if self.is_evicted() { Shed::Evicted } else { Shed::Stopped };
            return self.own.shed(cause, packets);
        };
        let behind = lost - std::mem::replace(&mut self.lost, lost);
        self.own.shed(Shed::Overrun, behind);
        self.delivered += packets - behind.min(packets);
        self.module.meters.packets((packets - behind.min(packets)) as u32);
    }

    /// Returns whether the process has room for another block, or is gone.
    pub(crate) fn has_room(&mut self, pool: &mut Pool, stop: &Stop<'_>) -> bool {
        let has_room = self.is_gone()
            || self.is_evicted()
            || pool.backlog(self.reader).is_none_or(|backlog| backlog.held < self.depth as u64);
        match has_room {
            true => self.patience = Patience::default(),
            false => self.patience.check(&self.module, stop),
        }
        has_room
    }

    fn is_gone(&self) -> bool {
        self.module.state.has_ended() || self.module.process.is_gone()
    }

    fn is_evicted(&self) -> bool {
        self.module.state.eviction.reason().is_some()
    }

    /// Returns the account so far. What the process reports counts within the number of packets that it got.
    pub(crate) fn account(&self) -> Account {
        let reported = self.module.state.account(self.worker);
        let mut account = self.own.clone();
        let mut left = self.delivered;
        let mut take = |packets: u64| {
            let taken = packets.min(left);
            left -= taken;
            taken
        };
        account.processed = take(reported.processed);
        for cause in Shed::ALL.into_iter().filter(|cause| *cause != Shed::Overrun) {
            account.shed(cause, take(reported.shed_by(cause)));
        }
        account.faults = reported.faults;
        account.messages_lost = reported.messages_lost;
        account
    }

    /// Returns the final account: packets of which nothing was reported count as stopped.
    pub(crate) fn into_account(self) -> Account {
        let mut account = self.account();
        let missing = account.offered.saturating_sub(account.accounted());
        let cause = if self.is_evicted() { Shed::Evicted } else { Shed::Stopped };
        account.shed(cause, missing);
        account
    }

    /// Requests the module's end on this worker, once. Returns whether the module has ended on all workers.
    pub(crate) fn leave(&mut self, now_ns: u64, stop: &Stop<'_>) -> bool {
        if !std::mem::replace(&mut self.is_ending, true) {
            let command = Command::End { module: self.id(), worker: self.worker, now_ns };
            self.module.process.send(command, Vec::new());
        }
        self.patience.check(&self.module, stop);
        self.module.state.has_ended()
    }
}

impl Drop for RemoteBatches {
    /// The process must not wait for a worker that has failed.
    fn drop(&mut self) {
        if !self.is_ending {
            let command = Command::End { module: self.id(), worker: self.worker, now_ns: 0 };
            self.module.process.send(command, Vec::new());
        }
    }
}
