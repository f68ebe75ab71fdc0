//! What each end presents in the exchange, and the one call that judges it.

use crate::Cause;
use flame_capsule::{Grant, Hash, Limits, Payer, Place, hash_of};

/// What a node or host presents: opaque here, in the form of its credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The certificate chain: the credential as bytes.
    pub chain: Vec<u8>,
    /// The holder's signature over its static key of the exchange.
    pub proof: Vec<u8>,
    /// The statement of a measured start; empty without one.
    pub attestation: Vec<u8>,
}

/// An identity as it was presented, by the end that has the secret half of `key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presented<'a> {
    pub chain: &'a [u8],
    pub proof: &'a [u8],
    pub attestation: &'a [u8],
    /// The static key of the exchange.
    pub key: &'a [u8; 32],
}

/// What a peer may state about capsules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Its capsules are its own: it pays for them.
    Host,
    /// It passes on capsules of others, and vouches for who pays.
    Node,
}

/// A peer whose certificates hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub payer: Payer,
    pub place: Place,
    pub role: Role,
    /// When the first of its certificates ends, in milliseconds since 1970.
    pub until: u64,
    /// What this node accepts from the peer in a second, of all capsules together; `hops` is the most of one.
    pub share: Limits,
    /// What its credential leaves its capsules: those that it sends as a host, or passes on as a node.
    pub grant: Grant,
    /// The digest of the chain, by which revocations find the session.
    pub chain: Hash,
}

/// What is wrong with certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    Expired,
    Revoked,
    /// A certificate claims more than the one above it.
    Widened,
    /// The chain begins with no trusted root, or cannot be read.
    Untrusted,
    /// The proof is not the holder's, or is for another key.
    NotHolder,
    /// The attestation is missing or not accepted.
    Attestation,
    /// The certificate names more services or places than can travel with a capsule.
    Wide,
}

/// The judge of certificates. It is asked once for each end of an exchange, never for a packet.
pub trait Certificates {
    /// Returns the peer, if its chain begins with a trusted root, only narrows, holds at `now` (milliseconds
    /// since 1970), and its last holder has signed the key.
    ///
    /// # Errors
    ///
    /// Returns what is wrong.
    fn verify(&self, presented: &Presented<'_>, now: u64) -> Result<Peer, Wrong>;
}

impl From<Wrong> for Cause {
    fn from(wrong: Wrong) -> Self {
        match wrong {
            Wrong::Expired => Self::Expired,
            Wrong::Revoked => Self::Revoked,
            Wrong::Widened => Self::Widened,
            Wrong::Untrusted => Self::Untrusted,
            Wrong::NotHolder => Self::NotHolder,
            Wrong::Attestation => Self::Attestation,
            Wrong::Wide => Self::Wide,
        }
    }
}

impl Identity {
    /// Appends the three parts, each with its length in two bytes.
    pub(crate) fn write(&self, into: &mut Vec<u8>) {
        for part in [&self.chain, &self.proof, &self.attestation] {
            into.extend_from_slice(&u16::try_from(part.len()).unwrap_or(u16::MAX).to_le_bytes());
            into.extend_from_slice(part);
        }
    }

    pub(crate) fn length(&self) -> usize {
        6 + self.chain.len() + self.proof.len() + self.attestation.len()
    }
}

impl<'a> Presented<'a> {
    /// Reads what [`Identity::write`] has written.
    pub(crate) fn read(mut bytes: &'a [u8], key: &'a [u8; 32]) -> Option<Self> {
        let mut part = || {
            let (length, rest) = bytes.split_first_chunk()?;
            let (part, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
            bytes = rest;
            Some(part)
        };
        let (chain, proof, attestation) = (part()?, part()?, part()?);
        bytes.is_empty().then_some(Self { chain, proof, attestation, key })
    }

    /// Returns the digest of the chain.
    #[must_use]
    pub fn digest(&self) -> Hash {
        hash_of(self.chain)
    }
}
