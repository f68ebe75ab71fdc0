//! Tests of Ctrl-C, once and twice, while a module is in a call that does not end.

use crate::common::{MANIFEST, eventually, pcap, root, tcp_packet, with_manifest};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

const SPIN: &str = "(loop $spin (br $spin))";

/// Writes a module that reports a row in its first tick. `tick` is the code of the second tick, and `batch`
/// the code of batches after the first tick.
fn module(folder: &Path, batch: &str, tick: &str) -> PathBuf {
    let text = format!(
        r#"(module (memory (export "memory") 1)
            (data (i32.const 0) "\08\00\00\00\00\00\00\00\2a")
            (global $ticked (mut i32) (i32.const 0))
            (func (export "flame_batch") (param i32) (result i64)
                (if (global.get $ticked) (then {batch})) (i64.const 0))
            (func (export "flame_tick") (param i64) (result i64)
                (if (global.get $ticked) (then {tick}))
                (global.set $ticked (i32.const 1)) (i64.const 0x1000000000)))"#
    );
    let limits = "[limits]\npacket_budget = 1000000000000\ncall_budget = 1000000000000\n[[tables]]";
    let manifest = MANIFEST.replace("hostile", "spins").replace("[[tables]]", limits);
    let path = folder.join("spins.wasm");
    std::fs::write(&path, with_manifest(wat::parse_str(text).unwrap(), manifest.as_bytes())).unwrap();
    path
}

struct Running {
    child: Child,
    folder: tempfile::TempDir,
}

impl Running {
    /// Starts a run whose module has reported its row, and spins from then on. It is metered, as no watchdog
    /// ends its calls then.
    fn new(batch: &str, tick: &str) -> Self {
        let running = Self::start(batch, tick, &["--metered"]);
        eventually("the row", || {
            let rows = running.partial().and_then(|path| std::fs::read_to_string(path).ok());
            rows.is_some_and(|rows| rows.contains('\n'))
        });
        running
    }

    /// Starts a run whose module spins after its first tick, with more arguments.
    fn start(batch: &str, tick: &str, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let module = module(folder.path(), batch, tick);
        let child = Command::new(env!("CARGO_BIN_EXE_flame"))
            .args(["run", module.to_str().unwrap(), "-r", "demo/demo.pcap", "--interval", "100ms"])
            .args(["--packet-budget", "1000000000000", "--format", "json", "-o"])
            .arg(folder.path().join("rows.json"))
            .args(more)
            .env("XDG_CACHE_HOME", folder.path())
            .current_dir(root())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child, folder }
    }

    /// Returns the staged file, once there is one.
    fn partial(&self) -> Option<PathBuf> {
        let all = std::fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path());
        all.into_iter().find(|path| path.extension().is_some_and(|e| e == "partial"))
    }

    /// Returns whether a thread of the run or of a process of it has worked for `ms` milliseconds: it is in
    /// the call that does not end.
    fn spins(&self, ms: u64) -> bool {
        let tasks = |id: u32| std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        let own = self.child.id();
        let children: String = tasks(own).map(|task| read(task.path().join("children"))).collect();
        let all = children.split_whitespace().filter_map(|id| id.parse().ok()).chain([own]);
        let worked = |task: std::fs::DirEntry| {
            let times = read(task.path().join("schedstat"));
            times.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0)
        };
        all.flat_map(tasks).any(|task| worked(task) >= ms * 1_000_000)
    }

    fn interrupt(&self) {
        assert!(
            Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap().success()
        );
    }

    /// Returns the exit status, the time until the end, and the output.
    fn end(mut self) -> (ExitStatus, Duration, String, tempfile::TempDir) {
        let started = Instant::now();
        let status = self.child.wait().unwrap();
        let mut said = String::new();
        std::io::Read::read_to_string(&mut self.child.stderr.take().unwrap(), &mut said).unwrap();
        (status, started.elapsed(), said, self.folder)
    }
}

#[test]
fn once_it_ends_in_order() {
    crate::common::runner();
    // A worker that is behind has read what others have only after the stop, and no call takes for ever.
    for more in [&[][..], &["--isolate"], &["--workers", "2"], &["--workers", "2", "--isolate"]] {
        let running = Running::start(SPIN, "", more);
        // What a process reports may come only when its module returns, so this waits for work: more than the
        // module has before its first tick.
        eventually("the call", || running.spins(700));
        running.interrupt();
        let (status, took, said, folder) = running.end();
        assert_eq!(status.code(), Some(4), "{more:?}: {said}");
        assert!(took < Duration::from_secs(10), "{more:?}: {took:?}");
        assert!(said.contains("flame_batch: interrupted: it still ran"), "{more:?}: {said}");
        let rows = std::fs::read_to_string(folder.path().join("rows.json")).unwrap();
        assert!(rows.lines().all(|row| row == r#"{"module":"spins","table":"t","packets":42}"#), "{rows}");
    }
}

#[test]
fn twice_it_ends_at_once_and_what_was_written_is_kept() {
    let mut running = Running::new("", SPIN);
    running.interrupt();
    std::thread::sleep(Duration::from_millis(100));
    // Within a second of the first, it is the same interrupt.
    running.interrupt();
    std::thread::sleep(Duration::from_millis(1200));
    // A tick may use its whole budget, which takes minutes here.
    assert!(running.child.try_wait().unwrap().is_none());
    let partial = running.partial().unwrap();
    running.interrupt();
    let (status, took, said, folder) = running.end();
    assert_eq!(status.code(), Some(130), "{said}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(
        said.contains("interrupted again, ended at once") && said.contains(partial.to_str().unwrap()),
        "{said}"
    );
    let rows = std::fs::read_to_string(partial).unwrap();
    assert_eq!(rows, "{\"module\":\"spins\",\"table\":\"t\",\"packets\":42}\n");
    assert!(!folder.path().join("rows.json").exists(), "it has its name only when it is whole");
}

/// Returns the exit status and the output of a command that GNU `timeout` ends, whose input stays open: it is
/// signalled, and then its group.
fn timed_out(signal: &str, folder: &Path, arguments: &[&str], input: &[u8]) -> (Option<i32>, String) {
    let mut command = Command::new("timeout");
    command.args(["--preserve-status", "-s", signal, "3", env!("CARGO_BIN_EXE_flame")]).args(arguments);
    command.env("XDG_CACHE_HOME", folder).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut open = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut open, input).unwrap();
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    drop(open);
    let [out, said] = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (status.code(), out + &said)
}

#[test]
fn the_two_signals_of_timeout_are_one_interrupt() {
    crate::common::runner();
    let folder = tempfile::tempdir().unwrap();
    let text = r#"(module (memory (export "memory") 1)
        (data (i32.const 0) "\08\00\00\00\00\00\00\00\2a")
        (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
        (func (export "flame_end") (param i64) (result i64) (i64.const 0x1000000000)))"#;
    let wasm = with_manifest(wat::parse_str(text).unwrap(), MANIFEST.as_bytes());
    std::fs::write(folder.path().join("m.wasm"), wasm).unwrap();
    let input = pcap((0..10).map(|ms| (ms, tcp_packet(0, 80))));
    std::fs::write(folder.path().join("c.pcap"), &input).unwrap();
    let run =
        |from: &'static str, more| [&["run", "./m.wasm", "-r", from, "--format", "json"][..], more].concat();
    // From now on the module is in the cache.
    let mut first = Command::new(env!("CARGO_BIN_EXE_flame"));
    first.args(run("c.pcap", &["-q"])).env("XDG_CACHE_HOME", folder.path()).current_dir(folder.path());
    assert!(first.output().unwrap().status.success());
    let graph = "FromDump(/dev/stdin) -> c :: Counter -> Discard; Script(wait 60s)";
    let all = [
        (run("-", &[]), r#""packets":42}"#),
        (run("-", &["--isolate", "--workers", "2"]), r#""packets":42}"#),
        (["click", "-e", graph, "-h", "c.count"].to_vec(), "10\n"),
    ];
    std::thread::scope(|scope| {
        for (arguments, expected) in &all {
            for signal in ["INT", "TERM"] {
                let (folder, input) = (folder.path(), &input);
                scope.spawn(move || {
                    let (status, said) = timed_out(signal, folder, arguments, input);
                    assert_eq!(status, Some(0), "{signal} {arguments:?}: {said}");
                    assert!(said.contains(expected), "{signal} {arguments:?}: {said}");
                });
            }
        }
    });
}

/// One packet becomes 2⁴⁰, in one step of the graph: its end drops the rest, which is counted.
#[test]
fn a_graph_whose_packets_multiply_ends() {
    let tees: String =
        (1..40).map(|n| format!("t{} [0], t{} [1] -> t{n} :: Tee(2);", n - 1, n - 1)).collect();
    let text = format!(
        "Script(print \"begun\", wait 0.1s, write s.active true);
        s :: InfiniteSource(LIMIT 3, ACTIVE false) -> t0 :: Tee(2); {tees} t39 [0], t39 [1] -> Discard"
    );
    for signal in ["-INT", "-TERM"] {
        let folder = tempfile::tempdir().unwrap();
        let [out, err] = ["out", "err"].map(|name| folder.path().join(name));
        let file = |path: &Path| std::fs::File::create(path).unwrap();
        let mut click = Command::new(env!("CARGO_BIN_EXE_flame"));
        click.args(["click", "-e", &text, "-h", "*.account"]).stdout(file(&out)).stderr(file(&err));
        let mut click = click.spawn().unwrap();
        eventually("the start", || std::fs::read_to_string(&out).unwrap().contains("begun"));
        // Its packets multiply by then.
        std::thread::sleep(Duration::from_millis(500));
        assert!(click.try_wait().unwrap().is_none());
        let pid = click.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        let mut click = crate::network::Ended(click);
        let status = eventually(format!("the end after {signal}"), || click.0.try_wait().unwrap());
        let (out, err) = (std::fs::read_to_string(&out).unwrap(), std::fs::read_to_string(&err).unwrap());
        assert!(status.success(), "{signal}: {out}{err}");
        assert!(out.contains(" interrupted"), "{signal}: {out}{err}");
        crate::devices::add_up(&out);
    }
}
