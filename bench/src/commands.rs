//! Whole commands on one core, compared to tools that people use today.

use crate::modules::KEY;
use crate::row::{Row, Target, median};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The modules that answer everyday questions, of which all together are compared with `flow`.
const ANSWERS: &str = "dns,tls,http,tcp,talkers,scan";

/// Times rivals and our commands alternately. The ratio states how many times longer the rival takes.
pub fn rows(flame: &Path, trace: &Path, rounds: usize) -> Vec<Row> {
    let flame = flame.to_string_lossy().into_owned();
    let trace = trace.to_string_lossy().into_owned();
    let scratch = std::env::temp_dir().join(format!("flame-bench-{}", std::process::id()));
    let _ = std::fs::create_dir_all(&scratch);
    let scratch = scratch.to_string_lossy().into_owned();
    let run = |module: &str| -> Vec<String> {
        [&flame, "run", module, "-r", &trace, "-q", "--format", "json", "-o", "/dev/null"]
            .map(str::to_owned)
            .into()
    };
    let rival = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    let filter = "tcp dst port 80";
    let filtered = [&run("count")[..], &[filter.to_owned()]].concat();
    let tcpdump = ["tcpdump", "-r", &trace, "-w", "/dev/null"];
    let with_filter = rival(&[&tcpdump[..], &[filter]].concat());
    let pairs = [
        ("tcpdump -w /dev/null / count", 3.0, rival(&tcpdump), run("count")),
        ("tcpdump 'tcp dst port 80' / port", 2.0, with_filter.clone(), run("port")),
        ("tcpdump 'tcp dst port 80' / count, filter", 0.0, with_filter, filtered),
        (
            "softflowd / flow",
            2.0,
            rival(&["softflowd", "-r", &trace, "-d", "-n", "127.0.0.1:9995"]),
            run("flow"),
        ),
        ("nfpcapd / flow", 0.0, rival(&["nfpcapd", "-r", &trace, "-w", &scratch]), run("flow")),
    ];
    let anonymous =
        ["anonymize", "-r", &trace, "-q", "--expose", "all", "-w", "/dev/null", "-o", "/dev/null", "--set"];
    let anonymize =
        [rival(&[&flame, "run"]), rival(&anonymous), vec![format!("anonymize.key={KEY}")]].concat();
    let (from, key) = (format!("pcapfile:{trace}"), "0123456789abcdef0123456789abcdef");
    let traceanon = rival(&["traceanon", "-s", "-d", "-c", key, &from, "pcapfile:/dev/null"]);
    let pairs = pairs.into_iter().chain([("traceanon / anonymize", 3.0, traceanon, anonymize)]);
    let mut rows = Vec::new();
    for (name, least, theirs, ours) in pairs {
        match compare(&theirs, &ours, rounds) {
            Ok((ratio, detail)) => {
                let row = Row::ratio("whole commands, one core: their time / ours", name, ratio, detail);
                rows.push(if least > 0.0 { row.target(Target::AtLeast(least)) } else { row });
            }
            Err(reason) => eprintln!("left out: {name}: {reason}"),
        }
    }
    let all = [&run(ANSWERS)[..], &["--expose", "payload:4096"].map(str::to_owned)].concat();
    match compare(&all, &run("flow"), rounds) {
        Ok((ratio, detail)) => {
            let group = "whole commands, one core: modules of answers / flow";
            rows.push(Row::ratio(group, ANSWERS, ratio, detail).target(Target::AtMost(4.0)));
        }
        Err(reason) => eprintln!("left out: {ANSWERS}: {reason}"),
    }
    let _ = std::fs::remove_dir_all(&scratch);
    rows
}

fn compare(theirs: &[String], ours: &[String], rounds: usize) -> Result<(f64, String), String> {
    let (mut ratios, mut a, mut b) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds {
        let (t, o) = (time(theirs)?, time(ours)?);
        if round > 0 {
            ratios.push(t / o);
            a.push(t);
            b.push(o);
        }
    }
    Ok((median(ratios), format!("{:.3} / {:.3} s", median(a), median(b))))
}

/// Returns the seconds that a command takes on one core.
pub fn time(words: &[String]) -> Result<f64, String> {
    time_on("0", words)
}

/// Returns the seconds that a command takes on some cores.
pub fn time_on(cores: &str, words: &[String]) -> Result<f64, String> {
    let mut command = Command::new("taskset");
    command.args(["-c", cores]).args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status().map_err(|e| format!("taskset: {e}"))?;
    let took = start.elapsed().as_secs_f64();
    // taskset returns 127 if the program does not exist.
    if status.code() == Some(127) || !status.success() {
        Err(format!("{}: {status}", words[0]))
    } else {
        Ok(took)
    }
}
