//! The audit log: whole logs pass, any change is found.

use flame_trust::{Audit, Event, Secret, verify_audit};
use proptest::prelude::*;
use std::path::Path;

fn written(folder: &Path, secret: &Secret, entries: usize) -> std::path::PathBuf {
    let path = folder.join("audit.log");
    let log = Audit::new(&path);
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
    assert_eq!(verify_audit(&path, &secret.public(), |e| texts.push(e.text.clone())).unwrap(), 9);
    assert_eq!(texts[8], "entry \"8\"\nand more");
    // Another node's key does not do.
    let other = Secret::generate().public();
    assert!(verify_audit(&path, &other, |_| ()).unwrap_err().to_string().contains("line 1: it was changed"));
}

/// What is done to a log's lines, and what verifying says.
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
        let error = verify_audit(&path, &secret.public(), |_| ()).unwrap_err().to_string();
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
    let again = Audit::new(&path).write(&secret, Event::Install, "a", "m", "t").unwrap_err().to_string();
    assert!(again.contains("does not end where its head says"), "{again}");
    // A machine that stopped between entry and head: the entry is there, and is counted.
    std::fs::write(&path, &text).unwrap();
    let head = folder.path().join("audit.log.head");
    let before = std::fs::read(&head).unwrap();
    Audit::new(&path).write(&secret, Event::Install, "a", "m", "t").unwrap();
    std::fs::write(&head, before).unwrap();
    assert_eq!(verify_audit(&path, &secret.public(), |_| ()).unwrap(), 4);
    Audit::new(&path).write(&secret, Event::Install, "a", "m", "t").unwrap();
    assert_eq!(verify_audit(&path, &secret.public(), |_| ()).unwrap(), 5);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Any one byte.
    #[test]
    fn any_changed_byte_is_found(at in any::<prop::sample::Index>(), by in 1u8..=255) {
        let (folder, secret) = (tempfile::tempdir().unwrap(), Secret::generate());
        let path = written(folder.path(), &secret, 3);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= by;
        std::fs::write(&path, bytes).unwrap();
        prop_assert!(verify_audit(&path, &secret.public(), |_| ()).is_err());
    }
}
