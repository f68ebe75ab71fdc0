use crate::read::{Flow, Line, Log, ReadError, Reader};
use hdrhistogram::Histogram;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::BufRead;

/// Monitors, at most: a path has one byte for each.
pub const MAX_MONITORS: usize = 32;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long a packet is waited for after the first monitor saw it.
    pub window_ns: u64,
    /// Length of the intervals of [`Joined::delays`].
    pub interval_ns: u64,
    /// Flows with a row of their own; the packets of others count in the paths only.
    pub max_flows: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { window_ns: 10_000_000_000, interval_ns: 1_000_000_000, max_flows: 1_000_000 }
    }
}

/// Paths that are told apart, in all and of one flow; more are counted as crowded.
const MAX_PATHS: usize = 1024;
const MAX_PATHS_OF_FLOW: usize = 8;

/// Monitors in the order in which they saw a packet, by number.
type Path = Vec<u8>;

/// What the packets of one flow did.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowRow {
    pub id: u64,
    /// If its row in the table `flow` came along.
    pub flow: Option<Flow>,
    /// The way of most of its packets, among those that went furthest.
    pub path: String,
    /// Packets and bytes that went all of it.
    pub packets: u64,
    pub bytes: u64,
    /// Packets that began it and were not seen at its end.
    pub lost: u64,
    /// Of the delay from its first monitor to its last.
    pub mean_ns: f64,
    pub min_ns: u64,
    pub max_ns: u64,
}

/// All packets that took one path, and those that were lost on it.
#[derive(Clone, Debug, PartialEq)]
pub struct PathRow {
    pub path: String,
    pub packets: u64,
    pub bytes: u64,
    pub lost: u64,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

/// The delay on one path in one interval.
#[derive(Clone, Debug, PartialEq)]
pub struct DelayRow {
    pub start_ns: u64,
    pub path: String,
    pub packets: u64,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p99_ns: u64,
}

/// What the logs say together.
#[derive(Clone, Debug, Default)]
pub struct Joined {
    pub flows: Vec<FlowRow>,
    pub paths: Vec<PathRow>,
    pub delays: Vec<DelayRow>,
    /// Logs read.
    pub logs: u64,
    /// Labels that one monitor logged twice within a window: they tell nothing.
    pub ambiguous: u64,
    /// Packets seen at one monitor only, of flows that no other monitor saw.
    pub alone: u64,
    /// Packets of flows and paths for which there was no room.
    pub crowded: u64,
}

/// A packet that other monitors may still log.
struct Waiting {
    since: u64,
    bytes: u32,
    /// Monitor and time; in the order read, which is that of time.
    seen: Vec<(u8, u64)>,
    ambiguous: bool,
}

type Key = (u64, u32, u32);

#[derive(Clone, Copy, Default)]
struct Delay {
    packets: u64,
    bytes: u64,
    sum: f64,
    min: u64,
    max: u64,
}

impl Delay {
    fn add(&mut self, ns: u64, bytes: u32) {
        self.min = if self.packets == 0 { ns } else { self.min.min(ns) };
        self.max = self.max.max(ns);
        self.packets += 1;
        self.bytes += u64::from(bytes);
        self.sum += ns as f64;
    }

    fn mean(&self) -> f64 {
        if self.packets == 0 { 0.0 } else { self.sum / self.packets as f64 }
    }
}

struct State<'a> {
    names: &'a [String],
    options: Options,
    waiting: HashMap<Key, Waiting>,
    order: VecDeque<(u64, Key)>,
    /// Per flow: the paths its packets took. Nearly always one, and its beginnings.
    flows: HashMap<u64, Vec<(Path, Delay)>>,
    told: HashMap<u64, Flow>,
    paths: BTreeMap<Path, (Delay, Histogram<u64>)>,
    intervals: BTreeMap<(u64, Path), (Delay, Histogram<u64>)>,
    joined: Joined,
}

/// Two significant digits up to an hour, in some 40 KiB.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 2).expect("these bounds are possible")
}

/// Joins the records of the named monitors.
pub fn join<R: BufRead>(inputs: Vec<(String, R)>, options: Options) -> Result<Joined, ReadError> {
    let names: Vec<String> = inputs.iter().map(|(name, _)| name.clone()).collect();
    if names.len() > MAX_MONITORS {
        let error = std::io::Error::other(format!("at most {MAX_MONITORS} monitors can be joined"));
        return Err(ReadError::Io { name: names[MAX_MONITORS].clone(), error });
    }
    let mut state = State {
        names: &names,
        options,
        waiting: HashMap::new(),
        order: VecDeque::new(),
        flows: HashMap::new(),
        told: HashMap::new(),
        paths: BTreeMap::new(),
        intervals: BTreeMap::new(),
        joined: Joined::default(),
    };
    let mut readers: Vec<_> = inputs.into_iter().map(|(name, input)| Reader::new(name, input)).collect();
    let mut heads: Vec<Option<Log>> = Vec::new();
    for reader in &mut readers {
        heads.push(state.log(reader)?);
    }
    loop {
        let earliest = (0..heads.len()).filter_map(|i| heads[i].map(|log| (log.ts_ns, i))).min();
        let Some((_, monitor)) = earliest else { break };
        if let Some(log) = heads[monitor].take() {
            state.take(monitor as u8, log);
        }
        heads[monitor] = state.log(&mut readers[monitor])?;
    }
    Ok(state.end())
}

impl State<'_> {
    /// The next log of a monitor; flows on the way to it are noted.
    fn log<R: BufRead>(&mut self, reader: &mut Reader<R>) -> Result<Option<Log>, ReadError> {
        loop {
            match reader.next()? {
                Some(Line::Log(log)) => return Ok(Some(log)),
                Some(Line::Flow(flow)) if self.told.len() < self.options.max_flows => {
                    self.told.insert(flow.flow, flow);
                }
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    fn take(&mut self, monitor: u8, log: Log) {
        self.joined.logs += 1;
        while let Some((since, key)) = self.order.front().copied() {
            if log.ts_ns.saturating_sub(since) <= self.options.window_ns {
                break;
            }
            self.order.pop_front();
            self.finish(&key);
        }
        let waited = log.ts_ns.saturating_sub(self.options.window_ns);
        self.close_intervals(waited.saturating_sub(self.options.interval_ns));
        let key = (log.flow, log.label, log.wire_len);
        if let Some(waiting) = self.waiting.get_mut(&key) {
            waiting.ambiguous |= waiting.seen.iter().any(|(m, _)| *m == monitor);
            waiting.seen.push((monitor, log.ts_ns));
            // Twice at one monitor is all that need be known.
            waiting.seen.truncate(MAX_MONITORS + 1);
            return;
        }
        self.order.push_back((log.ts_ns, key));
        let seen = vec![(monitor, log.ts_ns)];
        self.waiting.insert(key, Waiting { since: log.ts_ns, bytes: log.wire_len, seen, ambiguous: false });
    }

    /// Nobody else will log this packet.
    fn finish(&mut self, key: &Key) {
        let Some(mut packet) = self.waiting.remove(key) else { return };
        if packet.ambiguous {
            self.joined.ambiguous += 1;
            return;
        }
        packet.seen.sort_by_key(|(monitor, ts)| (*ts, *monitor));
        let path: Path = packet.seen.iter().map(|(monitor, _)| *monitor).collect();
        let last = packet.seen.last().map_or(packet.since, |(_, ts)| *ts);
        let ns = last - packet.seen.first().map_or(last, |(_, ts)| *ts);
        if !self.paths.contains_key(&path) && self.paths.len() == MAX_PATHS {
            self.joined.crowded += 1;
            return;
        }
        if path.len() > 1 {
            let (delay, spread) =
                self.paths.entry(path.clone()).or_insert_with(|| (Delay::default(), histogram()));
            delay.add(ns, packet.bytes);
            spread.saturating_record(ns);
            let start = packet.since / self.options.interval_ns * self.options.interval_ns;
            let interval = self.intervals.entry((start, path.clone()));
            let (delay, spread) = interval.or_insert_with(|| (Delay::default(), histogram()));
            delay.add(ns, packet.bytes);
            spread.saturating_record(ns);
        }
        let room = self.flows.len() < self.options.max_flows;
        match self.flows.get_mut(&key.0) {
            Some(paths) => {
                let full = paths.len() == MAX_PATHS_OF_FLOW;
                if let Some((_, delay)) = paths.iter_mut().find(|(known, _)| *known == path) {
                    delay.add(ns, packet.bytes);
                } else if full {
                    self.joined.crowded += 1;
                } else {
                    let mut delay = Delay::default();
                    delay.add(ns, packet.bytes);
                    paths.push((path, delay));
                }
            }
            None if room => {
                let mut delay = Delay::default();
                delay.add(ns, packet.bytes);
                self.flows.insert(key.0, vec![(path, delay)]);
            }
            None => self.joined.crowded += 1,
        }
    }

    /// Intervals that began before `until` get no more packets: their rows are made, their histograms dropped.
    fn close_intervals(&mut self, until: u64) {
        while let Some(entry) = self.intervals.first_entry() {
            if entry.key().0 >= until {
                break;
            }
            let ((start_ns, path), (delay, spread)) = entry.remove_entry();
            self.joined.delays.push(DelayRow {
                start_ns,
                path: self.name(&path),
                packets: delay.packets,
                mean_ns: delay.mean(),
                p50_ns: spread.value_at_quantile(0.5),
                p99_ns: spread.value_at_quantile(0.99),
            });
        }
    }

    fn name(&self, path: &[u8]) -> String {
        path.iter().map(|m| self.names[usize::from(*m)].as_str()).collect::<Vec<_>>().join(" > ")
    }

    fn end(mut self) -> Joined {
        while let Some((_, key)) = self.order.pop_front() {
            self.finish(&key);
        }
        self.close_intervals(u64::MAX);
        let mut joined = std::mem::take(&mut self.joined);
        let mut lost_on: BTreeMap<Path, u64> = BTreeMap::new();
        for (id, paths) in &self.flows {
            let furthest = paths.iter().max_by_key(|(path, d)| (path.len(), d.packets, path.clone()));
            let Some((path, delay)) = furthest else { continue };
            if path.len() < 2 {
                joined.alone += paths.iter().map(|(_, d)| d.packets).sum::<u64>();
                continue;
            }
            let begun = paths.iter().filter(|(p, _)| p.len() < path.len() && path.starts_with(p));
            let lost = begun.map(|(_, d)| d.packets).sum();
            *lost_on.entry(path.clone()).or_default() += lost;
            joined.flows.push(FlowRow {
                id: *id,
                flow: self.told.get(id).cloned(),
                path: self.name(path),
                packets: delay.packets,
                bytes: delay.bytes,
                lost,
                mean_ns: delay.mean(),
                min_ns: delay.min,
                max_ns: delay.max,
            });
        }
        joined.flows.sort_by(|a, b| (b.bytes, a.id).cmp(&(a.bytes, b.id)));
        for (path, (delay, spread)) in &self.paths {
            joined.paths.push(PathRow {
                path: self.name(path),
                packets: delay.packets,
                bytes: delay.bytes,
                lost: lost_on.get(path).copied().unwrap_or(0),
                mean_ns: delay.mean(),
                p50_ns: spread.value_at_quantile(0.5),
                p90_ns: spread.value_at_quantile(0.9),
                p99_ns: spread.value_at_quantile(0.99),
                max_ns: delay.max,
            });
        }
        joined
    }
}
