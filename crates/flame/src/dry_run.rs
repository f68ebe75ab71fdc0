//! Measures on a capture what a module needs, for a reservation.
//!
//! | resource | arithmetic |
//! | --- | --- |
//! | processor | time for a packet × the packets per second of the busiest 100 ms |
//! | memory | the most that its instances owned at once, on one worker |
//! | blocks | those of the busiest 100 ms, in which it may have to wait for its time; 1 to 4 on each worker |
//! | records | the most bytes in a second of packet time |

use crate::compiler::stop_flag;
use crate::error::Error;
use crate::reserve_args::percent_text;
use crate::{cache, limits};
use flame_abi::MAX_BLOCK_PACKETS;
use flame_abi::manifest::Table;
use flame_admit::Protection;
use flame_api::Reservation;
use flame_base::lock;
use flame_compile::{Compiler, Worker};
use flame_node::{Built, RunRequest, Submission, build};
use flame_plan::{Discipline, Limits, ViewSpec};
use flame_quota::{Usage, Used};
use flame_record::{RecordBatch, Sink, SinkError};
use flame_run::Engines;
use flame_source::{FileOptions, Next, Progress, RawBlock, Source, SourceError};
use flame_worker::{Input, Options, Run, Silent};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The period in which peaks are counted, and in which a module gets the time that it reserved.
const PERIOD_NS: u64 = 100_000_000;
const SECOND_NS: u64 = 1_000_000_000;
const BLOCKS_PER_WORKER: u64 = 4;
/// The part that is added to the measured processor time.
const MARGIN_PERCENT: u64 = 10;

/// The results of a measurement.
#[derive(Debug, Default)]
pub struct Measured {
    used: Used,
    traffic: Traffic,
    /// The most bytes of records in one second of packet time.
    record_bytes: u64,
    pub faults: Vec<String>,
}

/// The packets of a capture.
#[derive(Clone, Debug, Default)]
struct Traffic {
    packets: u64,
    first_ns: Option<u64>,
    last_ns: u64,
    /// The packets of the current period and its number, and the most packets of one period.
    period: (u64, u64),
    peak: u64,
}

impl Traffic {
    fn add(&mut self, ts_ns: u64) {
        self.packets += 1;
        self.first_ns = Some(self.first_ns.map_or(ts_ns, |first| first.min(ts_ns)));
        self.last_ns = self.last_ns.max(ts_ns);
        let number = ts_ns / PERIOD_NS;
        self.period = if number == self.period.1 { (self.period.0 + 1, number) } else { (1, number) };
        self.peak = self.peak.max(self.period.0);
    }

    fn seconds(&self) -> f64 {
        self.first_ns.map_or(0.0, |first| (self.last_ns - first) as f64 / SECOND_NS as f64)
    }
}

/// A source that counts its packets.
struct Counted(Box<dyn Source>, Arc<Mutex<Traffic>>);

impl Source for Counted {
    fn next(&mut self, block: &mut RawBlock) -> Result<Next, SourceError> {
        let next = self.0.next(block)?;
        let mut traffic = lock(&self.1);
        block.packets.iter().for_each(|packet| traffic.add(packet.ts_ns));
        Ok(next)
    }

    fn progress(&self) -> Progress {
        self.0.progress()
    }
}

/// A sink that keeps the most bytes of records between two ticks, which are a second apart.
struct Peak {
    usage: Arc<Usage>,
    before: u64,
    most: Arc<Mutex<u64>>,
}

impl Peak {
    /// Ends a second.
    fn second(&mut self) {
        let now = self.usage.used().record_bytes;
        let bytes = now - std::mem::replace(&mut self.before, now);
        let mut most = lock(&self.most);
        *most = bytes.max(*most);
    }
}

impl Sink for Peak {
    fn write(&mut self, _: &str, _: &Table, _: &RecordBatch) -> Result<(), SinkError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.second();
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        Ok(())
    }
}

/// Runs a module over a capture and measures its use.
///
/// # Errors
///
/// Returns an error if the module is refused or the capture cannot be read.
pub fn measure(
    name: &str,
    wasm: &[u8],
    settings: BTreeMap<String, String>,
    capture: &Path,
) -> Result<Measured, Error> {
    let stop = stop_flag()?;
    let child = Worker::this_program().stopped_by(stop.clone());
    let compiler = Compiler::new(child, cache::open(true));
    let request = RunRequest {
        submissions: vec![Submission {
            name: name.to_owned(),
            file: name.to_owned(),
            wasm: wasm.to_vec(),
            signers: Vec::new(),
        }],
        workers: 1,
        interval_ns: SECOND_NS,
        discipline: Discipline::File,
        links: Vec::new(),
        view: ViewSpec::default(),
        narrower: Vec::new(),
        settings: if settings.is_empty() { BTreeMap::new() } else { [(name.to_owned(), settings)].into() },
        restarts: 0,
        limits: Limits { memory: 1 << 30, ..limits::with_budget(limits::PACKET_BUDGET) },
        protection: Protection::Auto,
        costs: None,
        time_limit: None,
        seed: None,
    };
    let Built { plan, meters, .. } = build(&request, None, &compiler)?;
    plan.modules
        .iter()
        .try_for_each(|module| flame_daemon::check_runs(&module.manifest, &module.manifest.name))?;
    let usage = Arc::<Usage>::default();
    let meters: Vec<_> = meters.iter().map(|m| m.with(None, Some(usage.clone()))).collect();
    let options = Options { stop, ..Options::default() };
    let source = flame_source::open(&[capture.to_owned()], &FileOptions::default())?;
    let (traffic, most) = (Arc::<Mutex<Traffic>>::default(), Arc::<Mutex<u64>>::default());
    let input = Input::Shared(Box::new(Counted(source, traffic.clone())));
    let run = Run::new(&plan, &meters, &Engines::new()?, options)?.charging(Arc::default());
    let mut sink = Peak { usage: usage.clone(), before: 0, most: most.clone() };
    let report = run.execute(input, &mut sink, &mut Silent)?;
    sink.second();
    let traffic = lock(&traffic).clone();
    let record_bytes = *lock(&most);
    let faults = report.faults.into_iter().map(|fault| fault.text).collect();
    Ok(Measured { used: usage.used(), traffic, record_bytes, faults })
}

impl Measured {
    /// Returns the reservation that suffices on a source of `workers` workers, and its arithmetic.
    pub fn need(&self, workers: u64) -> (Reservation, Vec<String>) {
        let Self { used, traffic, record_bytes, .. } = self;
        let packet_ns = used.cpu_ns.div_ceil(traffic.packets.max(1));
        let per_second = traffic.peak * (SECOND_NS / PERIOD_NS);
        let with_margin = |n: u64| n.saturating_mul(100 + MARGIN_PERCENT).div_ceil(100);
        let ppm = with_margin((packet_ns.saturating_mul(per_second)).div_ceil(1000));
        let of_period = traffic.peak.div_ceil(MAX_BLOCK_PACKETS as u64).div_ceil(workers);
        let each = of_period.clamp(1, BLOCKS_PER_WORKER);
        let memory = used.memory.peak.saturating_mul(workers);
        let lines = vec![
            format!(
                "packets: {} in {:.1} s; in the busiest 100 ms {} = {per_second} per second",
                traffic.packets,
                traffic.seconds(),
                traffic.peak
            ),
            format!(
                "processor: {} ns / {} packets = {packet_ns} ns; × {per_second} per second + {MARGIN_PERCENT} % = {}",
                used.cpu_ns,
                traffic.packets,
                percent_text(ppm)
            ),
            format!(
                "memory: {} bytes of its instances on one worker × {workers} workers = {memory} bytes",
                used.memory.peak
            ),
            format!(
                "blocks: {} packets / {MAX_BLOCK_PACKETS} / {workers} workers = {of_period}, of 1 to \
                 {BLOCKS_PER_WORKER}: {each}; × {workers} workers = {}",
                traffic.peak,
                each * workers
            ),
            format!("records: {record_bytes} bytes in the second with the most of them"),
        ];
        let blocks = each * workers;
        (Reservation { cpu_ppm: ppm, memory, blocks, record_bytes: *record_bytes }, lines)
    }
}

/// Returns the option of `flame install` that reserves these amounts.
pub fn option(need: &Reservation) -> String {
    let Reservation { cpu_ppm, memory, blocks, record_bytes } = need;
    let cpu = format!("{}.{:04}", cpu_ppm / 10_000, cpu_ppm % 10_000);
    format!("--reserve cpu={cpu}%,memory={memory},blocks={blocks},records={record_bytes}")
}

/// Compares each resource with what is free, in a line each. Also returns whether all of them suffice.
pub fn compare(need: &Reservation, free: &Reservation) -> (Vec<String>, bool) {
    let all = [
        ("processor", need.cpu_ppm, free.cpu_ppm, "ppm"),
        ("memory", need.memory, free.memory, "bytes"),
        ("blocks", need.blocks, free.blocks, "blocks"),
        ("records", need.record_bytes, free.record_bytes, "bytes/s"),
    ];
    let line = |(name, need, free, unit): &(&str, u64, u64, &str)| match need <= free {
        true => format!("{name}: {need} of {free} {unit} that are free"),
        false => format!("{name}: {need} > {free} {unit} that are free"),
    };
    (all.iter().map(line).collect(), all.iter().all(|(_, need, free, _)| need <= free))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flame_quota::LevelState;

    #[test]
    fn the_arithmetic_is_that_of_the_lines() {
        let mut traffic = Traffic::default();
        // 5,000 packets in one period, then 10 in each of 9.
        (0..5000).for_each(|n| traffic.add(7 * PERIOD_NS + n));
        (0..90).for_each(|n| traffic.add((8 + n / 10) * PERIOD_NS + n));
        assert_eq!((traffic.packets, traffic.peak), (5090, 5000));
        let memory = LevelState { peak: 1 << 20, ..LevelState::default() };
        let used = Used { cpu_ns: 5090 * 200, memory, ..Used::default() };
        let measured = Measured { used, traffic, record_bytes: 777, faults: Vec::new() };
        let (need, lines) = measured.need(2);
        // 200 ns × 50,000 per second = 1 %, and a tenth of that more.
        assert_eq!((need.cpu_ppm, need.memory, need.blocks, need.record_bytes), (11_000, 2 << 20, 6, 777));
        assert!(lines[1].ends_with("= 200 ns; × 50000 per second + 10 % = 1.10 %"), "{lines:?}");
        assert_eq!(measured.need(1).0.blocks, 4, "at most four on one worker");
        assert_eq!(option(&need), "--reserve cpu=1.1000%,memory=2097152,blocks=6,records=777");
        let (lines, fits) = compare(&need, &Reservation { memory: 5, ..need });
        assert!(!fits && lines[1] == "memory: 2097152 > 5 bytes that are free", "{lines:?}");
        assert!(compare(&need, &need).1);
        assert_eq!(Measured::default().need(1).0.cpu_ppm, 0);
    }
}
