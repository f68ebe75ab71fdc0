//! A node's side of credentials: what a module is granted, and whether it still is.

use crate::caller::{self, Caller};
use crate::command::Error;
use crate::console::complain;
use clap::Args;
use flame_compile::{Compiler, ModuleInfo, Start};
use flame_plan::{Account, Eviction, Meter, Meters, Terms, ViewKey, ViewSpec};
use flame_trust::{
    Answer, Audit, Challenge, Credential, Event, Grant, GrantRequest, Layer, ModuleRequest, Policy, Quotas,
    Secret,
};
use flame_trust::{Field, PublicKey, time};
use flame_view::View;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Policy, credential and key, as options.
#[derive(Args, Clone)]
pub struct Trust {
    /// Policy of the node: a module gets the intersection of policy, credential and manifest. Without a policy,
    /// modules run with the operator's rights; if /etc/flame/policy.toml exists, only root can run without it
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,

    /// Credential file, created by `flame grant`. With --policy and no credential, a module only receives
    /// packet counts
    #[arg(long, value_name = "FILE")]
    pub credential: Option<PathBuf>,

    /// Private key of the credential's holder; - reads it from standard input
    #[arg(long, value_name = "FILE", requires = "credential")]
    pub identity: Option<PathBuf>,
}

/// Whether a view can be made of a field: filters and transforms have their meaning there.
pub fn viewable(layer: &Layer) -> Result<(), String> {
    if !matches!(layer.field, Field::Select | Field::Transform) {
        return Ok(());
    }
    let spec = ViewSpec {
        select: layer.rights.select.iter().cloned().collect(),
        select_shown: layer.rights.select_shown.iter().cloned().collect(),
        transforms: layer.rights.transforms.clone(),
        key: Some(ViewKey([0; 32])),
        ..ViewSpec::default()
    };
    View::new(&spec, None).map(drop).map_err(|e| format!("{}, {}: {e}", layer.origin, layer.field.name()))
}

/// Reads a credential's file.
pub fn credential(path: &Path) -> Result<Credential, Error> {
    let text = flame_files::read_at_most(caller::open(path)?, flame_trust::MAX_BYTES as u64)
        .map_err(|e| format!("{}: {e}", path.display()))?;
    let text = String::from_utf8(text)
        .map_err(|_| format!("{}: a credential is text, this is not", path.display()))?;
    Credential::parse(&text).map_err(|e| format!("{}: {e}", path.display()).into())
}

/// Reads a holder's key. What the shell opened it opened with the caller's rights.
fn identity(path: &Path) -> Result<Secret, Error> {
    if path.as_os_str() == "-" {
        return Ok(Secret::read(std::io::stdin().lock()).map_err(|e| format!("--identity -: {e}"))?);
    }
    Caller::here().may_name("--identity FILE", "the key stays yours: --identity - < FILE")?;
    Ok(Secret::from_file(path)?)
}

/// Whose signatures a module has, by the file beside it.
fn signatures(module: &Path, hash: &[u8; 32]) -> Result<Vec<PublicKey>, Error> {
    let path = flame_trust::file_of(module);
    if !path.exists() {
        return Ok(Vec::new());
    }
    Ok(flame_trust::read_signers(caller::open(&path)?, &path, hash)?)
}

/// A node with its policy, and who comes to it.
pub struct Node {
    path: PathBuf,
    policy: Policy,
    credential: Option<Credential>,
    identity: Option<Secret>,
    interface: String,
    /// Those of all installs, by what they belong to.
    meters: Mutex<HashMap<String, Arc<Meter>>>,
}

/// A module that asks, and the answer.
struct Decision {
    asked: ModuleRequest,
    possession: Option<(Challenge, Answer)>,
    decided: Result<Grant, String>,
}

/// A module that runs under a grant.
pub struct AdmittedModule {
    asked: ModuleRequest,
    possession: Option<(Challenge, Answer)>,
    pub grant: Grant,
    eviction: Eviction,
}

impl Trust {
    /// Nothing without a policy. `interface` is where packets come from.
    pub fn open(&self, interface: &str) -> Result<Option<Node>, Error> {
        let holds = caller::policy(self.policy.as_deref())?;
        let Some(path) = &holds else {
            return match &self.credential {
                Some(_) => Err("--credential is for a node with a policy: --policy FILE".into()),
                None => Ok(None),
            };
        };
        let policy = Policy::open(path)?;
        let roles = policy.roles.values().chain([&policy.best_effort]);
        roles.flat_map(|role| &role.fields).try_for_each(viewable)?;
        Ok(Some(Node {
            policy,
            path: path.clone(),
            credential: self.credential.as_deref().map(credential).transpose()?,
            identity: self.identity.as_deref().map(identity).transpose()?,
            interface: interface.to_owned(),
            meters: Mutex::default(),
        }))
    }
}

impl Node {
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What the module in the file at `path` gets; `more` narrows it further.
    fn evaluate(&self, path: &Path, module: &ModuleInfo, more: Vec<Layer>) -> Result<Decision, Error> {
        let signers = signatures(path, &module.hash)?;
        let mut asked = ModuleRequest::new(&module.manifest, module.hash, module.messages, signers)?;
        asked.fields.extend(more);
        let possession = match (&self.identity, &self.credential) {
            (Some(identity), Some(credential)) => {
                let challenge = Challenge::new()?;
                let answer = challenge.answer(identity, credential, &asked.hash);
                Some((challenge, answer))
            }
            _ => None,
        };
        let decided = self.decide(&asked, possession.as_ref()).and_then(|grant| {
            grant.layers.iter().try_for_each(viewable)?;
            Ok(grant)
        });
        Ok(Decision { asked, possession, decided })
    }

    /// Lets a module in, or says why not; the audit log has it if not.
    pub fn admit(&self, path: &Path, module: &ModuleInfo, more: Vec<Layer>) -> Result<AdmittedModule, Error> {
        let Decision { asked, possession, decided } = self.evaluate(path, module, more)?;
        match decided {
            Ok(grant) => Ok(AdmittedModule { asked, possession, grant, eviction: Eviction::default() }),
            Err(denied) => {
                self.audit(Event::Refuse, &self.claimed(), &asked, &denied)?;
                Err(denied.into())
            }
        }
    }

    /// What a module would be granted.
    pub fn explain(&self, path: &Path, module: &ModuleInfo) -> Result<Grant, Error> {
        Ok(self.evaluate(path, module, Vec::new())?.decided?)
    }

    fn decide(
        &self,
        asked: &ModuleRequest,
        possession: Option<&(Challenge, Answer)>,
    ) -> Result<Grant, String> {
        let request = GrantRequest {
            credential: self.credential.as_ref(),
            asked,
            interface: &self.interface,
            now: time::now(),
            possession: possession.map(|(challenge, answer)| (challenge, answer)),
        };
        self.policy.grant(&request).map_err(|denied| denied.to_string())
    }

    /// Whom a credential says it is for, true or not.
    fn claimed(&self) -> String {
        let blocks = self.credential.as_ref().and_then(|c| c.blocks().ok()).unwrap_or_default();
        blocks.into_iter().find_map(|b| b.principal).map_or("anyone".to_owned(), |p| format!("{p} (claimed)"))
    }

    fn audit(&self, event: Event, principal: &str, asked: &ModuleRequest, text: &str) -> Result<(), Error> {
        match self.log() {
            Some(log) => log.write(event, principal, &named(asked), text),
            None => Ok(()),
        }
    }

    fn log(&self) -> Option<Log> {
        Some(Log { audit: self.policy.log()?, secret: self.policy.shared_secret()? })
    }

    /// The terms of a module that is let in: with the meters of its credential, which it shares with all others.
    pub fn terms(&self, admitted: &AdmittedModule, live: bool) -> Result<Terms, Error> {
        let secret = self.policy.shared_secret().ok_or("the node has no key")?;
        let quotas = Quotas::open(&self.policy.quotas(), secret)?;
        let mut meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        let mut chain = Vec::new();
        for link in &admitted.grant.links {
            let meter = match meters.get(&link.id) {
                Some(meter) => meter.clone(),
                None => {
                    let quota = link.quota(live);
                    let meter = Arc::new(Meter::new(quota, Box::new(quotas.ledger(&link.id, quota, live)?)));
                    meters.insert(link.id.clone(), meter.clone());
                    meter
                }
            };
            chain.push(meter);
        }
        let terms = admitted.grant.terms();
        Ok(Terms { eviction: admitted.eviction(), meters: Meters::of_grant(chain), ..terms })
    }

    /// Has the audit log note before a module is examined, analysed or compiled. Its name is not known then.
    pub fn noting<'a>(&'a self, compiler: Compiler<'a>) -> Compiler<'a> {
        compiler.noted_by(|Start { step, hash, bytes }| {
            let Some(log) = self.log() else { return Ok(()) };
            let (module, text) = (flame_trust::hash_text(hash), format!("{step}, {bytes} bytes"));
            log.write(Event::Begin, &self.claimed(), &module, &text).map_err(|e| e.to_string())
        })
    }

    /// Notes in the audit log that the module runs, and with which options; gives what notes how it ends.
    pub fn installed(&self, admitted: &AdmittedModule, name: &str) -> Result<Entered, Error> {
        let grant = &admitted.grant;
        let fields: Vec<_> =
            grant.explain().into_iter().map(|(f, value, _)| format!("{}={value}", f.name())).collect();
        self.audit(
            Event::Install,
            &grant.principal,
            &admitted.asked,
            &format!("{}: {}; options: {}", grant.role, fields.join("; "), options()),
        )?;
        let (principal, module) = (grant.principal.clone(), named(&admitted.asked));
        Ok(Entered { log: self.log(), name: name.to_owned(), principal, module })
    }
}

fn named(asked: &ModuleRequest) -> String {
    format!("{} {}", asked.name, flame_trust::hash_text(&asked.hash))
}

/// What the command was called with, cut: values may be files' texts.
fn options() -> String {
    let shown = |s: std::ffi::OsString| s.to_string_lossy().chars().take(200).collect::<String>();
    let all: Vec<_> = std::env::args_os().skip(1).map(shown).collect();
    let user = match Caller::here() {
        Caller::Through { uid } => format!(" (user {uid})"),
        _ => String::new(),
    };
    format!("{:?}{user}", all.join(" ").chars().take(2000).collect::<String>())
}

/// The audit log and the key that signs it.
struct Log {
    audit: Audit,
    secret: Arc<Secret>,
}

impl Log {
    fn write(&self, event: Event, principal: &str, module: &str, text: &str) -> Result<(), Error> {
        Ok(self.audit.write(&self.secret, event, principal, module, text)?)
    }
}

/// A module whose install is in the audit log.
pub struct Entered {
    log: Option<Log>,
    /// In the plan.
    pub name: String,
    principal: String,
    module: String,
}

impl Entered {
    /// Notes what became of it.
    pub fn ended(&self, faults: &[String], account: &Account) -> Result<(), Error> {
        let Some(log) = &self.log else { return Ok(()) };
        let Self { principal, module, .. } = self;
        faults.iter().try_for_each(|text| log.write(Event::Fault, principal, module, text))?;
        let Account { offered, processed, records, withheld, faults, .. } = account;
        let text = format!(
            "{offered} packets offered, {processed} processed, {records} records, {withheld} withheld, {faults} faults"
        );
        log.write(Event::End, principal, module, &text)
    }
}

impl AdmittedModule {
    /// The eviction that the module's workers look at.
    pub fn eviction(&self) -> Eviction {
        self.eviction.clone()
    }
}

/// How often the node looks whether grants still hold. Within a second it must be known everywhere.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Looks, as long as it lives, whether modules may still run; evicts those that may not.
pub struct Watch {
    done: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watch {
    /// `stop` is set when no module is left.
    pub fn start(node: Node, admitted: Vec<AdmittedModule>, stop: Arc<AtomicBool>) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let told = done.clone();
        let thread = std::thread::spawn(move || watch(node, admitted, &told, &stop));
        Self { done, thread: Some(thread) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// What changes when a file does.
type Stamp = Option<(SystemTime, u64)>;

fn stamp(path: Option<&Path>) -> Stamp {
    let metadata = std::fs::metadata(path?).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

fn watch(mut node: Node, mut admitted: Vec<AdmittedModule>, done: &AtomicBool, stop: &AtomicBool) {
    let files = |node: &Node| [stamp(Some(&node.path)), stamp(node.policy.revocations.as_deref())];
    // What changed while modules were compiled is seen the first time.
    let (mut seen, mut second) = ([None, None], 0);
    static TOLD: Mutex<Option<String>> = Mutex::new(None);
    while !done.load(Ordering::Relaxed) {
        let (now, files) = (time::now(), files(&node));
        if (now, &files) != (second, &seen) {
            match (files != seen).then(|| Policy::open(&node.path)) {
                None => {}
                Some(Ok(policy)) => node.policy = policy,
                // The policy that was read before holds on: half a file is no reason to end everything.
                Some(Err(e)) => {
                    let text = e.to_string();
                    if let Ok(mut told) = TOLD.lock()
                        && told.as_ref() != Some(&text)
                    {
                        complain!("flame: warning: {text}; the policy as it was before holds on");
                        *told = Some(text);
                    }
                }
            }
            (second, seen) = (now, files);
            admitted.retain(|a| node.reevaluate(a));
            if admitted.is_empty() {
                stop.store(true, Ordering::Relaxed);
                return;
            }
        }
        std::thread::park_timeout(POLL_INTERVAL);
    }
}

impl Node {
    /// Whether a module has its grant still; it is evicted if not.
    fn reevaluate(&self, admitted: &AdmittedModule) -> bool {
        let reason = match self.decide(&admitted.asked, admitted.possession.as_ref()) {
            Ok(grant) if admitted.grant.rights.within(&grant.rights) => return true,
            Ok(_) => "the policy gives less now: install it again".to_owned(),
            Err(reason) => reason,
        };
        if let Err(e) = self.audit(Event::Evict, &admitted.grant.principal, &admitted.asked, &reason) {
            complain!("flame: warning: {e}");
        }
        admitted.eviction.evict(reason);
        false
    }
}
