//! The way from spool files through a log in memory into an archive, step by step.

use crate::agent::Agent;
use crate::archive::{Archive, ArchiveError};
use crate::parquet_files::Files;
use crate::store::{CommitError, State, Store};
use crate::{maintain, query};
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::arrow::util::pretty::pretty_format_batches;
use flame_fleet_nats::Memory;
use flame_fleet_protocol::Subject;
use flame_spool::{Batch, Epoch, MIN_BOUND, Writer};
use std::collections::HashSet;
use std::sync::Arc;
use tokio::runtime::Runtime;

const PRINCIPAL: &str = "alice@0";
/// A time in 2026.
const TIME: u64 = 1_780_000_000_000_000_000;

pub struct Way {
    folder: tempfile::TempDir,
    spool: Writer,
    log: Memory,
    pub store: Store,
    runtime: Runtime,
    rows: u64,
}

impl Way {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool").join(flame_spool::escape(PRINCIPAL)).join("m/t");
        let spool = Writer::open(&path, MIN_BOUND, || Epoch(7)).unwrap();
        let store = Store::open(&folder.path().join("archive"), true).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        Self { folder, spool, log: Memory::default(), store, runtime, rows: 0 }
    }

    /// Appends a batch with a column of consecutive numbers, and maybe another one.
    pub fn append(&mut self, rows: u64, more: Option<(&str, ArrayRef)>) {
        let numbers: ArrayRef = Arc::new(UInt64Array::from_iter_values(self.rows..self.rows + rows));
        let columns = [("n", numbers)].into_iter().chain(more);
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut body = Vec::new();
        let mut writer = StreamWriter::try_new(&mut body, &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        self.append_body(rows, &body);
        self.rows += rows;
    }

    fn append_body(&mut self, rows: u64, body: &[u8]) {
        self.spool.append(&Batch { rows, first: TIME, last: TIME + 1, body }).unwrap();
        self.spool.sync().unwrap();
    }

    /// Sends all, by an agent that has just been started.
    pub fn send(&mut self) {
        let mut agent = Agent::new("tap1", &self.folder.path().join("spool"), 1 << 30);
        while agent.pass(&mut self.log).unwrap() {}
    }

    pub fn writer(&self) -> Archive {
        Archive::load(self.store.clone()).unwrap()
    }

    pub fn archive(&mut self, writer: &mut Archive) -> Result<bool, ArchiveError> {
        writer.pass(&mut self.log, &[PRINCIPAL.to_owned()])
    }

    pub fn state(&self) -> State {
        self.runtime.block_on(self.store.load()).unwrap()
    }

    fn query(&self, sql: &str) -> String {
        let rows = self.runtime.block_on(async {
            let context = query::session(&self.store, &query::pool(None)).await.unwrap();
            context.sql(sql).await.unwrap().collect().await.unwrap()
        });
        pretty_format_batches(&rows).unwrap().to_string()
    }

    /// Checks that each row is archived once.
    pub fn check(&self) {
        assert_eq!(self.state().files.iter().map(|file| file.rows).sum::<u64>(), self.rows);
        let found = self.query("SELECT count(*), count(DISTINCT n), max(n) + 1 FROM m.t");
        let expected: Vec<_> = [self.rows; 3].iter().map(u64::to_string).collect();
        let cells: Vec<_> = found.lines().nth(3).unwrap().split('|').map(str::trim).collect();
        assert_eq!(cells[1..4], expected, "{found}");
    }
}

#[test]
fn of_two_writers_one_begins_again() {
    let mut way = Way::new();
    (0..5).for_each(|_| way.append(10, None));
    way.send();
    let (mut first, mut second) = (way.writer(), way.writer());
    // What the second one was given before the first one removed it.
    let given = way.log.clone();
    way.archive(&mut first).unwrap();
    let after = std::mem::replace(&mut way.log, given);
    let error = way.archive(&mut second).unwrap_err();
    assert!(matches!(error, ArchiveError::Commit(CommitError::Taken(1))), "{error}");
    // It begins again with what is stored, and takes nothing a second time.
    let mut second = way.writer();
    way.archive(&mut second).unwrap();
    way.check();
    way.log = after;
    (0..5).for_each(|_| way.append(10, None));
    way.send();
    way.archive(&mut second).unwrap();
    way.check();
}

#[test]
fn files_without_a_change_are_not_read() {
    let mut way = Way::new();
    way.append(10, None);
    way.send();
    // A writer that is killed before it stores the change.
    let mut files = Files::default();
    let subject = Subject::new("tap1", PRINCIPAL, "m", "t").unwrap();
    let mut log = way.log.clone();
    let records = flame_fleet_nats::Log::pull(&mut log, &subject, 0, 10).unwrap();
    let message = flame_fleet_protocol::Message::read(&records[0].bytes).unwrap();
    files.add(&subject, &message.frame).unwrap();
    let written = way.runtime.block_on(files.write(&way.store, 1, &mut HashSet::new())).unwrap();
    assert!(way.folder.path().join("archive").join(&written[0].path).is_file());
    assert!(written[0].path.starts_with("data/date=2026-05-28/node=tap1/table=alice@0.m.t/"), "{written:?}");
    assert_eq!(way.state().files.len(), 0);
    let mut writer = way.writer();
    way.archive(&mut writer).unwrap();
    way.check();
}

#[test]
fn a_batch_that_is_no_arrow_is_counted_as_lost() {
    let mut way = Way::new();
    way.append(10, None);
    way.append_body(7, b"no stream of Arrow's");
    way.append(10, None);
    way.send();
    let mut writer = way.writer();
    way.archive(&mut writer).unwrap();
    way.check();
    let losses = way.query("SELECT node, principal, module, \"table\", rows FROM fleet.losses");
    assert!(losses.contains("| tap1 | alice@0   | m      | t     | 7    |"), "{losses}");
}

#[test]
fn added_columns_continue_a_table() {
    let mut way = Way::new();
    way.append(2, None);
    way.append(1, Some(("more", Arc::new(UInt64Array::from(vec![5])))));
    way.append(2, None);
    way.append(1, Some(("more", Arc::new(StringArray::from(vec!["a text"])))));
    way.send();
    let mut writer = way.writer();
    way.archive(&mut writer).unwrap();
    let rows = way.query("SELECT n, more, node FROM m.t ORDER BY n");
    let expected =
        ["| 0 |      | tap1 |", "| 1 |      | tap1 |", "| 2 | 5    | tap1 |", "| 3 |      | tap1 |"];
    assert!(expected.iter().all(|row| rows.contains(row)), "{rows}");
    let other = way.query("SELECT n, more FROM m.t_2");
    assert!(other.contains("| 5 | a text |") && other.lines().count() == 5, "{other}");
}

#[test]
fn a_whole_manifest_has_all_changes() {
    let mut way = Way::new();
    let mut writer = way.writer();
    for _ in 0..70 {
        way.append(1, None);
        way.send();
        way.archive(&mut writer).unwrap();
    }
    way.check();
    let manifest = way.folder.path().join("archive/manifest");
    for version in 1..=64 {
        std::fs::remove_file(manifest.join(format!("change-{version:020}.json"))).unwrap();
    }
    way.check();
    assert_eq!(way.state().version, 70);
    std::fs::remove_file(manifest.join(format!("change-{:020}.json", 66))).unwrap();
    let error = way.runtime.block_on(way.store.load()).unwrap_err().to_string();
    assert!(error.contains("change-00000000000000000066.json is missing"), "{error}");
}

#[test]
fn small_files_become_one_and_old_ones_go() {
    let mut way = Way::new();
    let mut writer = way.writer();
    for n in 0..20 {
        let more: Option<(&str, ArrayRef)> =
            (n == 19).then(|| ("n2", Arc::new(StringArray::from(vec!["x"; 2])) as _));
        way.append(2, more);
        way.send();
        way.archive(&mut writer).unwrap();
    }
    let before: Vec<_> = way.state().files.into_iter().map(|file| file.path).collect();
    writer.maintain(None, u64::MAX).unwrap();
    way.check();
    // Those with other columns stay, and follow as before.
    let state = way.state();
    assert_eq!(state.files.iter().map(|file| file.rows).collect::<Vec<_>>(), [38, 2]);
    assert_eq!(way.query("SELECT * FROM m.t").lines().nth(1).unwrap().matches('|').count(), 5);
    assert_eq!((state.version, state.removed.len()), (21, 19));
    // The writer continues with the next version; files that queries may still read are deleted later.
    let exists = |path: &String| way.folder.path().join("archive").join(path).is_file();
    assert!(before.iter().all(exists));
    for _ in 0..70 {
        way.append(1, None);
        way.send();
        way.archive(&mut writer).unwrap();
        writer.maintain(None, u64::MAX).unwrap();
    }
    way.check();
    let exists = |path: &String| way.folder.path().join("archive").join(path).is_file();
    assert_eq!(before.iter().filter(|path| exists(path)).count(), 1, "the one that was not merged");
    // All rows are of one time: rows from the future of the clock, or a clock that is ahead, remove nothing.
    writer.maintain(Some(1000), u64::MAX).unwrap();
    way.check();
    assert_eq!(maintain::plan(&way.state(), Some(1000), u64::MAX).old, [""; 0]);
    let mut state = way.state();
    state.files[0].last = TIME - 2000;
    assert_eq!(maintain::plan(&state, Some(1000), u64::MAX).old, [state.files[0].path.clone()]);
    assert_eq!(maintain::plan(&state, Some(1000), TIME - 1500).old, [""; 0]);
    assert_eq!(maintain::length("30d").unwrap(), 30 * 86_400_000_000_000);
    assert!(maintain::length("30").unwrap_err().to_string().contains("30d"));
}
