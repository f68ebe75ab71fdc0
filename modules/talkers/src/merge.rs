//! The counters of all workers together.
//!
//! A message is four little-endian u64s (packets, bytes, packets without a key, the largest count of a key
//! that is not listed) and counters: the key, `value` less the largest unlisted count, `other`, and `value`
//! less `error`, each a u64. So a key's `value` is the sum of these, plus the largest unlisted
//! counts of all workers, whether a worker has the key or not.

use crate::key::{self, Key, Kind, SIZE, TEXT};
use crate::sketch::Sketch;
use crate::tables::{self, Params};
use flame_module::{FixedText, Init, Out, Progress, Slow};

const HEAD: usize = 4;
const COUNTER: usize = SIZE + 3 * 8;
/// The number of counters in one message.
const COUNTERS: usize = 900;

/// Sums of all packets of an instance.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub packets: u64,
    pub bytes: u64,
    pub without: u64,
}

/// Sends all counters to the slow instance.
pub fn send(sketch: &Sketch, totals: Totals, out: &mut Out) {
    let unlisted = sketch.unlisted();
    let mut message = Vec::with_capacity(HEAD * 8 + COUNTERS * COUNTER);
    let head = |message: &mut Vec<u8>, words: [u64; HEAD]| {
        words.iter().for_each(|word| message.extend_from_slice(&word.to_le_bytes()));
    };
    head(&mut message, [totals.packets, totals.bytes, totals.without, unlisted]);
    for counter in sketch.iter() {
        if message.len() + COUNTER > HEAD * 8 + COUNTERS * COUNTER {
            out.message(&message);
            message.clear();
            head(&mut message, [0; HEAD]);
        }
        message.extend_from_slice(&counter.key.to_bytes());
        let words = [counter.value.wrapping_sub(unlisted), counter.other, counter.value - counter.error];
        words.iter().for_each(|word| message.extend_from_slice(&word.to_le_bytes()));
    }
    out.message(&message);
}

#[derive(Clone, Copy)]
struct Sum {
    key: Key,
    /// The largest value, less the sum of the largest unlisted counts.
    most: i64,
    least: u64,
    other: u64,
}

/// The slow path.
pub struct Merge {
    kind: Kind,
    is_bytes: bool,
    most: usize,
    is_interval: bool,
    totals: Totals,
    unlisted: u64,
    sums: Vec<Sum>,
}

impl Slow for Merge {
    fn new(init: &Init) -> Self {
        let params = Params::from(init);
        let (kind, is_bytes) = crate::measure(&params);
        Self {
            kind,
            is_bytes,
            most: params.n.into(),
            is_interval: init.interval_ns > 0,
            totals: Totals::default(),
            unlisted: 0,
            sums: Vec::new(),
        }
    }

    fn message(&mut self, bytes: &[u8], _: &mut Out) {
        let Some((head, counters)) = bytes.split_at_checked(HEAD * 8) else { return };
        let word = |bytes: &[u8], n: usize| {
            bytes.as_chunks::<8>().0.get(n).map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        self.totals.packets += word(head, 0);
        self.totals.bytes += word(head, 1);
        self.totals.without += word(head, 2);
        self.unlisted += word(head, 3);
        for counter in counters.as_chunks::<COUNTER>().0 {
            let Some((key, words)) = counter.split_first_chunk::<SIZE>() else { continue };
            self.sums.push(Sum {
                key: Key::from_bytes(key),
                most: word(words, 0) as i64,
                other: word(words, 1),
                least: word(words, 2),
            });
        }
    }

    fn tick(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        if self.is_interval {
            self.write(now_ns, out);
        }
        Progress::Done
    }

    fn end(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        if self.totals.packets > 0 || !self.is_interval {
            self.write(now_ns, out);
        }
        Progress::Done
    }
}

impl Merge {
    fn write(&mut self, end_ns: u64, out: &mut Out) {
        let mut sums = std::mem::take(&mut self.sums);
        let Totals { packets, bytes, without } = std::mem::take(&mut self.totals);
        let unlisted = std::mem::take(&mut self.unlisted);
        sums.sort_unstable_by_key(|sum| sum.key);
        sums.dedup_by(|next, sum| {
            let is_same = next.key == sum.key;
            if is_same {
                sum.most += next.most;
                sum.least += next.least;
                sum.other += next.other;
            }
            is_same
        });
        let keys = sums.len() as u64;
        sums.sort_unstable_by_key(|sum| (std::cmp::Reverse(sum.most), sum.key));
        let all = if self.is_bytes { bytes } else { packets };
        for (rank, sum) in (1..).zip(sums.iter().take(self.most)) {
            let value = sum.most.saturating_add_unsigned(unlisted).max(0) as u64;
            let mut text = FixedText::<TEXT>::default();
            key::push(self.kind, &sum.key, &mut text);
            let (bytes, packets) = if self.is_bytes { (value, sum.other) } else { (sum.other, value) };
            out.write(&tables::Top {
                end_ns,
                rank,
                key: text.as_str(),
                bytes,
                packets,
                share: value as f64 / all.max(1) as f64,
                error: value.saturating_sub(sum.least),
            });
        }
        out.write(&tables::Total { end_ns, keys, bytes, packets, unlisted, without });
    }
}
