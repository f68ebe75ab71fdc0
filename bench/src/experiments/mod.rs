//! `make experiments`: figures of the papers on which FLAME builds, measured on this machine. Each prints a
//! table, and draws a plot.

mod active;
mod applications;
mod buffering;
mod calls;
mod classes;
mod estimates;
pub mod finding;
mod flood;
mod forwarding;
mod hashing;
mod heaps;
mod instructions;
mod latency;
mod links;
mod load;
mod null;
mod payload;
mod protection;
mod repairs;
mod sending;
mod shares;
mod sites;
mod work;

use crate::fixture::{Error, base, instance, plan, run_slot};
use crate::made::spin;
use finding::Finding;
use flame_abi::Descriptor;
use flame_admit::Protection;
use flame_block::Pool;
use flame_plot::{Axis, Format, Picture, Scale, Series, Shape};
use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

/// The conditions of an experiment.
pub struct Setting<'a> {
    pub flame: &'a Path,
    /// The folder with the standard modules.
    pub modules: &'a Path,
    /// The folder for plots and tables.
    pub folder: &'a Path,
    /// Whether to show only that the experiment runs.
    pub quick: bool,
}

type Experiment = fn(&Setting<'_>) -> Result<Vec<Finding>, Error>;

/// The experiments by name. Those that only compute come first.
pub const ALL: [(&str, Experiment); 21] = [
    ("instructions", instructions::run),
    ("latency", latency::run),
    ("links", links::run),
    ("protection", protection::run),
    ("shares", shares::run),
    ("buffering", buffering::run),
    ("heaps", heaps::run),
    ("work", work::run),
    ("load", load::run),
    ("forwarding", forwarding::run),
    ("null", null::run),
    ("payload", payload::run),
    ("applications", applications::run),
    ("estimates", estimates::run),
    ("repairs", repairs::run),
    ("sending", sending::run),
    ("classes", classes::run),
    ("hashing", hashing::run),
    ("active", active::run),
    ("flood", flood::run),
    ("sites", sites::run),
];

/// What an experiment found, or the reason why it was left out.
pub struct Outcome {
    pub name: &'static str,
    pub findings: Result<Vec<Finding>, String>,
    /// The load of the machine as it began.
    pub load: String,
    pub seconds: f64,
}

/// Runs all experiments, or some.
pub fn run(setting: &Setting<'_>, only: Option<&str>) -> Result<Vec<Outcome>, Error> {
    let names = ALL.map(|(name, _)| name);
    let wanted: Vec<&str> = only.map_or_else(|| names.to_vec(), |only| only.split(',').collect());
    if let Some(unknown) = wanted.iter().find(|wanted| !names.contains(wanted)) {
        return Err(format!("--only {unknown}: expected {}", names.join(", ")).into());
    }
    std::fs::create_dir_all(setting.folder)?;
    let mut outcomes = Vec::new();
    for (name, experiment) in ALL.into_iter().filter(|(name, _)| wanted.contains(name)) {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().unwrap_or_default().to_owned();
        let begin = Instant::now();
        let findings = match experiment(setting) {
            // Others may need less of the machine.
            Err(reason) if wanted.len() > 1 => {
                eprintln!("left out: {name}: {reason}");
                Err(reason.to_string())
            }
            findings => Ok(findings?),
        };
        outcomes.push(Outcome { name, findings, load, seconds: begin.elapsed().as_secs_f64() });
    }
    Ok(outcomes)
}

/// A plot: lines or points over two axes.
struct Figure<'a> {
    /// The name of the files.
    name: &'a str,
    title: &'a str,
    notes: Vec<String>,
    x: (&'a str, Scale),
    y: (&'a str, Scale),
    series: Vec<(String, Shape)>,
}

impl Figure<'_> {
    /// Writes the plot, and its numbers beside it.
    fn write(self, folder: &Path) -> Result<(), Error> {
        let mut csv = "series,x,y\n".to_owned();
        for (name, shape) in &self.series {
            if let Shape::Line(points) | Shape::Points(points) = shape {
                points.iter().try_for_each(|(x, y)| writeln!(csv, "{name},{x:.6},{y:.6}"))?;
            }
        }
        std::fs::write(folder.join(format!("{}.csv", self.name)), csv)?;
        let axis = |(label, scale): (&str, Scale)| Axis { label: label.to_owned(), scale };
        let series = |(colour, (name, shape))| Series { name, colour, shape };
        let picture = Picture {
            title: self.title.to_owned(),
            notes: self.notes,
            x: axis(self.x),
            y: axis(self.y),
            series: self.series.into_iter().enumerate().map(series).collect(),
        };
        let path = folder.join(format!("{}.svg", self.name));
        std::fs::write(&path, flame_plot::render(&[picture], Format::Svg)?)?;
        println!("also in {} and {}.csv beside it\n", path.display(), self.name);
        Ok(())
    }
}

/// Returns the nanoseconds that `spin` takes for a packet of this many steps.
fn nanoseconds_of_spin(steps: u32) -> Result<f64, Error> {
    const PACKETS: usize = 256;
    let engine = flame_run::Engines::new()?;
    let plan = plan(&spin("spin", steps)?, Protection::Auto, &[])?;
    let mut pool = Pool::new(1)?;
    let (descriptors, _) = pool.slot(0);
    descriptors[..PACKETS].fill(Descriptor { addr: base(0), ..Descriptor::default() });
    let mut instance = instance(&engine, &plan, &pool)?;
    let mut best = f64::INFINITY;
    for _ in 0..20 {
        let start = Instant::now();
        run_slot(&mut instance, 0, PACKETS, PACKETS)?;
        best = best.min(start.elapsed().as_nanos() as f64 / PACKETS as f64);
    }
    Ok(best)
}
