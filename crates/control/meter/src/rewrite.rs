//! The module with counters: see the crate's documentation for the charges and why every call ends.
//!
//! Types, functions, globals and exports are only added after the module's own, and locals after a function's
//! own, so everything but the changed instructions is copied as bytes.

use crate::RESERVED;
use crate::append::Appended;
use crate::charge::{self, Regions, Uses};
use crate::code::{Added, Callee, Function, Poll, Replaced};
use crate::error::{ModuleError, Place, cut, printable};
use crate::features::{self, FEATURES};
use crate::helpers::{Helpers, signature};
use crate::types::value_type;
use flame_abi::layout::{POLL, names};
use std::collections::{BTreeSet, HashMap};
use wasm_encoder::{
    BlockType, CodeSection, ConstExpr, CustomSection, Encode, ExportKind, Module, NameMap, NameSection,
    RawSection, ValType,
};
use wasmparser::{
    DataKind, ElementItems, Encoding, ExternalKind, FuncType, FunctionBody, KnownCustom, Name, Operator,
    Parser, Payload, TypeRef, Validator,
};

/// The functions that count and are cut off. `memory.copy`, `flame.packet` and `flame.cold` are replaced in
/// all functions.
#[derive(Clone, Copy, Debug)]
pub enum Metering<'a> {
    All,
    /// All functions but these, which are proven to end.
    Except(&'a BTreeSet<u32>),
    /// All functions but `uncounted`, which only verified calls reach. Those of `diverging` trap where they
    /// would return, as their verification assumes.
    Verified {
        uncounted: &'a BTreeSet<u32>,
        diverging: &'a BTreeSet<u32>,
    },
    /// No function, to measure the cost of counting; such a module may never return by itself.
    Nothing,
}

impl Metering<'_> {
    fn counts(self, function: u32) -> bool {
        match self {
            Self::All => true,
            Self::Except(proved) | Self::Verified { uncounted: proved, .. } => !proved.contains(&function),
            Self::Nothing => false,
        }
    }

    fn any(self) -> bool {
        !matches!(self, Self::Nothing)
    }

    fn diverges(self, function: u32) -> bool {
        matches!(self, Self::Verified { diverging, .. } if diverging.contains(&function))
    }
}

const TYPES: u8 = 1;
const FUNCTIONS: u8 = 3;
const MEMORY: u8 = 5;
const GLOBALS: u8 = 6;
const EXPORTS: u8 = 7;
const CODE: u8 = 10;
/// All sections that the features allow, in the required order (12 is the data count).
const ORDER: [u8; 12] = [TYPES, 2, FUNCTIONS, 4, MEMORY, GLOBALS, EXPORTS, 8, 9, 12, CODE, 11];

/// Rewrites `wasm` so that it ends within its budget. The result is valid and computes the same as `wasm`,
/// unless it is cut off.
///
/// Any bytes may be given; modules that `flame_bounds::check` rejects may still be rewritten. Functions that
/// do not count do not poll either, which is for measurements and tests. Modules that run are
/// [polled](rewrite_polled).
///
/// # Errors
///
/// Returns an error if `wasm` is not valid, is a component or uses a feature that modules must not use,
/// exports a reserved name, or exceeds a limit of Wasm once it has counters.
pub fn rewrite(wasm: &[u8], count: Metering<'_>) -> Result<Vec<u8>, ModuleError> {
    rewrite_with(wasm, count, false)
}

/// Rewrites like [`rewrite`]; in addition, functions that do not count load from the polling page, so that
/// the host can end them; under [`Metering::Verified`], all functions do, because nothing else interrupts a
/// call. Requires a host that maps the page.
///
/// # Errors
///
/// Returns the errors of [`rewrite`].
pub fn rewrite_polled(wasm: &[u8], count: Metering<'_>) -> Result<Vec<u8>, ModuleError> {
    rewrite_with(wasm, count, true)
}

fn rewrite_with(wasm: &[u8], count: Metering<'_>, poll: bool) -> Result<Vec<u8>, ModuleError> {
    let module = |offset| Place { section: "module", function: None, offset };
    let refused = |e: wasmparser::Error| features::refused(&e, module(e.offset()));
    if let Some(Ok(Payload::Version { encoding: Encoding::Component, .. })) =
        Parser::new(0).parse_all(wasm).next()
    {
        return Err(features::component());
    }
    Validator::new_with_features(FEATURES).validate_all(wasm).map_err(refused)?;
    let source = Source::read(wasm).map_err(refused)?;
    if let Some((name, offset)) = source.reserved {
        let place = Place { section: "export section", function: None, offset };
        return Err(ModuleError::ReservedExport { name: printable(name), place });
    }
    let out = source.write(count, poll).map_err(refused)?;
    // This fails only for a module near Wasm's own limits, if the counters exceed one.
    match Validator::new_with_features(FEATURES).validate_all(&out) {
        Ok(_) => Ok(out),
        Err(e) => Err(ModuleError::Grown { reason: printable(e.message()) }),
    }
}

/// The contents of a valid module, read before anything is written.
struct Source<'a> {
    wasm: &'a [u8],
    sections: [Option<&'a [u8]>; 14],
    custom: Vec<(&'a str, &'a [u8])>,
    names: Option<NameSection>,
    function_names: NameMap,
    types: Vec<FuncType>,
    /// The type of each function, imports first.
    functions: Vec<u32>,
    imported: u32,
    /// The code that replaces a call of each import.
    markers: Vec<Option<Callee>>,
    imported_globals: u32,
    imports_memory: bool,
    bodies: Vec<FunctionBody<'a>>,
    /// Functions that are exported or have an address, without the imports.
    taken: Vec<bool>,
    /// The exported functions.
    exported: Vec<(&'a str, u32)>,
    reserved: Option<(&'a str, usize)>,
    /// The length of each data segment; 0 of an active one, which is dropped before any call.
    segments: Vec<u32>,
    uses: Uses,
}

type ParseResult<T> = Result<T, wasmparser::Error>;

impl<'a> Source<'a> {
    fn read(wasm: &'a [u8]) -> ParseResult<Self> {
        let mut source = Self {
            wasm,
            sections: [None; 14],
            custom: Vec::new(),
            names: None,
            function_names: NameMap::new(),
            types: Vec::new(),
            functions: Vec::new(),
            imported: 0,
            markers: Vec::new(),
            imported_globals: 0,
            imports_memory: false,
            bodies: Vec::new(),
            taken: Vec::new(),
            exported: Vec::new(),
            reserved: None,
            segments: Vec::new(),
            uses: Uses::default(),
        };
        let mut taken: Vec<u32> = Vec::new();
        for payload in Parser::new(0).parse_all(wasm) {
            let payload = payload?;
            if let Some((id, range)) = payload.as_section()
                && let Some(slot) = source.sections.get_mut(usize::from(id))
            {
                *slot = wasm.get(range);
            }
            match payload {
                Payload::TypeSection(section) => {
                    for group in section {
                        for ty in group?.types() {
                            if let wasmparser::CompositeInnerType::Func(ty) = &ty.composite_type.inner {
                                source.types.push(ty.clone());
                            }
                        }
                    }
                }
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import?;
                        match import.ty {
                            TypeRef::Func(ty) | TypeRef::FuncExact(ty) => {
                                source.import(ty, import.module, import.name)
                            }
                            TypeRef::Global(_) => source.imported_globals += 1,
                            TypeRef::Memory(_) => source.imports_memory = true,
                            TypeRef::Table(_) | TypeRef::Tag(_) => {}
                        }
                    }
                }
                Payload::FunctionSection(section) => {
                    for ty in section {
                        source.functions.push(ty?);
                    }
                }
                Payload::GlobalSection(section) => {
                    for global in section {
                        taken.extend(referenced(&global?.init_expr)?);
                    }
                }
                Payload::ExportSection(section) => {
                    for export in section.into_iter_with_offsets() {
                        let (offset, export) = export?;
                        if export.kind == ExternalKind::Func {
                            taken.push(export.index);
                            source.exported.push((export.name, export.index));
                        }
                        if export.name.starts_with(RESERVED) {
                            source.reserved.get_or_insert((export.name, offset));
                        }
                    }
                }
                Payload::ElementSection(section) => {
                    for element in section {
                        match element?.items {
                            ElementItems::Functions(functions) => {
                                for function in functions {
                                    taken.push(function?);
                                }
                            }
                            ElementItems::Expressions(_, expressions) => {
                                for expression in expressions {
                                    taken.extend(referenced(&expression?)?);
                                }
                            }
                        }
                    }
                }
                Payload::CodeSectionEntry(body) => source.bodies.push(body),
                Payload::DataSection(section) => {
                    for segment in section {
                        let segment = segment?;
                        source.segments.push(match segment.kind {
                            DataKind::Passive => segment.data.len() as u32,
                            DataKind::Active { .. } => 0,
                        });
                    }
                }
                Payload::CustomSection(section) => match (section.name(), section.as_known()) {
                    ("name", KnownCustom::Name(reader)) if source.names.is_none() => {
                        // This is only for debugging, so damaged parts are left out.
                        source.names = Some(NameSection::new());
                        source.read_names(reader).ok();
                    }
                    (name @ ("producers" | "target_features"), _) => {
                        source.custom.push((name, section.data()))
                    }
                    (name, _) if name.starts_with("flame.") => source.custom.push((name, section.data())),
                    _ => {}
                },
                _ => {}
            }
        }
        source.taken = vec![false; source.bodies.len()];
        for function in taken {
            let defined = function.checked_sub(source.imported);
            if let Some(taken) = defined.and_then(|i| source.taken.get_mut(i as usize)) {
                *taken = true;
            }
        }
        Ok(source)
    }

    fn import(&mut self, ty: u32, module: &str, name: &str) {
        let typed = self
            .types
            .get(ty as usize)
            .is_some_and(|ty| ty.params() == [wasmparser::ValType::I32] && ty.results().is_empty());
        let bare =
            self.types.get(ty as usize).is_some_and(|ty| ty.params().is_empty() && ty.results().is_empty());
        self.markers.push(match (module, name) {
            (names::IMPORTS, names::PACKET) if typed => Some(Callee::Marker),
            (names::IMPORTS, names::COLD) if bare => Some(Callee::Hint),
            _ => None,
        });
        self.functions.push(ty);
        self.imported += 1;
    }

    fn read_names(&mut self, reader: wasmparser::NameSectionReader<'a>) -> ParseResult<()> {
        for subsection in reader {
            match (subsection?, &mut self.names) {
                (Name::Module { name, .. }, Some(names)) => names.module(cut(name)),
                (Name::Function(map), _) => {
                    let mut next = 0_u32;
                    for naming in map {
                        let naming = naming?;
                        // Names must be in order, or engines reject the section.
                        if naming.index < next || naming.index as usize >= self.functions.len() {
                            break;
                        }
                        next = naming.index + 1;
                        self.function_names.append(naming.index, cut(naming.name));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn write(mut self, count: Metering<'_>, poll: bool) -> ParseResult<Vec<u8>> {
        let section = |id: u8| self.sections.get(usize::from(id)).copied().flatten();
        let appended = |id: u8| section(id).map_or_else(|| Ok(Appended::default()), Appended::new);
        let mut types = appended(TYPES)?;
        let mut functions = appended(FUNCTIONS)?;
        let mut globals = appended(GLOBALS)?;
        let mut exports = appended(EXPORTS)?;
        let mut summaries = Vec::with_capacity(self.bodies.len());
        for body in &self.bodies {
            summaries.push(charge::summarize(body, self.imported, &mut self.uses)?);
        }

        let mut global = |name: &str, ty: ValType, value: ConstExpr| {
            let index = self.imported_globals
                + globals.push(|out| {
                    ty.encode(out);
                    out.push(1);
                    value.encode(out);
                });
            exports.push(|out| {
                name.encode(out);
                ExportKind::Global.encode(out);
                index.encode(out);
            });
            index
        };
        // Without a memory there is nothing to load from.
        let poll = poll && (section(MEMORY).is_some() || self.imports_memory);
        let mut added = Added {
            meter: count.any(),
            poll: match (poll, count) {
                (false, _) => Poll::Nothing,
                // Nothing interrupts the calls of such a module.
                (true, Metering::Verified { .. }) => Poll::All,
                (true, _) => Poll::Uncounted,
            },
            fuel: global(names::FUEL, ValType::I64, ConstExpr::i64_const(0)),
            packet_budget: global(names::PACKET_BUDGET, ValType::I64, ConstExpr::i64_const(0)),
            packet: global(names::PACKET_INDEX, ValType::I32, ConstExpr::i32_const(-1)),
            count: global(names::PACKET_COUNT, ValType::I32, ConstExpr::i32_const(0)),
            page: None,
            place: global(names::CUT_OFF_LOOP, ValType::I32, ConstExpr::i32_const(0)),
            copy: Replaced::default(),
            fill: Replaced::default(),
            inits: Vec::new(),
            bulk: 0,
            charge: None,
        };
        let ends = |f: u32| f >= self.imported && !count.counts(f);
        let mut own = (self.imported..).take(self.bodies.len());
        if added.poll == Poll::All || (added.poll == Poll::Uncounted && own.any(ends)) {
            let at = globals.push(|out| {
                ValType::I32.encode(out);
                out.push(1);
                ConstExpr::i32_const(POLL as i32).encode(out);
            });
            added.page = Some(self.imported_globals + at);
        }
        let helpers = Helpers {
            imported: self.imported,
            types: &mut types,
            functions: &mut functions,
            names: &mut self.function_names,
            bodies: Vec::new(),
        };
        let helpers = helpers.add(&mut added, &self.uses, &self.segments);

        // Functions that diverge count themselves.
        let taken = self.taken.iter().enumerate();
        let taken: Vec<bool> = taken.map(|(i, t)| *t || count.diverges(self.imported + i as u32)).collect();
        let small = charge::small(summaries, self.imported, &taken);
        let code = self.code(&added, (&small, count), &mut types, &helpers)?;
        let mut module = Module::new();
        for id in ORDER {
            let data = match id {
                TYPES => types.finish(),
                FUNCTIONS => functions.finish(),
                GLOBALS => globals.finish(),
                EXPORTS => exports.finish(),
                CODE => {
                    module.section(&code);
                    continue;
                }
                _ => {
                    if let Some(data) = self.sections.get(usize::from(id)).copied().flatten() {
                        module.section(&RawSection { id, data });
                    }
                    continue;
                }
            };
            module.section(&RawSection { id, data: &data });
        }
        if let Some(mut names) = self.names.take() {
            names.functions(&self.function_names);
            module.section(&names);
        }
        for (name, data) in &self.custom {
            module.section(&CustomSection { name: (*name).into(), data: (*data).into() });
        }
        Ok(module.finish())
    }

    fn code(
        &self,
        added: &Added,
        (small, count): (&[Option<u64>], Metering<'_>),
        types: &mut Appended<'a>,
        helpers: &[Vec<u8>],
    ) -> ParseResult<CodeSection> {
        let small_weight = |function: u32| -> Option<u64> {
            let defined = function.checked_sub(self.imported)?;
            small.get(defined as usize).copied().flatten()
        };
        let known = |function: u32| self.markers.get(function as usize).copied().flatten();
        let marker = |function: u32| known(function) == Some(Callee::Marker);
        let callee = |function: u32| match known(function) {
            Some(known) => known,
            None if small_weight(function).is_some() => Callee::Small,
            None => Callee::Counting,
        };
        let mut block_types: HashMap<u32, u32> = HashMap::new();
        let mut code = CodeSection::new();
        for (i, body) in self.bodies.iter().enumerate() {
            let ty = self.functions.get(self.imported as usize + i).copied().unwrap_or(u32::MAX);
            let (params, results) =
                self.types.get(ty as usize).map_or((&[][..], &[][..]), |ty| (ty.params(), ty.results()));
            let regions: Regions = charge::regions(body, small_weight, marker)?;
            let diverges = count.diverges(self.imported + i as u32);
            let results = match results {
                [] => BlockType::Empty,
                [one] => BlockType::Result(value_type(*one)),
                // A new type, once for each function type; only blocks around loops need it.
                several if !regions.loops.is_empty() || diverges => {
                    let several: Vec<ValType> = several.iter().map(|t| value_type(*t)).collect();
                    let index = *block_types
                        .entry(ty)
                        .or_insert_with(|| types.push(|out| signature(out, &[], &several)));
                    BlockType::FunctionType(index)
                }
                _ => BlockType::Empty,
            };
            let function = Function {
                wasm: self.wasm,
                body: body.clone(),
                params: params.len() as u32,
                results,
                regions,
                small: small.get(i).copied().flatten().is_some(),
                counts: diverges || count.counts(self.imported + i as u32),
                diverges,
                alone: !self.uses.called.contains(&(self.imported + i as u32)),
            };
            code.raw(&function.write(added, callee)?);
        }
        for helper in helpers {
            code.raw(helper);
        }
        Ok(code)
    }
}

/// Returns the functions whose address a constant expression takes.
fn referenced(expression: &wasmparser::ConstExpr<'_>) -> ParseResult<Vec<u32>> {
    let mut functions = Vec::new();
    for operator in expression.get_operators_reader() {
        if let Operator::RefFunc { function_index } = operator? {
            functions.push(function_index);
        }
    }
    Ok(functions)
}
