//! The call graph.

use flame_meter::error::cut;
use flame_verify::module::Module;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use wasmparser::{KnownCustom, Name, Operator, Parser, Payload};

/// The calls of a function, and its use of the stack.
#[derive(Default)]
pub struct Calls {
    /// The functions that it calls directly, by index.
    pub direct: Vec<u32>,
    /// The types of functions that it calls through tables.
    pub tables: Vec<u32>,
    pub grows: bool,
    /// The number of bytes that it takes of the stack in memory.
    pub frame: u64,
    /// The number of locals, without parameters.
    pub locals: u64,
}

/// The calls of all functions of a module, whether they are walked or not.
#[derive(Default)]
pub struct Graph {
    imported: u32,
    functions: Vec<Calls>,
    names: HashMap<u32, String>,
    pub grows: bool,
    /// The work that is left to those who walk through calls: see [`Graph::spend`].
    work: Cell<u64>,
}

/// The work for each function, besides that for each byte of code: the searches from every entry meet it.
const WORK_PER_FUNCTION: u64 = 256;

/// Recognizes the instructions with which compilers begin a function: `global.get`, a constant, `i32.sub`.
#[derive(Default)]
struct Frame {
    recent: [Option<u64>; 2],
    bytes: u64,
}

impl Frame {
    fn see(&mut self, operator: &Operator<'_>) {
        let now = match operator {
            Operator::GlobalGet { .. } => Some(0),
            Operator::I32Const { value } => u64::try_from(*value).ok(),
            Operator::I32Sub => {
                if let ([Some(0), Some(bytes)], 0) = (self.recent, self.bytes) {
                    self.bytes = bytes;
                }
                None
            }
            _ => None,
        };
        self.recent = [self.recent[1], now];
    }
}

impl Graph {
    /// Reads the calls and frames of a module's functions.
    ///
    /// # Errors
    ///
    /// Returns an error if the module is malformed, which a valid one is not.
    pub fn read(wasm: &[u8], module: &Module<'_>) -> Result<Self, wasmparser::Error> {
        let functions = module.functions.len() as u64;
        let work = Cell::new(flame_verify::work(module.code) + WORK_PER_FUNCTION * functions);
        let mut graph = Self { imported: module.imports.len() as u32, work, ..Self::default() };
        for payload in Parser::new(0).parse_all(wasm) {
            match payload? {
                Payload::CodeSectionEntry(body) => {
                    let (mut calls, mut frame) = (Calls::default(), Frame::default());
                    for local in body.get_locals_reader()? {
                        calls.locals += u64::from(local?.0);
                    }
                    for operator in body.get_operators_reader()? {
                        let operator = operator?;
                        frame.see(&operator);
                        match operator {
                            Operator::Call { function_index } => calls.direct.push(function_index),
                            Operator::CallIndirect { type_index, .. } => calls.tables.push(type_index),
                            Operator::MemoryGrow { .. } => calls.grows = true,
                            _ => {}
                        }
                    }
                    // Types that are equal reach the same functions.
                    calls.tables.iter_mut().for_each(|kind| *kind = module.same(*kind));
                    calls.tables.sort_unstable();
                    calls.tables.dedup();
                    calls.frame = frame.bytes;
                    graph.grows |= calls.grows;
                    graph.functions.push(calls);
                }
                Payload::CustomSection(section) => {
                    if let KnownCustom::Name(all) = section.as_known() {
                        for part in all.into_iter().flatten() {
                            let Name::Function(map) = part else { continue };
                            let named = map.into_iter().flatten().map(|n| (n.index, cut(n.name).to_owned()));
                            graph.names.extend(named);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(graph)
    }

    /// Takes `steps` from the work that all walks through calls may do, which is linear in the size of the
    /// module; returns whether there was as much left. A walk that has none left gives the result that is
    /// certainly no less than the true one.
    pub fn spend(&self, steps: usize) -> bool {
        let left = self.work.get().checked_sub(steps as u64);
        self.work.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Returns the work that is left.
    #[cfg(test)]
    pub fn left(&self) -> u64 {
        self.work.get()
    }

    /// Returns the calls of a function that the module defines.
    pub fn of(&self, function: u32) -> Option<&Calls> {
        self.functions.get(function.checked_sub(self.imported)? as usize)
    }

    /// Returns the functions that the module defines.
    pub fn own(&self) -> std::ops::Range<u32> {
        self.imported..self.imported + self.functions.len() as u32
    }

    pub fn name(&self, function: u32) -> String {
        let known = self.names.get(&function).map(|name| flame_plan::readable_name(name));
        known.unwrap_or_else(|| format!("function {function}"))
    }

    /// Returns these functions and all that they may call, directly or not; restricted to `only` if given. If
    /// it takes more work than is left, these are all functions.
    pub fn reaches(&self, module: &Module<'_>, from: &[u32], only: Option<&BTreeSet<u32>>) -> BTreeSet<u32> {
        let (mut seen, mut kinds, mut todo) = (BTreeSet::new(), BTreeSet::new(), from.to_vec());
        while let Some(f) = todo.pop() {
            if !self.spend(1) {
                return only.cloned().unwrap_or_else(|| self.own().collect());
            }
            if let Some(calls) = self.of(f).filter(|_| only.is_none_or(|only| only.contains(&f)))
                && seen.insert(f)
            {
                todo.extend(&calls.direct);
                for kind in calls.tables.iter().filter(|kind| kinds.insert(**kind)) {
                    todo.extend(module.through_tables(*kind));
                }
            }
        }
        seen
    }

    /// Returns the shortest cycle of calls through a recursive function, from it back to it.
    pub fn cycle(&self, module: &Module<'_>, function: u32) -> Vec<u32> {
        let (mut callers, mut kinds) = (BTreeMap::<u32, u32>::new(), BTreeSet::new());
        let mut todo = VecDeque::from([function]);
        while let Some(at) = todo.pop_front() {
            let Some(calls) = self.of(at) else { continue };
            let tables = calls.tables.iter().filter(|kind| kinds.insert(**kind));
            let tables = tables.flat_map(|kind| module.through_tables(*kind));
            for callee in calls.direct.iter().chain(tables) {
                if !self.spend(1) {
                    return vec![function];
                }
                if *callee == function {
                    let before = |f: &u32| callers.get(f).copied();
                    let mut cycle: Vec<u32> = std::iter::successors(Some(at), before).collect();
                    cycle.reverse();
                    cycle.push(function);
                    return cycle;
                }
                if !callers.contains_key(callee) {
                    callers.insert(*callee, at);
                    todo.push_back(*callee);
                }
            }
        }
        vec![function]
    }

    /// Returns the names of the imports that these functions may call.
    pub fn imports(&self, module: &Module<'_>, functions: &BTreeSet<u32>) -> Vec<String> {
        let name = |f: &u32| module.import(*f).map(|(module, name)| format!("{module}.{name}"));
        let mut called: BTreeSet<String> = BTreeSet::new();
        for calls in functions.iter().filter_map(|f| self.of(*f)) {
            called.extend(calls.direct.iter().filter_map(name));
            // Imports come first.
            let tables = calls.tables.iter().map(|kind| module.through_tables(*kind).iter());
            called.extend(tables.flat_map(|all| all.map_while(name)));
        }
        called.into_iter().collect()
    }
}
