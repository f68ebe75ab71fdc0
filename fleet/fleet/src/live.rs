//! `flame fleet delay` and `paths`: packets of several nodes, as far as their records came to the archive, or
//! as they come to the server.

use crate::columns::words;
use crate::query::{Access, ask};
use crate::stream::{Latest, follow};
use crate::{Error, columns};
use clap::Args;
use datafusion::arrow::array::{
    ArrayRef, AsArray as _, DurationNanosecondArray, RecordBatch, StringArray, UInt64Array,
};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::prelude::SessionContext;
use flame_fleet_join::{Hop, Pair, Seen, Window, join, paths};
use flame_fleet_protocol::subject::Parts;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// The packets of each node.
pub type Nodes<'a> = [(&'a str, Vec<Seen>)];

/// A join of packets, which are lost after a time in nanoseconds.
pub type Joined = fn(&Nodes<'_>, i64) -> Result<RecordBatch, Error>;

/// State delays and losses between all pairs of nodes that run the module trajectory
///
/// The clocks' offset is estimated from packets in both directions. Each delay is right within the
/// uncertainty that is stated beside it.
#[derive(Args)]
pub struct Delay {
    #[command(flatten)]
    monitors: Monitors,
}

/// State the paths of packets through all nodes that run the module trajectory, and the delays on them
///
/// A path is the list of the nodes that saw a packet, in its order. A packet that was lost has the beginning
/// of its path. Where the clocks' bounds do not decide the order, packets are counted as unordered.
#[derive(Args)]
pub struct Paths {
    #[command(flatten)]
    monitors: Monitors,
}

/// Which packets are joined.
#[derive(Args)]
pub struct Monitors {
    /// The name under which the module is installed
    #[arg(long, default_value = "trajectory")]
    pub module: String,

    /// The seconds before the last packet of each node that are joined
    #[arg(long, default_value = "60", value_name = "SECONDS")]
    pub last: u32,

    /// The milliseconds after which a packet that has not arrived is lost
    #[arg(long, default_value = "2000", value_name = "MILLISECONDS")]
    pub wait: u32,

    /// Follow the records on their way through the server, which this configuration of an archive names, and
    /// state the result each second until ended; the archive itself is read for flows that began before
    #[arg(long, value_name = "FILE")]
    pub follow: Option<PathBuf>,

    #[command(flatten)]
    pub access: Access,
}

impl Delay {
    pub fn run(self) -> Result<(), Error> {
        self.monitors.run("delay", delays)
    }
}

impl Paths {
    pub fn run(self) -> Result<(), Error> {
        self.monitors.run("paths", ways)
    }
}

impl Monitors {
    fn run(self, name: &str, rows: Joined) -> Result<(), Error> {
        let Self { module, last, access, .. } = &self;
        let wait = i64::from(self.wait) * 1_000_000;
        let text = format!("flame fleet {name} --module {module} --last {last}");
        if let Some(file) = &self.follow {
            return follow(access, file, module, &text, |holder| {
                let before = access.read(holder, async |context| archived(&context, module, *last).await);
                let window = before.unwrap_or_else(|e| {
                    eprintln!("flame: note: flows that began before this are not known: {e}");
                    Window::new(i64::from(*last) * 1_000_000_000)
                });
                Packets::new(module, window, wait, rows)
            });
        }
        access.write(&text, async |context| {
            let window = archived(&context, module, *last).await?;
            let rows = rows(&window.seen(), wait)?;
            Ok((rows.schema(), vec![rows]))
        })
    }
}

/// The packets of a module trajectory as their records come.
pub struct Packets {
    module: String,
    window: Window,
    settings: BTreeSet<String>,
    wait: i64,
    joined: Joined,
}

impl Packets {
    /// Makes them of packets of the archive, which are older than those that come.
    pub fn new(module: &str, mut window: Window, wait: i64, joined: Joined) -> Self {
        let nodes: Vec<String> = window.seen().iter().map(|(node, _)| (*node).to_owned()).collect();
        nodes.iter().for_each(|node| window.gap(node));
        Self { module: module.to_owned(), window, settings: BTreeSet::new(), wait, joined }
    }
}

impl Latest for Packets {
    fn take(&mut self, parts: &Parts, is_gap: bool, batch: &RecordBatch) -> Result<(), Error> {
        match parts.table.as_str() {
            "flow" => columns::flows(batch, &mut self.window),
            "log" => {
                if is_gap {
                    self.window.gap(&parts.node);
                }
                columns::packets(batch, |_| parts.node.as_str(), &mut self.window)
            }
            "setting" => {
                self.settings.extend(columns::settings(batch)?);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn rows(&mut self) -> Result<(SchemaRef, Vec<RecordBatch>), Error> {
        if self.settings.len() > 1 {
            check_settings(&self.module, self.settings.len())?;
        }
        let rows = (self.joined)(&self.window.seen(), self.wait)?;
        Ok((rows.schema(), vec![rows]))
    }
}

/// Returns a name as SQL writes it.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Refuses monitors whose settings differ: their labels are not of the same packets.
pub fn check_settings(module: &str, settings: usize) -> Result<(), Error> {
    match settings {
        1 => Ok(()),
        _ => Err(format!(
            "{module}: {settings} settings in the table setting, expected one of all nodes: install the \
             module with equal parameters"
        )
        .into()),
    }
}

/// Returns the latest packets of an archive.
pub async fn archived(context: &SessionContext, module: &str, last: u32) -> Result<Window, Error> {
    let table = quoted(module);
    let sql = format!("SELECT DISTINCT hash, sampling, payload, seeds FROM {table}.setting");
    let settings = ask(context, &sql).await?.collect().await?;
    check_settings(module, settings.iter().map(RecordBatch::num_rows).sum())?;
    let mut window = Window::new(i64::from(last) * 1_000_000_000);
    let late = format!(
        "{table}.log l JOIN (SELECT node, max(ts_ns) AS until FROM {table}.log GROUP BY node) u \
         ON u.node = l.node WHERE l.ts_ns >= u.until - INTERVAL '{last} seconds'"
    );
    let sql = format!(
        "SELECT DISTINCT flow, proto, src, sport, dst, dport FROM {table}.flow \
         WHERE flow IN (SELECT l.flow FROM {late})"
    );
    for batch in ask(context, &sql).await?.collect().await? {
        columns::flows(&batch, &mut window)?;
    }
    let sql = format!("SELECT l.node, l.ts_ns, l.flow, l.label FROM {late}");
    for batch in ask(context, &sql).await?.collect().await? {
        let nodes = words(&batch, "node")?;
        let nodes = nodes.as_string::<i32>();
        columns::packets(&batch, |n| nodes.value(n), &mut window)?;
    }
    Ok(window)
}

/// Returns delays and losses of all pairs of nodes, in each direction.
pub fn delays(nodes: &Nodes<'_>, wait: i64) -> Result<RecordBatch, Error> {
    let mut rows = Vec::new();
    for (n, (first, ones)) in nodes.iter().enumerate() {
        for (second, others) in &nodes[n + 1..] {
            rows.push((*first, *second, join(ones, others, wait)));
        }
    }
    table_of(&rows)
}

/// A column of durations, each of a row.
fn durations(rows: usize, of: impl Fn(usize) -> Option<i64>) -> ArrayRef {
    Arc::new((0..rows).map(of).collect::<DurationNanosecondArray>())
}

fn counts(of: impl IntoIterator<Item = u64>) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(of))
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> Result<RecordBatch, Error> {
    Ok(RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, of)| (name, of, true)))?)
}

/// Returns two rows for each pair: from the first node to the second, and back.
fn table_of(pairs: &[(&str, &str, Pair)]) -> Result<RecordBatch, Error> {
    let ways: Vec<_> = pairs
        .iter()
        .flat_map(|(a, b, pair)| [(*a, *b, &pair.there, 1, pair), (*b, *a, &pair.back, -1, pair)])
        .collect();
    let quantile = |part: f64| durations(ways.len(), |n| ways[n].2.quantile(part));
    let ahead = |n: usize| ways[n].4.offset.map(|offset| ways[n].3 * offset.estimate());
    batch(vec![
        ("from", Arc::new(StringArray::from_iter_values(ways.iter().map(|way| way.0)))),
        ("to", Arc::new(StringArray::from_iter_values(ways.iter().map(|way| way.1)))),
        ("packets", counts(ways.iter().map(|way| way.2.delays.len() as u64))),
        ("lost", counts(ways.iter().map(|way| way.2.lost))),
        ("min", quantile(0.0)),
        ("median", quantile(0.5)),
        ("p99", quantile(0.99)),
        ("clock_ahead", durations(ways.len(), ahead)),
        ("uncertainty", durations(ways.len(), |n| ways[n].4.offset.map(|offset| offset.uncertainty()))),
        ("unknown", counts(ways.iter().map(|way| way.4.unknown))),
        ("ambiguous", counts(ways.iter().map(|way| way.4.ambiguous))),
    ])
}

/// Returns a row for each hop of each path, and one for the whole path if it has several.
pub fn ways(nodes: &Nodes<'_>, wait: i64) -> Result<RecordBatch, Error> {
    let monitors: Vec<&[Seen]> = nodes.iter().map(|(_, seen)| &seen[..]).collect();
    let found = paths(&monitors, wait);
    let name = |n: usize| nodes[n].0;
    let mut rows: Vec<(String, u64, Option<&Hop>)> = Vec::new();
    for path in &found.paths {
        let names: Vec<_> = path.monitors.iter().map(|&n| name(n)).collect();
        let names = names.join(" > ");
        // One node has no hop.
        let alone = path.hops.is_empty().then_some(None);
        for hop in path.hops.iter().map(Some).chain(alone) {
            rows.push((names.clone(), path.packets, hop));
        }
    }
    let end = |of: fn(&Hop) -> usize| -> ArrayRef {
        Arc::new(rows.iter().map(|row| row.2.map(|hop| name(of(hop)))).collect::<StringArray>())
    };
    let quantile = |part: f64| durations(rows.len(), |n| rows[n].2?.quantile(part));
    batch(vec![
        ("path", Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.0)))),
        ("packets", counts(rows.iter().map(|row| row.1))),
        ("from", end(|hop| hop.from)),
        ("to", end(|hop| hop.to)),
        ("min", quantile(0.0)),
        ("median", quantile(0.5)),
        ("p99", quantile(0.99)),
        ("uncertainty", durations(rows.len(), |n| rows[n].2.map(|hop| hop.uncertainty))),
        ("unordered", counts(rows.iter().map(|_| found.unordered))),
        ("ambiguous", counts(rows.iter().map(|_| found.ambiguous))),
    ])
}
