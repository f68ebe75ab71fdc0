//! Batches on their way from a spool through a log to an archive, which survive the log.

use flame_fleet_nats::{Log, Published};
use flame_fleet_protocol::{Mark, Message, Progress, Publish, Publisher, Subject, Verdict, Writer};
use flame_fleet_simulation::spool::{Spool, identity};
use flame_spool::{Epoch, Frame};
use std::collections::BTreeMap;

pub struct Way {
    subject: Subject,
    spool: Spool,
    publisher: Publisher,
    /// The archive: identities, and the watermark that is stored with them.
    archived: Vec<u64>,
    version: u64,
    subjects: BTreeMap<Subject, Progress>,
    taken: u64,
}

impl Way {
    pub fn new(subject: Subject) -> Self {
        let mut spool = Spool::new(1000);
        spool.open(Epoch(7));
        let (publisher, subjects) = (Publisher::new(8), BTreeMap::new());
        Self { subject, spool, publisher, archived: Vec::new(), version: 0, subjects, taken: 0 }
    }

    fn append(&mut self, count: u64) {
        for id in self.taken..self.taken + count {
            self.spool.append(id, 3, id);
        }
        self.taken += count;
    }

    /// Archives 20 of 50 batches, and leaves the others in the log.
    pub fn half(&mut self, log: &mut dyn Log) {
        self.append(50);
        assert_eq!(self.publish(log), 50);
        self.archive(log, 20);
        assert_eq!(self.spool.identities().count(), 50, "only a mark cuts");
        self.connect(log);
        assert_eq!((self.archived.len(), self.spool.identities().count()), (20, 30));
    }

    /// Continues with a log that has nothing, after more batches were taken.
    pub fn rest(&mut self, log: &mut dyn Log) {
        self.append(20);
        // Before the writer has stated its marks again, all that is not archived is sent again.
        assert_eq!(self.publish(log), 50);
        assert_eq!(self.publish(log), 0);
        self.archive(log, 1000);
        self.connect(log);
        assert_eq!(self.archived, (0..70).collect::<Vec<_>>(), "each once, in order");
        assert_eq!(self.spool.identities().count(), 0);
        assert_eq!(log.pull(&self.subject, 0, 10).unwrap(), []);
    }

    /// Asks for the last message and the mark, and cuts the spool. Returns the sequence to fence with.
    fn connect(&mut self, log: &mut dyn Log) -> u64 {
        log.open(&self.subject, 1 << 20).unwrap();
        let last = log.last(&self.subject).unwrap();
        let stamp = last.as_ref().map(|last| Message::read(&last.bytes).unwrap().frame.header.stamp());
        let mark = log.mark(&self.subject).unwrap().map(|mark| Mark::read(&mark).unwrap());
        self.publisher.connected();
        if let Some(cut) = self.publisher.answered(&self.spool, stamp, mark.as_ref()).unwrap() {
            self.spool.cut(&cut);
        }
        last.map_or(0, |last| last.sequence)
    }

    fn publish(&mut self, log: &mut dyn Log) -> usize {
        let (mut after, mut sent) = (Some(self.connect(log)), 0);
        while let Some(position) = self.publisher.next(&self.spool) {
            let (ranges, header, id) = self.spool.read(position).unwrap();
            let (body, mut bytes) = (id.to_le_bytes(), Vec::new());
            Message { ranges, frame: Frame { header, body: &body } }.write(&mut bytes);
            let outcome = log.publish(&self.subject, bytes, after.take()).unwrap();
            assert!(matches!(outcome, Published::Taken(_)), "{outcome:?}");
            self.publisher.accepted(position);
            sent += 1;
        }
        sent
    }

    fn archive(&mut self, log: &mut dyn Log, most: usize) {
        let mut writer = Writer::load(self.version, self.subjects.clone());
        let mut end = 0;
        for record in log.pull(&self.subject, 0, most).unwrap() {
            let message = Message::read(&record.bytes).unwrap();
            if let Verdict::Taken { losses } = writer.offer(&record.subject, &message) {
                assert_eq!(losses, []);
                self.archived.push(identity(message.frame.body));
            }
            end = record.sequence;
        }
        let commit = writer.commit().unwrap();
        self.version = commit.version;
        self.subjects.extend(commit.marks);
        for subject in writer.committed() {
            let old = log.mark(&subject).unwrap().map(|mark| Mark::read(&mark).unwrap());
            let Publish::Replace(mark) = writer.publish(&subject, &old.unwrap_or_default()) else {
                panic!("nothing new");
            };
            log.put(&subject, mark.to_bytes()).unwrap();
        }
        log.remove(&self.subject, end).unwrap();
    }
}
