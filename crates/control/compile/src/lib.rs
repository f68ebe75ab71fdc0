//! The compiler, from a `.wasm` file to machine code: check, rewrite, compile, cache.
//!
//! Only WebAssembly is accepted. Machine code is made here or read from this node's own cache, whose entries
//! carry a MAC under a key that never leaves the node.
//!
//! All work that reads a module's bytes is a [`job`], which a [`worker`] gives to a [`child`] process: this
//! program, started again, without files or network and with limited memory and time. Its answer is
//! [checked](answer), except for machine code: an attacker who takes over the compiler controls the module's
//! machine code.

mod answer;
mod cache;
mod child;
mod dwarf;
mod engine;
mod install;
mod job;
mod limits;
mod report;
mod step;
mod sys;
mod verdict;
mod worker;

pub use answer::parse_answer;
pub use cache::{Cache, CacheError};
pub use child::{CHILD, serve};
pub use engine::Engines;
pub use flame_quota::Spent;
pub use install::{Conditions, InstallError, InstallRequest, Installed, conditions};
pub use report::Report;
pub use step::Step;
pub use sys::Usage;
pub use verdict::Analysed;
pub use worker::{Stopped, Worker};

use answer::Answer;
use flame_abi::manifest::{Manifest, ManifestError};
use flame_base::lock;
use flame_bounds::Size;
use flame_plan::{CutOff, Share};
use flame_quota::{Allowance, Reserved};
use job::{Job, perform};
use limits::Limits;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The reason why a module is not run.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    #[error("this is not WebAssembly but {0}: only .wasm files are accepted")]
    NotWasm(&'static str),
    #[error(
        "{bytes} bytes, more than the {most} that a module may have; make the module smaller: optimize for size, strip debug information"
    )]
    TooLarge { bytes: usize, most: usize },
    /// A reason that states place, expected and found values, and remedy.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("{step}: {stopped}")]
    Stopped { step: Step, stopped: Stopped },
    /// The allowance of the principal is used up.
    #[error("{step}: {spent}")]
    Spent { step: Step, spent: Spent },
    /// The work takes more than the whole allowance.
    #[error(
        "{step}: it took more processor time than the credential's allowance of compilation ({share}) gives in \
         one period"
    )]
    Beyond { step: Step, share: Share },
    /// The start of work could not be noted, so the work was not started.
    #[error("{step}: {reason}")]
    Unnoted { step: Step, reason: String },
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// A module that passed all checks.
#[derive(Clone)]
pub struct ModuleInfo {
    /// The SHA-256 of the original file.
    pub hash: [u8; 32],
    pub manifest: Arc<Manifest>,
    /// Whether it has a slow path, to which its fast instances send messages.
    pub messages: bool,
    /// The amount of its code, by which the limits of further work on it grow.
    pub size: Size,
}

/// The result of compiling one module.
pub struct Compiled {
    /// The SHA-256 of the original file.
    pub hash: [u8; 32],
    pub manifest: Arc<Manifest>,
    pub code: Arc<[u8]>,
    /// Whether the code was in the cache.
    pub cached: bool,
}

/// A capsule that passed all checks.
#[derive(Clone, Debug)]
pub struct CapsuleCode {
    pub code: Vec<u8>,
    /// For each exported function, in their order, the most instructions of a call, without calls of the
    /// node. The functions without count theirs.
    pub bounds: Vec<Option<u64>>,
}

/// The kind of a result that is stored for a module, which is part of its key in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Artifact {
    Bounded,
    Metered,
    Unchecked,
    /// No code: the bounds of its batches.
    Verdict,
    /// No code: the result of its examination.
    ModuleInfo,
    /// No code: the cost of its calls.
    Report,
    /// No code: the reason why it could not be analysed.
    Unanalysed,
}

impl Artifact {
    const ALL: [Self; 7] = [
        Self::Bounded,
        Self::Metered,
        Self::Unchecked,
        Self::Verdict,
        Self::ModuleInfo,
        Self::Report,
        Self::Unanalysed,
    ];
}

/// The start of work on a module.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    pub step: Step,
    /// The SHA-256 of the module's file.
    pub hash: [u8; 32],
    /// The length of the module's file in bytes.
    pub bytes: usize,
}

type Note<'a> = Box<dyn Fn(&Start) -> Result<(), String> + 'a>;

/// The way in which a principal pays for work, by its allowance.
pub enum Payment<'a> {
    /// No payment: the work is the operator's own.
    Free,
    /// A payment at once. Otherwise the work is refused.
    Now,
    /// A payment once the allowance is there. The function waits for it, and returns false when it is
    /// interrupted.
    Later(Box<dyn Fn(&Spent) -> bool + 'a>),
}

/// The place where foreign modules are parsed, analysed and compiled.
#[derive(Clone)]
enum Place {
    Child(Worker),
    InProcess(Engines),
}

/// The result of an examination that is not kept yet, and the module's hash.
type Waiting = ([u8; 32], Vec<u8>);

/// Parses, analyses and compiles foreign modules: in a confined process, or in this one.
pub struct Compiler<'a> {
    place: Place,
    cache: Option<Cache>,
    note: Option<Note<'a>>,
    /// Results of examinations that are written to the cache once their modules are admitted, if that is
    /// waited for.
    waiting: Option<Mutex<Vec<Waiting>>>,
    payment: Payment<'a>,
    /// The allowance of the principal for whom it works.
    allowance: Option<Allowance>,
}

impl<'a> Compiler<'a> {
    /// Returns the reason why this module was cut off in an earlier run, and the file that records that.
    pub fn cut_off(&self, hash: &[u8; 32]) -> Option<(CutOff, std::path::PathBuf)> {
        self.cache.as_ref()?.cut_off(hash)
    }

    /// Returns a compiler that works in confined child processes. Without a cache, every module is compiled
    /// each time.
    pub fn new(worker: Worker, cache: Option<Cache>) -> Self {
        Self::at(Place::Child(worker), cache)
    }

    /// Returns a compiler that works in this process, without limits: for trusted modules, in tests and
    /// benchmarks.
    pub fn in_process(engines: Engines, cache: Option<Cache>) -> Self {
        Self::at(Place::InProcess(engines), cache)
    }

    fn at(place: Place, cache: Option<Cache>) -> Self {
        Self { place, cache, note: None, waiting: None, payment: Payment::Now, allowance: None }
    }

    /// Returns the compiler for the work of principals that is paid in this way.
    #[must_use]
    pub fn paid(self, payment: Payment<'a>) -> Self {
        Self { payment, ..self }
    }

    /// Returns a compiler of this kind that works for a principal, one of `tenant`: it reads and writes the
    /// principal's own part of the cache, and all its work is charged to the allowance.
    #[must_use]
    pub fn of<'b>(&'b self, tenant: &str, principal: &str, allowance: Allowance) -> Compiler<'b> {
        Compiler {
            place: self.place.clone(),
            cache: self.cache.as_ref().map(|cache| cache.of(tenant, principal)),
            note: self.note.as_ref().map(|note| Box::new(move |start: &Start| note(start)) as Note<'b>),
            waiting: self.waiting.as_ref().map(|_| Mutex::default()),
            payment: match &self.payment {
                Payment::Later(wait) => Payment::Later(Box::new(move |spent| wait(spent))),
                Payment::Now => Payment::Now,
                Payment::Free => Payment::Free,
            },
            allowance: Some(allowance).filter(|_| !matches!(self.payment, Payment::Free)),
        }
    }

    fn known(&self, identity: &[u8; 32], artifact: Artifact) -> Option<Vec<u8>> {
        let cache = self.cache.as_ref()?;
        cache.get(&cache.name(identity, artifact))
    }

    fn keep(&self, identity: &[u8; 32], artifact: Artifact, bytes: &[u8]) -> Result<(), CacheError> {
        self.cache.as_ref().map_or(Ok(()), |cache| cache.put(&cache.name(identity, artifact), bytes))
    }

    /// Returns the compiler with a function that is called before each piece of work. If `note` fails, the
    /// work is not started. Results from the cache are not noted.
    #[must_use]
    pub fn noted_by(self, note: impl Fn(&Start) -> Result<(), String> + 'a) -> Self {
        Self { note: Some(Box::new(note)), ..self }
    }

    /// Returns the compiler so that the results of examinations are kept in the cache only after
    /// [`Compiler::keep_examined`], so that refused requests leave nothing there.
    #[must_use]
    pub fn keeping_admitted(self) -> Self {
        Self { waiting: Some(Mutex::default()), ..self }
    }

    /// Writes the results of examinations that wait to the cache.
    ///
    /// # Errors
    ///
    /// Returns an error if the cache cannot be written.
    pub fn keep_examined(&self) -> Result<(), CompileError> {
        let Some(waiting) = &self.waiting else { return Ok(()) };
        let waiting = std::mem::take(&mut *lock(waiting));
        waiting.iter().try_for_each(|(hash, bytes)| Ok(self.keep(hash, Artifact::ModuleInfo, bytes)?))
    }

    /// Examines a module without compiling it.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is too large or no module that may run, if its manifest is invalid, if
    /// the examination exceeds its limits, or if the cache cannot be written.
    pub fn examine(&self, wasm: &[u8]) -> Result<ModuleInfo, CompileError> {
        only_wasm(wasm)?;
        let hash = hash_of(wasm);
        let known = self.known(&hash, Artifact::ModuleInfo);
        let known = known.and_then(|bytes| postcard::from_bytes::<(Vec<u8>, bool, Size)>(&bytes).ok());
        let (manifest, messages, size) = match known {
            Some(known) => known,
            None => {
                let examined = self.perform(&Job::Examine, (wasm, Size::default()), &hash)?;
                let (Answer::ModuleInfo { manifest, messages, size }, _) = examined else {
                    return Err(unexpected(Step::Examine));
                };
                let found = (manifest, messages, size);
                if let Ok(bytes) = postcard::to_stdvec(&found) {
                    match &self.waiting {
                        Some(waiting) => {
                            lock(waiting).push((hash, bytes));
                        }
                        None => self.keep(&hash, Artifact::ModuleInfo, &bytes)?,
                    }
                }
                found
            }
        };
        Ok(ModuleInfo { hash, manifest: Arc::new(Manifest::parse(&manifest)?), messages, size })
    }

    /// Returns the source lines of offsets in the file, if the module was built with them. They are for
    /// people only: a fault in them is no reason to refuse the module.
    ///
    /// # Errors
    ///
    /// Returns an error if the work cannot be started or exceeds its limits.
    pub fn lines(
        &self,
        wasm: &[u8],
        examined: &ModuleInfo,
        mut offsets: Vec<usize>,
    ) -> Result<BTreeMap<usize, String>, CompileError> {
        offsets.sort_unstable();
        offsets.dedup();
        let job = Job::Lines { offsets: offsets.clone() };
        let (Answer::Lines(lines), _) = self.perform(&job, (wasm, examined.size), &examined.hash)? else {
            return Err(unexpected(Step::Lines));
        };
        Ok(offsets.into_iter().zip(lines).filter_map(|(offset, line)| Some((offset, line?))).collect())
    }

    fn compile(
        &self,
        wasm: &[u8],
        examined: &ModuleInfo,
        artifact: Artifact,
    ) -> Result<Compiled, CompileError> {
        let ModuleInfo { hash, manifest, size, .. } = examined.clone();
        if let Some(code) = self.known(&hash, artifact)
            // Another version of Wasmtime or type of machine recognises the entry as foreign and compiles
            // again.
            && wasmtime::Engine::detect_precompiled(&code) == Some(wasmtime::Precompiled::Module)
        {
            return Ok(Compiled { hash, manifest, code: code.into(), cached: true });
        }
        let (Answer::Code { .. }, code) = self.perform(&Job::Compile { artifact }, (wasm, size), &hash)?
        else {
            return Err(unexpected(Step::Compile));
        };
        self.keep(&hash, artifact, &code)?;
        Ok(Compiled { hash, manifest, code: code.into(), cached: false })
    }

    /// Starts the child for the next capsule ahead, if capsules are compiled in children, so that it need not
    /// be waited for. It has confined itself by the time that it reads the capsule, and has no other job. It
    /// ends with the thread that calls this.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be started.
    pub fn prepare_capsule(&self) -> Result<(), CompileError> {
        let Place::Child(worker) = &self.place else { return Ok(()) };
        worker.prepare().map_err(|stopped| CompileError::Stopped { step: Step::Compile, stopped })
    }

    /// Checks and compiles a capsule. Nothing is kept: active nodes keep programs in memory.
    ///
    /// # Errors
    ///
    /// Returns an error if the code is no capsule, or if the work exceeds its limits or the allowance.
    pub fn capsule(&self, wasm: &[u8]) -> Result<CapsuleCode, CompileError> {
        only_wasm(wasm)?;
        match self.perform(&Job::Capsule, (wasm, Size::default()), &hash_of(wasm))? {
            (Answer::Capsule { bounds, .. }, code) => Ok(CapsuleCode { code, bounds }),
            _ => Err(unexpected(Step::Compile)),
        }
    }

    /// Does a job on a module with this much code, as far as that is known.
    fn perform(
        &self,
        job: &Job,
        (wasm, size): (&[u8], Size),
        hash: &[u8; 32],
    ) -> Result<(Answer, Vec<u8>), CompileError> {
        let step = job.step();
        // The length is checked before the module is copied for a child.
        let most = flame_bounds::Rules::default().module_bytes;
        if wasm.len() > most {
            return Err(CompileError::TooLarge { bytes: wasm.len(), most });
        }
        loop {
            let reserved = self.reserve(Limits::of(step, wasm.len(), size).cpu, step)?;
            let noted = self
                .note
                .as_ref()
                .map_or(Ok(()), |note| note(&Start { step, hash: *hash, bytes: wasm.len() }));
            if let Err(reason) = noted {
                reserved.into_iter().for_each(|reserved| reserved.used(Duration::ZERO));
                return Err(CompileError::Unnoted { step, reason });
            }
            let (done, used) = match &self.place {
                Place::Child(worker) => {
                    worker.perform(job, (wasm, size), reserved.as_ref().map(Reserved::time))
                }
                Place::InProcess(engines) => (Ok(perform(job, wasm, Some(engines))), Duration::ZERO),
            };
            let all = reserved.as_ref().and_then(Reserved::is_all_of);
            reserved.into_iter().for_each(|reserved| reserved.used(used));
            return match (done, all) {
                (Ok((Answer::Refused(reason), _)), _) => Err(CompileError::Refused(reason)),
                (Ok(answer), _) => Ok(answer),
                // Later there may be more than what was left.
                (Err(Stopped::Allowance { .. }), None) => continue,
                (Err(Stopped::Allowance { .. }), Some(share)) => Err(CompileError::Beyond { step, share }),
                (Err(stopped), _) => Err(CompileError::Stopped { step, stopped }),
            };
        }
    }

    /// Reserves the processor time of a child, if the principal pays for it.
    fn reserve(&self, seconds: u64, step: Step) -> Result<Option<Reserved<'_>>, CompileError> {
        let Some(allowance) = &self.allowance else { return Ok(None) };
        let most = Duration::from_secs(seconds);
        loop {
            let spent = match allowance.reserve(most) {
                Ok(reserved) => return Ok(Some(reserved)),
                Err(spent) => spent,
            };
            match &self.payment {
                Payment::Later(wait) if spent.wait.is_some() => {
                    let stopped = Stopped::Interrupted;
                    wait(&spent).then_some(()).ok_or(CompileError::Stopped { step, stopped })?;
                }
                _ => return Err(CompileError::Spent { step, spent }),
            }
        }
    }
}

/// Returns the error for an answer to another kind of job, which [`Answer::parse`] refuses before.
fn unexpected(step: Step) -> CompileError {
    CompileError::Stopped { step, stopped: Stopped::Answer("it answers another question") }
}

/// Returns the hash by which a module is identified: the SHA-256 of its file.
pub fn hash_of(wasm: &[u8]) -> [u8; 32] {
    Sha256::digest(wasm).into()
}

/// Refuses other files than Wasm, and names the kinds that people commonly pass instead.
fn only_wasm(bytes: &[u8]) -> Result<(), CompileError> {
    let what = match bytes {
        [0, b'a', b's', b'm', 1, 0, 0, 0, ..] => return Ok(()),
        [0, b'a', b's', b'm', ..] => "a component or another version of Wasm",
        [0x7f, b'E', b'L', b'F', ..] => "an ELF file (compiled code is never taken from outside)",
        [b'(', ..] => "the text format",
        [] => "an empty file",
        _ => "something else",
    };
    Err(CompileError::NotWasm(what))
}
