//! Modules in processes, whose rows nobody takes for long: they have to wait, and are not blamed for it.

use crate::common::{self, COUNT, Memory, install, options, request, runner, with_manifest};
use flame_abi::manifest::Table;
use flame_plan::{ModuleId, ModulePlan, Plan};
use flame_record::{RecordBatch, Sink, SinkError};
use flame_run::Engines;
use flame_worker::{Input, Options, Run, Runner, Silent, Worker};
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

/// A sink that stands still within the first batches.
struct Standing {
    pause: Duration,
    batches: usize,
}

impl Sink for Standing {
    fn write(&mut self, _: &str, _: &Table, _: &RecordBatch) -> Result<(), SinkError> {
        if self.batches > 0 {
            self.batches -= 1;
            std::thread::sleep(self.pause);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        Ok(())
    }
}

/// The longest time that a process has for one block, or that it may sleep, is a minute.
#[test]
fn a_reader_that_takes_no_rows_for_more_than_a_minute_ends_no_process() {
    let minute = Duration::from_secs(61);
    let (module, large) = (each(), large());
    let run = |workers: usize, (pause, batches): (Duration, usize), stops: bool| {
        let plan = Plan::new(vec![module.clone()], workers, 0);
        let options = Options { runner: Some(Runner::at(&runner()).unwrap()), ..options(Arc::default()) };
        let run = Run::new(&plan, &[], &Engines::new().unwrap(), options).unwrap();
        let input = Input::Shared(Box::new(Memory::tcp(600_000, 3)));
        let (begun, sink) = (Instant::now(), Box::new(Standing { pause, batches }));
        let worker = Worker::spawn(run, input, sink, Box::new(Silent)).unwrap();
        std::thread::sleep(Duration::from_secs(1));
        if stops {
            worker.handle().stop();
        } else if batches == 1 {
            // Its process does not read while it waits.
            worker.handle().add(&large.clone().into()).unwrap();
        }
        let (report, _) = worker.join().unwrap();
        let what = format!("{workers} workers, {pause:?} {batches} times, stops: {stops}");
        assert!(begun.elapsed() > minute, "{what}: {:?}", begun.elapsed());
        assert!(report.faults.is_empty(), "{what}: {:?}", report.faults);
        let account = &report.accounts[0].1;
        assert!(account.adds_up() && account.records == account.processed, "{what}: {account:?}");
        assert!(stops || account.processed == 600_000, "{what}: {account:?}");
    };
    std::thread::scope(|scope| {
        for (workers, stands, stops) in [
            (1, (minute, 1), false),
            (2, (minute, 1), false),
            (1, (minute / 60, 60), false),
            (1, (minute, 1), true),
            (2, (minute, 1), true),
        ] {
            scope.spawn(move || run(workers, stands, stops));
        }
    });
}
