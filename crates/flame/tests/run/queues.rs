//! Event queues: each packet is in the first queue whose filter it passes, a queue that is full loses only
//! packets of its own, and a replay is exact in every place.

use crate::built::build;
use crate::commands;
use crate::common::{
    self, Lines, Live, Memory, install, options, request, runner, tcp_packet, with_manifest,
};
use crate::daemon::{self, Node, wait_for};
use flame_admit::Protection;
use flame_compile::{InstallError, InstallRequest};
use flame_plan::{
    Account, Expose, Limits, ModuleClass, ModuleId, ModulePlan, Plan, Shed, Terms, TrustedFilter, ViewKey,
    ViewSpec,
};
use flame_run::Engines;
use flame_source::Source;
use flame_worker::{Input, Module, Options, Report, Run, RunError, Runner, Silent, Worker};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The queue of a row that states a tick.
const TICK: u64 = 99;

/// The manifest of a module that reports its batches, with queues for ports and then some blocks.
fn manifest(queues: &[(&str, &str, u32)]) -> String {
    let mut text = "abi = 1\nname = \"q\"\nversion = \"1\"\ndescription = \"d\"\n".to_owned();
    for (name, select, blocks) in queues {
        text += &format!("[[queues]]\nname = \"{name}\"\nselect = \"{select}\"\nblocks = {blocks}\n");
    }
    text += "[[tables]]\nname = \"batch\"\ncolumns = [\n";
    for column in ["queue", "packets", "lost", "first"] {
        text += &format!("  {{ name = \"{column}\", type = \"u64\" }},\n");
    }
    text + "]\n"
}

/// A module that writes a row for each batch and tick, after `turns` of a loop for each batch.
fn wasm(manifest: &str, turns: u64) -> Vec<u8> {
    let text = format!(
        r#"(module (memory (export "memory") 1)
        (data (i32.const 0) "\20\00\00\00\00\00\00\00")
        (func (export "flame_batch") (param $b i32) (result i64) (local $i i64)
            (local.set $i (i64.const {turns}))
            (block $done (loop $turn
                (br_if $done (i64.eqz (local.get $i)))
                (local.set $i (i64.sub (local.get $i) (i64.const 1)))
                (br $turn)))
            (i64.store (i32.const 8) (i64.load32_u offset=24 (local.get $b)))
            (i64.store (i32.const 16) (i64.load32_u offset=4 (local.get $b)))
            (i64.store (i32.const 24) (i64.load offset=8 (local.get $b)))
            (i64.store (i32.const 32) (i64.load (i32.load (local.get $b))))
            (i64.const {out}))
        (func (export "flame_tick") (param $now i64) (result i64)
            (i64.store (i32.const 8) (i64.const {TICK}))
            (i64.store (i32.const 16) (i64.const 0))
            (i64.store (i32.const 24) (i64.const 0))
            (i64.store (i32.const 32) (local.get $now))
            (i64.const {out})))"#,
        out = 40_u64 << 32,
    );
    with_manifest(wat::parse_str(text).unwrap(), manifest.as_bytes())
}

const TWO: [(&str, &str, u32); 2] = [("web", "port 80", 2), ("mail", "port 25", 2)];

/// Packets a millisecond apart: of ten, one to port 25, two to port 99 and seven to port 80.
fn mixed(n: u64, per_block: usize) -> Memory {
    let port = |i: u64| [25, 99, 80, 80, 99, 80, 80, 80, 80, 80][i as usize % 10];
    let packet = |i: u64| (1_000_000_000 + i * 1_000_000, tcp_packet((i % 100) as u16, port(i)));
    Memory { packets: (0..n).map(packet).collect(), per_block }
}

fn in_process(plan: &ModulePlan) -> ModulePlan {
    ModulePlan { process: Some("tenant".to_owned()), ..plan.clone() }
}

/// Runs a module, in its process if it has one, and returns its account and its rows as they came.
fn run(
    plan: &ModulePlan,
    workers: usize,
    source: impl Source + 'static,
) -> Result<(Report, Account, Vec<[u64; 4]>), RunError> {
    let runner = plan.process.as_ref().map(|_| Runner::at(&runner()).unwrap());
    let options = Options { runner, ..options(Arc::default()) };
    let run = Run::new(&Plan::new(vec![plan.clone()], workers, 0), &[], &Engines::new().unwrap(), options)?;
    let mut sink = Lines::default();
    let report = run.execute(Input::Shared(Box::new(source)), &mut sink, &mut Silent)?;
    let account = report.accounts[0].1.clone();
    assert!(account.adds_up() && report.faults.is_empty(), "{account:?}, {:?}", report.faults);
    Ok((report, account, sink.lines.iter().map(|line| row(line)).collect()))
}

/// Returns the values of a line of records.
fn row(line: &str) -> [u64; 4] {
    let values: Vec<u64> =
        line.split('=').skip(1).map(|v| v.split(' ').next().unwrap().parse().unwrap()).collect();
    values.try_into().unwrap()
}

fn packets(rows: &[[u64; 4]], queue: u64) -> u64 {
    rows.iter().filter(|row| row[0] == queue).map(|row| row[1]).sum()
}

fn metered() -> InstallRequest {
    InstallRequest { protection: Protection::Metered, ..request() }
}

#[test]
fn a_replay_is_exact_in_every_place() {
    let wasm = wasm(&manifest(&TWO), 0);
    let bounded = install(&wasm, &request()).unwrap();
    assert_eq!(bounded.class, ModuleClass::Bounded);
    let metered = install(&wasm, &metered()).unwrap();
    let (_, account, expected) = run(&bounded, 1, mixed(25_000, 1000)).unwrap();
    let of: Vec<_> = account.queues.iter().map(|q| (&*q.name, q.packets, q.processed, q.overrun)).collect();
    assert_eq!(of, [("web", 17_500, 17_500, 0), ("mail", 2_500, 2_500, 0)]);
    assert_eq!((account.offered, account.filtered, account.processed), (25_000, 5_000, 20_000));
    assert_eq!((packets(&expected, 0), packets(&expected, 1)), (17_500, 2_500));
    assert!(expected.iter().all(|row| row[2] == 0));
    // At a tick, all packets before it have come, of all queues.
    let mut last = [0; 2];
    for [queue, _, _, first] in &expected {
        if *queue == TICK {
            assert!(last.iter().all(|before| before < first), "{first}: {last:?}");
        } else {
            assert!(last[*queue as usize] < *first, "queue {queue}");
            last[*queue as usize] = *first;
        }
    }
    assert_eq!(expected.iter().filter(|row| row[0] == TICK).count(), 24);
    // Whatever the edges of the source's blocks are.
    for per_block in [1, 7, 1024] {
        assert_eq!(run(&bounded, 1, mixed(25_000, per_block)).unwrap().2, expected, "{per_block}");
    }
    for plan in [metered.clone(), in_process(&bounded), in_process(&metered)] {
        let (_, found, rows) = run(&plan, 1, mixed(25_000, 333)).unwrap();
        assert_eq!((&found, &rows), (&account, &expected), "{:?}, {:?}", plan.class, plan.process);
    }
    // Several workers have the same packets together, and each is exact.
    let of_two = |per_block| {
        let (_, found, mut rows) = run(&bounded, 2, mixed(25_000, per_block)).unwrap();
        assert_eq!(found.queues, account.queues);
        rows.sort_unstable();
        rows
    };
    let found = of_two(100);
    assert_eq!((packets(&found, 0), packets(&found, 1)), (17_500, 2_500));
    assert_eq!(of_two(999), found);
}

/// A process sees each tick of a replay, also those between which no packet of the module comes.
#[test]
fn a_process_misses_no_tick() {
    let wasm = wasm(&manifest(&[("web", "port 80", 2)]), 0);
    let bounded = install(&wasm, &request()).unwrap();
    let second = 1_000_000_000;
    let at = |i: u64| i * second + 1;
    let packet = |i: u64| (at(i), tcp_packet(i as u16, if i == 40 { 80 } else { 99 }));
    let source = || Memory { packets: (1..60).map(packet).collect(), per_block: 7 };
    let ticks = |plan: &ModulePlan| {
        let rows = run(plan, 1, source()).unwrap().2;
        rows.into_iter().filter(|row| row[0] == TICK).map(|row| row[3] / second).collect::<Vec<_>>()
    };
    let expected = ticks(&bounded);
    assert!(expected.len() > 50 && expected.is_sorted(), "{expected:?}");
    assert_eq!(ticks(&in_process(&bounded)), expected);
}

/// A filter that packets of a link type cannot pass is no error of the run: others go on.
#[test]
fn a_filter_that_fails_for_a_link_type_ends_nothing() {
    let queues = [("wlan", "wlan type mgt", 2), ("web", "port 80", 2)];
    let plan = install(&wasm(&manifest(&queues), 0), &request()).unwrap();
    let (_, account, _) = run(&plan, 1, mixed(1000, 100)).unwrap();
    let of: Vec<_> = account.queues.iter().map(|q| (&*q.name, q.packets)).collect();
    assert_eq!(of, [("wlan", 0), ("web", 700)]);
}

/// A packet that passes several filters is in the first of their queues.
#[test]
fn the_first_filter_decides() {
    let queues = [("b", "tcp port 25", 1), ("all", "tcp", 3), ("rest", "", 1)];
    let plan = install(&wasm(&manifest(&queues), 0), &request()).unwrap();
    let (_, account, _) = run(&plan, 1, mixed(1000, 100)).unwrap();
    let of: Vec<_> = account.queues.iter().map(|q| (&*q.name, q.packets)).collect();
    assert_eq!((of, account.filtered), (vec![("b", 100), ("all", 900), ("rest", 0)], 0));
}

/// A flood in one queue of a module that is too slow leaves the packets of the other alone.
#[test]
fn overflow_is_lost_in_its_queue_alone() {
    // Within one second of packet time, so that no tick hands on blocks that are not full.
    let source = || {
        let port = |i: u64| if i.is_multiple_of(500) { 25 } else { 80 };
        let packet = |i: u64| (1_000_000_000 + i * 1000, tcp_packet((i % 100) as u16, port(i)));
        Live(Memory { packets: (0..300_000).map(packet).collect(), per_block: 1000 })
    };
    let limits = Limits { packet_budget: 100_000_000, ..request().limits };
    let request = InstallRequest { limits, ..metered() };
    let text = manifest(&TWO) + "[limits]\npacket_budget = 100_000_000\n";
    let plan = install(&wasm(&text, 12_000_000), &request).unwrap();
    for plan in [plan.clone(), in_process(&plan)] {
        let (_, account, rows) = run(&plan, 1, source()).unwrap();
        let [web, mail] = &account.queues[..] else { panic!("{account:?}") };
        assert_eq!((web.packets, mail.packets), (299_400, 600), "{account:?}");
        assert_eq!((mail.processed, mail.overrun), (600, 0), "{account:?}");
        assert!(web.overrun > 100_000 && web.processed > 1000, "{account:?}");
        assert_eq!(web.processed + web.overrun, web.packets, "{account:?}");
        assert_eq!(account.shed_by(Shed::Overrun), web.overrun);
        // The module learns of the loss of each queue from its batches.
        let lost = |queue| rows.iter().filter(|row| row[0] == queue).map(|row| row[2]).sum::<u64>();
        assert!(lost(0) > 0 && lost(0) <= web.overrun && lost(1) == 0, "{}, {account:?}", lost(0));
    }
}

/// Filters of queues see the packet as it is shown, so hidden bytes bring it into no queue.
#[test]
fn filters_of_queues_see_what_is_shown() {
    let plan = |expose| {
        let key = Some(ViewKey([7; 32]));
        let view = ViewSpec { expose, select_expose: Some(expose), key, ..ViewSpec::default() };
        install(&wasm(&manifest(&TWO), 0), &InstallRequest { view, ..request() }).unwrap()
    };
    let (_, shown, _) = run(&plan(Expose::Headers), 1, mixed(1000, 100)).unwrap();
    assert_eq!((shown.filtered, shown.queues[0].packets), (200, 700));
    let (_, hidden, _) = run(&plan(Expose::None), 1, mixed(1000, 100)).unwrap();
    assert_eq!((hidden.filtered, hidden.processed), (1000, 0));
}

/// Packets that trusted filters hide end no block of a queue, and are in no account.
#[test]
fn hidden_packets_change_nothing() {
    let select = TrustedFilter::parse("port 80 or port 25").unwrap().into_iter().collect();
    let key = Some(ViewKey([7; 32]));
    let view = ViewSpec { select, expose: Expose::Headers, key, ..ViewSpec::default() };
    let plan = install(&wasm(&manifest(&TWO), 0), &InstallRequest { view, ..request() }).unwrap();
    for plan in [plan.clone(), in_process(&plan)] {
        let (_, account, rows) = run(&plan, 1, mixed(25_000, 1000)).unwrap();
        assert_eq!((account.offered, account.filtered), (20_000, 0));
        let mut shown = mixed(25_000, 777);
        shown.packets.retain(|(_, bytes)| bytes[36..38] != 99_u16.to_be_bytes());
        let (_, alone, same) = run(&plan, 1, shown).unwrap();
        assert_eq!((alone, same), (account, rows));
    }
}

#[test]
fn queues_are_bounded_at_the_install() {
    let refused = |queues: &[(&str, &str, u32)], terms: Terms| {
        let request = InstallRequest { terms, ..request() };
        match install(&wasm(&manifest(queues), 0), &request) {
            Err(e @ (InstallError::Queue { .. } | InstallError::Queues { .. })) => e.to_string(),
            other => panic!("{:?}", other.map(|plan| plan.name)),
        }
    };
    let of = |buffer| Terms { buffer, ..Terms::default() };
    let many = (1..=64).map(|n| format!("port {n}")).collect::<Vec<_>>().join(" or ");
    let three = [("a", &*many, 1), ("b", &*many, 1), ("c", &*many, 1)];
    assert!(
        refused(&three, of(0)).contains("at most 32 with 128 are compiled"),
        "{}",
        refused(&three, of(0))
    );
    assert!(refused(&TWO, of(1)).contains("2 event queues need a block each, and 1 may wait"));
    assert!(refused(&[("a", "host example.org", 1)], of(0)).contains("queues.a.select"));
    // A grant with fewer blocks takes them from the longest queues.
    let request = InstallRequest { terms: of(3), ..request() };
    let plan = install(&wasm(&manifest(&[("a", "tcp", 1), ("b", "", 9)]), 0), &request).unwrap();
    assert_eq!(plan.queue_blocks(), Ok(vec![1, 2]));
    // A filter that is no filter ends no run.
    let plan = install(&wasm(&manifest(&[("a", "port 25 or", 1)]), 0), &crate::common::request()).unwrap();
    let error = run(&plan, 1, mixed(10, 10)).map(drop).unwrap_err();
    assert!(error.to_string().contains("port 25 or"), "{error}");
}

/// Modules with queues come, are replaced and go while packets flow, and every packet is accounted for.
#[test]
fn modules_with_queues_come_and_go() {
    for (protection, workers, is_live, isolated) in [
        (Protection::Auto, 1, false, false),
        (Protection::Metered, 2, true, false),
        (Protection::Metered, 2, true, true),
        (Protection::Auto, 1, false, true),
    ] {
        let what = format!("{protection:?}, {workers} workers, live {is_live}, isolated {isolated}");
        let stop = Arc::<AtomicBool>::default();
        let delivered = Arc::<AtomicU64>::default();
        let plan = |id: u32| {
            let queues = [("even", "tcp src port 1024 or tcp src port 1026", 1), ("odd", "", 1 + id % 3)];
            let request = InstallRequest { protection, ..request() };
            let plan = install(&wasm(&manifest(&queues), 100), &request).unwrap();
            let process = isolated.then(|| "tenant".to_owned());
            ModulePlan { id: ModuleId(id), name: format!("q{id}"), process, ..plan }
        };
        let runner = isolated.then(|| Runner::at(&runner()).unwrap());
        let options = Options { runner, ..options(stop.clone()) };
        let plans = Plan { modules: vec![plan(0)], workers, interval_ns: 0 };
        let run = Run::new(&plans, &[], &Engines::new().unwrap(), options).unwrap();
        let source = common::Endless { stop: stop.clone(), delivered: delivered.clone(), is_live };
        let sink = Box::new(Lines::default());
        let worker = Worker::spawn(run, Input::Shared(Box::new(source)), sink, Box::new(Silent)).unwrap();
        let handle = worker.handle();
        let wait = || {
            let before = delivered.load(Ordering::Relaxed);
            common::eventually("packets", || delivered.load(Ordering::Relaxed) >= before + 1500);
        };
        for id in 1..=4 {
            wait();
            handle.add(&Module::from(plan(2 * id))).unwrap();
            wait();
            let replaced = handle.replace(ModuleId(2 * id), &Module::from(plan(2 * id + 1))).unwrap();
            wait();
            let removed = handle.remove(ModuleId(2 * id + 1)).unwrap();
            for account in [replaced, removed] {
                assert!(account.adds_up() && account.offered > 0, "{what}: {account:?}");
                let sum =
                    |of: fn(&flame_plan::QueueAccount) -> u64| account.queues.iter().map(of).sum::<u64>();
                assert!(sum(|q| q.packets) > 0, "{what}: {account:?}");
                assert_eq!(sum(|q| q.packets), account.offered - account.filtered, "{what}: {account:?}");
                assert_eq!(sum(|q| q.overrun), account.shed_by(Shed::Overrun), "{what}: {account:?}");
            }
        }
        let wrong = install(&wasm(&manifest(&[("a", "port 25 or", 1)]), 0), &request()).unwrap();
        let error = handle.add(&Module::from(ModulePlan { id: ModuleId(50), ..wrong })).unwrap_err();
        assert!(error.to_string().contains("port 25 or"), "{error}");
        stop.store(true, Ordering::Relaxed);
        let report = worker.join().unwrap().0;
        assert!(report.faults.is_empty(), "{what}: {:?}", report.faults);
        assert!(report.accounts.iter().all(|(_, account)| account.adds_up()), "{what}: {report:?}");
    }
}

/// The values of the rows of a command, of the queues 0 and 1 together: packets by queue.
fn by_queue(rows: &str) -> [u64; 2] {
    let rows = rows.lines().filter(|line| line.starts_with('{'));
    let rows: Vec<Value> = rows.map(|line| serde_json::from_str(line).unwrap()).collect();
    [0, 1].map(|queue| {
        rows.iter().filter(|row| row["queue"] == queue).map(|row| row["packets"].as_u64().unwrap()).sum()
    })
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("q.wasm"), wasm(&manifest(&TWO), 0)).unwrap();
    let packets = mixed(1000, 1).packets.into_iter().map(|(ts_ns, bytes)| (ts_ns / 1_000_000, bytes));
    std::fs::write(folder.path().join("in.pcap"), common::pcap(packets)).unwrap();
    folder
}

#[test]
fn a_module_in_a_graph_has_queues() {
    let folder = folder();
    let run = ["run", "./q.wasm", "-r", "in.pcap", "--format", "json", "--stats", "json"];
    let out = commands::flame(folder.path(), &run);
    let rows = commands::text(&out.stdout);
    assert_eq!(by_queue(&rows), [700, 100], "{}", commands::text(&out.stderr));
    let said = commands::text(&out.stderr);
    let stats: Value = serde_json::from_str(&said[said.find("{\"").unwrap()..]).unwrap();
    let mail = serde_json::json!({"name": "mail", "packets": 100, "processed": 100, "overrun": 0});
    assert_eq!(stats["modules"]["q"]["queues"][1], mail, "{stats}");
    let graph = "FromDump(in.pcap, STOP true) -> m :: Module(./q.wasm) -> c :: Counter -> Discard";
    let (out, err) = commands::ran(folder.path(), graph, &["-h", "c.count", "-h", "m.account"]);
    let said = out.replace('\n', " ");
    assert!(said.contains("c.count: 1000") && said.contains("given 1000 held 0"), "{out}");
    assert_eq!((by_queue(&out), err.as_str()), ([700, 100], ""));
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().filter(|l| l.starts_with('{')).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&out), sorted(&rows));
}

#[test]
fn a_module_in_c_has_queues() {
    let folder = folder();
    let source = folder.path().join("in-c");
    commands::done(folder.path(), &["new", "in-c", "--lang", "c"]);
    let text = r#"#include "flame.h"
FLAME_EXPORT(flame_batch) uint64_t flame_batch(const struct flame_batch *batch) {
  flame_row(0);
  flame_u64(flame_queue(batch));
  flame_u64(batch->count);
  flame_u64(batch->lost);
  flame_u64(flame_descriptors(batch)->ts_ns);
  flame_finish();
  return flame_output(FLAME_DONE);
}
"#;
    std::fs::write(source.join("module.c"), text).unwrap();
    std::fs::write(source.join("module.toml"), manifest(&TWO).replace("\"q\"", "\"in-c\"")).unwrap();
    let run = ["run", &build(&source), "-r", "in.pcap", "-q", "--format", "json"];
    assert_eq!(by_queue(&commands::done(folder.path(), &run)), [700, 100]);
    // An invalid filter is an error of the build, with its line.
    let wrong = manifest(&[("web", "port 80", 2), ("mail", "port 25 or", 1)]);
    std::fs::write(source.join("module.toml"), wrong.replace("\"q\"", "\"in-c\"")).unwrap();
    let out = commands::flame(folder.path(), &["build", "in-c"]);
    let said = commands::text(&out.stderr);
    assert!(!out.status.success() && said.contains("manifest, line 11: queues.mail.select"), "{said}");
    let refused = |queues: &[(&str, &str, u32)], filters: &[&str]| {
        let channel = |(n, filter): (usize, &&str)| {
            format!("[[channels]]\nname = \"c{n}\"\nfilter = \"{filter}\"\nrate = \"1 Mbit/s\"\n")
        };
        let channels: String = filters.iter().enumerate().map(channel).collect();
        let text = manifest(queues).replace("\"q\"", "\"in-c\"") + &channels;
        std::fs::write(source.join("module.toml"), text).unwrap();
        let out = commands::flame(folder.path(), &["build", "in-c"]);
        assert!(!out.status.success(), "{queues:?} {filters:?}");
        commands::text(&out.stderr)
    };
    let said = refused(&TWO, &["icmp and and"]);
    assert!(said.contains("channels.c0.filter: \"icmp and and\""), "{said}");
    // Channels carry Ethernet.
    let said = refused(&TWO, &["", "wlan type mgt"]);
    assert!(said.contains("channels.c1.filter: ") && said.contains("802.11"), "{said}");
    // Each is small enough, and together they are not.
    let many = (1..=64).map(|n| format!("src host 10.0.0.{n}")).collect::<Vec<_>>().join(" or ");
    let said = refused(&[("a", &many, 1), ("b", &many, 1), ("c", "port 1", 1)], &[]);
    assert!(said.contains("line 15: queues.c.select: ") && said.contains("3 filters with 129"), "{said}");
    let said = refused(&TWO, &[&many, &many, "port 1"]);
    assert!(said.contains("channels.c2.filter: ") && said.contains("3 filters with 129"), "{said}");
}

/// A module of a tenant, in a process, has other queues after an update, and its account has them by name.
#[test]
fn a_node_shows_queues() {
    let mut node = Node::new(&daemon::replay());
    node.mint("alice", &[]);
    runner();
    node.start();
    let write = |file: &str, queues: &[(&str, &str, u32)]| {
        let path = node.path(file);
        std::fs::write(&path, wasm(&manifest(queues), 0)).unwrap();
        path.display().to_string()
    };
    let queues = || {
        let account = node.json_of("alice", &["show", "q"])["account"].clone();
        let of = |queue: &Value| {
            let number = |key: &str| queue[key].as_u64().unwrap();
            assert!(number("processed") + number("overrun") <= number("packets"), "{account}");
            (queue["name"].as_str().unwrap().to_owned(), number("processed"))
        };
        account["queues"].as_array().map_or(Vec::new(), |all| all.iter().map(of).collect::<Vec<_>>())
    };
    node.json_of("alice", &["install", &write("a.wasm", &[("dns", "port 53", 1), ("rest", "", 2)])]);
    wait_for(
        "packets in both queues",
        || matches!(&queues()[..], [(dns, a @ 1..), (rest, b)] if dns == "dns" && rest == "rest" && a < b),
    );
    node.json_of("alice", &["update", "q", &write("b.wasm", &[("tcp", "tcp", 3)])]);
    wait_for("packets in the other queue", || queues().iter().any(|(name, n)| name == "tcp" && *n > 10));
    let shown = node.run(&["show", "q", "--principal", "alice"]);
    assert!(
        shown.contains("queue        tcp: ") && shown.contains(" lost with all blocks in use"),
        "{shown}"
    );
    // As many blocks as queues, at least.
    let five = write("c.wasm", &["a", "b", "c", "d", "e"].map(|name| (name, "tcp", 1)));
    let of = ["--credential", "alice.cred", "--identity", "alice.key"];
    let install = ["install", &five, "--name", "five", "--reserve", "blocks=4"];
    let refused = node.refused(&[&install[..], &of].concat());
    assert!(refused.contains("5 event queues need a block each, and 4 may wait"), "{refused}");
    node.json_of("alice", &["install", &five, "--name", "five"]);
    node.end();
}
