//! `make bench`: figures, each between two things measured in turn in one run.

mod commands;
mod dispatch;
mod fixture;
mod generate;
mod live;
mod memory;
mod modules;
mod row;
mod views;

use row::Row;
use std::io::BufWriter;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut trace, mut json, mut packets, mut rounds) = (None, None, 3_000_000, 9);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--trace" => trace = args.next().map(PathBuf::from),
            "--json" => json = args.next().map(PathBuf::from),
            "--quick" => (packets, rounds) = (20_000, 3),
            // Not for people: what `live` starts in the namespace it makes.
            "--bare-ring" => return Ok(live::bare(&args.next().unwrap_or_default())?),
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
    let bench = modules::Bench { engine: &engine, trace: &trace, folder: &folder, rounds };
    let mut rows: Vec<Row> = Vec::new();
    let mut print = |some: Vec<Row>| {
        for row in some {
            if rows.last().is_none_or(|last| last.group != row.group) {
                println!("{}", row.group);
            }
            println!("{row}");
            rows.push(row);
        }
    };
    // First, as it measures what the process takes.
    print(memory::rows(&engine, &folder)?);
    print(commands::rows(&flame, &trace, rounds));
    print(bench.rows()?);
    print(dispatch::rows(&engine, rounds)?);
    print(views::rows(&trace, rounds)?);
    print(live::rows(&flame, rounds));
    if let Some(path) = json {
        let rows: Vec<_> = rows.iter().map(Row::json).collect();
        std::fs::write(path, serde_json::to_vec_pretty(&rows)?)?;
    }
    Ok(())
}
