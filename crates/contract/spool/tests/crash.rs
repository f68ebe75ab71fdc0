//! The spool after a process or a machine has ended at any moment, and after a backup was restored.

use crate::{append, at, found, open};
use flame_spool::{Batch, Kept, MIN_BOUND, Reader, SpoolError, Totals, Writer};
use std::path::{Path, PathBuf};

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o700)).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn newest(path: &Path) -> PathBuf {
    let names = std::fs::read_dir(path).unwrap().flatten().map(|entry| entry.path());
    names.filter(|name| name.extension().is_some_and(|e| e == "seg")).max().unwrap()
}

/// Cut off at any byte, or with any bytes in the place of the last ones, the tail costs what was not synced.
#[test]
fn a_tail_torn_at_each_byte_costs_the_last_batch_only() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    let mut writer = open(&whole, MIN_BOUND, 1);
    append(&mut writer, 3);
    append(&mut writer, 5);
    let synced = newest(&whole).metadata().unwrap().len();
    append(&mut writer, 7);
    drop(writer);
    let length = newest(&whole).metadata().unwrap().len();
    for (n, torn) in (synced..=length).enumerate() {
        for filled in [false, true] {
            let path = folder.path().join(format!("{n}{filled}"));
            copy(&whole, &path);
            let file = std::fs::OpenOptions::new().write(true).open(newest(&path)).unwrap();
            file.set_len(torn).unwrap();
            if filled {
                // The length reached the disk, and the bytes did not.
                file.set_len(length).unwrap();
            }
            let is_whole = torn == length;
            let mut writer = open(&path, MIN_BOUND, 100);
            append(&mut writer, 9);
            let all: Vec<_> =
                found(&Reader::open(&path).unwrap()).into_iter().map(|(_, rows)| rows).collect();
            let expected = if is_whole { vec![3, 5, 7, 9] } else { vec![3, 5, 9] };
            assert_eq!(all, expected, "torn at {torn} of {length}");
            let last = writer.ranges()[0];
            assert_eq!((last.last, last.totals.rows), if is_whole { (3, 15) } else { (2, 8) });
        }
    }
}

/// A segment whose head is not whole was being made; it has no batch.
#[test]
fn a_head_torn_at_each_byte_costs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    append(&mut open(&whole, MIN_BOUND, 1), 3);
    let _ = open(&whole, MIN_BOUND, 5);
    let length = newest(&whole).metadata().unwrap().len();
    for torn in 0..length {
        let path = folder.path().join(torn.to_string());
        copy(&whole, &path);
        std::fs::OpenOptions::new().write(true).open(newest(&path)).unwrap().set_len(torn).unwrap();
        let mut writer = open(&path, MIN_BOUND, 100);
        append(&mut writer, 9);
        assert_eq!(found(&Reader::open(&path).unwrap()).len(), 2);
    }
}

/// Neither of two copies can give other content to a position of the other one.
#[test]
fn copies_continue_in_epochs_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    let mut writer = open(&one, MIN_BOUND, 1);
    append(&mut writer, 3);
    copy(&one, &two);
    assert_eq!(append(&mut writer, 4), at(1, 2));
    let mut restored = open(&two, MIN_BOUND, 50);
    assert_eq!(append(&mut restored, 5), at(50, 1));
    assert_eq!(restored.ranges()[0].last, 1);
}

/// An opening without a batch leaves no trace.
#[test]
fn empty_epochs_are_not_spoken_of() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spool");
    append(&mut open(&path, MIN_BOUND, 1), 3);
    for n in 2..200 {
        drop(open(&path, MIN_BOUND, n));
    }
    let mut writer = open(&path, MIN_BOUND, 500);
    append(&mut writer, 4);
    let epochs: Vec<_> = writer.ranges().iter().map(|range| range.epoch.0).collect();
    assert_eq!(epochs, [1, 500]);
    let segments = std::fs::read_dir(&path).unwrap().flatten();
    let segments = segments.filter(|e| e.file_name().to_string_lossy().ends_with(".seg")).count();
    assert!(segments <= 3, "{segments} segments");
}

/// What cannot be read in the middle of a closed epoch is given up with all before it, and counted.
#[test]
fn a_hole_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spool");
    let mut writer = open(&path, MIN_BOUND, 1);
    for rows in 1..=4 {
        append(&mut writer, rows);
    }
    let segment = newest(&path);
    drop(writer);
    let _ = open(&path, MIN_BOUND, 2);
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes.len() - 150;
    bytes[at] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let reader = Reader::open(&path).unwrap();
    let range = reader.ranges()[0];
    assert_eq!((range.floor, range.last, range.totals.rows), (5, 4, 10));
    assert_eq!(found(&reader), []);
}

#[test]
fn a_second_writer_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spool");
    let _writer = open(&path, MIN_BOUND, 1);
    let error = Writer::open(&path, MIN_BOUND, || flame_spool::Epoch(2)).map(drop).unwrap_err();
    assert!(matches!(error, SpoolError::Locked { .. }), "{error}");
    let error =
        Writer::open(&folder.path().join("small"), 5, || flame_spool::Epoch(2)).map(drop).unwrap_err();
    assert!(error.to_string().contains("expected at least"), "{error}");
}

/// A batch that is refused for its content leaves the spool as it was.
#[test]
fn a_refused_batch_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spool");
    let mut writer = open(&path, MIN_BOUND, 1);
    append(&mut writer, 2);
    writer.append(&Batch { rows: 1, first: 2, last: 1, body: b"" }).unwrap_err();
    assert_eq!(append(&mut writer, 3), at(1, 2));
    assert_eq!(writer.ranges()[0].totals, Totals { rows: 5, bytes: 5, until: 4 });
}
