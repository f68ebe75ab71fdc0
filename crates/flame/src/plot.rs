//! `--plot`: keeps the data that pictures need from records on their way to the sink, and draws them after a
//! successful end.

use crate::console::complain;
use crate::error::Error;
use flame_abi::manifest::Manifest;
use flame_base::lock;
use flame_plot::{Format, Picture, PlotError, Plotter};
use flame_record::Sink;
use std::fs::File;
use std::io::{BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The destination of a picture: `term`, or a file with its format by extension.
#[derive(Clone)]
pub enum Target {
    Terminal,
    File(PathBuf, Format),
}

impl Target {
    pub fn parse(text: &str) -> Result<Self, PlotError> {
        if text == "term" {
            return Ok(Self::Terminal);
        }
        let path = PathBuf::from(text);
        Format::of(&path).map(|format| Self::File(path, format))
    }
}

/// The value of `--plot`: a target, with or without the name of a plot.
#[derive(Clone)]
pub struct PlotArg {
    /// The plot to draw; all without one.
    pub only: Option<String>,
    pub target: Target,
}

impl PlotArg {
    /// Parses `TARGET`, `NAME=TARGET`, or `NAME` for the terminal.
    pub fn parse(text: &str) -> Result<Self, PlotError> {
        let is_name = |text: &str| {
            let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
            !text.is_empty() && text.bytes().all(plain)
        };
        match text.split_once('=') {
            Some((name, target)) if is_name(name) => {
                Ok(Self { only: Some(name.to_owned()), target: Target::parse(target)? })
            }
            None if text != "term" && is_name(text) => {
                Ok(Self { only: Some(text.to_owned()), target: Target::Terminal })
            }
            _ => Target::parse(text).map(Self::from),
        }
    }
}

impl From<Target> for PlotArg {
    fn from(target: Target) -> Self {
        Self { only: None, target }
    }
}

/// A picture that is being collected.
#[derive(Clone)]
pub struct Plot {
    plotter: Arc<Mutex<Plotter>>,
    target: Target,
}

impl Plot {
    /// Creates a plot of these modules, next to the records in file `beside` from an earlier run.
    pub fn new<'a>(
        plot: &PlotArg,
        modules: impl IntoIterator<Item = (&'a str, Option<&'a Manifest>)>,
        beside: Option<&Path>,
    ) -> Result<Self, Error> {
        let PlotArg { only, target } = plot;
        let all = Plotter::new(modules).and_then(|all| match only {
            Some(name) => all.only(name),
            None => Ok(all),
        });
        let mut plotter = all.map_err(|e| format!("--plot: {e}"))?;
        if let Some(path) = beside {
            let file = File::open(path).map_err(|e| format!("--compare {}: {e}", path.display()))?;
            let label = path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
            plotter.label("this run");
            plotter.beside(&label, BufReader::new(file)).map_err(|e| format!("--compare {e}"))?;
        }
        Ok(Self { plotter: Arc::new(Mutex::new(plotter)), target: target.clone() })
    }

    /// Returns a sink that passes records to `records` and keeps what the plot needs.
    pub fn tee(&self, records: Box<dyn Sink>) -> Box<dyn Sink> {
        let (plotter, mut failed) = (self.plotter.clone(), false);
        flame_record::each(records, move |module, table, batch| {
            if !failed {
                let mut plotter = lock(&plotter);
                if let Err(e) = plotter.take(module, &table.name, batch) {
                    // A module of that name has other tables. The records themselves are unaffected.
                    complain!("flame: warning: --plot: {e}");
                    failed = true;
                }
            }
            true
        })
    }

    /// Draws the collected records, and reports on standard error what could not be drawn.
    pub fn draw(self) -> Result<(), Error> {
        let empty = Plotter::default();
        let plotter = std::mem::replace(&mut *lock(&self.plotter), empty);
        self.target.draw(plotter)
    }
}

impl Target {
    /// Draws the pictures of `plotter`, and reports on standard error what could not be drawn.
    pub fn draw(&self, plotter: Plotter) -> Result<(), Error> {
        let (pictures, missing) = plotter.pictures();
        for reason in &missing {
            complain!("flame: warning: --plot: {reason}");
        }
        self.draw_all(&pictures)
    }

    /// Draws pictures; without any, nothing is written.
    pub fn draw_all(&self, pictures: &[Picture]) -> Result<(), Error> {
        if pictures.is_empty() {
            return Ok(());
        }
        match self {
            Self::Terminal => {
                let mut out = std::io::stdout().lock();
                let columns = if out.is_terminal() { terminal_width() } else { 100 };
                let text = flame_plot::text(pictures, columns, out.is_terminal());
                match out.write_all(text.as_bytes()) {
                    Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
                    written => Ok(written?),
                }
            }
            Self::File(path, format) => {
                let more = pictures.len().saturating_sub(flame_plot::MOST_PICTURES);
                if more > 0 {
                    complain!(
                        "flame: warning: --plot {}: {more} pictures more than fit: choose with NAME=FILE",
                        path.display()
                    );
                }
                let bytes = flame_plot::render(pictures, *format)?;
                put(path, &bytes).map_err(|e| format!("--plot {}: {e}", path.display()).into())
            }
        }
    }
}

/// Writes a file atomically: after an error, the old file is unchanged.
fn put(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = flame_files::Staged::new(path)?;
    file.write_all(bytes).and_then(|()| file.finish())
}

fn terminal_width() -> usize {
    terminal_size::terminal_size().map_or(100, |(width, _)| width.0.into())
}
