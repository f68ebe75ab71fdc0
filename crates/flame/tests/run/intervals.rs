//! Tests of views that show times in steps: on a live source they show whole intervals only, whenever a run
//! or a module begins and ends.

use crate::commands::{done, policy};
use crate::common::{self, MANIFEST, install, options, request, runner, tcp_packet, with_manifest};
use crate::daemon::{Node, wait_for};
use crate::network::{self, Net};
use flame_plan::{Account, Discipline, Expose, ModuleId, ModulePlan, Plan, ViewKey, ViewSpec};
use flame_run::Engines;
use flame_source::{Next, Progress, RawBlock, Source, SourceError};
use flame_worker::{Input, Module, NotDue, Options, Run, Runner, Silent, Worker};
use serde_json::Value;
use std::collections::VecDeque;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub const MS: u64 = 1_000_000;
/// The packets of a second.
const RATE: u64 = 100;

/// A module that reports how many packets it sees: in each batch (0), at ticks (1) and at its end (2). Its
/// slow instance does so as well, with 10 added.
const COUNTS: &str = r#"(module (memory (export "memory") 1)
    (data (i32.const 64) "\10\00\00\00\00\00\00\00")
    (data (i32.const 88) "\08\00\00\00\ff\ff\00\00")
    (global $total (mut i64) (i64.const 0))
    (global $slow (mut i64) (i64.const 0))
    (func $row (param $kind i64) (param $packets i64)
        (i64.store (i32.const 72) (i64.add (local.get $kind) (global.get $slow)))
        (i64.store (i32.const 80) (local.get $packets)))
    (func $add (param $packets i64)
        (global.set $total (i64.add (global.get $total) (local.get $packets))))
    (func (export "flame_batch") (param $batch i32) (result i64)
        (i64.store (i32.const 96) (i64.load32_u offset=4 (local.get $batch)))
        (call $add (i64.load (i32.const 96)))
        (call $row (i64.const 0) (i64.load (i32.const 96)))
        (i64.const 0x2800000040))
    (func (export "flame_message") (param $at i32) (param i32) (result i64)
        (global.set $slow (i64.const 10))
        (call $add (i64.load (local.get $at)))
        (i64.const 0))
    (func (export "flame_tick") (param i64) (result i64)
        (call $row (i64.const 1) (global.get $total))
        (global.set $total (i64.const 0))
        (i64.const 0x1800000040))
    (func (export "flame_end") (param i64) (result i64)
        (call $row (i64.const 2) (global.get $total))
        (i64.const 0x1800000040)))"#;

/// Returns the module.
fn module() -> Vec<u8> {
    let column = "columns = [{ name = \"packets\", type = \"u64\" }]";
    let columns = "columns = [{ name = \"kind\", type = \"u64\" }, { name = \"packets\", type = \"u64\" }]";
    with_manifest(wat::parse_str(COUNTS).unwrap(), MANIFEST.replace(column, columns).as_bytes())
}

/// Returns the plan of the module on a view with this resolution.
fn counts(resolution_ns: u64, process: Option<&str>) -> ModulePlan {
    let plan = on_view(install(&module(), &request()).unwrap(), resolution_ns);
    ModulePlan { process: process.map(str::to_owned), ..plan }
}

/// Lets a module see times in steps, and no bytes.
pub fn on_view(plan: ModulePlan, resolution_ns: u64) -> ModulePlan {
    let key = Some(ViewKey([7; 32]));
    let view = ViewSpec { expose: Expose::None, resolution_ns, key, ..ViewSpec::default() };
    ModulePlan { view, ..plan }
}

/// A step of a link, between two blocks.
pub enum Step {
    Act(Box<dyn FnOnce() + Send>),
    /// The workers wait for each other.
    Meet(Arc<Barrier>),
    /// Nothing comes, and time stands still, until this is done.
    Await(Arc<AtomicBool>),
    /// Nothing comes, and the worker executes the commands that wait.
    Pause,
}

/// A live source of a packet each 10 ms, which takes steps at given times. Times are in milliseconds.
pub struct Link {
    now: u64,
    until: u64,
    pub steps: VecDeque<(u64, Step)>,
}

impl Source for Link {
    fn next(&mut self, block: &mut RawBlock) -> Result<Next, SourceError> {
        if self.now >= self.until {
            return Ok(Next::End);
        }
        std::thread::sleep(Duration::from_millis(1));
        while self.is_ready()
            && let Some((_, step)) = self.steps.pop_front_if(|(at, _)| *at <= self.now)
        {
            match step {
                Step::Act(act) => act(),
                Step::Meet(all) => drop(all.wait()),
                Step::Await(_) => {}
                Step::Pause => return Ok(Next::Quiet),
            }
        }
        if !self.is_ready() {
            return Ok(Next::Quiet);
        }
        let packets = (0..10).map(|n| ((self.now + 10 * n) * MS, tcp_packet(n as u16, 80))).collect();
        self.now += 100;
        common::Memory { packets, per_block: 10 }.next(block)
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }

    fn discipline(&self) -> Discipline {
        Discipline::Link
    }

    fn is_ready(&self) -> bool {
        match self.steps.front() {
            Some((at, Step::Await(done))) => *at > self.now || done.load(Ordering::Relaxed),
            _ => true,
        }
    }
}

/// A link of each worker.
pub fn links(workers: u64, (now, until): (u64, u64)) -> Vec<Link> {
    let link = |_| Link { now, until, steps: VecDeque::new() };
    let mut links: Vec<_> = (0..workers).map(link).collect();
    meet(&mut links, now + 100);
    links
}

/// Lets the workers meet before the block at a time.
fn meet(links: &mut [Link], at: u64) {
    let meets = Arc::new(Barrier::new(links.len()));
    links.iter_mut().for_each(|link| link.steps.push_back((at, Step::Meet(meets.clone()))));
}

/// Is done when it is dropped, even by a panic.
struct Done(Arc<AtomicBool>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Lets a thread act before the block at a time, while all workers wait. They have executed its commands
/// before any of them gets another packet.
pub fn act(links: &mut [Link], at: u64, act: impl FnOnce() + Send + 'static) {
    meet(links, at);
    let done = Arc::<AtomicBool>::default();
    let of = Done(done.clone());
    let act = move || {
        let _of = of;
        act();
    };
    links[0].steps.push_back((at, Step::Act(Box::new(move || drop(std::thread::spawn(act))))));
    for link in &mut *links {
        link.steps.extend([(at, Step::Await(done.clone())), (at, Step::Pause)]);
    }
    meet(links, at);
}

pub fn input(links: Vec<Link>) -> Input {
    Input::PerWorker(links.into_iter().map(|link| Box::new(link) as Box<dyn Source>).collect())
}

/// The packets by what a module reports, in all, and its account.
#[derive(Debug, PartialEq)]
struct Seen {
    batches: u64,
    fast: u64,
    slow: u64,
    rows: usize,
    account: (u64, u64),
    undue: Vec<NotDue>,
}

/// Returns the packets in rows of these kinds.
fn of_kinds(lines: &[String], kinds: &[u64]) -> u64 {
    let field = |line: &String, name: &str| -> u64 {
        let at = line.find(name).unwrap() + name.len();
        line[at..].split(' ').next().unwrap().parse().unwrap()
    };
    let of = |line: &&String| kinds.contains(&field(line, "kind="));
    lines.iter().filter(of).map(|line| field(line, "packets=")).sum()
}

impl Seen {
    fn of(lines: &[String], account: &Account, undue: Vec<NotDue>) -> Self {
        let (batches, fast, slow) =
            (of_kinds(lines, &[0]), of_kinds(lines, &[1, 2]), of_kinds(lines, &[11, 12]));
        assert!(account.adds_up(), "{account:?}");
        let account = (account.offered, account.processed);
        Self { batches, fast, slow, rows: lines.len(), account, undue }
    }

    /// Returns what is seen of all packets of some time.
    fn all(&self, packets: u64) {
        let Self { batches, fast, slow, account, undue, .. } = self;
        assert_eq!(
            (*batches, *fast, *slow, *account),
            (packets, packets, packets, (packets, packets)),
            "{self:?}"
        );
        assert!(undue.is_empty(), "{self:?}");
    }

    /// Asserts that nothing is seen.
    fn nothing(&self) {
        let undue = vec![NotDue { module: "hostile".to_owned(), since_ns: None }];
        assert_eq!(*self, Self { batches: 0, fast: 0, slow: 0, rows: 0, account: (0, 0), undue });
    }
}

pub fn options_of(plan: &ModulePlan, stop: &Arc<AtomicBool>) -> Options {
    let runner = plan.process.as_ref().map(|_| Runner::at(&runner()).unwrap());
    Options { runner, ..options(stop.clone()) }
}

/// Runs the module from `start` until its stop is requested, on links that go on for long.
fn run(plan: &ModulePlan, workers: u64, (start, stop_at): (u64, u64)) -> Seen {
    let stop = Arc::<AtomicBool>::default();
    let mut links = links(workers, (start, stop_at + 60_000));
    meet(&mut links, stop_at - 100);
    for link in &mut links {
        let stop = stop.clone();
        let act = Step::Act(Box::new(move || stop.store(true, Ordering::Relaxed)));
        link.steps.push_back((stop_at, act));
    }
    let of_plan = Plan::new(vec![plan.clone()], workers as usize, 0);
    let run = Run::new(&of_plan, &[], &Engines::new().unwrap(), options_of(plan, &stop)).unwrap();
    let mut sink = common::Lines::default();
    let report = run.execute(input(links), &mut sink, &mut Silent).unwrap();
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    Seen::of(&sink.lines, &report.accounts[0].1, report.undue)
}

/// The places and numbers of workers.
pub const PLACES: [(u64, Option<&str>); 4] = [(1, None), (2, None), (1, Some("p")), (2, Some("p"))];

#[test]
fn a_run_shows_whole_intervals_only() {
    for (workers, process) in PLACES {
        let seen = |resolution, from, stop_at| run(&counts(resolution, process), workers, (from, stop_at));
        // Without a resolution, a run of 0.7 s counts its packets, and those of the block with the stop.
        let exact = seen(1, 10_300, 11_000);
        let most = workers * 80;
        assert!((workers * 70..=most).contains(&exact.batches), "{workers} {process:?}: {exact:?}");
        exact.all(exact.batches);
        // No interval begins in it.
        seen(2_000 * MS, 10_300, 11_000).nothing();
        // One begins, and the run continues to its end.
        seen(2_000 * MS, 11_700, 12_400).all(workers * 2 * RATE);
        // Of 5 s, the first 1.7 s belong to an interval that began before.
        seen(2_000 * MS, 10_300, 15_300).all(workers * 4 * RATE);
        // Ticks are multiples of the default of 1 s.
        seen(1_000, 10_300, 11_500).all(workers * RATE);
    }
}

/// The part of a module's life that somebody decides about at will.
#[test]
fn a_module_that_comes_and_goes_sees_whole_intervals_only() {
    std::thread::scope(|scope| {
        PLACES.into_iter().for_each(|place| drop(scope.spawn(move || comes_and_goes(place))));
    });
}

fn comes_and_goes((workers, process): (u64, Option<&str>)) {
    for (resolution, added, removed, expected) in [
        (1, 12_300, 13_000, None),
        (2_000 * MS, 12_300, 13_000, Some(0)),
        // It leaves within its second interval.
        (2_000 * MS, 11_900, 15_100, Some(workers * 2 * RATE)),
        (2_000 * MS, 12_300, 18_100, Some(workers * 4 * RATE)),
    ] {
        let stop = Arc::<AtomicBool>::default();
        let plan = counts(resolution, process);
        let empty = Plan::new(Vec::new(), workers as usize, 2_000 * MS);
        let engines = Engines::new().unwrap();
        let run = Run::new(&empty, &[], &engines, options_of(&plan, &stop)).unwrap();
        let (handle, lines) = (run.handle(), Arc::<Mutex<common::Lines>>::default());
        let mut links = links(workers, (10_000, 70_000));
        let (keep, meters, areas) = Default::default();
        let of = Module { plan: plan.clone(), meters, keep, areas, time: None };
        let adding = handle.clone();
        let add = move || adding.add(&of).unwrap();
        act(&mut links, added, add);
        let (removing, accounts) = (handle.clone(), Arc::<Mutex<Vec<Account>>>::default());
        let (to, rows) = (accounts.clone(), lines.clone());
        let remove = move || {
            // What is due leaves while the module runs.
            let due = || of_kinds(&rows.lock().unwrap().lines, &[11, 12]) == expected.unwrap_or(0);
            wait_for("the rows of whole intervals", due);
            let account = removing.remove(ModuleId(0)).unwrap();
            to.lock().unwrap().push(account);
            removing.stop();
        };
        act(&mut links, removed, remove);
        let sink = Box::new(Shared(lines.clone()));
        let worker = Worker::spawn(run, input(links), sink, Box::new(Silent)).unwrap();
        worker.join().unwrap();
        let account = accounts.lock().unwrap().pop().unwrap();
        let seen = Seen::of(&lines.lock().unwrap().lines, &account, Vec::new());
        match expected {
            // The time of the removal decides.
            None => assert!(seen.fast > 0 && seen.fast == account.offered, "{seen:?}"),
            Some(0) => assert_eq!((seen.rows, seen.account), (0, (0, 0)), "{workers} {process:?}"),
            Some(packets) => {
                assert_eq!(seen.account, (packets, packets), "{workers} {process:?}");
                assert_eq!(
                    (seen.batches, seen.fast, seen.slow),
                    (packets, packets, packets),
                    "{workers} {process:?}"
                )
            }
        }
    }
}

/// A slow instance may pass several ticks at a time. What it made before the last of them is of an interval
/// before.
#[test]
fn output_of_a_slow_instance_has_the_tick_after_which_it_was_made() {
    let shape = flame_execute::Shape { workers: 1, tick_ns: 10, interval_ns: 10 };
    let plan = flame_execute::Module::from(counts(10, None));
    let module = flame_execute::LoadedModule::new(&Engines::new().unwrap(), &plan).unwrap();
    let (mut slow, fault) = flame_execute::SlowLoop::new(shape, &module, Discipline::Link, 0);
    assert!(fault.is_none());
    for tick in [10, 20, 30] {
        slow.message(0, tick, &[0; 8]);
        slow.passed(0, tick);
        slow.tick(tick);
    }
    let (stop, mut since) = (AtomicBool::new(false), Vec::new());
    let stop = flame_execute::Stop::new(&stop);
    let mut each = |tick, _: flame_run::Output<'_>| {
        since.push(tick);
        Ok::<(), ()>(())
    };
    let fault = slow.go(&flame_execute::Quantum::whole(&stop), &mut each).unwrap();
    assert!(fault.is_none());
    // The first tick ends no interval, and has no call.
    assert_eq!(since, [10, 20]);
}

/// A sink that is looked at after the run.
struct Shared(Arc<Mutex<common::Lines>>);

impl flame_record::Sink for Shared {
    fn write(
        &mut self,
        module: &str,
        table: &flame_abi::manifest::Table,
        batch: &flame_record::RecordBatch,
    ) -> Result<(), flame_record::SinkError> {
        self.0.lock().unwrap().write(module, table, batch)
    }

    fn flush(&mut self) -> Result<(), flame_record::SinkError> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), flame_record::SinkError> {
        Ok(())
    }
}

/// Its owner ends it, or its source.
#[test]
fn a_run_that_ends_at_once_shows_whole_intervals_only() {
    for (workers, process) in PLACES {
        for resolution in [1, 2_000 * MS] {
            let plan = counts(resolution, process);
            let mut links = links(workers, (10_300, 70_000));
            let of_plan = Plan::new(vec![plan.clone()], workers as usize, 0);
            let options = options_of(&plan, &Arc::default());
            let run = Run::new(&of_plan, &[], &Engines::new().unwrap(), options).unwrap();
            meet(&mut links, 15_200);
            for link in &mut links {
                let handle = run.handle();
                link.steps.push_back((15_300, Step::Act(Box::new(move || handle.stop()))));
            }
            let mut sink = common::Lines::default();
            let report = run.execute(input(links), &mut sink, &mut Silent).unwrap();
            let seen = Seen::of(&sink.lines, &report.accounts[0].1, report.undue);
            let Seen { batches, fast, slow, .. } = seen;
            if resolution == 1 {
                assert!(fast >= workers * 5 * RATE && (fast, slow) == (batches, batches), "{seen:?}");
                continue;
            }
            let whole = workers * 2 * RATE;
            assert_eq!((batches, fast, slow, seen.account), (whole, whole, whole, (whole, whole)));
            let undue = vec![NotDue { module: "hostile".to_owned(), since_ns: Some(14_000 * MS) }];
            assert_eq!(seen.undue, undue);
        }
    }
}

/// The resolution of the tests on an interface: much longer than all that they do within an interval.
const STEP: u64 = 10;

/// Returns the present time in milliseconds since the last multiple of the resolution.
fn phase() -> u64 {
    (SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64) % (STEP * 1000)
}

/// Waits until an interval has begun a moment ago.
fn wait_for_interval() {
    let left = STEP * 1000 - phase();
    std::thread::sleep(Duration::from_millis(left + 100));
}

fn frames() -> Vec<Vec<u8>> {
    (0..50).map(|n| network::ipv4(&[], 17, (n, 9), (2, 53), 122)).collect()
}

/// The rows of a capture, its messages and its status.
fn captured(out: Output) -> (Vec<Value>, String, Option<i32>) {
    let rows = String::from_utf8(out.stdout).unwrap();
    let rows = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (rows, String::from_utf8(out.stderr).unwrap(), out.status.code())
}

/// Returns the packets that the fast instances have reported at ticks and at the end.
fn packets(rows: &[Value]) -> u64 {
    let of = |row: &&Value| matches!(row["kind"].as_u64(), Some(1 | 2));
    rows.iter().filter(of).map(|row| row["packets"].as_u64().unwrap()).sum()
}

#[test]
fn a_command_on_an_interface_ends_with_an_interval() {
    common::runner();
    let Some(net) = Net::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    done(folder.path(), &["key", "new", "root.key"]);
    done(folder.path(), &["key", "new", "node.key"]);
    let role = "expose = \"none\"\ncalls = \"records, messages\"\n";
    std::fs::write(folder.path().join("revoked"), "").unwrap();
    policy(folder.path(), role);
    std::fs::write(folder.path().join("m.wasm"), module()).unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mint = |name: &str, more: &[&str]| {
        let to =
            ["grant", "mint", "--key", "root.key", "--to", "alice", "--role", "all", "--code", "any", "-o"];
        done(folder.path(), &[&to[..], &[name], more].concat());
    };
    mint("exact.cred", &[]);
    mint("steps.cred", &["--resolution", "10s"]);
    let (wasm, policy) = (path("m.wasm"), path("policy.toml"));
    let start = |credential: &str, sockets, more: &[&str]| {
        let credential = path(credential);
        let of = [&wasm, "--policy", &policy, "--credential", &credential, "--format", "json"];
        net.capture(&[&of[..], more].concat(), sockets)
    };
    // A run of a moment, within an interval. Without a resolution it counts exactly.
    for credential in ["exact.cred", "steps.cred"] {
        let (rows, said, status) = loop {
            wait_for_interval();
            let capture = start(credential, 1, &[]);
            net.send(&frames(), 2);
            std::thread::sleep(Duration::from_millis(200));
            capture.signal("INT");
            let began = phase();
            let out = captured(capture.end());
            if (100..STEP * 1000 - 1000).contains(&began) && phase() >= began {
                break out;
            }
        };
        assert_eq!(status, Some(0), "{said}");
        let (packets, account): (_, Value) = (packets(&rows), account(&said));
        if credential == "exact.cred" {
            assert_eq!(
                (packets, account["modules"]["hostile"]["offered"].as_u64()),
                (100, Some(100)),
                "{said}"
            );
        } else {
            assert!(rows.is_empty() && account["modules"]["hostile"]["offered"] == 0, "{rows:?} {said}");
            assert!(said.contains("hostile: nothing is due yet"), "{said}");
        }
    }
    // The first packets are of an interval that had begun before, the next ones of the one in which it stops.
    let (both, again) = loop {
        let both = [start("steps.cred", 1, &[]), start("steps.cred", 3, &["--isolate", "--workers", "2"])];
        let again = start("steps.cred", 4, &[]);
        let all = || both.iter().chain([&again]);
        net.send(&frames(), 1);
        wait_for_interval();
        let begun = Instant::now();
        net.send(&frames(), 2);
        // They pass the tick meanwhile, of which nothing shows.
        std::thread::sleep(Duration::from_secs(1));
        all().for_each(|capture| capture.signal("INT"));
        wait_for("the request", || all().all(|capture| capture.so_far().1.contains("stopping at ")));
        // Two signals within a second are one.
        std::thread::sleep(Duration::from_millis(1300));
        // It is shown all that comes until the interval ends.
        net.send(&frames(), 3);
        again.signal("INT");
        // On a busy machine, the interval has ended meanwhile.
        if begun.elapsed() < Duration::from_secs(STEP - 1) {
            break (both, again);
        }
    };
    let (rows, said, status) = captured(again.end());
    assert_eq!((rows.len(), status), (0, Some(130)), "{said}");
    let stops = phase();
    for capture in both {
        let (rows, said, status) = captured(capture.end());
        assert_eq!(status, Some(0), "{said}");
        assert!(said.contains("stopping at ") && phase() < stops, "{said}");
        assert_eq!(packets(&rows), 250, "{said}");
        assert_eq!(account(&said)["modules"]["hostile"]["offered"], 250, "{said}");
    }
}

/// Returns the account, which is one line of messages.
fn account(said: &str) -> Value {
    let line = said.lines().find(|line| line.starts_with('{'));
    serde_json::from_str(line.unwrap_or_else(|| panic!("no account in {said}"))).unwrap()
}

#[test]
fn a_holder_learns_nothing_by_stopping_a_module_on_a_node() {
    let Some(net) = Net::new() else { return };
    let tap = format!("[sources.tap]\ninterface = \"rx0\"\ninterval = \"{STEP}s\"\n");
    let mut node = Node::new(&tap).within(&net.namespace);
    node.mint("exact", &[]);
    node.mint("steps", &["--resolution", "10s"]);
    std::fs::write(node.path("m.wasm"), module()).unwrap();
    node.start();
    let of = |name: &str, words: &[&str]| {
        let (credential, key) = (format!("{name}.cred"), format!("{name}.key"));
        node.run(&[words, &["--credential", &credential, "--identity", &key]].concat())
    };
    let rows = |name: &str| -> Vec<Value> {
        let text = of(name, &["records", "m", "--format", "json"]);
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    for name in ["exact", "steps"] {
        // The first time, the module is compiled.
        of(name, &["install", "./m.wasm", "--name", "m"]);
        of(name, &["remove", "m"]);
        let rows_of = loop {
            wait_for_interval();
            of(name, &["install", "./m.wasm", "--name", "m"]);
            net.send(&frames(), 2);
            std::thread::sleep(Duration::from_millis(300));
            of(name, &["stop", "m"]);
            let ended = phase();
            let rows = rows(name);
            if (100..STEP * 1000 - 500).contains(&ended) {
                break rows;
            }
            of(name, &["remove", "m"]);
        };
        match name {
            "exact" => assert_eq!(packets(&rows_of), 100, "{rows_of:?}"),
            _ => assert!(rows_of.is_empty(), "{rows_of:?}"),
        }
    }
    // A whole interval, and a part of the next one.
    of("steps", &["update", "m", "./m.wasm"]);
    wait_for_interval();
    net.send(&frames(), 3);
    wait_for_interval();
    let begun = Instant::now() - Duration::from_millis(phase());
    net.send(&frames(), 1);
    wait_for("the interval", || packets(&rows("steps")) > 0);
    of("steps", &["stop", "m"]);
    // On a busy machine, the next interval ended meanwhile.
    let due = if begun.elapsed() < Duration::from_secs(STEP) { 150 } else { 200 };
    assert_eq!(packets(&rows("steps")), due);
    // Neither the account nor the log has the packets of the interval that did not end.
    let account = |name: &str| node.json_of(name, &["show", "m"])["account"]["offered"].clone();
    assert_eq!((account("steps"), account("exact")), (due.into(), 100.into()));
    node.end();
}
