//! The archive's files: Parquet below `data`, and the manifest.
//!
//! The manifest is a log of changes, `manifest/change-VERSION.json`. Each names the files that it adds, the
//! new watermarks of their subjects, and what was lost. A change is put only if no other one has its version,
//! so files and watermarks come together, once, and of two writers one is refused. Every [`WHOLE`] changes,
//! `manifest/whole-VERSION.json` has all that came before. A file that no change names is not read.

use crate::Error;
use flame_fleet_protocol::{Commit, Known, Loss, Progress, Subject};
use flame_spool::{Epoch, Hash, Position, Stamp, Totals};
use futures_util::TryStreamExt as _;
use object_store::local::LocalFileSystem;
use object_store::path::Path as At;
use object_store::{ObjectStore, ObjectStoreExt as _, PutMode, PutOptions};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File as OsFile;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The number of changes after which a whole manifest is written.
const WHOLE: u64 = 64;

/// The archive's store.
#[derive(Clone)]
pub struct Store {
    pub objects: Arc<dyn ObjectStore>,
    folder: PathBuf,
}

/// A file of records.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub path: String,
    pub node: String,
    pub principal: String,
    pub module: String,
    pub table: String,
    /// The name of the columns, whose Arrow schema is `schema/NAME`.
    pub schema: String,
    pub rows: u64,
    pub bytes: u64,
    /// The times between which the rows lie, in nanoseconds since 1970.
    pub first: u64,
    pub last: u64,
}

/// Rows that will never come, or that could not be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lost {
    pub subject: String,
    pub epoch: String,
    pub from: u64,
    pub to: u64,
    pub rows: u64,
    pub bytes: u64,
    pub since: u64,
    pub until: u64,
}

/// What the archive holds at a version.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub version: u64,
    pub files: Vec<File>,
    pub subjects: BTreeMap<Subject, Progress>,
    pub losses: Vec<Lost>,
    /// Files that are not read any more, and the version that removed each.
    pub removed: BTreeMap<String, u64>,
}

/// A change, or all changes up to one.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    version: u64,
    files: Vec<File>,
    marks: BTreeMap<String, Mark>,
    losses: Vec<Lost>,
    /// The files that it removes, with the version that does. Those that it adds take the place of the first:
    /// the columns of a table continue in the order of files.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    removed: BTreeMap<String, u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mark {
    epochs: Vec<Of>,
    last: Option<(String, u64, String)>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Of {
    epoch: String,
    sequence: u64,
    rows: u64,
    bytes: u64,
    until: u64,
    hash: Option<String>,
}

/// The reason why a change was not stored.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    #[error("another writer of this archive stored version {0} first: let one writer run")]
    Taken(u64),
    #[error(transparent)]
    Failed(#[from] Error),
}

impl Store {
    /// Opens an archive in a folder, which is made if `is_new` permits it.
    pub fn open(folder: &Path, is_new: bool) -> Result<Self, Error> {
        let at = |e: &dyn std::fmt::Display| format!("archive {}: {e}", folder.display());
        if is_new {
            std::fs::create_dir_all(folder).map_err(|e| at(&e))?;
        }
        let objects = LocalFileSystem::new_with_prefix(folder).map_err(|e| at(&e))?;
        Ok(Self { objects: Arc::new(objects), folder: folder.to_owned() })
    }

    /// Puts an object, and waits until it is on the disk: `LocalFileSystem` itself does not.
    pub async fn put(&self, path: &At, bytes: Vec<u8>, mode: PutMode) -> Result<(), object_store::Error> {
        self.objects.put_opts(path, bytes.into(), PutOptions::from(mode)).await?;
        let synced = || {
            let file = self.folder.join(path.as_ref());
            OsFile::open(&file)?.sync_all()?;
            let folders = file.ancestors().skip(1).take_while(|folder| folder.starts_with(&self.folder));
            folders.into_iter().try_for_each(|folder| OsFile::open(folder)?.sync_all())
        };
        synced().map_err(|e| object_store::Error::Generic { store: "the archive's folder", source: e.into() })
    }

    /// Reads what the archive holds.
    pub async fn load(&self) -> Result<State, Error> {
        let all: Vec<_> = self.objects.list(Some(&At::from("manifest"))).try_collect().await?;
        let number = |kind: &str, name: &str| -> Option<u64> {
            name.strip_prefix(kind)?.strip_suffix(".json")?.parse().ok()
        };
        let names: Vec<&str> = all.iter().filter_map(|object| object.location.filename()).collect();
        let whole = names.iter().filter_map(|name| number("whole-", name)).max();
        let changes: BTreeSet<u64> = names.iter().filter_map(|name| number("change-", name)).collect();
        let mut state = State::default();
        if let Some(version) = whole {
            self.add(&mut state, &whole_at(version)).await?;
        }
        for version in changes.into_iter().filter(|version| whole.is_none_or(|whole| *version > whole)) {
            if version != state.version + 1 {
                let expected = change_at(state.version + 1);
                return Err(
                    format!("the manifest: {} follows, {expected} is missing", change_at(version)).into()
                );
            }
            self.add(&mut state, &change_at(version)).await?;
        }
        Ok(state)
    }

    /// Adds a part of the manifest.
    async fn add(&self, state: &mut State, at: &At) -> Result<(), Error> {
        let bytes = self.objects.get(at).await?.bytes().await?;
        let change: Change = serde_json::from_slice(&bytes).map_err(|e| format!("{at}: {e}"))?;
        for (subject, mark) in change.marks {
            let progress =
                mark.progress().ok_or_else(|| format!("{at}: the mark of {subject} is damaged"))?;
            state.subjects.insert(Subject::parse(&subject).map_err(|e| format!("{at}: {e}"))?, progress);
        }
        state.version = change.version;
        let is_removed = |file: &File| change.removed.contains_key(&file.path);
        let at = state.files.iter().position(is_removed).unwrap_or(state.files.len());
        state.files.retain(|file| !is_removed(file));
        state.files.splice(at..at, change.files);
        state.losses.extend(change.losses);
        state.removed.extend(change.removed);
        Ok(())
    }

    /// Stores a change with its files and further losses, all or nothing, if no other one has its version.
    pub async fn commit(
        &self,
        commit: &Commit,
        files: Vec<File>,
        unread: Vec<Lost>,
    ) -> Result<(), CommitError> {
        let losses = commit.losses.iter().map(|(subject, loss)| Lost::new(subject, loss)).chain(unread);
        let change = Change {
            version: commit.version,
            files,
            marks: commit.marks.iter().map(|(s, p)| (s.to_string(), Mark::new(p))).collect(),
            losses: losses.collect(),
            removed: BTreeMap::new(),
        };
        self.change(&change).await
    }

    /// Stores a change that puts files in the place of others, if no other one has its version.
    pub async fn replace(
        &self,
        version: u64,
        files: Vec<File>,
        removed: Vec<String>,
    ) -> Result<(), CommitError> {
        let removed = removed.into_iter().map(|path| (path, version)).collect();
        let (marks, losses) = Default::default();
        self.change(&Change { version, files, marks, losses, removed }).await
    }

    /// Deletes a file that no query reads.
    pub async fn delete(&self, path: &str) -> Result<(), object_store::Error> {
        self.objects.delete(&At::from(path)).await
    }

    async fn change(&self, change: &Change) -> Result<(), CommitError> {
        let bytes = serde_json::to_vec(change).map_err(Error::from)?;
        match self.put(&change_at(change.version), bytes, PutMode::Create).await {
            Ok(()) => {}
            Err(object_store::Error::AlreadyExists { .. }) => return Err(CommitError::Taken(change.version)),
            Err(e) => return Err(CommitError::Failed(e.into())),
        }
        if change.version.is_multiple_of(WHOLE) {
            // Without it the next start only reads more files.
            let _ = self.write_whole().await;
        }
        Ok(())
    }

    async fn write_whole(&self) -> Result<(), Error> {
        let State { version, files, subjects, losses, mut removed } = self.load().await?;
        // What was removed long ago is deleted.
        removed.retain(|_, at| *at + 2 * WHOLE > version);
        let marks = subjects.iter().map(|(s, p)| (s.to_string(), Mark::new(p))).collect();
        let bytes = serde_json::to_vec(&Change { version, files, marks, losses, removed })?;
        Ok(self.put(&whole_at(version), bytes, PutMode::Overwrite).await?)
    }
}

fn change_at(version: u64) -> At {
    At::from(format!("manifest/change-{version:020}.json"))
}

fn whole_at(version: u64) -> At {
    At::from(format!("manifest/whole-{version:020}.json"))
}

impl Lost {
    pub fn new(subject: &Subject, loss: &Loss) -> Self {
        let &Loss { epoch, from, to, rows, bytes, since, until } = loss;
        Self { subject: subject.to_string(), epoch: epoch.to_string(), from, to, rows, bytes, since, until }
    }
}

impl Mark {
    fn new(progress: &Progress) -> Self {
        let of = |known: &Known| Of {
            epoch: known.epoch.to_string(),
            sequence: known.sequence,
            rows: known.totals.rows,
            bytes: known.totals.bytes,
            until: known.totals.until,
            hash: known.hash.map(|hash| hash.to_string()),
        };
        let stamp = |stamp: &Stamp| {
            (stamp.position.epoch.to_string(), stamp.position.sequence, stamp.hash.to_string())
        };
        Self { epochs: progress.epochs.iter().map(of).collect(), last: progress.last.as_ref().map(stamp) }
    }

    fn progress(&self) -> Option<Progress> {
        let of = |of: &Of| {
            let totals = Totals { rows: of.rows, bytes: of.bytes, until: of.until };
            let hash = of.hash.as_deref().map(hash);
            let hash = if let Some(hash) = hash { Some(hash?) } else { None };
            Some(Known { epoch: epoch(&of.epoch)?, sequence: of.sequence, totals, hash })
        };
        let last = match &self.last {
            None => None,
            Some((of, sequence, at)) => {
                Some(Stamp { position: Position { epoch: epoch(of)?, sequence: *sequence }, hash: hash(at)? })
            }
        };
        Some(Progress { epochs: self.epochs.iter().map(of).collect::<Option<_>>()?, last })
    }
}

fn epoch(text: &str) -> Option<Epoch> {
    u64::from_str_radix(text, 16).ok().map(Epoch)
}

fn hash(text: &str) -> Option<Hash> {
    let is_good = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let byte = |n: usize| u8::from_str_radix(text.get(2 * n..2 * n + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..16).filter(|_| is_good).map(byte).collect();
    bytes?.try_into().ok().map(Hash)
}
