//! Results of the join: by flow, path, pair of monitors and time.

use crate::options::Options;
use crate::read::{Flow, ReadError, Setting};
use crate::row::{CellRow, DelayRow, FlowRow, Joined, PathRow};
use crate::spread::Spread;
use hdrhistogram::Histogram;
use std::collections::{BTreeMap, HashMap};

/// Maximum numbers: of distinct paths in total, of paths of one flow, and of paths in all open intervals.
const MAX_PATHS: usize = 1024;
const MAX_PATHS_OF_FLOW: usize = 8;
const MAX_INTERVALS: usize = 16_384;

/// Maximum number of entries in all open intervals for packets that may be lost, by flow and by the first
/// part of a path.
const MAX_SHORT: usize = 1 << 18;

/// The numbers of the monitors in the order in which they saw a packet.
pub type Path = Vec<u8>;

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

/// The packets of a flow that took one path.
struct Took {
    path: Path,
    delay: Delay,
    spread: Spread,
    /// The number of these packets that passed while not all monitors were active.
    unwatched: u64,
}

/// The packets that began in one interval, as long as more may come.
#[derive(Default)]
struct Interval {
    paths: BTreeMap<Path, (Delay, Spread)>,
    /// The numbers of packets that not all monitors saw, by flow and path. They are lost if the flow has a
    /// longer path.
    short: HashMap<(u64, Path), u64>,
}

/// The time in which a monitor was active, as far as its records state.
#[derive(Clone, Copy)]
struct Watch {
    from: Option<u64>,
    to: Option<u64>,
}

#[derive(Default)]
struct Cell {
    delay: Delay,
    lost: u64,
}

/// Returns the longest of a flow's paths, and of several the one with most packets.
fn furthest(all: &[Took]) -> Option<&Took> {
    all.iter().max_by_key(|t| (t.path.len(), t.delay.packets, &t.path))
}

pub struct Outcome {
    names: Vec<String>,
    interval_ns: u64,
    max_flows: usize,
    watches: Vec<Watch>,
    /// The first setting in the records, and the number of its monitor.
    setting: Option<(usize, Setting)>,
    /// The paths of each flow: nearly always one path and its first parts.
    flows: HashMap<u64, Vec<Took>>,
    hosts: HashMap<u64, Flow>,
    paths: BTreeMap<Path, (Delay, Histogram<u64>)>,
    intervals: BTreeMap<u64, Interval>,
    /// The numbers of paths and of entries of `short` in all open intervals.
    open_paths: usize,
    open_short: usize,
    /// The longest delay of any packet, in nanoseconds.
    longest: u64,
    /// The rows of closed intervals.
    pub ready: Vec<DelayRow>,
    pub joined: Joined,
}

/// Returns a histogram with two significant digits up to one hour, of about 40 KiB.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 2).expect("these bounds are possible")
}

impl Outcome {
    pub fn new(names: Vec<String>, options: &Options) -> Self {
        Self {
            watches: vec![Watch { from: None, to: None }; names.len()],
            names,
            interval_ns: options.interval_ns.max(1),
            max_flows: options.max_flows,
            setting: None,
            flows: HashMap::new(),
            hosts: HashMap::new(),
            paths: BTreeMap::new(),
            intervals: BTreeMap::new(),
            open_paths: 0,
            open_short: 0,
            longest: 0,
            ready: Vec::new(),
            joined: Joined::default(),
        }
    }

    pub fn add_flow(&mut self, flow: Flow) {
        if self.hosts.len() < self.max_flows || self.hosts.contains_key(&flow.flow) {
            self.hosts.insert(flow.flow, flow);
        }
    }

    pub fn add_setting(&mut self, monitor: usize, setting: Setting) -> Result<(), ReadError> {
        let from = &mut self.watches[monitor].from;
        *from = Some(from.map_or(setting.ts_ns, |f| f.min(setting.ts_ns)));
        match &self.setting {
            Some((first, theirs)) => match theirs.difference(&setting) {
                Some(difference) => Err(ReadError::Setting {
                    first: self.names[*first].clone(),
                    name: self.names[monitor].clone(),
                    difference,
                }),
                None => Ok(()),
            },
            None => {
                self.setting = Some((monitor, setting));
                Ok(())
            }
        }
    }

    pub fn add_end(&mut self, monitor: usize, ts_ns: u64) {
        let to = &mut self.watches[monitor].to;
        *to = Some(to.map_or(ts_ns, |t| t.max(ts_ns)));
    }

    /// Returns whether all monitors were active when a packet passed, and for the longest delay seen so far
    /// after that.
    fn all_watched(&self, since: u64) -> bool {
        let until = since.saturating_add(self.longest);
        self.watches.iter().all(|w| w.from.is_none_or(|f| f <= since) && w.to.is_none_or(|t| until <= t))
    }

    /// Adds a packet that took `path` from the time `since`, in `ns` nanoseconds.
    pub fn packet(&mut self, flow: u64, path: Path, since: u64, ns: u64, bytes: u32) {
        if !self.paths.contains_key(&path) && self.paths.len() == MAX_PATHS {
            self.joined.crowded += 1;
            return;
        }
        self.longest = self.longest.max(ns);
        if path.len() > 1 {
            let known = self.paths.entry(path.clone());
            let (delay, spread) = known.or_insert_with(|| (Delay::default(), histogram()));
            delay.add(ns, bytes);
            spread.saturating_record(ns);
        }
        let watched = self.all_watched(since);
        self.within_interval(flow, &path, since, ns, bytes, watched);
        let unwatched = u64::from(!watched);
        if !self.flows.contains_key(&flow) && self.flows.len() >= self.max_flows {
            self.joined.crowded += 1;
            return;
        }
        let all = self.flows.entry(flow).or_default();
        let at = match all.iter().position(|t| t.path == path) {
            Some(at) => at,
            None if all.len() < MAX_PATHS_OF_FLOW => {
                all.push(Took { path, delay: Delay::default(), spread: Spread::default(), unwatched: 0 });
                all.len() - 1
            }
            None => {
                self.joined.crowded += 1;
                return;
            }
        };
        let took = &mut all[at];
        took.delay.add(ns, bytes);
        took.unwatched += unwatched;
        if took.path.len() > 1 {
            took.spread.add(ns);
        }
    }

    fn within_interval(&mut self, flow: u64, path: &Path, since: u64, ns: u64, bytes: u32, watched: bool) {
        if self.open_paths >= MAX_INTERVALS || self.open_short >= MAX_SHORT {
            self.close_first();
        }
        let interval = self.intervals.entry(since / self.interval_ns * self.interval_ns).or_default();
        if path.len() > 1 {
            let before = interval.paths.len();
            let (delay, spread) = interval.paths.entry(path.clone()).or_default();
            delay.add(ns, bytes);
            spread.add(ns);
            self.open_paths += interval.paths.len() - before;
        }
        if watched && path.len() < self.names.len() {
            let before = interval.short.len();
            *interval.short.entry((flow, path.clone())).or_default() += 1;
            self.open_short += interval.short.len() - before;
        }
    }

    /// Creates the rows of intervals that began before `until`, which receive no more packets.
    pub fn close_intervals(&mut self, until: u64) {
        while self.intervals.first_key_value().is_some_and(|(start, _)| *start < until) {
            self.close_first();
        }
    }

    fn close_first(&mut self) {
        let Some((start_ns, mut interval)) = self.intervals.pop_first() else { return };
        self.open_paths -= interval.paths.len();
        self.open_short -= interval.short.len();
        let mut lost: BTreeMap<&Path, u64> = BTreeMap::new();
        for ((flow, path), packets) in &interval.short {
            let furthest = self.flows.get(flow).and_then(|all| furthest(all));
            if let Some(took) = furthest
                && took.path.len() > path.len()
                && took.path.starts_with(path)
            {
                *lost.entry(&took.path).or_default() += packets;
                interval.paths.entry(took.path.clone()).or_default();
            }
        }
        for (path, (delay, spread)) in &interval.paths {
            self.ready.push(DelayRow {
                start_ns,
                path: self.name(path),
                packets: delay.packets,
                lost: lost.get(path).copied().unwrap_or(0),
                mean_ns: delay.mean(),
                p50_ns: spread.quantile(0.5).clamp(delay.min, delay.max),
                p99_ns: spread.quantile(0.99).clamp(delay.min, delay.max),
                max_ns: delay.max,
            });
        }
    }

    fn name(&self, path: &[u8]) -> String {
        path.iter().map(|m| self.names[usize::from(*m)].as_str()).collect::<Vec<_>>().join(" > ")
    }

    /// Returns the longest path between each pair of hosts, and of several the one with most packets.
    fn between(&self) -> HashMap<(&str, &str), &Path> {
        let mut best: HashMap<(&str, &str), (usize, u64, &Path)> = HashMap::new();
        for (id, all) in &self.flows {
            let Some(flow) = self.hosts.get(id) else { continue };
            for took in all {
                let new = (took.path.len(), took.delay.packets, &took.path);
                let known = best.entry((&flow.src, &flow.dst)).or_insert(new);
                *known = (*known).max(new);
            }
        }
        best.into_iter().map(|(hosts, (_, _, path))| (hosts, path)).collect()
    }

    pub fn end(mut self) -> Joined {
        let mut joined = std::mem::take(&mut self.joined);
        let between = self.between();
        let mut lost_on: BTreeMap<&Path, u64> = BTreeMap::new();
        let mut cells: BTreeMap<(u8, u8), Cell> = BTreeMap::new();
        for (id, all) in &self.flows {
            let Some(furthest) = furthest(all) else { continue };
            let flow = self.hosts.get(id);
            let others = flow.and_then(|f| between.get(&(f.src.as_str(), f.dst.as_str())));
            let path = match others {
                Some(p) if p.len() > furthest.path.len() && p.starts_with(&furthest.path) => p,
                _ => &furthest.path,
            };
            let (mut lost, mut unwatched) = (0, 0);
            for took in all {
                let (Some(from), Some(to)) = (took.path.first(), took.path.last()) else { continue };
                if took.path.len() < path.len() && path.starts_with(&took.path) {
                    lost += took.delay.packets - took.unwatched;
                    unwatched += took.unwatched;
                    continue;
                }
                let cell = &mut cells.entry((*from, *to)).or_default().delay;
                cell.packets += took.delay.packets;
                cell.bytes += took.delay.bytes;
                cell.sum += took.delay.sum;
                joined.alone += if took.path.len() < 2 { took.delay.packets } else { 0 };
            }
            joined.unwatched += unwatched;
            if path.len() < 2 {
                continue;
            }
            *lost_on.entry(path).or_default() += lost;
            if let (Some(from), Some(to)) = (path.first(), path.last()) {
                cells.entry((*from, *to)).or_default().lost += lost;
            }
            let none = (Delay::default(), Spread::default());
            let through = all.iter().find(|t| t.path == *path);
            let (delay, spread) = through.map_or((&none.0, &none.1), |t| (&t.delay, &t.spread));
            joined.flows.push(FlowRow {
                id: *id,
                flow: flow.cloned(),
                path: self.name(path),
                packets: delay.packets,
                bytes: delay.bytes,
                lost,
                mean_ns: delay.mean(),
                min_ns: delay.min,
                p50_ns: spread.quantile(0.5).clamp(delay.min, delay.max),
                p99_ns: spread.quantile(0.99).clamp(delay.min, delay.max),
                max_ns: delay.max,
            });
        }
        joined.flows.sort_by(|a, b| (b.bytes, b.lost, a.id).cmp(&(a.bytes, a.lost, b.id)));
        for (path, (delay, spread)) in &self.paths {
            joined.paths.push(PathRow {
                path: self.name(path),
                packets: delay.packets,
                bytes: delay.bytes,
                lost: lost_on.get(path).copied().unwrap_or(0),
                mean_ns: delay.mean(),
                p50_ns: spread.value_at_quantile(0.5).clamp(delay.min, delay.max),
                p90_ns: spread.value_at_quantile(0.9).clamp(delay.min, delay.max),
                p99_ns: spread.value_at_quantile(0.99).clamp(delay.min, delay.max),
                max_ns: delay.max,
            });
        }
        let sampling = self.setting.as_ref().map_or(1.0, |(_, s)| s.sampling);
        let all = |n: u64| if sampling > 0.0 { (n as f64 / sampling).round() as u64 } else { n };
        joined.matrix = cells
            .iter()
            .map(|((from, to), Cell { delay, lost })| CellRow {
                from: self.name(&[*from]),
                to: self.name(&[*to]),
                packets: delay.packets,
                bytes: delay.bytes,
                lost: *lost,
                estimated_packets: all(delay.packets),
                estimated_bytes: all(delay.bytes),
                mean_ns: delay.mean(),
            })
            .collect();
        joined
    }
}
