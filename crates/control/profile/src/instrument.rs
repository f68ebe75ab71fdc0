//! The module with counters. All that the module has stays as it is; functions, types, globals and exports
//! are added after its own, and locals after a function's own.

use crate::access::{Access, Counter, Helpers, LOCALS, Locals, PARAMETERS, helper};
use flame_verify::cost::{ENTRY, weight};
use std::collections::BTreeMap;
use wasm_encoder::reencode::{self, Reencode};
use wasm_encoder::{
    CodeSection, ConstExpr, ExportKind, ExportSection, Function, FunctionSection, GlobalSection, GlobalType,
    Module, SectionId, TypeSection, ValType,
};
use wasmparser::{FunctionBody, KnownCustom, Name, Operator, Parser, Payload, TypeRef};

/// The number of counters of loads and stores by region; the instructions of each function follow.
pub const ACCESSES: usize = 6;

/// A module that counts its own execution.
pub struct Instrumented {
    pub wasm: Vec<u8>,
    /// The places of the code in the order of their counters. A large module has a counter for each of its
    /// longest places, and one for all others.
    pub places: Vec<Place>,
}

/// Code that has a counter: a function, or the instructions of one of its source lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub function: String,
    /// File and line, if they are known.
    pub line: Option<String>,
}

/// The reason why a module cannot be given counters.
#[derive(Debug, thiserror::Error)]
#[error("cannot count what the module executes: {reason}")]
pub struct InstrumentError {
    reason: String,
}

impl InstrumentError {
    fn new(reason: impl ToString) -> Self {
        Self { reason: reason.to_string() }
    }
}

/// Adds counters to a module, exported as globals (i64) of the names `counter` and a number from 0. The
/// result computes the same. Features that modules must not use are found when it is compiled.
///
/// `lines` has source lines by offset in the file, of those that [`run_offsets`] returns: instructions that
/// are executed one after the other count for the line of the first.
///
/// # Errors
///
/// Returns an error if the bytes are no valid module, or export a name of the counters.
pub fn instrument(
    wasm: &[u8],
    counter: &str,
    lines: &BTreeMap<usize, String>,
) -> Result<Instrumented, InstrumentError> {
    wasmparser::validate(wasm).map_err(InstrumentError::new)?;
    let mut pass = Pass::read(wasm, counter, lines)?;
    if pass.parameters.is_empty() {
        return Err(InstrumentError::new("it has no function"));
    }
    let mut module = Module::new();
    pass.parse_core_module(&mut module, Parser::new(0), wasm).map_err(InstrumentError::new)?;
    Ok(Instrumented { wasm: module.finish(), places: pass.places })
}

/// Returns the offsets in the file at which instructions begin that are executed one after the other.
///
/// # Errors
///
/// Returns an error if the bytes are no valid module.
pub fn run_offsets(wasm: &[u8]) -> Result<Vec<usize>, InstrumentError> {
    let mut offsets = Vec::new();
    for payload in Parser::new(0).parse_all(wasm) {
        if let Payload::CodeSectionEntry(body) = payload.map_err(InstrumentError::new)? {
            each_run(&body, |offset, _| offsets.push(offset))?;
        }
    }
    Ok(offsets)
}

/// Passes the offset of each run of instructions in a function, and the number of its instructions.
fn each_run(body: &FunctionBody<'_>, mut each: impl FnMut(usize, usize)) -> Result<(), InstrumentError> {
    let mut operators = body.get_operators_reader().map_err(InstrumentError::new)?;
    let mut run: Option<(usize, usize)> = None;
    while !operators.eof() {
        let (operator, offset) = operators.read_with_offset().map_err(InstrumentError::new)?;
        let (start, length) = run.take().unwrap_or((offset, 0));
        match ends_a_run(&operator) {
            true => each(start, length + 1),
            false => run = Some((start, length + 1)),
        }
    }
    Ok(())
}

/// The most counters of functions: a module may have 1,000 globals.
const MOST_COUNTERS: usize = 900;
/// The most globals times blocks, branches and calls, somewhat less than what a module may have
/// (`flame_bounds::Rules`).
const GLOBALS_BY_JOINS: u64 = 48_000_000;

/// A function, without imports, and one of its lines.
type Key<'a> = (usize, Option<&'a str>);

/// Rewrites the sections of a module.
struct Pass<'a> {
    /// The beginning of the names of exported counters.
    counter: &'a str,
    /// The first global that is added.
    globals: u32,
    types: u32,
    /// The functions that are added.
    helpers: Helpers,
    /// The places of the counters.
    places: Vec<Place>,
    lines: &'a BTreeMap<usize, String>,
    /// The counter of each place by its function, without imports, and line. All others have the first.
    counters: BTreeMap<Key<'a>, usize>,
    /// The number of parameters of each function, without imports.
    parameters: Vec<u32>,
    /// The functions that were written.
    written: usize,
    globals_are_written: bool,
}

impl<'a> Pass<'a> {
    fn read(
        wasm: &'a [u8],
        counter: &'a str,
        lines: &'a BTreeMap<usize, String>,
    ) -> Result<Self, InstrumentError> {
        let (mut types, mut parameters, mut globals, mut imported) = (Vec::new(), Vec::new(), 0, 0);
        let (mut named, mut function, mut joins) = (Vec::new(), 0, 0);
        let mut lengths = BTreeMap::<Key<'a>, usize>::new();
        for payload in Parser::new(0).parse_all(wasm) {
            match payload.map_err(InstrumentError::new)? {
                Payload::TypeSection(section) => {
                    for ty in section.into_iter_err_on_gc_types() {
                        types.push(ty.map_err(InstrumentError::new)?.params().len() as u32);
                    }
                }
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        match import.map_err(InstrumentError::new)?.ty {
                            TypeRef::Func(_) | TypeRef::FuncExact(_) => imported += 1,
                            TypeRef::Global(_) => globals += 1,
                            _ => {}
                        }
                    }
                }
                Payload::FunctionSection(section) => {
                    for ty in section {
                        let ty = ty.map_err(InstrumentError::new)? as usize;
                        parameters.push(types.get(ty).copied().unwrap_or_default());
                    }
                }
                Payload::CodeSectionEntry(body) => {
                    each_run(&body, |offset, length| {
                        let line = lines.get(&offset).map(String::as_str);
                        *lengths.entry((function, line)).or_default() += length;
                    })?;
                    function += 1;
                    let mut operators = body.get_operators_reader().map_err(InstrumentError::new)?;
                    while !operators.eof() {
                        let operator = operators.read().map_err(InstrumentError::new)?;
                        let is_block = matches!(operator, Operator::Block { .. });
                        let joins_paths =
                            is_block || ends_a_run(&operator) || Access::of(&operator).is_some();
                        joins += u64::from(joins_paths);
                    }
                }
                Payload::GlobalSection(section) => globals += section.count(),
                Payload::ExportSection(section) => {
                    for export in section {
                        let name = export.map_err(InstrumentError::new)?.name;
                        if name.starts_with(counter) {
                            let reason = format!("it exports {name:?}, a name of the counters: rename it");
                            return Err(InstrumentError::new(reason));
                        }
                    }
                }
                Payload::CustomSection(section) => {
                    if let KnownCustom::Name(section) = section.as_known() {
                        named.extend(section.into_iter().filter_map(Result::ok).flat_map(
                            |name| match name {
                                Name::Function(names) => names.into_iter().filter_map(Result::ok).collect(),
                                _ => Vec::new(),
                            },
                        ));
                    }
                }
                _ => {}
            }
        }
        let mut all: Vec<String> = (0..parameters.len()).map(|i| format!("function {i}")).collect();
        for name in named {
            if let Some(slot) = (name.index as usize).checked_sub(imported).and_then(|i| all.get_mut(i)) {
                *slot = name.name.to_owned();
            }
        }
        let room = (GLOBALS_BY_JOINS / u64::max(joins, 1)) as usize;
        let most = room.min(MOST_COUNTERS).saturating_sub(globals as usize + ACCESSES).max(1);
        let (places, counters) = counters(&all, &lengths, most);
        let load = (imported + parameters.len()) as u32;
        let helpers = Helpers { load, store: load + 1 };
        let types = types.len() as u32;
        Ok(Self {
            counter,
            globals,
            types,
            helpers,
            places,
            lines,
            counters,
            parameters,
            written: 0,
            globals_are_written: false,
        })
    }

    fn count(&self) -> usize {
        ACCESSES + self.places.len()
    }

    fn add_globals(&mut self, globals: &mut GlobalSection) {
        let ty = GlobalType { val_type: ValType::I64, mutable: true, shared: false };
        (0..self.count()).for_each(|_| {
            globals.global(ty, &ConstExpr::i64_const(0));
        });
        self.globals_are_written = true;
    }
}

/// Returns the places of counters, and the counter of each place: one for each, or for each of the longest
/// and one for all others.
fn counters<'a>(
    functions: &[String],
    lengths: &BTreeMap<Key<'a>, usize>,
    most: usize,
) -> (Vec<Place>, BTreeMap<Key<'a>, usize>) {
    let place = |key: &Key<'a>| Place { function: functions[key.0].clone(), line: key.1.map(str::to_owned) };
    if lengths.len() <= most {
        let counters = lengths.keys().enumerate().map(|(i, key)| (*key, i)).collect();
        return (lengths.keys().map(place).collect(), counters);
    }
    let mut longest: Vec<_> = lengths.iter().collect();
    longest.sort_by_key(|(_, length)| std::cmp::Reverse(**length));
    longest.truncate(most - 1);
    let others = Place { function: "all other code".to_owned(), line: None };
    let places = [others].into_iter().chain(longest.iter().map(|(key, _)| place(key))).collect();
    (places, longest.iter().enumerate().map(|(i, (key, _))| (**key, i + 1)).collect())
}

type Reencoded<T> = Result<T, reencode::Error<InstrumentError>>;

impl Reencode for Pass<'_> {
    type Error = InstrumentError;

    fn parse_type_section(
        &mut self,
        types: &mut TypeSection,
        section: wasmparser::TypeSectionReader<'_>,
    ) -> Reencoded<()> {
        reencode::utils::parse_type_section(self, types, section)?;
        types.ty().function(PARAMETERS, []);
        Ok(())
    }

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: wasmparser::FunctionSectionReader<'_>,
    ) -> Reencoded<()> {
        reencode::utils::parse_function_section(self, functions, section)?;
        functions.function(self.types).function(self.types);
        Ok(())
    }

    fn parse_code_section(
        &mut self,
        code: &mut CodeSection,
        section: wasmparser::CodeSectionReader<'_>,
    ) -> Reencoded<()> {
        reencode::utils::parse_code_section(self, code, section)?;
        code.function(&helper(self.globals)).function(&helper(self.globals + 3));
        Ok(())
    }

    fn parse_global_section(
        &mut self,
        globals: &mut GlobalSection,
        section: wasmparser::GlobalSectionReader<'_>,
    ) -> Reencoded<()> {
        reencode::utils::parse_global_section(self, globals, section)?;
        self.add_globals(globals);
        Ok(())
    }

    /// Adds the section of globals where a module has none.
    fn intersperse_section_hook(
        &mut self,
        module: &mut Module,
        _after: Option<SectionId>,
        before: Option<SectionId>,
    ) -> Reencoded<()> {
        use SectionId as Id;
        let is_before = matches!(
            before,
            None | Some(Id::Custom | Id::Type | Id::Import | Id::Function | Id::Table | Id::Memory | Id::Tag)
        );
        if !is_before && before != Some(Id::Global) && !self.globals_are_written {
            let mut globals = GlobalSection::new();
            self.add_globals(&mut globals);
            module.section(&globals);
        }
        Ok(())
    }

    fn parse_export_section(
        &mut self,
        exports: &mut ExportSection,
        section: wasmparser::ExportSectionReader<'_>,
    ) -> Reencoded<()> {
        reencode::utils::parse_export_section(self, exports, section)?;
        for i in 0..self.count() {
            exports.export(&format!("{}{i}", self.counter), ExportKind::Global, self.globals + i as u32);
        }
        Ok(())
    }

    fn parse_function_body(&mut self, code: &mut CodeSection, body: FunctionBody<'_>) -> Reencoded<()> {
        let mut locals = Vec::new();
        let mut declared = self.parameters.get(self.written).copied().unwrap_or_default();
        for group in body.get_locals_reader()? {
            let (count, ty) = group?;
            declared = u32::saturating_add(declared, count);
            locals.push((count, self.val_type(ty)?));
        }
        locals.extend(LOCALS);
        let mut out = Writer { function: Function::new(locals), run: None, uncounted: ENTRY };
        let locals = Locals { operands: declared, values: declared + 3 };
        let mut operators = body.get_operators_reader()?;
        while !operators.eof() {
            let (operator, offset) = operators.read_with_offset()?;
            out.run.get_or_insert_with(|| {
                let key = (self.written, self.lines.get(&offset).map(String::as_str));
                let counter = self.counters.get(&key).copied().unwrap_or_default();
                self.globals + (ACCESSES + counter) as u32
            });
            out.uncounted += weight(&operator);
            if ends_a_run(&operator) {
                out.flush();
            }
            if let Some(access) = Access::of(&operator) {
                let mut sink = out.function.instructions();
                Counter { code: &mut sink, locals, helpers: self.helpers }.count(access);
            }
            out.function.instruction(&self.instruction(operator)?);
        }
        code.function(&out.function);
        self.written += 1;
        Ok(())
    }
}

/// Returns whether other instructions than the next one may be executed after this one, or others than the
/// one before it were executed before. What was counted up to it is added to the counter before it.
fn ends_a_run(operator: &Operator<'_>) -> bool {
    use Operator as O;
    matches!(
        operator,
        O::Loop { .. }
            | O::If { .. }
            | O::Else
            | O::End
            | O::Br { .. }
            | O::BrIf { .. }
            | O::BrTable { .. }
            | O::Return
            | O::Unreachable
            | O::Call { .. }
            | O::CallIndirect { .. }
    )
}

/// A function that is being written.
struct Writer {
    function: Function,
    /// The global that counts the instructions of the present run.
    run: Option<u32>,
    /// The weight of the instructions since the last addition to the global.
    uncounted: u64,
}

impl Writer {
    /// Ends a run: adds its instructions to its global.
    fn flush(&mut self) {
        if let (Some(executed), 1..) = (self.run.take(), self.uncounted) {
            let mut code = self.function.instructions();
            code.global_get(executed).i64_const(self.uncounted as i64).i64_add().global_set(executed);
            self.uncounted = 0;
        }
    }
}
