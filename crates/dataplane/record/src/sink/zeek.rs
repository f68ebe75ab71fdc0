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
use crate::community;
use crate::derive::flow::{self, Address, Flow};
use crate::derive::holds_flows;
use crate::{escape, number};
use arrow_array::RecordBatch;
use arrow_array::temporal_conversions::timestamp_ns_to_datetime;
use flame_abi::manifest::Table;
use flame_plan::Catalog;
use sha1::{Digest, Sha1};
use std::io::Write;
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
    lines: Vec<u8>,
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
        Ok(Self { out, lines: Vec::new(), is_json: format == Format::ZeekJson, is_open: false })
    }

    fn open(&mut self) {
        if self.is_json || self.is_open {
            return;
        }
        self.is_open = true;
        let joined = |each: fn(&(&'static str, &'static str)) -> &'static str| {
            FIELDS.iter().map(each).collect::<Vec<_>>().join("\t")
        };
        // Writing to a vector cannot fail.
        let _ = writeln!(
            self.lines,
            "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n#path\tconn\n\
             #open\t{}\n#fields\t{}\n#types\t{}",
            now(),
            joined(|field| field.0),
            joined(|field| field.1),
        );
    }
}

impl Sink for ZeekSink {
    fn write(&mut self, _: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
        if !holds_flows(table) {
            return Ok(());
        }
        self.open();
        for flow in flow::rows(batch) {
            let fields = fields(&flow);
            if self.is_json {
                write_object(&mut self.lines, &fields)
            } else {
                write_columns(&mut self.lines, &fields)
            }
            self.lines.push(b'\n');
            self.out.take(&mut self.lines)?;
        }
        self.out.take_all(&mut self.lines)
    }

    fn finish(mut self: Box<Self>) -> Result<(), SinkError> {
        self.open();
        if !self.is_json {
            let _ = writeln!(self.lines, "#close\t{}", now());
        }
        self.out.take_all(&mut self.lines)?;
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

/// A field of a line.
enum Field<'a> {
    /// Nanoseconds, written as seconds.
    Seconds(u64),
    Number(u64),
    Text(&'static str),
    Address(Address<'a>),
    Uid([u8; 18]),
    CommunityId(community::Id),
}

impl Field<'_> {
    fn is_number(&self) -> bool {
        matches!(self, Self::Seconds(_) | Self::Number(_))
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Seconds(ns) => seconds(out, *ns),
            Self::Number(n) => number::unsigned(out, *n),
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
            Self::Address(Address::Text(text)) => out.extend_from_slice(escape::line(text).as_bytes()),
            Self::Address(address) => address.write(out),
            Self::Uid(uid) => out.extend_from_slice(uid),
            Self::CommunityId(id) => out.extend_from_slice(id.as_str().as_bytes()),
        }
    }
}

/// Writes fields separated by tabs.
fn write_columns(out: &mut Vec<u8>, fields: &[Option<Field<'_>>]) {
    for (i, field) in fields.iter().enumerate() {
        if i > 0 {
            out.push(b'\t');
        }
        match field {
            Some(field) => field.write(out),
            None => out.push(b'-'),
        }
    }
}

/// Writes the fields that are known as an object in JSON.
fn write_object(out: &mut Vec<u8>, fields: &[Option<Field<'_>>]) {
    let mut before = b'{';
    for ((name, _), field) in FIELDS.iter().zip(fields) {
        let Some(field) = field else { continue };
        out.push(before);
        before = b',';
        escape::write_json(out, name);
        out.push(b':');
        match field {
            Field::Address(Address::Text(text)) => escape::write_json(out, text),
            field if field.is_number() => field.write(out),
            field => {
                out.push(b'"');
                field.write(out);
                out.push(b'"');
            }
        }
    }
    out.push(b'}');
}

/// Returns the fields of a flow, `None` where they are not known.
fn fields<'a>(flow: &Flow<'a>) -> [Option<Field<'a>>; FIELDS.len()] {
    let (orig_port, resp_port) = flow.ports();
    let proto = match flow.proto {
        6 => "tcp",
        17 => "udp",
        1 | 58 => "icmp",
        _ => "unknown_transport",
    };
    let number = |n: u64| Some(Field::Number(n));
    let tag = |vlan: u16| (vlan != 0).then(|| Field::Number(vlan.into()));
    let is_long = flow.packets_fwd.saturating_add(flow.packets_rev) > 1;
    [
        Some(Field::Seconds(flow.first_ns)),
        Some(Field::Uid(uid(flow))),
        Some(Field::Address(flow.src)),
        number(orig_port.into()),
        Some(Field::Address(flow.dst)),
        number(resp_port.into()),
        Some(Field::Text(proto)),
        None,
        is_long.then(|| Field::Seconds(flow.last_ns.saturating_sub(flow.first_ns))),
        None,
        None,
        Some(Field::Text(state(flow))),
        None,
        None,
        None,
        None,
        number(flow.packets_fwd),
        number(flow.ip_bytes_fwd),
        number(flow.packets_rev),
        number(flow.ip_bytes_rev),
        None,
        number(flow.proto.into()),
        flow.community_id().map(Field::CommunityId),
        tag(flow.vlan),
        tag(flow.inner_vlan),
    ]
}

/// Writes nanoseconds as seconds, cut to microseconds.
fn seconds(out: &mut Vec<u8>, ns: u64) {
    number::unsigned(out, ns / 1_000_000_000);
    out.push(b'.');
    number::padded(out, ns % 1_000_000_000 / 1000, 6);
}

/// Returns an identifier of a flow record in the form of Zeek's: `C` and 17 letters and digits.
fn uid(flow: &Flow<'_>) -> [u8; 18] {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    /// The most digits that fit 64 bits: the numbers above need divisions of 128 bits.
    const TOGETHER: u128 = 62u128.pow(10);
    let mut text = Vec::with_capacity(128);
    let (sport, dport) = flow.ports();
    flow.src.write(&mut text);
    let number = |n: u64, text: &mut Vec<u8>| {
        text.push(b' ');
        number::unsigned(text, n);
    };
    number(sport.into(), &mut text);
    text.push(b' ');
    flow.dst.write(&mut text);
    [dport.into(), flow.proto.into(), flow.first_ns].iter().for_each(|n| number(*n, &mut text));
    if (flow.vlan, flow.vni, flow.mpls) != (0, 0, 0) {
        let tags = [flow.vlan.into(), flow.inner_vlan.into(), flow.vni.into(), flow.mpls.into()];
        tags.iter().for_each(|n| number(*n, &mut text));
    }
    let hash: [u8; 20] = Sha1::digest(&text).into();
    let rest = hash[..16].iter().fold(0u128, |n, byte| n << 8 | u128::from(*byte));
    let parts = [(rest % TOGETHER) as u64, (rest / TOGETHER % TOGETHER) as u64];
    let mut uid = [b'C'; 18];
    for (mut part, digits) in parts.into_iter().zip([1..11, 11..18]) {
        for digit in &mut uid[digits] {
            *digit = DIGITS[(part % 62) as usize];
            part /= 62;
        }
    }
    uid
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
        let ip = |last| Address::Ip([192, 0, 2, last].into());
        let flow = Flow { proto: 6, src: ip(1), sport: 80, ..Flow::default() };
        let others = [
            Flow { proto: 17, ..flow.clone() },
            Flow { src: ip(2), ..flow.clone() },
            Flow { sport: 81, ..flow.clone() },
            Flow { dport: 80, ..flow.clone() },
            Flow { first_ns: 1, ..flow.clone() },
            Flow { vlan: 1, ..flow.clone() },
        ];
        assert!(others.iter().all(|other| uid(other) != uid(&flow)));
        // The digits of the first 128 bits of SHA-1 over "192.0.2.1 80  0 6 0", from the lowest.
        assert_eq!(str::from_utf8(&uid(&flow)).unwrap(), "CxbMbnAjrRSl9B1vJ1");
    }

    #[test]
    fn seconds_keep_microseconds() {
        for (ns, expected) in [(1_700_000_000_123_456_789, "1700000000.123456"), (5_000, "0.000005")] {
            let mut out = Vec::new();
            seconds(&mut out, ns);
            assert_eq!(str::from_utf8(&out).unwrap(), expected);
        }
    }
}
