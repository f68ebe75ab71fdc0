//! Tests of services: calls between modules, their outcomes, what they cost and whom, and each end of the
//! other side; in this process and in one of its own.

use crate::common::{
    Lines, Memory, Paced, eventually, frame, install, options, request, runner, tcp_packet, with_manifest,
};
use crate::daemon::{Node, replay, wait_for};
use crate::network::{Net, PING};
use flame_abi::output::Outcome;
use flame_admit::Protection;
use flame_compile::InstallRequest;
use flame_plan::{Account, Discipline, ModuleId, ModulePlan, Plan, Reason, Services, Share, Terms};
use flame_quota::{Amounts, Meter, Meters, Quota, ThisRun, Usage};
use flame_run::Engines;
use flame_source::{RawBlock, Source};
use flame_worker::{Attached, Handle, Input, Options, Report, Run, RunError, Runner, Silent};
use std::sync::Arc;
use std::time::Duration;

const HEAD: &str = "abi = 1\nversion = \"1\"\ndescription = \"test\"\n[limits]\ncall_budget = 1000000000\n";

/// Returns a module of this name, manifest and fields.
pub fn wasm((name, manifest, fields): (&str, String, String)) -> Vec<u8> {
    let message = match fields.contains("\"flame_message\"") {
        true => "",
        false => r#"(func (export "flame_message") (param i32 i32) (result i64) (i64.const 0))"#,
    };
    let text = format!(r#"(module (memory (export "memory") 2) {fields} {message})"#);
    let manifest = format!("name = \"{name}\"\n{HEAD}{manifest}");
    with_manifest(wat::parse_str(text).unwrap(), manifest.as_bytes())
}

pub fn plan(parts: (&str, String, String), protection: Protection) -> ModulePlan {
    let request = InstallRequest { protection, ..request() };
    let limits = flame_plan::Limits { call_budget: 1_000_000_000, ..request.limits };
    install(&wasm(parts), &InstallRequest { limits, ..request }).unwrap()
}

pub fn data(at: usize, bytes: &[u8]) -> String {
    let text: String = bytes.iter().map(|byte| format!("\\{byte:02x}")).collect();
    format!("(data (i32.const {at}) \"{text}\")")
}

pub const NO_BATCH: &str = r#"(func (export "flame_batch") (param i32) (result i64) (i64.const 0))"#;

/// A module that serves `s`: `body` handles a call, whose data are at local 0, and returns output.
pub fn server(body: &str, protection: Protection) -> ModulePlan {
    plan(server_parts(body), protection)
}

pub fn server_parts(body: &str) -> (&'static str, String, String) {
    let reply = data(0, &frame(0xfff8, &[[0; 8], *b"the name"].concat()));
    let fields = format!(
        r#"{reply} {NO_BATCH} (func (export "flame_serve") (param i32 i32) (result i64)
            (local $i i32) (i64.store (i32.const 8) (i64.load (local.get 0))) {body})"#
    );
    ("server", "[[services]]\nname = \"s\"\n".to_owned(), fields)
}

/// Replies to the call.
pub const REPLY: &str = "(i64.const 0x1800000000)";

/// A module that calls `s` `calls` times in each batch, and writes a row for each outcome.
pub fn caller(calls: usize, protection: Protection) -> ModulePlan {
    plan(caller_parts(calls), protection)
}

pub fn caller_parts(calls: usize) -> (&'static str, String, String) {
    let call = call_frame();
    let calls_at = data(1024, &call.repeat(calls));
    // Each call of a batch has the same token, the number of the batch.
    let tokens: String = (0..calls)
        .map(|n| format!("(i64.store (i32.const {}) (global.get $n))", 1024 + n * call.len() + 16))
        .collect();
    let batch = format!(
        r#"{calls_at} (func (export "flame_batch") (param i32) (result i64)
            {tokens} (global.set $n (i64.add (global.get $n) (i64.const 1))) (i64.const {:#x}))"#,
        ((call.len() * calls) as u64) << 32 | 1024
    );
    caller_of(&batch)
}

/// Returns a call of the first service, whose token lies at 16.
pub fn call_frame() -> Vec<u8> {
    frame(0xfff9, &[&[0; 8][..], &[0; 8], b"who"].concat())
}

/// Returns the parts of a caller with this `flame_batch`, which counts in the global `$n`.
pub fn caller_of(batch: &str) -> (&'static str, String, String) {
    let row = data(64, &frame(0, &[0; 16]));
    let fields = format!(
        r#"{batch} {row} (global $n (mut i64) (i64.const 0))
        (func (export "flame_done") (param i32 i32) (result i64)
            (i64.store (i32.const 72) (i64.load (local.get 0)))
            (i64.store (i32.const 80) (i64.load offset=8 (local.get 0)))
            (i32.store16 (i32.const 82) (i32.sub (local.get 1) (i32.const 16)))
            (i64.const 0x1800000040))"#
    );
    let columns = [("token", "u64"), ("outcome", "u16"), ("bytes", "u16"), ("lost", "u32")];
    let columns: String =
        columns.iter().map(|(name, kind)| format!("{{ name = \"{name}\", type = \"{kind}\" }},")).collect();
    let manifest = format!("[[uses]]\nname = \"s\"\n[[tables]]\nname = \"done\"\ncolumns = [{columns}]\n");
    ("caller", manifest, fields)
}

/// Returns packets in blocks of one, `ms` of the node's clock and 1 ms of packet time apart.
pub fn paced(packets: usize, ms: u64) -> Paced<Memory> {
    Paced { source: Memory { per_block: 1, ..Memory::tcp(packets, 1) }, every: Duration::from_millis(ms) }
}

/// Packets of which ten are between two ticks, at which calls are delivered.
fn ticking(packets: u64) -> Paced<Memory> {
    let packets = (0..packets).map(|n| (1_000_000_000 + n * 100_000_000, tcp_packet(0, 80)));
    let source = Memory { packets: packets.collect(), per_block: 1 };
    Paced { source, every: Duration::from_millis(10) }
}

/// Waits until the first module of a run was offered some packets.
pub fn wait_for_packets(handle: &Handle, packets: u64) {
    let is_there = || handle.snapshot().map_or(true, |now| now.accounts[0].2.offered >= packets);
    eventually("packets", is_there);
}

/// Runs modules, and returns the report and the outcomes: token, outcome, and bytes of the reply.
pub fn run(
    modules: Vec<ModulePlan>,
    meters: &[Meters],
    source: impl Source + 'static,
    act: impl FnOnce(Handle) + Send + 'static,
) -> (Report, Vec<(u64, u64, u64)>) {
    let (report, lines) = lines(modules, meters, source, act);
    (report, outcomes(&lines))
}

/// Runs modules, and returns the report and the rows.
pub fn lines(
    modules: Vec<ModulePlan>,
    meters: &[Meters],
    source: impl Source + 'static,
    act: impl FnOnce(Handle) + Send + 'static,
) -> (Report, Vec<String>) {
    let runner = modules.iter().any(|m| m.process.is_some()).then(|| Runner::at(&runner()).unwrap());
    let options = Options { runner, ..options(Arc::default()) };
    let run = Run::new(&Plan::new(modules, 1, 0), meters, &Engines::new().unwrap(), options).unwrap();
    let handle = run.handle();
    let acting = std::thread::spawn(move || act(handle));
    let mut sink = Lines::default();
    let report = run.execute(Input::Shared(Box::new(source)), &mut sink, &mut Silent).unwrap();
    acting.join().unwrap();
    (report, sink.lines)
}

pub fn outcomes(lines: &[String]) -> Vec<(u64, u64, u64)> {
    let number = |line: &str, name: &str| {
        let field = line.split(' ').find_map(|field| field.strip_prefix(name)).unwrap();
        field.parse::<u64>().unwrap()
    };
    let of = |line: &String| (number(line, "token="), number(line, "outcome="), number(line, "bytes="));
    lines.iter().map(of).collect()
}

pub fn account<'a>(report: &'a Report, name: &str) -> &'a Account {
    &report.accounts.iter().find(|(of, _)| of == name).unwrap().1
}

pub fn apart(plan: ModulePlan, process: &str) -> ModulePlan {
    ModulePlan { process: Some(process.to_owned()), ..plan }
}

pub const REPLIED: u64 = Outcome::Replied as u64;
const NOBODY: u64 = Outcome::Nobody as u64;
pub const ENDED: u64 = Outcome::Ended as u64;
pub const LATE: u64 = Outcome::Late as u64;

#[test]
fn calls_are_answered_in_their_order() {
    for protection in [Protection::Auto, Protection::Metered] {
        let both = || vec![caller(3, protection), server(REPLY, protection)];
        let (report, found) = run(both(), &[], paced(40, 0), drop);
        assert!(report.faults.is_empty(), "{:?}", report.faults);
        let expected: Vec<_> = (0..40).flat_map(|token| [(token, REPLIED, 8); 3]).collect();
        assert_eq!(found, expected, "{protection:?}");
        let (calls, replies) = (account(&report, "caller"), account(&report, "server"));
        assert_eq!((calls.calls, calls.calls_lost, replies.replies, replies.replies_lost), (120, 0, 120, 0));
        // Without the right nothing is called, and nothing replies.
        let without = |services: Services| Terms { services, ..Terms::default() };
        let mut modules = both();
        modules[0].terms = without(Services { call: false, serve: true });
        let (report, found) = run(modules, &[], paced(4, 0), drop);
        assert_eq!((account(&report, "caller").calls_lost, found.len()), (12, 0));
        let mut modules = both();
        modules[1].terms = without(Services { call: true, serve: false });
        let (report, found) = run(modules, &[], paced(4, 0), drop);
        let lost = account(&report, "server").replies_lost;
        assert_eq!(
            (lost, found.len(), found.iter().all(|(_, outcome, _)| *outcome == ENDED)),
            (12, 12, true)
        );
    }
}

#[test]
fn modules_in_processes_call_each_other() {
    let [one, two] = [caller(2, Protection::Auto), server(REPLY, Protection::Auto)];
    for modules in [
        vec![apart(one.clone(), "a"), apart(two.clone(), "b")],
        vec![one.clone(), apart(two.clone(), "b")],
        vec![apart(one.clone(), "a"), two.clone()],
        vec![apart(one.clone(), "a"), apart(two.clone(), "a")],
    ] {
        let (report, found) = run(modules, &[], paced(60, 10), drop);
        assert!(report.faults.is_empty(), "{:?}", report.faults);
        let replied = found.iter().filter(|outcome| **outcome == (outcome.0, REPLIED, 8)).count();
        // The calls of the last packets may find their server at its end.
        assert!(replied >= 80, "{found:?}");
        let mut tokens: Vec<_> = found.iter().map(|(token, ..)| *token).collect();
        tokens.dedup();
        assert!(tokens.is_sorted() && found.len() <= 120);
    }
}

/// Each end of the server: a trap, an eviction, a removal, the end of its process, and silence.
/// A process of modules with calls does not wait for several blocks: of 256 open calls at most, one in a few
/// milliseconds would be answered.
#[test]
fn many_calls_of_processes_are_answered() {
    let [one, two] = [caller(1, Protection::Auto), server(REPLY, Protection::Auto)];
    let (report, found) = run(vec![apart(one, "a"), apart(two, "b")], &[], paced(1500, 1), drop);
    let calls = account(&report, "caller");
    assert_eq!((calls.calls, calls.calls_lost), (1500, 0), "{:?}", report.faults);
    assert!(found.len() > 1400, "{}", found.len());
}

#[test]
fn a_call_has_an_outcome_whatever_the_server_does() {
    let auto = Protection::Auto;
    let of = |found: &[(u64, u64, u64)], outcome| found.iter().filter(|found| found.1 == outcome).count();
    let (report, found) = run(vec![caller(1, auto), server("(unreachable)", auto)], &[], paced(10, 0), drop);
    // All were let out before the first one was delivered.
    assert_eq!((report.faults.len(), of(&found, ENDED)), (1, 10), "{found:?}");
    // No reply: late after a second of packet time, and what is left ends with the run.
    let (_, found) = run(vec![caller(1, auto), server("(i64.const 0)", auto)], &[], paced(1500, 0), drop);
    assert!(of(&found, LATE) > 10 && of(&found, ENDED) > 10, "{found:?}");
    assert_eq!(of(&found, LATE) + of(&found, ENDED), found.len());
    let (_, found) = run(vec![caller(1, auto)], &[], paced(10, 0), drop);
    assert_eq!(of(&found, NOBODY), 10);
    // Others end it while packets flow.
    for process in [None, Some("p".to_owned())] {
        let both = |body| {
            let server = ModulePlan { process: process.clone(), ..server(body, auto) };
            vec![caller(1, auto), server]
        };
        let (_, found) = run(both(REPLY), &[], ticking(80), move |handle| {
            wait_for_packets(&handle, 30);
            handle.remove(ModuleId(1)).unwrap();
        });
        assert!(of(&found, REPLIED) > 5 && of(&found, NOBODY) > 5, "removed, {process:?}: {found:?}");
        let (_, found) = run(both(REPLY), &[], ticking(80), move |handle| {
            wait_for_packets(&handle, 30);
            handle.evict(ModuleId(1), Reason::Narrowed).unwrap();
        });
        assert!(of(&found, REPLIED) > 5 && of(&found, NOBODY) > 5, "evicted, {process:?}: {found:?}");
        assert_eq!(found.len(), 80, "{process:?}");
    }
    let killed = |body| {
        run(vec![caller(1, auto), apart(server(body, auto), "p")], &[], paced(80, 10), move |handle| {
            wait_for_packets(&handle, 30);
            let pid = handle.processes()[0].pid;
            std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
        })
    };
    let (_, found) = killed(REPLY);
    assert!(of(&found, REPLIED) > 5 && of(&found, NOBODY) > 5, "killed: {found:?}");
    assert_eq!(found.len(), 80);
    let (_, found) = killed("(i64.const 0)");
    assert!(of(&found, ENDED) > 5 && of(&found, NOBODY) > 5, "killed before its replies: {found:?}");
    assert_eq!(found.len(), 80);
}

/// The caller's end drops its calls, and the server continues.
#[test]
fn a_server_survives_its_callers() {
    let auto = Protection::Auto;
    let (one, other) = (caller(1, auto), caller(1, auto));
    let other = ModulePlan { name: "other".to_owned(), ..other };
    let modules = vec![one, other, server(REPLY, auto)];
    let (report, found) = run(modules, &[], paced(60, 10), |handle| {
        wait_for_packets(&handle, 20);
        handle.remove(ModuleId(0)).unwrap();
    });
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    let (one, other) = (account(&report, "caller").calls, account(&report, "other").calls);
    assert!(one < 50 && other == 60 && found.len() as u64 >= other, "{one} {other}");
}

/// A reply to the call of another, to none, and a second one are dropped and counted.
#[test]
fn replies_that_have_no_call_are_dropped() {
    let auto = Protection::Auto;
    let other = "(i64.store (i32.const 8) (i64.add (i64.load (local.get 0)) (i64.const 1000)))
        (i64.const 0x1800000000)";
    let (report, found) = run(vec![caller(1, auto), server(other, auto)], &[], paced(10, 0), drop);
    assert_eq!(account(&report, "server").replies_lost, 10);
    assert!(found.iter().all(|found| found.1 == ENDED) && found.len() == 10, "{found:?}");
    // The second frame lies behind the first, as a copy of it.
    let copied = "(memory.copy (i32.const 24) (i32.const 0) (i32.const 24)) (i64.const 0x3000000000)";
    let (report, found) = run(vec![caller(1, auto), server(copied, auto)], &[], paced(10, 0), drop);
    let account = account(&report, "server");
    assert_eq!((account.replies, account.replies_lost), (10, 10));
    assert!(found.iter().all(|found| found.1 == REPLIED) && found.len() == 10, "{found:?}");
}

/// A call in a loop that takes a few milliseconds.
pub const SPIN: &str = "(loop $l
    (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 20000000))))
    (i64.const 0x1800000000)";

fn limited() -> Meters {
    let share = Some(Share { slice_ns: 1_000_000, period_ns: 3_600_000_000_000 });
    let quota = Quota { per_second: Amounts::MAX, per_packet: Amounts::MAX, share, memory: u64::MAX };
    Meters::of_grant(vec![Arc::new(Meter::new(quota, Box::new(ThisRun::new(quota))))])
        .with(None, Some(Arc::<Usage>::default()))
}

/// The time of a call is its caller's, and so is the memory of calls that wait.
#[test]
fn a_call_is_charged_to_its_caller() {
    let auto = Protection::Auto;
    let (of_caller, of_server) = (limited(), limited());
    let meters = [of_caller.clone(), of_server.clone()];
    let (report, found) = run(vec![caller(1, auto), server(SPIN, auto)], &meters, paced(3, 0), drop);
    assert!(report.faults.is_empty() && !found.is_empty(), "{:?} {found:?}", report.faults);
    assert!(!of_caller.may_begin() && of_server.may_begin(), "the caller has used its time up");
    assert_eq!(of_caller.memory().1, of_caller.memory().0, "memory of calls is given back");
    // On a live source, a caller without time is refused.
    let (of_caller, of_server) = (limited(), limited());
    let plan = Plan::new(vec![caller(3, auto), server(SPIN, auto)], 1, 0);
    let options = options(Arc::default());
    let run = Run::new(&plan, &[of_caller, of_server], &Engines::new().unwrap(), options).unwrap();
    let mut attached =
        Attached::start(run, Discipline::LiveGraph, Box::new(Lines::default()), Box::new(Silent)).unwrap();
    let mut block = RawBlock::default();
    let mut source = Memory::tcp(1, 1);
    source.next(&mut block).unwrap();
    attached.packets(&block).unwrap();
    while attached.resume().unwrap() {}
    let (report, _) = attached.end().unwrap();
    // Under a grant, numbers are rounded up.
    assert_eq!((account(&report, "caller").calls, account(&report, "server").replies), (4, 1));
}

#[test]
fn the_time_of_a_process_is_charged_to_the_caller() {
    let auto = Protection::Auto;
    let usage = || Arc::<Usage>::default();
    let (caller_usage, server_usage) = (usage(), usage());
    let of = |usage: &Arc<Usage>| Meters::default().with(None, Some(usage.clone()));
    let meters = [of(&caller_usage), of(&server_usage)];
    let modules = vec![caller(1, auto), apart(server(SPIN, auto), "p")];
    let (_, found) = run(modules, &meters, paced(100, 20), drop);
    assert!(found.iter().filter(|found| found.1 == REPLIED).count() > 50, "{found:?}");
    let (paid, own) = (caller_usage.used().apart_ns, server_usage.used().apart_ns);
    assert!(paid > 2 * own, "{paid} {own}");
}

/// A name belongs to one module at a time. An update takes it over.
#[test]
fn a_name_is_offered_by_one_module() {
    let auto = Protection::Auto;
    let second = move || ModulePlan { id: ModuleId(7), name: "second".to_owned(), ..server(REPLY, auto) };
    let engines = Engines::new().unwrap();
    let both = Plan::new(vec![server(REPLY, auto), second()], 1, 0);
    let error = Run::new(&both, &[], &engines, Options::default()).err().unwrap().to_string();
    assert_eq!(error, "second offers the service \"s\", which server offers already");
    let (_, found) = run(vec![caller(1, auto), server(REPLY, auto)], &[], paced(80, 10), move |handle| {
        wait_for_packets(&handle, 10);
        let refused = handle.add(&second().into()).unwrap_err();
        assert!(matches!(refused, RunError::Service { .. }), "{refused}");
        handle.replace(ModuleId(1), &second().into()).unwrap();
        assert!(handle.add(&ModulePlan { id: ModuleId(8), ..server(REPLY, auto) }.into()).is_err());
        handle.remove(ModuleId(7)).unwrap();
        handle.add(&ModulePlan { id: ModuleId(9), ..server(REPLY, auto) }.into()).unwrap();
    });
    assert_eq!(found.len(), 80);
    assert!(found.iter().filter(|found| found.1 == REPLIED).count() > 40, "{found:?}");
    assert_eq!(found.last().unwrap().1, REPLIED);
}

const TAP: &str = "[sources.tap]\ninterface = \"rx0\"\ninterval = \"100ms\"\n";

/// The module of one principal calls another principal's on a node, each in a process of its own, as far as
/// both have the right to.
#[test]
fn principals_call_each_other_by_right() {
    let Some(net) = Net::new() else { return };
    runner();
    net.shell("ip addr add 192.0.2.1/24 dev tx0");
    let mut node = Node::new(TAP).within(&net.namespace);
    let policy = std::fs::read_to_string(node.path("policy.toml")).unwrap();
    let calls = "calls = \"records, messages, call, serve\"\ncall = \"s\"\nserve = \"s, t\"";
    let policy = policy.replace("calls = \"records, messages, state\"", calls);
    std::fs::write(node.path("policy.toml"), policy).unwrap();
    node.mint("alice", &[]);
    node.mint("bob", &["--calls", "records,messages,call"]);
    node.mint("carol", &["--serve", "t"]);
    node.start();
    let [server, caller] =
        [("server", server_parts(REPLY)), ("caller", caller_parts(1))].map(|(name, parts)| {
            std::fs::write(node.path(&format!("{name}.wasm")), wasm(parts)).unwrap();
            node.path(&format!("{name}.wasm")).display().to_string()
        });
    let refused = |name: &str, module: &str| {
        let (credential, key) = (format!("{name}.cred"), format!("{name}.key"));
        node.refused(&["install", module, "--credential", &credential, "--identity", &key])
    };
    let denied = refused("bob", &server);
    assert!(denied.contains("server uses serve, which is not granted"), "{denied}");
    let denied = refused("carol", &server);
    assert!(denied.contains("may not serve the service \"s\""), "{denied}");
    node.json_of("alice", &["install", &server]);
    node.json_of("bob", &["install", &caller]);
    let ping = || drop(net.command("python3").args(["-c", PING, "192.0.2.2", "5"]).output().unwrap());
    let account = |name: &str, module: &str| node.json_of(name, &["show", module])["account"].clone();
    wait_for("replies", || {
        ping();
        account("alice", "server")["replies"].as_u64() > Some(2)
    });
    assert!(account("bob", "caller")["calls"].as_u64() > Some(2));
    // The name is taken. The operator learns by which module, another principal does not.
    let denied = node.refused(&["install", &server, "--name", "second"]);
    assert!(denied.contains("which server#") && denied.contains("offers already"), "{denied}");
    let own = ["--credential", "alice.cred", "--identity", "alice.key"];
    let denied = node.refused(&[&["install", &server, "--name", "second"][..], &own].concat());
    assert!(denied.contains("\"s\" is offered already") && !denied.contains("server#"), "{denied}");
    // The log has the end of what was refused after it had entered its install.
    let log = node.run(&["audit", "show", "--policy", "policy.toml"]);
    let last = log.lines().rfind(|line| line.contains("server")).unwrap();
    assert!(last.contains("end") && last.contains("it did not run"), "{log}");
    // An update continues with the name, and the caller survives the server's removal.
    node.json_of("alice", &["update", "server", &server]);
    node.json_of("alice", &["remove", "server"]);
    let before = account("bob", "caller")["calls"].as_u64();
    wait_for("calls of nobody", || {
        ping();
        account("bob", "caller")["calls"].as_u64() > before
    });
    assert_eq!(account("bob", "caller")["faults"], 0);
    node.end();
}

/// A principal that hands its credential on has one turn with all to whom it did.
#[test]
fn a_tenant_has_one_turn_under_all_its_names() {
    runner();
    let mut node = Node::new(&replay());
    let policy = std::fs::read_to_string(node.path("policy.toml")).unwrap();
    let calls = "calls = \"records, messages, call, serve\"\ncall = \"s\"\nserve = \"s\"";
    let policy = policy.replace("calls = \"records, messages, state\"", calls);
    std::fs::write(node.path("policy.toml"), policy).unwrap();
    ["alice", "bob", "carol"].iter().for_each(|name| node.mint(name, &[]));
    let names = ["carol", "one", "two", "three", "four"];
    for name in &names[1..] {
        let key = node.run(&["key", "new", &format!("{name}.key")]);
        let credential = format!("{name}.cred");
        let hand_on = ["grant", "narrow", "carol.cred", "--identity", "carol.key", "--to", name];
        node.run(&[&hand_on[..], &["--holder", &key, "-o", &credential]].concat());
    }
    node.start();
    let server = server_parts(&SPIN.replace("20000000", "10000000"));
    // Enough calls for each packet that all of them wait, on a fast machine as well.
    let [server, caller] = [("server", server), ("caller", caller_parts(200))].map(|(name, parts)| {
        std::fs::write(node.path(&format!("{name}.wasm")), wasm(parts)).unwrap();
        node.path(&format!("{name}.wasm")).display().to_string()
    });
    node.json_of("alice", &["install", &server]);
    let all = || ["bob"].into_iter().chain(names);
    all().for_each(|name| drop(node.json_of(name, &["install", &caller])));
    let replied = |name: &str| {
        let (credential, key) = (format!("{name}.cred"), format!("{name}.key"));
        let own = ["--credential", &credential, "--identity", &key];
        let rows = node.run(&[&["records", "caller", "--format", "json", "-q"][..], &own].concat());
        rows.lines().filter(|row| row.contains("\"outcome\":0")).count()
    };
    wait_for("replies", || replied("bob") > 60);
    // Each is asked later than the one before, and Bob last.
    let found: Vec<_> = names.iter().chain(&["bob"]).map(|name| (*name, replied(name))).collect();
    let (of_carol, of_bob) =
        (found[..names.len()].iter().map(|(_, n)| n).sum::<usize>(), found[names.len()].1);
    assert!(of_carol > 10 && 3 * of_bob > 2 * of_carol, "{found:?}");
}
