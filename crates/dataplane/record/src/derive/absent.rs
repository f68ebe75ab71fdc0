//! Values that a row does not have: ports of ICMP, TCP flags of UDP, type and code of TCP, the VLAN of a
//! frame without a tag, the time to an answer that did not come.
//!
//! A module writes 0 there, because each of its rows has all columns. Where records are written, a 0 is null
//! in a column that [`rule`] names, in tables with the protocol of IP, and in each column that the manifest
//! states to be optional. Any other value stays.

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, BooleanArray, PrimitiveArray, RecordBatch};
use arrow_schema::Field;
use flame_abi::has_ports;
use flame_abi::manifest::{Column, ColumnType};
use std::sync::Arc;

/// The condition under which a row has the value of a column, other than that it is not 0.
type Rule = fn(proto: u8, unknown_ports: bool) -> bool;

fn rule(column: &str) -> Option<Rule> {
    Some(match column {
        "sport" | "dport" => |proto, unknown_ports| has_ports(proto) && !unknown_ports,
        "icmp_type" | "icmp_code" => |proto, _| matches!(proto, 1 | 58),
        "tcp_flags_fwd" | "tcp_flags_rev" => |proto, _| proto == 6,
        "vlan" | "inner_vlan" | "vni" | "mpls" => |_, _| false,
        _ => return None,
    })
}

/// Returns whether a column can have null, in any table.
pub(crate) fn is_optional(column: &Column) -> bool {
    let ruled = matches!(column.kind, ColumnType::U8 | ColumnType::U16 | ColumnType::U32);
    column.optional || (ruled && rule(&column.name).is_some())
}

/// Returns the column at a place of a batch, with null in the rows that do not have the value. Returns `None`
/// if there is no such column.
pub(crate) fn column(batch: &RecordBatch, at: usize, field: &Field) -> Option<ArrayRef> {
    let array = batch.columns().get(at)?;
    if !field.is_nullable() {
        return Some(array.clone());
    }
    let rule = rule(field.name());
    let protos = batch.column_by_name("proto").and_then(|protos| protos.as_primitive_opt::<UInt8Type>());
    let unknown = batch.column_by_name("unknown_ports").and_then(|unknown| unknown.as_boolean_opt());
    let has = |row: usize| match (rule, protos) {
        (Some(rule), Some(protos)) => {
            rule(protos.value(row), unknown.is_some_and(|unknown| unknown.value(row)))
        }
        (Some(_), None) => true,
        (None, _) => false,
    };
    Some(if (0..batch.num_rows()).all(has) {
        array.clone()
    } else if let Some(numbers) = array.as_primitive_opt::<UInt8Type>() {
        present(numbers, has)
    } else if let Some(numbers) = array.as_primitive_opt::<UInt16Type>() {
        present(numbers, has)
    } else if let Some(numbers) = array.as_primitive_opt::<UInt32Type>() {
        present(numbers, has)
    } else if let Some(numbers) = array.as_primitive_opt::<UInt64Type>() {
        present(numbers, has)
    } else if let Some(numbers) = array.as_primitive_opt::<Int64Type>() {
        present(numbers, has)
    } else {
        array.clone()
    })
}

/// Returns the numbers, with null for a 0 of a row that does not have the value.
fn present<T: ArrowPrimitiveType>(numbers: &PrimitiveArray<T>, has: impl Fn(usize) -> bool) -> ArrayRef
where
    T::Native: Default + PartialEq,
{
    let rows = numbers.values().iter().enumerate();
    let present: Vec<bool> = rows.map(|(row, n)| *n != T::Native::default() || has(row)).collect();
    let present = BooleanArray::from(present).values().clone();
    Arc::new(PrimitiveArray::<T>::new(numbers.values().clone(), Some(present.into())))
}
