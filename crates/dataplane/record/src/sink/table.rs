//! table: writes records as tables for people; the default format.
//!
//! Usage:    --format table, -o FILE (default: standard output)
//! Expects:  records of any table; --table selects some.
//! Gives:    a heading MODULE.TABLE, units in the header, numbers aligned to the right; in a file all rows,
//!           on standard output at most 40 a table, then the number of rows left out. Fits the width of the
//!           terminal, COLUMNS or --width: texts are wrapped between words, details are left out, which a
//!           line below names; of flows, the first time and the name of the protocol last. Of a table that is
//!           still too wide, the last columns are left out too if it has four rows or more or is shown at
//!           ticks; a smaller one has one line for each value, as with --vertical. No address is ever broken.
//!           --columns NAME,... selects columns. A pipe or file has no width. Shown at the end of the run, or
//!           at every tick with --interval or on an interface, then with one header for all ticks. If a
//!           module has no records, its first table is shown empty.
//! Types:    u8, u16 and u32 without a unit as 8080, other integers as 1,234,567, f64 with at most three
//!           decimals, times in UTC to the microsecond, durations as 12.3 ms, text with control characters
//!           escaped.
//! Example:  flame run count,rtt -r FILE
//! Related:  json, csv, parquet

use super::out::Out;
use super::{Options, Sink, SinkError};
use crate::cell::{Cell, Cells, cells};
use crate::derive;
use crate::grid::{self, Arranged, DETAIL, Form, Head};
use crate::human;
use crate::rows::unit;
use arrow_array::RecordBatch;
use flame_abi::manifest::{Column, ColumnType, Table};
use flame_plan::Catalog;
use std::fmt::Write;
use std::path::PathBuf;

/// The number of rows of a file's table that are arranged together.
const TOGETHER: usize = 10_000;

/// The columns of flows that are left out late, and their ranks.
const FLOWS: [(&str, u8); 4] =
    [("packets_fwd", TIME + 1), ("packets_rev", TIME + 1), ("first", TIME), ("proto_name", TIME - 1)];
const TIME: u8 = 2;
/// The width of a time in seconds.
const SECONDS: u16 = 19;

/// The number of rows from which on fewer columns are read better than one line for each value.
const MANY: usize = 4;

pub(crate) struct TableSink {
    out: Out,
    options: Options,
    /// The number of rows of a table that are collected before they are shown.
    most: usize,
    /// The tables in the order of the plan.
    tables: Vec<Section>,
    /// The table that was written last and may go on, and its arrangement, which its next rows keep.
    last: Option<(usize, Arranged)>,
}

struct Section {
    module: String,
    table: Table,
    rows: Vec<Vec<String>>,
    more: u64,
}

impl TableSink {
    pub(crate) fn new(out: Out, catalog: &Catalog, options: &Options) -> Self {
        let section = |module: &str, table: &Table| Section {
            module: module.to_owned(),
            table: table.clone(),
            rows: Vec::new(),
            more: 0,
        };
        let tables = catalog
            .modules
            .iter()
            .flat_map(|m| m.manifest.tables.iter().map(|t| section(&m.name, t)))
            .collect();
        let most = if out.is_file() { TOGETHER } else { options.rows };
        Self { out, options: options.clone(), most, tables, last: None }
    }

    /// Writes the tables that have rows; with `empty_too`, also the first one of a module without any.
    fn show(&mut self, empty_too: bool) -> Result<(), SinkError> {
        let mut wanted = Vec::new();
        for of_module in self.tables.chunk_by(|a, b| a.module == b.module) {
            let none = of_module.iter().all(Section::is_empty);
            let is_wanted =
                |(i, section): (usize, &Section)| !section.is_empty() || (empty_too && none && i == 0);
            wanted.extend(of_module.iter().enumerate().map(is_wanted));
        }
        // The table that stands above continues first, below its header.
        let above = self.last.as_ref().map(|(table, _)| *table).filter(|_| self.options.live);
        let others = (0..self.tables.len()).filter(|number| Some(*number) != above);
        for number in above.into_iter().chain(others).filter(|number| wanted[*number]) {
            self.write_section(number)?;
            // Shown at once, each table is followed by an empty line.
            if !self.options.live && self.last.take().is_some() {
                self.out.write(b"\n")?;
            }
        }
        self.out.flush()
    }

    /// Writes the rows of a table, below its earlier rows if these were written last.
    fn write_section(&mut self, number: usize) -> Result<(), SinkError> {
        let before = self.last.take();
        if before.as_ref().is_some_and(|(table, _)| *table != number) {
            self.out.write(b"\n")?;
        }
        let above = before.filter(|(table, _)| *table == number).map(|(_, above)| above);
        let section = &mut self.tables[number];
        let (text, arranged) = section.text(&self.options, above);
        section.rows.clear();
        section.more = 0;
        self.out.write(text.as_bytes())?;
        self.last = arranged.map(|arranged| (number, arranged));
        Ok(())
    }
}

impl Sink for TableSink {
    fn write(&mut self, module: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
        let is_it = |s: &Section| s.module == module && s.table.name == table.name;
        let Some(number) = self.tables.iter().position(is_it) else {
            return Err(SinkError::Unplanned { module: module.to_owned(), table: table.name.clone() });
        };
        let columns = cells(batch)?;
        let mut taken = 0;
        loop {
            let section = &mut self.tables[number];
            let end = (taken + self.most.saturating_sub(section.rows.len())).min(batch.num_rows());
            section.rows.extend((taken..end).map(|row| section.table.row(&columns, row)));
            taken = end;
            if taken == batch.num_rows() {
                return Ok(());
            }
            if !self.out.is_file() {
                section.more += (batch.num_rows() - taken) as u64;
                return Ok(());
            }
            self.write_section(number)?;
        }
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        if self.options.live { self.show(false) } else { Ok(()) }
    }

    /// Shows the rows so far, whether they are shown at ticks or not.
    fn rotate(&mut self) -> Result<(), SinkError> {
        self.show(false)
    }

    fn size(&self) -> u64 {
        self.out.written()
    }

    fn files(&self) -> Vec<PathBuf> {
        self.out.file().into_iter().collect()
    }

    fn finish(mut self: Box<Self>) -> Result<(), SinkError> {
        let empty_too = !self.options.live;
        self.show(empty_too)?;
        self.out.finish()
    }

    fn abandon(&mut self) -> Result<Vec<PathBuf>, SinkError> {
        self.show(false)?;
        Ok(self.out.abandon()?.into_iter().collect())
    }

    fn closed(&self) -> bool {
        self.out.closed()
    }
}

trait Row {
    fn row(&self, columns: &[Cells<'_>], row: usize) -> Vec<String>;
}

impl Row for Table {
    fn row(&self, columns: &[Cells<'_>], row: usize) -> Vec<String> {
        self.columns.iter().zip(columns).map(|(column, cells)| shown(column, cells.get(row))).collect()
    }
}

fn shown(column: &Column, cell: Cell<'_>) -> String {
    let small = matches!(column.kind, ColumnType::U8 | ColumnType::U16 | ColumnType::U32);
    let identifier = small && column.unit.is_none();
    match (column.kind, cell) {
        (_, Cell::Null) => String::new(),
        (ColumnType::Time, Cell::Unsigned(ns)) => human::time(ns),
        (ColumnType::Duration, Cell::Signed(ns)) => human::duration(ns),
        (_, Cell::Unsigned(n)) if identifier => n.to_string(),
        (_, Cell::Unsigned(n)) => human::grouped(n),
        (_, Cell::Signed(n)) => human::grouped_signed(n),
        (_, Cell::Float(x)) => human::float(x),
        (_, Cell::Bool(b)) => if b { "yes" } else { "no" }.to_owned(),
        (_, Cell::Address(ip)) => ip.to_string(),
        (_, Cell::Text(s)) => human::plain(s),
    }
}

/// Returns the header of a column: its name and its unit. Times and durations contain their unit.
fn head(column: &Column) -> Head {
    let bare = column.name.strip_suffix("_ns").unwrap_or(&column.name);
    let (name, unit) = match (column.kind, unit(column)) {
        (ColumnType::Time, _) => (bare, "UTC".to_owned()),
        (ColumnType::Duration, _) => (bare, String::new()),
        // A column `packets` in packets needs no second line.
        (_, Some(unit)) if !column.name.split('_').any(|word| word == unit) => {
            (column.name.as_str(), human::plain(unit))
        }
        _ => (column.name.as_str(), String::new()),
    };
    let (is_right, wraps) = (is_to_the_right(column.kind), column.kind == ColumnType::Text);
    let rank = if column.detail { DETAIL } else { 0 };
    Head { name: name.to_owned(), unit, is_right, wraps, rank }
}

fn is_to_the_right(kind: ColumnType) -> bool {
    !matches!(kind, ColumnType::Text | ColumnType::Enum | ColumnType::Ip | ColumnType::Mac | ColumnType::Bool)
}

impl Section {
    fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the text of the rows, below rows of the arrangement `above` if there are any.
    fn text(&self, options: &Options, above: Option<Arranged>) -> (String, Option<Arranged>) {
        let mut text = String::new();
        if above.is_none() {
            text = format!("{}.{}", self.module, self.table.name);
            if !self.table.description.is_empty() {
                let _ = write!(text, ": {}", human::plain(&self.table.description));
            }
            text.push('\n');
        }
        if self.rows.is_empty() && self.more == 0 {
            text.push_str("no records\n\n");
            return (text, None);
        }
        let mut heads: Vec<Head> = self.table.columns.iter().map(head).collect();
        if !options.columns.is_empty() {
            // Columns that were named are all there.
            heads.iter_mut().for_each(|head| head.rank = 0);
        } else if derive::holds_flows(&self.table) {
            for head in &mut heads {
                let known = FLOWS.iter().find(|(name, _)| *name == head.name);
                head.rank = known.map_or(head.rank, |(_, rank)| *rank);
            }
        } else {
            // What happened says more than when it did.
            heads.iter_mut().filter(|head| head.name == "ts").for_each(|head| head.rank = TIME);
        }
        let has_rows = options.live || self.rows.len() >= MANY;
        let form = match options.form {
            Form::Auto if has_rows && options.columns.is_empty() => Form::Rows,
            form => form,
        };
        let form = (options.width, form);
        let times: Vec<usize> =
            (0..heads.len()).filter(|at| heads[*at].rank == TIME && heads[*at].unit == "UTC").collect();
        let in_seconds = || -> Vec<Vec<String>> {
            let mut rows = self.rows.clone();
            for row in &mut rows {
                for at in &times {
                    let fraction = row[*at].find('.').unwrap_or(row[*at].len());
                    row[*at].truncate(fraction);
                }
            }
            rows
        };
        // A time in seconds may fit where one in microseconds does not, and then the next rows keep it.
        let has = |arranged: &Arranged, most: u16| match arranged {
            Arranged::Grid(widths) => times.iter().all(|at| widths[*at].is_some_and(|width| width > most)),
            Arranged::Vertical => true,
        };
        let (mut rows, mut arranged) = match &above {
            Some(above) if !has(above, SECONDS) => grid::render(&heads, &in_seconds(), form, Some(above)),
            above => grid::render(&heads, &self.rows, form, above.as_ref()),
        };
        if above.is_none() && !has(&arranged, 0) {
            (rows, arranged) = grid::render(&heads, &in_seconds(), form, None);
        }
        text.push_str(&rows);
        if let (Arranged::Grid(widths), None) = (&arranged, &above) {
            let left_out: Vec<&str> =
                heads.iter().zip(widths).filter(|(_, w)| w.is_none()).map(|(head, _)| &*head.name).collect();
            if !left_out.is_empty() {
                let _ =
                    writeln!(text, "left out: {} (--vertical, --width or --columns)", left_out.join(", "));
            }
        }
        if self.more > 0 {
            let _ = writeln!(text, "… and {} more (use --format json)", human::grouped(self.more));
        }
        (text, Some(arranged))
    }
}
