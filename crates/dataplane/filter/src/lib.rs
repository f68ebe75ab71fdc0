//! Compiles pcap filters to machine code.
//!
//! ```text
//! text → without sets → spelled out → libpcap's generator → classic BPF → checked ([`Program`]) → with sets
//!      → shorter paths → Cranelift
//! ```
//!
//! pcap-filter(7) defines the meaning of an expression. libpcap's optimizer is not used: it merges tests that
//! differ, and `direct.rs` gains the same. Forms that its generator takes otherwise than documented are
//! spelled out (`spelled.rs`). Addresses that are joined by `or` are a set (`sets.rs`). Words that it can
//! only test with the kernel's help are refused. The program is not trusted: [`Program::check`] is the only
//! way to obtain a [`Program`], and every load in the machine code is preceded by a proof or a test that it
//! lies in the packet. A packet that ends before a byte which the expression reads does not pass, even if the
//! test is negated.
//!
//! Limits: an expression has at most [`flame_plan::MAX_FILTER`] bytes, without its sets [`MAX_TEXT`], and its
//! program at most [`program::MAX_INSTRUCTIONS`], some 150 ports, for which compiling takes about half a
//! second. Names of hosts and networks are refused before libpcap receives an expression, and names of ports
//! and protocols are numbers then, so no resolver is used. Cost: no allocation, lock or system call per
//! packet.

mod direct;
mod jit;
pub mod program;
#[doc(hidden)]
pub mod reference;
mod set;
mod sets;
mod spelled;
mod text;
mod typed;

pub use typed::{FilterText, MAX_SHOWN_INSTRUCTIONS, PacketFilter, ShownPacket, TruePacket};

pub use program::{Instruction, Program, ProgramError};
pub use text::LinkFault;

use flame_abi::LinkType;

/// The longest expression in bytes, apart from sets of addresses.
pub const MAX_TEXT: usize = 32 * 1024;

/// A filter for packets of one link type. It is `Send` and `Sync`: compile it once and share it by reference.
#[derive(Debug)]
pub struct Filter {
    code: jit::Code,
    all: bool,
}

/// The reason why an expression could not be compiled.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    #[error(
        "filter is {found} bytes besides {addresses} addresses in sets, at most {MAX_TEXT} are compiled: \
         join hosts and networks by `or` alone, as in `host A or B or C`, which makes them one set, or split \
         it over several modules"
    )]
    TooLong { found: usize, addresses: usize },
    /// The expression is wrong.
    #[error("filter {expr:?}: {message}")]
    Syntax { expr: String, message: String },
    /// The expression tests a property that packets of this link type do not have, or a value that it cannot
    /// have.
    #[error("{0}")]
    Link(LinkFault),
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
        Self::of(&Program::compile(expr, link)?, expr)
    }

    fn of(program: &Program, expr: &str) -> Result<Self, FilterError> {
        Self::from_program(program)
            .map_err(|message| FilterError::Internal { expr: text::excerpt(expr), message })
    }

    /// Creates a filter from a checked program.
    ///
    /// # Errors
    ///
    /// Returns an error if the code generator has a defect.
    pub fn from_program(program: &Program) -> Result<Self, String> {
        Ok(Self { code: jit::Code::new(&program.direct())?, all: program.accepts_all() })
    }

    /// Returns whether a packet passes. `bytes` are the captured bytes of a packet of `wire_len` bytes.
    #[inline]
    pub fn matches(&self, bytes: &[u8], wire_len: u32) -> bool {
        self.all || self.run(bytes, wire_len) != 0
    }

    /// Returns the result of the program: 0 for no match, otherwise the number of bytes to keep.
    #[inline]
    pub fn run(&self, bytes: &[u8], wire_len: u32) -> u32 {
        self.code.run(bytes, wire_len)
    }

    /// Returns whether every packet passes unread.
    pub fn accepts_all(&self) -> bool {
        self.all
    }
}
