//! The ends of modules: a small row for each, beside the module's own.
//!
//! A module's row may have megabytes of settings, which would not fit on a full disk another time. So its end
//! is stored apart, and the row stays as it is until the module is stored in full again, or removed.

use super::error::wrong;
use super::{Owner, Stored};
use flame_api::State;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

pub(super) const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS ends (
        root TEXT NOT NULL, principal TEXT NOT NULL, name TEXT NOT NULL,
        state TEXT NOT NULL, reason TEXT, revision INTEGER NOT NULL,
        PRIMARY KEY (root, principal, name)
    ) STRICT;
";

/// The rows of modules, each with its end. An end that is not later than the row is of another time: it
/// counts for nothing.
const WITH_ENDS: &str = "modules LEFT JOIN ends ON ends.root = modules.root
    AND ends.principal = modules.principal AND ends.name = modules.name AND ends.revision > modules.revision";

/// The end of a module as it is stored.
pub(super) struct End {
    pub state: State,
    pub reason: Option<String>,
    pub revision: u64,
}

/// Returns the query for all modules, whose rows [`of_row`] reads as well.
pub(super) fn query(database: &Connection) -> rusqlite::Result<String> {
    // A database that was opened for reading may be older than the table.
    let (columns, from) = match database.table_exists(None, "ends")? {
        true => {
            ("ends.state AS end_state, ends.reason AS end_reason, ends.revision AS end_revision", WITH_ENDS)
        }
        false => ("NULL AS end_state, NULL AS end_reason, NULL AS end_revision", "modules"),
    };
    let order = "modules.installed, modules.root, modules.principal, modules.name";
    Ok(format!("SELECT modules.*, {columns} FROM {from} ORDER BY {order}"))
}

/// Reads the end in a module's row, if it has one.
pub(super) fn of_row(row: &Row<'_>) -> rusqlite::Result<Option<End>> {
    let Some(revision) = row.get::<_, Option<i64>>("end_revision")? else { return Ok(None) };
    // There is a next one.
    let revision = u64::try_from(revision).ok().filter(|revision| *revision < i64::MAX as u64);
    let state: String = row.get("end_state")?;
    let state = State::ALL.into_iter().find(|s| s.name() == state && *s != State::Running);
    Ok(Some(End {
        state: state.ok_or_else(|| wrong("state of the end"))?,
        reason: row.get("end_reason")?,
        revision: revision.ok_or_else(|| wrong("revision of the end"))?,
    }))
}

/// Returns the present revision of a module, if it is stored.
pub(super) fn revision(
    change: &Transaction<'_>,
    (owner, name): (&Owner, &str),
) -> rusqlite::Result<Option<u64>> {
    let find = format!(
        "SELECT COALESCE(ends.revision, modules.revision) FROM {WITH_ENDS}
         WHERE modules.root = ?1 AND modules.principal = ?2 AND modules.name = ?3"
    );
    let key = params![owner.root, owner.principal, name];
    let found: Option<i64> = change.query_row(&find, key, |row| row.get(0)).optional()?;
    Ok(found.map(|revision| revision as u64))
}

/// Removes the end of a module, which is stored in full or removed.
pub(super) fn remove(change: &Transaction<'_>, (owner, name): (&Owner, &str)) -> rusqlite::Result<()> {
    let all = "DELETE FROM ends WHERE root = ?1 AND principal = ?2 AND name = ?3";
    change.execute(all, params![owner.root, owner.principal, name]).map(drop)
}

/// Stores the end of a module, in place of one before.
pub(super) fn put(change: &Transaction<'_>, module: &Stored) -> rusqlite::Result<()> {
    let Stored { owner, name, state, reason, revision, .. } = module;
    let row = params![owner.root, owner.principal, name, state.name(), reason, *revision as i64];
    change.execute("INSERT OR REPLACE INTO ends VALUES (?1, ?2, ?3, ?4, ?5, ?6)", row).map(drop)
}
