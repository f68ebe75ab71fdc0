//! Restricts the output to some tables: `MODULE.TABLE`, `TABLE` or, if no table has that name, `MODULE` with
//! all its tables.

use super::{Sink, SinkError};
use arrow_array::RecordBatch;
use flame_abi::manifest::Table;
use flame_output::Packet;
use flame_plan::Catalog;
use std::path::PathBuf;

/// Returns the catalog with only the wanted tables, for opening an output.
pub(super) fn reduced(catalog: &Catalog, wanted: &[String]) -> Result<Catalog, SinkError> {
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
        std::sync::Arc::make_mut(&mut module.manifest).tables.retain(|t| chosen.contains(&(name, &t.name)));
    }
    Ok(less)
}

/// A sink that passes on the tables that [`reduced`] kept.
pub(super) struct Select {
    pub catalog: Catalog,
    pub records: Box<dyn Sink>,
}

impl Sink for Select {
    fn write(&mut self, module: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
        let of_module = self.catalog.modules.iter().filter(|m| m.name == module);
        if of_module.flat_map(|m| &m.manifest.tables).any(|t| t.name == table.name) {
            self.records.write(module, table, batch)?;
        }
        Ok(())
    }

    fn packet(&mut self, packet: Packet<'_>) -> Result<(), SinkError> {
        self.records.packet(packet)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.records.flush()
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        self.records.finish()
    }

    fn abandon(&mut self) -> Result<Vec<PathBuf>, SinkError> {
        self.records.abandon()
    }

    fn closed(&self) -> bool {
        self.records.closed()
    }
}
