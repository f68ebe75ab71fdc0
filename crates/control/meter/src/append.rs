//! Sections with entries added behind their own, so that no index of the module changes.

use wasm_encoder::Encode;
use wasmparser::BinaryReader;

/// A section's bytes as they came, and what is added to it.
#[derive(Default)]
pub(crate) struct Appended<'a> {
    /// Entries the module has.
    pub(crate) count: u32,
    entries: &'a [u8],
    added: u32,
    bytes: Vec<u8>,
}

impl<'a> Appended<'a> {
    /// Takes a section's contents: a count, then entries.
    pub(crate) fn new(section: &'a [u8]) -> Result<Self, wasmparser::Error> {
        let mut reader = BinaryReader::new(section, 0);
        let count = reader.read_var_u32()?;
        let entries = section.get(reader.original_position()..).unwrap_or_default();
        Ok(Self { count, entries, added: 0, bytes: Vec::new() })
    }

    /// Adds one entry, which `write` encodes; its index among the section's entries comes back.
    pub(crate) fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> u32 {
        write(&mut self.bytes);
        self.added += 1;
        self.count + self.added - 1
    }

    /// Entries with those added.
    pub(crate) fn total(&self) -> u32 {
        self.count + self.added
    }

    /// The new contents.
    pub(crate) fn finish(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.entries.len() + self.bytes.len() + 5);
        self.total().encode(&mut out);
        out.extend_from_slice(self.entries);
        out.extend_from_slice(&self.bytes);
        out
    }
}
