//! `flame fleet delay` and `flame fleet rtt`: records of several nodes side by side, as far as they came.

use crate::Error;
use crate::query::{Access, ask};
use clap::Args;
use datafusion::arrow::array::{
    Array as _, ArrayRef, AsArray as _, DurationNanosecondArray, Int64Array, RecordBatch, StringArray,
    UInt64Array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::prelude::SessionContext;
use flame_fleet_join::{Flow, Pair, Seen, join};
use std::collections::BTreeMap;
use std::sync::Arc;

/// State delays and losses between all pairs of nodes that run the module trajectory
///
/// The clocks' offset is estimated from packets in both directions. Each delay is right within the
/// uncertainty that is stated beside it.
#[derive(Args)]
pub struct Delay {
    /// The name under which the module is installed
    #[arg(long, default_value = "trajectory")]
    module: String,

    /// The seconds before the last packet of each node that are joined
    #[arg(long, default_value = "60", value_name = "SECONDS")]
    last: u32,

    /// The milliseconds after which a packet that has not arrived is lost
    #[arg(long, default_value = "2000", value_name = "MILLISECONDS")]
    wait: u32,

    #[command(flatten)]
    access: Access,
}

/// State the round-trip times to the same targets as seen from pairs of nodes that run the module rtt
#[derive(Args)]
pub struct Rtt {
    /// The name under which the module is installed
    #[arg(long, default_value = "rtt")]
    module: String,

    #[command(flatten)]
    access: Access,
}

impl Delay {
    pub fn run(self) -> Result<(), Error> {
        self.access.write(async |context| {
            let rows = delays(&context, &self.module, self.last, self.wait).await?;
            Ok((rows.schema(), vec![rows]))
        })
    }
}

impl Rtt {
    pub fn run(self) -> Result<(), Error> {
        self.access.write(async |context| {
            let frame = ask(&context, &side_by_side(&self.module)).await?;
            Ok((Arc::new(frame.schema().as_arrow().clone()), frame.collect().await?))
        })
    }
}

/// Returns a name as SQL writes it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns the statement for each target that two nodes have in common.
pub fn side_by_side(module: &str) -> String {
    let module = quoted(module);
    let duration = |value: &str, name: &str| format!("arrow_cast({value}, 'Duration(Nanosecond)') AS {name}");
    format!(
        "WITH r AS (SELECT node, dst, CAST(rtt_ns AS BIGINT) AS ns FROM {module}.handshake), \
         s AS (SELECT node, dst, count(*) AS handshakes, min(ns) AS least, \
         CAST(median(ns) AS BIGINT) AS middle FROM r GROUP BY node, dst) \
         SELECT a.dst AS target, a.node AS node_1, a.handshakes AS handshakes_1, {}, {}, \
         b.node AS node_2, b.handshakes AS handshakes_2, {}, {}, {} \
         FROM s a JOIN s b ON a.dst = b.dst AND a.node < b.node ORDER BY target, node_1, node_2",
        duration("a.least", "min_1"),
        duration("a.middle", "median_1"),
        duration("b.least", "min_2"),
        duration("b.middle", "median_2"),
        duration("b.middle - a.middle", "difference"),
    )
}

/// Returns a column of each row as `kind`.
fn column(batch: &RecordBatch, n: usize, kind: &DataType) -> Result<ArrayRef, Error> {
    Ok(cast(batch.column(n), kind)?)
}

/// Returns delays and losses of all pairs of nodes, in each direction.
pub async fn delays(
    context: &SessionContext,
    module: &str,
    last: u32,
    wait: u32,
) -> Result<RecordBatch, Error> {
    let table = quoted(module);
    let sql = format!("SELECT DISTINCT hash, sampling, payload, seeds FROM {table}.setting");
    let settings = ask(context, &sql).await?.collect().await?;
    let settings: usize = settings.iter().map(RecordBatch::num_rows).sum();
    if settings != 1 {
        return Err(format!(
            "{module}: {settings} settings in the table setting, expected one of all nodes: install the \
             module with equal parameters"
        )
        .into());
    }
    let sql = format!(
        "SELECT l.node, f.proto, f.src, f.sport, f.dst, f.dport, l.label, CAST(l.ts_ns AS BIGINT) \
         FROM {table}.log l JOIN \
         (SELECT DISTINCT node, flow, proto, src, sport, dst, dport FROM {table}.flow) f \
         ON l.node = f.node AND l.flow = f.flow \
         JOIN (SELECT node, max(ts_ns) AS until FROM {table}.log GROUP BY node) u ON u.node = l.node \
         WHERE l.ts_ns >= u.until - INTERVAL '{last} seconds'"
    );
    let mut nodes: BTreeMap<String, Vec<Seen>> = BTreeMap::new();
    for batch in ask(context, &sql).await?.collect().await? {
        let text = |n| column(&batch, n, &DataType::Utf8);
        let number = |n| column(&batch, n, &DataType::Int64);
        let texts = [text(0)?, text(2)?, text(4)?];
        let numbers = [number(1)?, number(3)?, number(5)?, number(6)?, number(7)?];
        let [node, src, dst] = texts.each_ref().map(|array| array.as_string::<i32>());
        let [proto, sport, dport, label, at] =
            numbers.each_ref().map(|array| array.as_primitive::<Int64Type>());
        // A packet without readable addresses has no direction.
        for n in (0..batch.num_rows()).filter(|n| !src.is_null(*n) && !dst.is_null(*n)) {
            // The columns of the module have these types.
            let port = |of: &Int64Array| u16::try_from(of.value(n)).unwrap_or_default();
            let flow = Flow {
                proto: u8::try_from(proto.value(n)).unwrap_or_default(),
                source: (src.value(n).to_owned(), port(sport)),
                destination: (dst.value(n).to_owned(), port(dport)),
            };
            let label = u32::try_from(label.value(n)).unwrap_or_default();
            let seen = Seen { flow, label, at: at.value(n) };
            nodes.entry(node.value(n).to_owned()).or_default().push(seen);
        }
    }
    let mut rows = Vec::new();
    let all: Vec<_> = nodes.into_iter().collect();
    for (n, (first, ones)) in all.iter().enumerate() {
        for (second, others) in &all[n + 1..] {
            rows.push((first, second, join(ones, others, i64::from(wait) * 1_000_000)));
        }
    }
    table_of(&rows)
}

/// Returns two rows for each pair: from the first node to the second, and back.
fn table_of(pairs: &[(&String, &String, Pair)]) -> Result<RecordBatch, Error> {
    let ways: Vec<_> = pairs
        .iter()
        .flat_map(|(a, b, pair)| [(*a, *b, &pair.there, 1, pair), (*b, *a, &pair.back, -1, pair)])
        .collect();
    let duration = |of: &dyn Fn(usize) -> Option<i64>| -> ArrayRef {
        Arc::new((0..ways.len()).map(of).collect::<DurationNanosecondArray>())
    };
    let quantile = |part: f64| duration(&|n| ways[n].2.quantile(part));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("from", Arc::new(StringArray::from_iter_values(ways.iter().map(|way| way.0)))),
        ("to", Arc::new(StringArray::from_iter_values(ways.iter().map(|way| way.1)))),
        (
            "packets",
            Arc::new(UInt64Array::from_iter_values(ways.iter().map(|way| way.2.delays.len() as u64))),
        ),
        ("lost", Arc::new(UInt64Array::from_iter_values(ways.iter().map(|way| way.2.lost)))),
        ("min", quantile(0.0)),
        ("median", quantile(0.5)),
        ("p99", quantile(0.99)),
        ("clock_ahead", duration(&|n| ways[n].4.offset.map(|offset| ways[n].3 * offset.estimate))),
        ("uncertainty", duration(&|n| ways[n].4.offset.map(|offset| offset.uncertainty))),
        ("unknown", Arc::new(UInt64Array::from_iter_values(ways.iter().map(|way| way.4.unknown)))),
        ("ambiguous", Arc::new(UInt64Array::from_iter_values(ways.iter().map(|way| way.4.ambiguous)))),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, of)| (name, of, true)))?)
}
