//! Modules of a graph that measure, in processes of their own: they see the packets that they would see here,
//! and what they report does not wait for others.

use crate::click_modules::{folder, module, packets, trapping};
use crate::commands::text;
use crate::common::{eventually, pcap, runner, tcp_packet};
use std::fs::{File, read_dir, read_to_string};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// The time in which a line is to come, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Counts packets. Traps at a tick that is not after the packets before it, at a packet before the last tick,
/// and at the end if there was no tick.
const ORDERED: &str = r#"(module (memory (export "memory") 1)
    (data (i32.const 0) "\08\00\00\00\00\00\00\00")
    (global $last (mut i64) (i64.const 0)) (global $tick (mut i64) (i64.const 0))
    (func (export "flame_batch") (param $b i32) (result i64) (local $at i32) (local $end i32)
        (local.set $at (i32.load (local.get $b)))
        (local.set $end (i32.add (local.get $at) (i32.shl (i32.load offset=4 (local.get $b)) (i32.const 5))))
        (i64.store (i32.const 8) (i64.add (i64.load (i32.const 8)) (i64.load32_u offset=4 (local.get $b))))
        (block $done (loop $packet
            (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
            (global.set $last (i64.load (local.get $at)))
            (if (i64.lt_u (global.get $last) (global.get $tick)) (then (unreachable)))
            (local.set $at (i32.add (local.get $at) (i32.const 32)))
            (br $packet)))
        (i64.const 0))
    (func (export "flame_tick") (param $now i64) (result i64)
        (global.set $tick (local.get $now))
        (if (i64.ge_u (global.get $last) (global.get $tick)) (then (unreachable)))
        (i64.const 0))
    (func (export "flame_end") (param i64) (result i64)
        (if (i64.eqz (global.get $tick)) (then (unreachable)))
        (i64.const 0x1000000000)))"#;

fn command(folder: &Path, graph: &str, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flame"));
    command.current_dir(folder).args(["click", "--format", "json", "--records", "records.json", "-e", graph]);
    command.args(more).env("FLAME_RUNNER", runner());
    command
}

/// Returns what handlers say at the end of a graph, with its modules here and in processes.
fn here_and_apart(folder: &Path, graph: &str, handlers: &[&str]) -> [String; 2] {
    let handlers: Vec<_> = handlers.iter().flat_map(|name| ["-h", name]).collect();
    [&[][..], &["--isolate"]].map(|more| {
        let out = command(folder, graph, more).args(&handlers).output().unwrap();
        assert!(out.status.success(), "{}", text(&out.stderr));
        text(&out.stdout)
    })
}

/// Packets that are pushed alone find the room that they would find together, while a process begins as well.
#[test]
fn a_live_process_has_room_for_packets_not_pushes() {
    let folder = folder();
    let source = "InfiniteSource(LENGTH 60, LIMIT 1000, BURST 1, STOP true)";
    let graph = format!("{source} -> m :: Module(./counts.wasm, LIVE true) -> Discard");
    let [here, apart] = here_and_apart(folder.path(), &graph, &["m.stats"]);
    assert!(here.contains("offered 1000\nprocessed 1000\n"), "{here}");
    // Its counts lag behind its packets.
    assert!(apart.contains("offered 1000\n") && !apart.contains("shed"), "{apart}");
}

/// The first packet after the one at which a module ends is dropped, wherever the module runs.
#[test]
fn packets_after_a_fault_are_dropped_with_a_process_as_here() {
    let folder = folder();
    module(folder.path(), "traps", &trapping(700));
    let graph =
        "FromDump(in.pcap, STOP true) -> m :: Module(./traps.wasm, ON_EVICT drop) -> c :: Counter -> Discard";
    let [here, apart] = here_and_apart(folder.path(), graph, &["c.count", "m.stats", "m.gone"]);
    assert!(here.contains("true"), "{here}");
    assert_eq!(apart, here);
}

/// A process that begins gets all packets of a capture that is read at full speed, although a tick falls
/// before each of them.
#[test]
fn ticks_take_no_room_from_packets() {
    let folder = folder();
    module(folder.path(), "ordered", ORDERED);
    let each_second = (0..5000_u64).map(|i| (5000 + 1000 * i, tcp_packet(7, 80)));
    std::fs::write(folder.path().join("in.pcap"), pcap(each_second)).unwrap();
    let graph = "FromDump(in.pcap, STOP true) -> Module(./ordered.wasm, LIVE true) -> Discard";
    let out = command(folder.path(), graph, &["--isolate"]).output().unwrap();
    let records = read_to_string(folder.path().join("records.json")).unwrap();
    assert_eq!((text(&out.stderr).as_str(), packets(&records)), ("", vec![("ordered".to_owned(), 5000)]));
}

/// A graph with modules in processes, and the lines that it says. It ends with this.
struct Graph {
    child: Child,
    lines: Receiver<String>,
}

impl Graph {
    fn start(folder: &Path, graph: &str, more: &[&str]) -> Self {
        let mut command = command(folder, graph, &[&["--isolate"], more].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (send, lines) = channel();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let sends = send.clone();
        let pass = |send: Sender<String>, lines: &mut dyn Iterator<Item = String>| {
            lines.for_each(|line| drop(send.send(line)));
        };
        std::thread::spawn(move || pass(send, &mut BufReader::new(out).lines().map_while(Result::ok)));
        std::thread::spawn(move || pass(sends, &mut BufReader::new(err).lines().map_while(Result::ok)));
        Self { child, lines }
    }

    /// Waits for a line with this text, and returns it. Nothing wakes the graph meanwhile.
    fn expect(&self, wanted: &str) -> String {
        let mut said = Vec::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|e| panic!("{wanted}: {e}: {said:?}"));
            if line.contains(wanted) {
                return line;
            }
            said.push(line);
        }
    }

    /// Returns the processes of its modules.
    fn processes(&self) -> Vec<String> {
        let threads = read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let children = threads.map(|thread| read_to_string(thread.unwrap().path().join("children")).unwrap());
        children.flat_map(|pids| pids.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
    }

    /// Sends a signal to the process of its module.
    fn signal(&self, signal: &str) {
        let [pid] = &self.processes()[..] else { panic!("{:?}", self.processes()) };
        assert!(Command::new("kill").args([signal, pid]).status().unwrap().success());
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A graph without packets reports a fault of a module in a process, and the end of the process.
#[test]
fn a_quiet_graph_reports_what_becomes_of_its_processes() {
    let folder = folder();
    module(folder.path(), "traps", &trapping(47));
    let start = |module: &str| {
        let graph = format!(
            "RatedSource(RATE 1000, LIMIT 50, LENGTH 60) -> Module(./{module}.wasm) -> Discard;
             Script(wait 0.5s, print \"quiet\", wait 300s, stop)"
        );
        Graph::start(folder.path(), &graph, &[])
    };
    start("traps").expect("unreachable");
    let counts = start("counts");
    counts.expect("quiet");
    counts.signal("-KILL");
    counts.expect("process ended");
}

/// Each packet is in a counter once the process is gone that had some of them.
#[test]
fn packets_of_a_killed_process_are_counted() {
    let folder = folder();
    let graph = "RatedSource(RATE 300, LIMIT 900, LENGTH 60) -> m :: Module(./counts.wasm, LIVE true)
            -> Discard;
        Script(label again, wait 0.1s, print m.stats, goto again)";
    let graph = Graph::start(folder.path(), graph, &[]);
    let number = |line: &str| line.split(' ').nth(1).unwrap().parse::<u64>().unwrap();
    while number(&graph.expect("processed")) == 0 {}
    graph.signal("-STOP");
    graph.expect("offered 900");
    assert!(number(&graph.expect("processed")) < 900);
    graph.signal("-KILL");
    graph.expect("process ended");
    graph.expect("offered 900");
    let processed = number(&graph.expect("processed"));
    assert_eq!(graph.expect("shed"), format!("shed {} stopped", 900 - processed));
}

/// Simulated time does not run ahead of a process that is stopped, and the graph does not spin.
#[test]
fn simulated_time_waits_for_a_stopped_process() {
    let folder = folder();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let graph = "FromDump(pipe) -> Module(./counts.wasm, LIVE true) -> Discard;
        Script(wait 100s, print \"later\", stop)";
    let graph = Graph::start(folder.path(), graph, &["--simtime"]);
    let capture = pcap((0..40_000).map(|_| (5000, tcp_packet(7, 80))));
    let (first, rest) = capture.split_at(capture.len() / 2);
    let mut file = File::create(&pipe).unwrap();
    file.write_all(first).unwrap();
    // Until it has confined itself, the graph waits for it.
    let confined =
        |pid: &String| read_to_string(format!("/proc/{pid}/status")).is_ok_and(|s| s.contains("Seccomp:\t2"));
    eventually("a process that has confined itself", || graph.processes().iter().any(confined));
    std::thread::sleep(Duration::from_millis(100));
    graph.signal("-STOP");
    file.write_all(rest).unwrap();
    drop(file);
    let waited = graph.lines.recv_timeout(Duration::from_secs(3));
    assert_eq!(waited, Err(RecvTimeoutError::Timeout));
    graph.signal("-CONT");
    graph.expect("later");
}
