//! Wasmtime's compilers for each class of modules.

use flame_plan::ModuleClass;
use wasmtime::{Config, Engine, OptLevel};

/// Compilers for the engines that run modules (`flame_run::Engines`).
#[derive(Clone)]
pub struct Engines(flame_engine::Engines);

impl Engines {
    /// Creates compilers for this machine.
    ///
    /// # Errors
    ///
    /// Returns an error only if Wasmtime does not support the machine.
    pub fn new() -> Result<Self, wasmtime::Error> {
        flame_engine::Engines::new(generate_code).map(Self)
    }

    /// Creates compilers for `flame_run::Engines::counting`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Engines::new`].
    pub fn counting() -> Result<Self, wasmtime::Error> {
        flame_engine::Engines::counting(generate_code).map(Self)
    }

    /// Returns the engine that compiles modules of a class.
    pub fn of(&self, class: ModuleClass) -> &Engine {
        self.0.of(class)
    }

    /// Compiles Wasm that was rewritten for `class` to machine code.
    ///
    /// # Errors
    ///
    /// Returns an error if the engine refuses the Wasm. The rewriter's output is accepted for every module
    /// that passed the checks.
    pub fn precompile(&self, class: ModuleClass, wasm: &[u8]) -> Result<Vec<u8>, wasmtime::Error> {
        self.of(class).precompile_module(wasm)
    }
}

fn generate_code(config: &mut Config) {
    config
        .cranelift_opt_level(OptLevel::Speed)
        // All NaNs are one value, so that results are the same on every machine.
        .cranelift_nan_canonicalization(true);
}

#[cfg(test)]
mod tests {
    /// The validator and the engine accept the same language.
    #[test]
    fn one_set_of_features() {
        let names = |all: Vec<&'static str>| all;
        let door = flame_meter::features::FEATURES.iter_names().map(|(name, _)| name).collect();
        let engine = flame_engine::features().iter_names().map(|(name, _)| name).collect();
        assert_eq!(names(door), names(engine));
    }
}
