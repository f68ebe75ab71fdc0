//! Wasmtime's engines for each class of modules. They load machine code and need no compiler.

use crate::memory::WindowMemory;
use crate::watch::Watchdog;
use flame_plan::ModuleClass;
use std::sync::Arc;
use wasmtime::{Config, Engine};

/// An engine for each class, and the watchdog over calls that run without counters.
#[derive(Clone)]
pub struct Engines {
    engines: flame_engine::Engines,
    watchdog: Watchdog,
}

impl Engines {
    /// Creates the engines for this machine.
    ///
    /// # Errors
    ///
    /// Returns an error only if Wasmtime does not support the machine.
    pub fn new() -> Result<Self, wasmtime::Error> {
        Ok(Self { engines: flame_engine::Engines::new(place_memories)?, watchdog: Watchdog::new() })
    }

    /// Creates engines that count the executed instructions of bounded modules
    /// ([`crate::Instance::executed`]).
    ///
    /// # Errors
    ///
    /// As [`Engines::new`].
    pub fn counting() -> Result<Self, wasmtime::Error> {
        Ok(Self { engines: flame_engine::Engines::counting(place_memories)?, watchdog: Watchdog::new() })
    }

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
