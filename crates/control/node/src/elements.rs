//! The modules of a graph of elements: each `Module` element has a run of its own, built as every other one.

use crate::build::{Built, RunRequest, Submission, build_unentered};
use crate::node::{AdmittedModule, Node};
use crate::record::Entered;
use crate::watch::Watch;
use flame_abi::LinkType;
use flame_admit::Verdict;
use flame_compile::{Analysed, Compiler};
use flame_element::modules::{self, Decisions, ModuleArgs, Modules, Prepared, Running};
use flame_plan::{Account, Catalog, CatalogEntry, FaultReport, ModuleClass, ModulePlan, Pace, Plan};
use flame_quota::Meters;
use flame_record::{RecordBatch, Sink, SinkError};
use flame_run::{Area, Areas, Engines};
use flame_source::{Frame, Progress, RawBlock};
use flame_trust::Grant;
use flame_worker::{
    Attached, Decided, Fate, Observer, Options, Run, RunError, Runner, SliceThread, Slices,
    check_forward,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;

/// A receiver of lines for the operator: notes, warnings, faults and texts of modules.
pub type Notify = Arc<dyn Fn(&str) + Send + Sync>;

/// Records that the bound of the module with a hash was violated.
pub type RecordViolation = Box<dyn Fn(&[u8; 32]) + Send + Sync>;

/// The parts that the client of a graph provides: its files, its compiler and its outputs.
pub trait Client: Send + Sync {
    /// Reads a module, given as its element names it.
    ///
    /// # Errors
    ///
    /// Returns an error that names the file.
    fn submission(&self, file: &str) -> Result<Submission, String>;

    /// Translates the arguments of an element for its module, called `name`.
    ///
    /// # Errors
    ///
    /// Returns an error that names the argument.
    fn request(&self, args: &ModuleArgs, submission: Submission) -> Result<RunRequest, String>;

    /// Returns a compiler for the modules of the graph.
    fn compiler(&self) -> Compiler<'static>;

    /// Returns the function that records violations of bounds, so that later runs meter their modules.
    fn violations(&self) -> RecordViolation;

    /// Returns the node with the credential of an element, or `None` without a policy.
    ///
    /// # Errors
    ///
    /// Returns an error if the policy, the credential or the key cannot be read.
    fn node(&self, args: &ModuleArgs) -> Result<Option<Node>, String>;

    /// Opens the output of all records.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be created.
    fn sink(&self, catalog: &Catalog) -> Result<Box<dyn Sink>, String>;

    /// Returns the receiver of lines for the operator.
    fn notify(&self) -> Notify;

    /// Returns the program that runs each module in a process of its own, or `None` if modules run here.
    ///
    /// # Errors
    ///
    /// Returns an error if the program is not there.
    fn runner(&self) -> Result<Option<Runner>, String>;
}

/// The output that all modules share, until it is completed.
type SharedSink = Arc<Mutex<Option<Box<dyn Sink>>>>;

fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The modules of a graph.
pub struct Elements<C>(Arc<Shared<C>>);

struct Shared<C> {
    client: C,
    engines: OnceLock<Engines>,
    /// Whether modules are only checked: nothing is installed, so the audit log is not written.
    is_check: bool,
    /// The plan of each element's module, for the names and tables of the output.
    plans: Mutex<BTreeMap<String, ModulePlan>>,
    /// The output, and the names and tables that it was opened for.
    sink: Mutex<Option<(SharedSink, Catalog)>>,
    areas: Mutex<GraphAreas>,
    /// Ends slices, from the first module on that needs it.
    slices: Mutex<Option<SliceThread>>,
}

/// The memory that modules of a graph share.
#[derive(Default)]
struct GraphAreas {
    areas: Areas,
    /// The thread whose modules share each area.
    threads: HashMap<String, ThreadId>,
}

impl GraphAreas {
    /// Returns the areas of a module that runs in this thread. Modules that share memory take turns, so they
    /// are in one thread.
    fn take(&mut self, module: &ModulePlan) -> Result<Vec<Area>, String> {
        let here = std::thread::current().id();
        for shared in &module.manifest.shared {
            if *self.threads.entry(shared.name.clone()).or_insert(here) != here {
                return Err(format!(
                    "{} shares the memory {:?} with a module of another thread: bind their elements to one \
                     thread (StaticThreadSched)",
                    module.name, shared.name
                ));
            }
        }
        self.areas.take(module).map_err(|e| e.to_string())
    }
}

impl<C: Client> Elements<C> {
    /// Creates the modules of a graph. With `is_check`, they are checked but not installed.
    pub fn new(client: C, is_check: bool) -> Self {
        let (engines, plans, sink, areas, slices) = Default::default();
        Self(Arc::new(Shared { client, engines, is_check, plans, sink, areas, slices }))
    }
}

impl<C: Client> Shared<C> {
    /// Returns the engines, which a graph without modules does not need.
    fn engines(&self) -> Result<&Engines, String> {
        if let Some(engines) = self.engines.get() {
            return Ok(engines);
        }
        let engines = Engines::new().map_err(|e| e.to_string())?;
        engines.watchdog().on_violation(self.client.violations());
        Ok(self.engines.get_or_init(|| engines))
    }

    /// Returns the name under which records of an element's module are written: that of the module, with a
    /// number if another element has it. A name in the output belongs to the tables for which that is open.
    fn name(&self, element: &str, module: &ModulePlan) -> Result<String, String> {
        let (plans, sink) = (locked(&self.plans), locked(&self.sink));
        let (name, tables) = (&module.name, &module.manifest.tables);
        let opened = sink.as_ref().map(|(_, catalog)| &catalog.modules);
        let is_free = |wanted: &String| !plans.iter().any(|(e, p)| e != element && p.name == *wanted);
        let fits = |wanted: &String| {
            let has = |all: &Vec<CatalogEntry>| {
                all.iter().any(|e| e.name == *wanted && e.manifest.tables == *tables)
            };
            tables.is_empty() || opened.is_none_or(has)
        };
        let most = plans.len() + opened.map_or(0, Vec::len) + 1;
        let numbered = (2..=most).map(|times| format!("{name}#{times}"));
        let mut all = std::iter::once(name.clone()).chain(numbered);
        all.find(|n| is_free(n) && fits(n)).ok_or_else(|| {
            format!(
                "the records of {name} have no place in the output, which was opened for other modules or \
                 tables: start `flame click` again with this configuration"
            )
        })
    }

    /// Returns the output, which is opened for the modules that are known by then.
    fn sink(&self) -> Result<SharedSink, String> {
        // Plans are locked first, as everywhere.
        let plans = locked(&self.plans);
        let mut sink = locked(&self.sink);
        if let Some((sink, _)) = &*sink {
            return Ok(sink.clone());
        }
        let modules = plans.values().cloned().collect();
        let catalog = Plan::new(modules, 1, 0).catalog();
        let opened = self.client.sink(&catalog)?;
        Ok(sink.insert((Arc::new(Mutex::new(Some(opened))), catalog)).0.clone())
    }
}

impl<C: Client + 'static> Modules for Elements<C> {
    fn configure(&self) {
        let mut areas = locked(&self.0.areas);
        areas.areas.configure();
        areas.threads.clear();
    }

    fn prepare(&self, args: &ModuleArgs) -> Result<Box<dyn Prepared>, String> {
        let shared = &self.0;
        let notify = shared.client.notify();
        let submission = shared.client.submission(&args.file)?;
        let request = shared.client.request(args, submission)?;
        let node = if shared.is_check { None } else { shared.client.node(args)? };
        let compiler = shared.client.compiler();
        let cost_class = if shared.is_check { cost_class(&compiler, &request) } else { None };
        let built = build_unentered(&request, node.as_ref(), &compiler);
        let Built { mut plan, meters, mut admitted, notes, mut verdicts, .. } =
            built.map_err(|e| e.to_string())?;
        notes.iter().for_each(|note| notify(&format!("{}: note: {note}", args.element)));
        let Some(module) = plan.modules.first_mut() else { return Err("no module".to_owned()) };
        check_ports(module, args)?;
        if module.manifest.packets {
            return Err(format!(
                "{} writes packets to a capture file, which an element has not: flame run -w runs it",
                module.name
            ));
        }
        module.name = shared.name(&args.element, module)?;
        let runner = shared.client.runner()?.filter(|_| !shared.is_check);
        if runner.is_some() && !module.manifest.shared.is_empty() {
            return Err(RunError::Shares(module.name.clone()).to_string());
        }
        module.process = runner.is_some().then(|| args.element.clone());
        let areas = locked(&shared.areas).take(module)?;
        locked(&shared.plans).insert(args.element.clone(), module.clone());
        Ok(Box::new(Ready {
            shared: shared.clone(),
            plan,
            meters,
            areas,
            runner,
            grant: admitted.pop().zip(node),
            pace: args.pace,
            verdict: verdicts.pop(),
            cost_class,
        }))
    }

    fn begin(&self) -> Result<(), String> {
        // A graph without modules has no records.
        if locked(&self.0.plans).is_empty() { Ok(()) } else { self.0.sink().map(drop) }
    }

    fn finish(&self) -> Result<(), String> {
        *locked(&self.0.slices) = None;
        let Some((sink, _)) = locked(&self.0.sink).take() else { return Ok(()) };
        let Some(sink) = locked(&sink).take() else { return Ok(()) };
        sink.finish().map_err(|e| e.to_string())
    }
}

/// A module that was built for an element.
struct Ready<C: Client> {
    shared: Arc<Shared<C>>,
    plan: Plan,
    meters: Vec<Meters>,
    /// The areas that it shares, which so exist from the configuration on.
    areas: Vec<Area>,
    /// The program that runs it in a process.
    runner: Option<Runner>,
    /// The grant, and the node that gave it.
    grant: Option<(AdmittedModule, Node)>,
    pace: Pace,
    verdict: Option<Verdict>,
    /// The quantity on which the cost of a packet depends.
    cost_class: Option<&'static str>,
}

/// Returns the class of the calls with packets, or none if the module cannot be analysed.
fn cost_class(compiler: &Compiler<'_>, request: &RunRequest) -> Option<&'static str> {
    let wasm = &request.submissions.first()?.wasm;
    let examined = compiler.examine(wasm).ok()?;
    match compiler.analyse(wasm, &examined, request.costs.as_ref()).ok()? {
        Analysed::Report(report) => report.batch().map(|batch| batch.depends.class()),
        Analysed::Exceeded(_) => None,
    }
}

/// Checks that a module has the ports that the graph connects.
fn check_ports(module: &ModulePlan, args: &ModuleArgs) -> Result<(), String> {
    check_forward(module).map_err(|e| e.to_string())?;
    let name = &module.name;
    let ModuleArgs { inputs, outputs, .. } = args;
    match &module.manifest.ports {
        None if (*inputs, *outputs) == (1, 1) => Ok(()),
        None => Err(format!(
            "{name} measures: it has 1 input and 1 output, but {inputs} and {outputs} are connected"
        )),
        Some(ports) if (ports.inputs as usize, ports.outputs as usize) == (*inputs, *outputs) => Ok(()),
        Some(ports) => Err(format!(
            "{name} has {} inputs and {} outputs, but {inputs} and {outputs} are connected",
            ports.inputs, ports.outputs
        )),
    }
}

impl<C: Client> Prepared for Ready<C> {
    fn forwards(&self) -> bool {
        self.plan.modules.iter().any(|module| module.manifest.ports.is_some())
    }

    fn cost_ns(&self) -> Result<f64, String> {
        let Some(verdict) = &self.verdict else { return Err("it was not analysed".to_owned()) };
        // Graphs push packets alone as well as together.
        match verdict.alone_ns.filter(|_| verdict.class == ModuleClass::Bounded) {
            Some(ns) => Ok(ns),
            None => Err(format!("the module is metered: {}", verdict.why)),
        }
    }

    fn cost_class(&self) -> Option<&'static str> {
        self.cost_class
    }

    fn continues(&self, running: &dyn Running) -> bool {
        let Some(running) = (running as &dyn std::any::Any).downcast_ref::<Element>() else { return false };
        let has_grant = match (&self.grant, &running.held) {
            (None, None) => true,
            (Some((admitted, _)), Some(held)) => is_same(&admitted.grant, &held.grant),
            _ => false,
        };
        has_grant && is_alike(&running.plan, &self.plan) && running.pace == self.pace
    }

    fn start(self: Box<Self>) -> Result<Box<dyn Running>, String> {
        let Self { shared, plan, meters, areas, runner, grant, pace, .. } = *self;
        // A process has a thread of its own that ends slices.
        let has_slices = pace.is_live() && runner.is_none();
        let sharers = Some(locked(&shared.plans).len());
        let options = Options { areas, runner, sharers, ..Options::default() };
        let error = |e: RunError| e.to_string();
        if has_slices {
            let mut slices = locked(&shared.slices);
            if slices.is_none() {
                let of_all = Slices::default();
                of_all.need(true);
                *slices = Some(of_all.start(shared.engines()?, || ()).map_err(|e| e.to_string())?);
            }
        }
        let sink = Tap(shared.sink()?);
        let run = Run::new(&plan, &meters, shared.engines()?, options).map_err(error)?;
        let notify = shared.client.notify();
        // Before packets flow: the policy may have changed since the module was admitted.
        let held = match (plan.modules.first(), grant) {
            (Some(module), Some((admitted, node))) => {
                Held::new(admitted, node, module, &run, &notify).map(Some)
            }
            _ => Ok(None),
        };
        let held = held.map_err(|e| e.to_string())?;
        let faults = Arc::default();
        let observer = NotifyingObserver { notify: notify.clone(), faults: Arc::clone(&faults) };
        match Attached::start(run, pace, Box::new(sink), Box::new(observer)) {
            Ok(attached) => Ok(Box::new(Element { attached, plan, pace, faults, held, notify })),
            Err(e) => {
                if let Some(Held { entered, .. }) = held {
                    entered.ended(&[], &Account::default()).map_err(|e| e.to_string())?;
                }
                Err(error(e))
            }
        }
    }
}

/// The grant of a module that runs: it exists as long as the module, which the audit log names and the watch
/// evicts.
struct Held {
    grant: Grant,
    watch: Watch,
    entered: Entered,
}

/// Returns whether two plans are equal but for the seeds of random numbers, which are chosen for each plan.
fn is_alike(a: &Plan, b: &Plan) -> bool {
    let seedless = |plan: &Plan| {
        let mut plan = plan.clone();
        plan.modules.iter_mut().for_each(|module| module.seed = None);
        plan
    };
    seedless(a) == seedless(b)
}

/// Returns whether two grants give the same rights to the same principal, with the same quotas.
fn is_same(a: &Grant, b: &Grant) -> bool {
    let of = |grant: &Grant| (grant.principal.clone(), grant.role.clone(), grant.ids.clone());
    of(a) == of(b) && a.rights == b.rights && a.links == b.links
}

impl Held {
    fn new(
        admitted: AdmittedModule,
        node: Node,
        module: &ModulePlan,
        run: &Run,
        notify: &Notify,
    ) -> Result<Self, crate::NodeError> {
        let entered = node.installed(&admitted, &module.name, module.seed)?;
        let (grant, warn) = (admitted.grant.clone(), notify.clone());
        let warn = move |text: &str| warn(&format!("warning: {text}"));
        Ok(Self { grant, watch: Watch::start(node, vec![admitted], run.handle(), warn), entered })
    }
}

/// An observer that reports the events of a module to the operator.
struct NotifyingObserver {
    notify: Notify,
    faults: Arc<Mutex<Vec<String>>>,
}

impl Observer for NotifyingObserver {
    fn progress(&mut self, _: u64, _: Progress) {}

    fn log(&mut self, module: &str, text: &str) {
        (self.notify)(&format!("{module}: {}", flame_record::escape::line(text)));
    }

    fn fault(&mut self, report: &FaultReport) -> bool {
        let then = if report.restarted { "started anew" } else { "stopped" };
        let packet = report.packet.map_or(String::new(), |p| format!(" (packet {p})"));
        let text = format!("module {} {then}{packet}: {}", report.module, report.text);
        (self.notify)(&text);
        let mut faults = locked(&self.faults);
        // All are counted in the account; the texts of the first ones are kept.
        if faults.len() < flame_worker::MAX_FAULTS {
            faults.push(report.text.clone());
        }
        true
    }
}

/// The output of one module, which completes nothing: the others go on.
struct Tap(SharedSink);

impl Tap {
    fn with(&mut self, act: impl FnOnce(&mut dyn Sink) -> Result<(), SinkError>) -> Result<(), SinkError> {
        locked(&self.0).as_mut().map_or(Ok(()), |sink| act(&mut **sink))
    }
}

impl Sink for Tap {
    fn write(
        &mut self,
        module: &str,
        table: &flame_abi::manifest::Table,
        batch: &RecordBatch,
    ) -> Result<(), SinkError> {
        self.with(|sink| sink.write(module, table, batch))
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.with(|sink| sink.flush())
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        Ok(())
    }
}

/// A module that runs for an element.
struct Element {
    attached: Attached,
    /// The plan and the mode with which it was started, by which it is recognized.
    plan: Plan,
    pace: Pace,
    faults: Arc<Mutex<Vec<String>>>,
    held: Option<Held>,
    notify: Notify,
}

impl Running for Element {
    fn packets(&mut self, block: &RawBlock) -> Result<(), String> {
        self.attached.packets(block).map_err(|e| e.to_string())
    }

    fn push(&mut self, port: usize, link: LinkType, packets: &[Frame<'_>]) -> Result<usize, String> {
        let port = u16::try_from(port).unwrap_or(u16::MAX);
        self.attached.push(port, link, packets).map_err(|e| e.to_string())
    }

    fn decided<'a>(&mut self, bytes: &'a dyn Fn(usize) -> &'a [u8]) -> Option<Decisions> {
        let Decided { all_to, fates, decisions, bytes } = self.attached.decided(bytes)?;
        let fate = |fate| match fate {
            Fate::Unseen => modules::Fate::Unseen,
            Fate::Sent => modules::Fate::Sent,
            Fate::Dropped => modules::Fate::Dropped("module"),
            Fate::Length => modules::Fate::Dropped("length changed by the module"),
            Fate::Headers => modules::Fate::Dropped("form of headers changed by the module"),
            Fate::Lost(cause) => modules::Fate::Lost(cause.name()),
        };
        Some(Decisions { all_to, fates: fates.into_iter().map(fate).collect(), decisions, bytes })
    }

    fn resume(&mut self) -> Result<bool, String> {
        self.attached.resume().map_err(|e| e.to_string())
    }

    fn is_busy(&mut self) -> bool {
        self.attached.is_busy()
    }

    fn is_waiting(&mut self) -> bool {
        self.attached.is_waiting()
    }

    fn is_gone(&mut self) -> bool {
        self.attached.is_gone()
    }

    fn settle(&mut self) -> Result<(), String> {
        self.attached.settle().map_err(|e| e.to_string())
    }

    fn look(&mut self) -> Result<Option<bool>, String> {
        self.attached.look().map_err(|e| e.to_string())
    }

    fn account(&mut self) -> Account {
        self.attached.account()
    }

    fn faults(&self) -> Vec<String> {
        locked(&self.faults).clone()
    }

    fn end(self: Box<Self>, is_interrupted: bool) -> Result<(), String> {
        let Self { attached, faults, held, notify, .. } = *self;
        if is_interrupted {
            attached.handle().stop();
        }
        let (report, _) = attached.end().map_err(|e| e.to_string())?;
        let entered = held.map(|Held { watch, entered, .. }| {
            drop(watch);
            entered
        });
        for lost in &report.lost {
            let noun = lost.reason.noun();
            notify(&format!("{}: {} {noun} lost: {}", lost.module, lost.rows, lost.reason.explain()));
        }
        let (Some(entered), Some((_, account))) = (entered, report.accounts.first()) else { return Ok(()) };
        entered.ended(&locked(&faults), account).map_err(|e| e.to_string())
    }
}
