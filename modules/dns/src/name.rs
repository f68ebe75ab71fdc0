//! Names (RFC 1035, sections 3.1 and 4.1.4): labels, with compression pointers, as text.

use flame_module::{FixedText, limit};

/// The longest name in bytes as it is sent.
pub const LONGEST: usize = 255;
/// The longest text of a name. A byte takes at most four characters (`\037`), U+FFFD three bytes.
pub const TEXT: usize = 4 * LONGEST;

/// Appends a name as tshark prints it: as [`FixedText::push_bytes`] does, and the root as `<Root>`.
pub fn push<const N: usize>(text: &mut FixedText<N>, name: &Name) {
    push_labels(text, name.bytes());
}

/// Appends labels that are joined by dots, as [`push`] does.
pub fn push_labels<const N: usize>(text: &mut FixedText<N>, labels: &[u8]) {
    match labels {
        [] => text.push("<Root>"),
        bytes => text.push_bytes(bytes),
    }
}
/// The largest number of pointers in one name. A name has at most 127 labels, and real ones one pointer.
const POINTERS: usize = 16;
/// The largest number of steps through a name: labels and pointers.
const STEPS: usize = 128 + POINTERS;

/// A name without its pointers: labels, joined by dots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; LONGEST + 1],
    len: u8,
}

impl Default for Name {
    fn default() -> Self {
        Self { bytes: [0; LONGEST + 1], len: 0 }
    }
}

impl Name {
    /// Reads the name at `at` of a message. Returns it with the offset after it, or `None` if it is cut off,
    /// too long, has a label of an unknown kind, or pointers that lead to more pointers than any name needs.
    #[inline(never)]
    pub fn read(message: &[u8], at: usize) -> Option<(Self, usize)> {
        let mut name = Self::default();
        let mut used = 0;
        let mut at = at;
        let mut after = 0;
        let mut pointers = 0;
        for _ in 0..STEPS {
            let len = usize::from(*message.get(at)?);
            match len >> 6 {
                0 if len == 0 => {
                    name.len = used as u8;
                    return Some((name, if pointers == 0 { at + 1 } else { after }));
                }
                0 => {
                    let label = message.get(at + 1..at + 1 + len)?;
                    // A dot before all but the first label; the last length byte takes one more on the wire.
                    let start = used + usize::from(used > 0);
                    let end = start + label.len();
                    if end > LONGEST - 2 {
                        return None;
                    }
                    if used > 0 {
                        *name.bytes.get_mut(used)? = b'.';
                    }
                    let len = limit(label.len(), 63);
                    name.bytes.get_mut(start..start + len)?.copy_from_slice(&label[..len]);
                    used = end;
                    at += 1 + len;
                }
                3 => {
                    let low = usize::from(*message.get(at + 1)?);
                    if pointers == 0 {
                        after = at + 2;
                    }
                    pointers += 1;
                    if pointers > POINTERS {
                        return None;
                    }
                    at = (len & 63) << 8 | low;
                }
                _ => return None,
            }
        }
        None
    }

    /// Returns the labels, joined by dots.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len).min(LONGEST)]
    }

    /// Changes A to Z to lower case, as names are compared (RFC 4343).
    pub fn lower(mut self) -> Self {
        self.bytes.make_ascii_lowercase();
        self
    }

    /// Returns a hash that is equal for names that differ in the case of letters only.
    #[inline(never)]
    pub fn hash(&self) -> u64 {
        let mut hash = u64::from(self.len);
        for eight in self.lower().bytes.as_chunks::<8>().0 {
            hash = flame_module::mix(hash ^ u64::from_le_bytes(*eight));
        }
        hash
    }
}
