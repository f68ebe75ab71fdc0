//! Rows on their way out of a node, into a file of its fleet.

use crate::rows::is_time;
use crate::typed;
use arrow_array::{ArrayRef, RecordBatch, TimestampNanosecondArray, UInt64Array};
use arrow_array::{cast::AsArray, types::TimestampNanosecondType};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use std::collections::HashMap;
use std::sync::Arc;

/// Rows with typed times and durations, as in Parquet, and further metadata of the table.
pub fn leaving(rows: &RecordBatch, metadata: &[(String, String)]) -> RecordBatch {
    let rows = typed::batch(rows);
    if metadata.is_empty() {
        return rows;
    }
    let schema = rows.schema();
    let all = schema.metadata().clone().into_iter().chain(metadata.iter().cloned()).collect();
    let labelled = Arc::new(Schema::new_with_metadata(schema.fields().clone(), all));
    // Only metadata differ.
    rows.clone().with_schema(labelled).unwrap_or(rows)
}

/// Returns the earliest and the latest time in the first column of times, in nanoseconds since 1970. The rows
/// are those of [`leaving`].
pub fn times(rows: &RecordBatch) -> Option<(u64, u64)> {
    let at = rows.schema_ref().fields().iter().position(|field| is_time(field))?;
    let times = rows.column(at).as_primitive_opt::<TimestampNanosecondType>()?;
    let times = times.iter().flatten().filter_map(|ns| u64::try_from(ns).ok());
    times.fold(None, |all, ns| {
        Some(all.map_or((ns, ns), |(first, last): (u64, u64)| (first.min(ns), last.max(ns))))
    })
}

/// Returns the bytes of the rows, without the rest of the arrays that hold them.
pub fn bytes(rows: &RecordBatch) -> usize {
    let size = |column: &ArrayRef| column.to_data().get_slice_memory_size().unwrap_or(usize::MAX);
    rows.columns().iter().map(size).fold(0, usize::saturating_add)
}

/// Returns a row that states that rows of a module were dropped, at a time in nanoseconds since 1970.
pub fn lost(module: &str, table: &str, at_ns: u64, rows: u64) -> RecordBatch {
    let field = |name: &str, kind: &str, data: DataType| {
        Field::new(name, data, false).with_metadata([("type".to_owned(), kind.to_owned())].into())
    };
    let utc = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
    let fields = vec![field("at_ns", "time", utc), field("rows", "u64", DataType::UInt64)];
    let metadata = [("flame.module", module), ("flame.table", table)];
    let metadata: HashMap<_, _> = metadata.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let schema = Arc::new(Schema::new_with_metadata(fields, metadata));
    let at = TimestampNanosecondArray::from_value(i64::try_from(at_ns).unwrap_or(i64::MAX), 1);
    let columns: Vec<ArrayRef> =
        vec![Arc::new(at.with_timezone("UTC")), Arc::new(UInt64Array::from_value(rows, 1))];
    RecordBatch::try_new(schema.clone(), columns).unwrap_or_else(|_| RecordBatch::new_empty(schema))
}
