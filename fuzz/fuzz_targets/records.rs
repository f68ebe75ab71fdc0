//! Output of a module of any bytes: refused with a place inside it, or every record reaches a sink.
#![no_main]

use flame_abi::manifest::Manifest;
use flame_output::{Frame, Schema, frames};
use flame_plan::{Catalog, CatalogEntry};
use flame_record::{Format, Options, Rows, open};
use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::{Arc, LazyLock};

const MANIFEST: &str = r#"
abi = 1
name = "fuzz"
version = "1"
description = "every type"
packets = true
[[tables]]
name = "all"
columns = [
    { name = "ok", type = "bool" }, { name = "a", type = "u8" }, { name = "b", type = "u16" },
    { name = "c", type = "u32" }, { name = "d", type = "u64" }, { name = "e", type = "i64" },
    { name = "f", type = "f64" }, { name = "first_ns", type = "time" },
    { name = "rtt_ns", type = "duration" }, { name = "mac", type = "mac" },
    { name = "ip", type = "ip" }, { name = "note", type = "text" },
    { name = "end", type = "enum", values = ["idle", "fin"] },
]
[[tables]]
name = "short"
columns = [{ name = "note", type = "text" }, { name = "ip", type = "ip" }]
[[tables]]
name = "byte"
columns = [{ name = "n", type = "u8" }]
"#;

static CATALOG: LazyLock<Catalog> = LazyLock::new(|| {
    let manifest = Arc::new(Manifest::parse(MANIFEST.as_bytes()).expect("the manifest above is good"));
    Catalog { modules: vec![CatalogEntry { name: "fuzz".into(), hash: [0; 32], manifest }] }
});

fuzz_target!(|data: &[u8]| {
    let Some((choice, output)) = data.split_first() else { return };
    let module = &CATALOG.modules[0];
    let counts = match Schema::new(&module.manifest).check(output, choice & 1 == 0) {
        Ok(counts) => counts,
        Err(e) => {
            assert!(e.offset <= output.len() && !e.to_string().is_empty(), "{e}");
            // The later steps hold even without the check.
            let mut rows = Rows::new(module);
            for frame in frames(output) {
                if let Frame::Record { table, row } = frame {
                    let _ = rows.push(table, row);
                }
            }
            assert!(rows.drain().all(|(_, batch)| batch.num_rows() > 0));
            return;
        }
    };
    // Parquet is slow; the formats for text accept any contents of rows.
    let format = if choice & 2 == 0 { Format::Json } else { Format::Table };
    let mut sink =
        open(format, Some(Path::new("/dev/null")), &CATALOG, &Options::default()).expect("/dev/null opens");
    let mut rows = Rows::new(module);
    let mut seen = 0;
    for frame in frames(output) {
        if let Frame::Record { table, row } = frame {
            seen += 1;
            if let Some((table, batch)) = rows.push(table, row) {
                sink.write("fuzz", table, &batch).expect("/dev/null takes all");
            }
        }
    }
    assert_eq!(seen, counts.records);
    for (table, batch) in rows.drain() {
        sink.write("fuzz", table, &batch).expect("/dev/null takes all");
    }
    sink.finish().expect("/dev/null takes all");
});
