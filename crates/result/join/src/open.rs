//! Sources of a monitor's records: a file of JSON lines, standard input, or a folder of Parquet files.

use crate::read::{Flow, Line, Log, ReadError, Reader, Records, Setting};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float64Type, TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, PrimitiveArray, RecordBatch, StringArray};
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// Opens a monitor's records. `-` is standard input; a folder holds `trajectory.flow.parquet` and the other
/// tables, as created by `flame run -o FOLDER`.
///
/// # Errors
///
/// Returns an error if a file cannot be opened, or if a folder has no table of logs or a table that is not
/// Parquet.
pub fn open(name: &str, path: &Path) -> Result<Box<dyn Records>, ReadError> {
    let name = name.to_owned();
    if path.as_os_str() == "-" {
        return Ok(Box::new(Reader::new(name, BufReader::new(std::io::stdin()))));
    }
    if path.is_dir() {
        return Ok(Box::new(Folder::open(path)?));
    }
    let io = |error| ReadError::Io { name: path.display().to_string(), error };
    let file = File::open(path).map_err(io)?;
    Ok(Box::new(Reader::new(path.display().to_string(), BufReader::with_capacity(1 << 18, file))))
}

/// The tables of a folder in the order in which they are read. Small tables, which are complete at once, come
/// first.
const TABLES: [&str; 4] = ["setting", "state", "flow", "log"];

struct Folder {
    files: Vec<Table>,
    /// The rows of a batch, beginning with the last.
    rows: std::vec::IntoIter<Line>,
}

struct Table {
    name: String,
    table: &'static str,
    batches: ParquetRecordBatchReader,
    row: u64,
}

impl Folder {
    fn open(folder: &Path) -> Result<Self, ReadError> {
        let mut files = Vec::new();
        for table in TABLES {
            let path = folder.join(format!("trajectory.{table}.parquet"));
            let name = path.display().to_string();
            let file = match File::open(&path) {
                Ok(file) => file,
                // Only the logs are required.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound && table != "log" => continue,
                Err(error) => return Err(ReadError::Io { name, error }),
            };
            let wrong = |e: parquet::errors::ParquetError| ReadError::Table {
                name: name.clone(),
                row: 0,
                reason: e.to_string(),
            };
            let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(wrong)?;
            let batches = builder.with_batch_size(8192).build().map_err(wrong)?;
            files.push(Table { name, table, batches, row: 0 });
        }
        files.reverse();
        Ok(Self { files, rows: Vec::new().into_iter() })
    }
}

impl Records for Folder {
    fn next(&mut self) -> Result<Option<Line>, ReadError> {
        loop {
            if let Some(line) = self.rows.next() {
                return Ok(Some(line));
            }
            let Some(table) = self.files.last_mut() else { return Ok(None) };
            let wrong =
                |reason, table: &Table| ReadError::Table { name: table.name.clone(), row: table.row, reason };
            match table.batches.next() {
                None => {
                    self.files.pop();
                }
                Some(Err(e)) => return Err(wrong(e.to_string(), table)),
                Some(Ok(batch)) => {
                    let lines = lines(table.table, &batch).map_err(|reason| wrong(reason, table))?;
                    table.row += lines.len() as u64;
                    self.rows = lines.into_iter();
                }
            }
        }
    }
}

/// Returns a column of type `T`.
fn column<'a, T: ArrowPrimitiveType>(
    batch: &'a RecordBatch,
    name: &str,
) -> Result<&'a PrimitiveArray<T>, String> {
    let column = batch.column_by_name(name).ok_or_else(|| format!("no column {name}"))?;
    let numbers = column.as_primitive_opt::<T>();
    numbers.ok_or_else(|| format!("column {name} is {}, expected {}", column.data_type(), T::DATA_TYPE))
}

/// Returns a column of ports, which are 0 in rows that have none.
fn ports(batch: &RecordBatch, name: &str) -> Result<Vec<u16>, String> {
    Ok(column::<UInt16Type>(batch, name)?.iter().map(Option::unwrap_or_default).collect())
}

/// Returns a column of numbers.
fn numbers<'a, T: ArrowPrimitiveType>(batch: &'a RecordBatch, name: &str) -> Result<&'a [T::Native], String> {
    let numbers = column::<T>(batch, name)?;
    if numbers.null_count() > 0 {
        return Err(format!("column {name} has rows without a value"));
    }
    Ok(numbers.values())
}

/// Returns the column of times, which are timestamps, or integers by `--time ns`.
fn times(batch: &RecordBatch) -> Result<Vec<u64>, String> {
    const NAME: &str = "ts_ns";
    if let Some(times) =
        batch.column_by_name(NAME).and_then(|c| c.as_primitive_opt::<TimestampNanosecondType>())
    {
        let known = (times.null_count() == 0).then(|| times.values().iter().map(|t| u64::try_from(*t)));
        let known = known.and_then(|times| times.collect::<Result<_, _>>().ok());
        return known.ok_or_else(|| format!("column {NAME} has rows without a time from 1970 on"));
    }
    numbers::<UInt64Type>(batch, NAME).map(<[u64]>::to_vec)
}

fn texts<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a StringArray, String> {
    let column = batch.column_by_name(name).ok_or_else(|| format!("no column {name}"))?;
    column.as_string_opt().ok_or_else(|| format!("column {name} is {}, expected text", column.data_type()))
}

fn lines(table: &str, batch: &RecordBatch) -> Result<Vec<Line>, String> {
    let rows = 0..batch.num_rows();
    let times = times(batch)?;
    Ok(match table {
        "log" => {
            let flows = numbers::<UInt64Type>(batch, "flow")?;
            let [labels, lengths] =
                [numbers::<UInt32Type>(batch, "label")?, numbers::<UInt32Type>(batch, "wire_len")?];
            let log =
                |i: usize| Log { ts_ns: times[i], flow: flows[i], label: labels[i], wire_len: lengths[i] };
            rows.map(|i| Line::Log(log(i))).collect()
        }
        "flow" => {
            let flows = numbers::<UInt64Type>(batch, "flow")?;
            let protos = numbers::<UInt8Type>(batch, "proto")?;
            let [srcs, dsts] = [texts(batch, "src")?, texts(batch, "dst")?];
            let [sports, dports] = [ports(batch, "sport")?, ports(batch, "dport")?];
            let flow = |i: usize| Flow {
                flow: flows[i],
                proto: protos[i],
                src: srcs.value(i).to_owned(),
                sport: sports[i],
                dst: dsts.value(i).to_owned(),
                dport: dports[i],
            };
            rows.map(|i| Line::Flow(flow(i))).collect()
        }
        "setting" => {
            let hash = batch.column_by_name("hash").ok_or("no column hash")?;
            let words = hash.as_dictionary_opt::<UInt8Type>();
            let words = words.and_then(|d| d.downcast_dict::<StringArray>());
            let words =
                words.ok_or_else(|| format!("column hash is {}, expected words", hash.data_type()))?;
            let words: Vec<String> = words.into_iter().map(|w| w.unwrap_or_default().to_owned()).collect();
            let samplings = numbers::<Float64Type>(batch, "sampling")?;
            let [payloads, seeds] =
                [numbers::<UInt32Type>(batch, "payload")?, numbers::<UInt32Type>(batch, "seeds")?];
            let setting = |i: usize| Setting {
                ts_ns: times[i],
                hash: words[i].clone(),
                sampling: samplings[i],
                payload: payloads[i],
                seeds: seeds[i],
            };
            rows.map(|i| Line::Setting(setting(i))).collect()
        }
        _ => rows.map(|i| Line::End(times[i])).collect(),
    })
}
