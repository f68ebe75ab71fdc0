//! Modules in a process of their own: the same records, and nothing but their own packets is lost with it.

use crate::common::{
    self, COUNT, Endless, Lines, Memory, Paced, Writes, eventually, install, module, numbers, options,
    request, root, runner, taken_over, test_name, with_manifest,
};
use crate::slow_sink;
use crate::wasm::busy_with_each;
use flame_abi::manifest::Table;
use flame_block::Reader;
use flame_plan::limits::LONG_SLICE;
use flame_plan::{ModulePlan, Plan, Reason, Shed};
use flame_quota::{Meters, Usage};
use flame_record::{RecordBatch, Sink};
use flame_remote::{Command as Request, FdReceiver, Report, Sender};
use flame_run::Engines;
use flame_source::{FileOptions, Next, Progress, RawBlock, Source, SourceError};
use flame_worker::{
    Handle, Input, Options, ProcessLimits, Report as Outcome, Run, RunError, Runner, Silent, Worker,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn with(runner: &Path) -> Options {
    Options { runner: Some(Runner::at(runner).unwrap()), ..options(Arc::default()) }
}

/// Returns options with which processes have other limits.
fn within(runner: &Path, limits: ProcessLimits) -> Options {
    Options { runner: Some(Runner::at(runner).unwrap().with_limits(limits)), ..options(Arc::default()) }
}

/// The limits of processes without tests.
fn usual() -> ProcessLimits {
    ProcessLimits::default()
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
) -> Result<(Outcome, BTreeMap<String, Vec<String>>), RunError> {
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
    let names = [
        "count",
        "flow",
        "rtt",
        "port",
        "worm",
        "trajectory",
        "dns",
        "tls",
        "http",
        "tcp",
        "talkers",
        "scan",
    ];
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

/// Returns packets in blocks of 50, a millisecond after each other.
fn paced(packets: usize) -> Paced<Memory> {
    Paced { source: Memory { per_block: 50, ..Memory::tcp(packets, 3) }, every: Duration::from_millis(1) }
}

/// The last value of each module.
#[derive(Clone, Default)]
struct Last(Arc<Mutex<BTreeMap<String, u64>>>);

impl Last {
    fn sink(&self) -> Box<dyn Sink> {
        let last = self.0.clone();
        Box::new(Writes(move |module: &str, _: &Table, batch: &RecordBatch| {
            last.lock().unwrap().insert(module.to_owned(), *numbers(batch).last().unwrap());
            Ok(())
        }))
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
    flame_testing::copy_program(&runner(), &copy);
    copy
}

fn wait_for<T>(found: impl FnMut() -> Option<T>) -> T {
    eventually("a process", found)
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
    let source = paced(50_000);
    let input = Input::Shared(Box::new(source));
    let worker = Worker::spawn(run, input, sink.sink(), Box::new(Silent)).unwrap();
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

/// The run ends, and the accounts of all modules add up, for anything that a process does on its connection.
#[test]
fn a_hostile_process_is_contained() {
    let folder = std::env::temp_dir().join(format!("flame-hostile-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let program = |n: usize, script: &str| common::script(folder.join(format!("hostile{n}")), script);
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
        ("sleep 0.3; exec cat /dev/urandom >&0", "its process was ended: a frame of"),
        (
            "sleep 0.3; head -c 100000 /dev/zero >&0; exec sleep 100",
            "its process was ended: a frame that cannot be decoded",
        ),
        ("exec sleep 1000", "its process was ended: it did not answer"),
        ("exec cat > /dev/null", "its process was ended: it did not answer"),
    ];
    for (n, (script, text)) in cases.into_iter().enumerate() {
        let alive = r"printf '\002\000\000\000\000\000\000\000\000\000' >&0";
        let program = program(10 + n, &format!("{alive}\n{script}"));
        let modules = vec![counter("here"), in_process(&counter("there"), "hostile")];
        let ping = if text.ends_with("answer") { Duration::from_millis(100) } else { usual().ping };
        let options = within(&program, ProcessLimits { ping, ..usual() });
        let (report, lines) = run(modules, 1, Memory::tcp(20_000, 3), options).unwrap();
        assert_eq!(lines.keys().collect::<Vec<_>>(), ["here.t"], "{script}");
        let accounts: BTreeMap<_, _> = report.accounts.into_iter().collect();
        assert_eq!(accounts["here"].processed, 20_000, "{script}");
        assert_eq!(accounts["there"].shed_by(Shed::Stopped), 20_000, "{script}: {:?}", accounts["there"]);
        assert!(report.faults[0].text.starts_with(text), "{script}: {}", report.faults[0].text);
    }
    fs::remove_dir_all(folder).unwrap();
}

/// Returns a program that behaves as `mode` says (see [`hostile_process`]).
fn hostile(mode: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hostile-{mode}"));
    fs::create_dir_all(&folder).unwrap();
    let test = test_name(module_path!(), "hostile_process");
    taken_over(folder.join("runner"), &test, ("FLAME_HOSTILE", mode))
}

/// The process of a module that has taken it over, when it is started as one; not a test. It answers pings
/// and reports accounts, and never releases a block nor ends. `FLAME_HOSTILE` says what else it does:
///
/// - `pings`: it answers pings that it was not sent;
/// - `descriptors`: it sends some of its own;
/// - `ends`, `unloads`: it says that its module has ended, or could not be loaded;
/// - `closes`: it closes the buffer of its module.
#[test]
fn hostile_process() {
    let Ok(mode) = std::env::var("FLAME_HOSTILE") else { return };
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let mut sender = Sender::new(socket.try_clone().unwrap());
    let mut receiver = FdReceiver::new(socket);
    let mut modules = Vec::new();
    sender.send(&Report::Alive(0), &[]).unwrap();
    loop {
        sender.flush().unwrap();
        while receiver.receive(false).unwrap() {
            while let Some((command, _)) = receiver.next::<Request>(1 << 30).unwrap() {
                match command {
                    Request::Bodies => drop(receiver.take_fds(2).unwrap()),
                    Request::Install(install) if mode == "unloads" => {
                        let begun = Instant::now();
                        while begun.elapsed() < Duration::from_millis(200) {}
                        let used = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
                        fs::write(of_process(), format!("{} {used}", std::process::id())).unwrap();
                        let module = install.plan.id;
                        sender.send(&Report::Ended { module, messages_lost: 0 }, &[]).unwrap();
                    }
                    Request::Install(_) if mode == "descriptors" => {
                        let file =
                            fs::File::open(std::env::current_exe().unwrap().with_extension(GIFT)).unwrap();
                        while sender.send_fds(&Report::Alive(0), &[file.as_fd()]).is_ok() {}
                        return;
                    }
                    Request::Install(install) => modules.push(install.plan.id),
                    Request::Attach { module, .. } if mode == "ends" => {
                        let account = flame_plan::Account::default();
                        sender.send(&Report::Account { module, worker: 0, account }, &[]).unwrap();
                        sender.send(&Report::Ended { module, messages_lost: 0 }, &[]).unwrap();
                    }
                    Request::Attach { .. } if mode == "closes" => {
                        let fds = receiver.take_fds(4).unwrap();
                        let [_, data, control, event] = <[_; 4]>::try_from(fds).unwrap();
                        drop(Reader::from_fds(data, control, event).unwrap());
                    }
                    Request::Ping(number) if mode == "pings" => {
                        sender.send(&Report::Alive(number + 1000), &[]).unwrap();
                    }
                    Request::Ping(number) => sender.send(&Report::Alive(number), &[]).unwrap(),
                    _ => {}
                }
            }
        }
        for module in &modules {
            let mut account = flame_plan::Account::default();
            account.processed = 1;
            sender.send(&Report::Account { module: *module, worker: 0, account }, &[]).unwrap();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A process that reports without end and takes no block delays a capture for no longer than it may sleep.
#[test]
fn reports_are_no_evidence_of_work() {
    let modules = vec![counter("here"), in_process(&counter("there"), "one")];
    let options = within(&hostile("reports"), ProcessLimits { asleep: Duration::from_secs(1), ..usual() });
    let (report, _) = run(modules, 1, Memory::tcp(100_000, 3), options).unwrap();
    let accounts: BTreeMap<_, _> = report.accounts.into_iter().collect();
    assert_eq!(accounts["here"].processed, 100_000);
    assert!(accounts["there"].shed_by(Shed::Stopped) > 90_000, "{:?}", accounts["there"]);
    let text = &report.faults[0].text;
    assert_eq!(text, "its process was ended: it slept while a worker waited for it");
}

/// The end of the name of a file that a process sends to the worker.
const GIFT: &str = "gift";

/// The worker takes no descriptors, and ends a process that sends some.
#[test]
fn descriptors_of_a_process_are_not_kept() {
    let gift = std::env::current_exe().unwrap().with_extension(GIFT);
    fs::write(&gift, "").unwrap();
    let plan = Plan::new(vec![in_process(&counter("there"), "one")], 1, 0);
    let run = Run::new(&plan, &[], &Engines::new().unwrap(), with(&hostile("descriptors"))).unwrap();
    let input = Input::Shared(Box::new(paced(200_000)));
    let worker = Worker::spawn(run, input, Last::default().sink(), Box::new(Silent)).unwrap();
    let handle = worker.handle();
    let lost = wait_for(|| handle.lost().pop());
    assert!(lost.cause.ends_with("descriptors, which come with commands only"), "{}", lost.cause);
    let open = fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
    assert_eq!(open.filter(|path| *path == gift).count(), 0);
    handle.stop();
    worker.join().unwrap();
    fs::remove_file(gift).unwrap();
}

/// Returns the file in which a process states its number and its processor time.
fn of_process() -> PathBuf {
    std::env::current_exe().unwrap().with_extension("process")
}

/// Runs one module in a process, on packets that come slowly, until `found`. Returns what it found.
fn until<T>(program: &Path, meters: Meters, mut found: impl FnMut(&Handle) -> Option<T>) -> T {
    let mut module = in_process(&counter("there"), "one");
    module.limits.memory = 1 << 20;
    let plan = Plan::new(vec![module], 1, 0);
    let options = with(program);
    let source = Endless { stop: options.stop.clone(), delivered: Arc::default(), is_live: true };
    let run = Run::new(&plan, &[meters], &Engines::new().unwrap(), options).unwrap();
    let input = Input::Shared(Box::new(source));
    let worker = Worker::spawn(run, input, Last::default().sink(), Box::new(Silent)).unwrap();
    let handle = worker.handle();
    let found = wait_for(|| found(&handle));
    handle.stop();
    let (report, _) = worker.join().unwrap();
    assert!(report.accounts.iter().all(|(_, account)| account.adds_up()), "{:?}", report.accounts);
    found
}

/// A process that ends a module by itself is ended, and the module counts as lost.
#[test]
fn an_end_that_nobody_requested_is_a_loss() {
    for (mode, expected) in
        [("ends", "it ended there, which nobody removed"), ("closes", "it closed the buffer")]
    {
        let lost = until(&hostile(mode), Meters::default(), |handle| handle.lost().pop());
        assert!(lost.cause.contains(expected), "{mode}: {}", lost.cause);
    }
}

/// All time of a process is charged: without modules it ends.
#[test]
fn a_process_ends_with_its_last_module() {
    let usage = Arc::<Usage>::default();
    let meters = Meters::default().with(None, Some(usage.clone()));
    let _ = fs::remove_file(of_process());
    let (used, id) = until(&hostile("unloads"), meters, |_| {
        let stated = fs::read_to_string(of_process()).ok()?;
        let mut fields = stated.split_whitespace().map(|field| field.parse::<u64>().unwrap());
        let (id, used) = (fields.next()?, fields.next()?);
        (!Path::new(&format!("/proc/{id}")).exists()).then_some((used, id))
    });
    assert!(usage.used().cpu_ns >= used, "{} of {used} ns of process {id}", usage.used().cpu_ns);
}

/// Tables of pages are in no limit of the kernel, and count in the memory that a process may have.
#[test]
fn page_tables_count_as_memory() {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tables");
    // A frame of two bytes, `Report::Alive(0)`. One page of each table is read: it has no memory of its own.
    let script = "#!/usr/bin/env python3\n\
        import mmap, os, time\n\
        os.write(0, bytes([2, 0, 0, 0, 0, 0, 0, 0, 0, 0]))\n\
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000\n\
        pages = mmap.mmap(-1, 200 << 30, flags=flags, prot=mmap.PROT_READ)\n\
        pages.madvise(15)\n\
        for n in range(100 << 10): pages[n << 21]\n\
        time.sleep(1000)\n";
    let program = flame_testing::script(program, script);
    let lost = until(&program, Meters::default(), |handle| handle.lost().pop());
    assert!(lost.cause.contains("page tables"), "{}", lost.cause);
}

/// A process has one time limit for its start, however it divides what it sends.
#[test]
fn a_start_has_an_end() {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("start");
    let cases = [
        // A frame of 16 bytes, a byte a second.
        (r"printf '\020\0\0\0\0\0\0\0' >&0; for n in $(seq 30); do printf x >&0; sleep 1; done", "timed out"),
        (r"printf '\0\0\017\0\0\0\0\0' >&0; exec sleep 100", "a frame of 983040"),
        (r"printf '\002\0\0\0\0\0\0\001' >&0; exec cat /dev/zero >&0", "a frame of"),
    ];
    for (script, text) in cases {
        common::script(program.clone(), script);
        let plan = Plan::new(vec![in_process(&counter("there"), "hostile")], 1, 0);
        let start = if text == "timed out" { Duration::from_secs(2) } else { usual().start };
        let options = within(&program, ProcessLimits { start, ..usual() });
        let error = Run::new(&plan, &[], &Engines::new().unwrap(), options).err().unwrap().to_string();
        assert!(error.contains("it did not start: ") && error.contains(text), "{script}: {error}");
    }
}

/// A process cannot answer pings that it was not sent.
#[test]
fn answers_are_checked() {
    let plan = Plan::new(vec![in_process(&counter("there"), "one")], 1, 0);
    let limits = ProcessLimits { ping: Duration::from_millis(200), ..usual() };
    let run = Run::new(&plan, &[], &Engines::new().unwrap(), within(&hostile("pings"), limits)).unwrap();
    let input = Input::Shared(Box::new(paced(200_000)));
    let worker = Worker::spawn(run, input, Last::default().sink(), Box::new(Silent)).unwrap();
    let handle = worker.handle();
    wait_for(|| handle.processes().is_empty().then_some(()));
    handle.stop();
    let (report, _) = worker.join().unwrap();
    let text = &report.faults[0].text;
    assert!(text.contains("an answer to ping") && text.contains("which was not sent"), "{text}");
}

/// While a module is removed whose process does not end it, all others receive every packet.
#[test]
fn a_removal_delays_nobody() {
    let mut plans = vec![counter("here")];
    plans.extend(["stays", "goes"].map(|name| in_process(&counter(name), "one")));
    let plan = Plan::new(plans, 1, 0);
    let limits = ProcessLimits { last: Duration::from_secs(4), ..usual() };
    let options = within(&hostile("removal"), limits);
    // A live source does not wait.
    let source = Endless { stop: options.stop.clone(), delivered: Arc::default(), is_live: true };
    let run = Run::new(&plan, &[], &Engines::new().unwrap(), options).unwrap();
    let input = Input::Shared(Box::new(source));
    let worker = Worker::spawn(run, input, Last::default().sink(), Box::new(Silent)).unwrap();
    let handle = worker.handle();
    let processed = |name: &str| {
        let accounts = handle.snapshot().unwrap().accounts;
        accounts.into_iter().find(|(_, of, _)| of == name).map_or(0, |(.., account)| account.processed)
    };
    wait_for(|| (processed("here") > 1000).then_some(()));
    let (removing, goes) = (handle.clone(), plan.modules[2].id);
    let removal = std::thread::spawn(move || removing.remove(goes).unwrap());
    for _ in 0..2 {
        let before = processed("here");
        wait_for(|| (processed("here") > before + 1_000).then_some(()));
    }
    assert!(!removal.is_finished(), "the process did not let it go");
    let account = removal.join().unwrap();
    assert!(account.adds_up(), "{account:?}");
    handle.stop();
    let (report, _) = worker.join().unwrap();
    let accounts: BTreeMap<_, _> = report.accounts.into_iter().collect();
    assert_eq!(accounts["here"].processed, accounts["here"].offered);
    assert!(report.faults.iter().any(|f| f.text.ends_with("it did not end in time")), "{:?}", report.faults);
}

/// A process that answers but does not work ends soon after the run is stopped.
#[test]
fn a_process_that_only_answers_is_ended() {
    let plan = Plan::new(vec![counter("here"), in_process(&counter("there"), "one")], 1, 0);
    let limits = ProcessLimits { last: Duration::from_secs(1), ..usual() };
    let run = Run::new(&plan, &[], &Engines::new().unwrap(), within(&hostile("answers"), limits)).unwrap();
    let input = Input::Shared(Box::new(Memory::tcp(20_000, 3)));
    let worker = Worker::spawn(run, input, Last::default().sink(), Box::new(Silent)).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    worker.handle().stop();
    let (report, _) = worker.join().unwrap();
    let accounts: BTreeMap<_, _> = report.accounts.into_iter().collect();
    assert!(accounts.values().all(flame_plan::Account::adds_up), "{accounts:?}");
    assert_eq!(accounts["here"].processed, accounts["here"].offered);
    // It claims one packet, within those that it got.
    assert!(accounts["there"].processed <= 1);
}

/// A program that is not there is an error with its name.
#[test]
fn a_missing_runner_is_an_error() {
    let plan = Plan::new(vec![in_process(&counter("there"), "one")], 1, 0);
    let engines = Engines::new().unwrap();
    let missing = Runner::at(Path::new("/nowhere/flame-runner")).err().unwrap();
    assert!(missing.starts_with("/nowhere/flame-runner: No such file"), "{missing}");
    let none = Run::new(&plan, &[], &engines, options(Arc::default())).err().unwrap();
    assert!(matches!(none, RunError::NoProcess(name) if name == "there"));
}

/// The kernel reports the rights of the process: no privileges, few system calls, no files, no network.
#[test]
fn the_kernel_confines_the_process() {
    let program = copy("confined");
    let plan = Plan::new(vec![in_process(&counter("there"), "one")], 1, 0);
    let run = Run::new(&plan, &[], &Engines::new().unwrap(), with(&program)).unwrap();
    let source = paced(20_000);
    let input = Input::Shared(Box::new(source));
    let worker = Worker::spawn(run, input, Last::default().sink(), Box::new(Silent)).unwrap();
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
    let users = |id: u32| fs::read_link(format!("/proc/{id}/ns/user")).unwrap();
    let may = std::process::Command::new("unshare").args(["--user", "true"]).status();
    if may.is_ok_and(|status| status.success()) {
        assert_ne!(users(id), users(std::process::id()), "the users of this process");
    } else {
        eprintln!("no namespace of users may be made here: not tested");
    }
    // Every thread is confined, also those that were there before.
    for task in fs::read_dir(format!("/proc/{id}/task")).unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        assert!(status.contains("Seccomp:\t2"), "{status}");
        // No capability, not even for root.
        for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            assert!(status.contains(&format!("{set}:\t0000000000000000\n")), "{status}");
        }
    }
    // The kernel limits its memory and its threads: there are three, and no more can be started.
    let limits = fs::read_to_string(format!("/proc/{id}/limits")).unwrap();
    let data = limits.lines().find(|line| line.starts_with("Max data size")).unwrap();
    let soft: u64 = data.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert!((64 << 20..1 << 30).contains(&soft), "{data}");
    assert_eq!(fs::read_dir(format!("/proc/{id}/task")).unwrap().count(), 3);
    let victim = fs::read_to_string(format!("/proc/{id}/oom_score_adj")).unwrap();
    assert_eq!(victim.trim(), "1000");
    // It ends with its last module, while the run continues.
    handle.remove(plan.modules[0].id).unwrap();
    wait_for(|| children(&program).is_empty().then_some(()));
    handle.stop();
    worker.join().unwrap();
}

/// A process ends when all its modules were evicted, whatever it does.
#[test]
fn eviction_ends_a_process() {
    let program = copy("evicted");
    let plan = Plan::new(["a", "b"].map(|name| in_process(&counter(name), "one")).to_vec(), 1, 0);
    let run = Run::new(&plan, &[], &Engines::new().unwrap(), with(&program)).unwrap();
    let source = paced(100_000);
    let input = Input::Shared(Box::new(source));
    let worker = Worker::spawn(run, input, Last::default().sink(), Box::new(Silent)).unwrap();
    let handle = worker.handle();
    wait_for(|| handle.snapshot().ok().filter(|s| s.accounts.iter().all(|(.., a)| a.processed > 1000)));
    plan.modules.iter().for_each(|module| handle.evict(module.id, Reason::Narrowed).unwrap());
    wait_for(|| children(&program).is_empty().then_some(()));
    handle.stop();
    let (report, _) = worker.join().unwrap();
    assert!(report.accounts.iter().all(|(_, account)| account.adds_up()), "{:?}", report.accounts);
    let reasons: Vec<_> = report.faults.iter().map(|fault| fault.evicted.clone()).collect();
    assert_eq!(reasons, [Some(Reason::Narrowed), Some(Reason::Narrowed)]);
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
    let source = paced(20_000);
    let input = Input::Shared(Box::new(source));
    let worker = Worker::spawn(run, input, sink.sink(), Box::new(Silent)).unwrap();
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

/// A row for each packet: those that were on their way when the module was evicted are no rows, and their
/// packets are not processed.
#[test]
fn rows_of_an_evicted_module_are_those_of_the_packets_that_it_processed() {
    let module = slow_sink::each();
    for workers in [1, 2, 2, 3] {
        let plan = Plan::new(vec![module.clone()], workers, 0);
        let run = Run::new(&plan, &[], &Engines::new().unwrap(), with(&runner())).unwrap();
        let input = Input::Shared(Box::new(Memory::tcp(500_000, 3)));
        // Much is on its way, because the records are written slowly.
        let sleepy = Writes(|_: &str, _: &Table, _: &RecordBatch| {
            std::thread::sleep(Duration::from_millis(50));
            Ok(())
        });
        let worker = Worker::spawn(run, input, Box::new(sleepy), Box::new(Silent)).unwrap();
        let handle = worker.handle();
        wait_for(|| handle.snapshot().ok().filter(|s| s.accounts[0].2.processed > 10_000));
        handle.evict(module.id, Reason::Narrowed).unwrap();
        let (report, _) = worker.join().unwrap();
        let account = &report.accounts[0].1;
        assert!(account.adds_up() && account.shed_by(Shed::Evicted) > 1000, "{account:?}");
        assert_eq!(account.records, account.processed, "{workers} workers: {account:?}");
    }
}

/// Modules are added to a process and removed from it while packets flow.
#[test]
fn modules_come_and_go_in_a_process() {
    let plan = Plan::new(vec![in_process(&counter("base"), "one")], 1, 0);
    let run = Run::new(&plan, &[], &Engines::new().unwrap(), with(&runner())).unwrap();
    let sink = Last::default();
    let source = paced(50_000);
    let input = Input::Shared(Box::new(source));
    let worker = Worker::spawn(run, input, sink.sink(), Box::new(Silent)).unwrap();
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

/// The packets of a capture are shown once for all processes that have the same view: they map one pool.
#[test]
fn processes_read_the_same_blocks_of_a_capture() {
    if module("flow").is_none() {
        return;
    }
    let mut flame = Command::new(env!("CARGO_BIN_EXE_flame"));
    flame.args(["run", "flow,rtt,trajectory", "--expose", "headers", "--isolate", "-q", "-r", "-"]);
    flame.stdin(Stdio::piped()).stdout(Stdio::null()).env("FLAME_RUNNER", runner());
    let mut flame = flame.spawn().unwrap();
    let capture = fs::read(root().join("demo/demo.pcap")).unwrap();
    flame.stdin.as_mut().unwrap().write_all(&capture).unwrap();
    let pools = |id: &str| -> BTreeSet<String> {
        let maps = fs::read_to_string(format!("/proc/{id}/maps")).unwrap_or_default();
        let of_pools = maps.lines().filter(|line| line.contains("memfd:flame-block"));
        of_pools.filter_map(|line| line.split_whitespace().nth(4)).map(str::to_owned).collect()
    };
    // The other memory of a process is its own.
    wait_for(|| {
        let tasks = fs::read_dir(format!("/proc/{}/task", flame.id())).unwrap().flatten();
        let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let of_each = children.flat_map(|ids| ids.split_whitespace().map(pools).collect::<Vec<_>>());
        let all: Vec<_> = of_each.collect();
        let first = all.first().filter(|_| all.len() == 3)?;
        first.iter().find(|pool| all.iter().all(|pools| pools.contains(*pool))).cloned()
    });
    drop(flame.stdin.take());
    assert!(flame.wait().unwrap().success());
}

/// Each end of a slice interrupts a processor that works, and no thread waits for the call.
#[test]
fn calls_of_a_module_alone_in_its_process_are_seldom_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let busy = folder.path().join("busy.wasm");
    fs::write(&busy, busy_with_each("busy", 5_000_000)).unwrap();
    let mut flame = Command::new(env!("CARGO_BIN_EXE_flame"));
    flame
        .arg("run")
        .arg(&busy)
        .args(["--metered", "--isolate", "-q", "-r"])
        .arg(root().join("demo/demo.pcap"));
    let mut flame = flame.stdout(Stdio::null()).env("FLAME_RUNNER", runner()).spawn().unwrap();
    let tasks = |id: u32| fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let sleeps = |task: &Path| -> u64 {
        let status = fs::read_to_string(task.join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    };
    let slices = wait_for(|| {
        let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
        let children: String = tasks(flame.id()).map(|task| read(task.path().join("children"))).collect();
        let ids = children.split_whitespace().map(|id| id.parse().unwrap());
        let mut all = ids.flat_map(tasks).map(|task| task.path());
        all.find(|task| read(task.join("comm")).trim() == "flame-slices")
    });
    // It is at work.
    let first = sleeps(&slices);
    wait_for(|| (sleeps(&slices) > first + 10).then_some(()));
    let (before, begun) = (sleeps(&slices), Instant::now());
    std::thread::sleep(Duration::from_millis(500));
    let slept = sleeps(&slices) - before;
    let most = begun.elapsed().as_millis() / LONG_SLICE.as_millis() + 2;
    assert!(slept > 0 && u128::from(slept) <= most, "{slept} slices ended, {most} at most");
    flame.kill().unwrap();
    flame.wait().unwrap();
}
