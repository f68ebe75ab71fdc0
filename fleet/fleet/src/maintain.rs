//! The maintenance of an archive by its writer: small files of a partition become one, and old files go.
//!
//! Each is one change of the manifest, which names the files that it removes. These are deleted once the
//! manifest has [`GRACE`] more changes, so that queries that began before read them still.

use crate::Error;
use crate::archive::ArchiveError;
use crate::parquet_files::merged;
use crate::store::{File, State, Store};
use std::collections::BTreeMap;

/// The number of small files of a partition that are merged, and the bytes below which a file is small.
const MANY: usize = 16;
const SMALL: u64 = 8 << 20;
/// The most bytes of files that are merged at once.
const MERGE: u64 = 64 << 20;
/// The number of changes after which removed files are deleted.
const GRACE: u64 = 64;

/// A change to make.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// The files that become one.
    pub merge: Vec<String>,
    /// The files that are too old.
    pub old: Vec<String>,
}

/// Decides on the next change. Files are old if all their rows are from before `keep` nanoseconds ago, by the
/// clock (`now`, in nanoseconds since 1970) or by the newest row, whichever keeps more: neither a clock that
/// is ahead nor a node's rows from the future remove anything.
pub fn plan(state: &State, keep: Option<u64>, now: u64) -> Plan {
    let newest = state.files.iter().map(|file| file.last).max().unwrap_or(0).min(now);
    let since = keep.map_or(0, |keep| newest.saturating_sub(keep));
    let is_old = |file: &&File| file.last < since;
    let old = state.files.iter().filter(is_old).map(|file| file.path.clone()).collect();
    let mut partitions: BTreeMap<_, Vec<&File>> = BTreeMap::new();
    for file in state.files.iter().filter(|file| !is_old(file) && file.bytes < SMALL) {
        // The folder is date, node and table.
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        partitions.entry((folder, &file.schema)).or_default().push(file);
    }
    let many = partitions.into_values().filter(|files| files.len() >= MANY).max_by_key(Vec::len);
    let mut bytes = 0;
    let merge = many.into_iter().flatten().take_while(|file| {
        bytes += file.bytes;
        bytes <= MERGE
    });
    Plan { merge: merge.map(|file| file.path.clone()).collect(), old }
}

/// Makes the next change, if one is due, as `version`. Returns whether there was one.
///
/// # Errors
///
/// Returns an error if it was not stored. Nothing is lost then.
pub async fn maintain(
    store: &Store,
    version: u64,
    keep: Option<u64>,
    now: u64,
) -> Result<bool, ArchiveError> {
    let state = store.load().await?;
    if state.version + 1 != version {
        return Err(ArchiveError::Behind);
    }
    for (path, removed) in &state.removed {
        if removed + GRACE <= state.version {
            // If it stays, it is not read.
            let _ = store.delete(path).await;
        }
    }
    let Plan { mut merge, old } = plan(&state, keep, now);
    let parts: Vec<&File> = state.files.iter().filter(|file| merge.contains(&file.path)).collect();
    let file = match parts.is_empty() {
        true => None,
        // What cannot be merged does not keep batches from being archived.
        false => merged(store, version, &parts).await.map_err(|e| eprintln!("archive: {e}: not merged")).ok(),
    };
    if file.is_none() {
        merge.clear();
    }
    if merge.is_empty() && old.is_empty() {
        return Ok(false);
    }
    store.replace(version, file.into_iter().collect(), merge.into_iter().chain(old).collect()).await?;
    Ok(true)
}

/// Reads a length of time, as in `30d` or `12h`, in nanoseconds.
pub fn length(text: &str) -> Result<u64, Error> {
    let fault = || format!("keep {text:?}, expected a number of days or hours as in \"30d\" or \"12h\"");
    let (digits, seconds) = match (text.strip_suffix('d'), text.strip_suffix('h')) {
        (Some(digits), _) => (digits, 86_400),
        (_, Some(digits)) => (digits, 3_600),
        _ => return Err(fault().into()),
    };
    let number: u64 = digits.parse().map_err(|_| fault())?;
    number.checked_mul(seconds * 1_000_000_000).filter(|ns| *ns > 0).ok_or_else(|| fault().into())
}
