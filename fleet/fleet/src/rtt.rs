//! `flame fleet rtt`: the same targets as seen from several nodes, as far as the handshakes came to the
//! archive, or as they come to the server.

use crate::live::quoted;
use crate::query::{Access, ask, pool, session_over};
use crate::stream::{Latest, follow};
use crate::{Error, columns};
use clap::Args;
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;
use flame_fleet_protocol::subject::Parts;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// The table of the module rtt that is read.
const HANDSHAKE: &str = "handshake";
/// The most handshakes of a node that are kept: beyond, the oldest are forgotten.
const MAX_HANDSHAKES: usize = 1 << 18;

/// State the round-trip times to the same targets as seen from pairs of nodes that run the module rtt
#[derive(Args)]
pub struct Rtt {
    /// The name under which the module is installed
    #[arg(long, default_value = "rtt")]
    module: String,

    /// Follow the records on their way through the server, which this configuration of an archive names, and
    /// state the result each second until ended
    #[arg(long, value_name = "FILE")]
    follow: Option<PathBuf>,

    /// With --follow, the seconds before the last handshake of each node that count
    #[arg(long, default_value = "60", value_name = "SECONDS", requires = "follow")]
    last: u32,

    #[command(flatten)]
    access: Access,
}

impl Rtt {
    pub fn run(self) -> Result<(), Error> {
        let Self { module, follow: file, last, access } = &self;
        let sql = side_by_side(module);
        match file {
            Some(file) => {
                let text = format!("flame fleet rtt --module {module} --last {last}");
                let latest = Handshakes::new(module, i64::from(*last) * 1_000_000_000)?;
                follow(access, file, module, &text, |_| latest)
            }
            None => access.write(&sql, async |context| answer(&context, &sql).await),
        }
    }
}

async fn answer(context: &SessionContext, sql: &str) -> Result<(SchemaRef, Vec<RecordBatch>), Error> {
    let frame = ask(context, sql).await?;
    Ok((Arc::new(frame.schema().as_arrow().clone()), frame.collect().await?))
}

/// Returns the statement for each target that two nodes have in common.
pub fn side_by_side(module: &str) -> String {
    let module = quoted(module);
    let duration = |value: &str, name: &str| format!("arrow_cast({value}, 'Duration(Nanosecond)') AS {name}");
    format!(
        "WITH r AS (SELECT node, dst, CAST(rtt_ns AS BIGINT) AS ns FROM {module}.{HANDSHAKE}), \
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

/// The handshakes of each node within a time before its latest one, as their records come.
pub struct Handshakes {
    module: String,
    span: i64,
    /// Time, target and round-trip time of each, as they came.
    nodes: BTreeMap<String, VecDeque<(i64, String, i64)>>,
    runtime: Runtime,
}

impl Handshakes {
    /// Makes a window of `span` nanoseconds.
    pub fn new(module: &str, span: i64) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        Ok(Self { module: module.to_owned(), span, nodes: BTreeMap::new(), runtime })
    }

    /// Takes a handshake.
    pub fn add(&mut self, node: &str, at: i64, target: &str, ns: i64) {
        let all = self.nodes.entry(node.to_owned()).or_default();
        if all.len() == MAX_HANDSHAKES {
            all.pop_front();
        }
        all.push_back((at, target.to_owned(), ns));
    }
}

impl Latest for Handshakes {
    fn take(&mut self, parts: &Parts, _: bool, batch: &RecordBatch) -> Result<(), Error> {
        if parts.table == HANDSHAKE { columns::handshakes(batch, &parts.node, self) } else { Ok(()) }
    }

    fn rows(&mut self) -> Result<(SchemaRef, Vec<RecordBatch>), Error> {
        for all in self.nodes.values_mut() {
            let latest = all.iter().map(|of| of.0).max().unwrap_or_default();
            all.retain(|of| of.0 >= latest.saturating_sub(self.span));
        }
        let all = self.nodes.iter().flat_map(|(node, all)| all.iter().map(move |of| (node, of)));
        let all: Vec<_> = all.collect();
        let columns: [(&str, ArrayRef); 3] = [
            ("node", Arc::new(StringArray::from_iter_values(all.iter().map(|(node, _)| node)))),
            ("dst", Arc::new(StringArray::from_iter_values(all.iter().map(|(_, of)| &of.1)))),
            ("rtt_ns", Arc::new(Int64Array::from_iter_values(all.iter().map(|(_, of)| of.2)))),
        ];
        let batch = RecordBatch::try_from_iter(columns)?;
        let table = Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?);
        let context = session_over(&self.module, (HANDSHAKE, table), &pool(None))?;
        self.runtime.block_on(answer(&context, &side_by_side(&self.module)))
    }
}
