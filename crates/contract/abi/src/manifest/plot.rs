//! Plots that a manifest declares.

use super::check::{Checked, at_most, fault, name, one_line};
use super::{Column, ColumnType, Manifest, Step, Table};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The maximum number of plots of a module.
pub const MAX_PLOTS: usize = 16;
/// The maximum number of columns in the y direction.
const MAX_SERIES: usize = 8;
/// The maximum length of a text in a picture, in characters.
const MAX_TEXT: usize = 80;

/// A picture of one table, drawn by `flame run --plot`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    pub name: String,
    pub kind: PlotKind,
    pub table: String,
    /// The column in the x direction.
    pub x: String,
    /// The column with the end of each bin, of which `x` is the beginning.
    #[serde(default)]
    pub x_end: Option<String>,
    /// The columns in the y direction, each a series.
    #[serde(default)]
    pub y: Vec<String>,
    /// The column, as `table.column`, with the single values that a histogram counts, from which its
    /// statistics are computed. Without it, only the bin of the median is known.
    #[serde(default)]
    pub values: Option<String>,
    /// The names of these series; their columns' names if there are none.
    #[serde(default)]
    pub labels: Vec<String>,
    /// A column each value of which is a series.
    #[serde(default)]
    pub group: Option<String>,
    /// The words at the y axis; the unit of the first column if there are none.
    #[serde(default)]
    pub unit: Option<String>,
    /// The words at the x axis.
    #[serde(default)]
    pub x_label: Option<String>,
    /// The title; the table's description without one.
    #[serde(default)]
    pub title: Option<String>,
    /// Advice to the user if the table has no records.
    #[serde(default)]
    pub hint: Option<String>,
}

/// The form in which the rows of a plot are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlotKind {
    /// Lines through the points of each series.
    Line,
    /// The points alone.
    Points,
    /// Rows over time, counted in bars.
    Events,
    /// A bar for each row.
    Histogram,
}

impl ColumnType {
    /// Returns whether a picture shows values as numbers.
    pub fn is_number(self) -> bool {
        !matches!(self, Self::Bool) && !self.is_word()
    }

    /// Returns whether a picture shows values as words.
    pub fn is_word(self) -> bool {
        matches!(self, Self::Text | Self::Enum | Self::Ip | Self::Mac)
    }
}

impl Manifest {
    pub(super) fn check_plots(&self) -> Checked<'_> {
        let plots = [Step::Key("plot")];
        at_most(&plots, "plot", self.plots.len(), MAX_PLOTS, "entries")?;
        let mut names = BTreeSet::new();
        for (index, plot) in self.plots.iter().enumerate() {
            let path = |key| [Step::Key("plot"), Step::Index(index), Step::Key(key)];
            name(&path("name"), "plot", &plot.name)?;
            let place = format!("plot.{}", plot.name);
            if plot.name == "term" {
                return fault(&path("name"), place, "this name is taken: choose another");
            }
            if !names.insert(&plot.name) {
                return fault(&path("name"), place, "appears twice: choose another name");
            }
            let Some(table) = self.tables.iter().find(|t| t.name == plot.table) else {
                let known = list(self.tables.iter().map(|t| t.name.as_str()));
                let reason = format!("there is no table {:?}: choose one of {known}", plot.table);
                return fault(&path("table"), format!("{place}.table"), reason);
            };
            plot.check(index, table)?;
            plot.check_values(index, &self.tables)?;
        }
        Ok(())
    }
}

impl Plot {
    /// Returns the table and the column of [`Plot::values`].
    pub fn values(&self) -> Option<(&str, &str)> {
        self.values.as_deref()?.split_once('.')
    }

    fn check_values<'a>(&'a self, index: usize, tables: &'a [Table]) -> Checked<'a> {
        let Some(given) = &self.values else { return Ok(()) };
        let path = [Step::Key("plot"), Step::Index(index), Step::Key("values")];
        let place = format!("plot.{}.values", self.name);
        if self.kind != PlotKind::Histogram {
            return fault(&path, place, "only a histogram has values: remove it");
        }
        let numbers = |table: &'a Table| {
            let numbers = table.columns.iter().filter(|column| column.kind.is_number());
            numbers.map(|column| format!("{}.{}", table.name, column.name))
        };
        let known: Vec<String> =
            tables.iter().filter(|table| table.name != self.table).flat_map(numbers).collect();
        if known.contains(given) {
            return Ok(());
        }
        let known = list(known.iter().map(String::as_str));
        let reason = format!("{given:?} is no number of another table: choose one of {known}");
        fault(&path, place, reason)
    }

    fn check<'a>(&'a self, index: usize, table: &'a Table) -> Checked<'a> {
        let path = |key| [Step::Key("plot"), Step::Index(index), Step::Key(key)];
        let place = |key: &str| format!("plot.{}.{key}", self.name);
        let column = |key: &'static str, name: &str, fits: fn(ColumnType) -> bool, expected: &str| {
            let known = list(table.columns.iter().filter(|c| fits(c.kind)).map(|c| c.name.as_str()));
            match table.columns.iter().find(|c| c.name == name) {
                None => {
                    let reason =
                        format!("table {} has no column {name:?}: choose one of {known}", table.name);
                    fault(&path(key), place(key), reason)
                }
                Some(Column { kind, .. }) if !fits(*kind) => {
                    let kind = format!("{kind:?}").to_lowercase();
                    let reason = format!("column {name:?} is a {kind}, expected {expected}: one of {known}");
                    fault(&path(key), place(key), reason)
                }
                Some(_) => Ok(()),
            }
        };
        let number = |key, name: &str| column(key, name, ColumnType::is_number, "a number");
        let is = |kind| self.kind == kind;
        let kind = format!("{:?}", self.kind).to_lowercase();
        if is(PlotKind::Events) {
            column("x", &self.x, |kind| kind == ColumnType::Time, "a time")?;
        } else {
            number("x", &self.x)?;
        }
        match (&self.x_end, is(PlotKind::Histogram)) {
            (Some(end), true) => number("x_end", end)?,
            (None, false) => {}
            (None, true) => {
                let reason = "a histogram has the column with the end of each bin: add x_end = \"…\"";
                return fault(&path("kind"), place("x_end"), reason);
            }
            (Some(_), false) => {
                return fault(
                    &path("x_end"),
                    place("x_end"),
                    format!("{kind} has no bins: remove it, or write kind = \"histogram\""),
                );
            }
        }
        let (least, most) = match self.kind {
            PlotKind::Line | PlotKind::Points if self.group.is_some() => (1, 1),
            PlotKind::Line | PlotKind::Points => (1, MAX_SERIES),
            PlotKind::Events => (0, 0),
            PlotKind::Histogram => (1, 1),
        };
        if !(least..=most).contains(&self.y.len()) {
            let number = if least == most { least.to_string() } else { format!("{least} to {most}") };
            let group = if self.group.is_some() { " with a group" } else { "" };
            let reason = format!("{} columns, {kind}{group} takes {number}", self.y.len());
            let key = if self.y.is_empty() { "kind" } else { "y" };
            return fault(&path(key), place("y"), reason);
        }
        self.y.iter().try_for_each(|y| number("y", y))?;
        if !self.labels.is_empty() && self.labels.len() != self.y.len() {
            let reason = format!("{} labels for {} columns: one for each", self.labels.len(), self.y.len());
            return fault(&path("labels"), place("labels"), reason);
        }
        match &self.group {
            Some(_) if is(PlotKind::Histogram) => {
                return fault(&path("group"), place("group"), "a histogram has no groups: remove it");
            }
            Some(group) => column("group", group, ColumnType::is_word, "text, enum, ip or mac")?,
            None => {}
        }
        let texts =
            [("unit", &self.unit), ("x_label", &self.x_label), ("title", &self.title), ("hint", &self.hint)];
        let texts = texts.into_iter().filter_map(|(key, text)| Some((key, text.as_ref()?)));
        for (key, text) in texts.chain(self.labels.iter().map(|label| ("labels", label))) {
            one_line(&path(key), &place(key), text)?;
            let length = text.chars().count();
            if length > MAX_TEXT {
                let reason = format!("{length} characters, at most {MAX_TEXT} are allowed");
                return fault(&path(key), place(key), reason);
            }
        }
        Ok(())
    }
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.take(12).collect();
    if names.is_empty() { "none, which are there".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A valid manifest, from its second line on.
    const GOOD: &str = r#"
        abi = 1
        name = "probe"
        version = "1.0.0"
        description = "counts"
        [[tables]]
        name = "rate"
        columns = [{ name = "ts_ns", type = "time" }, { name = "packets", type = "u64" },
          { name = "path", type = "text" }, { name = "low", type = "f64" }, { name = "up", type = "bool" }]
        [[plot]]
        name = "rates"
        kind = "line"
        table = "rate"
        x = "ts_ns"
        y = ["packets", "low"]
        labels = ["all", "low"]
        unit = "packets per second"
        [[plot]]
        name = "paths"
        kind = "events"
        table = "rate"
        x = "ts_ns"
        group = "path"
    "#;

    #[test]
    fn a_good_plot_survives_being_written() {
        let manifest = Manifest::parse(GOOD.as_bytes()).unwrap();
        assert_eq!((manifest.plots.len(), manifest.plots[1].kind), (2, PlotKind::Events));
        assert_eq!(Manifest::from_toml(&manifest.to_toml().unwrap()).unwrap(), manifest);
    }

    #[test]
    fn each_fault_is_named_with_its_line_and_a_remedy() {
        let long = format!("unit = \"{}\"", "x".repeat(81));
        let second = |more: &str| format!("group = \"path\"\n        {more}");
        // What is replaced by what; the line; what is said.
        let cases = [
            ("name = \"rates\"", "name = \"Rates\"", 11, "\"Rates\" is not a name"),
            ("name = \"rates\"", "name = \"term\"", 11, "plot.term: this name is taken"),
            ("name = \"paths\"", "name = \"rates\"", 19, "plot.rates: appears twice: choose another name"),
            ("kind = \"line\"", "kind = \"pie\"", 12, "expected one of `line`"),
            (
                "table = \"rate\"",
                "table = \"rats\"",
                13,
                "plot.rates.table: there is no table \"rats\": choose one of rate",
            ),
            (
                "x = \"ts_ns\"",
                "x = \"ts\"",
                14,
                "plot.rates.x: table rate has no column \"ts\": choose one of ts_ns, packets, low",
            ),
            (
                "x = \"ts_ns\"",
                "x = \"path\"",
                14,
                "column \"path\" is a text, expected a number: one of ts_ns",
            ),
            ("\"packets\", \"low\"", "\"up\", \"low\"", 15, "plot.rates.y: column \"up\" is a bool"),
            ("y = [\"packets\", \"low\"]", "y = []", 12, "plot.rates.y: 0 columns, line takes 1 to 8"),
            ("\"all\", \"low\"", "\"all\"", 16, "plot.rates.labels: 1 labels for 2 columns: one for each"),
            (
                "labels = [",
                "group = \"path\"\n        labels = [",
                15,
                "2 columns, line with a group takes 1",
            ),
            ("unit = \"packets per second\"", &long, 17, "plot.rates.unit: 81 characters, at most 80"),
            ("unit = \"packets", "unit = \"\\npackets", 17, "plot.rates.unit: has control characters"),
            ("unit = ", "x_end = \"low\"\n        unit = ", 17, "line has no bins: remove it"),
            ("kind = \"line\"", "kind = \"histogram\"", 12, "plot.rates.x_end: a histogram has the column"),
            (
                "group = \"path\"",
                "group = \"low\"",
                23,
                "column \"low\" is a f64, expected text, enum, ip or mac",
            ),
            ("unit = ", "values = \"rate.low\"\n        unit = ", 17, "only a histogram has values"),
            ("group = \"path\"", &second("y = [\"low\"]"), 24, "plot.paths.y: 1 columns, events"),
            ("group = \"path\"", &second("colour = 1"), 24, "unknown field `colour`"),
        ];
        for (old, new, line, expected) in cases {
            let text = GOOD.replacen(old, new, 1);
            assert_ne!(text, GOOD, "{old}");
            let error = Manifest::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(
                error.contains(&format!("line {line}")) && error.contains(expected),
                "{new}: line {line}: {error}"
            );
        }
        // The second plot's x, which counts rows over time.
        let text = GOOD.replace("x = \"ts_ns\"\n        group", "x = \"low\"\n        group");
        let error = Manifest::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("line 22: plot.paths.x: column \"low\" is a f64, expected a time"), "{error}");
        let many = (0..17).map(|n| {
            format!("[[plot]]\nname = \"p{n}\"\nkind = \"events\"\ntable = \"rate\"\nx = \"ts_ns\"\n")
        });
        let error = Manifest::parse((GOOD.to_owned() + &many.collect::<String>()).as_bytes()).unwrap_err();
        assert!(error.to_string().contains("19 entries, at most 16"), "{error}");
    }
}
