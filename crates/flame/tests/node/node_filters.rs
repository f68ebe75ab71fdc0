//! Tests of filters of credentials at a node: what the author of a block excludes is shown to nothing that is
//! made of the credential, however the module and its credential change.

use crate::daemon::{Node, module, text, wait_for};
use crate::network::ipv4;
use serde_json::Value;
use std::collections::BTreeSet;

/// The hosts of the capture: each has a port of its own, which names it under transforms of addresses.
const HOSTS: [u16; 4] = [1, 2, 3, 4];

/// The link types of captures: Ethernet, and IP without a link header.
const ETHERNET: u32 = 1;
const RAW: u32 = 101;

/// Writes a capture of a second in which each host sends a packet every 10 ms.
fn capture(node: &Node, link: u32) {
    let mut file = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, link].map(u32::to_le_bytes).concat();
    for n in 0..100 {
        for host in HOSTS {
            let frame = ipv4(&[], 17, (host, 7000 + host), (99, 53), 90);
            let packet = if link == RAW { &frame[14..] } else { &frame[..] };
            let length = packet.len() as u32;
            file.extend([1_600_000_000, n * 10_000, length, length].map(u32::to_le_bytes).concat());
            file.extend(packet);
        }
    }
    std::fs::write(node.path("hosts.pcap"), file).unwrap();
}

/// Bob's module, and the credentials that he has of Alice's: `bob` without the second host, and `less`, which
/// he made of it, also without the third one and without addresses. Each is there for an hour as well.
struct Bob(Node);

impl Bob {
    fn new(transform: &str) -> Self {
        let mut node =
            Node::new("[sources.trial]\nfile = \"hosts.pcap\"\nrepeat = true\ninterval = \"100ms\"\n");
        capture(&node, ETHERNET);
        node.mint("alice", &[]);
        let bob = node.run(&["key", "new", "bob.key"]);
        let narrow = |from: &str, to: &str, more: &[&str]| {
            node.run(&[&["grant", "narrow", from, "-o", to][..], more].concat());
        };
        let on = ["--to", "bob", "--holder", &bob, "--identity", "alice.key"];
        narrow("alice.cred", "bob.cred", &[&["--select", "not host 10.0.0.2"][..], &on].concat());
        narrow("bob.cred", "less.cred", &["--select", "not host 10.0.0.3", "--transform", transform]);
        for (name, soon) in [("bob", "bob-soon"), ("less", "less-soon")] {
            let (from, to) = (format!("{name}.cred"), format!("{soon}.cred"));
            narrow(&from, &to, &["--expires", "+1h"]);
        }
        for name in ["less", "bob-soon", "less-soon"] {
            std::fs::copy(node.path("bob.key"), node.path(&format!("{name}.key"))).unwrap();
        }
        node.start();
        Self(node)
    }

    /// Makes a change by a credential. It must succeed.
    fn change(&self, credential: &str, words: &[&str]) {
        self.0.json_of(credential, words);
    }

    /// Asserts that the instance that runs now is shown these hosts and no other, with addresses or without.
    fn sees(&self, when: &str, hosts: &[u16], has_addresses: bool) {
        let next = self.0.json_of("bob", &["show", "flow"])["spool"]["next"].as_str().unwrap().to_owned();
        let mut rows = Vec::new();
        wait_for(when, || {
            let out = self.0.run(&[
                "records",
                "flow",
                "--format",
                "json",
                "-q",
                "--cursor",
                &next,
                "--credential",
                "bob.cred",
                "--identity",
                "bob.key",
            ]);
            rows = out.lines().map(|row| serde_json::from_str::<Value>(row).unwrap()).collect();
            rows.len() >= 10 * HOSTS.len()
        });
        let ports: BTreeSet<u64> = rows.iter().map(|row| row["sport"].as_u64().unwrap()).collect();
        assert_eq!(ports, hosts.iter().map(|host| 7000 + u64::from(*host)).collect(), "{when}");
        let is_own = |row: &Value| row["src"] == format!("10.0.0.{}", row["sport"].as_u64().unwrap() - 7000);
        assert!(rows.iter().all(|row| is_own(row) == has_addresses), "{when}: {rows:?}");
    }
}

#[test]
fn what_a_block_excludes_stays_excluded_by_changes_at_a_node() {
    let Some(flow) = module("flow") else { return };
    let flow = flow.display().to_string();
    for transform in ["ip=zero", "ip=hash"] {
        let mut bob = Bob::new(transform);
        let (hides, third) = (format!("transform={transform}"), "select=not host 10.0.0.3");
        let timeouts = ["--set", "active_timeout=20ms", "--set", "idle_timeout=20ms"];
        bob.change("bob", &[&["install", &flow][..], &timeouts].concat());
        bob.sees("installed", &[1, 3, 4], true);
        bob.change("bob", &["update", "flow", "--narrow", &hides]);
        bob.sees("hidden by an update", &[1, 3, 4], false);
        bob.change("bob", &["update", "flow", "--narrow", third, "--narrow", &hides]);
        bob.sees("narrowed and hidden by an update", &[1, 4], false);
        bob.change("bob", &["update", "flow", "--narrow", third]);
        bob.sees("narrowed by an update", &[1, 4], true);
        // A narrower credential does not renew what shows more.
        let refused =
            bob.0.refused(&["renew", "flow", "--credential", "less.cred", "--identity", "less.key"]);
        assert!(refused.contains("credential does not give"), "{refused}");
        bob.sees("not renewed", &[1, 4], true);
        bob.change("bob-soon", &["renew", "flow"]);
        bob.sees("renewed", &[1, 4], true);
        bob.change("bob", &["remove", "flow"]);
        bob.change("less", &[&["install", &flow][..], &timeouts].concat());
        bob.sees("installed with the narrower credential", &[1, 4], false);
        bob.change("less", &["update", "flow", "--narrow", "select=not port 7004"]);
        bob.sees("narrowed by an update", &[1], false);
        bob.change("less-soon", &["renew", "flow"]);
        bob.sees("renewed with the narrower credential", &[1], false);
        bob.change("less", &["update", "flow", "--narrow", "expose=headers"]);
        bob.sees("updated", &[1, 4], false);
        bob.0.end();
        bob.0.start();
        bob.sees("started again with the node", &[1, 4], false);
        bob.0.end();
    }
}

/// A filter of MAC addresses, which packets without a link header do not have.
const OF_MACS: &str = "not ether host 02:00:00:00:00:01";

/// Creates a node whose packets have no link header, with credentials of Alice's: `wide`, `filtered` by the
/// root, and `narrowed` by the holder before.
fn raw_node() -> Node {
    let node = Node::new("[sources.trial]\nfile = \"hosts.pcap\"\nrepeat = true\ninterval = \"100ms\"\n");
    capture(&node, RAW);
    node.mint("wide", &[]);
    node.mint("filtered", &["--select", OF_MACS]);
    node.run(&["grant", "narrow", "wide.cred", "-o", "narrowed.cred", "--select", OF_MACS]);
    std::fs::copy(node.path("wide.key"), node.path("narrowed.key")).unwrap();
    node
}

/// Asserts that a message names the word and the link type.
fn names_the_fault(said: &str) {
    assert!(said.contains("at `02:00:00:00:00:01`") && said.contains("link type 101 (Raw IP)"), "{said}");
}

/// Filters of the holder, the root or the policy are refused, and those that others stated are noted.
#[test]
fn a_filter_that_a_link_type_lacks_is_named_before_packets_come() {
    let Some(count) = module("count") else { return };
    let node = raw_node();
    let run = |name: &str, more: &[&str]| {
        let (credential, key) = (format!("{name}.cred"), format!("{name}.key"));
        let run = ["run", "count", "-r", "hosts.pcap", "--format", "json", "--policy", "policy.toml"];
        let out = node.output(&[&run[..], &["--credential", &credential, "--identity", &key], more].concat());
        (out.status.success(), text(&out.stdout), text(&out.stderr))
    };
    let (is_done, rows, said) = run("wide", &[]);
    assert!(is_done && rows.contains("\"packets\":400") && !said.contains("link type"), "{rows} {said}");
    for (name, more) in [("filtered", &[][..]), ("wide", &[OF_MACS]), ("wide", &["--select", OF_MACS])] {
        let (is_done, rows, said) = run(name, more);
        assert!(
            !is_done && rows.is_empty() && said.contains("leave this word out"),
            "{name} {more:?}: {said}"
        );
        names_the_fault(&said);
    }
    let (is_done, rows, said) = run("narrowed", &[]);
    assert!(is_done && rows.contains("\"packets\":0"), "{rows} {said}");
    assert!(said.contains("note: count is shown no packet of this link type: "), "{said}");
    names_the_fault(&said);
    for name in ["filtered", "narrowed"] {
        let credential = format!("{name}.cred");
        let key = format!("{name}.key");
        let explain = ["explain", "count", "-r", "hosts.pcap", "--policy", "policy.toml", "--credential"];
        let out = node.output(&[&explain[..], &[&credential, "--identity", &key]].concat());
        let said = text(&out.stderr);
        assert!(
            out.status.success() && said.contains("note: no packet of this link type is shown"),
            "{said}"
        );
        names_the_fault(&said);
    }
    // On a node, no module ends the source of all others.
    let mut node = node;
    node.start();
    let count = count.display().to_string();
    node.json_of("wide", &["install", &count]);
    let as_filtered = ["--credential", "filtered.cred", "--identity", "filtered.key"];
    let refused = node.refused(&[&["install", &count, "--name", "second"][..], &as_filtered].concat());
    names_the_fault(&refused);
    let narrow = format!("select={OF_MACS}");
    let as_wide = ["--credential", "wide.cred", "--identity", "wide.key"];
    let refused = node.refused(&[&["update", "count", "--narrow", &narrow][..], &as_wide].concat());
    names_the_fault(&refused);
    let installed = node.json_of("narrowed", &["install", &count, "--name", "third"]);
    names_the_fault(&installed["notes"].to_string());
    let processed =
        |name: &str| node.json_of("wide", &["show", name])["account"]["offered"].as_u64().unwrap();
    let before = processed("count");
    wait_for("packets", || processed("count") > before + 400);
    assert_eq!(processed("third"), 0);
    node.end();
}
