//! Reads logs, matches packets, and limits how many packets are waited for, and for how long.

use crate::options::Options;
use crate::outcome::{Outcome, Path};
use crate::read::{Line, Log, ReadError, Reader, Records};
use crate::row::{DelayRow, Joined};
use std::collections::{HashMap, VecDeque};
use std::io::BufRead;

/// Maximum number of monitors. A monitor is one byte of a path.
pub const MAX_MONITORS: usize = 32;

/// A packet that other monitors may still log.
struct Waiting {
    bytes: u32,
    /// Monitors and times in nanoseconds, in the order read.
    seen: Vec<(u8, u64)>,
    ambiguous: bool,
}

type Key = (u64, u32, u32);

struct State {
    options: Options,
    waiting: HashMap<Key, Waiting>,
    order: VecDeque<(u64, Key)>,
    outcome: Outcome,
}

/// Joins JSON lines of the named monitors. The result includes all delays.
///
/// # Errors
///
/// Returns an error if there is no monitor or more than [`MAX_MONITORS`], if a line cannot be read or is no
/// record, or if two monitors selected packets with different parameters.
pub fn join<R: BufRead>(inputs: Vec<(String, R)>, options: Options) -> Result<Joined, ReadError> {
    let mut delays = Vec::new();
    let readers = inputs.into_iter().map(|(name, input)| (name.clone(), Reader::new(name, input)));
    let mut joined = join_with(readers.collect(), options, |row| {
        delays.push(row);
        Ok::<_, ReadError>(())
    })?;
    joined.delays = delays;
    Ok(joined)
}

/// Joins the records of the named monitors. `delay` receives the delays over time when their intervals end.
///
/// # Errors
///
/// Returns the errors of [`join`] and those of `delay`.
pub fn join_with<T: Records, E: From<ReadError>>(
    monitors: Vec<(String, T)>,
    options: Options,
    mut delay: impl FnMut(DelayRow) -> Result<(), E>,
) -> Result<Joined, E> {
    let (names, readers): (Vec<String>, Vec<T>) = monitors.into_iter().unzip();
    if names.len() > MAX_MONITORS || names.is_empty() {
        let name = names.get(MAX_MONITORS).cloned().unwrap_or_default();
        return Err(ReadError::Monitors { name, given: names.len(), most: MAX_MONITORS }.into());
    }
    let mut state = State {
        waiting: HashMap::new(),
        order: VecDeque::new(),
        outcome: Outcome::new(names, &options),
        options,
    };
    let mut readers: Vec<_> = readers.into_iter().map(crate::read::Ordered::new).collect();
    let mut heads: Vec<Option<Log>> = Vec::new();
    for (monitor, reader) in readers.iter_mut().enumerate() {
        heads.push(reader.next(|line| state.read_other(monitor, line))?);
    }
    loop {
        let earliest = (0..heads.len()).filter_map(|i| heads[i].map(|log| (log.ts_ns, i))).min();
        let Some((_, monitor)) = earliest else { break };
        if let Some(log) = heads[monitor].take() {
            state.take(monitor as u8, log);
        }
        state.outcome.ready.drain(..).try_for_each(&mut delay)?;
        heads[monitor] = readers[monitor].next(|line| state.read_other(monitor, line))?;
    }
    while let Some((_, key)) = state.order.pop_front() {
        state.finish(&key);
    }
    state.outcome.close_intervals(u64::MAX);
    state.outcome.ready.drain(..).try_for_each(&mut delay)?;
    Ok(state.outcome.end())
}

impl State {
    /// Processes a record that is not a log.
    fn read_other(&mut self, monitor: usize, line: Line) -> Result<(), ReadError> {
        match line {
            Line::Flow(flow) => self.outcome.add_flow(flow),
            Line::Setting(setting) => self.outcome.add_setting(monitor, setting)?,
            Line::End(ts) => self.outcome.add_end(monitor, ts),
            Line::Log(_) | Line::Other => {}
        }
        Ok(())
    }

    fn take(&mut self, monitor: u8, log: Log) {
        self.outcome.joined.logs += 1;
        while let Some((since, key)) = self.order.front().copied() {
            let expired = log.ts_ns.saturating_sub(since) > self.options.window_ns;
            let full = self.order.len() >= self.options.max_waiting.max(1);
            if !expired && !full {
                break;
            }
            self.outcome.joined.hurried += u64::from(!expired);
            self.order.pop_front();
            self.finish(&key);
        }
        let waited = log.ts_ns.saturating_sub(self.options.window_ns);
        self.outcome.close_intervals(waited.saturating_sub(self.options.interval_ns));
        let key = (log.flow, log.label, log.wire_len);
        if let Some(waiting) = self.waiting.get_mut(&key) {
            waiting.ambiguous |= waiting.seen.iter().any(|(m, _)| *m == monitor);
            // A second log from one monitor makes the packet ambiguous. No more need be known.
            if !waiting.ambiguous {
                waiting.seen.push((monitor, log.ts_ns));
            }
            return;
        }
        self.order.push_back((log.ts_ns, key));
        let seen = vec![(monitor, log.ts_ns)];
        self.waiting.insert(key, Waiting { bytes: log.wire_len, seen, ambiguous: false });
    }

    /// Counts a packet that no other monitor will log.
    fn finish(&mut self, key: &Key) {
        let Some(mut packet) = self.waiting.remove(key) else { return };
        if packet.ambiguous {
            self.outcome.joined.ambiguous += 1;
            return;
        }
        packet.seen.sort_by_key(|(monitor, ts)| (*ts, *monitor));
        let path: Path = packet.seen.iter().map(|(monitor, _)| *monitor).collect();
        let times = packet.seen.first().zip(packet.seen.last());
        let Some(((_, first), (_, last))) = times else { return };
        self.outcome.packet(key.0, path, *first, last - first, packet.bytes);
    }
}
