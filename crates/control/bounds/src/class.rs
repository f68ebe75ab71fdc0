//! Classes of instructions that take about the same time, for estimates in nanoseconds.

use wasmparser::Operator;

/// The class of an instruction on a processor. A calibration measures the cost of each for estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// No machine code: constants, locals, frames.
    Free,
    /// Addition, logic, shifts, comparisons, conversions of integers; `select`.
    Integer,
    Multiply,
    /// Division of integers, including remainders.
    Divide,
    Float,
    /// Division and square root.
    FloatDivide,
    Vector,
    /// A load from a line that is in the first cache; a line further away also costs its latency.
    Load,
    Store,
    /// A well predicted branch.
    Branch,
    /// A branch through a table of labels.
    Table,
    Call,
    CallIndirect,
    /// 16 bytes of a bulk instruction.
    Bulk,
    Grow,
}

impl Class {
    pub const ALL: [Self; 15] = [
        Self::Free,
        Self::Integer,
        Self::Multiply,
        Self::Divide,
        Self::Float,
        Self::FloatDivide,
        Self::Vector,
        Self::Load,
        Self::Store,
        Self::Branch,
        Self::Table,
        Self::Call,
        Self::CallIndirect,
        Self::Bulk,
        Self::Grow,
    ];

    /// Returns the name in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Integer => "integer",
            Self::Multiply => "multiply",
            Self::Divide => "divide",
            Self::Float => "float",
            Self::FloatDivide => "float-divide",
            Self::Vector => "vector",
            Self::Load => "load",
            Self::Store => "store",
            Self::Branch => "branch",
            Self::Table => "table",
            Self::Call => "call",
            Self::CallIndirect => "call-indirect",
            Self::Bulk => "bulk",
            Self::Grow => "grow",
        }
    }

    pub(crate) fn of(operator: &Operator<'_>) -> Self {
        use Operator as O;
        match operator {
            O::Nop
            | O::Drop
            | O::Block { .. }
            | O::Loop { .. }
            | O::Else
            | O::End
            | O::Return
            | O::Unreachable
            | O::LocalGet { .. }
            | O::LocalSet { .. }
            | O::LocalTee { .. }
            | O::I32Const { .. }
            | O::I64Const { .. }
            | O::F32Const { .. }
            | O::F64Const { .. }
            | O::I32WrapI64
            | O::I64ExtendI32U
            | O::RefNull { .. }
            | O::RefFunc { .. }
            // Usually a jump to the next instruction.
            | O::Br { .. } => Self::Free,
            O::If { .. } | O::BrIf { .. } => Self::Branch,
            O::BrTable { .. } => Self::Table,
            O::Call { .. } => Self::Call,
            O::CallIndirect { .. } => Self::CallIndirect,
            O::I32Mul | O::I64Mul => Self::Multiply,
            O::I32DivS | O::I32DivU | O::I32RemS | O::I32RemU | O::I64DivS | O::I64DivU | O::I64RemS | O::I64RemU => {
                Self::Divide
            }
            O::F32Div | O::F64Div | O::F32Sqrt | O::F64Sqrt => Self::FloatDivide,
            O::MemoryGrow { .. } => Self::Grow,
            // The most frequent instructions, without a comparison of names.
            O::I32Add | O::I32Sub | O::I32And | O::I32Or | O::I32Xor | O::I32Shl | O::I32ShrU | O::I32Eqz => {
                Self::Integer
            }
            O::I32Eq | O::I32Ne | O::I32LtU | O::I32GtU | O::I32LeU | O::I32GeU | O::Select => Self::Integer,
            O::I64Add | O::I64Sub | O::I64And | O::I64Or | O::I64Xor | O::I64Shl | O::I64ShrU => Self::Integer,
            O::I32Load { .. } | O::I64Load { .. } | O::I32Load8U { .. } | O::I32Load16U { .. } => Self::Load,
            O::I32Store { .. } | O::I64Store { .. } | O::I32Store8 { .. } => Self::Store,
            operator => by_name(operator),
        }
    }
}

/// Classifies the rest by the beginning of their mnemonics, because there are hundreds.
fn by_name(operator: &Operator<'_>) -> Class {
    let name = mnemonic(operator);
    match () {
        () if name.contains("_load") => Class::Load,
        () if name.contains("_store") || name == "global_set" || name == "table_set" => Class::Store,
        () if name == "global_get" || name == "table_get" => Class::Load,
        () if ["v128", "i8x16", "i16x8", "i32x4", "i64x2", "f32x4", "f64x2"]
            .iter()
            .any(|p| name.starts_with(p)) =>
        {
            Class::Vector
        }
        () if name.starts_with('f') || name.contains("_trunc") => Class::Float,
        () => Class::Integer,
    }
}

macro_rules! mnemonics {
    ($( @$proposal:ident $op:ident $({ $($arg:ident: $argty:ty),* })? => $visit:ident ($($ann:tt)*))*) => {
        fn mnemonic(operator: &Operator<'_>) -> &'static str {
            match operator {
                $( Operator::$op { .. } => stringify!($visit).trim_start_matches("visit_"), )*
                _ => "",
            }
        }
    };
}

wasmparser::for_each_operator!(mnemonics);
