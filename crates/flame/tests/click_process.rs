//! Modules of a graph that measure, in processes of their own: they see the packets that they would see here,
//! and what they report does not wait for others.

use crate::click_modules::{folder, module, trapping};
use crate::commands::text;
use crate::common::runner;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The time in which a line is to come, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

fn command(folder: &Path, graph: &str, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flame"));
    command.current_dir(folder).args(["click", "--format", "json", "--records", "/dev/null", "-e", graph]);
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

/// A graph that runs until it is killed, and the lines that it says.
struct Quiet {
    child: Child,
    lines: Receiver<String>,
}

impl Quiet {
    fn start(folder: &Path, module: &str) -> Self {
        let graph = format!(
            "RatedSource(RATE 1000, LIMIT 50, LENGTH 60) -> Module(./{module}.wasm) -> Discard;
             Script(wait 0.5s, print \"quiet\", wait 300s, stop)"
        );
        let mut command = command(folder, &graph, &["--isolate"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (send, lines) = channel();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let sends = send.clone();
        let pass = |send: std::sync::mpsc::Sender<String>, lines: &mut dyn Iterator<Item = String>| {
            lines.for_each(|line| drop(send.send(line)));
        };
        std::thread::spawn(move || pass(send, &mut BufReader::new(out).lines().map_while(Result::ok)));
        std::thread::spawn(move || pass(sends, &mut BufReader::new(err).lines().map_while(Result::ok)));
        Self { child, lines }
    }

    /// Waits for a line with this text. Nothing wakes the graph meanwhile.
    fn expect(&self, wanted: &str) {
        let mut said = Vec::new();
        while !said.last().is_some_and(|line: &String| line.contains(wanted)) {
            let line = self.lines.recv_timeout(PATIENCE);
            said.push(line.unwrap_or_else(|e| panic!("{wanted}: {e}: {said:?}")));
        }
    }

    /// Kills the processes of its modules.
    fn kill_modules(&self) {
        let mut killed = 0;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap() {
            let children = std::fs::read_to_string(thread.unwrap().path().join("children")).unwrap();
            for pid in children.split_whitespace() {
                killed += 1;
                assert!(Command::new("kill").args(["-KILL", pid]).status().unwrap().success());
            }
        }
        assert_eq!(killed, 1);
    }
}

impl Drop for Quiet {
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
    Quiet::start(folder.path(), "traps").expect("unreachable");
    let counts = Quiet::start(folder.path(), "counts");
    counts.expect("quiet");
    counts.kill_modules();
    counts.expect("process ended");
}
