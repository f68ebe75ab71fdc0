//! The meet of policy, credential and manifest: the grant of a module, and its reasons.

use crate::credential::{Block, Credential, CredentialError, Signer};
use crate::datalog::{self, Failed};
use crate::denied::Denied;
use crate::facts;
use crate::field::{Field, hash_text};
use crate::key::{PublicKey, Secret};
use crate::layer::{Layer, Origin, decided, meet};
use crate::place::Place;
use crate::policy::{Policy, Role};
use crate::rights::{Call, Code, Rights, Sampled, Staged};
use crate::stage::{principal_path, stages, view_key};
use crate::time;
use biscuit_auth::BlockBuilder;
use flame_abi::manifest::{Access, Manifest, Service};
use flame_plan::{
    Expose, Forward, LOGS_PER_SECOND, Limits, Release, Seen, Sending, Services, Share, ShownFilter, Stage,
    Terms, ViewKey, ViewSpec, longest_call,
};
use flame_quota::{Amounts, Quota};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

const POSSESSION: &str = "possession";

/// A module for which a grant is requested, as the node sees it.
#[derive(Clone, Debug)]
pub struct ModuleRequest {
    pub name: String,
    /// SHA-256 of the file.
    pub hash: [u8; 32],
    /// The keys whose signatures of the module were verified.
    pub signers: Vec<PublicKey>,
    /// The needs from its manifest.
    pub fields: Vec<Layer>,
    pub calls: BTreeSet<Call>,
    /// The services that it calls, and those that it offers.
    pub uses: Vec<String>,
    pub services: Vec<String>,
    /// The shared areas that it reads, and those that it writes.
    pub reads: Vec<String>,
    pub writes: Vec<String>,
}

impl ModuleRequest {
    /// Creates a request. `messages` states whether the module has a slow path.
    ///
    /// # Errors
    ///
    /// Returns an error if a value in the manifest is invalid for its field.
    pub fn new(
        manifest: &Manifest,
        hash: [u8; 32],
        messages: bool,
        signers: Vec<PublicKey>,
    ) -> Result<Self, String> {
        let limits = &manifest.limits;
        let budget = limits.packet_budget.unwrap_or(Limits::default().packet_budget);
        let stated = [
            (Field::Select, Some(manifest.needs.select.clone().unwrap_or_default())),
            (Field::Expose, Some(manifest.needs.expose.clone().unwrap_or_else(|| "headers".to_owned()))),
            (Field::Memory, limits.memory_mib.map(|mib| format!("{mib}MiB"))),
            (Field::PacketBudget, Some(budget.to_string())),
        ];
        let mut fields = Vec::new();
        for (field, value) in stated {
            fields.extend(value.map(|v| Layer::new(Origin::Manifest, field, v)).transpose()?);
        }
        let mut calls = BTreeSet::new();
        calls.extend((!manifest.tables.is_empty()).then_some(Call::Records));
        calls.extend(messages.then_some(Call::Messages));
        calls.extend(manifest.packets.then_some(Call::Packets));
        calls.extend((!manifest.channels.is_empty()).then_some(Call::Send));
        calls.extend((!manifest.uses.is_empty()).then_some(Call::Call));
        calls.extend((!manifest.services.is_empty()).then_some(Call::Serve));
        calls.extend(manifest.state.is_some().then_some(Call::State));
        calls.extend(manifest.needs.random.then_some(Call::Random));
        calls.extend((!manifest.shared.is_empty()).then_some(Call::Share));
        if let Some(ports) = &manifest.ports {
            calls.insert(Call::Forward);
            calls.extend(ports.modify.then_some(Call::Modify));
            calls.extend(ports.transmit.then_some(Call::Transmit));
            calls.extend((ports.held > 0).then_some(Call::Hold));
        }
        // A module whose texts are dropped does its work all the same, so `log` is not asked for.
        let names = |all: &[Service]| all.iter().map(|service| service.name.clone()).collect();
        let (uses, services) = (names(&manifest.uses), names(&manifest.services));
        let areas = |access| manifest.shares(access).cloned().collect();
        let (reads, writes) = (areas(Access::Read), areas(Access::Write));
        let name = manifest.name.clone();
        Ok(Self { name, hash, signers, fields, calls, uses, services, reads, writes })
    }
}

/// Random bytes for a holder to sign, so that an answer is valid only once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge([u8; 32]);

/// A holder's answer to a challenge.
#[derive(Clone, Debug)]
pub struct Answer {
    pub key: PublicKey,
    pub signature: [u8; 64],
}

impl Challenge {
    /// Creates a challenge of random bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if the system has no random bytes.
    pub fn new() -> std::io::Result<Self> {
        let mut nonce = [0; 32];
        getrandom::fill(&mut nonce).map_err(|e| std::io::Error::other(e.to_string()))?;
        Ok(Self(nonce))
    }

    /// Returns a challenge that is only valid on one connection: `nonce` was sent by the node, and `channel`
    /// is keying material that only the two ends of the connection know.
    pub fn on_channel(nonce: &[u8; 32], channel: &[u8]) -> Self {
        Self(
            Sha256::new_with_prefix(b"flame channel 1\0")
                .chain_update(nonce)
                .chain_update(channel)
                .finalize()
                .into(),
        )
    }

    /// Returns the challenge whose bytes were stored with an answer.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes to store with an answer.
    pub fn to_bytes(&self) -> [u8; 32] {
        self.0
    }

    fn message(&self, credential: &Credential, hash: &[u8; 32]) -> Vec<u8> {
        [&self.0[..], &hash[..], &credential.last_id()].concat()
    }

    /// Returns the answer of the owner of `secret`, for this credential and this module.
    pub fn answer(&self, secret: &Secret, credential: &Credential, hash: &[u8; 32]) -> Answer {
        let signature = secret.sign(POSSESSION, &self.message(credential, hash));
        Answer { key: secret.public(), signature }
    }
}

/// A request for a grant: credential, module, place and time.
#[derive(Clone, Copy)]
pub struct GrantRequest<'a> {
    /// The credential. Without one, the module gets the rights that the policy gives to anyone.
    pub credential: Option<&'a Credential>,
    /// The module and what it asks for.
    pub module: &'a ModuleRequest,
    /// The place from which packets come.
    pub place: &'a Place,
    /// The present time in seconds since 1970.
    pub now: u64,
    /// The node's challenge and the holder's answer.
    pub possession: Option<(&'a Challenge, &'a Answer)>,
}

/// The grant of a module.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The principal of the credential, and after `/` the one to whom it was handed on.
    pub principal: String,
    pub role: String,
    pub rights: Rights,
    /// The widest exposure that the module may have, before its own request narrows it.
    pub may_see: Expose,
    /// All statements: those of policy, credential and manifest.
    pub layers: Vec<Layer>,
    /// The ids of the credential's blocks.
    pub ids: Vec<String>,
    /// The key for transforms, of this principal on this node.
    pub key: ViewKey,
    /// The filters of its blocks, each with the form of packets that its author saw.
    pub stages: Vec<Stage>,
    /// The filters of its holder for this module, with the form of packets that the credential shows.
    pub own: Vec<Stage>,
    /// The key for sampling, of this node, so that narrowing a credential gives no other sample.
    pub sample_key: ViewKey,
    /// The form of packets that policy and root state, on which sampling decides. Narrowing does not change
    /// it.
    pub sample_seen: Seen,
    /// The links of the credential's chain that limit usage. A link belongs to all holders of credentials
    /// that were narrowed from it.
    pub links: Vec<Link>,
}

/// A quota shared by all holders of a credential and of those narrowed from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub id: String,
    /// The time from which no credential with this link is valid, in seconds since 1970, whatever the policy
    /// is. Only the fields of the credential state it.
    pub expires: u64,
    pub(crate) rights: Rights,
}

/// A credential whose signatures, role and holder were verified.
pub(crate) struct Chain {
    pub root: PublicKey,
    pub blocks: Vec<Block>,
    pub role: String,
    /// The fields of the role and of the blocks.
    pub layers: Vec<Layer>,
    pub links: Vec<Link>,
}

impl Link {
    /// Returns all limits.
    fn limits(&self) -> (Quota, Option<Share>) {
        (self.quota(true), self.compilation())
    }

    /// Returns the processor time for the compilation of modules, if it is limited.
    pub fn compilation(&self) -> Option<Share> {
        self.rights.compile
    }

    /// Returns the quota. A share of the processor applies to live sources only.
    pub fn quota(&self, live: bool) -> Quota {
        let rights = &self.rights;
        Quota {
            per_second: Amounts {
                records: rights.records_per_second,
                bytes: rights.bytes_per_second,
                transmit: rights.transmit,
            },
            per_packet: Amounts::default(),
            share: rights.cpu.filter(|_| live),
            memory: rights.memory,
        }
    }
}

impl Policy {
    /// Returns the meet of this policy, the credential and the module's request.
    ///
    /// # Errors
    ///
    /// Returns the reason why the module gets no grant.
    pub fn grant(&self, request: &GrantRequest<'_>) -> Result<Grant, Denied> {
        let grant = self.stated(request)?;
        self.check(request)?;
        Ok(grant)
    }

    /// Returns the grant that the fields of policy, credential and manifest state, if all checks hold: those
    /// are not evaluated, so the time is linear in the length of the credential.
    ///
    /// # Errors
    ///
    /// Returns the reason why the module gets no grant, whether or not the checks hold.
    pub fn stated(&self, request: &GrantRequest<'_>) -> Result<Grant, Denied> {
        let Some(credential) = request.credential else { return self.best_effort(request) };
        let Chain { root, blocks, role, layers, links } =
            self.chain(credential, &request.module.hash, request.possession)?;
        let path = principal_path(&blocks);
        let ids = blocks.into_iter().map(|b| b.id).collect();
        self.finish(request, layers, (path, role), ids, links, &root.to_string())
    }

    /// Verifies a credential for the module with the SHA-256 `hash`, of which nothing else is known.
    pub(crate) fn chain(
        &self,
        credential: &Credential,
        hash: &[u8; 32],
        possessed: Option<(&Challenge, &Answer)>,
    ) -> Result<Chain, Denied> {
        let root = self.verified(credential)?;
        let blocks = credential.blocks()?;
        self.not_revoked(&blocks, Some(&root))?;
        // Only its holder learns what the policy requires of it.
        possession(&blocks, credential, hash, possessed)?;

        let first = blocks.first().ok_or(Denied::Missing { what: "block" })?;
        let role = first.role.as_deref().ok_or(Denied::Missing { what: "role" })?;
        first.principal.as_deref().ok_or(Denied::Missing { what: "principal" })?;
        if !first.fields.iter().any(|l| l.field == Field::Code) {
            return Err(Denied::Missing { what: "code" });
        }
        let allowed = self.role(role)?;
        self.may_give(role, allowed, &root)?;
        self.cosigned(role, allowed, &blocks)?;

        let mut layers = allowed.fields.clone();
        let mut so_far = meet(&layers);
        let mut links: Vec<Link> = Vec::new();
        let mut expires = u64::MAX;
        for (block, stated) in blocks.iter().zip(stages(allowed, &blocks, &root)?) {
            so_far = stated.iter().fold(so_far, |all, layer| all.meet(layer.rights.clone()));
            expires = stated.iter().fold(expires, |least, layer| least.min(layer.rights.expires));
            layers.extend(stated);
            let link = Link { id: block.id.clone(), expires, rights: so_far.clone() };
            // A link with the limits of the one before it adds nothing.
            if links.last().is_none_or(|before| before.limits() != link.limits()) {
                links.push(link);
            }
        }
        let role = role.to_owned();
        Ok(Chain { root, blocks, role, layers, links })
    }

    /// Checks that a credential that was read before is not revoked, without verifying its signatures: in a
    /// moment, whatever the credential is. Whether its root is revoked is left to [`Policy::stated`].
    ///
    /// # Errors
    ///
    /// Returns an error if it is revoked.
    pub fn not_known_as_revoked(&self, credential: &Credential) -> Result<(), Denied> {
        self.not_revoked(credential.known_blocks().unwrap_or_default(), None)
    }

    /// Evaluates the checks of policy and credential, which are Datalog. Their cost is bounded, but one may
    /// take as long as many decisions without checks.
    ///
    /// # Errors
    ///
    /// Returns the checks that fail, or the reason why they are not evaluated.
    pub fn check(&self, request: &GrantRequest<'_>) -> Result<(), Denied> {
        let blocks = request.credential.map_or(Ok(Vec::new()), |credential| credential.blocks())?;
        if request.credential.is_some() {
            datalog::affordable(&self.programs(&blocks)?).map_err(CredentialError::Form)?;
        }
        self.evaluate(&blocks, request)
    }

    /// Returns the checks of the blocks, and those of this policy.
    pub(crate) fn programs(&self, blocks: &[Block]) -> Result<Vec<BlockBuilder>, Denied> {
        let node = BlockBuilder::new().code(&self.checks).map_err(|e| Denied::Node(e.to_string()))?;
        Ok(blocks.iter().map(|b| b.checks.clone()).chain([node]).collect())
    }

    /// Evaluates all checks of the blocks and of this policy for a module. The node's checks apply to
    /// everyone: without a credential there are no blocks.
    pub(crate) fn evaluate(&self, blocks: &[Block], request: &GrantRequest<'_>) -> Result<(), Denied> {
        let (module, root) = (request.module, blocks.first());
        let mut programs = self.programs(blocks)?;
        for (n, program) in programs.iter().enumerate() {
            if let Some(statement) = facts::unanswerable(program, request.place) {
                let block = (n < blocks.len()).then_some(n);
                return Err(Denied::Check(Failed::anywhere(block, &statement, request.place.name())));
            }
        }
        programs.pop();
        let principal = root.and_then(|root| root.principal.as_deref());
        let mut facts = facts::of_session(&self.name, request.now, principal);
        let hash = hash_text(&module.hash);
        facts::add_module(&mut facts, request.place, &hash, &module.signers, &module.name);
        let whose = root.map_or("", |root| &root.id);
        datalog::authorize(whose, &programs, &facts, &self.checks).map_err(Denied::Check)
    }

    fn best_effort(&self, request: &GrantRequest<'_>) -> Result<Grant, Denied> {
        let layers = self.best_effort.fields.clone();
        let whom = ("anyone".to_owned(), "best-effort".to_owned());
        self.finish(request, layers, whom, Vec::new(), vec![self.best_effort_link()], "")
    }

    /// Returns the quota that all who have no credential share.
    pub(crate) fn best_effort_link(&self) -> Link {
        let rights = meet(&self.best_effort.fields);
        Link { id: "best-effort".to_owned(), expires: u64::MAX, rights }
    }

    pub(crate) fn finish(
        &self,
        request: &GrantRequest<'_>,
        mut layers: Vec<Layer>,
        (principal, role): (String, String),
        ids: Vec<String>,
        links: Vec<Link>,
        root: &str,
    ) -> Result<Grant, Denied> {
        layers.extend(request.module.fields.iter().cloned());
        let rights = meet(&layers);
        let staged = rights.stages.iter().map(|staged| &staged.filter);
        let filters = staged.chain(&rights.select_shown).chain(&rights.send);
        ShownFilter::affordable(filters).map_err(Denied::Filters)?;
        when_and_where(self, (request.now, request.place.name()), &layers, &rights)?;
        for set in &rights.code {
            let module = request.module;
            let fits = |code: &Code| match code {
                Code::Any => true,
                Code::Hash(hash) => *hash == module.hash,
                Code::Signer(key) => module.signers.contains(key) && !self.revoked.has_key(key),
            };
            if !set.iter().any(fits) {
                let by = layers.iter().find(|l| l.rights.code.contains(set));
                return Err(Denied::Code {
                    hash: hash_text(&module.hash),
                    signers: match module.signers.as_slice() {
                        [] => "not signed".to_owned(),
                        keys => format!("signed by {}", joined(keys.iter())),
                    },
                    allowed: joined(set.iter()),
                    origin: by.map_or_else(String::new, |l| l.origin.to_string()),
                });
            }
        }
        if let Some(call) = request.module.calls.iter().find(|c| !rights.calls.contains(c)) {
            let without = layers.iter().find(|l| !l.rights.calls.contains(call)).map(|l| &l.origin);
            let who = match without {
                Some(Origin::Block(0)) => "its root",
                Some(Origin::Block(_)) => "the holder who narrowed it there",
                _ => "this node's operator",
            };
            return Err(Denied::Call {
                module: request.module.name.clone(),
                call: call.name(),
                origin: without.map_or_else(String::new, ToString::to_string),
                who: who.to_owned(),
            });
        }
        let secret = self.secret().ok_or_else(|| Denied::Node("the node has no key".to_owned()))?;
        // The root is part of the key: two roots may use the name alice for two people.
        let key = view_key(secret, &format!("{root} {principal}"));
        let sample_key = ViewKey(secret.derive("sample key", b""));
        let is_fixed =
            |l: &&Layer| matches!(l.origin, Origin::Policy { .. } | Origin::Default | Origin::Block(0));
        // Who narrows a credential for a module of their own would choose a filter that lets everything out.
        let is_filtered = layers.iter().filter(is_fixed).any(|layer| !layer.rights.send.is_empty());
        if request.module.calls.contains(&Call::Send) && !is_filtered {
            return Err(Denied::Unfiltered { module: request.module.name.clone() });
        }
        named(request.module, &layers, &rights, is_fixed)?;
        let of_origin = |is: fn(&Origin) -> bool| {
            meet(&layers.iter().filter(|layer| is(&layer.origin)).cloned().collect::<Vec<_>>())
        };
        let may_see = of_origin(|origin| *origin != Origin::Manifest).expose;
        let own = of_origin(|origin| *origin == Origin::Command).select_shown;
        let of_credential = of_origin(|origin| !matches!(origin, Origin::Manifest | Origin::Command));
        // Without a credential, the policy alone states it.
        let sampled = rights.sampled.first().cloned().unwrap_or_else(|| Sampled::new(&of_credential));
        let sample_seen = Seen {
            expose: sampled.expose,
            transforms: sampled.transforms,
            resolution_ns: sampled.resolution_ns,
            key: Some(sample_key.clone()),
        };
        let stages = rights.stages.iter().map(|staged| staged.stage(secret)).collect();
        let author = format!("{root} {principal}");
        let bound = |filter| Staged::new(filter, &of_credential, &author).stage(secret);
        let own = own.into_iter().map(bound).collect();
        Ok(Grant {
            principal,
            role,
            rights,
            may_see,
            layers,
            ids,
            key,
            stages,
            own,
            sample_key,
            sample_seen,
            links,
        })
    }

    pub(crate) fn verified(&self, credential: &Credential) -> Result<PublicKey, Denied> {
        let hint = credential.root_id();
        let mut roots: Vec<_> = self.roots.values().collect();
        roots.sort_by_key(|key| Some(key.id()) != hint);
        let found = roots.into_iter().find(|root| credential.is_of(root)).copied();
        found.ok_or_else(|| Denied::Root {
            roots: joined(self.roots.keys()),
            remedy: self.roots.keys().next().cloned().unwrap_or_else(|| "the operator".to_owned()),
        })
    }

    /// Checks that no block and no key of a credential is revoked, but for the root's key if it is not given.
    pub(crate) fn not_revoked(&self, blocks: &[Block], root: Option<&PublicKey>) -> Result<(), Denied> {
        for (n, block) in blocks.iter().enumerate() {
            if self.revoked.has_id(&block.id) {
                return Err(Denied::Revoked { what: format!("block {n}, {}", block.id) });
            }
            let signer = match &block.signer {
                Signer::Key(key) => Some(*key),
                Signer::Root => root.copied(),
                Signer::Bearer => None,
            };
            if let Some(key) = [signer, block.holder].into_iter().flatten().find(|k| self.revoked.has_key(k))
            {
                return Err(Denied::Revoked { what: format!("the key {key}, which block {n} names") });
            }
        }
        Ok(())
    }

    pub(crate) fn role(&self, role: &str) -> Result<&Role, Denied> {
        let known = || if self.roles.is_empty() { "none".to_owned() } else { joined(self.roles.keys()) };
        self.roles.get(role).ok_or_else(|| Denied::Role { role: role.to_owned(), known: known() })
    }

    pub(crate) fn may_give(&self, name: &str, role: &Role, root: &PublicKey) -> Result<(), Denied> {
        let root = self.roots.iter().find(|(_, key)| *key == root).map_or("", |(name, _)| name);
        if role.roots.is_empty() || role.roots.iter().any(|r| r == root) {
            return Ok(());
        }
        let allowed = role.roots.join(", ");
        Err(Denied::RoleRoot { role: name.to_owned(), root: root.to_owned(), allowed })
    }

    pub(crate) fn cosigned(&self, role: &str, allowed: &Role, blocks: &[Block]) -> Result<(), Denied> {
        for name in &allowed.cosigned {
            let Some(key) = self.cosigners.get(name) else { continue };
            let signed = |b: &Block| b.signer == Signer::Key(*key) && b.approved.contains(name);
            if !blocks.iter().any(signed) {
                return Err(Denied::Cosign { role: role.to_owned(), name: name.clone(), key: *key });
            }
        }
        Ok(())
    }
}

/// Checks the names of the services that a module calls and offers, and of the areas that it shares. They are
/// stated by the policy or the root: each is a way between principals, which neither of them opens alone.
fn named(
    module: &ModuleRequest,
    layers: &[Layer],
    rights: &Rights,
    is_fixed: impl Fn(&&Layer) -> bool,
) -> Result<(), Denied> {
    type Names = Option<BTreeSet<String>>;
    type Side<'a> = (&'a [String], Field, fn(&Rights) -> &Names);
    let share = Call::Share.name();
    let sides: [(&str, &str, &str, Side<'_>); 4] = [
        ("call", "service", "call the service", (&module.uses, Field::Call, |rights| &rights.call)),
        ("serve", "service", "serve the service", (&module.services, Field::Serve, |rights| &rights.serve)),
        (share, "shared area", "read the shared area", (&module.reads, Field::Read, |rights| &rights.read)),
        (
            share,
            "shared area",
            "write the shared area",
            (&module.writes, Field::Write, |rights| &rights.write),
        ),
    ];
    for (call, kind, act, (names, field, of)) in sides {
        let Some(first) = names.first() else { continue };
        if !layers.iter().filter(&is_fixed).any(|layer| of(&layer.rights).is_some()) {
            let (module, name) = (module.name.clone(), first.clone());
            return Err(Denied::Unnamed { module, call, kind, verb: field.name(), name });
        }
        let Some(allowed) = of(rights) else { continue };
        if let Some(name) = names.iter().find(|name| !allowed.contains(*name)) {
            let states = |l: &&Layer| l.field == field;
            let without = |l: &&Layer| of(&l.rights).as_ref().is_some_and(|a| !a.contains(name));
            let layer = layers.iter().filter(states).find(without);
            let origin = layer.map_or_else(String::new, |l| l.origin.to_string());
            // Those of the layer that is named, which may be more than those of all layers.
            let allowed = layer.and_then(|l| of(&l.rights).as_ref()).unwrap_or(allowed);
            let allowed = if allowed.is_empty() { "none".to_owned() } else { joined(allowed.iter()) };
            let (module, name) = (module.name.clone(), name.clone());
            return Err(Denied::Named { module, act, name, allowed, origin });
        }
    }
    Ok(())
}

fn joined<T: ToString>(all: impl Iterator<Item = T>) -> String {
    all.map(|one| one.to_string()).collect::<Vec<_>>().join(", ")
}

/// Follows the holders along the blocks. The last holder must have answered the challenge.
pub(crate) fn possession(
    blocks: &[Block],
    credential: &Credential,
    hash: &[u8; 32],
    shown: Option<(&Challenge, &Answer)>,
) -> Result<(), Denied> {
    let mut holder: Option<PublicKey> = None;
    for (n, block) in blocks.iter().enumerate() {
        let Some(next) = block.holder else { continue };
        match holder {
            Some(holder) if block.signer != Signer::Key(holder) => {
                return Err(Denied::HandedOn { block: n, holder });
            }
            _ => holder = Some(next),
        }
    }
    let Some(holder) = holder else { return Ok(()) };
    let fail = |reason| Err(Denied::Possession { holder, reason });
    match shown {
        None => fail("show the key (--identity FILE)"),
        Some((_, answer)) if answer.key != holder => fail("another key was shown"),
        Some((challenge, answer)) => {
            let message = challenge.message(credential, hash);
            if holder.verifies(POSSESSION, &message, &answer.signature) {
                return Ok(());
            }
            fail("the answer was made for something else")
        }
    }
}

/// Checks the time, in seconds since 1970, and the place, which is the interface.
pub(crate) fn when_and_where(
    policy: &Policy,
    (at, interface): (u64, &str),
    layers: &[Layer],
    rights: &Rights,
) -> Result<(), Denied> {
    let origin = |field| decided(layers, field).pop().map_or_else(String::new, |o| o.to_string());
    let now = || time::show(at);
    if at < rights.not_before {
        let since = time::show(rights.not_before);
        return Err(Denied::Early { now: now(), since, origin: origin(Field::NotBefore) });
    }
    if at >= rights.expires {
        let until = time::show(rights.expires);
        return Err(Denied::Expired { now: now(), until, origin: origin(Field::Expires) });
    }
    let places = [
        ("node", &rights.nodes, policy.name.as_str(), Field::Node),
        ("interface", &rights.interfaces, interface, Field::Interface),
    ];
    for (what, allowed, here, field) in places {
        if let Some(allowed) = allowed.as_ref().filter(|set| !set.contains(here)) {
            return Err(Denied::Place {
                what,
                here: here.to_owned(),
                allowed: if allowed.is_empty() { "none".to_owned() } else { joined(allowed.iter()) },
                origin: origin(field),
            });
        }
    }
    Ok(())
}

impl Grant {
    /// Returns the terms of the grant other than view, limits and [links](Self::links).
    pub fn terms(&self) -> Terms {
        let rights = &self.rights;
        let has = |call| rights.calls.contains(&call);
        Terms {
            forward: Forward {
                modify: has(Call::Modify),
                transmit: has(Call::Transmit),
                hold: has(Call::Hold),
            },
            sending: Sending { is_allowed: has(Call::Send), filters: rights.send.iter().cloned().collect() },
            services: Services { call: has(Call::Call), serve: has(Call::Serve) },
            release: Release {
                group: rights.group,
                records: rights.records_per_second,
                bytes: rights.bytes_per_second,
                transmit: rights.transmit,
                logs: if has(Call::Log) { LOGS_PER_SECOND } else { 0 },
            },
            time_limit: None,
            ticks_ns: rights.ticks_ns,
            buffer: if rights.buffer == u32::MAX { 0 } else { rights.buffer },
            priority: rights.priority,
            granted: true,
        }
    }

    /// Returns the view that the module gets.
    pub fn view(&self) -> ViewSpec {
        let rights = &self.rights;
        let of_manifest = self.layers.iter().filter(|layer| layer.origin == Origin::Manifest);
        ViewSpec {
            select: rights.select.iter().cloned().collect(),
            stages: self.stages.clone(),
            own: self.own.clone(),
            select_expose: Some(self.may_see),
            select_shown: of_manifest.flat_map(|l| &l.rights.select_shown).cloned().collect(),
            expose: rights.expose,
            transforms: rights.transforms.clone(),
            resolution_ns: rights.resolution_ns,
            sample: rights.sample,
            sample_seen: Some(self.sample_seen.clone()),
            sample_key: Some(self.sample_key.clone()),
            key: Some(self.key.clone()),
            snaplen: 0,
        }
    }

    /// Returns `usual`, reduced to the grant.
    pub fn limits(&self, usual: Limits) -> Limits {
        let rights = &self.rights;
        Limits {
            memory: usual.memory.min(u32::try_from(rights.memory).unwrap_or(u32::MAX)),
            packet_budget: usual.packet_budget.min(rights.packet_budget),
            call_budget: usual.call_budget.min(longest_call(rights.packet_budget)),
            ..usual
        }
    }

    /// Returns each field with its value and the origins that decided it. Fields that were not narrowed
    /// are left out.
    pub fn explain(&self) -> Vec<(Field, String, Vec<Origin>)> {
        let shown = |field: Field| Some((field, field.show(&self.rights)?, decided(&self.layers, field)));
        Field::ALL.into_iter().filter_map(shown).collect()
    }
}
