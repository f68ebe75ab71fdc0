//! The code that counts one load or store: its address is compared with the regions, and the words that it
//! moves are added to the counter of the region that it reaches.

use crate::Region;
use wasm_encoder::{BlockType, Function, InstructionSink};
use wasmparser::{MemArg, Operator};

/// A load or store of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Load {
        words: u32,
        offset: u64,
    },
    /// A store of a value of this type.
    Store {
        words: u32,
        offset: u64,
        value: Value,
    },
    /// A load into a lane of a vector, which is above the address.
    LoadLane {
        words: u32,
        offset: u64,
    },
    /// `memory.copy`, `memory.fill` and `memory.init`: three operands, and n bytes.
    Copy,
    Fill,
    Init,
}

/// The type of a stored value, which is set aside while its address is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    I32,
    I64,
    F32,
    F64,
    V128,
}

impl Access {
    /// Returns the access of an instruction.
    pub(crate) fn of(operator: &Operator<'_>) -> Option<Self> {
        use Operator as O;
        let load = |words, arg: &MemArg| Some(Self::Load { words, offset: arg.offset });
        let store = |words, arg: &MemArg, value| Some(Self::Store { words, offset: arg.offset, value });
        match operator {
            O::I32Load { memarg }
            | O::I32Load8S { memarg }
            | O::I32Load8U { memarg }
            | O::I32Load16S { memarg }
            | O::I32Load16U { memarg }
            | O::I64Load8S { memarg }
            | O::I64Load8U { memarg }
            | O::I64Load16S { memarg }
            | O::I64Load16U { memarg }
            | O::I64Load32S { memarg }
            | O::I64Load32U { memarg }
            | O::F32Load { memarg }
            | O::V128Load8Splat { memarg }
            | O::V128Load16Splat { memarg }
            | O::V128Load32Splat { memarg }
            | O::V128Load32Zero { memarg } => load(1, memarg),
            O::I64Load { memarg }
            | O::F64Load { memarg }
            | O::V128Load8x8S { memarg }
            | O::V128Load8x8U { memarg }
            | O::V128Load16x4S { memarg }
            | O::V128Load16x4U { memarg }
            | O::V128Load32x2S { memarg }
            | O::V128Load32x2U { memarg }
            | O::V128Load64Splat { memarg }
            | O::V128Load64Zero { memarg } => load(2, memarg),
            O::V128Load { memarg } => load(4, memarg),
            O::V128Load8Lane { memarg, .. }
            | O::V128Load16Lane { memarg, .. }
            | O::V128Load32Lane { memarg, .. } => Some(Self::LoadLane { offset: memarg.offset, words: 1 }),
            O::V128Load64Lane { memarg, .. } => Some(Self::LoadLane { offset: memarg.offset, words: 2 }),
            O::I32Store { memarg } | O::I32Store8 { memarg } | O::I32Store16 { memarg } => {
                store(1, memarg, Value::I32)
            }
            O::I64Store8 { memarg } | O::I64Store16 { memarg } | O::I64Store32 { memarg } => {
                store(1, memarg, Value::I64)
            }
            O::F32Store { memarg } => store(1, memarg, Value::F32),
            O::I64Store { memarg } => store(2, memarg, Value::I64),
            O::F64Store { memarg } => store(2, memarg, Value::F64),
            O::V128Store { memarg } => store(4, memarg, Value::V128),
            O::V128Store8Lane { memarg, .. }
            | O::V128Store16Lane { memarg, .. }
            | O::V128Store32Lane { memarg, .. } => store(1, memarg, Value::V128),
            O::V128Store64Lane { memarg, .. } => store(2, memarg, Value::V128),
            O::MemoryCopy { .. } => Some(Self::Copy),
            O::MemoryFill { .. } => Some(Self::Fill),
            O::MemoryInit { .. } => Some(Self::Init),
            _ => None,
        }
    }
}

/// The local variables that counting adds to a function.
#[derive(Clone, Copy)]
pub(crate) struct Locals {
    /// Three of i32: an address or the operands of a bulk instruction.
    pub(crate) operands: u32,
    /// One of each type of [`Value`].
    pub(crate) values: u32,
}

/// The types of [`Locals`], as they are added to a function.
pub(crate) const LOCALS: [(u32, wasm_encoder::ValType); 6] = {
    use wasm_encoder::ValType as T;
    [(3, T::I32), (1, T::I32), (1, T::I64), (1, T::F32), (1, T::F64), (1, T::V128)]
};

/// The functions that are added: each takes the address of a load or store, its offset, and the number of
/// words.
#[derive(Clone, Copy)]
pub(crate) struct Helpers {
    pub(crate) load: u32,
    pub(crate) store: u32,
}

/// The types of the parameters of [`Helpers`].
pub(crate) const PARAMETERS: [wasm_encoder::ValType; 3] = {
    use wasm_encoder::ValType as T;
    [T::I32, T::I64, T::I64]
};

/// Returns the body of a helper, which adds words to the counter of the region that an access reaches. The
/// counters begin at global `first`. What is in no other region is in the own memory.
pub(crate) fn helper(first: u32) -> Function {
    let (address, offset, words) = (0, 1, 2);
    let mut function = Function::new([]);
    let mut code = function.instructions();
    let add = |code: &mut InstructionSink<'_>, region: Region| {
        let counter = first + region as u32;
        code.global_get(counter).local_get(words).i64_add().global_set(counter);
    };
    for region in Region::ALL {
        let Some((from, to)) = region.range() else { continue };
        code.local_get(address).i64_extend_i32_u().local_get(offset).i64_add().i64_const(from.into());
        code.i64_sub().i64_const(i64::from(to - from)).i64_lt_u().if_(BlockType::Empty);
        add(&mut code, region);
        code.return_().end();
    }
    add(&mut code, Region::Own);
    code.end();
    function
}

/// The number of words that an access moves.
#[derive(Clone, Copy)]
enum Words {
    Known(u32),
    /// A quarter of the bytes in a local, rounded up.
    OfBytes(u32),
}

/// Writes the code that counts one access before it is made, which leaves its operands as they were.
pub(crate) struct Counter<'a, 'b> {
    pub(crate) code: &'a mut InstructionSink<'b>,
    pub(crate) locals: Locals,
    pub(crate) helpers: Helpers,
}

impl Counter<'_, '_> {
    pub(crate) fn count(&mut self, access: Access) {
        let [first, second, third] = [0, 1, 2].map(|i| self.locals.operands + i);
        let Helpers { load, store } = self.helpers;
        match access {
            Access::Load { words, offset } => {
                self.code.local_tee(first);
                self.add(load, first, offset, Words::Known(words));
            }
            Access::LoadLane { words, offset } => self.below(Value::V128, |counter| {
                counter.code.local_tee(first);
                counter.add(load, first, offset, Words::Known(words));
            }),
            Access::Store { words, offset, value } => self.below(value, |counter| {
                counter.code.local_tee(first);
                counter.add(store, first, offset, Words::Known(words));
            }),
            Access::Copy | Access::Fill | Access::Init => {
                self.code.local_set(third).local_set(second).local_tee(first);
                if access == Access::Copy {
                    self.add(load, second, 0, Words::OfBytes(third));
                }
                self.add(store, first, 0, Words::OfBytes(third));
                self.code.local_get(second).local_get(third);
            }
        }
    }

    /// Writes code for the operand below a value, which is set aside.
    fn below(&mut self, value: Value, write: impl FnOnce(&mut Self)) {
        let local = self.locals.values + value as u32;
        self.code.local_set(local);
        write(self);
        self.code.local_get(local);
    }

    fn add(&mut self, helper: u32, address: u32, offset: u64, words: Words) {
        self.code.local_get(address).i64_const(offset as i64);
        match words {
            Words::Known(words) => self.code.i64_const(words.into()),
            Words::OfBytes(local) => {
                self.code.local_get(local).i64_extend_i32_u().i64_const(3).i64_add().i64_const(2).i64_shr_u()
            }
        };
        self.code.call(helper);
    }
}
