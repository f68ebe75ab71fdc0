//! The records of a module on their way through the server, of all nodes at once.
//!
//! They are received as they are published, beside the archive's writer, and nothing of them is kept on the
//! server: batches that are sent while this connection is lost, or faster than they are read, are missing
//! here. They are numbered, so that is noticed.

use crate::config::Archive;
use crate::live::{Monitors, Nodes, archived, check_settings};
use crate::{Error, columns, note};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::ipc::reader::StreamReader;
use flame_fleet_join::Window;
use flame_fleet_nats::{Access, Bus};
use flame_fleet_protocol::subject::{Parts, escape};
use flame_fleet_protocol::{Message, Subject};
use flame_spool::{Epoch, Header, Totals};
use std::collections::{BTreeMap, BTreeSet};
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

/// The records of a module as they come.
struct Stream {
    bus: Bus,
    ends: Ends,
    /// The rows that did not come.
    missed: u64,
    said: String,
}

impl Stream {
    fn open(access: &Access, module: &str) -> Result<Self, Error> {
        let mut bus = Bus::connect(access)?;
        bus.subscribe(&[&format!("flame.records.*.*.{}.*", escape(module))])?;
        Ok(Self { bus, ends: Ends::default(), missed: 0, said: String::new() })
    }

    /// Takes what comes within a time. `each` is given a batch with its names, and with whether batches
    /// before it are missing.
    fn take(
        &mut self,
        within: Duration,
        mut each: impl FnMut(&Parts, bool, &RecordBatch) -> Result<(), Error>,
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
            let parts = subject.parts();
            let mut is_gap = is_gap;
            let mut whole = || -> Result<(), Error> {
                for batch in StreamReader::try_new(read.frame.body, None)? {
                    each(&parts, std::mem::take(&mut is_gap), &batch?)?;
                }
                Ok(())
            };
            if let Err(e) = whole() {
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

/// Takes a batch of the module trajectory.
pub fn add(
    window: &mut Window,
    settings: &mut BTreeSet<String>,
    parts: &Parts,
    is_gap: bool,
    batch: &RecordBatch,
) -> Result<(), Error> {
    match parts.table.as_str() {
        "flow" => columns::flows(batch, window),
        "log" => {
            if is_gap {
                window.gap(&parts.node);
            }
            columns::packets(batch, |_| parts.node.as_str(), window)
        }
        "setting" => {
            settings.extend(columns::settings(batch)?);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// States the result of the latest packets each second, until the process is ended.
pub fn follow(
    monitors: &Monitors,
    config: &Path,
    rows: impl Fn(&Nodes<'_>) -> Result<RecordBatch, Error>,
) -> Result<(), Error> {
    let Monitors { module, last, access, .. } = monitors;
    let mut stream = Stream::open(&Archive::open(config)?.access, module)?;
    // A flow is recorded at its first packet. The packets of the archive are older than those that come.
    let before = access.read(None, async |context| archived(&context, module, *last).await);
    let mut window = before.unwrap_or_else(|e| {
        eprintln!("flame: note: flows that began before this are not known: {e}");
        Window::new(i64::from(*last) * 1_000_000_000)
    });
    let nodes: Vec<String> = window.seen().iter().map(|(node, _)| (*node).to_owned()).collect();
    nodes.iter().for_each(|node| window.gap(node));
    let mut settings = BTreeSet::new();
    let mut said = 0;
    let is_screen = std::io::stdout().is_terminal();
    loop {
        stream.take(EACH, |parts, is_gap, batch| add(&mut window, &mut settings, parts, is_gap, batch))?;
        if settings.len() > 1 {
            check_settings(module, settings.len())?;
        }
        if stream.missed > said {
            said = stream.missed;
            eprintln!("flame: note: {said} rows did not come here; the archive has them");
        }
        let rows = rows(&window.seen())?;
        if is_screen {
            // From the upper left corner, and nothing of the result before below.
            print!("\x1b[H\x1b[J");
            std::io::stdout().flush()?;
        }
        access.show(&rows.schema(), &[rows])?;
    }
}
