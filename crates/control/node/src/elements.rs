//! The modules of a graph of elements: each `Module` element has a run of its own, built as every other one.

use crate::applicant::Applicant;
use crate::build::{Built, RunRequest, Submission, build_unentered};
use crate::error::NodeError;
use crate::node::{AdmittedModule, Node};
use crate::record::Entered;
use crate::watch::Watch;
use flame_admit::Verdict;
use flame_base::lock;
use flame_compile::{Analysed, Compiler};
use flame_element::modules::{Kept, ModuleArgs, ModuleError, Modules, Notify, Prepared, Records, Running};
use flame_plan::{
    Account, Audience, Catalog, CatalogEntry, CutOff, Discipline, ModuleClass, ModulePlan, Plan,
};
use flame_quota::Meters;
use flame_record::Sink;
use flame_run::{Area, Areas, Engines};
use flame_trust::Grant;
use flame_worker::{Options, Run, RunError, Runner, SliceThread, Slices, check_forward};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::ThreadId;

/// Records that the bound of the module with a hash was violated.
pub type RecordCutOff = Box<dyn Fn(&[u8; 32], CutOff) + Send + Sync>;

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

    /// Returns the function that records that modules were cut off, so that later runs meter them.
    fn cut_offs(&self) -> RecordCutOff;

    /// Returns the node and the credential of an element, or `None` without a policy.
    ///
    /// # Errors
    ///
    /// Returns an error if the policy, the credential or the key cannot be read.
    fn applicant(&self, args: &ModuleArgs) -> Result<Option<Applicant>, String>;

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
    records: Mutex<Option<(Records, Catalog)>>,
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
        let (engines, plans, records, areas, slices) = Default::default();
        Self(Arc::new(Shared { client, engines, is_check, plans, records, areas, slices }))
    }
}

impl<C: Client> Shared<C> {
    /// Returns the engines, which a graph without modules does not need.
    fn engines(&self) -> Result<&Engines, String> {
        if let Some(engines) = self.engines.get() {
            return Ok(engines);
        }
        let engines = Engines::new().map_err(|e| e.to_string())?;
        engines.watchdog().on_cut_off(self.client.cut_offs());
        Ok(self.engines.get_or_init(|| engines))
    }

    /// Returns the name under which records of an element's module are written: the module's name, with a
    /// number if another element has it. A name in the output belongs to the tables for which that is open.
    fn name(&self, element: &str, module: &ModulePlan) -> Result<String, String> {
        let (plans, records) = (lock(&self.plans), lock(&self.records));
        let (name, tables) = (&module.name, &module.manifest.tables);
        let opened = records.as_ref().map(|(_, catalog)| &catalog.modules);
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
    fn records(&self) -> Result<Records, String> {
        // Plans are locked first, as everywhere.
        let plans = lock(&self.plans);
        let mut records = lock(&self.records);
        if let Some((records, _)) = &*records {
            return Ok(records.clone());
        }
        let modules = plans.values().cloned().collect();
        let catalog = Plan::new(modules, 1, 0).catalog();
        let opened = Records::new(self.client.sink(&catalog)?);
        Ok(records.insert((opened, catalog)).0.clone())
    }
}

impl<C: Client + 'static> Modules for Elements<C> {
    fn configure(&self) {
        let mut areas = lock(&self.0.areas);
        areas.areas.configure();
        areas.threads.clear();
    }

    fn prepare(&self, args: &ModuleArgs) -> Result<Box<dyn Prepared>, String> {
        let shared = &self.0;
        let notify = shared.client.notify();
        let submission = shared.client.submission(&args.file)?;
        let request = shared.client.request(args, submission)?;
        let applicant = if shared.is_check { None } else { shared.client.applicant(args)? };
        let compiler = shared.client.compiler();
        let cost_class = if shared.is_check { cost_class(&compiler, &request) } else { None };
        let built = build_unentered(&request, applicant.as_ref(), &compiler);
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
        let areas = lock(&shared.areas).take(module)?;
        lock(&shared.plans).insert(args.element.clone(), module.clone());
        Ok(Box::new(Ready {
            shared: shared.clone(),
            plan,
            meters,
            areas,
            runner,
            grant: admitted.pop().zip(applicant.map(|applicant| applicant.node)),
            discipline: args.discipline,
            verdict: verdicts.pop(),
            cost_class,
        }))
    }

    fn begin(&self) -> Result<(), String> {
        // A graph without modules has no records.
        if lock(&self.0.plans).is_empty() { Ok(()) } else { self.0.records().map(drop) }
    }

    fn finish(&self) -> Result<(), String> {
        *lock(&self.0.slices) = None;
        let Some((records, _)) = lock(&self.0.records).take() else { return Ok(()) };
        records.complete().map_err(|e| e.to_string())
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
    discipline: Discipline,
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

    fn continues(&self, running: &Running) -> bool {
        let Some(running) = running.kept::<Started>() else { return false };
        let has_grant = match (&self.grant, &running.held) {
            (None, None) => true,
            (Some((admitted, _)), Some(held)) => is_same(&admitted.grant, &held.grant),
            _ => false,
        };
        has_grant && is_alike(&running.plan, &self.plan) && running.discipline == self.discipline
    }

    fn start(self: Box<Self>) -> Result<Running, ModuleError> {
        let Self { shared, plan, meters, areas, runner, grant, discipline, .. } = *self;
        let program = |text: String| ModuleError::Program(text.into());
        // A process has a thread of its own that ends slices.
        let has_slices = discipline.loses_late_packets() && runner.is_none();
        let sharers = Some(lock(&shared.plans).len());
        let options = Options { areas, runner, sharers, ..Options::default() };
        let engines = shared.engines().map_err(program)?;
        if has_slices {
            let mut slices = lock(&shared.slices);
            if slices.is_none() {
                let of_all = Slices::default();
                of_all.need(true);
                let started = of_all.start(engines, || ());
                *slices = Some(started.map_err(|e| RunError::Thread(e.to_string()))?);
            }
        }
        let records = shared.records().map_err(program)?;
        let run = Run::new(&plan, &meters, engines, options)?;
        let notify = shared.client.notify();
        // Before packets flow: the policy may have changed since the module was admitted.
        let held = plan.modules.first().zip(grant).map(|(module, (admitted, node))| {
            Held::new(admitted, node, module, &run, &notify).map_err(|e| ModuleError::Program(e.into()))
        });
        let limit = plan.modules.first().map(|module| (module.id, module.terms.time_limit));
        let started = Started { plan, discipline, held: held.transpose()? };
        let running = Running::start(run, discipline, records, notify, Box::new(started))?;
        Ok(match limit {
            Some((id, limit)) => running.with_limit(id, limit),
            None => running,
        })
    }
}

/// A module that was started: its plan and its discipline, by which it is recognized, and its grant.
struct Started {
    plan: Plan,
    discipline: Discipline,
    held: Option<Held>,
}

impl Kept for Started {
    fn audience(&self) -> Audience {
        Audience::under(self.held.as_ref())
    }

    fn ended(
        self: Box<Self>,
        faults: &[String],
        account: &Account,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let Some(Held { watch, entered, .. }) = self.held else { return Ok(()) };
        drop(watch);
        Ok(entered.ended(faults, account)?)
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
    ) -> Result<Self, NodeError> {
        let entered = node.installed(&admitted, &module.name, module.seed)?;
        let (grant, warn) = (admitted.grant.clone(), notify.clone());
        let warn = move |text: &str| warn(&format!("warning: {text}"));
        Ok(Self { grant, watch: Watch::start(node, vec![admitted], run.handle(), warn), entered })
    }
}
