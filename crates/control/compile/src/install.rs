//! The installation of a module: from its file and the operator's request to a place in the plan.

use crate::{Artifact, CompileError, Compiler, ModuleInfo};
use flame_abi::manifest::{Manifest, ParameterType};
use flame_abi::{config, layout};
use flame_admit::{Admission, PacketTimeLimit, Protection, Verdict};
use flame_bounds::Costs;
use flame_plan::{Expose, Limits, ModuleClass, ModuleId, ModulePlan, OnFault, Terms, ViewSpec, longest_call};
use flame_plan::{ShownFilter, blocks_of};
use std::collections::BTreeMap;

/// The operator's request.
#[derive(Clone, Debug)]
pub struct InstallRequest {
    /// The widest view that the module may have, whatever it needs.
    pub view: ViewSpec,
    /// Values of parameters by name, as they were written.
    pub settings: BTreeMap<String, String>,
    pub on_fault: OnFault,
    /// Upper limits. A manifest may request less.
    pub limits: Limits,
    pub protection: Protection,
    /// The cost of instructions on this machine.
    pub costs: Option<Costs>,
    /// The time limit per packet for admission on live links.
    pub time_limit: Option<PacketTimeLimit>,
    pub terms: Terms,
}

/// The conditions under which a module runs.
pub struct Conditions {
    pub view: ViewSpec,
    /// Notes for people: needs of the module that are not met.
    pub notes: Vec<String>,
    pub limits: Limits,
    pub admission: Admission,
}

/// A module's place in the plan, with notes that its author may not expect.
pub struct Installed {
    pub plan: ModulePlan,
    pub verdict: Verdict,
    pub cached: bool,
    /// Notes for people: needs of the module that are not met.
    pub notes: Vec<String>,
}

/// The reason why a module cannot be installed with these parameters.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error(transparent)]
    Compile(#[from] CompileError),
    #[error("{module} has no parameter {name:?}; it has {known}")]
    UnknownParameter { module: String, name: String, known: String },
    #[error("parameter {module}.{name}: {reason}")]
    Parameter { module: String, name: String, reason: String },
    #[error("manifest of {module}: needs.expose: {reason}")]
    Expose { module: String, reason: String },
    #[error("manifest of {module}: needs.select: {reason}")]
    Select { module: String, reason: String },
    #[error("manifest of {module}: queues.{queue}.select: {reason}")]
    Queue { module: String, queue: String, reason: String },
    #[error("{module}: {reason}: ask for a grant with a larger buffer")]
    Queues { module: String, reason: String },
}

impl Compiler<'_> {
    /// Checks and compiles `wasm`, and gives it the meet of its needs and the permitted view.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Compiler::examine`] and [`Compiler::install_examined`].
    pub fn install(&self, wasm: &[u8], request: &InstallRequest) -> Result<Installed, InstallError> {
        self.install_examined(wasm, &self.examine(wasm)?, request)
    }

    /// Installs a module that was [examined](Compiler::examine).
    ///
    /// # Errors
    ///
    /// Returns an error if the manifest's needs cannot be read, or if the analysis or the compilation is
    /// refused, exceeds its limits or cannot be started.
    pub fn install_examined(
        &self,
        wasm: &[u8],
        examined: &ModuleInfo,
        request: &InstallRequest,
    ) -> Result<Installed, InstallError> {
        let manifest = examined.manifest.clone();
        let Conditions { view, notes, mut limits, admission } = conditions(&manifest, request)?;
        // Estimates assume that the working set is all the memory that the module may own.
        let memory = u64::from(limits.memory);
        let costs = request.costs.as_ref().map(|c| Costs { memory, ..c.clone() });
        let verdict = self.verdict(wasm, examined, view.expose, costs.as_ref(), &admission)?;
        (limits.rests, limits.batch, limits.short) = (verdict.rests, verdict.batch, verdict.short);
        if verdict.class == ModuleClass::Bounded && request.protection == Protection::Auto {
            limits.call_budget = limits.call_budget.min(longest_call(limits.packet_budget));
        }
        let artifact = match (request.protection, verdict.class) {
            (Protection::Unchecked, _) => Artifact::Unchecked,
            (_, ModuleClass::Bounded) => Artifact::Bounded,
            (_, ModuleClass::Metered) => Artifact::Metered,
        };
        let compiled = self.compile(wasm, examined, artifact)?;
        let Parameters { encoded: parameters, texts } = parameters(&manifest, &request.settings)?;
        let plan = ModulePlan {
            // The plan assigns the id.
            id: ModuleId::default(),
            name: manifest.name.clone(),
            hash: compiled.hash,
            limits,
            manifest,
            code: compiled.code,
            view,
            parameters,
            texts,
            on_fault: request.on_fault,
            terms: request.terms.clone(),
            class: verdict.class,
            process: None,
            tenant: None,
            // The request for a run has it.
            seed: None,
        };
        Ok(Installed { plan, verdict, cached: compiled.cached, notes })
    }
}

/// Returns the meet of the module's needs and the permitted view.
fn meet(manifest: &Manifest, allowed: &ViewSpec) -> Result<(ViewSpec, Vec<String>), InstallError> {
    let needed = match &manifest.needs.expose {
        None => Expose::Headers,
        Some(text) => {
            text.parse().map_err(|reason| InstallError::Expose { module: manifest.name.clone(), reason })?
        }
    };
    let mut notes = Vec::new();
    if needed > allowed.expose {
        // Only the views of grants have a key.
        let remedy = match &allowed.key {
            Some(_) => "its grant gives no more".to_owned(),
            None => format!("--expose {needed} gives it all"),
        };
        notes.push(format!(
            "{} asks for expose = {needed} and sees {}: its results may be reduced ({remedy})",
            manifest.name, allowed.expose
        ));
    }
    let text = manifest.needs.select.as_deref().unwrap_or_default();
    let stated = ShownFilter::parse(text)
        .map_err(|reason| InstallError::Select { module: manifest.name.clone(), reason })?;
    let mut view = ViewSpec { expose: needed.meet(allowed.expose), ..allowed.clone() };
    // A grant includes the manifest's filter already.
    view.select_shown.extend(stated.filter(|stated| !allowed.select_shown.contains(stated)));
    // Without a grant, everyone may filter on bytes that the module does not request.
    let has_filters = !view.select_shown.is_empty() || !manifest.queues.is_empty();
    if allowed.key.is_none() && has_filters {
        view.select_expose = view.select_expose.max(Some(Expose::All));
    }
    Ok((view, notes))
}

/// Returns the conditions under which a module runs if it is requested so. `flame check` states them, and
/// installations apply them.
///
/// # Errors
///
/// Returns an error if the manifest's needs cannot be read.
pub fn conditions(manifest: &Manifest, request: &InstallRequest) -> Result<Conditions, InstallError> {
    let (mut view, notes) = meet(manifest, &request.view)?;
    // The bound holds for packets up to this length, so the view cuts longer ones.
    if let Some(limit) = request.time_limit {
        view.snaplen = u32::try_from(limit.snaplen).unwrap_or(u32::MAX).max(1);
    }
    check_queues(manifest, &view, &request.terms)?;
    let limits = limits(manifest, request.limits);
    let admission = Admission {
        protection: request.protection,
        time_limit: request.time_limit,
        packet_budget: limits.packet_budget,
        call_budget: manifest.limits.call_budget.map(|units| units.min(limits.call_budget)),
        snaplen: Expose::All.longest(view.snaplen).into(),
    };
    Ok(Conditions { view, notes, limits, admission })
}

/// Checks that the filters of event queues can be compiled together with those of the view, and that there is
/// a block for each queue.
fn check_queues(manifest: &Manifest, view: &ViewSpec, terms: &Terms) -> Result<(), InstallError> {
    let Some(first) = manifest.queues.first() else { return Ok(()) };
    let wrong = |queue: &str| {
        let (module, queue) = (manifest.name.clone(), queue.to_owned());
        move |reason| InstallError::Queue { module, queue, reason }
    };
    let mut filters = view.select_shown.clone();
    for queue in &manifest.queues {
        filters.extend(ShownFilter::parse(&queue.select).map_err(wrong(&queue.name))?);
    }
    ShownFilter::affordable(&filters).map_err(wrong(&first.name))?;
    let blocks = blocks_of(&manifest.queues, terms.buffer);
    blocks.map(drop).map_err(|reason| InstallError::Queues { module: manifest.name.clone(), reason })
}

/// Returns the limits of a module: those that its manifest asks for, as far as they are allowed.
fn limits(manifest: &Manifest, allowed: Limits) -> Limits {
    let stated = &manifest.limits;
    Limits {
        memory: stated
            .memory_mib
            .map_or(allowed.memory, |mib| mib.saturating_mul(1 << 20).min(allowed.memory)),
        // A budget above the default needs both the module's request and the operator's permission.
        packet_budget: stated
            .packet_budget
            .unwrap_or(Limits::default().packet_budget)
            .min(allowed.packet_budget),
        call_budget: stated.call_budget.unwrap_or(Limits::default().call_budget).min(allowed.call_budget),
        ..allowed
    }
}

/// Parameters in the layout of `flame_abi::config`, and the large texts among them.
#[derive(Debug, Default)]
struct Parameters {
    encoded: Vec<u8>,
    texts: Vec<u8>,
}

/// The size from which on a text that may be large lies outside of the control area.
const LARGE: usize = 64 << 10;

/// Returns all parameters of the manifest, set or default.
fn parameters(manifest: &Manifest, settings: &BTreeMap<String, String>) -> Result<Parameters, InstallError> {
    let module = || manifest.name.clone();
    if let Some(name) = settings.keys().find(|name| !manifest.parameters.contains_key(*name)) {
        let known: Vec<_> = manifest.parameters.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(InstallError::UnknownParameter { module: module(), name: name.clone(), known });
    }
    let Parameters { mut encoded, mut texts } = Parameters::default();
    for (name, parameter) in &manifest.parameters {
        let wrong = |reason| InstallError::Parameter { module: module(), name: name.clone(), reason };
        let value = match settings.get(name) {
            Some(text) => parameter.parse(text).map_err(wrong)?,
            None => parameter.default.clone(),
        };
        let mut bytes = parameter.encode(&value).map_err(wrong)?;
        let is_large =
            parameter.kind == ParameterType::Text && parameter.max.is_some() && bytes.len() > LARGE;
        if is_large {
            let address = layout::TEXTS + texts.len() as u32;
            if texts.len() + bytes.len() > layout::MAX_TEXTS as usize {
                return Err(wrong(format!("all texts together are at most {} bytes", layout::MAX_TEXTS)));
            }
            texts.extend(&bytes);
            bytes = [address.to_le_bytes(), (bytes.len() as u32).to_le_bytes()].concat();
        }
        let kind = if is_large { config::ELSEWHERE } else { config::HERE };
        encoded.extend((name.len() as u16).to_le_bytes());
        encoded.extend(kind.to_le_bytes());
        encoded.extend((bytes.len() as u32).to_le_bytes());
        encoded.extend(name.as_bytes());
        encoded.extend(bytes);
    }
    Ok(Parameters { encoded, texts })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(needs: &str) -> Manifest {
        let text = format!(
            "abi = 1\nname = \"m\"\nversion = \"1\"\ndescription = \"d\"\n[needs]\n{needs}\n\
             [parameters.port]\ntype = \"integer\"\ndefault = 80\nmax = 65535\ndescription = \"d\""
        );
        Manifest::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_module_never_sees_more_than_it_needs_nor_than_it_may() {
        let tcp: Vec<_> = flame_plan::TrustedFilter::parse("tcp").unwrap().into_iter().collect();
        let allowed = ViewSpec { select: tcp.clone(), ..ViewSpec::default() };
        // In any spelling, the manifest's filter is never evaluated on the true packet.
        for text in ["port 80", " port 80", "port  80\\t"] {
            let m = manifest(&format!("expose = \"none\"\nselect = \"{text}\""));
            let (view, notes) = meet(&m, &allowed).unwrap();
            assert_eq!((view.expose, &view.select, notes.len()), (Expose::None, &tcp, 0));
            assert_eq!(view.select_shown, [ShownFilter::parse("port 80").unwrap().unwrap()]);
            // A grant includes the filter already, in its one form.
            let granted = ViewSpec { key: Some(flame_plan::ViewKey([1; 32])), ..view.clone() };
            let (view, _) = meet(&m, &granted).unwrap();
            assert_eq!((view.select.len(), view.select_shown.len()), (1, 1), "{text:?}");
        }
        assert!(meet(&manifest("select = \"host localhost\""), &allowed).is_err());
        let (view, notes) = meet(&manifest("expose = \"all\""), &allowed).unwrap();
        assert_eq!((view.expose, notes.len()), (Expose::Headers, 1));
        assert!(meet(&manifest("expose = \"much\""), &allowed).is_err());
    }

    #[test]
    fn parameters_are_checked_and_complete() {
        let m = manifest("");
        let set = |name: &str, value: &str| parameters(&m, &[(name.into(), value.into())].into());
        let port = |bytes: &[u8]| flame_abi::config::find(bytes, "port").map(<[u8]>::to_vec);
        assert_eq!(
            port(&parameters(&m, &BTreeMap::new()).unwrap().encoded),
            Some(80i64.to_le_bytes().to_vec())
        );
        assert_eq!(port(&set("port", "443").unwrap().encoded), Some(443i64.to_le_bytes().to_vec()));
        assert!(set("port", "65536").unwrap_err().to_string().contains("65535"));
        assert!(set("prot", "1").unwrap_err().to_string().contains("it has port"));
    }

    #[test]
    fn large_texts_lie_outside_of_the_control_area() {
        let text = "abi = 1\nname = \"m\"\nversion = \"1\"\ndescription = \"d\"\n\
                    [parameters.a]\ntype = \"text\"\ndefault = \"\"\nmax = 3_000_000\ndescription = \"d\"\n\
                    [parameters.b]\ntype = \"text\"\ndefault = \"\"\nmax = 100_000\ndescription = \"d\"\n\
                    [parameters.c]\ntype = \"text\"\ndefault = \"\"\ndescription = \"d\"\n";
        let m = Manifest::parse(text.as_bytes()).unwrap();
        let set = |a: usize, b: usize, c: usize| {
            let of = |name: &str, n: usize| (name.to_owned(), name.repeat(n));
            parameters(&m, &[of("a", a), of("b", b), of("c", c)].into())
        };
        let found = set(3_000_000, 70_000, 70_000).unwrap();
        let at = |name| config::find_text(&found.encoded, name).unwrap();
        assert_eq!(at("a"), config::Text::Elsewhere { address: layout::TEXTS, len: 3_000_000 });
        let address = layout::TEXTS + 3_000_000;
        assert_eq!(at("b"), config::Text::Elsewhere { address, len: 70_000 });
        assert_eq!(at("c"), config::Text::Here("c".repeat(70_000).as_bytes()));
        assert_eq!(found.texts, ["a".repeat(3_000_000), "b".repeat(70_000)].concat().as_bytes());
        assert!(set(10, 0, 0).unwrap().texts.is_empty());
        for (a, b, c) in [(3_000_001, 0, 0), (0, 100_001, 0), (0, 0, 2_000_000)] {
            assert!(set(a, b, c).unwrap_err().to_string().contains("at most"), "{a} {b} {c}");
        }
    }
}
