use crate::applicant::Applicant;
use crate::error::NodeError;
use crate::node::AdmittedModule;
use crate::record::Entered;
use flame_abi::LinkType;
use flame_admit::{PacketTimeLimit, Protection, Verdict, Why};
use flame_bounds::Costs;
use flame_compile::{Compiler, InstallRequest};
use flame_plan::{Discipline, Limits, ModuleClass, ModulePlan, OnFault, Plan, Terms, TimeLimit, ViewSpec};
use flame_quota::Meters;
use flame_trust::{Layer, PublicKey};
use flame_view::{Misfits, ViewError};
use std::collections::BTreeMap;

/// A module that is submitted to run.
pub struct Submission {
    /// The name that settings use and that errors begin with.
    pub name: String,
    pub file: String,
    pub wasm: Vec<u8>,
    pub signers: Vec<PublicKey>,
}

/// The request for a run.
pub struct RunRequest {
    pub submissions: Vec<Submission>,
    pub workers: usize,
    /// The packet time between reports in nanoseconds, or 0 for none.
    pub interval_ns: u64,
    /// The discipline of the run as far as it is known before its source is opened: whether late packets are
    /// lost.
    pub discipline: Discipline,
    /// The link types of packets, as far as they are known before these come.
    pub links: Vec<LinkType>,
    /// The view of the operator's own modules. Under a grant, the grant's view applies.
    pub view: ViewSpec,
    /// Layers that narrow grants further.
    pub narrower: Vec<Layer>,
    /// Values of parameters, by module and parameter.
    pub settings: BTreeMap<String, BTreeMap<String, String>>,
    /// Maximum number of restarts of each module on each worker.
    pub restarts: u32,
    pub limits: Limits,
    pub protection: Protection,
    /// Costs of instructions on this machine, if a time limit requires estimates.
    pub costs: Option<Costs>,
    /// The time limit for admission, and the one for a running module.
    pub time_limit: Option<(PacketTimeLimit, TimeLimit)>,
    /// The seed of random numbers for modules that use them, or `None` for a new one.
    pub seed: Option<u64>,
}

/// Maximum number of restarts under a grant: each fault reveals something.
const GRANTED_RESTARTS: u32 = 16;

/// A run that is ready to start.
pub struct Built {
    pub plan: Plan,
    /// The meters of its modules, in the plan's order.
    pub meters: Vec<Meters>,
    /// The modules that run under a grant.
    pub admitted: Vec<AdmittedModule>,
    /// Their entries in the audit log.
    pub entered: Vec<Entered>,
    pub notes: Vec<Note>,
    /// The verdicts on their bounds, in the plan's order.
    pub verdicts: Vec<Verdict>,
}

/// Something that the operator should know, and that stops nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// The module's view is narrower than its needs.
    Reduced(String),
    /// A filter that others stated lets no packet of a link type of the source pass.
    Misfit { module: String, fault: String },
    /// The module logs, and its grant does not let that out.
    Silenced(String),
    /// The module is metered, although by a time limit or an earlier run it should not have to be.
    Metered { module: String, why: Why },
    /// The module uses random numbers that follow from this seed.
    Seed { module: String, seed: u64 },
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Reduced(text) => f.write_str(text),
            Self::Misfit { module, fault } => write!(
                f,
                "{module} is shown no packet of this link type: {fault} (a credential without this word, or packets \
                 of another link type)"
            ),
            Self::Silenced(module) => write!(
                f,
                "{module} logs, and its grant does not let that out: its texts are dropped (calls = \"…, log\" lets them)"
            ),
            Self::Metered { module, why } => write!(f, "{module} is metered: {why}"),
            Self::Seed { module, seed } => {
                write!(
                    f,
                    "{module} has random numbers from seed {seed} (flame run --seed {seed} repeats them)"
                )
            }
        }
    }
}

/// Examines, admits and compiles the modules, records them in the audit log, and creates their plan. Under a
/// node's policy each module runs with its grant, and its principal pays for the work; otherwise it runs with
/// the operator's rights.
///
/// # Errors
///
/// Returns the error of the first module that cannot be run, with its file, or an error for settings of a
/// module that is not submitted.
pub fn build(
    request: &RunRequest,
    applicant: Option<&Applicant>,
    compiler: &Compiler<'_>,
) -> Result<Built, NodeError> {
    build_some(request, applicant, compiler, Building { enters: true, ..Building::default() })
}

/// Does what [`build()`] does, but leaves it to the caller to record modules in the audit log, when they
/// start.
///
/// # Errors
///
/// Returns the errors of [`build()`].
pub fn build_unentered(
    request: &RunRequest,
    applicant: Option<&Applicant>,
    compiler: &Compiler<'_>,
) -> Result<Built, NodeError> {
    build_some(request, applicant, compiler, Building::default())
}

fn build_some(
    request: &RunRequest,
    applicant: Option<&Applicant>,
    compiler: &Compiler<'_>,
    mut built: Building,
) -> Result<Built, NodeError> {
    let is_submitted = |name: &str| request.submissions.iter().any(|s| s.name == name);
    if let Some(unused) = request.settings.keys().find(|name| !is_submitted(name)) {
        return Err(NodeError::UnusedSettings(unused.clone()));
    }
    for submission in &request.submissions {
        built.install(request, submission, applicant, compiler).map_err(|e| e.of(&submission.file))?;
    }
    Ok(built.finish(request))
}

#[derive(Default)]
struct Building {
    /// Whether modules are recorded in the audit log here.
    enters: bool,
    plans: Vec<ModulePlan>,
    meters: Vec<Meters>,
    /// Admitted modules with their indices in `plans`.
    admitted: Vec<(usize, AdmittedModule, Option<Entered>)>,
    notes: Vec<Note>,
    verdicts: Vec<Verdict>,
    /// The seed of all modules, once one needs it.
    seed: Option<u64>,
}

impl Building {
    /// Returns the seed of this run, which is made with the first module that needs it.
    fn new_seed(&mut self) -> Result<u64, NodeError> {
        if let Some(seed) = self.seed {
            return Ok(seed);
        }
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(|e| NodeError::Random(e.to_string()))?;
        Ok(*self.seed.insert(u64::from_le_bytes(bytes)))
    }

    /// Checks that filters apply to the link types of a source. Nothing else would show that they let no
    /// packet pass.
    fn check_links(&mut self, name: &str, view: &ViewSpec, links: &[LinkType]) -> Result<(), NodeError> {
        for link in links {
            let misfits = Misfits::of(view, *link);
            if let Some(fault) = misfits.stated.into_iter().next() {
                return Err(NodeError::Misfit(fault));
            }
            let note = |fault: ViewError| Note::Misfit { module: name.to_owned(), fault: fault.to_string() };
            self.notes.extend(misfits.inherited.into_iter().map(note));
        }
        Ok(())
    }

    fn install(
        &mut self,
        request: &RunRequest,
        submission: &Submission,
        applicant: Option<&Applicant>,
        compiler: &Compiler<'_>,
    ) -> Result<(), NodeError> {
        let Submission { name, wasm, signers, .. } = submission;
        let hash = flame_compile::hash_of(wasm);
        // Who pays is decided before the module is read.
        let of_principal = applicant.map(|applicant| {
            let paid = applicant.compiler(compiler, &hash).map_err(|e| applicant.refused(&hash, e))?;
            Ok::<_, NodeError>(applicant.noting(paid))
        });
        let of_principal = of_principal.transpose()?;
        let compiler = of_principal.as_ref().unwrap_or(compiler);
        let info = compiler.examine(wasm)?;
        let admit = |applicant: &Applicant| applicant.admit(&info, signers, &request.narrower);
        let admitted = applicant.map(admit).transpose()?;
        if let Some(admitted) = &admitted {
            self.check_links(name, &admitted.grant.view(), &request.links)?;
        }
        // Only now: nothing is kept of a module that may not run.
        compiler.keep_examined()?;
        let admitted = applicant.map(|applicant| &applicant.node).zip(admitted);
        let (terms, meters) = match &admitted {
            Some((node, a)) => (a.grant.terms(), node.meters(a, request.discipline.loses_late_packets())?),
            None => (Terms::default(), Meters::default()),
        };
        let restarts =
            if admitted.is_some() { request.restarts.min(GRANTED_RESTARTS) } else { request.restarts };
        let grant = admitted.as_ref().map(|(_, a)| &a.grant);
        let install = InstallRequest {
            view: grant.map_or_else(
                || request.view.clone(),
                // No packet is longer for any observer.
                |grant| ViewSpec { snaplen: request.view.snaplen, ..grant.view() },
            ),
            settings: request.settings.get(name).cloned().unwrap_or_default(),
            on_fault: if restarts == 0 { OnFault::Stop } else { OnFault::Restart(restarts) },
            limits: grant.map_or(request.limits, |grant| grant.limits(request.limits)),
            terms: Terms { time_limit: request.time_limit.map(|(_, limit)| limit), ..terms },
            protection: request.protection,
            costs: request.costs.clone(),
            time_limit: request.time_limit.map(|(limit, _)| limit),
        };
        let mut installed = compiler.install_examined(wasm, &info, &install)?;
        if info.manifest.needs.random {
            let seed = request.seed.map_or_else(|| self.new_seed(), Ok)?;
            installed.plan.seed = Some(seed);
            self.notes.push(Note::Seed { module: name.clone(), seed });
        }
        if let Some((node, admitted)) = admitted {
            let enter = || node.installed(&admitted, &installed.plan.name, installed.plan.seed);
            let entered = self.enters.then(enter).transpose()?;
            self.admitted.push((self.plans.len(), admitted, entered));
        }
        self.notes.extend(installed.notes.into_iter().map(Note::Reduced));
        if info.manifest.log && installed.plan.terms.release.logs == 0 {
            self.notes.push(Note::Silenced(name.clone()));
        }
        let is_unexpected = request.time_limit.is_some() || compiler.cut_off(&info.hash).is_some();
        if is_unexpected && installed.plan.class == ModuleClass::Metered {
            self.notes.push(Note::Metered { module: name.clone(), why: installed.verdict.why.clone() });
        }
        self.verdicts.push(installed.verdict);
        self.plans.push(installed.plan);
        self.meters.push(meters);
        Ok(())
    }

    fn finish(mut self, request: &RunRequest) -> Built {
        number_duplicates(&mut self.plans);
        let plan = Plan::new(self.plans, request.workers, request.interval_ns);
        let (mut admitted, mut entered) = (Vec::new(), Vec::new());
        for (at, mut module, mut entry) in self.admitted {
            module.id = plan.modules[at].id;
            if let Some(entry) = &mut entry {
                entry.name.clone_from(&plan.modules[at].name);
            }
            admitted.push(module);
            entered.extend(entry);
        }
        Built { plan, meters: self.meters, admitted, entered, notes: self.notes, verdicts: self.verdicts }
    }
}

/// Renames modules of one name to `name` and `name#2`, so that accounts and records distinguish them.
fn number_duplicates(modules: &mut [ModulePlan]) {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for module in modules {
        let times = seen.entry(module.name.clone()).or_default();
        *times += 1;
        if *times > 1 {
            module.name = format!("{}#{times}", module.name);
        }
    }
}
