use crate::console::{say, say_json};
use crate::error::Error;
use crate::exit::Status;
use crate::files::read;
use crate::format::OutputFormat;
use crate::plot::Target;
use crate::profile::{Distribution, Profile as Found, Request, line_offsets, profile};
use crate::{compiler, paths, settings};
use clap::Args;
use flame_plot::{Axis, Picture, Scale, Series, Shape};
use flame_profile::{Counts, Region};
use rustc_demangle::demangle;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Count the instructions and memory accesses of a module for each packet
///
/// Counts are exact, of WebAssembly, and the same on every machine. Accesses are loads and stores in words of
/// 32 bits; to packets, they include their descriptors. Averages are of full batches, as in a run over a
/// file. For the distributions each packet is a batch by itself, and what a batch costs besides counts for
/// it. A module that was built with `flame build --lines` is listed by source lines as well.
#[derive(Args)]
pub struct Profile {
    /// A module by name or path
    module: String,

    /// A capture file; may be given several times
    #[arg(short, long = "read", value_name = "FILE", required = true)]
    read: Vec<PathBuf>,

    /// A value of a parameter; @FILE stands for the text of a file
    #[arg(long, value_name = "PARAMETER=VALUE")]
    set: Vec<String>,

    /// Stop after this many packets that the module sees
    #[arg(short = 'c', long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true,
        value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,

    /// Also draw the distributions: `term`, or a file with the extension svg or png
    #[arg(long, value_name = "TARGET", value_parser = Target::parse)]
    plot: Option<Target>,

    /// List this many functions, and source lines
    #[arg(long, value_name = "N", default_value_t = 10)]
    functions: usize,

    #[arg(short, long, default_value = "table")]
    format: OutputFormat,
}

impl Profile {
    pub fn run(self) -> Result<Status, Error> {
        let path = paths::module(&self.module)?;
        let wasm = read(&path)?;
        let named = |e| format!("{}: {e}", path.display());
        let request = Request {
            name: self.module.clone(),
            lines: lines(&wasm).map_err(named)?,
            wasm,
            captures: self.read,
            settings: settings::values(&self.set)?,
            most_packets: self.count,
        };
        let found = profile(&request).map_err(named)?;
        match self.format {
            OutputFormat::Table => table(&found, self.functions),
            OutputFormat::Json => json(&found, self.functions),
        }
        if let Some(target) = &self.plot {
            target.draw_all(&[picture(&self.module, &found)])?;
        }
        Ok(Status::Done)
    }
}

/// Returns the source lines of a module, if it has them.
fn lines(wasm: &[u8]) -> Result<BTreeMap<usize, String>, Error> {
    let compiler = compiler::looking()?;
    Ok(compiler.lines(wasm, &compiler.examine(wasm)?, line_offsets(wasm)?)?)
}

/// What is counted for each packet, with its distribution.
fn rows(found: &Found) -> [(&'static str, &'static str, u64, &Distribution); 3] {
    let of = |counts: &Counts, region| counts.accesses(region);
    let packet = of(&found.batches, Region::Packet) + of(&found.batches, Region::Host);
    [
        ("instructions", "instructions", found.batches.instructions, &found.instructions),
        ("packet_accesses", "accesses to packets", packet, &found.packet_accesses),
        ("own_accesses", "accesses to own memory", of(&found.batches, Region::Own), &found.own_accesses),
    ]
}

/// Returns the least value that a share of all packets does not exceed.
fn quantile(of: &Distribution, share: f64) -> u64 {
    let all: u64 = of.values().sum();
    let wanted = (share * all as f64).ceil().max(1.0) as u64;
    let mut seen = 0;
    for (value, packets) in of {
        seen += packets;
        if seen >= wanted {
            return *value;
        }
    }
    0
}

const SHARES: [(&str, f64); 5] =
    [("least", 0.0), ("median", 0.5), ("90 %", 0.9), ("99 %", 0.99), ("most", 1.0)];

fn average(total: u64, packets: u64) -> f64 {
    total as f64 / packets.max(1) as f64
}

fn table(found: &Found, functions: usize) {
    say!("{} packets, {} ticks", found.packets, found.ticks);
    let heads: String = SHARES.map(|(name, _)| format!("{name:>9}")).concat();
    say!("\n{:24}{:>11}{heads}", "for each packet", "average");
    for (_, name, total, distribution) in rows(found) {
        let shares: String =
            SHARES.map(|(_, share)| format!("{:>9}", quantile(distribution, share))).concat();
        say!("{name:24}{:>11.1}{shares}", average(total, found.packets));
    }
    say!("\n{:24}{:>11}{:>9}", "of these accesses", "loads", "stores");
    for (region, name) in
        Region::ALL.into_iter().zip(["bytes of packets", "descriptors, parameters", "own memory"])
    {
        let each = |all: [u64; 3]| average(all[region as usize], found.packets);
        say!("{name:24}{:>11.1}{:>9.1}", each(found.batches.loads), each(found.batches.stores));
    }
    say!("\n{} instructions in other calls (init, ticks, end)", found.others.instructions);
    if functions == 0 {
        return;
    }
    let total = found.batches.instructions + found.others.instructions;
    shares("function, without those that it calls", &found.functions, total, functions);
    if !found.lines.is_empty() {
        shares("source line", &found.lines, total, functions);
    }
}

/// Prints the first of the named parts of all instructions.
fn shares(head: &str, all: &[(String, u64)], total: u64, most: usize) {
    say!("\n{:>7}  {head}", "share");
    for (name, instructions) in all.iter().take(most) {
        let share = 100.0 * *instructions as f64 / total.max(1) as f64;
        say!("{share:>6.1}%  {}", printable(name));
    }
    let rest = all.len().saturating_sub(most);
    if rest > 0 {
        say!("         and {rest} more (--functions N)");
    }
}

fn printable(name: &str) -> String {
    flame_record::escape::line(&format!("{:#}", demangle(name))).into_owned()
}

fn json(found: &Found, functions: usize) {
    let of = |counts: Counts| {
        let region = |all: [u64; 3]| serde_json::json!({"packet": all[0], "host": all[1], "own": all[2]});
        serde_json::json!({
            "instructions": counts.instructions,
            "loads": region(counts.loads),
            "stores": region(counts.stores),
        })
    };
    let distributions: serde_json::Map<_, _> = rows(found)
        .into_iter()
        .map(|(name, _, _, of)| (name.to_owned(), of.iter().map(|(v, n)| vec![*v, *n]).collect()))
        .collect();
    let list = |all: &[(String, u64)]| -> serde_json::Value {
        let one = |(name, count): &(String, u64)| serde_json::json!({"name": printable(name), "instructions": count});
        all.iter().take(functions).map(one).collect()
    };
    say_json!({
        "packets": found.packets,
        "ticks": found.ticks,
        "batches": of(found.batches),
        "singles": of(found.singles),
        "others": of(found.others),
        "distributions": distributions,
        "functions": list(&found.functions),
        "lines": list(&found.lines),
    });
}

/// Returns the cumulative distributions, as in Bunga and Wolf's Fig. 1.
fn picture(module: &str, found: &Found) -> Picture {
    let series = rows(found).into_iter().enumerate().map(|(colour, (_, name, _, of))| {
        let (mut seen, mut points) = (0, Vec::new());
        for (value, packets) in of {
            points.push((*value as f64, 100.0 * seen as f64 / found.packets as f64));
            seen += packets;
            points.push((*value as f64, 100.0 * seen as f64 / found.packets as f64));
        }
        Series { name: name.to_owned(), colour, shape: Shape::Line(points) }
    });
    Picture {
        title: format!("Cost of a packet in {module}"),
        notes: vec![format!("{} packets, each a batch by itself", found.packets)],
        x: Axis { label: "number for a packet".to_owned(), scale: Scale::FromZero },
        y: Axis { label: "packets with at most as many [%]".to_owned(), scale: Scale::FromZero },
        series: series.collect(),
    }
}
