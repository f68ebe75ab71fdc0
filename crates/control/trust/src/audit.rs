//! The audit log: what was granted, refused, ended and revoked, so that nothing in it can be changed unnoticed.
//!
//! A line of JSON an entry. Each holds the SHA-256 of the line before it, and the node's signature over all of
//! itself; a file beside the log (`.head`) holds how many there are, signed, so that the last cannot be dropped
//! either. Whoever has the node's key can write another log; whoever can put back both files as they were some time
//! ago can hide what happened since: keep a copy of the head elsewhere.

use crate::key::{PublicKey, Secret};
use crate::rights::{hex, unhex};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const ENTRY: &str = "audit entry";
const HEAD: &str = "audit head";
/// Bytes of a line, at most.
const MAX_LINE: u64 = 64 << 10;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// A module is about to be examined, analysed or compiled.
    Begin,
    /// A module got what it was granted and runs.
    Install,
    Refuse,
    /// A running module lost its grant.
    Evict,
    Revoke,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// From 1 on.
    pub number: u64,
    pub time: String,
    pub event: Event,
    pub principal: String,
    /// Name and hash of the module, if there is one.
    pub module: String,
    /// For people.
    pub text: String,
    /// SHA-256 of the line before it; empty for the first.
    pub previous: String,
    pub signature: String,
}

impl Entry {
    fn message(&self) -> Vec<u8> {
        // As JSON, so that no two entries have the same bytes.
        let unsigned = Self { signature: String::new(), ..self.clone() };
        serde_json::to_vec(&unsigned).unwrap_or_default()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    entries: u64,
    /// SHA-256 of the last line.
    last: String,
    signature: String,
}

impl Head {
    fn message(entries: u64, last: &str) -> Vec<u8> {
        format!("{entries} {last}").into_bytes()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("audit log {path}: {error}")]
    Io { path: String, error: std::io::Error },
    #[error("audit log {path}, line {line}: {reason}")]
    Line { path: String, line: u64, reason: String },
    #[error("audit log {path}: {reason}")]
    End { path: String, reason: String },
}

/// A log that is written to.
pub struct Audit {
    path: PathBuf,
}

fn head_of(path: &Path) -> PathBuf {
    let mut head = path.as_os_str().to_owned();
    head.push(".head");
    head.into()
}

impl Audit {
    /// The log at `path`; it is made with the first entry.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Adds an entry and waits until it is on the disk.
    pub fn write(
        &self,
        secret: &Secret,
        event: Event,
        principal: &str,
        module: &str,
        text: &str,
    ) -> Result<(), AuditError> {
        let io = |error| AuditError::Io { path: self.path.display().to_string(), error };
        let end = |reason: &str| AuditError::End {
            path: self.path.display().to_string(),
            reason: reason.to_owned(),
        };
        let mut log = OpenOptions::new().read(true).append(true).create(true).open(&self.path).map_err(io)?;
        // Several commands may write to one log.
        log.lock().map_err(io)?;
        let head = read_head(&self.path).map_err(io)?;
        let last = last_line(&mut log).map_err(io)?;
        let (number, previous) = match (&head, &last) {
            (None, None) => (1, String::new()),
            (Some(head), Some(last)) if hash(last) == head.last => (head.entries + 1, head.last.clone()),
            // It was written and the machine stopped before its head was.
            (head, Some(last)) if follows(last, head.as_ref(), &secret.public()) => {
                (head.as_ref().map_or(0, |h| h.entries) + 2, hash(last))
            }
            _ => return Err(end("it does not end where its head says: see `flame audit verify`")),
        };
        let time = crate::time::show(crate::time::now());
        let cut = |s: &str| s.chars().take(4096).collect::<String>();
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
        log.write_all(format!("{line}\n").as_bytes()).and_then(|()| log.sync_all()).map_err(io)?;
        let last = hash(&line);
        let signature = hex(&secret.sign(HEAD, &Head::message(number, &last)));
        let head =
            serde_json::to_vec(&Head { entries: number, last, signature }).map_err(|e| io(e.into()))?;
        let (path, new) = (head_of(&self.path), head_of(&head_of(&self.path)));
        std::fs::write(&new, head).and_then(|()| std::fs::rename(&new, &path)).map_err(io)
    }
}

/// Whether `line` is a true entry right behind those of `head`.
fn follows(line: &str, head: Option<&Head>, key: &PublicKey) -> bool {
    let Ok(entry) = serde_json::from_str::<Entry>(line) else { return false };
    let (entries, last) = head.map_or((0, ""), |h| (h.entries, h.last.as_str()));
    let signature = unhex(&entry.signature).unwrap_or_default();
    entry.number == entries + 1 && entry.previous == last && key.verifies(ENTRY, &entry.message(), &signature)
}

fn hash(line: &str) -> String {
    hex(&Sha256::digest(line))
}

fn read_head(log: &Path) -> std::io::Result<Option<Head>> {
    match std::fs::read(head_of(log)) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// The last line of a log, however long the log is.
fn last_line(log: &mut File) -> std::io::Result<Option<String>> {
    let len = log.metadata()?.len();
    log.seek(SeekFrom::Start(len.saturating_sub(MAX_LINE)))?;
    let mut tail = Vec::new();
    log.take(MAX_LINE).read_to_end(&mut tail)?;
    let text = String::from_utf8_lossy(&tail);
    Ok(text.lines().next_back().map(str::to_owned))
}

/// Whether a log is whole: each entry signed by `key`, in order, none changed, dropped or added. Gives each entry to
/// `each`, and how many there are.
pub fn verify(path: &Path, key: &PublicKey, mut each: impl FnMut(&Entry)) -> Result<u64, AuditError> {
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
    let head = read_head(path)
        .map_err(io)?
        .ok_or_else(|| end("its .head is missing: entries may have been dropped".to_owned()))?;
    let signature = unhex(&head.signature).unwrap_or_default();
    if !key.verifies(HEAD, &Head::message(head.entries, &head.last), &signature) {
        return Err(end(format!("its .head was changed, or is not signed by {key}")));
    }
    // An entry more than the head says: the machine stopped in between.
    let more = number == head.entries + 1;
    let whole = number == head.entries && head.last == previous;
    if !whole && !more {
        let found = head.entries;
        return Err(end(format!(
            "it has {number} entries, its .head {found}: entries were dropped from its end"
        )));
    }
    Ok(number)
}
