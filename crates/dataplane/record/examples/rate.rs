//! Measures the rows per second of each step, with rows as wide as those of `flow`: `cargo run --release
//! --example rate`.

use flame_abi::manifest::Manifest;
use flame_output::{Frame, Schema, frames};
use flame_plan::{Catalog, CatalogEntry};
use flame_record::{Format, Options, Rows, open};
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const MANIFEST: &str = r#"
abi = 1
name = "flow"
version = "1"
description = "as wide as flow"
[[tables]]
name = "flow"
columns = [
    { name = "proto", type = "u8" }, { name = "src", type = "ip" }, { name = "sport", type = "u16" },
    { name = "dst", type = "ip" }, { name = "dport", type = "u16" }, { name = "first_ns", type = "time" },
    { name = "last_ns", type = "time" }, { name = "packets_fwd", type = "u64" },
    { name = "packets_rev", type = "u64" }, { name = "bytes_fwd", type = "u64" },
    { name = "bytes_rev", type = "u64" }, { name = "tcp_flags_fwd", type = "u8" },
    { name = "tcp_flags_rev", type = "u8" }, { name = "end", type = "enum", values = ["idle", "fin"] },
]
"#;
const ROWS: u32 = 1_000_000;

fn output() -> Vec<u8> {
    let mut output = Vec::new();
    for n in 0..ROWS {
        let mut row = vec![6];
        let mut ip = |low: u32| {
            row.push(4);
            row.extend((0x0a00_0000 | low & 0xff_ffff).to_be_bytes());
            row.extend([0; 12]);
            row.extend((n as u16).to_le_bytes());
        };
        ip(n.wrapping_mul(2_654_435_761));
        ip(n);
        let first = 1_700_000_000_000_000_000 + u64::from(n) * 1_000;
        for v in [first, first + 99_000_000, 12, 34, 5_678, u64::from(n)] {
            row.extend(v.to_le_bytes());
        }
        row.extend([2, 18, 1]);
        output.extend((row.len() as u32).to_le_bytes());
        output.extend([0; 4]);
        output.extend(row);
    }
    output
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let module = CatalogEntry {
        name: "flow".into(),
        hash: [0; 32],
        manifest: Arc::new(Manifest::parse(MANIFEST.as_bytes())?),
    };
    let schema = Schema::new(&module.manifest);
    let catalog = Catalog { modules: vec![module] };
    let output = output();
    let show = |what: &str, start: Instant| {
        println!("{what:<16} {:>6.1} M rows/s", f64::from(ROWS) / start.elapsed().as_secs_f64() / 1e6);
    };

    let start = Instant::now();
    black_box(schema.check(black_box(&output), false)?);
    show("check", start);

    let start = Instant::now();
    let mut rows = Rows::new(&catalog.modules[0]);
    let mut batches = Vec::new();
    for frame in frames(&output) {
        if let Frame::Record { table, row } = frame
            && let Some((_, batch)) = rows.push(table, row)
        {
            batches.push(batch);
        }
    }
    batches.extend(rows.drain().map(|(_, batch)| batch));
    show("rows", start);

    for format in Format::ALL {
        let start = Instant::now();
        let path = Some(Path::new("/dev/null"));
        // Formats of alerts have nothing to write here.
        let Ok(mut sink) = open(format, path, &catalog, &Options::default()) else { continue };
        for batch in &batches {
            sink.write("flow", &catalog.modules[0].manifest.tables[0], batch)?;
        }
        sink.finish()?;
        show(format.name(), start);
    }
    Ok(())
}
