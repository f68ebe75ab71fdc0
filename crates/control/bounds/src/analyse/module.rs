//! What the walk needs to know of a module, read once.

use super::body::{Node, tree};
use crate::error::cut;
use flame_abi::layout::names;
use std::collections::{BTreeSet, HashMap};
use wasmparser::{
    CompositeInnerType, ElementItems, ExternalKind, FuncType, KnownCustom, Name, Operator, Parser, Payload,
    TypeRef, ValType,
};

/// Locals of a function that is looked into, at most.
const MAX_LOCALS: usize = 4096;

pub struct Function<'a> {
    pub kind: u32,
    pub locals: Vec<ValType>,
    /// Nothing if frames are nested too deep, or there are too many locals.
    pub body: Option<Vec<Node<'a>>>,
    /// Of frames in frames.
    pub depth: usize,
    /// Functions it calls directly, by index.
    pub calls: Vec<u32>,
    /// Types of functions that it calls through tables, each as the first that is the same.
    pub tables: Vec<u32>,
    pub grows: bool,
    /// Bytes it takes of the stack in memory.
    pub frame: u64,
    /// Whether it has an `unreachable`.
    pub traps: bool,
}

/// Finds what compilers begin a function with: `global.get`, a constant, `i32.sub`.
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

#[derive(Default)]
pub struct Module<'a> {
    pub types: Vec<FuncType>,
    /// Types of imported functions, and which is `flame.packet`.
    pub imports: Vec<(u32, String)>,
    pub functions: Vec<Function<'a>>,
    pub globals: Vec<(ValType, bool, Option<u64>)>,
    /// Functions with an address, which calls through tables may reach.
    pub addressed: Vec<u32>,
    /// The same by type.
    by_kind: HashMap<u32, Vec<u32>>,
    /// For each type the first that is the same.
    firsts: Vec<u32>,
    pub exports: HashMap<String, u32>,
    pub names: HashMap<u32, String>,
    pub grows: bool,
}

impl<'a> Module<'a> {
    /// Of a module that passed [`crate::check`].
    pub fn read(wasm: &'a [u8]) -> Result<Self, wasmparser::Error> {
        let mut m = Module::default();
        let (mut kinds, mut firsts) = (Vec::new(), HashMap::new());
        for payload in Parser::new(0).parse_all(wasm) {
            match payload? {
                Payload::TypeSection(section) => {
                    for group in section {
                        for sub in group?.into_types() {
                            if let CompositeInnerType::Func(f) = sub.composite_type.inner {
                                let number = m.types.len() as u32;
                                m.firsts.push(*firsts.entry(f.clone()).or_insert(number));
                                m.types.push(f);
                            }
                        }
                    }
                }
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import?;
                        if let TypeRef::Func(kind) = import.ty {
                            m.imports.push((kind, format!("{}.{}", import.module, import.name)));
                        }
                    }
                }
                Payload::FunctionSection(section) => {
                    kinds = section.into_iter().collect::<Result<Vec<u32>, _>>()?;
                }
                Payload::GlobalSection(section) => {
                    for global in section {
                        let global = global?;
                        let constant = match global.init_expr.get_operators_reader().read()? {
                            Operator::I32Const { value } => Some(u64::from(value as u32)),
                            Operator::I64Const { value } => Some(value as u64),
                            _ => None,
                        };
                        m.globals.push((global.ty.content_type, global.ty.mutable, constant));
                    }
                }
                Payload::ExportSection(section) => {
                    for export in section {
                        let export = export?;
                        if export.kind == ExternalKind::Func {
                            m.exports.insert(export.name.to_owned(), export.index);
                        }
                    }
                }
                Payload::ElementSection(section) => {
                    for element in section {
                        match element?.items {
                            ElementItems::Functions(all) => {
                                for function in all {
                                    m.addressed.push(function?);
                                }
                            }
                            ElementItems::Expressions(_, all) => {
                                for expression in all {
                                    for operator in expression?.get_operators_reader() {
                                        if let Operator::RefFunc { function_index } = operator? {
                                            m.addressed.push(function_index);
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
                Payload::CodeSectionEntry(body) => {
                    let mut locals = Vec::new();
                    for local in body.get_locals_reader()? {
                        let (n, kind) = local?;
                        locals.extend(std::iter::repeat_n(kind, n as usize));
                    }
                    let (mut calls, mut tables, mut traps) = (Vec::new(), Vec::new(), false);
                    let (mut grows, mut frame) = (false, Frame::default());
                    for operator in body.get_operators_reader()? {
                        let operator = operator?;
                        frame.see(&operator);
                        match operator {
                            Operator::Call { function_index } => calls.push(function_index),
                            Operator::CallIndirect { type_index, .. } => tables.push(m.same(type_index)),
                            Operator::Unreachable => traps = true,
                            Operator::RefFunc { function_index } => m.addressed.push(function_index),
                            Operator::MemoryGrow { .. } => (m.grows, grows) = (true, true),
                            _ => {}
                        }
                    }
                    // States of all ways are held at once, each with every local.
                    let small = locals.len() <= MAX_LOCALS;
                    let tree = if small { tree(&body)? } else { None };
                    let (body, depth) = tree.map_or((None, 0), |(body, depth)| (Some(body), depth));
                    let kind = kinds.get(m.functions.len()).copied().unwrap_or(0);
                    tables.sort_unstable();
                    tables.dedup();
                    let frame = frame.bytes;
                    m.functions.push(Function {
                        kind,
                        locals,
                        body,
                        depth,
                        calls,
                        tables,
                        grows,
                        frame,
                        traps,
                    });
                }
                Payload::CustomSection(section) => m.names_of(&section),
                _ => {}
            }
        }
        m.addressed.sort_unstable();
        m.addressed.dedup();
        for function in &m.addressed {
            let kind = match (*function as usize).checked_sub(m.imports.len()) {
                None => m.imports.get(*function as usize).map(|(kind, _)| *kind),
                Some(own) => m.functions.get(own).map(|f| f.kind),
            };
            let kind = m.same(kind.unwrap_or(0));
            m.by_kind.entry(kind).or_default().push(*function);
        }
        Ok(m)
    }

    fn same(&self, kind: u32) -> u32 {
        self.firsts.get(kind as usize).copied().unwrap_or(kind)
    }

    /// What a call through a table with this type may reach.
    pub fn through_tables(&self, kind: u32) -> &[u32] {
        self.by_kind.get(&self.same(kind)).map_or(&[], Vec::as_slice)
    }

    fn names_of(&mut self, section: &wasmparser::CustomSectionReader<'_>) {
        let KnownCustom::Name(all) = section.as_known() else { return };
        for part in all.into_iter().flatten() {
            if let Name::Function(map) = part {
                for naming in map.into_iter().flatten() {
                    self.names.insert(naming.index, cut(naming.name).to_owned());
                }
            }
        }
    }

    pub fn kind_of(&self, function: u32) -> Option<&FuncType> {
        let kind = match (function as usize).checked_sub(self.imports.len()) {
            None => self.imports.get(function as usize)?.0,
            Some(own) => self.functions.get(own)?.kind,
        };
        self.types.get(kind as usize)
    }

    pub fn own(&self, function: u32) -> Option<&Function<'a>> {
        self.functions.get((function as usize).checked_sub(self.imports.len())?)
    }

    /// Whether it, or what it calls, has an `unreachable`.
    pub fn may_trap(&self, function: u32) -> bool {
        let (mut seen, mut kinds, mut todo) = (BTreeSet::new(), BTreeSet::new(), vec![function]);
        while let Some(f) = todo.pop() {
            let Some(own) = self.own(f).filter(|_| seen.insert(f)) else { continue };
            if own.traps {
                return true;
            }
            todo.extend(&own.calls);
            for kind in own.tables.iter().filter(|kind| kinds.insert(**kind)) {
                todo.extend(self.through_tables(*kind));
            }
        }
        false
    }

    /// Whether a function is the import of this name.
    pub fn imports(&self, function: u32, name: &str) -> bool {
        let imported = self.imports.get(function as usize).map(|(_, name)| name.as_str());
        imported
            .and_then(|n| n.strip_prefix(names::IMPORTS))
            .is_some_and(|n| n.strip_prefix('.') == Some(name))
    }

    pub fn name(&self, function: u32) -> String {
        let known = self.names.get(&function).map(|name| flame_plan::readable_name(name));
        known.unwrap_or_else(|| format!("function {function}"))
    }
}
