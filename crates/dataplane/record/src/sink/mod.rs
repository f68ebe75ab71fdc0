//! The sinks of records, each in its own file. [`open`] is the registry.
//!
//! | format | `-o` missing | `-o PATH` |
//! | --- | --- | --- |
//! | `table` | standard output | a file |
//! | `json` | standard output | a file |
//! | `eve` | standard output | a file |
//! | `csv` | standard output, if there is one table | `NAME.csv`: that file, if there is one table; else a folder of `MODULE.TABLE.csv` |
//! | `parquet` | an error | `NAME.parquet`: that file, if there is one table; else a folder of `MODULE.TABLE.parquet` |
//!
//! `-o -` is standard output. A file appears under its name when the run ends successfully, complete and
//! synced; until then it is `NAME.RANDOM.partial`, which is removed if the run fails, and kept if it is
//! aborted. A reader that closes the pipe is no error: the rest is not written, and [`Sink::closed`] reports
//! it to the loop.

mod capture;
mod csv;
mod eve;
mod json;
mod out;
mod parquet;
mod select;
mod table;

/// The text of the sinks, each of which begins with its manual.
pub const MANUALS: &[&str] = &[
    include_str!("capture.rs"),
    include_str!("csv.rs"),
    include_str!("eve.rs"),
    include_str!("json.rs"),
    include_str!("parquet.rs"),
    include_str!("table.rs"),
];

pub use capture::capture;

use arrow_array::RecordBatch;
use flame_abi::manifest::Table;
use flame_output::Packet;
use flame_plan::Catalog;
use out::{Layout, Out};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A destination of batches of any table of the plan, in any order.
pub trait Sink: Send {
    /// Writes a batch. `module` is the name in the plan.
    fn write(&mut self, module: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError>;

    /// Writes a packet from a module. Only the sink [`capture`] stores packets.
    fn packet(&mut self, _: Packet<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    /// Makes the output visible, where the format allows it. Called at ticks.
    fn flush(&mut self) -> Result<(), SinkError>;

    /// Ends the output and gives files their names. Without this call they are removed.
    fn finish(self: Box<Self>) -> Result<(), SinkError>;

    /// Flushes the output, for a process that ends now, so that it can be read where it is, and returns the
    /// names of partial files. Nothing may be written afterwards.
    fn abandon(&mut self) -> Result<Vec<PathBuf>, SinkError> {
        self.flush()?;
        Ok(Vec::new())
    }

    /// Returns whether nobody reads the output any more, so that a run may end early.
    fn closed(&self) -> bool {
        false
    }
}

/// A fault of an output: in the command line, in the file system, or in this program.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    #[error("{0:?} is no format: expected {list}", list = Format::ALL.map(Format::name).join(", "))]
    Format(String),
    #[error("parquet is not written to a terminal or pipe: add -o NAME.parquet or -o FOLDER")]
    NeedsPath,
    #[error(
        "csv on standard output holds one table, here are {tables}: {list}; choose one with --table, add -o FOLDER or use --format json"
    )]
    ManyOnStdout { tables: usize, list: String },
    #[error("--table {wish}: there is no such table; here are {list}")]
    NoTable { wish: String, list: String },
    #[error("{}: one file holds one table, here are {tables}: {list}; give a folder (a name without .{extension})", path.display())]
    ManyInFile { path: PathBuf, extension: &'static str, tables: usize, list: String },
    #[error("eve holds alerts, and none of these modules gives any: run ids, or use --format json")]
    NoAlerts,
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{}: parquet: {source}", path.display())]
    Parquet { path: PathBuf, source: ::parquet::errors::ParquetError },
    #[error("{module}.{table} is not in the plan that this output was opened for (a bug: please report it)")]
    Unplanned { module: String, table: String },
    #[error("column {column} has type {found}, which no manifest gives (a bug: please report it)")]
    Type { column: String, found: String },
}

impl SinkError {
    fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Tables for people.
    #[default]
    Table,
    /// One object per line.
    Json,
    Csv,
    Parquet,
    /// Alerts, one event per line.
    Eve,
}

impl Format {
    pub const ALL: [Self; 5] = [Self::Table, Self::Json, Self::Csv, Self::Parquet, Self::Eve];

    pub fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
            Self::Eve => "eve",
        }
    }

    /// Returns a remark for help, where the name is not enough.
    pub fn about(self) -> Option<&'static str> {
        (self == Self::Eve).then_some("Alerts in the format of Suricata")
    }
}

impl FromStr for Format {
    type Err = SinkError;

    fn from_str(s: &str) -> Result<Self, SinkError> {
        Self::ALL.into_iter().find(|f| f.name() == s).ok_or_else(|| SinkError::Format(s.to_owned()))
    }
}

/// The choice of tables, and the form of tables for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The tables to write: `MODULE.TABLE`, `TABLE`, or `MODULE` if no table has that name. Empty for all.
    pub tables: Vec<String>,
    /// The number of rows of a table that are shown. Further ones are only counted.
    pub rows: usize,
    /// The width in characters. By default that of the terminal, or unlimited without one.
    pub width: Option<u16>,
    /// Whether to show tables at every flush, each time up to `rows` rows, instead of once at the end.
    pub live: bool,
    /// Whether to write a `'` before cells of CSV that a spreadsheet would compute. By default only on a
    /// terminal.
    pub guard_formulas: Option<bool>,
}

impl Default for Options {
    fn default() -> Self {
        Self { tables: Vec::new(), rows: 40, width: None, live: false, guard_formulas: None }
    }
}

/// Opens an output that is written to `writer`, in any format that needs no file. `name` is used in errors.
pub fn open_writer(
    format: Format,
    writer: Box<dyn std::io::Write + Send>,
    name: &str,
    catalog: &Catalog,
    options: &Options,
) -> Result<Box<dyn Sink>, SinkError> {
    let out = Out::to(writer, name);
    let tables: Vec<String> = table_names(catalog);
    Ok(match format {
        Format::Table => Box::new(table::TableSink::new(out, catalog, options)),
        Format::Json => Box::new(json::JsonSink::new(out)),
        Format::Eve => Box::new(eve::EveSink::new(out, catalog)?),
        Format::Csv if tables.len() > 1 => {
            return Err(SinkError::ManyOnStdout { tables: tables.len(), list: tables.join(", ") });
        }
        Format::Csv => Box::new(csv::CsvSink::to(out, catalog, options.guard_formulas)?),
        Format::Parquet => return Err(SinkError::NeedsPath),
    })
}

/// Returns the names of all tables.
fn table_names(catalog: &Catalog) -> Vec<String> {
    let of = |m: &flame_plan::CatalogEntry| {
        m.manifest.tables.iter().map(|t| format!("{}.{}", m.name, t.name)).collect::<Vec<_>>()
    };
    catalog.modules.iter().flat_map(of).collect()
}

/// Opens the output for the records of `catalog`. Existing files are replaced at the end.
pub fn open(
    format: Format,
    output: Option<&Path>,
    catalog: &Catalog,
    options: &Options,
) -> Result<Box<dyn Sink>, SinkError> {
    if !options.tables.is_empty() {
        let all = Options { tables: Vec::new(), ..options.clone() };
        let catalog = select::reduced(catalog, &options.tables)?;
        let records = open(format, output, &catalog, &all)?;
        return Ok(Box::new(select::Select { catalog, records }));
    }
    let output = output.filter(|path| path.as_os_str() != "-");
    let tables = table_names(catalog);
    Ok(match format {
        Format::Table => Box::new(table::TableSink::new(Out::open(output)?, catalog, options)),
        Format::Json => Box::new(json::JsonSink::new(Out::open(output)?)),
        Format::Eve => Box::new(eve::EveSink::new(Out::open(output)?, catalog)?),
        Format::Csv => match output {
            Some(path) => Box::new(csv::CsvSink::new(
                Layout::new(path, "csv", &tables)?,
                catalog,
                options.guard_formulas,
            )?),
            None if tables.len() > 1 => {
                return Err(SinkError::ManyOnStdout { tables: tables.len(), list: tables.join(", ") });
            }
            None => Box::new(csv::CsvSink::stdout(catalog, options.guard_formulas)?),
        },
        Format::Parquet => {
            let layout = Layout::new(output.ok_or(SinkError::NeedsPath)?, "parquet", &tables)?;
            Box::new(parquet::ParquetSink::new(&layout, catalog)?)
        }
    })
}
