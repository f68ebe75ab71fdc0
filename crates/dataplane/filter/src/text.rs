//! Compiles expressions to classic BPF with libpcap.

use crate::program::MAX_INSTRUCTIONS;
use crate::{FilterError, Instruction, MAX_TEXT, MAX_UNOPTIMIZED, Program, ProgramError};
use flame_abi::LinkType;
use pcap::{Capture, Linktype};

impl Program {
    /// Compiles `expr` with libpcap and checks the result. An empty expression does not involve libpcap, so
    /// it is valid for any link type.
    ///
    /// # Errors
    ///
    /// Returns an error if the expression is too long or wrong, does not apply to this link type, or takes
    /// too many instructions.
    pub fn compile(expr: &str, link: LinkType) -> Result<Self, FilterError> {
        compile(expr, link, Most { unoptimized: MAX_UNOPTIMIZED, instructions: MAX_INSTRUCTIONS })
    }

    pub(crate) fn compile_within(expr: &str, link: LinkType, most: Most) -> Result<Self, FilterError> {
        compile(expr, link, most)
    }
}

/// The maximum number of instructions of a program.
#[derive(Clone, Copy)]
pub struct Most {
    pub(crate) unoptimized: usize,
    pub(crate) instructions: usize,
}

fn compile(text: &str, link: LinkType, most: Most) -> Result<Program, FilterError> {
    if text.len() > MAX_TEXT {
        return Err(FilterError::TooLong { found: text.len() });
    }
    let wrong = |message| FilterError::Syntax { expr: excerpt(text), link: link.0, message };
    // libpcap receives only this text, in which there are no names to look up.
    let expr = &flame_plan::normalize_filter(text).map_err(wrong)?;
    if expr.is_empty() {
        return Ok(Program::all());
    }
    let syntax = |e: pcap::Error| FilterError::Syntax {
        expr: excerpt(expr),
        link: link.0,
        message: match e {
            pcap::Error::PcapError(message) => message,
            pcap::Error::InvalidInputString => "it contains a NUL character".to_owned(),
            other => other.to_string(),
        },
    };
    let dead = Capture::dead(Linktype(data_link(link))).map_err(syntax)?;
    // libpcap's optimizer takes more than quadratic time (a minute for 1200 hosts), its code generator does
    // not: the unoptimized size shows whether optimizing is affordable.
    let found = dead.compile(expr, false).map_err(syntax)?.get_instructions().len();
    if found > most.unoptimized {
        return Err(FilterError::TooComplex { expr: excerpt(expr), found, most: most.unoptimized });
    }
    let compiled = dead.compile(expr, true).map_err(syntax)?;
    let wrong = |source| FilterError::Program { expr: excerpt(expr), source };
    let found = compiled.get_instructions().len();
    if found > most.instructions {
        return Err(wrong(ProgramError::TooLong { found, most: most.instructions }));
    }
    // The crate provides an instruction only as text: "code jt jf k".
    let code: Option<Vec<Instruction>> =
        compiled.get_instructions().iter().map(|i| instruction(&i.to_string())).collect();
    let code = code.ok_or_else(|| FilterError::Internal {
        expr: excerpt(expr),
        message: "an instruction of libpcap was not understood".to_owned(),
    })?;
    Program::check(&code).map_err(wrong)
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
