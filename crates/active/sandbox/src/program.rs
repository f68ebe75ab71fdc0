//! Programs: instances that are wiped and used again.

use crate::calls::{Stopped, linker};
use crate::lent::{Lent, lend, load};
use flame_abi::capsule::GLOBAL;
use flame_abi::layout::names;
use flame_active_node::{Execute, Failure, Ran, Rights};
use flame_capsule::{Hash, Host, Payer, hash_of};
use flame_plan::ModuleClass;
use std::collections::BTreeMap;
use std::io::PipeReader;
use wasmtime::{Engine, Global, InstancePre, Memory, Store, TypedFunc, Val};

/// Machine code of a capsule, made by this node's own compiler.
#[derive(Clone, Debug, Default)]
pub struct Compiled {
    pub code: Vec<u8>,
    /// For each exported function, in their order, the most instructions of a call, without calls of the
    /// node, or `None` if the function counts.
    pub bounds: Vec<Option<u64>>,
}

/// The compiler, which works elsewhere.
pub trait Compile {
    /// Checks and compiles code for an account, which pays for it; or begins to, and returns `None`.
    fn compile(&mut self, code: &[u8], account: Payer) -> Option<Result<Compiled, Failure>>;

    /// Returns code that was begun to be compiled, once it is, with its account and hash.
    fn made(&mut self) -> Option<(Payer, Hash, Result<Compiled, Failure>)> {
        None
    }

    /// Returns the pipe that can be read once code that was begun is compiled. A compiler that begins to
    /// compile has one, and gives it once.
    fn signal(&mut self) -> Option<PipeReader> {
        None
    }
}

impl<F: FnMut(&[u8], Payer) -> Result<Compiled, Failure>> Compile for F {
    fn compile(&mut self, code: &[u8], account: Payer) -> Option<Result<Compiled, Failure>> {
        Some(self(code, account))
    }
}

/// The data of an instance's store.
#[derive(Default)]
pub struct Visit {
    pub lent: Lent,
    pub memory: Option<Memory>,
    /// The instructions that are left.
    pub fuel: Option<Global>,
}

impl AsMut<Lent> for Visit {
    fn as_mut(&mut self) -> &mut Lent {
        &mut self.lent
    }
}

/// A function, and its bound.
type Function = (TypedFunc<u32, ()>, Option<u64>);

/// An instance.
struct Instance {
    store: Store<Visit>,
    memory: Memory,
    fuel: Global,
    globals: Vec<(Global, Val)>,
    functions: Vec<Function>,
}

/// Code that can be run.
pub struct Program {
    made: InstancePre<Visit>,
    bounds: Vec<Option<u64>>,
    instance: Instance,
    /// The memory at first, without the zeros at its end.
    image: Vec<u8>,
}

/// The sandbox.
pub struct Sandbox<C> {
    engine: Engine,
    compile: C,
    /// The rights under which programs are linked that are not compiled yet.
    begun: BTreeMap<(Payer, Hash), Rights>,
}

impl<C> Sandbox<C> {
    /// Makes a sandbox.
    ///
    /// # Errors
    ///
    /// Returns an error if Wasmtime does not support the machine.
    pub fn new(compile: C) -> wasmtime::Result<Self> {
        let engines = flame_engine::Engines::new(|_| ())?;
        let engine = engines.of(ModuleClass::Bounded).clone();
        Ok(Self { engine, compile, begun: BTreeMap::new() })
    }
}

impl Instance {
    fn new(made: &InstancePre<Visit>, bounds: &[Option<u64>]) -> wasmtime::Result<Self> {
        let mut store = Store::new(made.module().engine(), Visit::default());
        let instance = made.instantiate(&mut store)?;
        let missing = |what: &str| wasmtime::Error::msg(format!("no export {what}"));
        let memory = instance.get_memory(&mut store, names::MEMORY);
        let memory = memory.ok_or_else(|| missing(names::MEMORY))?;
        let fuel = instance.get_global(&mut store, names::FUEL).ok_or_else(|| missing(names::FUEL))?;
        let mut functions = Vec::new();
        let mut globals = Vec::new();
        for export in made.module().exports() {
            let name = export.name();
            if export.ty().func().is_some() {
                let bound = bounds.get(functions.len()).copied().flatten();
                functions.push((instance.get_typed_func(&mut store, name)?, bound));
            } else if name.starts_with(GLOBAL) {
                let global = instance.get_global(&mut store, name).ok_or_else(|| missing(name))?;
                let value = global.get(&mut store);
                globals.push((global, value));
            }
        }
        *store.data_mut() = Visit { lent: Lent::default(), memory: Some(memory), fuel: Some(fuel) };
        Ok(Self { store, memory, fuel, globals, functions })
    }

    /// Gives memory and globals their first values again.
    fn wipe(&mut self, image: &[u8]) -> wasmtime::Result<()> {
        let memory = self.memory.data_mut(&mut self.store);
        let (first, rest) = memory.split_at_mut(image.len().min(memory.len()));
        first.copy_from_slice(&image[..first.len()]);
        rest.fill(0);
        self.globals.iter().try_for_each(|(global, value)| global.set(&mut self.store, *value))
    }

    fn run(&mut self, function: u8, arguments: &[u8], limit: u64, host: &mut dyn Host) -> Ran {
        let stopped = |instructions, failure| Ran { instructions, end: Err(failure) };
        let Some((function, bound)) = self.functions.get(usize::from(function)) else {
            return stopped(0, Failure::NoFunction);
        };
        let limit = limit.min(i64::MAX.cast_unsigned());
        let bound = bound.unwrap_or(0);
        let Some(fuel) = limit.checked_sub(bound).map(u64::cast_signed) else {
            return stopped(0, Failure::Limit);
        };
        let memory = self.memory.data_mut(&mut self.store);
        let Some(place) = memory.get_mut(..arguments.len()) else { return stopped(0, Failure::Trapped) };
        place.copy_from_slice(arguments);
        let length = u32::try_from(arguments.len()).unwrap_or(0);
        if self.fuel.set(&mut self.store, fuel.into()).is_err() {
            return stopped(0, Failure::Trapped);
        }
        let end = lend(&mut self.store, host, |store| function.call(store, length));
        let left = self.fuel.get(&mut self.store).i64().unwrap_or(0);
        let instructions = bound + (fuel - left.max(0)).max(0).cast_unsigned();
        let end = end.map_err(|error| {
            let is_limit = left < 0 || matches!(error.downcast_ref(), Some(Stopped::Limit));
            if is_limit { Failure::Limit } else { Failure::Trapped }
        });
        Ran { instructions, end }
    }
}

impl Program {
    /// Replaces the instance by a fresh one, to compare it with a wiped one.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no memory left.
    pub fn renew(&mut self) -> wasmtime::Result<()> {
        self.instance = Instance::new(&self.made, &self.bounds)?;
        Ok(())
    }
}

impl<C: Compile> Sandbox<C> {
    fn linked(&self, compiled: Result<Compiled, Failure>, rights: Rights) -> Result<Program, Failure> {
        self.program(&compiled?, rights).map_err(|_| Failure::NotCompiled)
    }

    fn program(&self, compiled: &Compiled, rights: Rights) -> wasmtime::Result<Program> {
        let module = load(&self.engine, &compiled.code)?;
        let made = linker(&self.engine, rights)?.instantiate_pre(&module)?;
        let mut instance = Instance::new(&made, &compiled.bounds)?;
        let memory = instance.memory.data_mut(&mut instance.store);
        let end = memory.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let image = memory[..end].to_vec();
        Ok(Program { made, bounds: compiled.bounds.clone(), instance, image })
    }
}

impl<C: Compile> Execute for Sandbox<C> {
    type Code = Program;

    fn compile(&mut self, code: &[u8], account: Payer, rights: Rights) -> Option<Result<Program, Failure>> {
        let Some(compiled) = self.compile.compile(code, account) else {
            self.begun.insert((account, hash_of(code)), rights);
            return None;
        };
        Some(self.linked(compiled, rights))
    }

    fn made(&mut self) -> Option<(Payer, Hash, Result<Program, Failure>)> {
        let (account, hash, compiled) = self.compile.made()?;
        let rights = self.begun.remove(&(account, hash)).unwrap_or_default();
        Some((account, hash, self.linked(compiled, rights)))
    }

    fn run(
        &mut self,
        code: &mut Program,
        function: u8,
        arguments: &[u8],
        limit: u64,
        host: &mut dyn Host,
    ) -> Ran {
        if code.instance.wipe(&code.image).is_err() {
            return Ran { instructions: 0, end: Err(Failure::Trapped) };
        }
        code.instance.run(function, arguments, limit, host)
    }
}
