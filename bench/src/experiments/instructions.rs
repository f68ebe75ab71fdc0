//! Instructions and memory accesses for a packet in five workloads: the study of Bunga and Wolf's Table I and
//! Fig. 1, by `flame profile`. Theirs are RISC instructions, ours are of WebAssembly: the order of the
//! workloads is compared, and which of them vary.

use super::finding::{Finding, short};
use super::{Figure, Setting};
use crate::bounds::settings;
use crate::fixture::{Error, plan};
use flame_admit::Protection;
use flame_plot::{Scale, Shape};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

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

/// What `flame profile` counted.
struct Profile {
    packets: f64,
    /// The averages for a packet: instructions, accesses to packets, other accesses.
    averages: [f64; 3],
    /// Instructions of batches of one packet, with the number of packets that took as many.
    instructions: Vec<(f64, f64)>,
}

fn profile(setting: &Setting<'_>, module: &str, trace: &Path) -> Result<Profile, Error> {
    let mut command = Command::new(setting.flame);
    command.args(["profile", module, "--format", "json", "--functions", "0", "-r"]).arg(trace);
    for (name, value) in settings(module) {
        command.args(["--set", &format!("{name}={value}")]);
    }
    let out = command.output()?;
    if !out.status.success() {
        return Err(format!("{module}: {}", String::from_utf8_lossy(&out.stderr)).into());
    }
    let found: Value = serde_json::from_slice(&out.stdout)?;
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let packets = number(&found["packets"]);
    let accesses = |region: &str| {
        number(&found["batches"]["loads"][region]) + number(&found["batches"]["stores"][region])
    };
    let pairs = found["distributions"]["instructions"].as_array().ok_or("no distribution")?;
    Ok(Profile {
        packets,
        averages: [
            number(&found["batches"]["instructions"]),
            accesses("packet") + accesses("host"),
            accesses("own"),
        ]
        .map(|total| total / packets),
        instructions: pairs.iter().map(|pair| (number(&pair[0]), number(&pair[1]))).collect(),
    })
}

/// Returns the instructions of the native module for a packet, counted by Valgrind's callgrind.
fn native(setting: &Setting<'_>, module: &str, trace: &Path, packets: f64) -> Result<f64, Error> {
    let wasm = std::fs::read(setting.modules.join(format!("{module}.wasm")))?;
    let folder = tempfile::tempdir()?;
    let parameters = folder.path().join("parameters");
    std::fs::write(&parameters, plan(&wasm, Protection::Metered, settings(module))?.parameters)?;
    let count = |calls: &str| -> Result<f64, Error> {
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        command.arg(std::env::current_exe()?).args(["--native", module]).arg(trace).arg(&parameters);
        let out = command.arg(calls).output()?;
        let said = String::from_utf8_lossy(&out.stderr);
        let collected = said.lines().find_map(|line| line.split_once("Collected : "));
        match collected.filter(|_| out.status.success()) {
            Some((_, count)) => Ok(count.trim().parse()?),
            None => Err(format!("{module} in callgrind: {said}").into()),
        }
    };
    Ok((count("true")? - count("false")?) / packets)
}

/// Returns whether Valgrind is installed.
fn has_valgrind() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok_and(|out| out.status.success())
}

/// Returns the part of the packets that cost within a tenth of the median.
fn alike(profile: &Profile) -> f64 {
    let (mut seen, mut median) = (0.0, 0.0);
    for (value, packets) in &profile.instructions {
        seen += packets;
        median = *value;
        if 2.0 * seen >= profile.packets {
            break;
        }
    }
    let near = profile.instructions.iter().filter(|(value, _)| (value - median).abs() * 10.0 <= median);
    near.map(|(_, packets)| packets).sum::<f64>() / profile.packets
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
        let found = profile(setting, module, &trace)?;
        let ours = found.averages;
        let cell = |i: usize| format!("{:10.1} ({:>5})", ours[i], theirs[i]);
        println!("{module:12}  {}  {}  {}  {:4.0} %", cell(0), cell(1), cell(2), 100.0 * alike(&found));
        profiles.push(found);
    }
    let mut findings = Vec::new();
    let has_native = !setting.quick && has_valgrind();
    for ((module, workload, theirs), found) in WORKLOADS.iter().zip(&profiles) {
        let ours = found.averages;
        let what = format!("{workload} (`{module}`): instructions for a packet, ours native on this machine");
        findings.push(match has_native {
            true => {
                let native = native(setting, module, &trace, found.packets)?;
                println!("{module:12}  {native:10.1} native instructions");
                Finding::less("Bunga Table I", &what, "", theirs[0], native)
            }
            false => {
                let cause = "in the whole mode, where valgrind is installed".to_owned();
                Finding::missing("Bunga Table I", &what, &theirs[0].to_string(), cause)
            }
        });
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
    let instructions: Vec<f64> = profiles.iter().map(|found| found.averages[0]).collect();
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
        let (mut seen, mut points) = (0.0, Vec::new());
        for (value, packets) in &found.instructions {
            seen += packets;
            points.push((value.log10(), 100.0 * seen / found.packets));
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
