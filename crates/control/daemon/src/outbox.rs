//! The way of records out of a node of a fleet: a spool file for each table of a module, which an agent
//! follows (`flame fleet agent`).
//!
//! It reads the spool of each module in memory ([`crate::spool`]), as a session does: rows that are released,
//! at its own pace, and no row of a module whose grant has ended. Rows wait for a batch of about
//! [`BATCH`] bytes, or for [`WAIT`]. What has not been synced when the node is killed is lost; all other
//! loss is counted, in the totals of the file or as a row of the table [`LOST`].

use crate::engine::Engine;
use crate::life::Key;
use crate::spool::{Read, Spool};
use arrow_ipc::writer::StreamWriter;
use flame_api::State;
use flame_base::lock;
use flame_record::{RecordBatch, SchemaRef, leaving};
use flame_spool::{Epoch, MAX_BODY, SpoolError, Writer, escape};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The bytes of a batch at which it is written.
const BATCH: usize = 256 << 10;
/// The longest wait of a row for others of its batch.
const WAIT: Duration = Duration::from_secs(1);
/// The time between two looks at the modules' rows, and after a fault.
const EACH: Duration = Duration::from_millis(50);
const RETRY: Duration = Duration::from_secs(1);
/// The table that states how many rows of a module were dropped before they were written. No table of a
/// module has a dot in its name.
pub const LOST: &str = "flame.lost";
/// The subject of faults.
const FLEET: &str = "fleet";

/// Where the records of a node leave it.
pub(crate) struct Outbox {
    folder: PathBuf,
    bound: u64,
    /// Metadata of all tables.
    labels: Vec<(String, String)>,
    /// The spools that are read, by their random numbers: an older one of a name has its last rows.
    reading: BTreeMap<u64, Reading>,
    tables: BTreeMap<(Key, String), Table>,
}

/// A module's rows that are read.
struct Reading {
    key: Key,
    spool: Arc<Spool>,
    /// The next row, and the number of those that were missing and are not stated yet.
    row: u64,
    lost: u64,
}

/// The file of a table, and the batch that is collected for it.
#[derive(Default)]
struct Table {
    /// Nothing before the first batch, and after a fault.
    writer: Option<Writer>,
    pending: Option<Pending>,
    /// A batch that is to be written before any other.
    whole: Option<Whole>,
}

/// A batch.
struct Whole {
    body: Vec<u8>,
    rows: u64,
    span: (u64, u64),
}

/// Rows of one schema on their way into a batch.
struct Pending {
    stream: StreamWriter<Vec<u8>>,
    schema: SchemaRef,
    rows: u64,
    /// The times of the first and of the last row.
    span: (u64, u64),
    since: Instant,
}

impl Outbox {
    /// Makes the way into a folder, with at most `bound` bytes for each table. The labels are added to all
    /// schemas.
    pub fn new(folder: PathBuf, bound: u64, labels: &BTreeMap<String, String>) -> Self {
        let label = |(name, value): (&String, &String)| (format!("flame.label.{name}"), value.clone());
        let labels = labels.iter().map(label).collect();
        Self { folder, bound, labels, reading: BTreeMap::new(), tables: BTreeMap::new() }
    }

    /// Takes the rows so far of these modules, each with whether they may leave, and writes what is due.
    /// Without `more`, all is due.
    ///
    /// # Errors
    ///
    /// Returns the first reason why a file could not be written. Its rows stay in memory as far as there is
    /// room, and are tried again.
    pub fn pass(
        &mut self,
        modules: Vec<(Key, Arc<Spool>, bool)>,
        more: Option<Instant>,
    ) -> Result<(), String> {
        let mut closed_to: Vec<u64> = Vec::new();
        for (key, spool, may_leave) in modules {
            if !may_leave {
                closed_to.push(spool.epoch);
            }
            let new = || Reading { key, spool: spool.clone(), row: 0, lost: 0 };
            self.reading.entry(spool.epoch).or_insert_with(new);
        }
        let (now, mut fault) = (more.unwrap_or_else(Instant::now), Ok(()));
        let mut reading = std::mem::take(&mut self.reading);
        reading.retain(|epoch, reading| {
            let may_leave = !closed_to.contains(epoch);
            let taken = match may_leave {
                true => self.take(reading, now),
                false => self.withhold(reading),
            };
            let has_ended = taken.and_then(|has_ended| self.state_loss(reading, now).map(|()| has_ended));
            match has_ended {
                Ok(has_ended) => !has_ended,
                Err(e) => {
                    fault = Err(e);
                    true
                }
            }
        });
        self.reading.append(&mut reading);
        let keys: Vec<_> = self.tables.keys().cloned().collect();
        for at in keys {
            let is_read = self.reading.values().any(|reading| reading.key == at.0);
            let is_due = |table: &Table| {
                table.whole.is_some()
                    || table.pending.as_ref().is_some_and(|pending| {
                        let waited = now.saturating_duration_since(pending.since) >= WAIT;
                        waited || !is_read || more.is_none() || pending.stream.get_ref().len() >= BATCH
                    })
            };
            while self.tables.get(&at).is_some_and(is_due) {
                if let Err(e) = self.write(&at) {
                    fault = Err(e);
                    break;
                }
            }
            self.tables
                .retain(|of, table| *of != at || is_read || table.whole.is_some() || table.pending.is_some());
        }
        fault
    }

    /// Takes the rows of a module that can be read. Returns whether no more will come.
    fn take(&mut self, reading: &mut Reading, now: Instant) -> Result<bool, String> {
        loop {
            match reading.spool.read(reading.row) {
                Read::Batch { lost, batch } => {
                    reading.lost += lost;
                    reading.row = batch.first;
                    let at = (reading.key.clone(), batch.table().name.clone());
                    let rows = leaving::leaving(&batch.rows, &self.labels);
                    let next = batch.next();
                    let span = leaving::times(&rows).unwrap_or_else(|| (wall(), wall()));
                    for piece in pieces(&rows) {
                        match piece {
                            Ok(piece) => {
                                self.add(&at, &piece, span, now)?;
                                reading.row += piece.num_rows() as u64;
                            }
                            Err(count) => {
                                reading.lost += count;
                                reading.row += count;
                            }
                        }
                    }
                    reading.row = next;
                }
                Read::Nothing => return Ok(false),
                Read::End => return Ok(true),
            }
        }
    }

    /// Gives up the rows of a module whose grant has ended, those that wait for their batch included.
    fn withhold(&mut self, reading: &mut Reading) -> Result<bool, String> {
        let own = self.tables.iter_mut().filter(|((key, name), _)| *key == reading.key && name != LOST);
        let give_up = |table: &mut Table| {
            let pending = table.pending.take().map_or(0, |pending| pending.rows);
            pending + table.whole.take().map_or(0, |whole| whole.rows)
        };
        let waiting: u64 = own.map(|(_, table)| give_up(table)).sum();
        let next = reading.spool.filled().next;
        reading.lost += waiting + next.saturating_sub(reading.row);
        reading.row = next.max(reading.row);
        Ok(reading.spool.is_closed())
    }

    /// Adds the row about rows of a module that were lost.
    fn state_loss(&mut self, reading: &mut Reading, now: Instant) -> Result<(), String> {
        if reading.lost == 0 {
            return Ok(());
        }
        let at = wall();
        let rows = leaving::lost(&reading.key.1, LOST, at, reading.lost);
        self.add(&(reading.key.clone(), LOST.to_owned()), &rows, (at, at), now)?;
        reading.lost = 0;
        Ok(())
    }

    /// Adds rows to the batch of a table. The batch before is written first if it has other columns, or is
    /// full: while it cannot be written, no rows are read.
    fn add(
        &mut self,
        at: &(Key, String),
        rows: &RecordBatch,
        span: (u64, u64),
        now: Instant,
    ) -> Result<(), String> {
        let schema = rows.schema();
        let table = self.tables.entry(at.clone()).or_default();
        let is_full = |of: &Pending| of.stream.get_ref().len() >= BATCH || of.schema != schema;
        if table.whole.is_some() || table.pending.as_ref().is_some_and(is_full) {
            self.write(at)?;
        }
        let table = self.tables.entry(at.clone()).or_default();
        let pending = match &mut table.pending {
            Some(pending) => pending,
            none => {
                let stream = StreamWriter::try_new(Vec::new(), &schema).map_err(|e| e.to_string())?;
                none.insert(Pending { stream, schema, rows: 0, span, since: now })
            }
        };
        pending.stream.write(rows).map_err(|e| e.to_string())?;
        pending.rows += rows.num_rows() as u64;
        pending.span = (pending.span.0.min(span.0), pending.span.1.max(span.1));
        Ok(())
    }

    /// Writes the batch of a table, and waits until it is on the disk.
    fn write(&mut self, at: &(Key, String)) -> Result<(), String> {
        let path = self.path(at);
        let Some(table) = self.tables.get_mut(at) else { return Ok(()) };
        let whole = match (&mut table.whole, table.pending.take()) {
            (Some(whole), pending) => {
                table.pending = pending;
                whole
            }
            (none, Some(Pending { stream, rows, span, .. })) => {
                let body = stream.into_inner().map_err(|e| e.to_string())?;
                none.insert(Whole { body, rows, span })
            }
            (None, None) => return Ok(()),
        };
        let writer = match &mut table.writer {
            Some(writer) => writer,
            none => none.insert(Writer::open(&path, self.bound, epoch).map_err(|e| e.to_string())?),
        };
        let (rows, (first, last)) = (whole.rows, whole.span);
        let appended = writer.append(&flame_spool::Batch { rows, first, last, body: &whole.body });
        if let Ok(_) | Err(SpoolError::Batch { .. }) = appended {
            table.whole = None;
        }
        appended.map_err(|e| format!("{rows} rows: {e}"))?;
        writer.sync().map_err(|e| e.to_string())
    }

    /// Returns the folder of a table: its principal, its module and its name, each escaped.
    fn path(&self, ((owner, module), table): &(Key, String)) -> PathBuf {
        [&owner.fleet_name(), module, table]
            .iter()
            .fold(self.folder.clone(), |path, part| path.join(escape(part)))
    }
}

/// Returns nanoseconds since 1970.
fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

fn epoch() -> Epoch {
    let mut bytes = [0; 8];
    // Without random numbers, the time distinguishes epochs.
    match getrandom::fill(&mut bytes) {
        Ok(()) => Epoch(u64::from_le_bytes(bytes)),
        Err(_) => Epoch(wall()),
    }
}

/// Divides rows into pieces of at most [`BATCH`] bytes. A row that fits no batch is an error with its number
/// of rows.
fn pieces(rows: &RecordBatch) -> Vec<Result<RecordBatch, u64>> {
    let count = rows.num_rows();
    match leaving::bytes(rows) {
        0..=BATCH => vec![Ok(rows.clone())],
        // With its schema.
        bytes if count <= 1 && bytes + (64 << 10) > MAX_BODY - BATCH => vec![Err(count as u64)],
        _ if count <= 1 => vec![Ok(rows.clone())],
        _ => {
            let (first, second) = (rows.slice(0, count / 2), rows.slice(count / 2, count - count / 2));
            [pieces(&first), pieces(&second)].concat()
        }
    }
}

impl Engine {
    /// Takes the rows so far on their way out of the node. Without `more`, the last ones.
    pub(crate) fn send_rows(&self, more: Option<Instant>) -> Duration {
        let Some(outbox) = &self.outbox else { return RETRY };
        let modules = {
            let all = self.modules();
            // Rows of a principal leave under a grant; the operator reads its own whatever their state.
            let may_leave = |key: &Key, state| key.0.is_operator() || state != State::Evicted;
            all.iter().map(|(key, e)| (key.clone(), e.spool.clone(), may_leave(key, e.state()))).collect()
        };
        let fault = lock(outbox).pass(modules, more).err();
        let wait = if fault.is_some() { RETRY } else { EACH };
        self.fault(FLEET, fault);
        wait
    }
}
