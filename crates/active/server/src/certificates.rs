//! The credentials of nodes and hosts as certificates: chains of Biscuit, whose holder signed the static key.

use flame_active_link::{Certificates, Identity, Own, Peer, Presented, Role, Wrong, public_key};
use flame_capsule::{Calls, Grant, Limits, Named, Payer, Place, hash_of, interface, name};
use flame_trust::{
    Answer, CapsuleCall, Challenge, Credential, Denied, Policy, PublicKey, Rights, SESSION, Secret,
};

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

/// Returns what the rights of a role and a credential of `root` leave capsules, or `None` if they name more
/// services, nodes or interfaces than travel with a capsule.
#[must_use]
pub fn grant_of(rights: &Rights, root: &PublicKey) -> Option<Grant> {
    let call = |call: &CapsuleCall| match call {
        CapsuleCall::Send => Calls::SEND,
        CapsuleCall::Deliver => Calls::DELIVER,
        CapsuleCall::Leave => Calls::LEAVE,
        CapsuleCall::Service => Calls::SERVICE,
        CapsuleCall::Times => Calls::TIMES,
    };
    let named = |set: Option<Vec<u64>>| set.map_or(Some(Named::ALL), Named::some);
    // No service has a longer name than a capsule can state.
    let services = rights.ask.as_ref().map(|names| names.iter().filter_map(|text| name(text)).collect());
    let places = rights.nodes.as_ref().map(|names| names.iter().map(|name| place_of(root, name).0).collect());
    let interfaces =
        rights.interfaces.as_ref().map(|names| names.iter().map(|name| interface(name)).collect());
    Some(Grant {
        calls: rights.capsule.iter().map(call).fold(Calls::NONE, Calls::with),
        instructions: rights.capsule_instructions,
        bytes: rights.capsule_bytes,
        copies: rights.capsule_copies,
        state: rights.soft_state,
        services: named(services)?,
        places: named(places)?,
        interfaces: named(interfaces)?,
    })
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
        let verified = self.policy.present(&credential, (&statement(presented.key), &answer));
        let admitted = verified.and_then(|verified| {
            self.policy.admit_session(&verified, now / 1000)?;
            Ok(verified)
        });
        let verified = admitted.map_err(|denied| match denied {
            Denied::Expired { .. } | Denied::Early { .. } => Wrong::Expired,
            Denied::Revoked { .. } => Wrong::Revoked,
            Denied::Possession { .. } | Denied::HandedOn { .. } => Wrong::NotHolder,
            _ => Wrong::Untrusted,
        })?;
        let (identity, rights) = (&verified.identity, verified.rights());
        let role = if identity.role == self.nodes { Role::Node } else { Role::Host };
        Ok(Peer {
            payer: payer_of(&identity.root, &identity.principal),
            place: place_of(&identity.root, &identity.principal),
            role,
            until: identity.expires.saturating_mul(1000),
            share: self.share,
            // A node's own credential narrows all capsules that the node passes on.
            grant: grant_of(rights, &identity.root).ok_or(Wrong::Wide)?,
            chain: presented.digest(),
        })
    }
}
