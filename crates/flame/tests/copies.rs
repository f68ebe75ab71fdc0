//! Tests of several workers that each read all packets: each packet belongs to one of them, and all stop
//! after the same one.

use crate::common::{Lines, Memory, options, pcap, tcp_packet};
use crate::services::{NO_BATCH, Paced, plan};
use flame_admit::Protection;
use flame_plan::Plan;
use flame_run::Engines;
use flame_source::Source;
use flame_worker::{Handle, Input, Options, Report, Run, Silent};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const WORKERS: usize = 3;

fn run(
    sources: Vec<Box<dyn Source>>,
    more: impl FnOnce(Options) -> Options,
    act: impl FnOnce(Handle) + Send + 'static,
) -> Report {
    let module = plan(("idle", String::new(), NO_BATCH.to_owned()), Protection::Auto);
    let plan = Plan::new(vec![module], WORKERS, 1_000_000_000);
    let run = Run::new(&plan, &[], &Engines::new().unwrap(), more(options(Arc::default()))).unwrap();
    let handle = run.handle();
    let acting = std::thread::spawn(move || act(handle));
    let report = run.execute(Input::Copies(sources), &mut Lines::default(), &mut Silent).unwrap();
    acting.join().unwrap();
    report
}

fn copies(packets: usize, ms: u64) -> Vec<Box<dyn Source>> {
    let copy = || Box::new(Paced(Memory { per_block: 7, ..Memory::tcp(packets, 50) }, ms));
    (0..WORKERS).map(|_| -> Box<dyn Source> { copy() }).collect()
}

#[track_caller]
fn adds_up(report: &Report) {
    let account = &report.accounts[0].1;
    assert!(report.failed.is_none() && report.faults.is_empty(), "{report:?}");
    assert_eq!((account.offered, account.processed), (report.packets, report.packets), "{account:?}");
}

#[test]
fn each_packet_belongs_to_one_worker() {
    let report = run(copies(2000, 0), |options| options, drop);
    adds_up(&report);
    assert_eq!((report.packets, report.bytes), (2000, 2000 * tcp_packet(0, 80).len() as u64));
    let report = run(copies(2000, 0), |options| Options { count: 1234, ..options }, drop);
    adds_up(&report);
    assert_eq!(report.packets, 1234);
}

#[test]
fn all_workers_stop_after_the_same_packet() {
    for ms in [0, 1, 5, 20, 50] {
        let report = run(
            copies(1_000_000, u64::from(ms > 10)),
            |options| options,
            move |handle| {
                std::thread::sleep(Duration::from_millis(ms));
                handle.stop();
            },
        );
        adds_up(&report);
        assert!(report.packets < 1_000_000, "{}", report.packets);
    }
}

/// A packet would belong to a worker that has not read it.
#[test]
fn captures_that_differ_are_an_error() {
    // Fewer packets, and as many of other flows.
    for other in [Memory::tcp(1900, 50), Memory::tcp(2000, 51)] {
        let mut sources = copies(2000, 0);
        sources[2] = Box::new(other);
        let report = run(sources, |options| options, drop);
        assert!(
            report.failed.as_ref().is_some_and(|text| text.contains("changed while it was read")),
            "{report:?}"
        );
    }
}

/// Plain files are read by each worker, and what is compressed by one thread.
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
