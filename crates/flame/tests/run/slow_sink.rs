//! Modules in processes, whose rows are not taken for long: they have to wait, and are not blamed for it.

use crate::common::{self, COUNT, Memory, Writes, install, options, request, runner, with_manifest};
use flame_abi::manifest::Table;
use flame_plan::{Account, ModuleId, ModulePlan, Plan};
use flame_record::RecordBatch;
use flame_run::Engines;
use flame_worker::{Handle, Input, Options, ProcessLimits, Run, Runner, Silent, Worker};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A row for each packet.
pub(crate) const EACH: &str = r#"(module (memory (export "memory") 1)
    (func (export "flame_init") (param i32 i32) (result i64) (local $i i32)
        (loop $l
            (i64.store (local.get $i) (i64.const 8))
            (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 16))) (i32.const 4096))))
        (i64.const 0))
    (func (export "flame_batch") (param i32) (result i64)
        (i64.shl (i64.mul (i64.load32_u offset=4 (local.get 0)) (i64.const 16)) (i64.const 32))))"#;

fn in_process(text: &str) -> ModulePlan {
    let wasm = with_manifest(wat::parse_str(text).unwrap(), common::MANIFEST.as_bytes());
    ModulePlan { process: Some("one".to_owned()), ..install(&wasm, &request()).unwrap() }
}

/// Returns a module that writes a row for each packet, in a process.
pub(crate) fn each() -> ModulePlan {
    in_process(EACH)
}

/// Returns a module whose code does not fit in the socket to its process.
fn large() -> ModulePlan {
    let data =
        format!("(memory (export \"memory\") 17) (data (i32.const 65536) \"{}\")", "x".repeat(1 << 20));
    let module = in_process(&COUNT.replace("(memory (export \"memory\") 1)", &data));
    assert!(module.code.len() > 1 << 20);
    ModulePlan { id: ModuleId(1), name: "large".to_owned(), ..module }
}

/// The waits of a sink for its first batches.
#[derive(Clone, Copy)]
struct Slow {
    pause: fn(Duration),
    time: Duration,
    batches: u32,
}

fn work(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

const PACKETS: u64 = 600_000;

/// The limits of processes here. Without tests, they are a minute and half a minute.
const BLOCK: Duration = Duration::from_secs(3);
const ASLEEP: Duration = Duration::from_secs(2);
/// A process that does not answer for ten of these intervals is ended.
const PING: Duration = Duration::from_millis(250);

/// Runs a module in a process that writes a row for each packet, and does `meanwhile` to the run once its
/// sink takes nothing. All that was processed is written, and no module is blamed.
fn run(workers: usize, slow: Slow, meanwhile: impl FnOnce(&Handle)) -> Account {
    let plan = Plan::new(vec![each()], workers, 0);
    let limits = ProcessLimits { block: BLOCK, asleep: ASLEEP, ping: PING, ..ProcessLimits::default() };
    let runner = Runner::at(&runner()).unwrap().with_limits(limits);
    let options = Options { runner: Some(runner), ..options(Arc::default()) };
    let run = Run::new(&plan, &[], &Engines::new().unwrap(), options).unwrap();
    let input = Input::Shared(Box::new(Memory::tcp(PACKETS as usize, 3)));
    let (begun, least) = (Instant::now(), slow.time * slow.batches);
    let (waits, first) = std::sync::mpsc::channel();
    let mut left = slow.batches;
    let sink = Writes(move |_: &str, _: &Table, _: &RecordBatch| {
        if left > 0 {
            left -= 1;
            let _ = waits.send(());
            (slow.pause)(slow.time);
        }
        Ok(())
    });
    let worker = Worker::spawn(run, input, Box::new(sink), Box::new(Silent)).unwrap();
    first.recv().unwrap();
    meanwhile(&worker.handle());
    let (report, _) = worker.join().unwrap();
    assert!(begun.elapsed() >= least, "{:?}", begun.elapsed());
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    let account = report.accounts[0].1.clone();
    assert!(account.adds_up() && account.records == account.processed, "{account:?}");
    account
}

/// Neither the time that a process has for one block counts then, nor the time that it may sleep.
#[test]
fn a_reader_that_takes_no_rows_for_more_than_a_minute_ends_no_process() {
    let more = BLOCK + Duration::from_secs(1);
    let once = Slow { pause: std::thread::sleep, time: more, batches: 1 };
    let large = large();
    std::thread::scope(|scope| {
        for workers in [1, 2] {
            let large = &large;
            scope.spawn(move || {
                // Its process does not read while it waits.
                let account = run(workers, once, |handle| handle.add(&large.clone().into()).unwrap());
                assert_eq!(account.processed, PACKETS);
            });
            scope.spawn(move || run(workers, once, Handle::stop));
        }
        let account = run(1, Slow { time: more / 20, batches: 20, ..once }, |_| {});
        assert_eq!(account.processed, PACKETS);
    });
}

/// A process may sleep for a while where it has work.
#[test]
fn rows_that_take_long_to_write_end_no_process() {
    let slow = Slow { pause: work, time: ASLEEP / 20, batches: 30 };
    assert_eq!(run(1, slow, |_| {}).processed, PACKETS);
}
