//! Sums by client and by name. Each fast instance keeps its own and sends them to the slow one, which adds
//! them up.
//!
//! A message is seven little-endian u64s ([`Sum`]), a byte for the kind of key (4 or 6 for a client, 0 for a
//! name), and the key.

use crate::name::{self, Name, TEXT};
use crate::tables::{self, Params, QuestionOutcome as Outcome};
use flame_module::{FixedText, Hashed, Init, Ip, Map, Out, Progress, Slow};
use std::collections::BTreeMap;

/// The largest number of sums that the slow instance keeps.
const MOST: usize = 65_536;
const NXDOMAIN: u8 = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    questions: u64,
    answered: u64,
    unanswered: u64,
    nxdomain: u64,
    failed: u64,
    time: u64,
    most: u64,
}

const WORDS: usize = 7;

impl Sum {
    fn words(&self) -> [u64; WORDS] {
        let Self { questions, answered, unanswered, nxdomain, failed, time, most } = *self;
        [questions, answered, unanswered, nxdomain, failed, time, most]
    }

    fn add(&mut self, other: [u64; WORDS]) {
        let [questions, answered, unanswered, nxdomain, failed, time, most] = other;
        self.questions += questions;
        self.answered += answered;
        self.unanswered += unanswered;
        self.nxdomain += nxdomain;
        self.failed += failed;
        self.time = self.time.saturating_add(time);
        self.most = self.most.max(most);
    }

    fn mean(&self) -> i64 {
        (self.time / self.answered.max(1)) as i64
    }
}

#[derive(Clone, Copy, Default)]
struct ByName {
    name: Name,
    sum: Sum,
}

/// The sums of one fast instance since it sent them.
pub struct Sums {
    clients: Option<Map<Ip, Sum>>,
    names: Option<Map<Hashed, ByName>>,
}

impl Sums {
    pub fn new(params: &Params) -> Self {
        let most = params.max_sums as usize;
        Self { clients: params.clients.then(|| Map::new(most)), names: params.names.then(|| Map::new(most)) }
    }

    pub fn evicted(&self) -> u64 {
        self.clients.as_ref().map_or(0, |m| m.evicted) + self.names.as_ref().map_or(0, |m| m.evicted)
    }

    /// Counts a question that is finished at `now`, with the code of its answer.
    #[inline(never)]
    pub fn add(&mut self, client: Ip, name: &Name, outcome: Outcome, code: Option<u8>, time: u64, now: u64) {
        let has = |is: bool| u64::from(is);
        let one = [
            has(outcome != Outcome::Unasked),
            has(outcome == Outcome::Answered),
            has(outcome == Outcome::Unanswered),
            has(code == Some(NXDOMAIN)),
            has(code.is_some_and(|c| c != 0 && c != NXDOMAIN)),
            time,
            time,
        ];
        if let Some(clients) = &mut self.clients {
            clients.or_insert(client, now).add(one);
        }
        if let Some(names) = &mut self.names {
            let of = names.or_insert(Hashed(name.hash()), now);
            if of.sum == Sum::default() {
                of.name = name.lower();
            }
            of.sum.add(one);
        }
    }

    /// Sends all sums to the slow instance, and begins again.
    pub fn send(&mut self, out: &mut Out) {
        let mut message = Vec::with_capacity(WORDS * 8 + 1 + 256);
        let mut one = |sum: &Sum, kind: u8, key: &[u8]| {
            message.clear();
            for word in sum.words() {
                message.extend_from_slice(&word.to_le_bytes());
            }
            message.push(kind);
            message.extend_from_slice(key);
            out.message(&message);
        };
        if let Some(clients) = &mut self.clients {
            clients.iter().for_each(|(client, sum)| one(sum, client.family, &client.bytes));
            clients.clear();
        }
        if let Some(names) = &mut self.names {
            names.iter().for_each(|(_, of)| one(&of.sum, 0, of.name.bytes()));
            names.clear();
        }
    }
}

/// The slow path: the sums of all workers.
pub struct Merge {
    is_interval: bool,
    sums: BTreeMap<(u8, Vec<u8>), Sum>,
}

impl Slow for Merge {
    fn new(init: &Init) -> Self {
        Self { is_interval: init.interval_ns > 0, sums: BTreeMap::new() }
    }

    fn message(&mut self, bytes: &[u8], _: &mut Out) {
        let Some((words, [kind, key @ ..])) = bytes.split_at_checked(WORDS * 8) else { return };
        let mut sum = [0; WORDS];
        for (word, eight) in sum.iter_mut().zip(words.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*eight);
        }
        let key = (*kind, key.to_vec());
        if self.sums.len() < MOST || self.sums.contains_key(&key) {
            self.sums.entry(key).or_default().add(sum);
        }
    }

    fn tick(&mut self, _: u64, out: &mut Out) -> Progress {
        if self.is_interval { self.write(out) } else { Progress::Done }
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        self.write(out)
    }
}

impl Merge {
    /// Writes all rows, those with most questions first, and begins again.
    fn write(&mut self, out: &mut Out) -> Progress {
        let mut all: Vec<_> = std::mem::take(&mut self.sums).into_iter().collect();
        all.sort_by(|(ka, a), (kb, b)| (ka.0 == 0, b.questions, ka).cmp(&(kb.0 == 0, a.questions, kb)));
        for ((kind, key), sum) in &all {
            let Sum { questions, answered, unanswered, nxdomain, failed, most, .. } = *sum;
            let (mean_ns, max_ns) = (sum.mean(), most as i64);
            if *kind == 0 {
                let mut name = FixedText::<TEXT>::default();
                name::push_labels(&mut name, key);
                let name = name.as_str();
                out.write(&tables::Name {
                    name,
                    questions,
                    answered,
                    unanswered,
                    nxdomain,
                    failed,
                    mean_ns,
                    max_ns,
                });
            } else {
                let Ok(bytes) = key.as_slice().try_into() else { continue };
                let client = Ip { family: *kind, bytes };
                out.write(&tables::Client {
                    client,
                    questions,
                    answered,
                    unanswered,
                    nxdomain,
                    failed,
                    mean_ns,
                    max_ns,
                });
            }
        }
        Progress::Done
    }
}
