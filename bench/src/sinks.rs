//! Sinks of records: rows a second of processor time, and against the library that writes the format, alone.

use crate::fixture::Error;
use crate::generate::Random;
use crate::row::{Row, Target, median, paired};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef};
use flame_abi::manifest::{Column, ColumnType, Manifest, Table};
use flame_plan::{Catalog, CatalogEntry};
use flame_record::{Format, Options, RecordBatch, Rows, Sink, TimeFormat};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use serde::{Serialize, Serializer};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const GROUP: &str = "sinks: rows of flow, of ids for eve, one core";
/// The least rows a second of each sink, in millions, or else its share of the library alone.
const MILLIONS: f64 = 1.0;
const SHARE: f64 = 0.7;
const ROW_GROUP: usize = 262_144;

/// Rows of the first table of a module, as a run collects them.
struct Made {
    catalog: Catalog,
    table: Table,
    batches: Vec<RecordBatch>,
}

impl Made {
    fn new(manifest: &str, rows: usize) -> Result<Self, Error> {
        let manifest = Arc::new(Manifest::parse(manifest.as_bytes())?);
        let table = manifest.tables.first().ok_or("no table")?.clone();
        let entry = CatalogEntry { name: manifest.name.clone(), hash: [0; 32], manifest };
        let (mut collected, mut random) = (Rows::new(&entry), Random(7));
        let (mut batches, mut row) = (Vec::new(), Vec::new());
        for number in 0..rows {
            row.clear();
            for column in &table.columns {
                value(column, number as u64, &mut random, &mut row);
            }
            batches.extend(collected.push(0, &row).map(|(_, batch)| batch));
        }
        batches.extend(collected.drain().map(|(_, batch)| batch));
        Ok(Self { catalog: Catalog { modules: vec![entry] }, table, batches })
    }

    fn write(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        let module = &self.catalog.modules[0].name;
        self.batches.iter().try_for_each(|batch| sink.write(module, &self.table, batch))?;
        Ok(())
    }
}

/// Appends a value as a module encodes it: connections of TCP and UDP of a few hosts, for a quarter by IPv6.
fn value(column: &Column, number: u64, random: &mut Random, row: &mut Vec<u8>) {
    let small = random.below(100);
    match (&*column.name, column.kind) {
        ("proto", _) => row.push(if number.is_multiple_of(3) { 17 } else { 6 }),
        ("icmp_type" | "icmp_code", _) => row.push(0),
        ("vlan" | "inner_vlan", _) => row.extend([0; 2]),
        ("vni" | "mpls" | "unstated_lengths", _) => row.extend([0; 4]),
        (_, ColumnType::Time) => row.extend((1_700_000_000_000_000_000 + number * 1_234_567).to_le_bytes()),
        (_, ColumnType::Ip) if number.is_multiple_of(4) => {
            row.extend([6, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            row.extend((random.below(4000) as u16).to_be_bytes());
        }
        (_, ColumnType::Ip) => {
            row.extend([4, 10, 9]);
            row.extend((random.below(4000) as u16).to_be_bytes());
            row.extend([0; 12]);
        }
        (_, ColumnType::Text) => {
            let text = "ET SCAN a signature of common length";
            row.extend((text.len() as u16).to_le_bytes());
            row.extend(text.as_bytes());
        }
        (_, ColumnType::U16) => row.extend((random.below(65_536) as u16).to_le_bytes()),
        (_, ColumnType::Enum) => row.push((small % 6) as u8),
        (_, ColumnType::Bool) => row.push(0),
        (_, ColumnType::U8) => row.push(small as u8),
        (_, ColumnType::U32) => row.extend((small as u32).to_le_bytes()),
        (_, ColumnType::Mac) => row.extend([2, 0, 0, 0, 0, 1]),
        (_, ColumnType::F64) => row.extend((small as f64).to_le_bytes()),
        (_, ColumnType::U64 | ColumnType::I64 | ColumnType::Duration) => {
            row.extend((small * random.below(2000)).to_le_bytes());
        }
    }
}

/// A way to write rows to a path.
type Way<'a> = Box<dyn Fn(&Path) -> Result<(), Error> + 'a>;

pub fn rows(rounds: usize, quick: bool) -> Result<Vec<Row>, Error> {
    let count = if quick { 20_000 } else { 400_000 };
    let flows = Made::new(include_str!("../../modules/flow/module.toml"), count)?;
    let alerts = Made::new(include_str!("../../modules/ids/module.toml"), count)?;
    let sink = |made: &'static str, format: Format, name: &'static str| -> Way<'_> {
        let of = if made == "ids" { &alerts } else { &flows };
        Box::new(move |folder: &Path| {
            let options = Options { tables: vec![of.table.name.clone()], ..Options::default() };
            let mut sink = flame_record::open(format, Some(&folder.join(name)), &of.catalog, &options)?;
            of.write(&mut *sink)?;
            Ok(sink.finish()?)
        })
    };
    let finished = finished(&flows)?;
    let objects = finished.iter().map(objects).collect::<Result<Vec<_>, _>>()?.concat();
    let ways: [(&'static str, Way<'_>); 7] = [
        ("serde_json", Box::new(|folder| with_serde(&objects, &folder.join("serde.json")))),
        ("json", sink("flow", Format::Json, "flows.json")),
        ("csv", sink("flow", Format::Csv, "flows.csv")),
        ("zeek", sink("flow", Format::Zeek, "conn.log")),
        ("eve", sink("ids", Format::Eve, "eve.json")),
        ("parquet crate", Box::new(|folder| with_parquet(&finished, &folder.join("alone.parquet")))),
        ("parquet", sink("flow", Format::Parquet, "flows.parquet")),
    ];
    let folder = tempfile::tempdir()?;
    let mut times = vec![Vec::new(); ways.len()];
    for round in 0..=rounds {
        for ((_, way), times) in ways.iter().zip(&mut times) {
            let before = processor_time()?;
            way(folder.path())?;
            if round > 0 {
                times.push((processor_time()? - before).as_secs_f64());
            }
        }
    }
    let mut rows = Vec::new();
    let mut library = 0;
    for (at, (name, _)) in ways.iter().enumerate() {
        let time = median(times[at].clone());
        let rate = count as f64 / time / 1e6;
        let detail = format!("{count} rows in {:.0} ms of processor time", time * 1e3);
        let row = Row::ratio(GROUP, *name, rate, detail.clone()).unit("M/s");
        if matches!(*name, "serde_json" | "parquet crate") {
            library = at;
            rows.push(row);
            continue;
        }
        let share = paired(&times[library], &times[at]);
        // Parquet is compressed and indexed: what its library takes is the measure.
        if *name == "parquet" {
            rows.push(row);
        } else {
            rows.push(row.target(Target::AtLeast(MILLIONS)));
        }
        if matches!(*name, "json" | "parquet") {
            let name = format!("{name} / {}", ways[library].0);
            rows.push(Row::ratio(GROUP, name, share, detail).target(Target::AtLeast(SHARE)));
        }
    }
    Ok(rows)
}

/// Returns the processor time of this thread.
fn processor_time() -> Result<Duration, Error> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(Duration::from_nanos(text.split(' ').next().ok_or("no schedstat")?.parse()?))
}

/// Returns the batches with all derived columns and texts, as they are written.
fn finished(made: &Made) -> Result<Vec<RecordBatch>, Error> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("rows.parquet");
    let options =
        Options { tables: vec![made.table.name.clone()], time: Some(TimeFormat::Ns), ..Options::default() };
    let mut sink = flame_record::open(Format::Parquet, Some(&path), &made.catalog, &options)?;
    made.write(&mut *sink)?;
    sink.finish()?;
    let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(File::open(path)?)?;
    let batches: Result<Vec<_>, _> = reader.with_batch_size(8192).build()?.collect();
    Ok(batches?)
}

/// A value as the library of JSON takes it.
#[derive(Clone, Serialize)]
#[serde(untagged)]
enum Cell {
    Null,
    Bool(bool),
    Number(u64),
    Text(String),
}

/// A row as the library of JSON takes it.
#[derive(Clone)]
struct Object(Arc<[String]>, Vec<Cell>);

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().zip(&self.1))
    }
}

fn objects(batch: &RecordBatch) -> Result<Vec<Object>, Error> {
    let names: Arc<[String]> = batch.schema_ref().fields().iter().map(|field| field.name().clone()).collect();
    let cell = |array: &ArrayRef, row: usize| -> Result<Cell, Error> {
        if array.is_null(row) {
            return Ok(Cell::Null);
        }
        if let Some(bools) = array.as_boolean_opt() {
            return Ok(Cell::Bool(bools.value(row)));
        }
        if let Some(texts) = array.as_string_opt::<i32>() {
            return Ok(Cell::Text(texts.value(row).to_owned()));
        }
        if let Some(words) = array.as_dictionary_opt::<UInt8Type>() {
            let key = usize::from(words.keys().value(row));
            return Ok(Cell::Text(words.values().as_string::<i32>().value(key).to_owned()));
        }
        let number = |n: Option<u64>| n.map(Cell::Number);
        number(array.as_primitive_opt::<UInt64Type>().map(|a| a.value(row)))
            .or_else(|| number(array.as_primitive_opt::<Int64Type>().map(|a| a.value(row) as u64)))
            .or_else(|| number(array.as_primitive_opt::<UInt32Type>().map(|a| a.value(row).into())))
            .or_else(|| number(array.as_primitive_opt::<UInt16Type>().map(|a| a.value(row).into())))
            .or_else(|| number(array.as_primitive_opt::<UInt8Type>().map(|a| a.value(row).into())))
            .ok_or_else(|| format!("a column of {}", array.data_type()).into())
    };
    let row = |row| batch.columns().iter().map(|array| cell(array, row)).collect::<Result<Vec<_>, _>>();
    (0..batch.num_rows()).map(|number| Ok(Object(names.clone(), row(number)?))).collect()
}

fn with_serde(objects: &[Object], path: &Path) -> Result<(), Error> {
    let mut out = BufWriter::with_capacity(256 << 10, File::create(path)?);
    for object in objects {
        serde_json::to_writer(&mut out, object)?;
        out.write_all(b"\n")?;
    }
    Ok(out.into_inner()?.sync_all()?)
}

fn with_parquet(batches: &[RecordBatch], path: &Path) -> Result<(), Error> {
    let schema = batches.first().ok_or("no rows")?.schema();
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(ROW_GROUP))
        .build();
    let mut writer = ArrowWriter::try_new(File::create(path)?, schema, Some(properties))?;
    batches.iter().try_for_each(|batch| writer.write(batch))?;
    writer.finish()?;
    Ok(writer.inner().sync_all()?)
}
