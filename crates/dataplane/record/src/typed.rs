//! Times and durations as the types that Arrow has for them.

use crate::address::{readable, readable_column, readable_field, with_fields};
use crate::rows::{is_duration, is_time};
use arrow_array::{ArrayRef, DurationNanosecondArray, RecordBatch, TimestampNanosecondArray};
use arrow_array::{cast::AsArray, types::Int64Type, types::UInt64Type};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use std::sync::Arc;

/// Returns a schema with typed times and durations, and addresses as text. Times may be null.
pub(crate) fn schema(schema: &Schema) -> SchemaRef {
    with_fields(schema, |field| {
        let utc = || DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
        if is_time(field) {
            Arc::new(Field::clone(field).with_data_type(utc()).with_nullable(true))
        } else if is_duration(field) {
            Arc::new(Field::clone(field).with_data_type(DataType::Duration(TimeUnit::Nanosecond)))
        } else {
            readable_field(field)
        }
    })
}

/// Returns a batch with typed times and durations, and addresses as text. A time that has no timestamp, after
/// 2262, becomes null.
pub(crate) fn batch(batch: &RecordBatch) -> RecordBatch {
    let column = |(field, array): (&Arc<Field>, &ArrayRef)| -> ArrayRef {
        if let Some(times) = array.as_primitive_opt::<UInt64Type>().filter(|_| is_time(field)) {
            let times = times.values().iter().map(|ns| i64::try_from(*ns).ok());
            return Arc::new(times.collect::<TimestampNanosecondArray>().with_timezone("UTC"));
        }
        if let Some(durations) = array.as_primitive_opt::<Int64Type>().filter(|_| is_duration(field)) {
            return Arc::new(DurationNanosecondArray::new(durations.values().clone(), None));
        }
        readable_column(array)
    };
    let old = batch.schema_ref();
    let columns = old.fields().iter().zip(batch.columns()).map(column).collect::<Vec<_>>();
    let typed = schema(old);
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    // A column whose metadata and type disagree was built by hand, and stays as it is.
    RecordBatch::try_new_with_options(typed, columns, &options).unwrap_or_else(|_| readable(batch))
}
