use crate::error::RunError;
use flame_plan::{ModulePlan, Plan};
use flame_quota::Meters;
use flame_run::{Engines, Eviction, Loaded};
use std::sync::Arc;

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
pub(crate) struct LoadedModule {
    pub(crate) plan: Arc<ModulePlan>,
    pub(crate) loaded: Loaded,
    pub(crate) meters: Meters,
    pub(crate) eviction: Eviction,
}

impl LoadedModule {
    pub(crate) fn new(engines: &Engines, module: &Module) -> Result<Self, RunError> {
        // A plan has no meters, and without them nothing of a grant would be limited.
        if module.plan.terms.granted && !module.meters.granted() {
            return Err(RunError::NoMeters(module.plan.name.clone()));
        }
        let eviction = Eviction::default();
        let loaded = Loaded::under(engines, &module.plan, &module.meters, &eviction)?;
        Ok(Self { plan: Arc::new(module.plan.clone()), loaded, meters: module.meters.clone(), eviction })
    }
}

/// Properties that all modules of a run share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) workers: usize,
    pub(crate) tick_ns: u64,
    pub(crate) interval_ns: u64,
}

impl Shape {
    pub(crate) fn of(plan: &Plan) -> Self {
        Self { workers: plan.workers, tick_ns: plan.tick_ns(), interval_ns: plan.interval_ns }
    }
}
