//! Tests of the address that Prometheus reads, and of the alert rules and the dashboard that come with the
//! node.

use crate::daemon::{Node, module, replay, root, text, wait_for};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

pub(super) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Returns the reply to a request, or what came of it before the connection ended.
pub(super) fn ask(port: u16, head: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(format!("{head}\r\nhost: node\r\nconnection: close\r\n\r\n").as_bytes()).unwrap();
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    text(&all)
}

#[test]
fn prometheus_reads_what_the_operator_may_and_nothing_else() {
    let Some(count) = module("count") else { return };
    let port = free_port();
    let mut node = Node::new("");
    node.configure(&format!("[metrics]\nlisten = \"127.0.0.1:{port}\"\n{}", replay()));
    node.start();
    node.json(&["install", &count.display().to_string()]);
    let token = std::fs::read_to_string(node.path("state/metrics.token")).unwrap();
    let read = || ask(port, &format!("GET /metrics HTTP/1.1\r\nauthorization: Bearer {token}"));
    wait_for("packets", || {
        let all = read();
        assert!(all.starts_with("HTTP/1.1 200") && all.ends_with("# EOF\n"), "{all}");
        let line = all.lines().find(|line| line.starts_with("flame_module_packets_processed_total{"));
        line.is_some_and(|line| line.contains("module=\"count\"") && !line.ends_with(" 0"))
    });
    for (head, status) in [
        ("GET /metrics HTTP/1.1".to_owned(), "401"),
        ("GET /metrics HTTP/1.1\r\nauthorization: Bearer 0000".to_owned(), "401"),
        (format!("GET /metrics HTTP/1.1\r\nauthorization: Basic {token}"), "401"),
        // What is there is not told without the token.
        ("GET /v1/modules HTTP/1.1".to_owned(), "401"),
        (format!("GET /v1/modules HTTP/1.1\r\nauthorization: Bearer {token}"), "404"),
        (format!("POST /metrics HTTP/1.1\r\nauthorization: Bearer {token}"), "405"),
    ] {
        let reply = ask(port, &head);
        assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "{head}: {reply}");
        assert!(!reply.contains("flame_module"), "{head}: {reply}");
    }
    // Clients that send nothing, or no token, keep out neither readers nor the API's clients.
    let mut silent: Vec<_> = (0..40).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let reply = read();
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    for stream in &mut silent {
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: node\r\n\r\n");
    }
    let reply = read();
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    assert_eq!(node.json(&["show", "count"])["name"], "count");
    drop(silent);
    node.end();
}

#[test]
fn loopback_may_be_trusted_and_other_addresses_speak_tls() {
    let port = free_port();
    let mut node = Node::new("");
    node.configure(&format!(
        "[metrics]\nlisten = \"127.0.0.1:{port}\"\nreaders = \"loopback\"\n{}",
        replay()
    ));
    node.start();
    assert!(ask(port, "GET /metrics HTTP/1.1").starts_with("HTTP/1.1 200"));
    assert!(!node.path("state/metrics.token").exists());
    node.end();
    let (api, port) = (free_port(), free_port());
    node.configure(&format!(
        "[tls]\nlisten = \"127.0.0.1:{api}\"\n[metrics]\nlisten = \"0.0.0.0:{port}\"\n{}",
        replay()
    ));
    node.start();
    // An alert of TLS at most.
    assert!(!ask(port, "GET /metrics HTTP/1.1").contains("HTTP"));
    let mut openssl = Command::new("openssl");
    let certificate = node.path("state/tls.pem");
    openssl.args(["s_client", "-quiet", "-verify_return_error", "-connect", &format!("127.0.0.1:{port}")]);
    openssl.arg("-CAfile").arg(certificate).stdin(std::process::Stdio::piped());
    let child = openssl.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn();
    if let Ok(mut child) = child {
        let token = std::fs::read_to_string(node.path("state/metrics.token")).unwrap();
        let request = format!(
            "GET /metrics HTTP/1.1\r\nhost: node\r\nauthorization: Bearer {token}\r\n\
             connection: close\r\n\r\n"
        );
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(request.as_bytes()).unwrap();
        let out = child.wait_with_output().unwrap();
        drop(stdin);
        assert!(text(&out.stdout).contains("flame_source_running"), "{}", text(&out.stdout));
    }
    node.end();
}

#[test]
fn alert_rules_and_dashboard_name_metrics_that_exist() {
    let Some(count) = module("count") else { return };
    let port = free_port();
    let mut node = Node::new("");
    node.configure(&format!(
        "[metrics]\nlisten = \"127.0.0.1:{port}\"\nreaders = \"loopback\"\n{}",
        replay()
    ));
    node.start();
    // Families without values are left out.
    node.json(&["install", &count.display().to_string()]);
    let mut all = String::new();
    wait_for("an account", || {
        all = ask(port, "GET /metrics HTTP/1.1");
        all.contains("flame_module_packets_shed_total")
    });
    node.end();
    // A counter's samples end in `_total`.
    let known: BTreeSet<String> = (all.lines())
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, kind)| if kind == "counter" { format!("{name}_total") } else { name.to_owned() })
        .collect();
    assert!(known.contains("flame_source_packets_total"), "{known:?}");
    let packaging = root().join("packaging");
    for file in ["prometheus/flame.rules.yml", "grafana/flame.json"] {
        let content = std::fs::read_to_string(packaging.join(file)).unwrap();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let names: BTreeSet<&str> =
            content.split(|c| !is_name(c)).filter(|word| word.starts_with("flame_")).collect();
        assert!(names.len() >= 5, "{file}: {names:?}");
        for name in names {
            assert!(known.contains(name), "{file}: {name} is no metric");
        }
    }
    // Debian's package `prometheus` has the program that checks its files.
    match Command::new("promtool")
        .arg("check")
        .arg("rules")
        .arg(packaging.join("prometheus/flame.rules.yml"))
        .output()
    {
        Ok(out) => assert!(out.status.success(), "{}{}", text(&out.stdout), text(&out.stderr)),
        Err(e) => eprintln!("skipped: promtool: {e} (apt-get install prometheus)"),
    }
}
