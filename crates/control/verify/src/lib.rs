//! Verifies upper bounds on the costs of a module's calls.
//!
//! A *finder*, which need not be trusted, writes a [`Certificate`]: facts about the heads of loops.
//! [`verify`] checks it in one pass over the code, without search for invariants and without fixpoints, and
//! computes costs itself. Everything on which a bound relies is in this crate:
//!
//! | file | contents |
//! | --- | --- |
//! | `rules` | integer operations on intervals |
//! | `linear` | inequalities between integers, and their consequences |
//! | `value` | sums modulo 2^bits, and when they are integers |
//! | `ops` | the effect of each instruction |
//! | `state` | joins |
//! | `walk` | control flow, calls, traps |
//! | `loops` | the rule for loops |
//! | `abi` | the host's guarantees |
//! | `cost` | weights |
//! | `observe` | the parts of a walk that observers may see |
//!
//! docs/bounds.md argues why sound rules give sound bounds.
#![forbid(unsafe_code)]

pub mod abi;
pub mod bound;
pub mod certificate;
pub mod cost;
pub mod linear;
pub mod loops;
mod mnemonic;
pub mod module;
pub mod observe;
pub mod ops;
mod poly;
pub mod rules;
pub mod state;
pub mod value;
pub mod walk;

pub use certificate::{Certificate, Form, LoopNote, Measure, Notes, Reference, SECTION, Template};
pub use cost::Cost;
pub use poly::Poly;

use flame_abi::layout::{self, names};
use flame_abi::manifest::MAX_PORTS;
use module::Module;
use observe::Observer;
use std::collections::{BTreeMap, BTreeSet};
use value::Value;
use walk::{Summary, Walk};

/// The reason why there is no bound: the rule that does not hold, and the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule} (function {function}, at byte {offset})")]
pub struct Refused {
    pub rule: Rule,
    /// The function, by index.
    pub function: u32,
    /// The offset in the file; 0 if it concerns the function as a whole.
    pub offset: u32,
}

/// The rule that a walk could not establish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rule {
    #[error("a loop has no bound")]
    NoBound,
    #[error("the certificate claims a form of local {0} that does not hold")]
    Form(u32),
    #[error("fact {0} of the certificate does not hold before the loop")]
    FactBefore(u32),
    #[error("fact {0} of the certificate does not hold where the loop goes back")]
    FactBack(u32),
    #[error("the measure of the certificate does not shrink")]
    Measure,
    #[error("an iteration goes back without beginning a packet")]
    Packets,
    #[error(
        "it calls function {0}, which has no bound: recursion, or a function that the certificate leaves out"
    )]
    Unsummarised(u32),
    #[error("frames or calls are nested too deep, or a function has exceptions or too many locals")]
    TooDeep,
    #[error("checking it takes more work than is allowed")]
    Work,
    #[error("the module is not valid")]
    Invalid,
}

/// A certificate or module that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("reading the module: {0}")]
    Module(wasmparser::Error),
    #[error("reading the certificate: {0}")]
    Certificate(certificate::ReadError),
    #[error("the certificate is about function {0}, which the module does not define")]
    NoFunction(u32),
}

/// The verified properties of one exported function.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    pub function: u32,
    /// The bound of every call, whether it returns or traps; or the reason why it is missing. It contains
    /// [`cost::DIVERGING`] if the call may reach a function that diverges.
    pub bound: Result<Cost, Refused>,
    /// Whether it contains that.
    pub diverges: bool,
}

/// The verified properties of a module.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    pub entries: Vec<Entry>,
    /// The functions that must trap instead of returning, and count their instructions.
    pub diverging: BTreeSet<u32>,
    /// The loops, once for each entry into them.
    pub loops: Vec<bound::LoopBound>,
    /// The functions that have a bound for any arguments.
    pub summaries: BTreeMap<u32, Summary>,
}

/// The work for each byte of code and certificate, and for a module without any.
const WORK_PER_BYTE: u64 = 32;
const WORK_LEAST: u64 = 1 << 20;

/// Returns the work that is allowed for this many bytes: instructions walked, and steps of proofs.
pub fn work(bytes: usize) -> u64 {
    bytes as u64 * WORK_PER_BYTE + WORK_LEAST
}

/// Checks a certificate against a valid module and returns the bounds that follow.
///
/// Time and memory are linear in the sizes of both. An entry whose claims do not hold has no bound, but the
/// rule and the place.
///
/// # Errors
///
/// Returns an error if the certificate or the module cannot be read, or if the certificate is about a
/// function that the module does not define.
pub fn verify(wasm: &[u8], certificate: &[u8]) -> Result<Verified, VerifyError> {
    verify_observed(&Module::read(wasm, SECTION).map_err(VerifyError::Module)?, certificate, None)
}

/// Checks a certificate against a parsed module, with an observer.
///
/// # Errors
///
/// Returns an error if the certificate cannot be read, or is about a function that the module does not
/// define.
pub fn verify_observed(
    module: &Module<'_>,
    certificate: &[u8],
    observer: Option<&dyn Observer>,
) -> Result<Verified, VerifyError> {
    let bytes = module.code + certificate.len();
    let certificate = Certificate::from_bytes(certificate).map_err(VerifyError::Certificate)?;
    verify_read(module, certificate, bytes, observer)
}

/// Checks the module's own certificate; returns `None` if it has none.
///
/// # Errors
///
/// Returns an error if the module or its certificate cannot be read, or if the certificate is about a
/// function that the module does not define.
pub fn verify_own(wasm: &[u8]) -> Result<Option<Verified>, VerifyError> {
    let module = Module::read(wasm, SECTION).map_err(VerifyError::Module)?;
    let Some(section) = module.certificate else { return Ok(None) };
    verify_observed(&module, section, None).map(Some)
}

/// The entry points whose arguments are promised.
const PROMISED: [&str; 7] =
    [names::BATCH, names::PUSH, names::INIT, names::MESSAGE, names::IMPORT, names::SERVE, names::DONE];

/// Returns the arguments that the host passes to an entry point: see `abi`.
pub fn arguments(walk: &mut Walk<'_, '_>, name: &str, function: u32) -> Vec<Value> {
    let data = u64::from(layout::WINDOW + layout::DATA_OFFSET);
    let any = walk.any_arguments(function);
    match (name, any.len()) {
        (names::BATCH, 1) => {
            walk.host.batch = true;
            vec![Value::constant(32, u64::from(layout::WINDOW + layout::BATCH_OFFSET))]
        }
        (names::PUSH, 2) => {
            walk.host.batch = true;
            let port = walk.values.within(32, 0, u64::from(MAX_PORTS) - 1);
            vec![Value::Sum(port), Value::constant(32, u64::from(layout::WINDOW + layout::BATCH_OFFSET))]
        }
        (names::INIT | names::MESSAGE | names::IMPORT | names::SERVE | names::DONE, 2) => {
            let length = walk.values.within(32, 0, layout::MAX_DATA.into());
            vec![Value::constant(32, data), Value::Sum(length)]
        }
        _ => any,
    }
}

fn verify_read(
    module: &Module<'_>,
    certificate: Certificate,
    bytes: usize,
    observer: Option<&dyn Observer>,
) -> Result<Verified, VerifyError> {
    let Certificate { summaries: claimed, diverging, entries: notes } = certificate;
    // Only functions that the module defines can be made to trap instead of returning.
    if let Some(function) = diverging.iter().find(|f| module.own(**f).is_none()) {
        return Err(VerifyError::NoFunction(*function));
    }
    let mut work = work(bytes);
    let mut summaries: BTreeMap<u32, Summary> = BTreeMap::new();
    let mut loops = Vec::new();
    let mut failed: BTreeMap<u32, Refused> = BTreeMap::new();
    let mut stopped = None;
    for (function, notes) in claimed {
        if module.own(function).is_none() {
            return Err(VerifyError::NoFunction(function));
        }
        let outcome = {
            let mut walk = Walk::new(module, (&summaries, &diverging), notes, work);
            walk.observer = observer;
            let arguments = walk.any_arguments(function);
            let outcome = walk.entry(function, arguments);
            work = walk.work.min(walk.values.symbols.steps_left());
            loops.append(&mut walk.loops);
            outcome
        };
        match outcome {
            Ok(outcome) => {
                summaries.insert(function, outcome.summary());
            }
            Err(why) => {
                failed.insert(function, why);
                if why.rule == Rule::Work {
                    // Those after it have no work left, nor a bound.
                    stopped = Some(why);
                    break;
                }
            }
        }
    }
    let mut entries = Vec::new();
    // The work that is left to each entry if those before it have used up all; the sum of these is limited
    // for any number of entries.
    let least = WORK_LEAST / module.exports.len().max(64) as u64;
    work = work.max(least);
    let mut known: BTreeMap<u32, (Result<Cost, Refused>, bool)> = BTreeMap::new();
    for (name, function) in &module.exports {
        let has_promise = PROMISED.contains(name);
        if let Some((bound, diverges)) = known.get(function).copied().filter(|_| !has_promise) {
            entries.push(Entry { name: (*name).to_owned(), function: *function, bound, diverges });
            continue;
        }
        let mut walk = Walk::new(
            module,
            (&summaries, &diverging),
            notes.get(function).cloned().unwrap_or_default(),
            work,
        );
        walk.observer = observer;
        let arguments = arguments(&mut walk, name, *function);
        let mut diverges = false;
        let bound = match module.own(*function) {
            // A host function under another name: no code of the module runs.
            None => Ok(Cost::ZERO),
            Some(_) if diverging.contains(function) => {
                Err(Refused { rule: Rule::NoBound, function: *function, offset: 0 })
            }
            Some(_) => walk.entry(*function, arguments).and_then(|outcome| {
                let none = Refused { rule: Rule::NoBound, function: *function, offset: 0 };
                diverges = outcome.diverges;
                // The functions that diverge are paid for here: what the rewriter lets them spend.
                let lost = if diverges { cost::DIVERGING } else { 0 };
                let cost = outcome.cost.and(Poly::constant(lost));
                if cost.is_bounded() { Ok(cost) } else { Err(walk.why.unwrap_or(none)) }
            }),
        };
        work = walk.work.min(walk.values.symbols.steps_left()).max(least);
        loops.append(&mut walk.loops);
        let bound = bound.map_err(|why| match why.rule {
            Rule::Unsummarised(callee) => failed.get(&callee).copied().or(stopped).unwrap_or(why),
            _ => why,
        });
        if !has_promise {
            known.insert(*function, (bound, diverges));
        }
        entries.push(Entry { name: (*name).to_owned(), function: *function, bound, diverges });
    }
    Ok(Verified { entries, diverging, loops, summaries })
}
