//! The threads of a run: one for everything, or one for each worker, one that reads and one that collects.

use crate::error::RunError;
use crate::packets::clock::MAX_GAP;
use crate::packets::commands::Command;
use crate::packets::dispatch::{Dispatcher, Partition};
use crate::packets::fixed_blocks::TURN;
use crate::packets::pipeline::Pipeline;
use crate::packets::read::{Consumer, Packets, ReadStats, Reading, read_loop};
use crate::packets::shared_reader::Front;
use crate::packets::stage::PipelineOptions;
use crate::records::charge;
use crate::records::collect::Collector;
use crate::records::event::{Event, EventSender, QUEUE};
use crate::records::outlet::Queue;
use crate::records::queues::Queues;
use crate::records::report::{Observer, Report, Silent};
use crate::run::collector_loop::collect;
use crate::run::handle::Inboxes;
use crate::run::wiring::{Ends, Wiring};
use crate::run::worker_loop::worker_loop;
use crossbeam_channel::{Receiver, bounded, never, unbounded};
use flame_execute::Stop;
use flame_source::{Damage, Source};
use flame_view::FlowHash;

fn add_source(report: &mut Report, stats: ReadStats, source: &dyn Source) {
    report.packets += stats.packets;
    report.bytes += stats.bytes;
    if let Some(drops) = source.progress().kernel_drops {
        *report.kernel_drops.get_or_insert_default() += drops;
    }
    report.damage.extend_from_slice(source.damage());
    if let Some((from_ns, to_ns)) = stats.gap {
        let seconds = (to_ns - from_ns) as f64 / 1e9;
        let reason = format!(
            "no packets come for {seconds} s after {} s since 1970: these are more than {MAX_GAP} intervals, \
             and one row; later such gaps are not noted",
            from_ns as f64 / 1e9
        );
        report.damage.push(Damage::remark("--interval", reason));
    }
    report.failed = report.failed.take().or(stats.failed.map(|e| e.to_string()));
}

/// A worker of which everything is on one thread.
pub(crate) struct Inline<'l, 'c> {
    pub(crate) pipeline: Pipeline<'l>,
    pub(crate) collector: Collector<'c>,
    pub(crate) commands: Receiver<Command>,
    pub(crate) end: Option<Ends>,
    pub(crate) edges: Edges,
}

/// The places among the packets of one worker at which calls of services are delivered, if they have edges.
pub(crate) enum Edges {
    /// Each pause of the source: after a turn, or the part of one between two ticks.
    Turns,
    /// After [`TURN`] packets each, wherever blocks end. This many have come since the last.
    Counted(usize),
}

impl Consumer for Inline<'_, '_> {
    fn reads_hash(&self) -> bool {
        self.pipeline.reads_hash()
    }

    fn regulate(&mut self, fill: Option<u32>) -> Result<(), RunError> {
        self.pipeline.regulate(fill, &mut self.collector)
    }

    fn packets(&mut self, packets: Packets<'_>) -> Result<(), RunError> {
        let mut descriptors = packets.descriptors;
        while !descriptors.is_empty() {
            let has_edges = self.collector.delivers_at_edges();
            let count = match self.edges {
                Edges::Counted(before) if has_edges => descriptors.len().min(TURN - before),
                Edges::Counted(_) | Edges::Turns => descriptors.len(),
            };
            let part = Packets { descriptors: &descriptors[..count], ..packets };
            descriptors = &descriptors[count..];
            self.collector.begin(part.descriptors);
            self.pipeline.packets(part, &mut self.collector)?;
            let Edges::Counted(packets) = &mut self.edges else { continue };
            *packets = (*packets + count) % TURN;
            if has_edges && *packets == 0 {
                self.collector.deliver()?;
            }
            self.collector.resume()?;
        }
        Ok(())
    }

    fn pause(&mut self) -> Result<(), RunError> {
        match self.edges {
            Edges::Counted(_) => return Ok(()),
            Edges::Turns if self.collector.delivers_at_edges() => self.collector.deliver()?,
            Edges::Turns => {}
        }
        self.collector.resume()
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), RunError> {
        self.pipeline.tick(now_ns, &mut self.collector)?;
        self.collector.tick(0, (now_ns, self.pipeline.released()))
    }

    fn end(&mut self, now_ns: u64) -> Result<(), RunError> {
        self.collector.stop.end_worker();
        self.end = Some((self.pipeline.end(now_ns, &mut self.collector)?, now_ns));
        Ok(())
    }

    fn resume(&mut self) -> Result<bool, RunError> {
        self.pipeline.resume(false, &mut self.collector)?;
        self.collector.resume()?;
        Ok(self.pipeline.can_progress() || self.collector.can_progress())
    }

    fn commands(&mut self, now_ns: u64) -> Result<(), RunError> {
        self.pipeline.report_time(now_ns);
        while let Ok(command) = self.commands.try_recv() {
            match &command {
                Command::Add(module) | Command::Replace(module, ..) => self.collector.add(module)?,
                Command::Accounts(reply) => drop(reply.send(self.collector.accounts())),
                Command::Ask(module, question) => self.collector.ask(*module, question.clone())?,
                Command::Remove(..) => {}
            }
            self.pipeline.command(command, now_ns, &mut self.collector)?;
        }
        Ok(())
    }

    fn show(&mut self) -> Result<(), RunError> {
        self.collector.show()
    }

    fn rotate(&mut self) -> Result<(), RunError> {
        self.collector.rotate()
    }
}

/// Runs one worker, with everything on this thread.
pub(crate) fn run_inline(
    wiring: &Wiring<'_>,
    (mut source, edges): (Box<dyn Source>, Edges),
    mut collector: Collector<'_>,
    observer: &mut dyn Observer,
    inboxes: Inboxes,
) -> Result<Report, RunError> {
    wiring.handle.shared().wakes_me(0);
    let options = PipelineOptions { stop: collector.stop, ..wiring.pipeline_options(0, &*source) };
    let pipeline = Pipeline::new(wiring.modules, options, &mut collector)?;
    let commands = inboxes.pipelines.into_iter().next().unwrap_or_else(never);
    let mut consumer = Inline { pipeline, collector, commands, end: None, edges };
    let stats = read_loop(&mut *source, &mut consumer, observer, wiring.read_options());
    let Inline { mut collector, end, .. } = consumer;
    let Some((accounts, now)) = end else { return Err(stats.err().unwrap_or(RunError::Broken)) };
    wiring.complete(&mut collector)?;
    let mut report = collector.end(now, accounts)?;
    add_source(&mut report, stats?, &*source);
    Ok(report)
}

/// Runs several workers on one source, which they read, or another thread if the source waits for packets.
pub(crate) fn run_dispatched(
    wiring: &Wiring<'_>,
    mut source: Box<dyn Source>,
    mut collector: Collector<'_>,
    observer: &mut dyn Observer,
    inboxes: Inboxes,
    (events, queues): (EventSender, Queues),
) -> Result<Report, RunError> {
    let dispatch_key = wiring.options.dispatch_key.as_ref().map(FlowHash::new);
    let partition = Partition::new(wiring.shape.workers, dispatch_key, wiring.options.decapsulate);
    // The packets' memory is dispatched with them, so the pipeline copies the exposed bytes.
    let options = PipelineOptions { shared: None, ..wiring.pipeline_options(0, &*source) };
    let has_front = wiring.discipline.is_read_by_workers();
    // A worker that reads may not wait for another one, and reads only while all have room.
    let queue = || if has_front { unbounded() } else { bounded(QUEUE) };
    let (pipelines, todos): (Vec<_>, Vec<_>) = inboxes.pipelines.iter().map(|_| queue()).unzip();
    let help = source.help();
    let reading = Reading::new(&mut *source, wiring.read_options());
    let (front, reader) = match has_front {
        true => (Some(Front::new((reading, help), Dispatcher::new(pipelines, &partition), observer)), None),
        false => (None, Some((reading, Dispatcher::new(pipelines, &partition), observer))),
    };
    let (stats, ends) = std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for ((worker, commands), todo) in inboxes.pipelines.into_iter().enumerate().zip(todos) {
            let (events, partition, front) = (events.of(worker), &partition, front.as_ref());
            workers.push(scope.spawn(move || {
                let _charged = charge::begin(wiring.charging);
                let guard = Guard(&events, worker);
                let mut outlet = Queue { worker, events: &events };
                let options = PipelineOptions { worker, ..options };
                let ended = worker_loop(wiring, options, (partition, front), (&todo, &commands), &mut outlet);
                commands.try_iter().for_each(|command| command.abandon(worker));
                guard.end(ended);
            }));
        }
        drop(events);
        let reader = reader.map(|(mut reading, mut dispatcher, observer)| {
            scope.spawn(move || {
                let _charged = charge::begin(wiring.charging);
                while reading.step(&mut dispatcher, observer)? {}
                reading.end(&mut dispatcher)
            })
        });
        let ends = collect_all(wiring, queues, &mut collector);
        // The collector knows which of them panicked.
        workers.into_iter().for_each(|worker| drop(worker.join()));
        (reader.map(|reader| reader.join().unwrap_or(Err(RunError::Broken))), ends)
    });
    let (accounts, now) = ends?;
    let mut report = collector.end(now, accounts)?;
    let stats = stats.or_else(|| front.map(Front::into_result)).unwrap_or(Err(RunError::Broken))?;
    add_source(&mut report, stats, &*source);
    Ok(report)
}

/// Collects until every worker has ended or one has failed. If that fails, even by a panic, stops the run: a
/// source without packets would notice the closed queue at the next tick, which may be hours away.
fn collect_all(
    wiring: &Wiring<'_>,
    mut queues: Queues,
    collector: &mut Collector<'_>,
) -> Result<Ends, RunError> {
    struct StopUnless<'a>(&'a Stop<'a>, bool);
    impl Drop for StopUnless<'_> {
        fn drop(&mut self) {
            if !self.1 {
                self.0.set();
            }
        }
    }
    let mut stopping = StopUnless(wiring.stop, false);
    let ends = collect(&mut queues, collector, wiring);
    stopping.1 = ends.is_ok();
    if ends.is_err() {
        collector.let_go();
    }
    drop(queues);
    ends
}

/// Reports a worker that ended before its work, even by a panic, because the collector waits for each
/// worker's end.
struct Guard<'a>(&'a EventSender, usize);

impl Guard<'_> {
    fn end(self, ended: Result<(), RunError>) {
        self.0.lead().end_worker(self.1);
        if let Err(e) = ended {
            let _ = self.0.send(Event::Failed(e));
        }
        std::mem::forget(self);
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.lead().end_worker(self.1);
        let _ = self.0.send(Event::Failed(RunError::Broken));
    }
}

struct Parallel<'l, 'q> {
    pipeline: Pipeline<'l>,
    outlet: Queue<'q>,
    commands: Receiver<Command>,
}

impl Consumer for Parallel<'_, '_> {
    fn reads_hash(&self) -> bool {
        self.pipeline.reads_hash()
    }

    fn regulate(&mut self, fill: Option<u32>) -> Result<(), RunError> {
        self.pipeline.regulate(fill, &mut self.outlet)
    }

    fn packets(&mut self, packets: Packets<'_>) -> Result<(), RunError> {
        self.pipeline.packets(packets, &mut self.outlet)
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), RunError> {
        self.pipeline.tick(now_ns, &mut self.outlet)?;
        let (worker, accounts) = (self.outlet.worker, self.pipeline.released());
        self.outlet.send(Event::Tick { worker, now_ns, accounts })
    }

    fn end(&mut self, now_ns: u64) -> Result<(), RunError> {
        let accounts = self.pipeline.end(now_ns, &mut self.outlet)?;
        self.outlet.send(Event::End { accounts, now_ns })
    }

    fn resume(&mut self) -> Result<bool, RunError> {
        self.pipeline.resume(false, &mut self.outlet)?;
        Ok(self.pipeline.can_progress())
    }

    fn commands(&mut self, now_ns: u64) -> Result<(), RunError> {
        self.pipeline.report_time(now_ns);
        while let Ok(command) = self.commands.try_recv() {
            self.pipeline.command(command, now_ns, &mut self.outlet)?;
        }
        Ok(())
    }
}

/// Runs several workers, each with a source of its own packets.
pub(crate) fn run_parallel(
    wiring: &Wiring<'_>,
    mut sources: Vec<Box<dyn Source>>,
    mut collector: Collector<'_>,
    observer: &mut dyn Observer,
    inboxes: Inboxes,
    (events, queues): (EventSender, Queues),
) -> Result<Report, RunError> {
    let workers = wiring.shape.workers;
    if sources.len() != workers {
        return Err(RunError::Sources { expected: workers, found: sources.len() });
    }
    let mut observer = Some(observer);
    let (all_stats, ends) = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for ((worker, source), commands) in sources.iter_mut().enumerate().zip(inboxes.pipelines) {
            let events = events.of(worker);
            // One worker shows progress for all: each has the same part of the packets.
            let observer = observer.take();
            threads.push(scope.spawn(move || {
                let _charged = charge::begin(wiring.charging);
                let guard = Guard(&events, worker);
                wiring.handle.shared().wakes_me(worker);
                let run = || {
                    let mut outlet = Queue { worker, events: &events };
                    let options = wiring.pipeline_options(worker, &**source);
                    let pipeline = Pipeline::new(wiring.modules, options, &mut outlet)?;
                    let mut consumer = Parallel { pipeline, outlet, commands };
                    let mut silent = Silent;
                    let observer = observer.unwrap_or(&mut silent);
                    read_loop(&mut **source, &mut consumer, observer, wiring.read_options())
                };
                let (stats, ended) = match run() {
                    Ok(stats) => {
                        // Without it, the others would go on with their part of the packets only.
                        if stats.failed.is_some() {
                            wiring.stop.set();
                        }
                        (Ok(stats), Ok(()))
                    }
                    // The worker's end was sent before, so the collector may not wait for another event.
                    Err(e @ RunError::Source(_)) => {
                        wiring.stop.set();
                        (Err(e), Ok(()))
                    }
                    Err(e) => (Ok(ReadStats::default()), Err(e)),
                };
                guard.end(ended);
                stats
            }));
        }
        drop(events);
        let ends = collect_all(wiring, queues, &mut collector);
        let stats: Vec<_> = threads.into_iter().map(|t| t.join().unwrap_or(Err(RunError::Broken))).collect();
        (stats, ends)
    });
    let (accounts, now) = ends?;
    let mut report = collector.end(now, accounts)?;
    for (stats, source) in all_stats.into_iter().zip(&sources) {
        add_source(&mut report, stats?, &**source);
    }
    Ok(report)
}
