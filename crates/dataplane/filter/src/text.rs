//! Compiles expressions to classic BPF with libpcap.

use crate::program::MAX_INSTRUCTIONS;
use crate::sets::{Reduced, SEEDS};
use crate::spelled::spelled;
use crate::{FilterError, Instruction, MAX_TEXT, Program, ProgramError};
use flame_abi::LinkType;
use pcap::{Capture, Linktype};
use std::fmt;

impl Program {
    /// Compiles `expr` with libpcap and checks the result. An empty expression does not involve libpcap, so
    /// it is valid for any link type.
    ///
    /// # Errors
    ///
    /// Returns an error if the expression is too long or wrong, does not apply to this link type, or takes
    /// too many instructions.
    pub fn compile(expr: &str, link: LinkType) -> Result<Self, FilterError> {
        compile(expr, link, MAX_INSTRUCTIONS)
    }

    pub(crate) fn compile_within(expr: &str, link: LinkType, most: usize) -> Result<Self, FilterError> {
        compile(expr, link, most)
    }
}

fn compile(text: &str, link: LinkType, most: usize) -> Result<Program, FilterError> {
    let syntax = |message| FilterError::Syntax { expr: excerpt(text), message };
    // libpcap receives only this text, in which there are no names to look up.
    let expr = &flame_plan::normalize_filter(text).map_err(syntax)?;
    if expr.is_empty() {
        return Ok(Program::all());
    }
    let words: Vec<&str> = expr.split(' ').collect();
    let reduced = Reduced::new(&words);
    if reduced.sets.is_empty() {
        return Ok(Text { text, expr, addresses: 0, link, most }.compile(expr)?.0);
    }
    // Faults are reported for the expression with one address of each set.
    let shown = reduced.text(None);
    let of = Text { text, expr: &shown, addresses: reduced.addresses, link, most };
    let [one, other] = SEEDS.map(|seed| of.compile(&reduced.text(Some(seed))));
    let ((program, one), (_, other)) = (one?, other?);
    reduced.put(program, [&one, &other]).ok_or_else(|| FilterError::Internal {
        expr: excerpt(text),
        message: "the comparisons with the addresses of a set were not found".to_owned(),
    })
}

/// An expression that libpcap compiles.
struct Text<'a> {
    /// As it was stated, for messages.
    text: &'a str,
    /// In its normal form.
    expr: &'a str,
    addresses: usize,
    link: LinkType,
    most: usize,
}

impl Text<'_> {
    /// Compiles `expr`, or the same with other addresses.
    fn compile(&self, expr: &str) -> Result<(Program, Vec<Instruction>), FilterError> {
        let &Self { text, link, most, addresses, .. } = self;
        if expr.len() > MAX_TEXT {
            return Err(FilterError::TooLong { found: expr.len(), addresses });
        }
        let syntax = |message| FilterError::Syntax { expr: excerpt(text), message };
        let expr_spelled = spelled(expr).map_err(syntax)?;
        let not_here = |word: Option<&str>, message| {
            let (expr, word) = (self.expr.to_owned(), word.map(str::to_owned));
            FilterError::Link(LinkFault { expr, link, word, message })
        };
        // libpcap reads such bytes of any link header, which are others than the expression means.
        let words: Vec<&str> = expr.split(' ').collect();
        let is_bytes = |pair: &&[&str]| matches!(pair[0], "ether" | "fddi" | "tr") && pair[1] == "[";
        if let Some(pair) = words.windows(2).find(is_bytes).filter(|_| link != LinkType::ETHERNET) {
            return Err(not_here(Some(pair[0]), "its bytes are those of Ethernet's header".to_owned()));
        }
        let dead = Capture::dead(Linktype(data_link(link))).map_err(|e| syntax(message(e)))?;
        // Not optimized: libpcap's optimizer merges tests that differ.
        let compiled = dead.compile(&expr_spelled, false).map_err(|e| match message(e) {
            fault if fault.contains("syntax error") => syntax(fault),
            fault => not_here(None, fault),
        })?;
        let wrong = |source| FilterError::Program { expr: excerpt(text), source };
        let found = compiled.get_instructions().len();
        if found > most {
            return Err(wrong(ProgramError::TooLong { found, most }));
        }
        // The crate provides an instruction only as text: "code jt jf k".
        let code: Option<Vec<Instruction>> =
            compiled.get_instructions().iter().map(|i| instruction(&i.to_string())).collect();
        let code = code.ok_or_else(|| FilterError::Internal {
            expr: excerpt(text),
            message: "an instruction of libpcap was not understood".to_owned(),
        })?;
        match Program::check(&code) {
            Ok(program) => Ok((program.on(link), code)),
            Err(source @ ProgramError::Metadata { .. }) => {
                let reason = |word| Some((word, flame_plan::filter_metadata(word)?));
                let refused = expr.split(' ').find_map(reason);
                Err(refused.map_or(wrong(source), |(word, reason)| not_here(Some(word), reason.to_owned())))
            }
            Err(source) => Err(wrong(source)),
        }
    }
}

fn message(e: pcap::Error) -> String {
    match e {
        pcap::Error::PcapError(message) => message,
        pcap::Error::InvalidInputString => "it contains a NUL character".to_owned(),
        other => other.to_string(),
    }
}

/// A fault of an expression for packets of a link type. Its display names the word.
#[derive(Clone, Debug)]
pub struct LinkFault {
    expr: String,
    link: LinkType,
    /// The word, if it is known.
    word: Option<String>,
    message: String,
}

impl LinkFault {
    /// Finds the word. Except for the grammar's faults, libpcap refuses an expression at the word that does
    /// not apply, so the shortest part with the same message ends there. It is looked for where the error is
    /// displayed, since it takes a dozen compilations.
    fn find(&self) -> Option<&str> {
        let ends: Vec<usize> =
            self.expr.match_indices(' ').map(|(at, _)| at).chain([self.expr.len()]).collect();
        let dead = Capture::dead(Linktype(data_link(self.link))).ok()?;
        let is_accepted = |end: &usize| match dead.compile(&self.expr[..*end], false) {
            Err(pcap::Error::PcapError(found)) => found != self.message,
            _ => true,
        };
        let end = ends.get(ends.partition_point(is_accepted))?;
        self.expr[..*end].rsplit(' ').next()
    }
}

impl fmt::Display for LinkFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { expr, link, word, message } = self;
        write!(f, "filter {:?}, ", excerpt(expr))?;
        if let Some(word) = word.as_deref().or_else(|| self.find()) {
            write!(f, "at `{word}`, ")?;
        }
        write!(f, "for packets of link type {}", link.0)?;
        if let Ok(description) = Linktype(data_link(*link)).get_description() {
            write!(f, " ({description})")?;
        }
        write!(f, ": {message}")
    }
}

/// Returns the first part of an expression, for messages.
pub(crate) fn excerpt(expr: &str) -> String {
    const SHOWN: usize = 120;
    match expr.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &expr[..at]),
        None => expr.to_owned(),
    }
}

fn instruction(text: &str) -> Option<Instruction> {
    let mut words = text.split(' ');
    let i = Instruction {
        code: words.next()?.parse().ok()?,
        jt: words.next()?.parse().ok()?,
        jf: words.next()?.parse().ok()?,
        k: words.next()?.parse().ok()?,
    };
    words.next().is_none().then_some(i)
}

/// Returns libpcap's number (DLT) for a link type of a file. They differ where systems disagreed.
fn data_link(link: LinkType) -> i32 {
    const DLT_RAW: i32 = if cfg!(target_os = "openbsd") { 14 } else { 12 };
    match link {
        LinkType::RAW | LinkType::RAW_BSD | LinkType::RAW_OPENBSD => DLT_RAW,
        LinkType(100) => 11, // ATM, RFC 1483
        LinkType(102) => 15, // SLIP of BSD/OS
        LinkType(103) => 16, // PPP of BSD/OS
        LinkType(106) => 19, // classical IP over ATM
        LinkType(other) => i32::from(other),
    }
}
