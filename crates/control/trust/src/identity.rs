//! Sessions: who presents a credential on a connection, and what the session may then do.
//!
//! A session is decided by the whole credential. [`Policy::admit_session`] evaluates what does not depend on
//! a module, [`Policy::admit_operation`] everything else, for each module that an operation names.

use crate::credential::{Block, Credential, CredentialError, Signer};
use crate::datalog;
use crate::denied::Denied;
use crate::facts::{self, Given};
use crate::grant::{Answer, Challenge, GrantRequest, ModuleRequest, possession};
use crate::hex::hex;
use crate::key::PublicKey;
use crate::layer::{Layer, meet};
use crate::place::Place;
use crate::policy::Policy;
use crate::rights::Rights;
use crate::stage::{principal_path, stages};
use crate::time;
use sha2::{Digest, Sha256};

/// The number of hexadecimal digits by which a principal's name distinguishes holders.
const DIGITS: usize = 20;

/// The hash that an answer names if it is for a connection and not for a module. No file has it.
pub const SESSION: [u8; 32] = [0; 32];

/// A principal that proved to hold a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The root that signed the credential. Two roots may use one name for two people.
    pub root: PublicKey,
    /// The principal, after `/` the one to whom the credential was handed on, and after `#` a digest of the
    /// holders whom others than the root named. Principals of the same name have the same holders.
    pub principal: String,
    pub role: String,
    /// The end of the credential in seconds since 1970.
    pub expires: u64,
}

/// A credential whose signatures, role and holder were verified under one version of the policy.
#[derive(Clone, Debug)]
pub struct Verified {
    pub identity: Identity,
    blocks: Vec<Block>,
    /// The fields of its role and of its blocks.
    layers: Vec<Layer>,
    rights: Rights,
}

/// An operation on a module that a session asks for.
#[derive(Clone, Copy)]
pub struct Operation<'a> {
    pub module: &'a ModuleRequest,
    /// The place from which the module's packets come.
    pub place: &'a Place,
    /// The rights that the module has.
    pub rights: &'a Rights,
    pub now: u64,
}

impl Verified {
    /// Returns the rights that role and credential leave, whatever module asks for them.
    pub fn rights(&self) -> &Rights {
        &self.rights
    }
}

/// Returns a principal's name in a fleet, with the beginning of its root's key: roots may use the same name
/// for different principals.
pub fn fleet_name(root: &str, principal: &str) -> String {
    let digits = root.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    format!("{principal}@{}", digits.chars().take(16).collect::<String>())
}

impl Policy {
    /// Returns the principal that presents `credential`, whose holder answered `challenge` for [`SESSION`].
    ///
    /// # Errors
    ///
    /// Returns an error if the credential is not of this node's roots, is revoked, not valid now or not for
    /// this node, if it names no holder, if one of its checks fails, or if the answer is not of the holder.
    pub fn identify(
        &self,
        credential: &Credential,
        shown: (&Challenge, &Answer),
        now: u64,
    ) -> Result<Identity, Denied> {
        let verified = self.present(credential, shown)?;
        self.admit_session(&verified, now)?;
        Ok(verified.identity)
    }

    /// Returns the principal that a credential names. Its signatures are verified, its possession is not.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Policy::identify`], except those of the answer.
    pub fn claim(&self, credential: &Credential, now: u64) -> Result<Identity, Denied> {
        let verified = self.named(credential)?;
        self.admit_session(&verified, now)?;
        Ok(verified.identity)
    }

    /// Returns the principal that a credential names, wherever and whenever it is valid.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Policy::identify`] that are not about the answer, time, place or checks.
    pub fn named(&self, credential: &Credential) -> Result<Verified, Denied> {
        let (root, blocks) = self.recognized(credential)?;
        self.claimed(root, blocks)
    }

    /// Verifies what stays true until the policy changes: signatures, revocations, role and holder.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Policy::identify`], except those of time, place and checks.
    pub fn present(&self, credential: &Credential, shown: (&Challenge, &Answer)) -> Result<Verified, Denied> {
        let (root, blocks) = self.recognized(credential)?;
        // Only its holder learns what the policy requires of it.
        possession(&blocks, credential, &SESSION, Some(shown))?;
        self.claimed(root, blocks)
    }

    /// Checks that a root of this node signed a credential, and that it is not revoked: all that a client
    /// learns before it proved to be the holder.
    ///
    /// # Errors
    ///
    /// Returns an error if the credential is not of this node's roots, or is revoked.
    pub fn recognize(&self, credential: &Credential) -> Result<(), Denied> {
        self.recognized(credential).map(drop)
    }

    fn recognized(&self, credential: &Credential) -> Result<(PublicKey, Vec<Block>), Denied> {
        let root = self.verified(credential)?;
        let blocks = credential.blocks()?;
        self.not_revoked(&blocks, Some(&root))?;
        Ok((root, blocks))
    }

    fn claimed(&self, root: PublicKey, blocks: Vec<Block>) -> Result<Verified, Denied> {
        if blocks.iter().all(|b| b.holder.is_none()) {
            // Anyone who read it on its way could use it.
            return Err(Denied::Missing {
                what: "holder, without which it is not accepted over a connection",
            });
        }
        let first = blocks.first().filter(|b| b.signer == Signer::Root);
        let first = first.ok_or(Denied::Missing { what: "block" })?;
        let role = first.role.clone().ok_or(Denied::Missing { what: "role" })?;
        first.principal.as_deref().ok_or(Denied::Missing { what: "principal" })?;
        let allowed = self.role(&role)?;
        self.may_give(&role, allowed, &root)?;
        self.cosigned(&role, allowed, &blocks)?;
        datalog::affordable(&self.programs(&blocks)?).map_err(CredentialError::Form)?;
        let stated = stages(allowed, &blocks, &root)?.into_iter().flatten();
        let layers: Vec<_> = allowed.fields.iter().cloned().chain(stated).collect();
        let rights = meet(&layers);
        let identity = Identity { root, principal: name_of(&blocks), role, expires: rights.expires };
        Ok(Verified { identity, blocks, layers, rights })
    }

    /// Decides on a session at `now`: its time, its node, and all checks that name no module.
    ///
    /// # Errors
    ///
    /// Returns the reason why the session may do nothing now.
    pub fn admit_session(&self, session: &Verified, now: u64) -> Result<(), Denied> {
        let rights = &session.rights;
        let origin = || "the credential".to_owned();
        if now < rights.not_before {
            let (now, since) = (time::show(now), time::show(rights.not_before));
            return Err(Denied::Early { now, since, origin: origin() });
        }
        if now >= rights.expires {
            let (now, until) = (time::show(now), time::show(rights.expires));
            return Err(Denied::Expired { now, until, origin: origin() });
        }
        if let Some(nodes) = rights.nodes.as_ref().filter(|nodes| !nodes.contains(&self.name)) {
            return Err(Denied::Place {
                what: "node",
                here: self.name.clone(),
                allowed: nodes.iter().cloned().collect::<Vec<_>>().join(", "),
                origin: origin(),
            });
        }
        let mut programs = self.programs(&session.blocks)?;
        datalog::forget(&mut programs, &Given::OF_MODULE);
        if programs.iter().all(|p| p.checks.is_empty()) {
            return Ok(());
        }
        let of_policy = programs.pop().unwrap_or_default().to_string();
        let root = session.blocks.first();
        let facts = facts::of_session(&self.name, now, root.and_then(|root| root.principal.as_deref()));
        datalog::authorize(root.map_or("", |root| &root.id), &programs, &facts, &of_policy)
            .map_err(Denied::Check)
    }

    /// Decides on one operation of a session: all checks hold for the module, and the module's rights are
    /// within those that the session's credential would give it.
    ///
    /// # Errors
    ///
    /// Returns the reason why the session may not do this.
    pub fn admit_operation(&self, session: &Verified, on: &Operation<'_>) -> Result<(), Denied> {
        self.admit_session(session, on.now)?;
        let request = GrantRequest {
            credential: None,
            module: on.module,
            place: on.place,
            now: on.now,
            possession: None,
        };
        let has_checks =
            session.blocks.iter().any(|b| !b.checks.checks.is_empty()) || !self.checks.is_empty();
        if has_checks {
            self.evaluate(&session.blocks, &request)?;
        }
        let whom = (session.identity.principal.clone(), session.identity.role.clone());
        let grant = self.finish(&request, session.layers.clone(), whom, Vec::new(), Vec::new(), "")?;
        match unconditional(on.rights).within(&unconditional(&grant.rights)) {
            true => Ok(()),
            false => Err(Denied::Beyond { module: on.module.name.clone() }),
        }
    }

    /// Returns the rights that the credential of a module leaves it, whether or not it may run now.
    ///
    /// # Errors
    ///
    /// Returns an error if the credential cannot be read, or if its root or its role is not known.
    pub fn rights_of(&self, credential: &Credential, module: &ModuleRequest) -> Result<Rights, Denied> {
        let blocks = credential.blocks()?;
        let role = blocks.first().and_then(|b| b.role.as_deref()).ok_or(Denied::Missing { what: "role" })?;
        let (role, root) = (self.role(role)?, self.verified(credential)?);
        let stated = stages(role, &blocks, &root)?.into_iter().flatten();
        let fields = stated.chain(module.fields.iter().cloned());
        Ok(meet(&role.fields.iter().cloned().chain(fields).collect::<Vec<_>>()))
    }
}

/// Returns what a module may do, without the conditions of time, place and code, which are decided by
/// themselves for each operation, and without what capsules may do.
fn unconditional(rights: &Rights) -> Rights {
    let Rights { not_before, expires, nodes, interfaces, code, .. } = Rights::all();
    let Rights { capsule, capsule_instructions, capsule_bytes, capsule_copies, .. } = Rights::all();
    let Rights { soft_state, ask, .. } = Rights::all();
    let rights = rights.clone();
    let rights = Rights { not_before, expires, nodes, interfaces, code, ..rights };
    let rights = Rights { capsule, capsule_instructions, capsule_bytes, capsule_copies, ..rights };
    Rights { soft_state, ask, ..rights }
}

/// Returns the name of a principal with its holders. The holder that the root named is the root's statement
/// about the principal itself, who may change keys.
pub(crate) fn name_of(blocks: &[Block]) -> String {
    let path = principal_path(blocks);
    let mut holders = blocks.iter().skip(1).filter_map(|b| b.holder).peekable();
    if holders.peek().is_none() {
        return path;
    }
    let digest = holders.fold(Sha256::new_with_prefix(b"flame holders 1\0"), |digest, holder| {
        digest.chain_update(holder.to_string()).chain_update(b"\0")
    });
    format!("{path}#{}", &hex(&digest.finalize())[..DIGITS])
}
