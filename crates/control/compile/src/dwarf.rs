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

    /// Returns file and line of an offset in the file. The instruction that begins a loop often has no line,
    /// or only one of the code around it: the next one with a line of the author stands for it.
    pub(crate) fn at(&self, offset: usize) -> Option<String> {
        let address = offset.checked_sub(self.code)? as u64;
        let mut best: Option<((bool, Origin), Location<'_>)> = None;
        for (origin, place) in (address..address + MAX_DISTANCE).filter_map(|at| self.place(at)) {
            let rank = (place.line.is_some_and(|line| line > 0), origin);
            if best.as_ref().is_none_or(|(known, _)| *known < rank) {
                best = Some((rank, place));
            }
        }
        best.map(|(_, place)| text(&place))
    }

    /// Returns the place of an instruction: of the code that was inlined there, the innermost by the author.
    fn place(&self, address: u64) -> Option<(Origin, Location<'_>)> {
        let mut frames = self.context.find_frames(address).skip_all_loads().ok()?;
        let mut best: Option<(Origin, Location<'_>)> = None;
        while let Ok(Some(frame)) = frames.next() {
            let Some(place) = frame.location else { continue };
            let Some(origin) = place.file.map(Origin::of) else { continue };
            if best.as_ref().is_none_or(|(known, _)| *known < origin) {
                best = Some((origin, place));
            }
        }
        best
    }
}

/// The origin of a source file, in the order in which reports prefer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    Library,
    Sdk,
    Author,
}

impl Origin {
    /// Returns the origin of a file by its path. Rust's library is compiled under the path of its commit, or,
    /// in its debug sections, without one.
    fn of(file: &str) -> Self {
        let is_in = |folders: &[&str]| folders.iter().any(|folder| file.contains(folder));
        if is_in(&["/rustc/", "/lib/rustlib/src/", "library/core/src/"]) {
            Self::Library
        } else if is_in(&["/sdk/rust/src/"]) {
            Self::Sdk
        } else {
            Self::Author
        }
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
