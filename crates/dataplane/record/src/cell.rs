//! Access to single values of a batch, for the sinks that write text.

use crate::address;
use crate::sink::SinkError;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, BooleanArray, FixedSizeBinaryArray, RecordBatch, StringArray};
use arrow_schema::DataType;
use std::net::IpAddr;

/// A column of a batch.
pub(crate) struct Cells<'a> {
    values: Values<'a>,
    /// Whether each value is there, if some are null.
    present: Option<BooleanArray>,
}

enum Values<'a> {
    Bool(&'a BooleanArray),
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
    U64(&'a [u64]),
    I64(&'a [i64]),
    F64(&'a [f64]),
    Address(&'a FixedSizeBinaryArray),
    Text(&'a StringArray),
    Words(&'a [u8], &'a StringArray),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Cell<'a> {
    /// The row has no such value, see [`crate::derive::absent`].
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Address(IpAddr),
    Text(&'a str),
}

/// Returns the columns of a batch built by [`crate::Rows`]. Any other type is an error.
pub(crate) fn cells(batch: &RecordBatch) -> Result<Vec<Cells<'_>>, SinkError> {
    let columns = batch.columns().iter().zip(batch.schema_ref().fields());
    columns
        .map(|(array, field)| {
            let found = || field.data_type().to_string();
            open(array).ok_or_else(|| SinkError::Type { column: field.name().clone(), found: found() })
        })
        .collect()
}

/// Returns the values of a text column; none if there is no such column.
pub fn texts<'a>(batch: &'a RecordBatch, column: &str) -> Vec<&'a str> {
    let found = batch.column_by_name(column).and_then(open);
    let text = |cells: &Cells<'a>, row| match cells.get(row) {
        Cell::Text(text) => Some(text),
        _ => None,
    };
    found.map_or_else(Vec::new, |cells| (0..batch.num_rows()).filter_map(|row| text(&cells, row)).collect())
}

pub(crate) fn open(array: &std::sync::Arc<dyn Array>) -> Option<Cells<'_>> {
    let values = match array.data_type() {
        DataType::Boolean => Values::Bool(array.as_boolean_opt()?),
        DataType::UInt8 => Values::U8(array.as_primitive_opt::<UInt8Type>()?.values()),
        DataType::UInt16 => Values::U16(array.as_primitive_opt::<UInt16Type>()?.values()),
        DataType::UInt32 => Values::U32(array.as_primitive_opt::<UInt32Type>()?.values()),
        DataType::UInt64 => Values::U64(array.as_primitive_opt::<UInt64Type>()?.values()),
        DataType::Int64 => Values::I64(array.as_primitive_opt::<Int64Type>()?.values()),
        DataType::Float64 => Values::F64(array.as_primitive_opt::<Float64Type>()?.values()),
        kind if *kind == address::TYPE => Values::Address(array.as_fixed_size_binary_opt()?),
        DataType::Utf8 => Values::Text(array.as_string_opt()?),
        DataType::Dictionary(..) => {
            let words = array.as_dictionary_opt::<UInt8Type>()?;
            Values::Words(words.keys().values(), words.values().as_string_opt()?)
        }
        _ => return None,
    };
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    let present = nulls.map(|nulls| BooleanArray::new(nulls.inner().clone(), None));
    Some(Cells { values, present })
}

impl<'a> Cells<'a> {
    /// Returns the value of `row`, which must be less than the batch's number of rows.
    #[inline]
    pub(crate) fn get(&self, row: usize) -> Cell<'a> {
        if self.present.as_ref().is_some_and(|present| !present.value(row)) {
            return Cell::Null;
        }
        match self.values {
            Values::Bool(a) => Cell::Bool(a.value(row)),
            Values::U8(v) => Cell::Unsigned(v[row].into()),
            Values::U16(v) => Cell::Unsigned(v[row].into()),
            Values::U32(v) => Cell::Unsigned(v[row].into()),
            Values::U64(v) => Cell::Unsigned(v[row]),
            Values::I64(v) => Cell::Signed(v[row]),
            Values::F64(v) => Cell::Float(v[row]),
            Values::Address(a) => Cell::Address(address::of(a.value(row))),
            Values::Text(a) => Cell::Text(a.value(row)),
            Values::Words(keys, words) => Cell::Text(words.value(keys[row].into())),
        }
    }
}
