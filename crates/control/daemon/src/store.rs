//! The state that a node keeps across restarts: a SQLite database, and a folder of code by content hash.
//!
//! Every change is one transaction, on the disk before it is acknowledged (WAL, `synchronous = FULL`). Code
//! is written before the row that names it, and removed after it.
//!
//! A change is proposed first, when it can still be refused for want of space, and stored once the workers
//! have taken it. A proposal is written and not synced, because nothing depends on it: a restart ignores
//! those that were not stored, and nothing need be written to undo one.
//!
//! A module is stored in full when it is installed or changed. Its end is a small row of its own (`ends`). On
//! a full disk, ends of modules and revocations are stored in space that is kept for them (`room`).

mod ends;
mod error;
mod read;
mod room;
pub(crate) mod states;
mod stored;
mod transaction;

use crate::locked::assert_unlocked;
pub use error::StoreError;
use flame_api::Reservation;
use flame_base::lock;
use flame_files::Folder;
use flame_trust::hex;
use read::of_row;
pub use read::{StoredRow, read_all};
use room::Room;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;
pub use stored::{Owner, Proof, Stored};
use transaction::{LOCKED, Space, Synced};

/// The version of the tables. A database of another version is refused.
const VERSION: i64 = 3;
const DATABASE: &str = "node.sqlite";
/// The size in bytes to which SQLite's log is cut once it is not used.
const LOG_BYTES: u32 = 4 << 20;
const CODE: &str = "code";
/// Maximum length of stored code in bytes.
const MAX_CODE: u64 = 1 << 30;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS modules (
        root TEXT NOT NULL, principal TEXT NOT NULL, name TEXT NOT NULL, source TEXT NOT NULL,
        hash BLOB NOT NULL, signatures TEXT NOT NULL, settings TEXT NOT NULL, narrow TEXT NOT NULL,
        credential TEXT, challenge BLOB, answer_key TEXT, answer BLOB,
        state TEXT NOT NULL, reason TEXT, revision INTEGER NOT NULL, installed INTEGER NOT NULL,
        PRIMARY KEY (root, principal, name)
    ) STRICT;
    CREATE TABLE IF NOT EXISTS sessions (
        root TEXT NOT NULL, principal TEXT NOT NULL, reservations TEXT NOT NULL,
        PRIMARY KEY (root, principal)
    ) STRICT;
    CREATE TABLE IF NOT EXISTS revocations (line TEXT PRIMARY KEY, time INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS audit (id INTEGER PRIMARY KEY CHECK (id = 1), entries INTEGER NOT NULL) STRICT;
";

/// The changes that were proposed and not stored.
const PROPOSALS: &str = "
    CREATE TABLE IF NOT EXISTS proposals (
        root TEXT NOT NULL, principal TEXT NOT NULL, name TEXT NOT NULL, row TEXT NOT NULL,
        PRIMARY KEY (root, principal, name)
    ) STRICT;
    DELETE FROM proposals;
";

pub struct Store {
    database: Mutex<Connection>,
    /// The time at which the last change was refused because another program has locked the database.
    locked: Mutex<Option<Instant>>,
    room: Room,
    path: PathBuf,
    code: Option<Folder>,
    code_path: PathBuf,
    /// The reason why it was opened for reading only, if it was.
    read_only: Option<String>,
}

impl Store {
    /// Opens the storage in `folder`, which is created if it does not exist. A folder that cannot be written
    /// is opened for reading.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no storage that can be read, or if another program has locked it for
    /// longer than two seconds.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let (path, code_path) = (folder.join(DATABASE), folder.join(CODE));
        let at = |path: &Path| path.display().to_string();
        let io = |error| StoreError::Folder { path: at(&code_path), error };
        let room = Room::of(folder);
        let connect = || Self::connect(&path, &code_path);
        let connected = room.while_full(connect(), connect);
        let (database, read_only) = match connected {
            Ok(database) => (database, None),
            // It could be read, but no change would be stored until the next start.
            Err(first) if first.is_locked() => return Err(StoreError::Locked { path: at(&path) }),
            Err(first) => {
                // On a read-only file system, a WAL that a killed node left is read; otherwise no WAL exists.
                let open = |how: &str| {
                    let uri = format!("file:{}?{how}", path.display());
                    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
                    let database = Connection::open_with_flags(&uri, flags)?;
                    database.query_row("SELECT count(*) FROM modules", [], |_| Ok(()))?;
                    Ok::<_, rusqlite::Error>(database)
                };
                // Without its log, the database lacks the last changes, revocations and ends among them.
                let log = path.with_extension("sqlite-wal");
                let has_log = std::fs::metadata(&log).map_or(true, |log| log.len() > 0) && log.exists();
                let opened = match open("mode=ro") {
                    Err(_) if has_log => {
                        return Err(StoreError::Log { path: at(&log), error: first.to_string() });
                    }
                    Err(_) => open("immutable=1"),
                    opened => opened,
                };
                let Ok(database) = opened else { return Err(first) };
                (database, Some(format!("{}: {first}", StoreError::ReadOnly)))
            }
        };
        let version: i64 = database
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .map_err(|error| StoreError::Database { path: at(&path), error })?;
        if version != VERSION {
            return Err(StoreError::Version { path: at(&path), found: version });
        }
        let code = Folder::private(&code_path);
        let code = if read_only.is_none() { Some(code.map_err(io)?) } else { code.ok() };
        room.refill();
        Ok(Self {
            database: Mutex::new(database),
            locked: Mutex::default(),
            room,
            path,
            code,
            code_path,
            read_only,
        })
    }

    fn connect(path: &Path, code: &Path) -> Result<Connection, StoreError> {
        let folder = path.parent().unwrap_or(Path::new("."));
        for folder in [folder, code] {
            Folder::private(folder)
                .map_err(|error| StoreError::Folder { path: folder.display().to_string(), error })?;
        }
        let open = || {
            let mut database = Connection::open(path)?;
            database.busy_timeout(LOCKED)?;
            database.pragma_update(None, "journal_mode", "WAL")?;
            database.pragma_update(None, "synchronous", "FULL")?;
            // One large change would leave the log at its size.
            database.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
            let change = database.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
            let version: i64 = change.pragma_query_value(None, "user_version", |row| row.get(0))?;
            // One of another program stays as it is.
            if ![0, VERSION].contains(&version) {
                drop(change);
                return Ok(database);
            }
            if version == 0 {
                change.execute_batch(TABLES)?;
                change.pragma_update(None, "user_version", VERSION)?;
            }
            // Later than the others of this version.
            change.execute_batch(states::TABLE)?;
            change.execute_batch(ends::TABLE)?;
            change.execute_batch(PROPOSALS)?;
            change.commit()?;
            Ok(database)
        };
        open().map_err(|error| StoreError::Database { path: path.display().to_string(), error })
    }

    /// Returns the reason why nothing can be stored until the next start, if it was opened for reading only.
    pub fn read_only(&self) -> Option<&str> {
        self.read_only.as_deref()
    }

    /// Keeps space for the ends of modules again, if some of it was given up and the disk has room.
    pub fn keep_room(&self) {
        // It belongs to the one who holds the database.
        let _database = self.database();
        self.room.refill();
    }

    pub(crate) fn database(&self) -> MutexGuard<'_, Connection> {
        assert_unlocked();
        lock(&self.database)
    }

    pub(crate) fn error(&self, error: rusqlite::Error) -> StoreError {
        StoreError::Database { path: self.path.display().to_string(), error }
    }

    /// Returns all modules.
    ///
    /// # Errors
    ///
    /// Returns an error if the database cannot be read, or if a row of it is no module.
    pub fn modules(&self) -> Result<Vec<Stored>, StoreError> {
        let database = self.database();
        let path = || self.path.display().to_string();
        let at = |place: String| move |error| StoreError::Row { path: path(), place, error };
        let find = ends::query(&database).map_err(|error| self.error(error))?;
        let mut all = database.prepare(&find).map_err(|error| self.error(error))?;
        let mut rows = all.query([]).map_err(|error| self.error(error))?;
        let mut modules = Vec::new();
        while let Some(row) = rows.next().map_err(|error| self.error(error))? {
            let mut module = of_row(row).map_err(at(read::place(row)))?;
            let session = session(&database, &module.owner)
                .map_err(at(format!("table sessions, {:?}", module.owner.principal)))?;
            module.reserved = session.get(&module.name).copied().unwrap_or_default();
            modules.push(module);
        }
        Ok(modules)
    }

    /// Proposes a module in place of the one of its owner and name with the revision `before`, or a new one.
    /// It takes as much space as the module will, and counts for nothing until [`Store::put`] stores it.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Store::put`].
    pub fn propose(&self, module: &Stored, before: Option<u64>) -> Result<(), StoreError> {
        let Stored { owner, name, signatures, settings, narrow, proof, .. } = module;
        let proof = proof.as_ref().map(|proof| (&proof.credential, &proof.key));
        let row = serde_json::to_string(&(signatures, &**settings, narrow, proof)).unwrap_or_default();
        self.conditional((Synced::Later, Space::Free), (owner, name), before, |change| {
            let all = params![owner.root, owner.principal, name, row];
            change.execute("INSERT OR REPLACE INTO proposals VALUES (?1, ?2, ?3, ?4)", all)?;
            Ok(())
        })
    }

    /// Removes what was proposed for a module and not stored.
    ///
    /// # Errors
    ///
    /// Returns an error if that cannot be written.
    pub fn withdraw(&self, owner: &Owner, name: &str) -> Result<(), StoreError> {
        self.change_within(Synced::Later, Space::Free, |change| {
            let key = params![owner.root, owner.principal, name];
            change.execute("DELETE FROM proposals WHERE root = ?1 AND principal = ?2 AND name = ?3", key)?;
            Ok(())
        })
    }

    /// Stores a module, in place of the one of its owner and name with the revision `before`, or a new one.
    /// `audited` is the number of entries of the audit log.
    ///
    /// # Errors
    ///
    /// Returns an error if another revision is stored, or if it cannot be written.
    pub fn put(&self, module: &Stored, before: Option<u64>, audited: Option<u64>) -> Result<(), StoreError> {
        self.put_with(module, before, audited, |_| Ok(()))
    }

    /// Stores a module like [`Store::put`], and removes the states that are stored of it.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Store::put`].
    pub fn put_empty(
        &self,
        module: &Stored,
        before: Option<u64>,
        audited: Option<u64>,
    ) -> Result<(), StoreError> {
        let key = (&module.owner, &*module.name);
        self.put_with(module, before, audited, |change| states::remove(change, key))
    }

    fn put_with(
        &self,
        module: &Stored,
        before: Option<u64>,
        audited: Option<u64>,
        and: impl Fn(&rusqlite::Transaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), StoreError> {
        let proof = module.proof.as_ref();
        self.conditional((Synced::AtOnce, Space::Free), (&module.owner, &module.name), before, |change| {
            change.execute(
                "INSERT OR REPLACE INTO modules (root, principal, name, source, hash, signatures, settings, narrow,
                 credential, challenge, answer_key, answer, state, reason, revision, installed)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
                params![
                    module.owner.root,
                    module.owner.principal,
                    module.name,
                    module.source,
                    &module.hash[..],
                    module.signatures,
                    serde_json::to_string(&*module.settings).unwrap_or_default(),
                    serde_json::to_string(&module.narrow).unwrap_or_default(),
                    proof.map(|p| &p.credential),
                    proof.map(|p| &p.challenge[..]),
                    proof.map(|p| &p.key),
                    proof.map(|p| &p.signature[..]),
                    module.state.name(),
                    module.reason,
                    module.revision as i64,
                    module.installed as i64,
                ],
            )?;
            let key = params![module.owner.root, module.owner.principal, module.name];
            change.execute("DELETE FROM proposals WHERE root = ?1 AND principal = ?2 AND name = ?3", key)?;
            ends::remove(change, (&module.owner, &module.name))?;
            change_session(change, &module.owner, &module.name, &module.reserved)?;
            and(change)?;
            note_audit(change, audited)
        })
    }

    /// Stores the end of a module that has the revision `before`: its state, reason and revision. The rest of
    /// what is stored stays. `audited` is the number of entries of the audit log.
    ///
    /// # Errors
    ///
    /// Returns an error if another revision is stored, or if it cannot be written.
    pub fn end(&self, module: &Stored, before: u64, audited: Option<u64>) -> Result<(), StoreError> {
        let Stored { owner, name, reserved, .. } = module;
        self.conditional((Synced::AtOnce, Space::Kept), (owner, name), Some(before), |change| {
            ends::put(change, module)?;
            change_session(change, owner, name, reserved)?;
            note_audit(change, audited)
        })
    }

    /// Removes a module that has the revision `before`.
    ///
    /// # Errors
    ///
    /// Returns an error if another revision is stored, or if it cannot be written.
    pub fn remove(
        &self,
        owner: &Owner,
        name: &str,
        before: u64,
        audited: Option<u64>,
    ) -> Result<(), StoreError> {
        self.conditional((Synced::AtOnce, Space::Kept), (owner, name), Some(before), |change| {
            let key = params![owner.root, owner.principal, name];
            change.execute("DELETE FROM modules WHERE root = ?1 AND principal = ?2 AND name = ?3", key)?;
            ends::remove(change, (owner, name))?;
            states::remove(change, (owner, name))?;
            change_session(change, owner, name, &Reservation::default())?;
            note_audit(change, audited)
        })
    }

    /// Records a revocation, by the line of the policy's list.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be written.
    pub fn revoked(&self, line: &str, time: u64) -> Result<(), StoreError> {
        self.change_within(Synced::AtOnce, Space::Kept, |change| {
            change
                .execute("INSERT OR IGNORE INTO revocations VALUES (?1, ?2)", params![line, time as i64])?;
            Ok(())
        })
    }

    /// Removes a recorded revocation.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be written.
    pub fn withdrawn(&self, line: &str) -> Result<(), StoreError> {
        self.change(|change| {
            change.execute("DELETE FROM revocations WHERE line = ?1", params![line])?;
            Ok(())
        })
    }

    /// Returns the lines of all recorded revocations.
    ///
    /// # Errors
    ///
    /// Returns an error if the database cannot be read.
    pub fn revocations(&self) -> Result<Vec<String>, StoreError> {
        let database = self.database();
        let read = || {
            let mut all = database.prepare("SELECT line FROM revocations ORDER BY time")?;
            all.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(|error| {
            let (path, place) = (self.path.display().to_string(), "table revocations".to_owned());
            StoreError::Row { path, place, error }
        })
    }

    /// Returns the number of entries that the audit log had at the last change.
    ///
    /// # Errors
    ///
    /// Returns an error if the database cannot be read.
    pub fn audited(&self) -> Result<Option<u64>, StoreError> {
        let read =
            self.database().query_row("SELECT entries FROM audit", [], |row| read::count(row, "entries"));
        let at = |error| {
            let (path, place) = (self.path.display().to_string(), "table audit".to_owned());
            StoreError::Row { path, place, error }
        };
        read.optional().map_err(at)
    }

    /// Stores code by its hash, whether or not it is there: neither the time nor an error shows a client that
    /// another one has it.
    ///
    /// # Errors
    ///
    /// Returns an error if the storage was opened for reading, or if the file cannot be written.
    pub fn put_code(&self, hash: &[u8; 32], wasm: &[u8]) -> Result<(), StoreError> {
        let folder = self.code.as_ref().ok_or(StoreError::ReadOnly)?;
        let io = |error| StoreError::Folder { path: self.code_path.display().to_string(), error };
        folder.put_synced(&code_name(hash), wasm).map_err(io)
    }

    /// Returns the code with this hash.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is missing, cannot be read, or does not have this hash.
    pub fn code(&self, hash: &[u8; 32]) -> Result<Vec<u8>, StoreError> {
        let found =
            self.code.as_ref().and_then(|folder| folder.read(&code_name(hash), MAX_CODE).ok().flatten());
        found
            .filter(|wasm| flame_compile::hash_of(wasm) == *hash)
            .ok_or_else(|| StoreError::Code { path: self.code_path.display().to_string(), hash: hex(hash) })
    }

    /// Returns the length of the code with this hash, or 0 if it is missing.
    pub fn code_bytes(&self, hash: &[u8; 32]) -> u64 {
        std::fs::metadata(self.code_path.join(code_name(hash))).map_or(0, |file| file.len())
    }

    /// Removes the code that no module has any more. What is left over is removed at the next start.
    pub fn sweep(&self, used: &dyn Fn(&str) -> bool) {
        let Ok(entries) = std::fs::read_dir(&self.code_path) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if !name.to_str().is_some_and(used) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// Removes the code with this hash.
    pub fn drop_code(&self, hash: &[u8; 32]) {
        // What is left over is removed at the next start.
        let _ = std::fs::remove_file(self.code_path.join(code_name(hash)));
    }
}

/// The reservations of a session, by module.
type Session = BTreeMap<String, Reservation>;

fn session(database: &Connection, owner: &Owner) -> rusqlite::Result<Session> {
    let find = "SELECT reservations FROM sessions WHERE root = ?1 AND principal = ?2";
    let key = params![owner.root, owner.principal];
    let text: Option<String> = database.query_row(find, key, |row| row.get(0)).optional()?;
    let wrong =
        |_| rusqlite::Error::InvalidColumnName("reservations: not written by this program".to_owned());
    text.map_or(Ok(Session::new()), |text| serde_json::from_str(&text).map_err(wrong))
}

/// Changes the reservation of a module in its session.
fn change_session(
    change: &rusqlite::Transaction<'_>,
    owner: &Owner,
    module: &str,
    reserved: &Reservation,
) -> rusqlite::Result<()> {
    let mut all = session(change, owner)?;
    let before = match reserved.is_none() {
        true => all.remove(module),
        false => all.insert(module.to_owned(), *reserved),
    };
    if before.unwrap_or_default() == *reserved {
        return Ok(());
    }
    let (root, principal) = (&owner.root, &owner.principal);
    if all.is_empty() {
        let key = params![root, principal];
        change.execute("DELETE FROM sessions WHERE root = ?1 AND principal = ?2", key)?;
    } else {
        let text = serde_json::to_string(&all).unwrap_or_default();
        let row = params![root, principal, text];
        change.execute("INSERT OR REPLACE INTO sessions VALUES (?1, ?2, ?3)", row)?;
    }
    Ok(())
}

fn note_audit(change: &rusqlite::Transaction<'_>, audited: Option<u64>) -> rusqlite::Result<()> {
    if let Some(entries) = audited {
        change.execute("INSERT OR REPLACE INTO audit VALUES (1, ?1)", params![entries as i64])?;
    }
    Ok(())
}

pub fn code_name(hash: &[u8; 32]) -> String {
    format!("{}.wasm", hex(hash))
}
