//! Rules as text and as values. [`load`] is the only entry point.
//!
//! No line stops another one: what cannot be used is listed in [`RuleSet::unsupported`] with its file, line
//! and reason.

pub mod address;
pub mod bits;
pub mod bytes;
pub mod class;
pub mod content;
pub mod fault;
pub mod header;
pub mod list;
pub mod mark;
pub mod number;
mod options;
pub mod pcre;
pub mod policy;
pub mod port;
mod proto;
pub mod range;
pub mod rate;
mod reader;
pub mod set;
pub mod start;
mod text;
mod vars;
mod words;
mod yaml;

pub use header::{Action, Header, Proto};
pub use reader::{FILE, load, parse};

use number::Num;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The largest number of rules in use.
pub const MAX_RULES: usize = 100_000;
/// The largest number of lines that are listed; more are counted.
pub const MAX_LISTED: usize = 32_768;

/// The engine whose rules these are, where engines differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    #[default]
    Suricata,
    Snort,
}

/// The texts of a rule set.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source<'a> {
    /// Rule files, each preceded by a line [`FILE`] and its name.
    pub rules: &'a str,
    /// Variables: a suricata.yaml, or lines `NAME = VALUE`.
    pub vars: &'a str,
    /// A threshold.config.
    pub thresholds: &'a str,
    pub dialect: Dialect,
    /// Whether a TCP connection whose SYN was not seen has sides and may be established.
    pub midstream: bool,
}

#[derive(Clone, Debug)]
pub struct Rule {
    /// The file of the rule, as an index into [`RuleSet::files`], and the line in it, from 1.
    pub file: u32,
    pub line: u32,
    pub header: Header,
    pub msg: Box<str>,
    pub sid: u32,
    pub gid: u32,
    pub rev: u32,
    /// The description of the class if the file has one, otherwise its name.
    pub class: Arc<str>,
    pub priority: u8,
    pub metadata: Box<str>,
    pub target: Option<Target>,
    pub checks: Box<[Check]>,
    pub flow: Flow,
    /// The contents that the payload and its buffers must have, in order.
    pub parts: Box<[Part]>,
    pub marks: Box<[mark::Mark]>,
    pub rate: Option<rate::Rate>,
    pub suppressed: Box<[Arc<[policy::Suppression]>]>,
    /// Whether a match is no alert (`noalert`).
    pub silent: bool,
}

impl Rule {
    /// Returns all steps of parts on the payload.
    pub fn payload_steps(&self) -> impl DoubleEndedIterator<Item = &Step> + Clone {
        self.parts.iter().filter(|p| p.buffer == Buffer::Payload).flat_map(|p| p.steps.iter())
    }

    /// Returns whether the header is the rule's only condition. In Suricata, such a rule is about
    /// connections: it matches once for each direction, unless a range of addresses or `!` before some is
    /// part of it.
    pub fn is_header_only(&self) -> bool {
        let h = &self.header;
        let marks = self.marks.iter().all(|m| m.action == mark::Action::Set);
        h.app.is_none()
            && self.checks.is_empty()
            && self.parts.is_empty()
            && self.flow == Flow::default()
            && marks
    }

    /// Returns whether the action `pass` takes the packet's connection, and not the packet alone, in
    /// Suricata: if the rule is about connections, a protocol above them, or the stream of TCP.
    pub fn passes_connection(&self) -> bool {
        let is_stream = self.header.proto == Proto::Tcp && self.checks.is_empty();
        self.header.action == Action::Pass
            && (self.is_header_only()
                || self.header.app.is_some()
                || self.parts.iter().any(|p| p.buffer != Buffer::Payload || is_stream))
    }
}

/// A condition on a packet's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    Flags(bits::Bits),
    FragmentBits(bits::Bits),
    SameAddress,
    Number(Field, range::Range),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    PayloadLength,
    Ttl,
    /// The type of service, of IPv4 alone.
    Tos,
    /// The type of service, or the traffic class of IPv6.
    TosOrClass,
    Id,
    FragmentOffset,
    Protocol,
    Sequence,
    Acknowledgement,
    WindowSize,
    IcmpType,
    IcmpCode,
    IcmpId,
    IcmpSequence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    ToServer,
    ToClient,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowState {
    Established,
    NotEstablished,
    Stateless,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    pub side: Option<Side>,
    pub state: Option<FlowState>,
}

impl Flow {
    /// Returns whether the option is a condition on a flow.
    pub fn asks(self) -> bool {
        self.side.is_some() || !matches!(self.state, None | Some(FlowState::Stateless))
    }
}

/// The buffer that a part of a rule examines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    Payload,
    /// The names that a DNS message asks for, each by itself.
    DnsQuery,
    /// The server name of a TLS ClientHello.
    TlsSni,
}

/// A protocol above TCP and UDP that this module recognises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum App {
    Dns,
    Tls,
    Http,
    Ssh,
}

/// The end of a connection that an attack is aimed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Source,
    Destination,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub buffer: Buffer,
    /// Whether a dot precedes the buffer.
    pub dotprefix: bool,
    /// Conditions on the buffer's length (`bsize`).
    pub sizes: Vec<range::Range>,
    pub steps: Vec<Step>,
}

impl Part {
    pub fn new(buffer: Buffer) -> Self {
        Self { buffer, dotprefix: false, sizes: Vec::new(), steps: Vec::new() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Content(content::Content),
    Pcre(pcre::Pcre),
    /// A condition on the bytes that are left (`isdataat`).
    Data {
        at: Num,
        relative: bool,
        not: bool,
    },
    Test(bytes::Test),
    Jump(bytes::Jump),
    Extract(bytes::Extract),
    Math(bytes::Math),
}

/// A line that is not in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The file, as an index into [`RuleSet::files`].
    pub file: u32,
    pub line: u32,
    /// The rule's number, or 0 if the line has none.
    pub sid: u32,
    /// The kind under which the summary counts this.
    pub kind: String,
    pub reason: String,
}

#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    pub rules: Vec<Rule>,
    /// The first [`MAX_LISTED`] of the lines that are not in use.
    pub unsupported: Vec<Unsupported>,
    /// The number of those that are not listed.
    pub unlisted: u64,
    /// The number of rules, in use or not.
    pub total: u64,
    /// The number of rules that are not in use, by kind.
    pub kinds: BTreeMap<String, u64>,
    /// The names of the files; the first is for lines before the first name.
    pub files: Vec<String>,
    pub dialect: Dialect,
    /// Whether a TCP connection whose SYN was not seen has sides and may be established.
    pub midstream: bool,
    /// The work of the start so far.
    pub start: start::Start,
}

impl RuleSet {
    /// Notes that a rule, or another line, cannot be used.
    pub fn refuse(&mut self, is_rule: bool, line: Unsupported) {
        if is_rule {
            // A file of any bytes must not make the summary longer than the list.
            let new = !self.kinds.contains_key(&line.kind);
            let kind = if new && self.kinds.len() > 1000 { "other" } else { &line.kind };
            *self.kinds.entry(kind.to_owned()).or_default() += 1;
        }
        if !self.is_full() {
            self.unsupported.push(line);
        } else {
            self.unlisted += 1;
        }
    }

    /// Returns whether no more lines are listed.
    pub fn is_full(&self) -> bool {
        self.unsupported.len() >= MAX_LISTED
    }

    /// Returns the place of a line for people.
    pub fn place(&self, line: &Unsupported) -> String {
        match self.files.get(line.file as usize).filter(|name| !name.is_empty()) {
            Some(file) => format!("{file}, line {}", line.line),
            None => format!("line {}", line.line),
        }
    }

    /// Returns how many of the rules run and why the others do not, the most frequent reason first.
    pub fn summary(&self, running: usize) -> String {
        const MOST: usize = 12;
        let mut kinds: Vec<_> = self.kinds.iter().collect();
        kinds.sort_by_key(|(kind, count)| (std::cmp::Reverse(**count), *kind));
        let mut text = format!("{} of {} rules run", grouped(running as u64), grouped(self.total));
        for (i, (kind, count)) in kinds.iter().take(MOST).enumerate() {
            text += if i == 0 { "; by reason: " } else { ", " };
            text += &format!("{} {kind}", grouped(**count));
            if *kind == start::BEYOND {
                text += &format!(" ({})", start::REMEDY);
            }
        }
        let rest: u64 = kinds.iter().skip(MOST).map(|(_, count)| **count).sum();
        if rest > 0 {
            text += &format!(", {} for other reasons", grouped(rest));
        }
        text
    }
}

/// Returns a line about `more` lines that are not in use and not listed, if there are any.
pub fn unlisted(more: u64) -> Option<String> {
    let most = grouped(MAX_LISTED as u64);
    let text =
        || format!("{} more lines are not listed; `flame ids check` lists up to {most}", grouped(more));
    (more > 0).then(text)
}

/// Formats a number with commas between groups of three digits.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[derive(Default)]
struct Options {
    msg: Option<String>,
    sid: Option<u32>,
    gid: Option<u32>,
    rev: Option<u32>,
    class: Option<String>,
    priority: Option<u8>,
    metadata: String,
    target: Option<Target>,
    checks: Vec<Check>,
    flow: Flow,
    parts: Vec<Part>,
    marks: Vec<mark::Mark>,
    rate: Option<rate::Rate>,
    silent: bool,
}
