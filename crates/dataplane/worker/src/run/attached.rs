//! A run whose packets are given to it by its owner, on the owner's thread: modules as elements of a graph.

use crate::error::RunError;
use crate::forward::forwarding::{Forward, Offered};
use crate::packets::clock::Clock;
use crate::packets::commands::Command;
use crate::packets::overload::Overload;
use crate::packets::pipeline::Pipeline;
use crate::packets::read::{Consumer, decode_apart, send_ticking};
use crate::packets::stage::PipelineOptions;
use crate::records::collect::Collector;
use crate::records::event::EventSender;
use crate::records::outputs::Outputs;
use crate::records::report::{Observer, Report, Shared};
use crate::run::handle::Handle;
use crate::run::prepare::Run;
use crate::run::threads::{Edges, Inline};
use crossbeam_channel::{Receiver, never};
use flame_abi::{Descriptor, LinkType};
use flame_execute::Stop;
use flame_plan::limits::SETTLE_MAX;
use flame_plan::{Account, Decided, Discipline};
use flame_record::Sink;
use flame_source::{Described, Frame, RawBlock};
use flame_view::Key;
use self_cell::{MutBorrow, self_cell};
use std::time::{Duration, Instant};

/// Longest wait for a report before the accounts of processes are checked.
const ACCOUNT_CHECK: Duration = Duration::from_millis(1);
/// The same where the next packets wait for them.
const STEP_CHECK: Duration = Duration::from_micros(50);

/// The values that the parts of an attached run borrow.
struct Owned {
    stop: Stop<'static>,
    key: Option<Key>,
    sink: MutBorrow<Box<dyn Sink>>,
    events: Shared<Box<dyn Observer>>,
}

/// The parts of the run, until it has ended.
struct Parts<'a>(Option<Work<'a>>);

enum Work<'a> {
    Measure(Box<Inline<'a, 'a>>),
    Forward(Box<Forwarding<'a>>),
}

impl Work<'_> {
    /// Returns whether processes have reported what became of the packets that they got.
    fn is_settled(&self) -> bool {
        match self {
            Self::Measure(parts) => parts.pipeline.is_settled(),
            Self::Forward(parts) => !parts.forward.is_busy(),
        }
    }
}

/// A module that forwards packets, with its output.
struct Forwarding<'a> {
    forward: Forward,
    collector: Collector<'a>,
    commands: Receiver<Command>,
    options: PipelineOptions<'a>,
}

impl Forwarding<'_> {
    /// Reports accounts to those who wait for them. Others learn that nothing can be added here.
    fn commands(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            if let Command::Accounts(reply) = command {
                // This fails only if nobody waits for the reply any more.
                let _ = reply.send(vec![self.forward.account()]);
                let _ = reply.send(self.collector.accounts());
            }
        }
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), RunError> {
        self.forward.tick(now_ns, &self.options, &mut self.collector)?;
        self.forward.go(&self.options, false, &mut self.collector)?;
        let is_released = self.collector.discipline.releases_by_interval();
        let account = is_released.then(|| self.forward.account()).into_iter().collect();
        self.collector.tick(0, (now_ns, account))
    }

    fn resume(&mut self) -> Result<(), RunError> {
        self.commands();
        self.forward.go(&self.options, false, &mut self.collector)?;
        self.collector.resume()
    }

    fn end(mut self, now_ns: u64) -> Result<Report, RunError> {
        while self.forward.is_busy() {
            self.forward.go(&self.options, true, &mut self.collector)?;
            // Nobody takes the last packets any more.
            self.forward.discard();
        }
        self.forward.end(now_ns, &self.options, &mut self.collector)?;
        let account = self.forward.account();
        self.collector.end(now_ns, vec![account])
    }
}

self_cell!(
    struct Cell {
        owner: Owned,
        #[not_covariant]
        dependent: Parts,
    }
);

/// A run without a source. Its owner gives it packets, and it works on the owner's thread until they are
/// processed. It has one worker. What processes report is handled on that thread as well.
pub struct Attached {
    cell: Cell,
    handle: Handle,
    clock: Clock,
    decapsulate: bool,
    descriptors: Vec<Descriptor>,
    described: Described,
    packets: u64,
    bytes: u64,
    discipline: Discipline,
    /// Keeps the queue to the collector open, although no other thread of the run writes to it.
    sender: Option<EventSender>,
}

impl Attached {
    /// Starts a run with the discipline of a graph. If that loses late packets, the owner continues between
    /// the slices of a call. If it steps, the owner calls [`Attached::settle`] after each block, which has no
    /// limit of time then.
    ///
    /// # Errors
    ///
    /// Returns an error if a view cannot be created, or if the run has several workers.
    pub fn start(
        run: Run,
        discipline: Discipline,
        sink: Box<dyn Sink>,
        observer: Box<dyn Observer>,
    ) -> Result<Self, RunError> {
        let Run { shape, modules, options, handle, inboxes, events, stall, .. } = run;
        if shape.workers != 1 {
            return Err(RunError::Broken);
        }
        let time = discipline.service_time(shape.workers, options.placement());
        let (decapsulate, batch) = (options.decapsulate, options.batch);
        let owned = Owned {
            stop: Stop::shared(options.stop),
            key: options.key,
            sink: MutBorrow::new(sink),
            events: Shared::new(observer),
        };
        let commands = inboxes.pipelines.into_iter().next().unwrap_or_else(never);
        let (sender, queues) = events.unzip();
        let cell = Cell::try_new(owned, |owned| {
            let stop = &owned.stop;
            let sink = &mut **owned.sink.borrow_mut();
            let outputs = Outputs::new(sink, &owned.events, None, time, stall);
            let mut collector = Collector::new(shape, &modules, outputs, stop, discipline)?;
            if let Some(queues) = queues {
                collector.take_reports_from(queues);
            }
            let key = owned.key.as_ref();
            // The owner of the packets decides what is dropped.
            let overload = Overload::OFF;
            let options =
                PipelineOptions { shape, worker: 0, batch, key, shared: None, discipline, stop, overload };
            if let [module] = &modules[..]
                && module.plan().manifest.ports.is_some()
            {
                let forward = Forward::new(module, &options, &mut collector)?;
                let forwarding = Forwarding { forward, collector, commands, options };
                return Ok::<_, RunError>(Parts(Some(Work::Forward(Box::new(forwarding)))));
            }
            let pipeline = Pipeline::new(&modules, options, &mut collector)?;
            let inline = Inline { pipeline, collector, commands, end: None, edges: Edges::Counted(0) };
            Ok(Parts(Some(Work::Measure(Box::new(inline)))))
        })?;
        let clock = Clock::new(shape.tick_ns);
        let ((descriptors, described), packets, bytes) = Default::default();
        Ok(Self {
            cell,
            handle,
            clock,
            decapsulate,
            descriptors,
            described,
            packets,
            bytes,
            discipline,
            sender,
        })
    }

    /// Returns a handle that commands the run from other threads.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    fn with<T>(
        cell: &mut Cell,
        act: impl FnOnce(&mut Work<'_>) -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        cell.with_dependent_mut(|_, parts| act(parts.0.as_mut().ok_or(RunError::Ended)?))
    }

    /// Counts packets.
    fn count(&mut self, packets: usize, bytes: u64) {
        let packets = packets as u64;
        self.packets += packets;
        self.bytes += bytes;
        self.handle.shared().progress.add(packets, bytes, 0);
    }

    /// Offers the packets of a block to modules that measure, at most [`flame_abi::MAX_BLOCK_PACKETS`].
    ///
    /// # Errors
    ///
    /// Returns an error if the sink failed. Faults of modules are in the report.
    pub fn packets(&mut self, block: &RawBlock) -> Result<(), RunError> {
        let reads_hash = Self::with(&mut self.cell, |work| match work {
            Work::Measure(parts) => Ok(parts.reads_hash()),
            Work::Forward(_) => Err(RunError::Broken),
        })?;
        let how = flame_decode::Options { decapsulate: self.decapsulate, without_hash: !reads_hash };
        block.describe(how, &mut self.described);
        self.count(block.packets.len(), self.described.totals().bytes);
        let (clock, described) = (&mut self.clock, &self.described);
        Self::with(&mut self.cell, |work| {
            let Work::Measure(parts) = work else { return Err(RunError::Broken) };
            parts.commands(clock.now)?;
            send_ticking((block, described), clock, &mut **parts, |_| false)?;
            parts.collector.poll().map(drop)
        })
    }

    /// Offers packets of one link type from the input `port`, at most [`flame_abi::MAX_BATCH`] and at most
    /// [`flame_abi::MAX_BLOCK_BYTES`] without the last one, to a module that forwards them. Returns the
    /// number of those that it takes: the others follow a tick, and are offered again. The module is not
    /// busy. [`Attached::decided`] returns its decisions.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Attached::packets`].
    pub fn push(&mut self, port: u16, link: LinkType, packets: &[Frame<'_>]) -> Result<usize, RunError> {
        let Some(first) = packets.first() else { return Ok(0) };
        let clock = &mut self.clock;
        let (decapsulate, descriptors) = (self.decapsulate, &mut self.descriptors);
        let (taken, bytes) = Self::with(&mut self.cell, |work| {
            let Work::Forward(parts) = work else { return Err(RunError::Broken) };
            parts.commands();
            while let Some(tick) = clock.advance(first.ts_ns) {
                parts.tick(tick)?;
            }
            let Forwarding { forward, collector, options, .. } = &mut **parts;
            let how = forward.decoding(decapsulate);
            let (mut taken, mut read) = (packets, decode_apart(packets, link, how, descriptors));
            if clock.is_due(read.1) {
                // A tick falls between the same packets, whichever were offered together.
                let follows = |p: &&Frame<'_>| !clock.is_due(p.ts_ns);
                taken = &packets[..1 + packets.iter().skip(1).take_while(follows).count()];
                read = decode_apart(taken, link, how, descriptors);
            }
            clock.quiet(read.1);
            forward.offer((port, link), taken, descriptors, (options, collector))?;
            collector.resume()?;
            Ok((taken.len(), read.0))
        })?;
        self.count(taken, bytes);
        Ok(taken)
    }

    /// Returns the decisions about the packets that were pushed last, once. `offered` returns their bytes.
    pub fn decided<'a>(&mut self, offered: &'a dyn Fn(usize) -> &'a [u8]) -> Option<Decided> {
        let offered: Offered<'_> = offered;
        let decided = Self::with(&mut self.cell, |work| match work {
            Work::Forward(parts) => Ok(parts.forward.take(offered, &mut parts.collector)),
            Work::Measure(_) => Ok(None),
        });
        decided.ok().flatten()
    }

    /// Continues paused calls for a quantum. Returns whether any are left.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Attached::packets`].
    pub fn resume(&mut self) -> Result<bool, RunError> {
        let now = self.clock.now;
        Self::with(&mut self.cell, |work| match work {
            Work::Measure(parts) => {
                parts.commands(now)?;
                parts.resume()?;
                let is_left = !parts.collector.poll()?;
                Ok(is_left || parts.pipeline.is_busy() || parts.collector.can_progress())
            }
            Work::Forward(parts) => {
                parts.resume()?;
                Ok(parts.forward.is_busy() || parts.collector.can_progress())
            }
        })
    }

    /// Returns whether a call waits to be continued.
    pub fn is_busy(&mut self) -> bool {
        let is_busy = Self::with(&mut self.cell, |work| match work {
            Work::Measure(parts) => Ok(parts.pipeline.is_busy()),
            Work::Forward(parts) => Ok(parts.forward.is_busy()),
        });
        is_busy.unwrap_or(false)
    }

    /// Returns whether a call waits that [`Attached::resume`] would not continue now: the module has used up
    /// its share of time.
    pub fn is_waiting(&mut self) -> bool {
        let is_waiting = Self::with(&mut self.cell, |work| match work {
            Work::Measure(parts) => Ok(parts.pipeline.is_busy()
                && !parts.pipeline.can_progress()
                && !parts.collector.can_progress()),
            Work::Forward(parts) => Ok(parts.forward.is_busy()
                && !parts.forward.can_progress()
                && !parts.collector.can_progress()),
        });
        is_waiting.unwrap_or(false)
    }

    /// Returns whether no module has an instance any more, because of a fault or an eviction.
    pub fn is_gone(&mut self) -> bool {
        let is_gone = Self::with(&mut self.cell, |work| match work {
            Work::Measure(parts) => Ok(parts.pipeline.is_gone()),
            Work::Forward(parts) => Ok(parts.forward.is_gone()),
        });
        is_gone.unwrap_or(true)
    }

    /// Waits for a while until processes have reported what became of all packets, of sources that are not
    /// live: accounts, faults and ends are those after the last packet then.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Attached::packets`].
    pub fn settle(&mut self) -> Result<(), RunError> {
        let begun = Instant::now();
        Self::with(&mut self.cell, |work| {
            let parts = match work {
                Work::Measure(parts) => parts,
                Work::Forward(parts) => {
                    return parts.forward.go(&parts.options, false, &mut parts.collector);
                }
            };
            if self.discipline.loses_late_packets() {
                return parts.collector.poll().map(drop);
            }
            loop {
                // First: what was reported before the last account waits in the queue then.
                let is_settled = parts.pipeline.is_settled();
                if parts.collector.poll()? && is_settled {
                    parts.pipeline.rest();
                    return Ok(());
                }
                if self.discipline.steps() {
                    parts.pipeline.await_reports();
                } else if begun.elapsed() > SETTLE_MAX {
                    return Ok(());
                }
                parts.collector.wait(if self.discipline.steps() { STEP_CHECK } else { ACCOUNT_CHECK });
            }
        })
    }

    /// Handles what processes have reported, and shows the rows of those that have reported everything,
    /// although no packets come. Returns whether all have, or none if no module runs in a process.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Attached::packets`].
    pub fn look(&mut self) -> Result<Option<bool>, RunError> {
        if self.sender.is_none() {
            return Ok(None);
        }
        // First: what was reported before the last account waits in the queue then.
        let is_settled = match self.cell.with_dependent_mut(|_, parts| parts.0.as_ref().map(Work::is_settled))
        {
            Some(is_settled) => is_settled,
            None => return Ok(None),
        };
        let is_left = self.resume()?;
        Self::with(&mut self.cell, |work| {
            let collector = match work {
                Work::Measure(parts) => &mut parts.collector,
                Work::Forward(parts) => &mut parts.collector,
            };
            if is_settled && !is_left {
                collector.show()?;
            }
            Ok(Some(is_settled && !is_left))
        })
    }

    /// Returns the sum of the modules' accounts so far.
    pub fn account(&mut self) -> Account {
        let accounts = Self::with(&mut self.cell, |work| {
            Ok(match work {
                Work::Measure(parts) => [parts.pipeline.accounts(), parts.collector.accounts()].concat(),
                Work::Forward(parts) => [vec![parts.forward.account()], parts.collector.accounts()].concat(),
            })
        });
        let mut sum = Account::default();
        accounts.unwrap_or_default().iter().for_each(|(_, account)| sum.add(account));
        sum
    }

    /// Makes the last calls, and returns the report and the sink, which is not finished.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Attached::packets`].
    pub fn end(mut self) -> Result<(Report, Box<dyn Sink>), RunError> {
        let now = self.clock.now;
        let report =
            self.cell.with_dependent_mut(|_, parts| match parts.0.take().ok_or(RunError::Ended)? {
                Work::Measure(mut inline) => {
                    inline.commands(now)?;
                    let accounts = inline.pipeline.end(now, &mut inline.collector)?;
                    inline.collector.end(now, accounts)
                }
                Work::Forward(forwarding) => forwarding.end(now),
            })?;
        let report = Report { packets: self.packets, bytes: self.bytes, ..report };
        self.handle.let_go();
        Ok((report, self.cell.into_owner().sink.into_inner()))
    }
}
