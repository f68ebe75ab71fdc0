//! The rules for capsules, and the bounds of their functions.
//!
//! A capsule is small, so most limits of modules follow from its length. What is refused here beside that
//! would survive the wiping of an instance (tables and segments that change), or needs work before the first
//! call (a start function).

use crate::analyse::Read;
use crate::{Place, Proved};
use flame_abi::CALL_UNITS;
use flame_abi::capsule::{CALLS, IMPORTS, MAX_FUNCTIONS};
use flame_abi::layout::names;
use flame_meter::error::printable;
use flame_meter::features::{self, FEATURES};
use wasmparser::{ExternalKind, FuncType, Operator, Parser, Payload, TypeRef, ValType, Validator};

/// The most bytes of a capsule's code.
const MAX_BYTES: usize = 8191;
/// The most locals of all functions together: a few bytes declare any number.
const MAX_LOCALS: u64 = 1000;
/// The most elements of a table.
const MAX_ELEMENTS: u64 = 1024;
/// The pages of memory.
const PAGES: u64 = 1;

/// The bounds of a capsule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capsule {
    /// For each exported function, in their order, the most instructions of a call, without calls of the
    /// node, or `None` if they are counted: there is no bound, or a large one, which would be charged for the
    /// shortest call, too.
    pub bounds: Vec<Option<u64>>,
    pub proved: Proved,
}

/// The reason why code is no capsule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: found {found}, expected {expected}; {remedy}")]
pub struct CapsuleError {
    pub place: Place,
    pub found: String,
    pub expected: &'static str,
    pub remedy: &'static str,
}

/// Checks that code is a capsule, and proves bounds of its functions.
///
/// # Errors
///
/// Returns the first reason why the code is not a capsule.
pub fn capsule(wasm: &[u8]) -> Result<Capsule, CapsuleError> {
    if wasm.len() > MAX_BYTES {
        let found = format!("{} bytes", wasm.len());
        return Err(wrong("module", 0, found, "at most 8191", "optimize for size, and leave names out"));
    }
    let valid = Validator::new_with_features(FEATURES).validate_all(wasm);
    valid.map_err(|e| refused(&e))?;
    check(wasm)?;
    let exports = exported(wasm).map_err(|e| refused(&e))?;
    let read = Read::new(wasm, |_| true).map_err(|e| refused(&e))?;
    let bound = |name: &&str| {
        let (bound, lost) = read.bound(name);
        let most = bound.at(1, flame_verify::value::MAX_LENGTH).and_then(|most| u64::try_from(most).ok())?;
        (most <= CALL_UNITS + lost).then_some(most)
    };
    Ok(Capsule { bounds: exports.iter().map(bound).collect(), proved: read.proved(|_| true) })
}

fn wrong(
    section: &'static str,
    offset: usize,
    found: String,
    expected: &'static str,
    remedy: &'static str,
) -> CapsuleError {
    CapsuleError { place: Place { section, function: None, offset }, found, expected, remedy }
}

fn refused(error: &wasmparser::Error) -> CapsuleError {
    let place = Place { section: "module", function: None, offset: error.offset() };
    let found = features::refused(error, place).to_string();
    wrong("module", error.offset(), found, "valid Wasm with the features of modules", "build it again")
}

/// Returns the names of the exported functions, in their order.
fn exported(wasm: &[u8]) -> Result<Vec<&str>, wasmparser::Error> {
    let mut exports = Vec::new();
    for payload in Parser::new(0).parse_all(wasm) {
        if let Payload::ExportSection(section) = payload? {
            for export in section {
                let export = export?;
                if export.kind == ExternalKind::Func {
                    exports.push(export.name);
                }
            }
        }
    }
    Ok(exports)
}

/// What is known of a valid module while it is read.
#[derive(Default)]
struct Seen {
    types: Vec<FuncType>,
    /// The type of each function, imports first.
    functions: Vec<u32>,
    imported: usize,
    exports: usize,
    has_memory: bool,
    locals: u64,
}

fn check(wasm: &[u8]) -> Result<(), CapsuleError> {
    let mut seen = Seen::default();
    for payload in Parser::new(0).parse_all(wasm) {
        seen.payload(&payload.map_err(|e| refused(&e))?)?;
    }
    if !seen.has_memory {
        let remedy = "export its memory, of one page that does not grow, as `memory`";
        return Err(wrong("export section", 0, "no `memory`".to_owned(), "one page", remedy));
    }
    if !(1..=MAX_FUNCTIONS).contains(&seen.exports) {
        let found = format!("{} functions", seen.exports);
        return Err(wrong("export section", 0, found, "1 to 64", "export the functions that are called"));
    }
    Ok(())
}

fn letters(all: &[ValType]) -> String {
    let letter = |of: &ValType| match of {
        ValType::I32 => 'i',
        ValType::I64 => 'l',
        _ => '?',
    };
    all.iter().map(letter).collect()
}

impl Seen {
    fn payload(&mut self, payload: &Payload<'_>) -> Result<(), CapsuleError> {
        let fail = |e: wasmparser::Error| refused(&e);
        match payload {
            Payload::TypeSection(section) => {
                for group in section.clone() {
                    for of in group.map_err(fail)?.types() {
                        if let wasmparser::CompositeInnerType::Func(of) = &of.composite_type.inner {
                            self.types.push(of.clone());
                        }
                    }
                }
            }
            Payload::ImportSection(section) => {
                for import in section.clone().into_imports_with_offsets() {
                    let (offset, import) = import.map_err(fail)?;
                    self.import(offset, import)?;
                }
                self.imported = self.functions.len();
            }
            Payload::FunctionSection(section) => {
                for of in section.clone() {
                    self.functions.push(of.map_err(fail)?);
                }
            }
            Payload::TableSection(section) => {
                for table in section.clone().into_iter_with_offsets() {
                    let (offset, table) = table.map_err(fail)?;
                    if table.ty.initial > MAX_ELEMENTS {
                        let found = format!("a table of {} elements", table.ty.initial);
                        return Err(wrong("table section", offset, found, "at most 1024", "take fewer"));
                    }
                }
            }
            Payload::MemorySection(section) => {
                for memory in section.clone().into_iter_with_offsets() {
                    let (offset, memory) = memory.map_err(fail)?;
                    if memory.initial != PAGES || memory.maximum != Some(PAGES) {
                        let found =
                            format!("a memory of {} pages, at most {:?}", memory.initial, memory.maximum);
                        let remedy =
                            "link with --initial-memory=65536 --max-memory=65536 and a smaller stack";
                        return Err(wrong("memory section", offset, found, "one page, at most one", remedy));
                    }
                }
            }
            Payload::ExportSection(section) => {
                for export in section.clone().into_iter_with_offsets() {
                    let (offset, export) = export.map_err(fail)?;
                    self.export(offset, &export)?;
                }
            }
            Payload::StartSection { range, .. } => {
                let found = "a start function".to_owned();
                return Err(wrong("start section", range.start, found, "none", "leave it out"));
            }
            Payload::CodeSectionEntry(body) => self.body(body)?,
            _ => {}
        }
        Ok(())
    }

    fn import(&mut self, offset: usize, import: wasmparser::Import<'_>) -> Result<(), CapsuleError> {
        let found = || format!("the import {} {}", printable(import.module), printable(import.name));
        let TypeRef::Func(of) = import.ty else {
            return Err(wrong(
                "import section",
                offset,
                found(),
                "functions only",
                "define it in the capsule",
            ));
        };
        let known = CALLS.iter().find(|(name, ..)| import.module == IMPORTS && *name == import.name);
        let Some((_, parameters, results)) = known else {
            return Err(wrong("import section", offset, found(), "a call of the node", "leave it out"));
        };
        let is_its = self
            .types
            .get(of as usize)
            .is_some_and(|of| letters(of.params()) == *parameters && letters(of.results()) == *results);
        if !is_its {
            let found = format!("{} with another type", found());
            return Err(wrong("import section", offset, found, "the type of the call", "see docs/active.md"));
        }
        self.functions.push(of);
        Ok(())
    }

    fn export(&mut self, offset: usize, export: &wasmparser::Export<'_>) -> Result<(), CapsuleError> {
        let found = || format!("the export {}", printable(export.name));
        match export.kind {
            ExternalKind::Memory if export.name == names::MEMORY => self.has_memory = true,
            ExternalKind::Func if export.name.starts_with("flame") => {
                // Promises about arguments of modules hold under these names.
                return Err(wrong("export section", offset, found(), "another name", "rename it"));
            }
            ExternalKind::Func => {
                let index = export.index as usize;
                let of = self.functions.get(index).and_then(|of| self.types.get(*of as usize));
                let fits = of.is_some_and(|of| of.params() == [ValType::I32] && of.results().is_empty());
                if !fits || index < self.imported {
                    let remedy = "give it one parameter, the length of the arguments, and no result";
                    return Err(wrong("export section", offset, found(), "(func (param i32))", remedy));
                }
                self.exports += 1;
            }
            // Compilers export the ends of stack and data, which are constants.
            ExternalKind::Global => {}
            _ => {
                return Err(wrong(
                    "export section",
                    offset,
                    found(),
                    "functions and `memory`",
                    "leave it out",
                ));
            }
        }
        Ok(())
    }

    fn body(&mut self, body: &wasmparser::FunctionBody<'_>) -> Result<(), CapsuleError> {
        let fail = |e: wasmparser::Error| refused(&e);
        let start = body.range().start;
        for locals in body.get_locals_reader().map_err(fail)? {
            self.locals += u64::from(locals.map_err(fail)?.0);
        }
        if self.locals > MAX_LOCALS {
            let found = format!("{} locals", self.locals);
            return Err(wrong("code section", start, found, "at most 1000 in all", "use fewer"));
        }
        for operator in body.get_operators_reader().map_err(fail)?.into_iter_with_offsets() {
            let (operator, offset) = operator.map_err(fail)?;
            let name = match operator {
                Operator::TableSet { .. } => "table.set",
                Operator::TableGrow { .. } => "table.grow",
                Operator::TableFill { .. } => "table.fill",
                Operator::TableInit { .. } => "table.init",
                Operator::TableCopy { .. } => "table.copy",
                Operator::ElemDrop { .. } => "elem.drop",
                Operator::DataDrop { .. } => "data.drop",
                _ => continue,
            };
            let remedy = "leave it out: an instance is wiped between capsules, and this would stay";
            return Err(wrong("code section", offset, name.to_owned(), "no change of tables", remedy));
        }
        Ok(())
    }
}
