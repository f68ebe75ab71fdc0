//! Rules as text and as values. [`parse`] is the only entry point for a rule file.
//!
//! A line that is not a rule of the language is a [`Fault`]. A valid rule with options that this module does
//! not support is listed in [`RuleSet::unsupported`].

pub mod address;
pub mod bits;
pub mod class;
pub mod content;
pub mod fault;
pub mod header;
pub mod list;
mod options;
pub mod pcre;
pub mod port;
pub mod range;
pub mod rate;
pub mod set;
mod text;
mod vars;
mod words;

pub use fault::Fault;
pub use header::{Header, Proto};

use fault::{Wrong, wrong};
use std::collections::BTreeMap;
use text::Piece;

/// The largest number of rules in one file.
pub const MAX_RULES: usize = 16_384;

#[derive(Clone, Debug)]
pub struct Rule {
    /// The line of the rule, from 1.
    pub line: u32,
    pub header: Header,
    pub msg: String,
    pub sid: u32,
    pub gid: u32,
    pub rev: u32,
    /// The description of the class if the file has one, otherwise its name.
    pub class: String,
    pub priority: u8,
    pub references: Vec<String>,
    pub checks: Vec<Check>,
    pub flow: Flow,
    /// The required contents of the payload, in order.
    pub steps: Vec<Step>,
    pub rate: Option<rate::Rate>,
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
    Tos,
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Content(content::Content),
    Pcre(pcre::Pcre),
    /// A condition that byte `at` exists (`isdataat`).
    Data {
        at: u32,
        relative: bool,
        not: bool,
    },
}

/// A rule that is not supported, or a line of another kind (then `sid` is 0).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    pub sid: u32,
    pub line: u32,
    pub reason: String,
}

#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    pub rules: Vec<Rule>,
    pub unsupported: Vec<Unsupported>,
}

#[derive(Default)]
struct Options {
    msg: Option<String>,
    sid: Option<u32>,
    gid: Option<u32>,
    rev: Option<u32>,
    class: Option<String>,
    priority: Option<u8>,
    references: Vec<String>,
    checks: Vec<Check>,
    flow: Flow,
    steps: Vec<Step>,
    rate: Option<rate::Rate>,
}

/// Parses a rule file.
pub fn parse(text: &str) -> Result<RuleSet, Fault> {
    let mut reader = Reader {
        vars: vars::Variables::default(),
        classes: class::Classes::default(),
        seen: BTreeMap::new(),
        set: RuleSet::default(),
    };
    let mut number = 1;
    let mut rest = Piece::new(text, 0);
    while !rest.is_empty() {
        let end = line_end(rest.text);
        let line = rest.to(end);
        reader.line(line, number).map_err(|w| w.in_text(text))?;
        number += line.text.bytes().filter(|b| *b == b'\n').count() as u32;
        rest = rest.from(end);
    }
    Ok(reader.set)
}

/// Returns the offset after the newline that ends this line: the first without a backslash before it.
/// Comments cannot be continued.
fn line_end(text: &str) -> usize {
    let comment = text.trim_start_matches([' ', '\t']).starts_with('#');
    let mut from = 0;
    while let Some(i) = text[from..].find('\n') {
        let newline = from + i;
        from = newline + 1;
        if comment || !text[..newline].trim_end_matches('\r').ends_with('\\') {
            return from;
        }
    }
    text.len()
}

struct Reader {
    vars: vars::Variables,
    classes: class::Classes,
    /// The lines of the rules so far, by gid and sid.
    seen: BTreeMap<(u32, u32), u32>,
    set: RuleSet,
}

impl Reader {
    fn line(&mut self, line: Piece<'_>, number: u32) -> Result<(), Wrong> {
        let line = line.trim();
        if line.is_empty() || line.text.starts_with('#') {
            return Ok(());
        }
        let (word, rest) = line.word(&[':', '(']);
        match word.text {
            "var" | "ipvar" | "portvar" => self.vars.define(word.text, rest),
            "config" if rest.trim().text.starts_with("classification") => {
                let value = rest.trim().from("classification".len()).trim();
                match value.strip(":") {
                    Some(value) => self.classes.define(value.trim()),
                    None => wrong(value.at, "`:`"),
                }
            }
            "include"
            | "config"
            | "preprocessor"
            | "output"
            | "dynamicpreprocessor"
            | "dynamicengine"
            | "event_filter"
            | "rate_filter"
            | "threshold"
            | "suppress"
            | "ruletype" => {
                let reason = format!("line of kind {}", word.text);
                self.set.unsupported.push(Unsupported { sid: 0, line: number, reason });
                Ok(())
            }
            action if header::is_action(action) => self.rule(line, number),
            _ => wrong(word.at, "a rule (alert …), var, ipvar, portvar, config classification or a comment"),
        }
    }

    fn rule(&mut self, line: Piece<'_>, number: u32) -> Result<(), Wrong> {
        let mut reasons = Vec::new();
        let (header, rest) = header::read(line, &self.vars, &mut reasons)?;
        let Some(inside) = rest.strip("(") else { return wrong(rest.at, "`(`") };
        let o = options::read(inside, &header, &mut reasons)?;
        let Some(sid) = o.sid else { return wrong(line.end() - 1, "an option sid before this parenthesis") };
        let gid = o.gid.unwrap_or(1);
        if let Some(first) = self.seen.insert((gid, sid), number) {
            return wrong(line.at, format!("another sid: {sid} is that of line {first}"));
        }
        if !reasons.is_empty() {
            self.set.unsupported.push(Unsupported { sid, line: number, reason: reasons.join("; ") });
            return Ok(());
        }
        if self.set.rules.len() == MAX_RULES {
            return wrong(line.at, format!("at most {MAX_RULES} rules"));
        }
        let mut fast = o.steps.iter().filter_map(|s| match s {
            Step::Content(c) if c.fast.is_some() => Some(c.at),
            _ => None,
        });
        if let (Some(_), Some(at)) = (fast.next(), fast.next()) {
            return wrong(at, "fast_pattern at one content of a rule only");
        }
        let (class, priority) = match &o.class {
            Some(name) => self.classes.find(name),
            None => (String::new(), class::DEFAULT),
        };
        self.set.rules.push(Rule {
            line: number,
            header,
            msg: o.msg.unwrap_or_default(),
            sid,
            gid,
            rev: o.rev.unwrap_or(1),
            class,
            priority: o.priority.unwrap_or(priority),
            references: o.references,
            checks: o.checks,
            flow: o.flow,
            steps: o.steps,
            rate: o.rate,
        });
        Ok(())
    }
}
