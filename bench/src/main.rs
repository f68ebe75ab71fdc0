//! `make bench`: figures, each of which compares two things that are measured alternately in one run. With
//! `--experiments`, `make experiments`: figures of the papers.

mod apart;
mod backstop;
mod bounds;
mod click;
mod commands;
mod dispatch;
mod elements;
mod experiments;
mod fixture;
mod generate;
mod graph;
mod install;
mod live;
mod lossfree;
mod made;
mod many;
mod mapped;
mod memory;
mod modules;
mod net;
mod node;
mod overload;
mod paper;
mod ring;
mod row;
mod rules;
mod send;
mod sharing;
mod sinks;
mod threads;
mod trust;
mod views;
mod workers;

use row::Row;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The rounds of a run that only shows that everything runs.
const QUICK: usize = 1;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut trace, mut json, mut only, mut except) = (None, None, None, None);
    let (mut experiments, mut paper) = (None, None);
    let (mut packets, mut rounds) = (2_000_000, 9);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--trace" => trace = args.next().map(PathBuf::from),
            "--json" => json = args.next().map(PathBuf::from),
            "--quick" => (packets, rounds) = (20_000, QUICK),
            "--only" => only = args.next(),
            "--except" => except = args.next(),
            "--experiments" => experiments = args.next().map(PathBuf::from),
            "--paper" => paper = args.next().map(PathBuf::from),
            // Internal: the commands that `click` and `live` start in the namespaces they make.
            "--bare-bridge" => {
                let mut name = || args.next().unwrap_or_default();
                return Ok(click::bare(&name(), &name())?);
            }
            "--bare-ring" => return Ok(live::bare(&args.next().unwrap_or_default())?),
            "--decoding-ring" => return Ok(live::decoding(&args.next().unwrap_or_default())?),
            "--send" => {
                let mut word = || args.next().unwrap_or_default();
                return Ok(send::send(&word(), word().parse()?, word().parse()?, word().parse()?)?);
            }
            "--native" => {
                let mut word = || args.next().unwrap_or_default();
                let (name, trace, parameters, calls) = (word(), word(), word(), word());
                let parameters = std::fs::read(parameters)?;
                return modules::run_native(&name, Path::new(&trace), &parameters, calls == "true");
            }
            "--libpcap" => {
                let mut word = || args.next().unwrap_or_default();
                return lossfree::libpcap(&word(), word().parse()?);
            }
            other => {
                return Err(format!(
                    "{other}: expected --trace FILE, --json FILE, --only GROUPS, --except GROUPS, --quick, \
                     --experiments FOLDER or --paper FOLDER"
                )
                .into());
            }
        }
    }
    let flame = PathBuf::from(std::env::var_os("FLAME").ok_or("set FLAME to the command (make bench does)")?);
    let modules =
        PathBuf::from(std::env::var_os("FLAME_MODULES").ok_or("set FLAME_MODULES (make bench does)")?);
    let compiled = tempfile::tempdir()?;
    fixture::COMPILED.get_or_init(|| compiled.path().join("compiled"));
    if let Some(folder) = paper.as_ref().or(experiments.as_ref()) {
        let quick = rounds == QUICK;
        let setting = experiments::Setting { flame: &flame, modules: &modules, folder, quick };
        let outcomes = experiments::run(&setting, only.as_deref())?;
        return match paper.is_some() {
            true => paper::write(&setting, &outcomes),
            false => Ok(()),
        };
    }
    let folder = modules;
    let generated = if trace.is_some() { None } else { Some(generated(packets)?) };
    let trace = trace.or(generated.as_ref().map(|(_, path)| path.clone())).ok_or("no trace")?;
    let engine = flame_run::Engines::new()?;
    let bench = modules::Bench { engine: &engine, trace: &trace, folder: &folder, rounds };
    let mut rows: Vec<Row> = Vec::new();
    println!("{}", row::heading());
    let mut print = |some: Vec<Row>| {
        for row in some {
            if rows.last().is_none_or(|last| last.group != row.group) {
                println!("{}", row.group);
            }
            println!("{row}");
            rows.push(row);
        }
    };
    type Group<'a> = (&'a str, &'a dyn Fn() -> Result<Vec<Row>, Box<dyn std::error::Error>>);
    let groups: [Group<'_>; 21] = [
        // This group is first, because it measures the memory of the process.
        ("memory", &|| memory::rows(&engine, &folder)),
        ("commands", &|| Ok(commands::rows(&flame, &trace, rounds))),
        ("modules", &|| bench.rows()),
        ("bounds", &|| bounds::rows(&engine, &trace, &folder, rounds)),
        ("backstop", &|| backstop::rows(&engine, &trace, &folder, rounds)),
        ("sharing", &|| sharing::rows(&flame, &trace, rounds)),
        ("rules", &|| rules::rows(&engine, &folder, rounds)),
        ("dispatch", &|| dispatch::rows(&engine, rounds)),
        ("views", &|| views::rows(&trace, rounds)),
        ("sinks", &|| sinks::rows(rounds, rounds == QUICK)),
        ("trust", &|| trust::rows(&flame, &trace, &folder, rounds)),
        ("live", &|| Ok(live::rows(&flame, rounds))),
        ("loss-free", &|| Ok(lossfree::rows(&flame, rounds))),
        ("workers", &|| Ok(workers::rows(&flame, &trace, rounds)?)),
        ("processes", &|| apart::rows(&flame, &trace, rounds)),
        ("sessions", &|| many::rows(&flame, &folder, rounds)),
        ("install", &|| install::rows(&flame, rounds)),
        ("overload", &|| Ok(overload::rows(&flame, rounds))),
        ("click", &|| Ok(click::rows(&flame, rounds))),
        ("elements", &|| Ok(elements::rows(&flame, &folder, rounds)?)),
        ("threads", &|| Ok(threads::rows(&flame, rounds)?)),
    ];
    let list = |names: Option<String>| names.map(|n| n.split(',').map(str::to_owned).collect::<Vec<_>>());
    let (only, except) = (list(only), list(except).unwrap_or_default());
    let is_known = |asked: &&String| groups.iter().any(|(name, _)| name == asked);
    if let Some(unknown) = only.iter().flatten().chain(&except).find(|asked| !is_known(asked)) {
        let names = groups.map(|(name, _)| name);
        return Err(format!("no group {unknown}: expected {}", names.join(", ")).into());
    }
    for (name, rows) in groups {
        let is_in = |list: &[String]| list.iter().any(|asked| asked == name);
        if only.as_deref().is_none_or(is_in) && !is_in(&except) {
            print(rows()?);
        }
    }
    if let Some(path) = json {
        let rows: Vec<_> = rows.iter().map(Row::json).collect();
        std::fs::write(path, serde_json::to_vec_pretty(&rows)?)?;
    }
    Ok(())
}

/// Generates a trace in a folder that is removed when it is dropped. The folder is in memory if there is
/// room, so that no disk is measured.
fn generated(packets: u64) -> std::io::Result<(tempfile::TempDir, PathBuf)> {
    let shared = Path::new("/dev/shm");
    // Programs take their memory from the same pool. 800 bytes are more than the average packet.
    if free_memory() > 2 * 800 * packets && shared.is_dir() {
        // In a container, the file system can be far smaller than memory.
        match generate_in(tempfile::tempdir_in(shared), packets) {
            Ok(done) => return Ok(done),
            Err(e) => eprintln!("not in {}: {e}", shared.display()),
        }
    }
    generate_in(tempfile::tempdir(), packets)
}

fn generate_in(
    folder: std::io::Result<tempfile::TempDir>,
    packets: u64,
) -> std::io::Result<(tempfile::TempDir, PathBuf)> {
    let folder = folder?;
    let path = folder.path().join("generated.pcap");
    let (start, mut file) = (Instant::now(), BufWriter::new(std::fs::File::create(&path)?));
    generate::trace(&mut file, 1, packets)?;
    file.flush()?;
    let mean = (path.metadata()?.len() - 24) / packets - 16;
    let took = start.elapsed().as_secs_f64();
    eprintln!("generated {packets} packets of {mean} bytes on average in {took:.1} s: {}", path.display());
    Ok((folder, path))
}

/// Returns the bytes of memory that are available to programs.
fn free_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}
