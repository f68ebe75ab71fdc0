//! Wasmtime's engines for each class of modules. They load machine code and need no compiler.

use crate::memory::WindowMemory;
use crate::watch::Watchdog;
use flame_plan::ModuleClass;
use std::sync::Arc;
use wasmtime::{Config, Engine};

/// An engine for each class, and the watchdog over calls that run without counters.
#[derive(Clone)]
pub struct Engines {
    bounded: Engine,
    metered: Engine,
    watchdog: Watchdog,
}

impl Engines {
    /// Creates the engines for this machine.
    ///
    /// # Errors
    ///
    /// Returns an error only if Wasmtime does not support the machine.
    pub fn new() -> Result<Self, wasmtime::Error> {
        let engine = |class| Engine::new(&config(class));
        Ok(Self {
            bounded: engine(ModuleClass::Bounded)?,
            metered: engine(ModuleClass::Metered)?,
            watchdog: Watchdog::new(),
        })
    }

    /// Creates engines that count the executed instructions of bounded modules
    /// ([`crate::Instance::executed`]).
    pub fn counting() -> Result<Self, wasmtime::Error> {
        let mut counting = config(ModuleClass::Bounded);
        flame_engine::count_instructions(&mut counting);
        Ok(Self { bounded: Engine::new(&counting)?, ..Self::new()? })
    }

    pub fn of(&self, class: ModuleClass) -> &Engine {
        match class {
            ModuleClass::Bounded => &self.bounded,
            ModuleClass::Metered => &self.metered,
        }
    }

    pub fn watchdog(&self) -> &Watchdog {
        &self.watchdog
    }

    /// Ends the slice of every metered call that is running.
    pub fn end_slice(&self) {
        self.metered.increment_epoch();
    }
}

fn config(class: ModuleClass) -> Config {
    let mut config = flame_engine::config(class);
    config.with_host_memory(Arc::new(WindowMemory));
    config
}
