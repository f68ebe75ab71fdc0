use crate::console::{say, say_json};
use crate::error::Error;
use crate::exit::Status;
use crate::format::OutputFormat;
use crate::paths;
use crate::plot::Target;
use clap::Args;
use flame_bounds::Class;
use flame_calibrate::{Calibration, file_name, load_or_measure};
use flame_plan::ModuleClass;
use flame_plot::Plotter;
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::path::Path;

/// Measure the cost of instructions and memory on this machine
///
/// Costs are those of compiled code, as modules run here: the minimum of several repetitions. A measurement
/// takes a few seconds. Its result is kept in the cache folder for this processor and engine, and reused.
#[derive(Args)]
pub struct Calibrate {
    /// Measure again, even if a result is cached
    #[arg(long)]
    again: bool,

    /// Draw memory latency by working set: FILE.svg, FILE.png, or term for the terminal
    #[arg(long, value_name = "TARGET", value_parser = Target::parse)]
    plot: Option<Target>,

    /// Format of the output
    #[arg(short, long, default_value = "table")]
    format: OutputFormat,
}

impl Calibrate {
    pub fn run(self) -> Result<Status, Error> {
        if matches!((&self.plot, self.format), (Some(Target::Terminal), OutputFormat::Json)) {
            return Err("--plot term with --format json: both write to standard output; name a FILE".into());
        }
        let engines = flame_compile::Engines::new()?;
        let engine = engines.of(ModuleClass::Bounded);
        let folder = paths::cache();
        let (calibration, cached) = load_or_measure(engine, &folder, self.again, &mut progress)?;
        progress("");
        let path = folder.join(file_name(&calibration.cpu));
        match self.format {
            OutputFormat::Json => say_json!({"calibration": calibration, "file": path, "cached": cached}),
            OutputFormat::Table => table(&calibration, &path, cached),
        }
        if let Some(target) = &self.plot {
            target.draw(kept(&calibration)?)?;
        }
        Ok(Status::Done)
    }
}

/// Shows one line on a terminal, which the next one overwrites.
fn progress(what: &str) {
    let mut out = std::io::stderr();
    if out.is_terminal() {
        let what = if what.is_empty() { String::new() } else { format!("measuring {what}") };
        // Progress is for people only: errors are ignored.
        let _ = write!(out, "\r\x1b[K{what}").and_then(|()| out.flush());
    }
}

fn table(calibration: &Calibration, path: &Path, cached: bool) {
    let state = if cached { "measured before; --again measures anew" } else { "measured now" };
    say!("{}, {}", calibration.cpu, calibration.engine);
    say!("{} ({state})\n", path.display());
    say!("{:<16}{:>12}{:>14}", "instruction", "dependent", "independent");
    for class in Class::ALL {
        let chain = calibration.class(class);
        say!("{:<16}{:>12}{:>14}", class.name(), ns(chain.dependent_ps), ns(chain.independent_ps));
    }
    say!("\n{:<16}{:>12}", "working set", "load");
    for point in &calibration.latency {
        say!("{:<16}{:>12}", size(point.bytes), ns(point.picoseconds));
    }
    say!("\n{:<16}{:>12}", "call of host", ns(calibration.host_call_ps));
    say!("{:<16}{:>12}", "call by host", ns(calibration.dispatch_ps));
}

fn ns(ps: u64) -> String {
    format!("{:.3} ns", ps as f64 / 1e3)
}

fn size(bytes: u64) -> String {
    let (n, unit) = match bytes {
        b if b % (1 << 20) == 0 => (b >> 20, "MiB"),
        b if b % (1 << 10) == 0 => (b >> 10, "KiB"),
        b => (b, "bytes"),
    };
    format!("{n} {unit}")
}

/// Returns the latency curve as records, from which pictures are drawn.
fn kept(calibration: &Calibration) -> Result<Plotter, Error> {
    let record = |l: &flame_calibrate::Latency| json!({"module": "calibrate", "table": "latency", "bytes": l.bytes, "picoseconds": l.picoseconds});
    let lines: String = calibration.latency.iter().map(|l| format!("{}\n", record(l))).collect();
    let mut plotter = Plotter::new([("calibrate", None)])?;
    plotter.beside(&calibration.cpu, lines.as_bytes())?;
    Ok(plotter)
}
