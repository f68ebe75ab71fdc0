//! Ed25519 keys: files, text forms, and signatures that include their purpose.

use crate::hex::{hex, unhex};
use biscuit_auth::{Algorithm, KeyPair};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use flame_files::Others;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use std::io::{Read, Write};
use std::path::Path;
use zeroize::Zeroizing;

/// Maximum number of bytes to read of a key file.
const MAX_FILE: u64 = 4096;

/// A public key. Its text is `ed25519/` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey([u8; 32]);

/// The reason why a key cannot be used. It never contains a secret.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("key {path}: {error}")]
    Io { path: String, error: std::io::Error },
    #[error(
        "key {path}: {reason}; expected an Ed25519 secret key in PEM: make one with `flame key new FILE`"
    )]
    Form { path: String, reason: String },
    #[error(
        "{found:?} is no public key: expected ed25519/ and 64 hexadecimal digits (`flame key show FILE`)"
    )]
    Public { found: String },
}

impl PublicKey {
    /// Reads a public key from its text, `ed25519/` and 64 hexadecimal digits.
    ///
    /// # Errors
    ///
    /// Returns an error if the text has another form, or is no point of the curve.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let digits = text.strip_prefix("ed25519/").and_then(unhex);
        let key = digits.and_then(|d| d.try_into().ok()).map(Self).filter(|key| key.dalek().is_some());
        key.ok_or_else(|| KeyError::Public { found: text.chars().take(80).collect() })
    }

    pub(crate) fn biscuit(&self) -> Option<biscuit_auth::PublicKey> {
        biscuit_auth::PublicKey::from_bytes(&self.0, Algorithm::Ed25519).ok()
    }

    /// Returns `None` for a key of another kind.
    pub(crate) fn of(key: biscuit_auth::PublicKey) -> Option<Self> {
        let ed25519 = matches!(key, biscuit_auth::PublicKey::Ed25519(_));
        key.to_bytes().try_into().ok().filter(|_| ed25519).map(Self)
    }

    fn dalek(&self) -> Option<VerifyingKey> {
        VerifyingKey::from_bytes(&self.0).ok()
    }

    /// Returns a hint at the key that signed. Nothing depends on it.
    pub(crate) fn id(&self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_le_bytes([a, b, c, d])
    }

    /// Returns whether `signature` was made with this key over `message` for `purpose`.
    pub fn verifies(&self, purpose: &str, message: &[u8], signature: &[u8]) -> bool {
        let (Some(key), Ok(signature)) = (self.dalek(), Signature::from_slice(signature)) else {
            return false;
        };
        key.verify_strict(&signed(purpose, message), &signature).is_ok()
    }
}

/// Returns the bytes to sign. They include the purpose, so that a signature for one purpose is invalid for
/// all others.
fn signed(purpose: &str, message: &[u8]) -> Vec<u8> {
    [b"flame ", purpose.as_bytes(), b" 1\0", message].concat()
}

/// A secret key.
pub struct Secret(KeyPair);

impl Secret {
    /// Creates a new random Ed25519 key.
    pub fn generate() -> Self {
        Self(KeyPair::new_with_algorithm(Algorithm::Ed25519))
    }

    /// Reads a PEM file, which only its owner may be able to read.
    ///
    /// # Errors
    ///
    /// Returns an error if others have access to the file, if it cannot be read, or if it does not hold a
    /// key.
    pub fn from_file(path: &Path) -> Result<Self, KeyError> {
        let shown = || path.display().to_string();
        let io = |error| KeyError::Io { path: shown(), error };
        let file = flame_files::open(path, Others::Nothing).map_err(io)?;
        Self::read(file).map_err(|reason| KeyError::Form { path: shown(), reason })
    }

    /// Reads PEM text from an open file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, is no text, or does not hold a key.
    pub fn read(from: impl Read) -> Result<Self, String> {
        let mut text = Zeroizing::new(String::new());
        from.take(MAX_FILE).read_to_string(&mut text).map_err(|e| e.to_string())?;
        Self::from_pem(&text)
    }

    /// Reads a key from PEM text.
    ///
    /// # Errors
    ///
    /// Returns an error if the text does not hold an Ed25519 secret key.
    pub fn from_pem(text: &str) -> Result<Self, String> {
        let key = KeyPair::from_private_key_pem_with_algorithm(text, Algorithm::Ed25519);
        key.map(Self).map_err(|_| "it does not hold one".to_owned())
    }

    /// Creates a file that only its owner may read, and writes the key to it.
    ///
    /// # Errors
    ///
    /// Returns an error if the path exists, or if the file cannot be written.
    pub fn write_new(&self, path: &Path) -> Result<(), KeyError> {
        let io = |error| KeyError::Io { path: path.display().to_string(), error };
        let pem = self.0.to_private_key_pem();
        let pem = pem.map_err(|e| io(std::io::Error::other(e.to_string())))?;
        let mut file = flame_files::create_new(path).map_err(io)?;
        file.write_all(pem.as_bytes()).map_err(io)
    }

    pub fn public(&self) -> PublicKey {
        PublicKey::of(self.0.public()).unwrap_or(PublicKey([0; 32]))
    }

    /// Signs a message. `purpose` separates kinds of messages: a signature for one is not valid for another.
    pub fn sign(&self, purpose: &str, message: &[u8]) -> [u8; 64] {
        match self.seed() {
            Some(seed) => SigningKey::from_bytes(&seed).sign(&signed(purpose, message)).to_bytes(),
            None => [0; 64],
        }
    }

    /// Derives 32 bytes for `purpose`, which only owners of the key can compute.
    pub fn derive(&self, purpose: &str, message: &[u8]) -> [u8; 32] {
        let seed = self.seed().unwrap_or_default();
        // HMAC takes keys of any length.
        let mac =
            Hmac::<Sha256>::new_from_slice(&*seed).map(|mac| mac.chain_update(signed(purpose, message)));
        mac.map_or([0; 32], |mac| mac.finalize().into_bytes().into())
    }

    fn seed(&self) -> Option<Zeroizing<[u8; 32]>> {
        self.0.private().to_bytes().as_slice().try_into().ok().map(Zeroizing::new)
    }

    pub(crate) fn biscuit(&self) -> &KeyPair {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret(of {})", self.public())
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ed25519/{}", hex(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
