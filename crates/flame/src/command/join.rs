use crate::command::{Error, FormatArg};
use crate::exit::Status;
use clap::Args;
use flame_abi::manifest::{Manifest, duration_ns};
use flame_join::{DelayRow, FlowRow, Joined, Options, PathRow};
use flame_plan::{Limits, ModulePlan, OnFault, Plan, ViewSpec};
use flame_record::Rows;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Join the records of `trajectory` from several monitors: paths, one-way delay, loss
///
/// Each FILE holds one monitor's records as `--format json` writes them. A packet's path is the monitors that
/// logged it, in order of time, so their clocks must agree better than the delays. Loss is what was seen at the
/// beginning of its flow's path only.
#[derive(Args)]
pub struct Join {
    /// The monitors' records: FILE, or NAME=FILE to name the monitor; otherwise the file's name is its name
    #[arg(required = true, num_args = 2..)]
    files: Vec<String>,

    /// How long a packet is waited for at the other monitors
    #[arg(long, value_name = "TIME", default_value = "10s")]
    window: String,

    /// Length of the intervals of the table `delay`
    #[arg(long, value_name = "TIME", default_value = "1s")]
    interval: String,

    /// Flows with a row of their own
    #[arg(long, value_name = "FLOWS", default_value_t = 1_000_000)]
    max_flows: usize,

    /// How the result is written
    #[arg(short, long, default_value = "table")]
    format: FormatArg,

    /// Write it to this file; to a folder, one file a table
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
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
            let file = File::open(path).map_err(|e| format!("{path}: {e}"))?;
            inputs.push((name, BufReader::with_capacity(1 << 18, file)));
        }
        let joined = flame_join::join(inputs, options)?;
        self.write(&joined)?;
        Ok(Status::Done)
    }

    fn write(&self, joined: &Joined) -> Result<(), Error> {
        let manifest = Manifest::parse(include_bytes!("join.toml"))?;
        let module = ModulePlan {
            name: "join".into(),
            hash: [0; 32],
            manifest: Arc::new(manifest),
            code: Arc::new([]),
            view: ViewSpec::default(),
            limits: Limits::default(),
            parameters: Vec::new(),
            on_fault: OnFault::Stop,
        };
        let plan = Plan { modules: vec![module], workers: 1, interval_ns: 0 };
        let mut sink = flame_record::open(
            self.format.into(),
            self.output.as_deref(),
            &plan,
            &flame_record::Options::default(),
        )?;
        let mut rows = Rows::new(&plan.modules[0]);
        let mut send = |table: u16, row: Vec<u8>| match rows.push(table, &row) {
            Some((table, batch)) => sink.write("join", table, &batch),
            None => Ok(()),
        };
        joined.paths.iter().try_for_each(|row| send(0, path(row)))?;
        joined.flows.iter().try_for_each(|row| send(1, flow(row)))?;
        joined.delays.iter().try_for_each(|row| send(2, delay(row)))?;
        let state = [joined.logs, joined.ambiguous, joined.alone, joined.crowded];
        send(3, state.iter().flat_map(|n| n.to_le_bytes()).collect())?;
        for (table, batch) in rows.drain() {
            sink.write("join", table, &batch)?;
        }
        Ok(sink.finish()?)
    }
}

/// A row in the layout of modules' output, which is what [`Rows`] takes.
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
        .u64(row.max_ns)
        .0
}

fn delay(row: &DelayRow) -> Vec<u8> {
    let start = Row::default().u64(row.start_ns).text(&row.path).u64(row.packets);
    start.u64(row.mean_ns as u64).u64(row.p50_ns).u64(row.p99_ns).0
}
