use crate::channels::Filters;
use crate::remote::{LostModule, RemoteModule};
use flame_execute::LoadedModule;
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
        if let Site::Remote(module) = &self.site {
            module.end(worker, 0, false);
        }
    }

    pub(crate) fn evictor(&self) -> Evictor {
        match &self.site {
            Site::Local(module) => Evictor { eviction: module.eviction.clone(), remote: None },
            Site::Remote(module) => {
                Evictor { eviction: module.state.eviction.clone(), remote: Some(module.clone()) }
            }
        }
    }
}

/// Evicts one module.
pub(crate) struct Evictor {
    eviction: Eviction,
    remote: Option<RemoteModule>,
}

impl Evictor {
    pub(crate) fn let_go(&mut self) {
        self.remote = None;
    }

    /// Returns the module's process, if it has one.
    pub(crate) fn remote(&self) -> Option<&RemoteModule> {
        self.remote.as_ref()
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
