//! What leaves a node of a fleet, and what does not.

use crate::life::Key;
use crate::outbox::{LOST, Outbox};
use crate::reach::Made;
use crate::spool::Spool;
use crate::store::Owner;
use crate::test_world::MANIFEST;
use arrow_array::{UInt64Array, cast::AsArray, types::UInt64Type};
use arrow_ipc::reader::StreamReader;
use arrow_schema::{DataType, Field, Schema};
use flame_abi::manifest::Manifest;
use flame_plan::CatalogEntry;
use flame_record::RecordBatch;
use flame_spool::{Kept, Reader, escape};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Way {
    folder: tempfile::TempDir,
    outbox: Outbox,
    key: Key,
    spool: Arc<Spool>,
    entry: Arc<CatalogEntry>,
}

impl Way {
    fn new(spool: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let labels = [("site".to_owned(), "penn".to_owned())].into();
        let outbox = Outbox::new(folder.path().join("spool"), 32 << 20, &labels);
        let owner = Owner { root: "ed25519/0123456789abcdef00".to_owned(), principal: "alice".to_owned() };
        let manifest = Arc::new(Manifest::parse(MANIFEST.as_bytes()).unwrap());
        let entry = Arc::new(CatalogEntry { name: "m".to_owned(), hash: [0; 32], manifest });
        let spool = Arc::new(Spool::new(spool, Arc::default()));
        Self { folder, outbox, key: (owner, "m".to_owned()), spool, entry }
    }

    fn push(&self, values: Range<u64>) {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::UInt64, false)]));
        let column = Arc::new(UInt64Array::from_iter_values(values));
        let rows = RecordBatch::try_new(schema, vec![column]).unwrap();
        self.spool.push((&self.entry, &Made::default()), &self.entry.manifest.tables[0], &rows);
    }

    fn pass(&mut self, may_leave: bool, more: Option<Instant>) -> Result<(), String> {
        self.outbox.pass(vec![(self.key.clone(), self.spool.clone(), may_leave)], more)
    }

    /// Returns a column of what is in the file of a table.
    fn left(&self, table: &str, column: &str) -> Vec<u64> {
        let path = self.folder.path().join("spool").join(escape("alice@0123456789abcdef")).join("m");
        let path = path.join(escape(table));
        if !path.exists() {
            return Vec::new();
        }
        let reader = Reader::open(&path).unwrap();
        let (mut all, mut next, mut bytes) = (Vec::new(), None, Vec::new());
        while let Some(position) = reader.first(next) {
            bytes.clear();
            let frame = reader.read(position, &mut bytes).unwrap().unwrap();
            for batch in StreamReader::try_new(frame.body, None).unwrap() {
                let batch = batch.unwrap();
                let metadata = batch.schema_ref().metadata().get("flame.label.site").map(String::as_str);
                assert_eq!(metadata, if table == LOST { None } else { Some("penn") });
                let column = batch.column_by_name(column).unwrap();
                all.extend(column.as_primitive::<UInt64Type>().values());
            }
            next = Some(position.next());
        }
        all
    }
}

fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).unwrap().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn rows_leave_once_they_are_released() {
    let mut way = Way::new(1 << 20);
    let begun = Instant::now();
    way.push(0..10);
    way.pass(true, Some(begun)).unwrap();
    way.pass(true, Some(begun + Duration::from_secs(2))).unwrap();
    assert_eq!(way.left("t", "n"), Vec::<u64>::new());
    way.spool.release();
    way.pass(true, Some(begun + Duration::from_secs(2))).unwrap();
    assert_eq!(way.left("t", "n"), Vec::<u64>::new(), "they wait for others of their batch");
    way.pass(true, Some(begun + Duration::from_secs(3))).unwrap();
    assert_eq!(way.left("t", "n"), (0..10).collect::<Vec<_>>());
    // More than a batch is written at once, and the last ones at the end.
    way.push(10..100_000);
    way.spool.release();
    way.pass(true, Some(begun + Duration::from_secs(3))).unwrap();
    assert!(way.left("t", "n").len() > 50_000);
    way.push(100_000..100_001);
    way.spool.close();
    way.pass(true, None).unwrap();
    assert_eq!(way.left("t", "n"), (0..100_001).collect::<Vec<_>>());
    assert_eq!(names(&way.folder.path().join("spool")), [escape("alice@0123456789abcdef")]);
}

#[test]
fn rows_of_a_grant_that_ended_stay_and_are_counted() {
    let mut way = Way::new(1 << 20);
    let begun = Instant::now();
    way.push(0..10);
    way.spool.release();
    way.pass(true, Some(begun)).unwrap();
    way.push(10..15);
    way.spool.release();
    way.pass(false, Some(begun)).unwrap();
    way.pass(false, None).unwrap();
    assert_eq!(way.left("t", "n"), Vec::<u64>::new());
    assert_eq!(way.left(LOST, "rows"), [15]);
}

#[test]
fn rows_that_memory_dropped_are_counted() {
    let mut way = Way::new(64 << 10);
    for n in 0..1000 {
        way.push(100 * n..100 * (n + 1));
        way.spool.release();
    }
    way.pass(true, None).unwrap();
    let (left, lost) = (way.left("t", "n"), way.left(LOST, "rows"));
    assert!(!left.is_empty() && lost.len() == 1, "{lost:?}");
    assert_eq!(left.len() as u64 + lost[0], 100_000);
}

#[test]
fn a_file_that_cannot_be_written_is_tried_again() {
    let mut way = Way::new(1 << 20);
    let folder = way.folder.path().join("spool");
    std::fs::write(&folder, "a file in its place").unwrap();
    way.push(0..50_000);
    way.spool.release();
    let error = way.pass(true, None).unwrap_err();
    assert!(error.contains("spool"), "{error}");
    way.pass(true, None).unwrap_err();
    std::fs::remove_file(&folder).unwrap();
    way.pass(true, None).unwrap();
    assert_eq!(way.left("t", "n"), (0..50_000).collect::<Vec<_>>());
}
