//! eve: writes alerts as EVE, the JSON of Suricata, one event per line.
//!
//! Usage:    --format eve, -o FILE (default: standard output)
//! Expects:  a module with a table alert of the columns of ids: ts_ns gid sid rev msg class priority proto
//!           src sport dst dport flow; and, if there are these: packet icmp_type icmp_code app metadata
//!           target payload. Other tables are not written; a run without such a module is an error.
//! Gives:    events of type alert, as Suricata writes them: proto by name, icmp_type and icmp_code in place
//!           of ports, pcap_cnt, app_proto, metadata, payload (--set ids.payload=true), community_id. flow_id
//!           identifies the flow during one capture.
//! Example:  flame run ids -r FILE --expose all --format eve
//! Related:  ids (module), json

use super::out::Out;
use super::{Sink, SinkError};
use crate::cell::{Cell, Cells, cells};
use crate::{community, protocols};
use arrow_array::RecordBatch;
use arrow_array::temporal_conversions::timestamp_ns_to_datetime;
use flame_abi::manifest::Table;
use flame_plan::Catalog;
use serde_json::{Map, Value, json};
use std::io::Write;

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
        let row = Row { columns: cells(batch)?.into(), batch, row: 0 };
        for row in (0..batch.num_rows()).map(|number| Row { row: number, ..row.clone() }) {
            // Writing to a vector cannot fail.
            let _ = writeln!(self.lines, "{}", crate::escape::json(&row.event().to_string()));
        }
        self.out.write(&self.lines)?;
        self.lines.clear();
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        self.out.finish()
    }

    one_output!();
}

/// Formats a time in UTC, to the microsecond.
fn timestamp(ns: u64) -> String {
    let time = i64::try_from(ns).ok().and_then(timestamp_ns_to_datetime);
    time.map_or(String::new(), |t| t.format("%Y-%m-%dT%H:%M:%S%.6f+0000").to_string())
}

/// A row of alerts.
#[derive(Clone)]
struct Row<'a> {
    columns: std::rc::Rc<[Cells<'a>]>,
    batch: &'a RecordBatch,
    row: usize,
}

impl Row<'_> {
    fn cell(&self, column: &str) -> Option<Cell<'_>> {
        let at = self.batch.schema_ref().index_of(column).ok()?;
        self.columns.get(at).map(|cells| cells.get(self.row))
    }

    fn number(&self, column: &str) -> u64 {
        if let Some(Cell::Unsigned(n)) = self.cell(column) { n } else { 0 }
    }

    fn text(&self, column: &str) -> &str {
        if let Some(Cell::Text(text)) = self.cell(column) { text } else { "" }
    }

    fn event(&self) -> Value {
        let (n, t) = (|column: &str| self.number(column), |column: &str| self.text(column));
        let mut event = Map::new();
        let mut put = |key: &str, value: Value| drop(event.insert(key.to_owned(), value));
        put("timestamp", timestamp(n("ts_ns")).into());
        put("flow_id", n("flow").into());
        if n("packet") > 0 {
            put("pcap_cnt", n("packet").into());
        }
        put("event_type", "alert".into());
        let proto = n("proto");
        let has_icmp = matches!(proto, 1 | 58) && self.cell("icmp_type").is_some();
        let has_ports = matches!(proto, 6 | 17 | 132);
        put("src_ip", t("src").into());
        put("dest_ip", t("dst").into());
        if has_ports {
            put("src_port", n("sport").into());
            put("dest_port", n("dport").into());
        } else if has_icmp {
            put("icmp_type", n("icmp_type").into());
            put("icmp_code", n("icmp_code").into());
        }
        put("proto", protocols::name(proto).into());
        let ports = if has_icmp { ("icmp_type", "icmp_code") } else { ("sport", "dport") };
        if let (Ok(src), Ok(dst)) = (t("src").parse(), t("dst").parse()) {
            let ports = (n(ports.0) as u16, n(ports.1) as u16);
            put("community_id", community::id(proto as u8, src, dst, ports).into());
        }
        if !t("app").is_empty() {
            put("app_proto", t("app").into());
        }
        if !t("payload").is_empty() {
            put("payload", t("payload").into());
        }
        put("alert", self.alert(has_ports));
        Value::Object(event)
    }

    fn alert(&self, has_ports: bool) -> Value {
        let (n, t) = (|column: &str| self.number(column), |column: &str| self.text(column));
        let mut alert = json!({
            "action": "allowed", "gid": n("gid"), "signature_id": n("sid"), "rev": n("rev"),
            "signature": t("msg"), "category": t("class"), "severity": n("priority"),
        });
        let end = |ip: &str, port: &str| {
            let mut end = json!({ "ip": t(ip) });
            if has_ports {
                end["port"] = n(port).into();
            }
            end
        };
        let (src, dst) = (end("src", "sport"), end("dst", "dport"));
        match t("target") {
            "src" => (alert["source"], alert["target"]) = (dst, src),
            "dst" => (alert["source"], alert["target"]) = (src, dst),
            _ => {}
        }
        let mut metadata: Map<String, Value> = Map::new();
        for part in t("metadata").split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
            let values = metadata.entry(key).or_insert_with(|| json!([]));
            if let Some(values) = values.as_array_mut() {
                values.push(value.trim().into());
            }
        }
        if !metadata.is_empty() {
            alert["metadata"] = Value::Object(metadata);
        }
        alert
    }
}
