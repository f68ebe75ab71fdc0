//! Tests of the cost of compilation: the allowance of a credential, and a cache that shows nothing of what
//! others have installed.

use crate::commands::{self, done, flame, text};
use crate::common::{MANIFEST, pcap, script, tcp_packet, with_manifest};
use crate::daemon::{Node, module, replay};
use flame_compile::{Analysed, Cache, CompileError, Compiler, Spent, Worker};
use flame_plan::Share;
use flame_quota::{Allowance, Amounts, Ledger, Quota, ThisRun};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const FLAME: &str = env!("CARGO_BIN_EXE_flame");
const HOUR: u64 = 3_600_000_000_000;

/// Returns a module that differs from those of other numbers.
fn numbered(n: u32) -> Vec<u8> {
    let text = format!(
        "(module (memory (export \"memory\") 1)
          (func (export \"flame_batch\") (param i32) (result i64)
            (drop (i32.add (local.get 0) (i32.const {n}))) (i64.const 0)))"
    );
    with_manifest(wat::parse_str(text).unwrap(), MANIFEST.as_bytes())
}

/// Creates a node with Alice's and Bob's credentials for a role of these fields, and modules 1 to 3.
fn world(fields: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    commands::node(path, &format!("expose = \"all\"\ncalls = \"records, messages\"\n{fields}"));
    let mint = ["grant", "mint", "--key", "root.key", "--to", "bob", "--role", "all", "--code", "any"];
    done(path, &[&mint[..], &["-o", "bob.cred"]].concat());
    for n in 1..=3 {
        std::fs::write(path.join(format!("m{n}.wasm")), numbered(n)).unwrap();
    }
    std::fs::write(path.join("c.pcap"), pcap([(1_700_000_000_000, tcp_packet(7, 80))])).unwrap();
    folder
}

fn run<'a>(module: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["run", module, "-r", "c.pcap", "--stats", "none"], more].concat()
}

fn under(credential: &str) -> [&str; 4] {
    ["--policy", "policy.toml", "--credential", credential]
}

/// Runs a module, and returns its messages about the cache, of which the records of violations are left out.
fn asked(folder: &Path, more: &[&str]) -> Vec<String> {
    let out = flame(folder, &[&run("./m1.wasm", &["-vvv"])[..], more].concat());
    let said = text(&out.stderr);
    assert!(out.status.success(), "{said}");
    let lines = said.lines().filter(|l| l.contains("cache is asked") && !l.contains("-violated"));
    lines.map(str::to_owned).collect()
}

#[test]
fn a_principal_finds_nothing_that_others_have_compiled() {
    let world = world("");
    let path = world.path();
    let hits = |lines: &[String]| lines.iter().filter(|line| line.contains("hit=true")).count();
    // The operator's is another's, too.
    let first = asked(path, &[]);
    assert!(first.len() > 2 && hits(&first) == 0, "{first:?}");
    let again = asked(path, &[]);
    assert_eq!(hits(&again), again.len(), "the probe works: {again:?}");
    done(path, &["grant", "narrow", "alice.cred", "--to", "carol", "-o", "carol.cred"]);
    let begun = || {
        let log = done(path, &["audit", "show", "--policy", "policy.toml"]);
        log.lines().filter(|line| line.contains(" begin ")).count()
    };
    for (n, credential) in ["alice.cred", "bob.cred", "carol.cred"].into_iter().enumerate() {
        let lines = asked(path, &under(credential));
        assert!(lines.len() > 2 && hits(&lines) == 0, "{credential}: {lines:?}");
        assert_eq!(begun(), 3 * (n + 1), "{credential}: examined, analysed and compiled again");
        // Its own it finds, and pays nothing for it.
        let lines = asked(path, &under(credential));
        assert_eq!((hits(&lines), begun()), (lines.len(), 3 * (n + 1)), "{credential}: {lines:?}");
    }
    // Without a credential, all are one.
    assert_eq!(hits(&asked(path, &["--policy", "policy.toml"])), 0);
}

/// Starts a run that has to wait, and returns it once it says so, with what it said.
fn waiting(folder: &Path, arguments: &[&str]) -> (std::process::Child, String) {
    use std::io::BufRead;
    let mut command = Command::new(FLAME);
    command.args(arguments).current_dir(folder).env("FLAME_CACHE", folder.join("cache"));
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    (child, line)
}

#[test]
fn an_install_waits_for_the_allowance_of_its_credential() {
    let world = world("compile = \"1ms/1h\"");
    let path = world.path();
    let waits = |module: &str, credential: &str| {
        let (mut child, said) = waiting(path, &run(module, &under(credential)));
        let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(kill.success());
        assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
        said
    };
    // The first step of the first module takes more than there is. What it took is paid.
    let said = waits("./m1.wasm", "alice.cred");
    let expected = "flame: waiting for the credential's allowance of compilation (1ms/1h): about ";
    assert!(said.starts_with(expected) && said.contains("Ctrl-C to give up"), "{said}");
    let seconds: u64 = said[expected.len()..].split(' ').next().unwrap().parse().unwrap();
    // Its examination took some periods of a millisecond.
    assert!(seconds > 3600, "{said}");
    // One to whom it is handed on has no other, and narrowing gives none.
    done(path, &["grant", "narrow", "alice.cred", "--to", "carol", "-o", "carol.cred"]);
    done(path, &["grant", "narrow", "alice.cred", "--compile", "1ms/2s", "-o", "narrow.cred"]);
    for credential in ["carol.cred", "narrow.cred"] {
        let said = waits("./m2.wasm", credential);
        assert!(said.starts_with(expected), "{credential}: {said}");
    }
    // Other commands do not wait.
    let verify = ["grant", "verify", "carol.cred", "--policy", "policy.toml", "--module", "./m2.wasm"];
    let refused = flame(path, &verify);
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("(1ms/1h) is used up for about"), "{said}");
    // Those of other principals are theirs, and the operator has none.
    commands::policy(path, "expose = \"all\"\ncalls = \"records, messages\"\ncompile = \"40ms/50ms\"");
    let begun = Instant::now();
    done(path, &run("./m1.wasm", &under("bob.cred")));
    done(path, &run("./m1.wasm", &[]));
    assert!(begun.elapsed() < Duration::from_secs(60), "it waits for some periods only");
}

fn allowance(slice_ns: u64) -> (Allowance, Arc<ThisRun>) {
    let (share, amounts) = (Share { slice_ns, period_ns: HOUR }, Amounts::default());
    let quota = Quota { per_second: amounts, per_packet: amounts, share: Some(share), memory: u64::MAX };
    let ledger = Arc::new(ThisRun::new(quota));
    (Allowance::new(vec![(share, ledger.clone())]), ledger)
}

/// A child is charged by the kernel's account of it, however it ends.
#[test]
fn work_that_gives_no_answer_is_paid_too() {
    let burn = "i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done";
    for (text, expected) in [
        (format!("{burn}; exit 3"), "exit status: 3"),
        (format!("{burn}; kill -KILL $$"), "signal 9"),
        ("while :; do :; done".to_owned(), "interrupted"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let worker = Worker::new(script(folder.path().join("child"), &text)).stopped_by(stop.clone());
        let (paid, ledger) = allowance(20_000_000_000);
        if expected == "interrupted" {
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(500));
                stop.store(true, Ordering::Relaxed);
            });
        }
        let compiler = Compiler::new(worker.clone(), None);
        let error = compiler.of("t", "p", paid).examine(&numbered(1)).err().unwrap().to_string();
        assert!(error.contains(expected), "{text}: {error}");
        let left = ledger.reserve(Duration::ZERO, Duration::from_secs(60));
        let used = Duration::from_secs(20) - left;
        assert_eq!(used, worker.usage().cpu, "{text}");
        assert!(used > Duration::from_millis(20) && used < Duration::from_secs(5), "{text}: {used:?}");
    }
    // A child that was never started costs nothing.
    let (paid, ledger) = allowance(20_000_000_000);
    Compiler::new(Worker::new("/nowhere"), None).of("t", "p", paid).examine(&numbered(1)).err().unwrap();
    assert_eq!(ledger.reserve(Duration::ZERO, Duration::from_secs(60)), Duration::from_secs(20));
}

/// A child has no more processor time than is left, and at least a second, so no module takes much more.
#[test]
fn a_child_ends_with_the_allowance() {
    let folder = tempfile::tempdir().unwrap();
    let cache = || Some(Cache::open(&folder.path().join("cache")).unwrap());
    let wasm = numbered(1);
    let real = Compiler::new(Worker::new(FLAME), cache());
    // Its limit is its fourth argument, as that of the command's own child.
    let endless = script(folder.path().join("child"), "ulimit -S -t $4; while :; do :; done");
    let slow = Compiler::new(Worker::new(endless), cache());
    let (all, _) = allowance(10_000_000_000);
    let info = real.of("t", "p", all).examine(&wasm).unwrap();
    let analysed = |slice_ns: u64, used: Duration| {
        let (paid, ledger) = allowance(slice_ns);
        ledger.reserve(used, Duration::ZERO);
        let began = Instant::now();
        let error = slow.of("t", "p", paid).analyse(&wasm, &info, None).err().unwrap();
        assert!(began.elapsed() < Duration::from_secs(60));
        // The ledger owes what the child took.
        let wait = ledger.refilled_in().unwrap();
        assert!(wait > Duration::from_secs(3590), "{wait:?}");
        error
    };
    let error = analysed(100_000_000, Duration::ZERO);
    assert!(matches!(error, CompileError::Beyond { .. }), "{error}");
    assert!(error.to_string().ends_with("(100ms/1h) gives in one period"), "{error}");
    // With more of it, which is there later, it may be done.
    let error = analysed(3_000_000_000, Duration::from_millis(2500));
    let CompileError::Spent { spent: Spent { wait, share }, .. } = error else { panic!("{error}") };
    assert!(wait.is_some() && share.slice_ns == 3_000_000_000);
    // That an allowance ended it is no property of the module, and is not remembered as one.
    let (paid, _) = allowance(10_000_000_000);
    let found = real.of("t", "p", paid).analyse(&wasm, &info, None).unwrap();
    assert!(matches!(found, Analysed::Report(_)), "{found:?}");
}

#[test]
fn a_node_refuses_what_an_allowance_does_not_pay() {
    let (Some(count), Some(flow)) = (module("count"), module("flow")) else { return };
    let (count, flow) = (count.display().to_string(), flow.display().to_string());
    let mut node = Node::new(&replay());
    node.mint("alice", &["--compile", "1ms/1h"]);
    node.mint("bob", &[]);
    node.start();
    let alice = ["--credential", "alice.cred", "--identity", "alice.key"];
    let refused = |node: &Node, module: &str, shown: &[&str]| {
        let said = node.refused(&[&["install", module, "--name", "refused"][..], shown].concat());
        assert!(said.contains("allowance of compilation (1ms/1h) is used up"), "{said}");
        assert!(said.contains("repeat the request then"), "{said}");
    };
    // Its first step takes what there is.
    refused(&node, &count, &alice);
    // One to whom she hands it on has no other.
    let public = node.run(&["key", "new", "carol.key"]);
    let narrow = ["grant", "narrow", "alice.cred", "--to", "carol", "--holder", &public];
    node.run(&[&narrow[..], &["--identity", "alice.key", "-o", "carol.cred"]].concat());
    refused(&node, &flow, &["--credential", "carol.cred", "--identity", "carol.key"]);
    // Others pay for themselves; what is theirs already costs nothing.
    let files = || std::fs::read_dir(node.path("state/cache")).unwrap().count();
    let before = files();
    node.json_of("bob", &["install", &flow]);
    let of_bob = files();
    assert!(of_bob > before + 2, "{of_bob}");
    node.json_of("bob", &["install", &flow, "--name", "again"]);
    assert_eq!(files(), of_bob);
    // The operator's are compiled again, and so are another principal's.
    node.json(&["install", &flow]);
    let of_operator = files();
    assert_eq!(of_operator - of_bob, of_bob - before);
    node.mint("dave", &[]);
    node.json_of("dave", &["install", &flow]);
    assert_eq!(files() - of_operator, of_bob - before);
    let log = node.run(&["audit", "show", "--policy", "policy.toml"]);
    let compiled = |who: &str| {
        log.lines().filter(|l| l.contains(&format!("{who} (claimed)")) && l.contains("compiling")).count()
    };
    assert_eq!((compiled("bob"), compiled("dave"), compiled("alice")), (1, 1, 0), "{log}");
    // What was compiled for one goes with it.
    node.json_of("dave", &["remove", "flow"]);
    assert_eq!(files(), of_operator);
    // What a node compiles again by itself, its principals do not pay.
    node.end();
    let policy = std::fs::read_to_string(node.path("policy.toml")).unwrap();
    let policy = policy.replace("compile = \"1h/1h\"", "compile = \"1ms/1h\"");
    std::fs::write(node.path("policy.toml"), policy).unwrap();
    for file in std::fs::read_dir(node.path("state/cache")).unwrap().flatten() {
        if file.file_name() != "key" {
            std::fs::remove_file(file.path()).unwrap();
        }
    }
    node.start();
    assert_eq!(node.json(&["show", "flow", "--principal", "bob"])["state"], "running");
    refused(&node, &count, &["--credential", "bob.cred", "--identity", "bob.key"]);
}
