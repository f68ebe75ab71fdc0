//! The parts of a module that the checker needs, parsed once; functions as trees of structured control flow.

use flame_abi::layout::names;
use flame_abi::manifest::{Access, Manifest};
use std::collections::HashMap;
use wasmparser::{
    BlockType, CompositeInnerType, ElementItems, ExternalKind, FuncType, FunctionBody, Operator, Parser,
    Payload, TypeRef, ValType,
};

/// The largest depth of nested frames.
pub const MAX_DEPTH: usize = 128;
/// The largest number of locals of all functions: they are run-length encoded, so there may be far more of
/// them than bytes in the module.
const MAX_LOCALS: usize = 1 << 22;

/// A part of a function's body.
pub enum Node<'a> {
    /// An instruction with its offset in the file.
    Op(Operator<'a>, u32),
    /// A direct call: the callee and the number of the call in its function.
    Call(u32, u32, u32),
    Block {
        kind: BlockType,
        body: Vec<Node<'a>>,
    },
    Loop {
        kind: BlockType,
        body: Vec<Node<'a>>,
        about: About,
    },
    If {
        kind: BlockType,
        then: Vec<Node<'a>>,
        or: Vec<Node<'a>>,
    },
}

/// A summary of a loop.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The number of the loop in its function, by its head.
    pub number: u32,
    /// Its offset in the file.
    pub offset: u32,
    /// The locals that it writes, in order.
    pub written: Vec<u32>,
    /// Whether it writes globals, or calls a function that might.
    pub globals: bool,
    /// Whether it writes memory, or calls a function that might.
    pub memory: bool,
}

/// A function that the module defines.
pub struct Function<'a> {
    pub kind: u32,
    pub locals: Vec<ValType>,
    /// The tree, or `None` if frames are nested too deep, control flow is not supported, or there are too
    /// many locals.
    pub body: Option<Vec<Node<'a>>>,
    pub depth: usize,
    /// The number of instructions.
    pub size: u32,
}

/// A parsed module. Function indices count the imports first.
#[derive(Default)]
pub struct Module<'a> {
    pub types: Vec<FuncType>,
    pub imports: Vec<(u32, &'a str, &'a str)>,
    pub functions: Vec<Function<'a>>,
    pub globals: Vec<(ValType, bool, Option<u64>)>,
    /// The functions with an address, by the first type that equals theirs.
    addressed: HashMap<u32, Vec<u32>>,
    /// The first type that equals each one.
    firsts: Vec<u32>,
    pub exports: Vec<(&'a str, u32)>,
    /// The contents of the certificate's section.
    pub certificate: Option<&'a [u8]>,
    /// Whether the module writes memory that other modules write as well, by its manifest.
    pub shares: bool,
    /// The size of all functions in bytes.
    pub code: usize,
}

impl<'a> Module<'a> {
    /// Parses a valid module.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are no Wasm module, or if a section cannot be parsed.
    pub fn read(wasm: &'a [u8], section: &str) -> Result<Self, wasmparser::Error> {
        let mut m = Module::default();
        let (mut kinds, mut firsts, mut taken) = (Vec::new(), HashMap::new(), Vec::new());
        let mut room = MAX_LOCALS;
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
                        match import.ty {
                            TypeRef::Func(kind) => m.imports.push((kind, import.module, import.name)),
                            TypeRef::Global(g) => m.globals.push((g.content_type, true, None)),
                            _ => {}
                        }
                    }
                }
                Payload::FunctionSection(section) => {
                    kinds = section.into_iter().collect::<Result<Vec<u32>, _>>()?;
                }
                Payload::GlobalSection(section) => {
                    for global in section {
                        let global = global?;
                        let init: Vec<_> =
                            global.init_expr.get_operators_reader().into_iter().collect::<Result<_, _>>()?;
                        // An expression of more than a constant computes another value.
                        let constant = match init[..] {
                            [Operator::I32Const { value }, Operator::End] => Some(u64::from(value as u32)),
                            [Operator::I64Const { value }, Operator::End] => Some(value as u64),
                            _ => None,
                        };
                        taken.extend(init.iter().filter_map(|operator| match operator {
                            Operator::RefFunc { function_index } => Some(*function_index),
                            _ => None,
                        }));
                        m.globals.push((global.ty.content_type, global.ty.mutable, constant));
                    }
                }
                Payload::ExportSection(section) => {
                    for export in section {
                        let export = export?;
                        if export.kind == ExternalKind::Func {
                            m.exports.push((export.name, export.index));
                        }
                    }
                }
                Payload::ElementSection(section) => {
                    for element in section {
                        match element?.items {
                            ElementItems::Functions(all) => {
                                for function in all {
                                    taken.push(function?);
                                }
                            }
                            ElementItems::Expressions(_, all) => {
                                for expression in all {
                                    for operator in expression?.get_operators_reader() {
                                        if let Operator::RefFunc { function_index } = operator? {
                                            taken.push(function_index);
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
                Payload::CodeSectionEntry(body) => {
                    let mut locals = Vec::new();
                    let mut fits = true;
                    for local in body.get_locals_reader()? {
                        let (n, kind) = local?;
                        fits &= n as usize <= room;
                        room = room.saturating_sub(n as usize);
                        if fits {
                            locals.extend(std::iter::repeat_n(kind, n as usize));
                        }
                    }
                    m.code += body.range().len();
                    let kind = kinds.get(m.functions.len()).copied().unwrap_or(0);
                    let (tree, depth, size) = tree(&body, &mut taken)?;
                    let tree = tree.filter(|_| fits);
                    m.functions.push(Function { kind, locals, body: tree, depth, size });
                }
                Payload::CustomSection(custom) if custom.name() == section => {
                    m.certificate = Some(custom.data());
                }
                Payload::CustomSection(custom) if custom.name() == names::MANIFEST_SECTION => {
                    // A manifest that cannot be read is refused elsewhere.
                    let manifest = Manifest::parse(custom.data());
                    m.shares |= manifest.is_ok_and(|m| m.shares(Access::Write).next().is_some());
                }
                _ => {}
            }
        }
        taken.sort_unstable();
        taken.dedup();
        for function in taken {
            if let Some(kind) = m.type_of(function) {
                m.addressed.entry(m.same(kind)).or_default().push(function);
            }
        }
        Ok(m)
    }

    /// Returns the first type that equals this one.
    pub fn same(&self, kind: u32) -> u32 {
        self.firsts.get(kind as usize).copied().unwrap_or(kind)
    }

    /// Returns the functions that a call through a table with this type may reach.
    pub fn through_tables(&self, kind: u32) -> &[u32] {
        self.addressed.get(&self.same(kind)).map_or(&[], Vec::as_slice)
    }

    /// Returns the first type that equals the type of a function with an address; `None` without an address.
    pub fn addressed_as(&self, function: u32) -> Option<u32> {
        let kind = self.same(self.type_of(function)?);
        self.addressed.get(&kind)?.binary_search(&function).is_ok().then_some(kind)
    }

    fn type_of(&self, function: u32) -> Option<u32> {
        match (function as usize).checked_sub(self.imports.len()) {
            None => Some(self.imports.get(function as usize)?.0),
            Some(own) => Some(self.functions.get(own)?.kind),
        }
    }

    /// Returns the type of a function, imported or not; `None` if there is no such function.
    pub fn kind_of(&self, function: u32) -> Option<&FuncType> {
        self.types.get(self.type_of(function)? as usize)
    }

    /// Returns a function that the module defines.
    pub fn own(&self, function: u32) -> Option<&Function<'a>> {
        self.functions.get((function as usize).checked_sub(self.imports.len())?)
    }

    /// Returns the module and name of an imported function; `None` for other functions.
    pub fn import(&self, function: u32) -> Option<(&'a str, &'a str)> {
        self.imports.get(function as usize).map(|(_, module, name)| (*module, *name))
    }
}

enum Open<'a> {
    Function,
    Block(BlockType),
    Loop(BlockType, About),
    If(BlockType),
    Else(BlockType, Vec<Node<'a>>),
}

type Tree<'a> = (Option<Vec<Node<'a>>>, usize, u32);

/// Returns a function's tree, its depth, and its number of instructions; no tree if frames are nested too
/// deep or throw.
fn tree<'a>(body: &FunctionBody<'a>, taken: &mut Vec<u32>) -> Result<Tree<'a>, wasmparser::Error> {
    let (mut deepest, mut size, mut loops, mut calls) = (0, 0, 0, 0);
    let mut open: Vec<(Open<'a>, Vec<Node<'a>>)> = vec![(Open::Function, Vec::new())];
    let mut reader = body.get_operators_reader()?;
    while !reader.eof() {
        let (operator, offset) = reader.read_with_offset()?;
        size += 1;
        match operator {
            Operator::Block { blockty } => open.push((Open::Block(blockty), Vec::new())),
            Operator::If { blockty } => open.push((Open::If(blockty), Vec::new())),
            Operator::Loop { blockty } => {
                let about = About { number: loops, offset: offset as u32, ..About::default() };
                loops += 1;
                open.push((Open::Loop(blockty, about), Vec::new()));
            }
            Operator::Else => {
                let Some((Open::If(kind), then)) = open.pop() else { return Ok((None, deepest, size)) };
                open.push((Open::Else(kind, then), Vec::new()));
            }
            Operator::End => {
                let Some((frame, nodes)) = open.pop() else { return Ok((None, deepest, size)) };
                let node = match frame {
                    Open::Function => {
                        // This `end` is the last, or it closed a frame that is not supported.
                        reader.finish()?;
                        let fits = deepest <= MAX_DEPTH;
                        return Ok((fits.then_some(nodes), deepest, size));
                    }
                    Open::Block(kind) => Node::Block { kind, body: nodes },
                    Open::If(kind) => Node::If { kind, then: nodes, or: Vec::new() },
                    Open::Else(kind, then) => Node::If { kind, then, or: nodes },
                    Open::Loop(kind, mut about) => {
                        about.written.sort_unstable();
                        about.written.dedup();
                        if let Some(outer) = innermost(&mut open) {
                            outer.written.extend(&about.written);
                            outer.globals |= about.globals;
                            outer.memory |= about.memory;
                        }
                        Node::Loop { kind, body: nodes, about }
                    }
                };
                if let Some((_, nodes)) = open.last_mut() {
                    nodes.push(node);
                }
            }
            // Frames that need no `end`, or that are left by other means than branches.
            Operator::Try { .. }
            | Operator::TryTable { .. }
            | Operator::Catch { .. }
            | Operator::CatchAll
            | Operator::Delegate { .. }
            | Operator::Rethrow { .. }
            | Operator::Throw { .. }
            | Operator::ThrowRef => return Ok((None, deepest, size)),
            operator => {
                note(&mut open, &operator);
                if let Operator::RefFunc { function_index } = operator {
                    taken.push(function_index);
                }
                let node = match operator {
                    Operator::Call { function_index } => {
                        calls += 1;
                        Node::Call(function_index, calls - 1, offset as u32)
                    }
                    operator => Node::Op(operator, offset as u32),
                };
                if let Some((_, nodes)) = open.last_mut() {
                    nodes.push(node);
                }
            }
        }
        deepest = deepest.max(open.len());
        if open.len() > MAX_DEPTH {
            return Ok((None, deepest, size));
        }
    }
    Ok((None, deepest, size))
}

fn innermost<'b>(open: &'b mut [(Open<'_>, Vec<Node<'_>>)]) -> Option<&'b mut About> {
    open.iter_mut().rev().find_map(|(frame, _)| match frame {
        Open::Loop(_, about) => Some(about),
        _ => None,
    })
}

/// Records the possible writes of an instruction, in the innermost loop.
fn note(open: &mut [(Open<'_>, Vec<Node<'_>>)], operator: &Operator<'_>) {
    let Some(about) = innermost(open) else { return };
    match operator {
        Operator::LocalSet { local_index } | Operator::LocalTee { local_index } => {
            about.written.push(*local_index)
        }
        Operator::GlobalSet { .. } => about.globals = true,
        Operator::Call { .. } | Operator::CallIndirect { .. } => {
            (about.globals, about.memory) = (true, true);
        }
        // Instructions that only read memory are listed by name; any other is taken for a write.
        operator => about.memory = about.memory || !crate::mnemonic::keeps_memory(operator),
    }
}
