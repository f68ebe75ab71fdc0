//! `flame fleet top`: the nodes and their modules as they report them now.

use crate::folder::Place;
use crate::service::{self, Seen, Status};
use crate::{Error, now};
use clap::ValueEnum;
use flame_fleet_protocol::enrolment::Standing;
use flame_fleet_protocol::talk::{Counters, Listed};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// The time between two views, and between two looks at the status for the first one.
const EACH: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(100);
/// The longest wait for two lists of each node with contact, between which rates are.
const PATIENCE: Duration = Duration::from_secs(10);
/// The seconds after its last report for which a node has contact.
const NEAR: u64 = 15;

/// The form of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    /// A line of JSON for each node
    Json,
}

/// A counter that may change less often than it is read: the processor time of a principal changes once per
/// interval of the node's accounting.
#[derive(Clone, Copy, Debug)]
struct Rate {
    value: u64,
    /// The time of the last change, and the one between the last two, in milliseconds.
    at: u64,
    gap: u64,
    per_second: f64,
}

impl Rate {
    fn new(value: u64, ms: u64) -> Self {
        Self { value, at: ms, gap: 0, per_second: 0.0 }
    }

    /// Takes a value, and returns the rate between the last two changes. It is 0 after three times the time
    /// between them.
    fn read(&mut self, value: u64, ms: u64) -> f64 {
        let gap = ms.saturating_sub(self.at);
        if value < self.value || ms < self.at {
            // The node or its agent began again.
            *self = Self::new(value, ms);
        } else if value > self.value && gap > 0 {
            let per_second = (value - self.value) as f64 * 1000.0 / gap as f64;
            *self = Self { value, at: ms, gap, per_second };
        } else if gap > 3 * self.gap {
            self.per_second = 0.0;
        }
        self.per_second
    }
}

/// The rates of the modules on all nodes.
#[derive(Default)]
struct Rates {
    of: BTreeMap<(String, String), [Rate; 3]>,
}

/// A module on a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Module {
    module: String,
    #[serde(flatten)]
    counters: Counters,
    packets_per_second: f64,
    records_per_second: f64,
    /// Processors in use, 1 for all of one.
    cpu: f64,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    node: String,
    /// The seconds since its last report.
    seen: Option<u64>,
    /// The number of its list of revocations, the number of the fleet's, and whether all of the node's list
    /// is in force there.
    revocations: u64,
    of_revocations: u64,
    in_force: bool,
    modules: Vec<Module>,
    /// The reason why its modules are not known.
    fault: Option<String>,
}

impl Rates {
    fn row(&mut self, node: &str, seen: Option<&Seen>, number: u64, now: u64) -> Row {
        let listed = seen.and_then(|seen| seen.listed.as_ref());
        let fault = match (seen, listed) {
            (None, _) => Some("no report".to_owned()),
            (_, None) => Some("no list of modules yet".to_owned()),
            (_, Some(listed)) => listed.fault.clone(),
        };
        let modules = listed.into_iter().flat_map(|listed| {
            let Listed { ms, modules, .. } = listed;
            modules.iter().map(|(name, counters)| self.module(node, name, counters, *ms)).collect::<Vec<_>>()
        });
        Row {
            node: node.to_owned(),
            seen: seen.map(|seen| now.saturating_sub(seen.at)),
            revocations: seen.map_or(0, |seen| seen.revoked),
            of_revocations: number,
            in_force: seen.is_some_and(|seen| seen.has_revoked),
            modules: modules.collect(),
            fault,
        }
    }

    fn module(&mut self, node: &str, name: &str, counters: &Counters, ms: u64) -> Module {
        let values = [counters.packets, counters.records, counters.cpu_ns];
        let key = (node.to_owned(), name.to_owned());
        let rates = self.of.entry(key).or_insert_with(|| values.map(|value| Rate::new(value, ms)));
        let mut read = |n: usize| rates[n].read(values[n], ms);
        let (module, counters) = (name.to_owned(), counters.clone());
        let (packets_per_second, records_per_second, cpu) = (read(0), read(1), read(2) / 1e9);
        Module { module, counters, packets_per_second, records_per_second, cpu }
    }
}

/// Prints views until the process is ended, or one.
pub(super) fn top(place: &Place, is_once: bool, format: Format) -> Result<(), Error> {
    let mut rates = Rates::default();
    let is_screen = !is_once && format == Format::Table && std::io::stdout().is_terminal();
    let mut status = first(place, &mut rates)?;
    loop {
        let rows = rows(place, status.as_ref(), &mut rates)?;
        let text = match format {
            Format::Table => table(&rows),
            Format::Json => {
                rows.iter().map(|row| Ok(serde_json::to_string(row)? + "\n")).collect::<Result<_, Error>>()?
            }
        };
        // From the upper left corner, and nothing of the view before below.
        let text = if is_screen { format!("\x1b[H\x1b[J{text}\nCtrl-C ends\n") } else { text };
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            done => done?,
        }
        if !is_screen {
            return Ok(());
        }
        std::thread::sleep(EACH);
        service::watch(place)?;
        status = service::status(place);
    }
}

/// Waits for two lists of each node with contact, for rates between them.
fn first(place: &Place, rates: &mut Rates) -> Result<Option<Status>, Error> {
    let begun = Instant::now();
    let mut at: BTreeMap<String, u64> = BTreeMap::new();
    loop {
        service::watch(place)?;
        let status = service::status(place).ok_or(
            "the fleet's control does not run, and nothing else knows of nodes: flame fleet control",
        )?;
        rows(place, Some(&status), rates)?;
        let is_near = |seen: &&Seen| now() <= seen.at.saturating_add(NEAR);
        let near = status.nodes.iter().filter(|(_, seen)| is_near(seen));
        let has_two = |(node, seen): (&String, &Seen)| {
            seen.listed
                .as_ref()
                .is_some_and(|listed| *at.entry(node.clone()).or_insert(listed.ms) != listed.ms)
        };
        // Each node is looked at, or the first list of a later one would be missed.
        let waiting = near.map(has_two).filter(|has_two| !has_two).count();
        if waiting == 0 || begun.elapsed() > PATIENCE {
            return Ok(Some(status));
        }
        std::thread::sleep(LOOK);
    }
}

fn rows(place: &Place, status: Option<&Status>, rates: &mut Rates) -> Result<Vec<Row>, Error> {
    let (state, now) = (place.state()?, now());
    let members = state.members.nodes().iter();
    let members = members.filter(|(_, standing)| matches!(standing, Standing::Member(_)));
    let seen = |node: &String| status.and_then(|status| status.nodes.get(node));
    let number = state.revocations.number;
    Ok(members.map(|(node, _)| rates.row(node, seen(node), number, now)).collect())
}

/// Returns the rows as text in columns, with the reasons below.
fn table(rows: &[Row]) -> String {
    let head = [
        "NODE",
        "SEEN",
        "REVOKED",
        "MODULE",
        "STATE",
        "PACKETS/s",
        "CPU",
        "PACKETS",
        "LOST",
        "RECORDS",
        "RECORDS LOST",
    ];
    let mut cells = vec![head.map(str::to_owned)];
    for row in rows {
        let mark = if row.in_force { "" } else { "!" };
        let revoked = format!("{}/{}{mark}", row.revocations, row.of_revocations);
        let own = [row.node.clone(), row.seen.map_or("-".to_owned(), |s| format!("{s} s")), revoked];
        let dash = || "-".to_owned();
        let modules = row.modules.iter().map(|of| {
            let c = &of.counters;
            [
                of.module.clone(),
                c.state.clone(),
                format!("{:.0}", of.packets_per_second),
                format!("{:.1}%", of.cpu * 100.0),
                c.packets.to_string(),
                c.packets_lost.to_string(),
                c.records.to_string(),
                c.records_lost.to_string(),
            ]
        });
        let empty = row.modules.is_empty().then(|| std::array::from_fn(|_| dash()));
        for (n, module) in modules.chain(empty).enumerate() {
            let own = if n == 0 { own.clone() } else { Default::default() };
            let mut line = own.into_iter().chain(module);
            cells.push(std::array::from_fn(|_| line.next().unwrap_or_default()));
        }
    }
    let width = |n: usize| cells.iter().map(|line| line[n].chars().count()).max().unwrap_or(0);
    let widths: [usize; 11] = std::array::from_fn(width);
    let mut text = String::new();
    for line in &cells {
        let line: Vec<_> = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text += line.join("  ").trim_end();
        text += "\n";
    }
    for row in rows {
        row.fault.iter().for_each(|fault| text += &format!("{}: {fault}\n", row.node));
        let stopped = row.modules.iter().filter_map(|of| Some((&of.module, of.counters.reason.as_ref()?)));
        stopped.for_each(|(module, reason)| text += &format!("{} {module}: {reason}\n", row.node));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(ms: u64, packets: u64, cpu_ns: u64) -> Seen {
        let counters =
            Counters { state: "running".to_owned(), packets, cpu_ns, records_lost: 3, ..Counters::default() };
        let listed = Listed { ms, modules: [("count".to_owned(), counters)].into(), fault: None };
        Seen { at: 100, revoked: 4, has_revoked: true, listed: Some(listed), ..Seen::default() }
    }

    #[test]
    fn rates_are_between_two_lists_and_begin_again_with_the_node() {
        let mut rates = Rates::default();
        let mut row = |ms, packets, cpu| {
            let row = rates.row("n", Some(&seen(ms, packets, cpu)), 5, 103);
            (row.modules[0].packets_per_second, row.modules[0].cpu)
        };
        assert_eq!(row(1000, 500, 0), (0.0, 0.0));
        assert_eq!(row(3000, 2500, 1_000_000_000), (1000.0, 0.5));
        // The same list again, and one in which the accounting has no news yet.
        assert_eq!(row(3000, 2500, 1_000_000_000), (1000.0, 0.5));
        assert_eq!(row(4000, 3000, 1_000_000_000), (500.0, 0.5));
        assert_eq!(row(10_000, 3000, 1_000_000_000), (0.0, 0.0));
        // The node was started again, and then the agent.
        assert_eq!(row(11_000, 10, 10), (0.0, 0.0));
        assert_eq!(row(500, 20, 10), (0.0, 0.0));
        assert_eq!(row(1500, 30, 10).0, 10.0);
    }

    #[test]
    fn a_view_has_each_node_with_what_is_known() {
        let mut rates = Rates::default();
        let mut far = seen(1, 7, 0);
        far.has_revoked = false;
        let listed = far.listed.as_mut().unwrap();
        listed.modules.get_mut("count").unwrap().reason = Some("its lease ended".to_owned());
        let unlisted = Seen { listed: None, ..seen(1, 7, 0) };
        let rows = [
            rates.row("far", Some(&far), 5, 160),
            rates.row("new", None, 5, 160),
            rates.row("old", Some(&unlisted), 5, 101),
        ];
        let text = table(&rows);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let counted = ["far", "60", "s", "4/5!", "count", "running", "0", "0.0%", "7", "0", "0", "3"];
        assert_eq!(lines[1], counted, "{text}");
        assert_eq!(lines[2][..4], ["new", "-", "0/5!", "-"], "{text}");
        assert_eq!(lines[3][..5], ["old", "1", "s", "4/5", "-"], "{text}");
        assert!(text.contains("far count: its lease ended\nnew: no report\nold: no list"), "{text}");
    }
}
