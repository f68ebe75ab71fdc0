//! json: writes one JSON object per record, each in one line.
//!
//! Usage:    --format json, -o FILE (default: standard output)
//! Expects:  records of any table; --table selects some.
//! Gives:    the keys module and table, then the columns. Integers are exact at any size, though readers that
//!           keep numbers as doubles round above 2^53. Numbers that are not finite are null, and so are
//!           ports, TCP flags, type and code of ICMP where the protocol has none. Control characters in text
//!           are escaped. Only whole lines are written. Times are integers, or RFC 3339 with --time rfc3339.
//! Output:   {"module":"port","table":"port","port":80,"packets":12,"wire_bytes":9120}
//! Example:  flame run flow -r FILE --format json -o flows.json
//! Related:  csv, parquet, eve

use super::out::Out;
use super::{Sink, SinkError};
use crate::cell::{Cell, cells};
use crate::escape;
use crate::number;
use crate::rows::is_time;
use crate::time::TimeFormat;
use arrow_array::RecordBatch;
use flame_abi::manifest::Table;

pub(crate) struct JsonSink {
    out: Out,
    lines: Vec<u8>,
    time: TimeFormat,
}

impl JsonSink {
    pub(crate) fn new(out: Out, time: Option<TimeFormat>) -> Self {
        Self { out, lines: Vec::new(), time: time.unwrap_or(TimeFormat::Ns) }
    }
}

/// Names of modules, tables and columns are plain, but a plan may be built by hand.
fn key(name: &str) -> String {
    escape::json(&serde_json::Value::from(name).to_string()).into_owned()
}

impl Sink for JsonSink {
    fn write(&mut self, module: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
        let columns = cells(batch)?;
        let start = format!("{{\"module\":{},\"table\":{}", key(module), key(&table.name));
        let keys: Vec<_> = batch
            .schema_ref()
            .fields()
            .iter()
            .map(|f| (format!(",{}:", key(f.name())), is_time(f)))
            .collect();
        let lines = &mut self.lines;
        for row in 0..batch.num_rows() {
            lines.extend_from_slice(start.as_bytes());
            for ((key, is_time), column) in keys.iter().zip(&columns) {
                lines.extend_from_slice(key.as_bytes());
                match column.get(row) {
                    Cell::Unsigned(ns) if *is_time => self.time.write(lines, ns, "\""),
                    Cell::Unsigned(n) => number::unsigned(lines, n),
                    Cell::Signed(n) => number::signed(lines, n),
                    // Writing to a vector cannot fail, and neither can serializing this type.
                    Cell::Float(x) => drop(serde_json::to_writer(&mut *lines, &x)),
                    Cell::Address(ip) => {
                        lines.push(b'"');
                        number::address(lines, ip);
                        lines.push(b'"');
                    }
                    Cell::Text(s) => escape::write_json(lines, s),
                    Cell::Null => lines.extend_from_slice(b"null"),
                    Cell::Bool(b) => lines.extend_from_slice(if b { b"true" } else { b"false" }),
                }
            }
            lines.extend_from_slice(b"}\n");
            self.out.take(lines)?;
        }
        self.out.take_all(lines)
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        self.out.finish()
    }

    one_output!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_no_error() {
        let mut sink = JsonSink::new(Out::broken(), None);
        assert!(!sink.closed());
        let _ = sink.out.write(b"{}\n");
        sink.flush().unwrap();
        assert!(sink.closed());
        Box::new(sink).finish().unwrap();
    }
}
