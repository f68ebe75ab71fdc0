//! Wasmtime's engines for each class of modules. They load machine code and need no compiler.

use crate::apart::Apart;
use crate::memory::WindowMemory;
use crate::watch::Watchdog;
use flame_abi::layout::POLL_BYTES;
use flame_block::SharedMemory;
use flame_plan::ModuleClass;
use std::sync::Arc;
use wasmtime::{Config, Engine};

/// An engine for each class, and the watchdog over calls that run without counters.
#[derive(Clone)]
pub struct Engines {
    engines: flame_engine::Engines,
    watchdog: Watchdog,
    apart: Apart,
    /// The page that polls load from. Its file is separate from the control area, so that revoking access
    /// does not split a mapping of the kernel, the number of which is limited.
    polling_page: Arc<SharedMemory>,
}

impl Engines {
    /// Creates the engines for this machine.
    ///
    /// # Errors
    ///
    /// Returns an error if Wasmtime does not support the machine, or it has no memory left.
    pub fn new() -> Result<Self, wasmtime::Error> {
        Self::of_engines(flame_engine::Engines::new(place_memories)?)
    }

    /// Creates engines that count the executed instructions of bounded modules
    /// ([`crate::Instance::executed`]).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Engines::new`].
    pub fn counting() -> Result<Self, wasmtime::Error> {
        Self::of_engines(flame_engine::Engines::counting(place_memories)?)
    }

    fn of_engines(engines: flame_engine::Engines) -> Result<Self, wasmtime::Error> {
        let polling_page = Arc::new(SharedMemory::new(POLL_BYTES as usize)?);
        Ok(Self { engines, watchdog: Watchdog::new(), apart: Apart::default(), polling_page })
    }

    pub(crate) fn polling_page(&self) -> &Arc<SharedMemory> {
        &self.polling_page
    }

    pub(crate) fn apart(&self) -> &Apart {
        &self.apart
    }

    /// Returns the engine that runs modules of a class.
    pub fn of(&self, class: ModuleClass) -> &Engine {
        self.engines.of(class)
    }

    pub fn watchdog(&self) -> &Watchdog {
        &self.watchdog
    }

    /// Ends the slice of every metered call that is running.
    pub fn end_slice(&self) {
        self.of(ModuleClass::Metered).increment_epoch();
    }
}

fn place_memories(config: &mut Config) {
    config.with_host_memory(Arc::new(WindowMemory));
}
