//! The reading of rows. Values that this program did not write are errors, which name table, row and column:
//! a damaged row grants no more than it did before.

use super::error::wrong;
use super::room::Room;
use super::{Owner, Proof, Store, StoreError, Stored, ends};
use crate::units::is_name;
use flame_api::{Reservation, State};
use flame_trust::PublicKey;
use rusqlite::{Connection, Row};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Maximum length of the parts of a row's key in a message, in characters.
const SHOWN: usize = 80;

/// Returns the place of a module's row for a message.
pub(super) fn place(row: &Row<'_>) -> String {
    let part = |column: &str| {
        let text = row.get_ref(column).ok().and_then(|value| value.as_str().ok()).unwrap_or("?");
        text.chars().take(SHOWN).collect::<String>()
    };
    format!("table modules, {:?} of {:?}", part("name"), part("principal"))
}

/// Returns a number that is not negative.
pub(super) fn count(row: &Row<'_>, column: &str) -> rusqlite::Result<u64> {
    u64::try_from(row.get::<_, i64>(column)?).map_err(|_| wrong(column))
}

/// Reads the row of a module, with its end.
pub(super) fn of_row(row: &Row<'_>) -> rusqlite::Result<Stored> {
    fn json<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: &str) -> rusqlite::Result<T> {
        serde_json::from_str(&row.get::<_, String>(column)?).map_err(|_| wrong(column))
    }
    fn fixed<const N: usize>(row: &Row<'_>, column: &str) -> rusqlite::Result<[u8; N]> {
        row.get::<_, Vec<u8>>(column)?.try_into().map_err(|_| wrong(column))
    }
    let state: String = row.get("state")?;
    let state = State::ALL.into_iter().find(|s| s.name() == state).ok_or_else(|| wrong("state"))?;
    let proof = match row.get::<_, Option<String>>("credential")? {
        None => None,
        Some(credential) => Some(Proof {
            credential,
            challenge: fixed(row, "challenge")?,
            key: row.get("answer_key")?,
            signature: fixed(row, "answer")?,
        }),
    };
    let owner = Owner { root: row.get("root")?, principal: row.get("principal")? };
    let name: String = row.get("name")?;
    let revision = count(row, "revision")?;
    match () {
        // A row that lost its root would be the operator's, who needs no credential.
        () if owner.is_operator() && !owner.principal.is_empty() => return Err(wrong("principal")),
        () if owner.is_operator() != proof.is_none() => return Err(wrong("credential")),
        () if !owner.is_operator() && PublicKey::parse(&owner.root).is_err() => return Err(wrong("root")),
        () if !owner.is_operator() && owner.principal.is_empty() => return Err(wrong("principal")),
        () if !is_name(&name) => return Err(wrong("name")),
        // There is a next one.
        () if revision == 0 || revision >= i64::MAX as u64 => return Err(wrong("revision")),
        () => {}
    }
    let (state, reason, revision) = match ends::of_row(row, revision)? {
        Some(end) => (end.state, end.reason, end.revision),
        None => (state, row.get("reason")?, revision),
    };
    Ok(Stored {
        owner,
        name,
        source: row.get("source")?,
        hash: fixed(row, "hash")?,
        signatures: row.get("signatures")?,
        settings: Arc::new(json(row, "settings")?),
        narrow: json(row, "narrow")?,
        proof,
        reserved: Reservation::default(),
        state,
        reason,
        revision,
        installed: count(row, "installed")?,
    })
}

/// A module as [`read_all`] found it.
#[derive(Debug)]
pub struct StoredRow {
    pub is_operators: bool,
    pub has_credential: bool,
    pub name: String,
    pub revision: u64,
    /// The numbers of its states that can be used, and of those that cannot.
    pub states: (usize, usize),
}

/// Reads all that a node reads of its database at its start. For checks of that reading.
///
/// # Errors
///
/// Returns the error for which the node would not start.
pub fn read_all(database: Connection) -> Result<Vec<StoredRow>, StoreError> {
    let store = Store {
        locked: Default::default(),
        database: Mutex::new(database),
        room: Room::of(Path::new("")),
        path: PathBuf::from("node.sqlite"),
        code: None,
        code_path: PathBuf::new(),
        read_only: None,
    };
    store.revocations()?;
    store.audited()?;
    let row = |module: Stored| {
        let states = store.states(&module.owner, &module.name)?;
        Ok(StoredRow {
            is_operators: module.owner.is_operator(),
            has_credential: module.proof.is_some(),
            states: (states.states.len(), states.damaged),
            name: module.name,
            revision: module.revision,
        })
    };
    store.modules()?.into_iter().map(row).collect()
}
