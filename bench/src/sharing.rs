//! All modules in one run. They share reading, decoding and equal views, so together they cost less than
//! separately.

use crate::commands::time;
use crate::fixture::Error;
use crate::made::empty as made;
use crate::modules::{KEY, NAMES};
use crate::row::{Row, Target, median};
use flame_source::{FileOptions, Next, RawBlock};
use std::path::Path;

const GROUP: &str = "one run, one core: a module's time beyond that of one that does nothing";

/// Times each module's command, one with a module that does nothing, and one with all of them, alternately.
pub fn rows(flame: &Path, trace: &Path, rounds: usize) -> Result<Vec<Row>, Error> {
    let folder = tempfile::tempdir()?;
    let empty = |expose: &str| -> Result<String, Error> {
        let path = folder.path().join(format!("empty-{}.wasm", expose.len()));
        std::fs::write(&path, made(expose)?)?;
        Ok(path.to_string_lossy().into_owned())
    };
    let command = |modules: &str| words(flame, trace, modules);
    let mut commands = vec![command(&empty("none")?)];
    commands.extend(NAMES.iter().map(|name| command(name)));
    commands.push(all_modules(flame, trace));
    // This module has the same view as `trajectory`.
    commands.push(command(&empty("payload:64")?));
    let mut times = vec![Vec::new(); commands.len()];
    for round in 0..=rounds {
        for (words, times) in commands.iter().zip(&mut times) {
            let took = time(words)?;
            if round > 0 {
                times.push(took);
            }
        }
    }
    let (nothing, own, together) = (&times[0], &times[1..=NAMES.len()], &times[NAMES.len() + 1]);
    let viewed = &times[NAMES.len() + 2];
    let packets = packets(trace)? as f64;
    let mut rows = Vec::new();
    for (name, own) in NAMES.iter().zip(own) {
        let ns = median(own.iter().zip(nothing).map(|(a, b)| (a - b) * 1e9 / packets).collect());
        // Noise can make the cheapest module appear free.
        let row = Row::ratio(
            GROUP,
            *name,
            ns.max(0.01),
            format!("of a packet's {:.0} ns", median(own.clone()) * 1e9 / packets),
        );
        rows.push(row.unit("ns"));
        if *name == "trajectory" {
            let ns = median(own.iter().zip(viewed).map(|(a, b)| (a - b) * 1e9 / packets).collect());
            let detail = "at 1 %, beyond reading, decoding and its view".to_owned();
            let row = Row::ratio(GROUP, "trajectory, beyond its view", ns.max(0.01), detail).unit("ns");
            rows.push(row.target(Target::AtMost(40.0)));
        }
    }
    let apart = |round: usize| own.iter().map(|of| of[round] - nothing[round]).sum::<f64>() + nothing[round];
    let sums: Vec<f64> = (0..rounds).map(apart).collect();
    let ratio = median(together.iter().zip(&sums).map(|(a, b)| a / b).collect());
    let detail = format!("{:.3} / {:.3} s", median(together.clone()), median(sums));
    let name = "all together / own times and one decode";
    rows.push(Row::ratio(GROUP, name, ratio, detail).target(Target::AtMost(1.1)));
    Ok(rows)
}

/// Returns the command of a run of modules over the trace, whose records are discarded.
fn words(flame: &Path, trace: &Path, modules: &str) -> Vec<String> {
    let mut words = vec![flame.to_string_lossy().into_owned(), "run".to_owned(), modules.to_owned()];
    words.extend(["-r".to_owned(), trace.to_string_lossy().into_owned()]);
    words.extend(["-q", "--expose", "all", "--format", "json", "-o", "/dev/null"].map(str::to_owned));
    if modules.contains("anonymize") {
        words.extend(["-w", "/dev/null", "--set"].map(str::to_owned));
        words.push(format!("anonymize.key={KEY}"));
    }
    words
}

/// Returns the command of a run of all modules over the trace.
pub fn all_modules(flame: &Path, trace: &Path) -> Vec<String> {
    words(flame, trace, &NAMES.join(","))
}

fn packets(trace: &Path) -> Result<usize, Error> {
    let mut source = flame_source::open(&[trace.to_owned()], &FileOptions::default())?;
    let (mut block, mut packets) = (RawBlock::default(), 0);
    while source.next(&mut block)? == Next::Packets {
        packets += block.packets.len();
    }
    Ok(packets)
}
