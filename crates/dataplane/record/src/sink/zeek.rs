//! zeek: writes flows in the form of Zeek's conn.log.
//!
//! Names:    zeek, zeek-json
//! Usage:    --format zeek for columns separated by tabs, as zeek-cut reads them; --format zeek-json for one
//!           object per line; -o FILE (default: standard output)
//! Expects:  a module with a table of flows, such as flow. Other tables are not written; a run without such a
//!           module is an error.
//! Gives:    ts and duration in seconds, to the microsecond; no duration for one packet. The originator is
//!           the forward side; type and code of ICMP are in the places of the ports. conn_state follows from
//!           the TCP flags of both sides, not from their order: a reset by both counts as the originator's.
//!           uid is a hash of addresses, ports and start. orig_ip_bytes and resp_ip_bytes are bytes without
//!           the link header, with its padding. Not known, and so unset: service, orig_bytes, resp_bytes,
//!           local_orig, local_resp, missed_bytes, history.
//! Example:  flame run flow -r FILE --format zeek | zeek-cut id.orig_h id.resp_h conn_state
//! Related:  json, ecs, flow (module)

use super::out::Out;
use super::{Format, Sink, SinkError};
use crate::derive::flow::{self, Flow};
use crate::derive::holds_flows;
use crate::escape;
use arrow_array::RecordBatch;
use arrow_array::temporal_conversions::timestamp_ns_to_datetime;
use flame_abi::manifest::Table;
use flame_plan::Catalog;
use serde_json::{Map, Value};
use sha1::{Digest, Sha1};
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// The fields with their types.
const FIELDS: [(&str, &str); 25] = [
    ("ts", "time"),
    ("uid", "string"),
    ("id.orig_h", "addr"),
    ("id.orig_p", "port"),
    ("id.resp_h", "addr"),
    ("id.resp_p", "port"),
    ("proto", "enum"),
    ("service", "string"),
    ("duration", "interval"),
    ("orig_bytes", "count"),
    ("resp_bytes", "count"),
    ("conn_state", "string"),
    ("local_orig", "bool"),
    ("local_resp", "bool"),
    ("missed_bytes", "count"),
    ("history", "string"),
    ("orig_pkts", "count"),
    ("orig_ip_bytes", "count"),
    ("resp_pkts", "count"),
    ("resp_ip_bytes", "count"),
    ("tunnel_parents", "set[string]"),
    ("ip_proto", "count"),
    ("community_id", "string"),
    ("vlan", "int"),
    ("inner_vlan", "int"),
];

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;

pub(crate) struct ZeekSink {
    out: Out,
    lines: String,
    is_json: bool,
    /// Whether the lines before the first record are written.
    is_open: bool,
}

impl ZeekSink {
    /// Creates the sink. Fails if no module has flows.
    pub(crate) fn new(out: Out, catalog: &Catalog, format: Format) -> Result<Self, SinkError> {
        if !catalog.modules.iter().flat_map(|m| &m.manifest.tables).any(holds_flows) {
            return Err(SinkError::NoFlows { format: format.name() });
        }
        Ok(Self { out, lines: String::new(), is_json: format == Format::ZeekJson, is_open: false })
    }

    fn open(&mut self) {
        if self.is_json || self.is_open {
            return;
        }
        self.is_open = true;
        let joined = |each: fn(&(&'static str, &'static str)) -> &'static str| {
            FIELDS.iter().map(each).collect::<Vec<_>>().join("\t")
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            self.lines,
            "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n#path\tconn\n\
             #open\t{}\n#fields\t{}\n#types\t{}",
            now(),
            joined(|field| field.0),
            joined(|field| field.1),
        );
    }

    fn write_lines(&mut self) -> Result<(), SinkError> {
        self.out.write(self.lines.as_bytes())?;
        self.lines.clear();
        Ok(())
    }
}

impl Sink for ZeekSink {
    fn write(&mut self, _: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
        if !holds_flows(table) {
            return Ok(());
        }
        self.open();
        for flow in flow::rows(batch) {
            let values = values(&flow);
            if self.is_json {
                let set = FIELDS
                    .iter()
                    .zip(values)
                    .filter_map(|((name, kind), value)| Some(((*name).to_owned(), json(kind, value?))));
                let object = Value::Object(set.collect::<Map<_, _>>());
                self.lines.push_str(&escape::json(&object.to_string()));
            } else {
                let texts: Vec<_> = values.iter().map(|value| value.as_deref().unwrap_or("-")).collect();
                self.lines.push_str(&escape::line(&texts.join("\t")).replace("\\u{9}", "\t"));
            }
            self.lines.push('\n');
        }
        self.write_lines()
    }

    fn finish(mut self: Box<Self>) -> Result<(), SinkError> {
        self.open();
        if !self.is_json {
            let _ = writeln!(self.lines, "#close\t{}", now());
        }
        self.write_lines()?;
        self.out.finish()
    }

    one_output!();
}

/// Returns this machine's time as Zeek writes it.
fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let time = i64::try_from(now).ok().and_then(timestamp_ns_to_datetime);
    time.map_or(String::new(), |t| t.format("%Y-%m-%d-%H-%M-%S").to_string())
}

/// Returns a field in JSON: numbers and times as numbers.
fn json(kind: &str, text: String) -> Value {
    match kind {
        "time" | "interval" | "count" | "int" | "port" => {
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        }
        _ => Value::String(text),
    }
}

/// Returns the fields of a flow, `None` where they are not known.
fn values(flow: &Flow<'_>) -> [Option<String>; FIELDS.len()] {
    let (orig_port, resp_port) = flow.ports();
    let proto = match flow.proto {
        6 => "tcp",
        17 => "udp",
        1 | 58 => "icmp",
        _ => "unknown_transport",
    };
    let is_long = flow.packets_fwd.saturating_add(flow.packets_rev) > 1;
    [
        Some(seconds(flow.first_ns)),
        Some(uid(flow)),
        Some(flow.src.0.to_owned()),
        Some(orig_port.to_string()),
        Some(flow.dst.0.to_owned()),
        Some(resp_port.to_string()),
        Some(proto.to_owned()),
        None,
        is_long.then(|| seconds(flow.last_ns.saturating_sub(flow.first_ns))),
        None,
        None,
        Some(state(flow).to_owned()),
        None,
        None,
        None,
        None,
        Some(flow.packets_fwd.to_string()),
        Some(flow.ip_bytes_fwd.to_string()),
        Some(flow.packets_rev.to_string()),
        Some(flow.ip_bytes_rev.to_string()),
        None,
        Some(flow.proto.to_string()),
        flow.community_id(),
        tag(flow.vlan),
        tag(flow.inner_vlan),
    ]
}

/// Returns the number of a VLAN, if there is one.
fn tag(vlan: u16) -> Option<String> {
    (vlan != 0).then(|| vlan.to_string())
}

/// Formats nanoseconds as seconds, cut to microseconds.
fn seconds(ns: u64) -> String {
    format!("{}.{:06}", ns / 1_000_000_000, ns % 1_000_000_000 / 1000)
}

/// Returns an identifier of a flow record in the form of Zeek's: `C` and 17 letters and digits.
fn uid(flow: &Flow<'_>) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut hash = Sha1::new();
    let (sport, dport) = flow.ports();
    hash.update(format!("{} {sport} {} {dport} {} {}", flow.src.0, flow.dst.0, flow.proto, flow.first_ns));
    if (flow.vlan, flow.vni, flow.mpls) != (0, 0, 0) {
        hash.update(format!(" {} {} {} {}", flow.vlan, flow.inner_vlan, flow.vni, flow.mpls));
    }
    let hash: [u8; 20] = hash.finalize().into();
    let mut number = hash[..16].iter().fold(0u128, |n, byte| n << 8 | u128::from(*byte));
    let mut text = "C".to_owned();
    for _ in 0..17 {
        text.push(DIGITS[(number % 62) as usize] as char);
        number /= 62;
    }
    text
}

/// Returns the state of a connection at its end.
fn state(flow: &Flow<'_>) -> &'static str {
    match flow.proto {
        6 => {}
        17 => {
            return match (flow.packets_fwd > 0, flow.packets_rev > 0) {
                (true, true) => "SF",
                (true, false) => "S0",
                (false, true) => "SHR",
                (false, false) => "OTH",
            };
        }
        _ => return "OTH",
    }
    let orig = |flag: u8| flow.tcp_flags_fwd & flag != 0;
    let resp = |flag: u8| flow.tcp_flags_rev & flag != 0;
    match (orig(SYN), resp(SYN)) {
        (true, true) if orig(RST) => "RSTO",
        (true, true) if resp(RST) => "RSTR",
        (true, true) => match (orig(FIN), resp(FIN)) {
            (true, true) => "SF",
            (true, false) => "S2",
            (false, true) => "S3",
            (false, false) => "S1",
        },
        (true, false) if resp(RST) => "REJ",
        (true, false) if orig(RST) => "RSTOS0",
        (true, false) if orig(FIN) => "SH",
        (true, false) if flow.packets_rev == 0 => "S0",
        (false, true) if resp(RST) => "RSTRH",
        (false, true) if resp(FIN) => "SHR",
        _ => "OTH",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_follow_from_the_flags_of_both_sides() {
        for (fwd, rev, expected) in [
            (SYN, 0, "S0"),
            (SYN, SYN, "S1"),
            (SYN | FIN, SYN | FIN, "SF"),
            (SYN | FIN, SYN, "S2"),
            (SYN, SYN | FIN, "S3"),
            (SYN, RST, "REJ"),
            (SYN | RST, SYN, "RSTO"),
            (SYN, SYN | RST, "RSTR"),
            (SYN | RST, 0, "RSTOS0"),
            (0, SYN | RST, "RSTRH"),
            (SYN | FIN, 0, "SH"),
            (0, SYN | FIN, "SHR"),
            (0, 0, "OTH"),
        ] {
            let packets_rev = u64::from(rev != 0);
            let flow =
                Flow { proto: 6, tcp_flags_fwd: fwd, tcp_flags_rev: rev, packets_rev, ..Flow::default() };
            assert_eq!(state(&flow), expected, "{fwd} {rev}");
        }
    }

    #[test]
    fn identifiers_differ_by_every_part() {
        let flow = Flow { proto: 6, src: ("192.0.2.1", None), sport: 80, ..Flow::default() };
        let others = [
            Flow { proto: 17, ..flow.clone() },
            Flow { src: ("192.0.2.2", None), ..flow.clone() },
            Flow { sport: 81, ..flow.clone() },
            Flow { dport: 80, ..flow.clone() },
            Flow { first_ns: 1, ..flow.clone() },
            Flow { vlan: 1, ..flow.clone() },
        ];
        assert!(others.iter().all(|other| uid(other) != uid(&flow)));
        let text = uid(&flow);
        assert!(
            text.len() == 18 && text.starts_with('C') && text.chars().all(char::is_alphanumeric),
            "{text}"
        );
    }

    #[test]
    fn seconds_keep_microseconds() {
        assert_eq!(seconds(1_700_000_000_123_456_789), "1700000000.123456");
        assert_eq!(seconds(5_000), "0.000005");
    }
}
