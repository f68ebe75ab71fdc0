//! The loops that measure the cost of each class.

use crate::cycle::write_cycle;
use crate::shape::{Body, CALLEE, CALLEE_TYPE, EMPTY, HOST_CALL, HOST_CALLS, OPERAND, PAGES, Shape, Step, Z};
use crate::timer::{Timer, whole};
use crate::{CalibrateError, Chain};
use flame_bounds::Class;
use std::collections::BTreeMap;
use wasm_encoder::{BlockType, InstructionSink, MemArg, ValType};
use wasmtime::{Engine, Module};

type Code<'a, 'b> = &'a mut InstructionSink<'b>;

/// The number of instructions in one iteration, so large that the loop's own cost is negligible.
pub const COPIES: u32 = 64;
/// The number of parallel chains: more than a processor has units, and as many as fit registers.
const LANES: u32 = 8;
/// The number of copies for the table. It is no multiple of the number of arms, or each copy would always
/// take the same arm.
const TABLE_COPIES: u32 = 15;

/// The number of rounds. They are apart in time, so that other work on the machine is unlikely to disturb a
/// loop in all of them.
const ROUNDS: u32 = 3;

/// A working set that fits every first-level cache, in bytes.
const CACHED: usize = 4 << 10;
/// The number of bytes that [`copy`] moves at a time, and the address of the pieces.
const PIECE: u32 = 16 << 10;
const PIECES: u32 = 64 << 10;
/// The address at which [`store`] writes.
const STORES: i64 = 128 << 10;
const _: () = assert!(STORES as u64 + 8 * COPIES as u64 <= PAGES << 16);

/// The measurement of a class.
pub struct Recipe {
    class: Class,
    lane: ValType,
    copies: u32,
    /// The number of chains in the independent loop.
    lanes: u32,
    dependent: Body,
    independent: Body,
    /// Additional work of the dependent loop, in as many copies. Its time is subtracted.
    overhead: Option<Body>,
    /// The start value, the operand and the second operand.
    arguments: (i64, i64, i64),
}

const DEFAULT: Recipe = Recipe {
    class: Class::Integer,
    lane: ValType::I64,
    copies: COPIES,
    lanes: LANES,
    dependent: integer,
    independent: integer,
    overhead: None,
    arguments: (0, 1, 0),
};

const ONE_AND_A_HALF: i64 = 0x3ff8_0000_0000_0000;
const HALF: i64 = 0x3fe0_0000_0000_0000;

/// Recipes of all classes but `Free`. `Grow` is last, so that the others see the initial memory.
pub static RECIPES: [Recipe; 14] = [
    Recipe { arguments: (1, 0x0123_4567_89ab_cdef, 0), ..DEFAULT },
    Recipe {
        class: Class::Multiply,
        dependent: multiply,
        independent: multiply,
        arguments: (3, 0x0123_4567_89ab_cdef, 0),
        ..DEFAULT
    },
    // 32-bit quotients, in a chain that does not shrink.
    Recipe {
        class: Class::Divide,
        dependent: divide,
        independent: divide,
        arguments: (3_000_000_019, i64::MAX, 0),
        ..DEFAULT
    },
    Recipe {
        class: Class::Float,
        lane: ValType::F64,
        dependent: float,
        independent: float,
        arguments: (ONE_AND_A_HALF, HALF, 0),
        ..DEFAULT
    },
    Recipe {
        class: Class::FloatDivide,
        lane: ValType::F64,
        dependent: float_divide,
        independent: float_divide,
        arguments: (ONE_AND_A_HALF, HALF, 0),
        ..DEFAULT
    },
    Recipe { class: Class::Vector, lane: ValType::V128, dependent: vector, independent: vector, ..DEFAULT },
    Recipe { class: Class::Load, lane: ValType::I32, dependent: load, independent: load, ..DEFAULT },
    // The stored value is loaded again, from an address that only the processor knows to be the same.
    Recipe {
        class: Class::Store,
        dependent: store_and_load,
        independent: store,
        arguments: (0, STORES, STORES),
        ..DEFAULT
    },
    Recipe {
        class: Class::Branch,
        dependent: branch_on_sum,
        independent: branch,
        overhead: Some(sum),
        ..DEFAULT
    },
    Recipe {
        class: Class::Table,
        copies: TABLE_COPIES,
        lanes: 5,
        dependent: table,
        independent: table,
        overhead: Some(sum),
        ..DEFAULT
    },
    Recipe {
        class: Class::Call,
        lanes: 4,
        dependent: call,
        independent: call_and_drop,
        arguments: (1, 0, 0),
        ..DEFAULT
    },
    Recipe {
        class: Class::CallIndirect,
        lanes: 4,
        dependent: call_indirect,
        independent: call_indirect_and_drop,
        arguments: (1, 0, 0),
        ..DEFAULT
    },
    Recipe {
        class: Class::Bulk,
        copies: 4,
        lanes: 1,
        dependent: copy_to_and_fro,
        independent: copy,
        ..DEFAULT
    },
    Recipe { class: Class::Grow, copies: 16, lanes: 1, dependent: grow, independent: grow, ..DEFAULT },
];

impl Recipe {
    fn name(&self, loop_: &str) -> String {
        format!("{}-{loop_}", self.class.name())
    }

    /// Returns the loops with the names by which they are exported.
    pub fn loops(&self) -> Vec<(String, Shape)> {
        let shape = |lanes, body| Shape { lane: self.lane, lanes, copies: self.copies, body };
        let mut loops = vec![
            (self.name("dependent"), shape(1, self.dependent)),
            (self.name("independent"), shape(self.lanes, self.independent)),
        ];
        if let Some(body) = self.overhead {
            loops.push((self.name("overhead-dependent"), shape(1, body)));
            loops.push((self.name("overhead-independent"), shape(self.lanes, body)));
        }
        loops
    }

    /// Returns the number of instructions in one iteration, as bounds count them.
    fn operations(&self) -> f64 {
        let each = if self.class == Class::Bulk { PIECE / 16 } else { 1 };
        f64::from(self.copies * each)
    }

    /// Returns the time of an instruction in one of the two loops, in picoseconds.
    fn cost(&self, timer: &mut Timer, loop_: &str) -> Result<f64, CalibrateError> {
        let name = self.name(loop_);
        if self.class == Class::Grow {
            return Ok(timer.once_ps(&name)? / self.operations());
        }
        let all = timer.net_ps(&name, self.arguments)?;
        // The branch of the independent loop has no additional work.
        let overhead = match self.overhead {
            Some(_) if self.class != Class::Branch || loop_ == "dependent" => {
                timer.net_ps(&self.name(&format!("overhead-{loop_}")), self.arguments)?
            }
            _ => 0.0,
        };
        Ok((all - overhead).max(0.0) / self.operations())
    }
}

/// Returns the name of the loop of loads, which [`crate::latency`] uses too.
pub fn chase() -> String {
    format!("{}-dependent", Class::Load.name())
}

/// All costs except the latency of memory.
pub struct Costs {
    pub classes: BTreeMap<String, Chain>,
    pub host_call_ps: u64,
    pub dispatch_ps: u64,
}

pub fn measure(
    engine: &Engine,
    module: &Module,
    progress: &mut dyn FnMut(&str),
) -> Result<Costs, CalibrateError> {
    let mut timer = Timer::new(engine, module)?;
    if let Some(memory) = timer.memory(CACHED) {
        write_cycle(memory);
    }
    // Each round keeps the least times so far, so the last one returns the costs.
    for _ in 1..ROUNDS {
        round(&mut timer, progress)?;
    }
    round(&mut timer, progress)
}

fn round(timer: &mut Timer, progress: &mut dyn FnMut(&str)) -> Result<Costs, CalibrateError> {
    progress("calls");
    timer.iteration_ps(EMPTY, (0, 0, 0))?;
    let host_call_ps = whole(timer.net_ps(HOST_CALL, (0, 0, 0))? / f64::from(HOST_CALLS));
    let dispatch_ps = whole(timer.dispatch_ps()?);
    let mut classes = BTreeMap::from([(Class::Free.name().to_owned(), Chain::default())]);
    let mut load_ps = 0.0;
    for recipe in &RECIPES {
        progress(recipe.class.name());
        let mut dependent = recipe.cost(timer, "dependent")?;
        let independent = recipe.cost(timer, "independent")?;
        match recipe.class {
            Class::Load => load_ps = dependent,
            // Subtracts the load in the chain.
            Class::Store => dependent -= load_ps,
            _ => {}
        }
        let chain =
            Chain { dependent_ps: whole(dependent.max(independent)), independent_ps: whole(independent) };
        classes.insert(recipe.class.name().to_owned(), chain);
    }
    Ok(Costs { classes, host_call_ps, dispatch_ps })
}

/// Writes two kinds of instructions alternately, because the compiler would merge equal ones.
fn integer(code: Code, s: Step) {
    code.local_get(s.lane).local_get(OPERAND);
    if s.round.is_multiple_of(2) {
        code.i64_add()
    } else {
        code.i64_xor()
    };
    code.local_set(s.lane);
}

fn sum(code: Code, s: Step) {
    code.local_get(s.lane).local_get(OPERAND).i64_add().local_set(s.lane);
}

fn multiply(code: Code, s: Step) {
    code.local_get(s.lane).local_get(OPERAND).i64_mul().local_set(s.lane);
}

fn divide(code: Code, s: Step) {
    code.local_get(OPERAND).local_get(s.lane).i64_div_u().local_set(s.lane);
}

fn float(code: Code, s: Step) {
    code.local_get(s.lane).local_get(OPERAND);
    if s.round.is_multiple_of(2) {
        code.f64_add()
    } else {
        code.f64_mul()
    };
    code.local_set(s.lane);
}

fn float_divide(code: Code, s: Step) {
    code.local_get(OPERAND).local_get(s.lane).f64_div().local_set(s.lane);
}

fn vector(code: Code, s: Step) {
    code.local_get(s.lane).local_get(OPERAND);
    if s.round.is_multiple_of(2) {
        code.i32x4_add()
    } else {
        code.v128_xor()
    };
    code.local_set(s.lane);
}

fn load(code: Code, s: Step) {
    code.local_get(s.lane).i32_load(at(0)).local_set(s.lane);
}

fn store(code: Code, s: Step) {
    code.local_get(Z).i32_wrap_i64().local_get(s.lane).i64_store(at(s.copy));
}

fn store_and_load(code: Code, s: Step) {
    store(code, s);
    code.local_get(OPERAND).i32_wrap_i64().i64_load(at(s.copy)).local_set(s.lane);
}

/// Returns the offset of the `n`-th number from an address.
fn at(n: u32) -> MemArg {
    MemArg { offset: 8 * u64::from(n), align: 2, memory_index: 0 }
}

/// Writes a branch that is never taken: the sum of small numbers is not zero.
fn branch_on_sum(code: Code, s: Step) {
    sum(code, s);
    code.local_get(s.lane).i64_eqz().br_if(1);
}

/// Writes a branch that is never taken: lanes are multiples of 64, and the constants are not.
fn branch(code: Code, s: Step) {
    code.local_get(s.lane).i64_const(1 + i64::from(s.copy % 63)).i64_eq().br_if(1);
}

/// Writes a table of four arms. The arm that is taken depends on the one before.
fn table(code: Code, s: Step) {
    for _ in 0..5 {
        code.block(BlockType::Empty);
    }
    code.local_get(s.lane).i32_wrap_i64().i32_const(3).i32_and().br_table([0, 1, 2], 3).end();
    for arm in 0..4u32 {
        code.local_get(s.lane).i64_const(1 + 4 * i64::from(arm)).i64_add().local_set(s.lane);
        code.br(3 - arm).end();
    }
}

fn call(code: Code, s: Step) {
    code.local_get(s.lane).call(CALLEE).local_set(s.lane);
}

fn call_and_drop(code: Code, s: Step) {
    code.local_get(s.lane).call(CALLEE).drop();
}

fn call_indirect(code: Code, s: Step) {
    code.local_get(s.lane).local_get(OPERAND).i32_wrap_i64().call_indirect(0, CALLEE_TYPE);
    code.local_set(s.lane);
}

fn call_indirect_and_drop(code: Code, s: Step) {
    code.local_get(s.lane).local_get(OPERAND).i32_wrap_i64().call_indirect(0, CALLEE_TYPE).drop();
}

/// Writes a copy of the bytes that the copy before it wrote.
fn copy_to_and_fro(code: Code, s: Step) {
    let piece = |n: u32| (PIECES + n % 2 * PIECE) as i32;
    code.i32_const(piece(s.copy + 1)).i32_const(piece(s.copy)).i32_const(PIECE as i32).memory_copy(0, 0);
}

fn copy(code: Code, s: Step) {
    let piece = |n: u32| (PIECES + n * PIECE) as i32;
    let from = s.copy % 2 * 2;
    code.i32_const(piece(from + 1)).i32_const(piece(from)).i32_const(PIECE as i32).memory_copy(0, 0);
}

/// Grows by one page, as modules do.
fn grow(code: Code, _: Step) {
    code.i32_const(1).memory_grow(0).drop();
}
