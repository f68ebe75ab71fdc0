//! Properties of instructions that follow from their names.

use wasmparser::Operator;

macro_rules! mnemonics {
    ($( @$proposal:ident $op:ident $({ $($arg:ident: $argty:ty),* })? => $visit:ident ($($ann:tt)*))*) => {
        fn mnemonic(operator: &Operator<'_>) -> &'static str {
            match operator {
                $( Operator::$op { .. } => stringify!($visit), )*
                _ => "",
            }
        }
    };
}
wasmparser::for_each_operator!(mnemonics);

/// Returns whether an instruction certainly writes no memory.
pub fn keeps_memory(operator: &Operator<'_>) -> bool {
    use Operator as O;
    // The most frequent instructions, without a comparison of names.
    if let O::LocalGet { .. }
    | O::I32Const { .. }
    | O::I32Add
    | O::I32Sub
    | O::I32And
    | O::I32Load { .. }
    | O::I32Load8U { .. }
    | O::LocalSet { .. }
    | O::LocalTee { .. }
    | O::I64Const { .. }
    | O::I32Eq
    | O::I32Ne
    | O::I32Eqz
    | O::I32LtU
    | O::I32GtU
    | O::I32Shl
    | O::I32ShrU
    | O::I32Or
    | O::Select
    | O::GlobalGet { .. }
    | O::GlobalSet { .. }
    | O::I64Load { .. }
    | O::I32Load16U { .. }
    | O::BrIf { .. }
    | O::Br { .. } = operator
    {
        return true;
    }
    let name = mnemonic(operator);
    !(name.is_empty()
        || name.contains("store")
        || name.contains("atomic")
        || (name.contains("memory") && !name.contains("memory_size")))
}
