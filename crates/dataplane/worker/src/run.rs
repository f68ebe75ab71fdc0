use crate::collect::Collector;
use crate::pipeline::{Outlet, Pipeline, PipelineOptions};
use crate::read::{Chunk, Consumer, ReadOptions, ReadStats, read_loop};
use crate::report::{FaultReport, Observer, Report};
use crate::runner::From;
use crate::stop::Stop;
use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded};
use flame_abi::Descriptor;
use flame_plan::{Account, ModuleClass, Plan};
use flame_record::Sink;
use flame_run::{Loaded, Output};
use flame_source::{RawBlock, RawPacket, Source};
use flame_view::{FlowHash, Key};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Blocks that may wait for one worker, and outputs that may wait for the collector. A full queue
/// holds the sender up: capture files are read no faster, a live source counts kernel drops.
const QUEUE: usize = 16;

/// Why a run could not begin or go on. What a module does wrong is never such an error.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Source(#[from] flame_source::SourceError),
    #[error(transparent)]
    View(#[from] flame_view::ViewError),
    #[error(transparent)]
    Block(#[from] flame_block::BlockError),
    #[error(transparent)]
    Sink(#[from] flame_record::SinkError),
    #[error("engine: {0}")]
    Engine(#[from] flame_run::EngineError),
    #[error("more than {} modules share a view: run them in two commands", flame_block::MAX_READERS)]
    TooManyModules,
    #[error("a live source for each of {expected} workers, found {found}")]
    Sources { expected: usize, found: usize },
    /// A worker ended before its work did; its own error is reported instead of this one.
    #[error("a worker stopped early")]
    Broken,
}

/// Where packets come from.
pub enum Input {
    /// One source; with several workers its packets are dispatched out by flow hash.
    Shared(Box<dyn Source>),
    /// One source a worker, the flows dispatched out by the kernel.
    PerWorker(Vec<Box<dyn Source>>),
}

pub struct Options<'a> {
    pub decapsulate: bool,
    /// Packets to take at most, over all workers (a shared source only).
    pub count: u64,
    /// Packets in a batch, 1 to 256.
    pub batch: usize,
    /// For the transforms `prefix` and `hash`.
    pub key: Option<&'a Key>,
    /// Decides, with its flow hash, which worker a flow goes to where grants are: which flows share one then tells
    /// nothing of their addresses.
    pub dispatch_key: Option<&'a Key>,
    /// Set it to end the run: all that was read is still processed and reported.
    pub stop: &'a AtomicBool,
}

/// Wires sources, views, modules and a sink.
pub struct Run<'a> {
    pub plan: &'a Plan,
    pub engines: &'a flame_run::Engines,
    pub options: Options<'a>,
}

impl Run<'_> {
    pub fn execute(
        &self,
        input: Input,
        sink: &mut dyn Sink,
        observer: &mut dyn Observer,
    ) -> Result<Report, RunError> {
        let loaded =
            self.plan.modules.iter().map(|m| Loaded::new(self.engines, m)).collect::<Result<Vec<_>, _>>()?;
        let stop = &Stop::new(self.options.stop);
        let is_live = match &input {
            Input::Shared(source) => source.is_live(),
            Input::PerWorker(sources) => sources.iter().any(|source| source.is_live()),
        };
        let execute = || {
            let collector = Collector::new(self.plan, &loaded, sink, stop, is_live)?;
            match input {
                Input::Shared(source) if self.plan.workers == 1 => {
                    self.inline(&loaded, source, collector, observer, stop)
                }
                Input::Shared(source) => self.dispatched(&loaded, source, collector, observer, stop),
                Input::PerWorker(sources) => self.parallel(&loaded, sources, collector, observer, stop),
            }
        };
        // Without metered modules nobody looks at slices.
        let metered = self.plan.modules.iter().any(|m| m.class == ModuleClass::Metered);
        let mut report = if metered { sliced(self.engines, execute) } else { execute() }?;
        crate::granted::reduce(self.plan, &mut report);
        Ok(report)
    }

    fn pipeline_options<'s>(
        &'s self,
        worker: usize,
        source: &dyn Source,
        stop: &'s Stop<'s>,
    ) -> PipelineOptions<'s> {
        let Options { batch, key, .. } = self.options;
        PipelineOptions { worker, batch, key, shared: source.shared(), live: source.is_live(), stop }
    }

    fn read_options(&self) -> ReadOptions<'_> {
        ReadOptions {
            decapsulate: self.options.decapsulate,
            tick_ns: self.plan.tick_ns(),
            count: self.options.count,
            stop: self.options.stop,
        }
    }

    /// One worker: everything on this thread.
    fn inline(
        &self,
        loaded: &[Loaded],
        mut source: Box<dyn Source>,
        mut collector: Collector<'_>,
        observer: &mut dyn Observer,
        stop: &Stop<'_>,
    ) -> Result<Report, RunError> {
        let options = self.pipeline_options(0, &*source, stop);
        let pipeline = Pipeline::new(self.plan, loaded, &options, &mut collector)?;
        let mut consumer = Inline { pipeline, collector, end: None };
        let stats = read_loop(&mut *source, &mut consumer, observer, &self.read_options());
        let Inline { collector, end, .. } = consumer;
        let Some((accounts, now)) = end else { return Err(stats.err().unwrap_or(RunError::Broken)) };
        let mut report = self.report(collector, now, accounts)?;
        finish(&mut report, stats?, &*source);
        Ok(report)
    }

    /// One source, several workers: a thread reads and deals, each worker has one.
    fn dispatched(
        &self,
        loaded: &[Loaded],
        mut source: Box<dyn Source>,
        mut collector: Collector<'_>,
        observer: &mut dyn Observer,
        stop: &Stop<'_>,
    ) -> Result<Report, RunError> {
        let (events, inbox) = bounded(QUEUE * self.plan.workers);
        let (stats, ends) = std::thread::scope(|scope| {
            let mut pipelines = Vec::new();
            for worker in 0..self.plan.workers {
                let (work, todo) = bounded(QUEUE);
                pipelines.push(work);
                // The packets' memory is dispatched out with them, so the pipeline copies what it exposes.
                let options =
                    PipelineOptions { shared: None, ..self.pipeline_options(worker, &*source, stop) };
                let events = events.clone();
                scope.spawn(move || {
                    let mut outlet = Queue { worker, events: &events };
                    if let Err(e) = worker_loop(self.plan, loaded, &options, &todo, &mut outlet) {
                        let _ = events.send(Event::Failed(e));
                    }
                });
            }
            drop(events);
            let options = self.read_options();
            let source = &mut *source;
            let key = self.options.dispatch_key.map(FlowHash::new);
            let reader = scope
                .spawn(move || read_loop(source, &mut Dispatcher { pipelines, key }, observer, &options));
            let ends = collect(&inbox, &mut collector);
            drop(inbox);
            (reader.join().unwrap_or(Err(RunError::Broken)), ends)
        });
        let (accounts, now) = ends?;
        let mut report = self.report(collector, now, accounts)?;
        finish(&mut report, stats?, &*source);
        Ok(report)
    }

    /// A source for each worker.
    fn parallel(
        &self,
        loaded: &[Loaded],
        mut sources: Vec<Box<dyn Source>>,
        mut collector: Collector<'_>,
        observer: &mut dyn Observer,
        stop: &Stop<'_>,
    ) -> Result<Report, RunError> {
        if sources.len() != self.plan.workers {
            return Err(RunError::Sources { expected: self.plan.workers, found: sources.len() });
        }
        let (events, inbox) = bounded(QUEUE * self.plan.workers);
        let mut observer = Some(observer);
        let (stats, ends) = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (worker, source) in sources.iter_mut().enumerate() {
                let events = events.clone();
                // One worker shows progress for all; the others are as fast by the same hash.
                let observer = observer.take();
                threads.push(scope.spawn(move || {
                    let options = self.pipeline_options(worker, &**source, stop);
                    let mut outlet = Queue { worker, events: &events };
                    let run = || {
                        let pipeline = Pipeline::new(self.plan, loaded, &options, &mut outlet)?;
                        let mut consumer = Parallel { pipeline, outlet };
                        let mut silent = crate::report::Silent;
                        let observer = observer.unwrap_or(&mut silent);
                        read_loop(&mut **source, &mut consumer, observer, &self.read_options())
                    };
                    let stats = run();
                    if let Err(e) = stats {
                        let _ = events.send(Event::Failed(e));
                        return ReadStats::default();
                    }
                    stats.unwrap_or_default()
                }));
            }
            drop(events);
            let ends = collect(&inbox, &mut collector);
            drop(inbox);
            let stats: Vec<ReadStats> = threads.into_iter().map(|t| t.join().unwrap_or_default()).collect();
            (stats, ends)
        });
        let (accounts, now) = ends?;
        let mut report = self.report(collector, now, accounts)?;
        for (stats, source) in stats.into_iter().zip(&sources) {
            finish(&mut report, stats, &**source);
        }
        Ok(report)
    }

    fn report(
        &self,
        collector: Collector<'_>,
        now: u64,
        accounts: Vec<(usize, Account)>,
    ) -> Result<Report, RunError> {
        let (mut totals, faults) = collector.end(now)?;
        for (module, account) in accounts {
            totals[module].add(&account);
        }
        let names = self.plan.modules.iter().map(|m| m.name.clone());
        Ok(Report { accounts: names.zip(totals).collect(), faults, ..Report::default() })
    }
}

fn finish(report: &mut Report, stats: ReadStats, source: &dyn Source) {
    report.packets += stats.packets;
    report.bytes += stats.bytes;
    report.kernel_drops += source.progress().kernel_drops;
    report.damage.extend_from_slice(source.damage());
    report.failed = report.failed.take().or(stats.failed.map(|e| e.to_string()));
}

struct Inline<'l, 'c> {
    pipeline: Pipeline<'l>,
    collector: Collector<'c>,
    end: Option<(Vec<(usize, Account)>, u64)>,
}

impl Consumer for Inline<'_, '_> {
    fn chunk(&mut self, chunk: Chunk<'_>) -> Result<(), RunError> {
        self.pipeline.chunk(chunk, &mut self.collector)?;
        self.collector.resume()
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), RunError> {
        self.pipeline.tick(now_ns, &mut self.collector)?;
        self.collector.tick(0, now_ns)
    }

    fn end(&mut self, now_ns: u64) -> Result<(), RunError> {
        self.end = Some((self.pipeline.end(now_ns, &mut self.collector)?, now_ns));
        Ok(())
    }

    fn resume(&mut self) -> Result<bool, RunError> {
        self.pipeline.resume(false, &mut self.collector)?;
        self.collector.resume()?;
        Ok(self.pipeline.can_progress() || self.collector.can_progress())
    }
}

/// Time that an instance has before its worker looks after the others.
pub(crate) const SLICE: Duration = Duration::from_micros(500);

/// Runs with a thread beside it that ends slices.
fn sliced<T>(engines: &flame_run::Engines, run: impl FnOnce() -> T) -> T {
    let (done, over) = bounded::<()>(0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while over.recv_timeout(SLICE) == Err(RecvTimeoutError::Timeout) {
                engines.end_slice();
            }
        });
        let result = run();
        drop(done);
        result
    })
}

/// What a worker is dispatched.
enum Work {
    Chunk { data: Bytes, packets: Vec<RawPacket>, descriptors: Vec<Descriptor> },
    Tick(u64),
    End(u64),
}

/// What workers tell the collector.
enum Event {
    Output { from: From, bytes: Vec<u8> },
    Fault(FaultReport),
    Passed { module: usize, worker: usize, now_ns: u64 },
    Tick { worker: usize, now_ns: u64 },
    End { accounts: Vec<(usize, Account)>, now_ns: u64 },
    Failed(RunError),
}

struct Dispatcher {
    pipelines: Vec<Sender<Work>>,
    key: Option<FlowHash>,
}

impl Dispatcher {
    fn all(&self, work: impl Fn() -> Work) -> Result<(), RunError> {
        self.pipelines.iter().try_for_each(|pipeline| pipeline.send(work()).map_err(|_| RunError::Broken))
    }
}

impl Consumer for Dispatcher {
    /// Both directions of a flow go to the same worker; so do all packets without a flow.
    fn chunk(&mut self, chunk: Chunk<'_>) -> Result<(), RunError> {
        let workers = self.pipelines.len();
        let mut dispatched = vec![(Vec::new(), Vec::new()); workers];
        let mut hashes: Vec<u32> = chunk.descriptors.iter().map(|d| d.hash).collect();
        if let Some(key) = &self.key {
            key.apply(hashes.iter_mut());
        }
        for ((packet, descriptor), hash) in chunk.packets.iter().zip(chunk.descriptors).zip(hashes) {
            let worker = ((u64::from(hash) * workers as u64) >> 32) as usize;
            dispatched[worker].0.push(*packet);
            dispatched[worker].1.push(*descriptor);
        }
        for (pipeline, (packets, descriptors)) in self.pipelines.iter().zip(dispatched) {
            if !packets.is_empty() {
                let data = chunk.block.data.clone();
                pipeline.send(Work::Chunk { data, packets, descriptors }).map_err(|_| RunError::Broken)?;
            }
        }
        Ok(())
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), RunError> {
        self.all(|| Work::Tick(now_ns))
    }

    fn end(&mut self, now_ns: u64) -> Result<(), RunError> {
        self.all(|| Work::End(now_ns))
    }
}

fn worker_loop(
    plan: &Plan,
    loaded: &[Loaded],
    options: &PipelineOptions<'_>,
    todo: &Receiver<Work>,
    outlet: &mut Queue<'_>,
) -> Result<(), RunError> {
    let mut pipeline = Pipeline::new(plan, loaded, options, outlet)?;
    loop {
        let work = match todo.try_recv() {
            Ok(work) => work,
            // Nothing came meanwhile.
            Err(TryRecvError::Empty) if pipeline.can_progress() => {
                pipeline.resume(false, outlet)?;
                continue;
            }
            Err(_) => todo.recv().map_err(|_| RunError::Broken)?,
        };
        match work {
            Work::Chunk { data, packets, descriptors } => {
                let block = RawBlock { data, packets: Vec::new(), shared_offset: None };
                let chunk = Chunk { block: &block, packets: &packets, descriptors: &descriptors };
                pipeline.chunk(chunk, outlet)?;
            }
            Work::Tick(now_ns) => {
                pipeline.tick(now_ns, outlet)?;
                outlet.send(Event::Tick { worker: outlet.worker, now_ns })?;
            }
            Work::End(now_ns) => {
                let accounts = pipeline.end(now_ns, outlet)?;
                return outlet.send(Event::End { accounts, now_ns });
            }
        }
    }
}

struct Parallel<'l, 'q> {
    pipeline: Pipeline<'l>,
    outlet: Queue<'q>,
}

impl Consumer for Parallel<'_, '_> {
    fn chunk(&mut self, chunk: Chunk<'_>) -> Result<(), RunError> {
        self.pipeline.chunk(chunk, &mut self.outlet)
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), RunError> {
        self.pipeline.tick(now_ns, &mut self.outlet)?;
        self.outlet.send(Event::Tick { worker: self.outlet.worker, now_ns })
    }

    fn end(&mut self, now_ns: u64) -> Result<(), RunError> {
        let accounts = self.pipeline.end(now_ns, &mut self.outlet)?;
        self.outlet.send(Event::End { accounts, now_ns })
    }

    fn resume(&mut self) -> Result<bool, RunError> {
        self.pipeline.resume(false, &mut self.outlet)?;
        Ok(self.pipeline.can_progress())
    }
}

/// A worker's way to the collector. Only output is copied, never a packet.
struct Queue<'a> {
    worker: usize,
    events: &'a Sender<Event>,
}

impl Queue<'_> {
    fn send(&self, event: Event) -> Result<(), RunError> {
        self.events.send(event).map_err(|_| RunError::Broken)
    }
}

impl Outlet for Queue<'_> {
    fn output(&mut self, from: From, output: Output<'_>) -> Result<(), RunError> {
        self.send(Event::Output { from, bytes: output.bytes.to_vec() })
    }

    fn fault(&mut self, _: usize, report: FaultReport) -> Result<(), RunError> {
        self.send(Event::Fault(report))
    }

    fn passed(&mut self, module: usize, worker: usize, now_ns: u64) -> Result<(), RunError> {
        self.send(Event::Passed { module, worker, now_ns })
    }
}

/// Collects until every worker has ended or one has failed.
fn collect(
    inbox: &Receiver<Event>,
    collector: &mut Collector<'_>,
) -> Result<(Vec<(usize, Account)>, u64), RunError> {
    let mut all = Vec::new();
    let mut last = 0;
    let mut failed = None;
    // Events since slow instances had a quantum: they have one when nothing comes, and while much does, now and then.
    let mut since = 0;
    loop {
        let can_progress = collector.can_progress();
        let event = match inbox.try_recv() {
            Ok(event) if !can_progress || since < QUEUE => event,
            Ok(event) => {
                (since, _) = (0, collector.resume()?);
                event
            }
            Err(TryRecvError::Empty) if can_progress => {
                (since, _) = (0, collector.resume()?);
                continue;
            }
            Err(TryRecvError::Empty) => match inbox.recv() {
                Ok(event) => event,
                Err(_) => break,
            },
            Err(TryRecvError::Disconnected) => break,
        };
        since += 1;
        match event {
            Event::Output { from, bytes } => collector.output(from, &bytes)?,
            Event::Passed { module, worker, now_ns } => collector.passed(module, worker, now_ns)?,
            Event::Fault(report) => collector.faults.push(report),
            Event::Tick { worker, now_ns } => collector.tick(worker, now_ns)?,
            Event::End { accounts, now_ns } => {
                all.extend(accounts);
                last = last.max(now_ns);
            }
            // The first true reason wins over those who only saw the line go dead.
            Event::Failed(RunError::Broken) => failed = failed.or(Some(RunError::Broken)),
            Event::Failed(e) => return Err(e),
        }
    }
    failed.map_or(Ok((all, last)), Err)
}
