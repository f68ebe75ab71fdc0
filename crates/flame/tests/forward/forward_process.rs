//! Modules of a graph in processes of their own: they do what they do in the graph's process, and a process
//! that its module has taken over decides about its own packets only.

use crate::commands::node;
use crate::common::{eventually, frame, root, runner, taken_over, test_name, with_manifest};
use crate::feed::signal;
use crate::forward_random::{End, module, run};
use crate::forwards::{folder, forwarding, module as wasm_of};
use crate::network::Ended;
use flame_block::Reader;
use flame_plan::Shed;
use flame_remote::{Command as Request, FdReceiver, Report, Sender};
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const MANIFEST: &str =
    "abi = 1\nname = \"any\"\nversion = \"1\"\ndescription = \"test\"\n[ports]\noutputs = 2\n";
/// The rest of a manifest that may make packets.
const MAKES: &str = "transmit = true\n";

/// Reports that no runner makes, with a part of the error that names each.
const CASES: [(&str, &str); 12] = [
    ("beyond", "packet 9 of a batch of 4"),
    ("twice", "twice"),
    ("port", "output 7"),
    ("changes", "modify"),
    ("makes", "transmit"),
    ("holds", "held"),
    ("more", "decided about packets that it was not given"),
    ("less", "decided about packets that it was not given"),
    ("late", "sent packets after its decision"),
    ("early", "its process was ended"),
    ("rubbish", "output frame 0"),
    ("dies", "its process ended"),
];

/// Returns a frame for a packet of the batch, or a new one.
fn send(index: u16, port: u16, bytes: &[u8]) -> Vec<u8> {
    frame(0xfffb, &[&index.to_le_bytes()[..], &port.to_le_bytes(), bytes].concat())
}

/// The process of a module that has taken it over, when it is started as one; not a test. It sends each
/// packet on, until it makes the report that `FLAME_HOSTILE_FORWARDER` names.
#[test]
fn hostile_forwarder() {
    let Ok(mode) = std::env::var("FLAME_HOSTILE_FORWARDER") else { return };
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let (mut sender, mut receiver) = (Sender::new(socket.try_clone().unwrap()), FdReceiver::new(socket));
    sender.send(&Report::Alive(0), &[]).unwrap();
    let (mut reader, mut id, mut blocks) = (None, None, 0);
    loop {
        sender.flush().unwrap();
        while receiver.receive(false).unwrap() {
            while let Some((command, _)) = receiver.next::<Request>(1 << 30).unwrap() {
                match command {
                    Request::Bodies => drop(receiver.take_fds(2).unwrap()),
                    Request::Install(install) => {
                        receiver.take_fds(1).unwrap();
                        id = Some(install.plan.id);
                    }
                    Request::Attach { module, .. } => {
                        let [data, control, event] =
                            <[_; 3]>::try_from(receiver.take_fds(3).unwrap()).unwrap();
                        reader = Some(Reader::from_fds(data, control, event).unwrap());
                        if mode == "early" {
                            let decided = Report::Decided { module, count: 1, lost: Some((Shed::Trap, 1)) };
                            sender.send(&decided, &[]).unwrap();
                        }
                    }
                    Request::Ping(number) => sender.send(&Report::Alive(number), &[]).unwrap(),
                    _ => {}
                }
            }
        }
        let (Some(reader), Some(module)) = (&mut reader, id) else { continue };
        while let Some(block) = reader.take() {
            blocks += 1;
            let (mut outputs, mut count) = (Vec::new(), block.packets);
            if blocks == 3 {
                match &*mode {
                    "beyond" => outputs.push(send(9, 0, &[])),
                    "twice" => outputs.extend([send(0, 0, &[]), send(0, 1, &[])]),
                    "port" => outputs.push(send(0, 7, &[])),
                    "changes" => outputs.push(send(0, 0, &[1; 60])),
                    "makes" => outputs.push(send(0xffff, 0, &[1; 60])),
                    "holds" => outputs.push(frame(0xfff7, &[0; 4])),
                    "more" => count += 1,
                    "less" => (outputs, count) = (vec![send(2, 0, &[])], 1),
                    "rubbish" => outputs.push(vec![0xa5; 100]),
                    "dies" => std::process::exit(3),
                    "sleeps" => std::thread::sleep(Duration::from_secs(100)),
                    "floods" => {
                        // Each report takes longer to handle than to make.
                        let releases = frame(0xfff6, &[0; 4]).repeat(20_000);
                        loop {
                            sender.send(&Report::Sent { module }, &releases).unwrap();
                            let _ = receiver.receive(false).unwrap();
                            while let Some((command, _)) = receiver.next::<Request>(1 << 30).unwrap() {
                                if let Request::Ping(number) = command {
                                    sender.send(&Report::Alive(number), &[]).unwrap();
                                }
                            }
                        }
                    }
                    _ => {}
                }
            } else {
                outputs.push((0..block.packets).flat_map(|index| send(index as u16, 0, &[])).collect());
            }
            for output in outputs {
                sender.send(&Report::Sent { module }, &output).unwrap();
            }
            sender.send(&Report::Decided { module, count, lost: None }, &[]).unwrap();
            if mode == "late" {
                sender.send(&Report::Sent { module }, &send(0xffff, 0, &[1; 60])).unwrap();
            }
            sender.flush().unwrap();
            reader.release(block.slot);
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Returns a program that behaves as `mode` says (see [`hostile_forwarder`]).
fn hostile(folder: &Path, mode: &str) -> PathBuf {
    let test = test_name(module_path!(), "hostile_forwarder");
    taken_over(folder.join(mode), &test, ("FLAME_HOSTILE_FORWARDER", mode))
}

const GRAPH: &str = "InfiniteSource(LENGTH 60, LIMIT 60, BURST 4, STOP true)
    -> m :: Module(any, ON_EVICT pass); m [0] -> c :: Counter -> Discard; m [1] -> Discard";

#[test]
fn a_process_that_is_taken_over_decides_about_its_own_packets_only() {
    let folder = tempfile::tempdir().unwrap();
    for (mode, text) in CASES {
        let manifest = [MANIFEST, if mode == "late" { MAKES } else { "" }].concat();
        let wasm = module(&[Vec::new()], false, &manifest);
        let End { handlers, accounts, module, .. } = run(GRAPH, wasm, Some(&hostile(folder.path(), mode)));
        for (name, account) in &accounts {
            assert!(account.adds_up(), "{mode}, {name}: {account:?}");
        }
        // What the module lost passes, as the graph says.
        let m = &accounts[module].1;
        assert_eq!((m.taken, m.given, m.held), (60, 60, 0), "{mode}: {handlers:?}");
        assert!(handlers[2].contains(text), "{mode}: expected {text:?} in {handlers:?}");
    }
}

/// A process that always has another report, or decides late, does not keep the others of a live graph.
#[test]
fn others_continue_beside_a_process_that_does_not_decide() {
    let folder = tempfile::tempdir().unwrap();
    let wasm = module(&[Vec::new()], false, &[MANIFEST, "held = 1\n"].concat());
    let path = folder.path().join("any.wasm");
    fs::write(&path, wasm).unwrap();
    let graph = format!(
        "RatedSource(LENGTH 60, RATE 100) -> m :: Module({}, LIVE true) -> Discard; m [1] -> Discard;
         TimedSource(INTERVAL 0.05) -> c :: Counter -> Discard; Script(wait 2, print $(c.count))",
        path.display()
    );
    let runs = |mode: &str| {
        let printed = folder.path().join(format!("{mode}.out"));
        let child = Command::new(env!("CARGO_BIN_EXE_flame"))
            .args(["click", "--isolate", "-e", &graph])
            .env("FLAME_RUNNER", hostile(folder.path(), mode))
            .stdout(fs::File::create(&printed).unwrap())
            .spawn()
            .unwrap();
        let mut child = Ended(child);
        let text = || fs::read_to_string(&printed).ok().filter(|text| text.ends_with('\n'));
        let count = eventually("its count", text).trim().parse::<u32>();
        assert!(count.clone().is_ok_and(|n| n > 20), "{mode}: {count:?}");
        signal(child.0.id(), "INT");
        let status = eventually(format!("the end beside one that {mode}"), || child.0.try_wait().unwrap());
        assert!(status.success(), "{mode}: {status}");
    };
    let runs = &runs;
    std::thread::scope(|scope| {
        for mode in ["floods", "sleeps"] {
            scope.spawn(move || runs(mode));
        }
    });
}

/// Standard modules, whose graphs give the same packets, records and handlers.
#[test]
fn graphs_do_not_depend_on_the_place_of_their_modules() {
    let names = ["count", "flow", "ecn", "arm"];
    if names.iter().any(|name| crate::daemon::module(name).is_none()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let demo = root().join("demo/demo.pcap");
    for (graph, handlers) in [
        ("m :: Module(count)", ["m.stats", "m.gone"]),
        ("m :: Module(flow, EXPOSE headers) -> Module(count, SELECT tcp)", ["m.stats", "m.faults"]),
        ("m :: Module(ecn, rate 1000, threshold 0, EXPOSE all)", ["m.stats", "m.account"]),
        ("Queue(10000) -> Unqueue -> m :: Module(ecn, INTERVAL 1s, EXPOSE all)", ["m.stats", "m.account"]),
    ] {
        let results = [&[][..], &["--isolate"], &["--isolate", "--metered"]].map(|more| {
            let (packets, records) = (path("out.pcap"), path("records"));
            let graph =
                format!("FromDump({}, STOP true) -> {graph} -> ToDump({packets}) -> Discard", demo.display());
            let handlers = handlers.iter().flat_map(|name| ["-h", name]);
            let out = Command::new(env!("CARGO_BIN_EXE_flame"))
                .arg("click")
                .args(more)
                .args(["--format", "json", "--records", &records, "-e", &graph])
                .args(handlers)
                .env("FLAME_RUNNER", runner())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(out.status.success(), "{graph}: {said}");
            let mut lines: Vec<_> =
                fs::read_to_string(records).unwrap_or_default().lines().map(str::to_owned).collect();
            // Modules of one graph write in any order.
            lines.sort();
            (fs::read(packets).unwrap(), lines, String::from_utf8(out.stdout).unwrap())
        });
        assert!(results[0].0.len() > 100_000, "{graph}");
        assert!(results[1] == results[0], "{graph}: {:?}\n{:?}", results[0].2, results[1].2);
        assert!(results[2] == results[0], "{graph}: {:?}\n{:?}", results[0].2, results[2].2);
    }
}

/// Holds a packet of each batch, reports each tick, and traps in the 30th.
const TICKS: &str = r#"(module (memory (export "memory") 16)
    (data (i32.const 64) "\04\00\00\00\f7\ff\00\00\00\00\00\00")
    (data (i32.const 128) "\08\00\00\00\00\00\00\00\07\00\00\00\00\00\00\00")
    (func (export "flame_push") (param i32 i32) (result i64) (i64.const 0xc00000040))
    (func (export "flame_tick") (param i64) (result i64)
      (i32.store (i32.const 8) (i32.add (i32.load (i32.const 8)) (i32.const 1)))
      (if (i32.eq (i32.load (i32.const 8)) (i32.const 30)) (then (unreachable)))
      (i64.const 0x1000000080))
    (func (export "flame_end") (param i64) (result i64) (i64.const 0)))"#;

/// Ticks take effect before the packets after them, although the module is not shown these.
#[test]
fn ticks_have_their_place_among_packets_that_are_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let table = "held = 1\n[[tables]]\nname = \"t\"\ncolumns = [{ name = \"packets\", type = \"u64\" }]\n";
    let wasm = with_manifest(wat::parse_str(TICKS).unwrap(), [MANIFEST, table].concat().as_bytes());
    fs::write(path("ticks.wasm"), wasm).unwrap();
    let demo = root().join("demo/demo.pcap");
    let graph = format!(
        "FromDump({}, STOP true) -> m :: Module({}, INTERVAL 10ms, SELECT udp, ON_EVICT pass);
         m [0] -> ToDump({}) -> Discard; m [1] -> Discard",
        demo.display(),
        path("ticks.wasm"),
        path("out.pcap")
    );
    let results: Vec<_> = [&[][..]]
        .into_iter()
        .chain([&["--isolate"][..]; 8])
        .map(|more| {
            let out = Command::new(env!("CARGO_BIN_EXE_flame"))
                .arg("click")
                .args(more)
                .args([
                    "--format",
                    "json",
                    "--records",
                    &path("records"),
                    "-e",
                    &graph,
                    "-h",
                    "m.stats",
                    "-h",
                    "m.gone",
                ])
                .env("FLAME_RUNNER", runner())
                .output()
                .unwrap();
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            let records = fs::read_to_string(path("records")).unwrap();
            (fs::read(path("out.pcap")).unwrap(), records, String::from_utf8(out.stdout).unwrap())
        })
        .collect();
    assert!(results[0].2.contains("records 29"), "{}", results[0].2);
    assert!(
        results.iter().all(|result| *result == results[0]),
        "{:?}",
        results.iter().map(|r| &r.2).collect::<Vec<_>>()
    );
}

/// A terminal sends SIGINT to all processes of the group. Those of modules end in order.
#[test]
fn an_interrupt_of_the_group_ends_modules_in_order() {
    if crate::daemon::module("count").is_none() {
        return;
    }
    use std::os::unix::process::CommandExt;
    let folder = tempfile::tempdir().unwrap();
    let [out, err] = ["out", "err"].map(|name| folder.path().join(name));
    let child = Command::new(env!("CARGO_BIN_EXE_flame"))
        .args(["click", "--isolate", "--format", "json", "-e"])
        .arg(
            "RatedSource(LENGTH 60, RATE 1000, LIMIT 10) -> Module(count) -> c :: Counter -> Discard;
            Script(label l, wait 0.05s, goto l $(eq $(gt $(c.count) 9) false), print \"all\")",
        )
        .env("FLAME_RUNNER", runner())
        .process_group(0)
        .stdout(fs::File::create(&out).unwrap())
        .stderr(fs::File::create(&err).unwrap())
        .spawn()
        .unwrap();
    let mut child = Ended(child);
    let text = |path: &Path| fs::read_to_string(path).unwrap();
    eventually("all packets", || text(&out).contains("all"));
    let group = format!("-{}", child.0.id());
    assert!(Command::new("kill").args(["-INT", "--", &group]).status().unwrap().success());
    eventually("its end", || child.0.try_wait().unwrap());
    assert!(text(&out).contains("\"packets\":10"), "{}{}", text(&out), text(&err));
    assert_eq!(text(&err), "");
}

/// Modules that cannot run are refused with the configuration, before any packet.
#[test]
fn modules_that_share_memory_are_refused_with_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shares.wasm");
    let manifest = "abi = 1\nname = \"shares\"\nversion = \"1\"\ndescription = \"test\"\n\
        [[shared]]\nname = \"x\"\naccess = \"read\"\nbytes = 65536\n";
    let text = r#"(module (memory (export "memory") 16)
        (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
        (func (export "flame_end") (param i64) (result i64) (i64.const 0)))"#;
    fs::write(&path, with_manifest(wat::parse_str(text).unwrap(), manifest.as_bytes())).unwrap();
    let graph = format!("InfiniteSource(LIMIT 5, STOP true) -> Module({}) -> Discard", path.display());
    for (more, is_right) in [(&[][..], true), (&["--isolate"], false)] {
        let out = Command::new(env!("CARGO_BIN_EXE_flame"))
            .arg("click")
            .args(more)
            .args(["-e", &graph])
            .env("FLAME_RUNNER", runner())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!((out.status.success(), said.contains("shares memory")), (is_right, !is_right), "{said}");
    }
}

/// Returns what handlers say at the end of a graph under the policy of a folder, with the modules here and in
/// processes.
fn here_and_apart(folder: &Path, graph: &str, handlers: &[&str]) -> [String; 2] {
    [&[][..], &["--isolate"]].map(|more| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flame"));
        command.current_dir(folder).args(["click", "--policy", "policy.toml", "-e", graph]).args(more);
        let handlers = handlers.iter().flat_map(|name| ["-h", name]);
        let out = command.args(handlers).env("FLAME_RUNNER", runner()).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    })
}

/// The packets before the packet that a fault names were processed, wherever that is known.
#[test]
fn a_fault_at_a_packet_has_processed_those_before() {
    let dir = folder();
    let traps = forwarding("(i32.const 1)", "(i32.const 0)", "").replace(
        "(if (i32.const 1)",
        "(if (i32.eq (local.get $i) (i32.const 3)) (then unreachable)) (if (i32.const 1)",
    );
    wasm_of(dir.path(), "traps", &traps, "");
    node(dir.path(), "expose = \"headers\"\ncalls = \"forward\"");
    let graph = "InfiniteSource(LENGTH 60, LIMIT 40, BURST 8, STOP true)
        -> m :: Module(./traps.wasm, CREDENTIAL alice.cred, RESTART 2) -> Discard";
    let [here, apart] = here_and_apart(dir.path(), graph, &["m.stats", "m.account", "m.gone"]);
    assert!(here.contains("processed 9\n"), "{here}");
    assert_eq!(apart, here);
}

/// Modules of one credential have its memory together, although each is in a process of its own.
#[test]
fn processes_of_one_credential_have_its_memory_once() {
    let dir = folder();
    // It takes 40 MiB at its first packets, or traps.
    let grows = forwarding(
        "(i32.const 1)",
        "(i32.const 0)",
        "(if (i32.eqz (i32.load (i32.const 0))) (then
            (if (i32.eq (memory.grow (i32.const 640)) (i32.const -1)) (then unreachable))
            (i32.store (i32.const 0) (i32.const 1))))",
    );
    wasm_of(dir.path(), "grows", &grows, "");
    node(dir.path(), "expose = \"headers\"\ncalls = \"forward\"\nmemory = \"64MiB\"");
    let module = |name: &str| format!("{name} :: Module(./grows.wasm, CREDENTIAL alice.cred)");
    let source = "InfiniteSource(LENGTH 60, LIMIT 40, BURST 8, STOP true)";
    let alone = format!("{source} -> {} -> Discard", module("a"));
    let [here, apart] = here_and_apart(dir.path(), &alone, &["a.gone"]);
    assert_eq!((here.trim(), apart.trim()), ("false", "false"), "one may have all of it");
    let all = format!("{source} -> {} -> {} -> {} -> Discard", module("a"), module("b"), module("c"));
    let said = here_and_apart(dir.path(), &all, &["a.gone", "b.gone", "c.gone"]);
    for said in &said {
        assert!(said.matches("true").count() >= 2, "40 MiB are left for one at most: {said}");
    }
}
