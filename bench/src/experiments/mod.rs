//! `make experiments`: figures of the papers on which FLAME builds, measured on this machine. Each prints a
//! table, and draws a plot.

mod active;
mod applications;
mod buffering;
mod calls;
mod classes;
mod estimates;
mod forwarding;
mod heaps;
mod load;
mod null;
mod payload;
mod repairs;
mod sending;
mod shares;
mod work;

use crate::fixture::{Error, base, instance, plan, run_slot};
use crate::made::spin;
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

type Experiment = fn(&Setting<'_>) -> Result<(), Error>;

const ALL: [(&str, Experiment); 14] = [
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
    ("active", active::run),
];

/// Runs all experiments, or one of them.
pub fn run(setting: &Setting<'_>, only: Option<&str>) -> Result<(), Error> {
    let names = ALL.map(|(name, _)| name);
    if let Some(unknown) = only.filter(|only| !names.contains(only)) {
        return Err(format!("--only {unknown}: expected {}", names.join(", ")).into());
    }
    std::fs::create_dir_all(setting.folder)?;
    for (name, experiment) in ALL.into_iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        // Others may need less of the machine.
        if let Err(reason) = experiment(setting) {
            match only {
                Some(_) => return Err(reason),
                None => eprintln!("left out: {name}: {reason}"),
            }
        }
    }
    Ok(())
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
