//! Signatures of modules: a file next to the module, with one line for each signer.
//!
//! Each line of `MODULE.wasm.sig` holds a public key and 128 hexadecimal digits: an Ed25519 signature over
//! the SHA-256 of the whole file, including the manifest.

use crate::hex::{hex, unhex};
use crate::key::{PublicKey, Secret};
use crate::revoked::append_line;
use std::io::Read;
use std::path::{Path, PathBuf};

const PURPOSE: &str = "module";
/// Maximum length of the file, in bytes.
const MAX_BYTES: u64 = 64 << 10;

/// The reason why a file of signatures cannot be read, with its place.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    #[error("signatures {path}: {error}")]
    Io { path: String, error: std::io::Error },
    #[error("signatures {path}, line {line}: {reason}")]
    Line { path: String, line: usize, reason: String },
}

/// Returns the path of the signatures of `module`.
pub fn file_of(module: &Path) -> PathBuf {
    let mut path = module.as_os_str().to_owned();
    path.push(".sig");
    path.into()
}

/// Adds a signature over the module whose SHA-256 is `hash`, and returns the path of the file of signatures.
///
/// # Errors
///
/// Returns an error if the file of signatures cannot be opened or written.
pub fn sign_module(module: &Path, hash: &[u8; 32], secret: &Secret) -> Result<PathBuf, SignatureError> {
    let path = file_of(module);
    let io = |error| SignatureError::Io { path: path.display().to_string(), error };
    let line = format!("{} {}", secret.public(), hex(&secret.sign(PURPOSE, hash)));
    append_line(&path, &line).map_err(io)?;
    Ok(path)
}

/// Returns the signers of a module. An invalid signature is an error, not a missing signer.
///
/// # Errors
///
/// Returns an error if the file cannot be read, or one with the line of a signature that does not fit the
/// module. A missing file has no signers.
pub fn signers(module: &Path, hash: &[u8; 32]) -> Result<Vec<PublicKey>, SignatureError> {
    let path = file_of(module);
    match std::fs::File::open(&path) {
        Ok(file) => read_signers(file, &path, hash),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(SignatureError::Io { path: path.display().to_string(), error }),
    }
}

/// Reads the signers from an open file of signatures.
///
/// # Errors
///
/// Returns an error if the file cannot be read, or one with the line of a signature that does not fit the
/// module.
pub fn read_signers(from: impl Read, path: &Path, hash: &[u8; 32]) -> Result<Vec<PublicKey>, SignatureError> {
    let io = |error| SignatureError::Io { path: path.display().to_string(), error };
    let mut text = String::new();
    from.take(MAX_BYTES).read_to_string(&mut text).map_err(io)?;
    parse(&text, hash).map_err(|(line, reason)| SignatureError::Line {
        path: path.display().to_string(),
        line,
        reason,
    })
}

fn parse(text: &str, hash: &[u8; 32]) -> Result<Vec<PublicKey>, (usize, String)> {
    let mut keys = Vec::new();
    for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |reason: &str| (n + 1, reason.to_owned());
        let parts = line.trim().split_once(' ').and_then(|(key, s)| Some((key, unhex(s.trim())?)));
        let (key, signature) = parts.ok_or_else(|| wrong("expected a public key and a signature"))?;
        let key = PublicKey::parse(key).map_err(|e| (n + 1, e.to_string()))?;
        if !key.verifies(PURPOSE, hash, &signature) {
            return Err(wrong("the signature does not fit the module: one of the two was changed"));
        }
        keys.push(key);
    }
    Ok(keys)
}
