//! Source lines of offsets in a module that was built with them (`flame build --lines`).

use addr2line::{Context, Location};
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

    /// Returns file and line of an offset in the file. The instruction that begins a loop often has no line:
    /// the next one with a line stands for it.
    pub(crate) fn at(&self, offset: usize) -> Option<String> {
        let address = offset.checked_sub(self.code)? as u64;
        let near = (address..address + MAX_DISTANCE).filter_map(|at| self.place(at));
        let mut first = None;
        for place in near {
            if place.line.is_some_and(|line| line > 0) {
                return Some(text(&place));
            }
            first = first.or(Some(place));
        }
        first.map(|place| text(&place))
    }

    /// Returns the place of an instruction: of the code that was inlined there, the innermost that does not
    /// belong to Rust's library.
    fn place(&self, address: u64) -> Option<Location<'_>> {
        let mut frames = self.context.find_frames(address).skip_all_loads().ok()?;
        let mut place = None;
        while let Ok(Some(frame)) = frames.next() {
            match frame.location.filter(|l| l.file.is_some()) {
                Some(own) if own.file.is_some_and(|file| !is_library(file)) => return Some(own),
                other => place = place.or(other),
            }
        }
        place
    }
}

/// The largest distance in bytes to an instruction that has a line.
const MAX_DISTANCE: u64 = 24;

fn text(place: &Location<'_>) -> String {
    let file = place.file.unwrap_or_default();
    // The end of a path is enough to identify a file.
    let parts: Vec<&str> = file.rsplit('/').take(3).collect();
    let file = parts.into_iter().rev().collect::<Vec<_>>().join("/");
    let plain = file.replace(char::is_control, " ");
    place.line.filter(|line| *line > 0).map_or_else(|| plain.clone(), |line| format!("{plain}:{line}"))
}

/// Returns whether a file belongs to Rust's library: it is compiled under the path of its commit, or, in its
/// debug sections, without one.
fn is_library(file: &str) -> bool {
    file.contains("/rustc/") || file.contains("/lib/rustlib/src/") || file.contains("library/core/src/")
}
