//! The functions that the rewriter adds for bulk memory instructions.

use crate::append::Appended;
use crate::charge::Uses;
use crate::code::{Added, Replaced};
use crate::copy;
use crate::pieces::{self, PIECE};
use wasm_encoder::{Encode, NameMap, ValType};

/// The sections to which functions are added, and the bodies so far.
pub(crate) struct Helpers<'o, 'a> {
    /// The number of imported functions.
    pub(crate) imported: u32,
    pub(crate) types: &'o mut Appended<'a>,
    pub(crate) functions: &'o mut Appended<'a>,
    pub(crate) names: &'o mut NameMap,
    pub(crate) bodies: Vec<Vec<u8>>,
}

impl Helpers<'_, '_> {
    /// Adds what the module uses, and records it in `added`. `segments` has the length of each data segment,
    /// 0 of those that no instruction reads.
    pub(crate) fn add(mut self, added: &mut Added, uses: &Uses, segments: &[u32]) -> Vec<Vec<u8>> {
        if !uses.copy && !uses.fill && !uses.length {
            return self.bodies;
        }
        let i32 = ValType::I32;
        let places = added.page;
        let counted = added.meter.then_some(added.fuel);
        let bulk = self.types.push(|out| signature(out, &[i32; 3], &[]));
        added.bulk = bulk;
        if uses.copy {
            // The first two call each other.
            let short = self.next();
            let plain = self.function("flame:copy", bulk, copy::copy(None, short + 1, places));
            let long = self.function("flame:long_copy", bulk, pieces::long_copy(short, places));
            let counted = counted.map(|fuel| copy::copy(Some(fuel), long, places));
            let counted = counted.map(|body| self.function("flame:counted_copy", bulk, body));
            added.copy = Replaced { counted, plain: Some(plain) };
        }
        if uses.fill {
            let short = self.next();
            let plain = self.function("flame:fill", bulk, pieces::fill(None, short + 1));
            let long = self.function("flame:long_fill", bulk, pieces::long_fill(short, places));
            let counted = counted.map(|fuel| pieces::fill(Some(fuel), long));
            let counted = counted.map(|body| self.function("flame:counted_fill", bulk, body));
            added.fill = Replaced { counted, plain: Some(plain) };
        }
        if let Some(fuel) = counted.filter(|_| uses.length) {
            let ty = self.types.push(|out| signature(out, &[i32], &[i32]));
            added.charge = Some(self.function("flame:charge", ty, pieces::charge_length(fuel)));
        }
        for segment in &uses.inits {
            let bytes = segments.get(*segment as usize).copied().unwrap_or(0);
            // What is longer than its segment traps at once.
            if bytes > PIECE {
                let function =
                    self.function("flame:long_init", bulk, pieces::long_init(*segment, bytes, places));
                added.inits.push((*segment, function));
            }
        }
        self.bodies
    }

    /// Returns the index of the next function.
    fn next(&self) -> u32 {
        self.imported + self.functions.total()
    }

    fn function(&mut self, name: &str, ty: u32, body: Vec<u8>) -> u32 {
        let index = self.imported + self.functions.push(|out| ty.encode(out));
        self.names.append(index, name);
        self.bodies.push(body);
        index
    }
}

/// Writes the type of a function.
pub(crate) fn signature(out: &mut Vec<u8>, params: &[ValType], results: &[ValType]) {
    out.push(0x60);
    params.encode(out);
    results.encode(out);
}
