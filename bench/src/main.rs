//! `make bench`: ratios, each between two things measured in turn in one run.

mod commands;
mod generate;
mod modules;

use std::io::BufWriter;
use std::path::PathBuf;

/// One ratio.
pub struct Row {
    pub name: String,
    pub ratio: f64,
    /// What was divided.
    pub detail: String,
}

impl Row {
    fn new(name: String, ratio: f64, detail: String) -> Self {
        Self { name, ratio, detail }
    }
}

pub fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut trace, mut json, mut packets, mut rounds) = (None, None, 1_000_000, 9);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--trace" => trace = args.next().map(PathBuf::from),
            "--json" => json = args.next().map(PathBuf::from),
            "--quick" => (packets, rounds) = (20_000, 3),
            other => return Err(format!("{other}: expected --trace FILE, --json FILE or --quick").into()),
        }
    }
    let flame = PathBuf::from(std::env::var_os("FLAME").ok_or("set FLAME to the command (make bench does)")?);
    let folder =
        PathBuf::from(std::env::var_os("FLAME_MODULES").ok_or("set FLAME_MODULES (make bench does)")?);
    let scratch = tempfile::tempdir()?;
    let trace = match trace {
        Some(trace) => trace,
        None => {
            let path = scratch.path().join("generated.pcap");
            let mut file = BufWriter::new(std::fs::File::create(&path)?);
            generate::trace(&mut file, 1, packets)?;
            path
        }
    };
    let engine = flame_run::engine::engine()?;
    let mut rows = modules::rows(&engine, &trace, &folder, rounds * 5)?;
    rows.extend(commands::rows(&flame, &trace, rounds));
    for row in &rows {
        println!("{:44} {:6.2}  {}", row.name, row.ratio, row.detail);
    }
    if let Some(path) = json {
        let rows: Vec<_> = rows
            .iter()
            .map(|r| serde_json::json!({ "name": r.name, "ratio": r.ratio, "detail": r.detail }))
            .collect();
        std::fs::write(path, serde_json::to_vec_pretty(&rows)?)?;
    }
    Ok(())
}
