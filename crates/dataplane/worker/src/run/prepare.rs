//! Connects sources, views, modules and a sink, and selects the arrangement of threads.

use crate::error::RunError;
use crate::packets::closing::Closing;
use crate::packets::fixed_blocks::Turns;
use crate::packets::overload::Overload;
use crate::process::Processes;
use crate::records::charge::{self, Charging};
use crate::records::collect::Collector;
use crate::records::event::EventSender;
use crate::records::outputs::Outputs;
use crate::records::placed::Placed;
use crate::records::queues::Queues;
use crate::records::report::{Observer, Report, Shared};
use crate::run::handle::{Handle, Inboxes, place};
use crate::run::options::Options;
use crate::run::threads::{self, Edges};
use crate::run::wiring::Wiring;
use crossbeam_channel::unbounded;
use flame_execute::{Behind, Module, Shape, Stop};
use flame_plan::limits::{COLLECTOR_EVENT_MAX, LONG_SLICE, SLICE};
use flame_plan::{Discipline, ModulePlan, Plan};
use flame_quota::Meters;
use flame_record::Sink;
use flame_remote::{Stall, StallRecorder};
use flame_run::{Areas, Engines};
use flame_source::Source;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The sources of a run.
pub enum Input {
    /// One source. With several workers, its packets are divided by flow hash.
    Shared(Box<dyn Source>),
    /// One source for each worker. The kernel dispatches the flows.
    PerWorker(Vec<Box<dyn Source>>),
}

impl Input {
    /// Returns the input of the sources of one interface: one alone serves all workers.
    pub fn of(mut sources: Vec<Box<dyn Source>>) -> Self {
        match sources.pop() {
            Some(only) if sources.is_empty() => Self::Shared(only),
            last => {
                sources.extend(last);
                Self::PerWorker(sources)
            }
        }
    }

    /// Returns whether it is a capture whose times may be finer than a microsecond.
    pub fn is_nano(&self) -> bool {
        match self {
            Self::Shared(source) => source.is_nano(),
            Self::PerWorker(sources) => sources.iter().any(|source| source.is_nano()),
        }
    }

    /// Returns the discipline of a run on it. Sources of several workers have the same.
    fn discipline(&self) -> Discipline {
        let source = match self {
            Self::Shared(source) => Some(source),
            Self::PerWorker(sources) => sources.first(),
        };
        source.map_or_else(Discipline::default, |source| source.discipline())
    }
}

/// A prepared run: its modules are loaded, and its [`Handle`] takes commands.
pub struct Run {
    pub(crate) shape: Shape,
    pub(crate) modules: Vec<Placed>,
    engines: Engines,
    pub(crate) options: Options,
    pub(crate) handle: Handle,
    pub(crate) inboxes: Inboxes,
    pub(crate) events: Option<(EventSender, Queues)>,
    charging: Option<Arc<Charging>>,
    overload: Overload,
    /// The stalls of the thread that collects, if processes are waited for.
    pub(crate) stall: Option<(StallRecorder, Arc<Stall>)>,
}

impl Run {
    /// Loads the modules of `plan`. `meters` are those of their credentials, in the same order; modules
    /// beyond them are the operator's.
    ///
    /// # Errors
    ///
    /// Returns an error if machine code was compiled for another engine, if two modules have the same number,
    /// or if modules that share memory cannot do so here.
    pub fn new(
        plan: &Plan,
        meters: &[Meters],
        engines: &Engines,
        options: Options,
    ) -> Result<Self, RunError> {
        let shape = Shape::of(plan);
        let meters = meters.iter().cloned().chain(std::iter::repeat_with(Meters::default));
        let has_collector = shape.workers > 1 || options.runner.is_some();
        // There are at most as many processes as modules.
        let (queues, started) = options.runner.is_some().then(unbounded).unzip();
        let events = has_collector.then(|| Queues::new(shape.workers, started));
        let sender = events.as_ref().map(|(sender, _)| sender.clone());
        let processes = options.runner.clone().zip(queues);
        let stall = processes.is_some().then(|| Stall::create(COLLECTOR_EVENT_MAX));
        let processes = processes.zip(stall.as_ref()).map(|((program, queues), (_, stall))| {
            let stall = stall.clone();
            let watchdog = engines.watchdog().clone();
            Arc::new(Processes::new(program, (options.batch, options.sharers), queues, watchdog, stall))
        });
        check_sharing(plan, options.runner.is_some())?;
        let mut areas = Areas::of(&options.areas);
        let load = |(plan, meters): (&ModulePlan, Meters)| {
            let keep = options.keeps.get(&plan.id).cloned();
            let areas = areas.take(plan)?;
            let module = Module { plan: plan.clone(), meters, keep, areas, time: None };
            place(engines, processes.as_deref(), (&module, None), shape)
        };
        let modules = plan.modules.iter().zip(meters).map(load).collect::<Result<Vec<_>, _>>()?;
        let (key, stop) = (options.key.clone(), options.stop.clone());
        let (handle, inboxes) = Handle::new(engines, key, shape, stop, &modules, sender, processes)?;
        Ok(Self {
            shape,
            modules,
            engines: engines.clone(),
            options,
            handle,
            inboxes,
            events,
            charging: None,
            overload: Overload::default(),
            stall,
        })
    }

    /// Measures the processor time of the run's threads: that of calls of modules counts in the usage of
    /// their meters, and all other time in that of `charging`.
    #[must_use]
    pub fn charging(self, charging: Arc<Charging>) -> Self {
        Self { charging: Some(charging), ..self }
    }

    /// Sets when modules of low priorities lose packets of a live source.
    #[must_use]
    pub fn overload(self, overload: Overload) -> Self {
        Self { overload, ..self }
    }

    /// Returns a handle that commands the run from other threads.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs on this thread, and on threads for further workers, until the input ends or the run is stopped.
    ///
    /// # Errors
    ///
    /// Returns an error if the source or the sink failed. Faults of modules are in the report.
    pub fn execute(
        self,
        input: Input,
        sink: &mut dyn Sink,
        observer: &mut dyn Observer,
    ) -> Result<Report, RunError> {
        if let Some(module) = self.modules.iter().find(|m| m.plan().manifest.ports.is_some()) {
            return Err(RunError::Forwards(module.plan().name.clone()));
        }
        let discipline = input.discipline();
        let of_turns = self.options.stop.clone();
        let turns = move |source| -> Box<dyn Source> { Box::new(Turns::new(source, of_turns)) };
        let input = match input {
            Input::PerWorker(mut sources) if self.events.is_none() && sources.len() == 1 => {
                Input::Shared(sources.remove(0))
            }
            Input::PerWorker(sources) if self.events.is_none() => {
                return Err(RunError::Sources { expected: 1, found: sources.len() });
            }
            // The reading thread also computes the views: the modules have processors of their own.
            Input::Shared(source) if self.events.is_some() && self.shape.workers == 1 => {
                Input::PerWorker(vec![source])
            }
            input => input,
        };
        let Self { shape, modules, engines, options, handle, inboxes, events, charging, overload, stall } =
            self;
        let (of_slices, charging) = (charging.clone(), charging.as_deref());
        let _charged = charge::begin(charging);
        let _let_go = LetGo(&handle);
        // A live source may go on after a request, until the intervals end that views show whole.
        let ended = match discipline.releases_by_interval() {
            true => &handle.shared().ended,
            false => &*options.stop,
        };
        let (stop, behind) = (Stop::new(ended), Behind::default());
        let sources = if let Input::PerWorker(sources) = &input { sources.len() } else { 1 };
        let closing = Closing::new((&options.stop, ended), shape.tick_ns, sources);
        // What was read of a capture before a stop may be many seconds of packet time.
        let later = Stop::after(&stop, &behind);
        let wiring = Wiring {
            shape,
            discipline,
            modules: &modules,
            options: &options,
            handle: &handle,
            stop: &stop,
            closing: &closing,
            charging,
            overload,
        };
        let shared = Shared::new(observer);
        let observer: &mut dyn Observer = &mut &shared;
        // Calls on captures are not paused for others.
        handle.shared().slices.set_length(if discipline.loses_late_packets() { SLICE } else { LONG_SLICE });
        let charged = move || charge::begin(of_slices.as_deref());
        let started = handle.shared().slices.start(&engines, charged);
        let _slices = started.map_err(|e| RunError::Thread(e.to_string()))?;
        let time = discipline.service_time(shape.workers, options.placement());
        let outputs = Outputs::new(sink, &shared, options.link.clone(), time, stall);
        let collected = if discipline.drains_after_stop() { &later } else { &stop };
        let collector = Collector::new(shape, &modules, outputs, collected, discipline)?;
        match (input, events) {
            (Input::Shared(source), None) => {
                let (source, edges) = match discipline.gives_turns() && modules.iter().any(shares) {
                    true => (turns(source), Edges::Turns),
                    false => (source, Edges::Counted(0)),
                };
                threads::run_inline(&wiring, (source, edges), collector, observer, inboxes)
            }
            (Input::Shared(source), Some(events)) => {
                threads::run_dispatched(&wiring, source, collector, observer, inboxes, events)
            }
            (Input::PerWorker(sources), Some(events)) => {
                threads::run_parallel(&wiring, sources, collector, observer, inboxes, events)
            }
            (Input::PerWorker(_), None) => Err(RunError::Broken),
        }
    }
}

/// Checks that modules that share memory run on one thread. So what a module reads follows from the packets
/// alone, and a replay is exact.
fn check_sharing(plan: &Plan, has_processes: bool) -> Result<(), RunError> {
    let shares = plan.modules.iter().find(|module| !module.manifest.shared.is_empty());
    let Some(name) = shares.map(|module| module.name.clone()) else { return Ok(()) };
    if has_processes {
        return Err(RunError::Shares(name));
    }
    if plan.workers > 1 { Err(RunError::SharesAmong { module: name, workers: plan.workers }) } else { Ok(()) }
}

fn shares(module: &Placed) -> bool {
    !module.plan().manifest.shared.is_empty()
}

/// Lets go of the processes of a run at its end, even if that is a panic.
struct LetGo<'a>(&'a Handle);

impl Drop for LetGo<'_> {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

/// A run on a separate thread.
pub struct Worker {
    handle: Handle,
    thread: JoinHandle<(Result<Report, RunError>, Box<dyn Sink>)>,
}

impl Worker {
    /// Starts `run` on a thread. Packets flow until the input ends or the handle stops the run.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread cannot be started.
    pub fn spawn(
        run: Run,
        input: Input,
        mut sink: Box<dyn Sink>,
        mut observer: Box<dyn Observer>,
    ) -> std::io::Result<Self> {
        let handle = run.handle();
        let thread = std::thread::Builder::new()
            .name("flame-worker".to_owned())
            .spawn(move || (run.execute(input, &mut *sink, &mut *observer), sink))?;
        Ok(Self { handle, thread })
    }

    /// Returns a handle by which any thread may stop or change the run.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Waits for the end of the run, and returns its report and the sink, which is not finished.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Run::execute`]. Files that the sink has not finished are removed with it.
    pub fn join(self) -> Result<(Report, Box<dyn Sink>), RunError> {
        let (report, sink) = self.thread.join().map_err(|_| RunError::Broken)?;
        Ok((report?, sink))
    }
}
