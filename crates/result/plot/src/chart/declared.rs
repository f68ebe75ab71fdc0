//! Plots that a module's manifest declares, by kind.

use flame_abi::manifest::{Column, ColumnType, Manifest, Plot};

/// A plot with the columns of its table.
pub struct Declared {
    pub plot: Plot,
    columns: Vec<Column>,
    /// The table's description.
    about: String,
}

impl Declared {
    /// Returns the plots of a manifest.
    pub fn all(manifest: &Manifest) -> impl Iterator<Item = Self> {
        manifest.plots.iter().filter_map(|plot| {
            let table = manifest.tables.iter().find(|table| table.name == plot.table)?;
            let about = table.description.clone();
            Some(Self { plot: plot.clone(), columns: table.columns.clone(), about })
        })
    }

    /// Returns the names of the columns that the plot shows.
    pub fn columns(&self) -> Vec<String> {
        let Plot { x, x_end, y, group, .. } = &self.plot;
        let mut columns: Vec<String> = [x].into_iter().chain(x_end).chain(y).chain(group).cloned().collect();
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    pub(super) fn title(&self) -> String {
        let texts = [self.plot.title.as_deref().unwrap_or_default(), &self.about, &self.plot.table];
        texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default().to_owned()
    }

    fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    pub(super) fn kind(&self, name: &str) -> ColumnType {
        self.column(name).map_or(ColumnType::F64, |column| column.kind)
    }

    /// Returns the words for a column: those of the plot for its y axis, the column's unit, or its name.
    pub(super) fn unit(&self, name: &str) -> String {
        let of_plot = self.plot.unit.as_deref().filter(|_| self.plot.y.iter().any(|y| y == name));
        let of_column = || self.column(name)?.unit.as_deref();
        of_plot.or_else(of_column).unwrap_or(name).to_owned()
    }
}
