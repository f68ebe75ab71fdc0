//! The function that replaces `memory.copy`.

use crate::pieces::{self, DST, N, SRC};
use crate::poll;
use flame_abi::layout::WINDOW;
use wasm_encoder::{BlockType, InstructionSink, MemArg, ValType};

/// Returns `(dst, src, n)`: a `memory.copy` that may also read from the window, and write to the shared areas
/// in it, without its length in the body. `fuel` is the global to charge, if any; `long` is the function for
/// more than [`pieces::PIECE`] bytes.
///
/// Within own memory it is the instruction. All else cannot overlap, because a store into the rest of the
/// window traps; only within one shared area that the module writes it can, and then leaves any bytes there.
/// So it proceeds upwards in steps of 64, then of 16 bytes; the last step overlaps the one before. Nothing
/// beyond 4 GiB is read, which would wrap to the module's own memory. Each step of 64 polls if `places` is
/// the global for it, which costs less beside four stores than a limit on the number of steps.
pub(crate) fn copy(fuel: Option<u32>, long: u32, places: Option<u32>) -> Vec<u8> {
    /// The local with the source's end minus one step.
    const LAST: u32 = 3;
    /// The local with the address of the poll.
    const PAGE: u32 = 4;
    const FUEL: u32 = 5;
    let mut out = pieces::locals(&[(2, ValType::I32), (u32::from(fuel.is_some()), ValType::I64)]);
    let mut code = InstructionSink::new(&mut out);
    if let Some(fuel) = fuel {
        pieces::charge(&mut code, N, FUEL, fuel);
    }
    // The window is the upper half: an address in it is negative.
    const { assert!(WINDOW == 1 << 31) }
    code.local_get(SRC).local_get(DST).i32_or().i32_const(0).i32_ge_s();
    code.if_(BlockType::Empty);
    pieces::leave_long(&mut code, long);
    code.local_get(DST).local_get(SRC).local_get(N).memory_copy(0, 0).return_();
    code.end();

    code.local_get(SRC).i64_extend_i32_u().local_get(N).i64_extend_i32_u().i64_add();
    code.i64_const(1 << 32).i64_gt_u();
    code.if_(BlockType::Empty).unreachable().end();

    code.local_get(N).i32_const(16).i32_lt_u();
    code.if_(BlockType::Empty);
    {
        // 8 to 15 bytes, and 4 to 7, are two overlapping accesses; fewer are copied byte by byte.
        for (half, load) in [(8, Access::I64), (4, Access::I32)] {
            code.local_get(N).i32_const(half).i32_ge_u();
            code.if_(BlockType::Empty);
            // Both are read before either is written, as in any move.
            code.local_get(DST).local_get(SRC);
            load.load(&mut code);
            code.local_get(DST).local_get(N).i32_add().i32_const(half).i32_sub();
            code.local_get(SRC).local_get(N).i32_add().i32_const(half).i32_sub();
            load.load(&mut code);
            load.store(&mut code);
            load.store(&mut code);
            code.return_().end();
        }
        code.block(BlockType::Empty).loop_(BlockType::Empty);
        code.local_get(N).i32_eqz().br_if(1);
        code.local_get(N).i32_const(1).i32_sub().local_set(N);
        code.local_get(DST).local_get(N).i32_add();
        code.local_get(SRC).local_get(N).i32_add().i32_load8_u(at(0)).i32_store8(at(0));
        code.br(0).end().end().return_();
    }
    code.end();

    code.local_get(SRC).local_get(N).i32_add().i32_const(16).i32_sub().local_set(LAST);
    // From here on, local N holds dst - src.
    code.local_get(DST).local_get(SRC).i32_sub().local_set(N);
    // A step begins only below LAST, so SRC never reaches 2^32. The condition is at the end, where it costs
    // one branch less.
    code.local_get(LAST).local_get(SRC).i32_sub().i32_const(48).i32_gt_s();
    code.if_(BlockType::Empty);
    if let Some(places) = places {
        poll::next(&mut code, places);
        code.local_tee(PAGE).global_set(places);
    }
    code.loop_(BlockType::Empty);
    if places.is_some() {
        code.local_get(PAGE);
        poll::load(&mut code, 0);
    }
    code.local_get(SRC).local_get(N).i32_add().local_tee(DST);
    for step in 0..4 {
        if step > 0 {
            code.local_get(DST);
        }
        code.local_get(SRC).v128_load(at(16 * step)).v128_store(at(16 * step));
    }
    code.local_get(SRC).i32_const(64).i32_add().local_set(SRC);
    code.local_get(LAST).local_get(SRC).i32_sub().i32_const(48).i32_gt_s();
    code.br_if(0).end().end();
    code.block(BlockType::Empty).loop_(BlockType::Empty);
    code.local_get(SRC).local_get(LAST).i32_ge_u().br_if(1);
    code.local_get(SRC).local_get(N).i32_add().local_get(SRC).v128_load(at(0)).v128_store(at(0));
    code.local_get(SRC).i32_const(16).i32_add().local_set(SRC);
    code.br(0).end().end();
    code.local_get(LAST).local_get(N).i32_add().local_get(LAST).v128_load(at(0)).v128_store(at(0));
    code.end();
    out
}

enum Access {
    I32,
    I64,
}

impl Access {
    fn load(&self, code: &mut InstructionSink<'_>) {
        match self {
            Self::I32 => code.i32_load(at(0)),
            Self::I64 => code.i64_load(at(0)),
        };
    }

    fn store(&self, code: &mut InstructionSink<'_>) {
        match self {
            Self::I32 => code.i32_store(at(0)),
            Self::I64 => code.i64_store(at(0)),
        };
    }
}

/// Returns an access without alignment, because the module's own alignment is not known.
fn at(offset: u64) -> MemArg {
    MemArg { offset, align: 0, memory_index: 0 }
}
