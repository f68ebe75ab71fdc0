//! Tests of the child processes that read foreign modules: the rights that they gave up, and the parent's
//! handling of misbehaving children.

use crate::common::{self, MANIFEST, eventually, install_by, request, with_manifest};
use flame_compile::{Cache, Compiler, Worker};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const FLAME: &str = env!("CARGO_BIN_EXE_flame");

fn small() -> Vec<u8> {
    let text = "(module (memory (export \"memory\") 1)
        (func (export \"flame_batch\") (param i32) (result i64) (i64.const 0)))";
    with_manifest(wat::parse_str(text).unwrap(), MANIFEST.as_bytes())
}

/// Returns a module that the compiler works on for a second or more.
fn slow() -> Vec<u8> {
    let branch = |n: usize| {
        let (a, b) = (n % 40, n * 7 % 40);
        format!(
            "(if (local.get $p) (then (local.set {} (i32.add (local.get {}) (i32.const 1)))))",
            a + 1,
            b + 1
        )
    };
    let branches: String = (0..30_000).map(branch).collect();
    let text = format!(
        "(module (memory (export \"memory\") 1)
         (func (export \"flame_batch\") (param $p i32) (result i64) (local {}) {branches} (i64.const 0)))",
        "i32 ".repeat(40)
    );
    with_manifest(wat::parse_str(text).unwrap(), MANIFEST.as_bytes())
}

/// Writes a program that is started instead of the child.
fn script(folder: &Path, text: &str) -> PathBuf {
    crate::common::script(folder.join("child"), text)
}

#[test]
fn a_child_that_does_not_behave_is_an_error_that_says_so() {
    let cases = [
        ("exit 0", "cut short"),
        ("exit 3", "exit status: 3"),
        ("echo out of order >&2; exit 1", "out of order"),
        ("kill -KILL $$", "signal 9"),
        ("kill -SYS $$", "system call"),
        ("echo memory allocation of 5 bytes failed >&2; kill -ABRT $$", "memory, the limit"),
        ("printf 'xxxxxxxxxxxxxxxxx'", "too long"),
        ("printf '\\001\\000\\000\\000\\177'", "damaged"),
        ("printf '\\002\\000\\000\\000\\002\\005'", "the length of its code"),
        ("exec cat /dev/zero", "too long"),
        ("exec cat /dev/zero >&2", "cut short"),
    ];
    for (text, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let start = Instant::now();
        // The last case never ends by itself: it tests the stop flag.
        let stop = Arc::new(AtomicBool::new(false));
        let worker = Worker::new(script(folder.path(), text)).stopped_by(stop.clone());
        if text.ends_with(">&2") && text.starts_with("exec") {
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(300));
                stop.store(true, Ordering::Relaxed);
            });
        }
        let error = Compiler::new(worker, None).examine(&small()).err().map(|e| e.to_string());
        let error = error.unwrap_or_else(|| panic!("{text}: no error"));
        let interrupted = text.starts_with("exec") && error.contains("interrupted");
        assert!(error.contains(expected) || interrupted, "{text}: {error}");
        assert!(error.starts_with("examining: "), "{error}");
        assert!(start.elapsed() < Duration::from_secs(20), "{text}: {:?}", start.elapsed());
    }
    let error = Compiler::new(Worker::new("/nowhere/flame"), None).examine(&small()).err().unwrap();
    assert!(error.to_string().contains("/nowhere/flame: No such file"), "{error}");
}

#[test]
fn a_child_that_never_reads_ends_when_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let worker = Worker::new(script(folder.path(), "exec sleep 100")).stopped_by(stop.clone());
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        stop.store(true, Ordering::Relaxed);
    });
    let start = Instant::now();
    let error = Compiler::new(worker, None).examine(&small()).err().unwrap();
    assert_eq!(error.to_string(), "examining: interrupted");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn a_cached_module_starts_no_child() {
    let folder = tempfile::tempdir().unwrap();
    let cache = || Some(Cache::open(&folder.path().join("cache")).unwrap());
    let compiler = Compiler::new(Worker::new(FLAME), cache());
    install_by(&compiler, &small(), &request()).unwrap();
    let none = Compiler::new(Worker::new("/nowhere/flame"), cache());
    install_by(&none, &small(), &request()).unwrap();
    let examined = none.examine(&small()).unwrap();
    none.analyse(&small(), &examined, None).unwrap();
}

/// A note is written before the work. If it fails, the work is not started.
#[test]
fn work_is_noted_before_it_begins() {
    let noted = std::cell::RefCell::new(Vec::new());
    let compiler = Compiler::new(Worker::new(FLAME), None).noted_by(|start| {
        noted.borrow_mut().push(format!("{} {}", start.step, start.bytes));
        Ok(())
    });
    install_by(&compiler, &small(), &request()).unwrap();
    let n = small().len();
    assert_eq!(*noted.borrow(), ["examining", "analysing", "compiling"].map(|step| format!("{step} {n}")));
    let full = Compiler::new(Worker::new("/nowhere"), None).noted_by(|_| Err("the disk is full".to_owned()));
    let error = full.examine(&small()).err().unwrap();
    assert_eq!(error.to_string(), "examining: the disk is full");
}

/// Starts `flame run` over a module that is slow to compile.
fn start(folder: &Path) -> Child {
    let module = folder.join("slow.wasm");
    fs::write(&module, slow()).unwrap();
    Command::new(FLAME)
        .args(["run", "--metered", "-q", "-r"])
        .arg(common::root().join("demo/demo.pcap"))
        .arg(&module)
        .env("FLAME_CACHE", folder.join("cache"))
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn field(process: u32, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    Some(status.lines().find_map(|l| l.strip_prefix(name))?.trim().to_owned())
}

/// Returns the confined child of a process, once it compiles.
fn compiling(parent: u32) -> u32 {
    let compiles = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let of = |name| field(*pid, name);
        String::from_utf8_lossy(&words).contains("\0confined-compiler\0Compile\0")
            && of("PPid:") == Some(parent.to_string())
            && of("Seccomp:").as_deref() == Some("2")
    };
    let all =
        || fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    eventually("a child that compiles", || all().find(compiles))
}

#[test]
fn a_child_has_given_up_everything() {
    let folder = tempfile::tempdir().unwrap();
    let mut parent = start(folder.path());
    let child = compiling(parent.id());
    let limits = fs::read_to_string(format!("/proc/{child}/limits")).unwrap();
    let descriptors = fs::read_dir(format!("/proc/{child}/fd")).unwrap().count();
    let environment = fs::read(format!("/proc/{child}/environ")).unwrap();
    let privileges = field(child, "NoNewPrivs:");
    let folder_of = fs::read_link(format!("/proc/{child}/cwd")).unwrap();
    let own = |what: &str| fs::read_link(format!("/proc/{child}/ns/{what}")).ok();
    let net = (own("net"), fs::read_link("/proc/self/ns/net").ok());
    parent.kill().unwrap();
    parent.wait().unwrap();
    let limit = |name: &str| {
        let line = limits.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().next().unwrap_or_default().to_owned()
    };
    for name in ["Max core file size", "Max processes", "Max open files"] {
        assert_eq!(limit(name), "0", "{name}: {limits}");
    }
    for name in ["Max cpu time", "Max address space", "Max data size"] {
        assert!(limit(name).parse::<u64>().is_ok(), "{name}: {limits}");
    }
    assert_eq!((descriptors, privileges.as_deref()), (3, Some("1")));
    assert!(environment.is_empty() && folder_of == Path::new("/"));
    if net.0 == net.1 {
        eprintln!("no network namespace of its own: not allowed here");
    }
    // The parent was killed, so the child must end.
    eventually("the end of the child", || field(child, "State:").is_none_or(|s| s.starts_with('Z')));
}

#[test]
fn an_interrupt_ends_child_and_command_with_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let parent = start(folder.path());
    let child = compiling(parent.id());
    let start = Instant::now();
    let id = parent.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let out = parent.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("slow.wasm: compiling: interrupted"), "{said}");
    assert_eq!(out.status.code(), Some(130));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(field(child, "State:"), None, "no zombie is left");
}
