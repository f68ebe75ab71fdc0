use crate::keep::{Keep, Place, Requested};
use crate::limit::OtherCalls;
use flame_base::lock;
use flame_block::Region;
use flame_plan::{Discipline, ModulePlan, Placement, Plan, Share};
use flame_quota::Meters;
use flame_run::{Area, Engines, Eviction, Loaded};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The reason why a module cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("engine: {0}")]
    Engine(#[from] flame_run::EngineError),
    #[error("{0} runs under a grant, and the meters of its credential are missing")]
    NoMeters(String),
    #[error("{0} shares memory with other modules, which it cannot here")]
    NoAreas(String),
}

/// A module to run: its plan, and the meters of its credential.
#[derive(Clone)]
pub struct Module {
    pub plan: ModulePlan,
    pub meters: Meters,
    /// The state that its instances begin with and export, if it is kept.
    pub keep: Option<Keep>,
    /// The areas that its manifest names, in the same order.
    pub areas: Vec<Area>,
    /// The processor time that the kernel has to guarantee to its process before the module runs there.
    pub time: Option<Share>,
}

impl From<ModulePlan> for Module {
    /// Creates a module of the operator.
    fn from(plan: ModulePlan) -> Self {
        Self { plan, meters: Meters::default(), keep: None, areas: Vec::new(), time: None }
    }
}

/// A module with its code, which is loaded once for all its instances.
#[derive(Clone)]
pub struct LoadedModule {
    pub plan: Arc<ModulePlan>,
    pub loaded: Loaded,
    /// The place of the process that has loaded it.
    pub(crate) placement: Placement,
    pub meters: Meters,
    pub eviction: Eviction,
    pub halts: Halts,
    pub(crate) others: OtherCalls,
    /// The places of its instances, until they begin.
    requested: Arc<Mutex<BTreeMap<Place, Requested>>>,
}

impl LoadedModule {
    /// Loads a module to run inline. The shared memory for its large texts is its own.
    ///
    /// # Errors
    ///
    /// Returns an error if the module runs under a grant without meters, if its areas are missing, if its
    /// code was not compiled for these engines, or if there is no memory for its large texts.
    pub fn new(engines: &Engines, module: &Module) -> Result<Self, LoadError> {
        Self::load(engines, module, None)
    }

    /// Loads a module in a process of its own or of its principal. Its shared memory is part of `region`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LoadedModule::new`]; the memory for large texts is what `region` has left.
    pub fn within(engines: &Engines, module: &Module, region: Region) -> Result<Self, LoadError> {
        Self::load(engines, module, Some(region))
    }

    fn load(engines: &Engines, module: &Module, region: Option<Region>) -> Result<Self, LoadError> {
        // A plan has no meters, and without them nothing of a grant would be limited.
        if module.plan.terms.granted && !module.meters.granted() {
            return Err(LoadError::NoMeters(module.plan.name.clone()));
        }
        if module.areas.len() != module.plan.manifest.shared.len() {
            return Err(LoadError::NoAreas(module.plan.name.clone()));
        }
        let placement = if region.is_some() { Placement::Process } else { Placement::Inline };
        let (eviction, memory) = (Eviction::default(), (region, &module.areas[..]));
        let loaded = Loaded::under(engines, &module.plan, &module.meters, &eviction, memory)?;
        let mut requested = BTreeMap::new();
        // Requested now, so that the instances before these learn that they are awaited.
        if let Some(keep) = module.keep.as_ref().filter(|_| module.plan.manifest.state.is_some()) {
            for place in keep.all() {
                if place != Place::Slow || loaded.has_slow_path() {
                    requested.insert(place, keep.request(place));
                }
            }
        }
        Ok(Self {
            plan: Arc::new(module.plan.clone()),
            loaded,
            placement,
            meters: module.meters.clone(),
            eviction,
            halts: Halts::default(),
            others: OtherCalls::default(),
            requested: Arc::new(Mutex::new(requested)),
        })
    }

    /// Returns the place of an instance that begins, once.
    pub(crate) fn take_place(&self, place: Place) -> Option<Requested> {
        lock(&self.requested).remove(&place)
    }
}

/// The workers on which a module has no instance any more: its last one there ended in a fault, and none is
/// started again. All clones are of the same module.
#[derive(Clone, Debug, Default)]
pub struct Halts(Arc<(AtomicUsize, AtomicU64)>);

impl Halts {
    /// Records the end of the last instance on a worker, which had `faults` faults there.
    pub(crate) fn add(&self, faults: u64) {
        self.0.1.fetch_add(faults, Ordering::Relaxed);
        self.0.0.fetch_add(1, Ordering::Release);
    }

    /// Returns the number of these workers, and of the faults there.
    pub fn count(&self) -> (usize, u64) {
        (self.0.0.load(Ordering::Acquire), self.0.1.load(Ordering::Relaxed))
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
    /// Returns the shape of a run of this plan.
    pub fn of(plan: &Plan) -> Self {
        Self { workers: plan.workers, tick_ns: plan.tick_ns(), interval_ns: plan.interval_ns }
    }
}

/// The worker to whose packets a fast instance is attached, and the discipline of its run.
#[derive(Clone, Copy, Debug)]
pub struct Attachment {
    pub worker: usize,
    pub discipline: Discipline,
}
