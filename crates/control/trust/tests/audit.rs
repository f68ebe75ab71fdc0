//! Tests of the audit log: complete logs pass, and any change is detected.

use flame_trust::{Audit, Event, Secret, verify_audit};
use proptest::prelude::*;
use std::path::Path;

fn counter(folder: &Path) -> std::path::PathBuf {
    flame_trust::counter_of(&folder.join("node.key"))
}

/// Verifies the log with its counter, which is kept apart.
fn verified(folder: &Path, secret: &Secret) -> Result<u64, String> {
    let log = folder.join("audit.log");
    verify_audit(&log, Some(&counter(folder)), &secret.public(), |_| ()).map_err(|e| e.to_string())
}

fn written(folder: &Path, secret: &Secret, entries: usize) -> std::path::PathBuf {
    let path = folder.join("audit.log");
    let log = Audit::new(&path, &counter(folder));
    for n in 0..entries {
        let event = [Event::Install, Event::Refuse, Event::Evict, Event::Revoke][n % 4].clone();
        log.write(secret, event, "alice", "count", &format!("entry \"{n}\"\nand more")).unwrap();
    }
    path
}

#[test]
fn a_whole_log_passes_and_is_read() {
    let (folder, secret) = (tempfile::tempdir().unwrap(), Secret::generate());
    let path = written(folder.path(), &secret, 9);
    let mut texts = Vec::new();
    assert_eq!(verify_audit(&path, None, &secret.public(), |e| texts.push(e.text.clone())).unwrap(), 9);
    assert_eq!(texts[8], "entry \"8\"\nand more");
    // Verification with another node's key fails.
    let other = Secret::generate().public();
    assert!(
        verify_audit(&path, None, &other, |_| ()).unwrap_err().to_string().contains("line 1: it was changed")
    );
}

/// A change to a log's lines, and the expected error.
type Change = (&'static str, fn(&mut Vec<String>), &'static str);

#[test]
fn what_was_changed_dropped_or_moved_is_found() {
    let secret = Secret::generate();
    let changes: [Change; 8] = [
        ("a changed word", |l| l[3] = l[3].replace("alice", "mallory"), "line 4: it was changed"),
        ("a dropped entry", |l| drop(l.remove(3)), "line 4: it is entry 5"),
        ("the first dropped", |l| drop(l.remove(0)), "line 1: it is entry 2"),
        ("two moved", |l| l.swap(2, 3), "line 3: it is entry 4"),
        ("one repeated", |l| l.insert(2, l[1].clone()), "line 3: it is entry 2"),
        ("the last dropped", |l| drop(l.pop()), "dropped from its end"),
        ("the last two dropped", |l| l.truncate(4), "dropped from its end"),
        ("all dropped", Vec::clear, "dropped from its end"),
    ];
    for (name, change, said) in changes {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), &secret, 6);
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        change(&mut lines);
        std::fs::write(&path, lines.iter().map(|l| format!("{l}\n")).collect::<String>()).unwrap();
        let error = verified(folder.path(), &secret).unwrap_err();
        assert!(error.contains(said), "{name}: {error}");
    }
}

#[test]
fn a_log_that_lost_its_end_is_not_written_on() {
    let (folder, secret) = (tempfile::tempdir().unwrap(), Secret::generate());
    let path = written(folder.path(), &secret, 3);
    let text = std::fs::read_to_string(&path).unwrap();
    let two: String = text.lines().take(2).map(|l| format!("{l}\n")).collect();
    std::fs::write(&path, two).unwrap();
    let again = Audit::new(&path, &counter(folder.path()))
        .write(&secret, Event::Install, "a", "m", "t")
        .unwrap_err()
        .to_string();
    assert!(again.contains("does not end with the entry of its head"), "{again}");
    // The machine stopped between entry and head: the entry exists and counts.
    std::fs::write(&path, &text).unwrap();
    let head = folder.path().join("audit.log.head");
    let (before, count) = (std::fs::read(&head).unwrap(), std::fs::read(counter(folder.path())).unwrap());
    Audit::new(&path, &counter(folder.path())).write(&secret, Event::Install, "a", "m", "t").unwrap();
    std::fs::write(&head, &before).unwrap();
    std::fs::write(counter(folder.path()), count).unwrap();
    assert_eq!(verified(folder.path(), &secret), Ok(4));
    Audit::new(&path, &counter(folder.path())).write(&secret, Event::Install, "a", "m", "t").unwrap();
    assert_eq!(verified(folder.path(), &secret), Ok(5));
}

/// A full disk or a killed writer leaves a log that can still be written.
#[test]
fn half_a_line_is_no_entry() {
    let (folder, secret) = (tempfile::tempdir().unwrap(), Secret::generate());
    let path = written(folder.path(), &secret, 3);
    let text = std::fs::read_to_string(&path).unwrap();
    let write = || Audit::new(&path, &counter(folder.path())).write(&secret, Event::Install, "a", "m", "t");
    for part in [1, 40, text.find('\n').unwrap()] {
        let before = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{before}{}", &text[..part])).unwrap();
        assert!(verified(folder.path(), &secret).unwrap_err().contains("cut short"));
        write().unwrap();
        verified(folder.path(), &secret).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().starts_with(&before));
    }
    // If the end was cut off, the log is refused.
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &text[..text.len() - 1]).unwrap();
    assert!(write().unwrap_err().to_string().contains("does not end with the entry of its head"));
}

/// Others may read a log, and can then lock it.
#[test]
fn who_reads_the_log_keeps_nobody_from_writing() {
    let (folder, secret) = (tempfile::tempdir().unwrap(), Secret::generate());
    let path = written(folder.path(), &secret, 1);
    let held = std::fs::File::open(&path).unwrap();
    held.lock().unwrap();
    let (done, wait) = std::sync::mpsc::channel();
    let counter = counter(folder.path());
    let mode = |name: &str| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(mode("node.key.audit.lock"), 0o600);
    let log = path.clone();
    std::thread::spawn(move || {
        let wrote = Audit::new(&log, &counter).write(&secret, Event::Install, "a", "m", "t").is_ok();
        done.send(wrote)
    });
    assert_eq!(wait.recv_timeout(std::time::Duration::from_secs(10)), Ok(true));
}

/// An entry fits a line that can be read again, for any texts.
#[test]
fn texts_are_cut_to_what_a_line_holds() {
    let (folder, secret) = (tempfile::tempdir().unwrap(), Secret::generate());
    let path = written(folder.path(), &secret, 1);
    let long = "\u{1}".repeat(5000);
    for _ in 0..2 {
        let log = Audit::new(&path, &counter(folder.path()));
        log.write(&secret, Event::Refuse, &long, &long, &long).unwrap();
    }
    assert_eq!(verified(folder.path(), &secret), Ok(3));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Changes any one byte.
    #[test]
    fn any_changed_byte_is_found(at in any::<prop::sample::Index>(), by in 1u8..=255) {
        let (folder, secret) = (tempfile::tempdir().unwrap(), Secret::generate());
        let path = written(folder.path(), &secret, 3);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= by;
        std::fs::write(&path, bytes).unwrap();
        prop_assert!(verified(folder.path(), &secret).is_err());
    }
}

/// A change to a log and its files, and the expected results of verifying and of writing.
type Theft = (&'static str, fn(&Path), &'static str, &'static str);

#[test]
fn log_head_and_counter_hold_each_other() {
    fn first_line(folder: &Path) {
        let log = folder.join("audit.log");
        let line = std::fs::read_to_string(&log).unwrap().lines().next().unwrap().to_owned();
        std::fs::write(&log, line + "\n").unwrap();
    }
    fn old(folder: &Path) {
        for name in ["audit.log", "audit.log.head"] {
            std::fs::copy(folder.join(format!("{name}.old")), folder.join(name)).unwrap();
        }
    }
    let gone = |folder: &Path, name: &str| std::fs::remove_file(folder.join(name)).unwrap();
    let secret = Secret::generate();
    let thefts: [Theft; 6] = [
        // This log once verified as complete after the next entry.
        (
            "one line and no head",
            |f| {
                first_line(f);
                std::fs::remove_file(f.join("audit.log.head")).unwrap()
            },
            ".head is missing",
            "audit.log.head is missing",
        ),
        (
            "no head",
            |f| std::fs::remove_file(f.join("audit.log.head")).unwrap(),
            ".head is missing",
            "audit.log.head is missing",
        ),
        (
            "no counter",
            |f| std::fs::remove_file(counter(f)).unwrap(),
            "counter is missing",
            "node.key.audit is missing",
        ),
        ("log and head of some time ago", old, "put back together", "do not belong together"),
        (
            "no log",
            |f| std::fs::write(f.join("audit.log"), "").unwrap(),
            "dropped from its end",
            "does not end with the entry",
        ),
        (
            "neither head nor counter",
            |f| {
                std::fs::remove_file(f.join("audit.log.head")).unwrap();
                std::fs::remove_file(counter(f)).unwrap()
            },
            ".head is missing",
            "neither its .head nor its counter",
        ),
    ];
    for (name, theft, verifying, writing) in thefts {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), &secret, 3);
        for name in ["audit.log", "audit.log.head"] {
            std::fs::copy(folder.path().join(name), folder.path().join(format!("{name}.old"))).unwrap();
        }
        let log = Audit::new(&path, &counter(folder.path()));
        (0..3).for_each(|_| log.write(&secret, Event::End, "alice", "count", "").unwrap());
        assert_eq!(verified(folder.path(), &secret), Ok(6));
        theft(folder.path());
        let said = verified(folder.path(), &secret).unwrap_err();
        assert!(said.contains(verifying), "{name}: {said}");
        let said = log.write(&secret, Event::Fault, "alice", "count", "").unwrap_err().to_string();
        assert!(said.contains(writing), "{name}: {said}");
    }
    // A log that others may write is refused.
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), &secret, 1);
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let log = Audit::new(&path, &counter(folder.path()));
    assert!(
        log.write(&secret, Event::End, "a", "m", "")
            .unwrap_err()
            .to_string()
            .contains("others may change it")
    );
    gone(folder.path(), "audit.log");
    std::os::unix::fs::symlink("elsewhere", &path).unwrap();
    assert!(log.write(&secret, Event::End, "a", "m", "").unwrap_err().to_string().contains("symbolic link"));
}
