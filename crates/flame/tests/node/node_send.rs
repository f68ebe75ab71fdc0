//! A node's link: a tenant's module, in a process of its own, answers through its channels; what its grant
//! and the bandwidth of the link do not give is refused.

use crate::built::build;
use crate::common::{root, runner};
use crate::daemon::{Node, wait_for};
use crate::network::{Net, PING};
use serde_json::Value;

const LINK: &str = "[links.out]\ninterface = \"rx0\"\nbandwidth = \"2 Mbit/s\"\n\
    [sources.tap]\ninterface = \"rx0\"\ninterval = \"100ms\"\nlink = \"out\"\n";

#[test]
fn a_tenants_module_sends_on_the_link_of_its_source() {
    let Some(net) = Net::new() else { return };
    let echo = build(&root().join("sdk/rust/examples/echo"));
    runner();
    net.shell("ip addr add 192.0.2.1/24 dev tx0");
    let mut node = Node::new(LINK).within(&net.namespace);
    let policy = std::fs::read_to_string(node.path("policy.toml")).unwrap();
    let sends = "calls = \"records, send\"\nsend = \"arp or (icmp and src host 192.0.2.2)\"";
    let policy = policy.replace("calls = \"records, messages, state\"", sends);
    std::fs::write(node.path("policy.toml"), policy).unwrap();
    node.mint("alice", &[]);
    node.mint("bob", &["--calls", "records"]);
    node.start();
    let of = |name: &str| {
        ["--credential".to_owned(), format!("{name}.cred"), "--identity".to_owned(), format!("{name}.key")]
    };
    let refused = |name: &str, arguments: &[&str]| {
        let of = of(name);
        let of: Vec<&str> = of.iter().map(String::as_str).collect();
        node.refused(&[arguments, &of].concat())
    };
    let denied = refused("bob", &["install", &echo]);
    assert!(denied.contains("echo uses send, which is not granted"), "{denied}");
    node.json_of("alice", &["install", &echo]);
    let ping = || {
        let out = net.command("python3").args(["-c", PING, "192.0.2.2", "5"]).output().unwrap();
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    };
    assert_eq!(ping(), "5");
    let account = || node.json_of("alice", &["show", "echo"])["account"].clone();
    // Five answers to ping, and one to ARP.
    wait_for("the account", || account()["sent"] == 6);
    assert_eq!(account()["unsent"], Value::Object(serde_json::Map::new()));
    // The operator's numbers are those of now. Five answers have the length of their requests, one is ARP.
    let bill = |name: &str| {
        let shown = node.json(&["show", name, "--principal", "alice"]);
        shown["usage"]["transmitted_bytes"].as_u64().unwrap()
    };
    let received = |net: &Net| {
        let counter = "/sys/class/net/tx0/statistics/rx_bytes";
        let out = net.command("cat").arg(counter).output().unwrap();
        String::from_utf8_lossy(&out.stdout).trim().parse::<u64>().unwrap()
    };
    assert_eq!(bill("echo"), received(&net), "what left is what the other end of the link received");
    // Its channels reserve 1,064 kbit/s of 2 Mbit/s.
    let second = refused("alice", &["install", &echo, "--name", "second"]);
    assert!(second.contains("the link has less bandwidth left") && !second.contains("2000"), "{second}");
    // The operator sees the arithmetic.
    let own = node.refused(&["install", &echo, "--name", "own"]);
    assert!(own.contains("would reserve 2128000 bit/s, and the link has 2000000"), "{own}");
    // An update has the bandwidth of the module that it replaces.
    node.json_of("alice", &["update", "echo", &echo]);
    assert_eq!(ping(), "5");
    assert_eq!(bill("echo"), received(&net), "an update goes on with the bill");
    node.json_of("alice", &["remove", "echo"]);
    node.json_of("alice", &["install", &echo, "--name", "second"]);
    assert_eq!(ping(), "5");
    node.end();
}

/// A module has its bandwidth from its install to its removal, also while its source does not run, and of
/// installs at the same time those succeed that fit together.
#[test]
fn bandwidth_belongs_to_installed_modules() {
    let Some(net) = Net::new() else { return };
    let echo = build(&root().join("sdk/rust/examples/echo"));
    runner();
    let two = "ip link add tx1 type veth peer name rx1 && ip link set tx1 up && ip link set rx1 up";
    net.shell(two);
    let sources = LINK.replace("[sources.tap]\ninterface = \"rx0\"", "[sources.tap]\ninterface = \"rx1\"");
    let sources =
        format!("{sources}[sources.two]\ninterface = \"rx0\"\ninterval = \"100ms\"\nlink = \"out\"\n");
    let mut node = Node::new(&sources).within(&net.namespace);
    let policy = std::fs::read_to_string(node.path("policy.toml")).unwrap();
    let sends = "calls = \"records, send\"\nsend = \"arp or icmp\"";
    let policy = policy.replace("calls = \"records, messages, state\"", sends);
    std::fs::write(node.path("policy.toml"), policy).unwrap();
    for who in ["alice", "bob"] {
        node.mint(who, &[]);
    }
    node.start();
    let install = |who: &str, source: &str, name: &str| {
        let (credential, key) = (format!("{who}.cred"), format!("{who}.key"));
        let of = ["--credential", &credential, "--identity", &key];
        node.output(&[&["install", &echo, "--source", source, "--name", name][..], &of].concat())
    };
    assert!(install("alice", "tap", "first").status.success());
    // While its source is down, its bandwidth stays reserved.
    net.shell("ip link del tx1");
    let status = || node.json(&["node", "status"]).to_string();
    wait_for("the source to end", || status().contains("\"running\":false"));
    let refused = install("bob", "two", "second");
    assert!(!refused.status.success(), "the bandwidth is the first one's");
    net.shell(two);
    wait_for("the source to run", || !status().contains("\"running\":false"));
    assert!(!install("bob", "two", "second").status.success());
    node.json_of("alice", &["remove", "first"]);
    for round in 0..3 {
        let name = |who: &str| format!("{who}{round}");
        let all = [("alice", "tap"), ("bob", "two"), ("alice", "two"), ("bob", "tap")];
        let names = [name("a"), name("b"), name("c"), name("d")];
        let done: Vec<bool> = std::thread::scope(|scope| {
            let start =
                |((who, source), name)| scope.spawn(move || install(who, source, name).status.success());
            let threads: Vec<_> = all.into_iter().zip(names.iter().map(String::as_str)).map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(done.iter().filter(|is_done| **is_done).count(), 1, "{done:?}");
        let at = done.iter().position(|is_done| *is_done).unwrap();
        node.json_of(all[at].0, &["remove", &names[at]]);
    }
    node.end();
}
