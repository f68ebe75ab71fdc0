//! ecs: writes flows in the Elastic Common Schema, one JSON object per line.
//!
//! Usage:    --format ecs, -o FILE (default: standard output)
//! Expects:  a module with a table of flows, such as flow. Other tables are not written; a run without such a
//!           module is an error.
//! Gives:    @timestamp, event.start and event.end in RFC 3339 to the nanosecond, event.duration in
//!           nanoseconds; source, destination and network with addresses, ports, packets, bytes (on the wire,
//!           with the link header), network.transport, network.type, network.community_id. Fields that the
//!           schema lacks are in flame: TCP flags, type and code of ICMP, the reason of the end.
//! Example:  flame run flow -r FILE --format ecs | jq .network.community_id
//! Related:  json, zeek, flow (module)

use super::out::Out;
use super::{Format, Sink, SinkError};
use crate::derive::flow::{self, Address, Flow, Letters};
use crate::derive::holds_flows;
use crate::escape;
use arrow_array::RecordBatch;
use arrow_array::temporal_conversions::timestamp_ns_to_datetime;
use flame_abi::manifest::Table;
use flame_plan::Catalog;
use serde_json::{Value, json};
use std::io::Write;
use std::net::IpAddr;

/// The version of the schema whose names are used.
const VERSION: &str = "8.11.0";

pub(crate) struct EcsSink {
    out: Out,
    lines: Vec<u8>,
}

impl EcsSink {
    /// Creates the sink. Fails if no module has flows.
    pub(crate) fn new(out: Out, catalog: &Catalog) -> Result<Self, SinkError> {
        if !catalog.modules.iter().flat_map(|m| &m.manifest.tables).any(holds_flows) {
            return Err(SinkError::NoFlows { format: Format::Ecs.name() });
        }
        Ok(Self { out, lines: Vec::new() })
    }
}

impl Sink for EcsSink {
    fn write(&mut self, module: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
        if !holds_flows(table) {
            return Ok(());
        }
        for flow in flow::rows(batch) {
            // Writing to a vector cannot fail.
            let _ = writeln!(self.lines, "{}", escape::json(&event(module, &flow).to_string()));
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

fn time(ns: u64) -> Value {
    let time = i64::try_from(ns).ok().and_then(timestamp_ns_to_datetime);
    time.map_or(Value::Null, |t| t.format("%Y-%m-%dT%H:%M:%S%.9fZ").to_string().into())
}

fn event(module: &str, flow: &Flow<'_>) -> Value {
    let transport = match flow.proto {
        1 => "icmp".to_owned(),
        58 => "ipv6-icmp".to_owned(),
        proto => crate::protocols::name(proto.into()).to_lowercase(),
    };
    let kind = match flow.src.ip() {
        Some(IpAddr::V4(_)) => Some("ipv4"),
        Some(IpAddr::V6(_)) => Some("ipv6"),
        None => None,
    };
    let side = |address: Address<'_>, port: u16, packets: u64, bytes: u64| {
        let mut text = Vec::new();
        address.write(&mut text);
        let ip = String::from_utf8(text).unwrap_or_default();
        let mut side = json!({ "address": ip, "ip": ip, "packets": packets, "bytes": bytes });
        if flow.has_ports() {
            side["port"] = port.into();
        }
        side
    };
    let mut event = json!({
        "@timestamp": time(flow.first_ns),
        "ecs": { "version": VERSION },
        "event": {
            "kind": "event", "category": ["network"], "type": ["connection", "end"], "module": "flame",
            "dataset": format!("flame.{module}"), "start": time(flow.first_ns), "end": time(flow.last_ns),
            "duration": flow.duration_ns(),
        },
        "source": side(flow.src, flow.sport, flow.packets_fwd, flow.bytes_fwd),
        "destination": side(flow.dst, flow.dport, flow.packets_rev, flow.bytes_rev),
        "network": {
            "transport": transport, "iana_number": flow.proto.to_string(),
            "packets": flow.packets_fwd.saturating_add(flow.packets_rev),
            "bytes": flow.bytes_fwd.saturating_add(flow.bytes_rev),
        },
        "flame": { "end": flow.end },
    });
    if let Some(kind) = kind {
        event["network"]["type"] = kind.into();
    }
    if flow.vlan != 0 {
        event["network"]["vlan"] = json!({ "id": flow.vlan.to_string() });
    }
    if flow.inner_vlan != 0 {
        event["network"]["inner"] = json!({ "vlan": { "id": flow.inner_vlan.to_string() } });
    }
    if let Some(id) = flow.community_id() {
        event["network"]["community_id"] = id.as_str().into();
    }
    if flow.proto == 6 {
        let letters = |flags| flow.letters(flags).as_ref().map_or("", Letters::as_str).to_owned();
        event["flame"]["tcp_flags"] =
            json!({ "source": letters(flow.tcp_flags_fwd), "destination": letters(flow.tcp_flags_rev) });
    }
    if flow.unknown_ports {
        event["flame"]["unknown_ports"] = true.into();
    }
    if flow.is_icmp() {
        event["flame"]["icmp"] = json!({ "type": flow.icmp_type, "code": flow.icmp_code });
    }
    event
}
