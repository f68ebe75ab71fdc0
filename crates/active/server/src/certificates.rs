//! The credentials of nodes and hosts as certificates: chains of Biscuit, whose holder signed the static key.

use flame_active_link::{Certificates, Identity, Own, Peer, Presented, Role, Wrong, public_key};
use flame_capsule::{Limits, Payer, Place, hash_of};
use flame_trust::{Answer, Challenge, Credential, Denied, Policy, PublicKey, SESSION, Secret};

/// The purpose of the static key, and of its signature.
const PURPOSE: &str = "flame active link 1";

/// A node's policy as the judge of certificates.
pub struct Judge {
    policy: Policy,
    /// The role of nodes.
    nodes: String,
    share: Limits,
}

/// Returns who pays for the capsules of a principal of a root.
#[must_use]
pub fn payer_of(root: &PublicKey, principal: &str) -> Payer {
    let digest = hash_of(format!("{root}\0{principal}").as_bytes()).0;
    Payer(digest.first_chunk().copied().unwrap_or_default())
}

/// Returns the place of the node whose credential has this principal of a root.
#[must_use]
pub fn place_of(root: &PublicKey, principal: &str) -> Place {
    let digest = hash_of(format!("place\0{root}\0{principal}").as_bytes()).0;
    Place(digest.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
}

/// Returns the statement that a holder signs: this static key is mine, for links.
fn statement(key: &[u8; 32]) -> Challenge {
    Challenge::on_channel(key, PURPOSE.as_bytes())
}

/// Returns the identity of the holder of a credential. The static key follows from the holder's.
pub fn own(credential: &Credential, secret: &Secret) -> Own {
    let key = secret.derive(PURPOSE, b"static key");
    let answer = statement(&public_key(&key)).answer(secret, credential, &SESSION);
    let proof = [&answer.signature[..], answer.key.to_string().as_bytes()].concat();
    let chain = credential.text().into_bytes();
    Own { key, identity: Identity { chain, proof, attestation: Vec::new() } }
}

impl Judge {
    #[must_use]
    pub fn new(policy: Policy, nodes: String, share: Limits) -> Self {
        Self { policy, nodes, share }
    }

    /// Judges by another policy from now on.
    pub fn set(&mut self, policy: Policy) {
        self.policy = policy;
    }
}

impl Certificates for Judge {
    fn verify(&self, presented: &Presented<'_>, now: u64) -> Result<Peer, Wrong> {
        let text = std::str::from_utf8(presented.chain).map_err(|_| Wrong::Untrusted)?;
        let credential = Credential::parse(text).map_err(|_| Wrong::Untrusted)?;
        let (signature, key) = presented.proof.split_first_chunk().ok_or(Wrong::NotHolder)?;
        let key = std::str::from_utf8(key).map_err(|_| Wrong::NotHolder)?;
        let key = PublicKey::parse(key).map_err(|_| Wrong::NotHolder)?;
        let answer = Answer { key, signature: *signature };
        let identity = self.policy.identify(&credential, (&statement(presented.key), &answer), now / 1000);
        let identity = identity.map_err(|denied| match denied {
            Denied::Expired { .. } | Denied::Early { .. } => Wrong::Expired,
            Denied::Revoked { .. } => Wrong::Revoked,
            Denied::Possession { .. } | Denied::HandedOn { .. } => Wrong::NotHolder,
            _ => Wrong::Untrusted,
        })?;
        let role = if identity.role == self.nodes { Role::Node } else { Role::Host };
        Ok(Peer {
            payer: payer_of(&identity.root, &identity.principal),
            place: place_of(&identity.root, &identity.principal),
            role,
            until: identity.expires.saturating_mul(1000),
            share: self.share,
            chain: presented.digest(),
        })
    }
}
