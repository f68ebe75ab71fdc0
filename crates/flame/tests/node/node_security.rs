//! Tests of what a node says about its own processes: the kernel's report, not the node's intentions.

use crate::daemon::{Node, even, module, replay_of};

#[test]
fn the_status_is_that_of_the_kernel() {
    let mut node = Node::new("").with_private_runner();
    // Its user may not be able to reach the folder of what is built.
    let capture = node.path("even.pcap");
    std::fs::copy(even(), &capture).unwrap();
    node.configure(&replay_of(&capture));
    node.mint("alice", &[]);
    let text = std::fs::read_to_string(node.path("node.toml")).unwrap();
    let is_root =
        std::fs::metadata("/proc/self").is_ok_and(|m| std::os::linux::fs::MetadataExt::st_uid(&m) == 0);
    if is_root {
        let text = text.replace("[node]\n", "[node]\nuser = \"nobody\"\n");
        std::fs::write(node.path("node.toml"), text).unwrap();
        // The keys of others stay root's.
        let own = ["", "node.key", "revoked", "policy.toml", "even.pcap"].map(|name| node.path(name));
        let chown = std::process::Command::new("chown").arg("nobody").args(own).status();
        assert!(chown.unwrap().success());
    } else {
        eprintln!("not root: the change of the user is not tested");
    }
    node.start();
    let security = node.json(&["node", "status", "--security"]);
    let own = &security["processes"][0];
    assert_eq!(own["pid"].as_u64(), Some(node.pid().into()));
    let kernel = std::fs::read_to_string(format!("/proc/{}/status", node.pid())).unwrap();
    let field = |name: &str| {
        let line = kernel.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("{name}: {kernel}"));
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    let threads = own["threads"].as_array().unwrap();
    let all: u64 = threads.iter().map(|t| t["count"].as_u64().unwrap()).sum();
    assert!(all >= 5, "workers, API, review: {own}");
    for thread in threads {
        assert_eq!(thread["user"].to_string(), field("Uid:"));
        let effective = thread["effective"].as_array().unwrap().len();
        let mask = u64::from_str_radix(&field("CapEff:"), 16).unwrap();
        assert_eq!(effective, mask.count_ones() as usize, "{thread}");
        assert_eq!(thread["no_new_privileges"], field("NoNewPrivs:") == "1");
        assert_eq!(
            thread["seccomp"],
            ["none", "strict", "filter"][field("Seccomp:").parse::<usize>().unwrap()]
        );
        if is_root {
            assert_eq!(thread["effective"], serde_json::json!(["CAP_NET_RAW"]));
            assert_eq!(thread["bounding"], thread["effective"]);
            assert_eq!(thread["no_new_privileges"], true);
        }
    }
    let shown = node.run(&["node", "status", "--security"]);
    assert!(shown.contains("NO NEW PRIVILEGES") && shown.contains(&node.pid().to_string()), "{shown}");
    if let Some(count) = module("count") {
        node.json_of("alice", &["install", &count.display().to_string()]);
        let security = node.json(&["node", "status", "--security"]);
        let mut all = security["processes"].as_array().unwrap().iter();
        let process = all.find(|process| process["runs"]["principal"] == "alice");
        let process = process.unwrap_or_else(|| panic!("no process of alice: {security}, {}", node.said()));
        let read = |name: &str| {
            let path = format!("/proc/{}/{name}", process["pid"]);
            std::fs::read_to_string(&path)
                .unwrap_or_else(|e| panic!("{path}: {e}: {process}, {}", node.said()))
        };
        assert_eq!(read("comm"), "flame-runner\n", "{process}");
        assert!(read("cmdline").contains("private/flame-runner\0"), "{:?}: {process}", read("cmdline"));
    }
    // It is the operator's.
    let refused = node.refused(&[
        "node",
        "status",
        "--security",
        "--credential",
        "alice.cred",
        "--identity",
        "alice.key",
    ]);
    assert!(refused.contains("this is the operator's"), "{refused}");
    node.end();
}
