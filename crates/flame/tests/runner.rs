//! Modules in a process of their own: the same records, and nothing but their own packets is lost with it.

mod common;

use arrow::array::{AsArray, types::UInt64Type};
use common::{COUNT, Lines, Memory, install, module, options, request, root, with_manifest};
use flame_abi::manifest::Table;
use flame_plan::{ModulePlan, Plan, Reason, Shed};
use flame_record::{RecordBatch, Sink, SinkError};
use flame_run::Engines;
use flame_source::{FileOptions, Next, Progress, RawBlock, Source, SourceError};
use flame_worker::{Input, Options, Report, Run, RunError, Silent, Worker};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Returns the runner, built without the compiler's features: next to this workspace's own results, and apart
/// from them.
fn runner() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
        let target = target.join("runner");
        let built = Command::new(env!("CARGO"))
            .args(["build", "--release", "--quiet", "-p", "flame-runner", "--target-dir"])
            .arg(&target)
            .current_dir(root())
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        target.join("release/flame-runner")
    };
    BUILT.get_or_init(build).clone()
}

fn with(runner: &Path) -> Options {
    Options { runner: Some(runner.to_owned()), ..options(Arc::default()) }
}

fn counter(name: &str) -> ModulePlan {
    let wasm = with_manifest(wat::parse_str(COUNT).unwrap(), common::MANIFEST.as_bytes());
    ModulePlan { name: name.to_owned(), ..install(&wasm, &request()).unwrap() }
}

fn in_process(plan: &ModulePlan, process: &str) -> ModulePlan {
    ModulePlan { process: Some(process.to_owned()), ..plan.clone() }
}

/// Runs modules over packets, and returns the report and the records of each table in order.
fn run(
    modules: Vec<ModulePlan>,
    workers: usize,
    source: impl Source + 'static,
    options: Options,
) -> Result<(Report, BTreeMap<String, Vec<String>>), RunError> {
    let plan = Plan::new(modules, workers, 0);
    let run = Run::new(&plan, &[], &Engines::new().unwrap(), options)?;
    let mut sink = Lines::default();
    let report = run.execute(Input::Shared(Box::new(source)), &mut sink, &mut Silent)?;
    for (name, account) in &report.accounts {
        assert!(account.adds_up(), "{name}: {account:?}");
    }
    let mut lines: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for line in sink.lines {
        lines.entry(line.split(' ').next().unwrap().to_owned()).or_default().push(line);
    }
    Ok((report, lines))
}

/// Standard modules write the same records, in the same order, and have the same accounts.
#[test]
fn records_do_not_depend_on_the_place() {
    let names = ["count", "flow", "rtt", "http", "worm", "trajectory"];
    let Some(modules) = names.iter().map(|name| module(name)).collect::<Option<Vec<_>>>() else { return };
    let here: Vec<_> = modules.iter().map(|wasm| install(wasm, &request()).unwrap()).collect();
    let there: Vec<_> = here.iter().map(|plan| in_process(plan, "tenant")).collect();
    for workers in [1, 3] {
        let file =
            || Opened(flame_source::open(&[root().join("demo/demo.pcap")], &FileOptions::default()).unwrap());
        let (expected, mut records) = run(here.clone(), workers, file(), options(Arc::default())).unwrap();
        let (found, mut remote) = run(there.clone(), workers, file(), with(&runner())).unwrap();
        assert_eq!((found.faults.len(), found.packets), (0, expected.packets), "{:?}", found.faults);
        assert_eq!(found.accounts, expected.accounts, "{workers} workers");
        if workers > 1 {
            // Workers write in any order.
            records.values_mut().chain(remote.values_mut()).for_each(|lines| lines.sort());
        }
        assert!(records.len() >= 8, "{:?}", records.keys());
        for (name, lines) in &records {
            let found = &remote[name];
            let differs = lines.iter().zip(found).position(|(a, b)| a != b);
            let at = differs.map(|at| (at, &lines[at], &found[at]));
            assert!(
                lines == found,
                "{name}, {workers} workers: {} and {} lines, {at:?}",
                lines.len(),
                found.len()
            );
        }
    }
}

/// A source that was opened as a file.
struct Opened(Box<dyn Source>);

impl Source for Opened {
    fn next(&mut self, block: &mut RawBlock) -> Result<Next, SourceError> {
        self.0.next(block)
    }

    fn progress(&self) -> Progress {
        self.0.progress()
    }
}

/// Packets in blocks of 50, a millisecond after each other.
struct Slow(Memory);

impl Source for Slow {
    fn next(&mut self, block: &mut RawBlock) -> Result<Next, SourceError> {
        std::thread::sleep(Duration::from_millis(1));
        self.0.next(block)
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}

/// The last value of each module.
#[derive(Clone, Default)]
struct Last(Arc<Mutex<BTreeMap<String, u64>>>);

impl Sink for Last {
    fn write(&mut self, module: &str, _: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
        let values = batch.column(0).as_primitive::<UInt64Type>();
        self.0.lock().unwrap().insert(module.to_owned(), values.value(values.len() - 1));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        Ok(())
    }
}

/// Returns the ids of the processes that this one has started with this program.
fn children(program: &Path) -> Vec<u32> {
    let program = program.canonicalize().unwrap();
    let own = std::process::id();
    let is_ours = |id: u32| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let parent: u32 = stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?;
        let exe = fs::read_link(format!("/proc/{id}/exe")).ok()?;
        Some(parent == own && exe == program)
    };
    let ids = fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(|id| is_ours(*id) == Some(true)).collect()
}

/// Returns a copy of the runner, so that a test finds its own processes.
fn copy(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("flame-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let copy = folder.join("flame-runner");
    fs::copy(runner(), &copy).unwrap();
    copy
}

fn wait_for<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process that is killed takes only its own modules with it, and their packets are accounted for.
#[test]
fn a_killed_process_disturbs_nobody() {
    let program = copy("killed");
    let counts =
        [counter("here"), in_process(&counter("there"), "one"), in_process(&counter("killed"), "two")];
    let plan = Plan::new(counts.to_vec(), 1, 0);
    let run = Run::new(&plan, &[], &Engines::new().unwrap(), with(&program)).unwrap();
    let sink = Last::default();
    let source = Slow(Memory { per_block: 50, ..Memory::tcp(50_000, 3) });
    let input = Input::Shared(Box::new(source));
    let worker = Worker::spawn(run, input, Box::new(sink.clone()), Box::new(Silent)).unwrap();
    let ids = wait_for(|| Some(children(&program)).filter(|ids| ids.len() == 2));
    // The processes start in the order of the modules.
    let last = ids.into_iter().max().unwrap();
    wait_for(|| worker.handle().snapshot().ok().filter(|s| s.packets > 5000));
    assert!(Command::new("kill").args(["-9", &last.to_string()]).status().unwrap().success());
    let (report, _) = worker.join().unwrap();
    let accounts: BTreeMap<_, _> = report.accounts.into_iter().collect();
    for name in ["here", "there"] {
        assert_eq!((accounts[name].offered, accounts[name].processed), (50_000, 50_000), "{name}");
    }
    assert_eq!(*sink.0.lock().unwrap(), BTreeMap::from([("here".into(), 50_000), ("there".into(), 50_000)]));
    let killed = &accounts["killed"];
    assert!(killed.adds_up() && killed.offered == 50_000, "{killed:?}");
    assert!(killed.processed > 0 && killed.shed_by(Shed::Stopped) > 0, "{killed:?}");
    let [fault] = &report.faults[..] else { panic!("{:?}", report.faults) };
    assert_eq!(fault.module, "killed");
    assert!(fault.text.starts_with("its process ended: signal: 9"), "{}", fault.text);
    wait_for(|| children(&program).is_empty().then_some(()));
}

/// Whatever a process does on its connection, the run ends, and the accounts of all modules add up.
#[test]
fn a_hostile_process_is_contained() {
    let folder = std::env::temp_dir().join(format!("flame-hostile-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let program = |n: usize, script: &str| {
        let program = folder.join(format!("hostile{n}"));
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        program
    };
    // Programs that never say that they are confined.
    for (n, script) in
        ["exit 3", "exec cat /dev/urandom >&0", "printf 'hello, world' >&0"].into_iter().enumerate()
    {
        let plan = Plan::new(vec![in_process(&counter("there"), "hostile")], 1, 0);
        let error = Run::new(&plan, &[], &Engines::new().unwrap(), with(&program(n, script))).err().unwrap();
        assert!(error.to_string().contains("it did not start: "), "{script}: {error}");
    }
    // Programs that say so, and what is said of them: a frame of two bytes, `Report::Alive(0)`.
    let cases = [
        ("sleep 0.3; exit 3", "its process ended: exit status: 3"),
        ("exec cat /dev/urandom >&0", "its process was ended: a frame of"),
        (
            "head -c 100000 /dev/zero >&0; exec sleep 100",
            "its process was ended: a frame that cannot be decoded",
        ),
        ("exec sleep 1000", "its process ended: signal: 9"),
        ("exec cat > /dev/null", "its process ended: signal: 9"),
    ];
    for (n, (script, text)) in cases.into_iter().enumerate() {
        let alive = r"printf '\002\000\000\000\000\000\000\000\004\000' >&0";
        let program = program(10 + n, &format!("{alive}\n{script}"));
        let modules = vec![counter("here"), in_process(&counter("there"), "hostile")];
        let (report, lines) = run(modules, 1, Memory::tcp(20_000, 3), with(&program)).unwrap();
        assert_eq!(lines.keys().collect::<Vec<_>>(), ["here.t"], "{script}");
        let accounts: BTreeMap<_, _> = report.accounts.into_iter().collect();
        assert_eq!(accounts["here"].processed, 20_000, "{script}");
        assert_eq!(accounts["there"].shed_by(Shed::Stopped), 20_000, "{script}: {:?}", accounts["there"]);
        assert!(report.faults[0].text.starts_with(text), "{script}: {}", report.faults[0].text);
    }
    fs::remove_dir_all(folder).unwrap();
}

/// A process that answers but does not work ends soon after the run is stopped.
#[test]
fn a_process_that_only_answers_is_ended() {
    let folder = std::env::temp_dir().join(format!("flame-answers-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join("answers");
    // `Report::Alive` with ascending numbers.
    let script = r"i=0; while :; do printf '\002\0\0\0\0\0\0\0\004\'$(printf %03o $i) >&0; i=$((i+1)); sleep 0.2; done";
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let plan = Plan::new(vec![counter("here"), in_process(&counter("there"), "one")], 1, 0);
    let run = Run::new(&plan, &[], &Engines::new().unwrap(), with(&program)).unwrap();
    let input = Input::Shared(Box::new(Memory::tcp(20_000, 3)));
    let worker = Worker::spawn(run, input, Box::new(Last::default()), Box::new(Silent)).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    worker.handle().stop();
    let (report, _) = worker.join().unwrap();
    let accounts: BTreeMap<_, _> = report.accounts.into_iter().collect();
    assert!(accounts.values().all(flame_plan::Account::adds_up), "{accounts:?}");
    assert_eq!(accounts["here"].processed, accounts["here"].offered);
    assert_eq!(accounts["there"].processed, 0);
    fs::remove_dir_all(folder).unwrap();
}

/// A program that is not there is an error with its name.
#[test]
fn a_missing_runner_is_an_error() {
    let plan = Plan::new(vec![in_process(&counter("there"), "one")], 1, 0);
    let engines = Engines::new().unwrap();
    let missing = Run::new(&plan, &[], &engines, with(Path::new("/nowhere/flame-runner"))).err().unwrap();
    assert!(missing.to_string().starts_with("/nowhere/flame-runner: No such file"), "{missing}");
    let none = Run::new(&plan, &[], &engines, options(Arc::default())).err().unwrap();
    assert!(matches!(none, RunError::NoProcess(name) if name == "there"));
}

/// What a process may do is read from the kernel: no privileges, few system calls, no files, no network.
#[test]
fn the_kernel_confines_the_process() {
    let program = copy("confined");
    let plan = Plan::new(vec![in_process(&counter("there"), "one")], 1, 0);
    let run = Run::new(&plan, &[], &Engines::new().unwrap(), with(&program)).unwrap();
    let source = Slow(Memory { per_block: 50, ..Memory::tcp(20_000, 3) });
    let input = Input::Shared(Box::new(source));
    let worker = Worker::spawn(run, input, Box::new(Last::default()), Box::new(Silent)).unwrap();
    let handle = worker.handle();
    wait_for(|| handle.snapshot().ok().filter(|s| s.accounts.iter().any(|(.., a)| a.processed > 0)));
    let [id] = children(&program)[..] else { panic!("one process") };
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    assert_eq!((field("NoNewPrivs:").as_str(), field("Seccomp:").as_str()), ("1", "2"));
    for open in fs::read_dir(format!("/proc/{id}/fd")).unwrap() {
        let path = fs::read_link(open.unwrap().path()).unwrap().display().to_string();
        let is_known = path.starts_with("socket:") || path.starts_with("/memfd:") || path == "/dev/null";
        let is_errors = path.starts_with("pipe:") || path.starts_with("/dev/pts") || path.contains("log");
        assert!(is_known || is_errors, "{path}");
    }
    let net = |id: u32| fs::read_link(format!("/proc/{id}/ns/net")).unwrap();
    assert_ne!(net(id), net(std::process::id()), "the network of this process");
    // Every thread is confined, also those that were there before.
    for task in fs::read_dir(format!("/proc/{id}/task")).unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        assert!(status.contains("Seccomp:\t2"), "{status}");
        // No capability, not even for root.
        for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            assert!(status.contains(&format!("{set}:\t0000000000000000\n")), "{status}");
        }
    }
    handle.stop();
    worker.join().unwrap();
    wait_for(|| children(&program).is_empty().then_some(()));
}

/// The program contains no compiler: no names of Cranelift's code generator, which the command contains.
#[test]
fn the_runner_contains_no_compiler() {
    let contains =
        |path: &Path, name: &[u8]| fs::read(path).unwrap().windows(name.len()).any(|bytes| bytes == name);
    let own = std::env::current_exe().unwrap();
    assert!(contains(&own, b"cranelift_codegen"), "the test knows the wrong name");
    assert!(!contains(&runner(), b"cranelift_codegen"));
}

/// An evicted module gets no further packets, and its process reports the reason.
#[test]
fn eviction_reaches_a_process() {
    let plan =
        Plan::new(vec![in_process(&counter("stays"), "one"), in_process(&counter("goes"), "one")], 1, 0);
    let run = Run::new(&plan, &[], &Engines::new().unwrap(), with(&runner())).unwrap();
    let sink = Last::default();
    let source = Slow(Memory { per_block: 50, ..Memory::tcp(20_000, 3) });
    let input = Input::Shared(Box::new(source));
    let worker = Worker::spawn(run, input, Box::new(sink.clone()), Box::new(Silent)).unwrap();
    let handle = worker.handle();
    wait_for(|| handle.snapshot().ok().filter(|s| s.accounts.iter().all(|(.., a)| a.processed > 1000)));
    handle.evict(plan.modules[1].id, Reason::Narrowed).unwrap();
    let (report, _) = worker.join().unwrap();
    let accounts: BTreeMap<_, _> = report.accounts.into_iter().collect();
    assert_eq!(accounts["stays"].processed, 20_000);
    let goes = &accounts["goes"];
    assert!(goes.adds_up() && goes.shed_by(Shed::Evicted) > 10_000, "{goes:?}");
    assert_eq!(*sink.0.lock().unwrap(), BTreeMap::from([("stays".into(), 20_000)]));
    assert_eq!(report.faults.len(), 1);
    assert_eq!(report.faults[0].evicted, Some(Reason::Narrowed));
}

/// Modules are added to a process and removed from it while packets flow.
#[test]
fn modules_come_and_go_in_a_process() {
    let plan = Plan::new(vec![in_process(&counter("base"), "one")], 1, 0);
    let run = Run::new(&plan, &[], &Engines::new().unwrap(), with(&runner())).unwrap();
    let sink = Last::default();
    let source = Slow(Memory { per_block: 50, ..Memory::tcp(50_000, 3) });
    let input = Input::Shared(Box::new(source));
    let worker = Worker::spawn(run, input, Box::new(sink.clone()), Box::new(Silent)).unwrap();
    let handle = worker.handle();
    let other = in_process(&counter("other"), "one");
    for id in 1..=10 {
        let other = ModulePlan { id: flame_plan::ModuleId(id), name: format!("other{id}"), ..other.clone() };
        handle.add(&other.into()).unwrap();
        wait_for(|| {
            let snapshot = handle.snapshot().ok()?;
            snapshot
                .accounts
                .iter()
                .find(|(of, ..)| of.0 == id && snapshot.packets > 0)?
                .2
                .processed
                .checked_sub(1)
        });
        let account = handle.remove(flame_plan::ModuleId(id)).unwrap();
        assert!(account.adds_up() && account.processed == account.offered, "{account:?}");
        assert_eq!(sink.0.lock().unwrap().get(&format!("other{id}")), Some(&account.processed));
    }
    let (report, _) = worker.join().unwrap();
    assert_eq!(report.accounts[0].1.processed, 50_000);
    assert!(report.faults.is_empty(), "{:?}", report.faults);
}

/// `flame run --isolate` prints what `flame run` prints.
#[test]
fn the_command_isolates() {
    if module("flow").is_none() {
        return;
    }
    let cache = std::env::temp_dir().join(format!("flame-isolate-{}", std::process::id()));
    let run = |more: &[&str], program: &Path| {
        Command::new(env!("CARGO_BIN_EXE_flame"))
            .args(["run", "flow,count", "--format", "json", "--stats", "json", "-r"])
            .arg(root().join("demo/demo.pcap"))
            .args(more)
            .env("FLAME_RUNNER", program)
            .env("FLAME_CACHE", &cache)
            .output()
            .unwrap()
    };
    let lines = |out: &[u8]| {
        let mut lines: Vec<_> = String::from_utf8_lossy(out).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let (here, there) = (run(&[], Path::new("/nowhere")), run(&["--isolate"], &runner()));
    assert!(here.status.success() && there.status.success(), "{}", String::from_utf8_lossy(&there.stderr));
    assert!(here.stdout.len() > 1000 && lines(&here.stdout) == lines(&there.stdout));
    assert_eq!(String::from_utf8_lossy(&here.stderr), String::from_utf8_lossy(&there.stderr));
    let none = run(&["--isolate"], Path::new("/nowhere/flame-runner"));
    let text = String::from_utf8_lossy(&none.stderr);
    assert!(!none.status.success() && text.contains("/nowhere/flame-runner: No such file"), "{text}");
    let _ = fs::remove_dir_all(cache);
}
