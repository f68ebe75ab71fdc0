//! The bytes of a packet that are shown in another form, and what becomes of them when the others change.

use crate::cover::{Cover, moved};
use std::ops::Range;

/// The bytes that one packet is not shown as they are, such as checksums of hidden payload.
#[derive(Clone, Debug, Default)]
pub struct Hidden(Vec<Part>);

/// Bytes that are shown in another form.
#[derive(Clone, Debug)]
struct Part {
    place: Range<usize>,
    /// The bytes that it covers, if it is a checksum.
    cover: Option<Cover>,
}

impl Hidden {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn add(&mut self, place: Range<usize>) {
        self.0.push(Part { place, cover: None });
    }

    /// Adds a checksum. Those around it follow it.
    pub(crate) fn add_checksum(&mut self, cover: Cover) {
        self.0.push(Part { place: cover.at..cover.at + 2, cover: Some(cover) });
    }

    /// Returns whether all bytes are shown as they are.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a byte is not shown as it is.
    pub fn contains(&self, at: usize) -> bool {
        self.0.iter().any(|part| part.place.contains(&at))
    }

    /// Makes the bytes that are not shown as they are those of `before` again, in a changed form of its first
    /// bytes. A checksum follows the changes of the bytes that it covers (RFC 1624), so it is right if it was
    /// right; 0 stays where it means that there is none.
    pub fn restore(&self, before: &[u8], changed: &mut [u8]) {
        for Part { place, .. } in &self.0 {
            let place = place.start.min(changed.len())..place.end.min(changed.len());
            changed[place.clone()].copy_from_slice(&before[place]);
        }
        for Cover { start, end, at, optional, addresses, .. } in self.0.iter().filter_map(|p| p.cover) {
            if at + 2 > changed.len() {
                continue;
            }
            let old = u16::from_be_bytes([changed[at], changed[at + 1]]);
            if optional && old == 0 {
                continue;
            }
            let covered = start..end.unwrap_or(usize::MAX).min(changed.len());
            let of_addresses = difference(before, changed, addresses.0..addresses.1);
            let change = difference(before, changed, covered) + of_addresses;
            changed[at..at + 2].copy_from_slice(&moved(old, change, optional).to_be_bytes());
        }
    }
}

/// Returns the difference of the sums of two forms of some bytes, of which the first is high in its word.
fn difference(before: &[u8], after: &[u8], place: Range<usize>) -> i64 {
    let pairs = before.iter().zip(after).enumerate().take(place.end).skip(place.start);
    let weigh = |at: usize| if (at - place.start).is_multiple_of(2) { 256 } else { 1 };
    pairs.map(|(at, (old, new))| (i64::from(*new) - i64::from(*old)) * weigh(at)).sum()
}
