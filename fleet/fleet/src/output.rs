//! Results of queries for people and programs.

use crate::Error;
use clap::ValueEnum;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::csv::WriterBuilder;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::json::LineDelimitedWriter;
use datafusion::arrow::util::pretty::pretty_format_batches_with_schema;
use parquet::arrow::ArrowWriter;
use std::fs::File;
use std::io::{ErrorKind, Write, stdout};
use std::path::Path;

/// The form of a result.
#[derive(Clone, Copy, ValueEnum)]
pub enum Format {
    Table,
    /// A line of JSON for each row
    Json,
    Csv,
    Parquet,
}

/// Writes a result to a file, or to standard output.
pub fn write(
    format: Format,
    to: Option<&Path>,
    schema: &SchemaRef,
    batches: &[RecordBatch],
) -> Result<(), Error> {
    let mut out: Box<dyn Write + Send> = match to {
        Some(path) => Box::new(File::create(path).map_err(|e| format!("{}: {e}", path.display()))?),
        None => Box::new(stdout()),
    };
    let mut text = Vec::new();
    match format {
        Format::Table => {
            let table = pretty_format_batches_with_schema(schema.clone(), batches)?;
            writeln!(text, "{table}")?;
        }
        Format::Json => {
            let mut writer = LineDelimitedWriter::new(&mut text);
            writer.write_batches(&batches.iter().collect::<Vec<_>>())?;
            writer.finish()?;
        }
        Format::Csv => {
            let mut writer = WriterBuilder::new().with_header(true).build(&mut text);
            for batch in batches {
                writer.write(batch)?;
            }
        }
        Format::Parquet if to.is_none() => {
            return Err("Parquet needs a file: state one with -o, or choose --format json".into());
        }
        Format::Parquet => {
            let mut writer = ArrowWriter::try_new(&mut text, schema.clone(), None)?;
            for batch in batches {
                writer.write(batch)?;
            }
            writer.close()?;
        }
    }
    match out.write_all(&text).and_then(|()| out.flush()) {
        // A reader that closes the pipe needs no more.
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => Ok(done?),
    }
}
