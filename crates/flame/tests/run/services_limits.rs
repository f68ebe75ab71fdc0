//! Tests of the limits of services: no call is lost at an end, and none takes time, memory or the process of
//! another module.

use crate::common::{Live, Memory, Paced, frame, tcp_packet};
use crate::services::{
    ENDED, LATE, REPLIED, REPLY, SPIN, account, apart, call_frame, caller, caller_of, caller_parts, data,
    lines, outcomes, paced, plan, run, server, server_parts, wait_for_packets,
};
use flame_admit::Protection;
use flame_plan::{Discipline, ModuleId, ModulePlan, Share};
use flame_quota::{Amounts, Meter, Meters, Quota, ThisRun, Usage};
use flame_source::{Next, Progress, RawBlock, Source, SourceError};
use std::sync::Arc;
use std::time::{Duration, Instant};

const AUTO: Protection = Protection::Auto;
const SILENT: &str = "(i64.const 0)";

/// Writes a row whose token is [`LAST`].
const END: &str = r#"(func (export "flame_end") (param i64) (result i64)
    (i64.store (i32.const 72) (i64.const -1)) (i64.const 0x1800000040))"#;

/// Returns a caller that writes a row in `flame_end`, too, whose token is [`LAST`].
fn caller_with_end(calls: usize) -> ModulePlan {
    let (name, manifest, fields) = caller_parts(calls);
    plan((name, manifest, fields + END), AUTO)
}

const LAST: u64 = u64::MAX;

/// Asserts that the last row belongs to the slow instance's end, and returns the others.
fn before_the_end(found: Vec<(u64, u64, u64)>) -> Vec<(u64, u64, u64)> {
    assert_eq!(found.last().map(|row| row.0), Some(LAST), "{found:?}");
    found.into_iter().filter(|row| row.0 != LAST).collect()
}

fn of(found: &[(u64, u64, u64)], outcome: u64) -> usize {
    found.iter().filter(|found| found.1 == outcome).count()
}

/// Returns each way to place a caller and a server.
fn placed(caller: &ModulePlan, server: &ModulePlan) -> [Vec<ModulePlan>; 5] {
    let (one, two) = (|| caller.clone(), || server.clone());
    [
        vec![one(), two()],
        vec![apart(one(), "a"), apart(two(), "b")],
        vec![one(), apart(two(), "b")],
        vec![apart(one(), "a"), two()],
        vec![apart(one(), "a"), apart(two(), "a")],
    ]
}

#[test]
fn each_call_has_its_outcome_before_the_end() {
    // At the end of the run.
    for modules in placed(&caller_with_end(3), &server(REPLY, AUTO)) {
        let place = modules[0].process.clone();
        let (report, found) = run(modules, &[], paced(50, 0), drop);
        assert!(report.faults.is_empty(), "{:?}", report.faults);
        let found = before_the_end(found);
        assert_eq!((account(&report, "caller").calls, found.len()), (150, 150), "{place:?}");
        assert!(of(&found, REPLIED) > 100 && of(&found, ENDED) == 0, "{place:?}: {found:?}");
    }
    // At the caller's removal: no reply.
    for modules in placed(&caller_with_end(1), &server(SILENT, AUTO)) {
        let place = modules[0].process.clone();
        let (report, found) = run(modules, &[], paced(60, 10), |handle| {
            wait_for_packets(&handle, 30);
            let account = handle.remove(ModuleId(0)).unwrap();
            assert!(account.calls > 0);
        });
        let found = before_the_end(found);
        let calls = account(&report, "caller").calls;
        assert_eq!((calls, calls < 60), (found.len() as u64, true), "{place:?}");
        assert_eq!(of(&found, ENDED) + of(&found, LATE), found.len());
    }
    // At its update.
    for modules in placed(&caller_with_end(1), &server(SILENT, AUTO)) {
        let process = modules[0].process.clone();
        let next = ModulePlan { id: ModuleId(7), name: "next".to_owned(), process, ..caller_with_end(1) };
        let (report, found) = run(modules, &[], paced(60, 10), move |handle| {
            wait_for_packets(&handle, 30);
            handle.replace(ModuleId(0), &next.into()).unwrap();
        });
        let found = before_the_end(found);
        assert_eq!(account(&report, "caller").calls + account(&report, "next").calls, 60);
        assert_eq!((of(&found, ENDED) + of(&found, LATE), found.len()), (60, 60));
    }
}

/// Calls that wait when a run is stopped are not made: they would take the budget of the server's last calls.
#[test]
fn a_stop_leaves_a_server_its_last_calls() {
    for modules in placed(&caller_with_end(4), &server(SPIN, AUTO)) {
        let (report, found) = run(modules, &[], paced(400, 3), |handle| {
            wait_for_packets(&handle, 60);
            handle.stop();
        });
        assert!(report.faults.is_empty(), "{:?}", report.faults);
        let (found, account) = (before_the_end(found), account(&report, "caller"));
        // On a busy machine it has no time for some outcomes, which are counted.
        assert_eq!(account.calls, found.len() as u64 + account.messages_lost);
        assert!(of(&found, ENDED) > 2, "{found:?}");
    }
}

/// Returns a caller that calls `calls` times in each batch, whose `flame_done` counts to `rounds`, and which
/// writes a row in `flame_end`, too. `more` precedes it there, and may use the global `$x`.
fn slow_caller(calls: usize, rounds: usize, more: &str) -> ModulePlan {
    let (name, manifest, fields) = caller_parts(calls);
    let done = r#"(func (export "flame_done") (param i32 i32) (result i64)"#;
    let slow = format!(
        "{done} (local $i i32) {more} (loop $l (br_if $l (i32.lt_u
            (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const {rounds}))))"
    );
    plan((name, manifest, fields.replace(done, &slow) + END + X), Protection::Metered)
}

/// Returns such a caller whose `flame_done` takes a part of a second: all outcomes of 256 calls take more
/// than one budget of 1,000,000,000 units, and many seconds.
fn long_caller() -> ModulePlan {
    let long = LONG.replace("(i64.const 0x1800000000)", "(local.set $i (i32.const 0))");
    slow_caller(250, 1, &long.replace("60000000", "20000000"))
}

/// A server that does not reply cannot use up what a caller has for its end.
#[test]
fn a_stop_leaves_a_caller_its_last_calls() {
    for modules in placed(&long_caller(), &server(SILENT, AUTO)) {
        let (report, found) = run(modules, &[], paced(100, 5), |handle| {
            wait_for_packets(&handle, 20);
            handle.stop();
        });
        assert!(report.faults.is_empty(), "{:?}", report.faults);
        let (taken, account) = (before_the_end(found).len(), account(&report, "caller"));
        // Those that it had no time for are counted.
        assert!(taken > 1 && account.messages_lost > 10, "{taken} {account:?}");
    }
}

/// A module in a process that takes its last outcomes too slowly loses the rest, and not its end.
#[test]
fn a_removal_leaves_a_caller_its_end() {
    let other = ModulePlan { id: ModuleId(5), name: "other".to_owned(), ..caller_with_end(1) };
    let modules = vec![apart(long_caller(), "a"), apart(other, "a"), server(SILENT, AUTO)];
    let (report, rows) = lines(modules, &[], paced(3000, 5), |handle| {
        wait_for_packets(&handle, 60);
        let account = handle.remove(ModuleId(0)).unwrap();
        assert!(account.messages_lost > 10, "{account:?}");
        handle.stop();
    });
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    let end = format!("token={LAST}");
    // Of the fast instance and of the slow one.
    assert_eq!(rows.iter().filter(|row| row.contains(&end)).count(), 4, "each has its end");
}

/// A live source of a packet each 5 ms, which has none meanwhile, so that modules go on with their work.
struct Timely(Memory, Instant);

impl Source for Timely {
    fn next(&mut self, block: &mut RawBlock) -> Result<Next, SourceError> {
        std::thread::sleep(self.1.saturating_duration_since(Instant::now()));
        self.1 += Duration::from_millis(5);
        self.0.next(block)
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }

    fn discipline(&self) -> Discipline {
        Discipline::Link
    }

    fn is_ready(&self) -> bool {
        Instant::now() >= self.1
    }
}

/// A caller here whose outcomes take several slices, and which calls again in each, ends with its removal.
#[test]
fn a_removal_ends_a_caller_that_calls_again() {
    let again =
        format!("(local $o i64) (local.set $o (i64.const {:#x}))", (call_frame().len() as u64) << 32 | 1024);
    let (name, manifest, fields) = caller_parts(8);
    let done = r#"(func (export "flame_done") (param i32 i32) (result i64)"#;
    let slow = format!(
        "{done} (local $i i32) {again} (loop $l (br_if $l (i32.lt_u
            (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 8000000))))
            (if (i32.const 1) (then (return (local.get $o))))"
    );
    let caller = plan((name, manifest, fields.replace(done, &slow) + END), Protection::Metered);
    let modules = vec![caller, server(REPLY, AUTO)];
    let (report, _) = lines(
        modules,
        &[],
        Timely(Memory { per_block: 1, ..Memory::tcp(6000, 1) }, Instant::now()),
        |handle| {
            wait_for_packets(&handle, 100);
            let begun = Instant::now();
            let account = handle.remove(ModuleId(0)).unwrap();
            assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
            assert!(account.calls > 0, "{account:?}");
            handle.stop();
        },
    );
    assert!(report.faults.is_empty(), "{:?}", report.faults);
}

/// A module here with more work than it can do in the time after its removal is evicted then.
#[test]
fn a_removal_has_an_end_whatever_waits() {
    let message = data(64, &frame(0xffff, b"work"));
    let fields = format!(
        r#"{message} (func (export "flame_batch") (param i32) (result i64) (i64.const {:#x}))
        (func (export "flame_message") (param i32 i32) (result i64) (local $i i32) (loop $l
            (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 80000000))))
            (i64.const 0))"#,
        (frame(0xffff, b"work").len() as u64) << 32 | 64
    );
    let slow = plan(("slow", String::new(), fields), Protection::Metered);
    let (report, _) = lines(vec![slow], &[], Live(paced(4000, 5)), |handle| {
        // Each message takes longer than a packet.
        wait_for_packets(&handle, 200);
        let begun = Instant::now();
        let account = handle.remove_within(ModuleId(0), Duration::from_secs(1)).unwrap();
        let took = begun.elapsed();
        assert!((1..14).contains(&took.as_secs()) && account.messages_lost > 10, "{took:?} {account:?}");
        handle.stop();
    });
    assert!(report.faults.is_empty(), "{:?}", report.faults);
}

/// The end of a caller in a process does not wait for outcomes that it will not take.
#[test]
fn a_caller_that_traps_on_its_last_outcomes_has_ended() {
    // Outcomes without a reply are those of the end.
    let traps = "(if (i32.load16_u offset=8 (local.get 0)) (then unreachable))";
    for modules in placed(&slow_caller(20, 1, traps), &server(SILENT, AUTO)).into_iter().skip(1) {
        let (report, _) = run(modules, &[], paced(20, 0), drop);
        let texts: Vec<_> = report.faults.iter().map(|fault| &fault.text).collect();
        assert!(texts.len() == 1 && texts[0].contains("unreachable"), "{texts:?}");
    }
}

/// A call that ends in a fault is paid like any other.
#[test]
fn a_call_that_traps_is_charged_to_its_caller() {
    let (name, manifest, fields) = server_parts(&LONG.replace("(i64.const 0x1800000000)", "unreachable"));
    let traps = plan((name, manifest, fields + X), Protection::Metered);
    let usage = || Arc::<Usage>::default();
    let (caller_usage, server_usage) = (usage(), usage());
    let of = |usage: &Arc<Usage>| Meters::default().with(None, Some(usage.clone()));
    let meters = [of(&caller_usage), of(&server_usage)];
    let modules = vec![caller(1, AUTO), apart(traps, "p")];
    let (report, _) = run(modules, &meters, paced(100, 20), drop);
    assert!(report.faults.iter().any(|fault| fault.text.contains("unreachable")), "{:?}", report.faults);
    let (paid, own) = (caller_usage.used().apart_ns, server_usage.used().apart_ns);
    assert!(paid > 2 * own, "{paid} {own}");
}

/// Each outcome takes a caller in a process a few milliseconds, and it calls faster.
#[test]
fn a_process_has_few_outcomes_that_its_module_has_not_taken() {
    let (report, found) = run(vec![apart(slow_caller(250, 10_000_000, ""), "a")], &[], paced(40, 5), drop);
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    let found = before_the_end(found);
    let account = account(&report, "caller");
    assert_eq!(account.calls, found.len() as u64);
    assert!(account.calls >= 256 && account.calls < 2500, "{}", account.calls);
    assert_eq!(account.calls + account.calls_lost, 250 * 40);
}

/// A call that takes a large part of a second.
const LONG: &str = "(loop $l
    (global.set $x (i64.div_u (i64.const -1) (i64.or (global.get $x) (i64.const 3))))
    (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 60000000))))
    (i64.const 0x1800000000)";
const X: &str = "(global $x (mut i64) (i64.const 0))";

fn seconds(packets: u64) -> Memory {
    let packets = (1..=packets).map(|second| (second * 1_000_000_000, tcp_packet(0, 80)));
    Memory { packets: packets.collect(), per_block: 1 }
}

#[test]
fn a_process_answers_however_many_long_calls_wait() {
    let (name, manifest, fields) = server_parts(LONG);
    let server = plan((name, manifest, fields + X), Protection::Metered);
    let modules = vec![caller(20, AUTO), apart(server, "p")];
    let (report, found) =
        run(modules, &[], Paced { source: seconds(4), every: Duration::from_millis(50) }, drop);
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    assert_eq!(account(&report, "caller").calls, found.len() as u64);
    assert!(of(&found, LATE) > 20, "{found:?}");
}

/// A caller that calls too often delays others by a call, and not for ever. The server could serve the other
/// one alone on a machine that is several times slower: one whose calls come faster than its turns finds most
/// of them late.
#[test]
fn callers_have_their_turns_with_a_slow_server() {
    let spin = SPIN.replace("20000000", "10000000");
    let light = ModulePlan { id: ModuleId(5), name: "light".to_owned(), ..caller(1, AUTO) };
    let modules = vec![caller(40, AUTO), light, apart(server(&spin, AUTO), "p")];
    let (report, rows) = lines(modules, &[], paced(60, 50), drop);
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    let of_light: Vec<_> = rows.into_iter().filter(|line| line.starts_with("light")).collect();
    let found = outcomes(&of_light);
    assert!(of(&found[30..], REPLIED) > 5, "{found:?}");
}

/// A share lets the worker charge a process every few milliseconds, while a call takes longer.
#[test]
fn a_long_call_is_charged_to_its_caller_under_a_share() {
    let share = Some(Share { slice_ns: 1_000_000_000, period_ns: 1_000_000_000 });
    let usages = [Arc::<Usage>::default(), Arc::default()];
    let meters = usages.each_ref().map(|usage| {
        let quota = Quota { per_second: Amounts::MAX, per_packet: Amounts::MAX, share, memory: u64::MAX };
        let meter = Meter::new(quota, Box::new(ThisRun::new(quota)));
        Meters::of_grant(vec![Arc::new(meter)]).with(None, Some(usage.clone()))
    });
    let spin = SPIN.replace("20000000", "100000000");
    let modules = vec![caller(1, AUTO), apart(server(&spin, Protection::Metered), "p")];
    let (report, found) = run(modules, &meters, paced(40, 50), drop);
    assert!(report.faults.is_empty() && of(&found, REPLIED) > 3, "{:?} {found:?}", report.faults);
    let [paid, own] = usages.map(|usage| usage.used().apart_ns);
    assert!(paid > 2 * own, "{paid} {own}");
}

/// The rows of a replay follow from its packets alone, however the source divides them.
#[test]
fn outcomes_of_a_replay_do_not_depend_on_batches() {
    let call = call_frame();
    let batch = format!(
        r#"{} (func (export "flame_batch") (param $n i32) (result i64) (local $at i32)
            (local.set $n (i32.load offset=4 (local.get $n)))
            (local.set $at (i32.const 1024))
            (block $done (loop $l
                (br_if $done (i32.eqz (local.get $n)))
                (local.set $n (i32.sub (local.get $n) (i32.const 1)))
                (global.set $n (i64.add (global.get $n) (i64.const 1)))
                (if (i64.eqz (i64.rem_u (global.get $n) (i64.const 10))) (then
                    (memory.copy (local.get $at) (i32.const 128) (i32.const {length}))
                    (i64.store offset=16 (local.get $at) (global.get $n))
                    (local.set $at (i32.add (local.get $at) (i32.const {length})))))
                (br $l)))
            (i64.or (i64.const 1024) (i64.shl
                (i64.extend_i32_u (i32.sub (local.get $at) (i32.const 1024))) (i64.const 32))))"#,
        data(128, &call),
        length = call.len(),
    );
    // Each batch sends its number of packets, and a reply is as long as their sum.
    let counting = r#"(func (export "flame_batch") (param i32) (result i64)
            (i32.store (i32.const 512) (i32.const 4)) (i32.store16 (i32.const 516) (i32.const 0xffff))
            (i32.store (i32.const 520) (i32.load offset=4 (local.get 0))) (i64.const 0xc00000200))
        (global $sum (mut i32) (i32.const 0))
        (func (export "flame_message") (param i32 i32) (result i64)
            (global.set $sum (i32.add (global.get $sum) (i32.load (local.get 0)))) (i64.const 0))"#;
    let reply = "(i32.store (i32.const 0) (i32.add (i32.const 8) (global.get $sum)))
        (i64.shl (i64.extend_i32_u (i32.add (i32.const 16) (global.get $sum))) (i64.const 32))";
    let (name, manifest, fields) = server_parts(reply);
    let fields = fields.replacen(crate::services::NO_BATCH, counting, 1);
    let modules = vec![plan(caller_of(&batch), AUTO), plan((name, manifest, fields), AUTO)];
    let rows = |per_block| {
        let source = Memory { per_block, ..Memory::tcp(2500, 1) };
        let source = Paced { source, every: Duration::ZERO };
        let (report, rows) = lines(modules.clone(), &[], source, drop);
        assert!(report.faults.is_empty(), "{:?}", report.faults);
        rows
    };
    let whole = rows(2500);
    assert_eq!(whole.len(), 250);
    assert_eq!(of(&outcomes(&whole), REPLIED), 250);
    for per_block in [1, 7, 100, 999] {
        assert_eq!(rows(per_block), whole, "{per_block}");
    }
}

/// A module whose packets wait makes no call of a service: it would lose them.
#[test]
fn packets_come_before_calls() {
    let (name, manifest, fields) = server_parts(REPLY);
    let busy = r#"(func (export "flame_batch") (param i32) (result i64) (local $i i32) (loop $l
        (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 100000000))))
        (i64.const 0))"#;
    for (batch, replies) in [(busy, false), (crate::services::NO_BATCH, true)] {
        let fields = fields.replacen(crate::services::NO_BATCH, batch, 1);
        let mut server = plan((name, manifest.clone(), fields), Protection::Metered);
        server.limits.packet_budget = 1_000_000_000;
        let modules = vec![caller(1, AUTO), apart(server, "p")];
        let (report, rows) = lines(modules, &[], Live(paced(300, 5)), drop);
        assert!(report.faults.is_empty(), "{:?}", report.faults);
        // Those of the last second are made at the end of the run.
        let early: Vec<_> = outcomes(&rows).into_iter().filter(|row| row.0 < 60).collect();
        let replied = of(&early, REPLIED);
        assert!(if replies { replied > 40 } else { replied < 10 }, "{early:?}");
    }
}
