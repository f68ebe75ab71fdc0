//! Keys, and statements that the fleet signs.

use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{DecodePrivateKey as _, EncodePrivateKey as _};
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use std::fmt;

/// The most bytes of a signed statement.
pub const MAX_SIGNED: usize = 256 << 10;
const MAGIC: [u8; 4] = *b"FLS1";
const DELEGATION: &str = "fleet delegation";
const STATEMENT: &str = "fleet statement";

/// An Ed25519 public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub [u8; 32]);

impl Key {
    /// Reads a key from its text, `ed25519/` and 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        text.strip_prefix("ed25519/").and_then(unhex).map(Self)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let expected = "a key: ed25519/ and 64 hexadecimal digits";
        Self::parse(&text).ok_or_else(|| D::Error::custom(format!("{text:?}, expected {expected}")))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ed25519/{}", hex(&self.0))
    }
}

/// Verifies signatures. [`Ed25519`] does; a simulation may remember its answers.
pub trait Verify {
    /// Returns whether `key` made `signature` over `message` for `purpose`.
    fn verifies(&self, key: &Key, purpose: &str, message: &[u8], signature: &[u8; 64]) -> bool;
}

/// Verifies Ed25519 signatures strictly.
pub struct Ed25519;

impl Verify for Ed25519 {
    fn verifies(&self, key: &Key, purpose: &str, message: &[u8], signature: &[u8; 64]) -> bool {
        let signature = Signature::from_bytes(signature);
        let key = VerifyingKey::from_bytes(&key.0);
        key.is_ok_and(|key| key.verify_strict(&signed(purpose, message), &signature).is_ok())
    }
}

/// Returns the bytes that are signed, in the form of all keys of FLAME: a signature for one purpose is valid
/// for no other.
fn signed(purpose: &str, message: &[u8]) -> Vec<u8> {
    [b"flame ", purpose.as_bytes(), b" 1\0", message].concat()
}

/// Returns the bytes that a fleet signs. They name the delegation, so that a statement does not move to a
/// later one of the same key.
fn stated(delegation: &[u8], body: &[u8]) -> Vec<u8> {
    [&Sha256::digest(delegation)[..], body].concat()
}

/// A secret key of a root, a fleet or a node.
pub struct Secret(SigningKey);

impl Secret {
    /// Makes the key of a seed of 32 random bytes.
    pub fn new(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// Reads the PEM text of a key file (`flame key new`).
    pub fn from_pem(text: &str) -> Option<Self> {
        SigningKey::from_pkcs8_pem(text).ok().map(Self)
    }

    /// Returns the text of a key file.
    pub fn to_pem(&self) -> String {
        // A seed of 32 bytes cannot fail.
        self.0.to_pkcs8_pem(LineEnding::LF).map_or_else(|_| String::new(), |pem| pem.to_string())
    }

    pub(crate) fn sign_bytes(&self, bytes: &[u8]) -> [u8; 64] {
        self.0.sign(bytes).to_bytes()
    }

    pub fn public(&self) -> Key {
        Key(self.0.verifying_key().to_bytes())
    }

    /// Signs a message for a purpose.
    pub fn sign(&self, purpose: &str, message: &[u8]) -> [u8; 64] {
        self.0.sign(&signed(purpose, message)).to_bytes()
    }

    /// Signs a delegation, as a root.
    pub fn delegate(&self, delegation: &Delegation) -> Delegated {
        let body = to_json(delegation);
        let signature = self.sign(DELEGATION, &body);
        Delegated { body, signature }
    }

    /// Signs a statement, as a fleet that a root delegates.
    pub fn state(&self, delegated: &Delegated, statement: &Statement) -> Vec<u8> {
        let body = to_json(statement);
        let signature = self.sign(STATEMENT, &stated(&delegated.body, &body));
        let mut bytes = MAGIC.to_vec();
        for (body, signature) in [(&delegated.body, &delegated.signature), (&body, &signature)] {
            bytes.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
            bytes.extend_from_slice(body);
            bytes.extend_from_slice(signature);
        }
        bytes
    }
}

/// The permission of a root for a key to sign for a fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delegation {
    pub fleet: String,
    /// 64 hexadecimal digits.
    pub key: String,
    /// Grows with each delegation. A node that knows a later one accepts no earlier one.
    pub number: u64,
    /// Seconds since 1970.
    pub expires: u64,
}

/// A delegation with its signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delegated {
    body: Vec<u8>,
    signature: [u8; 64],
}

impl Delegated {
    /// Returns the bytes of its file.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.signature[..], &self.body].concat()
    }

    /// Reads the bytes of a file, and its content, which is verified by those who follow it.
    pub fn read(bytes: &[u8]) -> Option<(Self, Delegation)> {
        let (signature, body) = bytes.split_first_chunk()?;
        let delegation = serde_json::from_slice(body).ok()?;
        Some((Self { body: body.to_vec(), signature: *signature }, delegation))
    }
}

/// What a fleet states to its nodes. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Statement {
    Intent(Intent),
    Revocations(Revocations),
    Beacon(Beacon),
}

/// The wish that a module runs, or does not, on nodes that meet a condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intent {
    /// The name of the installed module in the fleet. A node follows the latest intent of each target that
    /// reaches it, in whatever order they come: the one of the latest delegation, rollout and counter.
    pub target: String,
    pub counter: u64,
    pub expires: u64,
    /// The seconds without contact after which the module stops.
    pub lease: u64,
    /// The number of the revocations, of this delegation, that a node must have before it follows.
    pub revocations: u64,
    /// A condition over the node's labels ([`crate::Condition`]).
    pub r#where: String,
    /// The number of the rollout, which grows with each of a target, and the highest order in it of the nodes
    /// that follow ([`crate::rollout::order`]). The others keep the intent that they have.
    pub rollout: u64,
    pub reach: u64,
    pub action: Action,
}

/// The content of an intent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Action {
    /// Runs the module with this SHA-256, under the credential with these revocation ids.
    Run {
        module: String,
        credential: Vec<String>,
        parameters: Vec<(String, String)>,
    },
    Stop,
}

/// All that is revoked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revocations {
    /// Grows with each list of a delegation. A node never goes back to a lower number, nor to an earlier
    /// delegation. A delegation begins with a list: without one of it, or of a later one, nothing runs.
    pub number: u64,
    /// Hashes of modules and ids of credentials.
    pub revoked: Vec<String>,
    /// The lowest number of a delegation whose intents are followed.
    pub delegations: u64,
}

/// The sign of life of a fleet: it renews leases, and states the time and the current revocations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beacon {
    pub time: u64,
    /// The number of the current revocations of this delegation.
    pub revocations: u64,
    /// Random numbers of nodes that asked for contact.
    pub answers: Vec<u64>,
}

/// The reason why a signed statement is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignedError {
    #[error("byte {at}: {found}, expected {expected}")]
    Form { at: usize, found: String, expected: &'static str },
    #[error("the {what} cannot be read: {reason}; update this node if the fleet's release is newer")]
    Content { what: &'static str, reason: String },
    #[error("the {what} is not signed by {by}")]
    Signature { what: &'static str, by: &'static str },
    #[error("the delegation is for fleet {found:?}, expected {expected:?}")]
    Fleet { found: String, expected: String },
    #[error("the delegation has number {found}, expected at least {floor}: the fleet's key was rotated")]
    Rotated { found: u64, floor: u64 },
    #[error(
        "the {what} expired at {expires}, and it is {now} (seconds since 1970): have the fleet sign again"
    )]
    Expired { what: &'static str, expires: u64, now: u64 },
}

/// A statement whose signatures are valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub statement: Statement,
    pub delegation: Delegation,
}

/// What a node demands of a signed statement.
#[derive(Clone, Copy, Debug)]
pub struct Demands<'a> {
    pub root: &'a Key,
    pub fleet: &'a str,
    /// The lowest number of a delegation.
    pub floor: u64,
    /// Seconds since 1970.
    pub now: u64,
}

impl Demands<'_> {
    /// Reads a signed statement and verifies its chain: root, delegation, fleet key, statement.
    ///
    /// # Errors
    ///
    /// Returns the first reason why it is refused. Content is read only after its signature was verified.
    pub fn read(&self, bytes: &[u8], verify: &impl Verify) -> Result<Verified, SignedError> {
        let form = |at, found: String, expected| SignedError::Form { at, found, expected };
        if bytes.len() > MAX_SIGNED {
            return Err(form(0, format!("{} bytes", bytes.len()), "at most 262144"));
        }
        let rest = bytes.strip_prefix(&MAGIC[..]);
        let mut rest = rest.ok_or_else(|| form(0, "other bytes".to_owned(), "the letters FLS1"))?;
        let (delegation, by_root) = part(&mut rest, bytes.len())?;
        let (body, by_fleet) = part(&mut rest, bytes.len())?;
        if !rest.is_empty() {
            return Err(form(bytes.len() - rest.len(), format!("{} bytes more", rest.len()), "the end"));
        }
        if !verify.verifies(self.root, DELEGATION, delegation, by_root) {
            return Err(SignedError::Signature { what: "delegation", by: "the fleet's root" });
        }
        let delegated = delegation;
        let delegation: Delegation = from_json("delegation", delegated)?;
        if delegation.fleet != self.fleet {
            let expected = self.fleet.to_owned();
            return Err(SignedError::Fleet { found: delegation.fleet, expected });
        }
        if delegation.number < self.floor {
            return Err(SignedError::Rotated { found: delegation.number, floor: self.floor });
        }
        if delegation.expires <= self.now {
            let (expires, now) = (delegation.expires, self.now);
            return Err(SignedError::Expired { what: "delegation", expires, now });
        }
        let key = unhex(&delegation.key).map(Key).ok_or_else(|| SignedError::Content {
            what: "delegation",
            reason: "its key is not 64 hexadecimal digits".to_owned(),
        })?;
        if !verify.verifies(&key, STATEMENT, &stated(delegated, body), by_fleet) {
            return Err(SignedError::Signature { what: "statement", by: "the key of its delegation" });
        }
        Ok(Verified { statement: from_json("statement", body)?, delegation })
    }
}

/// Takes a body and its signature.
fn part<'a>(rest: &mut &'a [u8], whole: usize) -> Result<(&'a [u8], &'a [u8; 64]), SignedError> {
    let at = whole - rest.len();
    let short = |expected| SignedError::Form { at, found: "the end".to_owned(), expected };
    let (length, after) = rest.split_first_chunk::<4>().ok_or_else(|| short("a length"))?;
    let length = u32::from_le_bytes(*length) as usize;
    let (body, after) = after.split_at_checked(length).ok_or_else(|| short("as many bytes as stated"))?;
    let (signature, after) = after.split_first_chunk::<64>().ok_or_else(|| short("a signature"))?;
    *rest = after;
    Ok((body, signature))
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    // Strings, numbers and lists cannot fail.
    serde_json::to_vec(value).unwrap_or_default()
}

fn from_json<'a, T: Deserialize<'a>>(what: &'static str, body: &'a [u8]) -> Result<T, SignedError> {
    serde_json::from_slice(body).map_err(|e| SignedError::Content { what, reason: e.to_string() })
}

/// Returns hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads 64 hexadecimal digits.
pub fn unhex(text: &str) -> Option<[u8; 32]> {
    let is_good = text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let byte = |n: usize| u8::from_str_radix(text.get(2 * n..2 * n + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..32).filter(|_| is_good).map(byte).collect();
    bytes?.try_into().ok()
}
