//! Instructions and memory accesses for a packet in five workloads: the study of Bunga and Wolf's Table I and
//! Fig. 1, by `flame profile`'s counters. Theirs are instructions of an ARM processor for native code, ours are
//! of WebAssembly: what is compared is the order of the workloads, their distance, and which of them vary.

use super::finding::{Finding, short};
use super::{Figure, Setting};
use crate::bounds::settings;
use crate::fixture::Error;
use flame_plot::{Scale, Shape};
use flame_profile::{Profile, Region, Request, profile};

/// A workload: our module, and instructions, accesses to packets and other accesses in their Table I.
const WORKLOADS: [(&str, &str, [f64; 3]); 5] = [
    ("count", "packet count", [13.0, 0.0, 6.0]),
    ("port", "HTTP traffic filtering", [24.0, 4.0, 5.0]),
    ("flow", "flow classification", [153.0, 23.0, 53.0]),
    ("anonymize", "address anonymization", [909.0, 21.0, 91.0]),
    ("ids", "intrusion detection", [3174.0, 110.0, 1124.0]),
];

/// The packets of their trace.
const PACKETS: u64 = 100_000;

fn averages(profile: &Profile) -> [f64; 3] {
    let of = |total: u64| total as f64 / profile.packets.max(1) as f64;
    let batches = &profile.batches;
    let packet = batches.accesses(Region::Packet) + batches.accesses(Region::Host);
    [of(batches.instructions), of(packet), of(batches.accesses(Region::Own))]
}

/// Returns the part of the packets that cost within a tenth of the median.
fn alike(profile: &Profile) -> f64 {
    let (mut seen, mut median) = (0, 0);
    for (value, packets) in &profile.instructions {
        seen += packets;
        median = *value;
        if 2 * seen >= profile.packets {
            break;
        }
    }
    let near = profile.instructions.iter().filter(|(value, _)| value.abs_diff(median) * 10 <= median);
    near.map(|(_, packets)| *packets).sum::<u64>() as f64 / profile.packets.max(1) as f64
}

/// Counts.
pub fn run(setting: &Setting<'_>) -> Result<Vec<Finding>, Error> {
    let packets = if setting.quick { 2000 } else { PACKETS };
    let (_folder, trace) = crate::generated(packets)?;
    let mut profiles = Vec::new();
    println!("instructions: for a packet, in WebAssembly (Bunga and Wolf, Table I; theirs in brackets)");
    println!(
        "{:12}  {:>18}  {:>18}  {:>18}  alike",
        "module", "instructions", "packet accesses", "own accesses"
    );
    for (module, _, theirs) in WORKLOADS {
        let request = Request {
            name: module.to_owned(),
            wasm: std::fs::read(setting.modules.join(format!("{module}.wasm")))?,
            captures: vec![trace.clone()],
            settings: settings(module).iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            most_packets: packets,
        };
        let found = profile(&request)?;
        let ours = averages(&found);
        let cell = |i: usize| format!("{:10.1} ({:>5})", ours[i], theirs[i]);
        println!("{module:12}  {}  {}  {}  {:4.0} %", cell(0), cell(1), cell(2), 100.0 * alike(&found));
        profiles.push(found);
    }
    let mut findings = Vec::new();
    for ((module, workload, theirs), found) in WORKLOADS.iter().zip(&profiles) {
        let ours = averages(found);
        for (i, kind) in ["instructions", "packet accesses", "other accesses"].into_iter().enumerate() {
            let what = format!("{workload} (`{module}`): {kind} for a packet");
            let cause = "ours are WebAssembly's, in batches of one packet";
            findings.push(Finding::other(
                "Bunga Table I",
                &what,
                &theirs[i].to_string(),
                format!("{:.1}", ours[i]),
                cause,
            ));
        }
    }
    let instructions: Vec<f64> = profiles.iter().map(|found| averages(found)[0]).collect();
    let [count, filter, flows, anonymization, detection] = instructions[..] else {
        return Err("five".into());
    };
    findings.push(Finding::shape(
        "Bunga Table I",
        "order by instructions: count, filter, flows, then the two others",
        "13, 24, 153, then 909 and 3174",
        instructions.iter().map(|n| format!("{n:.0}")).collect::<Vec<_>>().join(", "),
        count < filter && filter < flows && flows < anonymization.min(detection),
    ));
    let what = "intrusion detection over anonymization, instructions";
    let (theirs, ours) = (3174.0 / 909.0, detection / anonymization);
    let cause = "ours computes AES for each prefix of an address that it has not seen yet";
    findings.push(match ours > 1.0 {
        true => Finding::shape("Bunga Table I", what, &short(theirs), short(ours), true),
        false => Finding::other("Bunga Table I", what, &short(theirs), short(ours), cause),
    });
    let parts: Vec<f64> = profiles.iter().map(alike).collect();
    let most_vary = parts.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(i, _)| i);
    let text = WORKLOADS.iter().zip(&parts).map(|((name, ..), part)| format!("{name} {:.0} %", 100.0 * part));
    findings.push(Finding::shape(
        "Bunga Fig. 1",
        "packets within a tenth of the median; it varies most in intrusion detection",
        "only intrusion detection varies",
        text.collect::<Vec<_>>().join(", "),
        WORKLOADS[most_vary].0 == "ids",
    ));
    let series = WORKLOADS.iter().zip(&profiles).map(|((module, ..), found)| {
        let (mut seen, mut points) = (0, Vec::new());
        for (value, packets) in &found.instructions {
            seen += packets;
            points.push(((*value as f64).log10(), 100.0 * seen as f64 / found.packets as f64));
        }
        ((*module).to_owned(), Shape::Line(points))
    });
    Figure {
        name: "instructions",
        title: "Instructions for a packet",
        notes: vec!["of WebAssembly, each packet a batch by itself".to_owned()],
        x: ("log10 of instructions", Scale::FromZero),
        y: ("packets with at most as many [%]", Scale::FromZero),
        series: series.collect(),
    }
    .write(setting.folder)?;
    Ok(findings)
}
