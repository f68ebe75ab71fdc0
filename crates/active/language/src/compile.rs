//! From a program to WebAssembly. What is emitted is counted where it is emitted, so the bound is the code's
//! own.

use crate::program::{Call, Cost, Expression as E, Function, Operator, Send, Type};
use crate::{ProgramError, parser};
use flame_capsule::{MAX_ARGUMENTS, MAX_LIST};
use std::collections::BTreeSet;
use wasm_encoder::{
    BlockType, CodeSection, ConstExpr, EntityType, ExportKind, ExportSection, FunctionSection, GlobalSection,
    GlobalType, ImportSection, Instruction as I, MemArg, MemorySection, MemoryType, Module, TypeSection,
    ValType,
};

/// The most bytes of a compiled program.
pub const MAX_COMPILED: usize = 1024;
/// The instructions that a call of the node stands for.
pub const CALL_WEIGHT: u64 = 50;
/// The bytes of the only page of memory.
pub const PAGE: u64 = 65_536;
/// Where lists begin, behind the arguments.
const HEAP: i32 = MAX_ARGUMENTS as i32;
const MOST: i64 = MAX_LIST as i64;
/// The most bytes of a list.
const LIST: u64 = 8 + 8 * MAX_LIST as u64;
/// The top of the heap.
const TOP: u32 = 0;

const I32: ValType = ValType::I32;
const I64: ValType = ValType::I64;

impl Call {
    /// Returns the name, the parameters and the results of the import.
    fn import(self) -> (&'static str, &'static [ValType], &'static [ValType]) {
        match self {
            Self::Here => ("here", &[], &[I64]),
            Self::Origin => ("origin", &[], &[I64]),
            Self::From => ("from", &[], &[I64]),
            Self::Now => ("now", &[], &[I64]),
            Self::Hops => ("hops", &[], &[I64]),
            Self::Next => ("next", &[I64], &[I64]),
            // Writes a list at an address, and returns its bytes.
            Self::Neighbours => ("neighbours", &[I32], &[I32]),
            // Whether it is remote, function, address and length of the arguments, place, parts.
            Self::Send => ("send", &[I32, I32, I32, I32, I64, I64], &[]),
            Self::Deliver => ("deliver", &[I32, I32], &[]),
            Self::Leave => ("leave", &[I64, I64, I64], &[]),
            Self::Find => ("find", &[I64], &[I64]),
            Self::Service => ("service", &[I64, I64], &[I64]),
        }
    }
}

/// What a program uses beside its functions.
#[derive(Default)]
struct Uses {
    calls: BTreeSet<Call>,
    pushes: bool,
    copies: bool,
}

/// Where things are in the module.
struct Layout<'a> {
    calls: Vec<Call>,
    push: u32,
    copy: u32,
    /// The numbers of functions that others call.
    internal: Vec<Option<u32>>,
    functions: &'a [Function],
}

/// The code of one function of the module.
struct Emitter<'a> {
    layout: &'a Layout<'a>,
    /// What the functions above need.
    done: &'a [Cost],
    code: Vec<I<'static>>,
    /// The types of its locals behind the parameters.
    locals: Vec<ValType>,
    parameters: u32,
    /// The local of the first variable.
    base: u32,
    cost: Cost,
}

/// A finished function of the module: parameters, results, locals and code.
type Made = (&'static [ValType], &'static [ValType], Vec<ValType>, Vec<I<'static>>);

/// Compiles functions, and returns the module and what each needs.
pub fn compile(functions: &[Function]) -> Result<(Vec<u8>, Vec<Cost>), ProgramError> {
    let mut uses = Uses::default();
    functions.iter().for_each(|function| uses.of(function));
    let calls: Vec<Call> = uses.calls.iter().copied().collect();
    let mut next = count(calls.len());
    let mut take = |is_used: bool| {
        next += u32::from(is_used);
        next - u32::from(is_used)
    };
    let (push, copy) = (take(uses.pushes), take(uses.copies));
    let internal = functions.iter().map(|f| f.is_called.then(|| take(true))).collect();
    let layout = Layout { calls, push, copy, internal, functions };
    let mut made: Vec<(Vec<ValType>, Made)> = Vec::new();
    if uses.pushes {
        made.push((vec![I64, I64], layout.push_code()));
    }
    if uses.copies {
        made.push((vec![I32, I64], layout.copy_code()));
    }
    let mut done: Vec<Cost> = Vec::new();
    let mut bounds = Vec::new();
    let mut exported = Vec::new();
    for (number, function) in functions.iter().enumerate() {
        let arguments = vec![I64; function.parameters.len()];
        let mut inner = Emitter::new(&layout, &done, count(arguments.len()), 0);
        if function.is_called {
            inner.locals.resize(function.variables - arguments.len(), I64);
            inner.value(&function.body);
        }
        let (cost, locals, code) = (inner.cost, inner.locals, inner.code);
        let mut outer = Emitter::new(&layout, &done, 1, 1);
        outer.locals.resize(function.variables, I64);
        outer.arguments(&function.parameters);
        if let Some(index) = layout.internal[number] {
            (0..count(arguments.len())).for_each(|n| outer.op(I::LocalGet(1 + n)));
            outer.op(I::Call(index));
            outer.cost = outer.cost.plus(cost);
            made.push((arguments, (&[], &[I64], locals, code)));
        } else {
            outer.value(&function.body);
        }
        outer.op(I::Drop);
        bounds.push(outer.cost);
        exported.push((vec![I32], (&[][..], &[][..], outer.locals, outer.code)));
        done.push(cost);
    }
    let at = |number: usize, text: String, remedy: &str| {
        let text = format!("found the function `{}` {text}", functions[number].name);
        ProgramError { line: 1, column: 1, text, remedy: remedy.to_owned() }
    };
    let heap = PAGE - HEAP.unsigned_abs() as u64 - MAX_ARGUMENTS as u64;
    if let Some(number) = bounds.iter().position(|cost| cost.memory > heap) {
        let text = format!("with {} bytes of lists, expected at most {heap}", bounds[number].memory);
        return Err(at(number, text, "push to fewer lists, or fold over fewer elements"));
    }
    if let Some(number) = bounds.iter().position(|cost| cost.instructions > u64::MAX / 4) {
        return Err(at(number, "with more than 2^62 instructions".to_owned(), "nest fewer folds"));
    }
    made.extend(exported);
    let code = layout.module(&made);
    if code.len() > MAX_COMPILED {
        let text =
            format!("found a program of {} bytes compiled, expected at most {MAX_COMPILED}", code.len());
        let remedy = "divide it, or move what is repeated to a function".to_owned();
        return Err(ProgramError { line: 1, column: 1, text, remedy });
    }
    Ok((code, bounds))
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn at(offset: u64) -> MemArg {
    MemArg { offset, align: 3, memory_index: 0 }
}

impl Cost {
    fn plus(self, other: Self) -> Self {
        Self {
            instructions: self.instructions.saturating_add(other.instructions),
            memory: self.memory.saturating_add(other.memory),
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            instructions: self.instructions.max(other.instructions),
            memory: self.memory.max(other.memory),
        }
    }

    fn times(self, n: u32) -> Self {
        Self {
            instructions: self.instructions.saturating_mul(n.into()),
            memory: self.memory.saturating_mul(n.into()),
        }
    }
}

impl Uses {
    fn of(&mut self, function: &Function) {
        self.value(&function.body);
    }

    fn value(&mut self, of: &E) {
        match of {
            E::Constant(_) | E::Variable(_) => {}
            E::Let(_, a, b) | E::Then(a, b) | E::Binary(_, a, b) => {
                [a, b].into_iter().for_each(|e| self.value(e))
            }
            E::If(a, b, c) => [a, b, c].into_iter().for_each(|e| self.value(e)),
            E::Fold(fold) => {
                [&fold.list, &fold.first, &fold.body].into_iter().for_each(|e| self.value(e));
            }
            E::Function(_, all) | E::List(all) => all.iter().for_each(|e| self.value(e)),
            E::Call(call, all) => {
                self.calls.insert(*call);
                all.iter().for_each(|e| self.value(e));
            }
            E::Send(send) => {
                self.calls.insert(Call::Send);
                self.all(&send.arguments);
                self.value(&send.place);
                self.value(&send.parts);
            }
            E::Deliver(all) => {
                self.calls.insert(Call::Deliver);
                self.all(all);
            }
            E::Push(list, value) => {
                self.pushes = true;
                self.value(list);
                self.value(value);
            }
            E::Length(list) => self.value(list),
        }
    }

    fn all(&mut self, all: &[(Type, E)]) {
        for (of, value) in all {
            self.copies |= of.is_list();
            self.value(value);
        }
    }
}

impl Layout<'_> {
    /// Returns `push(list, value)`, which copies the list to the top.
    fn push_code(&self) -> Made {
        let mut e = Emitter::new(self, &[], 2, 0);
        let (from, to, bytes) = (e.local(I32), e.local(I32), e.local(I32));
        e.ops([
            I::LocalGet(0),
            I::I32WrapI64,
            I::LocalTee(from),
            I::I64Load(at(0)),
            I::I64Const(MOST),
            I::I64GeU,
        ]);
        e.trap();
        e.ops([I::GlobalGet(TOP), I::LocalTee(to), I::LocalGet(from)]);
        e.bytes_of(from);
        e.op(I::LocalTee(bytes));
        e.op(I::MemoryCopy { src_mem: 0, dst_mem: 0 });
        e.ops([
            I::LocalGet(to),
            I::LocalGet(from),
            I::I64Load(at(0)),
            I::I64Const(1),
            I::I64Add,
            I::I64Store(at(0)),
        ]);
        e.ops([I::LocalGet(to), I::LocalGet(bytes), I::I32Add, I::LocalGet(1), I::I64Store(at(0))]);
        e.ops([I::LocalGet(to), I::LocalGet(bytes), I::I32Add, I::I32Const(8), I::I32Add, I::GlobalSet(TOP)]);
        e.ops([I::LocalGet(to), I::I64ExtendI32U]);
        (&[], &[I64], e.locals, e.code)
    }

    /// Returns `copy(to, list)`, which copies a list among arguments and returns the address behind it.
    fn copy_code(&self) -> Made {
        let mut e = Emitter::new(self, &[], 2, 0);
        let (from, bytes) = (e.local(I32), e.local(I32));
        e.ops([I::LocalGet(0), I::LocalGet(1), I::I32WrapI64, I::LocalTee(from)]);
        e.bytes_of(from);
        e.op(I::LocalTee(bytes));
        e.op(I::MemoryCopy { src_mem: 0, dst_mem: 0 });
        e.ops([I::LocalGet(0), I::LocalGet(bytes), I::I32Add]);
        (&[], &[I32], e.locals, e.code)
    }

    fn module(&self, made: &[(Vec<ValType>, Made)]) -> Vec<u8> {
        let mut signatures: Vec<(Vec<ValType>, Vec<ValType>)> = Vec::new();
        let mut of = |parameters: &[ValType], results: &[ValType]| {
            let signature = (parameters.to_vec(), results.to_vec());
            let known = signatures.iter().position(|other| *other == signature);
            count(known.unwrap_or_else(|| {
                signatures.push(signature);
                signatures.len() - 1
            }))
        };
        let mut imports = ImportSection::new();
        for call in &self.calls {
            let (name, parameters, results) = call.import();
            imports.import("flame", name, EntityType::Function(of(parameters, results)));
        }
        let (mut functions, mut codes) = (FunctionSection::new(), CodeSection::new());
        for (parameters, (_, results, locals, code)) in made {
            functions.function(of(parameters, results));
            let mut function = wasm_encoder::Function::new_with_locals_types(locals.iter().copied());
            code.iter().for_each(|instruction| {
                function.instruction(instruction);
            });
            function.instruction(&I::End);
            codes.function(&function);
        }
        let mut types = TypeSection::new();
        for (parameters, results) in signatures {
            types.ty().function(parameters, results);
        }
        let mut memories = MemorySection::new();
        let (minimum, maximum) = (1, Some(1));
        memories.memory(MemoryType {
            minimum,
            maximum,
            memory64: false,
            shared: false,
            page_size_log2: None,
        });
        let mut globals = GlobalSection::new();
        let top = GlobalType { val_type: I32, mutable: true, shared: false };
        globals.global(top, &ConstExpr::i32_const(HEAP));
        let mut exports = ExportSection::new();
        exports.export("memory", ExportKind::Memory, 0);
        let first = self.calls.len() + made.len() - self.functions.len();
        for (number, function) in self.functions.iter().enumerate() {
            exports.export(&function.name, ExportKind::Func, count(first + number));
        }
        let mut module = Module::new();
        module.section(&types);
        if !self.calls.is_empty() {
            module.section(&imports);
        }
        module.section(&functions).section(&memories).section(&globals).section(&exports).section(&codes);
        module.finish()
    }
}

impl<'a> Emitter<'a> {
    fn new(layout: &'a Layout<'a>, done: &'a [Cost], parameters: u32, base: u32) -> Self {
        let (code, locals, cost) = (Vec::new(), Vec::new(), Cost::default());
        Self { layout, done, code, locals, parameters, base, cost }
    }

    fn local(&mut self, of: ValType) -> u32 {
        self.locals.push(of);
        self.parameters + count(self.locals.len()) - 1
    }

    fn variable(&self, number: usize) -> u32 {
        self.base + count(number)
    }

    /// Appends an instruction, and counts it as Wasmtime does.
    fn op(&mut self, instruction: I<'static>) {
        self.cost.instructions += match instruction {
            I::Block(_) | I::Loop(_) | I::Else | I::End | I::Unreachable | I::Drop => 0,
            I::MemoryCopy { .. } => 1 + LIST / 8,
            _ => 1,
        };
        self.code.push(instruction);
    }

    fn ops<const N: usize>(&mut self, all: [I<'static>; N]) {
        all.into_iter().for_each(|instruction| self.op(instruction));
    }

    /// Ends the program if the value on the stack is not 0.
    fn trap(&mut self) {
        self.ops([I::If(BlockType::Empty), I::Unreachable, I::End]);
    }

    /// Leaves the bytes of a list on the stack.
    fn bytes_of(&mut self, list: u32) {
        self.ops([I::LocalGet(list), I::I64Load(at(0)), I::I32WrapI64, I::I32Const(3), I::I32Shl]);
        self.ops([I::I32Const(8), I::I32Add]);
    }

    /// Calls the node.
    fn host(&mut self, call: Call) {
        let index = self.layout.calls.iter().position(|other| *other == call).unwrap_or(0);
        self.op(I::Call(count(index)));
        self.cost.instructions += CALL_WEIGHT;
    }

    /// Calls a helper, which costs as much as its code.
    fn helper(&mut self, index: u32, made: &Made) {
        self.op(I::Call(index));
        let mut helper = Emitter::new(self.layout, &[], 2, 0);
        made.3.iter().for_each(|instruction| helper.op(instruction.clone()));
        self.cost = self.cost.plus(helper.cost);
    }

    /// Reads the arguments into the variables: numbers, and the addresses of lists.
    fn arguments(&mut self, parameters: &[Type]) {
        self.ops([I::I32Const(HEAP), I::GlobalSet(TOP)]);
        let cursor = parameters.iter().any(|of| of.is_list()).then(|| self.local(I32));
        let (mut is_moved, mut offset) = (false, 0);
        for (number, of) in parameters.iter().enumerate() {
            let begin = match cursor.filter(|_| is_moved) {
                Some(cursor) => I::LocalGet(cursor),
                None => I::I32Const(0),
            };
            let variable = self.variable(number);
            if let Some(cursor) = cursor.filter(|_| of.is_list()) {
                let offset_before = i32::try_from(offset).unwrap_or(0);
                self.ops([begin, I::I32Const(offset_before), I::I32Add, I::LocalTee(cursor)]);
                self.ops([I::I64ExtendI32U, I::LocalSet(variable)]);
                self.ops([I::LocalGet(cursor), I::I64Load(at(0)), I::I64Const(MOST), I::I64GtU]);
                self.trap();
                self.op(I::LocalGet(cursor));
                self.bytes_of(cursor);
                self.ops([I::I32Add, I::LocalSet(cursor)]);
                (is_moved, offset) = (true, 0);
            } else {
                self.ops([begin, I::I64Load(at(offset)), I::LocalSet(variable)]);
                offset += 8;
            }
        }
        // All of the arguments, and no more.
        self.op(match cursor {
            Some(cursor) => I::LocalGet(cursor),
            None => I::I32Const(0),
        });
        self.ops([I::I32Const(i32::try_from(offset).unwrap_or(0)), I::I32Add, I::LocalGet(0), I::I32Ne]);
        self.trap();
    }

    fn value(&mut self, of: &E) {
        match of {
            E::Constant(number) => self.op(I::I64Const(*number)),
            E::Variable(number) => self.op(I::LocalGet(self.variable(*number))),
            E::Let(number, value, body) => {
                self.value(value);
                self.op(I::LocalSet(self.variable(*number)));
                self.value(body);
            }
            E::Then(first, second) => {
                self.value(first);
                self.op(I::Drop);
                self.value(second);
            }
            E::If(condition, yes, no) => {
                self.condition(condition);
                self.op(I::If(BlockType::Result(I64)));
                let before = std::mem::take(&mut self.cost);
                self.value(yes);
                let yes = std::mem::take(&mut self.cost);
                self.op(I::Else);
                self.value(no);
                self.op(I::End);
                self.cost = before.plus(self.cost.max(yes));
            }
            E::Fold(fold) => self.fold(fold),
            E::Binary(operator, left, right) => {
                if self.compare(*operator, left, right) {
                    self.op(I::I64ExtendI32U);
                }
            }
            E::Function(number, arguments) => {
                arguments.iter().for_each(|argument| self.value(argument));
                self.op(I::Call(self.layout.internal[*number].unwrap_or(0)));
                self.cost = self.cost.plus(self.done[*number]);
            }
            E::Call(Call::Neighbours, _) => {
                let list = self.local(I32);
                self.ops([I::GlobalGet(TOP), I::LocalTee(list), I::LocalGet(list)]);
                self.host(Call::Neighbours);
                self.ops([I::I32Add, I::GlobalSet(TOP), I::LocalGet(list), I::I64ExtendI32U]);
                self.cost = self.cost.plus(Cost { instructions: LIST / 8, memory: LIST });
            }
            E::Call(call, arguments) => {
                arguments.iter().for_each(|argument| self.value(argument));
                self.host(*call);
                if *call == Call::Leave {
                    self.op(I::I64Const(0));
                }
            }
            E::Send(send) => self.send(send),
            E::Deliver(all) => {
                let values = self.keep(all.iter().map(|(_, value)| value));
                let begin = self.encode(all, &values);
                self.op(I::LocalGet(begin.0));
                self.length(begin);
                self.host(Call::Deliver);
                self.op(I::I64Const(0));
            }
            E::List(all) => self.list(all),
            E::Push(list, value) => {
                self.value(list);
                self.value(value);
                self.helper(self.layout.push, &self.layout.push_code());
                self.cost.memory = self.cost.memory.saturating_add(LIST);
            }
            E::Length(list) => {
                self.value(list);
                self.ops([I::I32WrapI64, I::I64Load(at(0))]);
            }
        }
    }

    /// Leaves 1 or 0 as a condition on the stack.
    fn condition(&mut self, of: &E) {
        if let E::Binary(operator, left, right) = of {
            // Only comparisons are conditions.
            self.compare(*operator, left, right);
        } else {
            self.value(of);
            self.op(I::I32WrapI64);
        }
    }

    /// Leaves the result of an operator on the stack, and returns whether it is a condition.
    fn compare(&mut self, operator: Operator, left: &E, right: &E) -> bool {
        self.value(left);
        self.value(right);
        let (instruction, is_condition) = match operator {
            Operator::Add => (I::I64Add, false),
            Operator::Subtract => (I::I64Sub, false),
            Operator::Multiply => (I::I64Mul, false),
            Operator::Divide => (I::I64DivS, false),
            Operator::Remainder => (I::I64RemS, false),
            Operator::Equal => (I::I64Eq, true),
            Operator::Differ => (I::I64Ne, true),
            Operator::Less => (I::I64LtS, true),
            Operator::LessOrEqual => (I::I64LeS, true),
            Operator::Greater => (I::I64GtS, true),
            Operator::GreaterOrEqual => (I::I64GeS, true),
        };
        self.op(instruction);
        is_condition
    }

    fn fold(&mut self, fold: &crate::program::Fold) {
        let (list, end) = (self.local(I32), self.local(I32));
        let (item, value) = (self.variable(fold.item), self.variable(fold.value));
        let most = i32::try_from(fold.most).unwrap_or(0);
        self.value(&fold.list);
        self.ops([I::I32WrapI64, I::LocalSet(list)]);
        self.value(&fold.first);
        self.op(I::LocalSet(value));
        self.ops([I::LocalGet(list), I::I64Load(at(0)), I::I32WrapI64, I::LocalTee(end), I::I32Const(most)]);
        self.ops([I::LocalGet(end), I::I32Const(most), I::I32LtU, I::Select, I::I32Const(3), I::I32Shl]);
        self.ops([I::LocalGet(list), I::I32Add, I::LocalSet(end)]);
        self.ops([I::Block(BlockType::Empty), I::Loop(BlockType::Empty)]);
        let before = std::mem::take(&mut self.cost);
        self.ops([I::LocalGet(list), I::LocalGet(end), I::I32Eq, I::BrIf(1)]);
        let check = std::mem::take(&mut self.cost);
        self.ops([I::LocalGet(list), I::I64Load(at(8)), I::LocalSet(item)]);
        self.ops([I::LocalGet(list), I::I32Const(8), I::I32Add, I::LocalSet(list)]);
        self.value(&fold.body);
        self.ops([I::LocalSet(value), I::Br(0), I::End, I::End]);
        // Each round checks once, and the end once more.
        let rounds = self.cost.plus(check).times(fold.most);
        self.cost = before.plus(rounds).plus(check);
        self.op(I::LocalGet(value));
    }

    fn list(&mut self, all: &[E]) {
        all.iter().for_each(|one| self.value(one));
        let (list, value) = (self.local(I32), self.local(I64));
        let bytes = 8 + 8 * all.len() as u64;
        let length = i32::try_from(bytes).unwrap_or(0);
        self.ops([I::GlobalGet(TOP), I::LocalTee(list), I::I32Const(length), I::I32Add, I::GlobalSet(TOP)]);
        for n in (0..all.len() as u64).rev() {
            self.ops([I::LocalSet(value), I::LocalGet(list), I::LocalGet(value), I::I64Store(at(8 + 8 * n))]);
        }
        let elements = i64::try_from(all.len()).unwrap_or(0);
        self.ops([I::LocalGet(list), I::I64Const(elements), I::I64Store(at(0))]);
        self.ops([I::LocalGet(list), I::I64ExtendI32U]);
        self.cost.memory = self.cost.memory.saturating_add(bytes);
    }

    /// Keeps each value in a local.
    fn keep<'e>(&mut self, all: impl IntoIterator<Item = &'e E>) -> Vec<u32> {
        let keep = |value| {
            self.value(value);
            let local = self.local(I64);
            self.op(I::LocalSet(local));
            local
        };
        all.into_iter().map(keep).collect()
    }

    /// Writes values that are kept in locals above the top, which they do not move, and returns their begin,
    /// the end of their last list, and the bytes behind that.
    fn encode(&mut self, all: &[(Type, E)], values: &[u32]) -> (u32, u32, u64) {
        let begin = self.local(I32);
        self.ops([I::GlobalGet(TOP), I::LocalSet(begin)]);
        let (mut end, mut offset) = (begin, 0);
        for ((of, _), value) in all.iter().zip(values.iter().copied()) {
            if of.is_list() {
                let next = self.local(I32);
                let before = i32::try_from(offset).unwrap_or(0);
                self.ops([I::LocalGet(end), I::I32Const(before), I::I32Add, I::LocalGet(value)]);
                self.helper(self.layout.copy, &self.layout.copy_code());
                self.op(I::LocalSet(next));
                (end, offset) = (next, 0);
            } else {
                self.ops([I::LocalGet(end), I::LocalGet(value), I::I64Store(at(offset))]);
                offset += parser::most_bytes(*of) as u64;
            }
        }
        (begin, end, offset)
    }

    /// Leaves the length of what was encoded on the stack.
    fn length(&mut self, (begin, end, offset): (u32, u32, u64)) {
        let offset = i32::try_from(offset).unwrap_or(0);
        if begin == end {
            self.op(I::I32Const(offset));
        } else {
            self.ops([I::LocalGet(end), I::I32Const(offset), I::I32Add, I::LocalGet(begin), I::I32Sub]);
        }
    }

    fn send(&mut self, send: &Send) {
        // The arguments are written last: place and parts may make lists.
        let arguments = send.arguments.iter().map(|(_, value)| value);
        let values = self.keep(arguments.chain([&send.place, &send.parts]));
        let [arguments @ .., place, parts] = &values[..] else { return };
        let (place, parts) = (*place, *parts);
        let begin = self.encode(&send.arguments, arguments);
        let function = i32::try_from(send.function).unwrap_or(0);
        self.ops([I::I32Const(send.is_remote.into()), I::I32Const(function), I::LocalGet(begin.0)]);
        self.length(begin);
        self.ops([I::LocalGet(place), I::LocalGet(parts)]);
        self.host(Call::Send);
        self.op(I::I64Const(0));
    }
}
