//! The child's answer as bytes: the length of its head (four bytes), the head, machine code. The
//! parent trusts none of it but the code, which is what it started the child for.

use crate::job::Step;
use crate::report::{self, Report};
use serde::{Deserialize, Serialize};

/// What a child found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    ModuleInfo {
        manifest: Vec<u8>,
        messages: bool,
    },
    Report(Box<Report>),
    /// Machine code of so many bytes, after the head.
    Code {
        bytes: u64,
    },
    /// In the order of the offsets asked for.
    Lines(Vec<Option<String>>),
    /// The module's fault.
    Refused(String),
}

/// Bytes before the head.
const PREFIX: usize = 4;
/// Most bytes of a head. What is parsed takes up to fifty times as much memory.
const MAX_HEAD: usize = 4 << 20;

/// Most bytes of an answer.
pub(crate) fn most(step: Step, module_bytes: usize) -> usize {
    let code = match step {
        // An instruction of a few bytes becomes a few of the machine's, several where it is counted.
        Step::Compile => (16 << 20) + 16 * module_bytes,
        _ => 0,
    };
    PREFIX + MAX_HEAD + code
}

impl Answer {
    /// The bytes before the machine code.
    pub(crate) fn head(&self) -> Result<Vec<u8>, postcard::Error> {
        let head = postcard::to_stdvec(self)?;
        Ok([&(head.len() as u32).to_le_bytes()[..], &head].concat())
    }

    /// Reads an answer to a job of this kind; the error says what is wrong with it.
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
            Self::Code { bytes } => *bytes,
            _ => 0,
        };
        if promised != code.len() as u64 {
            return Err("its code has another length than it says");
        }
        answer.check(step)?;
        Ok((answer, code))
    }

    fn check(&mut self, step: Step) -> Result<(), &'static str> {
        match (self, step) {
            (Self::Refused(reason), _) => report::clean(reason),
            (Self::ModuleInfo { .. }, Step::Examine) | (Self::Code { .. }, Step::Compile) => {}
            (Self::Report(report), Step::Analyse) => report.clean(),
            (Self::Lines(lines), Step::Lines) => lines.iter_mut().flatten().for_each(report::clean),
            _ => return Err("it answers another question"),
        }
        Ok(())
    }
}

/// Parses any bytes as an answer to each question. For fuzzing: whatever is accepted must be safe to
/// show.
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
