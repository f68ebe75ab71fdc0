//! Rates from the counters of two polls.

use clap::ValueEnum;
use flame_api::{Module, Source};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The order of modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Processor time, most first
    Cpu,
    /// Packets per second, most first
    Packets,
    /// Time for a packet, longest first
    Time,
    /// Packets that did not reach the module, most first
    Shed,
    /// Memory, most first
    Memory,
    /// Principal and name
    Name,
}

impl Sort {
    pub const ALL: [Self; 6] = [Self::Cpu, Self::Packets, Self::Time, Self::Shed, Self::Memory, Self::Name];

    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Packets => "packets",
            Self::Time => "time",
            Self::Shed => "shed",
            Self::Memory => "memory",
            Self::Name => "name",
        }
    }

    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }
}

/// A module at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ModuleRow {
    pub session: String,
    pub module: String,
    pub source: String,
    pub state: String,
    pub packets_per_second: f64,
    /// Processor time for a packet.
    pub packet_ns: Option<f64>,
    /// Processors in use, 1 for all of one.
    pub cpu: f64,
    /// Processors reserved.
    pub reserved: f64,
    /// The part in use of the reserved processor time.
    pub of_reserved: Option<f64>,
    /// Blocks that wait, and those that are reserved.
    pub blocks: Option<u64>,
    pub reserved_blocks: u64,
    pub memory: Option<u64>,
    /// Packets that did not reach it, by cause: all so far.
    pub shed: BTreeMap<String, u64>,
    pub shed_per_second: f64,
    /// Instances that ended by a fault, a violated bound among them.
    pub faults: u64,
}

/// A session at one time: the sum of its modules.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SessionRow {
    pub session: String,
    pub modules: u64,
    pub packets_per_second: f64,
    pub cpu: f64,
    /// Processors reserved.
    pub reserved: f64,
    pub memory: u64,
    pub shed_per_second: f64,
    pub faults: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SourceRow {
    pub source: String,
    pub state: String,
    pub packets_per_second: Option<f64>,
    pub bits_per_second: Option<f64>,
    pub kernel_drops: Option<u64>,
    pub kernel_drops_per_second: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct View {
    pub sources: Vec<SourceRow>,
    pub sessions: Vec<SessionRow>,
    pub modules: Vec<ModuleRow>,
}

impl View {
    pub fn sort(&mut self, sort: Sort) {
        self.modules.sort_by(|a, b| order(a, b, sort));
    }
}

/// A counter that may change less often than it is read: a principal's processor time changes once per
/// interval of the accounting.
#[derive(Clone, Copy, Debug)]
struct Counter {
    value: u64,
    /// The time of the last change, and the rate over the time between the last two.
    at: Duration,
    gap: Duration,
    rate: f64,
}

/// The rate is 0 without a change for this many of the last gaps.
const STILL_GAPS: u32 = 3;

impl Counter {
    fn new(value: u64, now: Duration) -> Self {
        Self { value, at: now, gap: Duration::ZERO, rate: 0.0 }
    }

    fn read(&mut self, value: u64, now: Duration) -> f64 {
        let gap = now.saturating_sub(self.at);
        if value < self.value {
            // It began again: the node was restarted, or the module installed again.
            *self = Self::new(value, now);
        } else if value > self.value && !gap.is_zero() {
            let rate = (value - self.value) as f64 / gap.as_secs_f64();
            *self = Self { value, at: now, gap, rate };
        } else if self.gap.is_zero() || gap > self.gap * STILL_GAPS {
            self.rate = 0.0;
        }
        self.rate
    }
}

/// The counters of the last poll.
#[derive(Default)]
pub struct Rates {
    counters: BTreeMap<(String, String, &'static str), Counter>,
}

impl Rates {
    fn rate(&mut self, of: (&str, &str), what: &'static str, value: u64, now: Duration) -> f64 {
        let key = (of.0.to_owned(), of.1.to_owned(), what);
        self.counters.entry(key).or_insert_with(|| Counter::new(value, now)).read(value, now)
    }

    /// Returns the state of a node from a poll at `now`, measured from any beginning.
    pub fn poll(&mut self, modules: &[Module], sources: &[Source], sort: Sort, now: Duration) -> View {
        let known = |session: &str, name: &str| {
            modules.iter().any(|m| session_of(m) == session && m.name == name)
                || session.is_empty() && sources.iter().any(|s| s.name == name)
        };
        self.counters.retain(|(session, name, _), _| known(session, name));
        let sources = sources.iter().map(|source| self.source(source, now)).collect();
        let modules: Vec<ModuleRow> = modules.iter().map(|module| self.module(module, now)).collect();
        let mut view = View { sources, sessions: sessions(&modules), modules };
        view.sort(sort);
        view
    }

    fn source(&mut self, source: &Source, now: Duration) -> SourceRow {
        let mut rate = |what, value: Option<u64>| Some(self.rate(("", &source.name), what, value?, now));
        SourceRow {
            source: source.name.clone(),
            state: source.reason.clone().unwrap_or_else(|| "running".to_owned()),
            packets_per_second: rate("packets", source.packets),
            bits_per_second: rate("bytes", source.bytes).map(|bytes| bytes * 8.0),
            kernel_drops: source.kernel_drops,
            kernel_drops_per_second: rate("drops", source.kernel_drops),
        }
    }

    fn module(&mut self, m: &Module, now: Duration) -> ModuleRow {
        let session = session_of(m);
        let of = (session.as_str(), m.name.as_str());
        let shed = m.account.shed.values().sum();
        let cpu = self.rate(of, "cpu", m.usage.cpu_ns, now) / 1e9;
        let processed = self.rate(of, "processed", m.account.processed, now);
        let reserved = m.reserved.cpu_ppm as f64 / 1e6;
        ModuleRow {
            packets_per_second: self.rate(of, "packets", m.account.offered, now),
            packet_ns: (processed > 0.0 && cpu > 0.0).then(|| cpu * 1e9 / processed),
            cpu,
            reserved,
            of_reserved: (reserved > 0.0).then(|| cpu / reserved),
            shed_per_second: self.rate(of, "shed", shed, now),
            blocks: m.usage.blocks,
            reserved_blocks: m.reserved.blocks,
            memory: m.usage.memory,
            shed: m.account.shed.clone(),
            faults: m.account.faults,
            state: m.state.name().to_owned(),
            source: m.source.clone(),
            module: m.name.clone(),
            session,
        }
    }
}

fn session_of(module: &Module) -> String {
    module.principal.clone().unwrap_or_else(|| "operator".to_owned())
}

fn sessions(modules: &[ModuleRow]) -> Vec<SessionRow> {
    let mut sessions: BTreeMap<&str, SessionRow> = BTreeMap::new();
    for m in modules {
        let row = sessions.entry(&m.session).or_default();
        row.modules += 1;
        row.packets_per_second += m.packets_per_second;
        row.cpu += m.cpu;
        row.reserved += m.reserved;
        row.memory += m.memory.unwrap_or(0);
        row.shed_per_second += m.shed_per_second;
        row.faults += m.faults;
    }
    sessions.into_iter().map(|(name, row)| SessionRow { session: name.to_owned(), ..row }).collect()
}

fn order(a: &ModuleRow, b: &ModuleRow, sort: Sort) -> std::cmp::Ordering {
    let most = |of: fn(&ModuleRow) -> f64| of(b).total_cmp(&of(a));
    let first = match sort {
        Sort::Cpu => most(|m| m.cpu),
        Sort::Packets => most(|m| m.packets_per_second),
        Sort::Time => most(|m| m.packet_ns.unwrap_or(0.0)),
        Sort::Shed => most(|m| m.shed.values().sum::<u64>() as f64),
        Sort::Memory => most(|m| m.memory.unwrap_or(0) as f64),
        Sort::Name => std::cmp::Ordering::Equal,
    };
    first.then_with(|| (&a.session, &a.module).cmp(&(&b.session, &b.module)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn module(principal: Option<&str>, name: &str, packets: u64, cpu_ns: u64, reserved_ppm: u64) -> Module {
        let account = json!({
            "offered": packets, "processed": packets / 2, "filtered": 0, "shed": { "overrun": packets / 2 },
            "records": 0, "records_lost": 0, "messages_lost": 0, "withheld": 0, "faults": 1, "adds_up": true
        });
        let spool = json!({ "first": "", "next": "", "rows": 0, "bytes": 0, "dropped": 0 });
        let usage = json!({ "cpu_ns": cpu_ns, "blocks": 2, "memory": 65536 });
        serde_json::from_value(json!({
            "name": name, "principal": principal, "source": "tap", "state": "running", "reason": null,
            "version": "1", "hash": "", "class": "bounded", "revision": 1, "installed": 1, "expires": null,
            "settings": {}, "narrow": [], "account": account, "usage": usage, "spool": spool, "notes": [],
            "reserved": { "cpu_ppm": reserved_ppm },
        }))
        .unwrap()
    }

    fn source(packets: u64) -> Source {
        serde_json::from_value(json!({
            "name": "tap", "kind": "file", "from": null, "method": "", "workers": 1, "running": true,
            "reason": null, "packets": packets, "bytes": packets * 100, "kernel_drops": packets / 10
        }))
        .unwrap()
    }

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn rates_are_per_second_and_modules_are_in_order() {
        let mut rates = Rates::default();
        let poll = |rates: &mut Rates, n: u64, seconds: u64, sort| {
            let modules = [
                module(Some("alice"), "flow", 1000 + 2000 * n, 500_000_000 * n, 1_000_000),
                module(Some("alice"), "count", 1000 + 4000 * n, 20_000_000 * n, 0),
                module(None, "http", 0, 0, 0),
            ];
            rates.poll(&modules, &[source(1000 * n)], sort, at(seconds))
        };
        let first = poll(&mut rates, 0, 10, Sort::Cpu);
        assert!(first.modules.iter().all(|m| m.cpu == 0.0 && m.packets_per_second == 0.0));
        let view = poll(&mut rates, 2, 12, Sort::Cpu);
        let flow = &view.modules[0];
        assert_eq!((flow.module.as_str(), flow.cpu, flow.packets_per_second), ("flow", 0.5, 2000.0));
        assert_eq!(
            (flow.packet_ns, flow.of_reserved, flow.shed_per_second),
            (Some(500_000.0), Some(0.5), 1000.0)
        );
        assert_eq!(view.modules[1].of_reserved, None);
        let alice = &view.sessions[0];
        assert_eq!((alice.modules, alice.cpu, alice.reserved, alice.memory), (2, 0.52, 1.0, 131_072));
        assert_eq!(
            (view.sources[0].bits_per_second, view.sources[0].kernel_drops),
            (Some(800_000.0), Some(200))
        );
        let names = |view: &View| view.modules.iter().map(|m| m.module.clone()).collect::<Vec<_>>();
        assert_eq!(names(&poll(&mut rates, 3, 13, Sort::Packets)), ["count", "flow", "http"]);
        assert_eq!(names(&poll(&mut rates, 4, 14, Sort::Name)), ["count", "flow", "http"]);
        assert_eq!(names(&poll(&mut rates, 5, 15, Sort::Time)), ["flow", "count", "http"]);
        // A module that is gone and comes back begins again, and so do counters that went back.
        rates.poll(&[], &[], Sort::Cpu, at(16));
        assert!(rates.counters.is_empty());
        poll(&mut rates, 100, 17, Sort::Cpu);
        assert_eq!(poll(&mut rates, 1, 18, Sort::Cpu).modules[0].cpu, 0.0);
    }

    #[test]
    fn a_counter_that_changes_seldom_keeps_its_rate_for_a_while() {
        let mut counter = Counter::new(0, at(0));
        let rates: Vec<f64> =
            (1..=30).map(|s| counter.read(if s < 20 { s / 5 * 10 } else { 30 }, at(s))).collect();
        assert_eq!(rates[..4], [0.0; 4]);
        assert!(rates[4..20].iter().all(|rate| *rate == 2.0), "{rates:?}");
        assert_eq!(rates[29], 2.0);
        assert_eq!(counter.read(30, at(31)), 0.0);
    }

    #[test]
    fn sorts_follow_each_other() {
        let mut sort = Sort::Cpu;
        let all: Vec<Sort> = (0..Sort::ALL.len())
            .map(|_| {
                let now = sort;
                sort = now.next();
                now
            })
            .collect();
        assert_eq!((all.as_slice(), sort), (&Sort::ALL[..], Sort::Cpu));
    }
}
