//! Tests with two monitors at the ends of a path, compared to the path's own log of each packet: the
//! experiment of Duffield and Grossglauser's figure 3, including an overload by UDP.

use crate::common;
use crate::network::{self, Net};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The true results of a path: time of entry and delay of each packet that arrived, in nanoseconds, and the
/// times of entry of lost packets.
#[derive(Default)]
struct Truth {
    delays: Vec<(u64, u64)>,
    /// The times of entry of lost packets.
    lost: Vec<u64>,
}

impl Truth {
    fn mean(&self) -> f64 {
        self.delays.iter().map(|(_, delay)| *delay as f64).sum::<f64>() / self.delays.len() as f64
    }

    /// Returns the delays just below and just above the quantile. In the tail, neighbours differ by more than
    /// the resolution of a histogram, and the time stamps of monitor and path differ by enough to exchange
    /// them.
    fn quantile(&self, q: f64) -> [f64; 2] {
        let mut delays: Vec<u64> = self.delays.iter().map(|(_, delay)| *delay).collect();
        delays.sort_unstable();
        let rank = ((delays.len() as f64 * q).ceil() as usize).clamp(1, delays.len()) - 1;
        [delays[rank.saturating_sub(1)] as f64, delays[(rank + 1).min(delays.len() - 1)] as f64]
    }

    fn extremes(&self) -> [f64; 2] {
        let delays = self.delays.iter().map(|(_, delay)| *delay as f64);
        [delays.clone().fold(f64::INFINITY, f64::min), delays.fold(0.0, f64::max)]
    }
}

/// Parses the path's log, by port.
fn truth(text: &str) -> BTreeMap<u64, Truth> {
    let mut all: BTreeMap<u64, Truth> = BTreeMap::new();
    for line in text.lines() {
        let n: Vec<u64> = line.split('\t').map(|n| n.parse().unwrap()).collect();
        let of = all.entry(n[0]).or_default();
        match n[2] {
            0 => of.lost.push(n[1]),
            out => of.delays.push((n[1], out - n[1])),
        }
    }
    all
}

/// Compares values. The histograms of the join have two significant digits.
fn close(found: &Value, expected: f64, place: &str) {
    between(found, [expected; 2], place);
}

fn between(found: &Value, [low, high]: [f64; 2], place: &str) {
    let found = found.as_f64().unwrap();
    assert!(
        (low * 0.98 - 50_000.0..=high * 1.02 + 50_000.0).contains(&found),
        "{place}: {found} ns, the path says {low} to {high}"
    );
}

fn joined(flame: &str, folder: &Path, more: &[&str]) -> Vec<Value> {
    let [a, b] = ["near", "far"].map(|name| format!("{name}={}", folder.join(name).display()));
    let out = Command::new(flame).args(["join", &a, &b, "--format", "json"]).args(more).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

fn table<'a>(rows: &'a [Value], name: &'a str) -> impl Iterator<Item = &'a Value> {
    rows.iter().filter(move |row| row["table"] == name)
}

#[test]
fn two_monitors_tell_what_the_path_did() {
    if common::module("trajectory").is_none() {
        return;
    }
    let Some(net) = Net::new() else { return };
    net.shell("ip link add tx1 type veth peer name rx1 && ip link set tx1 up && ip link set rx1 up");
    let folder = tempfile::tempdir().unwrap();
    // One monitor writes JSON, the other one Parquet.
    let monitor = |interface: &str, name: &str, format: &str, sockets| {
        let out = folder.path().join(name);
        let all =
            ["trajectory", "--expose", "payload:64", "--set", "trajectory.sampling=1", "--format", format];
        net.capture_on(interface, &[&all[..], &["-o", out.to_str().unwrap()]].concat(), sockets)
    };
    let monitors = [monitor("rx0", "near", "json", 1), monitor("rx1", "far", "parquet", 2)];
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/path.py");
    let path = net.command("python3").args([script, "tx0", "rx0", "tx1", "rx1"]).output().unwrap();
    assert!(path.status.success(), "{}", String::from_utf8_lossy(&path.stderr));
    for monitor in monitors {
        let out = monitor.interrupt();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
    let truth = truth(&String::from_utf8_lossy(&path.stdout));
    assert!(
        [9001, 9003, 9004].iter().all(|probe| !truth[probe].lost.is_empty())
            && truth[&9002].lost.len() > truth[&9002].delays.len() / 2,
        "there was a flood"
    );

    let rows = joined(&network::flame(), folder.path(), &["--interval", "500ms"]);
    // For each flow: every packet, every loss, and the delays.
    for (port, truth) in &truth {
        let row = table(&rows, "flow").find(|row| row["dport"] == *port).unwrap();
        let (src, proto) = match port {
            9003 => ("10.0.0.1", 6),
            9004 => ("2001:db8::1", 17),
            _ => ("10.0.0.1", 17),
        };
        assert_eq!((&row["path"], &row["src"]), (&"near > far".into(), &src.into()));
        assert_eq!(row["proto"], proto);
        assert_eq!(row["packets"], truth.delays.len(), "port {port}");
        assert_eq!(row["lost"], truth.lost.len(), "port {port}");
        close(&row["mean_ns"], truth.mean(), "mean");
        between(&row["p50_ns"], truth.quantile(0.5), "median");
        between(&row["p99_ns"], truth.quantile(0.99), "99th percentile");
        let [least, most] = truth.extremes();
        close(&row["min_ns"], least, "least");
        close(&row["max_ns"], most, "most");
    }
    // For all flows together.
    let all = Truth {
        delays: truth.values().flat_map(|t| t.delays.clone()).collect(),
        lost: truth.values().flat_map(|t| t.lost.clone()).collect(),
    };
    let cell = table(&rows, "matrix").next().unwrap();
    assert_eq!((&cell["from"], &cell["to"]), (&"near".into(), &"far".into()));
    assert_eq!((&cell["packets"], &cell["lost"]), (&all.delays.len().into(), &all.lost.len().into()));
    assert_eq!(cell["estimated_packets"], all.delays.len(), "at sampling 1");
    // Over time: delay and loss of each interval, both of which rise while the path is flooded.
    let mut intervals: BTreeMap<u64, Truth> = BTreeMap::new();
    for (at, delay) in all.delays {
        intervals.entry(at / 500_000_000 * 500_000_000).or_default().delays.push((at, delay));
    }
    for at in all.lost {
        intervals.entry(at / 500_000_000 * 500_000_000).or_default().lost.push(at);
    }
    let delays: Vec<&Value> = table(&rows, "delay").filter(|row| row["path"] == "near > far").collect();
    assert_eq!(delays.len(), intervals.len());
    for (row, (start, truth)) in delays.iter().zip(&intervals) {
        assert_eq!((&row["start_ns"], &row["packets"]), (&(*start).into(), &truth.delays.len().into()));
        assert_eq!(row["lost"], truth.lost.len(), "{row}");
        close(&row["mean_ns"], truth.mean(), "interval");
    }
    let most = delays.iter().map(|row| row["lost"].as_u64().unwrap()).max();
    assert!(most > Some(300), "{delays:?}");
    let means: Vec<f64> = delays.iter().map(|row| row["mean_ns"].as_f64().unwrap()).collect();
    let (quiet, flooded) = (means[0], means.iter().copied().fold(0.0, f64::max));
    assert!(flooded > 3.0 * quiet, "{means:?}");
    let state = table(&rows, "state").next().unwrap();
    for nothing in ["ambiguous", "alone", "crowded", "hurried", "unwatched"] {
        assert_eq!(state[nothing], 0, "{nothing}: {state}");
    }
}

/// The format does not change the records: the joins of the same two runs are equal.
#[test]
fn records_as_parquet_join_as_records_as_json() {
    if common::module("trajectory").is_none() {
        return;
    }
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/demo.pcap");
    let folder = tempfile::tempdir().unwrap();
    let record = |name: &str, format: &str, filter: &[&str]| {
        let out = folder.path().join(name);
        let (capture, out) = (capture.to_str().unwrap(), out.to_str().unwrap());
        let all = ["run", "trajectory", "-r", capture, "--expose", "payload:64", "-q", "-o", out];
        let set = ["--set", "trajectory.sampling=1", "--format", format];
        let done = Command::new(network::flame()).args(all).args(set).args(filter).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    // The far monitor misses all packets that are not TCP, so they are lost.
    let join = |format: &str| {
        let [near, far] = ["near", "far"].map(|name| format!("{name}-{format}"));
        record(&near, format, &[]);
        record(&far, format, &["tcp"]);
        let [a, b] = [near, far].map(|name| folder.path().join(name));
        let inputs = [format!("near={}", a.display()), format!("far={}", b.display())];
        let out = Command::new(network::flame()).arg("join").args(inputs).args(["--format", "json"]).output();
        let out = out.unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let json = join("json");
    assert_eq!(json, join("parquet"));
    let rows: Vec<Value> = json.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!(table(&rows, "flow").count() > 1 && table(&rows, "path").count() > 0, "{json}");
}
