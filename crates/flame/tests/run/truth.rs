//! Tests of every module over every shared capture, against tshark's results (TRUTH.tsv), with one worker and
//! with two. Where tshark is wrong, `docs/truth.md` states this by file and column, with evidence from the
//! bytes.

use crate::common::{install, module, request, root, run, traces};
use flame_abi::flags;
use flame_plan::{Expose, ModulePlan, ViewSpec};
use flame_source::{FileOptions, SourceError};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

type Row = BTreeMap<String, String>;

fn table(path: &Path) -> Vec<Row> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let names: Vec<_> = lines.next().unwrap().split('\t').map(str::to_owned).collect();
    lines.map(|l| names.iter().cloned().zip(l.split('\t').map(str::to_owned)).collect()).collect()
}

/// Returns the rows `| file | column | ours | tshark | why |` of a page.
fn exceptions(page: &str) -> BTreeMap<(String, String), (String, String)> {
    let text = std::fs::read_to_string(root().join(page)).unwrap_or_default();
    let cells =
        |l: &str| l.trim_matches('|').split('|').map(|c| c.trim().trim_matches('`').to_owned()).collect();
    let rows = text.lines().filter(|l| l.starts_with("| `")).map(cells);
    rows.map(|c: Vec<String>| ((c[0].clone(), c[1].clone()), (c[2].clone(), c[3].clone()))).collect()
}

fn value<'a>(line: &'a str, column: &str) -> &'a str {
    let key = format!(" {column}=");
    line.find(&key).map_or("", |i| line[i + key.len()..].split(' ').next().unwrap_or(""))
}

/// Takes the later fragments of a capture away from its counts: tshark counts none of them by its protocol.
fn without_fragments(file: &Path, row: &mut Row) {
    let mut later = BTreeMap::new();
    flame_testing::blocks(file.to_owned(), |descriptors, _| {
        for d in descriptors.iter().filter(|d| d.has(flags::LATER_FRAGMENT)) {
            *later.entry(d.proto).or_insert(0u64) += 1;
        }
    });
    for (column, protocols) in [("tcp", &[6][..]), ("udp", &[17]), ("icmp", &[1, 58]), ("sctp", &[132])] {
        let sum: u64 = protocols.iter().filter_map(|proto| later.get(proto)).sum();
        let counted: u64 = row[column].parse().unwrap_or(0);
        row.insert(column.into(), counted.checked_sub(sum).expect("fragments are counted").to_string());
    }
}

/// Returns the modules' results for one capture, by the names of the truth's columns.
fn ours(records: &[String]) -> Row {
    let mut row = Row::new();
    let one = |prefix: &str| records.iter().find(|r| r.starts_with(prefix)).map_or("", String::as_str);
    for column in ["packets", "wire_bytes", "ipv4", "ipv6", "tcp", "udp", "icmp", "sctp", "tcp_syn"] {
        row.insert(column.into(), value(one("count.count "), column).into());
    }
    row.insert("tcp_dport80".into(), value(one("port.port "), "packets").into());
    let mut pairs: BTreeMap<&str, BTreeSet<[String; 2]>> = BTreeMap::new();
    // Fragments without ports are no conversations.
    let is_flow = |r: &&String| r.starts_with("flow.flow ") && value(r, "unknown_ports") != "true";
    for r in records.iter().filter(is_flow) {
        let mut ends =
            [("src", "sport"), ("dst", "dport")].map(|(a, p)| format!("{} {}", value(r, a), value(r, p)));
        ends.sort();
        pairs.entry(value(r, "proto")).or_default().insert(ends);
    }
    for (column, proto) in [("tcp_flows", "6"), ("udp_flows", "17")] {
        row.insert(column.into(), pairs.get(proto).map_or(0, BTreeSet::len).to_string());
    }
    row
}

#[test]
fn counts_and_conversations_equal_the_truth() {
    let Some(traces) = traces() else { return };
    let engine = flame_run::Engines::new().unwrap();
    let allowed = flame_compile::InstallRequest {
        view: ViewSpec { expose: Expose::All, ..ViewSpec::default() },
        limits: flame_plan::Limits { packet_budget: 100_000_000, ..flame_plan::Limits::default() },
        ..request()
    };
    let mut plans: Vec<ModulePlan> = Vec::new();
    for name in ["count", "count-c", "port", "flow", "rtt", "worm"] {
        let Some(wasm) = module(name) else { return };
        plans.push(install(&wasm, &allowed).unwrap());
    }
    let known = exceptions("docs/truth.md");
    let (mut files, mut undecoded, mut wrong, mut used) = (0, 0, Vec::new(), BTreeSet::new());
    for truth in table(&traces.join("open/TRUTH.tsv")) {
        let path = traces.join("open/files").join(&truth["file"]);
        let open = || flame_source::open(std::slice::from_ref(&path), &FileOptions::default());
        files += 1;
        let source = match open() {
            Ok(source) => source,
            // An unknown link type must be reported by name, as here.
            Err(SourceError::LinkType { .. }) => {
                undecoded += 1;
                continue;
            }
            // Some files are not captures but contain names of other files. tshark reads no packet from them
            // either.
            Err(SourceError::NotACapture { .. }) if truth["packets"] == "0" => continue,
            Err(e) => {
                wrong.push(format!("{}: {e}", truth["file"]));
                continue;
            }
        };
        let (report, records) = match run(&engine, plans.clone(), 1, source, 256) {
            Ok(done) => done,
            Err(flame_worker::RunError::Source(SourceError::LinkType { .. })) => {
                undecoded += 1;
                continue;
            }
            Err(e) => panic!("{}: {e}", truth["file"]),
        };
        assert!(report.faults.is_empty(), "{}: {:?}", truth["file"], report.faults);
        let twins = |name: &str| -> Vec<String> {
            let of = records.iter().filter_map(|r| r.strip_prefix(name));
            of.map(str::to_owned).collect()
        };
        assert_eq!(twins("count.count"), twins("count-c.count"), "{}", truth["file"]);
        let (_, two) = run(&engine, plans.clone(), 2, open().unwrap(), 256).unwrap();
        // The instances' own statistics (table `state`) are by worker; results are not.
        let results = |r: &[String]| r.iter().filter(|l| !l.contains(".state ")).cloned().collect::<Vec<_>>();
        if results(&records) != results(&two) {
            wrong.push(format!("{}: two workers differ from one", truth["file"]));
        }
        let mut found = ours(&records);
        without_fragments(&path, &mut found);
        for (column, ours) in found {
            let key = (truth["file"].clone(), column.clone());
            let theirs = &truth[&column];
            match known.get(&key) {
                Some((o, t)) if *o == ours && t == theirs => {
                    used.insert(key);
                }
                _ if ours == *theirs => {}
                _ => wrong.push(format!("{} {column}: ours {ours}, tshark {theirs}", truth["file"])),
            }
        }
    }
    let stale: Vec<_> = known.keys().filter(|k| !used.contains(*k)).collect();
    println!("{files} captures, {undecoded} of link types that are not decoded, {} exceptions", used.len());
    assert!(
        wrong.is_empty() && stale.is_empty(),
        "{} differences:\n{}\nstale: {stale:?}",
        wrong.len(),
        wrong.join("\n")
    );
}
