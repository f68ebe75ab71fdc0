//! eve: writes alerts as EVE, the JSON of Suricata, one event per line.
//!
//! Usage:    --format eve, -o FILE (default: standard output)
//! Expects:  a module with a table alert of the columns of ids: ts_ns gid sid rev msg class priority proto
//!           src sport dst dport flow. Other tables are not written; a run without such a module is an error.
//! Gives:    events of type alert. flow_id identifies the flow during one capture.
//! Example:  flame run ids -r FILE --expose all --format eve
//! Related:  ids (module), json

use super::out::Out;
use super::{Sink, SinkError};
use crate::cell::{Cell, cells};
use arrow_array::RecordBatch;
use arrow_array::temporal_conversions::timestamp_ns_to_datetime;
use flame_abi::manifest::Table;
use flame_plan::Catalog;
use std::io::Write;
use std::path::PathBuf;

const COLUMNS: [&str; 13] = [
    "ts_ns", "gid", "sid", "rev", "msg", "class", "priority", "proto", "src", "sport", "dst", "dport", "flow",
];

pub(crate) struct EveSink {
    out: Out,
    lines: Vec<u8>,
}

fn holds_alerts(table: &Table) -> bool {
    table.name == "alert" && COLUMNS.iter().all(|c| table.columns.iter().any(|column| column.name == *c))
}

impl EveSink {
    /// Creates the sink. Fails if no module has alerts.
    pub(crate) fn new(out: Out, catalog: &Catalog) -> Result<Self, SinkError> {
        if !catalog.modules.iter().flat_map(|m| &m.manifest.tables).any(holds_alerts) {
            return Err(SinkError::NoAlerts);
        }
        Ok(Self { out, lines: Vec::new() })
    }
}

impl Sink for EveSink {
    fn write(&mut self, _: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
        if !holds_alerts(table) {
            return Ok(());
        }
        let columns = cells(batch)?;
        let at = COLUMNS.map(|c| batch.schema_ref().fields().iter().position(|f| f.name() == c));
        for row in 0..batch.num_rows() {
            let cell = |i: usize| at[i].map_or(Cell::Unsigned(0), |at| columns[at].get(row));
            let number = |i| if let Cell::Unsigned(n) = cell(i) { n } else { 0 };
            let text = |i| if let Cell::Text(text) = cell(i) { text } else { "" };
            let event = serde_json::json!({
                "timestamp": timestamp(number(0)), "event_type": "alert", "flow_id": number(12),
                "src_ip": text(8), "src_port": number(9), "dest_ip": text(10), "dest_port": number(11),
                "proto": protocol(number(7)),
                "alert": {
                    "action": "allowed", "gid": number(1), "signature_id": number(2), "rev": number(3),
                    "signature": text(4), "category": text(5), "severity": number(6),
                },
            });
            // Writing to a vector cannot fail.
            let _ = writeln!(self.lines, "{}", crate::escape::json(&event.to_string()));
        }
        self.out.write(&self.lines)?;
        self.lines.clear();
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.out.flush()
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        self.out.finish()
    }

    fn abandon(&mut self) -> Result<Vec<PathBuf>, SinkError> {
        Ok(self.out.abandon()?.into_iter().collect())
    }

    fn closed(&self) -> bool {
        self.out.closed()
    }
}

/// Formats a time in UTC, to the microsecond.
fn timestamp(ns: u64) -> String {
    let time = i64::try_from(ns).ok().and_then(timestamp_ns_to_datetime);
    time.map_or(String::new(), |t| t.format("%Y-%m-%dT%H:%M:%S%.6f+0000").to_string())
}

/// Returns the name of a protocol in Suricata, or its number.
fn protocol(number: u64) -> String {
    match number {
        1 => "ICMP".into(),
        6 => "TCP".into(),
        17 => "UDP".into(),
        58 => "IPv6-ICMP".into(),
        132 => "SCTP".into(),
        n => format!("{n:03}"),
    }
}
