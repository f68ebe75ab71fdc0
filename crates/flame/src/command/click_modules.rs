//! The parts that the command provides to `Module` elements of a graph: files, policy, compiler and the
//! output of records.

use crate::command::run::{read_interval, submission};
use crate::console::complain;
use crate::error::Error;
use crate::settings::arguments;
use crate::trust_args::{TrustArgs, presented};
use crate::{cache, limits};
use flame_abi::manifest::duration_ns;
use flame_admit::{PacketTimeLimit, Protection};
use flame_base::lock;
use flame_compile::Compiler;
use flame_element::driver::{Invocation, What};
use flame_element::modules::{ModuleArgs, Modules, Notify};
use flame_node::{Applicant, Client, Elements, Node, RecordCutOff, RunRequest, Submission};
use flame_plan::{Catalog, Expose, TimeLimit, Transforms, TrustedFilter, ViewSpec};
use flame_record::{Format, Options, Sink};
use flame_trust::{Field, Layer, Origin, Place};
use flame_worker::Runner;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// The batches of a module per 1000 that may take longer than its limit.
const MAX_OVERRUNS: u32 = 10;

struct ClickModules {
    policy: Option<PathBuf>,
    format: Format,
    records: Option<PathBuf>,
    interrupt: Arc<AtomicBool>,
    is_check: bool,
    is_metered: bool,
    /// The program that runs modules in processes of their own, if they do.
    runner: Option<Runner>,
    /// The node, whose meters all elements share.
    node: Mutex<Option<Node>>,
}

/// Returns the modules of the graph that `invocation` runs.
pub fn modules(invocation: &Invocation, interrupt: &Arc<AtomicBool>) -> Result<Arc<dyn Modules>, Error> {
    let format = invocation.format.as_deref().unwrap_or("table");
    let client = ClickModules {
        policy: invocation.policy.as_ref().map(PathBuf::from),
        format: Format::from_str(format).map_err(|e| format!("--format: {e}"))?,
        records: invocation.records.as_ref().map(PathBuf::from),
        interrupt: interrupt.clone(),
        is_check: invocation.what == What::Check,
        is_metered: invocation.metered,
        runner: invocation.isolate.then(Runner::open).transpose()?,
        node: Mutex::default(),
    };
    Ok(Arc::new(Elements::new(client, invocation.what == What::Check)))
}

impl ClickModules {
    fn view(args: &ModuleArgs) -> Result<ViewSpec, Error> {
        let mut transforms = Transforms::new();
        for text in &args.transform {
            transforms.extend(flame_transform::parse(text).map_err(|e| format!("TRANSFORM {e}"))?);
        }
        let expose = args.expose.as_deref().map(Expose::from_str).transpose();
        let expose = expose.map_err(|e| format!("EXPOSE: {e}"))?.unwrap_or_default();
        let mut select = Vec::new();
        for text in &args.select {
            select.extend(TrustedFilter::parse(text).map_err(|e| format!("SELECT {text:?}: {e}"))?);
        }
        Ok(ViewSpec { select, expose, transforms, ..ViewSpec::default() })
    }

    /// Returns the layers by which the element narrows a grant.
    fn narrower(args: &ModuleArgs) -> Result<Vec<Layer>, Error> {
        let of = |field, texts: &[String]| -> Vec<(Field, String)> {
            texts.iter().map(|text| (field, text.clone())).collect()
        };
        let stated = [
            of(Field::Select, &args.select),
            of(Field::Expose, args.expose.as_slice()),
            of(Field::Transform, &args.transform),
        ];
        let layer = |(field, value)| Layer::new(Origin::Command, field, value);
        Ok(stated.concat().into_iter().map(layer).collect::<Result<_, _>>()?)
    }

    fn request_of(&self, args: &ModuleArgs, submission: Submission) -> Result<RunRequest, Error> {
        Ok(RunRequest {
            settings: [(submission.name.clone(), arguments(&args.settings)?)].into(),
            submissions: vec![submission],
            workers: 1,
            interval_ns: args.interval.as_deref().map_or(Ok(0), |text| read_interval("INTERVAL", text))?,
            discipline: args.discipline,
            // Packets of a graph come from its elements, and each has a link type of its own.
            links: Vec::new(),
            view: ViewSpec { snaplen: args.max_length.unwrap_or(0), ..Self::view(args)? },
            narrower: Self::narrower(args)?,
            restarts: args.restarts,
            limits: limits::with_budget(args.packet_budget.unwrap_or(limits::PACKET_BUDGET)),
            protection: if self.is_metered { Protection::Metered } else { Protection::Auto },
            // A check reports what modules cost, and a limit is compared with it.
            costs: match self.is_check || args.limit.is_some() {
                true => Some(crate::costs::load_or_calibrate(&flame_compile::Engines::new()?, false)?),
                false => None,
            },
            time_limit: args.limit.as_deref().map(|limit| time_limit(limit, args)).transpose()?,
            seed: None,
        })
    }

    fn applicant_of(&self, args: &ModuleArgs) -> Result<Option<Applicant>, Error> {
        let mut node = lock(&self.node);
        if node.is_none() {
            let trust = TrustArgs { policy: self.policy.clone(), credential: None, identity: None };
            *node = trust.open(&Place::graph())?.map(|applicant| applicant.node);
        }
        let Some(node) = node.clone() else {
            return match &args.credential {
                Some(_) => Err("CREDENTIAL is for a node with a policy: flame click --policy FILE".into()),
                None => Ok(None),
            };
        };
        let [credential, key] = [&args.credential, &args.identity].map(|file| file.as_deref().map(Path::new));
        Ok(Some(Applicant { node, presented: presented(credential, key, &Place::graph())? }))
    }
}

/// Returns the limits for the estimate of a module and for its batches. As many packets as can wait for it
/// may take longer (Patel, section 3.5).
fn time_limit(text: &str, args: &ModuleArgs) -> Result<(PacketTimeLimit, TimeLimit), Error> {
    let ns = duration_ns(text).map_err(|reason| format!("LIMIT: {reason}"))?;
    let packet_ns = u64::try_from(ns).ok().filter(|ns| *ns > 0);
    let packet_ns = packet_ns.ok_or_else(|| format!("LIMIT {text}: must be longer than 0"))?;
    let limit = PacketTimeLimit {
        packet_ns: packet_ns as f64,
        factor: 1.0 + args.capacity as f64 / flame_abi::MAX_BATCH as f64,
        // No packet is cut for the sake of an estimate alone.
        snaplen: args.max_length.map_or(flame_abi::MAX_PACKET as u64, u64::from),
    };
    Ok((limit, TimeLimit { packet_ns, over_per_mille: MAX_OVERRUNS, share_per_mille: 1000 }))
}

impl Client for ClickModules {
    fn submission(&self, file: &str) -> Result<Submission, String> {
        submission(file).map_err(|e| e.to_string())
    }

    fn request(&self, args: &ModuleArgs, submission: Submission) -> Result<RunRequest, String> {
        self.request_of(args, submission).map_err(|e| e.to_string())
    }

    fn compiler(&self) -> Compiler<'static> {
        let child = flame_compile::Worker::this_program().stopped_by(self.interrupt.clone());
        Compiler::new(child, cache::open(true))
    }

    fn cut_offs(&self) -> RecordCutOff {
        Box::new(cache::cut_offs(true))
    }

    fn applicant(&self, args: &ModuleArgs) -> Result<Option<Applicant>, String> {
        self.applicant_of(args).map_err(|e| e.to_string())
    }

    fn sink(&self, catalog: &Catalog) -> Result<Box<dyn Sink>, String> {
        let options = Options { live: true, ..Options::default() };
        flame_record::open(self.format, self.records.as_deref(), catalog, &options).map_err(|e| e.to_string())
    }

    fn runner(&self) -> Result<Option<Runner>, String> {
        Ok(self.runner.clone())
    }

    fn notify(&self) -> Notify {
        Arc::new(|text| complain!("flame: {text}"))
    }
}
