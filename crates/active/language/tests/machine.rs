//! A machine for the compiled form, which counts as Wasmtime's fuel does. The code is validated before.

use flame_capsule::{Host, Parts, Place, Target};
use flame_capsule_language::{CALL_WEIGHT, PAGE};
use wasmparser::{ExternalKind, Operator, Parser, Payload, TypeRef, Validator};

/// A function: the number of its parameters, whether it has a result, its locals, and its code.
struct Code<'a> {
    parameters: usize,
    locals: usize,
    operators: Vec<Operator<'a>>,
    /// For each `block`, `loop`, `if` and `else`, where its `end` or `else` is.
    ends: Vec<usize>,
}

pub struct Machine<'a> {
    imports: Vec<(&'a str, usize)>,
    codes: Vec<Code<'a>>,
    exports: Vec<(&'a str, usize)>,
    top: i64,
    memory: Vec<u8>,
    pub count: u64,
    pub highest: i64,
}

pub struct Trap;

impl<'a> Machine<'a> {
    pub fn new(wasm: &'a [u8]) -> Self {
        Validator::new().validate_all(wasm).expect("the compiled form is valid");
        let (mut types, mut functions) = (Vec::new(), Vec::new());
        let mut machine = Self {
            imports: Vec::new(),
            codes: Vec::new(),
            exports: Vec::new(),
            top: 0,
            memory: vec![0; usize::try_from(PAGE).unwrap()],
            count: 0,
            highest: 0,
        };
        for payload in Parser::new(0).parse_all(wasm) {
            match payload.unwrap() {
                Payload::TypeSection(section) => {
                    types =
                        section.into_iter_err_on_gc_types().map(|of| of.unwrap().params().len()).collect();
                }
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import.unwrap();
                        let TypeRef::Func(of) = import.ty else { panic!("{import:?}") };
                        assert_eq!(import.module, "flame");
                        machine.imports.push((import.name, types[of as usize]));
                    }
                }
                Payload::FunctionSection(section) => {
                    functions = section.into_iter().map(|of| types[of.unwrap() as usize]).collect();
                }
                Payload::ExportSection(section) => {
                    for export in section.into_iter().map(Result::unwrap) {
                        if export.kind == ExternalKind::Func {
                            machine.exports.push((export.name, export.index as usize));
                        }
                    }
                }
                Payload::CodeSectionEntry(body) => {
                    let parameters = functions[machine.codes.len()];
                    let locals =
                        body.get_locals_reader().unwrap().into_iter().map(|l| l.unwrap().0 as usize).sum();
                    let operators: Vec<Operator<'_>> =
                        body.get_operators_reader().unwrap().into_iter().map(Result::unwrap).collect();
                    let ends = ends(&operators);
                    machine.codes.push(Code { parameters, locals, operators, ends });
                }
                _ => {}
            }
        }
        machine
    }

    /// Calls the function of a number, as a node does.
    pub fn call(&mut self, function: usize, arguments: &[u8], host: &mut dyn Host) -> Result<(), Trap> {
        self.memory.fill(0xaa);
        self.memory[..arguments.len()].copy_from_slice(arguments);
        let index = self.exports[function].1;
        let mut stack = vec![arguments.len() as i64];
        self.function(index, &mut stack, host)
    }

    fn load(&self, at: i64, offset: u64) -> Result<i64, Trap> {
        let at = usize::try_from(at as u32 as u64 + offset).unwrap();
        let bytes = self.memory.get(at..at + 8).ok_or(Trap)?;
        Ok(i64::from_le_bytes(bytes.try_into().unwrap()))
    }

    fn bytes(&self, at: i64, length: i64) -> Result<Vec<u8>, Trap> {
        let (at, length) = (at as u32 as usize, length as u32 as usize);
        self.memory.get(at..at + length).map(<[u8]>::to_vec).ok_or(Trap)
    }

    fn write(&mut self, at: i64, offset: u64, bytes: &[u8]) -> Result<(), Trap> {
        let at = usize::try_from(at as u32 as u64 + offset).unwrap();
        self.memory.get_mut(at..at + bytes.len()).ok_or(Trap)?.copy_from_slice(bytes);
        Ok(())
    }

    fn import(&mut self, index: usize, stack: &mut Vec<i64>, host: &mut dyn Host) -> Result<(), Trap> {
        let (name, parameters) = self.imports[index];
        self.count += CALL_WEIGHT;
        let a = stack.split_off(stack.len() - parameters);
        let place = |number: i64| Place(number as u64);
        match name {
            "here" => stack.push(host.here().0 as i64),
            "origin" => stack.push(host.origin().0 as i64),
            "from" => stack.push(host.from().0 as i64),
            "now" => stack.push(host.now() as i64),
            "hops" => stack.push(host.hops().into()),
            "next" => stack.push(host.next(place(a[0])).0 as i64),
            "neighbours" => {
                let all: Vec<u64> = host.neighbours().iter().take(32).map(|place| place.0).collect();
                let mut bytes = (all.len() as u64).to_le_bytes().to_vec();
                all.iter().for_each(|place| bytes.extend_from_slice(&place.to_le_bytes()));
                self.count += bytes.len() as u64 / 8;
                self.write(a[0], 0, &bytes)?;
                stack.push(bytes.len() as i64);
            }
            "send" => {
                let arguments = self.bytes(a[2], a[3])?;
                let to = if a[0] == 1 { Target::Remote(place(a[4])) } else { Target::Neighbour(place(a[4])) };
                host.send(a[1] as u8, &arguments, to, Parts::thousandths(a[5])).map_err(|_| Trap)?;
            }
            "deliver" => {
                let bytes = self.bytes(a[0], a[1])?;
                host.deliver(&bytes).map_err(|_| Trap)?;
            }
            "leave" => host.leave(a[0] as u64, a[1], a[2].max(0) as u64).map_err(|_| Trap)?,
            "find" => stack.push(host.find(a[0] as u64)),
            "service" => stack.push(host.service(a[0] as u64, a[1]).map_err(|_| Trap)?),
            _ => panic!("{name}"),
        }
        Ok(())
    }

    fn function(&mut self, index: usize, stack: &mut Vec<i64>, host: &mut dyn Host) -> Result<(), Trap> {
        if index < self.imports.len() {
            return self.import(index, stack, host);
        }
        let code = &self.codes[index - self.imports.len()];
        let mut locals = stack.split_off(stack.len() - code.parameters);
        locals.resize(code.parameters + code.locals, 0);
        let (index, mut at) = (index - self.imports.len(), 0);
        let mut labels: Vec<usize> = Vec::new();
        while at < self.codes[index].operators.len() {
            let code = &self.codes[index];
            let operator = code.operators[at].clone();
            let end = code.ends[at];
            self.count += match operator {
                Operator::Block { .. }
                | Operator::Loop { .. }
                | Operator::Else
                | Operator::End
                | Operator::Unreachable
                | Operator::Drop => 0,
                _ => 1,
            };
            let mut pop = || stack.pop().expect("validated");
            match operator {
                Operator::Block { .. } | Operator::Loop { .. } => labels.push(at),
                Operator::If { .. } => {
                    let is_true = pop() != 0;
                    let has_else = matches!(code.operators[end], Operator::Else);
                    if is_true || has_else {
                        labels.push(at);
                    }
                    if !is_true {
                        at = end;
                    }
                }
                Operator::Else => {
                    labels.pop();
                    at = end;
                }
                Operator::End => drop(labels.pop()),
                Operator::Br { relative_depth } | Operator::BrIf { relative_depth } => {
                    if matches!(operator, Operator::Br { .. }) || pop() != 0 {
                        let label = labels[labels.len() - 1 - relative_depth as usize];
                        if matches!(code.operators[label], Operator::Loop { .. }) {
                            labels.truncate(labels.len() - relative_depth as usize);
                            at = label;
                        } else {
                            labels.truncate(labels.len() - 1 - relative_depth as usize);
                            at = code.ends[label];
                        }
                    }
                }
                Operator::Unreachable => return Err(Trap),
                Operator::Drop => drop(pop()),
                Operator::Select => {
                    let (condition, b, a) = (pop(), pop(), pop());
                    stack.push(if condition != 0 { a } else { b });
                }
                Operator::Call { function_index } => self.function(function_index as usize, stack, host)?,
                Operator::LocalGet { local_index } => stack.push(locals[local_index as usize]),
                Operator::LocalSet { local_index } => locals[local_index as usize] = pop(),
                Operator::LocalTee { local_index } => {
                    locals[local_index as usize] = *stack.last().expect("validated");
                }
                Operator::GlobalGet { .. } => stack.push(self.top),
                Operator::GlobalSet { .. } => {
                    self.top = pop();
                    self.highest = self.highest.max(self.top);
                }
                Operator::I32Const { value } => stack.push((value as u32).into()),
                Operator::I64Const { value } => stack.push(value),
                Operator::I64Load { memarg } => {
                    let at = pop();
                    stack.push(self.load(at, memarg.offset)?);
                }
                Operator::I64Store { memarg } => {
                    let (value, at) = (pop(), pop());
                    self.write(at, memarg.offset, &value.to_le_bytes())?;
                }
                Operator::MemoryCopy { .. } => {
                    let (length, from, to) = (pop(), pop(), pop());
                    let bytes = self.bytes(from, length)?;
                    self.count += length as u64 / 8;
                    self.write(to, 0, &bytes)?;
                }
                Operator::I32WrapI64 | Operator::I64ExtendI32U => {
                    let value = pop();
                    stack.push((value as u32).into());
                }
                _ => {
                    let (b, a) = (pop(), pop());
                    let (x, y) = (a as u32, b as u32);
                    stack.push(match operator {
                        Operator::I64Add => a.wrapping_add(b),
                        Operator::I64Sub => a.wrapping_sub(b),
                        Operator::I64Mul => a.wrapping_mul(b),
                        Operator::I64DivS => a.checked_div(b).ok_or(Trap)?,
                        Operator::I64RemS if b == 0 => return Err(Trap),
                        Operator::I64RemS => a.wrapping_rem(b),
                        Operator::I64Eq => (a == b).into(),
                        Operator::I64Ne => (a != b).into(),
                        Operator::I64LtS => (a < b).into(),
                        Operator::I64LeS => (a <= b).into(),
                        Operator::I64GtS => (a > b).into(),
                        Operator::I64GeS => (a >= b).into(),
                        Operator::I64GeU => (a as u64 >= b as u64).into(),
                        Operator::I64GtU => (a as u64 > b as u64).into(),
                        Operator::I32Add => x.wrapping_add(y).into(),
                        Operator::I32Sub => x.wrapping_sub(y).into(),
                        Operator::I32Shl => (x << (y % 32)).into(),
                        Operator::I32LtU => (x < y).into(),
                        Operator::I32Eq => (x == y).into(),
                        Operator::I32Ne => (x != y).into(),
                        other => panic!("{other:?}"),
                    });
                }
            }
            at += 1;
        }
        Ok(())
    }
}

/// Returns where each block ends; an `if` with an `else` there.
fn ends(operators: &[Operator<'_>]) -> Vec<usize> {
    let mut ends = vec![0; operators.len()];
    let mut open = Vec::new();
    for (at, operator) in operators.iter().enumerate() {
        match operator {
            Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => open.push(at),
            Operator::Else => {
                ends[open.pop().expect("validated")] = at;
                open.push(at);
            }
            Operator::End => {
                if let Some(begin) = open.pop() {
                    ends[begin] = at;
                }
            }
            _ => {}
        }
    }
    ends
}
