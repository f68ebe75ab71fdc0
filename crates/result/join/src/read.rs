//! One monitor's records: JSON lines, and logs in order of time.

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Formatter;
use std::io::BufRead;

/// A selected packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Log {
    pub ts_ns: u64,
    pub flow: u64,
    pub label: u32,
    pub wire_len: u32,
}

/// The flow that a number identifies.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Flow {
    pub flow: u64,
    pub proto: u8,
    pub src: String,
    /// The ports, 0 if the protocol has none.
    #[serde(deserialize_with = "or_zero")]
    pub sport: u16,
    pub dst: String,
    #[serde(deserialize_with = "or_zero")]
    pub dport: u16,
}

/// The parameters that must be equal at all monitors, so that they select the same packets.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Setting {
    /// The time of the monitor's first packet.
    #[serde(deserialize_with = "time")]
    pub ts_ns: u64,
    pub hash: String,
    pub sampling: f64,
    pub payload: u32,
    pub seeds: u32,
}

impl Setting {
    /// Returns a description of the first difference, if there is one.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let payload = |s: &Self| format!("{} bytes", s.payload);
        let pairs = [
            ("hash", self.hash.clone(), other.hash.clone()),
            ("sampling", self.sampling.to_string(), other.sampling.to_string()),
            ("payload", payload(self), payload(other)),
            ("seed or label_seed", format!("{:08x}", self.seeds), format!("{:08x}", other.seeds)),
        ];
        let differs = pairs.into_iter().find(|(_, a, b)| a != b);
        differs.map(|(what, a, b)| format!("{what} is {a}, and {b}"))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    Log(Log),
    Flow(Flow),
    Setting(Setting),
    /// The end of the records of a monitor (or of one of its workers): the time of its last packet.
    End(u64),
    /// A record of another table or module.
    Other,
}

/// The error in a monitor's records, and its place.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{name}: {error}")]
    Io { name: String, error: std::io::Error },
    #[error(
        "{name}, line {line}: {reason}; expected records of the module trajectory as `--format json` writes them"
    )]
    Line { name: String, line: u64, reason: String },
    #[error(
        "{name}, after row {row}: {reason}; expected a table of the module trajectory as `--format parquet` writes it"
    )]
    Table { name: String, row: u64, reason: String },
    #[error("{name}: more than {most} bytes in line {line}")]
    Long { name: String, line: u64, most: usize },
    #[error(
        "{first} and {name} did not select the same packets: {difference}; run both with the same parameters"
    )]
    Setting { first: String, name: String, difference: String },
    #[error("{name}: {given} monitors; at most {most} can be joined, two are needed")]
    Monitors { name: String, given: usize, most: usize },
}

/// A source of one monitor's records.
pub trait Records {
    /// Returns the next record, or `None` at the end.
    ///
    /// # Errors
    ///
    /// Returns an error with its place if the next record cannot be read, is too long, or lacks a field of
    /// its table.
    fn next(&mut self) -> Result<Option<Line>, ReadError>;
}

impl<T: Records + ?Sized> Records for Box<T> {
    fn next(&mut self) -> Result<Option<Line>, ReadError> {
        (**self).next()
    }
}

/// Maximum length of a line, in bytes.
const MOST: usize = 64 << 10;

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    module: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    table: Option<std::borrow::Cow<'a, str>>,
    #[serde(default, deserialize_with = "optional_time")]
    ts_ns: Option<u64>,
    flow: Option<u64>,
    label: Option<u32>,
    wire_len: Option<u32>,
}

fn or_zero<'de, D: Deserializer<'de>>(value: D) -> Result<u16, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or(0))
}

/// Reads a time of `--time ns` or `--time rfc3339`. Seconds with decimals are refused: as floating-point
/// numbers they are not exact.
fn time<'de, D: Deserializer<'de>>(value: D) -> Result<u64, D::Error> {
    struct Time;

    impl Visitor<'_> for Time {
        type Value = u64;

        fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
            f.write_str("a time in whole nanoseconds since 1970, or of RFC 3339")
        }

        fn visit_u64<E: Error>(self, ns: u64) -> Result<u64, E> {
            Ok(ns)
        }

        fn visit_i64<E: Error>(self, ns: i64) -> Result<u64, E> {
            u64::try_from(ns).map_err(|_| E::invalid_value(Unexpected::Signed(ns), &self))
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
            let time = flame_record::parse_rfc3339(text);
            time.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
        }
    }

    value.deserialize_any(Time)
}

fn optional_time<'de, D: Deserializer<'de>>(value: D) -> Result<Option<u64>, D::Error> {
    time(value).map(Some)
}

/// Parses one line of JSON.
///
/// # Errors
///
/// Returns the reason if the line is no object of JSON, or if a record of the module `trajectory` lacks a
/// field.
pub fn parse(line: &str) -> Result<Line, String> {
    let head: Head<'_> = serde_json::from_str(line).map_err(|e| e.to_string())?;
    let ours = head.module.as_deref().is_some_and(|m| m.split('#').next() == Some("trajectory"));
    match head.table.as_deref() {
        Some("log") if ours => match (head.ts_ns, head.flow, head.label, head.wire_len) {
            (Some(ts_ns), Some(flow), Some(label), Some(wire_len)) => {
                Ok(Line::Log(Log { ts_ns, flow, label, wire_len }))
            }
            _ => Err("a log needs ts_ns, flow, label and wire_len".to_owned()),
        },
        Some("flow") if ours => serde_json::from_str(line).map(Line::Flow).map_err(|e| e.to_string()),
        Some("setting") if ours => serde_json::from_str(line).map(Line::Setting).map_err(|e| e.to_string()),
        Some("state") if ours => head.ts_ns.map(Line::End).ok_or_else(|| "a state needs ts_ns".to_owned()),
        _ => Ok(Line::Other),
    }
}

/// A reader of one monitor's lines.
pub struct Reader<R> {
    name: String,
    input: R,
    line: u64,
    text: Vec<u8>,
}

impl<R: BufRead> Reader<R> {
    pub fn new(name: String, input: R) -> Self {
        Self { name, input, line: 0, text: Vec::new() }
    }
}

impl<R: BufRead> Records for Reader<R> {
    /// Returns the next record, skipping empty lines.
    fn next(&mut self) -> Result<Option<Line>, ReadError> {
        loop {
            self.text.clear();
            self.line += 1;
            let mut limited = std::io::Read::take(&mut self.input, MOST as u64 + 1);
            let read = limited.read_until(b'\n', &mut self.text);
            let n = read.map_err(|error| ReadError::Io { name: self.name.clone(), error })?;
            if n == 0 {
                return Ok(None);
            }
            if n > MOST {
                return Err(ReadError::Long { name: self.name.clone(), line: self.line, most: MOST });
            }
            let fail = |reason| ReadError::Line { name: self.name.clone(), line: self.line, reason };
            let text = std::str::from_utf8(&self.text).map_err(|e| fail(e.to_string()))?.trim();
            if !text.is_empty() {
                return parse(text).map(Some).map_err(fail);
            }
        }
    }
}

/// The number of logs that are read ahead of one monitor. Its workers write in parallel, out of order by up
/// to one second.
const AHEAD: usize = 16_384;

/// One monitor's logs in order of time, as far as [`AHEAD`] reaches.
pub struct Ordered<T> {
    records: T,
    ahead: BinaryHeap<Reverse<Log>>,
    ended: bool,
}

impl<T: Records> Ordered<T> {
    pub fn new(records: T) -> Self {
        Self { records, ahead: BinaryHeap::new(), ended: false }
    }

    /// Returns the next log. `other` receives the records before it that are not logs.
    pub fn next(
        &mut self,
        mut other: impl FnMut(Line) -> Result<(), ReadError>,
    ) -> Result<Option<Log>, ReadError> {
        while !self.ended && self.ahead.len() < AHEAD {
            match self.records.next()? {
                Some(Line::Log(log)) => self.ahead.push(Reverse(log)),
                Some(line) => other(line)?,
                None => self.ended = true,
            }
        }
        Ok(self.ahead.pop().map(|Reverse(log)| log))
    }
}
