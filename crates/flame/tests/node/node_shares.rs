//! Tests of reserved processor time: the kernel guarantees it to the process of a session, and shares are
//! what was reserved. The numbers are the kernel's.

use crate::daemon::{self, Node, dense, module, replay, wait_for};
use crate::wasm;
use serde_json::Value;
use std::time::{Duration, Instant};

const CAPACITY: &str = "[capacity]\ncpu = \"400%\"\n";
/// The length of a window, and their number.
const WINDOW: Duration = Duration::from_millis(100);
const WINDOWS: usize = 60;

/// Writes a module that takes milliseconds for each batch, and more than a processor for those packets.
fn busy(node: &Node) -> String {
    let path = node.path("busy.wasm");
    std::fs::write(&path, wasm::busy_with_each("busy", 80_000)).unwrap();
    path.display().to_string()
}

/// Runs a command for NAME, and returns its answer or its message.
fn output_of(node: &Node, name: &str, arguments: &[&str]) -> Result<Value, String> {
    let (credential, key) = (format!("{name}.cred"), format!("{name}.key"));
    let more = ["--credential", &credential, "--identity", &key, "--format", "json"];
    let out = node.output(&[arguments, &more].concat());
    match out.status.success() {
        true => Ok(serde_json::from_slice(&out.stdout).unwrap()),
        false => Err(daemon::text(&out.stderr)),
    }
}

/// Runs a command for NAME that reserves time. If others on this machine have all of it, reports that the
/// test is skipped.
fn try_of(node: &Node, name: &str, arguments: &[&str]) -> Option<Value> {
    match output_of(node, name, arguments) {
        Err(said) if said.contains("the kernel does not reserve the processor time") => {
            eprintln!("skipped: others have reserved the kernel's time: {said}");
            None
        }
        answer => Some(answer.unwrap()),
    }
}

fn process(node: &Node, name: &str, principal: &str) -> u64 {
    node.json(&["show", name, "--principal", principal])["process"].as_u64().expect("a process")
}

/// Returns the processor time that the kernel guarantees to a process, in millionths of a processor.
fn guaranteed(node: &Node, pid: u64) -> u64 {
    let security = node.json(&["node", "status", "--security"]);
    let all = security["processes"].as_array().unwrap();
    let of = all.iter().find(|p| p["pid"] == pid).unwrap_or_else(|| panic!("{security}"));
    of["runs"]["guaranteed_ppm"].as_u64().unwrap()
}

/// Returns whether the kernel guarantees processor time here, or reports that the test is skipped.
fn is_permitted(installed: &Value) -> bool {
    let notes = installed["notes"].to_string();
    if notes.contains("is a limit only") {
        eprintln!("skipped: SCHED_DEADLINE is not permitted here");
        return false;
    }
    assert!(notes.contains("guaranteed by the kernel's scheduler"), "{notes}");
    true
}

/// Returns the nanoseconds that a process's main thread has run.
fn ran(pid: u64) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Returns the parts of a processor that processes had in each of `count` windows.
fn shares(pids: &[u64], count: usize) -> Vec<Vec<f64>> {
    let look = || pids.iter().map(|pid| (Instant::now(), ran(*pid))).collect::<Vec<_>>();
    let mut before = look();
    let window = |_| {
        std::thread::sleep(WINDOW);
        let now = look();
        let part =
            |(a, b): (&(Instant, u64), &(Instant, u64))| (b.1 - a.1) as f64 / (b.0 - a.0).as_nanos() as f64;
        let parts = before.iter().zip(&now).map(part).collect();
        before = now;
        parts
    };
    (0..count).map(window).collect()
}

fn mean(of: impl Iterator<Item = f64>) -> f64 {
    let all: Vec<f64> = of.collect();
    all.iter().sum::<f64>() / all.len() as f64
}

/// Modules of one credential have its time together, in however many processes they run.
#[test]
fn a_credential_has_its_time_once_for_all_its_processes() {
    let _turn = crate::turn();
    const SOURCES: usize = 6;
    let mut node = Node::new("");
    dense(&node.path("dense.pcap"));
    let source = |n| {
        let file = node.path("dense.pcap").display().to_string();
        format!("[sources.s{n}]\nfile = {file:?}\nrepeat = true\n")
    };
    node.configure(&(0..SOURCES).map(source).collect::<String>());
    node.mint("alice", &["--cpu", "100ms/1s"]);
    node.start();
    let busy = busy(&node);
    let names: Vec<String> = (0..SOURCES).map(|n| format!("m{n}")).collect();
    for (n, name) in names.iter().enumerate() {
        let source = format!("s{n}");
        output_of(&node, "alice", &["install", &busy, "--name", name, "--source", &source]).unwrap();
    }
    let pids: Vec<u64> = names.iter().map(|name| process(&node, name, "alice")).collect();
    // The meter is full at the beginning.
    std::thread::sleep(Duration::from_secs(2));
    let all = mean(shares(&pids, WINDOWS).into_iter().map(|parts| parts.into_iter().sum()));
    assert!(all < 0.15, "{all} of a processor, where the credential allows 0.1");
    for name in &names {
        let shown = node.json(&["show", name, "--principal", "alice"]);
        assert_eq!((&shown["state"], &shown["account"]["faults"]), (&"running".into(), &0.into()), "{shown}");
        assert!(shown["account"]["shed"]["share"].as_u64() > Some(0), "{shown}");
    }
    assert_eq!(names.iter().map(|name| process(&node, name, "alice")).collect::<Vec<_>>(), pids);
    node.end();
}

/// A client that asks for guaranteed time gets an error if the kernel refuses it, and nothing has changed.
#[test]
fn a_refused_guarantee_changes_nothing() {
    let _turn = crate::turn();
    let mut node = Node::new(&format!("{}[isolation]\nscheduler = \"deadline\"\n{CAPACITY}", replay()));
    let Some(count) = module("count") else { return };
    node.mint("alice", &[]);
    node.start();
    output_of(&node, "alice", &["install", count.to_str().unwrap()]).unwrap();
    let updated = output_of(&node, "alice", &["update", "count", "--reserve", "cpu=5%"]);
    let shown = node.json(&["show", "count", "--principal", "alice"]);
    match updated {
        Ok(_) => assert_eq!(guaranteed(&node, process(&node, "count", "alice")), 50_000),
        Err(said) => {
            assert!(said.contains("processor time"), "{said}");
            let reserved = &shown["reserved"]["cpu_ppm"];
            assert_eq!(
                (&shown["state"], reserved, &shown["revision"]),
                (&"running".into(), &0.into(), &1.into())
            );
        }
    }
    let processed = || node.json(&["show", "count", "--principal", "alice"])["account"]["processed"].as_u64();
    let earlier = processed();
    wait_for("more packets", || processed() > earlier);
    node.end();
}

#[test]
fn busy_sessions_have_the_shares_that_they_reserved() {
    let _turn = crate::turn();
    let mut node = Node::new("");
    dense(&node.path("dense.pcap"));
    node.configure(&format!("[sources.tap]\nfile = \"dense.pcap\"\nrepeat = true\n{CAPACITY}"));
    let busy = busy(&node);
    for name in ["alice", "bob"] {
        node.mint(name, &[]);
    }
    node.start();
    let Some(installed) = try_of(&node, "alice", &["install", &busy, "--reserve", "cpu=3.5%"]) else {
        return;
    };
    if !is_permitted(&installed) {
        return;
    }
    node.json_of("bob", &["install", &busy, "--reserve", "cpu=7%"]);
    let pids = ["alice", "bob"].map(|name| process(&node, "busy", name));
    assert_eq!(pids.map(|pid| guaranteed(&node, pid)), [35_000, 70_000]);
    wait_for("work", || pids.iter().all(|pid| ran(*pid) > 50_000_000));
    let windows = shares(&pids, WINDOWS);
    for (n, reserved) in [0.035, 0.07].into_iter().enumerate() {
        let got = mean(windows.iter().map(|window| window[n]));
        let mut off: Vec<f64> = windows.iter().map(|window| (window[n] / reserved - 1.0).abs()).collect();
        off.sort_by(f64::total_cmp);
        println!(
            "reserved {reserved}, had {got:.4}; windows off by {:.1} % (median), {:.1} % (90 of 100)",
            off[WINDOWS / 2] * 100.0,
            off[WINDOWS * 9 / 10] * 100.0
        );
        assert!((got / reserved - 1.0).abs() < 0.1, "{got} of {reserved}: {windows:?}");
        // The kernel stops a thread at its timer tick, up to 10 ms late, and deducts that from the next
        // periods.
        let most = 0.01 / (WINDOW.as_secs_f64() * reserved) + 0.1;
        assert!(off[WINDOWS / 2] < most, "{reserved}: {windows:?}");
    }
    let ratio = mean(windows.iter().map(|w| w[1])) / mean(windows.iter().map(|w| w[0]));
    assert!((1.8..2.2).contains(&ratio), "{ratio}");

    // A renewal renegotiates it while the module runs.
    let renewed = node.json_of("alice", &["renew", "busy", "--reserve", "cpu=7%"]);
    assert_eq!((renewed["revision"].as_u64(), process(&node, "busy", "alice")), (Some(2), pids[0]));
    assert_eq!(guaranteed(&node, pids[0]), 70_000);
    let windows = shares(&pids, WINDOWS / 2);
    let ratio = mean(windows.iter().map(|w| w[1])) / mean(windows.iter().map(|w| w[0]));
    assert!((0.9..1.1).contains(&ratio), "{ratio}: {windows:?}");
    for name in ["alice", "bob"] {
        let removed = node.json_of(name, &["remove", "busy"]);
        assert_eq!(
            (&removed["account"]["adds_up"], &removed["account"]["faults"]),
            (&true.into(), &0.into())
        );
    }
    node.end();
}

#[test]
fn the_kernel_admits_reservations_too_and_the_rest_has_what_is_left() {
    let _turn = crate::turn();
    let Some(count) = module("count") else { return };
    let count = count.display().to_string();
    let mut node = Node::new(&format!("{}{CAPACITY}[isolation]\nscheduler = \"auto\"\n", replay()));
    let processors = std::thread::available_parallelism().unwrap().get();
    let names: Vec<String> = (0..=processors).map(|n| format!("p{n}")).collect();
    names.iter().for_each(|name| node.mint(name, &[]));
    node.start();
    let install = ["install", &count, "--reserve", "cpu=1%"];
    let Some(installed) = try_of(&node, "p0", &install) else { return };
    if !is_permitted(&installed) {
        return;
    }
    // The sum is within the node's capacity, and more than the kernel gives. Others on this machine may have
    // reserved some already.
    let mut refused = None;
    for name in &names[1..] {
        if let Err(said) = output_of(&node, name, &["install", &count, "--reserve", "cpu=94%"]) {
            refused = Some((name, said));
            break;
        }
    }
    if processors <= 4 {
        let (name, said) = refused.expect("the kernel refuses one");
        assert!(said.contains("the kernel does not reserve the processor time"), "{said}");
        assert!(said.contains("reserve less"), "{said}");
        let modules = node.request("GET", "/v1/modules", None).1["modules"].clone();
        assert!(modules.as_array().unwrap().iter().all(|m| m["principal"] != **name), "{modules}");
        let others = modules.as_array().unwrap().len() as u64 - 1;
        let all = node.request("GET", "/v1/capacity", None).1;
        assert_eq!(all["reserved"]["cpu_ppm"], 10_000 + others * 940_000, "it holds nothing: {all}");
    }
    // A module without a reservation has a process with the usual scheduling.
    node.json_of("p0", &["install", &count, "--name", "free"]);
    let (with, without) = (process(&node, "count", "p0"), process(&node, "free", "p0"));
    assert_ne!(with, without);
    assert_eq!((guaranteed(&node, with), guaranteed(&node, without)), (10_000, 0));
    let shown = node.run(&["node", "status", "--security"]);
    assert!(shown.contains("GUARANTEED") && shown.contains("1.00 %"), "{shown}");
    // To begin with a reservation, or to end it, takes another instance.
    let kept = ["renew", "free", "--reserve", "cpu=1%", "--credential", "p0.cred", "--identity", "p0.key"];
    assert!(node.refused(&kept).contains("flame update --reserve"));
    node.json_of("p0", &["update", "count", "--reserve", "none"]);
    assert_eq!(process(&node, "count", "p0"), without);
    wait_for("its end", || !std::path::Path::new(&format!("/proc/{with}")).exists());
    // A killed process comes back with its reservation.
    node.json_of("p0", &["update", "count", "--reserve", "cpu=2%"]);
    let before = process(&node, "count", "p0");
    assert_eq!(guaranteed(&node, before), 20_000);
    let killed = std::process::Command::new("kill").args(["-9", &before.to_string()]).status();
    assert!(killed.unwrap().success());
    let now = || node.json(&["show", "count", "--principal", "p0"])["process"].as_u64();
    wait_for("another process", || now().is_some_and(|pid| pid != before));
    wait_for("its reservation", || guaranteed(&node, now().unwrap()) == 20_000);
    node.end();
}
