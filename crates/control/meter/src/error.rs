//! Errors of rejected modules: the fault, its place and its remedy.

use std::fmt;

/// A place in the file, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The name of the section in the Wasm specification, or `module`.
    pub section: &'static str,
    /// The name of the function if the name section has one, otherwise `function N`.
    pub function: Option<String>,
    /// The byte offset in the file.
    pub offset: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.section)?;
        if let Some(function) = &self.function {
            write!(f, ", {function}")?;
        }
        write!(f, " at offset {:#x}", self.offset)
    }
}

/// An error in a module. The fault is always the module's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModuleError {
    #[error(
        "{place}: not valid Wasm: {reason}; the file is damaged, or not what a compiler wrote: build it again"
    )]
    Malformed { reason: String, place: Place },
    /// A feature that is valid elsewhere, but that modules must not use.
    #[error("{place}: uses {feature}, which modules may not ({reason}); {remedy}")]
    Feature { feature: &'static str, reason: String, remedy: &'static str, place: Place },
    #[error("{place}: {found} {what}, at most {limit} are allowed; {remedy}")]
    Limit { what: &'static str, found: u64, limit: u64, remedy: &'static str, place: Place },
    #[error(
        "{place}: the module has a start function, which would run before its budget is set; use flame_init instead"
    )]
    Start { place: Place },
    #[error(
        "{place}: imports {module:?} {name:?}, which no host has; the imports are \"flame\" \"packet\" (index: i32) \
         and \"flame\" \"cold\" (). \
         A function declared but not linked in is imported by name: link it, or build with -nostdlib to see which it is"
    )]
    UnknownImport { module: String, name: String, place: Place },
    #[error("{place}: imports \"flame\" {name:?} as {found}, expected {expected}; use the SDK's declaration")]
    ImportType { name: String, expected: &'static str, found: String, place: Place },
    #[error(
        "{place}: imports the {kind} {module:?} {name:?}; a module defines its own: link without --import-memory and \
         --import-table"
    )]
    ImportedState { kind: &'static str, module: String, name: String, place: Place },
    #[error(
        "module: it exports flame_batch and flame_push: one that forwards packets has only flame_push, others only flame_batch"
    )]
    BatchAndPush,
    #[error("module: the export {name:?} is missing, expected {expected}; {remedy}")]
    MissingExport { name: &'static str, expected: &'static str, remedy: String },
    #[error("{place}: the export {name:?} is {found}, expected {expected}; correct its signature")]
    ExportType { name: &'static str, found: String, expected: &'static str, place: Place },
    #[error(
        "{place}: the export {name:?} is reserved: names that begin with \"flame:\" are the host's; rename it"
    )]
    ReservedExport { name: String, place: Place },
    #[error(
        "{place}: the export \"_initialize\" has to be called before all others, and a host calls flame_init \
         first; build for a target without start files, or let flame_init call it and do not export it"
    )]
    Initializer { place: Place },
    #[error(
        "{place}: {operation} changes a table while the module runs, which is not allowed; build without it"
    )]
    TableOperation { operation: &'static str, place: Place },
    #[error("{place}: a table of {found}, only funcref is allowed; build with -mno-reference-types")]
    TableType { found: String, place: Place },
    #[error(
        "module: no custom section \"flame.manifest\"; build it with `flame build`, which adds module.toml as that section"
    )]
    NoManifest,
    /// The original module is within Wasm's limits, but with the counters it is not.
    #[error("module: too large once its work is counted ({reason}); split its largest functions")]
    Grown { reason: String },
    #[error("{place}: a second custom section \"flame.manifest\"; build it again from a clean module")]
    SecondManifest { place: Place },
}

/// Returns at most 200 characters of a name in the module: a name as long as the file allows would be copied
/// for each place that refers to it.
pub fn cut(name: &str) -> &str {
    name.char_indices().nth(200).map_or(name, |(end, _)| &name[..end])
}

/// Returns a name from a module in a form that is safe to print: short, without control characters.
pub fn printable(name: &str) -> String {
    const MAX: usize = 80;
    let mut text: String = name.chars().take(MAX).map(|c| if c.is_control() { '?' } else { c }).collect();
    if name.chars().nth(MAX).is_some() {
        text.push('…');
    }
    text
}
