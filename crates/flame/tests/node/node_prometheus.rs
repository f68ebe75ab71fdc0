//! The configuration, the alert rules and the dashboard of packaging, in Prometheus itself.

use super::node_metrics::{ask, free_port};
use crate::daemon::{Node, module, replay, root, wait_for};
use serde_json::Value;
use std::process::{Child, Command, Stdio};

struct Prometheus {
    child: Child,
    port: u16,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    /// Asks its interface, and returns the data of the answer; nothing while it does not answer.
    fn try_get(&self, path: &str) -> Option<Value> {
        std::net::TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let reply = ask(self.port, &format!("GET /api/v1/{path} HTTP/1.0"));
        let (head, body) = reply.split_once("\r\n\r\n")?;
        // While it reads its storage, it is not ready.
        if head.split(' ').nth(1) == Some("503") {
            return None;
        }
        let answer: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{path}: {e}: {reply}"));
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        Some(answer["data"].clone())
    }

    /// Evaluates an expression.
    fn query(&self, expression: &str) -> Option<Vec<Value>> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        Some(self.try_get(&format!("query?query={encoded}"))?["result"].as_array()?.clone())
    }
}

/// Returns the texts at a key, at any depth.
fn texts<'a>(of: &'a Value, key: &str, all: &mut Vec<&'a str>) {
    match of {
        Value::Object(object) => {
            all.extend(object.get(key).and_then(Value::as_str));
            object.values().for_each(|value| texts(value, key, all));
        }
        Value::Array(values) => values.iter().for_each(|value| texts(value, key, all)),
        _ => {}
    }
}

#[test]
fn the_dashboard_and_the_rules_have_answers_in_prometheus() {
    let Some(count) = module("count") else { return };
    if let Err(e) = Command::new("prometheus").arg("--version").output() {
        eprintln!("skipped: prometheus: {e} (apt-get install prometheus)");
        return;
    }
    let (scraped, port) = (free_port(), free_port());
    let mut node = Node::new("");
    node.configure(&format!("[metrics]\nlisten = \"127.0.0.1:{scraped}\"\n{}", replay()));
    node.mint("alice", &[]);
    node.start();
    node.json(&["install", &count.display().to_string()]);
    node.json_of("alice", &["install", &count.display().to_string()]);

    let packaged = root().join("packaging/prometheus");
    let mut config = std::fs::read_to_string(packaged.join("prometheus.yml")).unwrap();
    for (given, here) in [
        ("/etc/prometheus/flame.token", node.path("state/metrics.token").display().to_string()),
        ("127.0.0.1:9464", format!("127.0.0.1:{scraped}")),
        ("flame.rules.yml", packaged.join("flame.rules.yml").display().to_string()),
    ] {
        assert!(config.contains(given), "{given}: {config}");
        // The comment above names the address, too.
        config = config.replace(given, &here);
    }
    config += "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\n";
    std::fs::write(node.path("prometheus.yml"), config).unwrap();
    let child = Command::new("prometheus")
        .arg(format!("--config.file={}", node.path("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", node.path("series").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let prometheus = Prometheus { child, port };
    let has = |expression: &str| prometheus.query(expression).is_some_and(|rows| !rows.is_empty());
    wait_for("four samples", || has("count_over_time(flame_source_packets_total[1h]) >= 4"));
    assert!(has("up{job=\"flame\"} == 1"));

    let dashboard = std::fs::read_to_string(root().join("packaging/grafana/flame.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let mut expressions = Vec::new();
    texts(&dashboard, "expr", &mut expressions);
    assert!(expressions.len() >= 10, "{expressions:?}");
    for expression in expressions {
        let expression = expression.replace("$__rate_interval", "1h");
        // A capture has no kernel that drops packets.
        let is_of_links = expression.contains("kernel_drops");
        assert!(has(&expression) || is_of_links, "{expression}: no answer");
    }

    let mut rules = Value::Null;
    let all = |rules: &Value| rules["groups"][0]["rules"].as_array().cloned().unwrap_or_default();
    wait_for("an evaluation", || {
        rules = prometheus.try_get("rules").unwrap_or_default();
        let all = all(&rules);
        !all.is_empty() && all.iter().all(|rule| rule["health"] != "unknown")
    });
    assert!(all(&rules).len() >= 7, "{rules}");
    for rule in all(&rules) {
        assert_eq!(rule["health"], "ok", "{rule}");
        assert_eq!(rule["state"], "inactive", "nothing is wrong with the node: {rule}");
    }
    // A node that has ended is an alert, which waits for its minute.
    node.end();
    wait_for("the alert", || {
        let rules = prometheus.try_get("rules").unwrap_or_default();
        all(&rules).iter().any(|rule| rule["name"] == "FlameNodeDown" && rule["state"] == "pending")
    });
}
