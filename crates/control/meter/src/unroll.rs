//! Tight loops are written several times over, so that one check serves several iterations.
//!
//! ```text
//! loop T          block T                      the loop's end
//!   BODY            loop T                     its head
//! end                 charge
//!                     block BODY br 2 end      a branch to the head goes on behind this block
//!                     … (TIMES - 1 of them)
//!                     BODY
//!                   end
//!                 end
//! ```
//!
//! Only labels outside the loop change, by the frames added. The charge is for all copies, so a run
//! pays for up to TIMES - 1 iterations it did not make.

use wasm_encoder::{BlockType, InstructionSink};
use wasmparser::{BinaryReader, Operator, OperatorsReader};

/// Copies of the body.
pub(crate) const TIMES: u64 = 4;
/// Most bytes of a body that is copied: around 40 instructions, where a check costs some 5 %.
pub(crate) const MAX_BYTES: usize = 128;

/// A loop that is worth it: small, branched back to, and without loops and calls inside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tight {
    /// Offsets of its body in the file: behind the head, and where its `end` is.
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) results: BlockType,
}

/// Block types that need no look at the module: without parameters.
pub(crate) fn simple(ty: wasmparser::BlockType) -> Option<BlockType> {
    match ty {
        wasmparser::BlockType::Empty => Some(BlockType::Empty),
        wasmparser::BlockType::Type(ty) => Some(BlockType::Result(crate::rewrite::value_type(ty))),
        wasmparser::BlockType::FuncType(_) => None,
    }
}

/// Writes all copies, without the frames around them. `depth` frames are open in the original, the
/// loop's among them, in a function whose `return`s are branches.
pub(crate) fn copies(
    wasm: &[u8],
    tight: Tight,
    depth: u32,
    out: &mut Vec<u8>,
) -> Result<(), wasmparser::Error> {
    for copy in 1..=TIMES {
        let last = copy == TIMES;
        if !last {
            InstructionSink::new(out).block(BlockType::Empty);
        }
        body(wasm, tight, depth, if last { 1 } else { 2 }, out)?;
        if !last {
            InstructionSink::new(out).br(2).end();
        }
    }
    Ok(())
}

/// Writes the body once; labels outside the loop are `shift` further out. A `return` becomes a branch
/// to the block around the function.
fn body(
    wasm: &[u8],
    tight: Tight,
    depth: u32,
    shift: u32,
    out: &mut Vec<u8>,
) -> Result<(), wasmparser::Error> {
    let bytes = wasm.get(tight.start..tight.end).unwrap_or_default();
    let mut reader = OperatorsReader::new(BinaryReader::new(bytes, tight.start));
    // Frames open inside the loop; its own label is number `inner`.
    let mut inner = 0_u32;
    while !reader.eof() {
        let (operator, start) = reader.read_with_offset()?;
        let label = |label: u32| if label > inner { label + shift } else { label };
        match operator {
            Operator::Br { relative_depth } => {
                InstructionSink::new(out).br(label(relative_depth));
                continue;
            }
            Operator::BrIf { relative_depth } => {
                InstructionSink::new(out).br_if(label(relative_depth));
                continue;
            }
            Operator::BrTable { targets } => {
                let labels = targets.targets().map(|t| t.map(label)).collect::<Result<Vec<u32>, _>>()?;
                InstructionSink::new(out).br_table(labels, label(targets.default()));
                continue;
            }
            Operator::Return => {
                InstructionSink::new(out).br(depth + inner + shift);
                continue;
            }
            Operator::Block { .. } | Operator::If { .. } => inner += 1,
            Operator::End => inner = inner.saturating_sub(1),
            _ => {}
        }
        out.extend_from_slice(wasm.get(start..reader.original_position()).unwrap_or_default());
    }
    Ok(())
}
