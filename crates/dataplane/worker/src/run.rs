//! Connects sources, views, modules and a sink, and selects the arrangement of threads.

use crate::collect::Collector;
use crate::error::RunError;
use crate::handle::{Handle, Inboxes};
use crate::module::{LoadedModule, Module, Shape};
use crate::outlet::Event;
use crate::pipeline::PipelineOptions;
use crate::read::ReadOptions;
use crate::report::{Observer, Report};
use crate::stop::Stop;
use crate::threads;
use crossbeam_channel::{Receiver, Sender, bounded};
use flame_plan::{ModulePlan, Plan};
use flame_quota::Meters;
use flame_record::Sink;
use flame_run::Engines;
use flame_source::Source;
use flame_view::Key;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

/// The maximum number of blocks that wait for one worker, and, per worker, of outputs that wait for the
/// collector. A full queue blocks the sender: capture files are read more slowly, a live source counts kernel
/// drops.
pub(crate) const QUEUE: usize = 16;

/// The sources of a run.
pub enum Input {
    /// One source. With several workers its packets are dispatched by flow hash.
    Shared(Box<dyn Source>),
    /// One source for each worker. The kernel dispatches the flows.
    PerWorker(Vec<Box<dyn Source>>),
}

impl Input {
    fn is_live(&self) -> bool {
        match self {
            Self::Shared(source) => source.is_live(),
            Self::PerWorker(sources) => sources.iter().any(|source| source.is_live()),
        }
    }
}

#[derive(Clone)]
pub struct Options {
    pub decapsulate: bool,
    /// The maximum number of packets to read, over all workers (for a shared source only).
    pub count: u64,
    /// The maximum number of packets in a batch, 1 to 256.
    pub batch: usize,
    /// The key of the transforms `prefix` and `hash`.
    pub key: Option<Key>,
    /// The key that, with the flow hash, determines the worker of a flow where there are grants. The flows
    /// that share a worker then reveal nothing about their addresses.
    pub dispatch_key: Option<Key>,
    /// The flag that ends the run when it is set. All packets that were read are still processed and
    /// reported.
    pub stop: Arc<AtomicBool>,
}

/// A prepared run: its modules are loaded, and its [`Handle`] takes commands.
pub struct Run {
    pub(crate) shape: Shape,
    modules: Vec<LoadedModule>,
    engines: Engines,
    pub(crate) options: Options,
    handle: Handle,
    inboxes: Inboxes,
    events: Option<(Sender<Event>, Receiver<Event>)>,
}

impl Run {
    /// Loads the modules of `plan`. `meters` are those of their credentials, in the same order; modules
    /// beyond them are the operator's.
    ///
    /// # Errors
    ///
    /// Returns an error if machine code was compiled for another engine, or two modules have the same number.
    pub fn new(
        plan: &Plan,
        meters: &[Meters],
        engines: &Engines,
        options: Options,
    ) -> Result<Self, RunError> {
        let shape = Shape::of(plan);
        let meters = meters.iter().cloned().chain(std::iter::repeat_with(Meters::default));
        let load = |(plan, meters): (&ModulePlan, Meters)| {
            LoadedModule::new(engines, &Module { plan: plan.clone(), meters })
        };
        let modules = plan.modules.iter().zip(meters).map(load).collect::<Result<Vec<_>, _>>()?;
        let events = (shape.workers > 1).then(|| bounded(QUEUE * shape.workers));
        let sender = events.as_ref().map(|(sender, _)| sender.clone());
        let (key, stop) = (options.key.clone(), options.stop.clone());
        let (handle, inboxes) = Handle::new(engines, key, shape, stop, &modules, sender)?;
        Ok(Self { shape, modules, engines: engines.clone(), options, handle, inboxes, events })
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
        let is_live = input.is_live();
        let input = match input {
            Input::PerWorker(mut sources) if self.events.is_none() && sources.len() == 1 => {
                Input::Shared(sources.remove(0))
            }
            Input::PerWorker(sources) if self.events.is_none() => {
                return Err(RunError::Sources { expected: 1, found: sources.len() });
            }
            input => input,
        };
        let Self { shape, modules, engines, options, handle, inboxes, events } = self;
        let stop = Stop::new(&options.stop);
        let wiring = Wiring { shape, modules: &modules, options: &options, handle: &handle, stop: &stop };
        threads::with_slices(&engines, &handle.shared().has_metered, || {
            let collector = Collector::new(shape, &modules, sink, &stop, is_live)?;
            match (input, events) {
                (Input::Shared(source), None) => {
                    threads::run_inline(&wiring, source, collector, observer, inboxes)
                }
                (Input::Shared(source), Some(events)) => {
                    threads::run_dispatched(&wiring, source, collector, observer, inboxes, events)
                }
                (Input::PerWorker(sources), Some(events)) => {
                    threads::run_parallel(&wiring, sources, collector, observer, inboxes, events)
                }
                (Input::PerWorker(_), None) => Err(RunError::Broken),
            }
        })
    }
}

/// The data that the threads of a run share.
pub(crate) struct Wiring<'a> {
    pub(crate) shape: Shape,
    pub(crate) modules: &'a [LoadedModule],
    pub(crate) options: &'a Options,
    pub(crate) handle: &'a Handle,
    pub(crate) stop: &'a Stop<'a>,
}

impl<'a> Wiring<'a> {
    pub(crate) fn pipeline_options(&self, worker: usize, source: &dyn Source) -> PipelineOptions<'a> {
        PipelineOptions {
            shape: self.shape,
            worker,
            batch: self.options.batch,
            key: self.options.key.as_ref(),
            shared: source.shared(),
            live: source.is_live(),
            stop: self.stop,
        }
    }

    pub(crate) fn read_options(&self) -> ReadOptions<'a> {
        ReadOptions {
            decapsulate: self.options.decapsulate,
            tick_ns: self.shape.tick_ns,
            count: self.options.count,
            stop: &self.options.stop,
            progress: &self.handle.shared().progress,
        }
    }
}

/// A run on a separate thread.
pub struct Worker {
    handle: Handle,
    thread: JoinHandle<(Result<Report, RunError>, Box<dyn Sink>)>,
}

impl Worker {
    /// Starts `run` on a thread. Packets flow until the input ends or the handle stops the run.
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
