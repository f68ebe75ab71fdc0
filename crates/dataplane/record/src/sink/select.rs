//! Restricts the output to some tables and columns, and adds columns that follow from others.
//!
//! A table is wanted as `MODULE.TABLE`, as `TABLE` or, if no table has that name, by its `MODULE`. A column
//! is wanted by its name, with or without `_ns`, in any table that has it; `+NAME` wants it besides all
//! others.

use super::each::map;
use super::{Sink, SinkError};
use crate::derive::{Derived, absent, flow};
use crate::rows::arrow_schema;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema, SchemaRef};
use flame_abi::manifest::Table;
use flame_plan::{Catalog, CatalogEntry};
use std::collections::HashMap;
use std::sync::Arc;

/// Returns the catalog with only the wanted tables, for opening an output.
pub(super) fn tables(catalog: &Catalog, wanted: &[String]) -> Result<Catalog, SinkError> {
    let all: Vec<(&str, &str)> = catalog
        .modules
        .iter()
        .flat_map(|m| m.manifest.tables.iter().map(|t| (m.name.as_str(), t.name.as_str())))
        .collect();
    let mut chosen = Vec::new();
    for wish in wanted {
        let fits = |fit: &dyn Fn(&(&str, &str)) -> bool| all.iter().copied().filter(fit).collect::<Vec<_>>();
        let tables = match wish.split_once('.') {
            Some(both) => fits(&|t| *t == both),
            None => Some(fits(&|t| t.1 == wish)).filter(|f| !f.is_empty()).unwrap_or(fits(&|t| t.0 == wish)),
        };
        if tables.is_empty() {
            let list: Vec<_> = all.iter().map(|(module, table)| format!("{module}.{table}")).collect();
            return Err(SinkError::NoTable { wish: wish.clone(), list: list.join(", ") });
        }
        chosen.extend(tables);
    }
    let mut less = catalog.clone();
    for module in &mut less.modules {
        let name = module.name.as_str();
        Arc::make_mut(&mut module.manifest).tables.retain(|t| chosen.contains(&(name, &t.name)));
    }
    Ok(less)
}

/// Returns whether a catalog has a table.
pub(super) fn has(catalog: &Catalog, module: &str, table: &Table) -> bool {
    let mut tables = catalog.modules.iter().filter(|m| m.name == module).flat_map(|m| &m.manifest.tables);
    tables.any(|t| t.name == table.name)
}

/// The origin of a column.
#[derive(Clone, Copy)]
enum Origin {
    /// The column of the module at this place.
    Module(usize),
    Derived(Derived),
}

/// The origin of each column, by module and table.
type Origins = Vec<Vec<Vec<Origin>>>;

/// Returns the catalog with the wanted columns of each table, and the origin of each column. Tables without
/// any of them are left out.
fn columns(catalog: &Catalog, wanted: &[String]) -> Result<(Catalog, Origins), SinkError> {
    let mut known = Vec::new();
    let mut found = vec![false; wanted.len()];
    let mut origins = Vec::new();
    let mut shaped = catalog.clone();
    // Without a plain name, all columns are wanted besides those with a +.
    let all = wanted.iter().all(|wish| wish.starts_with('+'));
    for module in &mut shaped.modules {
        let mut of_module = Vec::new();
        for table in &mut Arc::make_mut(&mut module.manifest).tables {
            let (old, derived) = (table.columns.clone(), Derived::of(table));
            let own = old.iter().enumerate().map(|(at, column)| (column.clone(), Origin::Module(at)));
            let new = derived.iter().map(|d| (d.column(), Origin::Derived(*d)));
            let every: Vec<_> = own.chain(new).collect();
            known.extend(every.iter().map(|(column, _)| column.name.clone()));
            let default = |origin: &Origin| !matches!(origin, Origin::Derived(d) if d.is_on_request());
            let mut chosen: Vec<_> =
                every.iter().filter(|(_, origin)| all && default(origin)).cloned().collect();
            for (wish, found) in wanted.iter().zip(&mut found) {
                let name = wish.strip_prefix('+').unwrap_or(wish);
                let is_it = |column: &str| column == name || column.strip_suffix("_ns") == Some(name);
                let Some((column, origin)) = every.iter().find(|(column, _)| is_it(&column.name)) else {
                    continue;
                };
                *found = true;
                if !chosen.iter().any(|(c, _)| c.name == column.name) {
                    chosen.push((column.clone(), *origin));
                }
            }
            let origin;
            (table.columns, origin) = chosen.into_iter().unzip();
            of_module.push(origin);
        }
        origins.push(of_module);
    }
    if let Some(at) = found.iter().position(|found| !found) {
        known.sort();
        known.dedup();
        return Err(SinkError::NoColumn { wish: wanted[at].clone(), list: known.join(", ") });
    }
    Ok((shaped, origins))
}

/// A table as it is written.
struct Shape {
    table: Table,
    schema: SchemaRef,
    origins: Vec<Origin>,
}

/// Tables of a plan in the form in which they are written.
pub(super) struct Shapes {
    /// The shapes by module and table; `None` for tables that are not written.
    shapes: HashMap<String, HashMap<String, Option<Shape>>>,
    pub(super) catalog: Catalog,
}

impl Shapes {
    /// Returns the shapes of the tables of `catalog` that are in `wanted`, with the wanted columns.
    pub(super) fn new(catalog: &Catalog, wanted: &Catalog, names: &[String]) -> Result<Self, SinkError> {
        let (mut shaped, origins) = columns(wanted, names)?;
        let mut shapes: HashMap<String, HashMap<String, Option<Shape>>> = HashMap::new();
        for module in &catalog.modules {
            let of_module = shapes.entry(module.name.clone()).or_default();
            of_module.extend(module.manifest.tables.iter().map(|table| (table.name.clone(), None)));
        }
        for (module, origins) in shaped.modules.iter_mut().zip(origins) {
            let entry: CatalogEntry = module.clone();
            for (table, origins) in entry.manifest.tables.iter().zip(origins) {
                if origins.is_empty() && !names.is_empty() {
                    continue;
                }
                let shape = Shape { table: table.clone(), schema: arrow_schema(&entry, table), origins };
                shapes.entry(entry.name.clone()).or_default().insert(table.name.clone(), Some(shape));
            }
            if !names.is_empty() {
                Arc::make_mut(&mut module.manifest).tables.retain(|table| !table.columns.is_empty());
            }
        }
        Ok(Self { shapes, catalog: shaped })
    }

    /// Returns a sink that writes the tables to `records` in their shapes.
    pub(super) fn sink(self, records: Box<dyn Sink>) -> Box<dyn Sink> {
        map(records, move |module, table, batch, records| {
            match self.shapes.get(module).and_then(|tables| tables.get(&table.name)) {
                Some(Some(shape)) => records.write(module, &shape.table, &shape.of(batch)?),
                Some(None) => Ok(()),
                // A module that came later.
                None => records.write(module, table, batch),
            }
        })
    }
}

impl Shape {
    fn of(&self, batch: &RecordBatch) -> Result<RecordBatch, SinkError> {
        let derives = self.origins.iter().any(|origin| matches!(origin, Origin::Derived(_)));
        let flows = if derives { flow::rows(batch) } else { Vec::new() };
        let column = |(origin, field): (&Origin, &Arc<Field>)| -> Option<ArrayRef> {
            match origin {
                Origin::Module(at) => absent::column(batch, *at, field),
                Origin::Derived(derived) => Some(derived.values(&flows)),
            }
        };
        let columns: Vec<ArrayRef> =
            self.origins.iter().zip(self.schema.fields()).filter_map(column).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        // Addresses of rows are bytes, and text in those that a node sent.
        let types = self.schema.fields().iter().zip(&columns);
        let fields = types.map(|(field, column)| match field.data_type() == column.data_type() {
            true => field.clone(),
            false => Arc::new(Field::clone(field).with_data_type(column.data_type().clone())),
        });
        let fields: Vec<_> = fields.collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, self.schema.metadata().clone()));
        RecordBatch::try_new_with_options(schema, columns, &options)
            .map_err(|e| SinkError::Type { column: self.table.name.clone(), found: e.to_string() })
    }
}
