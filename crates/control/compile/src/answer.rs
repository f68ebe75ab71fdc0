//! The child's answer as bytes: the length of its head (four bytes), the head, machine code. The parent
//! trusts only the machine code, for which it started the child.

use crate::report::{self, Report};
use crate::step::Step;
use flame_bounds::Size;
use serde::{Deserialize, Serialize};

/// The findings of a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    ModuleInfo {
        manifest: Vec<u8>,
        messages: bool,
        size: Size,
    },
    Report(Box<Report>),
    /// The length of the machine code that follows the head, in bytes.
    Code {
        bytes: u64,
    },
    /// The same of a capsule, with the bounds of its functions.
    Capsule {
        bytes: u64,
        bounds: Vec<Option<u64>>,
    },
    /// The lines in the order of the requested offsets.
    Lines(Vec<Option<String>>),
    /// The module is at fault, for this reason.
    Refused(String),
}

/// The number of bytes before the head.
const PREFIX: usize = 4;
/// Maximum length of the machine code of a module of any size, in bytes. The largest module that is known,
/// `ids`, has 3 MiB.
const MAX_CODE: usize = 128 << 20;
/// Maximum length of a head, in bytes. Parsing can take fifty times as much memory.
const MAX_HEAD: usize = 4 << 20;

/// Returns the maximum length of an answer, in bytes.
pub(crate) fn most(step: Step, size: Size) -> usize {
    let code = match step {
        // An instruction becomes a few bytes of machine code, several times as many if it is counted.
        Step::Compile => ((16 << 20) + 40 * size.instructions as usize).min(MAX_CODE),
        _ => 0,
    };
    PREFIX + MAX_HEAD + code
}

impl Answer {
    /// Returns the bytes before the machine code.
    pub(crate) fn head(&self) -> Result<Vec<u8>, postcard::Error> {
        let head = postcard::to_stdvec(self)?;
        Ok([&(head.len() as u32).to_le_bytes()[..], &head].concat())
    }

    /// Parses an answer to a job of this kind. The error describes the invalid part.
    pub(crate) fn parse(step: Step, mut bytes: Vec<u8>) -> Result<(Self, Vec<u8>), &'static str> {
        let length = bytes.first_chunk::<PREFIX>().ok_or("it is cut short")?;
        let length = u32::from_le_bytes(*length) as usize;
        if length > MAX_HEAD {
            return Err("it is too long");
        }
        let head = bytes.get(PREFIX..PREFIX + length).ok_or("it is cut short")?;
        let (mut answer, rest): (Self, _) = postcard::take_from_bytes(head).map_err(|_| "it is damaged")?;
        if !rest.is_empty() {
            return Err("more follows it");
        }
        let code = bytes.split_off(PREFIX + length);
        let promised = match &answer {
            Self::Code { bytes } | Self::Capsule { bytes, .. } => *bytes,
            _ => 0,
        };
        if promised != code.len() as u64 {
            return Err("the length of its code is not the stated one");
        }
        answer.check(step)?;
        Ok((answer, code))
    }

    fn check(&mut self, step: Step) -> Result<(), &'static str> {
        match (self, step) {
            (Self::Refused(reason), _) => report::clean(reason),
            (Self::ModuleInfo { .. }, Step::Examine)
            | (Self::Code { .. } | Self::Capsule { .. }, Step::Compile) => {}
            (Self::Report(report), Step::Analyse) => report.clean(),
            (Self::Lines(lines), Step::Lines) => lines.iter_mut().flatten().for_each(report::clean),
            _ => return Err("it answers another question"),
        }
        Ok(())
    }
}

/// Parses any bytes as an answer to each kind of job. For fuzzing: every text that is accepted must be safe
/// to print.
///
/// # Panics
///
/// Panics if an accepted text is not safe to print, or if an accepted answer is refused after it was written.
pub fn parse_answer(bytes: &[u8]) {
    for step in [Step::Examine, Step::Analyse, Step::Compile, Step::Lines] {
        if let Ok((answer, code)) = Answer::parse(step, bytes.to_vec()) {
            assert!(code.is_empty() || step == Step::Compile);
            if let Answer::Refused(text) = &answer {
                assert!(text.len() <= 4096 && !text.contains(|c: char| c.is_control() && c != '\n'));
            }
            let head = answer.head().expect("what was parsed can be written");
            assert!(Answer::parse(step, [head, code].concat()).is_ok());
        }
    }
}
