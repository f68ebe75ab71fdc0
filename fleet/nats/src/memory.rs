//! A log in memory, for simulations and tests.

use crate::{Log, LogError, Published, Record};
use flame_fleet_protocol::Subject;
use std::collections::BTreeMap;

/// A log in memory. Without its disk, it is a new one.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    streams: BTreeMap<String, Stream>,
    marks: BTreeMap<Subject, Vec<u8>>,
}

#[derive(Clone, Debug, Default)]
struct Stream {
    bound: u64,
    last: u64,
    records: Vec<Record>,
}

impl Memory {
    fn stream(&mut self, subject: &Subject) -> Result<&mut Stream, LogError> {
        let missing = || LogError::Failed { what: "a stream", reason: format!("none of {subject}") };
        self.streams.get_mut(&subject.stream()).ok_or_else(missing)
    }
}

impl Log for Memory {
    fn open(&mut self, subject: &Subject, bound: u64) -> Result<(), LogError> {
        self.streams.entry(subject.stream()).or_default().bound = bound;
        Ok(())
    }

    fn last(&mut self, subject: &Subject) -> Result<Option<Record>, LogError> {
        let records = &self.stream(subject)?.records;
        Ok(records.iter().rev().find(|record| record.subject == *subject).cloned())
    }

    fn publish_all(
        &mut self,
        subject: &Subject,
        messages: Vec<Vec<u8>>,
        after: Option<u64>,
    ) -> Result<Vec<Published>, LogError> {
        let last = self.last(subject)?.map_or(0, |record| record.sequence);
        let stream = self.stream(subject)?;
        if after.is_some_and(|after| after != last) {
            return Ok(vec![Published::Moved]);
        }
        let mut answers = Vec::new();
        for bytes in messages {
            let size: usize = stream.records.iter().map(|record| record.bytes.len()).sum();
            if (size + bytes.len()) as u64 > stream.bound {
                answers.push(Published::Full);
                if after.is_some() && answers.len() == 1 {
                    break;
                }
                continue;
            }
            stream.last += 1;
            stream.records.push(Record { sequence: stream.last, subject: subject.clone(), bytes });
            answers.push(Published::Taken(stream.last));
        }
        Ok(answers)
    }

    fn pull(&mut self, subject: &Subject, behind: u64, most: usize) -> Result<Vec<Record>, LogError> {
        let records = self.stream(subject)?.records.iter().filter(|record| record.sequence > behind);
        Ok(records.take(most).cloned().collect())
    }

    fn remove(&mut self, subject: &Subject, until: u64) -> Result<(), LogError> {
        self.stream(subject)?.records.retain(|record| record.sequence > until);
        Ok(())
    }

    fn put(&mut self, subject: &Subject, mark: Vec<u8>) -> Result<(), LogError> {
        self.marks.insert(subject.clone(), mark);
        Ok(())
    }

    fn mark(&mut self, subject: &Subject) -> Result<Option<Vec<u8>>, LogError> {
        Ok(self.marks.get(subject).cloned())
    }
}
