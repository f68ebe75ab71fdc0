//! The preparation of a stored module for a worker: examination, grant, compilation.

use crate::engine::{By, Engine};
use crate::error::{of_node, of_source};
use crate::granted::Granted;
use crate::kept::{Beginning, Kept};
use crate::reach::Reach;
use crate::reservation::{self, check_grant};
use crate::source::{SourceRun, Starting};
use crate::store::{Owner, Proof, Stored};
use flame_abi::manifest::Manifest;
use flame_admit::{Protection, Why};
use flame_api::{Code, Problem};
use flame_compile::{Cache, Compiler, ModuleInfo, Payment, Worker};
use flame_node::{
    AdmittedModule, Applicant, Built, Node, NodeError, Note, Possession, Presented, RunRequest, Submission,
    build_unentered,
};
use flame_plan::{CutOff, Discipline, Limits, ViewSpec, longest_call};
use flame_quota::Usage;
use flame_trust::{
    Answer, Challenge, Credential, Field, Layer, ModuleRequest, Origin, Place, PublicKey, time,
};
use flame_worker::Module;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Maximum number of restarts of a module on each worker.
const RESTARTS: u32 = 16;
/// The work that one packet may cost, if the grant allows as much.
const PACKET_BUDGET: u64 = 100_000_000;

/// A module to prepare.
pub(crate) struct PrepareRequest<'a> {
    pub stored: &'a Stored,
    pub wasm: &'a [u8],
    pub source: &'a SourceRun,
    /// The counters of the module's use.
    pub usage: &'a Arc<Usage>,
    /// The one who prepares it. Its owner pays for what a request causes, and for nothing else.
    pub by: By,
}

/// A module that is ready to run.
pub(crate) struct Prepared {
    pub module: Module,
    pub granted: Option<Granted>,
    /// The rights under which everything is made that comes of it, or `None` of the operator's own.
    pub reach: Option<Arc<Reach>>,
    pub notes: Vec<String>,
    /// The bytes of its file and of its code.
    pub bytes: u64,
    /// Its state, once it is decided how it begins.
    pub kept: Option<Kept>,
    /// The start of its process, beside what remains to be done before the module can run there.
    pub starting: Option<Starting>,
}

impl Prepared {
    /// Lets the instances of the module begin with its state.
    pub(crate) fn begin(&mut self, beginning: &Beginning) {
        self.kept = beginning.kept.clone();
        self.module.keep = self.kept.as_ref().map(|kept| kept.keep.clone());
    }
}

impl Engine {
    /// Returns a compiler for the modules of an owner, whose work is done in confined child processes.
    fn compiler(&self, owner: &Owner, by: By) -> Result<Compiler<'static>, Problem> {
        let cache = Cache::open(&self.cache).map_err(|e| {
            let cause = "the node's cache cannot be used";
            Problem::new(Code::Storage, cause, "the operator has to make its storage writable")
                .with_detail(e.to_string())
        })?;
        let worker = Worker::this_program().stopped_by(self.stopping.clone());
        let payment = match by {
            By::Request => Payment::Now,
            By::Node => Payment::Free,
        };
        Ok(Compiler::new(worker, Some(owner.part_of(&cache))).paid(payment))
    }

    /// Returns a module as it is examined. `applicant` is for its credential.
    pub(crate) fn examine(
        &self,
        stored: &Stored,
        wasm: &[u8],
        applicant: Option<&Applicant>,
        by: By,
    ) -> Result<ModuleInfo, Problem> {
        let compiler = self.compiler(&stored.owner, by)?.keeping_admitted();
        let examined = match applicant {
            Some(applicant) => {
                applicant.compiler(&compiler, &stored.hash).and_then(|paid| Ok(paid.examine(wasm)?))
            }
            None => compiler.examine(wasm).map_err(NodeError::from),
        };
        examined.map_err(|e| of_node(&e))
    }

    /// Returns what a stored module asks for, with its narrowing.
    pub(crate) fn request_of(&self, stored: &Stored) -> Option<ModuleRequest> {
        let wasm = self.store.code(&stored.hash).ok()?;
        let info = self.compiler(&stored.owner, By::Node).ok()?.examine(&wasm).ok()?;
        let signers = Self::signers(stored).ok()?;
        let mut request = ModuleRequest::new(&info.manifest, info.hash, info.messages, signers).ok()?;
        request.fields.extend(Self::narrower(stored).ok()?);
        Some(request)
    }

    /// Returns the node and the credential of a module, or `None` for the operator's own.
    pub(crate) fn applicant(&self, stored: &Stored, place: &Place) -> Result<Option<Applicant>, Problem> {
        if stored.owner.is_operator() {
            return Ok(None);
        }
        let Some(proof) = &stored.proof else {
            return Err(Problem::new(
                Code::Forbidden,
                "the module has no credential",
                "install it again with one",
            ));
        };
        let no_policy = || {
            Problem::new(
                Code::Forbidden,
                "the node has no policy",
                "the operator has to give it one (policy in [node])",
            )
        };
        self.check_owner(stored)?;
        let (credential, possession) = proof.opened()?;
        let options = format!("node, module {:?} on source {:?}", stored.name, stored.source);
        let presented = Presented { credential: Some(credential), possession, place: place.clone(), options };
        let node = self.present_node().ok_or_else(no_policy)?;
        Ok(Some(Applicant { node, presented: Arc::new(presented) }))
    }

    /// Checks that the credential of a stored module is its owner's. Otherwise a damaged row would show one
    /// principal what another one's credential gives.
    ///
    /// # Errors
    ///
    /// Returns an error if it names another principal.
    pub(crate) fn check_owner(&self, stored: &Stored) -> Result<(), Problem> {
        let (Some(proof), Some(policy)) = (&stored.proof, self.policy()) else { return Ok(()) };
        let (credential, _) = proof.opened()?;
        // An invalid credential is refused later, with the reason.
        let Ok(named) = policy.claim(&credential, time::now()) else { return Ok(()) };
        match named.root.to_string() == stored.owner.root && named.principal == stored.owner.principal {
            true => Ok(()),
            false => Err(Problem::new(
                Code::Forbidden,
                "the stored credential is another principal's",
                "remove the module, and install it again",
            )),
        }
    }

    fn narrower(stored: &Stored) -> Result<Vec<Layer>, Problem> {
        let layer = |n: &flame_api::Narrowing| {
            let field = Field::parse(&n.field).ok_or_else(|| format!("no field is called {:?}", n.field))?;
            Layer::new(Origin::Command, field, n.value.clone())
        };
        let layers: Result<Vec<_>, String> = stored.narrow.iter().map(layer).collect();
        let invalid = |reason: String| {
            Problem::new(
                Code::Invalid,
                format!("narrow: {reason}"),
                "`flame grant narrow --help` lists the fields",
            )
        };
        let layers = layers.map_err(invalid)?;
        if stored.owner.is_operator() && layers.iter().any(|layer| layer.field != Field::Priority) {
            let reason = "the operator's modules have no grant that could be narrowed, only a priority";
            return Err(invalid(reason.to_owned()));
        }
        layers.iter().try_for_each(flame_node::check_viewable).map_err(|e| invalid(e.to_string()))?;
        Ok(layers)
    }

    fn signers(stored: &Stored) -> Result<Vec<PublicKey>, Problem> {
        let path = Path::new("signatures");
        flame_trust::read_signers(stored.signatures.as_bytes(), path, &stored.hash).map_err(|e| {
            Problem::new(
                Code::Refused,
                e.to_string(),
                "sign the module again (flame key sign), or send no signatures",
            )
        })
    }

    /// Examines, admits and compiles a module, and records its install in the audit log.
    pub(crate) fn prepare(&self, request: &PrepareRequest<'_>) -> Result<Prepared, Problem> {
        let PrepareRequest { stored, wasm, source, usage, by } = request;
        let applicant = self.applicant(stored, &source.place)?;
        // Before anything is recorded of it.
        check_runs(&self.examine(stored, wasm, applicant.as_ref(), *by)?.manifest, &stored.name)?;
        let (limits, narrower) = (self.config().limits, Self::narrower(stored)?);
        let priority = narrower.iter().map(|layer| layer.rights.priority).min();
        let request = RunRequest {
            submissions: vec![Submission {
                name: stored.name.clone(),
                file: stored.name.clone(),
                wasm: wasm.to_vec(),
                signers: Self::signers(stored)?,
            }],
            workers: source.config.workers.into(),
            interval_ns: source.config.interval_ns,
            discipline: Discipline::Link,
            links: source.links(),
            view: ViewSpec::default(),
            narrower,
            settings: match stored.settings.is_empty() {
                true => BTreeMap::new(),
                false => BTreeMap::from([(stored.name.clone(), stored.settings.as_ref().clone())]),
            },
            restarts: RESTARTS,
            limits: Limits {
                memory: limits.memory,
                packet_budget: PACKET_BUDGET,
                call_budget: longest_call(PACKET_BUDGET),
                ..Limits::default()
            },
            protection: Protection::Auto,
            costs: None,
            time_limit: None,
            seed: None,
        };
        let compiler = self.compiler(&stored.owner, *by)?.keeping_admitted();
        let built = build_unentered(&request, applicant.as_ref(), &compiler).map_err(|e| of_node(&e));
        drop(compiler);
        let Built { plan, meters, admitted, notes, .. } = built?;
        let broken = || Problem::new(Code::Internal, "a plan without a module", "report this");
        let mut plan = plan.modules.into_iter().next().ok_or_else(broken)?;
        plan.process = self.process_for(&stored.owner, &stored.reserved);
        plan.tenant = (!stored.owner.is_operator()).then(|| stored.owner.tenant());
        // Only now: nothing is started for a module that may not run.
        let starting = plan.process.clone().and_then(|name| source.start_process(name).ok());
        plan.id = source.number();
        let mut granted = None;
        if let (Some(Applicant { node, .. }), Some(admitted)) = (applicant, admitted.into_iter().next()) {
            let watched = self.watch((&source.name, plan.id), Arc::new(admitted))?;
            let entered = node.installed(&watched.decided(), &plan.name, plan.seed);
            granted = Some(Granted { watched, entered: entered.map_err(|e| of_node(&e))? });
        }
        // Unique among all instances of the source: rows and accounts are assigned by it.
        plan.name = format!("{}#{}", stored.name, plan.id.0);
        // Under a grant it is one of the grant's layers already.
        plan.terms.priority = priority.map_or(plan.terms.priority, |own| own.min(plan.terms.priority));
        let meters = meters.into_iter().next().unwrap_or_default();
        check_grant(&stored.reserved, &meters)?;
        let buffer = reservation::buffer(&stored.reserved, source);
        plan.terms.buffer = match (plan.terms.buffer, buffer) {
            (0, buffer) | (buffer, 0) => buffer,
            (granted, reserved) => granted.min(reserved),
        };
        plan.queue_blocks().map_err(|reason| {
            Problem::new(
                Code::Refused,
                reason,
                "reserve more blocks, or ask for a grant with a larger buffer",
            )
        })?;
        let meters = meters.with(reservation::meter(&stored.reserved), Some((*usage).clone()));
        let time = self.time_of(&plan, &stored.reserved);
        let module = Module { plan, meters, keep: None, areas: Vec::new(), time };
        let sends = !module.plan.manifest.channels.is_empty();
        let of_link = (sends && source.sends_without_time()).then(|| UNTIMED.to_owned());
        let notes = notes.iter().map(|note| shown(note, stored.owner.is_operator())).chain(of_link).collect();
        let reach = granted.as_ref().map(|granted| Arc::new(Reach::of(&granted.admitted(), &source.place)));
        let bytes = (wasm.len() + module.plan.code.len()) as u64 + stored.row_bytes();
        Ok(Prepared { module, granted, reach, notes, bytes, kept: None, starting })
    }

    /// Admits a module under its credential, without compiling it.
    pub(crate) fn admitted(&self, stored: &Stored) -> Result<(Node, AdmittedModule), Problem> {
        let source = self.source(Some(&stored.source))?;
        let operator = || {
            Problem::new(Code::Invalid, "the operator's modules have no credential", "leave them as they are")
        };
        let applicant = self.applicant(stored, &source.place)?.ok_or_else(operator)?;
        let wasm = self.stored(self.store.code(&stored.hash))?;
        let info = self.examine(stored, &wasm, Some(&applicant), By::Request)?;
        let admitted = applicant.admit(&info, &Self::signers(stored)?, &Self::narrower(stored)?);
        let admitted = admitted.map_err(|e| of_node(&e))?;
        Ok((applicant.node, admitted))
    }

    /// Returns the end of a grant in seconds since 1970, if it ends.
    pub(crate) fn expiry(admitted: &AdmittedModule) -> Option<u64> {
        Some(admitted.grant.rights.expires).filter(|end| *end != u64::MAX)
    }
}

/// Checks that a node can run a module of this manifest and name.
///
/// # Errors
///
/// Returns the reason why it cannot for any principal.
pub fn check_runs(manifest: &Manifest, name: &str) -> Result<(), Problem> {
    if manifest.packets {
        return Err(Problem::new(
            Code::Refused,
            "the module writes packets, which a node does not keep",
            "run it with flame run -w FILE",
        ));
    }
    flame_worker::check_joins(manifest, name).map_err(|e| of_source(&e.into()))
}

/// The note of a module that sends on a link to whose thread the kernel gives no time.
const UNTIMED: &str = "the rates of its channels hold only while a processor is free: the kernel gives the \
    link no processor time of its own, for a reason that the node states when it starts";

/// Returns a note as the owner of a module receives it. Files of the node are for the operator.
fn shown(note: &Note, operator: bool) -> String {
    match note {
        Note::Metered { module, why: Why::CutOff(CutOff::Bound, _) } if !operator => {
            format!("{module} is metered: a bound of it was violated on this node")
        }
        Note::Metered { module, why: Why::CutOff(CutOff::Time, _) } if !operator => {
            format!("{module} is metered: a call of it took too long on this node")
        }
        note => note.to_string(),
    }
}

impl Proof {
    /// Returns the credential and its holder's answer.
    fn opened(&self) -> Result<(Credential, Possession), Problem> {
        let invalid = |reason: String| Problem::new(Code::Forbidden, reason, "install the module again");
        let credential = Credential::parse(&self.credential).map_err(|e| invalid(e.to_string()))?;
        let key = PublicKey::parse(&self.key).map_err(|e| invalid(e.to_string()))?;
        let answer = Answer { key, signature: self.signature };
        Ok((credential, Possession::Answered(Challenge::from_bytes(self.challenge), answer)))
    }
}
