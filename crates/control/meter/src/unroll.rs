//! Tight loops are unrolled, so that one check covers several iterations.
//!
//! ```text
//! loop T          block T                      the loop's end
//!   BODY            loop T                     its head
//! end                 charge
//!                     block BODY br 2 end      a branch to the head continues after this block
//!                     … (TIMES - 1 of them)
//!                     BODY
//!                   end
//!                 end
//! ```
//!
//! Only labels outside the loop change, by the frames added. The charge is for all copies, so a run pays for
//! up to TIMES - 1 iterations that it did not execute.

use wasm_encoder::{BlockType, InstructionSink};
use wasmparser::{BinaryReader, Operator, OperatorsReader};

/// The number of copies of the body.
pub(crate) const TIMES: u64 = 4;
/// The largest size of a body that is copied, in bytes: around 40 instructions, for which a check costs some
/// 5 %.
pub(crate) const MAX_BYTES: usize = 128;

/// A loop that is worth unrolling: small, with a back edge, and without loops and calls inside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tight {
    /// The offsets of its body in the file: after the head, and of its `end`.
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) results: BlockType,
}

/// Returns block types that do not require the module: those without parameters.
pub(crate) fn simple(ty: wasmparser::BlockType) -> Option<BlockType> {
    match ty {
        wasmparser::BlockType::Empty => Some(BlockType::Empty),
        wasmparser::BlockType::Type(ty) => Some(BlockType::Result(crate::types::value_type(ty))),
        wasmparser::BlockType::FuncType(_) => None,
    }
}

/// Writes all copies, without the frames around them. `depth` frames are open in the original, including the
/// loop's, in a function whose `return`s are branches.
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

/// Writes the body once; labels outside the loop are `shift` further out. A `return` becomes a branch to the
/// block around the function.
fn body(
    wasm: &[u8],
    tight: Tight,
    depth: u32,
    shift: u32,
    out: &mut Vec<u8>,
) -> Result<(), wasmparser::Error> {
    let bytes = wasm.get(tight.start..tight.end).unwrap_or_default();
    let mut reader = OperatorsReader::new(BinaryReader::new(bytes, tight.start));
    // The number of open frames inside the loop; its own label is number `inner`.
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
