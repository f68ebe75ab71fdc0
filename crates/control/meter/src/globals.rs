//! Exports of globals, by which an instance is wiped between two capsules.

use crate::append::Appended;
use crate::error::{ModuleError, Place};
use crate::features;
use flame_abi::capsule::GLOBAL;
use wasm_encoder::{Encode, ExportKind, Module, RawSection};
use wasmparser::{Parser, Payload};

const EXPORTS: u8 = 7;

/// Exports the mutable globals of a valid module, which has exports and imports no globals, from its
/// rewritten form, under [`GLOBAL`] and their indices. The rewriter's own are set by the host.
///
/// # Errors
///
/// Returns an error if a module cannot be read.
pub fn export_globals(original: &[u8], rewritten: &[u8]) -> Result<Vec<u8>, ModuleError> {
    let place = |offset| Place { section: "module", function: None, offset };
    let exported = mutable(original).and_then(|mutable| exporting(rewritten, &mutable));
    exported.map_err(|e| features::refused(&e, place(e.offset())))
}

/// Returns the indices of the mutable globals of a module that imports none.
fn mutable(wasm: &[u8]) -> Result<Vec<u32>, wasmparser::Error> {
    let mut mutable = Vec::new();
    for payload in Parser::new(0).parse_all(wasm) {
        if let Payload::GlobalSection(section) = payload? {
            for (index, global) in (0_u32..).zip(section) {
                if global?.ty.mutable {
                    mutable.push(index);
                }
            }
        }
    }
    Ok(mutable)
}

fn exporting(wasm: &[u8], mutable: &[u32]) -> Result<Vec<u8>, wasmparser::Error> {
    let mut module = Module::new();
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload?;
        let Some((id, range)) = payload.as_section() else { continue };
        let data = wasm.get(range).unwrap_or_default();
        if id == EXPORTS {
            let mut exports = Appended::new(data)?;
            for index in mutable {
                exports.push(|out| {
                    format!("{GLOBAL}{index}").encode(out);
                    ExportKind::Global.encode(out);
                    index.encode(out);
                });
            }
            module.section(&RawSection { id, data: &exports.finish() });
        } else {
            module.section(&RawSection { id, data });
        }
    }
    Ok(module.finish())
}
