//! Certificate chains for tests: a root signs a holder's rights, and each holder the next one's.

use ed25519_dalek::{Signature, Signer, SigningKey, Verifier, VerifyingKey};
use flame_active_link::{Certificates, Identity, Own, Peer, Presented, Role, Wrong, public_key};
use flame_capsule::{Grant, Limits, Payer, Place};
use std::collections::BTreeSet;

const PART: usize = 32 + 8 + 8 + 64;

/// What a chain of two certificates states.
#[derive(Clone, Debug)]
pub struct Chain {
    pub until: [u64; 2],
    pub instructions: [u64; 2],
    pub root: u8,
    /// The node whose static key the proof is for.
    pub proof_for: Option<u8>,
}

impl Default for Chain {
    fn default() -> Self {
        let until = [crate::NOW + 7_200_000; 2];
        Self { until, instructions: [1000; 2], root: 100, proof_for: None }
    }
}

fn key(number: u8) -> SigningKey {
    SigningKey::from_bytes(&[number; 32])
}

fn secret(number: u8) -> [u8; 32] {
    [number ^ 0x55; 32]
}

/// Returns the identity of a node with a chain from the root.
pub fn node(number: u8, chain: &Chain) -> Own {
    let holders = [key(50), key(number)];
    let mut signer = key(chain.root);
    let mut bytes = Vec::new();
    for (i, holder) in holders.iter().enumerate() {
        let mut part = holder.verifying_key().to_bytes().to_vec();
        part.extend_from_slice(&chain.until[i].to_le_bytes());
        part.extend_from_slice(&chain.instructions[i].to_le_bytes());
        let signature = signer.sign(&part);
        bytes.extend_from_slice(&part);
        bytes.extend_from_slice(&signature.to_bytes());
        signer = holder.clone();
    }
    let of = chain.proof_for.unwrap_or(number);
    let proof = signer.sign(&[b"link", &public_key(&secret(of))[..]].concat()).to_bytes().to_vec();
    Own { key: secret(number), identity: Identity { chain: bytes, proof, attestation: Vec::new() } }
}

#[derive(Default)]
pub struct Authority {
    pub revoked: BTreeSet<[u8; 32]>,
    pub needs_attestation: bool,
}

impl Certificates for Authority {
    fn verify(&self, presented: &Presented<'_>, now: u64) -> Result<Peer, Wrong> {
        let mut signer = key(100).verifying_key();
        let (mut until, mut instructions) = (u64::MAX, u64::MAX);
        if presented.chain.is_empty() || !presented.chain.len().is_multiple_of(PART) {
            return Err(Wrong::Untrusted);
        }
        for part in presented.chain.chunks(PART) {
            let signature = Signature::from_slice(&part[48..]).map_err(|_| Wrong::Untrusted)?;
            signer.verify(&part[..48], &signature).map_err(|_| Wrong::Untrusted)?;
            let holder: [u8; 32] = part[..32].try_into().unwrap();
            let number = |at: usize| u64::from_le_bytes(part[at..at + 8].try_into().unwrap());
            if number(32) > until || number(40) > instructions {
                return Err(Wrong::Widened);
            }
            (until, instructions) = (number(32), number(40));
            if self.revoked.contains(&holder) {
                return Err(Wrong::Revoked);
            }
            signer = VerifyingKey::from_bytes(&holder).map_err(|_| Wrong::Untrusted)?;
        }
        if until <= now {
            return Err(Wrong::Expired);
        }
        let proof = Signature::from_slice(presented.proof).map_err(|_| Wrong::NotHolder)?;
        let statement = [b"link", &presented.key[..]].concat();
        signer.verify(&statement, &proof).map_err(|_| Wrong::NotHolder)?;
        if self.needs_attestation && presented.attestation.is_empty() {
            return Err(Wrong::Attestation);
        }
        let mut payer = [0; 16];
        payer.copy_from_slice(&signer.to_bytes()[..16]);
        let share = Limits { instructions, ..Limits::default() };
        let (payer, chain) = (Payer(payer), presented.digest());
        Ok(Peer { payer, place: Place(1), role: Role::Node, until, share, grant: Grant::ALL, chain })
    }
}

/// Returns the holder's key of a node.
pub fn holder(number: u8) -> [u8; 32] {
    key(number).verifying_key().to_bytes()
}
