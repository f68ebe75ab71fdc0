//! The modules that answer questions (`dns`, `tls`, `http`, `tcp`, `talkers`) against tshark 4.0, field by
//! field, over shared captures. `docs/truth-modules.md` explains each difference from the bytes.

use crate::common::{for_each, module, root, traces};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const MODULES: [&str; 5] = ["dns", "tls", "http", "tcp", "talkers"];
/// Every eighth capture is compared, and each that the page names; all of them with `FLAME_TSHARK=all`.
const SAMPLE: usize = 8;
/// What stands between values of one field.
const BETWEEN: char = '\x01';

const FIELDS: [&str; 40] = [
    "frame.len",
    "frame.protocols",
    "ip.src",
    "ipv6.src",
    "ip.dst",
    "ipv6.dst",
    "udp.srcport",
    "udp.dstport",
    "tcp.srcport",
    "tcp.dstport",
    "dns.id",
    "dns.flags.response",
    "dns.flags.rcode",
    "dns.qry.name",
    "dns.qry.type",
    "dns.resp.name",
    "dns.resp.type",
    "dns.count.answers",
    "http.request.method",
    "http.request.uri",
    "http.host",
    "http.user_agent",
    "http.response.code",
    "tls.handshake.type",
    "tls.handshake.extensions_server_name",
    "tls.handshake.extensions_alpn_str",
    "tls.handshake.version",
    "tls.handshake.extensions.supported_version",
    "tls.handshake.ciphersuite",
    "quic.version",
    "tcp.analysis.retransmission",
    "tcp.analysis.fast_retransmission",
    "tcp.analysis.spurious_retransmission",
    "tcp.analysis.out_of_order",
    "tcp.analysis.duplicate_ack",
    "tcp.analysis.lost_segment",
    "tcp.analysis.zero_window",
    "tcp.analysis.window_full",
    "tcp.analysis.keep_alive",
    "tcp.flags.reset",
];

/// The counters of `tcp` by the fields of tshark that they follow.
const COUNTERS: [(&str, &str); 10] = [
    ("retransmissions", "tcp.analysis.retransmission"),
    ("fast_retransmissions", "tcp.analysis.fast_retransmission"),
    ("spurious_retransmissions", "tcp.analysis.spurious_retransmission"),
    ("out_of_order", "tcp.analysis.out_of_order"),
    ("duplicate_acks", "tcp.analysis.duplicate_ack"),
    ("lost", "tcp.analysis.lost_segment"),
    ("zero_windows", "tcp.analysis.zero_window"),
    ("full_windows", "tcp.analysis.window_full"),
    ("keep_alives", "tcp.analysis.keep_alive"),
    ("resets", "tcp.flags.reset"),
];

/// What one of both found in a capture: how often, by module and text.
type Found = BTreeMap<(&'static str, String), i64>;

fn add(found: &mut Found, module: &'static str, text: String, times: i64) {
    if times > 0 {
        *found.entry((module, text)).or_default() += times;
    }
}

fn ours(capture: &Path) -> Found {
    let mut flame = Command::new(env!("CARGO_BIN_EXE_flame"));
    flame.args(["run", &MODULES.join(","), "-q", "--format", "json", "--expose", "payload:4096"]);
    flame.args(["--set", "talkers.n=1000", "-r"]);
    let output = flame.arg(capture).output().unwrap();
    let mut found = Found::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let text = |column: &str| match &row[column] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let number = |column: &str| row[column].as_i64().unwrap_or(0);
        let ends = |[a, ap, b, bp]: [&str; 4]| format!("{}:{} {}:{}", text(a), text(ap), text(b), text(bp));
        let there = || ends(["src", "sport", "dst", "dport"]);
        let back = || ends(["dst", "dport", "src", "sport"]);
        let outcome = row["outcome"].as_str().unwrap_or("");
        let has_answer = matches!(outcome, "answered" | "unasked");
        match (row["module"].as_str().unwrap(), row["table"].as_str().unwrap()) {
            ("dns", "question") => {
                let about = format!("{} {} {}", text("id"), text("name"), text("type"));
                if outcome != "unasked" {
                    let ends = ends(["client", "cport", "server", "sport"]);
                    add(&mut found, "dns", format!("ask {ends} {about}"), number("sent").max(1));
                }
                if has_answer {
                    let ends = ends(["server", "sport", "client", "cport"]);
                    let code = format!("{} {}", text("rcode"), text("answers"));
                    add(&mut found, "dns", format!("reply {ends} {about} {code}"), 1);
                }
            }
            ("tls", "client") => {
                let about = format!("{} {} {}", text("server_name"), text("alpn"), text("version"));
                add(&mut found, "tls", format!("client {} {about}", there()), 1);
            }
            ("tls", "server") => {
                let about = format!("{} {}", text("version"), text("cipher"));
                add(&mut found, "tls", format!("server {} {about}", there()), 1);
            }
            ("http", "request") => {
                if outcome != "unasked" {
                    let about = ["method", "target", "host", "agent"].map(text).join(" ");
                    add(&mut found, "http", format!("request {} {about}", there()), 1);
                }
                if has_answer {
                    add(&mut found, "http", format!("answer {} {}", back(), text("status")), 1);
                }
            }
            ("tcp", "connection") => {
                for (counter, _) in COUNTERS {
                    for (ends, side) in [(there(), "fwd"), (back(), "rev")] {
                        let times = number(&format!("{counter}_{side}"));
                        add(&mut found, "tcp", format!("{counter} {ends}"), times);
                    }
                }
            }
            ("talkers", "top") => add(&mut found, "talkers", text("key"), number("bytes")),
            _ => {}
        }
    }
    found
}

fn theirs(capture: &Path) -> Found {
    let mut tshark = Command::new("tshark");
    tshark.args(["-T", "fields", "-E", "occurrence=a", "-E", &format!("aggregator={BETWEEN}")]);
    // Heads end where they end, and packets are as they came.
    for option in ["ip.defragment:FALSE", "ipv6.defragment:FALSE", "http.desegment_body:FALSE"] {
        tshark.args(["-o", option]);
    }
    FIELDS.iter().for_each(|field| _ = tshark.args(["-e", field]));
    let output = tshark.arg("-r").arg(capture).output().unwrap();
    let mut found = Found::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let values: Vec<&str> = line.split('\t').collect();
        frame(&mut found, &|field| {
            let at = FIELDS.iter().position(|name| *name == field).unwrap();
            values.get(at).filter(|v| !v.is_empty()).map(|v| v.split(BETWEEN).collect()).unwrap_or_default()
        });
    }
    found
}

/// Adds what tshark shows of one frame.
fn frame<'a>(found: &mut Found, field: &dyn Fn(&str) -> Vec<&'a str>) {
    let (v4, v6, layers) = (field("ip.src"), field("ipv6.src"), field("frame.protocols"));
    let layers = layers.first().map_or(Vec::new(), |l| l.split(':').collect());
    let outer = if layers.iter().find(|l| ["ip", "ipv6"].contains(l)) == Some(&"ip") { v4 } else { v6 };
    if let Some(src) = outer.first() {
        let bytes = field("frame.len").first().and_then(|n| n.parse().ok()).unwrap_or(0);
        add(found, "talkers", (*src).to_owned(), bytes);
    }

    let either = |a, b| [field(a), field(b)].concat();
    let ends = [
        either("ip.src", "ipv6.src"),
        either("tcp.srcport", "udp.srcport"),
        either("ip.dst", "ipv6.dst"),
        either("tcp.dstport", "udp.dstport"),
    ];
    // With several, one is inside a tunnel or an error of ICMP.
    let [[src], [sport], [dst], [dport]] = ends.each_ref().map(Vec::as_slice) else { return };
    let ends = format!("{src}:{sport} {dst}:{dport}");
    let first = |name| field(name).first().copied().unwrap_or("");
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).unwrap_or(0),
        None => text.parse().unwrap_or(0),
    };
    let protocols = first("frame.protocols");

    let is_dns = [sport, dport].iter().any(|port| ["53", "5353", "5355"].contains(port));
    if let ([id], true) = (&field("dns.id")[..], is_dns) {
        let mut names = field("dns.qry.name");
        let mut kinds = field("dns.qry.type");
        if names.is_empty() {
            (names, kinds) = (field("dns.resp.name"), field("dns.resp.type"));
        }
        let name = names.first().copied().unwrap_or("<Root>");
        let kind = dns_type(number(kinds.first().unwrap_or(&"0")));
        let about = format!("{} {name} {kind}", number(id));
        if number(first("dns.flags.response")) == 1 {
            let code = dns_code(number(first("dns.flags.rcode")));
            let count = number(first("dns.count.answers"));
            add(found, "dns", format!("reply {ends} {about} {code} {count}"), 1);
        } else {
            add(found, "dns", format!("ask {ends} {about}"), 1);
        }
    }

    let methods = field("http.request.method");
    if protocols.contains(":tcp:") || protocols.contains(":http") {
        for (n, method) in methods.iter().enumerate() {
            let nth = |name| field(name).get(n).copied().unwrap_or("");
            let about = [method, nth("http.request.uri"), nth("http.host"), nth("http.user_agent")].join(" ");
            add(found, "http", format!("request {ends} {about}"), 1);
        }
        for code in field("http.response.code") {
            // Interim answers have no row.
            if !code.starts_with('1') || code == "101" {
                add(found, "http", format!("answer {ends} {code}"), 1);
            }
        }
    }

    let kinds: Vec<_> = field("tls.handshake.type").into_iter().filter(|k| ["1", "2"].contains(k)).collect();
    let is_other_quic = field("quic.version").iter().any(|v| ![1, 0x6b33_43cf].contains(&number(v)));
    if !protocols.contains(":dtls") && !is_other_quic {
        let supported: Vec<u32> =
            field("tls.handshake.extensions.supported_version").iter().map(|v| number(v)).collect();
        let legacy = number(first("tls.handshake.version"));
        match kinds[..] {
            ["1"] => {
                let best = supported.iter().copied().filter(|v| v & 0x0f0f != 0x0a0a);
                let best = if supported.contains(&0x0304) { Some(0x0304) } else { best.max() };
                let alpn = field("tls.handshake.extensions_alpn_str").join(",");
                let name = first("tls.handshake.extensions_server_name");
                let version = tls_version(best.unwrap_or(legacy));
                add(found, "tls", format!("client {ends} {name} {alpn} {version}"), 1);
            }
            ["2"] => {
                let version = tls_version(supported.first().copied().unwrap_or(legacy));
                let cipher = first("tls.handshake.ciphersuite");
                add(found, "tls", format!("server {ends} {version} {cipher}"), 1);
            }
            // Values of several hellos in one frame cannot be told apart.
            _ => {}
        }
    }

    let has = |name| field(name).first().is_some_and(|v| !["0", "False"].contains(v));
    for (counter, name) in COUNTERS {
        // The others are retransmissions, too.
        let is_any = counter == "retransmissions"
            && (has("tcp.analysis.fast_retransmission") || has("tcp.analysis.spurious_retransmission"));
        add(found, "tcp", format!("{counter} {ends}"), i64::from(has(name) || is_any));
    }
}

fn tls_version(version: u32) -> String {
    match version {
        0x0304 => "1.3".into(),
        0x0303 => "1.2".into(),
        0x0302 => "1.1".into(),
        0x0301 => "1.0".into(),
        0x0300 => "SSL 3.0".into(),
        other => format!("0x{other:04x}"),
    }
}

fn dns_type(kind: u32) -> String {
    const NAMES: [(u32, &str); 35] = [
        (1, "A"),
        (2, "NS"),
        (5, "CNAME"),
        (6, "SOA"),
        (10, "NULL"),
        (12, "PTR"),
        (13, "HINFO"),
        (15, "MX"),
        (16, "TXT"),
        (17, "RP"),
        (24, "SIG"),
        (25, "KEY"),
        (28, "AAAA"),
        (29, "LOC"),
        (33, "SRV"),
        (35, "NAPTR"),
        (39, "DNAME"),
        (41, "OPT"),
        (43, "DS"),
        (44, "SSHFP"),
        (46, "RRSIG"),
        (47, "NSEC"),
        (48, "DNSKEY"),
        (50, "NSEC3"),
        (52, "TLSA"),
        (64, "SVCB"),
        (65, "HTTPS"),
        (99, "SPF"),
        (249, "TKEY"),
        (250, "TSIG"),
        (251, "IXFR"),
        (252, "AXFR"),
        (255, "ANY"),
        (256, "URI"),
        (257, "CAA"),
    ];
    let known = NAMES.iter().find(|(number, _)| *number == kind);
    known.map_or_else(|| format!("TYPE{kind}"), |(_, name)| (*name).to_owned())
}

fn dns_code(code: u32) -> String {
    const NAMES: [&str; 11] = [
        "noerror", "formerr", "servfail", "nxdomain", "notimp", "refused", "yxdomain", "yxrrset", "nxrrset",
        "notauth", "notzone",
    ];
    NAMES.get(code as usize).map_or_else(|| code.to_string(), |name| (*name).to_owned())
}

/// Returns the number of texts that only one of both found, ours first, by module; and some of them.
fn differences(ours: &Found, theirs: &Found) -> BTreeMap<&'static str, ([i64; 2], Vec<String>)> {
    let mut all = BTreeMap::<_, ([i64; 2], Vec<String>)>::new();
    for key in ours.keys().chain(theirs.keys().filter(|key| !ours.contains_key(key))) {
        let count = |found: &Found| found.get(key).copied().unwrap_or(0);
        let more = count(ours) - count(theirs);
        if more != 0 {
            let (counts, texts) = all.entry(key.0).or_default();
            counts[usize::from(more < 0)] += more.abs();
            texts.push(format!("{} {}", if more > 0 { "ours  " } else { "tshark" }, key.1));
        }
    }
    all
}

/// Returns the lines of the page: captures and modules with both numbers.
fn explained() -> BTreeMap<(String, String), [i64; 2]> {
    let page = std::fs::read_to_string(root().join("docs/truth-modules.md")).unwrap();
    let lines = page.lines().filter(|line| line.starts_with("| `"));
    lines
        .map(|line| {
            let cells: Vec<_> = line.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
            let number = |at: usize| cells[at].parse().expect("a number");
            ((cells[1].to_owned(), cells[2].to_owned()), [number(3), number(4)])
        })
        .collect()
}

/// Returns the captures to compare: those that are `chosen` by number and name; all with `FLAME_TSHARK=all`.
/// Without captures or tshark, reports that and returns `None`.
pub fn captures(chosen: impl Fn(usize, &str) -> bool) -> Option<Vec<PathBuf>> {
    let folder = traces()?.join("open/files");
    let version = Command::new("tshark").arg("--version").output();
    let version = version.map(|v| String::from_utf8_lossy(&v.stdout).into_owned()).unwrap_or_default();
    if !version.contains(" 4.0.") {
        eprintln!("skipped: no tshark 4.0, whose results docs/truth-modules.md explains");
        return None;
    }
    let is_all = std::env::var("FLAME_TSHARK").is_ok_and(|v| v == "all");
    let mut all: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    let all = all.into_iter().enumerate();
    Some(all.filter(|(n, path)| is_all || chosen(*n, &name(path))).map(|(_, path)| path).collect())
}

pub fn name(capture: &Path) -> String {
    capture.file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn fields_equal_those_of_tshark() {
    if MODULES.iter().any(|name| module(name).is_none()) {
        return;
    }
    let explained = explained();
    let has_line =
        |name: &str| MODULES.iter().any(|m| explained.contains_key(&(name.to_owned(), (*m).into())));
    let Some(captures) = captures(|n, name| n % SAMPLE == 0 || has_line(name)) else { return };
    let wrong = for_each(&captures, |capture| {
        let mut found = differences(&ours(capture), &theirs(capture));
        let lines = MODULES.iter().filter_map(|module| {
            let (counts, texts) = found.remove(module).unwrap_or_default();
            let expected = explained.get(&(name(capture), (*module).into())).copied();
            if counts == expected.unwrap_or([0, 0]) && expected != Some([0, 0]) {
                return None;
            }
            let [ours, theirs] = counts;
            let some = texts[..texts.len().min(4)].join("\n    ");
            Some(format!("| `{}` | {module} | {ours} | {theirs} | |\n    {some}", name(capture)))
        });
        lines.collect::<Vec<_>>()
    })
    .concat();
    assert!(
        wrong.is_empty(),
        "{} lines of docs/truth-modules.md are missing or wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
