//! Values that a row does not have, in every format: null, not 0.

use crate::common::*;
use flame_abi::manifest::{Column, ColumnType};
use flame_plan::Catalog;
use flame_record::{Format, Options, open};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// Returns a catalog with a table of packets, and rows of TCP, UDP, ICMP, SCTP and GRE.
fn rows() -> (Catalog, Vec<u8>) {
    let columns = [
        ("proto", ColumnType::U8),
        ("sport", ColumnType::U16),
        ("dport", ColumnType::U16),
        ("icmp_type", ColumnType::U8),
        ("icmp_code", ColumnType::U8),
        ("tcp_flags_fwd", ColumnType::U8),
        ("unknown_ports", ColumnType::Bool),
        ("vni", ColumnType::U32),
    ];
    let table = table("seen", columns.map(|(name, kind)| column(name, kind, None)).into());
    let mut output = Vec::new();
    for (proto, ports, icmp, flags) in [
        (6, (1024, 0), (0, 0), 2),
        (17, (0, 53), (0, 0), 0),
        (1, (0, 0), (0, 0), 0),
        (132, (7, 9), (0, 0), 0),
        // A later fragment.
        (17, (0, 0), (0, 0), 0),
        // Values that are not 0 stay: the module has them from somewhere.
        (47, (0, 80), (0, 3), 4),
    ] {
        let (kind, code) = icmp;
        let row = [Value::U8(proto), Value::U16(ports.0), Value::U16(ports.1), Value::U8(kind)];
        let unknown = Value::Bool((proto, ports) == (17, (0, 0)));
        let vni = Value::U32(u32::from(ports.0) / 1024 * 4711);
        record(&mut output, 0, &[&row[..], &[Value::U8(code), Value::U8(flags), unknown, vni]].concat());
    }
    (catalog(vec![module("probe", vec![table])]), output)
}

fn write(format: Format, options: &Options, path: &Path) {
    let (catalog, output) = rows();
    let mut sink = open(format, Some(path), &catalog, options).unwrap();
    assert_eq!(send(&catalog.modules[0], &output, &mut *sink), 6);
    sink.finish().unwrap();
}

#[test]
fn a_protocol_without_a_field_has_null_there() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("out");
    let text = |format, options: &Options| {
        write(format, options, &path);
        fs::read_to_string(&path).unwrap()
    };
    let csv = folder.path().join("seen.csv");
    write(Format::Csv, &Options::default(), &csv);
    let expected = "proto,sport,dport,icmp_type,icmp_code,tcp_flags_fwd,unknown_ports,vni\n\
                    6,1024,0,,,2,false,4711\n17,0,53,,,,false,\n1,,,0,0,,false,\n132,7,9,,,,false,\n\
                    17,,,,,,true,\n47,,80,,3,4,false,\n";
    assert_eq!(fs::read_to_string(&csv).unwrap(), expected);
    let json = text(Format::Json, &Options::default());
    let line = json.lines().nth(2).unwrap();
    assert!(line.ends_with(
        r#""proto":1,"sport":null,"dport":null,"icmp_type":0,"icmp_code":0,"tcp_flags_fwd":null,"unknown_ports":false,"vni":null}"#
    ));
    // The protocol decides although it is not written.
    let chosen = Options { columns: vec!["icmp_type".to_owned()], ..Options::default() };
    let json = text(Format::Json, &chosen);
    let types: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let types: Vec<_> = types.iter().map(|row| row["icmp_type"].as_u64()).collect();
    assert_eq!(types, [None, None, Some(0), None, None, None]);
    let table = text(Format::Table, &Options { width: None, ..Options::default() });
    let cells: Vec<_> = table.lines().filter(|line| line.trim_start().starts_with("1 ")).collect();
    assert_eq!(cells[0].split_whitespace().collect::<Vec<_>>(), ["1", "0", "0", "no"], "{table}");
}

#[test]
fn parquet_has_null_with_all_columns_and_with_some() {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{ArrowPrimitiveType, UInt8Type, UInt16Type};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    fn column<T: ArrowPrimitiveType>(
        batch: &flame_record::RecordBatch,
        name: &str,
    ) -> Vec<Option<T::Native>> {
        batch.column_by_name(name).unwrap().as_primitive::<T>().iter().collect()
    }
    let folder = TempDir::new().unwrap();
    for columns in [vec![], vec!["sport".to_owned(), "tcp_flags_fwd".to_owned()]] {
        let path = folder.path().join("out.parquet");
        write(Format::Parquet, &Options { columns, ..Options::default() }, &path);
        let file = fs::File::open(&path).unwrap();
        let mut batches = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
        let batch = batches.next().unwrap().unwrap();
        let ports = column::<UInt16Type>(&batch, "sport");
        assert_eq!(ports, [Some(1024), Some(0), None, Some(7), None, None]);
        let flags = column::<UInt8Type>(&batch, "tcp_flags_fwd");
        assert_eq!(flags, [Some(2), None, None, None, None, Some(4)]);
    }
}

/// A 0 in a column that the manifest states to be optional is null, of each type, in every format.
#[test]
fn what_is_optional_has_null_for_zero() {
    let folder = TempDir::new().unwrap();
    let optional = |name: &str, kind| Column { optional: true, ..column(name, kind, None) };
    let columns = vec![
        optional("status", ColumnType::U16),
        optional("took", ColumnType::Duration),
        optional("at", ColumnType::Time),
        column("bytes", ColumnType::U64, None),
    ];
    let catalog = catalog(vec![module("probe", vec![table("asked", columns)])]);
    let mut output = Vec::new();
    for n in [0, 7] {
        let row = [Value::U16(n as u16), Value::I64(n), Value::U64(n as u64), Value::U64(n as u64)];
        record(&mut output, 0, &row);
    }
    let text = |format, name: &str, options: &Options| {
        let path = folder.path().join(name);
        let mut sink = open(format, Some(&path), &catalog, options).unwrap();
        assert_eq!(send(&catalog.modules[0], &output, &mut *sink), 2);
        sink.finish().unwrap();
        fs::read_to_string(&path).unwrap_or_default()
    };
    assert_eq!(text(Format::Csv, "asked.csv", &Options::default()), "status,took,at,bytes\n,,,0\n7,7,7,7\n");
    let json = text(Format::Json, "asked.json", &Options::default());
    let first = json.lines().next().unwrap();
    assert!(first.ends_with(r#""status":null,"took":null,"at":null,"bytes":0}"#), "{json}");
    let table = text(Format::Table, "asked", &Options::default());
    let cells: Vec<_> = table.lines().filter(|line| line.trim() == "0").collect();
    assert_eq!(cells.len(), 1, "{table}");
}
