//! Revocations: a text file with one revocation per line, read again when it changes.

use crate::key::PublicKey;
use flame_files::Others;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Maximum length of the file in bytes, enough for about 200,000 revocations.
const MAX_BYTES: u64 = 32 << 20;

/// Revoked blocks by their ids, and revoked keys. In the file, `#` begins a comment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revoked {
    ids: BTreeSet<String>,
    keys: BTreeSet<PublicKey>,
}

/// The reason why a list of revocations cannot be read or extended.
#[derive(Debug, thiserror::Error)]
pub enum RevokedError {
    #[error("revocations {path}: {error}")]
    Io { path: String, error: std::io::Error },
    #[error(
        "revocations {path}: the policy names this file, and it is not there: put back the list, or make an empty one \
         (touch {path}) if nothing was ever revoked"
    )]
    Missing { path: String },
    #[error("revocations {path}, line {line}: {found:?}: expected `id HEX` or `key ed25519/HEX`")]
    Line { path: String, line: usize, found: String },
    #[error("revocations {path}: more than {MAX_BYTES} bytes")]
    Large { path: String },
}

/// Appends `line` to a file as a separate line, even if the file does not end with a line break.
pub(crate) fn append_line(path: &Path, line: &str) -> std::io::Result<()> {
    let mut file = flame_files::append(path, Others::Read)?;
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    let before = if last == [b'\n'] { "" } else { "\n" };
    file.write_all(format!("{before}{line}\n").as_bytes())?;
    file.sync_all()
}

impl Revoked {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is missing: it might have been removed, and nothing would be revoked.
    pub fn read(path: &Path) -> Result<Self, RevokedError> {
        let shown = || path.display().to_string();
        let io = |error| RevokedError::Io { path: shown(), error };
        let mut text = String::new();
        let file = flame_files::open(path, Others::Read).map_err(|e| match e.kind() {
            ErrorKind::NotFound => RevokedError::Missing { path: shown() },
            _ => io(e),
        })?;
        file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(io)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(RevokedError::Large { path: shown() });
        }
        Self::parse(&text).map_err(|(line, found)| RevokedError::Line { path: shown(), line, found })
    }

    /// Parses the text of the file.
    ///
    /// # Errors
    ///
    /// Returns the number of the invalid line and its text.
    pub fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut all = Self::default();
        for (n, line) in text.lines().enumerate() {
            let wrong = || (n + 1, line.chars().take(80).collect());
            let stated = line.split('#').next().unwrap_or_default().trim();
            match stated.split_once(' ').map(|(what, which)| (what, which.trim())) {
                None if stated.is_empty() => {}
                Some(("id", id)) if !id.is_empty() && id.bytes().all(|b| b.is_ascii_hexdigit()) => {
                    all.ids.insert(id.to_ascii_lowercase());
                }
                Some(("key", key)) => {
                    all.keys.insert(PublicKey::parse(key).map_err(|_| wrong())?);
                }
                _ => return Err(wrong()),
            }
        }
        Ok(all)
    }

    /// Adds the revocations of a text in the form of the file.
    ///
    /// # Errors
    ///
    /// Returns an error if a line is invalid.
    pub fn add(&mut self, text: &str) -> Result<(), RevokedError> {
        let path = || "added".to_owned();
        let more =
            Self::parse(text).map_err(|(line, found)| RevokedError::Line { path: path(), line, found })?;
        self.ids.extend(more.ids);
        self.keys.extend(more.keys);
        Ok(())
    }

    /// Removes what a line of the file revokes.
    pub fn remove(&mut self, line: &str) {
        let Ok(of_line) = Self::parse(line) else { return };
        self.ids.retain(|id| !of_line.ids.contains(id));
        self.keys.retain(|key| !of_line.keys.contains(key));
    }

    /// Returns whether the block of a credential with this identifier is revoked.
    pub fn has_id(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    pub fn has_key(&self, key: &PublicKey) -> bool {
        self.keys.contains(key)
    }

    /// Returns whether all that a line of the file revokes is revoked.
    pub fn has_line(&self, line: &str) -> bool {
        Self::parse(line)
            .is_ok_and(|of_line| of_line.ids.is_subset(&self.ids) && of_line.keys.is_subset(&self.keys))
    }

    pub fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.keys.is_empty()
    }

    /// Appends a line to the file, which is created if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be opened or written, or belongs to another user.
    pub fn append(path: &Path, line: &str) -> Result<(), RevokedError> {
        append_line(path, line).map_err(|error| RevokedError::Io { path: path.display().to_string(), error })
    }
}
