//! Pictures of records. The charts for tables are in [`chart`], one file each; manifests declare most of
//! them.
//!
//! ```text
//! RecordBatch or JSON → Plotter (columns that a chart needs) → chart → Picture → svg, png or term
//! ```
//!
//! A [`Picture`] describes the content in the units of its axes; `canvas` and `term` compute the layout.
//! The same records give the same bytes everywhere: the only font is included here, and nothing depends on
//! the machine.
//!
//! Memory: at most [`ROWS`] rows of each table are kept, with 8 bytes per number, 4 per text, and each
//! distinct text once. A picture states whether there were more rows.
#![forbid(unsafe_code)]

mod axis;
mod canvas;
pub mod chart;
mod frame;
mod picture;
mod term;

pub use chart::Chart;
pub use frame::{Frame, Values};
pub use picture::{Axis, Picture, Scale, Series, Shape};

use arrow_array::RecordBatch;
use chart::Declared;
use flame_abi::manifest::Manifest;
use std::io::BufRead;

/// Maximum number of rows of one table that are kept.
pub const ROWS: usize = 1_000_000;

#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    #[error("{0:?} is no picture: expected a name that ends in .svg or .png, or term")]
    Target(String),
    #[error(
        "nothing to draw from {given}: no module declares a plot ([[plot]] in module.toml), and none has a chart of its own"
    )]
    NoChart { given: String },
    #[error("there is no plot {name:?}; there are {known}")]
    NoPlot { name: String, known: String },
    #[error("{place}: {reason}")]
    Record { place: String, reason: String },
    #[error("drawing failed: {0} (a bug: please report it)")]
    Backend(String),
}

/// The file format of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Svg,
    Png,
}

impl Format {
    /// Returns the format by the extension of a file's name.
    ///
    /// # Errors
    ///
    /// Returns an error if the name ends neither in `.svg` nor in `.png`.
    pub fn of(path: &std::path::Path) -> Result<Self, PlotError> {
        match path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase).as_deref() {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            _ => Err(PlotError::Target(path.display().to_string())),
        }
    }
}

/// A chart with the data collected for it, of this run and of those drawn next to it.
struct Plot {
    /// The module's name in the plan.
    module: String,
    chart: Source,
    runs: Vec<Run>,
}

/// The origin of a chart.
enum Source {
    Fixed(&'static Chart),
    /// A manifest declares it.
    Declared(Box<Declared>),
}

impl Source {
    fn name(&self) -> &str {
        match self {
            Self::Fixed(chart) => chart.name,
            Self::Declared(declared) => &declared.plot.name,
        }
    }

    /// Returns the names of its tables.
    fn tables(&self) -> Vec<&str> {
        match self {
            Self::Fixed(chart) => chart.tables.iter().map(|table| table.name).collect(),
            Self::Declared(declared) => {
                let values = declared.plot.values().map(|(table, _)| table);
                [declared.plot.table.as_str()].into_iter().chain(values).collect()
            }
        }
    }

    fn index(&self, table: &str) -> Option<usize> {
        self.tables().iter().position(|name| *name == table)
    }

    fn run(&self, label: &str) -> Run {
        let frames = match self {
            Self::Fixed(chart) => {
                chart.tables.iter().map(|table| Frame::new(table.columns.iter().copied())).collect()
            }
            Self::Declared(declared) => {
                let values = declared.plot.values().map(|(_, column)| Frame::new([column]));
                let drawn = Frame::new(declared.columns().iter().map(String::as_str));
                [drawn].into_iter().chain(values).collect()
            }
        };
        Run { label: label.to_owned(), frames }
    }

    fn hint(&self) -> &str {
        match self {
            Self::Fixed(chart) => chart.hint,
            Self::Declared(declared) => declared.plot.hint.as_deref().unwrap_or_default(),
        }
    }

    fn draw(&self, runs: &[Run]) -> Option<Picture> {
        match self {
            Self::Fixed(chart) => (chart.draw)(runs),
            Self::Declared(declared) => declared.draw(runs),
        }
    }
}

/// The tables of one run, in the order of the chart.
#[derive(Debug, Default)]
pub struct Run {
    pub label: String,
    pub frames: Vec<Frame>,
}

/// A collector of the data that charts need. The default collects nothing.
#[derive(Default)]
pub struct Plotter {
    plots: Vec<Plot>,
}

impl Plotter {
    /// Creates a plotter for modules: their names in a plan, as `rtt`, or `rtt#2` for the second of that
    /// name, and their manifests, which declare plots.
    ///
    /// # Errors
    ///
    /// Returns an error if there is nothing to draw from these modules.
    pub fn new<'a>(
        modules: impl IntoIterator<Item = (&'a str, Option<&'a Manifest>)>,
    ) -> Result<Self, PlotError> {
        let (mut plots, mut given) = (Vec::new(), Vec::new());
        for (module, manifest) in modules {
            let bare = module.split('#').next().unwrap_or(module);
            let declared = manifest.into_iter().flat_map(Declared::all).map(Box::new).map(Source::Declared);
            let fixed = chart::ALL.iter().filter(|c| c.module == bare).map(Source::Fixed);
            plots.extend(declared.chain(fixed).map(|chart| {
                let runs = vec![chart.run("")];
                Plot { module: module.to_owned(), chart, runs }
            }));
            given.push(module);
        }
        match plots.is_empty() {
            true => Err(PlotError::NoChart { given: given.join(", ") }),
            false => Ok(Self { plots }),
        }
    }

    /// Keeps only the plots of this name.
    ///
    /// # Errors
    ///
    /// Returns an error if no plot has this name.
    pub fn only(mut self, name: &str) -> Result<Self, PlotError> {
        let known: Vec<_> = self.plots.iter().map(|p| p.chart.name().to_owned()).collect();
        self.plots.retain(|p| p.chart.name() == name);
        match self.plots.is_empty() {
            true => Err(PlotError::NoPlot { name: name.to_owned(), known: known.join(", ") }),
            false => Ok(self),
        }
    }

    /// Adds records of any table. Those that no chart needs are ignored.
    ///
    /// # Errors
    ///
    /// Returns an error if a column that a chart needs is missing or has an unexpected type.
    pub fn take(&mut self, module: &str, table: &str, batch: &RecordBatch) -> Result<(), PlotError> {
        for plot in self.plots.iter_mut().filter(|p| p.module == module) {
            if let (Some(at), Some(run)) = (plot.chart.index(table), plot.runs.first_mut()) {
                let place = || format!("{module}.{table}");
                run.frames[at]
                    .batch(&flame_record::readable(batch))
                    .map_err(|reason| PlotError::Record { place: place(), reason })?;
            }
        }
        Ok(())
    }

    /// Adds the records of an earlier run, in JSON lines as written by `--format json`, to be drawn next to
    /// this run.
    ///
    /// # Errors
    ///
    /// Returns an error with the line if a record cannot be read, is no object of JSON, or has no valid value
    /// in a column that a chart needs.
    pub fn beside(&mut self, label: &str, records: impl BufRead) -> Result<(), PlotError> {
        for plot in &mut self.plots {
            let run = plot.chart.run(label);
            plot.runs.push(run);
        }
        let mut line = String::new();
        let mut records = records;
        for number in 1.. {
            let wrong = |reason: String| PlotError::Record { place: format!("{label}:{number}"), reason };
            line.clear();
            if records.read_line(&mut line).map_err(|e| wrong(e.to_string()))? == 0 {
                break;
            }
            if line.trim().is_empty() {
                continue;
            }
            let record: serde_json::Map<_, _> =
                serde_json::from_str(&line).map_err(|e| wrong(e.to_string()))?;
            let word = |key| record.get(key).and_then(serde_json::Value::as_str).unwrap_or("");
            for plot in self.plots.iter_mut().filter(|p| p.module == word("module")) {
                if let (Some(at), Some(run)) = (plot.chart.index(word("table")), plot.runs.last_mut()) {
                    run.frames[at].record(&record).map_err(wrong)?;
                }
            }
        }
        Ok(())
    }

    /// Sets the label of the run itself, if another is drawn next to it.
    pub fn label(&mut self, label: &str) {
        self.plots.iter_mut().filter_map(|p| p.runs.first_mut()).for_each(|r| r.label = label.to_owned());
    }

    /// Returns a picture for each chart that has records, and descriptions of the records that the others
    /// lack.
    pub fn pictures(mut self) -> (Vec<Picture>, Vec<String>) {
        let (mut pictures, mut missing) = (Vec::new(), Vec::new());
        for plot in &mut self.plots {
            plot.runs.retain(|run| run.frames.first().is_some_and(|f| f.rows > 0));
            // Values of which only statistics are taken are not in the picture.
            let drawn = match plot.chart {
                Source::Fixed(chart) => chart.tables.len(),
                Source::Declared(_) => 1,
            };
            let frames = plot.runs.iter().flat_map(|r| r.frames.iter().take(drawn));
            let dropped: u64 = frames.map(|f| f.dropped).sum();
            let drawn = if plot.runs.is_empty() { None } else { plot.chart.draw(&plot.runs) };
            let Some(mut picture) = drawn else {
                let hint = if plot.chart.hint().is_empty() { "" } else { ": " };
                let table = plot.chart.tables().first().copied().unwrap_or_default();
                missing.push(format!("{}.{table} has no records{hint}{}", plot.module, plot.chart.hint()));
                continue;
            };
            if dropped > 0 {
                picture
                    .notes
                    .push(format!("the first {ROWS} records; {dropped} more are not in the picture"));
            }
            pictures.push(picture);
        }
        (pictures, missing)
    }
}

/// Maximum number of pictures in one file.
pub const MOST_PICTURES: usize = 16;

/// Returns the bytes of a file with the pictures, at most [`MOST_PICTURES`], one below the other.
///
/// # Errors
///
/// Returns an error if the pictures cannot be drawn, a defect of this crate or of the library that draws.
pub fn render(pictures: &[Picture], format: Format) -> Result<Vec<u8>, PlotError> {
    match format {
        Format::Svg => canvas::svg(pictures).map(String::into_bytes),
        Format::Png => canvas::png(pictures),
    }
}

/// Returns the pictures as text for a terminal of `columns` characters, with or without colours.
pub fn text(pictures: &[Picture], columns: usize, colours: bool) -> String {
    pictures.iter().map(|p| term::text(p, columns, colours)).collect()
}
