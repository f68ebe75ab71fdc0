//! parquet: writes one Parquet file per table, compressed with zstd.
//!
//! Usage:    --format parquet, -o NAME.parquet for one table
//!           -o FOLDER for a file MODULE.TABLE.parquet for each table
//! Expects:  records of any table; a file or folder to write to.
//! Gives:    units in the Arrow metadata of each column (pyarrow: schema.field("rtt_ns").metadata) and in the
//!           metadata of the file as flame.unit.COLUMN (DuckDB: parquet_kv_metadata). A table without records
//!           has its schema. Times are timestamps in UTC and durations are durations, both in nanoseconds;
//!           integers with --time ns. Ports, TCP flags, type and code of ICMP are null where the protocol
//!           has none.
//! Limits:   a file is readable when it is complete, because its index is at its end: at the end of the run,
//!           or earlier with --rotate. Row groups of up to 262,144 rows are written as they fill, which
//!           bounds the memory of a long run.
//! Example:  flame run flow -r FILE --format parquet -o flows
//! Related:  json, csv

use super::out::{Layout, Out};
use super::{Sink, SinkError};
use crate::address::readable;
use crate::rows::arrow_schema;
use crate::time::TimeFormat;
use crate::typed;
use arrow_array::RecordBatch;
use flame_abi::manifest::Table;
use flame_plan::Catalog;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const ROW_GROUP: usize = 262_144;

pub(crate) struct ParquetSink {
    /// The files by module, then table.
    files: HashMap<String, HashMap<String, ArrowWriter<Out>>>,
    /// Whether times and durations are typed, not integers.
    typed: bool,
}

impl ParquetSink {
    pub(crate) fn new(
        layout: &Layout,
        catalog: &Catalog,
        time: Option<TimeFormat>,
    ) -> Result<Self, SinkError> {
        let typed = time != Some(TimeFormat::Ns);
        let mut files: HashMap<String, HashMap<String, _>> = HashMap::new();
        for module in &catalog.modules {
            for table in &module.manifest.tables {
                let out = layout.open(&module.name, &table.name)?;
                let path = out.path().to_owned();
                let schema = arrow_schema(module, table);
                let schema = if typed { typed::schema(&schema) } else { schema };
                let properties = WriterProperties::builder()
                    .set_compression(Compression::ZSTD(ZstdLevel::default()))
                    .set_max_row_group_row_count(Some(ROW_GROUP))
                    .set_created_by(concat!("flame ", env!("CARGO_PKG_VERSION")).to_owned())
                    .set_key_value_metadata(Some(key_values(&schema)))
                    .build();
                let writer =
                    ArrowWriter::try_new(out, schema, Some(properties)).map_err(|e| error(&path, e))?;
                files.entry(module.name.clone()).or_default().insert(table.name.clone(), writer);
            }
        }
        Ok(Self { files, typed })
    }
}

/// Returns the metadata of the Arrow schema, for readers that do not decode it, sorted so that files are
/// reproducible.
fn key_values(schema: &arrow_schema::Schema) -> Vec<KeyValue> {
    let table = schema.metadata().iter().map(|(k, v)| KeyValue::new(k.clone(), v.clone()));
    let units = schema.fields().iter().filter_map(|f| {
        let unit = f.metadata().get("unit")?;
        Some(KeyValue::new(format!("flame.unit.{}", f.name()), unit.clone()))
    });
    let mut all: Vec<KeyValue> = table.chain(units).collect();
    all.sort_by(|a, b| a.key.cmp(&b.key));
    all
}

fn error(path: &Path, source: ParquetError) -> SinkError {
    SinkError::Parquet { path: path.to_owned(), source }
}

/// Returns the error of a file in writing: that of the system, if there is one.
fn failed(writer: &ArrowWriter<Out>, source: ParquetError) -> SinkError {
    match source {
        ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(io) => writer.inner().error(*io),
            Err(inner) => error(writer.inner().path(), ParquetError::External(inner)),
        },
        source => error(writer.inner().path(), source),
    }
}

impl Sink for ParquetSink {
    fn write(&mut self, module: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
        let Some(writer) = self.files.get_mut(module).and_then(|t| t.get_mut(&table.name)) else {
            return Err(SinkError::Unplanned { module: module.to_owned(), table: table.name.clone() });
        };
        let batch = if self.typed { typed::batch(batch) } else { readable(batch) };
        writer.write(&batch).map_err(|e| failed(writer, e))
    }

    fn size(&self) -> u64 {
        let sizes = self.files.values().flat_map(HashMap::values);
        sizes.map(|w| (w.bytes_written() + w.in_progress_size()) as u64).max().unwrap_or(0)
    }

    fn files(&self) -> Vec<PathBuf> {
        self.files.values().flat_map(HashMap::values).filter_map(|w| w.inner().file()).collect()
    }

    /// Does nothing: a Parquet file cannot be read before its end.
    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    /// Writes the index, so that the partial files can be read.
    fn abandon(&mut self) -> Result<Vec<PathBuf>, SinkError> {
        let mut files = Vec::new();
        for writer in self.files.values_mut().flat_map(HashMap::values_mut) {
            writer.finish().map_err(|e| failed(writer, e))?;
            files.extend(writer.inner_mut().abandon()?);
        }
        Ok(files)
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        for mut writer in self.files.into_values().flat_map(HashMap::into_values) {
            writer.finish().map_err(|e| failed(&writer, e))?;
            writer.inner_mut().complete()?;
        }
        Ok(())
    }
}
