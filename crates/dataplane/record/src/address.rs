//! Addresses of rows: 17 bytes, the version of IP and the address, until a sink writes them.

use crate::number;
use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, FixedSizeBinaryArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The bytes of an address in a row: 4 or 6, then the address, with zeros after one of IPv4.
pub(crate) const WIDTH: usize = 17;

/// The type of a column of addresses in batches of [`crate::Rows`].
pub(crate) const TYPE: DataType = DataType::FixedSizeBinary(WIDTH as i32);

/// Returns the address in `bytes`. Missing bytes are zeros.
pub(crate) fn of(bytes: &[u8]) -> IpAddr {
    match bytes {
        [6, rest @ ..] => {
            let octets = rest.first_chunk::<16>().copied().unwrap_or_default();
            IpAddr::V6(Ipv6Addr::from(octets))
        }
        [_, a, b, c, d, ..] => IpAddr::V4(Ipv4Addr::new(*a, *b, *c, *d)),
        _ => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    }
}

/// Returns a column with its addresses as text, if it has addresses of [`crate::Rows`].
fn text(array: &ArrayRef) -> Option<ArrayRef> {
    let addresses: &FixedSizeBinaryArray =
        array.as_fixed_size_binary_opt().filter(|_| *array.data_type() == TYPE)?;
    let mut texts = StringBuilder::with_capacity(addresses.len(), addresses.len() * 16);
    let mut line = Vec::with_capacity(64);
    for bytes in addresses.iter() {
        line.clear();
        number::address(&mut line, of(bytes.unwrap_or_default()));
        texts.append_value(str::from_utf8(&line).unwrap_or_default());
    }
    Some(Arc::new(texts.finish()))
}

/// Returns the column as text if it has addresses, or else as it is.
pub(crate) fn readable_column(array: &ArrayRef) -> ArrayRef {
    text(array).unwrap_or_else(|| array.clone())
}

/// Returns the field of a column of text if it has addresses, or else as it is.
pub(crate) fn readable_field(field: &Arc<Field>) -> Arc<Field> {
    match *field.data_type() == TYPE {
        true => Arc::new(Field::clone(field).with_data_type(DataType::Utf8)),
        false => field.clone(),
    }
}

/// Returns a schema with other fields.
pub(crate) fn with_fields(schema: &Schema, field: impl Fn(&Arc<Field>) -> Arc<Field>) -> SchemaRef {
    let fields: Vec<_> = schema.fields().iter().map(field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// Returns a batch of [`crate::Rows`] with addresses as text, as readers of other programs expect them. Sinks
/// of this crate write the text themselves.
pub fn readable(batch: &RecordBatch) -> RecordBatch {
    let old = batch.schema_ref();
    if old.fields().iter().all(|field| *field.data_type() != TYPE) {
        return batch.clone();
    }
    let columns = batch.columns().iter().map(readable_column).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let new = with_fields(old, readable_field);
    // Each column of texts is as long as its addresses.
    RecordBatch::try_new_with_options(new, columns, &options).unwrap_or_else(|_| batch.clone())
}
