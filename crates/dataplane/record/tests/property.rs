//! Tests that a sink receives the values that a module encoded, for any manifest, and that mutated output
//! never causes a panic.

use crate::common::*;
use flame_abi::manifest::{ColumnType, Table};
use flame_output::{Fault, FrameCounts, Schema};
use flame_record::{Format, Options, open};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};
use std::net::IpAddr;
use tempfile::TempDir;

const KINDS: [ColumnType; 13] = {
    use ColumnType::*;
    [Bool, U8, U16, U32, U64, I64, F64, Time, Duration, Mac, Ip, Text, Enum]
};

fn tables() -> impl Strategy<Value = Vec<Table>> {
    let columns = vec(prop::sample::select(&KINDS[..]), 1..8).prop_map(|kinds| {
        kinds.into_iter().enumerate().map(|(i, kind)| column(&format!("c{i}"), kind, None)).collect()
    });
    vec(columns, 1..4).prop_map(|all: Vec<Vec<_>>| {
        all.into_iter().enumerate().map(|(i, columns)| table(&format!("t{i}"), columns)).collect()
    })
}

fn value(kind: ColumnType) -> BoxedStrategy<Value> {
    match kind {
        ColumnType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        ColumnType::U8 => any::<u8>().prop_map(Value::U8).boxed(),
        ColumnType::U16 => any::<u16>().prop_map(Value::U16).boxed(),
        ColumnType::U32 => any::<u32>().prop_map(Value::U32).boxed(),
        ColumnType::U64 | ColumnType::Time => any::<u64>().prop_map(Value::U64).boxed(),
        ColumnType::I64 | ColumnType::Duration => any::<i64>().prop_map(Value::I64).boxed(),
        ColumnType::F64 => any::<f64>().prop_map(Value::F64).boxed(),
        ColumnType::Mac => any::<[u8; 6]>().prop_map(Value::Mac).boxed(),
        ColumnType::Ip => any::<IpAddr>().prop_map(Value::Ip).boxed(),
        ColumnType::Text => any::<String>().prop_map(Value::Text).boxed(),
        ColumnType::Enum => (0u8..3).prop_map(Value::Enum).boxed(),
    }
}

type Row = (usize, Vec<Value>);

fn traffic() -> impl Strategy<Value = (Vec<Table>, Vec<Row>)> {
    tables().prop_flat_map(|tables| {
        let rows: Vec<_> = tables
            .iter()
            .enumerate()
            .map(|(i, t)| (Just(i), t.columns.iter().map(|c| value(c.kind)).collect::<Vec<_>>()).boxed())
            .collect();
        (Just(tables), vec(prop::strategy::Union::new(rows), 0..20))
    })
}

fn encode(rows: &[Row]) -> Vec<u8> {
    let mut output = Vec::new();
    for (i, row) in rows {
        record(&mut output, *i as u16, row);
        message(&mut output, &[0xff; 3]);
        lost(&mut output, 2);
    }
    output
}

/// Returns the value as JSON, computed independently of the tested code.
fn shown(value: &Value) -> Json {
    match value {
        Value::Bool(b) => json!(b),
        Value::U8(n) => json!(n),
        Value::U16(n) => json!(n),
        Value::U32(n) => json!(n),
        Value::U64(n) => json!(n),
        Value::I64(n) => json!(n),
        Value::F64(x) => json!(x),
        Value::Mac(m) => json!(m.map(|b| format!("{b:02x}")).join(":")),
        Value::Ip(ip) => json!(ip.to_string()),
        Value::Text(text) => json!(text),
        Value::Enum(n) => json!(["idle", "fin", "rst"][usize::from(*n)]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_encoded_arrives((tables, rows) in traffic()) {
        let output = encode(&rows);
        let catalog = catalog(vec![module("probe", tables.clone())]);
        let n = rows.len() as u64;
        let counts = Schema::new(&catalog.modules[0].manifest).check(&output, true);
        prop_assert_eq!(counts, Ok(FrameCounts { records: n, messages: n, lost: 2 * n, ..FrameCounts::default() }));

        let dir = TempDir::new().unwrap();
        let path = dir.path().join("out.json");
        let mut sink = open(Format::Json, Some(&path), &catalog, &Options::default()).unwrap();
        send(&catalog.modules[0], &output, &mut *sink);
        sink.finish().unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        let found: Vec<Json> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        // Rows of one table keep their order; tables follow each other.
        let mut sorted: Vec<&Row> = rows.iter().collect();
        sorted.sort_by_key(|(table, _)| *table);
        prop_assert_eq!(found.len(), sorted.len());
        for (found, (i, row)) in found.iter().zip(sorted) {
            let mut expected = Map::new();
            expected.insert("module".into(), json!("probe"));
            expected.insert("table".into(), json!(tables[*i].name));
            for (column, value) in tables[*i].columns.iter().zip(row) {
                expected.insert(column.name.clone(), shown(value));
            }
            // Through text as well: serde_json reads a float to within one unit in the last place.
            let expected: Json = serde_json::from_str(&Json::Object(expected).to_string()).unwrap();
            prop_assert_eq!(found, &expected);
        }
    }

    #[test]
    fn mutated_output_is_refused_with_its_place(
        (tables, rows) in traffic(),
        cuts in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        keep in any::<prop::sample::Index>(),
    ) {
        let mut output = encode(&rows);
        prop_assume!(!output.is_empty());
        for (at, byte) in &cuts {
            let at = at.index(output.len());
            output[at] = *byte;
        }
        output.truncate(keep.index(output.len() + 1));
        let catalog = catalog(vec![module("probe", tables.clone())]);
        match Schema::new(&catalog.modules[0].manifest).check(&output, true) {
            Ok(_) => {
                let dir = TempDir::new().unwrap();
                let path = dir.path().join("out");
                let mut sink = open(Format::Table, Some(&path), &catalog, &Options::default()).unwrap();
                send(&catalog.modules[0], &output, &mut *sink);
                sink.finish().unwrap();
            }
            Err(e) => {
                prop_assert!(e.offset <= output.len() && e.frame <= 3 * rows.len(), "{}", e);
                if let Fault::Short { at, .. } | Fault::Bool { at, .. } | Fault::Enum { at, .. } | Fault::Text { at, .. } = &e.fault {
                    let named = |t: &Table| t.columns.iter().any(|c| *at == format!("{}.{}", t.name, c.name));
                    prop_assert!(tables.iter().any(named), "{}", e);
                }
            }
        }
    }

    /// Unchecked rows are a bug elsewhere, but cause no panic here.
    #[test]
    fn unchecked_rows_do_not_panic(tables in tables(), rows in vec((0u16..4, vec(any::<u8>(), 0..80)), 0..20)) {
        let mut all = flame_record::Rows::new(&module("probe", tables));
        for (table, row) in &rows {
            prop_assert!(all.push(*table, row).is_none());
        }
        let known = all.drain().map(|(_, batch)| batch.num_rows()).sum::<usize>();
        prop_assert!(known <= rows.len());
    }
}
