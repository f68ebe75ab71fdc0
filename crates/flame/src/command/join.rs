use crate::error::Error;
use crate::exit::Status;
use crate::format::FormatArg;
use crate::plot::{Plot, Target};
use crate::table_args::TableArgs;
use clap::Args;
use flame_abi::manifest::{Manifest, duration_ns};
use flame_join::{CellRow, DelayRow, FlowRow, Joined, Options, PathRow};
use flame_plan::{Catalog, CatalogEntry};
use flame_record::{Rows, Sink, SinkError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Join the records of `trajectory` from several monitors: paths, one-way delay, loss
///
/// Each FILE holds one monitor's records: JSON lines as `--format json` writes them (- is standard input), or
/// the folder that `--format parquet -o FOLDER` makes. A packet's path is the list of monitors that logged
/// it, in order of time, so their clocks must agree better than the delays. A packet is lost if it was seen
/// only on the first part of its flow's path.
#[derive(Args)]
pub struct Join {
    /// The monitors' records: FILE, or NAME=FILE to name the monitor, by default after the file
    #[arg(required = true, num_args = 2..)]
    files: Vec<String>,

    /// Time to wait for a packet at the other monitors
    #[arg(long, value_name = "TIME", default_value = "10s")]
    window: String,

    /// Length of the intervals of the table `delay`
    #[arg(long, value_name = "TIME", default_value = "1s")]
    interval: String,

    /// Maximum number of flows with their own rows
    #[arg(long, value_name = "FLOWS", default_value_t = 1_000_000)]
    max_flows: usize,

    /// Maximum number of packets waited for at a time; beyond it the oldest are given up and counted
    #[arg(long, value_name = "PACKETS", default_value_t = 1_000_000)]
    max_waiting: usize,

    /// Format of the result [default: by the extension of -o, or else table]
    #[arg(short, long)]
    format: Option<FormatArg>,

    /// Write the result to this file; to a folder, one file per table
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,

    #[command(flatten)]
    table_args: TableArgs,

    /// Draw delay over time: FILE.svg, FILE.png, or term for the terminal
    #[arg(long, value_name = "TARGET", value_parser = Target::parse)]
    plot: Option<Target>,
}

impl Join {
    pub fn run(self) -> Result<Status, Error> {
        let time = |name: &str, text: &str| match duration_ns(text) {
            Ok(ns) if ns > 0 => Ok(ns as u64),
            Ok(_) => Err(format!("--{name} {text}: must be longer than 0")),
            Err(reason) => Err(format!("--{name} {reason}")),
        };
        let options = Options {
            window_ns: time("window", &self.window)?,
            interval_ns: time("interval", &self.interval)?,
            max_flows: self.max_flows,
            max_waiting: self.max_waiting,
        };
        let mut inputs = Vec::new();
        for given in &self.files {
            let (name, path) = match given.split_once('=') {
                Some((name, path)) => (name.to_owned(), path),
                None => (
                    Path::new(given).file_stem().unwrap_or_default().to_string_lossy().into_owned(),
                    given.as_str(),
                ),
            };
            inputs.push((name.clone(), flame_join::open(&name, Path::new(path))?));
        }
        let catalog = catalog()?;
        let mut out = Output::open(&self, &catalog)?;
        let plot =
            self.plot.clone().map(|target| Plot::new(&target.into(), [("join", None)], None)).transpose()?;
        if let Some(plot) = &plot {
            out.sink = plot.tee(out.sink);
        }
        let joined = flame_join::join_with(inputs, options, |row| out.row(DELAY, delay(&row)))?;
        out.all(&joined)?;
        out.sink.finish()?;
        if let Some(plot) = plot {
            plot.draw()?;
        }
        Ok(Status::Done)
    }
}

/// Numbers of the tables, in the order of `join.toml`.
const PATH: u16 = 0;
const FLOW: u16 = 1;
const MATRIX: u16 = 2;
const DELAY: u16 = 3;
const STATE: u16 = 4;

/// The destination of the rows. Delays are written while logs are still being read.
struct Output {
    rows: Rows,
    sink: Box<dyn Sink>,
}

impl Output {
    fn open(command: &Join, catalog: &Catalog) -> Result<Self, SinkError> {
        let output = command.output.as_deref();
        let format = crate::format::of(command.format, output)?;
        let options = command.table_args.apply(flame_record::Options::default(), output);
        if let Some(left_out) = flame_record::left_out(format, output, catalog, &options) {
            crate::command::run::left_out_note(&left_out);
        }
        let sink = flame_record::open(format, output, catalog, &options)?;
        Ok(Self { rows: Rows::new(&catalog.modules[0]), sink })
    }

    fn row(&mut self, table: u16, row: Vec<u8>) -> Result<(), Error> {
        if let Some((table, batch)) = self.rows.push(table, &row) {
            self.sink.write("join", table, &batch)?;
        }
        Ok(())
    }

    fn all(&mut self, joined: &Joined) -> Result<(), Error> {
        joined.paths.iter().try_for_each(|row| self.row(PATH, path(row)))?;
        joined.flows.iter().try_for_each(|row| self.row(FLOW, flow(row)))?;
        joined.matrix.iter().try_for_each(|row| self.row(MATRIX, cell(row)))?;
        let state =
            [joined.logs, joined.ambiguous, joined.alone, joined.crowded, joined.hurried, joined.unwatched];
        self.row(STATE, state.iter().flat_map(|n| n.to_le_bytes()).collect())?;
        for (table, batch) in self.rows.drain() {
            self.sink.write("join", table, &batch)?;
        }
        Ok(())
    }
}

fn catalog() -> Result<Catalog, Error> {
    let manifest = Manifest::parse(include_bytes!("join.toml"))?;
    let entry = CatalogEntry { name: "join".into(), hash: [0; 32], manifest: Arc::new(manifest) };
    Ok(Catalog { modules: vec![entry] })
}

/// A row in the layout of modules' output, which [`Rows`] expects.
#[derive(Default)]
struct Row(Vec<u8>);

impl Row {
    fn text(mut self, text: &str) -> Self {
        let mut end = text.len().min(usize::from(u16::MAX));
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.0.extend((end as u16).to_le_bytes());
        self.0.extend(&text.as_bytes()[..end]);
        self
    }

    fn u64(mut self, n: u64) -> Self {
        self.0.extend(n.to_le_bytes());
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
}

fn path(row: &PathRow) -> Vec<u8> {
    let start = Row::default().text(&row.path).u64(row.packets).u64(row.bytes).u64(row.lost);
    start.u64(row.mean_ns as u64).u64(row.p50_ns).u64(row.p90_ns).u64(row.p99_ns).u64(row.max_ns).0
}

fn flow(row: &FlowRow) -> Vec<u8> {
    let (proto, src, sport, dst, dport) = match &row.flow {
        Some(f) => (f.proto, f.src.as_str(), f.sport, f.dst.as_str(), f.dport),
        None => (0, "", 0, "", 0),
    };
    let start = Row::default().u64(row.id).bytes(&[proto]).text(src).bytes(&sport.to_le_bytes());
    let start = start.text(dst).bytes(&dport.to_le_bytes()).text(&row.path);
    start
        .u64(row.packets)
        .u64(row.bytes)
        .u64(row.lost)
        .u64(row.mean_ns as u64)
        .u64(row.min_ns)
        .u64(row.p50_ns)
        .u64(row.p99_ns)
        .u64(row.max_ns)
        .0
}

fn delay(row: &DelayRow) -> Vec<u8> {
    let start = Row::default().u64(row.start_ns).text(&row.path).u64(row.packets).u64(row.lost);
    start.u64(row.mean_ns as u64).u64(row.p50_ns).u64(row.p99_ns).u64(row.max_ns).0
}

fn cell(row: &CellRow) -> Vec<u8> {
    let start = Row::default().text(&row.from).text(&row.to).u64(row.packets).u64(row.bytes).u64(row.lost);
    start.u64(row.estimated_packets).u64(row.estimated_bytes).u64(row.mean_ns as u64).0
}
