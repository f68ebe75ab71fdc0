//! The audit log: a record of grants, refusals, ends and revocations, in which no change goes unnoticed.
//!
//! Each entry is a line of JSON. It holds the SHA-256 of the line before it and the node's signature over the
//! entry. A file next to the log (`.head`) holds the signed number of entries, so that the last entry cannot
//! be removed either. A counter next to the node's key holds it too, so that log and head cannot be removed
//! together. All three are created before the first entry: if one is missing later, it was removed.
//!
//! An owner of the node's key can write another log, and a person who can restore all three files to an
//! earlier state can hide everything since then. Against both, keep a copy of the head elsewhere.

use crate::hex::{hex, unhex};
use crate::key::{PublicKey, Secret};
use flame_files::{Others, Staged};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const ENTRY: &str = "audit entry";
const HEAD: &str = "audit head";
const COUNT: &str = "audit count";
/// Maximum length of a head or counter, in bytes.
const MAX_HEAD: u64 = 4096;
/// Maximum length of a line, in bytes.
const MAX_LINE: u64 = 64 << 10;
/// Maximum length, in characters, of each of the three texts in an entry. A character takes at most six
/// bytes.
const MAX_TEXT: usize = 3 << 10;

/// The kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// A module is about to be examined, analysed or compiled.
    Begin,
    /// A module received its grant and runs.
    Install,
    Refuse,
    /// An instance of a module was ended by a fault.
    Fault,
    /// A module ran to the end of its run. If this entry is missing, it was killed with the command.
    End,
    /// A running module lost its grant.
    Evict,
    Revoke,
    /// A revocation is no longer in force.
    Withdraw,
    /// A holder queried an archive of records.
    Query,
}

/// An entry of the log: one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The number of the entry, from 1.
    pub number: u64,
    pub time: String,
    pub event: Event,
    pub principal: String,
    /// Name and hash of the module, if there is one.
    pub module: String,
    /// A description for people.
    pub text: String,
    /// The SHA-256 of the line before, or empty for the first entry.
    pub previous: String,
    pub signature: String,
}

impl Entry {
    fn message(&self) -> Vec<u8> {
        // The form is JSON, so that no two entries have the same bytes.
        let unsigned = Self { signature: String::new(), ..self.clone() };
        serde_json::to_vec(&unsigned).unwrap_or_default()
    }
}

/// The signed number of entries. It is written twice: as the log's head and as its counter.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    entries: u64,
    /// The SHA-256 of the last line, or empty without one.
    last: String,
    signature: String,
}

impl Head {
    fn new(secret: &Secret, purpose: &str, entries: u64, last: &str) -> Self {
        let signature = hex(&secret.sign(purpose, &Self::message(entries, last)));
        Self { entries, last: last.to_owned(), signature }
    }

    fn message(entries: u64, last: &str) -> Vec<u8> {
        format!("{entries} {last}").into_bytes()
    }

    fn read(path: &Path) -> std::io::Result<Option<Self>> {
        let file = match flame_files::open(path, Others::Read) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        Ok(Some(serde_json::from_slice(&flame_files::read_at_most(file, MAX_HEAD)?)?))
    }

    fn stage(&self, path: &Path) -> std::io::Result<Staged> {
        let mut file = Staged::new(path)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        Ok(file)
    }

    fn write(&self, path: &Path) -> std::io::Result<()> {
        self.stage(path)?.finish()
    }

    fn signed(&self, purpose: &str, key: &PublicKey) -> bool {
        let signature = unhex(&self.signature).unwrap_or_default();
        key.verifies(purpose, &Self::message(self.entries, &self.last), &signature)
    }
}

/// The reason why an audit log cannot be read or does not verify, with its place.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("audit log {path}: {error}")]
    Io { path: String, error: std::io::Error },
    #[error("audit log {path}, line {line}: {reason}")]
    Line { path: String, line: u64, reason: String },
    #[error("audit log {path}: {reason}")]
    End { path: String, reason: String },
}

/// A log for writing.
pub struct Audit {
    path: PathBuf,
    counter: PathBuf,
}

fn head_of(path: &Path) -> PathBuf {
    let mut head = path.as_os_str().to_owned();
    head.push(".head");
    head.into()
}

/// Returns the file that is locked while the log is written. Others may not open it.
fn lock_of(counter: &Path) -> PathBuf {
    let mut lock = counter.as_os_str().to_owned();
    lock.push(".lock");
    lock.into()
}

/// Returns the path of the counter of a node's log. It is next to the node's key, which is, or can be, kept
/// apart from the log.
pub fn counter_of(key: &Path) -> PathBuf {
    let mut counter = key.as_os_str().to_owned();
    counter.push(".audit");
    counter.into()
}

impl Audit {
    /// Returns the log at `path`, with its counter. Both are created with the first entry.
    pub fn new(path: &Path, counter: &Path) -> Self {
        Self { path: path.to_owned(), counter: counter.to_owned() }
    }

    /// Returns the number of entries according to the log's head, which is not verified.
    ///
    /// # Errors
    ///
    /// Returns an error if the head cannot be read. A missing one counts as 0 entries.
    pub fn entries(&self) -> std::io::Result<u64> {
        Ok(Head::read(&head_of(&self.path))?.map_or(0, |head| head.entries))
    }

    /// Appends an entry and waits until it is on the disk.
    ///
    /// # Errors
    ///
    /// Returns an error if log, head and counter do not belong together, if one of them is missing, or if a
    /// file cannot be read or written.
    pub fn write(
        &self,
        secret: &Secret,
        event: Event,
        principal: &str,
        module: &str,
        text: &str,
    ) -> Result<(), AuditError> {
        let io = |error| AuditError::Io { path: self.path.display().to_string(), error };
        let end = |reason: String| AuditError::End { path: self.path.display().to_string(), reason };
        // Several commands may write to one log. Everyone who may read a file may lock it, so the lock is on
        // another file.
        let lock = flame_files::append(&lock_of(&self.counter), Others::Nothing).map_err(io)?;
        lock.lock().map_err(io)?;
        let mut log = flame_files::append(&self.path, Others::Read).map_err(io)?;
        // Half a line is left by a writer that was killed or had no disk space. It is not an entry.
        let (last, len) = last_line(&mut log).map_err(io)?;
        let (number, previous) = match self.bounds(&last).map_err(io)? {
            (None, None) => {
                // All files exist before the first entry, so that a log that lost some of them cannot pass
                // for a new one.
                Head::new(secret, HEAD, 0, "").write(&head_of(&self.path)).map_err(io)?;
                Head::new(secret, COUNT, 0, "").write(&self.counter).map_err(io)?;
                (1, String::new())
            }
            (Some(head), Some(count)) => {
                let key = &secret.public();
                let known = last.as_ref().map_or(String::new(), |line| hash(line));
                let signed = head.signed(HEAD, key) && count.signed(COUNT, key);
                let counted = count.entries == head.entries || count.entries + 1 == head.entries;
                let written = last.as_ref().is_some_and(|line| follows(line, &head, key));
                match () {
                    () if !signed || !counted => {
                        return Err(end(
                            "its head and its counter do not belong together: see `flame audit verify`"
                                .into(),
                        ));
                    }
                    () if known == head.last => (head.entries + 1, head.last),
                    // The entry was written, and the machine stopped before its head was.
                    () if written && count.entries == head.entries => (head.entries + 2, known),
                    () => {
                        return Err(end(
                            "it does not end with the entry of its head: see `flame audit verify`".into(),
                        ));
                    }
                }
            }
            (head, _) => {
                let missing = if head.is_none() { head_of(&self.path) } else { self.counter.clone() };
                return Err(end(format!(
                    "{} is missing, which was made before the first entry: put it back, or begin a new log",
                    missing.display()
                )));
            }
        };
        let time = crate::time::show(crate::time::now());
        let cut = |s: &str| s.chars().take(MAX_TEXT).collect::<String>();
        let mut entry = Entry {
            number,
            time,
            event,
            principal: cut(principal),
            module: cut(module),
            text: cut(text),
            previous,
            signature: String::new(),
        };
        entry.signature = hex(&secret.sign(ENTRY, &entry.message()));
        let line = serde_json::to_string(&entry).map_err(|e| io(e.into()))?;
        let last = hash(&line);
        let stage = |purpose, path: &Path| Head::new(secret, purpose, number, &last).stage(path).map_err(io);
        let mut bounds = [stage(HEAD, &head_of(&self.path))?, stage(COUNT, &self.counter)?];
        if log.metadata().map_err(io)?.len() > len {
            log.set_len(len).map_err(io)?;
        }
        let written = log.write_all(format!("{line}\n").as_bytes()).and_then(|()| log.sync_all());
        written.and_then(|()| bounds.iter().try_for_each(Staged::sync)).map_err(|e| {
            // If this fails as well, the next write truncates the log.
            let _ = log.set_len(len);
            io(e)
        })?;
        // Neither counts an entry that is not on the disk.
        bounds.iter_mut().try_for_each(Staged::finish).map_err(io)
    }

    /// Returns head and counter. A log that has, or had, entries is not new.
    fn bounds(&self, last: &Option<String>) -> std::io::Result<(Option<Head>, Option<Head>)> {
        let both = (Head::read(&head_of(&self.path))?, Head::read(&self.counter)?);
        match both {
            // The machine stopped after it had created the first of the two.
            (Some(head), None) if head.entries == 0 && last.is_none() => Ok((None, None)),
            (None, None) if last.is_some() => {
                Err(std::io::Error::other("it has entries, and neither its .head nor its counter is there"))
            }
            both => Ok(both),
        }
    }
}

/// Returns whether `line` is an authentic entry that directly follows those of `head`.
fn follows(line: &str, head: &Head, key: &PublicKey) -> bool {
    let Ok(entry) = serde_json::from_str::<Entry>(line) else { return false };
    let signature = unhex(&entry.signature).unwrap_or_default();
    entry.number == head.entries + 1
        && entry.previous == head.last
        && key.verifies(ENTRY, &entry.message(), &signature)
}

fn hash(line: &str) -> String {
    hex(&Sha256::digest(line))
}

/// Returns the last complete line of a log of any length, and the offset after it.
fn last_line(log: &mut File) -> std::io::Result<(Option<String>, u64)> {
    let len = log.metadata()?.len();
    let start = len.saturating_sub(2 * MAX_LINE);
    log.seek(SeekFrom::Start(start))?;
    let mut tail = Vec::new();
    log.take(2 * MAX_LINE).read_to_end(&mut tail)?;
    let whole = tail.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    let line = tail[..whole].strip_suffix(b"\n").and_then(|lines| lines.split(|b| *b == b'\n').next_back());
    Ok((line.map(|line| String::from_utf8_lossy(line).into_owned()), start + whole as u64))
}

/// Verifies that a log is complete: each entry is signed by `key` and in order, and none was changed, removed
/// or added. Passes each entry to `each`, and returns their number. Without the counter, a log that was
/// restored together with its head passes.
///
/// # Errors
///
/// Returns an error if a file cannot be read, a line is not the next entry or not signed by `key`, or the
/// log ends before its head or its counter. Entries before the fault were passed to `each`.
pub fn verify(
    path: &Path,
    counter: Option<&Path>,
    key: &PublicKey,
    mut each: impl FnMut(&Entry),
) -> Result<u64, AuditError> {
    let shown = || path.display().to_string();
    let io = |error| AuditError::Io { path: shown(), error };
    let end = |reason: String| AuditError::End { path: shown(), reason };
    let mut input = BufReader::new(File::open(path).map_err(io)?);
    let (mut number, mut previous) = (0, String::new());
    loop {
        let mut line = String::new();
        let read = (&mut input).take(MAX_LINE).read_line(&mut line).map_err(io)?;
        if read == 0 {
            break;
        }
        number += 1;
        let wrong = |reason: String| AuditError::Line { path: shown(), line: number, reason };
        let line = line.strip_suffix('\n').ok_or_else(|| wrong("it is cut short".to_owned()))?;
        let entry: Entry = serde_json::from_str(line).map_err(|e| wrong(e.to_string()))?;
        let signature = unhex(&entry.signature).unwrap_or_default();
        if !key.verifies(ENTRY, &entry.message(), &signature) {
            return Err(wrong(format!("it was changed, or is not signed by {key}")));
        }
        if entry.number != number || entry.previous != previous {
            let found = entry.number;
            return Err(wrong(format!(
                "it is entry {found} and does not follow the line before it: entries were dropped or moved"
            )));
        }
        previous = hash(line);
        each(&entry);
    }
    let bound = |path: &Path, purpose: &str, name: &str| {
        let found = Head::read(path)
            .map_err(io)?
            .ok_or_else(|| end(format!("its {name} is missing: entries may have been dropped")))?;
        match found.signed(purpose, key) {
            true => Ok(found),
            false => Err(end(format!("its {name} was changed, or is not signed by {key}"))),
        }
    };
    let head = bound(&head_of(path), HEAD, ".head")?;
    // One entry more than the head counts: the machine stopped between the two writes.
    let more = number == head.entries + 1;
    let whole = number == head.entries && head.last == previous;
    if !whole && !more {
        let found = head.entries;
        return Err(end(format!(
            "it has {number} entries, its .head {found}: entries were dropped from its end"
        )));
    }
    if let Some(counter) = counter {
        let count = bound(counter, COUNT, "counter")?;
        let same = count.entries == head.entries && count.last == head.last;
        if !same && count.entries + 1 != head.entries {
            let (found, counted) = (head.entries, count.entries);
            return Err(end(format!(
                "its .head counts {found} entries, its counter {counted}: log and head were put back together"
            )));
        }
    }
    Ok(number)
}
