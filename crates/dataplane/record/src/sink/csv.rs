//! csv: writes a header line, then one line per record (RFC 4180, lines end in a line feed).
//!
//! Usage:    --format csv, -o NAME.csv for one table, -o FOLDER for a file MODULE.TABLE.csv for each table
//!           Without -o: standard output, for one table; --table selects it. A module's first table is its
//!           main one, which is written if the output holds one table and none is selected.
//!           --guard-formulas puts a ' before text that a spreadsheet would compute, as on a terminal.
//! Expects:  records of any table.
//! Gives:    text quoted only where it must be, control characters escaped. A table without records has its
//!           header. Times are integers, or RFC 3339 with --time rfc3339. Ports, TCP flags, type and code of
//!           ICMP are empty where the protocol has none.
//! Example:  flame run rtt -r FILE --table handshake --format csv
//! Related:  json, parquet

use super::out::{Layout, Out};
use super::{Options, Sink, SinkError};
use crate::cell::{Cell, cells};
use crate::escape::{self, Csv};
use crate::number;
use crate::rows::is_time;
use crate::time::TimeFormat;
use arrow_array::RecordBatch;
use flame_abi::manifest::Table;
use flame_plan::Catalog;
use std::collections::HashMap;
use std::path::PathBuf;

pub(crate) struct CsvSink {
    /// The files by module, then table.
    files: HashMap<String, HashMap<String, Out>>,
    lines: Vec<u8>,
    guard: Option<bool>,
    time: TimeFormat,
}

impl CsvSink {
    /// Opens a file for each table, by `layout`.
    pub(crate) fn new(layout: Layout, catalog: &Catalog, options: &Options) -> Result<Self, SinkError> {
        Self::with(catalog, options, |module, table| layout.open(module, table))
    }

    /// Opens standard output. The catalog has at most one table.
    pub(crate) fn stdout(catalog: &Catalog, options: &Options) -> Result<Self, SinkError> {
        Self::with(catalog, options, |_, _| Out::open(None))
    }

    /// Writes to `out`. The catalog has at most one table.
    pub(crate) fn to(out: Out, catalog: &Catalog, options: &Options) -> Result<Self, SinkError> {
        let mut out = Some(out);
        Self::with(catalog, options, |_, _| out.take().map_or_else(|| Out::open(None), Ok))
    }

    fn with(
        catalog: &Catalog,
        options: &Options,
        mut open: impl FnMut(&str, &str) -> Result<Out, SinkError>,
    ) -> Result<Self, SinkError> {
        let mut files: HashMap<String, HashMap<String, Out>> = HashMap::new();
        for module in &catalog.modules {
            for table in &module.manifest.tables {
                let mut out = open(&module.name, &table.name)?;
                let header: Vec<&str> = table.columns.iter().map(|c| c.name.as_str()).collect();
                out.write(format!("{}\n", header.join(",")).as_bytes())?;
                files.entry(module.name.clone()).or_default().insert(table.name.clone(), out);
            }
        }
        let time = options.time.unwrap_or(TimeFormat::Ns);
        Ok(Self { files, lines: Vec::new(), guard: options.guard_formulas, time })
    }
}

impl Sink for CsvSink {
    fn write(&mut self, module: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
        let Some(out) = self.files.get_mut(module).and_then(|tables| tables.get_mut(&table.name)) else {
            return Err(SinkError::Unplanned { module: module.to_owned(), table: table.name.clone() });
        };
        let columns = cells(batch)?;
        let is_terminal = out.is_terminal();
        let csv = Csv { is_terminal, guards_formulas: self.guard.unwrap_or(is_terminal) };
        let times: Vec<bool> = batch.schema_ref().fields().iter().map(|f| is_time(f)).collect();
        let lines = &mut self.lines;
        for row in 0..batch.num_rows() {
            for (i, column) in columns.iter().enumerate() {
                if i > 0 {
                    lines.push(b',');
                }
                match column.get(row) {
                    Cell::Unsigned(ns) if times[i] => self.time.write(lines, ns, ""),
                    Cell::Null => {}
                    Cell::Bool(b) => lines.extend_from_slice(if b { b"true" } else { b"false" }),
                    Cell::Unsigned(n) => number::unsigned(lines, n),
                    Cell::Signed(n) => number::signed(lines, n),
                    Cell::Float(x) => number::float(lines, x),
                    Cell::Address(ip) => number::address(lines, ip),
                    Cell::Text(s) => escape::write_csv(lines, s, csv),
                }
            }
            lines.push(b'\n');
            out.take(lines)?;
        }
        out.take_all(lines)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.files.values_mut().flat_map(HashMap::values_mut).try_for_each(Out::flush)
    }

    fn size(&self) -> u64 {
        self.files.values().flat_map(HashMap::values).map(Out::written).max().unwrap_or(0)
    }

    fn files(&self) -> Vec<PathBuf> {
        self.files.values().flat_map(HashMap::values).filter_map(Out::file).collect()
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        self.files.into_values().flat_map(HashMap::into_values).try_for_each(Out::finish)
    }

    fn abandon(&mut self) -> Result<Vec<PathBuf>, SinkError> {
        let outs = self.files.values_mut().flat_map(HashMap::values_mut);
        outs.filter_map(|out| out.abandon().transpose()).collect()
    }

    fn closed(&self) -> bool {
        self.files.values().flat_map(HashMap::values).any(Out::closed)
    }
}
