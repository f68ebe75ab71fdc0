use crate::error::NodeError;
use crate::record::{Entered, Log, Owed};
use flame_compile::{Compiler, ModuleInfo, Start};
use flame_plan::{ModuleId, Reason, ViewKey, ViewSpec};
use flame_quota::{Meter, Meters};
use flame_trust::{
    Answer, Challenge, Credential, Denied, Event, Field, Grant, GrantRequest, Layer, ModuleRequest, Payer,
    PayerRequest, Place, Policy, PublicKey, Quotas, Secret, time,
};
use flame_view::View;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The client's half of authentication: answers challenges with the key of a credential's holder.
pub trait Holder {
    /// Signs the challenge for this credential and the module with the SHA-256 `hash`.
    fn answer(&self, challenge: &Challenge, credential: &Credential, hash: &[u8; 32]) -> Answer;
}

impl Holder for Secret {
    fn answer(&self, challenge: &Challenge, credential: &Credential, hash: &[u8; 32]) -> Answer {
        challenge.answer(self, credential, hash)
    }
}

/// A node with its policy, and the credential that is presented to it.
pub struct Node {
    pub(crate) path: PathBuf,
    pub(crate) policy: Arc<Policy>,
    credential: Option<Arc<Credential>>,
    holder: Option<Box<dyn Holder + Send + Sync>>,
    /// An answer that was made before, for one module.
    proof: Option<(Challenge, Answer)>,
    /// The place from which packets come.
    place: Place,
    /// The text appended to the audit log's entry of an install: the command's arguments and its caller.
    options: String,
    /// Meters of all installs, by the link of the credential to which they belong. A meter lives as long as
    /// an install counts in it; what it has counted is in its ledger.
    meters: Arc<Mutex<HashMap<String, Weak<Meter>>>>,
    /// The entries of the audit log that could not be written.
    owed: Arc<Owed>,
}

/// A module's request, and the decision on it.
struct Decision {
    request: ModuleRequest,
    possession: Option<(Challenge, Answer)>,
    decided: Result<Grant, NodeError>,
}

/// A module that runs under a grant.
pub struct AdmittedModule {
    pub(crate) request: ModuleRequest,
    possession: Option<(Challenge, Answer)>,
    pub grant: Grant,
    /// Its number in the plan.
    pub(crate) id: ModuleId,
    /// The last decision by which it may run on.
    passed: Mutex<Option<Passed>>,
}

/// A decision by which a module may run on, as far as fields show it: until the policy is another one, or
/// within this time, in seconds since 1970.
struct Passed {
    policy: Weak<Policy>,
    not_before: u64,
    expires: u64,
}

impl AdmittedModule {
    /// Returns whether the module may run on at `now` by the last decision, which was made under `policy`.
    fn has_passed(&self, policy: &Arc<Policy>, now: u64) -> bool {
        let passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        passed.as_ref().is_some_and(|passed| {
            let is_same = std::ptr::eq(passed.policy.as_ptr(), Arc::as_ptr(policy));
            is_same && (passed.not_before..passed.expires).contains(&now)
        })
    }

    /// Returns what the module asked for.
    pub fn request(&self) -> &ModuleRequest {
        &self.request
    }

    /// Returns the grant of a running module under a new credential, which is valid for another time. The
    /// module continues with the other rights that it has.
    ///
    /// # Errors
    ///
    /// Returns `renewed` if it gives less than the module has.
    pub fn renewed(&self, renewed: Self) -> Result<Self, Box<Self>> {
        let mut grant = self.grant.clone();
        (grant.rights.not_before, grant.rights.expires) =
            (renewed.grant.rights.not_before, renewed.grant.rights.expires);
        match grant.rights.within(&renewed.grant.rights) {
            true => Ok(Self { grant, id: self.id, passed: Mutex::default(), ..renewed }),
            false => Err(Box::new(renewed)),
        }
    }
}

/// Checks that a view can be made of the layer's field. Views define the meaning of filters and transforms.
///
/// # Errors
///
/// Returns [`NodeError::View`] if no view can be made.
pub fn check_viewable(layer: &Layer) -> Result<(), NodeError> {
    if !matches!(layer.field, Field::Select | Field::Transform) {
        return Ok(());
    }
    let staged = layer.rights.stages.iter().map(|staged| &staged.filter);
    let spec = ViewSpec {
        select: layer.rights.select.iter().cloned().collect(),
        select_shown: staged.chain(&layer.rights.select_shown).cloned().collect(),
        transforms: layer.rights.transforms.clone(),
        key: Some(ViewKey([0; 32])),
        ..ViewSpec::default()
    };
    let error = |source| NodeError::View { origin: layer.origin.clone(), field: layer.field, source };
    View::new(&spec, None).map(drop).map_err(error)
}

impl Node {
    /// Opens the node whose policy is at `path`. Packets come from `place`; `options` is recorded in the
    /// audit log.
    ///
    /// # Errors
    ///
    /// Returns an error if the policy cannot be read, or if no view can be made of one of its roles.
    pub fn open(path: &Path, place: &Place, options: String) -> Result<Self, NodeError> {
        let policy = Policy::open(path)?;
        let roles = policy.roles.values().chain([&policy.best_effort]);
        roles.flat_map(|role| &role.fields).try_for_each(check_viewable)?;
        Ok(Self {
            policy: Arc::new(policy),
            path: path.to_owned(),
            credential: None,
            holder: None,
            proof: None,
            place: place.clone(),
            options,
            meters: Arc::default(),
            owed: Arc::default(),
        })
    }

    /// Sets the presented credential, and the object that answers for its holder.
    #[must_use]
    pub fn presented(
        self,
        credential: Option<Credential>,
        holder: Option<Box<dyn Holder + Send + Sync>>,
    ) -> Self {
        Self { credential: credential.map(Arc::new), holder, ..self }
    }

    /// Returns this node for another credential, whose holder's answer for one module was made before. Both
    /// share policy and meters.
    #[must_use]
    pub fn for_credential(
        &self,
        credential: Option<Credential>,
        proof: Option<(Challenge, Answer)>,
        place: &Place,
        options: String,
    ) -> Self {
        Self {
            policy: self.policy.clone(),
            path: self.path.clone(),
            credential: credential.map(Arc::new),
            holder: None,
            proof,
            place: place.clone(),
            options,
            meters: self.meters.clone(),
            owed: self.owed.clone(),
        }
    }

    /// Returns this node without a credential, with the same meters.
    #[must_use]
    pub fn anonymous(&self) -> Self {
        self.for_credential(None, None, &self.place, self.options.clone())
    }

    /// Reads the policy again, at `path`. The meters remain.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Node::open`].
    pub fn reopened(&self, path: &Path) -> Result<Self, NodeError> {
        let opened = Self::open(path, &self.place, self.options.clone())?;
        Ok(Self { meters: self.meters.clone(), owed: self.owed.clone(), ..opened })
    }

    /// Returns the files whose changes change the policy.
    pub fn files(&self) -> Vec<&Path> {
        [Some(&*self.path), self.policy.revocations.as_deref()].into_iter().flatten().collect()
    }

    /// Returns this node with the same credential and answer under another policy.
    #[must_use]
    pub fn under(&self, policy: Arc<Policy>) -> Self {
        Self {
            policy,
            path: self.path.clone(),
            credential: self.credential.clone(),
            holder: None,
            proof: self.proof.clone(),
            place: self.place.clone(),
            options: self.options.clone(),
            meters: self.meters.clone(),
            owed: self.owed.clone(),
        }
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the policy for shared ownership.
    pub fn shared_policy(&self) -> Arc<Policy> {
        self.policy.clone()
    }

    /// Decides on a module. `more` narrows its grant further.
    fn evaluate(
        &self,
        module: &ModuleInfo,
        signers: &[PublicKey],
        more: &[Layer],
    ) -> Result<Decision, NodeError> {
        let request = ModuleRequest::new(&module.manifest, module.hash, module.messages, signers.to_vec());
        let mut request = request.map_err(NodeError::Manifest)?;
        request.fields.extend(more.iter().cloned());
        let possession = self.possession(&request.hash)?;
        let decided = self.decide(&request, possession.as_ref()).map_err(NodeError::from).and_then(|grant| {
            grant.layers.iter().try_for_each(check_viewable)?;
            Ok(grant)
        });
        Ok(Decision { request, possession, decided })
    }

    /// Returns the proof that the holder of the credential wants to run the module with this hash.
    fn possession(&self, hash: &[u8; 32]) -> Result<Option<(Challenge, Answer)>, NodeError> {
        Ok(match (&self.holder, &self.credential) {
            (Some(holder), Some(credential)) => {
                let challenge = Challenge::new().map_err(NodeError::Challenge)?;
                let answer = holder.answer(&challenge, credential, hash);
                Some((challenge, answer))
            }
            _ => self.proof.clone(),
        })
    }

    /// Returns a compiler for the module with this hash, for whose work the principal of the credential pays.
    ///
    /// # Errors
    ///
    /// Returns an error if the credential is not valid, or not its holder's, or if its allowance cannot be
    /// read.
    pub fn compiler<'c>(
        &'c self,
        compiler: &'c Compiler<'_>,
        hash: &[u8; 32],
    ) -> Result<Compiler<'c>, NodeError> {
        let possession = self.possession(hash)?;
        let Payer { tenant, principal, links } = self.policy.payer(&PayerRequest {
            credential: self.credential.as_deref(),
            hash,
            place: &self.place,
            now: time::now(),
            possession: possession.as_ref().map(|(challenge, answer)| (challenge, answer)),
        })?;
        let secret = self.policy.shared_secret().ok_or(NodeError::NoKey)?;
        let allowance = Quotas::open(&self.policy.quotas(), secret)?.allowance(&links)?;
        Ok(compiler.of(&tenant, &principal, allowance))
    }

    /// Records in the audit log each start of an examination, analysis or compilation. The module's name is
    /// not known then.
    pub fn noting<'a>(&'a self, compiler: Compiler<'a>) -> Compiler<'a> {
        compiler.noted_by(|Start { step, hash, bytes }| {
            let Some(log) = self.log() else { return Ok(()) };
            let (module, text) = (flame_trust::hash_text(hash), format!("{step}, {bytes} bytes"));
            log.write(Event::Begin, &self.claimed(), &module, &text).map_err(|e| e.to_string())
        })
    }

    /// Records in the audit log that no work is done on the module with this hash, and returns the reason.
    pub(crate) fn refused(&self, hash: &[u8; 32], denied: NodeError) -> NodeError {
        let (NodeError::Denied(_), Some(log)) = (&denied, self.log()) else { return denied };
        let (module, text) = (flame_trust::hash_text(hash), denied.operator());
        log.write(Event::Refuse, &self.claimed(), &module, &text).err().unwrap_or(denied)
    }

    /// Admits a module, or returns the reason why not. Each refusal is recorded in the audit log.
    ///
    /// # Errors
    ///
    /// Returns an error if the policy denies the module, or if the audit log cannot be written.
    pub fn admit(
        &self,
        module: &ModuleInfo,
        signers: &[PublicKey],
        more: &[Layer],
    ) -> Result<AdmittedModule, NodeError> {
        let Decision { request, possession, decided } = self.evaluate(module, signers, more)?;
        match decided {
            Ok(grant) => {
                let (id, passed) = Default::default();
                Ok(AdmittedModule { request, possession, grant, id, passed })
            }
            Err(denied) => {
                self.audit(Event::Refuse, &self.claimed(), &request, &denied.operator())?;
                Err(denied)
            }
        }
    }

    /// Returns the grant that a module would get.
    ///
    /// # Errors
    ///
    /// Returns an error if the policy denies the module.
    pub fn explain(&self, module: &ModuleInfo, signers: &[PublicKey]) -> Result<Grant, NodeError> {
        self.evaluate(module, signers, &[])?.decided
    }

    fn request<'a>(
        &'a self,
        module: &'a ModuleRequest,
        possession: Option<&'a (Challenge, Answer)>,
    ) -> GrantRequest<'a> {
        GrantRequest {
            credential: self.credential.as_deref(),
            module,
            place: &self.place,
            now: time::now(),
            possession: possession.map(|(challenge, answer)| (challenge, answer)),
        }
    }

    pub(crate) fn decide(
        &self,
        module: &ModuleRequest,
        possession: Option<&(Challenge, Answer)>,
    ) -> Result<Grant, Denied> {
        self.policy.grant(&self.request(module, possession))
    }

    /// Decides again on a module that runs. If it may not run any longer, records its eviction in the audit
    /// log and returns the reason, with the error of the log if it cannot be written.
    pub fn review(&self, admitted: &AdmittedModule) -> Option<(Reason, Option<NodeError>)> {
        let reason = self.lost(admitted)?;
        let unwritten = self.note_eviction(admitted, &reason).err();
        Some((reason, unwritten))
    }

    /// Decides again on a module that runs. Returns the reason why it may not run any longer, if there is
    /// one.
    pub fn lost(&self, admitted: &AdmittedModule) -> Option<Reason> {
        self.lost_by_fields(admitted).or_else(|| self.lost_by_checks(admitted))
    }

    /// Returns the reason why a module may not run any longer that is clear without an evaluation of checks,
    /// if there is one: expiry, revocation, another policy. Under one policy only the time can change that,
    /// so the signatures are verified and the fields are read once for each.
    pub fn lost_by_fields(&self, admitted: &AdmittedModule) -> Option<Reason> {
        let request = self.request(&admitted.request, admitted.possession.as_ref());
        if admitted.has_passed(&self.policy, request.now) {
            return None;
        }
        match self.policy.stated(&request) {
            Ok(grant) if admitted.grant.rights.within(&grant.rights) => {
                let (policy, rights) = (Arc::downgrade(&self.policy), grant.rights);
                let passed = Passed { policy, not_before: rights.not_before, expires: rights.expires };
                *admitted.passed.lock().unwrap_or_else(PoisonError::into_inner) = Some(passed);
                None
            }
            Ok(_) => Some(Reason::Narrowed),
            Err(denied) => Some(reason(&denied)),
        }
    }

    /// Returns the reason why a module may not run any longer if its credential is revoked. Nobody's
    /// credential delays the revocation of another one by this.
    pub fn lost_by_revocation(&self, admitted: &AdmittedModule) -> Option<Reason> {
        if admitted.has_passed(&self.policy, time::now()) {
            return None;
        }
        let denied = self.policy.not_known_as_revoked(self.credential.as_ref()?).err()?;
        Some(reason(&denied))
    }

    /// Returns the check for which a module may not run any longer, if there is one. Checks are Datalog, so
    /// this may take far longer than [`Node::lost_by_fields`].
    pub fn lost_by_checks(&self, admitted: &AdmittedModule) -> Option<Reason> {
        let request = self.request(&admitted.request, admitted.possession.as_ref());
        self.policy.check(&request).err().map(|denied| reason(&denied))
    }

    /// Records in the audit log that a module is evicted.
    ///
    /// # Errors
    ///
    /// Returns an error if the log cannot be written.
    pub fn note_eviction(&self, admitted: &AdmittedModule, reason: &Reason) -> Result<(), NodeError> {
        self.audit(Event::Evict, &admitted.grant.principal, &admitted.request, &reason.operator())
    }

    /// Writes the entries of the audit log that could not be written when they were due. Returns whether
    /// there were any.
    ///
    /// # Errors
    ///
    /// Returns an error if the log still cannot be written.
    pub fn write_owed(&self) -> Result<bool, NodeError> {
        match self.log().filter(|log| log.owed.is_any()) {
            Some(log) => log.write_owed().map(|()| true),
            None => Ok(false),
        }
    }

    /// Records in the audit log the revocation `line`, which concerns `whom`.
    ///
    /// # Errors
    ///
    /// Returns an error if the log cannot be written.
    pub fn note_revocation(&self, whom: &str, line: &str) -> Result<(), NodeError> {
        match self.log() {
            Some(log) => log.write(Event::Revoke, whom, "", line),
            None => Ok(()),
        }
    }

    /// Records in the audit log that the revocation `line`, which concerns `whom`, is withdrawn.
    ///
    /// # Errors
    ///
    /// Returns an error if the log cannot be written.
    pub fn note_withdrawal(&self, whom: &str, line: &str) -> Result<(), NodeError> {
        match self.log() {
            Some(log) => log.write(Event::Withdraw, whom, "", line),
            None => Ok(()),
        }
    }

    /// Returns the principal that a credential names, without verification.
    fn claimed(&self) -> String {
        let blocks = self.credential.as_ref().and_then(|c| c.blocks().ok()).unwrap_or_default();
        blocks.into_iter().find_map(|b| b.principal).map_or("anyone".to_owned(), |p| format!("{p} (claimed)"))
    }

    pub(crate) fn audit(
        &self,
        event: Event,
        principal: &str,
        module: &ModuleRequest,
        text: &str,
    ) -> Result<(), NodeError> {
        match self.log() {
            Some(log) => log.write(event, principal, &named(module), text),
            None => Ok(()),
        }
    }

    fn log(&self) -> Option<Log> {
        Some(Log { audit: self.policy.log()?, secret: self.policy.shared_secret()?, owed: self.owed.clone() })
    }

    /// Returns the meters of an admitted module: those of its credential, which all its installs share.
    ///
    /// # Errors
    ///
    /// Returns an error if the policy has no key or a ledger cannot be opened.
    pub fn meters(&self, admitted: &AdmittedModule, live: bool) -> Result<Meters, NodeError> {
        let secret = self.policy.shared_secret().ok_or(NodeError::NoKey)?;
        let quotas = Quotas::open(&self.policy.quotas(), secret)?;
        let mut meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        let mut chain = Vec::new();
        for link in &admitted.grant.links {
            let meter = match meters.get(&link.id).and_then(Weak::upgrade) {
                Some(meter) => meter,
                None => {
                    let quota = link.quota(live);
                    let ledger = quotas.ledger(&link.id, (quota, link.expires), live)?;
                    let meter = Arc::new(Meter::new(quota, Box::new(ledger)));
                    meters.retain(|_, meter| meter.strong_count() > 0);
                    meters.insert(link.id.clone(), Arc::downgrade(&meter));
                    meter
                }
            };
            chain.push(meter);
        }
        Ok(Meters::of_grant(chain))
    }

    /// Removes the ledgers of credentials that expired a day ago or earlier, and in which no install counts.
    ///
    /// # Errors
    ///
    /// Returns an error if the policy has no key, or if the ledgers cannot be read or removed.
    pub fn sweep_quotas(&self) -> Result<usize, NodeError> {
        let secret = self.policy.shared_secret().ok_or(NodeError::NoKey)?;
        let used: Vec<String> = {
            let meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
            let used = meters.iter().filter(|(_, meter)| meter.strong_count() > 0);
            used.map(|(id, _)| id.clone()).collect()
        };
        Ok(Quotas::open(&self.policy.quotas(), secret)?.sweep(time::now(), &used)?)
    }

    /// Checks that the ledgers can be used, without a look at each.
    ///
    /// # Errors
    ///
    /// Returns an error if the policy has no key, or if the horizon of the ledgers cannot be read.
    pub fn look_at_quotas(&self) -> Result<(), NodeError> {
        let secret = self.policy.shared_secret().ok_or(NodeError::NoKey)?;
        Ok(Quotas::open(&self.policy.quotas(), secret)?.look()?)
    }

    /// Returns the number of meters in which installs count.
    pub fn meters_in_use(&self) -> usize {
        let meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        meters.values().filter(|meter| meter.strong_count() > 0).count()
    }

    /// Records in the audit log that the module runs, with its options. The returned value records its end.
    ///
    /// # Errors
    ///
    /// Returns an error if the audit log cannot be written.
    pub fn installed(
        &self,
        admitted: &AdmittedModule,
        name: &str,
        seed: Option<u64>,
    ) -> Result<Entered, NodeError> {
        let grant = &admitted.grant;
        let fields: Vec<_> =
            grant.explain().into_iter().map(|(f, value, _)| format!("{}={value}", f.name())).collect();
        let seed = seed.map_or_else(String::new, |seed| format!("seed {seed}; "));
        let text = format!("{}: {}; {seed}options: {}", grant.role, fields.join("; "), self.options);
        self.audit(Event::Install, &grant.principal, &admitted.request, &text)?;
        Ok(Entered::new(self.log(), name, &grant.principal, &named(&admitted.request)))
    }
}

/// Returns a denial as the reason of an eviction.
fn reason(denied: &Denied) -> Reason {
    Reason::Denied { public: denied.to_string(), operator: denied.operator() }
}

fn named(module: &ModuleRequest) -> String {
    format!("{} {}", module.name, flame_trust::hash_text(&module.hash))
}
