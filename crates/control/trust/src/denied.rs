//! The reasons for which a module gets no grant, each with a text for everybody and one for the operator.

use crate::credential::CredentialError;
use crate::datalog::Failed;
use crate::key::PublicKey;

/// The reason why a module gets no grant. Its text states what is missing and who could give it.
///
/// `Display` is the text for everybody. It repeats what the credential and the request state, and nothing
/// that only the policy does: no names of roots, of other roles or of keys, and no checks of the node.
/// [`Denied::operator`] is the text for the node's operator.
#[derive(Debug, thiserror::Error)]
pub enum Denied {
    #[error(transparent)]
    Credential(#[from] CredentialError),
    #[error(
        "the credential is not signed by a root of this node, or was changed since: ask this node's operator for one"
    )]
    Root { roots: String, remedy: String },
    #[error("the credential is revoked: {what}")]
    Revoked { what: String },
    #[error("the credential's root block states no {what}: ask its root for a whole one")]
    Missing { what: &'static str },
    #[error("role {role:?} is not known on this node: ask the credential's root for another one")]
    Role { role: String, known: String },
    #[error(
        "the credential's root may not give the role {role:?} on this node: ask for another role or root"
    )]
    RoleRoot { role: String, root: String, allowed: String },
    #[error("role {role:?} needs a second signature by {name}: flame grant cosign --name {name}")]
    Cosign { role: String, name: String, key: PublicKey },
    #[error(
        "credential, block {block}: it names a new holder, but the holder so far, {holder}, did not sign it"
    )]
    HandedOn { block: usize, holder: PublicKey },
    #[error("only the holder of {holder} may use this credential: {reason}")]
    Possession { holder: PublicKey, reason: &'static str },
    #[error("too early: it is {now}, and {origin} is valid from {since}")]
    Early { now: String, since: String, origin: String },
    #[error("expired: it is {now}, and {origin} is valid until {until}: ask for a new one")]
    Expired { now: String, until: String, origin: String },
    #[error("not for this {what}: here it is {here:?}, and {origin} names {allowed}")]
    Place { what: &'static str, here: String, allowed: String, origin: String },
    #[error("not for this module ({hash}, {signers}): {origin} names {allowed}")]
    Code { hash: String, signers: String, allowed: String, origin: String },
    #[error(
        "{module} uses {call}, which is not granted: {origin} leaves it out of calls; {who} could give it"
    )]
    Call { module: String, call: &'static str, origin: String, who: String },
    #[error(
        "{module} uses send, and no filter states what it may send: the policy or the credential's root has to, as send = \"icmp\""
    )]
    Unfiltered { module: String },
    #[error(
        "{module} uses {call}, and nothing states the names of the {kind}s: the policy or the credential's root has to, as {verb} = {name:?}"
    )]
    Unnamed { module: String, call: &'static str, kind: &'static str, verb: &'static str, name: String },
    #[error("{module} may not {act} {name:?}: {origin} names {allowed}")]
    Named { module: String, act: &'static str, name: String, allowed: String, origin: String },
    #[error("too many filters: {0}")]
    Filters(String),
    #[error(
        "credential, block {block}: the filter {filter:?} of a cosigner may read what {by} changes before it: it \
         would name a pseudonym, so sign before that, or filter by other fields"
    )]
    Pseudonym { block: usize, filter: String, by: String },
    #[error("a check fails: {0}")]
    Check(Failed),
    #[error(
        "{module} has rights that this session's credential does not give: use the one that it was installed with"
    )]
    Beyond { module: String },
    #[error("this node cannot decide on modules now: ask its operator")]
    Node(String),
}

impl Denied {
    /// Returns the text for the node's operator, which repeats what the policy states.
    pub fn operator(&self) -> String {
        match self {
            Self::Root { roots, remedy } => format!(
                "the credential is not signed by any of this node's roots ({roots}), or was changed since: ask \
                 {remedy} for one"
            ),
            Self::Role { role, known } => {
                format!("role {role:?} is not known on this node, which has {known}")
            }
            Self::RoleRoot { role, root, allowed } => {
                format!("{root} may not give the role {role:?}: the policy names {allowed}")
            }
            Self::Cosign { name, key, .. } => format!("{self} (the key {key} of {name})"),
            Self::Check(failed) => format!("a check fails: {}", failed.operator()),
            Self::Node(reason) => reason.clone(),
            other => other.to_string(),
        }
    }
}
