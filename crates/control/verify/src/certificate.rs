//! Certificates: the claims of an untrusted finder about the loops of a module.
//!
//! A certificate states no cost. It states facts that hold at the heads of loops, and the calls that are to
//! be analysed with their arguments; the checker verifies the facts and computes costs itself. So a false
//! certificate can only be refused, and one with fewer facts leads to a larger bound or to none.
//!
//! The format is a sequence of LEB128 numbers. Every list is preceded by its length.

use std::collections::{BTreeMap, BTreeSet};
use wasmparser::BinaryReader;

/// The version of the format and of the rules.
pub const VERSION: u32 = 1;
/// The name of the custom section.
pub const SECTION: &str = "flame.bounds";

/// The largest depth of nested calls that are analysed with their arguments.
pub const MAX_INLINE: usize = 10;

/// The claims of a finder about loops and functions. None is believed unless it is verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    /// The functions analysed once for any arguments, callees first.
    pub summaries: Vec<(u32, Notes)>,
    /// The functions that do not return. The rewriter makes them trap where they would, and counts their
    /// instructions.
    pub diverging: BTreeSet<u32>,
    /// The entry points, by function index.
    pub entries: BTreeMap<u32, Notes>,
}

/// The claims about one analysis of one function. Loops and calls are identified by their number in the
/// function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    pub loops: BTreeMap<u32, LoopNote>,
    /// The calls whose callee is analysed with the arguments of the call.
    pub calls: BTreeMap<u32, Notes>,
}

/// The claims that hold whenever the head of a loop is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopNote {
    /// Whether every iteration that takes a back edge has begun a packet, so that there are at most as many
    /// as packets.
    pub packets: bool,
    /// The locals of which more is known than their type, by index.
    pub forms: BTreeMap<u32, Form>,
    pub facts: Vec<Template>,
    pub measure: Option<Measure>,
}

/// The claimed value of a local at the head of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The value before the loop, increased by this much after each iteration, modulo 2^bits.
    Step(i64),
    /// A value that is at least the first and at most the second.
    Range(u64, u64),
}

/// A quantity that can only shrink a limited number of times: it ends a loop without a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Each iteration at least halves this local, which was not 0.
    Halved(u32),
    /// Each iteration clears the lowest set bit of this local, which was not 0.
    Cleared(u32),
}

/// `constant + Σ coefficient × reference` is at least 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    pub constant: i64,
    pub terms: Vec<(i64, Reference)>,
}

/// A quantity in a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reference {
    /// The value of a local at the head, unsigned.
    Head(u32),
    /// The number of iterations completed.
    Trip,
    /// The captured length.
    Length,
    /// The number of packets of the batch.
    Count,
    /// A symbol known before the loop: the n-th term of a slot of the state there.
    Term(u32, u32),
}

/// An error in bytes that are not a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason} (at byte {offset} of the certificate)")]
pub struct ReadError {
    pub reason: String,
    pub offset: usize,
}

impl From<wasmparser::Error> for ReadError {
    fn from(error: wasmparser::Error) -> Self {
        Self { reason: error.message().to_owned(), offset: error.offset() }
    }
}

fn bad(reason: &str, offset: usize) -> ReadError {
    ReadError { reason: reason.to_owned(), offset }
}

type Read<T> = Result<T, ReadError>;

impl Certificate {
    /// Parses a certificate, with memory linear in the number of bytes.
    ///
    /// # Errors
    ///
    /// Returns the reason and its offset if the bytes are no certificate of this version. A list longer than
    /// the remaining bytes is such a reason, and so are calls nested too deep and functions summarised twice.
    pub fn from_bytes(bytes: &[u8]) -> Read<Self> {
        let r = &mut BinaryReader::new(bytes, 0);
        let at = r.original_position();
        if r.read_var_u32()? != VERSION {
            return Err(bad("another version of the format", at));
        }
        let (mut certificate, mut summarised) = (Self::default(), BTreeSet::new());
        for _ in 0..length(r)? {
            let (at, function) = (r.original_position(), r.read_var_u32()?);
            // Each of them is walked.
            if !summarised.insert(function) {
                return Err(bad("a function that is summarised twice", at));
            }
            certificate.summaries.push((function, notes(r, 0)?));
        }
        for _ in 0..length(r)? {
            certificate.diverging.insert(r.read_var_u32()?);
        }
        for _ in 0..length(r)? {
            let function = r.read_var_u32()?;
            certificate.entries.insert(function, notes(r, 0)?);
        }
        match r.eof() {
            true => Ok(certificate),
            false => Err(bad("bytes after the end", r.original_position())),
        }
    }

    /// Returns the contents of the section that [`Certificate::from_bytes`] reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        unsigned(&mut out, VERSION.into());
        unsigned(&mut out, self.summaries.len() as u64);
        for (function, notes) in &self.summaries {
            unsigned(&mut out, (*function).into());
            notes.write(&mut out);
        }
        unsigned(&mut out, self.diverging.len() as u64);
        self.diverging.iter().for_each(|f| unsigned(&mut out, (*f).into()));
        unsigned(&mut out, self.entries.len() as u64);
        for (function, notes) in &self.entries {
            unsigned(&mut out, (*function).into());
            notes.write(&mut out);
        }
        out
    }
}

/// Reads a length, at most the bytes that are left: every element takes at least one.
fn length(r: &mut BinaryReader<'_>) -> Read<usize> {
    let at = r.original_position();
    let n = r.read_var_u32()? as usize;
    if n > r.bytes_remaining() {
        return Err(bad("a list longer than the certificate", at));
    }
    Ok(n)
}

fn notes(r: &mut BinaryReader<'_>, depth: usize) -> Read<Notes> {
    let mut notes = Notes::default();
    for _ in 0..length(r)? {
        let number = r.read_var_u32()?;
        notes.loops.insert(number, loop_note(r)?);
    }
    for _ in 0..length(r)? {
        let (at, number) = (r.original_position(), r.read_var_u32()?);
        if depth == MAX_INLINE {
            return Err(bad("calls nested too deep", at));
        }
        notes.calls.insert(number, self::notes(r, depth + 1)?);
    }
    Ok(notes)
}

fn loop_note(r: &mut BinaryReader<'_>) -> Read<LoopNote> {
    let at = r.original_position();
    let unknown = || bad("an unknown kind of note", at);
    let mut note = LoopNote::default();
    let kind = r.read_var_u32()?;
    note.packets = kind & 1 != 0;
    note.measure = match kind >> 1 {
        0 => None,
        1 => Some(Measure::Halved(r.read_var_u32()?)),
        2 => Some(Measure::Cleared(r.read_var_u32()?)),
        _ => return Err(unknown()),
    };
    for _ in 0..length(r)? {
        let local = r.read_var_u32()?;
        let form = match r.read_u8()? {
            0 => Form::Step(r.read_var_i64()?),
            1 => Form::Range(r.read_var_u64()?, r.read_var_u64()?),
            _ => return Err(unknown()),
        };
        note.forms.insert(local, form);
    }
    for _ in 0..length(r)? {
        let mut template = Template { constant: r.read_var_i64()?, terms: Vec::new() };
        for _ in 0..length(r)? {
            let coefficient = r.read_var_i64()?;
            let reference = match r.read_u8()? {
                0 => Reference::Head(r.read_var_u32()?),
                1 => Reference::Trip,
                2 => Reference::Length,
                3 => Reference::Count,
                4 => Reference::Term(r.read_var_u32()?, r.read_var_u32()?),
                _ => return Err(unknown()),
            };
            template.terms.push((coefficient, reference));
        }
        note.facts.push(template);
    }
    Ok(note)
}

impl Notes {
    /// Returns whether there are no claims: no loops, no calls.
    pub fn is_empty(&self) -> bool {
        self.loops.is_empty() && self.calls.is_empty()
    }

    fn write(&self, out: &mut Vec<u8>) {
        unsigned(out, self.loops.len() as u64);
        for (number, note) in &self.loops {
            unsigned(out, (*number).into());
            note.write(out);
        }
        unsigned(out, self.calls.len() as u64);
        for (number, notes) in &self.calls {
            unsigned(out, (*number).into());
            notes.write(out);
        }
    }
}

impl LoopNote {
    fn write(&self, out: &mut Vec<u8>) {
        let (kind, local) = match self.measure {
            None => (0, None),
            Some(Measure::Halved(local)) => (2, Some(local)),
            Some(Measure::Cleared(local)) => (4, Some(local)),
        };
        unsigned(out, kind | u64::from(self.packets));
        local.into_iter().for_each(|l| unsigned(out, l.into()));
        unsigned(out, self.forms.len() as u64);
        for (local, form) in &self.forms {
            unsigned(out, (*local).into());
            match form {
                Form::Step(by) => {
                    out.push(0);
                    integer(out, *by);
                }
                Form::Range(low, high) => {
                    out.push(1);
                    unsigned(out, *low);
                    unsigned(out, *high);
                }
            }
        }
        unsigned(out, self.facts.len() as u64);
        for template in &self.facts {
            integer(out, template.constant);
            unsigned(out, template.terms.len() as u64);
            for (coefficient, reference) in &template.terms {
                integer(out, *coefficient);
                match reference {
                    Reference::Head(local) => {
                        out.push(0);
                        unsigned(out, (*local).into());
                    }
                    Reference::Trip => out.push(1),
                    Reference::Length => out.push(2),
                    Reference::Count => out.push(3),
                    Reference::Term(slot, term) => {
                        out.push(4);
                        unsigned(out, (*slot).into());
                        unsigned(out, (*term).into());
                    }
                }
            }
        }
    }
}

fn unsigned(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn integer(out: &mut Vec<u8>, mut n: i64) {
    loop {
        let byte = (n & 0x7f) as u8;
        n >>= 7;
        if (n == 0 && byte & 0x40 == 0) || (n == -1 && byte & 0x40 != 0) {
            out.push(byte);
            return;
        }
        out.push(byte | 0x80);
    }
}
