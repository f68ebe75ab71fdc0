//! DuckDB, pandas and pyarrow read Parquet output: values, types and units; and times in text. `FLAME_PYTHON`
//! names an interpreter that has them.

use crate::common::*;
use flame_record::{Format, Options, TimeFormat, open};
use std::process::Command;
use tempfile::TempDir;

#[test]
fn duckdb_and_pyarrow_read_what_json_says() {
    let Some(python) = std::env::var_os("FLAME_PYTHON") else {
        println!("skipped: FLAME_PYTHON names no interpreter with duckdb, pandas and pyarrow");
        return;
    };
    let imports = Command::new(&python).args(["-c", "import duckdb, pandas, pyarrow"]).output();
    if !imports.is_ok_and(|o| o.status.success()) {
        println!("skipped: {} cannot import duckdb, pandas and pyarrow", python.display());
        return;
    }
    let dir = TempDir::new().unwrap();
    let catalog = catalog(vec![module("probe", vec![every_type(), table("empty", every_type().columns)])]);
    let mut output = Vec::new();
    // Several batches, with every row of the list.
    for _ in 0..5_000 {
        every_row().iter().for_each(|row| record(&mut output, 0, row));
    }
    let all = Options::default();
    let with = |time| Options { time: Some(time), ..Options::default() };
    let one = Options { tables: vec!["all".to_owned()], ..with(TimeFormat::Rfc3339) };
    for (format, name, options) in [
        (Format::Parquet, "parquet", &all),
        (Format::Parquet, "integers", &with(TimeFormat::Ns)),
        (Format::Json, "records.json", &all),
        (Format::Json, "times.json", &one),
        (Format::Csv, "times.csv", &one),
    ] {
        let mut sink = open(format, Some(&dir.path().join(name)), &catalog, options).unwrap();
        send(&catalog.modules[0], &output, &mut *sink);
        sink.finish().unwrap();
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/read_parquet.py");
    let out = Command::new(&python).arg(script).arg(dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    println!("{said}");
}
