//! The ends of modules: a small row for each, beside the module's own.
//!
//! A module's row may have megabytes of settings, which would not fit on a full disk another time. So its end
//! is stored apart, and the row stays as it is until the module is stored in full again, or removed.

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

/// The rows of modules, each with its end.
const WITH_ENDS: &str = "modules LEFT JOIN ends ON ends.root = modules.root
    AND ends.principal = modules.principal AND ends.name = modules.name";

/// The largest revision that an end may have. There are next ones.
const LAST: i64 = i64::MAX / 2;

/// Returns the expression of a module's present revision, also if its end is not written by this program.
fn present() -> String {
    format!("MAX(modules.revision, MIN(COALESCE(ends.revision, 0), {LAST}))")
}

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
            let end = "ends.state AS end_state, ends.reason AS end_reason, ends.revision AS end_revision";
            (format!("ends.name IS NOT NULL AS has_end, {end}, {} AS present", present()), WITH_ENDS)
        }
        false => ("FALSE AS has_end".to_owned(), "modules"),
    };
    let order = "modules.installed, modules.root, modules.principal, modules.name";
    Ok(format!("SELECT modules.*, {columns} FROM {from} ORDER BY {order}"))
}

/// Reads the end in the row of a module with this `revision`, if it has one. An end that was damaged, or is
/// not later than the row, stops the module too: what has ended does not run again, and hinders no other.
pub(super) fn of_row(row: &Row<'_>, revision: u64) -> rusqlite::Result<Option<End>> {
    if !row.get::<_, bool>("has_end")? {
        return Ok(None);
    }
    let later = |end: i64| end <= LAST && u64::try_from(end).is_ok_and(|end| end > revision);
    let read = || {
        let state: String = row.get("end_state").ok()?;
        let state = State::ALL.into_iter().find(|s| s.name() == state && *s != State::Running)?;
        let found = row.get("end_revision").ok().filter(|end| later(*end))?;
        Some(End { state, reason: row.get("end_reason").ok()?, revision: found as u64 })
    };
    let present = row.get::<_, i64>("present").ok().and_then(|present| u64::try_from(present).ok());
    Ok(Some(read().unwrap_or_else(|| End {
        state: State::Stopped,
        reason: Some("its end cannot be read (table ends of the node's storage)".to_owned()),
        revision: present.unwrap_or(revision),
    })))
}

/// Returns the present revision of a module, if it is stored.
pub(super) fn revision(
    change: &Transaction<'_>,
    (owner, name): (&Owner, &str),
) -> rusqlite::Result<Option<u64>> {
    let find = format!(
        "SELECT {} FROM {WITH_ENDS}
         WHERE modules.root = ?1 AND modules.principal = ?2 AND modules.name = ?3",
        present()
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
