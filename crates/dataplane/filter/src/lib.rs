//! Compiles pcap filters to machine code.
//!
//! ```text
//! text → libpcap → classic BPF → checked ([`Program`]) → Cranelift → [`Filter::matches`]
//! ```
//!
//! libpcap defines the meaning of an expression, so a filter here selects exactly the packets that tcpdump
//! selects. Its program is not trusted: [`Program::check`] is the only way to obtain a [`Program`], and every
//! load in the machine code is preceded by a proof or a test that it lies in the packet.
//!
//! Limits: an expression has at most [`MAX_TEXT`] bytes, its program at most [`MAX_UNOPTIMIZED`] instructions
//! before and [`program::MAX_INSTRUCTIONS`] after optimization. Names of hosts, networks, ports and protocols
//! are refused before libpcap receives an expression, so no resolver is used. Cost: no allocation, lock or
//! system call per packet.

mod jit;
pub mod program;
#[doc(hidden)]
pub mod reference;
mod text;
mod typed;

pub use typed::{
    FilterText, MAX_SHOWN_INSTRUCTIONS, MAX_SHOWN_UNOPTIMIZED, PacketFilter, ShownPacket, TruePacket,
};

pub use program::{Instruction, Program, ProgramError};

use flame_abi::LinkType;

/// The longest expression in bytes.
pub const MAX_TEXT: usize = 32 * 1024;
/// The maximum number of instructions before optimization: some 300 hosts, for which libpcap takes about a
/// second.
pub const MAX_UNOPTIMIZED: usize = 10_000;

/// A filter for packets of one link type. It is `Send` and `Sync`: compile it once and share it by reference.
#[derive(Debug)]
pub struct Filter {
    code: jit::Code,
    /// The filter for packets of machines with the other byte order, for LINKTYPE_NULL.
    other_order: Option<jit::Code>,
    all: bool,
}

/// The reason why an expression could not be compiled.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    #[error("filter is {found} bytes, at most {MAX_TEXT} are compiled: split it over several modules")]
    TooLong { found: usize },
    /// The expression is wrong, or refers to a property that packets of this link type do not have.
    #[error("filter {expr:?} (link type {link}): {message}")]
    Syntax { expr: String, link: u16, message: String },
    #[error(
        "filter {expr:?} takes {found} instructions, at most {most} are optimized: \
         use nets instead of hosts, or fewer terms"
    )]
    TooComplex { expr: String, found: usize, most: usize },
    #[error("filter {expr:?}: {source}")]
    Program {
        expr: String,
        #[source]
        source: ProgramError,
    },
    /// The compiler failed although the expression is valid.
    #[error("filter {expr:?}: no machine code: {message} (a defect here, not in the filter)")]
    Internal { expr: String, message: String },
}

impl Filter {
    /// Compiles `expr` for packets of `link`. An empty expression matches every packet.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Program::compile`], and [`FilterError::Internal`] for a defect of the code
    /// generator.
    pub fn compile(expr: &str, link: LinkType) -> Result<Self, FilterError> {
        Self::of(&Program::compile(expr, link)?, expr, link)
    }

    fn of(program: &Program, expr: &str, link: LinkType) -> Result<Self, FilterError> {
        let internal = |message| FilterError::Internal { expr: text::excerpt(expr), message };
        let mut filter = Self::from_program(program).map_err(internal)?;
        if link == LinkType::NULL && !filter.all {
            let code = jit::Code::new(&program.for_other_order()).map_err(internal)?;
            filter.other_order = Some(code);
        }
        Ok(filter)
    }

    /// Creates a filter from a checked program.
    ///
    /// # Errors
    ///
    /// Returns an error if the code generator has a defect.
    pub fn from_program(program: &Program) -> Result<Self, String> {
        Ok(Self { code: jit::Code::new(program)?, other_order: None, all: program.accepts_all() })
    }

    /// Returns whether a packet passes. `bytes` are the captured bytes of a packet of `wire_len` bytes.
    #[inline]
    pub fn matches(&self, bytes: &[u8], wire_len: u32) -> bool {
        self.all || self.run(bytes, wire_len) != 0
    }

    /// Returns the result of the program: 0 for no match, otherwise the number of bytes to keep.
    #[inline]
    pub fn run(&self, bytes: &[u8], wire_len: u32) -> u32 {
        if let (Some(other), Some(family)) = (&self.other_order, bytes.first_chunk())
            && u32::from_ne_bytes(*family) > 0xffff
        {
            return other.run(bytes, wire_len);
        }
        self.code.run(bytes, wire_len)
    }

    /// Returns whether every packet passes unread.
    pub fn accepts_all(&self) -> bool {
        self.all
    }
}
