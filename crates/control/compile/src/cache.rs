use crate::Artifact;
use flame_bounds::Costs;
use flame_files::Folder;
use flame_plan::CutOff;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The version of the results. It increases whenever checks, bounds, rewriting or the engine's configuration
/// change.
const GENERATION: u32 = 35;
const MAC_BYTES: usize = 32;
const KEY_BYTES: usize = 32;
/// Maximum size of an entry, in bytes. Larger code is compiled each time.
const MAX_ENTRY: u64 = 1 << 30;
/// Maximum size of all entries of a tenant, in bytes.
const MAX_OF_TENANT: u64 = 512 << 20;
/// The number of hexadecimal digits by which entries of tenants differ.
const PREFIX_DIGITS: usize = 16;

/// The error of a cache that cannot be used. The remedy is another folder, or no cache.
#[derive(Debug, thiserror::Error)]
#[error("code cache {path}: {error} (choose another folder with FLAME_CACHE)")]
pub struct CacheError {
    pub path: String,
    pub error: io::Error,
}

/// A cache of compiled code by content hash. An entry is `HMAC-SHA256(key, name ‖ code) ‖ code`, so code that
/// was not written by a holder of the key, or under another name, is never run. Only this user may be able to
/// write folder, key and entries ([`flame_files`]): another user's folder could contain a key that the other
/// user knows.
///
/// Each principal has entries of its own ([`Cache::of`]): whether another one has installed a module shows in
/// nothing that is read here.
#[derive(Clone)]
pub struct Cache {
    folder: Arc<Folder>,
    /// The folder's path, for errors.
    path: String,
    key: [u8; KEY_BYTES],
    /// The user for whom entries of principals are kept apart, or nothing.
    caller: String,
    /// The principal whose entries these are, or `None` for the operator.
    owner: Option<Owner>,
}

#[derive(Clone)]
struct Owner {
    /// The beginning of the names of all entries of the principal that a root named, and of those to whom it
    /// handed its credential on.
    prefix: String,
    principal: String,
}

impl Cache {
    /// Opens or creates the folder, private to this user, and its key.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder or its key cannot be created or read, is not private to this user, or
    /// if the key has another length.
    pub fn open(folder: &Path) -> Result<Self, CacheError> {
        let shown = || folder.display().to_string();
        let fail = |error| CacheError { path: shown(), error };
        let opened = Folder::private(folder).map_err(fail)?;
        let mut key = [0; KEY_BYTES];
        getrandom::fill(&mut key).map_err(|e| fail(io::Error::other(e.to_string())))?;
        let of_key = |error: io::Error| fail(io::Error::new(error.kind(), format!("its key: {error}")));
        let found = match opened.read("key", KEY_BYTES as u64).map_err(of_key)? {
            Some(found) => found,
            None => {
                // The first of two processes wins; both use its key.
                opened.put_new("key", &key).map_err(fail)?;
                opened.read("key", KEY_BYTES as u64).map_err(of_key)?.unwrap_or_default()
            }
        };
        let key = found.try_into().map_err(|_| {
            of_key(io::Error::other(format!("it is not {KEY_BYTES} bytes: remove the folder")))
        })?;
        Ok(Self { folder: Arc::new(opened), path: shown(), key, caller: String::new(), owner: None })
    }

    /// Returns the cache with other entries of principals for each `caller`: users without a credential are
    /// one principal.
    #[must_use]
    pub fn for_caller(self, caller: &str) -> Self {
        Self { caller: caller.to_owned(), ..self }
    }

    /// Returns the part of this cache that belongs to `principal`. All principals of a `tenant` together have
    /// at most 512 MiB, of which the oldest entries give way.
    #[must_use]
    pub fn of(&self, tenant: &str, principal: &str) -> Self {
        let prefix = format!("{}-", &hex(&self.keyed(&["tenant", &self.caller, tenant]))[..PREFIX_DIGITS]);
        Self { owner: Some(Owner { prefix, principal: principal.to_owned() }), ..self.clone() }
    }

    /// Returns the file name for an artifact of a module, or of another `identity`. The name of a principal's
    /// entry shows neither the module nor the principal.
    pub(crate) fn name(&self, identity: &[u8; 32], artifact: Artifact) -> String {
        let (of, version) = (hex(identity), env!("CARGO_PKG_VERSION"));
        let of = match &self.owner {
            Some(Owner { prefix, principal }) => {
                format!("{prefix}{}", hex(&self.keyed(&["principal", &self.caller, principal, &of])))
            }
            None => of,
        };
        format!("{of}-{version}-{GENERATION}-{artifact:?}").to_lowercase()
    }

    /// Returns a digest of texts that only the holder of the key can compute.
    fn keyed(&self, texts: &[&str]) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes keys of any length");
        for text in texts {
            mac.update(&(text.len() as u64).to_le_bytes());
            mac.update(text.as_bytes());
        }
        mac.finalize().into_bytes().into()
    }

    /// Returns the code of `name`, or `None` if it is missing or its MAC is invalid.
    pub fn get(&self, name: &str) -> Option<Vec<u8>> {
        let found = self.entry(name);
        tracing::debug!(folder = self.path, name, hit = found.is_some(), "cache is asked");
        found
    }

    fn entry(&self, name: &str) -> Option<Vec<u8>> {
        let mut entry = self.folder.read(name, MAX_ENTRY).ok()??;
        let (tag, code) = entry.split_at_checked(MAC_BYTES)?;
        self.mac(name, code).verify_slice(tag).ok()?;
        entry.drain(..MAC_BYTES);
        Some(entry)
    }

    /// Stores the code of `name` with its MAC.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written. An existing entry is then unchanged.
    pub fn put(&self, name: &str, code: &[u8]) -> Result<(), CacheError> {
        if let Some(owner) = &self.owner
            && !self.make_room(&owner.prefix, code.len() as u64)
        {
            return Ok(());
        }
        let tag = self.mac(name, code).finalize().into_bytes();
        let entry = [&tag[..], code].concat();
        self.folder.put(name, &entry).map_err(|error| CacheError { path: self.path.clone(), error })
    }

    /// Removes the oldest entries whose names begin with `prefix` until there is room for one of `bytes`
    /// bytes. Returns whether there is.
    fn make_room(&self, prefix: &str, bytes: u64) -> bool {
        let of = |entry: std::fs::DirEntry| {
            let file = entry
                .metadata()
                .ok()
                .filter(|_| entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()))?;
            Some((file.modified().ok()?, file.len(), entry.path()))
        };
        let entries = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        let mut all: Vec<_> = entries.filter_map(of).collect();
        all.sort();
        let mut sum = all.iter().map(|(_, bytes, _)| bytes).sum::<u64>();
        for (_, of_entry, path) in all {
            if sum.saturating_add(bytes) <= MAX_OF_TENANT || std::fs::remove_file(path).is_err() {
                break;
            }
            sum -= of_entry;
        }
        sum.saturating_add(bytes) <= MAX_OF_TENANT
    }

    /// Removes all entries except those of the modules with these hashes in their principals' parts of the
    /// cache, as made without estimates of time, and the records of modules that were cut off.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be listed.
    pub fn keep_only(&self, used: &[(Self, [u8; 32])]) -> Result<(), CacheError> {
        let used: BTreeSet<String> = used.iter().flat_map(|(of, hash)| of.entries_of(hash)).collect();
        let fail = |error| CacheError { path: self.path.clone(), error };
        for entry in std::fs::read_dir(&self.path).map_err(fail)?.flatten() {
            let name = entry.file_name();
            let is_kept = name
                .to_str()
                .is_some_and(|name| name == "key" || name.ends_with(VIOLATED) || used.contains(name));
            if !is_kept {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Ok(())
    }

    /// Removes the entries of a module, except a record that it was cut off.
    pub fn forget(&self, hash: &[u8; 32]) {
        for name in self.entries_of(hash) {
            // A file that stays is removed with all that are not used.
            let _ = std::fs::remove_file(Path::new(&self.path).join(name));
        }
    }

    /// Returns the bytes of the entries of the module with this hash.
    pub fn bytes_of(&self, hash: &[u8; 32]) -> u64 {
        let size = |name| std::fs::metadata(Path::new(&self.path).join(name)).map_or(0, |file| file.len());
        self.entries_of(hash).map(size).sum()
    }

    /// Records that a module was cut off.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written.
    pub fn record_cut_off(&self, hash: &[u8; 32], cause: CutOff) -> Result<(), CacheError> {
        let text: &[u8] = match cause {
            CutOff::Bound => BOUND,
            CutOff::Time => b"time",
        };
        self.put(&cut_off_name(hash), text)
    }

    /// Returns the reason why this module was cut off on this machine, by any version, and the file that
    /// records that, if there is one.
    pub fn cut_off(&self, hash: &[u8; 32]) -> Option<(CutOff, PathBuf)> {
        let name = cut_off_name(hash);
        let cause = if self.get(&name)? == BOUND { CutOff::Bound } else { CutOff::Time };
        Some((cause, Path::new(&self.path).join(name)))
    }

    /// Returns the names of all entries that a module can have without estimates of time.
    fn entries_of(&self, hash: &[u8; 32]) -> impl Iterator<Item = String> {
        let (hash, analysed) = (*hash, identity_of(hash, None));
        Artifact::ALL.into_iter().map(move |artifact| match artifact {
            Artifact::Verdict | Artifact::Report | Artifact::Unanalysed => self.name(&analysed, artifact),
            Artifact::Bounded | Artifact::Metered | Artifact::Unchecked | Artifact::ModuleInfo => {
                self.name(&hash, artifact)
            }
        })
    }

    fn mac(&self, name: &str, code: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes keys of any length");
        mac.update(name.as_bytes());
        mac.update(&[0]);
        mac.update(code);
        mac
    }
}

/// The end of the names of records of modules that were cut off. Those that end in `-violated` are of
/// watchdogs that counted time in the kernel as the module's, and are not read.
const VIOLATED: &str = "-violated-in-user-mode";
/// The contents of such a record for a bound.
const BOUND: &[u8] = b"violated";

/// Returns the hash of the inputs of an analysis: the hash of a module, and the machine's costs if estimates
/// are requested.
pub(crate) fn identity_of(hash: &[u8; 32], costs: Option<&Costs>) -> [u8; 32] {
    // Estimates depend on the calibration of this machine.
    Sha256::digest(format!("{hash:?} {costs:?}")).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn cut_off_name(hash: &[u8; 32]) -> String {
    format!("{}{VIOLATED}", hex(hash))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn only_what_was_put_comes_back() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("cache");
        let cache = Cache::open(&folder).unwrap();
        cache.put("a", b"code").unwrap();
        assert_eq!(Cache::open(&folder).unwrap().get("a").as_deref(), Some(&b"code"[..]));
        assert_eq!(cache.get("b"), None);

        // An entry that was renamed, changed in any byte, or cut short is treated as missing.
        let entry = fs::read(folder.join("a")).unwrap();
        fs::write(folder.join("b"), &entry).unwrap();
        assert_eq!(cache.get("b"), None);
        for i in 0..entry.len() {
            let mut changed = entry.clone();
            changed[i] ^= 1;
            fs::write(folder.join("a"), &changed).unwrap();
            assert_eq!(cache.get("a"), None, "byte {i}");
            fs::write(folder.join("a"), &entry[..i]).unwrap();
            assert_eq!(cache.get("a"), None, "cut at {i}");
        }

        // The violation of one module does not count for another.
        cache.record_cut_off(&[7; 32], CutOff::Bound).unwrap();
        let (cause, file) = cache.cut_off(&[7; 32]).unwrap();
        assert_eq!(cause, CutOff::Bound);
        assert_eq!(cache.cut_off(&[8; 32]), None);
        fs::copy(&file, folder.join(cut_off_name(&[8; 32]))).unwrap();
        assert_eq!(cache.cut_off(&[8; 32]), None);

        // A record of a watchdog that counted the kernel's time does not count, and goes with what is unused.
        let old = cut_off_name(&[9; 32]).replace("-in-user-mode", "");
        cache.put(&old, b"violated").unwrap();
        assert_eq!(cache.cut_off(&[9; 32]), None);
        cache.keep_only(&[]).unwrap();
        assert!(file.exists() && !folder.join(old).exists());

        // An entry under another node's key is treated as missing.
        let other = above.path().join("other");
        let others = Cache::open(&other).unwrap();
        others.put("b", b"").unwrap();
        fs::write(other.join("b"), &entry).unwrap();
        fs::rename(other.join("b"), other.join("a")).unwrap();
        assert_eq!(others.get("a"), None);
    }

    #[test]
    fn principals_do_not_see_each_others_entries() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("cache");
        let of_node = Cache::open(&folder).unwrap();
        let [alice, bob] = ["root alice", "root bob"].map(|of| of_node.of(of, of));
        let carol = of_node.of("root alice", "root alice/carol");
        let by_another = of_node.clone().for_caller("user 1000").of("root alice", "root alice");
        let all = [&of_node, &alice, &bob, &carol, &by_another];
        let has = |cache: &Cache| cache.get(&cache.name(&[7; 32], Artifact::Bounded));
        for (n, cache) in all.iter().enumerate() {
            assert!(all[n..].iter().all(|cache| has(cache).is_none()), "{n}");
            cache.put(&cache.name(&[7; 32], Artifact::Bounded), &[n as u8]).unwrap();
        }
        all.iter().enumerate().for_each(|(n, cache)| assert_eq!(has(cache), Some(vec![n as u8])));
        // No name of a file shows whose it is, or of which module.
        let names = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        assert_eq!(names.filter(|name| name.contains(&hex(&[7; 32]))).count(), 1, "the operator's");
        // An entry under another principal's name is not found.
        let path = |cache: &Cache| folder.join(cache.name(&[7; 32], Artifact::Bounded));
        fs::copy(path(&alice), path(&bob)).unwrap();
        assert_eq!(has(&bob), None);
        bob.put(&bob.name(&[7; 32], Artifact::Bounded), &[2]).unwrap();
        alice.forget(&[7; 32]);
        assert_eq!(all.map(|cache| has(cache).is_some()), [true, false, true, true, true]);
        assert_eq!((alice.bytes_of(&[7; 32]), carol.bytes_of(&[7; 32])), (0, MAC_BYTES as u64 + 1));
        of_node.keep_only(&[(bob.clone(), [7; 32]), (alice.clone(), [7; 32])]).unwrap();
        assert_eq!(all.map(|cache| has(cache).is_some()), [false, false, true, false, false]);
    }

    #[test]
    fn the_entries_of_a_tenant_are_limited_together() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("cache");
        let of_node = Cache::open(&folder).unwrap();
        let [alice, carol] = ["alice", "alice/carol"].map(|of| of_node.of("alice", of));
        let bob = of_node.of("bob", "bob");
        let name = |cache: &Cache, n: u8| cache.name(&[n; 32], Artifact::Bounded);
        let large = |cache: &Cache, n: u8, seconds: u64| {
            cache.put(&name(cache, n), b"").unwrap();
            let file = fs::File::options().write(true).open(folder.join(name(cache, n))).unwrap();
            // A file without blocks.
            file.set_len(200 << 20).unwrap();
            file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
        };
        [&alice, &carol, &bob, &of_node]
            .into_iter()
            .zip(1..)
            .for_each(|(cache, n)| large(cache, n, n.into()));
        let there = |cache: &Cache, n: u8| folder.join(name(cache, n)).exists();
        large(&alice, 5, 5);
        assert!(there(&alice, 1) && there(&carol, 2), "400 MiB");
        alice.put(&name(&alice, 6), b"code").unwrap();
        assert!(!there(&alice, 1) && there(&carol, 2) && there(&alice, 6), "the oldest gives way");
        assert!(there(&bob, 3) && there(&of_node, 4), "but none of others");
        assert!(!alice.make_room(&alice.owner.as_ref().unwrap().prefix, MAX_OF_TENANT + 1));
    }

    /// A folder made by another user can have a key that the other user knows: forged code would pass its
    /// MAC.
    #[test]
    fn a_folder_key_or_entry_of_somebody_else_is_refused() {
        use std::os::unix::fs::{PermissionsExt, lchown, symlink};
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("cache");
        let key = folder.join("key");
        let refused = |reason: &str| {
            let error = Cache::open(&folder).map(drop).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        };
        Cache::open(&folder).unwrap().put("a", b"code").unwrap();
        for mode in [0o755, 0o770, 0o777] {
            set(&folder, mode);
            refused("chmod 700");
        }
        set(&folder, 0o700);
        set(&key, 0o644);
        refused("its key: others may read or change it");
        set(&key, 0o600);
        // An entry that others could have changed is treated as missing.
        set(&folder.join("a"), 0o666);
        assert_eq!(Cache::open(&folder).unwrap().get("a"), None);
        fs::rename(&key, above.path().join("key")).unwrap();
        symlink(above.path().join("key"), &key).unwrap();
        refused("its key: it is a symbolic link");
        let link = above.path().join("link");
        symlink(&folder, &link).unwrap();
        assert!(Cache::open(&link).map(drop).unwrap_err().to_string().contains("symbolic link"));
        if fs::metadata("/proc/self").unwrap().uid() == 0 {
            lchown(&folder, Some(65534), None).unwrap();
            refused("belongs to user 65534");
        }
    }
}
