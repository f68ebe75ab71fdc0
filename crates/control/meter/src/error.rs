//! Why a module is refused: what, where, and what to do about it.

use std::fmt;

/// Where in the file, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The section's name in the Wasm specification, or `module`.
    pub section: &'static str,
    /// The function, by its name if the name section has one, else `function N`.
    pub function: Option<String>,
    /// Byte offset in the file.
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

/// The fault is always the module's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModuleError {
    #[error(
        "{place}: not valid Wasm: {reason}; the file is damaged, or not what a compiler wrote: build it again"
    )]
    Malformed { reason: String, place: Place },
    /// Valid elsewhere, but not part of what modules may use.
    #[error("{place}: uses {feature}, which modules may not ({reason}); {remedy}")]
    Feature { feature: &'static str, reason: String, remedy: &'static str, place: Place },
    #[error("{place}: {found} {what}, at most {limit} are allowed; {remedy}")]
    Limit { what: &'static str, found: u64, limit: u64, remedy: &'static str, place: Place },
    #[error(
        "{place}: the module has a start function, which would run before its budget is set; use flame_init instead"
    )]
    Start { place: Place },
    #[error(
        "{place}: imports {module:?} {name:?}, which no host has; the one import is \"flame\" \"packet\" (index: i32). \
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
    #[error("module: the export {name:?} is missing, expected {expected}; {remedy}")]
    MissingExport { name: &'static str, expected: &'static str, remedy: String },
    #[error("{place}: the export {name:?} is {found}, expected {expected}; correct its signature")]
    ExportType { name: &'static str, found: String, expected: &'static str, place: Place },
    #[error(
        "{place}: the export {name:?} is reserved: names that begin with \"flame:\" are the host's; rename it"
    )]
    ReservedExport { name: String, place: Place },
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
    /// It is within Wasm's limits as it came, but not with the counters.
    #[error("module: too large once its work is counted ({reason}); split its largest functions")]
    Grown { reason: String },
    #[error("{place}: a second custom section \"flame.manifest\"; build it again from a clean module")]
    SecondManifest { place: Place },
}

/// A name of the module's, of which no more than 200 characters are kept: as many as its file holds would be
/// copied for each place that names it.
pub fn cut(name: &str) -> &str {
    name.char_indices().nth(200).map_or(name, |(end, _)| &name[..end])
}

/// A module's name for something, safe to print: short, without control characters.
pub fn printable(name: &str) -> String {
    const MAX: usize = 80;
    let mut text: String = name.chars().take(MAX).map(|c| if c.is_control() { '?' } else { c }).collect();
    if name.chars().nth(MAX).is_some() {
        text.push('…');
    }
    text
}
