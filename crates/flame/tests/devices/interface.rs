//! Tests of interfaces that go down and come back, and of all interfaces at once.

use crate::common;
use crate::network::{Net, ipv4};
use serde_json::Value;
use std::process::Output;

fn net() -> Option<Net> {
    common::module("count")?;
    Net::new()
}

fn row(out: &Output) -> Value {
    let text = String::from_utf8_lossy(&out.stdout);
    let last = text.lines().last().unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&out.stderr)));
    serde_json::from_str(last).unwrap()
}

/// Returns 50 TCP packets, 30 of UDP, and 7 of UDP with a VLAN tag.
fn frames() -> Vec<Vec<u8>> {
    let mut frames = vec![ipv4(&[], 6, (1, 1024), (2, 80), 74); 50];
    frames.extend(vec![ipv4(&[], 17, (1, 1024), (2, 53), 300); 30]);
    frames.extend(vec![ipv4(&[0x81, 0, 0, 7], 17, (3, 9), (4, 53), 122); 7]);
    frames
}

/// An interface that comes back with its number, as from another namespace, is another one.
#[test]
fn an_interface_that_was_away_ends_the_run() {
    let (Some(net), Some(other)) = (net(), Net::new()) else { return };
    other.shell("ip link del tx0");
    let number = || net.said("cat /sys/class/net/rx0/ifindex");
    let before = number();
    let capture = net.capture(&["count", "--format", "json"], 1);
    net.send(&frames(), 1);
    net.shell(&format!("ip link set rx0 netns {}", other.namespace));
    other.shell(&format!("ip link set rx0 netns {}", net.namespace));
    net.shell("ip link set rx0 up");
    assert_eq!(number(), before);
    let out = capture.end();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!((out.status.code(), &row(&out)["packets"]), (Some(1), &87.into()), "{said}");
    assert!(said.contains("interface rx0"), "{said}");
}

#[test]
fn an_interface_that_goes_down_and_comes_back_is_waited_for() {
    let Some(net) = net() else { return };
    for (workers, sockets) in [("1", 1), ("2", 2)] {
        let capture = net.capture(&["count", "--format", "json", "--workers", workers], sockets);
        net.send(&frames(), 1);
        for _ in 0..2 {
            net.shell("ip link set rx0 down");
            // The run may notice it before or after the interface is up again.
            std::thread::sleep(std::time::Duration::from_millis(200));
            net.shell("ip link set rx0 up");
            net.wait_until_tx0_sends();
            net.send(&frames(), 1);
        }
        let out = capture.interrupt();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(0), "{said}");
        assert_eq!(row(&out)["packets"], 3 * 87, "{said}");
        assert!(said.contains("interface rx0 went down: waiting"), "{said}");
        assert!(said.contains("interface rx0 is up again"), "{said}");
    }
}

#[test]
fn any_stands_for_all_interfaces() {
    let Some(net) = net() else { return };
    net.shell("ip link set lo up");
    let bytes: usize = frames().iter().map(Vec::len).sum();
    for (workers, sockets) in [("1", 1), ("2", 2)] {
        let arguments = ["count", "--expose", "all", "--format", "json", "--workers", workers];
        let capture = net.capture_on("any", &arguments, sockets);
        net.send(&frames(), 1);
        // Loopback shows each packet in both directions, of which one counts.
        net.shell(
            "python3 -c \"import socket as s; r = s.socket(s.AF_INET, s.SOCK_DGRAM); r.bind(('127.0.0.1', 9)); \
             [r.sendto(bytes(100), ('127.0.0.1', 9)) and r.recv(65535) for _ in range(40)]\"",
        );
        let out = capture.interrupt();
        assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
        let row = row(&out);
        // Each frame leaves one end of the pair and arrives at the other.
        assert_eq!((&row["tcp"], &row["udp"]), (&100.into(), &(2 * 37 + 40).into()), "{row}");
        assert_eq!((&row["packets"], &row["other"]), (&(2 * 87 + 40).into(), &0.into()), "{row}");
        // A cooked header of 20 bytes is in place of the 14 of Ethernet.
        let cooked = 2 * (bytes + 87 * 6) + 40 * (20 + 20 + 8 + 100);
        assert_eq!(row["wire_bytes"], cooked, "{row}");
    }
    let capture = net.capture_on("any", &["count", "--format", "json", "tcp port 80"], 1);
    net.send(&frames(), 1);
    assert_eq!(row(&capture.interrupt())["packets"], 100);
}
