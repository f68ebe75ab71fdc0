//! A small archive with rows of an operator and of two principals, and its holders, for tests and fuzzers.

use crate::holder::Holder;
use crate::parquet_files::Files;
use crate::query::{MEMORY, ask, pool, session_of};
use crate::store::Store;
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray, TimestampNanosecondArray, UInt64Array};
use datafusion::arrow::array::{RecordBatchOptions, UInt16Array};
use datafusion::arrow::datatypes::{Field as Column, Schema};
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::SessionContext;
use flame_fleet_protocol::{Commit, Subject};
use flame_spool::{Batch, Epoch, Frame, Hash, Position, Totals};
use flame_trust::{Credential, Field, Mint, Narrow, Secret, fleet_name};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// A time in 2026, in seconds and in nanoseconds, 123,456,789 ns after a second.
pub const NOW: u64 = 1_780_000_000;
const TIME: u64 = NOW * 1_000_000_000 + 123_456_789;

pub struct World {
    folder: tempfile::TempDir,
    pub runtime: Runtime,
    pub store: Store,
    root: Arc<Secret>,
    alice: Arc<Secret>,
    version: u64,
}

/// Columns with their kinds.
pub type Columns = Vec<(&'static str, &'static str, ArrayRef)>;

pub fn text(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

pub fn numbers(values: &[u64]) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(values.iter().copied()))
}

/// What no holder of the tests sees: a row of a flow, a column, and tables.
pub struct Hidden {
    pub src: &'static str,
    pub dport: u16,
    pub bytes: u64,
    pub host: &'static str,
    pub own: &'static str,
    pub key: u64,
    pub unshown: &'static str,
}

pub const HIDDEN: Hidden = Hidden {
    src: "10.9.9.9",
    dport: 666,
    bytes: 0,
    host: "hidden-host",
    own: "bobs-own",
    key: 0,
    unshown: "unshown",
};

/// Rows of flows: four from 10.1.1.1, and a hidden one, whose `bytes` are zero.
fn flows(hidden: &Hidden) -> Columns {
    let times = (0..5).map(|n| i64::try_from(TIME + n).unwrap());
    vec![
        ("src", "ip", text(&["10.1.1.1", "10.1.1.1", hidden.src, "10.1.1.1", "10.1.1.1"])),
        ("dport", "u16", Arc::new(UInt16Array::from(vec![53, 53, hidden.dport, 53, 53]))),
        ("bytes", "u64", numbers(&[10, 20, hidden.bytes, 30, 40])),
        ("host", "text", text(&[hidden.host; 5])),
        ("at", "time", Arc::new(TimestampNanosecondArray::from_iter_values(times).with_timezone("UTC"))),
    ]
}

/// Returns rows as a node sends them.
pub fn body(columns: Columns) -> Vec<u8> {
    let field = |(name, kind, values): &(&str, &str, ArrayRef)| {
        let metadata = [("type".to_owned(), (*kind).to_owned())].into();
        Column::new(*name, values.data_type().clone(), false).with_metadata(metadata)
    };
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    let values: Vec<_> = columns.into_iter().map(|(_, _, values)| values).collect();
    let rows = RecordBatch::try_new_with_options(schema, values, &RecordBatchOptions::new()).unwrap();
    let mut body = Vec::new();
    let mut stream = StreamWriter::try_new(&mut body, &rows.schema()).unwrap();
    stream.write(&rows).unwrap();
    stream.finish().unwrap();
    body
}

impl World {
    pub fn new() -> Self {
        Self::of(&HIDDEN, Arc::new(Secret::generate()), Arc::new(Secret::generate()))
    }

    /// Returns a world of the same people that differs in what is hidden.
    pub fn twin(&self, hidden: &Hidden) -> Self {
        Self::of(hidden, self.root.clone(), self.alice.clone())
    }

    fn of(hidden: &Hidden, root: Arc<Secret>, alice: Arc<Secret>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("archive"), true).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let mut world = Self { folder, runtime: runtime.unwrap(), store, root, alice, version: 0 };
        let (own, bob) = (world.name("alice"), world.name("bob"));
        world.add("n1", "", "flow", "flow", flows(hidden));
        world.add("n2", "", "flow", "flow", flows(hidden));
        world.add("n1", "", "other", "t", vec![("v", "text", text(&[hidden.unshown]))]);
        world.add(
            "n1",
            &bob,
            "mine",
            "t",
            vec![("v", "text", text(&[hidden.own])), ("k", "u64", numbers(&[hidden.key]))],
        );
        let alices =
            vec![("a", "ip", text(&["10.2.2.2"])), ("k", "u64", numbers(&[7])), ("v", "text", text(&["x"]))];
        world.add("n1", &own, "mine", "t", alices.clone());
        world.add("n2", &own, "mine", "t", alices);
        world.alice.write_new(&world.path("alice.key")).unwrap();
        Secret::generate().write_new(&world.path("node.key")).unwrap();
        world
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn name(&self, principal: &str) -> String {
        fleet_name(&self.root.public().to_string(), principal)
    }

    pub fn add(&mut self, node: &str, principal: &str, module: &str, table: &str, columns: Columns) {
        let count = columns.first().map_or(0, |(_, _, values)| values.len());
        let body = body(columns);
        let batch = Batch { rows: count as u64, first: TIME, last: TIME + 5, body: &body };
        let position = Position { epoch: Epoch(1), sequence: 1 };
        let frame = Frame::new(position, Totals::default(), Hash::default(), &batch).unwrap();
        let mut files = Files::default();
        files.add(&Subject::new(node, principal, module, table).unwrap(), &frame).unwrap();
        self.version += 1;
        let commit = Commit { version: self.version, marks: Vec::new(), losses: Vec::new() };
        self.runtime.block_on(async {
            let files = files.write(&self.store, self.version, &mut HashSet::new()).await.unwrap();
            self.store.commit(&commit, files, Vec::new()).await.unwrap();
        });
    }

    /// Returns a session of alice under a role with these fields, to which the policy shows tables, and with
    /// these fields of the credential.
    pub fn holder(&self, role: &str, shows: &str, fields: &[(Field, &str)]) -> Result<Holder, String> {
        let policy = format!(
            "[node]\nname = \"archive\"\nkey = \"node.key\"\naudit = \"audit.log\"\n[roots]\noperator = \"{}\"\n\
             [roles.reader]\nselect = \"\"\ncalls = \"records\"\ncode = \"any\"\n{role}\n{shows}\n",
            self.root.public()
        );
        let mut narrow = Narrow { holder: Some(self.alice.public()), ..Narrow::default() };
        narrow.fields = fields.iter().map(|(field, value)| (*field, (*value).to_owned())).collect();
        narrow.fields.push((Field::Code, "any".to_owned()));
        let mint = Mint { principal: "alice".to_owned(), role: "reader".to_owned(), narrow };
        let credential = Credential::mint(&self.root, &mint).unwrap();
        std::fs::write(self.path("policy.toml"), policy).unwrap();
        std::fs::write(self.path("alice.cred"), credential.text()).unwrap();
        self.open("alice.key")
    }

    pub fn open(&self, key: &str) -> Result<Holder, String> {
        let holder = Holder::open(&self.path("policy.toml"), &self.path("alice.cred"), &self.path(key), NOW);
        holder.map_err(|e| e.to_string())
    }

    pub fn session(&self, role: &str, shows: &str, fields: &[(Field, &str)]) -> SessionContext {
        let holder = self.holder(role, shows, fields).unwrap();
        self.runtime.block_on(session_of(&self.store, &holder, &pool(Some(MEMORY)))).unwrap()
    }

    pub fn query(&self, context: &SessionContext, sql: &str) -> Result<String, String> {
        self.runtime.block_on(async {
            let rows = async { Ok::<_, crate::Error>(ask(context, sql).await?.collect().await?) };
            let rows = rows.await.map_err(|e| e.to_string())?;
            Ok(pretty_format_batches(&rows).unwrap().to_string())
        })
    }

    /// Returns the cells of a result, row by row.
    pub fn rows(&self, context: &SessionContext, sql: &str) -> Vec<String> {
        let table = self.query(context, sql).unwrap();
        let row = |line: &str| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>().join(" ");
        table.lines().skip(3).filter(|line| line.starts_with('|')).map(row).collect()
    }
}

pub const ALL: &str = "expose = \"all\"";
pub const HEADERS: &str = "expose = \"headers\"";
pub const GROUPS: &str =
    "[shows.reader.\"flow.flow\"]\ncolumns = [\"src\", \"dport\"]\nsums = [\"bytes\"]\ngroup = 3";
