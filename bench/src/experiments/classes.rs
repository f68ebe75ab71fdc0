//! The classes of cost of the standard modules, by `flame check`, and of the native elements, as `flame click
//! help` states them: the experiment of the Table A.1 of Patel's thesis. A module has the class of its calls
//! with packets.

use super::finding::Finding;
use super::{Figure, Setting};
use crate::fixture::Error;
use flame_plot::{Scale, Shape};
use serde_json::Value;
use std::process::Command;

const CLASSES: [&str; 7] = ["E1", "E2", "E3", "E4", "E5", "E6", "E7"];

/// The elements of Click 1.2.1 in each class (Patel, Table A.1).
const OF_CLICK: [usize; 7] = [114, 33, 15, 37, 4, 8, 23];

/// Returns the number of native elements in each class.
fn native(setting: &Setting<'_>) -> Result<[usize; 7], Error> {
    let help = |name: &str| -> Result<String, Error> {
        let out = Command::new(setting.flame).args(["click", "help", name]).output()?;
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let (list, mut counts) = (help("list")?, [0; 7]);
    for name in list.lines().take(if setting.quick { 5 } else { usize::MAX }) {
        let said = help(name)?;
        let class =
            said.lines().find_map(|line| line.starts_with("ports ").then(|| line.rsplit("cost ").next())?);
        let class = class.ok_or_else(|| format!("{name}: no class in {said}"))?;
        // That of `Module` is the module's.
        if let Some(at) = CLASSES.iter().position(|of| *of == class) {
            counts[at] += 1;
        }
    }
    Ok(counts)
}

/// Finds the classes.
pub fn run(setting: &Setting<'_>) -> Result<Vec<Finding>, Error> {
    let modules = std::fs::read_dir(setting.modules)?.map(|entry| Ok(entry?.path()));
    let mut modules = modules.collect::<Result<Vec<_>, std::io::Error>>()?;
    modules.retain(|path| path.extension().is_some_and(|end| end == "wasm"));
    modules.sort();
    let modules = if setting.quick { &modules[..modules.len().min(2)] } else { &modules[..] };
    println!("classes: of the calls with packets (Patel, Table A.1)");
    println!("{:12}  class", "module");
    let (mut names, mut points) = (Vec::new(), Vec::new());
    for path in modules {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let out = Command::new(setting.flame).args(["check", "--format", "json"]).arg(path).output()?;
        let said = String::from_utf8_lossy(&out.stdout);
        let entries = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut of_packets =
            entries.filter(|entry| entry["entry"] == "flame_batch" || entry["entry"] == "flame_push");
        let class = of_packets.find_map(|entry| entry["class"].as_str().map(str::to_owned));
        let class = class.ok_or_else(|| format!("{name}: no class in {said}"))?;
        println!("{name:12}  {class}");
        let at = CLASSES.iter().position(|of| *of == class).unwrap_or(0);
        points.push(((at + 1) as f64, names.len() as f64 + 0.5));
        names.push(name);
    }
    let (ours, all) = (native(setting)?, OF_CLICK.iter().sum::<usize>());
    let count = ours.iter().sum::<usize>().max(1);
    println!("{:12}  {:>12}  {:>15}", "class", "our elements", "Click 1.2.1 (P)");
    for (class, (ours, of_click)) in CLASSES.iter().zip(ours.iter().zip(OF_CLICK)) {
        let part = |n: usize, all: usize| format!("{n} ({:.0} %)", 100.0 * n as f64 / all as f64);
        println!("{class:12}  {:>12}  {:>15}", part(*ours, count), part(of_click, all));
    }
    Figure {
        name: "classes",
        title: "Classes of cost of the standard modules",
        notes: vec!["E1: constant, E7: no bound; docs/bounds.md has the others".to_owned()],
        x: ("class E", Scale::FromZero),
        y: ("", Scale::Rows(names)),
        series: vec![(String::new(), Shape::Points(points))],
    }
    .write(setting.folder)?;
    let bounded = |of: [usize; 7]| 100.0 * (1.0 - of[6] as f64 / of.iter().sum::<usize>() as f64);
    let what = "elements whose cost has a bound";
    Ok(vec![Finding::more("Patel Table A.1", what, "%", bounded(OF_CLICK), bounded(ours))])
}
