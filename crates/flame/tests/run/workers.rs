//! Tests of several workers on one source: each packet belongs to one of them, and all stop after the same
//! one. They read the source themselves, or another thread does if the source waits for packets.

use crate::common::{Lines, Memory, eventually, frame, install, options, pcap, request, tcp_packet};
use crate::services::{NO_BATCH, data, plan, wasm};
use flame_abi::manifest::Table;
use flame_admit::Protection;
use flame_compile::InstallRequest;
use flame_plan::{Discipline, Limits, Plan};
use flame_record::{RecordBatch, Sink, SinkError};
use flame_run::Engines;
use flame_source::{Next, Progress, RawBlock, Source, SourceError};
use flame_worker::{Handle, Input, Options, Report, Run, RunError, Silent};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const WORKERS: usize = 3;

/// Packets in blocks of seven.
struct Blocks {
    memory: Memory,
    waits: bool,
    /// The number of blocks until it fails.
    left: usize,
    is_panic: bool,
    /// The number of threads that read at this moment.
    readers: Arc<AtomicUsize>,
    /// The number of blocks that were read.
    read: Arc<AtomicUsize>,
}

fn blocks(packets: usize, waits: bool) -> Blocks {
    let memory = Memory { per_block: 7, ..Memory::tcp(packets, 50) };
    Blocks { memory, waits, left: usize::MAX, is_panic: false, readers: Arc::default(), read: Arc::default() }
}

impl Source for Blocks {
    fn next(&mut self, block: &mut RawBlock) -> Result<Next, SourceError> {
        assert_eq!(self.readers.fetch_add(1, Ordering::Relaxed), 0);
        self.read.fetch_add(1, Ordering::Relaxed);
        std::thread::yield_now();
        self.left -= 1;
        if self.left == 0 {
            assert!(!self.is_panic, "it fails");
            return Err(SourceError::Damaged { file: "blocks".to_owned(), reason: "it ends".to_owned() });
        }
        let next = self.memory.next(block);
        self.readers.fetch_sub(1, Ordering::Relaxed);
        next
    }

    fn discipline(&self) -> Discipline {
        if self.waits { Discipline::Pipe } else { Discipline::File }
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}

fn run(
    source: Blocks,
    more: impl FnOnce(Options) -> Options,
    act: impl FnOnce(Handle) + Send + 'static,
) -> Result<Report, RunError> {
    let module = plan(("idle", String::new(), NO_BATCH.to_owned()), Protection::Auto);
    let plan = Plan::new(vec![module], WORKERS, 1_000_000_000);
    let run = Run::new(&plan, &[], &Engines::new().unwrap(), more(options(Arc::default()))).unwrap();
    let handle = run.handle();
    let acting = std::thread::spawn(move || act(handle));
    let report = run.execute(Input::Shared(Box::new(source)), &mut Lines::default(), &mut Silent);
    acting.join().unwrap();
    report
}

#[track_caller]
fn adds_up(report: &Report) {
    let account = &report.accounts[0].1;
    assert!(report.faults.is_empty(), "{report:?}");
    assert_eq!((account.offered, account.processed), (report.packets, report.packets), "{account:?}");
}

#[test]
fn each_packet_belongs_to_one_worker() {
    for waits in [false, true] {
        let report = run(blocks(2000, waits), |options| options, drop).unwrap();
        adds_up(&report);
        assert_eq!((report.packets, report.bytes), (2000, 2000 * tcp_packet(0, 80).len() as u64));
        let count = |options| Options { count: 1234, ..options };
        let report = run(blocks(2000, waits), count, drop).unwrap();
        adds_up(&report);
        assert_eq!(report.packets, 1234);
    }
}

#[test]
fn all_workers_stop_after_the_same_packet() {
    for (waits, ms) in [(false, 0), (false, 1), (false, 20), (false, 50), (true, 0), (true, 20)] {
        let stop = move |handle: Handle| {
            std::thread::sleep(Duration::from_millis(ms));
            handle.stop();
        };
        let report = run(blocks(1_000_000, waits), |options| options, stop).unwrap();
        adds_up(&report);
        assert!(report.failed.is_none() && report.packets < 1_000_000, "{report:?}");
    }
}

/// A worker that is behind processes what was read before the stop, also if that takes longer than the last
/// calls may.
#[test]
fn a_slow_module_gets_what_was_read_before_the_stop() {
    const BLOCKS: usize = 17;
    // A tenth of a second or two for the packets of a block.
    let slow = r#"(func (export "flame_batch") (param i32) (result i64) (local i32)
        (loop (br_if 0 (i32.ne (i32.const 200000000)
            (local.tee 1 (i32.add (local.get 1) (i32.const 1))))))
        (i64.const 0))"#;
    let limits = Limits { packet_budget: 1 << 40, ..request().limits };
    let request = InstallRequest { protection: Protection::Metered, limits, ..request() };
    let budget = "packet_budget = 1000000000000\n".to_owned();
    let module = install(&wasm(("slow", budget, slow.to_owned())), &request).unwrap();
    let plan = Plan::new(vec![module], WORKERS, 1_000_000_000);
    let run = Run::new(&plan, &[], &Engines::new().unwrap(), options(Arc::default())).unwrap();
    let mut source = blocks(0, false);
    // All packets are of one flow, and so of one worker.
    source.memory.packets = (0..5000).map(|n| (n * 1000, tcp_packet(1, 80))).collect();
    let (handle, read) = (run.handle(), source.read.clone());
    let stopping = std::thread::spawn(move || {
        eventually("blocks", || read.load(Ordering::Relaxed) >= BLOCKS);
        handle.stop();
    });
    let report = run.execute(Input::Shared(Box::new(source)), &mut Lines::default(), &mut Silent).unwrap();
    stopping.join().unwrap();
    adds_up(&report);
    assert!((7 * BLOCKS as u64..1000).contains(&report.packets), "{report:?}");
}

/// A source that fails ends the run after the packets before, in any worker. A source that panics ends it
/// with an error, and no worker waits for another.
#[test]
fn a_source_that_fails_ends_all_workers() {
    for waits in [false, true] {
        let report = run(Blocks { left: 101, ..blocks(2000, waits) }, |options| options, drop).unwrap();
        adds_up(&report);
        assert_eq!((report.packets, report.failed.as_deref()), (700, Some("blocks: it ends")));
        let failed = run(Blocks { left: 1, ..blocks(2000, waits) }, |options| options, drop);
        assert!(matches!(failed, Err(RunError::Source(_))), "{failed:?}");
        let failed =
            run(Blocks { left: 101, is_panic: true, ..blocks(2000, waits) }, |options| options, drop);
        assert!(failed.is_err(), "{failed:?}");
    }
}

/// A sink that takes nothing, and says so once its workers wait for it.
struct Full;

impl Sink for Full {
    fn write(&mut self, _: &str, _: &Table, _: &RecordBatch) -> Result<(), SinkError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        std::thread::sleep(Duration::from_millis(50));
        Err(SinkError::Io { path: "full".into(), source: std::io::ErrorKind::StorageFull.into() })
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        Ok(())
    }
}

/// If records cannot be written, the worker that has some ends first. So must those that have none. Until
/// then, they read no more than that worker has room for.
#[test]
fn a_sink_that_fails_ends_the_workers_without_records() {
    let (sender, ends) = std::sync::mpsc::channel();
    for (waits, flow) in (0..8).flat_map(|flow| [(false, flow), (true, flow)]) {
        let sender = sender.clone();
        std::thread::spawn(move || {
            let row = format!(
                r#"{} (func (export "flame_batch") (param i32) (result i64) (i64.const 0x1000000000))"#,
                data(0, &frame(0, &[0; 8]))
            );
            let tables = "[[tables]]\nname = \"row\"\ncolumns = [{ name = \"n\", type = \"u64\" }]\n";
            let module = plan(("rows", tables.to_owned(), row), Protection::Auto);
            let plan = Plan::new(vec![module], WORKERS, 1_000_000_000);
            let run = Run::new(&plan, &[], &Engines::new().unwrap(), options(Arc::default())).unwrap();
            // All packets are of one flow, and so of one worker.
            let mut source = blocks(0, waits);
            source.memory.packets = (0..40_000).map(|n| (n * 1_000_000, tcp_packet(flow, 80))).collect();
            let read = source.read.clone();
            let ended = run.execute(Input::Shared(Box::new(source)), &mut Full, &mut Silent);
            let read = read.load(Ordering::Relaxed);
            sender.send((flow, ended.is_err(), read)).unwrap();
        });
        let (found, failed, read) = ends.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!((found, failed), (flow, true), "waits: {waits}");
        // Of 1,024 outputs that may wait, the last is the tick after which the sink fails. As many follow.
        assert!(read < 2500, "waits: {waits}: {read} of 5715 blocks");
    }
}

/// Files are read by the workers in turn, plain ones in several places at once.
#[test]
fn files_are_read_alike_by_any_number_of_workers() {
    if crate::daemon::module("count").is_none() {
        return;
    }
    crate::common::runner();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let capture = |from: u64| pcap((0..5000).map(|n| (from + n, tcp_packet((n % 300) as u16, 80))));
    let (a, b) = (capture(1000), capture(1003));
    std::fs::write(path("a.pcap"), &a).unwrap();
    std::fs::write(path("b.pcap"), &b).unwrap();
    let packed = Command::new("gzip").args(["-k", &path("a.pcap")]).status().unwrap();
    assert!(packed.success());
    // Cut in a packet.
    std::fs::write(path("cut.pcap"), &a[..a.len() - 9]).unwrap();
    for files in [&["a.pcap"][..], &["a.pcap", "b.pcap"], &["a.pcap.gz", "b.pcap"], &["cut.pcap", "b.pcap"]] {
        let forms = [("1", false), ("2", false), ("5", false), ("1", true), ("3", true)];
        let results = forms.map(|(workers, is_apart)| {
            let files = files.iter().flat_map(|file| ["-r".to_owned(), path(file)]);
            let words = ["run", "count", "--format", "json", "--stats", "json", "--interval", "100ms"];
            let mut command = Command::new(env!("CARGO_BIN_EXE_flame"));
            let apart = is_apart.then_some("--isolate");
            let out =
                command.args(words).args(["--workers", workers]).args(apart).args(files).output().unwrap();
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            // Whichever worker is ahead, a row of an interval has the packets of that interval.
            let mut rows: Vec<_> = String::from_utf8_lossy(&out.stdout).lines().map(str::to_owned).collect();
            rows.sort();
            let stats: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
            (out.status.code(), rows, stats["packets"].clone(), stats["bytes"].clone())
        });
        assert!(results.iter().all(|result| *result == results[0]), "{files:?}: {results:?}");
        assert!(results[0].1.len() > 50, "{results:?}");
    }
}

/// The first packet decides which of the next ones are late, whichever worker has it.
#[test]
fn a_capture_whose_time_goes_back_has_the_same_rows_with_any_number_of_workers() {
    if crate::daemon::module("lrd").is_none() {
        return;
    }
    const START: u64 = 1_700_000_000_000;
    let part = |from: u64, count: u64, step: u64| {
        (0..count).map(move |n| (START + from + step * n, tcp_packet((n % 300) as u16, 80)))
    };
    // Parts that step forward, some of them by less than a tick.
    let first = std::iter::once((START + 1_000_100, tcp_packet(1, 80)));
    let early = part(0, 15, 10).chain(part(998_950, 15, 1)).chain(part(999_650, 10, 1));
    let packets = first.chain(early).chain(part(1_000_200, 700, 1)).chain(part(1_001_200, 3000, 7));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("back.pcap");
    std::fs::write(&path, pcap(packets)).unwrap();
    for interval in [&[][..], &["--interval", "2s"]] {
        let rows = ["1", "2", "3"].map(|workers| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_flame"));
            command.args(["run", "lrd", "-q", "--format", "json", "--workers", workers, "-r"]).arg(&path);
            let out = command.args(interval).output().unwrap();
            assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
            String::from_utf8(out.stdout).unwrap()
        });
        assert!(rows[0].contains("\"late\":40,"), "{}", rows[0]);
        assert!(rows[1..].iter().all(|other| *other == rows[0]), "{rows:?}");
    }
}
