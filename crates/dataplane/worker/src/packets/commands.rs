//! What passes between a run's handle and its workers: commands one way, totals the other.

use crate::records::calls::Question;
use crate::records::placed::Placed;
use crossbeam_channel::Sender;
use flame_plan::{Account, ModuleId};
use std::sync::atomic::{AtomicU64, Ordering};

/// A command that every pipeline executes between two blocks.
#[derive(Clone)]
pub(crate) enum Command {
    Add(Box<Placed>),
    Remove(ModuleId, Sender<Account>),
    /// Adds the module where the other one is removed, so that each packet is offered to one of the two.
    Replace(Box<Placed>, ModuleId, Sender<Account>),
    Accounts(Sender<Vec<(ModuleId, Account)>>),
    /// A question to a service of a module, where the pipeline's thread also collects.
    Ask(ModuleId, Question),
}

impl Command {
    /// Records that a worker that has ended will not execute the command.
    pub(crate) fn abandon(&self, worker: usize) {
        match self {
            Self::Add(module) | Self::Replace(module, ..) => module.abandon(worker),
            Self::Remove(..) | Self::Accounts(_) | Self::Ask(..) => {}
        }
    }
}

/// Totals that readers publish once per block.
#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) packets: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) kernel_drops: AtomicU64,
}

impl Progress {
    /// Adds a block. `kernel_drops` is the total of one source; of several sources the largest counts.
    pub(crate) fn add(&self, packets: u64, bytes: u64, kernel_drops: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.kernel_drops.fetch_max(kernel_drops, Ordering::Relaxed);
    }
}
