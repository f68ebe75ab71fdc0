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
use crate::derive::flow::{self, Address};
use crate::{community, escape, number, protocols};
use arrow_array::RecordBatch;
use flame_abi::manifest::Table;
use flame_plan::Catalog;

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
        let cells = cells(batch)?;
        let columns = Columns::of(batch);
        for row in 0..batch.num_rows() {
            Row { cells: &cells, columns: &columns, row }.write(&mut self.lines);
            self.lines.push(b'\n');
            self.out.take(&mut self.lines)?;
        }
        self.out.take_all(&mut self.lines)
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        self.out.finish()
    }

    one_output!();
}

/// The place of each column in a batch, or `None` if it lacks the column.
struct Columns {
    ts_ns: Option<usize>,
    gid: Option<usize>,
    sid: Option<usize>,
    rev: Option<usize>,
    msg: Option<usize>,
    class: Option<usize>,
    priority: Option<usize>,
    proto: Option<usize>,
    src: Option<usize>,
    sport: Option<usize>,
    dst: Option<usize>,
    dport: Option<usize>,
    flow: Option<usize>,
    packet: Option<usize>,
    icmp_type: Option<usize>,
    icmp_code: Option<usize>,
    app: Option<usize>,
    metadata: Option<usize>,
    target: Option<usize>,
    payload: Option<usize>,
}

impl Columns {
    fn of(batch: &RecordBatch) -> Self {
        let at = |name: &str| batch.schema_ref().index_of(name).ok();
        Self {
            ts_ns: at("ts_ns"),
            gid: at("gid"),
            sid: at("sid"),
            rev: at("rev"),
            msg: at("msg"),
            class: at("class"),
            priority: at("priority"),
            proto: at("proto"),
            src: at("src"),
            sport: at("sport"),
            dst: at("dst"),
            dport: at("dport"),
            flow: at("flow"),
            packet: at("packet"),
            icmp_type: at("icmp_type"),
            icmp_code: at("icmp_code"),
            app: at("app"),
            metadata: at("metadata"),
            target: at("target"),
            payload: at("payload"),
        }
    }
}

/// A row of alerts.
struct Row<'a> {
    cells: &'a [Cells<'a>],
    columns: &'a Columns,
    row: usize,
}

/// Writes a key of an object, after another one.
fn key(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

impl<'a> Row<'a> {
    fn cell(&self, column: Option<usize>) -> Option<Cell<'a>> {
        self.cells.get(column?).map(|cells| cells.get(self.row))
    }

    fn number(&self, column: Option<usize>) -> u64 {
        if let Some(Cell::Unsigned(n)) = self.cell(column) { n } else { 0 }
    }

    fn text(&self, column: Option<usize>) -> &'a str {
        if let Some(Cell::Text(text)) = self.cell(column) { text } else { "" }
    }

    fn address(&self, column: Option<usize>) -> Address<'a> {
        self.cell(column).map_or_else(Address::default, flow::address)
    }

    fn put_number(&self, out: &mut Vec<u8>, name: &str, column: Option<usize>) {
        key(out, name);
        number::unsigned(out, self.number(column));
    }

    /// Writes the event.
    fn write(&self, out: &mut Vec<u8>) {
        let of = self.columns;
        out.extend_from_slice(b"{\"timestamp\":\"");
        let ns = self.number(of.ts_ns);
        // Suricata's times are signed.
        if i64::try_from(ns).is_ok() {
            number::utc(out, ns, 6);
            out.extend_from_slice(b"+0000");
        }
        out.push(b'"');
        self.put_number(out, "flow_id", of.flow);
        if self.number(of.packet) > 0 {
            self.put_number(out, "pcap_cnt", of.packet);
        }
        out.extend_from_slice(b",\"event_type\":\"alert\"");
        let proto = self.number(of.proto);
        let has_icmp = matches!(proto, 1 | 58) && of.icmp_type.is_some();
        let has_ports = matches!(proto, 6 | 17 | 132);
        let (src, dst) = (self.address(of.src), self.address(of.dst));
        key(out, "src_ip");
        write_address(out, src);
        if has_ports {
            self.put_number(out, "src_port", of.sport);
        }
        key(out, "dest_ip");
        write_address(out, dst);
        if has_ports {
            self.put_number(out, "dest_port", of.dport);
        } else if has_icmp {
            self.put_number(out, "icmp_type", of.icmp_type);
            self.put_number(out, "icmp_code", of.icmp_code);
        }
        key(out, "proto");
        escape::write_json(out, &protocols::name(proto));
        let ports = if has_icmp { (of.icmp_type, of.icmp_code) } else { (of.sport, of.dport) };
        if let (Some(src), Some(dst)) = (src.ip(), dst.ip()) {
            let ports = (self.number(ports.0) as u16, self.number(ports.1) as u16);
            key(out, "community_id");
            escape::write_json(out, community::id(proto as u8, src, dst, ports).as_str());
        }
        for (name, column) in [("app_proto", of.app), ("payload", of.payload)] {
            let text = self.text(column);
            if !text.is_empty() {
                key(out, name);
                escape::write_json(out, text);
            }
        }
        key(out, "alert");
        self.write_alert(out, has_ports);
        out.push(b'}');
    }

    fn write_alert(&self, out: &mut Vec<u8>, has_ports: bool) {
        let of = self.columns;
        out.extend_from_slice(b"{\"action\":\"allowed\"");
        self.put_number(out, "gid", of.gid);
        self.put_number(out, "signature_id", of.sid);
        self.put_number(out, "rev", of.rev);
        for (name, column) in [("signature", of.msg), ("category", of.class)] {
            key(out, name);
            escape::write_json(out, self.text(column));
        }
        self.put_number(out, "severity", of.priority);
        let ends = [(of.src, of.sport), (of.dst, of.dport)];
        let of_target = match self.text(of.target) {
            "src" => Some([ends[1], ends[0]]),
            "dst" => Some(ends),
            _ => None,
        };
        for (name, (ip, port)) in ["source", "target"].into_iter().zip(of_target.into_iter().flatten()) {
            key(out, name);
            out.extend_from_slice(b"{\"ip\":");
            write_address(out, self.address(ip));
            if has_ports {
                self.put_number(out, "port", port);
            }
            out.push(b'}');
        }
        self.write_metadata(out);
        out.push(b'}');
    }

    /// Writes the metadata of a rule: for each key its values, by the order of the keys.
    fn write_metadata(&self, out: &mut Vec<u8>) {
        let text = self.text(self.columns.metadata);
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let mut pairs: Vec<(&str, &str)> =
            parts.map(|part| part.split_once(char::is_whitespace).unwrap_or((part, ""))).collect();
        if pairs.is_empty() {
            return;
        }
        pairs.sort_by_key(|(key, _)| *key);
        key(out, "metadata");
        let mut before = b'{';
        for of_key in pairs.chunk_by(|a, b| a.0 == b.0) {
            out.push(before);
            before = b',';
            escape::write_json(out, of_key[0].0);
            out.extend_from_slice(b":[");
            for (at, (_, value)) in of_key.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                escape::write_json(out, value.trim());
            }
            out.push(b']');
        }
        out.push(b'}');
    }
}

fn write_address(out: &mut Vec<u8>, address: Address<'_>) {
    match address {
        Address::Text(text) => escape::write_json(out, text),
        address => {
            out.push(b'"');
            address.write(out);
            out.push(b'"');
        }
    }
}
