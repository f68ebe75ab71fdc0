use crate::Made;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bumped whenever checks, bounds, rewriting or the engine's configuration change.
const GENERATION: u32 = 7;
const MAC_BYTES: usize = 32;
const KEY_BYTES: usize = 32;

/// The cache cannot be used. Remedy: another folder, or none.
#[derive(Debug, thiserror::Error)]
#[error("code cache {path}: {error} (choose another folder with FLAME_CACHE)")]
pub struct CacheError {
    pub path: String,
    pub error: io::Error,
}

/// Compiled code by content hash. An entry is `HMAC-SHA256(key, name ‖ code) ‖ code`, so code that
/// was not written by a holder of the key, or under another name, is never run.
pub struct Cache {
    folder: PathBuf,
    key: [u8; KEY_BYTES],
}

impl Cache {
    /// Opens or makes the folder, private to this user, and its key.
    pub fn open(folder: &Path) -> Result<Self, CacheError> {
        let fail = |error| CacheError { path: folder.display().to_string(), error };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(fail)?;
        let path = folder.join("key");
        if !path.exists() {
            let mut key = [0; KEY_BYTES];
            getrandom::fill(&mut key).map_err(|e| fail(io::Error::other(e.to_string())))?;
            // Whole or not at all, and the first of two processes wins.
            let temporary = write_new(folder, &key).map_err(fail)?;
            let linked = fs::hard_link(&temporary, &path);
            fs::remove_file(&temporary).map_err(fail)?;
            match linked {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(fail(e)),
                _ => {}
            }
        }
        let key = fs::read(&path).map_err(fail)?;
        let key = key.try_into().map_err(|_| {
            fail(io::Error::other(format!("{} is not {KEY_BYTES} bytes: remove the folder", path.display())))
        })?;
        Ok(Self { folder: folder.to_owned(), key })
    }

    /// The code of `name`; nothing if there is none or its MAC does not fit.
    pub fn get(&self, name: &str) -> Option<Vec<u8>> {
        let mut entry = fs::read(self.folder.join(name)).ok()?;
        if entry.len() < MAC_BYTES {
            return None;
        }
        let code = entry.split_off(MAC_BYTES);
        self.mac(name, &code).verify_slice(&entry).ok()?;
        Some(code)
    }

    pub fn put(&self, name: &str, code: &[u8]) -> Result<(), CacheError> {
        let tag = self.mac(name, code).finalize().into_bytes();
        let entry = [&tag[..], code].concat();
        write_new(&self.folder, &entry)
            .and_then(|temporary| fs::rename(temporary, self.folder.join(name)))
            .map_err(|error| CacheError { path: self.folder.display().to_string(), error })
    }

    /// Remembers that a module's bound was violated.
    pub fn record_violation(&self, hash: &[u8; 32]) -> Result<(), CacheError> {
        self.put(&violation_name(hash), b"violated")
    }

    /// The file that says so, if this module's bound was ever violated here, whatever version ran it.
    pub fn violation(&self, hash: &[u8; 32]) -> Option<PathBuf> {
        let name = violation_name(hash);
        self.get(&name).map(|_| self.folder.join(name))
    }

    fn mac(&self, name: &str, code: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes keys of any length");
        mac.update(name.as_bytes());
        mac.update(&[0]);
        mac.update(code);
        mac
    }
}

/// The file name of what `compile` makes of a module.
pub(crate) fn entry_name(hash: &[u8; 32], made: Made) -> String {
    let hex: String = hash.iter().map(|b| format!("{b:02x}")).collect();
    let version = env!("CARGO_PKG_VERSION");
    format!("{hex}-{version}-{GENERATION}-{made:?}").to_lowercase()
}

fn violation_name(hash: &[u8; 32]) -> String {
    let hex: String = hash.iter().map(|b| format!("{b:02x}")).collect();
    format!("{hex}-violated")
}

fn write_new(folder: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|e| io::Error::other(e.to_string()))?;
    let path = folder.join(format!("new-{:016x}", u64::from_le_bytes(random)));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(bytes)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_put_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path()).unwrap();
        cache.put("a", b"code").unwrap();
        assert_eq!(Cache::open(folder.path()).unwrap().get("a").as_deref(), Some(&b"code"[..]));
        assert_eq!(cache.get("b"), None);

        // Renamed, changed in any byte, or cut short: as if it were not there.
        let entry = fs::read(folder.path().join("a")).unwrap();
        fs::write(folder.path().join("b"), &entry).unwrap();
        assert_eq!(cache.get("b"), None);
        for i in 0..entry.len() {
            let mut changed = entry.clone();
            changed[i] ^= 1;
            fs::write(folder.path().join("a"), &changed).unwrap();
            assert_eq!(cache.get("a"), None, "byte {i}");
            fs::write(folder.path().join("a"), &entry[..i]).unwrap();
            assert_eq!(cache.get("a"), None, "cut at {i}");
        }

        // Nor is one module's violation another's.
        cache.record_violation(&[7; 32]).unwrap();
        let file = cache.violation(&[7; 32]).unwrap();
        assert_eq!(cache.violation(&[8; 32]), None);
        fs::copy(&file, folder.path().join(violation_name(&[8; 32]))).unwrap();
        assert_eq!(cache.violation(&[8; 32]), None);

        // Another node's key does not open it.
        let other = tempfile::tempdir().unwrap();
        let other = Cache::open(other.path()).unwrap();
        fs::write(other.folder.join("a"), &entry).unwrap();
        assert_eq!(other.get("a"), None);
    }
}
