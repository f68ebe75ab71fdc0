//! The archive's side: which batches to take, which are lost, and the watermark that is committed with them.

use crate::message::{Mark, Message, Missing};
use crate::subject::Subject;
use flame_spool::{Epoch, Hash, Position, Range, Stamp, Totals};
use std::collections::{BTreeMap, BTreeSet};

/// The most epochs of a subject that the archive remembers. A batch of an older one, of a backup that is
/// restored after as many openings with records, would be taken a second time.
pub const MAX_EPOCHS: usize = 1024;

/// What is archived of one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    pub epoch: Epoch,
    /// The last sequence that is archived, or counted as lost.
    pub sequence: u64,
    pub totals: Totals,
    /// The hash at the sequence, if that batch was archived.
    pub hash: Option<Hash>,
}

/// Batches that will never come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    pub epoch: Epoch,
    /// The first and the last sequence. The last is before the first for what a spool gave up at a fork.
    pub from: u64,
    pub to: u64,
    pub rows: u64,
    pub bytes: u64,
    /// The times between which the rows lie, in nanoseconds since 1970.
    pub since: u64,
    pub until: u64,
}

/// The archive's decision on a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It follows on what is archived, or on what is lost.
    Taken { losses: Vec<Loss> },
    /// It is archived.
    Repeated,
    /// An earlier batch is still in the spool.
    Early { missing: Position },
    /// It contradicts what is archived: a fork of the spool, which its publisher finds by the mark.
    Forked { at: Position },
}

/// What is archived of one subject: its epochs in the order in which the first batch of each was taken, or
/// counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub epochs: Vec<Known>,
    /// The last batch that was taken.
    pub last: Option<Stamp>,
}

impl Progress {
    fn known(&self, epoch: Epoch) -> Known {
        let known = self.epochs.iter().rev().find(|known| known.epoch == epoch);
        known.copied().unwrap_or(Known { epoch, sequence: 0, totals: Totals::default(), hash: None })
    }

    fn learn(&mut self, new: Known) {
        match self.epochs.iter_mut().rev().find(|known| known.epoch == new.epoch) {
            Some(known) => *known = new,
            None => {
                self.epochs.push(new);
                let more = self.epochs.len().saturating_sub(MAX_EPOCHS);
                self.epochs.drain(..more);
            }
        }
    }

    /// Decides on a message, and counts it if it is taken.
    pub fn take(&mut self, message: &Message<'_>) -> Verdict {
        let header = message.frame.header;
        let Some((own, earlier)) = message.ranges.split_last() else {
            return Verdict::Forked { at: header.position };
        };
        let known = self.known(header.position.epoch);
        let sequence = header.position.sequence;
        if sequence <= known.sequence {
            let is_other = sequence == known.sequence && known.hash.is_some_and(|hash| hash != header.hash);
            return if is_other { Verdict::Forked { at: header.position } } else { Verdict::Repeated };
        }
        let mut ended = Vec::new();
        for range in earlier {
            let known = self.known(range.epoch);
            if known.sequence >= range.last {
                continue;
            }
            if range.floor <= range.last {
                let sequence = range.floor.max(known.sequence + 1);
                return Verdict::Early { missing: Position { epoch: range.epoch, sequence } };
            }
            ended.push((known, *range));
        }
        let follows = sequence == known.sequence + 1;
        if !follows && own.floor < sequence {
            let sequence = own.floor.max(known.sequence + 1);
            return Verdict::Early { missing: Position { sequence, ..header.position } };
        }
        // Sums that fall, or another batch before this one.
        let is_other = follows && known.hash.is_some_and(|hash| hash != header.previous);
        if is_other || header.before.rows < known.totals.rows || header.before.bytes < known.totals.bytes {
            return Verdict::Forked { at: header.position };
        }
        let mut losses: Vec<_> = ended
            .iter()
            .filter_map(|(known, range)| loss(known, range.last, &range.totals, range.totals.until))
            .collect();
        losses.extend(loss(&known, sequence - 1, &header.before, header.first.max(header.before.until)));
        for (known, Range { last, totals, .. }) in ended {
            self.learn(Known { sequence: last, totals, hash: None, ..known });
        }
        self.learn(Known { sequence, totals: header.after(), hash: Some(header.hash), ..known });
        self.last = Some(header.stamp());
        Verdict::Taken { losses }
    }
}

/// Returns the loss between what is known of an epoch and its sums at `to`.
fn loss(known: &Known, to: u64, totals: &Totals, until: u64) -> Option<Loss> {
    let (rows, bytes) = totals.beyond(&known.totals);
    let is_one = to > known.sequence || rows > 0 || bytes > 0;
    let (epoch, from, since) = (known.epoch, known.sequence + 1, known.totals.until);
    is_one.then_some(Loss { epoch, from, to, rows, bytes, since, until })
}

/// A change of the archive, which is stored together with the files of its batches: all or nothing, and only
/// if no other change has its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    pub version: u64,
    /// The new state of each subject with a batch in the files.
    pub marks: Vec<(Subject, Progress)>,
    pub losses: Vec<(Subject, Loss)>,
}

/// The relation of a new mark to the published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publish {
    Replace(Mark),
    Keep,
    /// Another writer has archived more: this one loads the archive again, and removes no message before.
    Behind,
}

/// Collects batches for the archive.
///
/// Messages are offered in the order of their stream. Those that are taken are written to files; then
/// [`Writer::commit`] states what is to be stored with them. After [`Writer::committed`] the marks are
/// published, and only then are the messages removed from the log. A commit that is refused, or whose outcome
/// is not known, is followed by [`Writer::load`] and by the stream from its beginning.
///
/// No messages are removed if [`Writer::publish`] finds that another writer has archived more: it may have
/// removed the messages of batches, so that later ones looked early.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    version: u64,
    subjects: BTreeMap<Subject, Progress>,
    pending: BTreeMap<Subject, Progress>,
    losses: Vec<(Subject, Loss)>,
    missing: BTreeMap<Subject, Missing>,
    /// The end of what is archived of an epoch of which batches were offered that change nothing, though it
    /// is not the newest, or contradict it. Its spool was restored, and knows no other epoch.
    restored: BTreeMap<Subject, Stamp>,
}

impl Writer {
    /// Begins with the state of the archive at a version.
    pub fn load(version: u64, subjects: BTreeMap<Subject, Progress>) -> Self {
        Self { version, subjects, ..Self::default() }
    }

    /// Decides on a message.
    pub fn offer(&mut self, subject: &Subject, message: &Message<'_>) -> Verdict {
        let old = self.pending.get(subject).or_else(|| self.subjects.get(subject));
        let mut progress = old.cloned().unwrap_or_default();
        let verdict = progress.take(message);
        match &verdict {
            Verdict::Taken { losses } => {
                self.losses.extend(losses.iter().map(|loss| (subject.clone(), *loss)));
                self.pending.insert(subject.clone(), progress);
                self.restored.remove(subject);
                let taken = message.frame.header.position;
                if let Some(missing) = self.missing.get_mut(subject) {
                    missing.at = taken.next();
                    let early = missing.early;
                    if early.epoch == taken.epoch && early.sequence <= taken.sequence {
                        self.missing.remove(subject);
                    }
                }
            }
            Verdict::Early { missing: at } => {
                let new = message.frame.header.position;
                // Of an epoch that this message does not name, the earlier one lies behind it.
                let is_later = |old: &Position| match old.epoch == new.epoch {
                    true => old.sequence > new.sequence,
                    false => message.ranges.iter().all(|range| range.epoch != old.epoch),
                };
                let old = self.missing.get(subject).map(|missing| missing.early).filter(is_later);
                self.missing.insert(subject.clone(), Missing { at: *at, early: old.unwrap_or(new) });
            }
            Verdict::Forked { .. } | Verdict::Repeated => {
                let (epoch, old) = (message.frame.header.position.epoch, old.cloned().unwrap_or_default());
                let known = old.known(epoch);
                let stamp = Stamp {
                    position: Position { epoch, sequence: known.sequence },
                    hash: known.hash.unwrap_or_default(),
                };
                let is_newest = old.last.is_some_and(|last| last.position.epoch == epoch);
                if matches!(verdict, Verdict::Forked { .. }) || !is_newest && known.hash.is_some() {
                    self.restored.insert(subject.clone(), stamp);
                }
            }
        }
        verdict
    }

    /// Returns the change to store with the files, if any batch was taken.
    pub fn commit(&self) -> Option<Commit> {
        let marks: Vec<_> = self.pending.iter().map(|(s, p)| (s.clone(), p.clone())).collect();
        let (version, losses) = (self.version + 1, self.losses.clone());
        (!marks.is_empty()).then_some(Commit { version, marks, losses })
    }

    /// Takes the news that the change was stored. Returns the subjects whose marks are to be published.
    pub fn committed(&mut self) -> Vec<Subject> {
        self.version += 1;
        self.losses.clear();
        let mut changed = std::mem::take(&mut self.pending);
        let subjects: Vec<_> = changed.keys().cloned().collect();
        self.subjects.append(&mut changed);
        subjects
    }

    /// Takes the news that a change without batches was stored, as the next version. No batch is pending.
    pub fn advance(&mut self) {
        debug_assert!(self.pending.is_empty());
        self.version += 1;
    }

    /// Returns the subjects of which a batch was passed over, or contradicts the archive. Their marks are
    /// published from time to time, until a batch is taken.
    pub fn notices(&self) -> Vec<Subject> {
        let subjects: BTreeSet<_> = self.missing.keys().chain(self.restored.keys()).cloned().collect();
        subjects.into_iter().collect()
    }

    /// Returns all subjects, whose marks are published on a server that may have lost them.
    pub fn all(&self) -> Vec<Subject> {
        self.subjects.keys().cloned().collect()
    }

    /// Returns the mark of a subject.
    pub fn mark(&self, subject: &Subject) -> Mark {
        Mark {
            archived: self.subjects.get(subject).and_then(|progress| progress.last),
            restored: self.restored.get(subject).copied(),
            missing: self.missing.get(subject).copied(),
        }
    }

    /// Decides on the mark of a subject, given the published one. A notice there stays until its batch is
    /// taken, also if another writer made it.
    pub fn publish(&mut self, subject: &Subject, published: &Mark) -> Publish {
        let progress = self.subjects.get(subject).cloned().unwrap_or_default();
        let reached = |at: Position| progress.known(at.epoch).sequence;
        let archived = published.archived.map(|stamp| stamp.position);
        if archived.is_some_and(|position| reached(position) < position.sequence) {
            return Publish::Behind;
        }
        if let Some(Missing { at, early }) = published.missing
            && reached(early) < early.sequence
            && !self.missing.contains_key(subject)
        {
            let sequence = at.sequence.max(reached(at) + 1);
            self.missing.insert(subject.clone(), Missing { at: Position { sequence, ..at }, early });
        }
        let mut mark = self.mark(subject);
        if mark.archived == published.archived {
            mark.restored = mark.restored.or(published.restored);
        }
        if mark == *published { Publish::Keep } else { Publish::Replace(mark) }
    }

    /// Returns the version of the archive that this state follows.
    pub fn version(&self) -> u64 {
        self.version
    }
}
