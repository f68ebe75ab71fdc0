//! The records of a module that the node keeps for its clients: numbered rows in memory, at most a given
//! number of bytes.
//!
//! The dataplane appends and never waits for a reader: when the spool is full, the oldest batches are dropped
//! and counted. Readers share the batches.

use flame_abi::manifest::Table;
use flame_plan::CatalogEntry;
use flame_record::{RecordBatch, Sink, SinkError};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Rows of one table.
#[derive(Clone)]
pub struct Batch {
    /// The number of the first row.
    pub first: u64,
    pub table: Arc<Table>,
    pub rows: RecordBatch,
    /// The module's tables at the time.
    pub entry: Arc<CatalogEntry>,
    bytes: u64,
}

impl Batch {
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
    inner: Mutex<Inner>,
    /// The number of the next row, or `u64::MAX` when no more will come.
    changed: watch::Sender<u64>,
}

struct Inner {
    batches: VecDeque<Batch>,
    next: u64,
    bytes: u64,
    most: u64,
    dropped: u64,
    closed: bool,
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
    /// Creates a spool of at most `most` bytes.
    pub fn new(most: u64) -> Self {
        let mut epoch = [0; 8];
        // Without random numbers, the time distinguishes spools.
        if getrandom::fill(&mut epoch).is_err() {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            epoch = (now.as_nanos() as u64).to_le_bytes();
        }
        let inner = Inner { batches: VecDeque::new(), next: 0, bytes: 0, most, dropped: 0, closed: false };
        Self { epoch: u64::from_le_bytes(epoch), inner: Mutex::new(inner), changed: watch::Sender::new(0) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends rows, and drops the oldest ones that no longer fit. Rows that do not fit at all are dropped
    /// themselves.
    pub fn push(&self, entry: &Arc<CatalogEntry>, table: &Table, rows: &RecordBatch) {
        let bytes = rows.get_array_memory_size() as u64;
        let mut inner = self.inner();
        let batch = Batch {
            first: inner.next,
            table: Arc::new(table.clone()),
            rows: rows.clone(),
            entry: entry.clone(),
            bytes,
        };
        inner.next = batch.next();
        inner.bytes += bytes;
        inner.batches.push_back(batch);
        inner.fit();
        let next = inner.next;
        drop(inner);
        self.changed.send_modify(|seen| *seen = next.max(*seen));
    }

    /// Changes the maximum number of bytes.
    pub fn limit(&self, most: u64) {
        let mut inner = self.inner();
        inner.most = most;
        inner.fit();
    }

    /// Records that no row will come any more.
    pub fn close(&self) {
        self.inner().closed = true;
        self.changed.send_modify(|seen| *seen = u64::MAX);
    }

    pub fn filled(&self) -> Filled {
        let inner = self.inner();
        let first = inner.batches.front().map_or(inner.next, |b| b.first);
        Filled { first, next: inner.next, bytes: inner.bytes, dropped: inner.dropped }
    }

    /// Returns a receiver that is notified of new rows and of the end.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Reads one batch from row `row` on.
    pub fn read(&self, row: u64) -> Read {
        let inner = self.inner();
        let at = inner.batches.partition_point(|batch| batch.next() <= row);
        let Some(batch) = inner.batches.get(at) else {
            return if inner.closed { Read::End } else { Read::Nothing };
        };
        let skip = row.saturating_sub(batch.first) as usize;
        let rows = batch.rows.slice(skip, batch.rows.num_rows() - skip);
        let first = batch.first + skip as u64;
        Read::Batch { lost: first.saturating_sub(row), batch: Batch { first, rows, ..batch.clone() } }
    }
}

impl Inner {
    fn fit(&mut self) {
        while self.bytes > self.most {
            let Some(oldest) = self.batches.pop_front() else { return };
            self.bytes -= oldest.bytes;
            self.dropped += oldest.rows.num_rows() as u64;
        }
    }
}

/// The spools of a source's modules, by the modules' names in the plan.
pub type Spools = Arc<Mutex<HashMap<String, (Arc<Spool>, Arc<CatalogEntry>)>>>;

/// The sink of a source, which gives rows to the modules' spools.
pub struct Router(pub Spools);

impl Sink for Router {
    fn write(&mut self, module: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(module).cloned();
        if let Some((spool, entry)) = found {
            spool.push(&entry, table, batch);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        Ok(())
    }
}
