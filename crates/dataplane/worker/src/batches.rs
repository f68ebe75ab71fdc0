use crate::error::RunError;
use crate::remote::RemoteBatches;
use flame_block::{Pool, ReaderId};
use flame_execute::{BatchLoop, Conditions, Outlet, Stop};
use flame_plan::{Account, ModuleId, Shed};
use std::time::Duration;

/// The interval at which a pipeline that has nothing else to do checks whether a process has ended its work.
const LOOK: Duration = Duration::from_micros(100);

/// A module of a view on one worker: here, or in a process of its principal.
pub(crate) enum Batches {
    Here(Box<BatchLoop>),
    There(Box<RemoteBatches>),
}

impl Batches {
    pub(crate) fn module(&self) -> ModuleId {
        match self {
            Self::Here(batches) => batches.module(),
            Self::There(batches) => batches.id(),
        }
    }

    pub(crate) fn reader(&self) -> ReaderId {
        match self {
            Self::Here(batches) => batches.reader(),
            Self::There(batches) => batches.reader(),
        }
    }

    /// Returns the account of the packets so far.
    pub(crate) fn account(&self) -> Account {
        match self {
            Self::Here(batches) => batches.account().clone(),
            Self::There(batches) => batches.account(),
        }
    }

    pub(crate) fn into_account(self) -> Account {
        match self {
            Self::Here(batches) => batches.into_account(),
            Self::There(batches) => batches.into_account(),
        }
    }

    pub(crate) fn offer(&mut self, offered: u64, filtered: u64) {
        match self {
            Self::Here(batches) => batches.offer(offered, filtered),
            Self::There(batches) => batches.offer(offered, filtered),
        }
    }

    pub(crate) fn shed(&mut self, cause: Shed, packets: u64) {
        match self {
            Self::Here(batches) => batches.shed(cause, packets),
            Self::There(batches) => batches.shed(cause, packets),
        }
    }

    /// Counts a block of `packets` that was published.
    pub(crate) fn published(&mut self, pool: &mut Pool, packets: u64) {
        match self {
            Self::Here(batches) => batches.count_lost(),
            Self::There(batches) => batches.published(pool, packets),
        }
    }

    /// Returns whether a block can be published that this module does not lose.
    pub(crate) fn has_room(&mut self, pool: &mut Pool, stop: &Stop<'_>) -> bool {
        match self {
            Self::Here(_) => true,
            Self::There(batches) => batches.has_room(pool, stop),
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Self::Here(batches) => batches.is_busy(),
            Self::There(_) => false,
        }
    }

    pub(crate) fn can_progress(&mut self) -> bool {
        match self {
            Self::Here(batches) => batches.can_progress(),
            Self::There(_) => false,
        }
    }

    pub(crate) fn go(
        &mut self,
        conditions: Conditions<'_>,
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        match self {
            Self::Here(batches) => batches.go(conditions, outlet),
            Self::There(_) => Ok(()),
        }
    }

    /// Advances a module that receives no more blocks towards its end. Returns whether it has ended.
    pub(crate) fn leave(
        &mut self,
        now_ns: u64,
        conditions: Conditions<'_>,
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<bool, RunError> {
        match self {
            Self::Here(batches) => batches.leave(now_ns, conditions, outlet),
            Self::There(batches) => Ok(batches.leave(now_ns, conditions.stop)),
        }
    }

    /// Begins the end of a module in a process, which takes place while others end here.
    pub(crate) fn begin_end(&mut self, now_ns: u64, stop: &Stop<'_>) {
        if let Self::There(batches) = self {
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
        match self {
            Self::Here(batches) => batches.end(now_ns, stop, outlet),
            Self::There(batches) => {
                while !batches.leave(now_ns, stop) {
                    std::thread::sleep(LOOK);
                }
                Ok(())
            }
        }
    }
}
