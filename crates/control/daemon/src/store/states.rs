//! The stored state of modules: a row for each instance, with the conditions under which it was made.
//!
//! A row that was damaged, or was not written by this program, is left out and reported.

use super::{Owner, Store, StoreError, ends};
use flame_worker::{Place, State};
use rusqlite::params;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS states (
        root TEXT NOT NULL, principal TEXT NOT NULL, name TEXT NOT NULL, place INTEGER NOT NULL,
        terms TEXT NOT NULL, state BLOB NOT NULL, hash BLOB NOT NULL,
        PRIMARY KEY (root, principal, name, place)
    ) STRICT;
";

/// The number of the slow instance's row. Those of fast ones have the numbers of their workers.
const SLOW: i64 = -1;

/// The conditions under which a state was made. Another instance gets it only under the same ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StateTerms {
    /// The name in the manifest.
    pub module: String,
    pub version: u32,
    pub workers: u64,
    /// The rights of the module's view and of its records, as text; empty for the operator's modules.
    pub rights: String,
}

/// The state of a module as it is stored.
#[derive(Debug, Default)]
pub(crate) struct StoredStates {
    /// The conditions, which all rows share.
    pub terms: Option<StateTerms>,
    pub states: Vec<(Place, State)>,
    /// The number of rows that cannot be used.
    pub damaged: usize,
}

fn place_of(number: i64) -> Option<Place> {
    match number {
        SLOW => Some(Place::Slow),
        worker => Some(Place::Worker(usize::try_from(worker).ok()?)),
    }
}

/// Returns the hash of a row, which is of this module and place.
fn hash_of(owner: &Owner, name: &str, place: i64, terms: &str, state: &[u8]) -> [u8; 32] {
    let texts = [&owner.root, &owner.principal, name, terms].map(|text| [text.as_bytes(), &[0]].concat());
    flame_compile::hash_of(&[&place.to_le_bytes(), &texts.concat()[..], state].concat())
}

impl Store {
    /// Returns the stored state of a module.
    pub(crate) fn states(&self, owner: &Owner, name: &str) -> Result<StoredStates, StoreError> {
        let database = self.database();
        let read = || {
            let find = "SELECT place, terms, state, hash FROM states
                        WHERE root = ?1 AND principal = ?2 AND name = ?3 ORDER BY place";
            let mut rows = database.prepare(find)?;
            let rows = rows.query_map(params![owner.root, owner.principal, name], |row| {
                // A value of another type is damage, too.
                let place: Option<i64> = row.get(0).ok();
                let terms: Option<String> = row.get(1).ok();
                let state: Option<Vec<u8>> = row.get(2).ok();
                let hash: Option<Vec<u8>> = row.get(3).ok();
                Ok((|| Some((place?, terms?, state?, hash?)))())
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        let rows = match read() {
            Ok(rows) => rows,
            // A database that was opened for reading may be older than the table.
            Err(rusqlite::Error::SqliteFailure(_, Some(text))) if text.contains("no such table") => {
                Vec::new()
            }
            Err(error) => return Err(self.error(error)),
        };
        let mut found = StoredStates::default();
        for row in rows {
            let checked = row.and_then(|(place, terms, state, hash)| {
                let is_whole = hash == hash_of(owner, name, place, &terms, &state);
                let terms: StateTerms = serde_json::from_str(&terms).ok().filter(|_| is_whole)?;
                Some((place_of(place)?, terms, state))
            });
            match checked {
                Some((place, terms, state)) if found.terms.as_ref().is_none_or(|t| *t == terms) => {
                    found.terms = Some(terms);
                    found.states.push((place, state.into()));
                }
                _ => found.damaged += 1,
            }
        }
        Ok(found)
    }

    /// Stores the state of a module, in place of what is stored, if the module is installed. With
    /// `while_it_runs` it must have that revision, and the flag, which is set once its instances have ended,
    /// must not be set. Returns whether the state was stored.
    pub(crate) fn put_states(
        &self,
        owner: &Owner,
        name: &str,
        while_it_runs: Option<(u64, &AtomicBool)>,
        terms: &StateTerms,
        states: &[(Place, State)],
    ) -> Result<bool, StoreError> {
        let terms = serde_json::to_string(terms).unwrap_or_default();
        self.change(|change| {
            let found = ends::revision(change, (owner, name))?;
            let is_other = |(revision, has_ended): (u64, &AtomicBool)| {
                found != Some(revision) || has_ended.load(Ordering::SeqCst)
            };
            if found.is_none() || while_it_runs.is_some_and(is_other) {
                return Ok(false);
            }
            remove(change, (owner, name))?;
            for (place, state) in states {
                let place = place.worker().map_or(SLOW, |worker| worker as i64);
                let hash = hash_of(owner, name, place, &terms, state);
                change.execute(
                    "INSERT INTO states VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                    params![owner.root, owner.principal, name, place, terms, &state[..], &hash[..]],
                )?;
            }
            Ok(true)
        })
    }

    /// Returns the size of the stored state of a module in bytes; 0 if it cannot be read.
    pub(crate) fn state_bytes(&self, owner: &Owner, name: &str) -> u64 {
        let find = "SELECT COALESCE(SUM(LENGTH(state)), 0) FROM states
                    WHERE root = ?1 AND principal = ?2 AND name = ?3";
        let key = params![owner.root, owner.principal, name];
        let bytes: rusqlite::Result<i64> = self.database().query_row(find, key, |row| row.get(0));
        bytes.ok().and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0)
    }
}

/// Removes the states of a module.
pub(crate) fn remove(
    change: &rusqlite::Transaction<'_>,
    (owner, name): (&Owner, &str),
) -> rusqlite::Result<()> {
    let all = "DELETE FROM states WHERE root = ?1 AND principal = ?2 AND name = ?3";
    change.execute(all, params![owner.root, owner.principal, name]).map(drop)
}
