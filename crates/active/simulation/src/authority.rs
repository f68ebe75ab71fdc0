//! Certificates of a simulated network: a statement with the keyed digest of the root, and the static key in
//! it.

use flame_active_link::{Certificates, Identity, Own, Peer, Presented, Role, Wrong, public_key};
use flame_capsule::{Grant, Limits, Payer, Place, hash_of};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

const LENGTH: usize = 32 + 8 + 8 + 16 + 1;

/// The root's judgement.
#[derive(Clone)]
pub struct Authority {
    pub share: Limits,
    pub revoked: Rc<RefCell<BTreeSet<Place>>>,
}

/// What a certificate states.
#[derive(Clone, Copy, Debug)]
pub struct Statement {
    pub place: Place,
    pub payer: Payer,
    pub role: Role,
    pub until: u64,
}

fn digest(root: u8, statement: &[u8]) -> [u8; 32] {
    hash_of(&[&[root; 32][..], statement].concat()).0
}

/// Returns the secret half of a machine's static key.
#[must_use]
pub fn secret(place: Place) -> [u8; 32] {
    hash_of(&[&b"secret"[..], &place.0.to_le_bytes()].concat()).0
}

/// Returns an identity with a certificate for the static key of `key_of`, signed by a root; 0 is the true
/// one.
#[must_use]
pub fn own(statement: &Statement, key_of: Place, root: u8) -> Own {
    let mut chain = public_key(&secret(key_of)).to_vec();
    chain.extend_from_slice(&statement.place.0.to_le_bytes());
    chain.extend_from_slice(&statement.until.to_le_bytes());
    chain.extend_from_slice(&statement.payer.0);
    chain.push(u8::from(statement.role == Role::Node));
    let tag = digest(root, &chain);
    chain.extend_from_slice(&tag);
    Own { key: secret(statement.place), identity: Identity { chain, ..Identity::default() } }
}

impl Certificates for Authority {
    fn verify(&self, presented: &Presented<'_>, now: u64) -> Result<Peer, Wrong> {
        let (statement, tag) = presented.chain.split_at_checked(LENGTH).ok_or(Wrong::Untrusted)?;
        if tag != digest(0, statement) {
            return Err(Wrong::Untrusted);
        }
        let number = |at: usize| u64::from_le_bytes(statement[at..at + 8].try_into().unwrap_or_default());
        let (place, until) = (Place(number(32)), number(40));
        let payer = Payer(statement[48..64].try_into().unwrap_or_default());
        let role = if statement[64] == 1 { Role::Node } else { Role::Host };
        if statement[..32] != presented.key[..] {
            return Err(Wrong::NotHolder);
        }
        if self.revoked.borrow().contains(&place) {
            return Err(Wrong::Revoked);
        }
        if until <= now {
            return Err(Wrong::Expired);
        }
        let (share, grant, chain) = (self.share, Grant::ALL, presented.digest());
        Ok(Peer { payer, place, role, until, share, grant, chain })
    }
}
