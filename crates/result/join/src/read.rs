//! One monitor's records, line by line.

use serde::Deserialize;
use std::io::BufRead;

/// A selected packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    pub ts_ns: u64,
    pub flow: u64,
    pub label: u32,
    pub wire_len: u32,
}

/// What a flow's number stands for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Flow {
    pub flow: u64,
    pub proto: u8,
    pub src: String,
    pub sport: u16,
    pub dst: String,
    pub dport: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    Log(Log),
    Flow(Flow),
    /// A record of another table or module.
    Other,
}

/// What is wrong with a monitor's records, and where.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{name}: {error}")]
    Io { name: String, error: std::io::Error },
    #[error(
        "{name}, line {line}: {reason}; expected records of the module trajectory as `--format json` writes them"
    )]
    Line { name: String, line: u64, reason: String },
    #[error("{name}: more than {most} bytes in line {line}")]
    Long { name: String, line: u64, most: usize },
}

/// Bytes of a line, at most.
const MOST: usize = 64 << 10;

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    module: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    table: Option<std::borrow::Cow<'a, str>>,
    ts_ns: Option<u64>,
    flow: Option<u64>,
    label: Option<u32>,
    wire_len: Option<u32>,
}

/// One line of JSON.
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
        _ => Ok(Line::Other),
    }
}

/// Reads one monitor's lines in turn.
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

    /// The next line with something on it; nothing at the end.
    pub fn next(&mut self) -> Result<Option<Line>, ReadError> {
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
