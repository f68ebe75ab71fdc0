//! Tests of captures by AF_XDP: what is said, what comes, and that nothing stays behind.

use crate::daemon::{Node, module};
use crate::network::{Capture, Net, ipv4, wait_for};
use serde_json::Value;
use std::process::Output;

/// Returns 50 TCP packets, 30 of UDP, and 7 of UDP with a VLAN tag, of several flows.
fn frames() -> Vec<Vec<u8>> {
    let mut frames: Vec<_> = (0..50).map(|i| ipv4(&[], 6, (1, 1024 + i), (2, 80), 74)).collect();
    frames.extend(vec![ipv4(&[], 17, (1, 1024), (2, 53), 300); 30]);
    frames.extend(vec![ipv4(&[0x81, 0, 0, 7], 17, (3, 9), (4, 53), 122); 7]);
    frames
}

fn net() -> Option<Net> {
    module("count")?;
    Net::new()
}

fn has_program(net: &Net) -> bool {
    net.said("ip link show rx0").contains("xdp")
}

/// Starts `flame run … -i rx0`, and waits until it says that it captures. Its program is there earlier.
fn capture(net: &Net, arguments: &[&str]) -> Capture {
    net.capture_when("rx0", arguments, |said| said.contains("is captured by AF_XDP") && has_program(net))
}

fn texts(out: &Output) -> (String, Value) {
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let text = String::from_utf8_lossy(&out.stdout);
    (said.clone(), serde_json::from_str(text.lines().last().unwrap_or_else(|| panic!("{said}"))).unwrap())
}

#[test]
fn a_run_counts_the_same_packets_in_both_modes_and_with_several_workers() {
    let _turn = crate::turn();
    let Some(net) = net() else { return };
    for (way, mode) in
        [("xdp", "AF_XDP (native, copy, 1 queue)"), ("xdp-generic", "AF_XDP (generic, copy, 1")]
    {
        for workers in ["1", "2"] {
            let capture =
                capture(&net, &["count", "--format", "json", "--capture", way, "--workers", workers]);
            net.send(&frames(), 1);
            net.shell("ip link set rx0 down");
            std::thread::sleep(std::time::Duration::from_millis(500));
            net.shell("ip link set rx0 up");
            net.wait_until_tx0_sends();
            net.send(&frames(), 1);
            // On a busy machine, the kernel hands on packets later, and the state is looked at now and then.
            std::thread::sleep(std::time::Duration::from_millis(500));
            let out = capture.interrupt();
            let (said, row) = texts(&out);
            assert_eq!(out.status.code(), Some(0), "{said}");
            assert_eq!((&row["packets"], &row["tcp"]), (&(2 * 87).into(), &100.into()), "{row} {said}");
            let bytes: usize = frames().iter().map(Vec::len).sum();
            assert_eq!(row["wire_bytes"], 2 * bytes);
            assert!(said.contains(mode) && said.contains("other captures do not receive"), "{said}");
            assert!(said.contains("rx0 is up again"), "{said}");
            assert!(!has_program(&net));
        }
    }
    let capture = capture(&net, &["count", "--format", "json", "--capture", "xdp", "tcp", "port", "80"]);
    net.send(&frames(), 1);
    let (said, row) = texts(&capture.interrupt());
    assert_eq!(row["packets"], 50);
    assert!(said.contains("is captured by AF_XDP"), "{said}");
}

#[test]
fn the_program_ends_with_a_process_that_is_killed() {
    let _turn = crate::turn();
    let Some(net) = net() else { return };
    for way in ["xdp", "xdp-generic"] {
        let capture = capture(&net, &["count", "--capture", way]);
        assert!(has_program(&net));
        capture.signal("KILL");
        capture.end();
        wait_for("the end of the program", || !has_program(&net));
        // Others receive the packets again.
        let packet = net.capture(&["count", "--format", "json", "--capture", "packet"], 1);
        net.send(&frames(), 1);
        assert_eq!(texts(&packet.interrupt()).1["packets"], 87);
    }
}

#[test]
fn auto_takes_packets_away_only_where_nobody_misses_them() {
    let _turn = crate::turn();
    let Some(net) = net() else { return };
    let arguments = ["count", "--format", "json", "--capture", "auto"];
    // By default, the driver takes VLAN tags out.
    let copied = |expected: &str, sockets: usize| {
        let capture = net.capture(&arguments, sockets);
        net.send(&frames(), 1);
        let (said, row) = texts(&capture.interrupt());
        assert!(said.contains("is captured by AF_PACKET") && said.contains(expected), "{said}");
        assert_eq!(row["packets"], 87);
    };
    copied("VLAN tags", 1);
    // ETHTOOL_SFLAGS (0x26) without ETH_FLAG_RXVLAN.
    net.shell(
        "python3 -c \"import socket as s, struct as t, fcntl as f, ctypes as c; k = s.socket(); \
         v = c.create_string_buffer(t.pack('II', 0x26, 0)); \
         f.ioctl(k, 0x8946, t.pack('16sQ16x', b'rx0', c.addressof(v)))\"",
    );
    let taken = capture(&net, &arguments);
    net.send(&frames(), 1);
    let (said, row) = texts(&taken.interrupt());
    assert!(said.contains("captured by AF_XDP (native"), "{said}");
    assert_eq!(row["packets"], 87);
    let other = net.capture(&["count", "--capture", "packet"], 1);
    copied("another program captures it", 2);
    drop(other);
    net.shell("ip address add 10.9.0.1/24 dev rx0");
    copied("has an address", 1);
    net.shell("ip address flush dev rx0; ip link add br0 type bridge; ip link set rx0 master br0");
    copied("another interface is built on it", 1);
}

#[test]
fn a_node_opens_an_interface_before_it_gives_up_its_rights() {
    let _turn = crate::turn();
    let (Some(count), Some(net)) = (module("count"), Net::new()) else { return };
    let tap = "[sources.tap]\ninterface = \"rx0\"\ncapture = \"xdp\"\ninterval = \"100ms\"\n";
    let mut node = Node::new(tap).within(&net.namespace);
    let text = std::fs::read_to_string(node.path("node.toml")).unwrap();
    std::fs::write(node.path("node.toml"), text.replace("[node]\n", "[node]\nuser = \"nobody\"\n")).unwrap();
    let own = ["", "node.key", "revoked", "policy.toml"].map(|name| node.path(name));
    assert!(std::process::Command::new("chown").arg("nobody").args(own).status().unwrap().success());
    node.start();
    let method = |node: &Node| {
        let status = node.json(&["node", "status"]);
        (status["sources"][0]["method"].as_str().unwrap().to_owned(), status["sources"][0].clone())
    };
    assert_eq!(method(&node).0, "AF_XDP (native, copy, 1 queue)");
    node.json(&["install", &count.display().to_string()]);
    net.send(&frames(), 10);
    wait_for("the packets", || method(&node).1["packets"] == 870);
    // Removed and made again, it would have to be opened again, for which the rights are missing now.
    net.shell("ip link del rx0");
    net.link();
    wait_for("the reason", || {
        method(&node).1["reason"].as_str().is_some_and(|r| r.contains("CAP_NET_ADMIN"))
    });
    node.end();
    let said = node.said();
    assert!(said.contains("source tap: interface rx0 is captured by AF_XDP"), "{said}");
    assert!(!has_program(&net));
}
