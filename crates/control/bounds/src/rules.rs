//! Limits on the size of a module. Every limit but the first bounds the cost of compiling and running it.

use flame_abi::layout;

/// The limits of [`crate::check()`]. A module at the limit is accepted, one above it is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The size of the file in bytes.
    pub module_bytes: usize,
    pub types: u32,
    /// Parameters of one function or block type. The time of validation grows with instructions times this.
    pub params: u32,
    /// Results of one function or block type.
    pub results: u32,
    /// Imports; only two names are known, but they may be declared repeatedly.
    pub imports: u32,
    pub functions: u32,
    /// Locals of one function, without its parameters.
    pub locals: u32,
    /// Locals of all functions together: they are run-length encoded, so few bytes can declare many.
    pub total_locals: u64,
    pub globals: u32,
    pub exports: u32,
    pub tables: u32,
    /// Elements of all tables together at the start (tables cannot grow).
    pub table_elements: u64,
    /// Element and data segments, each.
    pub segments: u32,
    /// Bytes of all data segments together.
    pub data_bytes: u64,
    pub custom_sections: u32,
    /// Bytes of memory the module starts with.
    pub memory_bytes: u64,
    /// Instructions of one function, because a compiler keeps a function as a whole.
    pub instructions: u64,
    /// Instructions of all functions together.
    pub total_instructions: u64,
    /// Depth of nested blocks in one function.
    pub nesting: u64,
    /// Labels in the `br_table` instructions of one function, each an edge of its control flow.
    pub table_labels: u64,
    /// Labels in the `br_table` instructions of all functions together.
    pub total_table_labels: u64,
    /// Locals of one function times its blocks, loops and branches: at each, compilers and analysers may have
    /// to determine the value of each local.
    pub locals_by_joins: u64,
    /// Globals times the blocks, loops, branches and calls of all functions, for the same reason.
    pub globals_by_joins: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            module_bytes: 32 << 20,
            types: 10_000,
            params: 64,
            results: 16,
            imports: 16,
            functions: 100_000,
            locals: 20_000,
            total_locals: 4_000_000,
            globals: 1_000,
            exports: 10_000,
            tables: 4,
            table_elements: 65_536,
            segments: 20_000,
            data_bytes: 16 << 20,
            custom_sections: 64,
            memory_bytes: layout::MAX_MEMORY as u64,
            instructions: 250_000,
            total_instructions: 16_000_000,
            nesting: 10_000,
            table_labels: 65_536,
            total_table_labels: 500_000,
            locals_by_joins: 10_000_000,
            globals_by_joins: 64_000_000,
        }
    }
}
