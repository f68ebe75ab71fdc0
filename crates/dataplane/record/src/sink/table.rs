//! table: writes records as tables for people; the default format.
//!
//! Usage:    --format table, -o FILE (default: standard output)
//! Expects:  records of any table; --table selects some.
//! Gives:    a heading MODULE.TABLE, units in the header, numbers aligned to the right, at most 40 rows a
//!           table, then the number of rows left out. Fits the width of the terminal. Shown at the end of the
//!           run, or at every tick with --interval or on an interface. If a module has no records, its first
//!           table is shown empty.
//! Types:    u8, u16 and u32 without a unit as 8080, other integers as 1,234,567, f64 with at most three
//!           decimals, times in UTC to the microsecond, durations as 12.3 ms, text with control characters
//!           escaped.
//! Example:  flame run count,rtt -r FILE
//! Related:  json, csv, parquet

use super::out::Out;
use super::{Options, Sink, SinkError};
use crate::cell::{Cell, Cells, cells};
use crate::human;
use crate::rows::unit;
use arrow_array::RecordBatch;
use comfy_table::{Cell as GridCell, CellAlignment, ContentArrangement, Table as Grid};
use flame_abi::manifest::{Column, ColumnType, Table};
use flame_plan::Catalog;
use std::fmt::Write;
use std::path::PathBuf;

pub(crate) struct TableSink {
    out: Out,
    options: Options,
    /// The tables in the order of the plan.
    tables: Vec<Section>,
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
        Self { out, options: options.clone(), tables }
    }

    fn show(&mut self, empty_too: bool) -> Result<(), SinkError> {
        for of_module in self.tables.chunk_by_mut(|a, b| a.module == b.module) {
            let none = of_module.iter().all(|section| section.rows.is_empty());
            for (i, section) in of_module.iter_mut().enumerate() {
                if !section.rows.is_empty() || (empty_too && none && i == 0) {
                    let text = section.text(&self.options, self.out.is_terminal());
                    self.out.write(text.as_bytes())?;
                }
                section.rows.clear();
                section.more = 0;
            }
        }
        self.out.flush()
    }
}

impl Sink for TableSink {
    fn write(&mut self, module: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
        let limit = self.options.rows;
        let section = self.tables.iter_mut().find(|s| s.module == module && s.table.name == table.name);
        let Some(section) = section else {
            return Err(SinkError::Unplanned { module: module.to_owned(), table: table.name.clone() });
        };
        let columns = cells(batch)?;
        let shown = limit.saturating_sub(section.rows.len()).min(batch.num_rows());
        section.rows.extend((0..shown).map(|row| section.table.row(&columns, row)));
        section.more += (batch.num_rows() - shown) as u64;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        if self.options.live { self.show(false) } else { Ok(()) }
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
        (ColumnType::Time, Cell::Unsigned(ns)) => human::time(ns),
        (ColumnType::Duration, Cell::Signed(ns)) => human::duration(ns),
        (_, Cell::Unsigned(n)) if identifier => n.to_string(),
        (_, Cell::Unsigned(n)) => human::grouped(n),
        (_, Cell::Signed(n)) => human::grouped_signed(n),
        (_, Cell::Float(x)) => human::float(x),
        (_, Cell::Bool(b)) => if b { "yes" } else { "no" }.to_owned(),
        (_, Cell::Text(s)) => human::plain(s),
    }
}

/// Returns the header of a column: its name and, below it, its unit. Times and durations contain their unit.
fn header(column: &Column) -> String {
    let bare = column.name.strip_suffix("_ns").unwrap_or(&column.name);
    match (column.kind, unit(column)) {
        (ColumnType::Time, _) => format!("{bare}\nUTC"),
        (ColumnType::Duration, _) => bare.to_owned(),
        // A column `packets` in packets needs no second line.
        (_, Some(unit)) if !column.name.split('_').any(|word| word == unit) => {
            format!("{}\n{}", column.name, human::plain(unit))
        }
        _ => column.name.clone(),
    }
}

fn to_the_right(kind: ColumnType) -> bool {
    !matches!(kind, ColumnType::Text | ColumnType::Enum | ColumnType::Ip | ColumnType::Mac | ColumnType::Bool)
}

impl Section {
    fn text(&self, options: &Options, terminal: bool) -> String {
        let columns = &self.table.columns;
        let mut text = format!("{}.{}", self.module, self.table.name);
        if !self.table.description.is_empty() {
            let _ = write!(text, ": {}", human::plain(&self.table.description));
        }
        text.push('\n');
        if self.rows.is_empty() && self.more == 0 {
            text.push_str("no records\n\n");
            return text;
        }
        let mut grid = Grid::new();
        grid.load_style(human::GRID);
        if terminal || options.width.is_some() {
            grid.set_content_arrangement(ContentArrangement::Dynamic);
        }
        if let Some(width) = options.width {
            grid.set_width(width);
        }
        let align = |kind| if to_the_right(kind) { CellAlignment::Right } else { CellAlignment::Left };
        grid.set_header(columns.iter().map(|c| GridCell::new(header(c)).set_alignment(align(c.kind))));
        for row in &self.rows {
            let cells =
                row.iter().zip(columns).map(|(cell, c)| GridCell::new(cell).set_alignment(align(c.kind)));
            grid.add_row(cells);
        }
        let _ = writeln!(text, "{}", grid.trim_fmt());
        if self.more > 0 {
            let _ = writeln!(text, "… and {} more (use --format json)", human::grouped(self.more));
        }
        text.push('\n');
        text
    }
}
