//! From a `.wasm` file to machine code: check, rewrite, compile, cache.
//!
//! Only WebAssembly comes in. Machine code is made here or read back from this node's own cache,
//! whose entries carry a MAC under a key that never leaves the node.
#![forbid(unsafe_code)]

mod cache;
mod install;
mod verdict;

pub use cache::{Cache, CacheError};

pub use install::{InstallError, Installed, Request};
pub use verdict::{Admission, Pace, Verdict, of_packet_ns, violated, visible};

use flame_abi::manifest::{Manifest, ManifestError};
use flame_bounds::{Count, ModuleError, Rules};
use flame_plan::ModuleClass;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use wasmtime::Engine;

/// Why a module is not run.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    #[error("this is not WebAssembly but {0}: only .wasm files are accepted")]
    NotWasm(&'static str),
    #[error(transparent)]
    Module(#[from] ModuleError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Valid Wasm that Wasmtime could not compile.
    #[error("compiling: {0}")]
    Compile(String),
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// A module that passed all checks.
#[derive(Clone)]
pub struct Examined {
    /// SHA-256 of the file as it came.
    pub hash: [u8; 32],
    pub manifest: Arc<Manifest>,
    /// Whether it has a slow path, which its fast instances send messages to.
    pub messages: bool,
}

/// What compiling one module made.
pub struct Compiled {
    /// SHA-256 of the file as it came.
    pub hash: [u8; 32],
    pub manifest: Arc<Manifest>,
    pub code: Arc<[u8]>,
    /// Whether the code was in the cache.
    pub cached: bool,
}

/// How a module is held to what it may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// By its bounds, if they are proved and keep the pace that is asked for; else metered.
    Auto,
    /// Work is counted and cut off at its budget, and can be interrupted, whatever is proved.
    Metered,
    /// No counters: for measuring what they cost. Such a module ends at a deadline, or never by itself.
    Unchecked,
}

/// What was made of a module, and therefore its place in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    Bounded,
    Metered,
    Unchecked,
    /// No code: what its bounds are.
    Verdict,
}

pub struct Compiler {
    bounded: Engine,
    metered: Engine,
    cache: Option<Cache>,
}

impl Compiler {
    /// `engine` gives the one for each class, as what runs the code has them. Without a cache every module is compiled anew.
    pub fn new<'e>(engine: impl Fn(ModuleClass) -> &'e Engine, cache: Option<Cache>) -> Self {
        let [bounded, metered] =
            [ModuleClass::Bounded, ModuleClass::Metered].map(|class| engine(class).clone());
        Self { bounded, metered, cache }
    }

    /// What a module is, without compiling it.
    pub fn examine(wasm: &[u8]) -> Result<Examined, CompileError> {
        only_wasm(wasm)?;
        let checked = flame_bounds::check(wasm, &Rules::default())?;
        let manifest = Arc::new(Manifest::parse(&checked.manifest)?);
        Ok(Examined { hash: Sha256::digest(wasm).into(), manifest, messages: checked.exports.message })
    }

    fn compile(&self, wasm: &[u8], examined: &Examined, made: Made) -> Result<Compiled, CompileError> {
        let Examined { hash, manifest, .. } = examined.clone();
        let name = cache::entry_name(&hash, made);
        if let Some(cache) = &self.cache
            && let Some(code) = cache.get(&name)
            // A new Wasmtime or another machine type reads its entry as foreign and compiles anew.
            && wasmtime::Engine::detect_precompiled(&code) == Some(wasmtime::Precompiled::Module)
        {
            return Ok(Compiled { hash, manifest, code: code.into(), cached: true });
        }
        let analysis;
        let (count, class) = match made {
            Made::Bounded => {
                analysis = flame_bounds::analyse(wasm, &Rules::default(), None)?;
                (Count::Except(&analysis.proved), ModuleClass::Bounded)
            }
            Made::Metered => (Count::All, ModuleClass::Metered),
            Made::Unchecked | Made::Verdict => (Count::Nothing, ModuleClass::Bounded),
        };
        let rewritten = flame_bounds::rewrite_polled(wasm, count)?;
        let engine = match class {
            ModuleClass::Bounded => &self.bounded,
            ModuleClass::Metered => &self.metered,
        };
        let code =
            engine.precompile_module(&rewritten).map_err(|e| CompileError::Compile(format!("{e:#}")))?;
        if let Some(cache) = &self.cache {
            cache.put(&name, &code)?;
        }
        Ok(Compiled { hash, manifest, code: code.into(), cached: false })
    }
}

/// Refuses, by what they are, the files that people hand over instead of Wasm.
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
