//! A spool that is followed, bounded, cut and forked.

use crate::{append, at, found, open};
use flame_spool::{Batch, Cut, Epoch, HEADER, Hash, Kept, MIN_BOUND, Place, Reader, Stamp, Writer};

fn stamp(reader: &impl Kept, epoch: u64, sequence: u64) -> Stamp {
    let position = at(epoch, sequence);
    Stamp { position, hash: reader.hash(position).unwrap_or_default() }
}

#[test]
fn a_reader_follows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spool");
    let mut writer = open(&path, MIN_BOUND, 1);
    let mut reader = Reader::open(&path).unwrap();
    assert_eq!(found(&reader), []);
    append(&mut writer, 3);
    append(&mut writer, 4);
    reader.refresh().unwrap();
    assert_eq!(found(&reader), [(at(1, 1), 3), (at(1, 2), 4)]);
    drop(writer);
    append(&mut open(&path, MIN_BOUND, 2), 5);
    reader.refresh().unwrap();
    assert_eq!(found(&reader), [(at(1, 1), 3), (at(1, 2), 4), (at(2, 1), 5)]);
    assert!(reader.grows(Epoch(2)) && !reader.grows(Epoch(1)));
}

/// Appends one of the largest batches that the test of the bound makes.
fn large(writer: &mut Writer, n: u64) {
    let body = vec![0; 900_000];
    writer.append(&Batch { rows: n, first: n, last: n, body: &body }).unwrap();
    writer.sync().unwrap();
}

#[test]
fn the_oldest_batches_make_room_and_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spool");
    let mut writer = open(&path, MIN_BOUND, 1);
    for n in 1..=60 {
        large(&mut writer, n);
        let files = std::fs::read_dir(&path).unwrap().flatten();
        let bytes: u64 = files.map(|file| file.metadata().unwrap().len()).sum();
        assert!(bytes <= MIN_BOUND, "{bytes}");
    }
    let range = writer.ranges()[0];
    assert_eq!((range.last, range.totals.rows), (60, 60 * 61 / 2));
    assert!(range.floor > 40 && range.floor < 50, "{}", range.floor);
    let gone: u64 = (1..range.floor).sum();
    assert_eq!((writer.dropped().rows, writer.dropped().batches), (gone, range.floor - 1));
    let (reader, mut bytes) = (Reader::open(&path).unwrap(), Vec::new());
    let oldest = reader.read(at(1, range.floor), &mut bytes).unwrap().unwrap();
    assert_eq!(oldest.header.before.rows, gone);
    assert_eq!(reader.read(at(1, range.floor - 1), &mut bytes).unwrap(), None);
    // It survives an opening, and the end of the epoch stays known when nothing of it is left.
    drop(writer);
    let mut writer = open(&path, MIN_BOUND, 2);
    assert_eq!(writer.ranges()[0], range);
    (0..40).for_each(|n| large(&mut writer, n));
    let gone = writer.ranges()[0];
    assert_eq!((gone.epoch, gone.floor, gone.last, gone.totals), (Epoch(1), 61, 60, range.totals));
}

#[test]
fn the_cut_removes_what_is_archived_and_never_falls() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spool");
    let mut writer = open(&path, MIN_BOUND, 1);
    (1..=12).for_each(|n| large(&mut writer, n));
    drop(writer);
    let mut writer = open(&path, MIN_BOUND, 2);
    append(&mut writer, 3);
    let mut reader = Reader::open(&path).unwrap();
    let floor = |writer: &Writer| writer.ranges()[0].floor;
    let cut = |reader: &mut Reader, sequence| {
        let archived = stamp(reader, 1, sequence);
        reader.cut(&Cut { archived, forked: None }).unwrap();
    };
    cut(&mut reader, 9);
    writer.sync().unwrap();
    assert!((8..=10).contains(&floor(&writer)), "{}", floor(&writer));
    assert_eq!(writer.dropped().rows, 0);
    let before = floor(&writer);
    // A statement that comes late.
    cut(&mut reader, 4);
    assert_eq!(reader.stated().unwrap().archived.position, at(1, 9));
    writer.sync().unwrap();
    assert_eq!(floor(&writer), before);
    // One about an epoch that the spool does not know.
    let foreign = Stamp { position: at(77, 5), hash: Hash::default() };
    reader.cut(&Cut { archived: foreign, forked: None }).unwrap();
    writer.sync().unwrap();
    assert_eq!(floor(&writer), before);
    let archived = stamp(&reader, 2, 1);
    reader.cut(&Cut { archived, forked: None }).unwrap();
    writer.sync().unwrap();
    assert_eq!(writer.ranges().len(), 1);
    assert_eq!(writer.ranges()[0].epoch, Epoch(2));
    reader.refresh().unwrap();
    assert_eq!(found(&reader), [(at(2, 1), 3)]);
}

/// Others have another batch at a position: the spool gives up its own behind the common ones, counts them
/// in the next epoch, and says so after an opening, too.
#[test]
fn a_fork_begins_an_epoch_that_counts_the_difference() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spool");
    let mut writer = open(&path, MIN_BOUND, 1);
    for rows in 1..=4 {
        append(&mut writer, rows);
    }
    let mut reader = Reader::open(&path).unwrap();
    let other = |sequence| Stamp { position: at(1, sequence), hash: Hash([7; 16]) };
    assert_eq!(reader.place(&other(3)), Place::Forked);
    assert_eq!(reader.place(&other(5)), Place::Forked);
    assert_eq!(reader.place(&stamp(&reader, 1, 3)), Place::Common);
    let archived = stamp(&reader, 1, 2);
    reader.cut(&Cut { archived, forked: Some(at(1, 2)) }).unwrap();
    writer.sync().unwrap();
    assert_eq!(append(&mut writer, 9), at(2, 1));
    let check = |kept: &dyn Kept| {
        let [old, new] = kept.ranges() else { panic!("{:?}", kept.ranges()) };
        assert_eq!((old.last, old.totals.rows, new.totals.rows), (2, 3, 3 + 4 + 9));
    };
    check(&writer);
    // It acts once.
    writer.sync().unwrap();
    assert_eq!(append(&mut writer, 9).epoch, Epoch(2));
    drop(writer);
    reader.refresh().unwrap();
    let mut bytes = Vec::new();
    assert_eq!(reader.read(at(2, 1), &mut bytes).unwrap().unwrap().header.before.rows, 7);
    let opened = open(&path, MIN_BOUND, 5);
    assert_eq!((opened.ranges()[0].last, opened.ranges()[1].epoch), (2, Epoch(2)));
}

/// A restored backup whose epoch was longer before is no fork: its batches are the beginning of those.
#[test]
fn a_longer_epoch_elsewhere_is_no_fork_once_another_has_begun() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spool");
    append(&mut open(&path, MIN_BOUND, 1), 3);
    let mut writer = open(&path, MIN_BOUND, 2);
    append(&mut writer, 3);
    let longer = Stamp { position: at(1, 9), hash: Hash([7; 16]) };
    assert_eq!(writer.place(&longer), Place::Longer);
    assert_eq!(writer.place(&Stamp { position: at(9, 1), ..longer }), Place::Foreign);
    assert_eq!(writer.place(&Stamp { position: at(1, 1), ..longer }), Place::Forked);
}

/// The order of positions within the file, and where a reader continues.
#[test]
fn positions_have_an_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spool");
    let mut writer = open(&path, MIN_BOUND, 9);
    append(&mut writer, 1);
    append(&mut writer, 2);
    drop(writer);
    let mut writer = open(&path, MIN_BOUND, 2);
    assert_eq!(writer.first(Some(at(9, 3))), None);
    append(&mut writer, 3);
    assert_eq!(writer.first(None), Some(at(9, 1)));
    assert_eq!(writer.first(Some(at(9, 2))), Some(at(9, 2)));
    assert_eq!(writer.first(Some(at(9, 3))), Some(at(2, 1)));
    assert_eq!(writer.first(Some(at(2, 2))), None);
    assert!(writer.order(at(9, 7)) < writer.order(at(2, 1)));
    const { assert!(HEADER < 200) };
}
