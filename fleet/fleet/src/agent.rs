//! The agent of a node: publishes what the node wrote to its spool files, and cuts it where it is archived.

use crate::config::Agent as Config;
use crate::{Error, note};
use flame_fleet_nats::{Log, LogError, Nats, Published};
use flame_fleet_protocol::{Forked, Mark, Message, Publisher, Subject};
use flame_spool::{Cut, Epoch, Hash, Kept, Position, Reader, SpoolError, Stamp, unescape};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// The time between two looks at the spool while nothing is sent.
const EACH: Duration = Duration::from_millis(100);
/// The time after which a lost connection is made again.
const RETRY: Duration = Duration::from_secs(1);
/// The batches of one table that are on their way together, before the next table has its turn: about 8 MiB.
pub const TURN: usize = 32;

/// The tables of a node that leave it.
pub struct Agent {
    node: String,
    spool: PathBuf,
    stream: u64,
    tables: BTreeMap<PathBuf, Table>,
    faults: BTreeMap<PathBuf, String>,
}

struct Table {
    subject: Subject,
    reader: Reader,
    publisher: Publisher,
    /// The sequence of the subject's last message, for the first message of a connection.
    after: Option<u64>,
}

/// Sends until the process is ended.
pub fn run(config: &Config, file: &Path) -> Result<(), Error> {
    if config.is_member {
        let settings = crate::config::settings(file)?;
        std::thread::spawn(move || {
            loop {
                let Err(e) = flame_fleet_control::follow(&settings);
                eprintln!("agent: the fleet is not followed: {e}; it is tried again");
                sleep(RETRY);
            }
        });
    }
    let mut agent = Agent::new(&config.name, &config.spool, config.stream);
    let (mut said, mut connected) = (String::new(), String::new());
    loop {
        let Err(e) = Nats::connect_as(&config.access).and_then(|mut log| {
            note(&mut connected, format!("agent: connected to {}", config.access.server));
            agent.serve(&mut log)
        });
        note(&mut said, format!("agent: {}: {e}; it is tried again", config.access.server));
        sleep(RETRY);
    }
}

impl Agent {
    pub fn new(node: &str, spool: &Path, stream: u64) -> Self {
        let (tables, faults) = Default::default();
        Self { node: node.to_owned(), spool: spool.to_owned(), stream, tables, faults }
    }

    /// Sends until the connection fails.
    fn serve(&mut self, log: &mut Nats) -> Result<Infallible, LogError> {
        let mut connects = log.connects();
        self.connected();
        loop {
            if std::mem::replace(&mut connects, log.connects()) != log.connects() {
                self.connected();
            }
            if !self.pass(log)? {
                sleep(EACH);
            }
        }
    }

    /// Begins with a connection, maybe to a server without what the one before had.
    pub fn connected(&mut self) {
        self.tables.values_mut().for_each(|table| table.publisher.connected());
    }

    /// Sends what the node has written, and cuts what is archived. Returns whether anything was sent.
    pub fn pass(&mut self, log: &mut dyn Log) -> Result<bool, LogError> {
        self.find();
        let mut has_sent = false;
        for (path, table) in &mut self.tables {
            match table.pass(log, self.stream) {
                Ok(sent) => {
                    has_sent |= sent;
                    self.faults.remove(path);
                }
                Err(PassError::Log(e)) => return Err(e),
                Err(PassError::Spool(e)) => {
                    note(self.faults.entry(path.clone()).or_default(), format!("agent: {e}"))
                }
            }
        }
        Ok(has_sent)
    }

    /// Finds tables that are new: a folder for each, in one of its module, in one of its principal.
    fn find(&mut self) {
        let within = |folder: &Path| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect()
        };
        let modules = within(&self.spool).into_iter().flat_map(|principal| within(&principal));
        let tables: Vec<PathBuf> = modules.flat_map(|module| within(&module)).collect();
        for path in tables.into_iter().filter(|path| path.is_dir()) {
            if self.tables.contains_key(&path) {
                continue;
            }
            match Table::open(&self.node, &self.spool, &path) {
                Ok(table) => drop(self.tables.insert(path, table)),
                Err(e) => {
                    let fault = self.faults.entry(path.clone()).or_default();
                    note(fault, format!("agent: {}: {e}", path.display()));
                }
            }
        }
    }
}

/// The reason why a table was not sent.
enum PassError {
    Log(LogError),
    Spool(SpoolError),
}

impl From<LogError> for PassError {
    fn from(e: LogError) -> Self {
        Self::Log(e)
    }
}

impl From<SpoolError> for PassError {
    fn from(e: SpoolError) -> Self {
        Self::Spool(e)
    }
}

impl Table {
    fn open(node: &str, spool: &Path, path: &Path) -> Result<Self, Error> {
        let parts = path.strip_prefix(spool)?.components().map(|part| {
            let part = part.as_os_str().to_str().ok_or("expected text as its name")?;
            unescape(part).map_err(|at| format!("{part:?} is no escaped name at byte {at}"))
        });
        let parts: Vec<String> = parts.collect::<Result<_, _>>()?;
        let [principal, module, table] = &parts[..] else { return Err("expected three folders".into()) };
        let subject = Subject::new(node, principal, module, table)?;
        let mut publisher = Publisher::new(TURN);
        publisher.connected();
        Ok(Self { subject, reader: Reader::open(path)?, publisher, after: None })
    }

    /// Sends some batches. Returns whether any was sent.
    fn pass(&mut self, log: &mut dyn Log, stream: u64) -> Result<bool, PassError> {
        self.reader.refresh()?;
        let is_new = self.publisher.is_asking();
        if is_new {
            log.open(&self.subject, stream)?;
        }
        // What is no mark says nothing about the archive.
        let mark = log.mark(&self.subject)?.and_then(|mark| Mark::read(&mark).ok());
        let stated = if is_new {
            let last = log.last(&self.subject)?;
            self.after = Some(last.as_ref().map_or(0, |last| last.sequence));
            let stamp = |bytes: &[u8]| Message::read(bytes).ok().map(|message| message.frame.header.stamp());
            let last = last.and_then(|last| stamp(&last.bytes));
            self.publisher.answered(&self.reader, last, mark.as_ref())
        } else {
            self.publisher.archived(&self.reader, &mark.unwrap_or_default())
        };
        let (archived, forked) = match stated {
            Ok(archived) => (archived, None),
            Err(Forked { common }) => (None, Some(common)),
        };
        self.cut(archived, forked)?;
        self.publisher.retry();
        self.send(log)
    }

    /// States to the node what is archived, or where its spool was forked.
    fn cut(&mut self, archived: Option<Stamp>, forked: Option<Position>) -> Result<(), SpoolError> {
        if archived.is_none() && forked.is_none() {
            return Ok(());
        }
        let old = self.reader.stated();
        let none = Stamp { position: Position { epoch: Epoch(0), sequence: 0 }, hash: Hash::default() };
        let archived = archived.or(old.map(|cut| cut.archived)).unwrap_or(none);
        self.reader.cut(&Cut { archived, forked: forked.or(old.and_then(|cut| cut.forked)) })
    }

    /// Sends the next batches. Returns whether there were any, and the log took all.
    fn send(&mut self, log: &mut dyn Log) -> Result<bool, PassError> {
        let (mut positions, mut messages) = (Vec::new(), Vec::new());
        while positions.len() < TURN
            && let Some(position) = self.publisher.next(&self.reader)
        {
            let mut bytes = Vec::new();
            let Some(frame) = self.reader.read(position, &mut bytes)? else {
                // It was dropped to make room. The next one states that.
                self.publisher.accepted(position);
                continue;
            };
            let until = self.reader.ranges().iter().position(|range| range.epoch == position.epoch);
            let ranges = self.reader.ranges()[..until.map_or(0, |at| at + 1)].to_vec();
            let mut message = Vec::new();
            Message { ranges, frame }.write(&mut message);
            positions.push(position);
            messages.push(message);
        }
        if positions.is_empty() {
            return Ok(false);
        }
        let answers = log.publish_all(&self.subject, messages, self.after)?;
        if let Some(Published::Taken(_)) = answers.first() {
            self.after = None;
        }
        for (position, answer) in positions.into_iter().zip(answers) {
            match answer {
                Published::Taken(_) => self.publisher.accepted(position),
                Published::Full => self.publisher.refused(position),
                Published::Moved => self.publisher.connected(),
            }
        }
        Ok(!self.publisher.is_held() && !self.publisher.is_asking())
    }
}
