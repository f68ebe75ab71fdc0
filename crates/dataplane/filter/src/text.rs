//! Compiles expressions to classic BPF with libpcap.

use crate::program::MAX_INSTRUCTIONS;
use crate::spelled::spelled;
use crate::{FilterError, Instruction, MAX_TEXT, Program, ProgramError};
use flame_abi::LinkType;
use pcap::{Capture, Dead, Linktype};
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
    if text.len() > MAX_TEXT {
        return Err(FilterError::TooLong { found: text.len() });
    }
    let syntax = |message| FilterError::Syntax { expr: excerpt(text), message };
    // libpcap receives only this text, in which there are no names to look up.
    let expr = &flame_plan::normalize_filter(text).map_err(syntax)?;
    if expr.is_empty() {
        return Ok(Program::all());
    }
    let expr_spelled = spelled(expr).map_err(syntax)?;
    let dead = Capture::dead(Linktype(data_link(link))).map_err(|e| syntax(message(e)))?;
    // Not optimized: libpcap's optimizer merges tests that differ.
    let compiled = dead.compile(&expr_spelled, false).map_err(|e| fault(&dead, expr, link, message(e)))?;
    let wrong = |source| FilterError::Program { expr: excerpt(expr), source };
    let found = compiled.get_instructions().len();
    if found > most {
        return Err(wrong(ProgramError::TooLong { found, most }));
    }
    // The crate provides an instruction only as text: "code jt jf k".
    let code: Option<Vec<Instruction>> =
        compiled.get_instructions().iter().map(|i| instruction(&i.to_string())).collect();
    let code = code.ok_or_else(|| FilterError::Internal {
        expr: excerpt(expr),
        message: "an instruction of libpcap was not understood".to_owned(),
    })?;
    match Program::check(&code) {
        Ok(program) => Ok(program.on(link)),
        Err(source @ ProgramError::Metadata { .. }) => {
            let reason = |word| Some((word, flame_plan::filter_metadata(word)?));
            Err(expr.split(' ').find_map(reason).map_or(wrong(source), |(word, reason)| FilterError::Link {
                expr: excerpt(expr),
                word: word.to_owned(),
                link: LinkName(link),
                message: reason.to_owned(),
            }))
        }
        Err(source) => Err(wrong(source)),
    }
}

fn message(e: pcap::Error) -> String {
    match e {
        pcap::Error::PcapError(message) => message,
        pcap::Error::InvalidInputString => "it contains a NUL character".to_owned(),
        other => other.to_string(),
    }
}

/// Returns the error for an expression that libpcap refuses. Except for the grammar's faults, libpcap refuses an
/// expression at the word that does not apply, so the shortest part with the same message ends there.
fn fault(dead: &Capture<Dead>, expr: &str, link: LinkType, message: String) -> FilterError {
    if message.contains("syntax error") {
        return FilterError::Syntax { expr: excerpt(expr), message };
    }
    let ends: Vec<usize> = expr.match_indices(' ').map(|(at, _)| at).chain([expr.len()]).collect();
    let is_refused = |end: usize| match dead.compile(&expr[..end], false) {
        Err(pcap::Error::PcapError(found)) => found == message,
        _ => false,
    };
    let end = ends.get(ends.partition_point(|end| !is_refused(*end))).map_or(expr, |end| &expr[..*end]);
    let word = end.rsplit(' ').next().unwrap_or(end).to_owned();
    FilterError::Link { expr: excerpt(expr), word, link: LinkName(link), message }
}

/// A link type, which is displayed with its number and libpcap's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkName(pub LinkType);

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Linktype(data_link(self.0)).get_description() {
            Ok(description) => write!(f, "{} ({description})", self.0.0),
            Err(_) => write!(f, "{}", self.0.0),
        }
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
