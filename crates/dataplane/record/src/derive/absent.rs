//! Values that a row does not have: ports of ICMP, TCP flags of UDP, type and code of TCP.
//!
//! A module writes 0 there, because each of its rows has all columns. Where records are written, a 0 in a
//! column of [`PROTOCOLS`] is null if the column `proto` has a protocol without that field. Any other value
//! stays.

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt8Type, UInt16Type};
use arrow_array::{ArrayRef, RecordBatch, UInt8Array, UInt16Array};
use flame_abi::manifest::{Column, ColumnType};
use std::sync::Arc;

/// The columns by name, with the protocols that have them.
const PROTOCOLS: [(&str, &[u8]); 6] = [
    ("sport", &[6, 17, 132]),
    ("dport", &[6, 17, 132]),
    ("icmp_type", &[1, 58]),
    ("icmp_code", &[1, 58]),
    ("tcp_flags_fwd", &[6]),
    ("tcp_flags_rev", &[6]),
];

fn protocols(column: &str) -> Option<&'static [u8]> {
    PROTOCOLS.iter().find(|(name, _)| *name == column).map(|(_, protocols)| *protocols)
}

/// Returns whether a column can have null, in any table.
pub(crate) fn is_optional(column: &Column) -> bool {
    matches!(column.kind, ColumnType::U8 | ColumnType::U16) && protocols(&column.name).is_some()
}

/// Returns the column at a place of a batch, with null in the rows that do not have the value. Returns `None`
/// if there is no such column.
pub(crate) fn column(batch: &RecordBatch, at: usize) -> Option<ArrayRef> {
    let (array, schema) = (batch.columns().get(at)?, batch.schema_ref());
    let having = protocols(schema.field(at).name());
    let protos = batch.column_by_name("proto").and_then(|protos| protos.as_primitive_opt::<UInt8Type>());
    let (Some(having), Some(protos)) = (having, protos) else { return Some(array.clone()) };
    let has = |proto: &u8| having.contains(proto);
    if protos.values().iter().all(has) {
        return Some(array.clone());
    }
    let rows = protos.values().iter().map(has);
    Some(if let Some(numbers) = array.as_primitive_opt::<UInt8Type>() {
        let present = |(n, has): (&u8, bool)| (has || *n != 0).then_some(*n);
        Arc::new(numbers.values().iter().zip(rows).map(present).collect::<UInt8Array>())
    } else if let Some(numbers) = array.as_primitive_opt::<UInt16Type>() {
        let present = |(n, has): (&u16, bool)| (has || *n != 0).then_some(*n);
        Arc::new(numbers.values().iter().zip(rows).map(present).collect::<UInt16Array>())
    } else {
        array.clone()
    })
}
