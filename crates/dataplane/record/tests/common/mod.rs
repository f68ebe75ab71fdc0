//! Catalogs built from tables, and the encoder of rows that a module would contain.

use flame_abi::manifest::{Column, ColumnType, Manifest, Table};
use flame_abi::output::{LOST, MESSAGE};
use flame_output::{Frame, Schema, frames};
use flame_plan::{Catalog, CatalogEntry};
use flame_record::{Options, Rows, Sink};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Bool(bool),
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    I64(i64),
    F64(f64),
    Mac([u8; 6]),
    Ip(IpAddr),
    Text(String),
    Enum(u8),
}

impl Value {
    pub fn encode(&self, row: &mut Vec<u8>) {
        match self {
            Self::Bool(b) => row.push(u8::from(*b)),
            Self::U8(n) | Self::Enum(n) => row.push(*n),
            Self::U16(n) => row.extend(n.to_le_bytes()),
            Self::U32(n) => row.extend(n.to_le_bytes()),
            Self::U64(n) => row.extend(n.to_le_bytes()),
            Self::I64(n) => row.extend(n.to_le_bytes()),
            Self::F64(x) => row.extend(x.to_le_bytes()),
            Self::Mac(bytes) => row.extend(bytes),
            Self::Ip(IpAddr::V4(ip)) => {
                row.push(4);
                row.extend(ip.octets());
                row.extend([0; 12]);
            }
            Self::Ip(IpAddr::V6(ip)) => {
                row.push(6);
                row.extend(ip.octets());
            }
            Self::Text(text) => {
                row.extend((text.len() as u16).to_le_bytes());
                row.extend(text.as_bytes());
            }
        }
    }
}

pub fn frame(output: &mut Vec<u8>, kind: u16, payload: &[u8]) {
    output.extend((payload.len() as u32).to_le_bytes());
    output.extend(kind.to_le_bytes());
    output.extend([0, 0]);
    output.extend(payload);
}

pub fn record(output: &mut Vec<u8>, table: u16, row: &[Value]) {
    let mut payload = Vec::new();
    row.iter().for_each(|v| v.encode(&mut payload));
    frame(output, table, &payload);
}

pub fn message(output: &mut Vec<u8>, bytes: &[u8]) {
    frame(output, MESSAGE, bytes);
}

pub fn lost(output: &mut Vec<u8>, n: u64) {
    frame(output, LOST, &n.to_le_bytes());
}

pub fn column(name: &str, kind: ColumnType, unit: Option<&str>) -> Column {
    let values =
        if kind == ColumnType::Enum { vec!["idle".into(), "fin".into(), "rst".into()] } else { vec![] };
    Column { name: name.into(), kind, unit: unit.map(str::to_owned), values, detail: false, optional: false }
}

pub fn table(name: &str, columns: Vec<Column>) -> Table {
    Table { name: name.into(), description: String::new(), columns }
}

/// Returns a table with one column of every type.
pub fn every_type() -> Table {
    use ColumnType::*;
    table(
        "all",
        vec![
            column("ok", Bool, None),
            column("ttl", U8, None),
            column("port", U16, None),
            column("packets", U32, Some("packets")),
            column("wire", U64, Some("bytes")),
            column("drift", I64, Some("ppb")),
            column("load", F64, Some("Mbit/s")),
            column("first_ns", Time, None),
            column("rtt_ns", Duration, None),
            column("mac", Mac, None),
            column("src", Ip, None),
            column("note", Text, None),
            column("end", Enum, None),
        ],
    )
}

/// Returns rows of [`every_type`]: plain values, and the ends of every range.
pub fn every_row() -> Vec<Vec<Value>> {
    use Value::*;
    let v4 = |a, b, c, d| Ip(IpAddr::V4(Ipv4Addr::new(a, b, c, d)));
    let v6 = |s: &str| Ip(IpAddr::V6(s.parse::<Ipv6Addr>().unwrap()));
    let row = |ok, ttl, port, packets, wire, drift, load| {
        vec![Bool(ok), U8(ttl), U16(port), U32(packets), U64(wire), I64(drift), F64(load)]
    };
    let rest = |first, rtt, mac, ip, note: &str, end| {
        vec![U64(first), I64(rtt), Mac(mac), ip, Text(note.into()), Enum(end)]
    };
    [
        [
            row(true, 64, 8080, 1234, 1_234_567, -42, 1234.5),
            rest(1_700_000_000_123_456_789, 12_345_678, [2, 0, 0, 0, 0, 1], v4(192, 0, 2, 1), "größe", 1),
        ],
        [row(false, 0, 0, 0, 0, i64::MIN, -0.0), rest(0, -1_500, [0; 6], v6("2001:db8::1"), "", 0)],
        [
            row(true, u8::MAX, u16::MAX, u32::MAX, u64::MAX, i64::MAX, f64::MIN_POSITIVE),
            rest(i64::MAX as u64, 0, [255; 6], v6("::ffff:192.0.2.9"), "a,\"b\"\n\u{1b}[2J\r", 2),
        ],
        [row(false, 1, 1, 1, 1, 1, f64::NAN), rest(1, 1, [1; 6], v4(0, 0, 0, 0), "\0", 0)],
    ]
    .map(|halves| halves.concat())
    .into()
}

pub fn module(name: &str, tables: Vec<Table>) -> CatalogEntry {
    let manifest = Manifest {
        ports: None,
        state: None,
        packets: false,
        channels: Vec::new(),
        services: Vec::new(),
        uses: Vec::new(),
        shared: Vec::new(),
        queues: Vec::new(),
        log: false,
        plots: Vec::new(),
        abi: 1,
        name: name.into(),
        version: "1.2.3".into(),
        description: "test".into(),
        needs: Default::default(),
        limits: Default::default(),
        parameters: Default::default(),
        tables,
    };
    CatalogEntry { name: name.into(), hash: [0xab; 32], manifest: Arc::new(manifest) }
}

pub fn catalog(modules: Vec<CatalogEntry>) -> Catalog {
    Catalog { modules }
}

/// Returns options of a table that does not depend on the environment of the test.
pub fn wide() -> Options {
    Options { width: Some(400), ..Options::default() }
}

/// Checks `output`, sends its records through rows to `sink`, and returns their number.
pub fn send(module: &CatalogEntry, output: &[u8], sink: &mut dyn Sink) -> u64 {
    let counts = Schema::new(&module.manifest).check(output, true).unwrap();
    let mut rows = Rows::new(module);
    for f in frames(output) {
        if let Frame::Record { table, row } = f
            && let Some((table, batch)) = rows.push(table, row)
        {
            sink.write(&module.name, table, &batch).unwrap();
        }
    }
    for (table, batch) in rows.drain() {
        sink.write(&module.name, table, &batch).unwrap();
    }
    counts.records
}
