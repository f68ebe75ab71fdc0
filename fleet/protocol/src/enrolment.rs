//! How nodes become members of a fleet, and how they leave it.

use crate::signed::{Key, Verify};
use crate::signed::{hex, unhex};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

const PURPOSE: &str = "fleet enrolment";
/// The most bytes of a node's name.
pub const MAX_NAME: usize = 64;

/// The hash of a token. The token itself is shown once and not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct TokenHash(pub [u8; 32]);

impl TokenHash {
    /// Returns the hash of a token of 32 random bytes.
    pub fn of(token: &[u8; 32]) -> Self {
        Self(Sha256::new_with_prefix(b"flame token 1\0").chain_update(token).finalize().into())
    }
}

impl From<TokenHash> for String {
    fn from(hash: TokenHash) -> Self {
        hex(&hash.0)
    }
}

impl TryFrom<String> for TokenHash {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        unhex(&text).map(Self).ok_or("expected 64 hexadecimal digits")
    }
}

/// An invitation to apply once, by its token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Invitation {
    /// Seconds since 1970.
    expires: u64,
    /// The only name for which it is valid, if one was stated.
    name: Option<String>,
    /// The application that used it.
    used: Option<(String, Key)>,
}

/// The state of a node in the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// It applied with this key, and waits for the operator.
    Applied(Key),
    Member(Key),
    /// It left, was refused, or its key is lost. The key is never accepted again.
    Gone(Key),
}

/// The reason why a change of the members is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnrolmentError {
    #[error("the token is not known: ask the operator for one (`flame fleet enrol`)")]
    Unknown,
    #[error("the token expired at {expires}, and it is {now} (seconds since 1970): ask for a new one")]
    Expired { expires: u64, now: u64 },
    #[error(
        "the token was used by node {by:?}: if that was not yours, the token was stolen; refuse that node"
    )]
    Used { by: String },
    #[error("the token is for node {expected:?}, and {found:?} applied")]
    Name { found: String, expected: String },
    #[error(
        "{found:?}, of {length} bytes, is no name of a node: choose one of 1 to {MAX_NAME} letters, digits, - \
         or _"
    )]
    Form { found: String, length: usize },
    #[error("the application of node {name:?} is not signed by its key")]
    Signature { name: String },
    #[error("a node {name:?} is in the fleet: choose another name, or let it leave first")]
    Taken { name: String },
    #[error("the key of node {name:?} was given up before: make a new one")]
    Gone { name: String },
    #[error("node {name:?} has not applied with key {key:?}")]
    Other { name: String, key: Key },
}

/// The members of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enrolment {
    invitations: BTreeMap<TokenHash, Invitation>,
    nodes: BTreeMap<String, Standing>,
    /// Keys that were given up.
    gone: Vec<Key>,
}

/// Returns the bytes that a node signs to apply ([`Enrolment::apply`]).
pub fn application(token: &[u8; 32], fleet: &str, name: &str) -> Vec<u8> {
    // Lengths keep the parts apart.
    let length = |text: &str| (text.len() as u64).to_le_bytes();
    [&TokenHash::of(token).0[..], &length(fleet), fleet.as_bytes(), &length(name), name.as_bytes()].concat()
}

impl Enrolment {
    /// Invites a node: only this one, if a name is given.
    pub fn invite(&mut self, token: TokenHash, name: Option<String>, expires: u64) {
        self.invitations.insert(token, Invitation { expires, name, used: None });
    }

    /// Takes the application of a node, with a token and a signature by its key over [`application`]. The
    /// same application again, after a lost answer, changes nothing.
    ///
    /// # Errors
    ///
    /// Returns the reason why it is refused.
    #[allow(clippy::too_many_arguments)]
    pub fn apply(
        &mut self,
        token: &[u8; 32],
        fleet: &str,
        name: &str,
        key: &Key,
        signature: &[u8; 64],
        now: u64,
        verify: &impl Verify,
    ) -> Result<Standing, EnrolmentError> {
        let invitation = self.invitations.get_mut(&TokenHash::of(token)).ok_or(EnrolmentError::Unknown)?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !(1..=MAX_NAME).contains(&name.len()) || !name.bytes().all(is_plain) {
            let found = name.chars().take(MAX_NAME).collect();
            return Err(EnrolmentError::Form { found, length: name.len() });
        }
        let owned = || name.to_owned();
        if !verify.verifies(key, PURPOSE, &application(token, fleet, name), signature) {
            return Err(EnrolmentError::Signature { name: owned() });
        }
        if let Some((by, used)) = &invitation.used {
            let standing = self.nodes.get(name).copied();
            return match standing.filter(|_| (by.as_str(), used) == (name, key)) {
                Some(standing) => Ok(standing),
                None => Err(EnrolmentError::Used { by: by.clone() }),
            };
        }
        if invitation.expires <= now {
            return Err(EnrolmentError::Expired { expires: invitation.expires, now });
        }
        if let Some(expected) = invitation.name.as_ref().filter(|expected| *expected != name) {
            return Err(EnrolmentError::Name { found: owned(), expected: expected.clone() });
        }
        if matches!(self.nodes.get(name), Some(Standing::Applied(_) | Standing::Member(_))) {
            return Err(EnrolmentError::Taken { name: owned() });
        }
        if self.gone.contains(key) {
            return Err(EnrolmentError::Gone { name: owned() });
        }
        invitation.used = Some((owned(), *key));
        let standing = Standing::Applied(*key);
        self.nodes.insert(owned(), standing);
        Ok(standing)
    }

    /// Makes a node a member, after the operator compared its key.
    ///
    /// # Errors
    ///
    /// Returns an error if it has not applied with this key.
    pub fn approve(&mut self, name: &str, key: &Key) -> Result<(), EnrolmentError> {
        match self.nodes.get_mut(name) {
            Some(standing) if *standing == Standing::Applied(*key) => *standing = Standing::Member(*key),
            Some(Standing::Member(member)) if member == key => {}
            _ => return Err(EnrolmentError::Other { name: name.to_owned(), key: *key }),
        }
        Ok(())
    }

    /// Ends a membership or an application: the node leaves, is refused, or its key is lost. It may apply
    /// again with another key and another token.
    ///
    /// # Errors
    ///
    /// Returns an error if the node has another key.
    pub fn end(&mut self, name: &str, key: &Key) -> Result<(), EnrolmentError> {
        match self.nodes.get_mut(name) {
            Some(standing @ (Standing::Applied(_) | Standing::Member(_))) if standing.key() == *key => {
                *standing = Standing::Gone(*key);
                self.gone.push(*key);
                Ok(())
            }
            _ => Err(EnrolmentError::Other { name: name.to_owned(), key: *key }),
        }
    }

    /// Forgets invitations that have expired.
    pub fn tidy(&mut self, now: u64) {
        self.invitations.retain(|_, invitation| now < invitation.expires);
    }

    /// Returns the key of a member.
    pub fn member(&self, name: &str) -> Option<Key> {
        self.nodes.get(name).and_then(|standing| match standing {
            Standing::Member(key) => Some(*key),
            Standing::Applied(_) | Standing::Gone(_) => None,
        })
    }

    /// Returns all nodes by name.
    pub fn nodes(&self) -> &BTreeMap<String, Standing> {
        &self.nodes
    }
}

impl Standing {
    pub fn key(&self) -> Key {
        match self {
            Self::Applied(key) | Self::Member(key) | Self::Gone(key) => *key,
        }
    }
}

/// Signs an application, as a node.
pub fn apply_with(secret: &crate::Secret, token: &[u8; 32], fleet: &str, name: &str) -> [u8; 64] {
    secret.sign(PURPOSE, &application(token, fleet, name))
}
