use flame_plan::{ModulePlan, Plan};
use flame_quota::Meters;
use flame_run::{Engines, Eviction, Loaded};
use std::sync::Arc;

/// The reason why a module cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("engine: {0}")]
    Engine(#[from] flame_run::EngineError),
    #[error("{0} runs under a grant, and the meters of its credential are missing")]
    NoMeters(String),
}

/// A module to run: its plan, and the meters of its credential.
#[derive(Clone)]
pub struct Module {
    pub plan: ModulePlan,
    pub meters: Meters,
}

impl From<ModulePlan> for Module {
    /// Creates a module of the operator.
    fn from(plan: ModulePlan) -> Self {
        Self { plan, meters: Meters::default() }
    }
}

/// A module with its code, which is loaded once for all its instances.
#[derive(Clone)]
pub struct LoadedModule {
    pub plan: Arc<ModulePlan>,
    pub loaded: Loaded,
    pub meters: Meters,
    pub eviction: Eviction,
}

impl LoadedModule {
    pub fn new(engines: &Engines, module: &Module) -> Result<Self, LoadError> {
        // A plan has no meters, and without them nothing of a grant would be limited.
        if module.plan.terms.granted && !module.meters.granted() {
            return Err(LoadError::NoMeters(module.plan.name.clone()));
        }
        let eviction = Eviction::default();
        let loaded = Loaded::under(engines, &module.plan, &module.meters, &eviction)?;
        Ok(Self { plan: Arc::new(module.plan.clone()), loaded, meters: module.meters.clone(), eviction })
    }
}

/// Properties that all modules of a run share.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub workers: usize,
    pub tick_ns: u64,
    pub interval_ns: u64,
}

impl Shape {
    pub fn of(plan: &Plan) -> Self {
        Self { workers: plan.workers, tick_ns: plan.tick_ns(), interval_ns: plan.interval_ns }
    }
}
