use crate::error::NodeError;
use crate::presented::Presented;
use crate::record::{Entered, Log, Owed};
use flame_base::lock;
use flame_plan::{ModuleId, Reason, ViewKey, ViewSpec};
use flame_quota::{Meter, Meters};
use flame_trust::{
    Answer, Challenge, Denied, Event, Field, Grant, GrantRequest, Layer, ModuleRequest, Policy, Quotas, time,
};
use flame_view::View;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

/// A node: its policy, the meters of all installs, and the entries that its audit log lacks. Clones share
/// meters and entries.
#[derive(Clone)]
pub struct Node {
    pub(crate) path: PathBuf,
    pub(crate) policy: Arc<Policy>,
    /// Meters of all installs, by the link of the credential to which they belong. A meter lives as long as
    /// an install counts in it; what it has counted is in its ledger.
    meters: Arc<Mutex<HashMap<String, Weak<Meter>>>>,
    /// The entries of the audit log that could not be written.
    owed: Arc<Owed>,
}

/// A module that runs under a grant.
pub struct AdmittedModule {
    /// The credential and its circumstances, by which the node admitted the module.
    pub(crate) presented: Arc<Presented>,
    pub(crate) request: ModuleRequest,
    pub(crate) possession: Option<(Challenge, Answer)>,
    pub grant: Grant,
    /// Its number in the plan.
    pub(crate) id: ModuleId,
    /// The last decision by which it may run on.
    pub(crate) passed: Mutex<Option<Passed>>,
}

/// A decision by which a module may run on, as far as fields show it: until the policy is another one, or
/// within this time, in seconds since 1970.
pub(crate) struct Passed {
    policy: Weak<Policy>,
    not_before: u64,
    expires: u64,
}

impl AdmittedModule {
    /// Returns whether the module may run on at `now` by the last decision, which was made under `policy`.
    fn has_passed(&self, policy: &Arc<Policy>, now: u64) -> bool {
        let passed = lock(&self.passed);
        passed.as_ref().is_some_and(|passed| {
            let is_same = std::ptr::eq(passed.policy.as_ptr(), Arc::as_ptr(policy));
            is_same && (passed.not_before..passed.expires).contains(&now)
        })
    }

    /// Returns what the module asked for.
    pub fn request(&self) -> &ModuleRequest {
        &self.request
    }

    /// Returns the request that is decided on again while the module runs.
    fn to_decide(&self) -> GrantRequest<'_> {
        self.presented.request(&self.request, self.possession.as_ref())
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

/// Reads the policy at `path`.
fn read(path: &Path) -> Result<Arc<Policy>, NodeError> {
    let policy = Policy::open(path)?;
    let roles = policy.roles.values().chain([&policy.best_effort]);
    roles.flat_map(|role| &role.fields).try_for_each(check_viewable)?;
    Ok(Arc::new(policy))
}

impl Node {
    /// Opens the node whose policy is at `path`.
    ///
    /// # Errors
    ///
    /// Returns an error if the policy cannot be read, or if no view can be made of one of its roles.
    pub fn open(path: &Path) -> Result<Self, NodeError> {
        let (path, policy) = (path.to_owned(), read(path)?);
        Ok(Self { path, policy, meters: Arc::default(), owed: Arc::default() })
    }

    /// Reads the policy again, at `path`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Node::open`].
    pub fn reopened(&self, path: &Path) -> Result<Self, NodeError> {
        Ok(Self { path: path.to_owned(), ..self.under(read(path)?) })
    }

    /// Returns this node under another policy.
    #[must_use]
    pub fn under(&self, policy: Arc<Policy>) -> Self {
        Self { policy, ..self.clone() }
    }

    /// Returns the files whose changes change the policy.
    pub fn files(&self) -> Vec<&Path> {
        [Some(&*self.path), self.policy.revocations.as_deref()].into_iter().flatten().collect()
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the policy for shared ownership.
    pub fn shared_policy(&self) -> Arc<Policy> {
        self.policy.clone()
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
        let request = admitted.to_decide();
        if admitted.has_passed(&self.policy, request.now) {
            return None;
        }
        match self.policy.stated(&request) {
            Ok(grant) if admitted.grant.rights.within(&grant.rights) => {
                let (policy, rights) = (Arc::downgrade(&self.policy), grant.rights);
                let passed = Passed { policy, not_before: rights.not_before, expires: rights.expires };
                *lock(&admitted.passed) = Some(passed);
                None
            }
            Ok(_) => Some(Reason::Narrowed),
            Err(denied) => Some(reason(&denied)),
        }
    }

    /// Returns the reason why a module may not run any longer if its credential is revoked. No
    /// credential delays the revocation of another one by this.
    pub fn lost_by_revocation(&self, admitted: &AdmittedModule) -> Option<Reason> {
        if admitted.has_passed(&self.policy, time::now()) {
            return None;
        }
        let denied = self.policy.not_known_as_revoked(admitted.presented.credential.as_ref()?).err()?;
        Some(reason(&denied))
    }

    /// Returns the check for which a module may not run any longer, if there is one. Checks are Datalog, so
    /// this may take far longer than [`Node::lost_by_fields`].
    pub fn lost_by_checks(&self, admitted: &AdmittedModule) -> Option<Reason> {
        self.policy.check(&admitted.to_decide()).err().map(|denied| reason(&denied))
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

    pub(crate) fn log(&self) -> Option<Log> {
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
        let mut meters = lock(&self.meters);
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
            let meters = lock(&self.meters);
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
        let meters = lock(&self.meters);
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
        let text =
            format!("{}: {}; {seed}options: {}", grant.role, fields.join("; "), admitted.presented.options);
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
