use crate::process::{LostModule, RemoteModule};
use crate::records::channels::Filters;
use crate::records::onset::Onset;
use flame_execute::{Halts, LoadedModule};
use flame_plan::{ModulePlan, Reason};
use flame_quota::Meters;
use flame_remote::Command;
use flame_run::Eviction;
use std::sync::Arc;

/// A module at the place where it runs.
#[derive(Clone)]
pub(crate) struct Placed {
    pub(crate) site: Site,
    pub(crate) filters: Arc<Filters>,
    /// The beginning of the module on a live source, if its view shows times in steps.
    pub(crate) onset: Option<Arc<Onset>>,
}

/// The place where a module runs.
#[derive(Clone)]
pub(crate) enum Site {
    Local(Box<LoadedModule>),
    Remote(RemoteModule),
}

impl Placed {
    pub(crate) fn plan(&self) -> &ModulePlan {
        match &self.site {
            Site::Local(module) => &module.plan,
            Site::Remote(module) => &module.plan,
        }
    }

    pub(crate) fn meters(&self) -> &Meters {
        match &self.site {
            Site::Local(module) => &module.meters,
            Site::Remote(module) => &module.meters,
        }
    }

    /// Records that the module does not run on `worker`. Its process must not wait for this worker.
    pub(crate) fn abandon(&self, worker: usize) {
        self.onset.iter().for_each(|onset| onset.leave_out());
        if let Site::Remote(module) = &self.site {
            module.end(worker, 0, false);
        }
    }

    pub(crate) fn evictor(&self) -> Evictor {
        match &self.site {
            Site::Local(module) => Evictor {
                eviction: module.eviction.clone(),
                halts: module.halts.clone(),
                onset: self.onset.clone(),
                remote: None,
            },
            Site::Remote(module) => Evictor {
                eviction: module.state.eviction.clone(),
                halts: Halts::default(),
                onset: self.onset.clone(),
                remote: Some(module.clone()),
            },
        }
    }
}

/// Evicts one module.
pub(crate) struct Evictor {
    eviction: Eviction,
    /// Those of a module that runs here.
    halts: Halts,
    onset: Option<Arc<Onset>>,
    remote: Option<RemoteModule>,
}

impl Evictor {
    pub(crate) fn let_go(&mut self) {
        self.remote = None;
    }

    /// Returns whether the module is within an interval that its view shows whole, on a live source.
    pub(crate) fn is_open(&self) -> bool {
        self.onset.as_ref().is_some_and(|onset| onset.has_begun()) && self.eviction.reason().is_none()
    }

    /// Returns the module's process, if it has one.
    pub(crate) fn remote(&self) -> Option<&RemoteModule> {
        self.remote.as_ref()
    }

    /// Returns the number of workers on which no instance of the module is started again, and of the faults.
    pub(crate) fn halts(&self) -> (usize, u64) {
        self.remote.as_ref().map_or_else(|| self.halts.count(), |remote| remote.state.halts())
    }

    /// Returns the module as lost, if its process has ended and it was not evicted.
    pub(crate) fn lost(&self) -> Option<LostModule> {
        let remote = self.remote.as_ref().filter(|_| self.eviction.reason().is_none())?;
        remote.process.lost(remote.plan.id)
    }

    pub(crate) fn evict(&self, reason: Reason) {
        self.eviction.evict(reason.clone());
        if let Some(remote) = &self.remote {
            remote.process.send(Command::Evict { module: remote.plan.id, reason }, Vec::new());
            remote.process.evicted();
        }
    }
}
