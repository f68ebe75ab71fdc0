//! Collects checked rows of one module into Arrow batches.
//!
//! The metadata of a batch's schema come from the manifest:
//!
//! | metadata of | key | value |
//! | --- | --- | --- |
//! | a column | `unit` | as in the manifest; `ns` for `time` and `duration` if it names none |
//! | a column | `type` | as in the manifest: `ip`, `time`, … |
//! | the table | `flame.module`, `flame.version` | the name in the plan, the manifest's version |
//! | the table | `flame.sha256` | of the `.wasm` file, in hexadecimal |
//! | the table | `flame.table`, `flame.description` | as in the manifest |
//!
//! A batch is full at [`MAX_ROWS`] rows or [`MAX_TEXT`] bytes of text, whichever is first.

use crate::address::{self, with_fields};
use arrow_array::builder::StringBuilder;
use arrow_array::types::UInt8Type;
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, FixedSizeBinaryArray, Float64Array, Int64Array, RecordBatch,
    RecordBatchOptions, StringArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use flame_abi::manifest::{Column, ColumnType, Table};
use flame_plan::CatalogEntry;
use std::collections::HashMap;
use std::fmt::Write;
use std::mem::take;
use std::sync::Arc;

/// The maximum number of rows of one table that are collected before they are passed on.
pub const MAX_ROWS: usize = 8192;
/// The maximum number of bytes of text, including addresses, of one table that are collected before they are
/// passed on.
pub const MAX_TEXT: usize = 8 << 20;

/// The rows of one module, by table.
pub struct Rows {
    module: String,
    tables: Vec<TableRows>,
}

struct TableRows {
    table: Table,
    schema: SchemaRef,
    columns: Vec<Values>,
    rows: usize,
    text: usize,
}

enum Values {
    Bool(Vec<bool>),
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
    Mac(StringBuilder),
    /// Addresses, each of [`address::WIDTH`] bytes.
    Ip(Vec<u8>),
    Text(StringBuilder),
    Enum {
        keys: Vec<u8>,
        words: ArrayRef,
    },
}

impl Rows {
    /// Creates empty tables for the records of a module.
    pub fn new(module: &CatalogEntry) -> Self {
        let rows = |table: &Table| TableRows {
            schema: with_fields(&arrow_schema(module, table), collected),
            columns: table.columns.iter().map(Values::new).collect(),
            table: table.clone(),
            rows: 0,
            text: 0,
        };
        Self { module: module.name.clone(), tables: module.manifest.tables.iter().map(rows).collect() }
    }

    /// Returns empty tables of the same module. The schemas of their batches are these.
    #[must_use]
    pub fn empty(&self) -> Self {
        let rows = |of: &TableRows| TableRows {
            table: of.table.clone(),
            schema: of.schema.clone(),
            columns: of.table.columns.iter().map(Values::new).collect(),
            rows: 0,
            text: 0,
        };
        Self { module: self.module.clone(), tables: self.tables.iter().map(rows).collect() }
    }

    /// Returns the module's name in the plan.
    pub fn module(&self) -> &str {
        &self.module
    }

    /// Returns the names of the module's tables, by number.
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        self.tables.iter().map(|rows| rows.table.name.as_str())
    }

    /// Returns the schemas of the module's tables, by number.
    pub fn schemas(&self) -> impl Iterator<Item = &SchemaRef> {
        self.tables.iter().map(|rows| &rows.schema)
    }

    /// Adds one row that passed [`flame_output::Schema::check`], and returns the table's batch when it is
    /// full. If the row was not checked, missing bytes are stored as zeros; if the table is unknown, the row
    /// is ignored.
    #[must_use = "a full batch goes to the sink"]
    pub fn push(&mut self, table: u16, row: &[u8]) -> Option<(&Table, RecordBatch)> {
        let rows = self.tables.get_mut(usize::from(table))?;
        let mut rest = row;
        for column in &mut rows.columns {
            rows.text += column.push(&mut rest);
        }
        rows.rows += 1;
        if rows.rows < MAX_ROWS && rows.text < MAX_TEXT {
            return None;
        }
        let batch = rows.take();
        Some((&rows.table, batch))
    }

    /// Returns the rows collected so far, table by table, without tables that have none.
    pub fn drain(&mut self) -> impl Iterator<Item = (&Table, RecordBatch)> {
        self.tables.iter_mut().filter(|t| t.rows > 0).map(|t| {
            let batch = t.take();
            (&t.table, batch)
        })
    }
}

impl TableRows {
    fn take(&mut self) -> RecordBatch {
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let columns = self.columns.iter_mut().map(Values::take).collect();
        (self.rows, self.text) = (0, 0);
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .expect("schema and columns come from the same table, and each push adds one value to each")
    }
}

/// Takes `N` bytes, or returns zeros if they are missing.
fn take_bytes<const N: usize>(row: &mut &[u8]) -> [u8; N] {
    match row.split_first_chunk::<N>() {
        Some((bytes, rest)) => {
            *row = rest;
            *bytes
        }
        None => {
            *row = &[];
            [0; N]
        }
    }
}

impl Values {
    fn new(column: &Column) -> Self {
        // Most batches of a node that is watched are of few rows, which are kept with their capacity.
        let text = || StringBuilder::with_capacity(0, 0);
        match column.kind {
            ColumnType::Bool => Self::Bool(Vec::new()),
            ColumnType::U8 => Self::U8(Vec::new()),
            ColumnType::U16 => Self::U16(Vec::new()),
            ColumnType::U32 => Self::U32(Vec::new()),
            ColumnType::U64 | ColumnType::Time => Self::U64(Vec::new()),
            ColumnType::I64 | ColumnType::Duration => Self::I64(Vec::new()),
            ColumnType::F64 => Self::F64(Vec::new()),
            ColumnType::Mac => Self::Mac(text()),
            ColumnType::Ip => Self::Ip(Vec::new()),
            ColumnType::Text => Self::Text(text()),
            ColumnType::Enum => {
                let words = Arc::new(StringArray::from_iter_values(&column.values));
                Self::Enum { keys: Vec::new(), words }
            }
        }
    }

    /// Moves one value from the front of `row` and returns the number of bytes of text that it became.
    fn push(&mut self, row: &mut &[u8]) -> usize {
        match self {
            Self::Bool(v) => v.push(take_bytes::<1>(row) != [0]),
            Self::U8(v) => v.push(u8::from_le_bytes(take_bytes(row))),
            Self::U16(v) => v.push(u16::from_le_bytes(take_bytes(row))),
            Self::U32(v) => v.push(u32::from_le_bytes(take_bytes(row))),
            Self::U64(v) => v.push(u64::from_le_bytes(take_bytes(row))),
            Self::I64(v) => v.push(i64::from_le_bytes(take_bytes(row))),
            Self::F64(v) => v.push(f64::from_le_bytes(take_bytes(row))),
            Self::Enum { keys, words } => {
                let [key] = take_bytes(row);
                keys.push(if usize::from(key) < words.len() { key } else { 0 });
            }
            Self::Mac(v) => {
                let [a, b, c, d, e, f] = take_bytes(row);
                let _ = write!(v, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
                v.append_value("");
                return 17;
            }
            Self::Ip(v) => {
                v.extend(take_bytes::<{ address::WIDTH }>(row));
                return address::WIDTH;
            }
            Self::Text(v) => {
                let length = u16::from_le_bytes(take_bytes(row));
                let (text, rest) = row.split_at_checked(length.into()).unwrap_or((*row, &[]));
                *row = rest;
                let text = std::str::from_utf8(text).unwrap_or_default();
                v.append_value(text);
                return text.len();
            }
        }
        0
    }

    fn take(&mut self) -> ArrayRef {
        match self {
            Self::Bool(v) => Arc::new(BooleanArray::from(take(v))),
            Self::U8(v) => Arc::new(UInt8Array::from(take(v))),
            Self::U16(v) => Arc::new(UInt16Array::from(take(v))),
            Self::U32(v) => Arc::new(UInt32Array::from(take(v))),
            Self::U64(v) => Arc::new(UInt64Array::from(take(v))),
            Self::I64(v) => Arc::new(Int64Array::from(take(v))),
            Self::F64(v) => Arc::new(Float64Array::from(take(v))),
            Self::Mac(v) | Self::Text(v) => Arc::new(v.finish()),
            Self::Ip(v) => Arc::new(FixedSizeBinaryArray::new(address::WIDTH as i32, take(v).into(), None)),
            Self::Enum { keys, words } => {
                Arc::new(DictionaryArray::<UInt8Type>::new(UInt8Array::from(take(keys)), words.clone()))
            }
        }
    }
}

/// Returns the field of a column as [`Rows`] collects it: addresses are no text yet.
fn collected(field: &Arc<Field>) -> Arc<Field> {
    match field.metadata().get("type").is_some_and(|kind| kind == "ip") {
        true => Arc::new(Field::clone(field).with_data_type(address::TYPE)),
        false => field.clone(),
    }
}

/// Returns the schema of one table as it is written, which is the same for every sink. In batches of
/// [`Rows`], addresses are bytes.
pub fn arrow_schema(module: &CatalogEntry, table: &Table) -> SchemaRef {
    let fields: Vec<Field> = table.columns.iter().map(field).collect();
    let hash = module.hash.iter().fold(String::new(), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    });
    let metadata = [
        ("flame.module", &module.name),
        ("flame.version", &module.manifest.version),
        ("flame.sha256", &hash),
        ("flame.table", &table.name),
        ("flame.description", &table.description),
    ];
    let metadata: HashMap<String, String> =
        metadata.into_iter().map(|(k, v)| (k.to_owned(), v.clone())).collect();
    Arc::new(Schema::new_with_metadata(fields, metadata))
}

/// Returns whether a column holds times.
pub(crate) fn is_time(field: &Field) -> bool {
    field.metadata().get("type").is_some_and(|kind| kind == "time")
}

/// Returns whether a column holds durations.
pub(crate) fn is_duration(field: &Field) -> bool {
    field.metadata().get("type").is_some_and(|kind| kind == "duration")
}

/// Returns the unit of a column: the manifest's, or `ns` for times and durations without one.
pub fn unit(column: &Column) -> Option<&str> {
    let implied = matches!(column.kind, ColumnType::Time | ColumnType::Duration).then_some("ns");
    column.unit.as_deref().or(implied)
}

fn field(column: &Column) -> Field {
    let (kind, data_type) = match column.kind {
        ColumnType::Bool => ("bool", DataType::Boolean),
        ColumnType::U8 => ("u8", DataType::UInt8),
        ColumnType::U16 => ("u16", DataType::UInt16),
        ColumnType::U32 => ("u32", DataType::UInt32),
        ColumnType::U64 => ("u64", DataType::UInt64),
        ColumnType::I64 => ("i64", DataType::Int64),
        ColumnType::F64 => ("f64", DataType::Float64),
        ColumnType::Time => ("time", DataType::UInt64),
        ColumnType::Duration => ("duration", DataType::Int64),
        ColumnType::Mac => ("mac", DataType::Utf8),
        ColumnType::Ip => ("ip", DataType::Utf8),
        ColumnType::Text => ("text", DataType::Utf8),
        ColumnType::Enum => {
            ("enum", DataType::Dictionary(Box::new(DataType::UInt8), Box::new(DataType::Utf8)))
        }
    };
    let mut metadata = HashMap::from([("type".to_owned(), kind.to_owned())]);
    if let Some(unit) = unit(column) {
        metadata.insert("unit".to_owned(), unit.to_owned());
    }
    let is_nullable = crate::derive::absent::is_optional(column);
    Field::new(&column.name, data_type, is_nullable).with_metadata(metadata)
}
