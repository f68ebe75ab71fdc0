//! The sinks of records, each in its own file. [`open`] is the registry.
//!
//! `--format` states the format, or else the extension of the file ([`Format::of`]).
//!
//! | format | `-o` missing | `-o PATH` |
//! | --- | --- | --- |
//! | `table` | standard output, the first rows | a file, all rows |
//! | `json` | standard output | a file |
//! | `eve` | standard output | a file |
//! | `zeek`, `zeek-json`, `ecs` | standard output | a file |
//! | `csv` | standard output, for one table | `NAME.csv`: that file, for one table; else a folder of `MODULE.TABLE.csv` |
//! | `parquet` | an error | `NAME.parquet`: that file, for one table; else a folder of `MODULE.TABLE.parquet` |
//!
//! Where one table fits and one module has several, its first table, the main one, is written; [`left_out`]
//! returns the others. Tables of several modules are an error.
//!
//! `-o -` is standard output. A file appears under its name when the run ends successfully, complete and
//! synced; until then it is `NAME.RANDOM.partial`, which is removed if the run fails, and kept if it is
//! aborted. [`rotating`] completes files while the run continues and begins the next ones. A reader that
//! closes the pipe is no error: the rest is not written, and [`Sink::closed`] reports it to the loop.

/// The methods of a sink that writes all to one output, its field `out`: all but `write` and `finish`.
macro_rules! one_output {
    () => {
        fn flush(&mut self) -> Result<(), SinkError> {
            self.out.flush()
        }

        fn size(&self) -> u64 {
            self.out.written()
        }

        fn files(&self) -> Vec<std::path::PathBuf> {
            self.out.file().into_iter().collect()
        }

        fn abandon(&mut self) -> Result<Vec<std::path::PathBuf>, SinkError> {
            Ok(self.out.abandon()?.into_iter().collect())
        }

        fn closed(&self) -> bool {
            self.out.closed()
        }
    };
}

mod beside;
mod capture;
mod csv;
mod each;
mod ecs;
mod eve;
mod json;
mod out;
mod parquet;
mod rotate;
mod rotation;
mod select;
mod table;
mod zeek;

/// The text of the sinks, each of which begins with its manual.
pub const MANUALS: &[&str] = &[
    include_str!("capture.rs"),
    include_str!("csv.rs"),
    include_str!("ecs.rs"),
    include_str!("eve.rs"),
    include_str!("json.rs"),
    include_str!("parquet.rs"),
    include_str!("table.rs"),
    include_str!("zeek.rs"),
];

pub use beside::beside;
pub use capture::{CaptureFormat, capture, packets};
pub use each::each;
pub use rotate::rotating;
pub use rotation::{Clock, Names, Part, Rotation};

use crate::grid::Form;
use crate::time::TimeFormat;
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
    ///
    /// # Errors
    ///
    /// Returns an error if the table is not in the plan, a column has a type that no manifest gives, or the
    /// output cannot be written.
    fn write(&mut self, module: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError>;

    /// Writes a packet from a module. Only the sink [`capture()`] stores packets.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written, or cannot hold packets of this link type.
    fn packet(&mut self, _: Packet<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    /// Makes the output visible, where the format allows it. Called at ticks.
    ///
    /// # Errors
    ///
    /// Returns an error if the output cannot be written.
    fn flush(&mut self) -> Result<(), SinkError>;

    /// Records that all records up to this packet time were written. Called at ticks.
    fn passed(&mut self, _now_ns: u64) {}

    /// Returns whether the files are due to be completed: the caller then writes the rows that it collected,
    /// and calls [`Sink::rotate`].
    fn due(&self) -> bool {
        false
    }

    /// Completes the files and begins the next ones. An output without files is flushed.
    ///
    /// # Errors
    ///
    /// Returns an error if the files cannot be completed or the next ones cannot be created.
    fn rotate(&mut self) -> Result<(), SinkError> {
        self.flush()
    }

    /// Returns the number of bytes written to the largest file.
    fn size(&self) -> u64 {
        0
    }

    /// Returns the names that the files receive when they are complete.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Ends the output and gives files their names. Without this call they are removed.
    ///
    /// # Errors
    ///
    /// Returns an error if the rest cannot be written, or if a file cannot be given its name.
    fn finish(self: Box<Self>) -> Result<(), SinkError>;

    /// Flushes the output, for a process that ends now, so that it can be read where it is, and returns the
    /// names of partial files. Nothing may be written afterwards.
    ///
    /// # Errors
    ///
    /// Returns an error if the output cannot be written.
    fn abandon(&mut self) -> Result<Vec<PathBuf>, SinkError> {
        self.flush()?;
        Ok(Vec::new())
    }

    /// Returns whether the output is not read any more, so that a run may end early.
    fn closed(&self) -> bool {
        false
    }
}

/// A fault of an output: in the command line, in the file system, or in this program.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    #[error("{0:?} is no format: expected {list}", list = Format::ALL.map(Format::name).join(", "))]
    Format(String),
    #[error("{}: its extension states {named}, and --format states {stated}: leave --format out, or give another name", path.display())]
    Named { path: PathBuf, stated: &'static str, named: &'static str },
    #[error("parquet is not written to a terminal or pipe: add -o NAME.parquet or -o FOLDER")]
    NeedsPath,
    #[error(
        "csv on standard output holds one table, here are {tables}: {list}; choose one with --table, add -o FOLDER or use --format json"
    )]
    ManyOnStdout { tables: usize, list: String },
    #[error("--table {wish}: there is no such table; here are {list}")]
    NoTable { wish: String, list: String },
    #[error("--columns {wish}: no table has this column; here are {list}")]
    NoColumn { wish: String, list: String },
    #[error("--columns: {format} has columns of its own: choose table, json, csv or parquet")]
    FixedColumns { format: &'static str },
    #[error("{format} holds flows, and none of these modules gives any: run flow, or use --format json")]
    NoFlows { format: &'static str },
    #[error("{}: one file holds one table, here are {tables}: {list}; give a folder (a name without .{extension})", path.display())]
    ManyInFile { path: PathBuf, extension: &'static str, tables: usize, list: String },
    #[error("eve holds alerts, and none of these modules gives any: run ids, or use --format json")]
    NoAlerts,
    #[error("{}: a pcap file has one link type, here are {first} and {other}: give -w a name in .pcapng", path.display())]
    ManyLinks { path: PathBuf, first: u16, other: u16 },
    #[error(
        "{}: a time of {seconds} s since 1970, and a pcap file holds them up to 2106: give -w a name in .pcapng",
        path.display()
    )]
    Time { path: PathBuf, seconds: u64 },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error(
        "{}: {source}: {}; make room, or limit the files of -o and -w with --rotate and --keep",
        path.display(), rest(*removed)
    )]
    Full {
        path: PathBuf,
        source: std::io::Error,
        /// The size of the file, which is removed. An output that is no file of this run keeps what it has.
        removed: Option<u64>,
    },
    #[error("{}: {pattern:?} is no time for strftime: expected directives such as %Y%m%d-%H%M%S", path.display())]
    Pattern { path: PathBuf, pattern: String },
    #[error("{}: parquet: {source}", path.display())]
    Parquet { path: PathBuf, source: ::parquet::errors::ParquetError },
    #[error("{module}.{table} is not in the plan that this output was opened for (a bug: please report it)")]
    Unplanned { module: String, table: String },
    #[error("column {column} has type {found}, which no manifest gives (a bug: please report it)")]
    Type { column: String, found: String },
}

/// Returns the words for what is left on a full disk.
fn rest(removed: Option<u64>) -> String {
    let size = |bytes| {
        format!("its {} bytes are removed; files that were complete stay", crate::human::grouped(bytes))
    };
    removed.map_or_else(|| "what was written so far stays".to_owned(), size)
}

/// Returns whether an error is that of a full disk.
fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

impl SinkError {
    fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }
}

/// The form of the records in an output.
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
    /// Flows as Zeek's conn.log.
    Zeek,
    ZeekJson,
    /// Flows in the Elastic Common Schema.
    Ecs,
}

impl Format {
    pub const ALL: [Self; 8] =
        [Self::Table, Self::Json, Self::Csv, Self::Parquet, Self::Eve, Self::Zeek, Self::ZeekJson, Self::Ecs];

    /// Returns the name that `--format` uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
            Self::Eve => "eve",
            Self::Zeek => "zeek",
            Self::ZeekJson => "zeek-json",
            Self::Ecs => "ecs",
        }
    }

    /// Returns a remark for help, where the name is not enough.
    pub fn about(self) -> Option<&'static str> {
        match self {
            Self::Eve => Some("Alerts in the format of Suricata"),
            Self::Zeek => Some("Flows as Zeek's conn.log, in columns"),
            Self::ZeekJson => Some("Flows as Zeek's conn.log, in JSON"),
            Self::Ecs => Some("Flows in the Elastic Common Schema, in JSON"),
            _ => None,
        }
    }

    /// Returns the format that a file of this name has by its extension.
    pub fn of_name(path: &Path) -> Option<Self> {
        let plain = out::packed(path).map(|(plain, _)| plain);
        match plain.as_deref().unwrap_or(path).extension()?.to_str()?.to_ascii_lowercase().as_str() {
            // Its pages are compressed, so it is not compressed once more.
            "parquet" if plain.is_some() => None,
            "csv" => Some(Self::Csv),
            "json" | "jsonl" | "ndjson" => Some(Self::Json),
            "parquet" => Some(Self::Parquet),
            _ => None,
        }
    }

    /// Returns the format of an output: as stated, or else by its name, or else a table.
    ///
    /// # Errors
    ///
    /// Returns an error if the name has the extension of another format, which readers would go by.
    pub fn of(stated: Option<Self>, output: Option<&Path>) -> Result<Self, SinkError> {
        let named = output.and_then(|path| Some((path, Self::of_name(path)?)));
        let Some((path, named)) = named else { return Ok(stated.unwrap_or_default()) };
        // These are lines of JSON, too.
        let is_json = |format| matches!(format, Self::Json | Self::Eve | Self::ZeekJson | Self::Ecs);
        match stated {
            Some(stated) if stated != named && !(named == Self::Json && is_json(stated)) => {
                Err(SinkError::Named { path: path.to_owned(), stated: stated.name(), named: named.name() })
            }
            stated => Ok(stated.unwrap_or(named)),
        }
    }

    /// Returns whether the format prescribes its columns.
    fn is_fixed(self) -> bool {
        matches!(self, Self::Eve | Self::Zeek | Self::ZeekJson | Self::Ecs)
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
    /// The columns to write, by name in any table, with or without `_ns`; `+NAME` adds one to all others.
    pub columns: Vec<String>,
    /// The number of rows of a table that are shown on standard output. Further ones are only counted.
    pub rows: usize,
    /// The width in characters that tables must fit, or unlimited.
    pub width: Option<u16>,
    pub form: Form,
    /// Whether to show tables at every flush, each time up to `rows` rows, instead of once at the end.
    pub live: bool,
    /// Whether to write a `'` before cells of CSV that a spreadsheet would compute. By default only on a
    /// terminal.
    pub guard_formulas: Option<bool>,
    /// The form of times in JSON, CSV and Parquet. By default, integers in text and timestamps in Parquet.
    pub time: Option<TimeFormat>,
    /// The part of a file's name before its extension that distinguishes it from others of the same output.
    pub part: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tables: Vec::new(),
            columns: Vec::new(),
            rows: 40,
            width: None,
            form: Form::Auto,
            live: false,
            guard_formulas: None,
            time: None,
            part: String::new(),
        }
    }
}

/// Opens an output that is written to `writer`, in any format that needs no file. `name` is used in errors.
///
/// # Errors
///
/// Returns an error if the format needs files, holds one table and there are several, or does not fit the
/// tables.
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
        Format::Json => Box::new(json::JsonSink::new(out, options.time)),
        Format::Eve => Box::new(eve::EveSink::new(out, catalog)?),
        Format::Zeek | Format::ZeekJson => Box::new(zeek::ZeekSink::new(out, catalog, format)?),
        Format::Ecs => Box::new(ecs::EcsSink::new(out, catalog)?),
        Format::Csv if tables.len() > 1 => {
            return Err(SinkError::ManyOnStdout { tables: tables.len(), list: tables.join(", ") });
        }
        Format::Csv => Box::new(csv::CsvSink::to(out, catalog, options)?),
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

/// The tables that an output of one table leaves out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The table that is written.
    pub written: String,
    pub left: Vec<String>,
}

/// Returns the tables that [`open`] leaves out with the same arguments, because the output holds one table
/// and the module has several: all but its first, which is its main table.
pub fn left_out(
    format: Format,
    output: Option<&Path>,
    catalog: &Catalog,
    options: &Options,
) -> Option<LeftOut> {
    let extension = match format {
        Format::Csv => "csv",
        Format::Parquet => "parquet",
        _ => return None,
    };
    let output = output.filter(|path| path.as_os_str() != "-");
    let is_one = output.map_or(format == Format::Csv, |path| Layout::holds_one(path, extension));
    let catalog = match options.tables.is_empty() {
        true => catalog.clone(),
        false => select::tables(catalog, &options.tables).ok()?,
    };
    let mut modules = catalog.modules.iter().filter(|module| !module.manifest.tables.is_empty());
    let is_only = modules.next().is_some() && modules.next().is_none();
    match &table_names(&catalog)[..] {
        [written, left @ ..] if is_one && is_only && !left.is_empty() => {
            Some(LeftOut { written: written.clone(), left: left.to_vec() })
        }
        _ => None,
    }
}

/// Opens the output for the records of `catalog`. Existing files are replaced at the end.
///
/// # Errors
///
/// Returns an error if a chosen table or column does not exist, if the format has columns of its own and
/// others are chosen, if it does not fit the tables or the output, or if a file cannot be created.
pub fn open(
    format: Format,
    output: Option<&Path>,
    catalog: &Catalog,
    options: &Options,
) -> Result<Box<dyn Sink>, SinkError> {
    let wanted = match (left_out(format, output, catalog, options), &options.tables[..]) {
        (Some(LeftOut { written, .. }), _) => select::tables(catalog, &[written])?,
        (None, []) => catalog.clone(),
        (None, tables) => select::tables(catalog, tables)?,
    };
    if format.is_fixed() {
        if !options.columns.is_empty() {
            return Err(SinkError::FixedColumns { format: format.name() });
        }
        let records = open_shaped(format, output, &wanted, options)?;
        return Ok(each(records, move |module, table, _| select::has(&wanted, module, table)));
    }
    let shapes = select::Shapes::new(catalog, &wanted, &options.columns)?;
    let records = open_shaped(format, output, &shapes.catalog, options)?;
    Ok(shapes.sink(records))
}

/// Opens the output for exactly the tables and columns of `catalog`.
fn open_shaped(
    format: Format,
    output: Option<&Path>,
    catalog: &Catalog,
    options: &Options,
) -> Result<Box<dyn Sink>, SinkError> {
    let output = output.filter(|path| path.as_os_str() != "-");
    let tables = table_names(catalog);
    let part = options.part.as_str();
    let one = || Out::open(output.map(|path| rotation::with_part(path, part)).as_deref());
    Ok(match format {
        Format::Table => Box::new(table::TableSink::new(one()?, catalog, options)),
        Format::Json => Box::new(json::JsonSink::new(one()?, options.time)),
        Format::Eve => Box::new(eve::EveSink::new(one()?, catalog)?),
        Format::Zeek | Format::ZeekJson => Box::new(zeek::ZeekSink::new(one()?, catalog, format)?),
        Format::Ecs => Box::new(ecs::EcsSink::new(one()?, catalog)?),
        Format::Csv => match output {
            Some(path) => {
                Box::new(csv::CsvSink::new(Layout::new(path, "csv", &tables, part)?, catalog, options)?)
            }
            None if tables.len() > 1 => {
                return Err(SinkError::ManyOnStdout { tables: tables.len(), list: tables.join(", ") });
            }
            None => Box::new(csv::CsvSink::stdout(catalog, options)?),
        },
        Format::Parquet => {
            let layout = Layout::new(output.ok_or(SinkError::NeedsPath)?, "parquet", &tables, part)?;
            Box::new(parquet::ParquetSink::new(&layout, catalog, options.time)?)
        }
    })
}
