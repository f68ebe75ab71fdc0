//! Tests of the output of a module on a live source whose view shows times in steps: everything waits for the
//! end of its interval, and its state is exported then.

use super::intervals::{MS, PLACES, Step, act, input, links, options_of};
use crate::common::{Lines, MANIFEST, frame, install, request, with_manifest};
use crate::daemon::wait_for;
use crate::services::{REPLY, call_frame, data, plan, server_parts};
use flame_admit::Protection;
use flame_plan::{Account, ModuleId, ModulePlan, Plan, Unsent};
use flame_run::Engines;
use flame_worker::{Handle, Keep, Module, News, Run, Silent};
use std::sync::{Arc, Mutex};

/// The resolution of the views in milliseconds.
const STEP: u64 = 2_000;

/// A module that sends a text, a frame on a channel and a call for each batch.
fn sender() -> ModulePlan {
    let output =
        [frame(0xfffc, b"text"), frame(0xfffa, &[&[0; 4][..], &[0; 60]].concat()), call_frame()].concat();
    let text = format!(
        r#"(module (memory (export "memory") 1) {}
        (func (export "flame_batch") (param i32) (result i64) (i64.const {:#x}))
        (func (export "flame_message") (param i32 i32) (result i64) (i64.const 0))
        (func (export "flame_done") (param i32 i32) (result i64) (i64.const 0)))"#,
        data(1024, &output),
        (output.len() as u64) << 32 | 1024
    );
    let manifest = "abi = 1\nname = \"sender\"\nversion = \"1\"\ndescription = \"test\"\nlog = true\n\
        [[uses]]\nname = \"s\"\n[[channels]]\nname = \"c\"\nrate = \"8 Mbit/s\"\nfilter = \"\"\n";
    install(&with_manifest(wat::parse_str(text).unwrap(), manifest.as_bytes()), &request()).unwrap()
}

/// Returns the accounts of the sender and of the server.
fn accounts(handle: &Handle) -> [Account; 2] {
    let of = |(_, _, account): &(ModuleId, String, Account)| account.clone();
    let all: Vec<_> = handle.snapshot().unwrap().accounts.iter().map(of).collect();
    all.try_into().unwrap()
}

/// The numbers of texts, frames, calls and replies that have left. There is no link for the frames.
fn left(handle: &Handle) -> [u64; 4] {
    let [sender, server] = accounts(handle);
    [sender.logged, sender.unsent_by(Unsent::Link), sender.calls, server.replies]
}

#[test]
fn texts_frames_calls_and_replies_wait_for_the_end_of_an_interval() {
    for (workers, process) in PLACES {
        for resolution in [1, STEP * MS] {
            let of = |id, plan: ModulePlan| {
                let plan = ModulePlan { id: ModuleId(id), process: process.map(str::to_owned), ..plan };
                let mut plan = super::intervals::on_view(plan, resolution);
                plan.name = format!("m{id}");
                plan
            };
            let modules = vec![of(0, sender()), of(1, plan(server_parts(REPLY), Protection::Auto))];
            let all = Plan::new(modules.clone(), workers as usize, STEP * MS);
            let options = options_of(&modules[0], &Arc::default());
            let run = Run::new(&all, &[], &Engines::new().unwrap(), options).unwrap();
            let mut links = links(workers, (11_000, 19_000));
            let seen = Arc::<Mutex<Vec<[u64; 4]>>>::default();
            // Their first interval begins at 12 s. What the sender made in it leaves at 14 s. The server
            // replies, which leaves at 16 s.
            for (at, leaves) in [
                (13_900, [false; 4]),
                (14_300, [true, true, true, false]),
                (15_900, [false; 4]),
                (16_300, [true; 4]),
                (17_900, [false; 4]),
            ] {
                let (handle, to) = (run.handle(), seen.clone());
                act(&mut links, at, move || {
                    let before = to.lock().unwrap().last().copied().unwrap_or_default();
                    let due = |n: &usize| if resolution == 1 { before[*n] == 0 } else { leaves[*n] };
                    let there = || (0..4).filter(due).all(|n| left(&handle)[n] > before[n]);
                    wait_for("what is due", there);
                    let now = left(&handle);
                    to.lock().unwrap().push(now);
                });
            }
            let report = run.execute(input(links), &mut Lines::default(), &mut Silent).unwrap();
            assert!(report.faults.is_empty(), "{:?}", report.faults);
            let seen = std::mem::take(&mut *seen.lock().unwrap());
            let what = format!("{workers} {process:?}: {seen:?}");
            assert!(seen.len() == 5 && seen[4].iter().all(|count| *count > 0), "{what}");
            if resolution > 1 {
                assert_eq!((seen[0], seen[1][3]), ([0; 4], 0), "{what}");
                assert_eq!((seen[2], seen[4]), (seen[1], seen[3]), "{what}");
            }
        }
    }
}

/// A module that counts packets, and keeps their number.
const KEEPS: &str = r#"(module (memory (export "memory") 1)
    (func (export "flame_batch") (param i32) (result i64)
        (i64.store (i32.const 8) (i64.add (i64.load (i32.const 8)) (i64.load32_u offset=4 (local.get 0))))
        (i64.const 0))
    (func (export "flame_export") (result i64) (i64.const 0x800000008))
    (func (export "flame_import") (param i32 i32) (result i64)
        (i64.store (i32.const 8) (i64.load (local.get 0))) (i64.const 0)))"#;

/// An export of a part of an interval would be a count of its packets.
#[test]
fn state_is_exported_in_steps_of_the_interval() {
    let manifest = MANIFEST.replace("[[tables]]", "[state]\nversion = 1\nmax = 8\n[[tables]]");
    let wasm = with_manifest(wat::parse_str(KEEPS).unwrap(), manifest.as_bytes());
    for process in [None, Some("p")] {
        for resolution in [1, STEP * MS] {
            let plan = install(&wasm, &request()).unwrap();
            let plan = ModulePlan { process: process.map(str::to_owned), ..plan };
            let plan = super::intervals::on_view(plan, resolution);
            let stored = Arc::<Mutex<Vec<u64>>>::default();
            let to = stored.clone();
            let on_news = Box::new(move |_, news: &News| {
                if let News::Stored(state) = news {
                    to.lock().unwrap().push(u64::from_le_bytes((**state).try_into().unwrap()));
                }
            });
            let keep = Keep::new((8, STEP * MS), 1, [], on_news);
            let options = options_of(&plan, &Arc::default());
            let empty = Plan::new(Vec::new(), 1, STEP * MS);
            let run = Run::new(&empty, &[], &Engines::new().unwrap(), options).unwrap();
            let mut links = links(1, (11_000, 70_000));
            let (meters, areas) = Default::default();
            let module = Module { plan, meters, keep: Some(keep), areas, time: None };
            let adding = run.handle();
            act(&mut links, 11_500, move || adding.add(&module).unwrap());
            let removing = run.handle();
            act(&mut links, 16_700, move || drop(removing.remove(ModuleId(0)).unwrap()));
            let handle = run.handle();
            links[0].steps.push_back((16_800, Step::Act(Box::new(move || handle.stop()))));
            let report = run.execute(input(links), &mut Lines::default(), &mut Silent).unwrap();
            assert!(report.faults.is_empty(), "{:?}", report.faults);
            let stored = std::mem::take(&mut *stored.lock().unwrap());
            match resolution {
                1 => assert!(stored.last().is_some_and(|last| last % 200 > 0), "{process:?} {stored:?}"),
                _ => assert!(
                    stored.last() == Some(&400) && stored.iter().all(|count| count % 200 == 0),
                    "{process:?} {stored:?}"
                ),
            }
        }
    }
}
