//! The principal of a connection: who presents a credential, before a module is named.

use crate::credential::{Credential, Signer};
use crate::grant::{Answer, Challenge, Denied, possession, principal_path};
use crate::key::PublicKey;
use crate::layer::meet;
use crate::policy::Policy;
use crate::time;

/// The hash that an answer names if it is for a connection and not for a module. No file has it.
pub const SESSION: [u8; 32] = [0; 32];

/// A principal that proved to hold a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The root that signed the credential. Two roots may use one name for two people.
    pub root: PublicKey,
    /// The principal, and after `/` the one to whom the credential was handed on.
    pub principal: String,
    pub role: String,
    /// The end of the credential in seconds since 1970.
    pub expires: u64,
}

impl Policy {
    /// Returns the principal that presents `credential`, whose holder answered `challenge` for [`SESSION`].
    ///
    /// # Errors
    ///
    /// Returns an error if the credential is not of this node's roots, is revoked, not valid now or not for
    /// this node, if it names no holder, or if the answer is not of the holder.
    pub fn identify(
        &self,
        credential: &Credential,
        shown: (&Challenge, &Answer),
        now: u64,
    ) -> Result<Identity, Denied> {
        let identity = self.claim(credential, now)?;
        possession(&credential.blocks()?, credential, &SESSION, Some(shown))?;
        Ok(identity)
    }

    /// Returns the principal that a credential names. Its signatures are verified, its possession is not.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Policy::identify`], except those of the answer.
    pub fn claim(&self, credential: &Credential, now: u64) -> Result<Identity, Denied> {
        let root = self.verified(credential)?;
        let blocks = credential.blocks()?;
        self.not_revoked(&blocks, &root)?;
        let first = blocks.first().filter(|b| b.signer == Signer::Root);
        let first = first.ok_or(Denied::Missing { what: "block" })?;
        let role = first.role.clone().ok_or(Denied::Missing { what: "role" })?;
        first.principal.as_deref().ok_or(Denied::Missing { what: "principal" })?;
        let allowed = self.role(&role)?;
        self.may_give(&role, allowed, &root)?;
        self.cosigned(&role, allowed, &blocks)?;
        if blocks.iter().all(|b| b.holder.is_none()) {
            // Anyone who read it on its way could use it.
            return Err(Denied::Missing {
                what: "holder, without which it is not accepted over a connection",
            });
        }
        let layers: Vec<_> =
            allowed.fields.iter().chain(blocks.iter().flat_map(|b| &b.fields)).cloned().collect();
        let rights = meet(&layers);
        if now < rights.not_before {
            let (now, since) = (time::show(now), time::show(rights.not_before));
            return Err(Denied::Early { now, since, origin: "the credential".to_owned() });
        }
        if now >= rights.expires {
            let (now, until) = (time::show(now), time::show(rights.expires));
            return Err(Denied::Expired { now, until, origin: "the credential".to_owned() });
        }
        if let Some(nodes) = rights.nodes.as_ref().filter(|nodes| !nodes.contains(&self.name)) {
            return Err(Denied::Place {
                what: "node",
                here: self.name.clone(),
                allowed: nodes.iter().cloned().collect::<Vec<_>>().join(", "),
                origin: "the credential".to_owned(),
            });
        }
        Ok(Identity { root, principal: principal_path(&blocks), role, expires: rights.expires })
    }
}
