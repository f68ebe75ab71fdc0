//! The records of a module on their way through the server, of all nodes at once.
//!
//! They are received as they are published, beside the archive's writer, and nothing of them is kept on the
//! server: batches that are sent while this connection is lost, or faster than they are read, are missing
//! here. They are numbered, so that is noticed.

use crate::config::Archive;
use crate::holder::Holder;
use crate::query::{Access, DATA, now};
use crate::{Error, note};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::ipc::reader::StreamReader;
use flame_fleet_nats::{Access as ServerAccess, Bus};
use flame_fleet_protocol::subject::{Parts, escape};
use flame_fleet_protocol::{Message, Subject};
use flame_spool::{Epoch, Header, Totals};
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// The time between two results.
const EACH: Duration = Duration::from_secs(1);
/// The most epochs of subjects whose ends are known. Each start of a node has one for each table.
const MAX_EPOCHS: usize = 65_536;

/// The ends of what came, by subject and epoch.
#[derive(Default)]
pub struct Ends {
    of: BTreeMap<(Subject, Epoch), (u64, Totals)>,
}

/// What a batch is to those that came before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is the first of its epoch, or follows.
    Follows,
    /// It came before.
    Repeated,
    /// Batches with this many rows did not come.
    Gap(u64),
}

impl Ends {
    /// Takes a batch.
    pub fn take(&mut self, subject: &Subject, header: &Header) -> Next {
        let (epoch, sequence) = (header.position.epoch, header.position.sequence);
        let key = (subject.clone(), epoch);
        let next = match self.of.get(&key) {
            Some((end, _)) if sequence <= *end => return Next::Repeated,
            Some((end, totals)) if sequence > end + 1 => Next::Gap(header.before.beyond(totals).0),
            _ => Next::Follows,
        };
        if self.of.len() >= MAX_EPOCHS {
            self.of.clear();
        }
        self.of.insert(key, (sequence, header.after()));
        next
    }
}

/// What is made of the records of a module as they come.
pub trait Latest {
    /// Takes a batch. With `is_gap`, batches of its table before it are missing.
    fn take(&mut self, parts: &Parts, is_gap: bool, batch: &RecordBatch) -> Result<(), Error>;

    /// Returns the result of what came.
    fn rows(&mut self) -> Result<(SchemaRef, Vec<RecordBatch>), Error>;
}

/// The records of a module as they come.
struct Stream {
    bus: Bus,
    ends: Ends,
    /// The rows that did not come.
    missed: u64,
    said: String,
}

impl Stream {
    /// Begins to receive the records of a module: of all principals, or of a holder.
    fn open(access: &ServerAccess, module: &str, holder: Option<&Holder>) -> Result<Self, Error> {
        let mut bus = Bus::connect(access)?;
        let principal = holder.map_or_else(|| "*".to_owned(), |holder| escape(&holder.name));
        bus.subscribe(&[&format!("flame.records.*.{principal}.{}.*", escape(module))])?;
        Ok(Self { bus, ends: Ends::default(), missed: 0, said: String::new() })
    }

    /// Takes what comes within a time.
    fn take(
        &mut self,
        within: Duration,
        holder: Option<&Holder>,
        latest: &mut impl Latest,
    ) -> Result<(), Error> {
        self.bus.tend()?;
        let begun = Instant::now();
        while let Some(message) = self.bus.next(within.saturating_sub(begun.elapsed())) {
            let Ok(subject) = Subject::parse(&message.subject) else { continue };
            let Ok(read) = Message::read(&message.bytes) else { continue };
            let is_gap = match self.ends.take(&subject, &read.frame.header) {
                Next::Repeated => continue,
                Next::Follows => false,
                Next::Gap(rows) => {
                    self.missed += rows;
                    true
                }
            };
            if let Err(e) = take(read.frame.body, &subject.parts(), is_gap, holder, latest) {
                self.missed += read.frame.header.rows;
                note(&mut self.said, format!("flame: note: {subject}: a batch cannot be read: {e}"));
            }
        }
        if !self.bus.is_connected() {
            note(&mut self.said, "flame: note: no connection to the server; it is tried again".to_owned());
        }
        Ok(())
    }
}

/// Takes the rows of a batch, and of them the columns that a holder sees: none but of its own.
pub fn take(
    body: &[u8],
    parts: &Parts,
    mut is_gap: bool,
    holder: Option<&Holder>,
    latest: &mut impl Latest,
) -> Result<(), Error> {
    if holder.is_some_and(|holder| !holder.owns(&parts.node, &parts.principal)) {
        return Ok(());
    }
    for batch in StreamReader::try_new(body, None)? {
        let batch = match holder {
            Some(holder) => holder.visible(&batch?)?,
            None => batch?,
        };
        latest.take(parts, std::mem::take(&mut is_gap), &batch)?;
    }
    Ok(())
}

/// States the result of the latest records each second, until the process is ended. Under a credential, the
/// audit log has the beginning, and the policy is read each second, so that it ends when the policy, a list
/// of revocations or the time ends it.
pub fn follow<L: Latest>(
    access: &Access,
    config: &Path,
    module: &str,
    text: &str,
    begin: impl FnOnce(Option<&Holder>) -> L,
) -> Result<(), Error> {
    let mut holder = access.holder()?;
    if let Some(holder) = &holder {
        holder.audit(text, "follows")?;
        flame_files::limit_data(DATA)?;
    }
    let mut stream = Stream::open(&Archive::open(config)?.access, module, holder.as_ref())?;
    // What the archive has is read after the stream began, so that nothing lies between.
    let mut latest = begin(holder.as_ref());
    let mut said = 0;
    let is_screen = std::io::stdout().is_terminal();
    loop {
        stream.take(EACH, holder.as_ref(), &mut latest)?;
        if let Some(before) = &holder {
            let again = before.again(now());
            if let Err(e) = &again {
                before.audit(text, &format!("ended: {e}"))?;
            }
            holder = Some(again?);
        }
        if stream.missed > said {
            said = stream.missed;
            eprintln!("flame: note: {said} rows did not come here; the archive has them");
        }
        let (schema, rows) = latest.rows()?;
        if is_screen {
            // From the upper left corner, and nothing of the result before below.
            print!("\x1b[H\x1b[J");
            std::io::stdout().flush()?;
        }
        access.show(&schema, &rows)?;
    }
}
