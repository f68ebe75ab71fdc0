//! The archive's writer: takes the messages of all streams into files, and commits them with their
//! watermarks.

use crate::config::Archive as Config;
use crate::parquet_files::Files;
use crate::store::{CommitError, Lost, Store};
use crate::{Error, maintain, note};
use flame_fleet_nats::{Log, LogError, Nats};
use flame_fleet_protocol::{Commit, Loss, Mark, Message, Publish, Subject, SubjectError, Verdict, Writer};
use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::Runtime;

/// The time between two changes while little comes: each is a file for each table.
pub const EACH: Duration = Duration::from_secs(1);
/// The time after which a lost connection is made again.
const RETRY: Duration = Duration::from_secs(1);
/// The messages of one stream that are asked for at once, and the bytes after which a change is made.
const PULL: usize = 64;
const CHANGE: usize = 64 << 20;
/// The changes between two looks at the archive's files.
const LOOK: u64 = 16;

/// The reason why the writer begins again with what is stored.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error(transparent)]
    Subject(#[from] SubjectError),
    #[error("another writer has archived more: let one writer run")]
    Behind,
    #[error("the connection was made again")]
    Connection,
    #[error("{0}")]
    Other(#[from] Error),
}

/// A writer.
pub struct Archive {
    runtime: Runtime,
    store: Store,
    writer: Writer,
    /// The last message of each principal's stream that was offered.
    behind: BTreeMap<String, u64>,
    /// The names of the schemas that are stored.
    schemas: HashSet<String>,
    /// The rows that this writer has archived.
    rows: u64,
    /// The version at which files were last looked through.
    maintained: u64,
}

/// Takes what comes until the process is ended.
pub fn run(config: &Config) -> Result<(), Error> {
    let store = Store::open(&config.folder, true)?;
    let (mut said, mut connected) = (String::new(), String::new());
    loop {
        let Err(e) = Nats::connect_as(&config.access).map_err(ArchiveError::Log).and_then(|mut log| {
            let mut archive = Archive::load(store.clone())?;
            note(&mut connected, format!("archive: connected to {}", config.access.server));
            archive.serve(&mut log, config.keep)
        });
        note(&mut said, format!("archive: {}: {e}; it is tried again", config.access.server));
        sleep(RETRY);
    }
}

impl Archive {
    /// Begins with what is stored.
    pub fn load(store: Store) -> Result<Self, ArchiveError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(Error::from)?;
        let state = runtime.block_on(store.load())?;
        let writer = Writer::load(state.version, state.subjects);
        Ok(Self {
            runtime,
            store,
            writer,
            behind: BTreeMap::new(),
            schemas: HashSet::new(),
            rows: 0,
            maintained: 0,
        })
    }

    fn serve(&mut self, log: &mut Nats, keep: Option<u64>) -> Result<Infallible, ArchiveError> {
        let connects = log.connects();
        let principals = log.principals()?;
        if !principals.is_empty() {
            self.publish(log, self.writer.all())?;
        }
        loop {
            let principals = log.principals()?;
            let has_more = self.pass(log, &principals)?;
            if log.connects() != connects {
                return Err(ArchiveError::Connection);
            }
            if !has_more {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                self.maintain(keep, u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))?;
                sleep(EACH);
            }
        }
    }

    /// Merges files and removes old ones, if the manifest has grown since. `keep` and `now` are as in
    /// [`maintain::plan`].
    pub fn maintain(&mut self, keep: Option<u64>, now: u64) -> Result<(), ArchiveError> {
        while self.writer.version() >= self.maintained + LOOK {
            let next = self.writer.version() + 1;
            match self.runtime.block_on(maintain::maintain(&self.store, next, keep, now))? {
                true => self.writer.advance(),
                false => self.maintained = self.writer.version(),
            }
        }
        Ok(())
    }

    /// Takes what has come. Returns whether there is more.
    pub fn pass(&mut self, log: &mut dyn Log, principals: &[String]) -> Result<bool, ArchiveError> {
        let (mut files, mut unread, mut has_more, mut offered) =
            (Files::default(), Vec::new(), false, Vec::new());
        for principal in principals {
            // Any subject names the stream of its principal.
            let of = Subject::new("", principal, "", "")?;
            let behind = self.behind.get(principal).copied().unwrap_or(0);
            let mut end = behind;
            loop {
                let records = log.pull(&of, end, PULL)?;
                let is_all = records.len() < PULL;
                for record in records {
                    end = record.sequence;
                    let Ok(message) = Message::read(&record.bytes) else { continue };
                    if let Verdict::Taken { .. } = self.writer.offer(&record.subject, &message)
                        && files.add(&record.subject, &message.frame).is_err()
                    {
                        unread.push(unreadable(&record.subject, &message));
                    }
                }
                has_more |= !is_all;
                if is_all || files.bytes >= CHANGE {
                    break;
                }
            }
            if end > behind {
                self.behind.insert(principal.clone(), end);
                offered.push((of, end));
            }
        }
        let mut changed = self.writer.notices();
        if let Some(commit) = self.writer.commit() {
            self.commit(&commit, files, unread)?;
            changed.extend(self.writer.committed());
        }
        self.publish(log, changed)?;
        for (of, end) in offered {
            log.remove(&of, end)?;
        }
        Ok(has_more)
    }

    fn commit(&mut self, commit: &Commit, files: Files, unread: Vec<Lost>) -> Result<(), ArchiveError> {
        let Self { runtime, store, schemas, rows, .. } = self;
        runtime.block_on(async {
            let files = files.write(store, commit.version, schemas).await?;
            *rows += files.iter().map(|file| file.rows).sum::<u64>();
            Ok(store.commit(commit, files, unread).await?)
        })
    }

    /// Returns the rows that this writer has archived.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// States the watermarks of subjects. The nodes cut their spools there.
    fn publish(&mut self, log: &mut dyn Log, subjects: Vec<Subject>) -> Result<(), ArchiveError> {
        for subject in subjects {
            let published = log.mark(&subject)?.and_then(|mark| Mark::read(&mark).ok()).unwrap_or_default();
            match self.writer.publish(&subject, &published) {
                Publish::Replace(mark) => log.put(&subject, mark.to_bytes())?,
                Publish::Keep => {}
                Publish::Behind => return Err(ArchiveError::Behind),
            }
        }
        Ok(())
    }
}

/// Returns the loss of a batch whose rows cannot be read.
fn unreadable(subject: &Subject, message: &Message<'_>) -> Lost {
    let header = message.frame.header;
    let (epoch, at) = (header.position.epoch, header.position.sequence);
    let (rows, bytes) = (header.rows, u64::from(header.length));
    Lost::new(
        subject,
        &Loss { epoch, from: at, to: at, rows, bytes, since: header.first, until: header.last },
    )
}
