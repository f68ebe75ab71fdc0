use crate::remote::RemoteModule;
use flame_execute::LoadedModule;
use flame_plan::{ModulePlan, Reason};
use flame_quota::Meters;
use flame_remote::Command;
use flame_run::Eviction;

/// A module at the place where it runs.
#[derive(Clone)]
pub(crate) enum Placed {
    Here(Box<LoadedModule>),
    There(RemoteModule),
}

impl Placed {
    pub(crate) fn plan(&self) -> &ModulePlan {
        match self {
            Self::Here(module) => &module.plan,
            Self::There(module) => &module.plan,
        }
    }

    pub(crate) fn meters(&self) -> &Meters {
        match self {
            Self::Here(module) => &module.meters,
            Self::There(module) => &module.meters,
        }
    }

    pub(crate) fn evictor(&self) -> Evictor {
        match self {
            Self::Here(module) => Evictor { eviction: module.eviction.clone(), remote: None },
            Self::There(module) => {
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

    pub(crate) fn evict(&self, reason: Reason) {
        self.eviction.evict(reason.clone());
        if let Some(remote) = &self.remote {
            remote.process.send(Command::Evict { module: remote.plan.id, reason }, Vec::new());
        }
    }
}
