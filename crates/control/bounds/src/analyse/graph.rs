//! The call graph.

use flame_meter::error::cut;
use flame_verify::module::Module;
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
}

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
        let mut graph = Self { imported: module.imports.len() as u32, ..Self::default() };
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

    /// Returns these functions and all that they may call, directly or not; restricted to `only` if given.
    pub fn reaches(&self, module: &Module<'_>, from: &[u32], only: Option<&BTreeSet<u32>>) -> BTreeSet<u32> {
        let (mut seen, mut kinds, mut todo) = (BTreeSet::new(), BTreeSet::new(), from.to_vec());
        while let Some(f) = todo.pop() {
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
        let mut callers: BTreeMap<u32, u32> = BTreeMap::new();
        let mut todo = VecDeque::from([function]);
        while let Some(at) = todo.pop_front() {
            let Some(calls) = self.of(at) else { continue };
            let tables = calls.tables.iter().flat_map(|kind| module.through_tables(*kind));
            for callee in calls.direct.iter().chain(tables) {
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

/// The order in which functions are walked.
pub struct Order {
    /// The functions, each after its callees, without the recursive ones.
    pub functions: Vec<u32>,
    /// The functions that call each other recursively, by name.
    pub cycles: Vec<Vec<String>>,
}

impl Order {
    /// Orders by calls of functions that return; a function that diverges ends the call.
    pub fn of(module: &Module<'_>, graph: &Graph, returning: &BTreeSet<u32>) -> Self {
        let own = graph.own();
        // A call through a table may reach any function with an address and its type: one additional function
        // represents each type.
        let (tables, last) = (own.end, own.end + module.types.len() as u32);
        let is_called = |f: &u32| *f >= own.start && returning.contains(f);
        let callees = |f: u32| -> Vec<u32> {
            if let Some(kind) = f.checked_sub(tables) {
                return module.through_tables(kind).iter().copied().filter(is_called).collect();
            }
            let Some(calls) = graph.of(f) else { return Vec::new() };
            let direct = calls.direct.iter().copied().filter(is_called);
            direct.chain(calls.tables.iter().map(|kind| tables + kind)).collect()
        };
        let (mut waiting, mut callers) = (BTreeMap::new(), BTreeMap::<u32, Vec<u32>>::new());
        for f in own.start..last {
            let all: BTreeSet<u32> = callees(f).into_iter().collect();
            waiting.insert(f, all.len());
            for callee in all {
                callers.entry(callee).or_default().push(f);
            }
        }
        let mut ready: Vec<u32> = waiting.iter().filter(|(_, n)| **n == 0).map(|(f, _)| *f).collect();
        let mut functions = Vec::new();
        while let Some(f) = ready.pop() {
            waiting.remove(&f);
            if f < tables {
                functions.push(f);
            }
            for caller in callers.get(&f).into_iter().flatten() {
                if let Some(n) = waiting.get_mut(caller) {
                    *n -= 1;
                    if *n == 0 {
                        ready.push(*caller);
                    }
                }
            }
        }
        // The remaining functions are recursive or call recursive ones: follow calls until a function recurs.
        let left: BTreeSet<u32> = waiting.keys().copied().collect();
        let mut cycles = Vec::new();
        let mut seen = BTreeSet::new();
        for start in &left {
            let (mut path, mut at) = (Vec::new(), *start);
            while seen.insert(at) {
                path.push(at);
                match callees(at).into_iter().find(|c| left.contains(c)) {
                    Some(next) => at = next,
                    None => break,
                }
            }
            if let Some(from) = path.iter().position(|f| *f == at) {
                let name =
                    |f: &u32| if *f >= tables { "a call through a table".to_owned() } else { graph.name(*f) };
                cycles.push(path[from..].iter().map(name).collect());
            }
        }
        // A function that only calls a recursive one is still walked, with that one unknown.
        let recursive = |f: u32| is_recursive(f, &callees, &left);
        functions.extend(left.iter().copied().filter(|f| *f < tables && !recursive(*f)));
        Self { functions, cycles }
    }
}

/// Returns whether a function may call itself, directly or not.
fn is_recursive(f: u32, callees: &impl Fn(u32) -> Vec<u32>, left: &BTreeSet<u32>) -> bool {
    let (mut seen, mut todo) = (BTreeSet::new(), callees(f));
    while let Some(next) = todo.pop() {
        if next == f {
            return true;
        }
        if left.contains(&next) && seen.insert(next) {
            todo.extend(callees(next));
        }
    }
    false
}
