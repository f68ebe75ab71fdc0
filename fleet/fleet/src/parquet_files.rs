//! Batches of one table as a Parquet file of the archive.

use crate::Error;
use crate::store::{File, Store};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::arrow::temporal_conversions::timestamp_ns_to_datetime;
use flame_fleet_protocol::Subject;
use flame_spool::{Frame, Header};
use object_store::path::Path as At;
use object_store::{ObjectStoreExt as _, PutMode};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::{ARROW_SCHEMA_META_KEY, ArrowWriter};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// What tells files apart: one has the rows of one subject, of batches that begin on one day, and of one
/// list of columns.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    subject: Subject,
    date: String,
    schema: String,
}

/// The files that the next change adds.
#[derive(Default)]
pub struct Files {
    open: BTreeMap<Key, Open>,
    /// The bytes of the batches.
    pub bytes: usize,
}

struct Open {
    /// Files are in the order of their first batches: the columns of a table continue in it.
    number: usize,
    schema: SchemaRef,
    metadata: Vec<KeyValue>,
    batches: Vec<RecordBatch>,
    rows: u64,
    first: u64,
    last: u64,
}

impl Files {
    /// Adds the rows of a batch.
    ///
    /// # Errors
    ///
    /// Returns an error if its body is no stream of Arrow's, or has another number of rows than its header.
    pub fn add(&mut self, subject: &Subject, frame: &Frame<'_>) -> Result<(), Error> {
        let Header { first, last, rows, .. } = frame.header;
        let reader = StreamReader::try_new(frame.body, None)?;
        let metadata = reader.schema().metadata().clone();
        let schema = plain(&reader.schema());
        let batches = reader.map(|batch| with_schema(&batch?, &schema)).collect::<Result<Vec<_>, Error>>()?;
        let found: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if found as u64 != rows {
            return Err(format!("a batch of {found} rows, its header states {rows}").into());
        }
        let key = Key { subject: subject.clone(), date: date(first), schema: name_of(&schema) };
        let number = self.open.len();
        let new = || {
            let mut metadata: Vec<_> = metadata.into_iter().map(|(k, v)| KeyValue::new(k, v)).collect();
            metadata.sort_by(|a, b| a.key.cmp(&b.key));
            Open { number, schema, metadata, batches: Vec::new(), rows: 0, first, last }
        };
        let open = self.open.entry(key).or_insert_with(new);
        open.batches.extend(batches);
        (open.rows, open.first, open.last) = (open.rows + rows, open.first.min(first), open.last.max(last));
        self.bytes += frame.body.len();
        Ok(())
    }

    /// Writes the files. They are read once a change names them. `known` has the names of the schemas that
    /// are stored.
    pub async fn write(
        self,
        store: &Store,
        version: u64,
        known: &mut HashSet<String>,
    ) -> Result<Vec<File>, Error> {
        let mut files = Vec::new();
        let mut all: Vec<_> = self.open.into_iter().collect();
        all.sort_by_key(|(_, open)| open.number);
        for (Key { subject, date, schema: name }, open) in all {
            if !known.contains(&name) {
                let mut bytes = Vec::new();
                StreamWriter::try_new(&mut bytes, &open.schema)?.finish()?;
                store.put(&schema_at(&name), bytes, PutMode::Overwrite).await?;
                known.insert(name.clone());
            }
            let bytes = written(&open.schema, open.metadata, open.batches.into_iter().map(Ok))?;
            let parts = subject.parts();
            // A file of a writer that was killed before its change, or lost it to another, has another name.
            let path: At = [
                "data",
                &format!("date={date}"),
                &format!("node={}", parts.node),
                &format!("table={}.{}.{}", parts.principal, parts.module, parts.table),
                &format!("{version:020}-{:016x}.parquet", fastrand::u64(..)),
            ]
            .into_iter()
            .collect();
            let size = bytes.len() as u64;
            store.put(&path, bytes, PutMode::Create).await?;
            files.push(File {
                path: path.to_string(),
                node: parts.node,
                principal: parts.principal,
                module: parts.module,
                table: parts.table,
                schema: name,
                rows: open.rows,
                bytes: size,
                first: open.first,
                last: open.last,
            });
        }
        Ok(files)
    }
}

/// Returns batches as the bytes of a file.
fn written(
    schema: &SchemaRef,
    metadata: Vec<KeyValue>,
    batches: impl Iterator<Item = Result<RecordBatch, ArrowError>>,
) -> Result<Vec<u8>, Error> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(concat!("flame ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(metadata));
    // Times and counters seldom repeat: a dictionary of them is half of the work, and takes more bytes.
    let of_64_bits = |field: &&Arc<Field>| field.data_type().primitive_width() == Some(8);
    for field in schema.fields().iter().filter(of_64_bits) {
        let column = ColumnPath::from(field.name().as_str());
        if !field.data_type().is_floating() {
            properties = properties.set_column_encoding(column.clone(), Encoding::DELTA_BINARY_PACKED);
        }
        properties = properties.set_column_dictionary_enabled(column, false);
    }
    let properties = properties.build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, schema.clone(), Some(properties))?;
    for batch in batches {
        writer.write(&batch?)?;
    }
    writer.close()?;
    Ok(bytes)
}

/// Writes the rows of files of one partition and one list of columns as one file, with the metadata that all
/// of them have. It is read once a change names it.
pub async fn merged(store: &Store, version: u64, files: &[&File]) -> Result<File, Error> {
    let first = files.first().ok_or("no files to merge")?;
    let schema = schema(store, &first.schema).await?;
    let (mut batches, mut metadata) = (Vec::new(), None::<Vec<KeyValue>>);
    for file in files {
        let bytes = store.objects.get(&At::from(file.path.as_str())).await?.bytes().await?;
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes)?;
        let own = reader.metadata().file_metadata().key_value_metadata().cloned().unwrap_or_default();
        metadata = Some(match metadata {
            None => own.into_iter().filter(|of| of.key != ARROW_SCHEMA_META_KEY).collect(),
            Some(all) => all.into_iter().filter(|of| own.contains(of)).collect(),
        });
        for batch in reader.build()? {
            batches.push(with_schema(&batch?, &schema)?);
        }
    }
    let rows: u64 = batches.iter().map(|batch| batch.num_rows() as u64).sum();
    let expected: u64 = files.iter().map(|file| file.rows).sum();
    if rows != expected {
        return Err(format!("{} and others: {rows} rows, the manifest states {expected}", first.path).into());
    }
    let bytes = written(&schema, metadata.unwrap_or_default(), batches.into_iter().map(Ok))?;
    let folder = first.path.rsplit_once('/').map_or("data", |(folder, _)| folder);
    let path = format!("{folder}/{version:020}-{:016x}.parquet", fastrand::u64(..));
    let size = bytes.len() as u64;
    store.put(&At::from(path.as_str()), bytes, PutMode::Create).await?;
    Ok(File {
        path,
        rows,
        bytes: size,
        first: files.iter().map(|file| file.first).min().unwrap_or(first.first),
        last: files.iter().map(|file| file.last).max().unwrap_or(first.last),
        ..File::clone(first)
    })
}

/// Reads the columns of a name.
pub async fn schema(store: &Store, name: &str) -> Result<SchemaRef, Error> {
    let bytes = store.objects.get(&schema_at(name)).await?.bytes().await?;
    Ok(StreamReader::try_new(&bytes[..], None)?.schema())
}

fn schema_at(name: &str) -> At {
    At::from(format!("schema/{name}"))
}

/// Returns columns without the metadata of the table, which name a version of the module. Words of an
/// enumeration are text: their numbers differ between versions.
fn plain(schema: &Schema) -> SchemaRef {
    let field = |field: &Arc<Field>| match field.data_type() {
        DataType::Dictionary(_, of) => Arc::new(Field::clone(field).with_data_type(DataType::clone(of))),
        _ => field.clone(),
    };
    Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()))
}

fn with_schema(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Error> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| cast(column, field.data_type())).collect::<Result<_, _>>()?;
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}

/// Returns a name for columns, which differs where names, types or units do.
fn name_of(schema: &Schema) -> String {
    let mut text = String::new();
    for field in schema.fields() {
        let mut metadata: Vec<_> = field.metadata().iter().collect();
        metadata.sort();
        let of = (field.name(), field.data_type().to_string(), field.is_nullable(), metadata);
        // As the formatter of Rust quotes it, no name of a column looks like two.
        text.push_str(&format!("{of:?}\n"));
    }
    Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the day of a time in nanoseconds since 1970, as `2026-11-29`.
fn date(ns: u64) -> String {
    let day = timestamp_ns_to_datetime(i64::try_from(ns).unwrap_or(i64::MAX));
    day.map_or_else(|| "unknown".to_owned(), |day| day.date().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{ArrayRef, Float64Array, TimestampNanosecondArray, UInt64Array};
    use datafusion::arrow::array::{StringArray, UInt16Array};
    use std::io::Write as _;

    /// Columns of 64 bits have no dictionary, and read as they were written.
    #[test]
    fn times_and_counters_are_differences() {
        let numbers = [5, u64::MAX, 0, 1 << 63, 7];
        let times = [1_780_000_000_000_000_000, i64::MIN, i64::MAX, 0, -1];
        let columns: [(&str, ArrayRef); 5] = [
            ("a.b", Arc::new(UInt64Array::from_iter_values(numbers))),
            ("time", Arc::new(TimestampNanosecondArray::from_iter_values(times).with_timezone("UTC"))),
            ("part", Arc::new(Float64Array::from_iter_values([0.5, f64::MIN, 1e300, -0.0, 2.0]))),
            ("port", Arc::new(UInt16Array::from_iter_values([80, 80, 80, 443, 80]))),
            ("name", Arc::new(StringArray::from_iter_values(["x", "x", "y", "x", "x"]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let bytes = written(&batch.schema(), Vec::new(), [Ok(batch.clone())].into_iter()).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        let group = reader.metadata().row_group(0);
        let of = |n: usize| {
            let column = group.column(n);
            let is_difference = column.encodings().any(|of| of == Encoding::DELTA_BINARY_PACKED);
            (is_difference, column.dictionary_page_offset().is_some())
        };
        let found = [0, 1, 2, 3, 4].map(of);
        assert_eq!(found, [(true, false), (true, false), (false, false), (false, true), (false, true)]);
        let read: Vec<_> = reader.build().unwrap().map(Result::unwrap).collect();
        assert_eq!(read, [batch]);
    }
}
