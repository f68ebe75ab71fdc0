//! Twice the sustainable load on a live interface: the module of the highest priority loses nothing, costly
//! ones of lower priorities lose packets as `overload`, and receive all again when the load has ended.

use crate::daemon::{Node, wait_for};
use crate::network::{self, Net};
use crate::wasm;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The operator's modules need no program for processes.
const TAP: &str =
    "[sources.tap]\ninterface = \"rx0\"\ninterval = \"100ms\"\n[isolation]\nplace = \"inline\"\n";
/// The steps of a costly module for each packet: several times what the sender takes for one.
const COSTLY: u32 = 12_000;

/// Returns a module that takes `steps` steps for each packet. They are bounded, so that it shares the
/// worker's blocks.
fn busy(name: &str, steps: u32, folder: &Path) -> PathBuf {
    let text = format!(
        r#"(module (memory (export "memory") 1)
            (func (export "flame_batch") (param $batch i32) (result i64)
                (local $left i32) (local $i i32)
                (local.set $left (i32.load offset=4 (local.get $batch)))
                (block $done
                    (loop $packets
                        (br_if $done (i32.eqz (local.get $left)))
                        (local.set $i (i32.const {steps}))
                        (loop $again
                            (br_if $again (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
                        (local.set $left (i32.sub (local.get $left) (i32.const 1)))
                        (br $packets)))
                (i64.const 0)))"#
    );
    let manifest = format!(
        "abi = 1\nname = \"{name}\"\nversion = \"1\"\ndescription = \"busy\"\n[needs]\nexpose = \"none\"\n\
         [limits]\npacket_budget = 100000000\n"
    );
    let path = folder.join(format!("{name}.wasm"));
    std::fs::write(&path, wasm::with_manifest(wat::parse_str(text).unwrap(), manifest.as_bytes())).unwrap();
    path
}

fn shed(module: &Value) -> u64 {
    module["account"]["shed"]["overload"].as_u64().unwrap_or(0)
}

fn number(module: &Value, what: &str) -> u64 {
    module["account"][what].as_u64().unwrap()
}

#[test]
fn at_twice_the_sustainable_load_the_highest_priority_loses_nothing() {
    let _turn = crate::turn();
    let Some(net) = Net::new() else { return };
    let mut node = Node::new(TAP).within(&net.namespace);
    node.start();
    let folder = node.folder.path().to_owned();
    let modules = [("top", "9", 10), ("mid", "5", COSTLY), ("low", "3", COSTLY), ("lower", "1", 2 * COSTLY)];
    for (name, priority, steps) in modules {
        let path = busy(name, steps, &folder).display().to_string();
        let installed = node.json(&["install", &path, "--priority", priority]);
        assert_eq!(installed["class"], "bounded", "{installed}");
    }
    let show = |name: &str| node.json(&["show", name]);
    let source = || node.json(&["node", "status"])["sources"][0].clone();
    let frames: Vec<_> = (0..100).map(|i| network::ipv4(&[], 17, (i, 9), (2, 53), 122)).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                net.send(&frames, 1000);
            }
        });
        // Even if an assertion fails, the sender ends.
        let _stopped = Stop(&stop);
        wait_for("the lowest to lose packets", || shed(&show("lower")) > 0);
        let status = node.json(&["node", "status"]);
        assert!(status["notes"].to_string().contains("worker 0 is behind: lower#"), "{status}");
        wait_for("a while under load", || number(&show("top"), "processed") > 1_500_000);
    });
    // The rest waits in the ring. What the pair itself had no room for does not count.
    let sent: u64 = net.said("cat /sys/class/net/tx0/statistics/tx_packets").parse().unwrap();
    let dropped = || source()["kernel_drops"].as_u64().unwrap();
    wait_for("all packets", || number(&show("top"), "offered") + dropped() == sent);
    wait_for("exact accounts", || modules.iter().all(|(name, ..)| show(name)["account"]["adds_up"] == true));
    let [top, mid, low, lower] = modules.map(|(name, ..)| show(name));
    eprintln!(
        "{sent} packets, kernel drops {}; lost: mid {}, low {}, lower {}",
        source()["kernel_drops"],
        shed(&mid),
        shed(&low),
        shed(&lower)
    );
    assert_eq!(dropped(), 0, "of {sent} packets: {}", show("top"));
    assert_eq!((number(&top, "processed"), &top["account"]["shed"]), (sent, &serde_json::json!({})));
    for module in [&mid, &low, &lower] {
        assert_eq!(number(module, "processed") + shed(module), number(module, "offered"), "{module}");
        assert_eq!(number(module, "offered"), sent, "{module}");
    }
    // No module loses a packet that a module of lower priority receives.
    assert!(shed(&lower) >= shed(&low) && shed(&low) >= shed(&mid), "{mid} {low} {lower}");
    assert!(shed(&lower) > sent / 4, "{lower}");

    let logged = |name: &str| node.run(&["logs", name]);
    wait_for("all to return", || {
        ["mid", "low", "lower"].iter().all(|name| {
            let log = logged(name);
            log.matches("overload: it loses packets").count()
                == log.matches("overload: it receives all packets again").count()
        })
    });
    assert!(!logged("top").contains("overload"), "{}", logged("top"));
    assert!(logged("lower").contains("overload: it loses packets, because others"), "{}", logged("lower"));
    let before = [&mid, &low, &lower].map(|module| (number(module, "processed"), shed(module)));
    net.send(&frames, 10);
    for (name, (processed, lost)) in ["mid", "low", "lower"].into_iter().zip(before) {
        wait_for("all packets again", || number(&show(name), "processed") == processed + 1000);
        assert_eq!(shed(&show(name)), lost);
    }
    let status = node.json(&["node", "status"]);
    assert!(!status["notes"].to_string().contains("is behind"), "{status}");
    node.end();
}

/// Ends the sender.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
