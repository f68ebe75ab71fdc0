//! The writers, the archive, and what must be true of it.

use super::{Broken, Event, Process, Reply, Step, World};
use crate::spool::identity;
use flame_fleet_protocol::{Commit, Mark, Message, Publish, Verdict, Writer};
use flame_spool::{Position, Range};
use std::collections::{BTreeMap, HashSet};

impl World {
    pub(super) fn begin_writer(&mut self, which: usize) {
        let run = self.queue.rng.u64(1..);
        let subjects = match self.setup.broken {
            Some(Broken::AWriterForgetsItsWatermark) => BTreeMap::new(),
            _ => self.store.subjects.clone(),
        };
        let writer = Writer::load(self.store.version, subjects);
        let publish = writer.all();
        let generation = self.server.generation;
        self.processes[which] = Process { run, generation, writer, cursor: 0, taken: Vec::new(), publish };
        let delay = 1 + self.queue.rng.u64(..50);
        self.queue.push(delay, Event::Writer(which, run, Step::Publish));
    }

    pub(super) fn write(&mut self, which: usize, step: Step) -> Result<(), String> {
        if !self.server.is_up || self.processes[which].generation != self.server.generation {
            // It connects again, and begins with what is stored.
            self.begin_writer(which);
            return Ok(());
        }
        // It may end between any two steps.
        if self.queue.once_in(60) && !self.is_healing {
            self.begin_writer(which);
            return Ok(());
        }
        let next = match step {
            Step::Pull => {
                self.pull(which);
                Step::Commit
            }
            Step::Commit => return self.commit(which),
            Step::Publish => {
                if !self.publish(which) {
                    self.begin_writer(which);
                    return Ok(());
                }
                Step::Trim
            }
            Step::Trim => {
                let cursor = self.processes[which].cursor;
                while self.server.first <= cursor && self.server.stream.pop_front().is_some() {
                    self.server.first += 1;
                }
                Step::Pull
            }
        };
        let (run, delay) = (self.processes[which].run, 1 + self.queue.rng.u64(..60));
        self.queue.push(delay, Event::Writer(which, run, next));
        Ok(())
    }

    fn pull(&mut self, which: usize) {
        let count = self.queue.rng.usize(1..40 + self.nodes.len());
        let process = &mut self.processes[which];
        for _ in 0..count {
            let at = process.cursor.max(self.server.first - 1);
            let Some((n, bytes)) = self.server.stream.get((at + 1 - self.server.first) as usize) else {
                break;
            };
            process.cursor = at + 1;
            let mut message = Message::read(bytes).expect("own bytes");
            match self.setup.broken {
                Some(Broken::GapsAreTaken) => forget_gaps(&mut message.ranges),
                Some(Broken::EarlierEpochsAreIgnored) => {
                    message.ranges.drain(..message.ranges.len() - 1);
                }
                _ => {}
            }
            match process.writer.offer(&self.nodes[*n].subject, &message) {
                Verdict::Taken { .. } => {
                    let header = message.frame.header;
                    let id = identity(message.frame.body);
                    process.taken.push((*n, header.position, id, header.rows));
                }
                Verdict::Repeated => self.counts.repeated += 1,
                Verdict::Early { .. } => self.counts.early += 1,
                Verdict::Forked { .. } => self.counts.forked += 1,
            }
        }
        if self.is_broken(Broken::MessagesAreRemovedBeforeTheCommit) {
            let cursor = self.processes[which].cursor;
            while self.server.first <= cursor && self.server.stream.pop_front().is_some() {
                self.server.first += 1;
            }
        }
    }

    fn commit(&mut self, which: usize) -> Result<(), String> {
        let run = self.processes[which].run;
        let delay = 1 + self.queue.rng.u64(..60);
        if let Some(commit) = self.processes[which].writer.commit() {
            let is_free = commit.version == self.store.version + 1;
            if !is_free && !self.is_broken(Broken::TwoWritersBothCommit) {
                self.counts.conflicts += 1;
                self.begin_writer(which);
                return Ok(());
            }
            let taken = std::mem::take(&mut self.processes[which].taken);
            self.apply(commit, &taken)?;
            // The store may have taken it without saying so.
            if self.queue.once_in(12) && !self.is_healing {
                self.begin_writer(which);
                return Ok(());
            }
            let process = &mut self.processes[which];
            process.publish = process.writer.committed();
        } else if self.queue.once_in(4) && !self.is_healing {
            // It merges files: a change without batches.
            let version = self.processes[which].writer.version() + 1;
            if version != self.store.version + 1 && !self.is_broken(Broken::TwoWritersBothCommit) {
                self.counts.conflicts += 1;
                self.begin_writer(which);
                return Ok(());
            }
            self.store.version = version;
            self.counts.merged += 1;
            // As above; the merged file alone, without its change, is nothing that others see.
            if self.queue.once_in(12) {
                self.begin_writer(which);
                return Ok(());
            }
            self.processes[which].writer.advance();
        }
        let process = &mut self.processes[which];
        process.publish.extend(process.writer.notices());
        self.queue.push(delay, Event::Writer(which, run, Step::Publish));
        Ok(())
    }

    /// Returns whether no other writer has archived more.
    fn publish(&mut self, which: usize) -> bool {
        for subject in std::mem::take(&mut self.processes[which].publish) {
            let n = self.names[&subject];
            let mut old = self.server.marks.get(&n).copied().unwrap_or_default();
            if self.is_broken(Broken::GapsAreForgotten) {
                old.missing = None;
            }
            let mark = match self.processes[which].writer.publish(&subject, &old) {
                Publish::Replace(mark) if self.is_broken(Broken::NothingIsMissed) => {
                    Mark { missing: None, ..mark }
                }
                Publish::Replace(mark) => mark,
                Publish::Behind if !self.is_broken(Broken::AWriterBehindGoesOn) => return false,
                Publish::Keep | Publish::Behind => continue,
            };
            self.server.marks.insert(n, mark);
            if let Some(link) = self.nodes[n].link {
                // A mark may be lost; a later one says more.
                if !self.queue.once_in(10) {
                    let delay = self.delay();
                    self.queue.push(delay, Event::ToNode { node: n, link, reply: Reply::Mark(mark) });
                }
            }
        }
        true
    }

    /// Stores files, watermarks and losses at once, and checks what holds at all times.
    fn apply(&mut self, commit: Commit, taken: &[(usize, Position, u64, u64)]) -> Result<(), String> {
        for (n, position, id, rows) in taken {
            if self.store.archived.insert(*id, *rows).is_some() {
                return Err(format!("node {n}: batch {id} at {position} was archived twice"));
            }
            // What was on its way when a backup was restored may come after what the restored node sends.
            let is_earlier = self.store.newest.insert(*n, *id).is_some_and(|before| before > *id);
            if is_earlier && !self.nodes[*n].was_restored {
                return Err(format!("node {n}: batch {id} at {position} was archived after a later one"));
            }
            self.counts.archived += 1;
        }
        for (subject, new) in &commit.marks {
            let old = self.store.subjects.insert(subject.clone(), new.clone()).unwrap_or_default();
            for known in &old.epochs {
                let now = new.epochs.iter().find(|other| other.epoch == known.epoch);
                if now.is_none_or(|now| now.sequence < known.sequence) {
                    return Err(format!("{subject}: the watermark of {} fell", known.epoch));
                }
            }
        }
        self.store.losses.extend(commit.losses);
        self.store.version = commit.version;
        Ok(())
    }

    /// Checks that all that was taken is archived, or counted as lost.
    pub(super) fn check_end(&mut self) -> Result<(), String> {
        for (n, node) in self.nodes.iter().enumerate() {
            // A restored spool keeps what is archived of epochs that it does not know to have ended, until
            // its next batch is archived.
            let is_stuck = |id: &u64| self.counts.restored == 0 || !self.store.archived.contains_key(id);
            let stuck = node.spool.identities().find(is_stuck);
            // What was counted as lost before a backup with it was restored stays lost.
            if let Some(id) = stuck.filter(|id| self.counts.restored == 0 || !self.dropped.contains(id)) {
                let (mark, up) = (self.server.marks.get(&n), self.server.is_up);
                return Err(format!("node {n}: batch {id} was never cut ({mark:?}, server {up})"));
            }
        }
        let lost: u64 = self.store.losses.iter().map(|(_, loss)| loss.rows).sum();
        self.counts.lost_batches = self.store.losses.len() as u64;
        let rows = |ids: &HashSet<u64>| -> u64 {
            let gone = ids.iter().filter(|id| !self.store.archived.contains_key(id));
            gone.map(|id| self.rows[*id as usize]).sum()
        };
        let dropped = rows(&self.dropped);
        // Of a restored node, drops before that may not be stated, and batches given up may be archived.
        let is_exact = self.counts.restored == 0;
        if is_exact && lost != dropped {
            return Err(format!("{lost} rows are counted as lost, and {dropped} were"));
        }
        if !self.setup.memories && lost > dropped {
            return Err(format!("{lost} rows are counted as lost, and at most {dropped} were"));
        }
        Ok(())
    }
}

/// Says that nothing is left of what comes before a batch, though it may be.
fn forget_gaps(ranges: &mut [Range]) {
    for range in ranges {
        range.floor = range.last + 1;
    }
}
