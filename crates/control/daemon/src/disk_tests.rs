//! Tests of what is stored of ends, on a disk with room and on a full one.

use crate::store::states::StateTerms;
use crate::store::{Store, StoreError, Stored, read_all};
use crate::test_world::{NAME, stored as module};
use flame_api::State;
use flame_worker::Place;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Returns a module as it is after its end.
fn ended(module: &Stored, revision: u64) -> Stored {
    Stored { state: State::Stopped, reason: Some("a reason".to_owned()), revision, ..module.clone() }
}

fn database(folder: &Path) -> Connection {
    Connection::open(folder.join("state/node.sqlite")).unwrap()
}

fn store(folder: &Path) -> Store {
    Store::open(&folder.join("state")).unwrap()
}

/// A small disk in memory, unmounted at the end.
struct Disk(tempfile::TempDir);

impl Disk {
    fn new(mib: u64) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={mib}m,mode=700");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(folder.path()).output();
        if !mount.is_ok_and(|out| out.status.success()) {
            eprintln!("skipped: no file system can be mounted here (needs root)");
            return None;
        }
        Some(Self(folder))
    }

    /// Fills it down to the last page.
    fn fill(&self, name: &str) {
        use std::io::Write;
        let mut file = std::fs::File::create(self.0.path().join(name)).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

/// The settings would not fit another time, and the database has no room for what its log has: that would
/// take all that is kept for ends.
#[test]
fn the_end_of_a_large_module_is_stored_on_a_full_disk() {
    let Some(disk) = Disk::new(34) else { return };
    let (store, module) = (store(disk.0.path()), module(20 << 20));
    store.put(&module, None, None).unwrap();
    disk.fill("filler");
    let refused = store.put(&Stored { revision: 2, ..module.clone() }, Some(1), None).unwrap_err();
    assert!(refused.remedy().contains("free space"), "{refused}");
    // What the failed change left is taken as well.
    disk.fill("rest");
    for revision in 2..40 {
        let stored = store.end(&ended(&module, revision), revision - 1, Some(revision));
        stored.unwrap_or_else(|e| panic!("end {revision}: {e}"));
    }
    assert_eq!(store.modules().unwrap(), [ended(&module, 39)]);
    // As after a kill: nothing of the first is closed.
    let again = self::store(disk.0.path());
    assert_eq!(again.modules().unwrap(), [ended(&module, 39)]);
    assert_eq!(again.audited().unwrap(), Some(39));
    again.remove(&module.owner, NAME, 39, None).unwrap();
    assert!(again.modules().unwrap().is_empty());
}

/// The present revision of a module is the revision of its end, if that is later.
#[test]
fn an_end_belongs_to_the_revision_that_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (store, module) = (store(folder.path()), module(1));
    let (owner, raced) = (&module.owner, |done| matches!(done, Err(StoreError::Raced { .. })));
    assert!(raced(store.end(&ended(&module, 2), 1, None)), "there is none");
    store.put(&module, None, None).unwrap();
    store.end(&ended(&module, 2), 1, None).unwrap();
    assert_eq!(store.modules().unwrap(), [ended(&module, 2)]);
    let next = Stored { revision: 3, ..module.clone() };
    assert!(raced(store.end(&ended(&module, 2), 1, None)) && raced(store.put(&next, Some(1), None)));
    assert!(raced(store.propose(&next, Some(1))) && raced(store.remove(owner, NAME, 1, None)));
    let terms = StateTerms { module: NAME.to_owned(), version: 1, workers: 1, rights: String::new() };
    let (states, has_ended) = ([(Place::Slow, Arc::from(&b"s"[..]))], AtomicBool::new(false));
    for (revision, is_present) in [(1, false), (2, true)] {
        let while_it_runs = Some((revision, &has_ended));
        assert_eq!(store.put_states(owner, NAME, while_it_runs, &terms, &states).unwrap(), is_present);
    }
    // Stored in full, it runs again, whatever its end was.
    store.propose(&next, Some(2)).unwrap();
    store.put(&next, Some(2), None).unwrap();
    assert_eq!(store.modules().unwrap(), [next]);
    let ends = || -> i64 {
        database(folder.path()).query_row("SELECT count(*) FROM ends", [], |row| row.get(0)).unwrap()
    };
    assert_eq!(ends(), 0);
    store.end(&ended(&module, 4), 3, None).unwrap();
    store.remove(owner, NAME, 4, None).unwrap();
    assert_eq!(ends(), 0);
    store.put(&module, None, None).unwrap();
    assert_eq!(store.modules().unwrap(), [module]);
}

#[test]
fn ends_are_read_as_this_program_writes_them() {
    let folder = tempfile::tempdir().unwrap();
    let (store, module) = (store(folder.path()), module(1));
    store.put(&module, None, None).unwrap();
    let path = folder.path().join("state/node.sqlite");
    let read = || read_all(Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap());
    for (state, revision, expected, is_sound) in [
        ("evicted", 2, 2, true),
        // Not later than the module, or no state of an end: all that is known is that it has ended.
        ("evicted", 1, 1, false),
        ("evicted", -1, 1, false),
        ("evicted", i64::MAX, i64::MAX as u64 / 2, false),
        ("running", 2, 2, false),
        ("?", 2, 2, false),
    ] {
        let end = (NAME, state, revision);
        database(folder.path())
            .execute("INSERT OR REPLACE INTO ends VALUES ('', '', ?1, ?2, NULL, ?3)", end)
            .unwrap();
        let found = store.modules().unwrap().remove(0);
        let reason = found.reason.unwrap_or_default();
        assert_eq!(found.revision, expected, "{end:?}");
        assert_eq!(found.state, if is_sound { State::Evicted } else { State::Stopped }, "{end:?}");
        assert_eq!(reason.contains("table ends"), !is_sound, "{end:?}: {reason}");
        assert_eq!(read().unwrap()[0].revision, expected);
        // It can be changed as any other.
        let next = Stored { revision: expected + 1, ..module.clone() };
        store.put(&next, Some(expected), None).unwrap();
        store.remove(&next.owner, NAME, next.revision, None).unwrap();
        store.put(&module, None, None).unwrap();
    }
    // A database that is read only may be older than the table.
    database(folder.path()).execute_batch("DROP TABLE ends").unwrap();
    assert_eq!(read().unwrap()[0].revision, 1);
}

/// Stored filters have another meaning in each format.
#[test]
fn storage_of_another_format_is_refused_by_its_number_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let (store, module) = (store(folder.path()), module(1));
    store.put(&module, None, None).unwrap();
    drop(store);
    let version = || -> i64 {
        database(folder.path()).pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
    };
    assert_eq!(version(), 3);
    database(folder.path()).execute_batch("DROP TABLE proposals").unwrap();
    for other in [1, 2, 4] {
        database(folder.path()).pragma_update(None, "user_version", other).unwrap();
        let refused = Store::open(&path).map(drop).unwrap_err();
        assert!(matches!(refused, StoreError::Version { found, .. } if found == other), "{refused}");
        let said = format!("format {other}; this program reads 3: use the program that wrote it, or move");
        assert!(refused.to_string().contains(&said), "{refused}");
        assert_eq!(version(), other);
        assert!(!database(folder.path()).table_exists(None, "proposals").unwrap(), "it was changed");
    }
    database(folder.path()).pragma_update(None, "user_version", 3).unwrap();
    assert_eq!(self::store(folder.path()).modules().unwrap(), [module]);
}

#[test]
fn a_lock_of_another_program_is_named_as_that() {
    let folder = tempfile::tempdir().unwrap();
    let (store, module) = (store(folder.path()), module(1));
    let other = database(folder.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let start = Instant::now();
    let refused = store.put(&module, None, None).unwrap_err();
    let (waited, remedy) = (start.elapsed(), refused.remedy());
    assert!(refused.to_string().contains("locked"), "{refused}");
    assert!(remedy.contains("another program has locked") && remedy.contains("fuser"), "{remedy}");
    // The next one does not wait as long: others wait for the storage meanwhile.
    let start = Instant::now();
    (0..2).for_each(|_| drop(store.put(&module, None, None).unwrap_err()));
    assert!(start.elapsed() < waited, "{:?} after {waited:?}", start.elapsed());
    // A node that starts does not take it for storage that cannot be written.
    let path = folder.path().join("state");
    let refused = Store::open(&path).map(drop).unwrap_err();
    assert!(matches!(refused, StoreError::Locked { .. }), "{refused}");
    other.execute_batch("COMMIT").unwrap();
    store.put(&module, None, None).unwrap();
    Store::open(&path).unwrap().remove(&module.owner, NAME, 1, None).unwrap();
}

/// The log of a database that was not closed has its last changes. Where it cannot be read, what was ended or
/// revoked by them would run again.
#[test]
fn a_database_without_its_log_is_not_opened() {
    let Some(disk) = Disk::new(34) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (store, module) = (store(folder.path()), module(1));
    store.put(&module, None, None).unwrap();
    store.end(&ended(&module, 2), 1, None).unwrap();
    // A copy, without the index of the log.
    let copy = disk.0.path().join("state");
    std::fs::create_dir(&copy).unwrap();
    for file in ["node.sqlite", "node.sqlite-wal"] {
        std::fs::copy(folder.path().join("state").join(file), copy.join(file)).unwrap();
    }
    let remount = |how: &str| {
        let done = Command::new("mount").args(["-o", how]).arg(disk.0.path()).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    remount("remount,ro");
    let refused = Store::open(&copy).map(drop).unwrap_err();
    assert!(matches!(refused, StoreError::Log { .. }), "{refused}");
    // Written once, it has no log, and is read where nothing can be written.
    remount("remount,rw");
    drop(Store::open(&copy).unwrap());
    remount("remount,ro");
    let read = Store::open(&copy).unwrap();
    assert_eq!(read.modules().unwrap(), [ended(&module, 2)]);
    assert!(read.read_only().is_some_and(|why| why.contains("for reading only")), "{:?}", read.read_only());
}
