//! The rules for accepted modules: features, size, imports, exports, manifest.
//!
//! Sources: WebAssembly Core Specification 2.0, sections 3 (validation) and 5 (binary format);
//! `flame_abi::layout` for names and signatures.

use crate::rules::Rules;
use crate::work::{Counts, Size, Work};
use flame_abi::layout::names;
use flame_meter::RESERVED;
use flame_meter::error::{ModuleError, Place, printable};
use flame_meter::features::{self, FEATURES};
use wasmparser::types::Types;
use wasmparser::{
    DataKind, Encoding, ExternalKind, FuncValidatorAllocations, FunctionBody, KnownCustom, Name, Operator,
    Parser, Payload, RefType, TypeRef, ValType, ValidPayload, Validator,
};

/// The properties of an accepted module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The text of its manifest, not parsed yet.
    pub manifest: Vec<u8>,
    pub exports: Exports,
    /// The initial size of its memory in bytes.
    pub memory_min: u64,
    /// The size in bytes to which its memory may grow by its own declaration.
    pub memory_max: Option<u64>,
    /// Whether it marks the begin of each packet.
    pub marks_packets: bool,
    pub size: Size,
}

/// The optional exports of a module (it always has `memory`, and `flame_batch` or `flame_push`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exports {
    /// `flame_push` instead of `flame_batch`: the module forwards packets.
    pub push: bool,
    pub init: bool,
    pub tick: bool,
    pub end: bool,
    pub message: bool,
    pub rest: bool,
    /// `flame_export`: the module keeps state.
    pub export: bool,
    pub import: bool,
    pub pressure: bool,
    pub serve: bool,
    pub done: bool,
    pub panic_text: bool,
}

const PAGE: u64 = 65_536;

/// Checks whether `wasm` is a module that may be rewritten, compiled and run.
///
/// # Errors
///
/// Returns the first reason to refuse the module, with its place: it is malformed, exceeds a limit, or has
/// a feature, an import or an export that is not allowed.
pub fn check(wasm: &[u8], rules: &Rules) -> Result<Checked, ModuleError> {
    if wasm.len() > rules.module_bytes {
        let place = Place { section: "module", function: None, offset: 0 };
        return Err(limit("bytes", wasm.len() as u64, rules.module_bytes as u64, SMALLER, place));
    }
    let mut check = Check::new(wasm, rules);
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload.map_err(|e| check.refused(&e))?;
        check.enter(&payload);
        check.before(&payload)?;
        let valid = check.validator.payload(&payload).map_err(|e| check.refused(&e))?;
        match valid {
            ValidPayload::Ok | ValidPayload::Parser(_) => {}
            ValidPayload::Func(function, body) => {
                check.function = Some(function.index);
                let mut validator = function.into_validator(std::mem::take(&mut check.allocations));
                validator.validate(&body).map_err(|e| check.refused(&e))?;
                check.allocations = validator.into_allocations();
                check.body(&body)?;
                check.function = None;
            }
            ValidPayload::End(types) => return check.finish(&types),
        }
    }
    // The parser ends with `End`, or with an error above.
    Err(ModuleError::Malformed { reason: "no end".to_owned(), place: check.place(wasm.len()) })
}

struct Check<'a> {
    wasm: &'a [u8],
    rules: &'a Rules,
    validator: Validator,
    allocations: FuncValidatorAllocations,
    section: &'static str,
    function: Option<u32>,
    imported_functions: u32,
    marks_packets: bool,
    total_locals: u64,
    /// The number of locals of the function that is read.
    locals: u64,
    globals: u64,
    total: Counts,
    functions: u64,
    custom_sections: u32,
    manifest: Option<&'a [u8]>,
    exports: Vec<Export>,
    /// Unknown exports that begin with `flame_`, for the remedy.
    unknown: Vec<String>,
    types: Vec<wasmparser::FuncType>,
    memory: Option<wasmparser::MemoryType>,
}

struct Export {
    name: &'static str,
    kind: ExternalKind,
    index: u32,
    offset: usize,
}

const SMALLER: &str = "make the module smaller: optimize for size, strip debug information";
const SPLIT: &str = "split it into smaller functions or modules";

/// Exports: name, signature, whether it is required.
const FUNCTIONS: &[(&str, &[ValType], &str)] = &[
    (names::BATCH, &[ValType::I32], "(func (param i32) (result i64))"),
    (names::PUSH, &[ValType::I32, ValType::I32], "(func (param i32 i32) (result i64))"),
    (names::INIT, &[ValType::I32, ValType::I32], "(func (param i32 i32) (result i64))"),
    (names::TICK, &[ValType::I64], "(func (param i64) (result i64))"),
    (names::END, &[ValType::I64], "(func (param i64) (result i64))"),
    (names::MESSAGE, &[ValType::I32, ValType::I32], "(func (param i32 i32) (result i64))"),
    (names::REST, &[], "(func (result i64))"),
    (names::EXPORT, &[], "(func (result i64))"),
    (names::IMPORT, &[ValType::I32, ValType::I32], "(func (param i32 i32) (result i64))"),
    (names::PRESSURE, &[ValType::I64], "(func (param i64) (result i64))"),
    (names::SERVE, &[ValType::I32, ValType::I32], "(func (param i32 i32) (result i64))"),
    (names::DONE, &[ValType::I32, ValType::I32], "(func (param i32 i32) (result i64))"),
];

impl<'a> Check<'a> {
    fn new(wasm: &'a [u8], rules: &'a Rules) -> Self {
        Self {
            wasm,
            rules,
            validator: Validator::new_with_features(FEATURES),
            allocations: FuncValidatorAllocations::default(),
            section: "module",
            function: None,
            imported_functions: 0,
            marks_packets: false,
            total_locals: 0,
            locals: 0,
            globals: 0,
            total: Counts::default(),
            functions: 0,
            custom_sections: 0,
            manifest: None,
            exports: Vec::new(),
            unknown: Vec::new(),
            types: Vec::new(),
            memory: None,
        }
    }

    fn place(&self, offset: usize) -> Place {
        Place { section: self.section, function: self.function.map(|f| function_name(self.wasm, f)), offset }
    }

    fn refused(&self, error: &wasmparser::Error) -> ModuleError {
        features::refused(error, self.place(error.offset()))
    }

    fn enter(&mut self, payload: &Payload<'_>) {
        self.section = match payload {
            Payload::TypeSection(_) => "type section",
            Payload::ImportSection(_) => "import section",
            Payload::FunctionSection(_) => "function section",
            Payload::TableSection(_) => "table section",
            Payload::MemorySection(_) => "memory section",
            Payload::TagSection(_) => "tag section",
            Payload::GlobalSection(_) => "global section",
            Payload::ExportSection(_) => "export section",
            Payload::StartSection { .. } => "start section",
            Payload::ElementSection(_) => "element section",
            Payload::DataCountSection { .. } => "data count section",
            Payload::DataSection(_) => "data section",
            Payload::CodeSectionStart { .. } | Payload::CodeSectionEntry(_) => "code section",
            Payload::CustomSection(_) => "custom section",
            _ => "module",
        };
    }

    /// Checks rules that the validator does not know, and limits before it allocates.
    fn before(&mut self, payload: &Payload<'a>) -> Result<(), ModuleError> {
        let rules = self.rules;
        match payload {
            Payload::Version { encoding: Encoding::Component, .. } => Err(features::component()),
            Payload::TypeSection(s) => self.types(s.clone()),
            Payload::ImportSection(s) => self.imports(s.clone()),
            Payload::FunctionSection(s) => {
                self.at_most("functions", s.count(), rules.functions, SPLIT, s.range().start)
            }
            Payload::TableSection(s) => self.tables(s.clone()),
            Payload::MemorySection(s) => self.memories(s.clone()),
            Payload::GlobalSection(s) => {
                self.globals = s.count().into();
                self.at_most("globals", s.count(), rules.globals, SPLIT, s.range().start)
            }
            Payload::ExportSection(s) => self.exports(s.clone()),
            Payload::StartSection { range, .. } => Err(ModuleError::Start { place: self.place(range.start) }),
            Payload::ElementSection(s) => {
                self.at_most("element segments", s.count(), rules.segments, SPLIT, s.range().start)
            }
            Payload::DataSection(s) => self.data(s.clone()),
            Payload::CodeSectionEntry(body) => self.locals(body),
            Payload::CustomSection(s) => {
                self.custom_sections += 1;
                let offset = s.range().start;
                self.at_most(
                    "custom sections",
                    self.custom_sections,
                    rules.custom_sections,
                    SMALLER,
                    offset,
                )?;
                if s.name() == names::MANIFEST_SECTION && self.manifest.replace(s.data()).is_some() {
                    return Err(ModuleError::SecondManifest { place: self.place(offset) });
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn at_most(
        &self,
        what: &'static str,
        found: u32,
        most: u32,
        remedy: &'static str,
        offset: usize,
    ) -> Result<(), ModuleError> {
        self.at_most_u64(what, found.into(), most.into(), remedy, offset)
    }

    fn at_most_u64(
        &self,
        what: &'static str,
        found: u64,
        most: u64,
        remedy: &'static str,
        offset: usize,
    ) -> Result<(), ModuleError> {
        if found > most { Err(limit(what, found, most, remedy, self.place(offset))) } else { Ok(()) }
    }

    fn types(&mut self, section: wasmparser::TypeSectionReader<'_>) -> Result<(), ModuleError> {
        self.at_most("types", section.count(), self.rules.types, SPLIT, section.range().start)?;
        for entry in section.into_iter_with_offsets() {
            let (offset, group) = entry.map_err(|e| self.refused(&e))?;
            for ty in group.types() {
                // Other types are left to the validator.
                if let wasmparser::CompositeInnerType::Func(ty) = &ty.composite_type.inner {
                    const REMEDY: &str = "pass a structure by its address";
                    self.at_most("parameters", count(ty.params()), self.rules.params, REMEDY, offset)?;
                    self.at_most("results", count(ty.results()), self.rules.results, REMEDY, offset)?;
                    self.types.push(ty.clone());
                }
            }
        }
        Ok(())
    }

    fn imports(&mut self, section: wasmparser::ImportSectionReader<'_>) -> Result<(), ModuleError> {
        let (number, start) = (section.count(), section.range().start);
        for import in section.into_imports_with_offsets() {
            let (offset, import) = import.map_err(|e| self.refused(&e))?;
            let (module, name) = (printable(import.module), printable(import.name));
            let kind = match import.ty {
                TypeRef::Func(ty) => {
                    let (expected, params): (_, &[ValType]) = match (import.module, import.name) {
                        (names::IMPORTS, names::PACKET) => ("(func (param i32))", &[ValType::I32]),
                        (names::IMPORTS, names::COLD) => ("(func)", &[]),
                        _ => {
                            return Err(ModuleError::UnknownImport {
                                module,
                                name,
                                place: self.place(offset),
                            });
                        }
                    };
                    self.imported_functions += 1;
                    self.marks_packets |= import.name == names::PACKET;
                    match self.types.get(ty as usize) {
                        Some(ty) if ty.params() == params && ty.results().is_empty() => continue,
                        // The validator reports the type that does not exist.
                        None => continue,
                        Some(ty) => {
                            return Err(ModuleError::ImportType {
                                name,
                                expected,
                                found: ty.to_string(),
                                place: self.place(offset),
                            });
                        }
                    }
                }
                TypeRef::Memory(_) => "memory",
                TypeRef::Table(_) => "table",
                TypeRef::Global(_) => "global",
                // Features that are off.
                TypeRef::Tag(_) | TypeRef::FuncExact(_) => continue,
            };
            return Err(ModuleError::ImportedState { kind, module, name, place: self.place(offset) });
        }
        self.at_most("imports", number, self.rules.imports, "declare each import once", start)
    }

    fn tables(&mut self, section: wasmparser::TableSectionReader<'_>) -> Result<(), ModuleError> {
        self.at_most("tables", section.count(), self.rules.tables, SPLIT, section.range().start)?;
        let mut elements = 0_u64;
        for table in section.into_iter_with_offsets() {
            let (offset, table) = table.map_err(|e| self.refused(&e))?;
            if table.ty.element_type != RefType::FUNCREF {
                let found = table.ty.element_type.to_string();
                return Err(ModuleError::TableType { found, place: self.place(offset) });
            }
            elements = elements.saturating_add(table.ty.initial);
            self.at_most_u64("table elements", elements, self.rules.table_elements, SPLIT, offset)?;
        }
        Ok(())
    }

    fn memories(&mut self, section: wasmparser::MemorySectionReader<'_>) -> Result<(), ModuleError> {
        for memory in section.into_iter_with_offsets() {
            let (offset, memory) = memory.map_err(|e| self.refused(&e))?;
            let bytes = memory.initial.saturating_mul(PAGE);
            const REMEDY: &str = "link with a smaller --initial-memory, or smaller static arrays";
            self.at_most_u64("bytes of memory at the start", bytes, self.rules.memory_bytes, REMEDY, offset)?;
            self.memory.get_or_insert(memory);
        }
        Ok(())
    }

    fn exports(&mut self, section: wasmparser::ExportSectionReader<'_>) -> Result<(), ModuleError> {
        self.at_most("exports", section.count(), self.rules.exports, "export less", section.range().start)?;
        for export in section.into_iter_with_offsets() {
            let (offset, export) = export.map_err(|e| self.refused(&e))?;
            if export.name.starts_with(RESERVED) {
                let name = printable(export.name);
                return Err(ModuleError::ReservedExport { name, place: self.place(offset) });
            }
            // The constructors of a WASI reactor. Without them, the module would begin with wrong values.
            if export.name == "_initialize" {
                return Err(ModuleError::Initializer { place: self.place(offset) });
            }
            let known = FUNCTIONS.iter().map(|f| f.0).chain([names::MEMORY, names::PANIC]);
            if let Some(name) = known.into_iter().find(|n| *n == export.name) {
                self.exports.push(Export { name, kind: export.kind, index: export.index, offset });
            } else if export.name.starts_with("flame_") && self.unknown.len() < 4 {
                self.unknown.push(printable(export.name));
            }
        }
        Ok(())
    }

    fn data(&mut self, section: wasmparser::DataSectionReader<'_>) -> Result<(), ModuleError> {
        let start = section.range().start;
        self.at_most("data segments", section.count(), self.rules.segments, SPLIT, start)?;
        let mut bytes = 0_u64;
        for data in section {
            let data = data.map_err(|e| self.refused(&e))?;
            debug_assert!(matches!(data.kind, DataKind::Active { .. } | DataKind::Passive));
            bytes += data.data.len() as u64;
        }
        const REMEDY: &str = "leave large zeroed arrays to .bss, and pass tables as parameters";
        self.at_most_u64("bytes of data", bytes, self.rules.data_bytes, REMEDY, start)
    }

    fn locals(&mut self, body: &FunctionBody<'_>) -> Result<(), ModuleError> {
        let mut locals = 0_u64;
        for group in body.get_locals_reader().map_err(|e| self.refused(&e))? {
            locals += u64::from(group.map_err(|e| self.refused(&e))?.0);
        }
        self.total_locals = self.total_locals.saturating_add(locals);
        self.locals = locals;
        let (one, all, at) = (self.rules.locals.into(), self.rules.total_locals, body.range().start);
        self.at_most_u64("locals in one function", locals, one, SPLIT, at)?;
        self.at_most_u64("locals in all functions", self.total_locals, all, SPLIT, at)
    }

    /// Refuses instructions that are valid but not allowed, and functions that need too much work. The body
    /// was validated.
    fn body(&mut self, body: &FunctionBody<'_>) -> Result<(), ModuleError> {
        let mut reader = body.get_operators_reader().map_err(|e| self.refused(&e))?;
        let mut work = Work::new(self.locals, self.globals, self.total);
        while !reader.eof() {
            let (operator, offset) = reader.read_with_offset().map_err(|e| self.refused(&e))?;
            if let Err((what, found, most)) = work.add(&operator, self.rules) {
                return Err(limit(what, found, most, SPLIT, self.place(offset)));
            }
            let operation = match operator {
                Operator::TableGrow { .. } => "table.grow",
                Operator::TableFill { .. } => "table.fill",
                Operator::TableCopy { .. } => "table.copy",
                Operator::TableInit { .. } => "table.init",
                Operator::TableSet { .. } => "table.set",
                Operator::ElemDrop { .. } => "elem.drop",
                _ => continue,
            };
            return Err(ModuleError::TableOperation { operation, place: self.place(offset) });
        }
        self.total = work.all;
        self.functions += 1;
        Ok(())
    }

    fn finish(mut self, types: &Types) -> Result<Checked, ModuleError> {
        self.section = "export section";
        let mut exports = Exports::default();
        let mut has_memory = false;
        let mut has_batch = false;
        for export in &self.exports {
            match export.name {
                names::MEMORY => {
                    self.is_kind(export, ExternalKind::Memory, "a memory")?;
                    has_memory = true;
                    continue;
                }
                names::PANIC => {
                    const EXPECTED: &str = "an immutable global of type i32";
                    self.is_kind(export, ExternalKind::Global, EXPECTED)?;
                    let global = types.as_ref().global_at(export.index);
                    if global.mutable || global.content_type != ValType::I32 {
                        let mutable = if global.mutable { "a mutable" } else { "an immutable" };
                        let found = format!("{mutable} global of type {}", global.content_type);
                        return Err(self.wrong_type(export, found, EXPECTED));
                    }
                    exports.panic_text = true;
                    continue;
                }
                names::BATCH => has_batch = true,
                names::PUSH => exports.push = true,
                names::INIT => exports.init = true,
                names::TICK => exports.tick = true,
                names::END => exports.end = true,
                names::MESSAGE => exports.message = true,
                names::REST => exports.rest = true,
                names::EXPORT => exports.export = true,
                names::IMPORT => exports.import = true,
                names::PRESSURE => exports.pressure = true,
                names::SERVE => exports.serve = true,
                names::DONE => exports.done = true,
                _ => continue,
            }
            self.is_function(export, types)?;
        }
        if !has_memory {
            return Err(self.missing(names::MEMORY, "a memory that the module defines"));
        }
        if has_batch && exports.push {
            return Err(ModuleError::BatchAndPush);
        }
        if !has_batch && !exports.push {
            return Err(self.missing(names::BATCH, FUNCTIONS[0].2));
        }
        let manifest = self.manifest.ok_or(ModuleError::NoManifest)?.to_vec();
        // The export was found to be memory 0, the only one, and it is not imported.
        let bytes = |pages: u64| pages.saturating_mul(PAGE);
        Ok(Checked {
            manifest,
            exports,
            memory_min: self.memory.map_or(0, |m| bytes(m.initial)),
            memory_max: self.memory.and_then(|m| m.maximum).map(bytes),
            marks_packets: self.marks_packets,
            size: self.total.size(self.functions),
        })
    }

    fn is_kind(
        &self,
        export: &Export,
        kind: ExternalKind,
        expected: &'static str,
    ) -> Result<(), ModuleError> {
        if export.kind == kind {
            return Ok(());
        }
        let found = format!("a {:?}", export.kind).to_lowercase();
        Err(self.wrong_type(export, found, expected))
    }

    fn is_function(&self, export: &Export, types: &Types) -> Result<(), ModuleError> {
        let Some((_, params, expected)) = FUNCTIONS.iter().find(|f| f.0 == export.name) else {
            return Ok(());
        };
        self.is_kind(export, ExternalKind::Func, expected)?;
        let types = types.as_ref();
        let id = types.core_function_at(export.index);
        let found = types.get(id).map(|ty| ty.unwrap_func());
        match found {
            Some(ty) if ty.params() == *params && ty.results() == [ValType::I64] => Ok(()),
            Some(ty) => Err(self.wrong_type(export, ty.to_string(), expected)),
            None => Err(self.wrong_type(export, "of no known type".to_owned(), expected)),
        }
    }

    fn wrong_type(&self, export: &Export, found: String, expected: &'static str) -> ModuleError {
        ModuleError::ExportType { name: export.name, found, expected, place: self.place(export.offset) }
    }

    fn missing(&self, name: &'static str, expected: &'static str) -> ModuleError {
        let mut remedy = "export it (the SDK's macro does; in C mark it FLAME_EXPORT)".to_owned();
        if !self.unknown.is_empty() && name != names::MEMORY {
            remedy = format!("{remedy}; did you mean one of {:?}?", self.unknown);
        }
        ModuleError::MissingExport { name, expected, remedy }
    }
}

fn limit(what: &'static str, found: u64, limit: u64, remedy: &'static str, place: Place) -> ModuleError {
    ModuleError::Limit { what, found, limit, remedy, place }
}

fn count(values: &[ValType]) -> u32 {
    u32::try_from(values.len()).unwrap_or(u32::MAX)
}

/// Returns a function's name from the name section, otherwise its number. It is only needed for errors.
pub(crate) fn function_name(wasm: &[u8], index: u32) -> String {
    find_name(wasm, index).map_or_else(|| format!("function {index}"), |name| format!("function {name:?}"))
}

fn find_name(wasm: &[u8], index: u32) -> Option<String> {
    for payload in Parser::new(0).parse_all(wasm) {
        let Payload::CustomSection(section) = payload.ok()? else { continue };
        let KnownCustom::Name(subsections) = section.as_known() else { continue };
        for subsection in subsections {
            let Name::Function(map) = subsection.ok()? else { continue };
            for naming in map {
                let naming = naming.ok()?;
                if naming.index == index {
                    return Some(printable(naming.name));
                }
            }
        }
    }
    None
}
