//! Compiles checked programs to machine code.
//!
//! Each program becomes one function `(bytes, length, wire length) -> result`. Jumps lead only forward, so it
//! terminates. `A`, `X` and the scratch words become registers. A load needs a length test unless every path
//! to it has already passed one at least as strict: `proven` holds the shortest length that is known at each
//! instruction, computed in one pass, since all predecessors come first. Nothing is called but the lookup in
//! a set of addresses.
#![allow(unsafe_code)]

use crate::program::{Alu, FAMILIES_OF_IPV6, Op, Operand, Order, Program, SCRATCH, Size, Test};
use crate::set::AddressSet;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{AbiParam, Block, InstBuilder, MemFlagsData, SigRef, Type, Value, types};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Linkage, Module, default_libcall_names};
use std::sync::{Arc, Mutex};

type Entry = unsafe extern "C" fn(*const u8, usize, u32) -> u32;

/// Machine code and its memory.
pub(crate) struct Code {
    entry: Entry,
    /// The module, which is freed with the code. It is only locked to take it out.
    module: Mutex<Option<JITModule>>,
    /// The sets to which the code has addresses.
    _sets: Arc<[AddressSet]>,
}

/// Looks an address up, by the words that [`AddressSet::contains`] takes.
///
/// # Safety
///
/// `set` must be valid.
unsafe extern "C" fn contains(set: *const AddressSet, a: u32, b: u32, c: u32, d: u32) -> u32 {
    // SAFETY: the caller's.
    let set = unsafe { &*set };
    u32::from(set.contains([a, b, c, d]))
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Code({:p})", self.entry as *const u8)
    }
}

impl Code {
    pub(crate) fn new(program: &Program) -> Result<Self, String> {
        let text = |e: &dyn std::fmt::Display| e.to_string();
        let builder = JITBuilder::with_flags(&[("opt_level", "speed")], default_libcall_names());
        let mut module = JITModule::new(builder.map_err(|e| text(&e))?);
        let mut context = module.make_context();
        let signature = &mut context.func.signature;
        let pointer = module.target_config().pointer_type();
        signature.params.extend([pointer, pointer, types::I32].map(AbiParam::new));
        signature.returns.push(AbiParam::new(types::I32));
        let id = module
            .declare_function("filter", Linkage::Local, &context.func.signature)
            .map_err(|e| text(&e))?;
        let mut frontend = FunctionBuilderContext::new();
        let builder = FunctionBuilder::new(&mut context.func, &mut frontend);
        Translator::new(builder, program).translate(&module);
        module.define_function(id, &mut context).map_err(|e| text(&e))?;
        module.finalize_definitions().map_err(|e| text(&e))?;
        let address = module.get_finalized_function(id);
        // SAFETY: `address` is the finalized function of exactly this signature and the platform's
        // C calling convention, which `make_context` sets as default. Its memory lives until
        // `drop` takes `module` out.
        let entry = unsafe { std::mem::transmute::<*const u8, Entry>(address) };
        Ok(Self { entry, module: Mutex::new(Some(module)), _sets: program.sets().clone() })
    }

    #[inline]
    pub(crate) fn run(&self, bytes: &[u8], wire_len: u32) -> u32 {
        // SAFETY: the code reads only `bytes[..len]` (each load is behind a length test), writes
        // nothing but its stack, and calls nothing but `contains` with one of the sets that live here.
        unsafe { (self.entry)(bytes.as_ptr(), bytes.len(), wire_len) }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        let module = self.module.get_mut().unwrap_or_else(|e| e.into_inner()).take();
        if let Some(module) = module {
            // SAFETY: `self` is borrowed mutably, so no thread runs the code, and `entry` ends with it.
            unsafe { module.free_memory() }
        }
    }
}

struct Translator<'a> {
    b: FunctionBuilder<'a>,
    program: &'a [Op],
    a: Variable,
    x: Variable,
    scratch: [Variable; SCRATCH],
    /// The words of an address of IPv6 that were kept.
    words: [Variable; 4],
    sets: &'a [AddressSet],
    pointer: Type,
    /// The signature of [`contains`], if it was called.
    lookup: Option<SigRef>,
    bytes: Value,
    len: Value,
    wire_len: Value,
    /// The block that returns 0.
    reject: Block,
    /// The blocks of instructions that are targets of jumps or branches.
    blocks: Vec<Option<Block>>,
    /// The number of bytes that the packet is known to have before each instruction, or `None` if it was not
    /// reached (yet).
    proven: Vec<Option<u64>>,
    have: u64,
}

impl<'a> Translator<'a> {
    fn new(mut b: FunctionBuilder<'a>, program: &'a Program) -> Self {
        let start = b.create_block();
        b.append_block_params_for_function_params(start);
        b.switch_to_block(start);
        let [bytes, len, wire_len] = [0, 1, 2].map(|i| b.block_params(start)[i]);
        let zero = b.ins().iconst(types::I32, 0);
        let mut variable = || {
            let v = b.declare_var(types::I32);
            b.def_var(v, zero);
            v
        };
        let (a, x) = (variable(), variable());
        let (scratch, words) = (std::array::from_fn(|_| variable()), std::array::from_fn(|_| variable()));
        let (sets, pointer) = (&**program.sets(), b.func.dfg.value_type(bytes));
        let reject = b.create_block();
        let ops = program.ops();
        let (blocks, mut proven) = (vec![None; ops.len()], vec![None; ops.len()]);
        proven[0] = Some(0);
        let (lookup, have) = (None, 0);
        Self {
            b,
            program: ops,
            a,
            x,
            scratch,
            words,
            sets,
            pointer,
            lookup,
            bytes,
            len,
            wire_len,
            reject,
            blocks,
            proven,
            have,
        }
    }

    fn translate(mut self, module: &JITModule) {
        let mut open = true;
        for at in 0..self.program.len() {
            let Some(have) = self.proven[at] else { continue };
            if let Some(block) = self.blocks[at] {
                if open {
                    self.b.ins().jump(block, &[]);
                }
                self.b.switch_to_block(block);
                // All predecessors have been translated.
                self.b.seal_block(block);
            }
            self.have = have;
            open = self.op(self.program[at], module);
            if open {
                // `check` made sure that the last instruction returns, so there is a next one.
                self.reach(at + 1);
            }
        }
        self.b.switch_to_block(self.reject);
        let zero = self.b.ins().iconst(types::I32, 0);
        self.b.ins().return_(&[zero]);
        self.b.seal_all_blocks();
        self.b.finalize(module.target_config());
    }

    fn reach(&mut self, at: usize) {
        let have = self.have;
        self.proven[at] = Some(self.proven[at].map_or(have, |p| p.min(have)));
    }

    fn target(&mut self, at: usize) -> Block {
        self.reach(at);
        *self.blocks[at].get_or_insert_with(|| self.b.create_block())
    }

    fn imm(&mut self, k: u32) -> Value {
        self.b.ins().iconst(types::I32, i64::from(k))
    }

    fn operand(&mut self, operand: Operand) -> Value {
        match operand {
            Operand::K(k) => self.imm(k),
            Operand::X => self.b.use_var(self.x),
        }
    }

    /// Rejects the packet if `condition` is true, and continues in a new block otherwise.
    fn reject_if(&mut self, condition: Value) {
        let next = self.b.create_block();
        self.b.ins().brif(condition, self.reject, &[], next, &[]);
        self.b.switch_to_block(next);
        self.b.seal_block(next);
    }

    /// Rejects packets that are shorter than `end`.
    fn need(&mut self, end: u64) {
        if end > self.have {
            // Offsets are 32 bits, so `end` fits easily.
            let end_value = self.b.ins().iconst(types::I64, end as i64);
            let short = self.b.ins().icmp(IntCC::UnsignedLessThan, self.len, end_value);
            self.reject_if(short);
            self.have = end;
        }
    }

    /// Reads bytes in network order and widens them to 32 bits. The caller has tested that they lie in the
    /// packet.
    fn read(&mut self, address: Value, size: Size) -> Value {
        let flags = MemFlagsData::new().with_notrap();
        let kind = match size {
            Size::Byte => types::I8,
            Size::Half => types::I16,
            Size::Word => types::I32,
        };
        let mut v = self.b.ins().load(kind, flags, address, 0);
        if size != Size::Byte && cfg!(target_endian = "little") {
            v = self.b.ins().bswap(v);
        }
        if size == Size::Word { v } else { self.b.ins().uextend(types::I32, v) }
    }

    fn load(&mut self, size: Size, k: u32) -> Value {
        self.need(u64::from(k) + size as u64);
        let k = self.b.ins().iconst(types::I64, i64::from(k));
        let address = self.b.ins().iadd(self.bytes, k);
        self.read(address, size)
    }

    /// Loads at `x + k`. 64 bits hold `x + k + size`, so a sum beyond 32 bits is beyond the packet.
    fn load_indirect(&mut self, size: Size, k: u32) -> Value {
        let x = self.b.use_var(self.x);
        let x = self.b.ins().uextend(types::I64, x);
        let k_value = self.b.ins().iconst(types::I64, i64::from(k));
        let offset = self.b.ins().iadd(x, k_value);
        let width = self.b.ins().iconst(types::I64, size as i64);
        let end = self.b.ins().iadd(offset, width);
        let short = self.b.ins().icmp(IntCC::UnsignedLessThan, self.len, end);
        self.reject_if(short);
        self.have = self.have.max(u64::from(k) + size as u64);
        let address = self.b.ins().iadd(self.bytes, offset);
        self.read(address, size)
    }

    /// Computes [`crate::program::family`].
    fn family(&mut self, order: Order) -> Value {
        let word = self.load(Size::Word, 0);
        let most = self.imm(0xffff);
        let is_other = self.b.ins().icmp(IntCC::UnsignedGreaterThan, word, most);
        let swapped = self.b.ins().bswap(word);
        let mut family = self.b.ins().select(is_other, swapped, word);
        let [first, others @ ..] = FAMILIES_OF_IPV6.map(|family| self.imm(family));
        for other in others {
            let is_other = self.b.ins().icmp(IntCC::Equal, family, other);
            family = self.b.ins().select(is_other, first, family);
        }
        match order == Order::Native && cfg!(target_endian = "little") {
            true => self.b.ins().bswap(family),
            false => family,
        }
    }

    fn alu(&mut self, alu: Alu, operand: Operand) {
        let a = self.b.use_var(self.a);
        let b = self.operand(operand);
        if matches!((alu, operand), (Alu::Div | Alu::Mod, Operand::X)) {
            let zero = self.imm(0);
            let is_zero = self.b.ins().icmp(IntCC::Equal, b, zero);
            self.reject_if(is_zero);
        }
        let v = match alu {
            Alu::Add => self.b.ins().iadd(a, b),
            Alu::Sub => self.b.ins().isub(a, b),
            Alu::Mul => self.b.ins().imul(a, b),
            Alu::Div => self.b.ins().udiv(a, b),
            Alu::Mod => self.b.ins().urem(a, b),
            Alu::And => self.b.ins().band(a, b),
            Alu::Or => self.b.ins().bor(a, b),
            Alu::Xor => self.b.ins().bxor(a, b),
            // Cranelift takes the amount modulo 32.
            Alu::Lsh | Alu::Rsh => {
                let shifted = if alu == Alu::Lsh { self.b.ins().ishl(a, b) } else { self.b.ins().ushr(a, b) };
                let (limit, zero) = (self.imm(32), self.imm(0));
                let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, b, limit);
                self.b.ins().select(inside, shifted, zero)
            }
        };
        self.b.def_var(self.a, v);
    }

    fn branch(&mut self, test: Test, operand: Operand, yes: usize, no: usize) {
        let a = self.b.use_var(self.a);
        let b = self.operand(operand);
        let holds = match test {
            Test::Eq => self.b.ins().icmp(IntCC::Equal, a, b),
            Test::Gt => self.b.ins().icmp(IntCC::UnsignedGreaterThan, a, b),
            Test::Ge => self.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, a, b),
            Test::Set => self.b.ins().band(a, b),
        };
        let (yes, no) = (self.target(yes), self.target(no));
        self.b.ins().brif(holds, yes, &[], no, &[]);
    }

    fn branch_set(&mut self, number: usize, module: &JITModule, yes: usize, no: usize) {
        let signature = *self.lookup.get_or_insert_with(|| {
            let mut signature = module.make_signature();
            signature.params.push(AbiParam::new(self.pointer));
            signature.params.extend([AbiParam::new(types::I32); 4]);
            signature.returns.push(AbiParam::new(types::I32));
            self.b.import_signature(signature)
        });
        let set = &self.sets[number];
        let mut words = self.words.map(|word| self.b.use_var(word));
        words[set.last()] = self.b.use_var(self.a);
        let address = |pointer: usize| pointer as i64;
        let set = self.b.ins().iconst(self.pointer, address(std::ptr::from_ref(set) as usize));
        let function = self.b.ins().iconst(self.pointer, address(contains as *const () as usize));
        let [a, b, c, d] = words;
        let call = self.b.ins().call_indirect(signature, function, &[set, a, b, c, d]);
        let found = self.b.inst_results(call)[0];
        let (yes, no) = (self.target(yes), self.target(no));
        self.b.ins().brif(found, yes, &[], no, &[]);
    }

    /// Translates an instruction and returns whether control continues at the next one.
    fn op(&mut self, op: Op, module: &JITModule) -> bool {
        let (variable, value) = match op {
            Op::LoadAbs(size, k) => (self.a, self.load(size, k)),
            Op::LoadInd(size, k) => (self.a, self.load_indirect(size, k)),
            Op::LoadFamily(order) => (self.a, self.family(order)),
            Op::LoadXHeader(k) => {
                let byte = self.load(Size::Byte, k);
                let (mask, two) = (self.imm(15), self.imm(2));
                let words = self.b.ins().band(byte, mask);
                (self.x, self.b.ins().ishl(words, two))
            }
            Op::LoadLen => (self.a, self.wire_len),
            Op::LoadXLen => (self.x, self.wire_len),
            Op::LoadImm(k) => (self.a, self.imm(k)),
            Op::LoadXImm(k) => (self.x, self.imm(k)),
            Op::LoadScratch(m) => (self.a, self.b.use_var(self.scratch[usize::from(m)])),
            Op::LoadXScratch(m) => (self.x, self.b.use_var(self.scratch[usize::from(m)])),
            Op::Store(m) => (self.scratch[usize::from(m)], self.b.use_var(self.a)),
            Op::StoreX(m) => (self.scratch[usize::from(m)], self.b.use_var(self.x)),
            Op::MoveToX => (self.x, self.b.use_var(self.a)),
            Op::MoveToA => (self.a, self.b.use_var(self.x)),
            Op::Negate => {
                let a = self.b.use_var(self.a);
                (self.a, self.b.ins().ineg(a))
            }
            Op::Alu(alu, operand) => {
                self.alu(alu, operand);
                return true;
            }
            Op::Jump(to) => {
                let block = self.target(to);
                self.b.ins().jump(block, &[]);
                return false;
            }
            Op::Branch(test, operand, yes, no) => {
                self.branch(test, operand, yes, no);
                return false;
            }
            Op::Keep(word, to) => {
                let a = self.b.use_var(self.a);
                self.b.def_var(self.words[word], a);
                let block = self.target(to);
                self.b.ins().jump(block, &[]);
                return false;
            }
            Op::BranchSet(number, yes, no) => {
                self.branch_set(number, module, yes, no);
                return false;
            }
            Op::ReturnImm(k) => {
                let k = self.imm(k);
                self.b.ins().return_(&[k]);
                return false;
            }
            Op::ReturnA => {
                let a = self.b.use_var(self.a);
                self.b.ins().return_(&[a]);
                return false;
            }
        };
        self.b.def_var(variable, value);
        true
    }
}
