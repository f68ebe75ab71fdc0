//! Source lines of offsets in a module that was built with them (`flame build --lines`).

use addr2line::Context;
use gimli::{Dwarf, EndianSlice, LittleEndian, SectionId};
use std::collections::HashMap;
use wasmparser::{Parser, Payload};

pub(crate) struct Lines<'a> {
    context: Context<EndianSlice<'a, LittleEndian>>,
    /// The offset of the code section's contents in the file, to which line information is relative.
    code: usize,
}

impl<'a> Lines<'a> {
    /// Returns `None` if there are no lines or if they are damaged: they are for people only.
    pub(crate) fn of(wasm: &'a [u8]) -> Option<Self> {
        let (mut sections, mut code) = (HashMap::new(), None);
        for payload in Parser::new(0).parse_all(wasm) {
            match payload.ok()? {
                Payload::CustomSection(section) => {
                    sections.insert(section.name(), section.data());
                }
                Payload::CodeSectionStart { range, .. } => code = Some(range.start),
                _ => {}
            }
        }
        sections.get(".debug_line")?;
        let section = |id: SectionId| -> Result<_, gimli::Error> {
            Ok(EndianSlice::new(sections.get(id.name()).copied().unwrap_or_default(), LittleEndian))
        };
        let context = Context::from_dwarf(Dwarf::load(section).ok()?).ok()?;
        Some(Self { context, code: code? })
    }

    /// Returns file and line of an offset in the file.
    pub(crate) fn at(&self, offset: usize) -> Option<String> {
        let place = self.context.find_location(offset.checked_sub(self.code)? as u64).ok()??;
        let file = place.file?;
        // The end of a path is enough to identify a file.
        let parts: Vec<&str> = file.rsplit('/').take(3).collect();
        let file = parts.into_iter().rev().collect::<Vec<_>>().join("/");
        let plain = file.replace(char::is_control, " ");
        Some(place.line.map_or_else(|| plain.clone(), |line| format!("{plain}:{line}")))
    }
}
