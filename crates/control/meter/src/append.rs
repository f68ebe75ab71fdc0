//! Sections with entries added after their own, so that no index of the module changes.

use wasm_encoder::Encode;
use wasmparser::BinaryReader;

/// The original bytes of a section, and the entries added to it.
#[derive(Default)]
pub(crate) struct Appended<'a> {
    /// The number of entries in the module.
    pub(crate) count: u32,
    entries: &'a [u8],
    added: u32,
    bytes: Vec<u8>,
}

impl<'a> Appended<'a> {
    /// Parses a section's contents: a count, then entries.
    pub(crate) fn new(section: &'a [u8]) -> Result<Self, wasmparser::Error> {
        let mut reader = BinaryReader::new(section, 0);
        let count = reader.read_var_u32()?;
        let entries = section.get(reader.original_position()..).unwrap_or_default();
        Ok(Self { count, entries, added: 0, bytes: Vec::new() })
    }

    /// Adds one entry, which `write` encodes, and returns its index among the section's entries.
    pub(crate) fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> u32 {
        write(&mut self.bytes);
        self.added += 1;
        self.count + self.added - 1
    }

    /// Returns the number of entries, including those added.
    pub(crate) fn total(&self) -> u32 {
        self.count + self.added
    }

    /// Returns the new contents.
    pub(crate) fn finish(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.entries.len() + self.bytes.len() + 5);
        self.total().encode(&mut out);
        out.extend_from_slice(self.entries);
        out.extend_from_slice(&self.bytes);
        out
    }
}
