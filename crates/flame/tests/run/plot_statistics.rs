//! The statistics that charts print are those that DuckDB computes from the records. The charts `delay` and
//! `latency` print none. `FLAME_PYTHON` names an interpreter with duckdb.

use crate::common::{self, root};
use flame_record::human::{duration, grouped};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn flame(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flame")).args(args).current_dir(root()).output().unwrap()
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// A chart, by its title.
struct Case {
    title: &'static str,
    /// The table whose rows make the chart appear, MODULE.TABLE.
    table: &'static str,
    sql: &'static str,
    /// Returns the texts that are expected for the rows of the query, in their order in the picture; one of
    /// several lines stands for any of them.
    expected: fn(&[Vec<String>]) -> Vec<String>,
}

const CASES: [Case; 6] = [
    Case {
        title: "Round-trip times of TCP handshakes",
        table: "rtt.handshake",
        sql: "SELECT median(rtt_ns), quantile_cont(rtt_ns, 0.99), count(*) FROM TABLE HAVING count(*) > 0",
        expected: |rows| {
            let [median, most] = [0, 1].map(|at| duration(float(&rows[0][at]).round() as i64));
            let connections = grouped(whole(&rows[0][2]));
            vec![format!("{connections} connections, median {median}, 99 % up to {most}")]
        },
    },
    Case {
        title: "Packets over time",
        table: "count.interval",
        sql: "SELECT (SELECT median(d) FROM (SELECT end_ns - lag(end_ns) OVER (ORDER BY end_ns) AS d \
              FROM TABLE) WHERE d > 0), max(tcp), max(udp), max(icmp), max(sctp) FROM TABLE HAVING count(*) > 0",
        expected: |rows| {
            let columns = ["TCP", "UDP", "ICMP", "SCTP"].iter().zip(&rows[0][1..]);
            let zeros: Vec<_> = columns.filter(|(_, max)| *max == "0").map(|(name, _)| *name).collect();
            let mut texts = Vec::new();
            if !zeros.is_empty() {
                texts.push(format!("always 0: {}", zeros.join(", ")));
            }
            if rows[0][0] != "None" {
                texts.push(near(float(&rows[0][0]), |ns| format!("a point each {ns} (median)")));
            }
            texts
        },
    },
    Case {
        title: "Alerts over time",
        table: "ids.alert",
        sql: "SELECT msg, count(*), (SELECT max(ts_ns) - min(ts_ns) FROM TABLE) FROM TABLE GROUP BY msg \
              ORDER BY count(*) DESC, msg",
        expected: events,
    },
    Case {
        title: "New infections over time",
        table: "worm.first",
        sql: "SELECT worm, count(*), (SELECT max(ts_ns) - min(ts_ns) FROM TABLE) FROM TABLE GROUP BY worm \
              ORDER BY count(*) DESC, worm",
        expected: events,
    },
    Case {
        title: "Top talkers",
        table: "flow.flow",
        sql: "SELECT host, count(*) OVER () FROM (SELECT src AS host, bytes_fwd + bytes_rev AS bytes \
              FROM TABLE UNION ALL SELECT dst, bytes_fwd + bytes_rev FROM TABLE) GROUP BY host \
              ORDER BY sum(bytes) DESC, host",
        expected: |rows| {
            let shown = rows.len().min(10);
            let head = format!("{shown} of {} hosts, by bytes sent and received", rows[0][1]);
            [head].into_iter().chain(rows[..shown].iter().map(|row| row[0].clone())).collect()
        },
    },
    Case {
        title: "Logscale diagram",
        table: "lrd.estimate",
        sql: "SELECT series, h, h_low, h_high FROM TABLE WHERE end_ns = (SELECT max(end_ns) FROM TABLE)",
        expected: |rows| {
            let text = |row: &Vec<String>| {
                let [h, low, high] = [1, 2, 3].map(|at| float(&row[at]));
                format!("{}: H = {h:.2} ({low:.2} to {high:.2})", row[0])
            };
            rows.iter().map(text).collect()
        },
    },
];

fn float(text: &str) -> f64 {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn whole(text: &str) -> u64 {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Returns a text about a time for each value that a picture may have, one a line: its times are exact to
/// 256 ns.
fn near(ns: f64, text: impl Fn(String) -> String) -> String {
    let texts = [-512.0, -256.0, 0.0, 256.0, 512.0].map(|off| text(duration((ns + off).round() as i64)));
    texts.join("\n")
}

/// Returns the texts of a chart of events, from words with their numbers of rows and the time of all.
fn events(rows: &[Vec<String>]) -> Vec<String> {
    let all: u64 = rows.iter().map(|row| whole(&row[1])).sum();
    let bar = (whole(&rows[0][2]) as f64 / 60.0).max(1e9 / 60.0);
    let mut texts = vec![near(bar, |bar| format!("{} in all, each bar {bar}", grouped(all)))];
    let shown = if rows.len() > 7 { 6 } else { rows.len() };
    texts.extend(rows[..shown].iter().map(|row| format!("{}: {}", row[0], grouped(whole(&row[1])))));
    if rows.len() > shown {
        let others = &rows[shown..];
        let sum: u64 = others.iter().map(|row| whole(&row[1])).sum();
        texts.push(format!("{} others: {}", others.len(), grouped(sum)));
    }
    texts
}

/// Returns the texts of a picture in SVG, by the titles of its charts.
fn texts(svg: &str) -> BTreeMap<&'static str, Vec<String>> {
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut title = "";
    for part in svg.split('>').filter_map(|part| part.split('<').next()).map(str::trim) {
        let text =
            part.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&");
        title = CASES.iter().map(|case| case.title).find(|title| *title == text).unwrap_or(title);
        found.entry(title).or_default().push(text);
    }
    found
}

/// Runs queries in DuckDB: pairs of a Parquet file and the text in which `TABLE` stands for it.
fn queried(python: &Path, queries: &[(PathBuf, &str)]) -> Vec<Vec<Vec<String>>> {
    const SCRIPT: &str = "import duckdb, json, sys\n\
        for file, sql in json.load(sys.stdin):\n    \
            sql = sql.replace('TABLE', \"'\" + file + \"'\")\n    \
            print(json.dumps([[str(cell) for cell in row] for row in duckdb.sql(sql).fetchall()]))\n";
    let mut child = Command::new(python)
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let input = serde_json::to_vec(queries).unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let out = child.wait_with_output().unwrap();
    let _ = writer.join();
    assert!(out.status.success(), "{}", said(&out));
    let lines = String::from_utf8(out.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns an hour with a packet each 50 ms, whose counts make estimates by wavelets possible.
fn steady(path: &Path) {
    std::fs::write(
        path,
        common::pcap((0..72_000).map(|i| (i * 50, common::tcp_packet((i % 50) as u16, 80)))),
    )
    .unwrap();
}

#[test]
fn statistics_of_all_charts_are_those_of_duckdb() {
    let modules = ["rtt", "count", "ids", "worm", "flow", "lrd"];
    let python =
        std::env::var_os("FLAME_PYTHON").filter(|_| modules.iter().all(|m| common::module(m).is_some()));
    let Some(python) = python else {
        println!("skipped: FLAME_PYTHON names no interpreter with duckdb, or modules are missing");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("steady.pcap");
    steady(&made);
    let mut captures = vec![root().join("demo/demo.pcap"), made];
    let traces = common::traces();
    if let Some(traces) = &traces {
        let files = std::fs::read_dir(traces.join("open/files")).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = files.filter(|f| f.metadata().is_ok_and(|m| m.len() < 20_000_000)).collect();
        files.sort();
        // One of the few with a worm, and a part of the others.
        let is_worm = |file: &Path| file.to_string_lossy().contains("smb-filename");
        let some = files.into_iter().enumerate().filter(|(n, file)| n % 12 == 0 || is_worm(file));
        captures.extend(some.map(|(_, file)| file));
    }
    let mut charts = Vec::new();
    let mut queries = Vec::new();
    for (n, capture) in captures.iter().enumerate() {
        let capture = capture.to_str().unwrap();
        for (part, run) in
            [("a", &["rtt,ids,worm,flow,lrd", "--expose", "all"][..]), ("b", &["count", "--interval", "1s"])]
        {
            let path = |name: &str| folder.path().join(format!("{n}{part}.{name}")).display().to_string();
            let (records, svg) = (path("records"), path("svg"));
            let fixed = ["-q", "--time", "ns", "--format", "parquet"];
            let out =
                flame(&[&["run"], run, &["-r", capture], &fixed, &["-o", &records, "--plot", &svg]].concat());
            // Some captures are damaged on purpose, not decoded, or have no packets.
            let Ok(picture) = std::fs::read_to_string(&svg) else { continue };
            assert!(matches!(out.status.code(), Some(0 | 3)), "{capture}: {}", said(&out));
            let texts = texts(&picture);
            for case in &CASES {
                let file = Path::new(&records).join(format!("{}.parquet", case.table));
                if file.is_file() {
                    charts.push((capture, case, texts.get(case.title).cloned().unwrap_or_default()));
                    queries.push((file, case.sql));
                }
            }
        }
    }
    let answers = queried(Path::new(&python), &queries);
    assert_eq!(answers.len(), charts.len());
    let mut compared: BTreeMap<&str, u32> = BTreeMap::new();
    for ((capture, case, texts), rows) in charts.iter().zip(&answers) {
        if rows.is_empty() {
            continue;
        }
        let mut rest = texts.iter();
        for expected in (case.expected)(rows) {
            let found = rest.any(|text| expected.lines().any(|expected| text == expected));
            assert!(found, "{capture}: {}: {expected:?} is not in its place: {texts:#?}", case.title);
        }
        *compared.entry(case.title).or_default() += 1;
    }
    println!("{compared:?}");
    let least = if traces.is_some() { CASES.len() } else { 4 };
    assert!(compared.len() >= least, "{compared:?}");
}
