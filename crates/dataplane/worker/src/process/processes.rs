//! The processes of a run, by name, and the start of modules in them.

use super::child::Process;
use super::event::ModuleEvent;
use super::module::RemoteModule;
use super::process_state::ProcessInfo;
use super::program::Runner;
use super::running::Running;
use super::state::State;
use crate::error::RunError;
use crate::lock;
use crossbeam_channel::{Receiver as Inbox, Sender as Outbox, bounded};
use flame_block::Region;
use flame_execute::{Keep, Module, Shape};
use flame_plan::{ModuleClass, ModuleId, ModulePlan, ViewSpec};
use flame_remote::{Command, Install, Stall};
use flame_run::{Loaded, Watchdog};
use std::io;
use std::sync::{Arc, Weak};

/// The number of instances of a module besides those of the workers: the slow one, and one that replaces an
/// instance that has not ended yet.
const INSTANCES: usize = 2;
/// The maximum number of reports of one process that wait for the collector.
const REPORTS: usize = 16;

/// The processes of a run, by name.
pub(crate) struct Processes {
    program: Runner,
    /// Brings the queue of each new process to the collector.
    queues: Outbox<Inbox<ModuleEvent>>,
    batch: u32,
    sharers: Option<usize>,
    running: Arc<Running>,
    watchdog: Watchdog,
}

impl Processes {
    /// Creates the processes of a run. `batch` is the maximum number of packets of a batch, `sharers` the
    /// number of processes that may count in the same meters, if there are several, and `stall` has the
    /// stalls of the thread that collects.
    pub(crate) fn new(
        program: Runner,
        (batch, sharers): (usize, Option<usize>),
        queues: Outbox<Inbox<ModuleEvent>>,
        watchdog: Watchdog,
        stall: Arc<Stall>,
    ) -> Self {
        let batch = batch.clamp(1, flame_abi::MAX_BATCH) as u32;
        let running = Arc::new(Running::new(stall, program.limits));
        Self { program, queues, batch, sharers, running, watchdog }
    }

    /// Starts a module in the process `name`, and that process if it does not run. Its processor time is
    /// guaranteed before, in place of that of `replaced`: a module that is refused never runs.
    pub(crate) fn install(
        &self,
        name: &str,
        (module, replaced): (&Module, Option<ModuleId>),
        shape: Shape,
    ) -> Result<RemoteModule, RunError> {
        let Module { plan, meters, keep, time, .. } = module;
        let keep = keep.as_ref().filter(|_| plan.manifest.state.is_some());
        let mut state = State::new(plan, meters, shape.workers);
        state.violation = (plan.class == ModuleClass::Bounded).then(|| (self.watchdog.clone(), plan.hash));
        if let Some(sharers) = self.sharers
            && meters.granted()
            && !state.claim(sharers)
        {
            return Err(RunError::Memory(plan.name.clone()));
        }
        let links = meters.granted().then(|| state.links());
        let state = Arc::new(state);
        let process = loop {
            let process = self.process(name)?;
            match process.life.enter(state.clone()) {
                Ok(()) => break process,
                // It has ended its last module in this moment.
                Err(_) if process.life.is_closed() => {}
                Err(e) => return Err(self.error(e)),
            }
        };
        if time.is_some()
            && let Err(e) = process.life.reserve(plan.id, *time, replaced)
        {
            process.life.leave(plan.id);
            return Err(RunError::Time(e));
        }
        let region = Loaded::region_size(plan, shape.workers + INSTANCES);
        let region = Region::create(region).map_err(|e| self.error(io::Error::other(e)))?;
        let view = ViewSpec { resolution_ns: plan.view.resolution_ns, ..ViewSpec::default() };
        let install = Install {
            plan: ModulePlan { view, process: None, tenant: None, ..plan.clone() },
            workers: shape.workers,
            tick_ns: shape.tick_ns,
            interval_ns: shape.interval_ns,
            batch: self.batch,
            granted: links,
            keeps: keep.map(Keep::every_ns),
        };
        process.send(Command::Install(Box::new(install)), vec![region]);
        if time.is_some() {
            process.renew(plan.id, meters);
        }
        if let Some(keep) = keep {
            Self::request_places(keep, &process, &state);
        }
        let (plan, running) = (Arc::new(plan.clone()), self.running.clone());
        Ok(RemoteModule { plan, meters: meters.clone(), process, running, state })
    }

    /// Lets each instance begin with the state of its place, once the instance before has left it.
    fn request_places(keep: &Keep, process: &Arc<Process>, state: &Arc<State>) {
        let Some(alive) = state.needs_places() else { return };
        for place in keep.all() {
            // Neither lives longer because it waits.
            let (process, weak) = (Arc::downgrade(process), Arc::downgrade(state));
            let module = state.id;
            let then = move |held, given: Option<flame_execute::State>| {
                if let (Some(process), Some(state)) = (process.upgrade(), weak.upgrade())
                    && state.occupy(place, held)
                {
                    let state = given.map(|state| state.to_vec());
                    process.send(Command::Import { module, worker: place.worker(), state }, Vec::new());
                }
            };
            keep.request_with(place, &alive, Box::new(then));
        }
    }

    /// Returns the process `name`, which is started if it does not run.
    pub(crate) fn process(&self, name: &str) -> Result<Arc<Process>, RunError> {
        if let Some(process) = self.running(name, None)? {
            return Ok(process);
        }
        // Without the lock: others need not wait for the start.
        let (events, queue) = bounded(REPORTS);
        let started = Process::start(&self.program, name, events).map_err(|e| self.error(e))?;
        self.queues.send(queue).map_err(|_| RunError::Ended)?;
        self.running(name, Some(started))?.ok_or(RunError::Ended)
    }

    /// Returns the process `name` if it runs. Otherwise `started` becomes that process.
    fn running(&self, name: &str, started: Option<Arc<Process>>) -> Result<Option<Arc<Process>>, RunError> {
        let mut running = lock(&self.running.processes);
        let Some(running) = running.as_mut() else { return Err(RunError::Ended) };
        // A process ends with its last module.
        running.retain(|_, process| process.strong_count() > 0);
        let takes = |process: &Arc<Process>| !process.is_gone() && !process.life.is_closed();
        let known = running.get(name).and_then(Weak::upgrade).filter(takes);
        if let (None, Some(started)) = (&known, &started) {
            running.insert(name.to_owned(), Arc::downgrade(started));
        }
        Ok(known.or(started))
    }

    /// Returns the processes that run.
    pub(crate) fn list(&self) -> Vec<ProcessInfo> {
        let running = self.running.all().into_iter().filter(|process| !process.is_gone());
        running.map(|process| process.life.info()).collect()
    }

    /// Charges the processor time of all processes so far.
    pub(crate) fn settle(&self) {
        for process in self.running.all() {
            process.life.charge();
            // Who has too much is ended by the thread that watches it.
            let _ = process.life.count_memory();
        }
    }

    fn error(&self, e: io::Error) -> RunError {
        RunError::Process(self.program.to_string(), e)
    }

    /// Refuses further modules. The processes end when their modules have.
    pub(crate) fn clear(&self) {
        lock(&self.running.processes).take();
    }
}
