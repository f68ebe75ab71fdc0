//! Runs a module, and sets its globals.

use std::sync::OnceLock;
use wasmtime::{Config, Engine, Instance, Linker, Module, Store, Val, WasmFeatures};

/// An amount of fuel that no terminating test uses up.
pub const PLENTY: i64 = 1 << 40;

/// Returns an engine with or without Wasmtime's own meter; there is one of each, because creating one takes
/// longer than a test's run.
pub fn engine(fuel: bool) -> Engine {
    static ENGINES: [OnceLock<Engine>; 2] = [OnceLock::new(), OnceLock::new()];
    ENGINES[usize::from(fuel)].get_or_init(|| new_engine(fuel)).clone()
}

fn new_engine(fuel: bool) -> Engine {
    let mut config = Config::new();
    config.wasm_features(WasmFeatures::all(), false);
    config.wasm_features(flame_engine::features(), true);
    if fuel {
        flame_engine::count_instructions(&mut config);
    }
    config.cranelift_nan_canonicalization(true);
    Engine::new(&config).expect("this machine compiles Wasm")
}

pub struct Run {
    pub store: Store<()>,
    pub instance: Instance,
}

impl Run {
    pub fn new(engine: &Engine, wasm: &[u8]) -> Self {
        let module = Module::new(engine, wasm).expect("compiles");
        let mut store = Store::new(engine, ());
        store.set_fuel(PLENTY as u64).ok();
        let mut linker = Linker::new(engine);
        linker.func_wrap("flame", "packet", |_: i32| {}).expect("links");
        let instance = linker.instantiate(&mut store, &module).expect("instantiates");
        Self { store, instance }
    }

    pub fn set(&mut self, name: &str, value: i64) {
        let global = self.instance.get_global(&mut self.store, name).expect("exported");
        let value = match global.ty(&self.store).content() {
            wasmtime::ValType::I64 => Val::I64(value),
            _ => Val::I32(value as i32),
        };
        global.set(&mut self.store, value).expect("mutable");
    }
}
