//! The records of a module that the node keeps for its clients: numbered rows in memory, at most a given
//! number of bytes.
//!
//! The dataplane appends and never waits for a reader: when the spool is full, the oldest batches are dropped
//! and counted. Readers share the batches. Rows can be read once they are released, those of a module under a
//! grant at ticks, together with its account, lines and use. With a resolution, rows have waited in the
//! worker for the end of their interval. This second wait makes one copy as of a tick of all that a holder
//! reads, also under a grant without a resolution, whose rows wait nowhere else. Each batch has the rights
//! under which it was made.

use crate::reach::{EARLIER, Made, Reach, add_to, are_alike};
use flame_abi::manifest::Table;
use flame_base::lock;
use flame_plan::CatalogEntry;
use flame_quota::Usage;
use flame_record::RecordBatch;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::watch;

/// Rows of one table.
#[derive(Clone)]
pub struct Batch {
    /// The number of the first row.
    pub first: u64,
    pub rows: RecordBatch,
    /// The module's tables at the time.
    pub entry: Arc<CatalogEntry>,
    pub(crate) made: Made,
    /// The number of the rows' table among them.
    table: usize,
    bytes: u64,
}

impl Batch {
    /// Returns the table of the rows.
    pub fn table(&self) -> &Table {
        &self.entry.manifest.tables[self.table]
    }

    /// Returns the number of the row after the last one.
    pub fn next(&self) -> u64 {
        self.first + self.rows.num_rows() as u64
    }
}

/// The content of a spool in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    pub first: u64,
    pub next: u64,
    pub bytes: u64,
    pub dropped: u64,
}

pub struct Spool {
    /// A random number that identifies this spool in cursors.
    pub epoch: u64,
    /// The use of the module, in which the bytes count.
    pub usage: Arc<Usage>,
    inner: Mutex<Inner>,
    /// The number of the next row, or `u64::MAX` when no more will come.
    changed: watch::Sender<u64>,
}

struct Inner {
    /// The rows that can be read.
    kept: Batches,
    /// The rows that are not released yet. They displace none of those that can be read, since that would
    /// show when they came.
    waiting: Batches,
    /// The number of the next row, and of the next readable row.
    next: u64,
    released: u64,
    most: u64,
    dropped: u64,
    closed: bool,
}

impl Inner {
    fn bytes(&self) -> u64 {
        self.kept.bytes + self.waiting.bytes
    }

    fn fit(&mut self) {
        self.dropped += self.kept.fit(self.most);
    }
}

/// Batches in order, with their bytes.
#[derive(Default)]
struct Batches {
    batches: VecDeque<Batch>,
    bytes: u64,
    /// The rights of all batches in their order, each with the number of those that were made under them.
    made: VecDeque<(Made, usize)>,
}

impl Batches {
    /// Appends a batch. Returns whether it was made under other rights than the one before.
    fn push(&mut self, mut batch: Batch) -> bool {
        let last = self.made.back_mut().filter(|(made, _)| are_alike(made, &batch.made));
        let is_other = last.is_none();
        match last {
            Some((made, count)) => {
                // A reader who was permitted the batch before knows it by that.
                batch.made = made.clone();
                *count += 1;
            }
            None => self.made.push_back((batch.made.clone(), 1)),
        }
        if self.batches.back().is_none_or(|last| !Arc::ptr_eq(&last.entry, &batch.entry)) {
            self.bytes += bytes_of_entry(&batch.entry);
        }
        self.bytes += batch.bytes;
        self.batches.push_back(batch);
        is_other
    }

    fn pop(&mut self) -> Option<Batch> {
        let oldest = self.batches.pop_front()?;
        self.bytes -= oldest.bytes;
        if let Some((_, count)) = self.made.front_mut() {
            *count -= 1;
        }
        self.made.pop_front_if(|(_, count)| *count == 0);
        // The last batch that refers to its tables gives them up.
        if self.batches.front().is_none_or(|next| !Arc::ptr_eq(&next.entry, &oldest.entry)) {
            self.bytes -= bytes_of_entry(&oldest.entry);
        }
        Some(oldest)
    }

    /// Drops the oldest rows until the rest fits, and returns their number.
    fn fit(&mut self, most: u64) -> u64 {
        let mut rows = 0;
        while self.bytes > most {
            let Some(oldest) = self.pop() else { break };
            rows += oldest.rows.num_rows() as u64;
        }
        rows
    }

    /// Returns the different rights under which the batches were made.
    fn rights(&self) -> Vec<Arc<Reach>> {
        let mut all = Vec::new();
        self.made.iter().flat_map(|(made, _)| made.iter()).for_each(|reach| add_to(&mut all, reach));
        all
    }

    /// Drops the oldest rows until few rights are left beside those of the latest ones, because each is
    /// decided on for each reader. Returns the number of rows.
    fn fit_rights(&mut self) -> u64 {
        let mut rows = 0;
        while let (Some((_, count)), Some((last, _))) = (self.made.front(), self.made.back())
            && self.rights().len() > last.len() + EARLIER
        {
            let batches = (0..*count).filter_map(|_| self.pop());
            rows += batches.map(|batch| batch.rows.num_rows() as u64).sum::<u64>();
        }
        rows
    }
}

/// The result of reading a spool.
pub enum Read {
    /// Rows from the cursor on, and the number of rows that were lost before them.
    Batch { lost: u64, batch: Batch },
    /// No row yet.
    Nothing,
    /// No row will come.
    End,
}

impl Spool {
    /// Creates a spool of at most `most` bytes, and as many of rows that are not released yet.
    pub fn new(most: u64, usage: Arc<Usage>) -> Self {
        let mut epoch = [0; 8];
        // Without random numbers, the time distinguishes spools.
        if getrandom::fill(&mut epoch).is_err() {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            epoch = (now.as_nanos() as u64).to_le_bytes();
        }
        let (kept, waiting) = Default::default();
        let inner = Inner { kept, waiting, next: 0, released: 0, most, dropped: 0, closed: false };
        let (epoch, inner) = (u64::from_le_bytes(epoch), Mutex::new(inner));
        Self { epoch, usage, inner, changed: watch::Sender::new(0) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Changes the rows, and counts their bytes.
    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.inner();
        let before = inner.bytes();
        let result = change(&mut inner);
        self.usage.kept.replace(before, inner.bytes());
        result
    }

    /// Appends rows, which can be read once they are released. The oldest ones that no longer fit are
    /// dropped. Rows that do not fit at all are dropped themselves.
    pub(crate) fn push(&self, (entry, made): (&Arc<CatalogEntry>, &Made), table: &Table, rows: &RecordBatch) {
        // Rows are of a table of their module; others were refused when they were decoded.
        let Some(table) = entry.manifest.tables.iter().position(|t| t.name == table.name) else { return };
        let bytes = bytes_of(rows);
        self.change(|inner| {
            let (rows, entry, made) = (rows.clone(), entry.clone(), made.clone());
            let batch = Batch { first: inner.next, rows, entry, made, table, bytes };
            inner.next = batch.next();
            inner.waiting.push(batch);
            // They are counted when it is seen that they are missing.
            inner.waiting.fit(inner.most);
        });
    }

    /// Lets all rows so far be read. The oldest ones that no longer fit are dropped.
    pub fn release(&self) {
        let next = self.change(|inner| {
            let fits: u64 = inner.waiting.batches.iter().map(|batch| batch.rows.num_rows() as u64).sum();
            inner.dropped += inner.next - inner.released - fits;
            let mut is_other = false;
            while let Some(batch) = inner.waiting.pop() {
                is_other |= inner.kept.push(batch);
            }
            inner.fit();
            if is_other {
                inner.dropped += inner.kept.fit_rights();
            }
            inner.released = inner.next;
            inner.next
        });
        self.changed.send_modify(|seen| *seen = next.max(*seen));
    }

    /// Changes the maximum number of bytes.
    pub fn limit(&self, most: u64) {
        self.change(|inner| {
            inner.most = most;
            inner.fit();
        });
    }

    /// Records that no row will come any more.
    pub fn close(&self) {
        self.release();
        self.inner().closed = true;
        self.changed.send_modify(|seen| *seen = u64::MAX);
    }

    /// Returns whether no row will come any more.
    pub fn is_closed(&self) -> bool {
        self.inner().closed
    }

    /// Returns the rights that a reader of all rows needs.
    pub(crate) fn rights(&self) -> Vec<Arc<Reach>> {
        self.inner().kept.rights()
    }

    /// Returns the numbers of the rows that can be read.
    pub fn filled(&self) -> Filled {
        let inner = self.inner();
        let first = inner.kept.batches.front().map_or(inner.released, |b| b.first);
        Filled { first, next: inner.released, bytes: inner.kept.bytes, dropped: inner.dropped }
    }

    /// Returns a receiver that is notified of new rows and of the end.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Reads one batch from row `row` on.
    pub fn read(&self, row: u64) -> Read {
        let inner = self.inner();
        let batches = &inner.kept.batches;
        let at = batches.partition_point(|batch| batch.next() <= row);
        let Some(batch) = batches.get(at) else {
            return if inner.closed { Read::End } else { Read::Nothing };
        };
        let skip = row.saturating_sub(batch.first) as usize;
        let rows = batch.rows.slice(skip, batch.rows.num_rows() - skip);
        let first = batch.first + skip as u64;
        Read::Batch { lost: first.saturating_sub(row), batch: Batch { first, rows, ..batch.clone() } }
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.usage.kept.subtract(self.inner().bytes());
    }
}

/// Returns the bytes that a spool keeps for rows: the arrays, and the structures that hold them.
fn bytes_of(rows: &RecordBatch) -> u64 {
    /// An array's structure, its reference and those of its buffers.
    const ARRAY: usize = 256;
    let structures = size_of::<Batch>() + rows.num_columns() * ARRAY;
    (rows.get_array_memory_size() + structures) as u64
}

/// Returns the bytes of the tables to which the rows of one version of a module refer.
fn bytes_of_entry(entry: &CatalogEntry) -> u64 {
    let table = |t: &Table| {
        let column = |c: &flame_abi::manifest::Column| {
            let texts = c.values.iter().chain(&c.unit).map(String::len).sum::<usize>();
            size_of_val(c) + c.name.len() + texts + c.values.len() * size_of::<String>()
        };
        size_of_val(t) + t.name.len() + t.description.len() + t.columns.iter().map(column).sum::<usize>()
    };
    let tables = entry.manifest.tables.iter().map(table).sum::<usize>();
    // The other parts of the manifest are about as long as its text. The rows' schemas repeat the tables.
    let text = entry.manifest.to_toml().map_or(0, |text| text.len());
    (size_of_val(entry) + 2 * tables + text) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::UInt64Array;
    use arrow_schema::{DataType, Field, Schema};
    use flame_abi::manifest::Manifest;

    fn entry(description: usize) -> Arc<CatalogEntry> {
        let text = format!(
            "abi = 1\nname = \"m\"\nversion = \"1\"\ndescription = \"d\"\n[[tables]]\nname = \"t\"\n\
             description = \"{}\"\ncolumns = [{{ name = \"n\", type = \"u64\" }}]\n",
            "d".repeat(description)
        );
        let manifest = Arc::new(Manifest::parse(text.as_bytes()).unwrap());
        Arc::new(CatalogEntry { name: "m".to_owned(), hash: [0; 32], manifest })
    }

    fn rows(values: u64) -> RecordBatch {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::UInt64, false)]));
        RecordBatch::try_new(schema, vec![Arc::new(UInt64Array::from_iter_values(0..values))]).unwrap()
    }

    #[test]
    fn everything_that_is_kept_counts() {
        let entry = entry(1024);
        let spool = Spool::new(1 << 20, Arc::default());
        let one = rows(1);
        for _ in 0..100_000 {
            spool.push((&entry, &Made::default()), &entry.manifest.tables[0], &one);
            spool.release();
        }
        // Each batch of one row keeps far more than its eight bytes.
        let filled = spool.filled();
        assert!(filled.bytes <= 1 << 20 && filled.next == 100_000, "{filled:?}");
        let accounted = || spool.usage.used().kept.now;
        assert_eq!(accounted(), filled.bytes, "the accounting has the same bytes");
        let batches = spool.inner().kept.batches.len();
        let least = size_of::<Batch>() + one.get_array_memory_size();
        assert!(batches * least <= 1 << 20, "{batches} batches of {least} bytes");
        assert_eq!(filled.dropped, 100_000 - batches as u64);
        // Batches share their tables, which count once.
        let Read::Batch { batch, .. } = spool.read(0) else { panic!() };
        assert!(Arc::ptr_eq(&batch.entry, &entry) && std::ptr::eq(batch.table(), &entry.manifest.tables[0]));
        assert_eq!(Arc::strong_count(&entry), batches + 2);
        spool.limit(0);
        let filled = spool.filled();
        assert_eq!((filled.bytes, filled.dropped, accounted()), (0, 100_000, 0));
    }

    #[test]
    fn rows_that_are_not_released_change_nothing_that_is_seen() {
        let (entry, one) = (entry(1024), rows(1));
        let spool = Spool::new(64 << 10, Arc::default());
        let push = || spool.push((&entry, &Made::default()), &entry.manifest.tables[0], &one);
        let first = |row| match spool.read(row) {
            Read::Batch { lost, batch } => Some((lost, batch.first)),
            Read::Nothing | Read::End => None,
        };
        push();
        assert_eq!((first(0), spool.filled().next), (None, 0));
        spool.release();
        let seen = spool.filled();
        assert_eq!((first(0), seen.next), (Some((0, 0)), 1));
        // Far more than there is room for.
        (0..10_000).for_each(|_| push());
        assert_eq!((first(0), first(1), spool.filled()), (Some((0, 0)), None, seen));
        assert!(spool.usage.used().kept.now <= 2 * (64 << 10), "{}", spool.usage.used().kept.now);
        spool.release();
        let filled = spool.filled();
        assert_eq!(filled.next, 10_001);
        assert_eq!(filled.dropped, filled.first, "each row that is gone is counted once");
        assert!(first(0).is_some_and(|(lost, first)| lost == first && first == filled.first));
        push();
        spool.close();
        assert_eq!(first(10_001), Some((0, 10_001)), "the last ones can be read");
        assert!(matches!(spool.read(10_002), Read::End));
    }

    #[test]
    fn tables_of_each_version_count_while_rows_refer_to_them() {
        let spool = Spool::new(1 << 20, Arc::default());
        let (first, second) = (entry(1000), entry(10));
        let bytes = || spool.filled().bytes;
        let one = rows(1);
        spool.push((&first, &Made::default()), &first.manifest.tables[0], &one);
        spool.release();
        let with_tables = bytes();
        spool.push((&first, &Made::default()), &first.manifest.tables[0], &one);
        spool.release();
        let batch = bytes() - with_tables;
        assert!(with_tables - batch > 1000, "the description");
        spool.push((&second, &Made::default()), &second.manifest.tables[0], &one);
        spool.release();
        assert_eq!(bytes(), 3 * batch + bytes_of_entry(&first) + bytes_of_entry(&second));
        spool.limit(batch + bytes_of_entry(&second));
        assert_eq!(bytes(), batch + bytes_of_entry(&second));
        // Rows that do not fit beside their tables are not kept.
        spool.limit(batch);
        assert_eq!((bytes(), spool.filled().dropped), (0, 3));
    }
}
