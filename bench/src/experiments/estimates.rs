//! Estimated over measured times: of the 13 elements of an IP router, of four configurations, and of the
//! applications and the other standard modules that have a bound: the experiments of the Tables 5.3 to 5.5 of
//! Patel's thesis.
//!
//! The estimates of elements and configurations are those of `flame click check`, for the worst of several
//! kinds of packets; the measured time is that of equal UDP packets in memory, without source and sink. The
//! estimates of modules are for packets of average length, over calls alone.

use super::finding::Finding;
use super::{Figure, Setting};
use crate::bounds;
use crate::click::{FRAME, ROUTER};
use crate::elements::null;
use crate::fixture::Error;
use crate::graph::Graph;
use crate::row::median;
use flame_plot::{Scale, Shape};
use std::path::Path;
use std::process::Command;

/// The elements of a chain.
const CHAIN: usize = 4;
/// The elements that a packet needs before those that expect IP.
const IP: &str = "Strip(14) -> CheckIPHeader";

/// The elements of [`ROUTER`], each with what precedes it.
const ELEMENTS: [(&str, &str, &str); 13] = [
    ("Classifier", "(12/0800, -)", "Null"),
    ("Paint", "(1)", "Null"),
    ("Strip", "(14)", "Null"),
    ("CheckIPHeader", "", IP),
    ("LookupIPRoute", "(10.0.0.0/30 0, 10.1.0.0/16 1, 0.0.0.0/0 1)", IP),
    ("DropBroadcasts", "", IP),
    ("PaintTee", "(2)", IP),
    ("IPGWOptions", "(10.0.0.9)", IP),
    ("FixIPSrc", "(10.0.0.9)", IP),
    ("DecIPTTL", "", IP),
    ("IPFragmenter", "(1500)", IP),
    ("EtherEncap", "(0x0800, 2:0:0:0:0:3, 2:0:0:0:0:4)", IP),
    ("Queue", "(4000)", "Null"),
];

/// The ratios of Patel's Table 5.3.
const OF_CAT: [(&str, f64); 11] = [
    ("Paint", 1.17),
    ("Strip", 1.4),
    ("IPFragmenter", 4.61),
    ("FixIPSrc", 5.6),
    ("DecIPTTL", 7.83),
    ("DropBroadcasts", 8.59),
    ("PaintTee", 11.52),
    ("CheckIPHeader", 17.77),
    ("LookupIPRoute", 20.7),
    ("Classifier", 22.81),
    ("IPGWOptions", 199.0),
];

/// Returns the four configurations.
fn configurations(module: &str) -> [(&'static str, String); 4] {
    let router = format!("{ROUTER} q -> Unqueue(64)");
    let filter = "IPFilter(drop src net 192.168.0.0/16, drop dst port 23, allow udp or tcp, deny all)";
    let flows = "IPRewriter(pattern 192.0.2.7 1024-65535# - - 0 0)";
    [
        ("router", router.clone()),
        ("router, 4 untrusted", format!("{}{router}", format!("Module({module}) -> ").repeat(4))),
        ("firewall", format!("{IP} -> {filter}")),
        ("translation", format!("{IP} -> {flows}")),
    ]
}

/// The applications, for packets as long as those that are measured: with what follows them in the graph.
const APPLICATIONS: [(&str, &str); 4] = [
    ("ecn", ""),
    ("des3", "; Idle -> [1] x; x [1] -> Discard"),
    ("activedoom", "; Idle -> [1] x"),
    ("arm", "; Idle -> [1] x; x [1] -> Discard"),
];

/// Returns a path through an application of this folder.
fn application(modules: &Path, (name, more): (&str, &str)) -> String {
    let file = modules.join(format!("{name}.wasm"));
    let module = format!("x :: Module({}, EXPOSE all, MAX_LENGTH 100)", file.display());
    format!("{{ input -> {module} -> output{more} }}")
}

/// The estimate of a path: of all, and by class of element.
struct Estimate {
    all: f64,
    classes: Vec<(String, f64)>,
}

fn estimate(setting: &Setting<'_>, path: &str) -> Result<Estimate, Error> {
    let graph = format!(
        "InfiniteSource(DATA {FRAME}, LENGTH 100) -> start :: Null -> {path} -> end :: Null -> Discard"
    );
    let out = Command::new(setting.flame).args(["click", "check", "-e", &graph]).output()?;
    let said = String::from_utf8_lossy(&out.stdout);
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let all = said.split("a packet costs at most ").nth(1).and_then(|rest| words(rest).first()?.parse().ok());
    let classes = said.lines().map(words).filter_map(|line| match &line[..] {
        [ns, name, colons, class, ..] if colons == "::" && name != "start" && name != "end" => {
            Some((class.clone(), ns.parse().ok()?))
        }
        _ => None,
    });
    let said_of = || format!("{path}: {said}{}", String::from_utf8_lossy(&out.stderr));
    Ok(Estimate { all: all.ok_or_else(said_of)?, classes: classes.collect() })
}

/// Returns a path in which an element stands [`CHAIN`] times. What leaves by other outputs is dropped.
fn chain((class, arguments, before): (&str, &str, &str)) -> String {
    let more = match class {
        "Classifier" | "LookupIPRoute" | "PaintTee" | "IPGWOptions" | "DecIPTTL" | "IPFragmenter" => {
            "x [1] -> Discard"
        }
        _ => "",
    };
    let after = if class == "Queue" { " -> Unqueue(64)" } else { "" };
    let one = format!("{{ input -> x :: {class}{arguments}{after} -> output; {more} }}");
    format!("{before} -> {}", vec![one; CHAIN].join(" -> "))
}

/// Prints a row and returns its ratio.
fn print(name: &str, estimated: f64, measured: f64) -> f64 {
    println!("{name:20}  {estimated:9.1}  {measured:8.1}  {:6.2}", estimated / measured);
    estimated / measured
}

/// Measures the times.
pub fn run(setting: &Setting<'_>) -> Result<Vec<Finding>, Error> {
    let folder = tempfile::tempdir()?;
    let module = null(folder.path())?;
    let (rounds, packets) = if setting.quick { (1, 20_000) } else { (3, 1_000_000) };
    let graph = Graph { flame: setting.flame, options: &[], data: FRAME, length: 100, burst: 64 };
    // The median of the times of `path` beyond those of `without`.
    let beyond = |path: &str, without: &str| -> Result<f64, Error> {
        graph.nanoseconds(path, 20_000)?;
        let time = |_| Ok(graph.nanoseconds(path, packets)? - graph.nanoseconds(without, packets)?);
        Ok(median((0..rounds).map(time).collect::<Result<_, Error>>()?))
    };
    println!("estimates: nanoseconds for a packet (Patel, Tables 5.3 to 5.5)");
    println!("{:20}  estimated  measured   ratio", "element");
    let (mut rows, mut findings) = (Vec::new(), Vec::new());
    let router = format!("{ROUTER} q -> Unqueue(64)");
    let estimated = estimate(setting, &router)?;
    for element @ (class, _, before) in ELEMENTS {
        let of_class = |(name, ns): &(String, f64)| (name == class).then_some(*ns);
        let estimated = estimated.classes.iter().find_map(of_class).ok_or(class)?;
        // Noise can be more than the least elements take.
        let measured = (beyond(&chain(element), before)? / CHAIN as f64).max(0.1);
        rows.push((class.to_owned(), print(class, estimated, measured)));
        let what = format!("{class}: estimated over measured");
        if let Some((_, theirs)) = OF_CAT.iter().find(|(name, _)| *name == class) {
            findings.push(Finding::estimate("Patel Table 5.3", &what, *theirs, estimated / measured));
        }
    }
    println!("{:20}  estimated  measured   ratio", "configuration");
    let bare = estimate(setting, "Null")?.all;
    for (name, path) in configurations(&module) {
        let estimated = estimate(setting, &path)?.all - bare;
        rows.push((name.to_owned(), print(name, estimated, beyond(&path, "Null")?)));
    }
    println!("{:20}  estimated  measured   ratio", "application");
    for application @ (name, _) in APPLICATIONS {
        let path = self::application(setting.modules, application);
        let estimated = estimate(setting, &path)?.all - bare;
        rows.push((name.to_owned(), print(name, estimated, beyond(&path, "Null")?)));
    }
    // The same rows as in `--only bounds`, which a quick run has besides.
    if !setting.quick {
        println!("modules:");
        let (_folder, trace) = crate::generated(200_000)?;
        let of_modules = bounds::rows(&flame_run::Engines::new()?, &trace, setting.modules, rounds)?;
        let estimates = of_modules.iter().filter(|row| row.group == bounds::ESTIMATE);
        for row in estimates.filter(|row| !row.detail.is_empty()) {
            println!("{:20}  {:26.2}  {}", row.name, row.value, row.detail);
            rows.push((row.name.clone(), row.value));
        }
    }
    let points = rows.iter().enumerate().map(|(n, (_, ratio))| (*ratio, n as f64 + 0.5)).collect();
    Figure {
        name: "estimates",
        title: "Estimated over measured times",
        notes: Vec::new(),
        x: ("estimated / measured", Scale::FromZero),
        y: ("", Scale::Rows(rows.iter().map(|(name, _)| name.clone()).collect())),
        series: vec![(String::new(), Shape::Points(points))],
    }
    .write(setting.folder)?;
    let of = |name: &str| rows.iter().find(|(row, _)| row == name).map_or(f64::NAN, |(_, ratio)| *ratio);
    for (item, ours, theirs) in [
        ("Patel Table 5.4", "des3", 20.0),
        ("Patel Table 5.4", "activedoom", 22.0),
        ("Patel Table 5.4", "ecn", 1.6),
        ("Patel Table 5.5", "router", 1.6),
    ] {
        let what = format!("{ours}: estimated over measured");
        findings.push(Finding::estimate(item, &what, theirs, of(ours)));
    }
    Ok(findings)
}
